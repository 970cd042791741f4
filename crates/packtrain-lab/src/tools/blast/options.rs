//! The options of a blast.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use serde::Deserialize;

use crate::options::from_text;
use crate::units::{Rate, Time};

/// Frame sizes that are sent in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(pub Vec<usize>);

/// The simple IMIX (RFC 6985, appendix of its sources): IP packets of 40, 576 and 1500 bytes, 7 : 4
/// : 1, mixed, as Ethernet frames.
const IMIX: [usize; 12] = [64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 594, 64];

/// The most sizes that are sent in turn.
const SIZES_MAX: usize = 64;

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "imix" {
            return Ok(Self(IMIX.to_vec()));
        }
        let sizes: Result<Vec<usize>, _> = text.split(',').map(str::parse).collect();
        match sizes {
            Ok(sizes) if sizes.len() <= SIZES_MAX => Ok(Self(sizes)),
            _ => Err(format!(
                "write up to {SIZES_MAX} frame sizes in bytes, as in 64 or 64,512,1518, or imix"
            )),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&sizes.join(","))
    }
}

/// UDP packets from host A to host B, at a rate or flat out.
#[derive(Clone, Debug, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Blast {
    /// Frame sizes in bytes with Ethernet header and FCS, as in RFC 2544, sent in turn: 64,
    /// 64,512,1518, or imix
    #[arg(long, value_name = "BYTES", default_value = "64")]
    #[serde(deserialize_with = "from_text")]
    pub size: Sizes,
    /// Packets per second of all senders together: 500kpps, 1.2M, 1000 [default: flat out]
    #[arg(long, value_name = "RATE")]
    pub rate: Option<Rate>,
    /// With --rate: the most packets that a sender sends back to back [default: those of 100 us,
    /// at most --batch]
    #[arg(long, value_name = "N", requires = "rate")]
    pub burst: Option<u32>,
    /// Senders, each with a flow, a thread and a receiver of its own: 1 to 64
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub senders: u32,
    /// The most packets in one system call (sendmmsg): 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub batch: u32,
    /// Ends after N packets of all senders together, if --duration is not over before
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// How long packets are sent
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub duration: Time,
    /// How long the receivers wait for late packets after the last one, without the time in which
    /// packtrain waits for a CPU, and a sender for a queue that accepts nothing
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    pub settle: Time,
    /// Threads beside it that only compute, until the last sender ends: at most 64
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub busy: u32,
    /// Sends IPv6 instead of IPv4
    #[arg(long)]
    pub ipv6: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!("64".parse(), Ok(Sizes(vec![64])));
        assert_eq!("64,1518".parse(), Ok(Sizes(vec![64, 1518])));
        let imix: Sizes = "imix".parse().unwrap();
        let of = |size| imix.0.iter().filter(|one| **one == size).count();
        assert_eq!([of(64), of(594), of(1518)], [7, 4, 1]);
        assert_eq!(imix.to_string().parse(), Ok(imix));
        for text in ["", "64,", "mix", "-1", &["64"; 65].join(",")] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_rate_is_that_of_all_senders() {
        let pace = |rate, senders| {
            let blast = Blast {
                rate: Some(Rate(rate)),
                senders,
                ..Blast::default()
            };
            blast.load(1500).unwrap().pace
        };
        assert_eq!(pace(2000.0, 1), Some((1, 0.0005)));
        assert_eq!(pace(2000.0, 2), Some((1, 0.001)));
        // The packets of 100 us go out together.
        assert_eq!(pace(100_000.0, 1), Some((10, 0.0001)));
    }

    #[test]
    fn a_file_and_a_command_line_have_the_same_options() {
        let read = serde_json::json!({"size": "imix", "rate": "1kpps", "duration": "50ms"});
        let blast: Blast = serde_json::from_value(read).unwrap();
        assert_eq!(blast.rate, Some(Rate(1000.0)));
        assert_eq!((blast.batch, blast.senders), (64, 1));
        assert!(serde_json::from_value::<Blast>(serde_json::json!({"sice": "64"})).is_err());
    }
}
