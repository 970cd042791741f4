//! Port specs: `KIND:NAME[,key=value…]` as people write it, parsed into plain data.
//!
//! ```
//! use packtrain::port::spec::{PortKind, PortSpec};
//!
//! let spec: PortSpec = "tap:tap0,queues=4,offload=csum+tso".parse()?;
//! assert!(matches!(spec.kind, PortKind::Tap(_)));
//! assert_eq!((spec.name.as_str(), spec.config.queues), ("tap0", Some(4)));
//! # Ok::<(), packtrain::port::spec::SpecError>(())
//! ```
//!
//! A `null:` or `sim:` port has no name, so its keys start right after the colon:
//! `sim:rings=512,seed=7`. In names and values a comma is written `\,` and a backslash `\\`; no
//! other character needs that. A setting with arguments (`moderation=fixed(50,32)`) has its commas
//! in parentheses, where they stay as they are. A key may be given once. Every key, with its
//! values, is in [`KEYS`].

mod error;
mod keys;
mod options;
mod value;

#[cfg(test)]
mod tests;

pub use error::SpecError;
pub use keys::{KEYS, Key};
pub use options::{NullOptions, Pace, PcapOptions, PortKind, SimOptions, TunTapOptions, Wrappers};
pub use value::{DELAY_MAX, INTERFACE_NAME_BYTES_MAX};

use super::null::Protocol;
use super::sim::{Far, Interrupts};
use crate::driver::{Coalesce, Features, PortConfig, SettingError, gro};
use keys::{KINDS, NOT_BUILT, nearest};
use packtrain_offload::offload::LinkType;
use std::fmt;
use std::str::FromStr;
use value::{Escaped, Quoted, TimeText};

/// A port, as the user wrote it. Its `Display` is a spec that parses to the same port.
#[derive(Clone, Debug, PartialEq)]
pub struct PortSpec {
    /// The kind of port, with the keys that only this kind has.
    pub kind: PortKind,
    /// The interface's name, or the capture file; empty for `null:` and `sim:`, and for a TAP or
    /// TUN given by `fd=` without a name.
    pub name: String,
    /// The keys that every kind has. Offloads include those that they need: TSO includes its
    /// checksum. Segments are the device's own limits for `sim:`, else a limit lower than the
    /// device's. With `fd=`, there are as many queues as descriptors.
    pub config: PortConfig,
    /// The wrappers around the driver.
    pub wrappers: Wrappers,
}

impl PortKind {
    fn parse(kind: &str) -> Result<Self, SpecError> {
        Ok(match kind {
            "tap" => Self::Tap(TunTapOptions::default()),
            "tun" => Self::Tun(TunTapOptions::default()),
            "pcap" => Self::Pcap(PcapOptions::default()),
            "null" => Self::Null(NullOptions::default()),
            "sim" => Self::Sim(SimOptions::default()),
            _ if NOT_BUILT.contains(&kind) => {
                return Err(SpecError(format!(
                    "port kind '{kind}' is not built into this version; use one of {}",
                    KINDS.join(", ")
                )));
            }
            _ => return Err(unknown_kind(kind)),
        })
    }
}

fn unknown_kind(kind: &str) -> SpecError {
    let meant = nearest(kind, KINDS.iter().copied())
        .map_or_else(String::new, |near| format!("did you mean '{near}'? "));
    SpecError(format!(
        "unknown port kind {}: {meant}the kinds are {}",
        Quoted(kind),
        KINDS.join(", ")
    ))
}

impl FromStr for PortSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let Some((kind, rest)) = text.split_once(':') else {
            return Err(SpecError(format!(
                "{} is not a port: write KIND:NAME[,key=value...], as in tap:tap0,queues=4",
                Quoted(text)
            )));
        };
        let mut spec = Self {
            kind: PortKind::parse(kind)?,
            name: String::new(),
            config: PortConfig::default(),
            wrappers: Wrappers::default(),
        };
        let mut items = value::Items::new(rest);
        if spec.kind.is_named() {
            let first = items.name();
            spec.set_name(first)?;
        }
        let mut seen = Vec::new();
        // `null:` alone has one empty item, and so has a trailing comma: both are accepted.
        for item in items.filter(|item| !item.is_empty()) {
            let (name, value) = match item.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (item, None),
            };
            let key = keys::find(name, &spec.kind)?;
            if seen.contains(&key.name) {
                return Err(SpecError(format!(
                    "key '{}' is given twice; keep one of the two",
                    key.name
                )));
            }
            seen.push(key.name);
            spec.set(key, value)?;
        }
        spec.check(&seen)?;
        Ok(spec)
    }
}

impl PortSpec {
    fn set_name(&mut self, text: &str) -> Result<(), SpecError> {
        let kind = self.kind.name();
        if let Some((key, _)) = text.split_once('=')
            && keys::find(key, &self.kind).is_ok()
            && !matches!(self.kind, PortKind::Pcap(_))
        {
            return Err(SpecError(format!(
                "{kind}: needs the interface's name in front of {}, as in {kind}:{kind}0,{key}=...",
                Quoted(text)
            )));
        }
        self.name = value::unescape(text)?;
        Ok(())
    }

    fn set(&mut self, key: &Key, value: Option<&str>) -> Result<(), SpecError> {
        if key.is_flag() {
            if let Some(value) = value {
                return Err(SpecError(format!(
                    "key '{}' takes no value, not even {}; write it alone",
                    key.name,
                    Quoted(value)
                )));
            }
            self.set_flag(key);
            return Ok(());
        }
        let Some(value) = value.filter(|value| !value.is_empty()) else {
            return Err(SpecError(format!(
                "key '{0}' needs a value: write {0}={1}",
                key.name, key.takes
            )));
        };
        let value = value::unescape(value)?;
        if key.is_setting() {
            return self.set_setting(key, &value);
        }
        if self.set_value(key.name, &value).is_some() {
            return Ok(());
        }
        Err(SpecError(format!(
            "{0}= cannot be {1}; it takes {2}",
            key.name,
            Quoted(&value),
            key.takes
        )))
    }

    /// Sets a policy of the port's queues. The setting's own error is the most precise.
    fn set_setting(&mut self, key: &Key, value: &str) -> Result<(), SpecError> {
        fn parsed<T: FromStr<Err = SettingError>>(value: &str) -> Result<T, SpecError> {
            let wrong = |error: SettingError| SpecError(error.to_string());
            value.parse().map_err(wrong)
        }
        if !value::is_balanced(value) {
            return Err(SpecError(format!(
                "{0}= has {1}, whose parentheses do not pair up; it takes {2}",
                key.name,
                Quoted(value),
                key.takes
            )));
        }
        let work = &mut self.config.work;
        match key.name {
            "dispatch" => work.dispatch = Some(parsed(value)?),
            "moderation" => work.moderation = Some(parsed(value)?),
            "gro-flush" => self.config.gro.flush = parsed(value)?,
            _ => unreachable!("every setting of KEYS has its arm; a test sets each"),
        }
        Ok(())
    }

    fn set_flag(&mut self, key: &Key) {
        match (key.name, &mut self.kind) {
            ("trace", _) => self.wrappers.trace = true,
            ("write", PortKind::Pcap(pcap)) => pcap.write = true,
            ("loop", PortKind::Pcap(pcap)) => pcap.repeat = true,
            ("source", PortKind::Null(null)) => null.source = true,
            ("timestamps", PortKind::Null(null)) => null.timestamps = true,
            ("shuffled", PortKind::Sim(sim)) => sim.shuffled = true,
            ("hang", PortKind::Sim(sim)) => sim.hang = true,
            _ => unreachable!("every flag of KEYS has its arm; a test sets each"),
        }
    }

    /// Sets a key that takes a value; `None` when the value is not one.
    fn set_value(&mut self, key: &str, value: &str) -> Option<()> {
        use value::{chance, number, one_of, time};
        let wrap = &mut self.wrappers;
        let gro = &mut self.config.gro;
        match key {
            "queues" => self.config.queues = Some(number(value, keys::QUEUES)?),
            "offload" => self.config.offload = value::offload(value)?,
            "segs" => self.config.segments = Some(number(value, keys::SEGMENTS)?),
            "gso-segs" => self.config.gso_segments = Some(number(value, keys::SEGMENTS)?),
            "headroom" => self.config.segment_headroom = number(value, keys::HEADROOM)?,
            "fit" => self.config.fit = *one_of(value, value::FIT)?,
            "rx" => self.config.rx_buffers = value::rx_buffers(value)?,
            "tx" => self.config.work.shared = *one_of(value, value::TX)?,
            "coalesce" => self.config.coalesce = *one_of(value, value::COALESCE)?,
            "gro-flows" => gro.flows = Some(number(value, gro::PACKETS)?),
            "gro-bytes" => gro.bytes = Some(number(value, gro::BYTES)?),
            "gro-packets" => gro.packets = Some(number(value, gro::PACKETS)?),
            "gro-inactive" => gro.inactive = *one_of(value, value::SWITCH)?,
            "ack-limit" => gro.ack_limit = Some(number(value, gro::ACKS)?),
            "rx-pause" => gro.rx_pause = Some(number(value, gro::PACKETS)?),
            "capture" => wrap.capture = Some(value::path(value)?),
            "drop" => wrap.drop = chance(value)?,
            "duplicate" => wrap.duplicate = chance(value)?,
            "corrupt" => wrap.corrupt = chance(value)?,
            "reorder" => wrap.reorder = chance(value)?,
            "delay" => wrap.delay = time(value)?,
            "seed" => wrap.seed = Some(number(value, 0..=u64::MAX)?),
            "vlan" => wrap.vlan = Some(number(value, keys::VLANS)?),
            _ => return self.kind.set_value(key, value),
        }
        Some(())
    }

    /// The checks that need all keys together.
    fn check(&mut self, seen: &[&str]) -> Result<(), SpecError> {
        let kind = self.kind.name();
        let config = &self.config;
        if config.gro.ack_limit.is_some() && config.coalesce != Coalesce::Stream {
            return Err(SpecError(
                "key 'ack-limit' is for coalesce=stream, which alone merges pure ACKs; add \
                 coalesce=stream, or leave 'ack-limit' out"
                    .to_owned(),
            ));
        }
        match &self.kind {
            PortKind::Tap(options) | PortKind::Tun(options) => {
                let given = options.fds.len();
                if given == 0 || !self.name.is_empty() {
                    value::interface_name(&self.name, kind)?;
                }
                if given > 0 && *self.config.queues.get_or_insert(given) != given {
                    return Err(SpecError(format!(
                        "queues= and fd= differ: fd= has {given} of them, one for each queue; \
                         leave queues= out"
                    )));
                }
            }
            PortKind::Pcap(options) => {
                value::file_name(&self.name)?;
                let wrong = if options.write { PCAP_READ } else { PCAP_WRITE };
                if let Some(key) = seen.iter().find(|key| wrong.contains(key)) {
                    let (does, hint) = if options.write {
                        ("reads", "leave 'write' out")
                    } else {
                        ("writes", "add 'write'")
                    };
                    return Err(SpecError(format!(
                        "key '{key}' is for a file that packtrain {does}; {hint}, or leave \
                         '{key}' out"
                    )));
                }
            }
            PortKind::Null(options) if !options.source => {
                if let Some(key) = seen.iter().find(|key| NULL_SOURCE.contains(key)) {
                    return Err(SpecError(format!(
                        "key '{key}' is for a null: port that packets come from; add 'source', \
                         or leave '{key}' out"
                    )));
                }
            }
            PortKind::Null(options) => check_source(options)?,
            PortKind::Sim(options) => check_sim(options, seen)?,
        }
        Ok(())
    }
}

/// The checks of keys that need another key.
fn check_sim(options: &SimOptions, seen: &[&str]) -> Result<(), SpecError> {
    let each = options.interrupts == Interrupts::Each;
    let why = if each && options.rate.is_none() {
        "interrupts=each needs a rate: without one, sent packets are completed when they are \
         looked for; add rate=N, or leave interrupts= out"
    } else if seen.contains(&"bad-descriptors") && options.far == Far::Discard {
        "key 'bad-descriptors' needs packets that arrive: add far=echo, or leave it out"
    } else if options.flow_control && options.far == Far::Discard {
        "flow-control=on needs packets that arrive: add far=echo, or leave it out"
    } else {
        return Ok(());
    };
    Err(SpecError(why.to_owned()))
}

const PCAP_READ: &[&str] = &["loop", "pace"];
const PCAP_WRITE: &[&str] = &["format", "link"];
const NULL_SOURCE: &[&str] = &[
    "active",
    "burst",
    "bytes",
    "count",
    "flows",
    "out-of-order",
    "proto",
    "timestamps",
    "train",
];

/// The checks of keys that only some protocols of a source have.
fn check_source(options: &NullOptions) -> Result<(), SpecError> {
    let (protocol, timestamps) = (options.protocol, options.timestamps);
    if timestamps && protocol == Protocol::Udp {
        return Err(SpecError(
            "key 'timestamps' is for TCP: add proto=tcp or proto=ack, or leave 'timestamps' out"
                .to_owned(),
        ));
    }
    let Some(bytes) = options.bytes else {
        return Ok(());
    };
    if protocol == Protocol::Ack {
        return Err(SpecError(
            "key 'bytes' is not for proto=ack, whose packets are headers alone; leave 'bytes' out"
                .to_owned(),
        ));
    }
    let link = options.link.unwrap_or_default();
    let range = protocol.frame_bytes(link, timestamps);
    if range.contains(&bytes) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(SpecError(format!(
        "bytes={bytes} does not fit: with this link=, proto= and timestamps it takes \
         {least}..{most}"
    )))
}

impl PortKind {
    /// Sets a key that only some kinds have; `None` when the value is not one.
    fn set_value(&mut self, key: &str, value: &str) -> Option<()> {
        use value::{number, one_of};
        match (self, key) {
            (Self::Tap(options) | Self::Tun(options), "fd") => options.fds = value::fds(value)?,
            (Self::Pcap(pcap), "pace") => pcap.pace = *one_of(value, value::PACES)?,
            (Self::Pcap(pcap), "format") => pcap.format = Some(*one_of(value, value::FORMATS)?),
            (Self::Pcap(pcap), "link") => pcap.link = Some(*one_of(value, value::LINKS)?),
            (Self::Null(null), "proto") => null.protocol = *one_of(value, value::PROTOCOLS)?,
            (Self::Null(null), "out-of-order") => {
                null.out_of_order = Some(number(value, keys::OUT_OF_ORDER)?);
            }
            (Self::Null(null), "bytes") => null.bytes = Some(number(value, keys::BYTES)?),
            (Self::Null(null), "count") => null.count = Some(number(value, 1..=u64::MAX)?),
            (Self::Null(null), "flows") => null.flows = Some(number(value, keys::FLOWS)?),
            (Self::Null(null), "active") => null.active = Some(number(value, keys::FLOWS)?),
            (Self::Null(null), "burst") => null.burst = Some(number(value, keys::BURST)?),
            (Self::Null(null), "link") => null.link = Some(*one_of(value, value::LINKS)?),
            (Self::Null(null), "train") => null.train = Some(number(value, keys::TRAIN)?),
            (Self::Sim(sim), "rings") => sim.rings = Some(number(value, keys::RINGS)?),
            (Self::Sim(sim), "far") => sim.far = *one_of(value, value::FARS)?,
            (Self::Sim(sim), "completion-delay") => {
                sim.completion_delay = value::completion_delay(value)?;
            }
            (Self::Sim(sim), "rate") => sim.rate = Some(number(value, keys::RATES)?),
            (Self::Sim(sim), "interrupts") => {
                sim.interrupts = *one_of(value, value::INTERRUPTS)?;
            }
            (Self::Sim(sim), "lose-completions") => {
                sim.lose_completions = Some(number(value, keys::FAULTS)?);
            }
            (Self::Sim(sim), "lose-wakeups") => {
                sim.lose_wakeups = Some(number(value, keys::FAULTS)?);
            }
            (Self::Sim(sim), "bad-descriptors") => {
                sim.bad_descriptors = Some(number(value, keys::BAD_DESCRIPTORS)?);
            }
            (Self::Sim(sim), "flap") => sim.flap = Some(value::flap(value)?),
            (Self::Sim(sim), "flow-control") => {
                sim.flow_control = *one_of(value, value::SWITCH)?;
            }
            (Self::Sim(sim), "link") => sim.link = Some(*one_of(value, value::LINKS)?),
            _ => unreachable!("every key of KEYS has its arm; a test sets each"),
        }
        Some(())
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), Escaped(&self.name))?;
        let first = self.name.is_empty() && !self.kind.is_named();
        let mut keys = Printer { f, first };
        let defaults = PortConfig::default();
        if !matches!(&self.kind, PortKind::Tap(o) | PortKind::Tun(o) if !o.fds.is_empty()) {
            keys.some("queues", self.config.queues)?;
        }
        if self.config.offload != Features::ALL {
            keys.some("offload", Some(value::offload_text(self.config.offload)))?;
        }
        keys.some("segs", self.config.segments)?;
        keys.some("gso-segs", self.config.gso_segments)?;
        if self.config.segment_headroom != defaults.segment_headroom {
            keys.some("headroom", Some(self.config.segment_headroom))?;
        }
        if self.config.fit != defaults.fit {
            keys.some("fit", value::name_of(&self.config.fit, value::FIT))?;
        }
        keys.some("rx", self.config.rx_buffers)?;
        if self.config.coalesce != Coalesce::default() {
            keys.some("coalesce", Some(self.config.coalesce))?;
        }
        let gro = &self.config.gro;
        keys.some("gro-flows", gro.flows)?;
        keys.some("gro-bytes", gro.bytes)?;
        keys.some("gro-packets", gro.packets)?;
        if gro.inactive != defaults.gro.inactive {
            keys.some("gro-inactive", value::name_of(&gro.inactive, value::SWITCH))?;
        }
        if gro.flush != defaults.gro.flush {
            keys.some("gro-flush", Some(gro.flush))?;
        }
        keys.some("ack-limit", gro.ack_limit)?;
        keys.some("rx-pause", gro.rx_pause)?;
        keys.some("dispatch", self.config.work.dispatch)?;
        keys.some("moderation", self.config.work.moderation)?;
        if self.config.work.shared {
            keys.some("tx", value::name_of(&self.config.work.shared, value::TX))?;
        }
        self.kind.print(&mut keys)?;
        let wrap = &self.wrappers;
        let capture = wrap.capture.as_ref().map(|path| path.to_string_lossy());
        keys.some("capture", capture.as_deref().map(Escaped))?;
        keys.flag("trace", wrap.trace)?;
        let chance = |chance: f64| (chance != 0.0).then_some(chance);
        keys.some("drop", chance(wrap.drop))?;
        keys.some("duplicate", chance(wrap.duplicate))?;
        keys.some("corrupt", chance(wrap.corrupt))?;
        keys.some("reorder", chance(wrap.reorder))?;
        let delay = (!wrap.delay.is_zero()).then_some(wrap.delay);
        keys.some("delay", delay.map(TimeText))?;
        keys.some("seed", wrap.seed)?;
        keys.some("vlan", wrap.vlan)
    }
}

impl PortKind {
    fn print(&self, keys: &mut Printer<'_, '_>) -> fmt::Result {
        let link =
            |link: Option<LinkType>| link.and_then(|link| value::name_of(&link, value::LINKS));
        match self {
            Self::Tap(options) | Self::Tun(options) => {
                let fds: Vec<_> = options.fds.iter().map(i32::to_string).collect();
                keys.some("fd", (!fds.is_empty()).then(|| fds.join("+")))
            }
            Self::Pcap(pcap) => {
                keys.flag("write", pcap.write)?;
                keys.flag("loop", pcap.repeat)?;
                if pcap.pace != Pace::default() {
                    keys.some("pace", value::name_of(&pcap.pace, value::PACES))?;
                }
                let format = pcap.format.and_then(|f| value::name_of(&f, value::FORMATS));
                keys.some("format", format)?;
                keys.some("link", link(pcap.link))
            }
            Self::Null(null) => {
                keys.flag("source", null.source)?;
                if null.protocol != Protocol::default() {
                    keys.some("proto", value::name_of(&null.protocol, value::PROTOCOLS))?;
                }
                keys.some("bytes", null.bytes)?;
                keys.some("count", null.count)?;
                keys.some("burst", null.burst)?;
                keys.some("flows", null.flows)?;
                keys.some("active", null.active)?;
                keys.some("train", null.train)?;
                keys.flag("timestamps", null.timestamps)?;
                keys.some("out-of-order", null.out_of_order)?;
                keys.some("link", link(null.link))
            }
            Self::Sim(sim) => {
                keys.some("rings", sim.rings)?;
                if sim.far != Far::default() {
                    keys.some("far", value::name_of(&sim.far, value::FARS))?;
                }
                let delay = value::completion_delay_text(sim.completion_delay);
                keys.some("completion-delay", delay)?;
                keys.some("rate", sim.rate)?;
                if sim.interrupts != Interrupts::default() {
                    let name = value::name_of(&sim.interrupts, value::INTERRUPTS);
                    keys.some("interrupts", name)?;
                }
                keys.flag("shuffled", sim.shuffled)?;
                keys.flag("hang", sim.hang)?;
                keys.some("lose-completions", sim.lose_completions)?;
                keys.some("lose-wakeups", sim.lose_wakeups)?;
                keys.some("bad-descriptors", sim.bad_descriptors)?;
                keys.some("flap", sim.flap.map(TimeText))?;
                let pauses = sim.flow_control.then_some("on");
                keys.some("flow-control", pauses)?;
                keys.some("link", link(sim.link))
            }
        }
    }
}

/// Writes `,key=value` and `,flag`, the first without its comma where no name is in front.
struct Printer<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    first: bool,
}

impl Printer<'_, '_> {
    fn some(&mut self, key: &str, value: Option<impl fmt::Display>) -> fmt::Result {
        let Some(value) = value else { return Ok(()) };
        self.flag(key, true)?;
        write!(self.f, "={value}")
    }

    fn flag(&mut self, key: &str, set: bool) -> fmt::Result {
        if !set {
            return Ok(());
        }
        let comma = if self.first { "" } else { "," };
        self.first = false;
        write!(self.f, "{comma}{key}")
    }
}
