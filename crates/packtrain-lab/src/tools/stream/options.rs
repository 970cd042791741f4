//! The options of a stream.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Deserialize;

use crate::error::ToolError;
use crate::ip::IpVersion;
use crate::options::from_text;
use crate::traffic::{Amount, Exchange, Pace, Payload, Protocol, TRAIN_BYTES_MAX, Transfer, range};
use crate::units::{Scaled, Time, scaled, time};

/// The shortest time that is measured, without the warm-up.
const STEADY_MIN: Duration = Duration::from_millis(50);

/// The shortest warm-up of [`WarmUp::Auto`].
const WARM_UP_MIN: Duration = Duration::from_millis(200);

/// How long a transfer may take in addition to its duration: to open all streams, to drain, and to
/// detect that it stalled.
const EXTRA: Duration = Duration::from_secs(30);

/// Bytes of UDP's header.
const UDP_HEADER: usize = 8;

/// How long a UDP sender waits for datagrams in flight after the last one.
const LATE: Duration = Duration::from_millis(500);

/// Which host sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Host A sends to host B
    #[default]
    AToB,
    /// Host B sends to host A
    BToA,
    /// Both at the same time, each with all streams
    Both,
}

/// An offload of the sending host's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "clap would print it for each of the two words")]
pub enum Switch {
    On,
    Off,
}

/// How much of a run is not measured at its start: `auto`, 0 or a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WarmUp {
    /// A tenth of the duration, at least 200 ms.
    #[default]
    Auto,
    /// This time; everything is measured from the first byte on if it is zero.
    For(Duration),
}

impl FromStr for WarmUp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "0" => Ok(Self::For(Duration::ZERO)),
            _ => time(text)
                .map(Self::For)
                .map_err(|_| "write auto, 0, or a time as in 500ms".to_owned()),
        }
    }
}

impl fmt::Display for WarmUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::For(Duration::ZERO) => f.write_str("0"),
            Self::For(time) => Time(*time).fmt(f),
        }
    }
}

/// Bits of payload a second: `500M`, `2.5G`, or `max` for as many as the kernel accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BitRate {
    /// Flat out.
    #[default]
    Max,
    /// At most 1 Tbit/s, at least 1 bit/s.
    Bits(u64),
}

impl FromStr for BitRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self::Max);
        }
        scaled(text, 1.0..=1e12)
            .map(|bits| Self::Bits(bits.round() as u64))
            .ok_or_else(|| "write max or bits per second, 1 to 1000G: 500M, 2.5G".to_owned())
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::Bits(bits) => Scaled(*bits as f64).fmt(f),
        }
    }
}

/// ExchangeSizes of request and response: `1,1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeSizes(pub Exchange);

impl FromStr for ExchangeSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sizes = text.split_once(',').and_then(|(request, response)| {
            Some(Exchange {
                request: request.parse().ok()?,
                response: response.parse().ok()?,
            })
        });
        sizes
            .map(Self)
            .ok_or_else(|| "write the bytes of a request and of a response: 1,1 or 64,8192".into())
    }
}

impl<'de> Deserialize<'de> for ExchangeSizes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

/// Streams between the two hosts, measured at both ends, in the forwarder and in both kernels.
#[derive(Clone, Debug, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Stream {
    /// Transport protocol
    #[arg(long, value_enum, default_value_t)]
    pub protocol: Protocol,
    /// Sends over IPv6 instead of IPv4
    #[arg(long)]
    pub ipv6: bool,
    /// Which host sends
    #[arg(long, value_enum, default_value_t)]
    pub direction: Direction,
    /// How long to send, the warm-up included
    #[arg(long, value_name = "TIME", default_value = "3s")]
    pub duration: Time,
    /// How much of that is not measured: 0, 500ms; auto is a tenth of the duration, at least 200ms
    #[arg(long, value_name = "TIME", default_value_t)]
    #[serde(deserialize_with = "from_text")]
    pub warm_up: WarmUp,
    /// Bytes of a send, at most 256 KiB; of UDP the payload of a datagram, 8 to 65507
    /// [default: 131072; of UDP as much as the MTU holds]
    #[arg(long, value_name = "BYTES")]
    pub message: Option<u32>,
    /// Connections or flows, each with a thread at both ends: 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub streams: u32,
    /// Send and receive buffer of every socket in bytes, 4096 to 1073741824 [default: as the kernel
    /// adapts them]
    #[arg(long, value_name = "BYTES")]
    pub window: Option<u32>,
    /// TCP: the maximum segment size in bytes, 88 to 32767 [default: that of the MTU]
    #[arg(long, value_name = "BYTES")]
    pub mss: Option<u32>,
    /// Whether the senders' interfaces segment TCP (tx-tcp-segmentation) [default: as the port
    /// permits]
    #[arg(long, value_name = "on|off", value_enum, hide_possible_values = true)]
    pub tso: Option<Switch>,
    /// Whether the senders' kernels segment late what the interface does not
    /// (tx-generic-segmentation). Without TSO and GSO the kernel makes no packet larger than a
    /// segment (gso_max_segs) [default: on]
    #[arg(long, value_name = "on|off", value_enum, hide_possible_values = true)]
    pub gso: Option<Switch>,
    /// Request and response instead of streams: the bytes of each, as in 1,1; of UDP at least 8
    #[arg(long, value_name = "BYTES,BYTES")]
    pub exchange: Option<ExchangeSizes>,
    /// UDP: bits of payload a second of all flows together, as in 500M, or max: flat out
    #[arg(long, value_name = "RATE", default_value_t)]
    #[serde(deserialize_with = "from_text")]
    pub rate: BitRate,
    /// UDP: datagrams in one send (UDP_SEGMENT), received by UDP_GRO: 1 to 64, at most 65000 bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub train: u32,
    /// TCP: how often a receiver passes over the bytes that it has read (FNV-1a), as a program that
    /// works on its data does: 0 to 100
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub receive_work: u32,
    /// Makes every message different and compares all bytes: takes CPU time of the receiver, with
    /// UDP of both ends, and with TCP time after the run
    #[arg(long)]
    pub check: bool,
}

impl Stream {
    /// The warm-up, if enough remains to be measured.
    pub(crate) fn warm_up(&self) -> Result<Duration, ToolError> {
        let Time(duration) = self.duration;
        let warm_up = match self.warm_up {
            WarmUp::Auto => WARM_UP_MIN.max(duration / 10),
            WarmUp::For(time) => time,
        };
        if duration < warm_up + STEADY_MIN {
            return Err(ToolError::Usage(format!(
                "--duration cannot be '{}': it must be {} or more, for the warm-up and what \
                 is measured",
                self.duration,
                Time(warm_up + STEADY_MIN)
            )));
        }
        Ok(warm_up)
    }

    pub(super) fn ip(&self) -> IpVersion {
        IpVersion::of(self.ipv6)
    }

    fn check_ranges(&self) -> Result<(), ToolError> {
        let message = match self.protocol {
            Protocol::Tcp => range::MESSAGE,
            Protocol::Udp if self.train > 1 => 8..=TRAIN_BYTES_MAX as u64,
            Protocol::Udp => range::DATAGRAM,
        };
        let exchange = self.exchange.map(|ExchangeSizes(exchange)| exchange);
        let bytes = |size: usize| Some(size as u64);
        let numbers = [
            ("--streams", Some(self.streams.into()), range::STREAMS),
            ("--message", self.message.map(u64::from), message.clone()),
            ("--window", self.window.map(u64::from), range::BUFFERS),
            ("--mss", self.mss.map(u64::from), range::MSS),
            ("--receive-work", Some(self.receive_work.into()), 0..=100),
            ("--train", Some(self.train.into()), range::TRAIN),
            (
                "the request of --exchange",
                exchange.and_then(|exchange| bytes(exchange.request)),
                message.clone(),
            ),
            (
                "the response of --exchange",
                exchange.and_then(|exchange| bytes(exchange.response)),
                message,
            ),
        ];
        numbers
            .into_iter()
            .filter_map(|(option, value, range)| Some((option, value?, range)))
            .try_for_each(|(option, value, range)| ToolError::unless_in(range, option, value))
    }

    /// The transfer of one direction between hosts of this MTU.
    pub(super) fn transfer(&self, mtu: u32) -> Result<Transfer, ToolError> {
        let is_tcp = self.protocol == Protocol::Tcp;
        let wrong = |option: &str, of: &str| {
            Err(ToolError::Usage(format!(
                "{option} is for {of}: see packtrain stream --help"
            )))
        };
        match self.protocol {
            Protocol::Tcp if self.rate != BitRate::Max => return wrong("--rate", "udp"),
            Protocol::Tcp if self.train != 1 => return wrong("--train", "udp"),
            Protocol::Udp if self.mss.is_some() => return wrong("--mss", "tcp"),
            Protocol::Udp if self.receive_work > 0 => return wrong("--receive-work", "tcp"),
            _ => {}
        }
        let only_streams = [
            ("--message", self.message.is_some()),
            ("--check", self.check),
            ("--rate", self.rate != BitRate::Max),
            ("--train", self.train != 1),
            ("--receive-work", self.receive_work > 0),
        ];
        let is_set = |(_, is_set): &&(&str, bool)| *is_set;
        if let (Some(_), Some((option, _))) = (self.exchange, only_streams.iter().find(is_set)) {
            return wrong(option, "streams, and --exchange makes none");
        }
        self.check_ranges()?;
        let ip = self.ip();
        let mut transfer = match self.protocol {
            Protocol::Tcp => Transfer::tcp(ip, Amount::Open),
            Protocol::Udp => Transfer::udp(ip, Amount::Open),
        };
        transfer.streams = self.streams;
        transfer.payload = if self.check {
            Payload::Hashed
        } else {
            Payload::Plain
        };
        let message = self.message.map(|bytes| bytes as usize);
        if is_tcp {
            transfer.write_size = message.unwrap_or(transfer.write_size);
        } else {
            let headers = UDP_HEADER + ip.header_len();
            let request = self
                .exchange
                .map(|ExchangeSizes(exchange)| exchange.request);
            transfer.datagram = request.or(message).unwrap_or(mtu as usize - headers);
        }
        transfer.buffers = self.window;
        transfer.work = self.receive_work;
        transfer.mss = self.mss;
        transfer.exchange = self.exchange.map(|ExchangeSizes(exchange)| exchange);
        transfer.train = self.train;
        transfer.gro = self.train > 1;
        transfer.pace = match self.rate {
            BitRate::Max => Pace::FlatOut,
            BitRate::Bits(bits) => Pace::Rate(bits),
        };
        transfer.loss_wait = LATE;
        transfer.limit = self.duration.0 + EXTRA;
        transfer.stall = EXTRA;
        Ok(transfer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    #[test]
    fn rates() {
        let good = [
            ("500M", 500_000_000),
            ("2.5G", 2_500_000_000),
            ("1", 1),
            ("123456789013", 123_456_789_013),
        ];
        for (text, bits) in good {
            assert_eq!(text.parse(), Ok(BitRate::Bits(bits)), "{text}");
            let again = BitRate::Bits(bits).to_string().parse();
            assert_eq!(again, Ok(BitRate::Bits(bits)), "{text}");
        }
        assert_eq!("max".parse(), Ok(BitRate::Max));
        for text in ["", "0", "M", "-1", "1e3", "2000G", "1 M", "inf"] {
            assert!(text.parse::<BitRate>().is_err(), "{text}");
        }
    }

    #[test]
    fn warm_ups() {
        let with = |duration: &str, warm_up: &str| Stream {
            duration: duration.parse().unwrap(),
            warm_up: warm_up.parse().unwrap(),
            ..Stream::default()
        };
        let milliseconds = |stream: Stream| stream.warm_up().map(|time| time.as_millis());
        assert_eq!(milliseconds(with("5s", "auto")), Ok(500));
        assert_eq!(milliseconds(with("1s", "auto")), Ok(200));
        assert_eq!(milliseconds(with("100ms", "0")), Ok(0));
        assert_eq!(milliseconds(with("1s", "900ms")), Ok(900));
        let error = with("240ms", "auto").warm_up().unwrap_err().to_string();
        assert!(error.contains("'240ms': it must be 250ms"), "{error}");
        assert!("-1".parse::<WarmUp>().is_err());
        for text in ["auto", "0", "10ms"] {
            assert_eq!(text.parse::<WarmUp>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn options_that_do_not_fit_are_named() {
        let transfer = |line: &str, mtu| {
            let mut command = Stream::augment_args(Command::new("").no_binary_name(true));
            let matches = command.try_get_matches_from_mut(line.split_whitespace());
            let stream = Stream::from_arg_matches(&matches.unwrap()).unwrap();
            stream
                .transfer(mtu)
                .map_err(|error: ToolError| error.to_string())
        };
        for (option, line) in [
            ("--rate", "--rate 9"),
            ("--train", "--train 2"),
            ("--mss", "--protocol udp --mss 1000"),
            ("--train", "--protocol udp --exchange 1,1 --train 2"),
            ("--check", "--exchange 1,1 --check"),
            ("--receive-work", "--protocol udp --receive-work 1"),
            ("--receive-work", "--exchange 1,1 --receive-work 1"),
            (
                "the response of --exchange cannot be '300000'",
                "--exchange 1,300000",
            ),
        ] {
            let error = transfer(line, 1500).unwrap_err();
            assert!(error.contains(option), "{error}");
        }
        for line in [
            "--streams 0",
            "--message 262145",
            "--window 100",
            "--mss 87",
            "--receive-work 101",
            "--protocol=udp --message 7",
            "--protocol=udp --train 65",
            "--protocol=udp --train=2 --message 65001",
        ] {
            let (option, value) = line.rsplit_once(' ').unwrap();
            let option = option.rsplit(' ').next().unwrap();
            let expected = format!("{option} cannot be '{value}': write a number from");
            let error = transfer(line, 1500).unwrap_err();
            assert!(error.starts_with(&expected), "{error}");
        }
        assert_eq!(transfer("--protocol udp", 9000).unwrap().datagram, 8972);
    }

    #[test]
    fn a_file_and_a_command_line_have_the_same_options() {
        let file = serde_json::json!({
            "protocol": "udp", "direction": "both", "duration": "50ms", "warm-up": "0",
            "message": 512, "rate": "1M", "tso": "off", "exchange": "1,2",
        });
        let stream: Stream = serde_json::from_value(file).unwrap();
        assert_eq!(stream.direction, Direction::Both);
        assert_eq!(stream.rate, BitRate::Bits(1_000_000));
        assert_eq!((stream.streams, stream.tso), (1, Some(Switch::Off)));
        assert_eq!(stream.exchange.unwrap().0.response, 2);
        assert!(serde_json::from_value::<Stream>(serde_json::json!({"sice": 64})).is_err());
    }
}
