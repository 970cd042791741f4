//! An endpoint from the keys of a port.

use super::{
    CompletionDelay, FLAP_MAX, FLAP_MIN, Far, Interrupts, RATE_MAX, RING_MAX, RING_MIN, Sim,
    SimConfig,
};
use crate::driver::DeviceError;
use crate::driver::key::{Key, Takes, Value, Words, Wrong, keys, number};
use crate::driver::options::{Options, Request, TakesLink};
use packtrain_offload::offload::LinkType;

/// What a `sim:` port is, from its keys. Its segment limit is
/// [`PortConfig::segments`](crate::driver::PortConfig::segments).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimOptions {
    /// Descriptors of each ring; `None` for the default.
    pub rings: Option<usize>,
    /// The simulated other end.
    pub far: Far,
    /// The other settings of the endpoint.
    pub device: SimConfig,
    /// Each TX queue is stalled from the start until it is reset.
    pub hang: bool,
    /// Sent packets, from the first, whose completions are lost.
    pub lose_completions: u64,
    /// Wake-ups for completions, from the first, that are lost.
    pub lose_wakeups: u64,
    /// The link type; `None` takes the other port's.
    pub link: Option<LinkType>,
}

impl Words for Far {
    const WORDS: &'static [(&'static str, Self)] =
        &[("discard", Self::Discard), ("echo", Self::Echo)];
}

impl Words for Interrupts {
    const WORDS: &'static [(&'static str, Self)] =
        &[("counted", Self::Counted), ("each", Self::Each)];
}

/// The most steps of `completion-delay=`: as many as the largest ring has descriptors.
const COMPLETION_STEPS_MAX: u64 = RING_MAX as u64;

/// A count and what is counted: `3flushes`.
impl Value for CompletionDelay {
    fn read(text: &str, _: Takes) -> Result<Self, Wrong> {
        let digits = text.find(|c: char| !c.is_ascii_digit());
        let (count, unit) = text.split_at(digits.ok_or(Wrong::Value)?);
        let count = number(count, 1, COMPLETION_STEPS_MAX)?;
        match unit {
            "flushes" => Ok(Self::Flushes(count)),
            "reclaims" => Ok(Self::Reclaims(count)),
            "packets" => Ok(Self::Packets(count)),
            _ => Err(Wrong::Value),
        }
    }

    fn text(&self, _: Takes) -> String {
        match self {
            Self::None => String::new(),
            Self::Flushes(count) => format!("{count}flushes"),
            Self::Reclaims(count) => format!("{count}reclaims"),
            Self::Packets(count) => format!("{count}packets"),
        }
    }
}

impl Options for SimOptions {
    type Driver = Sim;

    const KEYS: &'static [Key<Self>] = keys! { Self;
        "rings" (Range(RING_MIN as u64, RING_MAX as u64)) rings: "descriptors of each ring";
        "far" (Words) far: "what the other end does with packets";
        "completion-delay" (Text("Nflushes|Nreclaims|Npackets (N from 1 to 4096)")) device.delay:
            "how much later sent packets are completed";
        "rate" (Range(1, RATE_MAX)) device.rate:
            "packets that each TX queue sends in a second; a GSO packet counts once";
        "interrupts" (Words) device.interrupts:
            "with rate=: one interrupt for many sent packets, or one for each";
        "bad-descriptors" (Range(1, 1_000_000)) device.corrupt_every:
            "one of this many received packets has a bad descriptor, and is dropped";
        "flap" (Time(FLAP_MIN, FLAP_MAX)) device.flap:
            "the link goes down and up again, a change each time";
        "flow-control" (Switch("off", "on")) device.flow_control:
            "with far=echo: a full RX ring pauses the sender instead of dropping packets";
        "shuffled" (Flag) device.reorder: "complete sent packets in random order";
        "hang" (Flag) hang: "each TX queue hangs until it is reset";
        "lose-completions" (Range(1, 4096)) lose_completions:
            "the first sent packets whose completion is lost";
        "lose-wakeups" (Range(1, 4096)) lose_wakeups:
            "the first completion interrupts that are lost";
        "link" (Words) link: "link type of its packets";
    };

    fn check(&self, _: &Request<'_>, given: &[&str]) -> Result<(), String> {
        let each = self.device.interrupts == Interrupts::Each;
        let why = if each && self.device.rate.is_none() {
            "interrupts=each needs a rate: without one, sent packets are completed when they are \
             looked for; add rate=N, or leave interrupts= out"
        } else if given.contains(&"bad-descriptors") && self.far == Far::Discard {
            "key 'bad-descriptors' needs packets that arrive: add far=echo, or leave it out"
        } else if self.device.flow_control && self.far == Far::Discard {
            "flow-control=on needs packets that arrive: add far=echo, or leave it out"
        } else {
            return Ok(());
        };
        Err(why.to_owned())
    }

    fn open(&self, port: &Request<'_>) -> Result<Sim, DeviceError> {
        let usual = &self.device;
        let segments = port.config.segments.unwrap_or(usual.segments);
        let config = SimConfig {
            link: self.link.or(port.link).unwrap_or_default(),
            queues: port.config.queues.unwrap_or(usual.queues),
            tx_ring: self.rings.unwrap_or(usual.tx_ring),
            rx_ring: self.rings.unwrap_or(usual.rx_ring),
            segments,
            gso_segments: port.config.gso_segments.unwrap_or(segments),
            ..usual.clone()
        };
        config.validate()?;
        let queues = config.queues;
        let sim = Sim::alone(config, self.far, port.seed.unwrap_or(1));
        let control = sim.control();
        if self.hang {
            (0..queues).for_each(|queue| control.hang(queue));
        }
        control.lose_completions(self.lose_completions);
        control.lose_interrupts(self.lose_wakeups);
        Ok(sim)
    }

    fn takes_link(&self) -> TakesLink {
        self.link.map_or(TakesLink::Any, |_| TakesLink::None)
    }
}
