//! The programs that are compared, as child processes that open their interfaces by name.

use crate::process::{Error, Process};
use packtrain::policy::priority::AHEAD;
use serde_json::Value;
use std::fs;
use std::io::BufRead;
use std::path::PathBuf;
use std::process::Command;

/// The interfaces, both opened in the first host's namespace.
pub const INTERFACES: [&str; 2] = ["bench-a", "bench-b"];

/// Seconds after which packtrain ends by itself, should the bench be killed.
const LIFETIME_S: u32 = 120;

/// On which interfaces there are offloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offloads {
    /// On both.
    Both,
    /// On the second.
    Second,
    /// On none.
    Neither,
}

impl Offloads {
    /// As in rows.
    const fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Second => "bench-b",
            Self::Neither => "neither",
        }
    }
}

/// A forwarder and how it is run.
#[derive(Clone, Debug)]
pub enum Contestant {
    /// `packtrain forward`.
    Packtrain {
        /// As in rows.
        name: &'static str,
        /// The program.
        path: PathBuf,
        /// Which interfaces have offloads.
        offloads: Offloads,
    },
    /// The C forwarder.
    Baseline {
        /// The program.
        path: PathBuf,
        /// 1 or 2.
        threads: u32,
        /// Whether with a virtio-net header and offloads, on both sides.
        vnet: bool,
    },
}

impl Contestant {
    /// As in rows.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Packtrain { name, .. } => name,
            Self::Baseline { threads: 1, .. } => "c-1",
            Self::Baseline { .. } => "c-2",
        }
    }

    /// Threads that move packets.
    pub const fn threads(&self) -> u32 {
        match self {
            Self::Packtrain { .. } => 1,
            Self::Baseline { threads, .. } => *threads,
        }
    }

    /// Which interfaces have offloads.
    pub const fn offload(&self) -> &'static str {
        match self {
            Self::Packtrain { offloads, .. } => offloads.name(),
            Self::Baseline { vnet: true, .. } => Offloads::Both.name(),
            Self::Baseline { .. } => Offloads::Neither.name(),
        }
    }

    /// The command line, without the program.
    pub fn arguments(&self) -> Vec<String> {
        let [a, b] = INTERFACES;
        match self {
            Self::Packtrain { offloads, .. } => {
                let offload = |has| if has { "auto" } else { "off" };
                let first = offload(*offloads == Offloads::Both);
                let second = offload(*offloads != Offloads::Neither);
                vec![
                    "forward".to_owned(),
                    format!("tap:{a},offload={first}"),
                    format!("tap:{b},offload={second}"),
                    "--duration".to_owned(),
                    format!("{LIFETIME_S}s"),
                    "--quiet".to_owned(),
                    "--json".to_owned(),
                ]
            }
            Self::Baseline { threads, vnet, .. } => {
                let mode = if *vnet { "vnet" } else { "plain" };
                [a, b, mode, &threads.to_string()].map(str::to_owned).into()
            }
        }
    }

    /// Starts it in the network namespace of the calling thread, and waits until it is ready.
    pub fn start(&self) -> Result<Process, Error> {
        let mut command = match self {
            Self::Packtrain { path, .. } => Command::new(path),
            // It goes ahead of the TCP programs as packtrain's threads do by themselves: the
            // comparison is not one of nice levels.
            Self::Baseline { path, .. } => {
                let mut nice = Command::new("nice");
                nice.arg("-n").arg(format!("-{AHEAD}")).arg(path);
                nice
            }
        };
        // The C forwarder ends when its standard input is closed.
        let mut process = Process::start(command.args(self.arguments()))?;
        match self {
            Self::Packtrain { .. } => process.wait_for_worker()?,
            Self::Baseline { .. } => {
                let mut line = String::new();
                process.output.read_line(&mut line)?;
                if line.trim_end() != "ready" {
                    return Err(process.failure("the C forwarder is not ready"));
                }
            }
        }
        Ok(process)
    }
}

/// What a forwarder says in the end about all of its life.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// Packets read, in both directions; a GSO packet is one.
    pub packets: u64,
    /// System calls of the packet path.
    pub syscalls: u64,
    /// Times it waited.
    pub sleeps: u64,
    /// Packets that it lost, or could not write.
    pub lost: u64,
}

/// CPU time so far.
#[derive(Clone, Copy, Debug)]
pub struct CpuTime {
    /// Of the threads that live, in seconds, exact.
    pub threads: f64,
    /// Of the process in user mode, in seconds, in whole clock ticks; threads that ended included.
    pub user: f64,
    /// The same in the kernel.
    pub system: f64,
}

/// CPU time of a process until now.
pub fn cpu_time(process: &Process) -> Result<CpuTime, Error> {
    let mut nanoseconds = 0;
    for task in process.tasks()? {
        let text = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        let first = text.split_ascii_whitespace().next();
        nanoseconds += first.and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.child.id()))?;
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    // The name, which may contain anything, ends at the last parenthesis; utime is field 14.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let seconds = |index| -> Option<f64> {
        let field = fields.split_ascii_whitespace().nth(index)?;
        Some(field.parse::<f64>().ok()? / ticks)
    };
    Ok(CpuTime {
        threads: nanoseconds as f64 / 1e9,
        user: seconds(11).ok_or("no CPU time in /proc")?,
        system: seconds(12).ok_or("no CPU time in /proc")?,
    })
}

/// Ends a forwarder and takes its account.
pub fn end(process: Process) -> Result<Account, Error> {
    let document = process.end()?;
    account(&document).ok_or_else(|| format!("not an account: {document}").into())
}

fn account(document: &Value) -> Option<Account> {
    let Some(run) = document.get("run") else {
        let count = |key| document.get(key).and_then(Value::as_u64);
        return Some(Account {
            packets: count("packets")?,
            syscalls: count("syscalls")?,
            sleeps: count("sleeps")?,
            lost: count("errors")?,
        });
    };
    let ports = document.get("ports")?.as_object()?.values();
    let queues = ports.filter_map(Value::as_object).flatten();
    let received = queues.filter(|(name, _)| name.starts_with("rxq"));
    let packets = received.filter_map(|(_, queue)| queue.get("packets")?.as_u64());
    Some(Account {
        packets: packets.sum(),
        syscalls: run.get("syscalls")?.as_u64()?,
        sleeps: run.get("sleeps")?.as_u64()?,
        lost: document.get("conservation")?.get("dropped")?.as_u64()?,
    })
}
