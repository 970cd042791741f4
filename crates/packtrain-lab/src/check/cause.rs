//! What a packet that arrived with other bytes, and losses, tell of their cause.

use super::header::pseudo;
use super::packet::{Link, TCP_FLAGS, field_at, names};

/// A TTL that is one less than it has to be.
const ONE_LESS: &str = "TTL or hop limit arrives one less, as a router does it: for a program that \
                        routes, give `--ttl-decrement`";
/// One that is as it was sent, where a router has to take one.
const NOT_LESS: &str = "TTL or hop limit does not arrive one less: `--ttl-decrement` is for a \
                        program that routes";
/// A checksum as it was handed to the device.
const UNFINISHED: &str = "a checksum that is left to the device arrives as it was handed over, \
                          that of TCP and UDP as the sum of the pseudo-header: completion \
                          forgotten, or NEEDS_CSUM not passed on";
/// A large packet that is not cut.
const UNCUT: &str = "a large packet arrives uncut: gso fields lost (gso_type and gso_size of the \
                     virtio-net header)";

/// How a packet that arrived differs from the one that had to.
pub(super) struct Difference<'a> {
    pub link: Link,
    /// Packets have to arrive with a TTL that is one less.
    pub routes: bool,
    /// The packet that had to arrive.
    pub wire: &'a [u8],
    /// The same as it was handed to the device, not cut, with its checksum not completed.
    pub handed: &'a [u8],
    pub found: &'a [u8],
    /// `found` is as long as a large packet that was sent.
    pub is_uncut: bool,
}

impl Difference<'_> {
    /// The first difference in words, and its cause, which has no values: those of two packets with
    /// the same cause are equal.
    pub(super) fn words(&self) -> (String, String) {
        let (wire, found) = (self.wire, self.found);
        let pairs = wire.iter().zip(found).enumerate();
        let mut places = pairs.filter(|(_, (a, b))| a != b).map(|(at, _)| at);
        // An identification may differ, and a header checksum follows from other fields.
        let header = self.link.header();
        let is_first = |at: &usize| ![4, 5, 10, 11].map(|field| header + field).contains(at);
        let at = places.clone().find(is_first).or_else(|| places.next());
        let Some(at) = at else {
            let what = "it was cut or extended".to_owned();
            return (what.clone(), self.cause(None).unwrap_or(&what).to_owned());
        };
        let field = field_at(self.link, wire, at);
        let value = |byte: u8| match field {
            TCP_FLAGS => format!("{byte:#04x} {}", names(byte)),
            _ => format!("{byte:#04x}"),
        };
        let [expected, arrived] = [wire[at], found[at]].map(value);
        let cause = self.cause(Some((field, at)));
        let cause = cause.map_or_else(|| format!("another {field}"), str::to_owned);
        let values = format!("(byte {at}: expected {expected}, arrived {arrived})");
        (format!("another {field} {values}"), cause)
    }

    fn cause(&self, first: Option<(&'static str, usize)>) -> Option<&'static str> {
        if self.is_uncut {
            return Some(UNCUT);
        }
        let (field, at) = first.filter(|_| self.wire.len() == self.found.len())?;
        let less = self.wire[at].wrapping_sub(self.found[at]);
        match (field, less, self.routes) {
            ("IPv4 TTL" | "IPv6 hop limit", 1, false) => return Some(ONE_LESS),
            ("IPv4 TTL" | "IPv6 hop limit", 0xff, true) => return Some(NOT_LESS),
            _ => {}
        }
        let offset = match field {
            "TCP checksum" => Some(16),
            "UDP checksum" => Some(6),
            _ => None,
        };
        let is_pseudo = |offset: usize| {
            let layout = self.link.layout(self.wire)?;
            let stored = self.found.get(usize::from(layout.transport) + offset..)?;
            let sum = pseudo(self.wire, &layout)?.fold();
            Some(*stored.first_chunk()? == sum.to_be_bytes())
        };
        let is_unfinished = offset.and_then(is_pseudo) == Some(true) || self.handed == self.found;
        is_unfinished.then_some(UNFINISHED)
    }
}

/// Losses of all checks, over all starts of the program.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Packets that were sent.
    pub sent: u64,
    /// How many packets of its direction each lost one is behind the lost one before it, or behind
    /// the start of the program.
    pub gaps: Vec<u64>,
}

impl Losses {
    /// How many were lost of how many, and how far they are apart.
    pub(super) fn words(&self) -> String {
        let mut gaps = self.gaps.clone();
        gaps.sort_unstable();
        let middle = gaps.get(gaps.len() / 2).copied().unwrap_or(0);
        // The hosts' kernels send a few packets of their own between.
        let near = gaps
            .iter()
            .filter(|gap| gap.abs_diff(middle) <= middle / 20);
        let spacing = match &gaps[..] {
            [first, .., last] if near.count() * 3 < gaps.len() * 2 => {
                format!("{first} to {last} packets apart, half of them at most {middle}")
            }
            [_, _, ..] => format!("one in about {middle} packets of a direction"),
            _ => format!("{middle} packets after the start of the program"),
        };
        let (lost, sent) = (gaps.len(), self.sent);
        format!(
            "packets are lost now and then, whatever they are: {lost} of {sent} that were sent in \
             all checks, {spacing}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_have_their_spacing() {
        let says = |gaps: &[u64], spacing: &str| {
            let gaps = gaps.to_vec();
            let words = Losses { sent: 5000, gaps }.words();
            assert!(words.ends_with(spacing), "{words}");
        };
        says(
            &[995],
            "1 of 5000 that were sent in all checks, 995 packets after the start of the program",
        );
        says(
            &[1000, 990, 1000, 12],
            ", one in about 1000 packets of a direction",
        );
        says(
            &[7, 900, 40],
            ", 7 to 900 packets apart, half of them at most 40",
        );
    }
}
