//! `packtrain replay --parquet` as a user runs it. What the files have is read back in the tests of
//! packtrain-replay: here they are those that the library writes.

mod program;

use packtrain_capture::replay::Options;
use packtrain_capture::{Format, Interface, LinkCode, Writer};
use packtrain_offload::coalesce::Semantics;
use packtrain_replay::dataset::Dataset;
use packtrain_replay::tables::configuration_id;
use packtrain_replay::{Grid, Settings};
use program::{PACKTRAIN, Scratch, command, finish, signal, start};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Writes packets of 64 flows, with times and lengths that no encoding makes small. Their checksums
/// are wrong: all runs are with `--headers-only`.
fn capture(path: &str, from: u32, count: u32) {
    let interface = Interface {
        link: LinkCode::ETHERNET,
        snaplen: 0,
        name: Some("eth0"),
    };
    let mut writer = Writer::new(Vec::new(), Format::PcapNg, &[interface]).expect("a writer");
    for index in from..from + count {
        let noise = index.wrapping_mul(0x9e37_79b9);
        let noise = (noise ^ noise >> 15).wrapping_mul(0x85eb_ca6b);
        let mut packet = vec![0; 54 + (noise >> 24) as usize];
        packet[12..15].copy_from_slice(&[8, 0, 0x45]);
        let length = (packet.len() - 14) as u16;
        packet[16..18].copy_from_slice(&length.to_be_bytes());
        packet[20..24].copy_from_slice(&[0x40, 0, 64, 6]);
        packet[26..34].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
        packet[34..38].copy_from_slice(&[80, (noise >> 10) as u8 % 64, 1, 0xbb]);
        packet[46..48].copy_from_slice(&[0x50, 0x10]);
        let at = 1_000_000_000 + u64::from(index) * 20_000 + u64::from(noise >> 20);
        writer.write(0, at, 0, [packet]).expect("a record");
    }
    fs::write(path, writer.finish().expect("the end")).expect("a file");
}

fn off() -> Options {
    let mut options = Options::default();
    (options.headers_only, options.coalesce) = (true, None);
    options.limits.flows = Some(1024);
    options
}

/// Runs `packtrain replay` without the payload of packets, with this exit code.
fn replay(code: i32, line: &str) -> program::Ran {
    let args = ["replay", "--headers-only"]
        .into_iter()
        .chain(line.split(' '));
    program::ends(code, &args.collect::<Vec<_>>())
}

/// The document of a replay that ends well, without the time that it has.
fn document(line: &str) -> Value {
    let mut document = replay(0, line).json();
    document["host"]["time"].take();
    document
}

/// Every file below a folder, with its content.
fn everything(folder: &str) -> Vec<(String, Vec<u8>)> {
    let args = [folder, "-type", "f", "-printf", "%P\n"];
    let found = finish(start(&mut command("find", &args))).out;
    let mut names: Vec<_> = found.lines().map(str::to_owned).collect();
    names.sort();
    let read = |name: &str| fs::read(format!("{folder}/{name}")).expect("a file");
    names
        .into_iter()
        .map(|name| (name.clone(), read(&name)))
        .collect()
}

/// How many files of tables a folder has, with those that are being written.
fn tables(folder: &str) -> usize {
    let all = everything(folder).into_iter();
    all.filter(|(name, _)| name.contains(".parquet")).count()
}

#[test]
fn a_folder_has_what_the_library_writes_and_no_run_twice() {
    let scratch = Scratch::new("parquet");
    let names = ["first.pcap.gz", "b.pcapng", "out", "wanted"];
    let [first, second, out, wanted] = names.map(|name| scratch.file(name));
    capture(&first, 0, 3000);
    capture(&second, 3000, 2000);
    let grid = Grid {
        coalesce: vec![Some(Semantics::Stream), None],
        flows: vec![2, 1024],
        ..Grid::of(&off())
    };
    let runs = grid.runs();
    let dataset = Dataset::create(Path::new(&wanted), "first", &[&first, &second], &runs, None);
    let dataset = dataset.expect("a data set");
    let files = dataset.files(0).expect("captures");
    dataset
        .run(files, 0, &runs, &mut Settings::default())
        .expect("a run");
    for options in &runs {
        dataset.merge(options).expect("a sum");
    }

    // The name is that of the first input in the command line.
    let all = format!("{first} {second} --json --flows 2,1024 --coalesce stream,off");
    let mut json = document(&format!("{all} --parquet {out}"));
    let found = everything(&out);
    assert_eq!(tables(&out), 2 * runs.len());
    assert!(found == everything(&wanted), "{found:?}");
    let parquet = json["parquet"].take();
    let ids = |runs: &[Options]| Value::from_iter(runs.iter().map(configuration_id));
    let expected = |written: &[Options], kept: &[Options]| {
        json!({"folder": out,
        "dataset": "first", "written": ids(written), "kept": ids(kept)})
    };
    assert_eq!(parquet, expected(&runs, &[]));
    assert_eq!(json, document(&all));

    // One of three is new.
    let three = format!("{second} {first} --json --coalesce off --flows 2,64,1024");
    let json = replay(0, &format!("{three} --parquet {out} --dataset first")).json();
    let mut new = off();
    new.limits.flows = Some(64);
    assert_eq!(json["parquet"], expected(&[new], &runs[2..]));
    assert_eq!(json["runs"], replay(0, &three).json()["runs"]);

    // None is new: nothing is written.
    let before = everything(&out);
    assert!(found.iter().all(|file| before.contains(file)));
    let mut again = document(&format!("{all} --parquet {out}"));
    assert_eq!(again["parquet"].take(), expected(&[], &runs));
    assert_eq!(again, document(&all));
    let line = format!("{first} {second} --coalesce off --parquet {out}");
    let text = replay(0, &line).out;
    let last = format!("data set first in {out}: configurations written: 0, kept: 1\n");
    assert!(
        text.ends_with(&last) && text.contains("ledger: 5,000 received"),
        "{text}"
    );
    assert!(everything(&out) == before);
}

#[test]
fn what_cannot_be_a_data_set_is_one_line() {
    let scratch = Scratch::new("parquet-refused");
    let names = ["a.pcapng", "b,b.pcapng", "text", "gone", "out"];
    let [a, b, text, gone, out] = names.map(|name| scratch.file(name));
    capture(&a, 0, 5);
    capture(&b, 0, 5);
    fs::write(&text, "no capture").expect("a file");
    let many: Vec<_> = (1..=257).map(|flows| flows.to_string()).collect();
    let many = many.join(",");
    let refused = |code, line: String, expected: &str| {
        let ran = replay(code, &line);
        assert!(ran.error_line().contains(expected), "{ran:?}");
    };
    for (code, args, expected) in [
        (2, format!("{a} --flows {many}"), "up to 256 configurations"),
        (2, format!("{a} --dataset a/b"), "cannot be the name"),
        (2, b.clone(), "at the start; name it with --dataset"),
        (2, "-".to_owned(), "add --dataset NAME"),
        (4, text, "text: "),
        (4, gone, "gone: cannot open"),
    ] {
        refused(code, format!("{args} --parquet {out}"), expected);
    }
    for option in [["-o", &b], ["--segment", "1500"]] {
        let args = ["replay", &a, "--parquet", &out];
        let ran = program::ends(2, &[&args[..], &option].concat());
        let expected = format!("and {} is for packets", option[0]);
        assert!(ran.error_line().contains(&expected), "{ran:?}");
    }
    assert!(!fs::exists(&out).expect("the folder can be read"));
    refused(2, format!("{a} --parquet="), "--parquet");
    let other = scratch.file("");
    refused(
        4,
        format!("{a} --parquet {other}"),
        "not empty and no packtrain data set",
    );
    replay(0, &format!("{a} --parquet {out}"));
    let before = everything(&out);
    let line = format!("{b} --parquet {out} --dataset a");
    refused(4, line, "was made from other captures");
    assert!(everything(&out) == before);
}

#[test]
fn a_full_disk_is_one_line_and_leaves_no_table() {
    const ON: &str = r#"mount -t tmpfs -o size=64k none "$0" && "$@"; code=$?
                        find "$0" -type f; exit $code"#;
    let scratch = Scratch::new("parquet-full");
    let [input, out] = ["in.pcapng", "out"].map(|name| scratch.file(name));
    capture(&input, 0, 30_000);
    fs::create_dir(&out).expect("a folder");
    let run = |way: &[&str], then: &[&str]| {
        let words = [way, &["sh", "-c", ON, &out], then].concat();
        finish(start(&mut command(words[0], &words[1..])))
    };
    let ways: [&[&str]; 2] = [&["unshare", "-m"], &["unshare", "-Urm"]];
    let Some(way) = ways.iter().find(|way| run(way, &["true"]).code == Some(0)) else {
        println!("SKIP: no mount namespace can be made here");
        return;
    };
    let line = format!("{input} --headers-only --coalesce off --parquet {out}");
    let args = [PACKTRAIN, "replay"].into_iter().chain(line.split(' '));
    let ran = run(way, &args.collect::<Vec<_>>());
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let line = ran.error_line();
    let expected = "part-0000.parquet: cannot write: No space left on device (os error 28); make";
    assert!(line.contains(expected), "{line}");
    assert!(ran.out.contains("inputs/in.json"), "{ran:?}");
    assert!(!ran.out.contains(".parquet"), "{ran:?}");
}

#[test]
fn a_cut_capture_is_stored_up_to_there_and_marked() {
    let scratch = Scratch::new("parquet-cut");
    let [input, out] = ["in.pcapng", "out"].map(|name| scratch.file(name));
    capture(&input, 0, 100);
    let bytes = fs::read(&input).expect("the capture");
    fs::write(&input, &bytes[..bytes.len() - 10]).expect("a file");
    let line = format!("{input} --coalesce off --json --parquet {out}");
    let ran = replay(4, &line);
    assert!(ran.error_line().contains(&input), "{ran:?}");
    assert_eq!(ran.json()["total"]["packets"], 99);
    let again = replay(4, &line);
    assert_eq!(again.json()["parquet"]["kept"][0], configuration_id(&off()));
    assert_eq!(ran.error_line(), again.error_line());
}

#[test]
fn after_a_signal_the_run_is_made_again() {
    let scratch = Scratch::new("parquet-signal");
    let [input, fifo, out] = ["in.pcapng", "fifo", "out"].map(|name| scratch.file(name));
    capture(&input, 0, 20_000);
    let bytes = fs::read(&input).expect("the capture");
    let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
    assert!(made.success());
    let line = format!("replay {fifo} --headers-only --parquet {out} --dataset live");
    let args: Vec<_> = line.split(' ').collect();
    // A pipe has 64 KiB: when all is written, the run is reading.
    assert!(bytes.len() > 1 << 20);
    let child = start(&mut command(PACKTRAIN, &args));
    let mut writer = File::options().write(true).open(&fifo).expect("a FIFO");
    writer.write_all(&bytes).expect("it is read");
    signal(&child, "INT");
    let ran = finish(child);
    drop(writer);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let line = ran.error_line();
    assert!(
        line.contains("a signal ended the run before all conf"),
        "{line}"
    );
    assert_eq!(tables(&out), 0);

    let child = start(&mut command(PACKTRAIN, &args));
    fs::write(&fifo, &bytes).expect("it is read");
    let ran = finish(child);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("ledger: 20,000 received"), "{ran:?}");
    assert_eq!(tables(&out), 2);
    // So is an input that is a pipe by another name.
    let line =
        format!("< {input} cat | {PACKTRAIN} replay /dev/fd/0 --headers-only --parquet {out}");
    let ran = finish(start(&mut command(
        "sh",
        &["-c", &format!("{line} --dataset fd")],
    )));
    assert_eq!((ran.code, tables(&out)), (Some(0), 4), "{ran:?}");
    // What comes from a pipe may be other packets.
    let ran = program::ends(4, &args);
    assert!(ran.error_line().contains("choose another name"), "{ran:?}");
}
