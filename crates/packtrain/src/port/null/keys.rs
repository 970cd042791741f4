//! A sink or a source from the keys of a port.

use super::{
    ACKS_EACH_MAX, FLOWS_MAX, FRAME_BYTES_MAX, FRAME_BYTES_MIN, Null, NullConfig, OUT_OF_ORDER_MAX,
    Protocol, Source, TRAIN_MAX,
};
use crate::driver::DeviceError;
use crate::driver::key::{Key, Words, keys};
use crate::driver::options::{Options, Request, TakesLink};
use crate::limits::BURST_PACKETS_MAX;
use packtrain_offload::offload::LinkType;

/// What a `null:` port is, from its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NullOptions {
    /// Packets come from it; else it only accepts them.
    pub source: bool,
    /// The packets that come from it, but for their length.
    pub made: Source,
    /// Bytes of each packet, link header included; `None` for the usual length of its protocol.
    pub bytes: Option<usize>,
    /// The link type; `None` takes the other port's.
    pub link: Option<LinkType>,
}

impl Words for Protocol {
    const WORDS: &'static [(&'static str, Self)] =
        &[("udp", Self::Udp), ("tcp", Self::Tcp), ("ack", Self::Ack)];
}

impl Options for NullOptions {
    type Driver = Null;

    const KEYS: &'static [Key<Self>] = keys! { Self;
        "source" (Flag) source: "also generate packets";
        "proto" (Words) made.protocol:
            "what the packets are: datagrams, TCP with data, or pure ACKs";
        "bytes" (Range(FRAME_BYTES_MIN as u64, FRAME_BYTES_MAX as u64)) bytes:
            "bytes of each packet; by default the shortest, and an MTU of 1500 for proto=tcp";
        "count" (Range(1, u64::MAX)) made.count:
            "packets to generate; without it the source never ends";
        "burst" (Range(1, BURST_PACKETS_MAX as u64)) made.burst:
            "packets that one poll receives at most; 1 is a system without batches";
        "flows" (Range(1, FLOWS_MAX as u64)) made.flows: "flows that the packets belong to";
        "active" (Range(1, FLOWS_MAX as u64)) made.active:
            "flows of a queue that alternate at a time; all by default";
        "train" (Range(1, TRAIN_MAX as u64)) made.train:
            "with active=: packets of each of these flows before the next ones; 1 by default";
        "timestamps" (Flag) made.timestamps:
            "give TCP packets timestamps, which go up every 64 packets of a flow";
        "out-of-order" (Range(1, OUT_OF_ORDER_MAX as u64)) made.out_of_order:
            "percent of each flow's packets that are swapped with the next one of the flow";
        "acks" (Range(2, ACKS_EACH_MAX)) made.acks:
            "with proto=tcp: one of this many packets is a pure ACK of another connection";
        "blank" (Flag) made.blank:
            "hand out packets as they are in memory: what the framework costs alone";
        "link" (Words) link: "link type of its packets";
    };

    fn check(&self, _: &Request<'_>, given: &[&str]) -> Result<(), String> {
        // All keys of the kind but these two are of the source.
        let of_source = |key: &&Key<Self>| !["source", "link"].contains(&key.name);
        let of_source = Self::KEYS.iter().filter(of_source);
        if !self.source {
            let key = given
                .iter()
                .find(|given| of_source.clone().any(|key| key.name == **given));
            return key.map_or(Ok(()), |key| {
                Err(format!(
                    "key '{key}' is for a null: port that packets come from; add 'source', or \
                     leave '{key}' out"
                ))
            });
        }
        let (protocol, timestamps) = (self.made.protocol, self.made.timestamps);
        if timestamps && protocol == Protocol::Udp {
            let why = "key 'timestamps' is for TCP: add proto=tcp or proto=ack, or leave \
                       'timestamps' out";
            return Err(why.to_owned());
        }
        if self.made.acks.is_some() && protocol != Protocol::Tcp {
            let why = "key 'acks' is for TCP data: add proto=tcp, or leave 'acks' out";
            return Err(why.to_owned());
        }
        let Some(bytes) = self.bytes else {
            return Ok(());
        };
        if protocol == Protocol::Ack {
            let why = "key 'bytes' is not for proto=ack, whose packets are headers alone; leave \
                       'bytes' out";
            return Err(why.to_owned());
        }
        let range = protocol.frame_bytes(self.link.unwrap_or_default(), timestamps);
        if range.contains(&bytes) {
            return Ok(());
        }
        let (least, most) = range.into_inner();
        Err(format!(
            "bytes={bytes} does not fit: with this link=, proto= and timestamps it takes \
             {least}..{most}"
        ))
    }

    fn open(&self, port: &Request<'_>) -> Result<Null, DeviceError> {
        let (link, made) = (self.link.or(port.link).unwrap_or_default(), self.made);
        let usual = made.protocol.frame_bytes_usual(link, made.timestamps);
        let bytes = self.bytes.unwrap_or(usual);
        Ok(Null::new(NullConfig {
            link,
            source: self.source.then_some(Source { bytes, ..made }),
            ..NullConfig::default()
        }))
    }

    fn takes_link(&self) -> TakesLink {
        self.link.map_or(TakesLink::Any, |_| TakesLink::None)
    }
}
