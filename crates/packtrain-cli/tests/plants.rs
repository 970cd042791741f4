//! That checks can fail: with a fault planted in the framework, the experiment that is about it
//! fails. Only a build with the feature `plants` has this test.

mod program;

use packtrain::plant::Plant;
use program::{Scratch, ends, packtrain};

#[test]
fn each_plant_has_a_name_of_its_own() {
    for plant in Plant::ALL {
        assert_eq!(plant.name().parse(), Ok(*plant));
    }
    let ran = ends(2, &["experiment", "bad-rx", "--plant", "rose"]);
    let line = ran.error_line();
    assert!(line.contains("lost-packet, double-free"), "{line}");
}

/// A wrong rule fails, and is what fails.
fn fails_with(experiment: &str, plant: Plant, claim: &str) {
    let words = ["experiment", experiment, "--quick", "--json"];
    let ran = ends(1, &[&words[..], &["--plant", plant.name()]].concat());
    let document = ran.json();
    let claims = document["claims"].as_array().expect("claims");
    let failed = claims.iter().any(|one| {
        one["claim"] == claim && one["must"] == true && one["verdict"] == "not reproduced"
    });
    assert!(failed, "{claim}: {document}");
}

#[test]
fn a_queue_that_is_reset_for_a_bad_descriptor_fails() {
    let claim = "nothing but the bad packets is lost";
    fails_with("bad-rx", Plant::BadDescriptorResets, claim);
}

#[test]
fn a_queue_that_ignores_a_change_fails() {
    fails_with("media-change", Plant::LinkChangeIgnored, "no queue hangs");
}

#[test]
fn without_a_plant_no_claim_that_must_hold_fails() {
    let ran = packtrain(&["experiment", "media-change", "--quick", "--json"]);
    assert!(matches!(ran.code, Some(0 | 5)), "{ran:?}");
    let without = packtrain(&["experiment", "bad-rx", "--quick", "--json"]);
    assert!(matches!(without.code, Some(0 | 5)), "{without:?}");
    let document = ran.json();
    let runs = document["runs"].as_array().expect("runs");
    for run in runs.iter().filter(|run| run["settings"]["b"] == "tap") {
        let (tx, drops) = (&run["figures"]["b"]["tx"], &run["figures"]["drops"]);
        assert!(tx["stall_link_down"].as_u64() > Some(0), "{run}");
        assert!(tx["restarts"].as_u64() > Some(0), "{run}");
        assert_eq!(drops["link_down"], drops["total"], "{run}");
    }
}

/// The plants that worlds are there to find.
const IN_WORLDS: [Plant; 12] = [
    Plant::LostPacket,
    Plant::DoubleFree,
    Plant::SegmentLimit,
    Plant::FlushReorders,
    Plant::SkippedChecksum,
    Plant::StallNotRestarted,
    Plant::NotCounted,
    Plant::BadDropsNeighbour,
    Plant::LostWakeup,
    Plant::ResetForgets,
    Plant::EgressWaits,
    Plant::FramesUnbounded,
];

/// Within 500 worlds. At most 200 bytes repeat it, and describe a world that passes without it.
#[test]
fn worlds_find_each_plant() {
    let scratch = Scratch::new("plants");
    for plant in IN_WORLDS {
        let (name, file) = (plant.name(), scratch.file(plant.name()));
        let words = [
            "sim", "fuzz", "--runs", "500", "--save", &file, "--plant", name,
        ];
        let ran = ends(1, &words);
        let again = format!("packtrain sim {file} --plant {name}\n");
        assert!(ran.err.ends_with(&again), "{}", ran.err);
        let bytes = std::fs::metadata(&file).expect("it was written").len();
        assert!(bytes <= 200, "{name}: {bytes} bytes");
        ends(1, &["sim", &file, "--plant", name]);
        ends(0, &["sim", &file]);
    }
}
