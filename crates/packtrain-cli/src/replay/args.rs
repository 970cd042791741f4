//! The options of `packtrain replay`.

use crate::ranges::within;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use packtrain::policy::gro::{self, Flush};
use packtrain_capture::replay::{QUEUES_MAX, Segment};
use packtrain_lab::units::time;
use packtrain_offload::offload::LinkType;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  packtrain replay in.pcapng
      ratio, reasons and a chart; nothing is written
  packtrain replay --flows 8,64,1024 --hold 20us,100us --queues 1,8 trace-*.pcap.gz
      twelve configurations side by side, in one pass over all files; a row for each
  packtrain replay --flows 8,64,1024 trace-*.pcap.gz --parquet out --dataset trace
      the same, and every train as a row of Parquet files that DuckDB and Polars read
  packtrain replay in.pcapng -o merged.pcapng --coalesce stream --flows 64
      what a receiver with LRO and a table of 64 flows would have seen
  packtrain replay in.pcapng -o same.pcapng --segment original && cmp in.pcapng same.pcapng
      merges, segments again, and compares every packet
  tcpdump -w - | packtrain replay - -o - --segment 1500 | tcpdump -n -r -
      large packets that this host sends, segmented as its NIC would

Packets of a queue that arrive within --hold of the first one are one batch, of at most 4096
packets: as if a NIC delayed its interrupt for that time, and its driver flushed after each poll.
A merged packet has the time of its first packet and finished checksums. Records stay in order.
Packets that are malformed, or whose checksum is wrong, are passed through and counted. Of packets
that were not captured whole, only the headers count: their lengths are those in their IP headers,
and their checksums are taken as correct. With -o such packets are passed through.";

/// `packtrain replay`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// The captures, pcap or pcapng, also compressed; several are read as one, in the order of
    /// time. `-` is standard input
    #[arg(required = true, value_name = "INPUT")]
    pub inputs: Vec<String>,
    /// The capture to write, in the input's format, for one input and one configuration. `-` is
    /// standard output; the report then goes to standard error. Without it no capture is written
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
    /// What may be merged: `reversible`: packets that can be restored byte for byte (GRO);
    /// `stream`: also packets that leave byte streams and acknowledgements as they were (LRO)
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        default_value = "reversible"
    )]
    pub coalesce: Vec<Coalesce>,
    /// How flows are found: in a hash table, by sorting each batch, or `auto`
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        value_delimiter = ',',
        default_value = "auto"
    )]
    pub mode: Vec<FlowMode>,
    /// Flows held at once in each queue, up to 524288
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1024",
          value_parser = within(1..=524_288_u32))]
    pub flows: Vec<u32>,
    /// RX queues of each interface, up to 128. A packet's queue is that of the Toeplitz hash of its
    /// addresses and ports with the usual key, through an indirection table of 128 entries
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1",
          value_parser = within(1..=QUEUES_MAX))]
    pub queues: Vec<u16>,
    /// Bytes of a merged IP packet at most [default: 65535; with `--coalesce stream` 65280]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = within(gro::BYTES))]
    pub gro_bytes: Vec<u32>,
    /// Packets held at once in each queue; with more, a window ends. Also the packets that are
    /// sorted at once [default: no limit but that of a window; 1024 are sorted]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = within(gro::PACKETS))]
    pub gro_packets: Vec<u32>,
    /// `on`: packets that were held for 200 us are passed on before the window ends
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Switch::Off)]
    pub gro_inactive: Switch,
    /// Also ends a window after a time or a number of packets: off, usecs(n), packets(n)
    #[arg(long, value_name = "HOW", default_value_t)]
    pub gro_flush: Flush,
    /// `exact`: IPv4 packets with DF that all have one identification are not merged
    #[arg(long, value_name = "RULE", value_enum, default_value_t = GroId::Atomic)]
    pub gro_id: GroId,
    /// UDP ports of further tunnels, up to 8: packets to and from them are not merged, as those of
    /// VXLAN and GENEVE never are (4789, 4790, 6081, 8472)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = within(1..=u16::MAX))]
    pub tunnel_ports: Vec<u16>,
    /// With `--coalesce stream`: the pure ACK that is packet N of a merged one passes it on; with 1
    /// no pure ACK is held [default: no limit]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = within(gro::ACKS))]
    pub ack_limit: Vec<u16>,
    /// Also ends a window after N packets, as a driver that stops receiving
    #[arg(long, value_name = "N", value_parser = within(gro::PACKETS))]
    pub rx_pause: Option<u32>,
    /// What is segmented after merging: `off`: nothing; `original`: merged packets, into those that
    /// they were made of; MTU: IP packets of more than MTU bytes: TCP, and IPv4 without DF
    /// [default: off]
    #[arg(long, value_name = "off|original|MTU", default_value = "off",
          value_parser = segment, hide_default_value = true)]
    pub segment: Segment,
    /// How long packets are held at most, in capture time: 20us, 1ms
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "50us",
          value_parser = time_with_unit)]
    pub hold: Vec<Duration>,
    /// Looks at no payload: all checksums are taken as correct. For captures whose addresses were
    /// replaced. Packets that were not captured whole are read like this without it
    #[arg(long)]
    pub headers_only: bool,
    /// The link header of packets of link type 147 (USER0, for private use). Without it they are
    /// passed through. packtrain writes IPoIB packets with this link type
    #[arg(long, value_name = "LINK", value_enum)]
    pub user0: Option<User0>,
    /// Adds the trains and the figures of each configuration to a data set of Parquet files in this
    /// folder, which is made if it is not there. Configurations that the data set has are not run
    /// again. Only in a build with the feature `parquet`
    #[arg(long, value_name = "DIR", value_parser = NonEmptyStringValueParser::new())]
    pub parquet: Option<String>,
    /// The name of the data set in the folder of --parquet [default: the name of the first input,
    /// without its suffixes]
    #[arg(long, value_name = "NAME")]
    pub dataset: Option<String>,
    /// Prints one JSON document instead of tables
    #[arg(long)]
    pub json: bool,
    /// Writes the tables as a page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Prints no progress
    #[arg(short, long)]
    pub quiet: bool,
}

impl ReplayArgs {
    /// Whether packets are written, or would be.
    pub fn writes(&self) -> bool {
        self.output.is_some() || self.segment != Segment::Off
    }
}

macro_rules! words {
    ($($(#[$about:meta])* $name:ident: $($word:ident),*;)*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        #[allow(missing_docs, reason = "clap would print it for each of the words")]
        pub enum $name { $($word,)* }
    )*};
}

words! {
    /// `--coalesce`.
    Coalesce: Reversible, Stream, Off;
    /// `--mode`.
    FlowMode: Hash, Sorted, Auto;
    /// `on` or `off`.
    Switch: On, Off;
    /// Whether packets with a constant IPv4 identification are merged.
    GroId: Atomic, Exact;
    /// The link header of packets of a private link type.
    User0: Ethernet, Ip, Ipoib;
}

impl User0 {
    /// In the library's type.
    #[must_use]
    pub const fn link(self) -> LinkType {
        match self {
            Self::Ethernet => LinkType::Ethernet,
            Self::Ip => LinkType::RawIp,
            Self::Ipoib => LinkType::Ipoib,
        }
    }
}

/// Reads `off`, `original` or an MTU.
fn segment(text: &str) -> Result<Segment, String> {
    match text {
        "off" => Ok(Segment::Off),
        "original" => Ok(Segment::Original),
        // The smallest MTU of IPv4 (RFC 791) and the longest packet.
        _ => match text.parse() {
            Ok(mtu @ 68..=65_535) => Ok(Segment::Mtu(mtu)),
            _ => Err("write off, original, or an MTU from 68 to 65535".to_owned()),
        },
    }
}

/// As [`time`], but a bare number is refused: seconds are not what is meant beside microseconds.
fn time_with_unit(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(number) if number <= 0.0 => Err("must be more than 0, with a unit: 50us".to_owned()),
        Ok(_) => Err(format!("needs a unit: {text}us, {text}ms or {text}s")),
        Err(_) => time(text).map_err(|error| error.replace("; a bare number is seconds", "")),
    }
}
