//! A port of a [`Fake`] card, whose halves a test works by hand.

use super::fake::{Fake, Table};
use crate::driver::{
    Accepted, Attach, BadPackets, Completed, DeviceError, Driver, Interest, QueuePair, Refused,
    RxBurst, RxDescriptors as _, Token, TxDescriptors as _, TxPacket,
};
use crate::packet::{Arena, ArenaConfig, Burst, Packet};
use crate::stats::DropReason;
use crate::test_packets::{Segment, tcp4, tcp6};
use crate::time::Instant;
use packtrain_offload::layout::Layout;
use packtrain_offload::limits::HEADER_BYTES_MAX;
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind, LinkType};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, BorrowedFd};

/// Why packets were bad.
#[derive(Debug, Default)]
pub(in crate::port) struct Bad(pub(in crate::port) Vec<DropReason>);

impl BadPackets for Bad {
    fn bad(&mut self, reason: DropReason, wire_packets: u64) {
        assert_eq!(wire_packets, 1);
        self.0.push(reason);
    }
}

/// A card with its queues.
pub(in crate::port) struct Bench<D: Driver, R = Table> {
    pub(in crate::port) fake: Fake<R>,
    pub(in crate::port) arena: Arena,
    pub(in crate::port) port: D,
    pub(in crate::port) queues: Vec<QueuePair<D>>,
    pub(in crate::port) bad: Bad,
    pub(in crate::port) now: Instant,
    /// How much the card has written for RX and for TX, where the test has to know it.
    pub(in crate::port) written: [usize; 2],
}

impl<D: Driver, R> Bench<D, R> {
    pub(in crate::port) fn attach(
        fake: Fake<R>,
        mut port: D,
        how: &Attach,
        frames: ArenaConfig,
    ) -> Self {
        let arena = Arena::new(frames).expect("memory");
        let queues = port.attach(how, &arena).expect("it attaches");
        Self {
            fake,
            arena,
            port,
            queues,
            bad: Bad::default(),
            now: Instant::default(),
            written: [0; 2],
        }
    }

    pub(in crate::port) fn rx(&mut self) -> &mut D::Rx {
        &mut self.queues[0].0
    }

    pub(in crate::port) fn tx(&mut self) -> &mut D::Tx {
        &mut self.queues[0].1
    }

    pub(in crate::port) fn refill(&mut self) -> bool {
        self.queues[0].0.refill(&self.arena)
    }

    /// The packets of a poll. With an error there are none.
    pub(in crate::port) fn poll(&mut self) -> Result<Vec<Packet>, DeviceError> {
        let mut burst = Burst::new();
        let mut sink = RxBurst::new(&mut burst, 64, &mut self.bad);
        let received = self.queues[0].0.receive(self.now, &mut sink);
        assert!(received.is_ok() || burst.is_empty());
        received.map(|()| std::iter::from_fn(|| burst.pop()).collect())
    }

    pub(in crate::port) fn receive(&mut self) -> Vec<Packet> {
        self.poll().expect("it works")
    }

    /// The error of the next poll.
    pub(in crate::port) fn failure(&mut self) -> DeviceError {
        self.poll().expect_err("it does not work")
    }

    pub(in crate::port) fn send(
        &mut self,
        packet: &mut Packet,
        token: u32,
    ) -> Result<Accepted, Refused> {
        self.tx().encap(&mut TxPacket::fitted(packet), Token(token))
    }

    pub(in crate::port) fn flush(&mut self) {
        let now = self.now;
        self.tx().flush(now).expect("it works");
    }

    /// The tokens of completed packets, at most `room`.
    pub(in crate::port) fn reclaim(&mut self, room: usize) -> Vec<u32> {
        let mut completed = Completed::with_capacity(room);
        let now = self.now;
        self.tx().reclaim(now, &mut completed);
        assert!(completed.take_failure().is_none());
        completed.drain().map(|token| token.0).collect()
    }

    /// A packet of these pieces.
    pub(in crate::port) fn packet(&self, pieces: &[&[u8]]) -> Packet {
        let pieces = pieces.iter().map(|piece| self.arena.packet_from(piece));
        let mut pieces = pieces.map(|piece| piece.expect("frames"));
        let mut packet = pieces.next().expect("a piece");
        pieces.for_each(|piece| packet.append(piece).expect("segments"));
        packet
    }

    /// A packet of so many bytes.
    pub(in crate::port) fn plain(&self, bytes: usize) -> Packet {
        self.packet(&[&vec![0x5a; bytes]])
    }

    /// Makes a TCP packet one that stands for several.
    pub(in crate::port) fn large(&self, bytes: &[u8], packet: &mut Packet, size: u16) {
        let headers = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
        let layout = Layout::parse(LinkType::Ethernet, headers, bytes.len() as u32);
        let layout = layout.expect("TCP");
        let kind = match layout.network + 20 == layout.transport {
            true => GsoKind::TcpV4,
            false => GsoKind::TcpV6,
        };
        let meta = packet.meta_mut();
        meta.layout = Some(layout);
        meta.gso = NonZeroU16::new(size).map(|size| Gso::new(kind, size));
        meta.checksum = ChecksumState::Partial {
            start: layout.transport,
            offset: 16,
        };
    }
}

/// TCP with so many bytes of payload, in which the numbers of segments go round.
pub(in crate::port) fn tcp(is_ipv6: bool, payload: usize) -> Vec<u8> {
    let segment = Segment {
        seq: 0xffff_fe00,
        id: 0xfffe,
        payload,
        ..Segment::default()
    };
    if is_ipv6 {
        tcp6(&segment)
    } else {
        tcp4(&segment)
    }
}

/// Whether an interrupt has come, or comes if the test waits for it.
pub(in crate::port) fn is_raised(interrupt: impl AsFd, waits: bool) -> bool {
    let time = Timespec {
        tv_sec: if waits { 20 } else { 0 },
        tv_nsec: 0,
    };
    let mut one = [PollFd::new(&interrupt, PollFlags::IN)];
    poll(&mut one, Some(&time)).expect("a descriptor") > 0
}

/// The same of a half.
pub(in crate::port) fn has_come(wake: Option<(BorrowedFd<'_>, Interest)>, waits: bool) -> bool {
    let (fd, interest) = wake.expect("a descriptor");
    assert_eq!(interest, Interest::Read);
    is_raised(fd, waits)
}
