//! What is lost on the way, as the kernels' TCP sees it: with packtrain, and with the C forwarder.

use crate::transfers::{NAMES, TIMEOUT, tcp_transfers};
use packtrain_lab::LabError;
use packtrain_lab::baseline::{Baseline, BaselineError, Mode, Program};
use packtrain_lab::counters::Counters;
use packtrain_lab::netns::Netns;
use packtrain_lab::topology::{Settings, TwoHosts};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Segments that one packet may carry at most: what is lost with a packet that is dropped
/// (`UDP_MAX_SEGMENTS` is less; TCP fills 64 KiB with segments of at least 1024 bytes here).
const SEGMENTS_PER_PACKET: u64 = 64;

/// Retransmissions of a run, of both kernels together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Segments sent once more.
    pub resent: u64,
    /// Segments that arrived twice, as the receiver reported to the sender (DSACK, RFC 2883). The
    /// first of the two was not lost: the sender was only too early, as a stalled machine makes it.
    pub twice: u64,
    /// By the counts of the whole way, all that was sent arrived: whatever was sent once more had
    /// only been late.
    pub all_arrived: bool,
}

impl Losses {
    /// From what both kernels counted.
    pub fn of(tcp: &[Counters; 2], all_arrived: bool) -> Self {
        let sum = |count: fn(&Counters) -> u64| tcp.iter().map(count).sum();
        Self {
            resent: sum(|tcp| tcp.tcp_retrans_segs),
            // Older kernels count reports only, each of at least one segment.
            twice: sum(|tcp| tcp.tcp_dsack_recv_segs.max(tcp.tcp_dsack_recv)),
            all_arrived,
        }
    }

    /// Segments that were sent once more and cannot be shown to have arrived the first time.
    pub fn lost(self) -> u64 {
        if self.all_arrived {
            0
        } else {
            self.resent.saturating_sub(self.twice)
        }
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resent, twice, .. } = self;
        write!(
            f,
            "{resent} resent, {twice} twice there, {} lost",
            self.lost()
        )
    }
}

/// Segments that the two kernels at the ends dropped above their interfaces, at most.
pub fn dropped_by_tcp(tcp: &[Counters; 2]) -> u64 {
    let packets = |tcp: &Counters| {
        tcp.tcp_backlog_drop + tcp.tcp_rcv_pruned + tcp.tcp_rcv_q_drop + tcp.tcp_zero_window_drop
    };
    tcp.iter().map(packets).sum::<u64>() * SEGMENTS_PER_PACKET
}

/// Traffic that the C forwarder can carry.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// With the offloads of both sides, or with none.
    pub mode: Mode,
    pub mtu: u32,
    /// Streams of each transfer. The C forwarder carries all of them through one queue.
    pub streams: u32,
}

/// The C forwarder.
pub struct Reference(Program);

impl Reference {
    /// Compiles it.
    pub fn new() -> Result<Self, BaselineError> {
        Program::forwarder().map(Self)
    }

    /// Retransmissions with it.
    pub fn run(&self, kind: Kind) -> Losses {
        let losses = self.carry(kind);
        let losses = losses.unwrap_or_else(|error| panic!("C forwarder, {kind:?}: {error}"));
        println!("C forwarder, {kind:?}: {losses}");
        losses
    }

    /// The TCP transfers of a case, through the C forwarder.
    fn carry(&self, kind: Kind) -> Result<Losses, LabError> {
        let middle = Netns::new()?;
        let start = || Baseline::start(&self.0, NAMES, kind.mode);
        let _forwarder = middle.run(start)?.unwrap_or_else(|error| panic!("{error}"));
        let settings = Settings {
            mtu: kind.mtu,
            ..Settings::default()
        };
        let hosts = TwoHosts::moved(&settings, &middle, NAMES)?;
        let read = || Ok::<_, LabError>([hosts.left.counters()?, hosts.right.counters()?]);
        let before = read()?;
        for report in tcp_transfers(&hosts, kind.streams)? {
            assert!(report.hash_ok, "C forwarder, {kind:?}: {report:?}");
        }
        // Connections end after their transfers.
        let deadline = Instant::now() + TIMEOUT;
        let mut last = read()?;
        let tcp = loop {
            std::thread::sleep(Duration::from_millis(10));
            let now = read()?;
            if now == last || Instant::now() > deadline {
                break [now[0].since(&before[0]), now[1].since(&before[1])];
            }
            last = now;
        };
        let links = [hosts.left.stats()?, hosts.right.stats()?];
        // A packet in a TAP is in no count before it is read, so of offloaded packets, which are
        // several segments, this way cannot be followed.
        let passed = (0..2).all(|from| {
            let (sent, received) = (&tcp[from], &tcp[1 - from]);
            sent.tcp_out_segs + sent.tcp_retrans_segs == links[from].tx_packets
                && links[from].tx_packets == received.tcp_in_segs
        });
        Ok(Losses::of(&tcp, passed))
    }
}

/// How many more segments packtrain had sent again than the C forwarder, in pairs of runs, by mode
/// and streams: few kinds of traffic, each with many pairs.
#[derive(Debug, Default)]
pub struct Excess(BTreeMap<(Mode, u32), Vec<i64>>);

impl Excess {
    /// One pair of runs. What the kernels `dropped` in the run of packtrain is not its doing.
    pub fn add(&mut self, kind: Kind, ours: Losses, dropped: u64, reference: Losses) {
        let excess = ours.resent.saturating_sub(dropped) as i64 - reference.resent as i64;
        let pairs = self.0.entry((kind.mode, kind.streams)).or_default();
        pairs.push(excess);
    }

    /// The traffic of which packtrain had more sent again in more than half of the pairs.
    pub fn too_many(&self) -> Vec<(Mode, u32, &[i64])> {
        let is_too_many = |(_, pairs): &(&(Mode, u32), &Vec<i64>)| {
            let more = pairs.iter().filter(|excess| **excess > 0).count();
            2 * more > pairs.len()
        };
        let too_many = self.0.iter().filter(is_too_many);
        too_many
            .map(|((mode, streams), pairs)| (*mode, *streams, &pairs[..]))
            .collect()
    }
}
