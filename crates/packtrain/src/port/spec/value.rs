//! The values of a port spec: escapes, numbers, times, names, and how each is written again.

use super::error::SpecError;
use super::options::Pace;
use crate::driver::{Coalesce, Features, Fit, RxBuffers};
use crate::limits::{QUEUES_MAX, RX_PIECE_BYTES_MIN};
use crate::packet::FrameClass;
use crate::port::null::Protocol;
use crate::port::sim::{CompletionDelay, FLAP_MAX, FLAP_MIN, Far, Interrupts};
use packtrain_capture::Format;
use packtrain_offload::offload::LinkType;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Most bytes of an interface's name: `IFNAMSIZ` of Linux without the final zero.
pub const INTERFACE_NAME_BYTES_MAX: usize = 15;
/// Longest delay that `delay=` takes.
pub const DELAY_MAX: Duration = Duration::from_secs(60);

/// Keys whose values are settings of policies.
pub(super) const SETTINGS: &[&str] = &["dispatch", "moderation", "gro-flush"];

/// The words of a key that takes one of a few.
pub(super) type Words<T> = &'static [(&'static str, T)];

pub(super) const RX: Words<Option<RxBuffers>> = &[
    ("auto", None),
    ("whole", Some(RxBuffers::Whole)),
    ("pieces", Some(RxBuffers::PIECES)),
];
/// Bytes of a packet in each small frame, in `rx=pieces(N)`.
const PIECES: RangeInclusive<usize> = RX_PIECE_BYTES_MIN..=FrameClass::Small.data_bytes();
pub(super) const FIT: Words<Fit> = &[("collapse", Fit::Collapse), ("defrag", Fit::Defrag)];
/// Whether TX queues are shared even where the plan would make them owned.
pub(super) const TX: Words<bool> = &[("auto", false), ("shared", true)];
pub(super) const SWITCH: Words<bool> = &[("on", true), ("off", false)];
pub(super) const COALESCE: Words<Coalesce> = &[
    ("auto", Coalesce::Auto),
    ("off", Coalesce::Off),
    ("on", Coalesce::On),
    ("hash", Coalesce::Hash),
    ("sorted", Coalesce::Sorted),
    ("stream", Coalesce::Stream),
];
pub(super) const PROTOCOLS: Words<Protocol> = &[
    ("udp", Protocol::Udp),
    ("tcp", Protocol::Tcp),
    ("ack", Protocol::Ack),
];
pub(super) const PACES: Words<Pace> = &[("fast", Pace::Fast), ("original", Pace::Original)];
pub(super) const FORMATS: Words<Format> = &[
    ("pcapng", Format::PcapNg),
    ("pcap", Format::Pcap { nanosecond: true }),
    ("pcap-us", Format::Pcap { nanosecond: false }),
];
pub(super) const LINKS: Words<LinkType> = &[
    ("ethernet", LinkType::Ethernet),
    ("ip", LinkType::RawIp),
    ("ipoib", LinkType::Ipoib),
];
pub(super) const INTERRUPTS: Words<Interrupts> =
    &[("counted", Interrupts::Counted), ("each", Interrupts::Each)];
pub(super) const FARS: Words<Far> = &[("discard", Far::Discard), ("echo", Far::Echo)];
const TIME_UNITS: Words<u64> = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

pub(super) fn one_of<T>(word: &str, words: Words<T>) -> Option<&'static T> {
    words
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, value)| value)
}

pub(super) fn name_of<T: PartialEq>(value: &T, words: Words<T>) -> Option<&'static str> {
    words
        .iter()
        .find(|(_, known)| known == value)
        .map(|(name, _)| *name)
}

/// Digits only: `FromStr` of integers would also take a sign.
pub(super) fn number<T: FromStr + PartialOrd>(text: &str, range: RangeInclusive<T>) -> Option<T> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|value| range.contains(value))
}

/// A probability, 0 to 1. Adding zero turns the negative zero into the ordinary one.
pub(super) fn chance(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    (0.0..=1.0).contains(&value).then_some(value + 0.0)
}

pub(super) fn time(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(digits);
    let unit = one_of(unit, TIME_UNITS)?;
    let count: u64 = number(count, 0..=u64::MAX)?;
    let time = Duration::from_nanos(count.checked_mul(*unit)?);
    (time <= DELAY_MAX).then_some(time)
}

pub(super) fn flap(text: &str) -> Option<Duration> {
    time(text).filter(|time| (FLAP_MIN..=FLAP_MAX).contains(time))
}

/// A time in the largest unit that has no fraction.
pub(super) struct TimeText(pub(super) Duration);

impl fmt::Display for TimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let fits = |&&(_, unit): &&(_, u64)| nanos.is_multiple_of(u128::from(unit));
        match TIME_UNITS.iter().rev().find(fits) {
            Some(&(name, unit)) if nanos > 0 => write!(f, "{}{name}", nanos / u128::from(unit)),
            _ => f.write_str("0ns"),
        }
    }
}

/// Most steps that `completion-delay=` takes: as many as the largest ring has descriptors.
const COMPLETION_STEPS_MAX: u32 = 4096;

/// A count and what is counted: `3flushes`.
pub(super) fn completion_delay(text: &str) -> Option<CompletionDelay> {
    let (count, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let count = number(count, 1..=COMPLETION_STEPS_MAX)?;
    Some(match unit {
        "flushes" => CompletionDelay::Flushes(count),
        "reclaims" => CompletionDelay::Reclaims(count),
        "packets" => CompletionDelay::Packets(count),
        _ => return None,
    })
}

pub(super) fn completion_delay_text(delay: CompletionDelay) -> Option<String> {
    match delay {
        CompletionDelay::None => None,
        CompletionDelay::Flushes(count) => Some(format!("{count}flushes")),
        CompletionDelay::Reclaims(count) => Some(format!("{count}reclaims")),
        CompletionDelay::Packets(count) => Some(format!("{count}packets")),
    }
}

/// A word of [`RX`], or `pieces(N)`.
pub(super) fn rx_buffers(text: &str) -> Option<Option<RxBuffers>> {
    if let Some(buffers) = one_of(text, RX) {
        return Some(*buffers);
    }
    let bytes = text.strip_prefix("pieces(")?.strip_suffix(')')?;
    let bytes = number(bytes, PIECES)?;
    Some(Some(RxBuffers::Pieces { bytes }))
}

pub(super) fn path(text: &str) -> Option<PathBuf> {
    (!text.contains('\0')).then(|| PathBuf::from(text))
}

/// Open descriptors, one for each queue, none twice.
pub(super) fn fds(text: &str) -> Option<Vec<i32>> {
    let mut all = Vec::new();
    for fd in text.split('+') {
        let fd = number(fd, 0..=i32::MAX)?;
        if all.contains(&fd) || all.len() == QUEUES_MAX {
            return None;
        }
        all.push(fd);
    }
    Some(all)
}

/// `auto`, `off`, or words joined by `+`. What a feature needs comes with it.
pub(super) fn offload(text: &str) -> Option<Features> {
    match text {
        "auto" => return Some(Features::ALL),
        "off" => return Some(Features::NONE),
        _ => {}
    }
    text.split('+')
        .try_fold(Features::NONE, |all, word| Some(all | feature(word)?))
        .map(with_needs)
}

fn feature(word: &str) -> Option<Features> {
    Some(match word {
        "csum" => Features::CSUM,
        "tso" => Features::TSO | Features::CSUM,
        "uso" => Features::USO | Features::CSUM,
        _ => {
            let mut named = Features::NAMED.iter();
            named.find(|(_, name)| *name == word)?.0
        }
    })
}

/// `offload` with everything that its parts need, so that `tso4` alone has an effect.
fn with_needs(offload: Features) -> Features {
    let mut all = offload;
    let tso = Features::TSO4 | Features::TSO6;
    if all.contains(Features::TSO_ECN) && all.intersection(tso).is_empty() {
        all |= tso;
    }
    let ipv4 = Features::TSO4 | Features::USO4;
    let ipv6 = Features::TSO6 | Features::USO6;
    for (needing, needed) in [(ipv4, Features::CSUM4), (ipv6, Features::CSUM6)] {
        if !all.intersection(needing).is_empty() {
            all |= needed;
        }
    }
    all
}

pub(super) fn offload_text(features: Features) -> String {
    if features == Features::ALL {
        "auto".to_owned()
    } else if features.is_empty() {
        "off".to_owned()
    } else {
        features.names().collect::<Vec<_>>().join("+")
    }
}

/// The names that `dev_valid_name()` of Linux accepts.
pub(super) fn interface_name(name: &str, kind: &str) -> Result<(), SpecError> {
    let why = if name.is_empty() {
        format!("{kind}: needs an interface name, as in {kind}:{kind}0")
    } else if name.len() > INTERFACE_NAME_BYTES_MAX {
        format!(
            "interface name {} is too long: it has {} bytes, and Linux accepts at most \
             {INTERFACE_NAME_BYTES_MAX}",
            Quoted(name),
            name.len()
        )
    } else if name == "." || name == ".." {
        format!("interface name '{name}' is reserved; choose another, as {kind}0")
    } else if name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control()) {
        format!(
            "interface name {} has a slash, colon, space or control character, which Linux does \
             not accept; leave it out",
            Quoted(name)
        )
    } else {
        return Ok(());
    };
    Err(SpecError(why))
}

pub(super) fn file_name(name: &str) -> Result<(), SpecError> {
    if name.is_empty() {
        return Err(SpecError(
            "pcap: needs a file, as in pcap:in.pcapng or pcap:out.pcapng,write".to_owned(),
        ));
    }
    if name.contains('\0') {
        return Err(SpecError(
            "the file name has a zero byte, which no file has; leave it out".to_owned(),
        ));
    }
    Ok(())
}

/// The parts between commas, escapes left in. Commas that are escaped do not count, nor do those in
/// the parentheses of a setting. Elsewhere parentheses mean nothing: file names have them.
pub(super) struct Items<'a> {
    rest: Option<&'a str>,
}

impl<'a> Items<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { rest: Some(text) }
    }

    /// The first part, which is a name in any case.
    pub(super) fn name(&mut self) -> &'a str {
        self.part(false).unwrap_or_default()
    }

    fn part(&mut self, may_nest: bool) -> Option<&'a str> {
        let text = self.rest.take()?;
        let (mut escaped, mut in_key, mut nests, mut depth) = (false, may_nest, false, 0_usize);
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'=' if in_key => {
                    in_key = false;
                    nests = SETTINGS.contains(&&text[..at]);
                }
                b'(' if nests => depth += 1,
                b')' if nests => depth = depth.saturating_sub(1),
                b',' if depth == 0 => {
                    self.rest = Some(&text[at + 1..]);
                    return Some(&text[..at]);
                }
                _ => {}
            }
        }
        Some(text)
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.part(true)
    }
}

/// Whether all parentheses are in pairs.
pub(super) fn is_balanced(text: &str) -> bool {
    let depth = text.bytes().try_fold(0_usize, |depth, byte| match byte {
        b'(' => Some(depth + 1),
        b')' => depth.checked_sub(1),
        _ => Some(depth),
    });
    depth == Some(0)
}

pub(super) fn unescape(text: &str) -> Result<String, SpecError> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        match chars.next() {
            Some(c @ (',' | '\\')) => plain.push(c),
            _ => {
                return Err(SpecError(format!(
                    "{} has a backslash that escapes neither a backslash nor a comma; write \\\\ \
                     for a backslash and \\, for a comma",
                    Quoted(text)
                )));
            }
        }
    }
    Ok(plain)
}

/// Text with its commas and backslashes escaped.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.split_inclusive([',', '\\']).try_for_each(|part| {
            match part.strip_suffix([',', '\\']) {
                Some(plain) => write!(f, "{plain}\\{}", &part[plain.len()..]),
                None => f.write_str(part),
            }
        })
    }
}

/// The user's text in quotes, as one line of bounded length.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 60;
        let shown: String = self.0.chars().take(SHOWN).collect();
        let more = if shown.len() < self.0.len() {
            "..."
        } else {
            ""
        };
        let safe = shown.chars().flat_map(|c| {
            // The quote and the backslash are safe on every terminal.
            let plain = !c.is_control() && !c.is_whitespace() || c == ' ';
            let escaped = (!plain).then(|| c.escape_default());
            escaped.into_iter().flatten().chain(plain.then_some(c))
        });
        write!(f, "'{}{more}'", safe.collect::<String>())
    }
}
