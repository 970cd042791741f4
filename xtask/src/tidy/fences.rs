//! Names that only listed files may have: threads, clocks, waiting, `libc`, and what is not pure.
//!
//! A file that is not listed may have none of them, also if it is new.

use super::breach::{Breach, breach, stale};
use super::paths::{Named, begins};
use super::source::Source;
use super::tree::{Tree, is_in};

/// The file of this table.
const TABLE: &str = "xtask/src/tidy/fences.rs";

/// Names that are fenced.
struct Fence {
    /// Words; paths by their beginning (`std::thread`) or by their end (`::now`).
    names: &'static [&'static str],
    /// The files and folders in which they are fenced.
    within: &'static [&'static str],
    /// The files and folders that may have some of them.
    except: &'static [(&'static str, &'static [&'static str])],
    why: &'static str,
    fix: &'static str,
}

/// Paths of a fenced beginning that are harmless.
const HARMLESS: &[&str] = &["std::time::Duration", "std::time::UNIX_EPOCH"];

const FENCES: &[Fence] = &[
    Fence {
        names: &["std::thread", "std::time", "spin_loop", "park"],
        within: &[
            "crates/packtrain/src/",
            "crates/packtrain-capture/src/",
            "crates/packtrain-offload/src/",
            "crates/packtrain-smoltcp/src/",
        ],
        except: &[
            // The worker's thread: it starts, spins, yields, sleeps and ends.
            (
                "crates/packtrain/src/engine/thread.rs",
                &["std::thread", "std::time", "spin_loop", "park"],
            ),
            // The number of the calling thread.
            ("crates/packtrain/src/engine/priority.rs", &["std::thread"]),
            // The number of CPUs.
            ("crates/packtrain/src/runtime.rs", &["std::thread"]),
            // Waits for the one interrupt of a card, which several workers share.
            ("crates/packtrain/src/port/card/fanout.rs", &["std::thread"]),
            // A request to another network namespace, which a thread enters and ends in.
            ("crates/packtrain/src/port/sys/tun.rs", &["std::thread"]),
            // A front end is answered at once, also while no worker runs.
            (
                "crates/packtrain/src/port/sys/vhost/serve.rs",
                &["std::thread"],
            ),
            // A device is closed and opened again, which may take the kernel a while.
            (
                "crates/packtrain/src/port/wrap/returning/reopen.rs",
                &["std::thread"],
            ),
            // A port that opens waits until the kernel has freed a queue.
            (
                "crates/packtrain/src/port/sys/xdp/open.rs",
                &["std::thread"],
            ),
            // A card that resets itself: its driver waits as long as the data sheet says.
            (
                "crates/packtrain/src/port/sys/vfio/mod.rs",
                &["std::thread"],
            ),
            // The one monotonic clock.
            ("crates/packtrain/src/time.rs", &["std::time"]),
            // The wall clock, for a capture without a packet's time.
            ("crates/packtrain/src/port/pcap/file.rs", &["std::time"]),
            // A reader waits for the end of a writer's few stores.
            ("crates/packtrain/src/stats/counter.rs", &["spin_loop"]),
            // For the ring; loom has one of its own.
            ("crates/packtrain/src/sync/mod.rs", &["spin_loop"]),
        ],
        why: "all but the thread of a worker runs on an event loop and in virtual time as well",
        fix: "leave it to the worker's thread",
    },
    Fence {
        names: &[
            "f32",
            "f64",
            "fs",
            "io",
            "net",
            "env",
            "thread",
            "process",
            "SystemTime",
            "Clock",
            "::now",
        ],
        within: &[
            "crates/packtrain/src/policy",
            "crates/packtrain/src/engine/shell.rs",
        ],
        // Files are read once, for a decision, below a given folder.
        except: &[("crates/packtrain/src/policy/topology.rs", &["fs", "io"])],
        why: "a policy does the same in a worker and in a simulation, for the same numbers",
        fix: "compute in integers, and take what is to be known as an argument",
    },
    Fence {
        names: &["libc"],
        within: &["crates/packtrain/src/"],
        except: &[
            ("crates/packtrain/src/port/sys/", &["libc"]),
            ("crates/packtrain/src/packet/sys.rs", &["libc"]),
            ("crates/packtrain/src/engine/sys.rs", &["libc"]),
        ],
        why: "system calls live in few files, beside the unsafe code they need",
        fix: "move the system call to one of those files",
    },
    Fence {
        names: &[
            "display",
            "to_string_lossy",
            "println",
            "eprint",
            "eprintln",
        ],
        within: &[
            "crates/packtrain/src/",
            "crates/packtrain-lab/src/",
            "crates/packtrain-cli/src/",
        ],
        except: &[
            ("crates/packtrain/src/name.rs", &["to_string_lossy"]),
            // The harness of tests.
            ("crates/packtrain-lab/src/harness.rs", &["println"]),
        ],
        why: "a path may have what a terminal obeys, or a line end",
        fix: "show it as a `packtrain::name::Name`, and print by `print.rs` of packtrain-cli",
    },
];

/// Files that have what the table does not grant them, and entries that no file needs.
pub fn check(tree: &Tree) -> Vec<Breach> {
    FENCES.iter().flat_map(|fence| fence.check(tree)).collect()
}

impl Fence {
    fn check(&self, tree: &Tree) -> Vec<Breach> {
        let sources = self.within.iter().flat_map(|place| tree.product(place));
        let found = sources.flat_map(|(path, source)| {
            let names = self.names.iter();
            names.filter_map(move |&name| Some((path, name, first_line(name, source)?)))
        });
        let found: Vec<_> = found.collect();
        let granted = self.except.iter();
        let granted =
            granted.flat_map(|(place, names)| names.iter().map(move |name| (*place, *name)));
        let granted: Vec<_> = granted.collect();
        let is_of = |(place, granted): (&str, &str), path: &str, name: &str| {
            granted == name && is_in(path, place)
        };

        let mut breaches = Vec::new();
        for &(path, name, line) in &found {
            if !granted.iter().any(|&grant| is_of(grant, path, name)) {
                let fix = format!("{}, or list the file in {TABLE}", self.fix);
                breaches.push(breach(
                    path,
                    line,
                    format!("names `{name}`"),
                    self.why,
                    &fix,
                ));
            }
        }
        for place in self.within.iter().filter(|place| !tree.has(place)) {
            breaches.push(stale(TABLE, &format!("`{place}` does not exist")));
        }
        for &grant in &granted {
            let (place, name) = grant;
            if !found
                .iter()
                .any(|&(path, name, _)| is_of(grant, path, name))
            {
                breaches.push(stale(TABLE, &format!("`{place}` does not name `{name}`")));
            }
        }
        breaches
    }
}

/// The first line that has a name.
fn first_line(name: &str, source: &Source) -> Option<usize> {
    if !name.contains("::") {
        let token = source.product.iter().find(|token| token.text == name);
        return token.map(|token| token.line);
    }
    let has = |named: &&Named| {
        let path = &named.written;
        let is_harmless = HARMLESS.iter().any(|harmless| begins(path, harmless));
        begins(path, name) && !is_harmless || name.starts_with("::") && path.ends_with(name)
    };
    let lines = source.named.iter().filter(has).map(|named| named.line);
    lines.min()
}
