//! The options of a ping.

use clap::{Args, ValueEnum};
use serde::Deserialize;

use crate::units::{Rate, Time};

/// The load beside the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beside {
    /// No load
    #[default]
    None,
    /// A TCP stream from host A to host B, flat out; measured without it first
    Stream,
}

/// Requests from host A that host B answers, and the time each takes.
#[derive(Clone, Debug, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Ping {
    /// Requests per second. A request that is late is sent late, and its time counts from when it
    /// was due
    #[arg(long, value_name = "RATE", default_value = "1000")]
    pub rate: Rate,
    /// Sends the next request when the reply to the last one has arrived, or after 10 ms
    #[arg(long, conflicts_with = "rate")]
    pub flood: bool,
    /// Sends ICMP echo requests, which host B's kernel answers, instead of UDP, which a thread
    /// answers
    #[arg(long)]
    pub icmp: bool,
    /// Frame size in bytes with Ethernet header and FCS; 102 is what ping sends (IPv4)
    #[arg(long, value_name = "BYTES", default_value_t = 102)]
    pub size: usize,
    /// The load beside it
    #[arg(long, value_enum, value_name = "LOAD", default_value_t)]
    pub load: Beside,
    /// Ends after N requests, if --duration is not over before
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// How long requests are sent; with --load as long again without it
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub duration: Time,
    /// How long to wait for missing replies after the last message
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub timeout: Time,
    /// Sends IPv6 instead of IPv4
    #[arg(long)]
    pub ipv6: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_options_of_the_command_line() {
        let read = serde_json::json!({"rate": "5k", "load": "stream", "icmp": true});
        let ping: Ping = serde_json::from_value(read).unwrap();
        assert_eq!(ping.rate, Rate(5000.0));
        assert_eq!(
            (ping.load, ping.icmp, ping.size),
            (Beside::Stream, true, 102)
        );
        assert!(serde_json::from_value::<Ping>(serde_json::json!({"rat": "5k"})).is_err());
    }
}
