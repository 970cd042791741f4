//! `packtrain replay` as a user runs it.

#[path = "../../packtrain-replay/tests/captures/mod.rs"]
mod captures;
mod program;

use captures::{Packet, packet, traffic, write_cut, writer};
use packtrain_capture::{Format, LinkCode};
use program::{PACKTRAIN, Ran, Scratch, assert_documented, finish, signal, start};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// A segment of 1000 bytes of one flow.
fn segment(index: u32) -> Vec<u8> {
    packet(1, Some(1 + index * 1000), &[index as u8; 1000])
}

/// Segments of one flow, so many nanoseconds apart.
fn segments(count: u32, apart: u64) -> Vec<Packet> {
    let at = |index| 1_000_000_000 + u64::from(index) * apart;
    (0..count)
        .map(|index| (at(index), 0, segment(index)))
        .collect()
}

/// A folder in which the program runs.
struct Here(Scratch);

impl Here {
    fn new() -> Self {
        Self(Scratch::new("replay"))
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.file(name)).expect("a file")
    }

    fn store(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.file(name), bytes).expect("a file");
    }

    /// Writes a capture, of each packet this many bytes at most.
    fn write_cut(&self, name: &str, packets: &[Packet], bytes: usize) {
        let path = self.0.file(name);
        write_cut(path, Format::PcapNg, &["eth0"], packets, bytes);
    }

    fn write(&self, name: &str, packets: &[Packet]) {
        self.write_cut(name, packets, usize::MAX);
    }

    /// A capture of segments of one flow, 1 µs apart: its bytes.
    fn segments(&self, name: &str, count: u32) -> Vec<u8> {
        self.write(name, &segments(count, 1000));
        self.read(name)
    }

    /// A program with a line of words.
    fn command(&self, program: &str, line: &str) -> Command {
        let words: Vec<_> = line.split_whitespace().collect();
        let mut command = program::command(program, &words);
        command.current_dir(self.0.file(""));
        command
    }

    /// Runs packtrain to its end, with this exit code.
    fn ends(&self, code: i32, line: &str) -> Ran {
        let ran = finish(start(&mut self.command(PACKTRAIN, line)));
        assert_eq!(ran.code, Some(code), "{line}: {ran:?}");
        ran
    }

    /// The report of a replay, which has all these texts.
    fn says(&self, line: &str, texts: &[&str]) -> String {
        let ran = self.ends(0, &format!("replay {line}"));
        for text in texts {
            assert!(ran.out.contains(text), "{text}: {}", ran.out);
        }
        ran.out
    }

    fn json(&self, line: &str) -> Value {
        self.ends(0, &format!("replay --json {line}")).json()
    }
}

/// Also through pipes. Standard output may be the file that is written under another name: it has
/// the capture alone.
#[test]
fn merged_and_taken_apart_again_it_is_the_same_file() {
    let here = Here::new();
    let bytes = here.segments("in.pcapng", 100);
    let ledger = "100 received = 100 transmitted: closed";
    let texts = ["every byte as it was", ledger];
    here.says("in.pcapng -o out.pcapng --segment original", &texts);
    assert!(here.read("out.pcapng") == bytes);
    for output in ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1", "out.pcapng"] {
        let line = format!("replay in.pcapng -o {output} --segment original");
        let file = File::create(here.0.file("out.pcapng")).expect("a file");
        let ran = finish(start(here.command(PACKTRAIN, &line).stdout(file)));
        assert!(ran.code == Some(0) && ran.err.contains(ledger), "{ran:?}");
        assert!(here.read("out.pcapng") == bytes, "{output}");
    }
    let mut command = here.command(PACKTRAIN, "replay - -o - --segment original");
    let mut child = start(command.stdin(Stdio::piped()));
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(&bytes).expect("it is read");
    drop(stdin);
    let (mut out, mut stdout) = (Vec::new(), child.stdout.take().expect("a pipe"));
    stdout.read_to_end(&mut out).expect("it is written");
    let ran = finish(child);
    assert!(ran.code == Some(0) && ran.err.contains(ledger), "{ran:?}");
    assert!(out == bytes);
}

/// Comments and directions, as Wireshark has them; checksums, as tcpdump has them.
#[test]
fn other_programs_read_what_was_merged() {
    let option = |code: u16, value: &[u8]| {
        let mut bytes = [code, value.len() as u16].map(u16::to_le_bytes).concat();
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let mut writer = writer(Format::PcapNg, LinkCode::ETHERNET, &["eth0"]);
    for (index, (at, _, data)) in segments(4, 1000).into_iter().enumerate() {
        let comment = option(1, format!("comment {index}").as_bytes());
        let options = [comment, option(2, &[2, 0, 0, 0])].concat();
        let written = writer.write_with(0, at, 0, [data], &options);
        written.expect("a record");
    }
    let here = Here::new();
    here.store("in.pcapng", &writer.finish().expect("the end"));
    here.says("in.pcapng -o out.pcapng", &[]);
    let comments = "comment 0,comment 1,comment 2,comment 3\teth0\t";
    let fields = "-e frame.comment -e frame.interface_name -e frame.packet_flags_direction";
    let fields = format!("-r out.pcapng -T fields {fields}");
    for (program, line, expected) in [
        ("tshark", &fields[..], [comments, "0x00000002"]),
        ("tcpdump", "-nvvr out.pcapng", ["(correct)", "length 4000"]),
    ] {
        let Ok(said) = here.command(program, line).output() else {
            println!("SKIP: no {program} here");
            continue;
        };
        let text = String::from_utf8_lossy(&said.stdout);
        for expected in expected {
            assert_eq!(text.matches(expected).count(), 1, "{said:?}");
        }
        let wrong = ["incorrect", "bad cksum"].map(|wrong| text.contains(wrong));
        assert_eq!(wrong, [false; 2], "{text}");
    }
}

#[test]
fn a_chart_and_the_reasons_are_printed_without_colour_in_a_pipe() {
    let here = Here::new();
    here.segments("in.pcapng", 90);
    let timeout = "timeout                           9  the --hold window ended";
    let texts = ["eth0", "10.00:1", "   9-16  ████", timeout];
    let out = here.says("in.pcapng --hold 10us", &texts);
    assert!(!out.contains('\x1b'), "{out}");
}

/// Options; flows, bytes, packets, `inactive` and `flush`, read back; windows that ended because
/// they were full, by time and by age.
const LIMITS: &str = r#"
| [1024,65535,null,false,"off"] [9,1,0]
--flows 8 --gro-bytes 20040 | [8,20040,null,false,"off"] [29,1,0]
--gro-packets 49 | [1024,65535,49,false,"off"] [0,12,0]
--gro-inactive on | [1024,65535,null,true,"off"] [9,1,0]
--gro-flush packets(10) | [1024,65535,null,false,"packets(10)"] [0,60,0]
--gro-flush usecs(50) | [1024,65535,null,false,"usecs(50)"] [0,12,0]
--rx-pause 100 | [1024,65535,null,false,"off"] [6,6,0]
"#;

/// The settings of a port, and their effect on a window that does not end by itself.
#[test]
fn limits_are_read_back_and_in_force() {
    let here = Here::new();
    here.segments("in.pcapng", 600);
    for case in LIMITS.trim().lines() {
        let (options, expected) = case.split_once("| ").expect("a case");
        let ran = here.ends(0, &format!("replay in.pcapng --json --hold 1s {options}"));
        assert_eq!(ran.err, "");
        let json = ran.json();
        assert_documented(&json, &["all", "replay", "replay-one"]);
        let settings = ["flows", "bytes_max", "packets", "inactive", "flush"];
        let settings = json!(settings.map(|key| &json["settings"][key]));
        let row = &json["rows"][0];
        let reasons = ["full", "timeout", "inactive"].map(|name| &row["gro_flush"][name]);
        let got = format!("{settings} {}", json!(reasons));
        assert_eq!(got, expected, "{options}");
        let emitted: u64 = reasons.iter().filter_map(|count| count.as_u64()).sum();
        let got = ["packets", "emitted", "flows", "ratio"].map(|key| &row[key]);
        assert_eq!(json!(got), json!([600, emitted, 1, 600.0 / emitted as f64]));
        assert_eq!(json["conservation"]["closed"], true);
        assert_eq!(json["command"], "replay");
    }
    let options = "--coalesce stream --ack-limit 1 --rx-pause 9 --segment 1500";
    let json = here.json(&format!("in.pcapng {options}"));
    let got = ["ack_limit", "rx_pause", "bytes_max", "segment"];
    let got = got.map(|key| &json["settings"][key]);
    assert_eq!(json!(got), json!([1, 9, 65280, 1500]));
}

#[test]
fn packets_of_a_further_tunnel_are_not_merged() {
    let here = Here::new();
    let at = |index: u64| (index * 1000, 0, packet(1, None, &[0; 1000]));
    here.write("in", &(1..=20).map(at).collect::<Vec<_>>());
    for (option, tunnel, ratio) in [("", 0, 20.0), (" --tunnel-ports 9,4001", 20, 1.0)] {
        let row = &here.json(&format!("in{option}"))["rows"][0];
        assert_eq!(
            (&row["not_taken"]["tunnel"], &row["ratio"]),
            (&tunnel.into(), &ratio.into())
        );
    }
    let ran = here.ends(2, "replay in --tunnel-ports 1,2,3,4,5,6,7,8,9");
    assert!(
        ran.error_line().contains("more than 8 ports"),
        "{}",
        ran.err
    );
}

/// The names in a capture and of its file are chosen by others.
#[test]
fn names_from_outside_move_no_cursor_and_forge_no_line() {
    let here = Here::new();
    let (name, forged) = ("a\u{1b}[2Jb.pcapng", "x\u{1b}[2J\nledger: OK");
    let (path, packets) = (here.0.file(name), segments(3, 1000));
    write_cut(path, Format::PcapNg, &[forged], &packets, usize::MAX);
    for command in ["replay ", "forward null: pcap:"] {
        let ran = here.ends(0, &format!("{command}{name}"));
        let said = ran.out + &ran.err;
        assert!(!said.contains('\u{1b}'), "{said}");
        assert!(!said.contains("\nledger: OK"), "{said}");
    }
}

impl Here {
    /// Runs `line` with a FIFO as its input, and writes `bytes` into it (`None`: the FIFO has no
    /// writer). Signals the process after it has read all of them.
    fn interrupted(&self, code: i32, line: &str, bytes: Option<&[u8]>) -> Ran {
        let fifo = self.0.file("fifo");
        fs::remove_file(&fifo).ok();
        let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
        assert!(made.success());
        let child = start(&mut self.command(PACKTRAIN, line));
        let writer = bytes.map(|bytes| {
            let mut writer = File::options().write(true).open(&fifo).expect("a FIFO");
            writer.write_all(bytes).expect("it is read");
            writer
        });
        // All its threads sleep in `open` or in a wait for input: only that is visible outside.
        let tasks = format!("/proc/{}/task", child.id());
        let mut asleep = 0;
        while asleep < 40 {
            sleep(Duration::from_millis(20));
            let mut tasks = fs::read_dir(&tasks).expect("a process").flatten();
            let sleeps = tasks.all(|task| {
                // A thread that has just ended does not run either.
                let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                let state = stat.rsplit(')').next();
                !state.is_some_and(|state| state.starts_with(" R"))
            });
            asleep = if sleeps { asleep + 1 } else { 0 };
        }
        signal(&child, "TERM");
        let ran = finish(child);
        drop(writer);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        ran
    }
}

/// The system restarts a read after a signal was handled.
#[test]
fn a_signal_ends_the_wait_of_replay_for_a_pipe() {
    let here = Here::new();
    let bytes = here.segments("in.pcapng", 30);
    let ran = here.interrupted(4, "replay fifo", None);
    assert!(ran.error_line().contains("before the capture began"));
    let ran = here.interrupted(0, "replay fifo", Some(&bytes));
    assert!(ran.out.contains("ledger: 30 received"), "{ran:?}");
}

#[test]
fn a_signal_ends_the_wait_of_forward_for_a_pipe() {
    let here = Here::new();
    let bytes = here.segments("in.pcapng", 30);
    let line = "forward pcap:fifo null: --quiet --json";
    let ran = here.interrupted(0, line, None);
    let nothing = "interrupted during the start: nothing was forwarded\n";
    assert_eq!((&ran.out[..], &ran.err[..]), ("", nothing));
    // The input ends in the middle of a record, and between two.
    for (bytes, received) in [(&bytes[..bytes.len() - 500], 29), (&bytes, 30)] {
        let document = here.interrupted(0, line, Some(bytes)).json();
        assert_eq!(document["run"]["ended"], "signal");
        let queue = &document["ports"]["fifo"]["rxq00"];
        assert_eq!(queue["packets"], received, "{document}");
    }
}

#[test]
fn a_compressed_capture_is_read_like_any_other() {
    let here = Here::new();
    here.segments("in.pcapng", 500);
    for (program, packed) in [("gzip", "in.pcapng.gz"), ("zstd", "in.pcapng.zst")] {
        if here.command(program, "-qk in.pcapng").status().is_err() {
            println!("SKIP: {program} is not installed");
            continue;
        }
        let forward = format!("forward pcap:{packed},loop null: --count 1200 --json");
        for (line, received) in [(format!("replay {packed} --json"), 500), (forward, 1200)] {
            let json = here.ends(0, &line).json();
            assert_eq!(json["conservation"]["received"], received, "{line}");
        }
        let bytes = here.read(packed);
        // A frame to skip, as pzstd writes; zeros, as a tape has; another file's bytes. The last
        // one is a fault, and costs no packet.
        let skipped = [&[0x50, 0x2A, 0x4D, 0x18, 2, 0, 0, 0, 7, 7], &bytes[..]].concat();
        let around = [
            ("zstd", 0, skipped, "ledger: 500 received"),
            (
                "gzip",
                0,
                [&bytes[..], &[0; 99]].concat(),
                "99 zeros follow",
            ),
            (
                "gzip",
                4,
                [&bytes, &b"more"[..]].concat(),
                "4 other bytes follow",
            ),
        ];
        for (_, code, bytes, says) in around.iter().filter(|case| case.0 == program) {
            here.store("around", bytes);
            let ran = here.ends(*code, "replay around");
            assert!(ran.out.contains("ledger: 500 received"), "{ran:?}");
            assert!((ran.out.clone() + &ran.err).contains(says), "{ran:?}");
        }
        here.store(packed, &bytes[..bytes.len() - 9]);
        // The other file of the two is read whole.
        let ran = here.ends(4, &format!("replay {packed} in.pcapng --json"));
        assert!(ran.error_line().contains("ends too early"), "{ran:?}");
        let received = ran.json()["conservation"]["received"].as_u64();
        assert!(received >= Some(500), "{ran:?}");
    }
}

/// Exit status, command line, and what is in the error.
const WRONG: &str = "
2 |  | missing: <INPUT>...; write packtrain replay <INPUT>...
2 | x --coalesce lots | reversible, stream, off
2 | x --mode hash,lots | hash, sorted, auto
2 | x --flows 8,0 | write a number from 1 to 524288
2 | x --queues 129 | write a number from 1 to 128
2 | x --gro-bytes 0 | write a number from 1 to 65535
2 | x --gro-packets 65537 | write a number from 1 to 65536
2 | x --gro-inactive 1 | on, off
2 | x --gro-flush 50us | gro-flush '50us' is not known; write off, usecs(n)
2 | x --ack-limit 1,2 | for --coalesce stream, which alone merges pure ACKs: add it
2 | x --segment 67 | from 68 to 65535
2 | x --hold 0us | more than 0
2 | x --hold 0 | must be more than 0, with a unit: 50us
2 | x --hold 10 | needs a unit: 10us, 10ms or 10s
2 | x --hold abc | write a number and a unit: 10s, 500ms, 50us, 2m, 1h
2 | a -o out --headers-only | -o needs whole packets
2 | a --segment 1500 --headers-only | --segment needs whole packets
2 | a -o out --flows 8,9 --hold 1us,2us | -o is for one configuration, and the lists are 4
2 | a b -o out | -o is for one input, and there are 2
2 | a b --segment original | --segment is for one input, and there are 2
2 | a --coalesce stream,off --segment original | --segment is for one
2 | a --coalesce stream --segment original | cannot be undone
2 | a --flows 1-33 --gro-packets 1-33 | 1089 combinations, more than 1024
2 | a a | a is given twice
2 | a fifo | fifo is no file
2 | - a | - is no file
2 | a -o a | over itself
2 | a -o - --json | name a file
2 | a --dataset some | of --parquet DIR
4 | gone | No such file or directory (os error 2); check the path
4 | a gone | check the path; a capture to write is named with -o
4 | . | Is a directory (os error 21); name a file
4 | text | neither a pcap nor a pcapng
4 | a text | text: neither a pcap nor a pcapng
4 | empty | no capture: it is empty
4 | packed | the gzip data at byte 0 ends too early
4 | a -o no/such/out | (os error 2); make its directory first
4 | a -o /dev/full | (os error 28); make room
";

#[test]
fn what_is_wrong_is_one_line_with_its_exit_code() {
    let here = Here::new();
    let bytes = here.segments("a", 5);
    here.segments("b", 5);
    here.store("text", b"this is not a capture");
    here.store("empty", b"");
    here.store("packed", &[0x1f, 0x8b, 8, 0, 0, 0]);
    let made = here.command("mkfifo", "fifo").status().expect("mkfifo");
    assert!(made.success());
    let many: Vec<_> = (1..=33).map(|n| n.to_string()).collect();
    for case in WRONG.trim().lines() {
        let [code, line, expected] = case.splitn(3, " | ").collect::<Vec<_>>()[..] else {
            panic!("{case}")
        };
        let line = format!("replay {}", line.replace("1-33", &many.join(",")));
        let ran = here.ends(code.parse().expect("a status"), &line);
        assert_eq!(ran.out, "", "{case}");
        assert!(ran.error_line().contains(expected), "{case}: {ran:?}");
        assert!(!ran.err.contains("a bare number is seconds"), "{case}");
    }
    // A capture that is read from standard input is not overwritten either.
    let input = File::open(here.0.file("a")).expect("the capture");
    let mut over = here.command(PACKTRAIN, "replay - -o a");
    let ran = finish(start(over.stdin(input)));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.error_line().contains("over itself"), "{ran:?}");
    assert!(here.read("a") == bytes, "it was not touched");
    // tests/parquet.rs is for a build with Parquet.
    here.says("--help", &["--parquet <DIR>", "--dataset <NAME>"]);
    if cfg!(not(feature = "parquet")) {
        let line = "--parquet: this build has no Parquet: build with `cargo build --release -p \
                    packtrain-cli --features parquet`";
        assert_eq!(here.ends(2, "replay a --parquet out").error_line(), line);
    }
    assert!(!Path::new(&here.0.file("out")).exists());

    // A capture that is cut off is replayed up to the cut, and the run fails.
    let packets = traffic(900);
    here.write("cut", &packets[400..]);
    let bytes = here.read("cut");
    here.store("cut", &bytes[..bytes.len() - 10]);
    here.write("first", &packets[..400]);
    let ran = here.ends(4, "replay cut");
    let ledger = "499 received = 499 transmitted";
    assert!(ran.out.contains(ledger), "{ran:?}");
    assert!(ran.error_line().contains("cut: "), "{ran:?}");
    let ran = here.ends(4, "replay cut first --flows 2,1024 --json");
    assert!(ran.error_line().contains("cut: "), "{ran:?}");
    for run in ran.json()["runs"].as_array().expect("a sweep") {
        let got = (&run["total"]["packets"], &run["conservation"]["closed"]);
        assert_eq!(got, (&json!(899), &json!(true)));
    }
}

/// A ratio that says little about the traffic has a note: packets that were cut, or large already.
#[test]
fn cut_and_large_packets_are_named_at_the_ratio() {
    const LARGE: &str = "note: 1 of 3 packets are longer than 1500 bytes: TSO or GRO made them";
    let here = Here::new();
    let ethernet = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let loopback = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0];
    // Of `tcpdump -i any`: type 1 is Ethernet, and 772 the loopback.
    let any = |high, low| [0, 0, high, low, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0];
    let any2 = |high, low| {
        let device = [8, 0, 0, 0, 0, 0, 0, 1, high, low];
        [&device[..], &[0, 6, 2, 0, 0, 0, 0, 1, 0, 0]].concat()
    };
    const ETHER: LinkCode = LinkCode::ETHERNET;
    let cases: [(&[u8], _, _, _, _); 9] = [
        (&ethernet, ETHER, 1501, "", true),
        (&any(0, 1), LinkCode::LINUX_SLL, 20_000, "", true),
        (&any2(0, 1), LinkCode::LINUX_SLL2, 20_000, "", true),
        // A full frame, interfaces without a wire, and packets that are segmented.
        (&ethernet, ETHER, 1500, "", false),
        (&loopback, ETHER, 20_000, "", false),
        (&any(3, 4), LinkCode::LINUX_SLL, 20_000, "", false),
        (&any2(3, 4), LinkCode::LINUX_SLL2, 20_000, "", false),
        (&[2, 0, 0, 0], LinkCode::NULL, 20_000, "", false),
        (&ethernet, ETHER, 20_000, "--segment 1500", false),
    ];
    for (header, link, bytes, options, is_large) in cases {
        let mut writer = writer(Format::PcapNg, link, &["eth0"]);
        let mut large = segment(0);
        large.resize(14 + usize::from(bytes), 0);
        large[16..18].copy_from_slice(&u16::to_be_bytes(bytes));
        large.splice(..14, header.iter().copied());
        writer.write(0, 1, 0, [&large]).expect("a record");
        let cut = [header, &segment(0)[14..96]].concat();
        for _ in 0..2 {
            writer.write(0, 2, 1054, [&cut]).expect("a record");
        }
        here.store("in", &writer.finish().expect("the end"));
        let [captured, wire] = [cut.len(), 1054].map(|cut| {
            let bytes = large.len() + 2 * cut;
            format!("{},{:03}", bytes / 1000, bytes % 1000)
        });
        let bytes = format!("the capture has {captured} of {wire}\n");
        let cut = "note: 2 of 3 packets are cut by the snapshot length";
        let out = here.says(&format!("in {options}"), &[cut, &bytes]);
        assert_eq!(out.contains(LARGE), is_large, "{link:?} {header:?}: {out}");
    }
}

#[test]
fn a_sweep_is_what_single_runs_are() {
    let here = Here::new();
    // One has a wrong checksum: a reason that rounds to 0 %.
    let mut packets = traffic(3000);
    packets[1500].2[60] ^= 1;
    here.write("in", &packets);
    let lists = "--coalesce reversible,stream --mode hash,sorted --flows 2,1024 --hold 20us,1ms \
                 --queues 1,4 --ack-limit 1,8 --gro-bytes 9000 --gro-packets 10,1000";
    let mut sweep = here.json(&format!("in {lists}"));
    let Value::Array(runs) = sweep["runs"].take() else {
        panic!("no sweep")
    };
    // A limit of ACKs is for `stream` only.
    assert_eq!(runs.len(), 2 * 2 * 2 * 2 * 2 * (1 + 2));
    for run in &runs {
        assert_documented(run, &["replay-one"]);
        let settings = &run["settings"];
        let mut line = format!("in --gro-bytes 9000 --hold {}ns", settings["hold_ns"]);
        for (option, key) in [
            ("coalesce", "coalesce"),
            ("mode", "mode"),
            ("flows", "flows"),
            ("queues", "queues"),
            ("gro-packets", "packets"),
            ("ack-limit", "ack_limit"),
        ] {
            let value = settings[key].to_string();
            if value != "null" {
                line += &format!(" --{option} {}", value.trim_matches('"'));
            }
        }
        let one = here.json(&line);
        for key in ["rows", "total", "conservation", "restored", "differing"] {
            assert_eq!(one[key], run[key], "{key}: {line}");
        }
    }
    // They differ, or there would be nothing to compare.
    let ratios = runs.iter().map(|run| run["total"]["ratio"].to_string());
    let ratios: BTreeSet<_> = ratios.collect();
    assert!(ratios.len() > 8, "{ratios:?}");
    sweep.as_object_mut().expect("a document").remove("runs");
    assert_documented(&sweep, &["all", "replay"]);

    let ledgers = "ledgers of 4 configurations, 3,000 received in each: closed";
    let out = here.says("in --flows 2,1024 --mode hash,sorted", &[ledgers]);
    let rows = out.lines().skip_while(|line| !line.contains("packets out"));
    let rows = rows.map(|line| {
        line.split_whitespace()
            .take(2)
            .collect::<Vec<_>>()
            .join(" ")
    });
    let rows: Vec<_> = rows.filter(|row| !row.contains('─')).take(5).collect();
    let expected = [
        "mode flows",
        "hash 2",
        "hash 1,024",
        "sorted 2",
        "sorted 1,024",
    ];
    assert_eq!(rows, expected, "{out}");
    assert!(!out.contains(" 0 %"), "{out}");
    // What each setting changes, in a line and on a page.
    let changes = "what a setting changes of the ratio at most: hold 2 us to 1 ms: ";
    let out = here.says(
        "in --flows 64,1024 --hold 2us,1ms --html a.html",
        &[changes],
    );
    assert!(out.contains("; flows: nothing\n"), "{out}");
    let page = String::from_utf8(here.read("a.html")).expect("text");
    let bar = "<td class=\"bar\">█";
    for part in ["<h1>in</h1>", bar, changes, "passed on because of</th>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    here.says("in --html a.html", &["packets merged into one"]);
    let page = String::from_utf8(here.read("a.html")).expect("text");
    assert!(page.contains("packets merged into one</th>"), "{page}");
    let ran = here.ends(4, "replay in --html no/a.html");
    assert!(ran.err.contains("no/a.html"), "{}", ran.err);
    // A list of one value is one configuration.
    let ledger = "ledger: 3,000 received = 3,000 transmitted";
    here.says("in --flows 2,2", &[ledger]);
}

#[test]
fn several_captures_are_read_as_one_in_the_order_of_time() {
    let here = Here::new();
    let packets = traffic(2000);
    here.write("in", &packets);
    here.write("0", &packets[..777]);
    here.write("1", &packets[777..]);
    let lists = "--flows 2,1024 --hold 20us,1ms";
    let [mut whole, mut several] =
        ["in", "1 0"].map(|names| here.json(&format!("{names} {lists}")));
    assert_eq!(several["settings"]["inputs"], json!(["0", "1"]));
    for document in [&mut whole, &mut several] {
        document["settings"].take();
        document["host"].take();
    }
    assert_eq!(several, whole);
}

#[test]
fn of_a_cut_capture_the_headers_count() {
    let here = Here::new();
    let packets = traffic(2000);
    here.write("whole", &packets);
    here.write_cut("cut", &packets, 96);
    here.write_cut("short", &packets, 40);
    let lists = "--flows 2,1024 --queues 1,4 --coalesce reversible,stream";
    let run = |line: &str, by_headers: u64| {
        let mut json = here.json(&format!("{line} {lists}"));
        for run in json["runs"].as_array_mut().expect("a sweep") {
            let row = run["rows"][0].as_object_mut().expect("an interface");
            assert_eq!(row.remove("by_headers"), Some(by_headers.into()), "{row:?}");
            row.remove("captured_bytes");
        }
        json["runs"].take()
    };
    let whole = run("whole", 0);
    for line in ["cut", "cut --headers-only", "whole --headers-only"] {
        assert_eq!(run(line, 2000), whole, "{line}");
    }
    let cut = "note: 2,000 of 2,000 packets are cut by the snapshot length and read by their \
               headers only: their checksums are taken as correct\n";
    let forced = "note: 2,000 of 2,000 packets are read by their headers only (--headers-only)";
    let short = "2,000 packets are cut by the snapshot length before the end of their headers";
    assert!(!here.says("whole", &[]).contains("note: "));
    for (line, texts) in [
        ("cut", &[cut][..]),
        ("whole --headers-only", &[forced]),
        ("short", &[short, "1.00:1"]),
        // Such packets are not written as others, so nothing is merged.
        ("cut -o out", &["are not merged: capture whole packets"]),
    ] {
        here.says(line, texts);
    }
    assert_eq!(here.json("out")["total"]["packets"], 2000);
}

/// Queues, delays, shares, and a clock that is coarser than `--hold`.
#[test]
fn figures_and_notes_for_analysts() {
    let here = Here::new();
    // All packets of one flow are in one queue. The window ends 1 ms after the first one.
    here.segments("in", 50);
    let skew = "skew: 8.00 (packets of the busiest queue divided by the mean)";
    here.says("in --queues 8", &[skew, "50  100.0 %  ████"]);
    let json = here.json("in --queues 8 --hold 1ms");
    let row = &json["rows"][0];
    let queues = row["queues"].as_array().expect("queues").iter();
    let mut queues: Vec<_> = queues.map(|queue| queue["packets"].as_u64()).collect();
    queues.sort();
    assert_eq!(queues[..], [[Some(0); 7].as_slice(), &[Some(50)]].concat());
    let skews = [&row["skew"], &json["total"]["skew"]];
    assert_eq!(json!(skews), json!([8.0, 8.0]));
    let delay = &json["total"]["delay_ns"];
    let p50 = delay["p50"].as_u64().expect("a delay");
    assert!((970_000..985_000).contains(&p50), "{json}");
    let got = [&delay["max"], &json["seconds"], &json["clock_step_ns"]];
    assert_eq!(json!(got), json!([1_000_000, 49e-6, 1000]));

    let quic = packet(1, None, &[0; 9]);
    let mut dns = quic.clone();
    dns[34..36].copy_from_slice(&53_u16.to_be_bytes());
    let kinds = [segment(0), packet(1, Some(1), &[]), dns, quic];
    here.write("in", &kinds.map(|data| (2_000_000_000, 0, data)));
    let shares = "of all packets 25.0 % are pure ACKs and 50.0 % UDP, 25.0 % from or to port 443";
    here.says("in --headers-only", &[shares]);

    let coarse = "note: all times are multiples of 1 ms, and --hold is less than 10 of them: the \
                  clock of the capture decides which packets are one batch";
    let same = "note: all packets have the same time: --hold has no effect";
    // In a sweep the shortest one counts. At 0 there are no times.
    for (first, step, hold, expected) in [
        (1_000_000_000, 1_000_000, "9999us", Some(coarse)),
        (1_000_000_000, 1_000_000, "10ms", None),
        (1_000_000_000, 1_000_000, "9ms,10ms,100ms", Some(coarse)),
        (1_000_000_000, 1000, "50us", None),
        (1_000_000_000, 7, "1ns", None),
        (5, 0, "50us", Some(same)),
        (0, 0, "50us", None),
    ] {
        let packets = (0..4).map(|index| (first + u64::from(index) * step, 0, segment(index)));
        here.write("in", &packets.collect::<Vec<_>>());
        let out = here.says(&format!("in --hold {hold}"), &[]);
        let note = out.lines().find(|line| line.starts_with("note: "));
        assert_eq!(note, expected, "{step} {hold}");
    }
}
