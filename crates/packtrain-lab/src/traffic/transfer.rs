//! A transfer, and its report.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::ValueEnum;
use serde::Deserialize;

use super::payload::{self, Datagrams};
use crate::cpu::Usage;
use crate::error::LabError;
use crate::ip::IpVersion;

/// The most datagrams in one train: `UDP_MAX_SEGMENTS` of older kernels (newer ones accept 128).
pub const TRAIN_SEGMENTS_MAX: u32 = 64;

/// The most payload bytes in one train, so that it fits an IP packet with any headers.
pub const TRAIN_BYTES_MAX: usize = 65_000;

/// What [`Transfer`] accepts.
pub(crate) mod range {
    use super::{TRAIN_SEGMENTS_MAX, payload};
    use std::ops::RangeInclusive;

    /// [`streams`](super::Transfer::streams).
    pub(crate) const STREAMS: RangeInclusive<u64> = 1..=1024;
    /// Bytes of one `write`, of a request and of a response.
    pub(crate) const MESSAGE: RangeInclusive<u64> = 1..=256 * 1024;
    /// [`datagram`](super::Transfer::datagram).
    pub(crate) const DATAGRAM: RangeInclusive<u64> =
        payload::SEQUENCE_LEN as u64..=payload::DATAGRAM_MAX as u64;
    /// [`mss`](super::Transfer::mss).
    pub(crate) const MSS: RangeInclusive<u64> = 88..=32_767;
    /// [`buffers`](super::Transfer::buffers).
    pub(crate) const BUFFERS: RangeInclusive<u64> = 4096..=1 << 30;
    /// [`train`](super::Transfer::train).
    pub(crate) const TRAIN: RangeInclusive<u64> = 1..=TRAIN_SEGMENTS_MAX as u64;
}

/// Transport protocol of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Byte streams
    #[default]
    Tcp,
    /// Datagrams with sequence numbers
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// How much to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// This many payload bytes in all, divided evenly among the streams. UDP rounds
    /// up to whole datagrams.
    Bytes(u64),
    /// As much as possible in this time.
    Time(Duration),
    /// As much as possible until [`Opened::end`](super::Opened::end) is called.
    Open,
}

/// Whether the bytes are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// No two chunks of a stream are equal, and every byte is hashed: by a TCP receiver as it
    /// reads, and once more after the transfer, for the sender; by both ends of a UDP flow during
    /// the transfer.
    #[default]
    Hashed,
    /// Every message has the same bytes, and no end reads them. UDP datagrams have their sequence
    /// numbers. All hashes are 0.
    Plain,
}

/// How fast a UDP flow is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// At most [`Transfer::window`] datagrams are in flight, so that a network that loses nothing
    /// loses nothing to a full queue either.
    #[default]
    Window,
    /// So many bits of payload a second of all flows together, evenly spaced in bursts of 100 us,
    /// or of one train if that takes longer. After a delay a flow sends at most at twice its rate.
    Rate(u64),
    /// As fast as the kernel accepts datagrams.
    FlatOut,
}

/// Request and response: the sending end sends a request and waits for the response before the
/// next one. `TCP_NODELAY` is on. A UDP request whose response does not come within
/// [`Transfer::loss_wait`] is followed by the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Bytes of a request, 1 to 256 KiB; of UDP [`Transfer::datagram`].
    pub request: usize,
    /// Bytes of a response, 1 to 256 KiB; of UDP 8 to 65507.
    pub response: usize,
}

/// A load to run from one host to another. Made by [`Transfer::tcp`] or [`Transfer::udp`]; the
/// fields may be changed before [`run`](Transfer::run).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Transfer {
    /// Transport protocol.
    pub protocol: Protocol,
    /// IP version.
    pub ip: IpVersion,
    /// How much to send.
    pub amount: Amount,
    /// Parallel connections or flows, 1 to 1024. Each has a thread at both ends.
    pub streams: u32,
    /// Seed of the payload.
    pub seed: u64,
    /// Whether the bytes are checked.
    pub payload: Payload,
    /// TCP: bytes per `write`, at most 256 KiB. A hashed payload is written in smaller pieces where
    /// the block that it is cut from ends, and in 128 KiB on average at most.
    pub write_size: usize,
    /// TCP: how often a receiver passes over the bytes that it has read, with a multiplication for
    /// each, as a program that works on its data does.
    pub work: u32,
    /// Request and response instead of a stream. The payload is [`Payload::Plain`].
    pub exchange: Option<Exchange>,
    /// TCP: the maximum segment size (`TCP_MAXSEG`), 88 to 32767; by default that of the MTU.
    pub mss: Option<u32>,
    /// Send and receive buffer of both sockets in bytes, 4096 to 1 GiB (`SO_SNDBUF`, `SO_RCVBUF`,
    /// for which the kernel reserves the double). By default the kernel adapts them for TCP, and a
    /// UDP receiver gets 8 MiB or what is permitted.
    pub buffers: Option<u32>,
    /// UDP: how fast datagrams are sent.
    pub pace: Pace,
    /// UDP: payload bytes per datagram, 8 to 65507. Larger than the MTU allows makes fragments.
    pub datagram: usize,
    /// UDP: datagrams passed to the kernel in one `UDP_SEGMENT` send, 1 (off) to
    /// [`TRAIN_SEGMENTS_MAX`]; a train is cut shorter where it would exceed [`TRAIN_BYTES_MAX`] or,
    /// with [`Pace::Window`], half of the window.
    pub train: u32,
    /// UDP: receive with `UDP_GRO`, several datagrams in one call.
    pub gro: bool,
    /// UDP with [`Pace::Window`]: datagrams of one flow that may be in flight. They must fit every
    /// queue between the sockets, also a TAP's ring. The window is lowered to the size of the
    /// receive buffer.
    pub window: u32,
    /// UDP: how long the sender waits for progress with a full window before it counts the
    /// datagrams in flight as lost. If the time is too short for a busy machine, it sends more than
    /// the queues can hold.
    pub loss_wait: Duration,
    /// How long a stream may make no progress.
    pub stall: Duration,
    /// How long the transfer may take in all.
    pub limit: Duration,
    /// The CPU that the sending threads bind themselves to; `None` leaves them to the scheduler. A
    /// CPU that they cannot be bound to is an error.
    pub sender_cpu: Option<usize>,
    /// As `sender_cpu`, for the receiving threads.
    pub receiver_cpu: Option<usize>,
    /// If set to true, the transfer ends soon (some 50 ms) with [`LabError::Cancelled`].
    pub stop: Option<Arc<AtomicBool>>,
}

macro_rules! setters {
    ($($(#[$about:meta])* $name:ident: $kind:ty,)*) => {$(
        $(#[$about])*
        pub fn $name(mut self, $name: $kind) -> Self {
            self.$name = $name;
            self
        }
    )*};
}

impl Transfer {
    fn new(protocol: Protocol, ip: IpVersion, amount: Amount) -> Self {
        let time = if let Amount::Time(time) = amount {
            time
        } else {
            Duration::ZERO
        };
        Self {
            protocol,
            ip,
            amount,
            streams: 1,
            seed: 1,
            payload: Payload::default(),
            write_size: 128 * 1024,
            work: 0,
            exchange: None,
            mss: None,
            buffers: None,
            pace: Pace::default(),
            datagram: match ip {
                IpVersion::V4 => 1472,
                IpVersion::V6 => 1452,
            },
            train: 1,
            gro: false,
            window: 512,
            loss_wait: Duration::from_secs(2),
            stall: Duration::from_secs(30),
            limit: time + Duration::from_secs(120),
            sender_cpu: None,
            receiver_cpu: None,
            stop: None,
        }
    }

    /// One TCP stream with 128 KiB writes, 30 s until it counts as stalled, and 2 minutes at most
    /// (not counting an [`Amount::Time`]). The times are long because a busy machine is slow.
    pub fn tcp(ip: IpVersion, amount: Amount) -> Self {
        Self::new(Protocol::Tcp, ip, amount)
    }

    /// One UDP flow of datagrams that fill a 1500 byte packet, sent and received one by one, 512
    /// in flight; time limits as for [`tcp`](Self::tcp).
    pub fn udp(ip: IpVersion, amount: Amount) -> Self {
        Self::new(Protocol::Udp, ip, amount)
    }

    setters! {
        /// Sets the number of parallel streams.
        streams: u32,
        /// Sets the seed of the payload.
        seed: u64,
        /// Sets the payload size of a datagram in bytes.
        datagram: usize,
        /// Sets how many datagrams are sent in one call (`UDP_SEGMENT`).
        train: u32,
        /// Switches `UDP_GRO` on the receiving socket.
        gro: bool,
        /// Sets the window of a UDP flow in datagrams.
        window: u32,
    }

    /// Sets the flag that ends the transfer.
    pub fn stop(mut self, flag: Arc<AtomicBool>) -> Self {
        self.stop = Some(flag);
        self
    }

    pub(super) fn check(&self) -> Result<(), LabError> {
        let is_plain = self.payload == Payload::Plain;
        let is_tcp = self.protocol == Protocol::Tcp;
        let message = |bytes: usize| range::MESSAGE.contains(&(bytes as u64));
        let datagram = |bytes: usize| range::DATAGRAM.contains(&(bytes as u64));
        let fits = |exchange: Exchange| match self.protocol {
            Protocol::Tcp => message(exchange.request) && message(exchange.response),
            Protocol::Udp => exchange.request == self.datagram && datagram(exchange.response),
        };
        let is_mss = |mss: u32| is_tcp && range::MSS.contains(&mss.into());
        let is_buffer = |bytes: u32| range::BUFFERS.contains(&bytes.into());
        let rules = [
            (
                range::STREAMS.contains(&self.streams.into()),
                "streams is 1 to 1024",
            ),
            (
                self.exchange.is_none_or(fits),
                "a request or response has 1 to 262144 bytes, of udp 8 to 65507",
            ),
            (
                self.exchange.is_none() || (is_plain && self.train == 1 && !self.gro),
                "request and response have a plain payload and no trains",
            ),
            (self.mss.is_none_or(is_mss), "mss is 88 to 32767, of tcp"),
            (
                self.buffers.is_none_or(is_buffer),
                "buffers is 4096 to 1073741824",
            ),
            (self.pace != Pace::Rate(0), "a rate is at least 1"),
            (message(self.write_size), "write_size is 1 to 262144"),
            (datagram(self.datagram), "datagram is 8 to 65507"),
            (
                range::TRAIN.contains(&self.train.into()),
                "train is 1 to 64",
            ),
            (
                self.train == 1 || self.datagram <= TRAIN_BYTES_MAX,
                "a datagram of a train is at most 65000",
            ),
            (self.window >= 1, "window is at least 1"),
            (!self.loss_wait.is_zero(), "loss_wait is more than 0"),
            (!self.stall.is_zero(), "stall is more than 0"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(LabError::Setting(rule)),
            None => Ok(()),
        }
    }

    /// The bytes that stream number `stream` has to send; `None` if a time or its end decides.
    pub(super) fn share(&self, stream: u32) -> Option<u64> {
        match self.amount {
            Amount::Time(_) | Amount::Open => None,
            Amount::Bytes(bytes) => {
                let streams = u64::from(self.streams);
                Some(bytes / streams + u64::from(u64::from(stream) < bytes % streams))
            }
        }
    }
}

/// Socket calls of the transfer's threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// `send`s.
    pub send: u64,
    /// `recv`s.
    pub receive: u64,
}

/// The report of a transfer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TransferReport {
    /// Payload bytes that the kernel accepted.
    pub sent_bytes: u64,
    /// Payload bytes that arrived; for UDP of datagrams counted as received.
    pub received_bytes: u64,
    /// xxh3-64 of the sent bytes: over each TCP stream, then over the hashes of the streams. For
    /// UDP the sum of the hashes of the datagrams, since UDP does not guarantee order.
    pub sent_hash: u64,
    /// The same of the bytes that arrived.
    pub received_hash: u64,
    /// Whether all data arrived exactly as it was sent: hashes and byte counts are equal and, for
    /// UDP, every datagram arrived exactly once. With [`Payload::Plain`] the bytes themselves are
    /// not compared.
    pub hash_ok: bool,
    /// Time from the last connection to the arrival of the last byte (for TCP the end
    /// of the last stream).
    pub elapsed: Duration,
    /// UDP: counts of the datagrams. All 0 for TCP.
    pub datagrams: Datagrams,
    /// The same of the datagrams sent since [`Opened::mark`](super::Opened::mark) was called;
    /// without a call of all.
    pub marked: Datagrams,
    /// TCP: segments that the senders retransmitted (`tcpi_total_retrans`, over all streams). 0 for
    /// UDP.
    pub retransmits: u64,
    /// Socket calls of both ends.
    pub calls: Calls,
    /// CPU time of the sending threads. With TCP over TAP it may include the kernel's receive work
    /// for the peer, because softirqs run where they are raised.
    pub send_cpu: Usage,
    /// CPU time of the receiving threads.
    pub receive_cpu: Usage,
}

impl TransferReport {
    /// Received payload in Gbit/s.
    pub fn gbps(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 {
            self.received_bytes as f64 * 8.0 / seconds / 1e9
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (bytes, streams) in [(0, 1), (10, 3), (1 << 40, 7), (5, 8)] {
            let transfer = Transfer::tcp(IpVersion::V4, Amount::Bytes(bytes)).streams(streams);
            let shares: Vec<u64> = (0..streams).filter_map(|i| transfer.share(i)).collect();
            assert_eq!(shares.iter().sum::<u64>(), bytes);
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
        let timed = Transfer::tcp(IpVersion::V4, Amount::Time(Duration::from_secs(1)));
        assert_eq!(timed.share(0), None);
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let base = Transfer::udp(IpVersion::V4, Amount::Bytes(1));
        let refused = |transfer: Transfer| transfer.check().unwrap_err().to_string();
        assert!(refused(base.clone().streams(0)).contains("streams"));
        assert!(refused(base.clone().datagram(7)).contains("datagram"));
        assert!(refused(base.clone().datagram(65_508)).contains("datagram"));
        assert!(refused(base.clone().train(65)).contains("train"));
        assert!(refused(base.clone().train(2).datagram(65_001)).contains("train"));
        assert!(refused(base.clone().window(0)).contains("window"));
        assert_eq!(base.check(), Ok(()));
    }
}
