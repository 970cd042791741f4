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

mod keys;
mod value;

#[cfg(test)]
mod tests;

pub use keys::{KEYS, Key};

use super::sim::{CompletionDelay, Far, Interrupts};
use crate::capture::Format;
use crate::driver::{Coalesce, Features, PortConfig, SettingError};
use keys::{KINDS, NOT_BUILT, nearest};
use packtrain_offload::offload::LinkType;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use value::{Escaped, Quoted, TimeText};

/// Most bytes of an interface's name: `IFNAMSIZ` of Linux without the final zero.
pub const INTERFACE_NAME_BYTES_MAX: usize = 15;
/// Longest delay that `delay=` takes.
pub const DELAY_MAX: Duration = Duration::from_secs(60);

/// A port, as the user wrote it. Its `Display` is a spec that parses to the same port.
#[derive(Clone, Debug, PartialEq)]
pub struct PortSpec {
    /// What kind of port, with what only that kind can be told.
    pub kind: PortKind,
    /// The interface's name, or the capture file; empty for `null:` and `sim:`, and for a TAP or
    /// TUN given by `fd=` without a name.
    pub name: String,
    /// What every kind can be asked for. Offloads come with what they need: never a TSO without its
    /// checksum. Segments are for `sim:` the device's own limit, else one lower than the device's.
    /// Queues are as many as descriptors when `fd=` is given.
    pub config: PortConfig,
    /// What to wrap around the driver.
    pub wrappers: Wrappers,
}

/// A kind of port, with the keys that only it has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortKind {
    /// A TAP device: Ethernet.
    Tap(TunTapOptions),
    /// A TUN device: raw IP.
    Tun(TunTapOptions),
    /// A capture file, read or written.
    Pcap(PcapOptions),
    /// A sink, and with `source` an endless or counted source.
    Null(NullOptions),
    /// A simulated NIC with descriptor rings.
    Sim(SimOptions),
}

impl PortKind {
    /// What is in front of the colon.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Tap(_) => "tap",
            Self::Tun(_) => "tun",
            Self::Pcap(_) => "pcap",
            Self::Null(_) => "null",
            Self::Sim(_) => "sim",
        }
    }

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

    /// Whether something is expected between the colon and the first key.
    const fn is_named(&self) -> bool {
        matches!(self, Self::Tap(_) | Self::Tun(_) | Self::Pcap(_))
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

/// Keys of `tap:` and `tun:` only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunTapOptions {
    /// Open descriptors of the device, one for each queue (`fd=5+6`); empty to open it by name.
    pub fds: Vec<i32>,
}

/// Keys of `pcap:` only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcapOptions {
    /// The file is written; else it is read.
    pub write: bool,
    /// At its end the file is read again from its start.
    pub repeat: bool,
    /// When packets are read.
    pub pace: Pace,
    /// What is written; `None` goes by the file name: pcap for `.pcap`, else pcapng.
    pub format: Option<Format>,
    /// What a written file's packets start with; `None` for what the other port's do.
    pub link: Option<LinkType>,
}

/// When the packets of a capture file are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// As fast as the other port takes them.
    #[default]
    Fast,
    /// With the gaps between their timestamps.
    Original,
}

/// Keys of `null:` only. `None` is the driver's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NullOptions {
    /// Packets come from it; else it only takes them.
    pub source: bool,
    /// Bytes of each packet, link header included.
    pub bytes: Option<usize>,
    /// Packets until it ends; `None` for without end.
    pub count: Option<u64>,
    /// Flows that the packets belong to, in turn.
    pub flows: Option<usize>,
}

/// Keys of `sim:` only. `None` is the driver's default. Its segment limit is
/// [`PortConfig::segments`], its seed [`Wrappers::seed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimOptions {
    /// Descriptors of each ring.
    pub rings: Option<usize>,
    /// What the simulated other end does with packets.
    pub far: Far,
    /// When a sent packet is reported as done.
    pub completion_delay: CompletionDelay,
    /// Packets that each TX queue sends in a second; `None` for as fast as they come.
    pub rate: Option<u64>,
    /// When a sent packet wakes who waits, with a rate.
    pub interrupts: Interrupts,
    /// Sent packets are reported in an order drawn from the seed.
    pub shuffled: bool,
    /// Each TX queue stands still from the start until it is reset.
    pub hang: bool,
    /// Sent packets that are never reported, from the first; `None` for none.
    pub lose_completions: Option<u64>,
    /// Wake-ups for completions that do not come, from the first; `None` for none.
    pub lose_wakeups: Option<u64>,
    /// What its packets start with; `None` for what the other port's do.
    pub link: Option<LinkType>,
}

/// What to wrap around a driver: capture, trace, faults, and for tests a VLAN tag. The default is
/// nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wrappers {
    /// Writes every packet, both ways, to this pcapng file.
    pub capture: Option<PathBuf>,
    /// Prints every packet, both ways.
    pub trace: bool,
    /// Probability that a packet is lost, 0 to 1.
    pub drop: f64,
    /// Probability that a packet comes twice, 0 to 1.
    pub duplicate: f64,
    /// Probability that a packet's bytes are damaged, 0 to 1.
    pub corrupt: f64,
    /// Probability that a packet comes after its successor, 0 to 1.
    pub reorder: f64,
    /// How long each packet is held back.
    pub delay: Duration,
    /// What chance is drawn from, here and in a simulated NIC; `None` for a fixed default.
    pub seed: Option<u64>,
    /// Each packet from the device gets this VLAN tag (1 to 4094), and each packet to it loses it:
    /// what is between the two ports sees tagged traffic.
    pub vlan: Option<u16>,
}

impl Wrappers {
    /// Whether a fault injector is needed.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        let chances = [self.drop, self.duplicate, self.corrupt, self.reorder];
        chances.iter().any(|&chance| chance > 0.0) || !self.delay.is_zero()
    }
}

/// A spec that is not one: one line that says what, why and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(String);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}

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
        // `null:` alone has one empty item, and so has a trailing comma: neither says anything.
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
                "{kind}: wants the interface's name in front of {}, as in {kind}:{kind}0,{key}=...",
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
                "key '{0}' wants a value: write {0}={1}",
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

    /// Sets how queues are worked. What is wrong with it, the setting itself says best.
    fn set_setting(&mut self, key: &Key, value: &str) -> Result<(), SpecError> {
        fn parsed<T: FromStr<Err = SettingError>>(value: &str) -> Result<Option<T>, SpecError> {
            let wrong = |error: SettingError| SpecError(error.to_string());
            value.parse().map(Some).map_err(wrong)
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
            "dispatch" => work.dispatch = parsed(value)?,
            "moderation" => work.moderation = parsed(value)?,
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
            ("shuffled", PortKind::Sim(sim)) => sim.shuffled = true,
            ("hang", PortKind::Sim(sim)) => sim.hang = true,
            _ => unreachable!("every flag of KEYS has its arm; a test sets each"),
        }
    }

    /// Sets a key that takes a value; `None` when the value is not one.
    fn set_value(&mut self, key: &str, value: &str) -> Option<()> {
        use value::{chance, number, one_of, time};
        let wrap = &mut self.wrappers;
        match key {
            "queues" => self.config.queues = Some(number(value, keys::QUEUES)?),
            "offload" => self.config.offload = value::offload(value)?,
            "segs" => self.config.segments = Some(number(value, keys::SEGMENTS)?),
            "rx" => self.config.rx_buffers = *one_of(value, value::RX)?,
            "tx" => self.config.work.shared = *one_of(value, value::TX)?,
            "coalesce" => self.config.coalesce = *one_of(value, value::COALESCE)?,
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

    /// What only all keys together can tell.
    fn check(&mut self, seen: &[&str]) -> Result<(), SpecError> {
        let kind = self.kind.name();
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
            PortKind::Null(_) | PortKind::Sim(_) => {}
        }
        Ok(())
    }
}

const PCAP_READ: &[&str] = &["loop", "pace"];
const PCAP_WRITE: &[&str] = &["format", "link"];
const NULL_SOURCE: &[&str] = &["bytes", "count", "flows"];

impl PortKind {
    /// Sets a key that only some kinds have; `None` when the value is not one.
    fn set_value(&mut self, key: &str, value: &str) -> Option<()> {
        use value::{number, one_of};
        match (self, key) {
            (Self::Tap(options) | Self::Tun(options), "fd") => options.fds = value::fds(value)?,
            (Self::Pcap(pcap), "pace") => pcap.pace = *one_of(value, value::PACES)?,
            (Self::Pcap(pcap), "format") => pcap.format = Some(*one_of(value, value::FORMATS)?),
            (Self::Pcap(pcap), "link") => pcap.link = Some(*one_of(value, value::LINKS)?),
            (Self::Null(null), "bytes") => null.bytes = Some(number(value, keys::BYTES)?),
            (Self::Null(null), "count") => null.count = Some(number(value, 1..=u64::MAX)?),
            (Self::Null(null), "flows") => null.flows = Some(number(value, keys::FLOWS)?),
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
        if !matches!(&self.kind, PortKind::Tap(o) | PortKind::Tun(o) if !o.fds.is_empty()) {
            keys.some("queues", self.config.queues)?;
        }
        if self.config.offload != Features::ALL {
            keys.some("offload", Some(value::offload_text(self.config.offload)))?;
        }
        keys.some("segs", self.config.segments)?;
        if self.config.rx_buffers.is_some() {
            keys.some("rx", value::name_of(&self.config.rx_buffers, value::RX))?;
        }
        if self.config.coalesce != Coalesce::default() {
            let word = value::name_of(&self.config.coalesce, value::COALESCE);
            keys.some("coalesce", word)?;
        }
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
                keys.some("bytes", null.bytes)?;
                keys.some("count", null.count)?;
                keys.some("flows", null.flows)
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
