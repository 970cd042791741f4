//! A panic of the demo's caller in the middle of the demo leaves no descriptor, namespace, TAP or
//! thread, although the process continues.

use packtrain_lab::demo::{self, Options, World};
use packtrain_lab::harness::{self, Traces, need_tap};
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    harness::main(&[
        ("a_panic_leaves_nothing_in_namespaces", || panics(false)),
        ("a_panic_leaves_nothing_in_memory", || panics(true)),
    ])
}

/// Rows after which the caller panics: in the first setting, between two, in the last.
const ROWS: [usize; 3] = [1, 8, 19];

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
        before.assert_again();
    }
}
