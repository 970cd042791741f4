//! `packtrain sim`: worlds that pass, their documents, and files that cannot be read.

mod program;

use program::{Scratch, assert_documented, ends, packtrain};

#[test]
fn worlds_pass_and_are_reported() {
    let ran = ends(0, &["sim", "fuzz", "--runs", "20", "--quiet"]);
    assert!(ran.out.contains("20 worlds, "), "{}", ran.out);
    assert_eq!(ran.err, "");
}

#[test]
fn the_document_has_what_was_reached() {
    let document = ends(0, &["sim", "fuzz", "--runs", "10", "--seed", "7", "--json"]).json();
    assert_documented(&document, &["all", "sim"]);
    assert_eq!(
        (&document["worlds"], &document["seed"]),
        (&10.into(), &7.into())
    );
    let again = packtrain(&["sim", "fuzz", "--runs", "10", "--seed", "7", "--json"]).json();
    for key in ["packets", "wire_packets", "virtual_seconds", "reached"] {
        assert_eq!(document[key], again[key], "{key}");
    }
}

#[test]
fn a_number_of_packets_ends_it() {
    let words = ["sim", "fuzz", "--packets", "1", "--json"];
    assert_eq!(ends(0, &words).json()["worlds"], 1);
}

#[test]
fn in_full_what_is_not_reached_fails() {
    let ran = ends(1, &["sim", "fuzz", "--runs", "1", "--full"]);
    assert!(
        ran.error_line().contains("no world reached fault "),
        "{ran:?}"
    );
}

#[test]
fn a_file_is_a_world() {
    let scratch = Scratch::new("world");
    let file = scratch.file("world");
    std::fs::write(&file, b"packtrain world 1\n\0\0\0").unwrap();
    let ran = ends(0, &["sim", &file]);
    assert!(ran.out.contains("shape: Host"), "{}", ran.out);
    assert!(ends(0, &["sim", &file, "--json"]).json()["seed"].is_null());
    let ran = ends(2, &["sim", &file, "--seed", "3"]);
    assert!(
        ran.error_line().contains("--seed is of packtrain sim fuzz"),
        "{ran:?}"
    );
    for other in ["Cargo.toml", "/dev/zero"] {
        let ran = ends(4, &["sim", other]);
        assert!(ran.error_line().contains("is no world"), "{ran:?}");
    }
    let captures = [scratch.file("one"), scratch.file("other")];
    for capture in &captures {
        ends(0, &["sim", &file, "--pcap", capture]);
    }
    let captured = captures.each_ref().map(|file| std::fs::read(file).unwrap());
    assert!(captured[0] == captured[1]);
    let mut reader = packtrain_capture::Reader::new(&captured[0][..]).expect("a capture");
    let mut records = 0;
    while reader.next_record().unwrap().is_some() {
        records += 1;
    }
    // At both ends of its link: one packet of the load, and a fresh one.
    assert_eq!(records, 4);
    for (words, why) in [
        (["fuzz", "--pcap", "x"], "--pcap is of packtrain sim FILE"),
        ([&file, "--pcap", "-"], "standard output has the report"),
        ([&file, "--pcap", &file], "written over the world"),
    ] {
        let ran = ends(2, &["sim", words[0], words[1], words[2]]);
        assert!(ran.error_line().contains(why), "{ran:?}");
    }
    let ran = ends(4, &["sim", "/nowhere/world"]);
    assert!(
        ran.error_line().contains("packtrain sim fuzz wrote"),
        "{ran:?}"
    );
}
