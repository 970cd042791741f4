//! A panic of the demo's caller in the middle of the demo leaves no descriptor, namespace, TAP or
//! thread, although the process continues.

use packtrain_lab::demo::{self, Options, World};
use packtrain_lab::harness::{self, need_tap};
use std::collections::BTreeSet;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    harness::main(&[
        ("a_panic_leaves_nothing_in_namespaces", || panics(false)),
        ("a_panic_leaves_nothing_in_memory", || panics(true)),
    ])
}

/// How long the removal may take: the kernel takes interfaces down in the background.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Rows after which the caller panics: in the first setting, between two, in the last.
const ROWS: [usize; 3] = [1, 8, 19];

/// State that a run in this process could leave: threads, and descriptors by their targets, which
/// keep namespaces and TAPs alive.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Traces {
    descriptors: Vec<String>,
    threads: usize,
    interfaces: BTreeSet<String>,
    children: String,
}

impl Traces {
    fn now() -> Self {
        let links = fs::read_dir("/proc/self/fd").expect("/proc is mounted");
        let links = links.flatten().filter_map(|link| {
            // The descriptor that reads the directory is among them, and is closed by now.
            let target = fs::read_link(link.path()).ok()?;
            Some(target.to_string_lossy().into_owned())
        });
        let mut descriptors: Vec<_> = links
            .filter(|link| !link.ends_with("/fd"))
            .map(|link| link.split(':').next().unwrap_or_default().to_owned() + kind(&link))
            .collect();
        descriptors.sort();
        let interfaces = fs::read_to_string("/proc/thread-self/net/dev").expect("/proc/net");
        let interfaces = interfaces.lines().filter_map(|line| line.split_once(':'));
        Self {
            descriptors,
            threads: fs::read_dir("/proc/self/task").expect("/proc").count(),
            interfaces: interfaces.map(|(name, _)| name.trim().to_owned()).collect(),
            children: fs::read_to_string("/proc/thread-self/children").unwrap_or_default(),
        }
    }
}

/// The target of a descriptor, without the numbers of sockets and pipes.
fn kind(link: &str) -> &str {
    link.split_once(':').map_or("", |(_, rest)| {
        if rest.starts_with('[') && rest[1..].starts_with(|c: char| c.is_ascii_alphabetic()) {
            rest
        } else {
            ""
        }
    })
}

fn panics(in_memory: bool) {
    if !in_memory {
        need_tap();
    }
    let options = Options {
        transfer_time: Duration::from_millis(10),
        in_memory,
        ..Options::default()
    };
    // Descriptors that the process opens once and keeps exist before.
    let whole = demo::run(&options, |_| {}, |_| {}).expect("it runs");
    assert!(whole.passed());
    let memory = matches!(whole.world, World::Memory { .. });
    assert_eq!(memory, in_memory, "{:?}", whole.world);
    assert!(ROWS.iter().all(|&rows| rows < whole.rows.len()));
    let before = Traces::now();
    for rows in ROWS {
        let mut seen = 0;
        let mut during = None;
        let watched = AssertUnwindSafe(|| {
            demo::run(
                &options,
                |_| {},
                |_| {
                    seen += 1;
                    if seen == rows {
                        during = Some(Traces::now());
                        panic!("as the test asked");
                    }
                },
            )
        });
        let panicked = panic::catch_unwind(watched).expect_err("it panics");
        assert_eq!(
            panicked.downcast_ref::<&str>(),
            Some(&"as the test asked"),
            "and nothing else does"
        );
        // The run had such state.
        let during = during.expect("it was taken");
        assert!(during.threads > before.threads, "{during:?}");
        assert!(during.descriptors.len() > before.descriptors.len());
        let start = Instant::now();
        while Traces::now() != before {
            assert!(
                start.elapsed() < TIMEOUT,
                "after row {rows}: {:?}, before: {before:?}",
                Traces::now()
            );
            sleep(Duration::from_millis(5));
        }
    }
}
