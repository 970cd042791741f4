//! Worlds that are drawn from a seed: topology, policies, load and faults.
//!
//! The bytes of a world are all its decisions ([`bytes_of`]): number `n` of a seed has always the
//! same ones. Each world draws first which faults it has at all (swarm testing). While the load
//! lasts, faults happen. Then they stop, and everything must converge: what was sent has arrived or
//! was dropped and counted, a fresh packet of every flow arrives, and the sessions end when they
//! are stopped.
//!
//! The oracles count for themselves. Each byte of a packet follows from its flow and its number, so
//! the far end knows what it is, and whether it is damaged, late or repeated. The devices count
//! what they read and what they lost. The ledgers, the counters and the memory of all sessions are
//! compared with that; a drop needs a fault that explains it.
//!
//! Bytes of a world that fails are shrunk as long as it fails in the same way ([`Wrong`]). They
//! repeat the world on each machine, until a decision is added to or removed from the code.

mod captured;
mod caught;
mod decisions;
mod memory;
mod run;
mod scene;
mod shrink;
mod talker;
mod traffic;

pub use decisions::bytes_of;
pub use run::Reached;
pub use traffic::{Failure, Wrong};

use captured::Captured;
use memory::Memory;
use packtrain::limits::BURST_PACKETS_MAX;
use run::Outcome;
use scene::{Fault, Scene};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Which worlds are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Of all worlds.
    pub seed: u64,
    /// Worlds at most.
    pub runs: u64,
    /// No world is begun once so many wire packets have arrived.
    pub wire_packets: Option<u64>,
}

/// What was counted in the worlds of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Worlds, with the one that failed.
    pub worlds: u64,
    /// Packets that arrived at their destination.
    pub packets: u64,
    /// The wire packets that these account for.
    pub wire_packets: u64,
    /// The time in the worlds.
    pub virtual_time: Duration,
    /// The time that they took, without that to shrink one.
    pub real_time: Duration,
    /// What was reached.
    pub reached: Reached,
}

/// A world that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The number of the world.
    pub world: u64,
    /// The shrunk bytes.
    pub bytes: Vec<u8>,
    /// Of the world that they describe.
    pub failure: Failure,
}

/// The first line of a file with the bytes of a world, of which a file of another kind has none.
const FILE_HEAD: &[u8] = b"packtrain world 1\n";

/// The most bytes of such a file.
pub const FILE_BYTES_MAX: usize = 1 << 16;

/// The file with the bytes of a world.
#[must_use]
pub fn to_file(bytes: &[u8]) -> Vec<u8> {
    [FILE_HEAD, bytes].concat()
}

/// The bytes of the world of a file; `None` if it is a file of another kind or too long.
#[must_use]
pub fn of_file(file: &[u8]) -> Option<&[u8]> {
    let file = Some(file).filter(|file| file.len() <= FILE_BYTES_MAX);
    file?.strip_prefix(FILE_HEAD)
}

impl Totals {
    fn add(&mut self, outcome: &Outcome) {
        self.worlds += 1;
        self.packets += outcome.packets;
        self.wire_packets += outcome.wire_packets;
        self.virtual_time += outcome.time;
        let pairs = [
            (&mut self.reached.faults, &outcome.reached.faults),
            (&mut self.reached.drops, &outcome.reached.drops),
            (&mut self.reached.rings, &outcome.reached.rings),
        ];
        for (sum, one) in pairs {
            for (&name, &times) in one {
                *sum.entry(name).or_default() += times;
            }
        }
    }

    /// Faults, drop reasons and states of rings that no world has reached, each with its kind in
    /// front: `fault hang`.
    #[must_use]
    pub fn not_reached(&self) -> Vec<String> {
        let missing = |kind: &str, names: &[&'static str], of: &BTreeMap<&'static str, u64>| {
            let zero = |name: &&&str| of.get(**name).copied().unwrap_or(0) == 0;
            let names = names.iter().filter(zero);
            names
                .map(|name| format!("{kind} {name}"))
                .collect::<Vec<_>>()
        };
        let faults: Vec<_> = Fault::all().map(Fault::name).collect();
        let rings = ["idle", "busy", "abdicated", "stalled", "gap"];
        [
            missing("fault", &faults, &self.reached.faults),
            missing("drop", &DROPS, &self.reached.drops),
            missing("ring", &rings, &self.reached.rings),
        ]
        .concat()
    }
}

/// The reasons for drops that worlds reach. The others need what a world does not have:
///
/// - a virtio-net header, which a TAP or a back end reads: those of `VnetError`;
/// - an interface of the kernel: `socket_full`;
/// - a capture file: `read_only`, `cut_short`, `bad_record`;
/// - ports with unlike link types: `link_type`;
/// - a host behind a bridge that sends: `no_egress`;
/// - another wrong description of a packet than those of `Lie`: the rest of `SegmentError`,
///   `headers_too_long`, `device_refused`;
/// - a run that has to end while a device is slow: `shutdown`. Worlds drain.
pub const DROPS: [&str; 15] = [
    "no_buffer",
    "link_down",
    "bad_descriptor",
    "truncated",
    "too_long",
    "too_many_segments",
    "mtu",
    "egress_full",
    "device_reset",
    "fault_injected",
    "bad_checksum_place",
    "segment_kind",
    "segment_headers",
    "segment_length",
    "segment_too_many",
];

/// Runs worlds, one after the other, until one fails. `more` is called after each, also of those
/// that are run to shrink one, and returns whether to go on.
pub fn run(options: &Options, mut more: impl FnMut(&Totals) -> bool) -> (Totals, Option<Failed>) {
    let (mut totals, mut memory) = (Totals::default(), Memory::default());
    let begin = Instant::now();
    for world in 0..options.runs {
        let bytes = bytes_of(options.seed, world);
        let scene = Scene::draw(&bytes);
        let outcome = run::run(&scene, &mut memory);
        totals.add(&outcome);
        totals.real_time = begin.elapsed();
        if let Some(failure) = outcome.failure {
            let mut failed = Failed {
                world,
                bytes: bytes[..scene.used].to_vec(),
                failure,
            };
            let mut stopped = false;
            let bytes = shrink::shrink(&failed.bytes.clone(), |bytes| {
                stopped = stopped || !more(&totals);
                if stopped {
                    return false;
                }
                let outcome = run::run(&Scene::draw(bytes), &mut memory);
                let still = outcome
                    .failure
                    .filter(|it| it.wrong == failed.failure.wrong);
                still.map(|it| failed.failure = it).is_some()
            });
            failed.bytes = bytes;
            return (totals, Some(failed));
        }
        let is_enough = |most| totals.wire_packets >= most;
        if !more(&totals) || options.wire_packets.is_some_and(is_enough) {
            break;
        }
    }
    (totals, None)
}

/// Runs the world that `bytes` describe.
#[must_use]
pub fn repeat(bytes: &[u8]) -> (Totals, Option<Failure>) {
    one(&Scene::draw(bytes), &mut Captured::default())
}

/// The same, with a capture of what its links carry, and how many records that has: pcapng with an
/// interface for each end of a link and each direction, and the time of the world as nanoseconds
/// since 1970. Frames arrive at an end after the faults of the wire.
///
/// # Errors
///
/// If `output` does not accept all records.
pub fn capture(
    bytes: &[u8],
    output: Box<dyn Write + Send>,
) -> io::Result<(Totals, Option<Failure>, u64)> {
    let mut links = Captured::to(output);
    let (totals, failure) = one(&Scene::draw(bytes), &mut links);
    Ok((totals, failure, links.finish()?))
}

fn one(scene: &Scene, links: &mut Captured) -> (Totals, Option<Failure>) {
    let begin = Instant::now();
    let outcome = run::run_captured(scene, &mut Memory::default(), links);
    let mut totals = Totals::default();
    totals.add(&outcome);
    totals.real_time = begin.elapsed();
    (totals, outcome.failure)
}

/// Runs the simplest world with so many packets: one flow of short frames in bursts from one host
/// to another, without faults. For benches.
#[must_use]
pub fn plain(packets: u64) -> (Totals, Option<Failure>) {
    let mut scene = Scene::draw(&[]);
    let flow = &mut scene.flows[0];
    flow.burst = BURST_PACKETS_MAX;
    flow.bursts = packets.div_ceil(BURST_PACKETS_MAX as u64) as u32;
    one(&scene, &mut Captured::default())
}

/// What the world that `bytes` describe consists of, in words of the code.
#[must_use]
pub fn describe(bytes: &[u8]) -> String {
    format!("{:#?}", Scene::draw(bytes))
}
