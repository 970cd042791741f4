//! Two network devices of a DPDK program as front ends of the vhost-user ports that a contestant
//! joins: each sends 64-byte packets flat out, and receives what the other one sent.

use crate::arguments::Arguments;
use crate::figures::Figures;
use crate::forwarder::Forwarder;
use crate::paths::Contestant;
use crate::process::Error;
use crate::testpmd::{Packets, Testpmd};
use packtrain_lab::used::Used;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

/// Generates packets, and discards those that arrive.
const MODE: [&str; 2] = ["--forward-mode=flowgen", "--txpkts=64"];
/// The main thread, and the one that sends and receives; the back end has the other CPU.
const CPUS: [u32; 2] = [0, 1];
/// How long packets pass before they are counted.
const WARM_UP: Duration = Duration::from_millis(200);
/// How long the first packet may take.
const FIRST_MAX: Duration = Duration::from_secs(10);

/// A folder for the sockets of one run. Dropped, it is removed.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Error> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("packtrain-ports-{}-{number}", process::id());
        let path = env::temp_dir().join(name);
        fs::create_dir(&path).map_err(|error| format!("make {}: {error}", path.display()))?;
        Ok(Self(path))
    }

    fn front_end(&self, number: usize, socket: &str) -> String {
        let path = self.0.join(socket);
        format!(
            "net_virtio_user{number},path={},queues=1,queue_size=256",
            path.display()
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("ports: remove {}: {error}", self.0.display());
        }
    }
}

fn back_end(
    arguments: &Arguments,
    contestant: &Contestant,
    folder: &Path,
) -> Result<Forwarder, Error> {
    let forwarder = Forwarder::start(arguments, &contestant.program, Some(folder))?;
    forwarder.ok_or_else(|| "the kernel has no back end".into())
}

/// Starts a back end once.
pub fn open(arguments: &Arguments, contestant: &Contestant) -> Result<(), Error> {
    let folder = Folder::new()?;
    back_end(arguments, contestant, &folder.0)?.end()
}

/// Has packets pass in both directions for a time.
pub fn measure(arguments: &Arguments, contestant: &Contestant) -> Result<Figures, Error> {
    let folder = Folder::new()?;
    let back_end = back_end(arguments, contestant, &folder.0)?;
    let devices = [folder.front_end(0, "a"), folder.front_end(1, "b")];
    let mut front_ends = Testpmd::start(CPUS, &devices, &MODE)?;
    let start = Instant::now();
    while front_ends.packets()?.iter().any(|one| one.received == 0) {
        if start.elapsed() > FIRST_MAX {
            return Err("no packet passes between the front ends".into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(WARM_UP);
    let mut read = || {
        let packets: Vec<Packets> = front_ends.packets()?;
        let sum = |of: fn(&Packets) -> u64| packets.iter().map(of).sum::<u64>();
        let counts = [sum(|one| one.received), sum(|one| one.sent)];
        Ok::<_, Error>((Instant::now(), counts, Used::of_process(back_end.id())))
    };
    let (began, before, used_before) = read()?;
    thread::sleep(arguments.timed.time);
    let (ended, after, used) = read()?;
    front_ends.end()?;
    back_end.end()?;
    let [received, sent] = [0, 1].map(|at: usize| (after[at] - before[at]) as f64);
    let seconds = (ended - began).as_secs_f64();
    let cpu = used.since(&used_before).cpu.as_secs_f64();
    Ok(Figures {
        kpps: Some(received / seconds / 1e3),
        // Some are on their way at both readings.
        lost_percent: Some((100.0 * (1.0 - received / sent)).max(0.0)),
        cpu_s_per_mpps: Some(cpu / received * 1e6),
        ..Figures::default()
    })
}
