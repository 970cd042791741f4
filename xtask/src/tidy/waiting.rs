//! Threads, clocks and waiting are in the files of a list.
//!
//! A file that is not listed may use none of them, also if it is new.

use super::breach::Breach;
use super::paths;
use super::source::Source;
use super::tree::Tree;

/// The crates whose code runs in virtual time as well, on an event loop, or without a system.
const CRATES: &[&str] = &[
    "crates/packtrain/src/",
    "crates/packtrain-capture/src/",
    "crates/packtrain-offload/src/",
];

/// The files that may, and what they may name.
const MAY: &[(&str, &[&str])] = &[
    // The worker's thread: it starts, spins, yields, sleeps and ends.
    (
        "crates/packtrain/src/engine/thread.rs",
        &["std::thread", "std::time", "spin_loop", "park"],
    ),
    // The number of the calling thread.
    ("crates/packtrain/src/engine/priority.rs", &["std::thread"]),
    // The number of CPUs.
    ("crates/packtrain/src/runtime.rs", &["std::thread"]),
    // The one monotonic clock.
    ("crates/packtrain/src/time.rs", &["std::time"]),
    // The wall clock, for a capture without a packet's time.
    ("crates/packtrain/src/port/pcap/file.rs", &["std::time"]),
    // A reader waits for the end of a writer's few stores.
    ("crates/packtrain/src/stats/counter.rs", &["spin_loop"]),
    // For the ring; loom has one of its own.
    ("crates/packtrain/src/sync/mod.rs", &["spin_loop"]),
];

/// The only items of `std::time` that are no clock.
const NO_CLOCK: &[&str] = &["Duration", "UNIX_EPOCH"];

const LIST: &str = "xtask/src/tidy/waiting.rs";
const WHY: &str =
    "all but the thread of a worker runs on an event loop and in virtual time as well";

/// Files that name what the list does not grant, and entries that no file needs.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut unused: Vec<(&str, &str)> = MAY
        .iter()
        .flat_map(|(path, names)| names.iter().map(move |name| (*path, *name)))
        .collect();
    for (path, source) in CRATES.iter().flat_map(|at| tree.product_sources(at)) {
        let mut reported = Vec::new();
        for (line, name) in named(source) {
            unused.retain(|entry| *entry != (path, name));
            let granted = MAY.iter().find(|(file, _)| *file == path);
            let is_granted = granted.is_some_and(|(_, names)| names.contains(&name));
            if !is_granted && !reported.contains(&name) {
                reported.push(name);
                let fix = format!("leave it to the worker's thread, or list it in {LIST}");
                breaches.push(Breach::new(
                    path,
                    line,
                    format!("names `{name}`"),
                    WHY,
                    &fix,
                ));
            }
        }
    }
    for (path, name) in unused {
        let what = format!("`{path}` does not exist, or does not name `{name}`");
        breaches.push(Breach::new(LIST, 1, what, WHY, "remove the entry"));
    }
    breaches
}

/// Threads, clocks and waiting in a source, with their lines, in order.
fn named(source: &Source) -> Vec<(usize, &'static str)> {
    let tokens = source.product_tokens();
    let mut found: Vec<(usize, &'static str)> = paths::named(&tokens, &[])
        .into_iter()
        .filter_map(|named| {
            let part = |at: usize| named.path.get(at).map(String::as_str);
            match (part(0), part(1), part(2)) {
                (Some("std"), Some("thread"), _) => Some((named.line, "std::thread")),
                (Some("std"), Some("time"), item) if !item.is_some_and(is_no_clock) => {
                    Some((named.line, "std::time"))
                }
                _ => None,
            }
        })
        .collect();
    for token in &tokens {
        for word in ["spin_loop", "park"] {
            if token.is_word(word) {
                found.push((token.line, word));
            }
        }
    }
    found.sort_unstable();
    found
}

fn is_no_clock(item: &str) -> bool {
    NO_CLOCK.contains(&item)
}
