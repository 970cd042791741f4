//! `packtrain bench` as a user runs it.

mod program;

use program::{
    PACKTRAIN, Ran, Scratch, assert_documented, command, finish, in_namespace, packtrain, signal,
    start, wait_for_handlers,
};
use std::time::{Duration, Instant};

#[test]
fn our_side_alone_is_measured() {
    let args = ["bench", "offload", "--rounds", "1", "--only", "segment"];
    let ran = packtrain(&[&args[..], &["--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let document = ran.json();
    assert_documented(&document, &["all", "bench offload"]);
    // Not those of the thread that measures, which has one.
    let cpus = std::thread::available_parallelism().expect("a count").get();
    assert_eq!(document["host"]["cpus"], cpus);
    let rows = document["rows"].as_array().expect("rows");
    assert!(!rows.is_empty());
    for row in rows {
        assert!(row["row"].as_str().expect("a name").contains("segment"));
        assert!(row["ours_ns"].as_f64().expect("a figure") > 0.0, "{row}");
    }
    let table = packtrain(&args);
    assert_eq!(table.code, Some(0), "{}", table.err);
    assert!(table.out.lines().count() > rows.len(), "{}", table.out);
}

/// Interrupts a bench that would go on for many minutes.
fn interrupted(args: &[&str]) -> Ran {
    let begin = Instant::now();
    let child = start(&mut command(PACKTRAIN, args));
    wait_for_handlers(&child);
    signal(&child, "INT");
    let ran = finish(child);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(begin.elapsed() < Duration::from_secs(120), "{ran:?}");
    ran
}

#[test]
fn an_interrupted_bench_ends_soon_and_says_how_far_it_came() {
    let offload = ["bench", "offload", "--rounds", "1000"];
    let document = interrupted(&[&offload[..], &["--json"]].concat()).json();
    assert_eq!(document["stopped"], true);
    for row in document["rows"].as_array().expect("rows") {
        assert!(row["ours_ns"].as_f64() > Some(0.0), "{row}");
    }
    let said = interrupted(&offload).out;
    assert!(said.contains("\nstopped after "), "{said}");

    let dispatch = ["bench", "dispatch", "--ports", "null,sim", "--time", "60s"];
    let document = interrupted(&[&dispatch[..], &["--json"]].concat()).json();
    assert_eq!(
        (&document["stopped"], &document["repeats"]),
        (&true.into(), &0.into())
    );
    assert_eq!(document["conservation"]["closed"], true);
    let said = interrupted(&dispatch).out;
    let line = "stopped after 0 of 6 repeats: nothing was compared";
    assert!(said.lines().any(|one| one == line), "{said}");
}

#[test]
fn a_row_that_does_not_exist_is_a_usage_error() {
    let ran = packtrain(&["bench", "offload", "--only", "nonsense"]);
    assert_eq!(ran.code, Some(2));
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(ran.err.contains("--only nonsense"), "{}", ran.err);
}

/// As little as can be measured.
const SMALL: &[&str] = &[
    "bench",
    "dispatch",
    "--producers",
    "1,2",
    "--frames",
    "64",
    "--loads",
    "trickle,saturation",
    "--thresholds",
    "4",
    "--repeats",
    "2",
    "--again",
    "2",
    "--time",
    "3ms",
];

#[test]
fn every_setting_has_its_row_and_every_packet_is_accounted_for() {
    let file = Scratch::new("bench-dispatch");
    let path = file.file("rows.json");
    let args = ["--ports", "null,sim", "--all", "--json", "-o", &path];
    let ran = packtrain(&[SMALL, &args].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let document = ran.json();
    assert_eq!(std::fs::read_to_string(&path).expect("the file"), ran.out);
    assert_documented(&document, &["all", "bench dispatch"]);
    assert_eq!(document["conservation"]["closed"], true);
    assert!(document["conservation"]["generated"].as_u64() > Some(0));
    assert_eq!(document["repeats"], 2);
    // It says beforehand how long it will take.
    assert!(ran.err.contains("which take about"), "{}", ran.err);

    let rows = document["rows"].as_array().expect("rows");
    let placements = document["placements"].as_array().expect("placements");
    let placements = placements.iter().filter(|place| place["same_as"].is_null());
    let placements: Vec<_> = placements.map(|place| &place["placement"]).collect();
    let mut cells = 0;
    for port in ["null", "sim"] {
        for (producers, load) in [
            (1, "trickle"),
            (1, "saturation"),
            (2, "trickle"),
            (2, "saturation"),
        ] {
            cells += 1;
            let here: Vec<_> = rows
                .iter()
                .filter(|row| row["port"] == port && row["load"] == load)
                .filter(|row| row["producers"] == producers)
                .collect();
            let has = |dispatch: &str, idle: &str, placement: &serde_json::Value| {
                let is = |row: &&&serde_json::Value| {
                    row["dispatch"] == dispatch
                        && row["idle"] == idle
                        && row["placement"] == *placement
                };
                assert_eq!(
                    here.iter().filter(is).count(),
                    1,
                    "{port} {dispatch} {idle} {placement}"
                );
            };
            for dispatch in ["direct", "deferred", "abdicate", "threshold(4)"] {
                for idle in ["halt", "poll"] {
                    placements
                        .iter()
                        .for_each(|placement| has(dispatch, idle, placement));
                }
            }
            has("adaptive", "adaptive", &"auto".into());
            assert_eq!(here.len(), 4 * 2 * placements.len() + 1);
        }
    }
    assert_eq!(rows.len(), cells * (4 * 2 * placements.len() + 1));
    for row in rows {
        let adaptive = row["dispatch"] == "adaptive";
        assert_eq!(row.get("regret").is_some(), adaptive, "{row}");
        // Whether there was a second look is up to the machine.
        let again = row["again"].as_array().expect("figures").len();
        assert!([0, 2].contains(&again), "{row}");
        if adaptive {
            assert!(row["regret_first"].is_null() || again > 0, "{row}");
        }
        assert_eq!(row["offered_kpps"].is_null(), row["load"] == "saturation");
        assert_eq!(row["repeats"], 2);
    }
    let claims = document["claims"].as_array().expect("claims");
    let must: Vec<_> = claims
        .iter()
        .filter(|claim| claim["must"] == true)
        .collect();
    assert_eq!(must.len(), 1);
    assert_eq!(must[0]["verdict"], "reproduced");
}

#[test]
fn the_table_has_a_line_for_each_situation_and_bars() {
    let ran = packtrain(&[SMALL, &["--ports", "null"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let lines = |part: &str| {
        ran.out
            .lines()
            .filter(|line| line.starts_with(part))
            .count()
    };
    assert_eq!(lines("null  "), 4, "{}", ran.out);
    for bar in [
        "  direct, ",
        "  deferred, ",
        "  abdicate, ",
        "  threshold(4), ",
        "  adaptive ",
    ] {
        assert_eq!(lines(bar), 2, "{bar}: {}", ran.out);
    }
    assert!(
        ran.out
            .contains("every packet of every run is accounted for")
    );
}

#[test]
fn what_cannot_be_measured_is_a_usage_error() {
    let cases: &[(&[&str], &str)] = &[
        (&["--ports", "packet"], "sim, null or tap"),
        (&["--loads", "120%"], "1% to 99%"),
        (&["--producers", "0"], "1..=64"),
        (&["--frames", "15"], "16..=1514"),
        (&["--thresholds", "0"], "1..=65536"),
        (&["--repeats", "1"], "2..=1000"),
        (&["--again", "1"], "2 to 1000, or 0"),
        (&["--time", "1us"], "1ms to 60s"),
        (&["--seed", "x"], "--seed"),
    ];
    for (args, expected) in cases {
        let ran = packtrain(&[&["bench", "dispatch"], *args].concat());
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
        assert!(ran.error_line().contains(expected), "{args:?}: {}", ran.err);
        assert_eq!(ran.out, "");
    }
}

#[test]
fn a_tap_is_in_a_namespace_of_its_own_or_left_out_in_one_line() {
    let way = in_namespace();
    let ran = packtrain(&[SMALL, &["--ports", "tap,null", "--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let document = ran.json();
    let taps = document["rows"].as_array().expect("rows").iter();
    let taps = taps.filter(|row| row["port"] == "tap").count();
    let left_out = document["left_out"]
        .as_array()
        .expect("ports that are left out")
        .len();
    let said = ran
        .err
        .lines()
        .filter(|line| line.contains("is left out"))
        .count();
    assert_eq!(left_out, said);
    assert_eq!(
        (taps > 0, left_out),
        (way.is_some(), usize::from(way.is_none()))
    );
    assert_eq!(
        document["drops"].as_object().map(serde_json::Map::len),
        Some(0)
    );
}
