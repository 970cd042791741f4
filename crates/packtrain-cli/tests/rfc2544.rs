//! `rfc2544`, with all privileges and without any.

mod program;

use program::{
    PACKTRAIN, as_nobody, assert_documented, command, ends, in_namespace, interrupted, start,
    wait_for_handlers,
};

/// The shortest run: one frame size, short trials.
const SHORT: &str = "rfc2544 --sizes 1518 --initial-duration 10ms --final-duration 20ms \
                     --duration-sum 20ms --width 0.3 --settle 20ms --quiet";

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn a_row_for_each_device_with_the_documented_keys() {
    if in_namespace().is_none() {
        return;
    }
    let document = ends(0, &words(&format!("{SHORT} --beside veth --json"))).json();
    assert_documented(&document, &["all", "rfc2544"]);
    let rows = document["rows"].as_array().expect("rows");
    let through: Vec<_> = rows.iter().map(|row| &row["through"]).collect();
    assert_eq!(through, ["packtrain", "veth"]);
    assert_eq!(rows[0]["conservation"]["closed"], true);
    assert!(rows[1].get("conservation").is_none());
    assert!(rows.iter().all(|row| row["frame_bytes"] == 1518));
}

#[test]
fn the_mtu_is_raised_and_the_table_has_bars() {
    if in_namespace().is_none() {
        return;
    }
    let line = SHORT.replace("1518", "9000");
    let ran = ends(0, &words(&format!("{line} --through veth --beside none")));
    let lines: Vec<_> = ran.out.lines().collect();
    assert!(lines[1].starts_with("frame  through  0G "), "{}", ran.out);
    assert!(lines[2].starts_with(" 9000  veth "), "{}", ran.out);
    for title in ["bounds", "round trips", "frames lost"] {
        assert!(ran.out.contains(title), "{title} in {}", ran.out);
    }
}

#[test]
fn no_privilege_is_needed() {
    let namespace = as_nobody(&["unshare", "-Urn", PACKTRAIN, "plan", "tap:ptprobe", "null:"]);
    if !namespace.is_ok_and(|ran| ran.code == Some(0)) {
        println!("SKIP: an unprivileged user cannot have a network namespace with a TAP here");
        return;
    }
    let line = format!("{PACKTRAIN} {SHORT} --beside none");
    let ran = as_nobody(&words(&line)).expect("setpriv runs");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains(" 1518  packtrain "), "{ran:?}");
}

#[test]
fn an_interrupted_search_ends_soon() {
    if in_namespace().is_none() {
        return;
    }
    let line = "rfc2544 --final-duration 1h --duration-sum 1h --time-max 9h";
    let child = start(&mut command(PACKTRAIN, &words(line)));
    wait_for_handlers(&child);
    let ran = interrupted(child, "INT");
    let none = "interrupted before anything was measured\n";
    let some = "interrupted: these are the figures until then\n";
    assert!(ran.err == none || ran.out.starts_with(some), "{ran:?}");
}

#[test]
fn wrong_options_are_explained() {
    for (line, expected) in [
        (
            "rfc2544 --sizes 63",
            "--sizes cannot be '63': write frame sizes from 64",
        ),
        (
            "rfc2544 --beside wire",
            "--beside cannot be 'wire': write none, or some of",
        ),
        (
            "rfc2544 --loss-ratio 1",
            "--loss-ratio cannot be '1': write up to 8 ratios",
        ),
        (
            "rfc2544 --through veth --width 0",
            "--width cannot be 0: write a ratio below 1",
        ),
    ] {
        let ran = ends(2, &words(line));
        assert!(ran.error_line().starts_with(expected), "{ran:?}");
    }
}
