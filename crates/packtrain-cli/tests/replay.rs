//! `packtrain replay` as a user runs it.

mod program;

use packtrain_capture::{Format, Interface, LinkCode, Writer};
use program::{
    PACKTRAIN, Ran, Scratch, assert_documented, command, ends, finish, packtrain, signal, start,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// A TCP segment of 1000 bytes over IPv4 and Ethernet, with checksums computed by a plain loop.
fn segment(index: u32) -> Vec<u8> {
    segment_of(0, index)
}

/// As [`segment`], of one of several flows.
fn segment_of(flow: u16, index: u32) -> Vec<u8> {
    let mut packet = vec![0; 14 + 40 + 1000];
    packet[12..14].copy_from_slice(&[8, 0]);
    let length = 1040_u16.to_be_bytes();
    packet[14..18].copy_from_slice(&[0x45, 0, length[0], length[1]]);
    packet[18..20].copy_from_slice(&(index as u16).to_be_bytes());
    packet[20..24].copy_from_slice(&[0x40, 0, 64, 6]);
    packet[26..34].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
    packet[34..36].copy_from_slice(&(5000 + flow).to_be_bytes());
    packet[36..38].copy_from_slice(&[0x01, 0xbb]);
    packet[38..42].copy_from_slice(&(1 + index * 1000).to_be_bytes());
    packet[46..48].copy_from_slice(&[0x50, 0x10]);
    packet[54..].fill(index as u8);
    let sum = |bytes: &[u8], start: u32| {
        let words = bytes
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let sum = words.fold(start, |sum, word| sum + word);
        let sum = (sum & 0xffff) + (sum >> 16);
        !((sum & 0xffff) + (sum >> 16)) as u16
    };
    let ip = sum(&packet[14..34], 0);
    packet[24..26].copy_from_slice(&ip.to_be_bytes());
    let pseudo: u32 = [198 << 8 | 18, 1, 198 << 8 | 18, 2, 6, 1020].iter().sum();
    let tcp = sum(&packet[34..], pseudo);
    packet[50..52].copy_from_slice(&tcp.to_be_bytes());
    packet
}

/// A capture of `count` segments of one flow, 1 µs apart.
fn capture(path: &str, count: u32) {
    capture_of(path, count, "eth0");
}

fn capture_of(path: &str, count: u32, interface: &str) {
    let interface = Interface {
        link: LinkCode::ETHERNET,
        snaplen: 0,
        name: Some(interface),
    };
    let mut writer = Writer::new(Vec::new(), Format::PcapNg, &[interface]).expect("a writer");
    for index in 0..count {
        let at = 1_000_000_000 + u64::from(index) * 1000;
        writer.write(0, at, 0, [segment(index)]).expect("a record");
    }
    fs::write(path, writer.finish().expect("the end")).expect("a file");
}

#[test]
fn merged_and_taken_apart_again_it_is_the_same_file() {
    let scratch = Scratch::new("replay-original");
    let (input, output) = (scratch.file("in.pcapng"), scratch.file("out.pcapng"));
    capture(&input, 100);
    let ran = ends(
        0,
        &["replay", &input, "-o", &output, "--segment", "original"],
    );
    assert!(ran.out.contains("every byte as it was"), "{ran:?}");
    assert!(
        ran.out.contains("100 received = 100 transmitted: closed"),
        "{ran:?}"
    );
    assert_eq!(fs::read(&input).ok(), fs::read(&output).ok());
}

/// Comments, directions, names and secrets, as Wireshark has them.
#[test]
fn what_a_capture_has_besides_packets_is_kept() {
    let option = |code: u16, value: &[u8]| {
        let mut bytes = [code, value.len() as u16].map(u16::to_le_bytes).concat();
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let scratch = Scratch::new("replay-options");
    let (input, output) = (scratch.file("in.pcapng"), scratch.file("out.pcapng"));
    let mut writer = Writer::new(Vec::new(), Format::PcapNg, &[]).expect("a writer");
    let interface = Interface {
        link: LinkCode::ETHERNET,
        snaplen: 0,
        name: None,
    };
    let described = [option(2, b"eth0"), option(3, b"the uplink")].concat();
    writer
        .add_interface_with(&interface, &described)
        .expect("an interface");
    let names = [
        option(1, &[&[198, 18, 0, 2][..], b"server.example\0"].concat()),
        vec![0; 4],
    ];
    writer.write_block(4, &names.concat()).expect("a block");
    let secrets = [0x544c_534b_u32, 4].map(u32::to_le_bytes).concat();
    let secrets = [&secrets[..], b"# x\n"].concat();
    writer.write_block(10, &secrets).expect("a block");
    for index in 0..4_u32 {
        let comment = format!("comment {index}");
        let options = [option(1, comment.as_bytes()), option(2, &[2, 0, 0, 0])].concat();
        let at = 1_000_000_000 + u64::from(index) * 1000;
        let written = writer.write_with(0, at, 0, [segment(index)], &options);
        written.expect("a record");
    }
    fs::write(&input, writer.finish().expect("the end")).expect("a file");
    let ran = packtrain(&[
        "replay",
        &input,
        "-o",
        &output,
        "--segment",
        "original",
        "--json",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.json()["blocks_left_out"], 0);
    assert_eq!(fs::read(&input).ok(), fs::read(&output).ok());

    let ran = packtrain(&["replay", &input, "-o", &output]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let fields = [
        "frame.comment",
        "frame.interface_description",
        "frame.packet_flags_direction",
        "ip.dst_host",
    ];
    let mut tshark = Command::new("tshark");
    tshark.args(["-N", "n", "-r", &output, "-T", "fields"]);
    let Ok(said) = tshark
        .args(fields.iter().flat_map(|name| ["-e", name]))
        .output()
    else {
        println!("SKIP: no tshark here");
        return;
    };
    let text = String::from_utf8_lossy(&said.stdout);
    let comments = "comment 0,comment 1,comment 2,comment 3";
    assert!(
        text.starts_with(&format!("{comments}\tthe uplink\t")),
        "{said:?}"
    );
    assert!(text.contains("2\tserver.example"), "{said:?}");
}

#[test]
fn tcpdump_reads_what_was_merged_and_finds_nothing_wrong() {
    let scratch = Scratch::new("replay-tcpdump");
    let (input, output) = (scratch.file("in.pcapng"), scratch.file("out.pcapng"));
    capture(&input, 40);
    ends(0, &["replay", &input, "-o", &output, "--hold", "1ms"]);
    let dump = Command::new("tcpdump")
        .args(["-n", "-vv", "-r", &output])
        .output();
    let Ok(dump) = dump else {
        println!("SKIP: no tcpdump here");
        return;
    };
    let text = String::from_utf8_lossy(&dump.stdout);
    assert_eq!(text.matches("(correct)").count(), 1, "{text}");
    assert!(text.contains("length 40000"), "{text}");
    assert!(
        !text.contains("incorrect") && !text.contains("bad cksum"),
        "{text}"
    );
}

#[test]
fn the_document_has_the_documented_keys() {
    let scratch = Scratch::new("replay-json");
    let input = scratch.file("in.pcapng");
    capture(&input, 50);
    let ran = ends(0, &["replay", &input, "--json", "--segment", "1500"]);
    assert_eq!(ran.err, "");
    let json = ran.json();
    assert_documented(&json, &["all", "replay", "replay-one"]);
    assert_eq!(json["command"], "replay");
    let row = &json["rows"][0];
    assert_eq!(
        (&row["packets"], &row["emitted"]),
        (&50.into(), &1.into()),
        "{row}"
    );
    assert_eq!(
        (&row["ratio"], &row["flows"]),
        (&50.0.into(), &1.into()),
        "{row}"
    );
    assert_eq!(json["conservation"]["closed"], true);
    assert_eq!(json["settings"]["segment"], 1500);
}

/// The settings of a port, read back, and their effect on a window that does not end by itself.
#[test]
fn limits_are_read_back_and_in_force() {
    let scratch = Scratch::new("replay-limits");
    let input = scratch.file("in.pcapng");
    capture(&input, 600);
    let run = |more: &[&str]| {
        let window = ["replay", &input, "--json", "--hold", "1s"];
        let json = ends(0, &[&window, more].concat()).json();
        assert_documented(&json, &["all", "replay", "replay-one"]);
        let reasons = &json["rows"][0]["gro_flush"];
        let reasons = ["full", "timeout", "inactive"].map(|name| reasons[name].clone());
        let settings = ["flows", "bytes_max", "packets", "inactive", "flush"];
        let settings = settings.map(|key| json["settings"][key].clone());
        (
            serde_json::json!([settings, reasons]),
            json["settings"].clone(),
        )
    };
    for (more, expected) in [
        (&[][..], "[[1024,65535,null,false,\"off\"],[9,1,0]]"),
        (
            &["--flows", "8", "--gro-bytes", "20040"],
            "[[8,20040,null,false,\"off\"],[29,1,0]]",
        ),
        (
            &["--gro-packets", "49"],
            "[[1024,65535,49,false,\"off\"],[0,12,0]]",
        ),
        (
            &["--gro-inactive", "on", "--gro-bytes", "65535"],
            "[[1024,65535,null,true,\"off\"],[9,1,0]]",
        ),
        (
            &["--gro-flush", "packets(10)"],
            "[[1024,65535,null,false,\"packets(10)\"],[0,60,0]]",
        ),
        (
            &["--gro-flush", "usecs(50)"],
            "[[1024,65535,null,false,\"usecs(50)\"],[0,12,0]]",
        ),
        (
            &["--rx-pause", "100"],
            "[[1024,65535,null,false,\"off\"],[6,6,0]]",
        ),
    ] {
        let (got, _) = run(more);
        assert_eq!(got.to_string(), expected, "{more:?}");
    }
    let (_, settings) = run(&[
        "--coalesce",
        "stream",
        "--ack-limit",
        "1",
        "--rx-pause",
        "9",
    ]);
    assert_eq!(
        (&settings["ack_limit"], &settings["rx_pause"]),
        (&1.into(), &9.into())
    );
    assert_eq!(settings["bytes_max"], 65_280);
}

#[test]
fn a_chart_and_the_reasons_are_printed_without_colour_in_a_pipe() {
    let scratch = Scratch::new("replay-chart");
    let input = scratch.file("in.pcapng");
    capture(&input, 90);
    let ran = ends(0, &["replay", &input, "--hold", "10us"]);
    for text in [
        "eth0",
        "10.00:1",
        "   9-16  ████",
        "timeout                           9  the --hold window ended",
    ] {
        assert!(ran.out.contains(text), "{text}: {}", ran.out);
    }
    assert!(!ran.out.contains('\x1b'), "{ran:?}");
}

#[test]
fn captures_go_through_pipes() {
    let scratch = Scratch::new("replay-pipe");
    let input = scratch.file("in.pcapng");
    capture(&input, 30);
    let bytes = fs::read(&input).expect("the capture");
    let mut command = command(
        PACKTRAIN,
        &["replay", "-", "-o", "-", "--segment", "original"],
    );
    let mut child = start(command.stdin(std::process::Stdio::piped()));
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(&bytes).expect("it is read");
    drop(stdin);
    let mut out = Vec::new();
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_to_end(&mut out).expect("it is written");
    let ran = finish(child);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(out == bytes);
    assert!(ran.err.contains("ledger: 30 received"), "{ran:?}");
}

/// The names in a capture and of its file are chosen by others.
#[test]
fn names_from_outside_move_no_cursor_and_forge_no_line() {
    let scratch = Scratch::new("replay-names");
    let input = scratch.file("a\u{1b}[2Jb.pcapng");
    capture_of(&input, 3, "x\u{1b}[2J\nledger: OK");
    let replay = packtrain(&["replay", &input]);
    let forward = packtrain(&["forward", &format!("pcap:{input}"), "null:"]);
    for ran in [replay, forward] {
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let said = ran.out + &ran.err;
        assert!(!said.contains('\u{1b}'), "{said}");
        assert!(!said.contains("\nledger: OK"), "{said}");
    }
}

/// Runs `args` with a FIFO as its input, and writes `bytes` into it (`None`: the FIFO has no
/// writer). Signals the process after it has read all of them.
fn interrupted(args: &[&str], fifo: &str, bytes: Option<&[u8]>) -> Ran {
    let made = Command::new("mkfifo").arg(fifo).status().expect("mkfifo");
    assert!(made.success());
    let child = start(&mut command(PACKTRAIN, args));
    let writer = bytes.map(|bytes| {
        let mut writer = fs::File::options().write(true).open(fifo).expect("a FIFO");
        writer.write_all(bytes).expect("it is read");
        writer
    });
    // All its threads sleep in `open` or in a wait for input. From outside only that is visible.
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
    ran
}

/// `forward` with a FIFO as its input.
fn forward(port: &str) -> [&str; 5] {
    ["forward", port, "null:", "--quiet", "--json"]
}

/// The system restarts a read after a signal was handled.
#[test]
fn a_signal_ends_the_wait_for_a_pipe_without_a_writer() {
    let scratch = Scratch::new("replay-fifo");
    let name = scratch.file("fifo");
    let ran = interrupted(&["replay", &name], &name, None);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.error_line().contains("before the capture began"));
    fs::remove_file(&name).expect("the FIFO");
    let ran = interrupted(&forward(&format!("pcap:{name}")), &name, None);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(
        ran.err,
        "interrupted during the start: nothing was forwarded\n"
    );
}

#[test]
fn a_signal_ends_the_wait_of_replay_for_the_rest_of_a_pipe() {
    let scratch = Scratch::new("replay-rest");
    let input = scratch.file("in.pcapng");
    capture(&input, 30);
    let bytes = fs::read(&input).expect("the capture");
    let name = scratch.file("fifo");
    let ran = interrupted(&["replay", &name], &name, Some(&bytes));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("ledger: 30 received"), "{ran:?}");
}

#[test]
fn a_signal_ends_the_wait_of_forward_for_the_rest_of_a_pipe() {
    let scratch = Scratch::new("forward-rest");
    let input = scratch.file("in.pcapng");
    capture(&input, 30);
    let bytes = fs::read(&input).expect("the capture");
    let name = scratch.file("fifo");
    let port = format!("pcap:{name}");
    // The input ends in the middle of a record, and between two.
    for cut in [bytes.len() - 500, bytes.len()] {
        let ran = interrupted(&forward(&port), &name, Some(&bytes[..cut]));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let document = ran.json();
        assert_eq!(document["run"]["ended"], "signal");
        let received = if cut == bytes.len() { 30 } else { 29 };
        let queue = &document["ports"][&port[..]]["rxq00"];
        let queue = if queue.is_null() {
            &document["ports"]["fifo"]["rxq00"]
        } else {
            queue
        };
        assert_eq!(queue["packets"], received, "{ran:?}");
        fs::remove_file(&name).expect("the FIFO");
    }
}

#[test]
fn a_compressed_capture_is_read_like_any_other() {
    let scratch = Scratch::new("replay-packed");
    let input = scratch.file("in.pcapng");
    capture(&input, 500);
    for (program, suffix) in [("gzip", "gz"), ("zstd", "zst")] {
        let made = Command::new(program).args(["-qk", &input]).status();
        if made.is_err() {
            println!("SKIP: {program} is not installed");
            continue;
        }
        let packed = format!("{input}.{suffix}");
        let ran = ends(0, &["replay", &packed, "--json"]);
        assert_eq!(ran.json()["conservation"]["received"], 500);
        let port = format!("pcap:{packed},loop");
        let ran = ends(0, &["forward", &port, "null:", "--count", "1200", "--json"]);
        assert_eq!(ran.json()["conservation"]["received"], 1200);
        let bytes = fs::read(&packed).expect("the file");
        fs::write(&packed, &bytes[..bytes.len() - 9]).expect("a file");
        let ran = ends(4, &["replay", &packed]);
        assert!(ran.error_line().contains("ends too early"), "{ran:?}");
    }
}

#[test]
fn what_is_wrong_is_one_line_with_its_exit_code() {
    let scratch = Scratch::new("replay-wrong");
    let (good, cut) = (scratch.file("good.pcapng"), scratch.file("cut.pcapng"));
    capture(&good, 5);
    let bytes = fs::read(&good).expect("the capture");
    fs::write(&cut, &bytes[..bytes.len() - 10]).expect("a file");
    let text = scratch.file("text");
    fs::write(&text, "this is not a capture").expect("a file");
    let (empty, packed) = (scratch.file("empty"), scratch.file("in.pcap.gz"));
    fs::write(&empty, "").expect("a file");
    fs::write(&packed, [0x1f, 0x8b, 8, 0, 0, 0]).expect("a file");
    let (gone, nowhere) = (scratch.file("gone"), scratch.file("no/such/directory"));
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &[&gone],
            4,
            "No such file or directory (os error 2); check the path",
        ),
        (
            &[&scratch.file("")],
            4,
            "Is a directory (os error 21); name a file",
        ),
        (&[&text], 4, "neither a pcap nor a pcapng"),
        (&[&empty], 4, "the file is empty"),
        (&[&packed], 4, "the gzip data at byte 0 ends too early"),
        (
            &[&good, "-o", &nowhere],
            4,
            "(os error 2); make its directory first",
        ),
        (&[&good, "-o", "/dev/full"], 4, "(os error 28); make room"),
        (&[&good, "-o", &good], 2, "over itself"),
        (&[&good, "-o", "-", "--json"], 2, "name a file"),
        (
            &[&good, "--coalesce", "stream", "--segment", "original"],
            2,
            "cannot be undone",
        ),
    ];
    for (args, code, expected) in cases {
        let ran = packtrain(&[&["replay"], *args].concat());
        assert_eq!(ran.code, Some(*code), "{args:?}: {ran:?}");
        assert!(ran.error_line().contains(expected), "{args:?}: {ran:?}");
    }
    // A capture that is cut off is replayed up to the cut, and the run fails.
    let ran = ends(4, &["replay", &cut]);
    assert!(ran.out.contains("4 received = 4 transmitted"), "{ran:?}");
    assert!(ran.error_line().contains("cut.pcapng"), "{ran:?}");
    // A capture that is read from standard input is not overwritten either.
    let mut over = command(PACKTRAIN, &["replay", "-", "-o", &good]);
    let ran = finish(start(
        over.stdin(fs::File::open(&good).expect("the capture")),
    ));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.error_line().contains("over itself"), "{ran:?}");
    assert_eq!(fs::read(&good).ok(), Some(bytes), "it was not touched");
}

#[test]
fn a_bad_command_line_is_2() {
    let cases: &[(&[&str], &str)] = &[
        (
            &[],
            "missing: <INPUT>...; write packtrain replay <INPUT>...",
        ),
        (&["x", "--coalesce", "lots"], "reversible, stream, off"),
        (&["x", "--mode", "lots"], "hash, sorted, auto"),
        (&["x", "--flows", "0"], "write a number from 1 to 524288"),
        (&["x", "--gro-bytes", "0"], "write a number from 1 to 65535"),
        (
            &["x", "--gro-packets", "65537"],
            "write a number from 1 to 65536",
        ),
        (&["x", "--gro-inactive", "1"], "on, off"),
        (
            &["x", "--gro-flush", "50us"],
            "gro-flush '50us' is not known; write off, usecs(n)",
        ),
        (
            &["x", "--ack-limit", "1"],
            "--ack-limit is for --coalesce stream, which alone merges pure ACKs: add it",
        ),
        (&["x", "--segment", "67"], "from 68 to 65535"),
        (&["x", "--hold", "0us"], "more than 0"),
        (
            &["x", "--hold", "0"],
            "must be more than 0, with a unit: 50us",
        ),
        (
            &["x", "--hold", "abc"],
            "write a number and a unit: 10s, 500ms, 50us, 2m, 1h",
        ),
    ];
    for (args, expected) in cases {
        let ran = packtrain(&[&["replay"], *args].concat());
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (Some(2), ""),
            "{args:?}: {ran:?}"
        );
        assert!(ran.err.contains(expected), "{args:?}: {}", ran.err);
        assert!(!ran.err.contains("a bare number is seconds"), "{args:?}");
    }
}

#[test]
fn hold_needs_a_unit() {
    let ran = ends(2, &["replay", "in.pcapng", "--hold", "10"]);
    assert!(
        ran.err.contains("needs a unit: 10us, 10ms or 10s"),
        "{ran:?}"
    );
}

/// A ratio that says little about the traffic has a note: packets that were cut, or large already.
#[test]
fn cut_and_large_packets_are_named_at_the_ratio() {
    let scratch = Scratch::new("replay-hints");
    let input = scratch.file("in.pcapng");
    let hinted = |header: &[u8], bytes: u16, link: LinkCode, options: &[&str]| {
        let interface = Interface {
            link,
            snaplen: 0,
            name: None,
        };
        let mut writer = Writer::new(Vec::new(), Format::PcapNg, &[interface]).expect("a writer");
        let mut large = segment(0);
        large.resize(14 + usize::from(bytes), 0);
        large[16..18].copy_from_slice(&bytes.to_be_bytes());
        large.splice(..14, header.iter().copied());
        writer.write(0, 1, 0, [&large]).expect("a record");
        for index in 0..2 {
            let packet = [header, &segment(index)[14..96]].concat();
            writer.write(0, 2, 1054, [&packet]).expect("a record");
        }
        fs::write(&input, writer.finish().expect("the end")).expect("a file");
        let ran = ends(0, &[&["replay", &input], options].concat());
        let cut = "note: 2 of 3 packets are cut by the snapshot length";
        assert!(ran.out.contains(cut), "{ran:?}");
        let whole = header.len() + usize::from(bytes);
        let [captured, wire] = [2 * (header.len() + 82), 2 * 1054]
            .map(|cut| whole + cut)
            .map(|bytes| format!("{},{:03}", bytes / 1000, bytes % 1000));
        let bytes = format!("the capture has {captured} of {wire}\n");
        assert!(ran.out.contains(&bytes), "{bytes}: {ran:?}");
        let large = "note: 1 of 3 packets are longer than 1500 bytes: TSO or GRO made them";
        ran.out.contains(large)
    };
    let ethernet = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let loopback = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0];
    // Of `tcpdump -i any`, for each type of device.
    let any = |device: u16| {
        let [high, low] = device.to_be_bytes();
        [0, 0, high, low, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0]
    };
    let any2 = |device: u16| {
        let [high, low] = device.to_be_bytes();
        [
            8, 0, 0, 0, 0, 0, 0, 1, high, low, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0,
        ]
    };
    const ETHER: LinkCode = LinkCode::ETHERNET;
    assert!(hinted(&ethernet, 20_000, ETHER, &[]));
    assert!(hinted(&ethernet, 1501, ETHER, &[]));
    assert!(hinted(&any(1), 20_000, LinkCode::LINUX_SLL, &[]));
    assert!(hinted(&any2(1), 20_000, LinkCode::LINUX_SLL2, &[]));
    // A full frame, interfaces without a wire, and packets that are segmented.
    assert!(!hinted(&ethernet, 1500, ETHER, &[]));
    assert!(!hinted(&loopback, 20_000, ETHER, &[]));
    assert!(!hinted(&any(772), 20_000, LinkCode::LINUX_SLL, &[]));
    assert!(!hinted(&any2(772), 20_000, LinkCode::LINUX_SLL2, &[]));
    assert!(!hinted(&[2, 0, 0, 0], 20_000, LinkCode::NULL, &[]));
    assert!(!hinted(&ethernet, 20_000, ETHER, &["--segment", "1500"]));
}

/// Standard output is the file that is written, under another name: it has the capture alone.
#[test]
fn a_capture_in_standard_output_has_no_report_in_it() {
    let scratch = Scratch::new("replay-stdout");
    let (input, output) = (scratch.file("in.pcapng"), scratch.file("out.pcapng"));
    capture(&input, 10);
    for name in ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1", &output] {
        let file = fs::File::create(&output).expect("a file");
        let mut command = command(
            PACKTRAIN,
            &["replay", &input, "-o", name, "--segment", "original"],
        );
        let ended = command.stdout(file).output().expect("it runs");
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(
            ended.status.success() && told.contains("10 received"),
            "{name}: {told}"
        );
        assert_eq!(fs::read(&output).ok(), fs::read(&input).ok(), "{name}");
    }
}

/// A packet: when, and its bytes.
type Packet = (u64, Vec<u8>);

/// Segments of 40 flows, some in a row, with a pause after each hundred.
fn mixture(count: u32) -> Vec<Packet> {
    let mut at = 1_700_000_000_000_000_003;
    let mut next = [0; 40];
    (0..count)
        .map(|index| {
            at += if index % 100 == 99 { 400_000 } else { 1700 };
            let flow = (index / (1 + index % 7)) as usize * 31 % 40;
            next[flow] += 1;
            (at, segment_of(flow as u16, next[flow] - 1))
        })
        .collect()
}

/// Writes packets, of each one this many bytes at most.
fn write_cut(path: &str, packets: &[Packet], bytes: usize) {
    let interface = Interface {
        link: LinkCode::ETHERNET,
        snaplen: 0,
        name: Some("eth0"),
    };
    let mut writer = Writer::new(Vec::new(), Format::PcapNg, &[interface]).expect("a writer");
    for (at, data) in packets {
        let start = &data[..data.len().min(bytes)];
        let written = writer.write(0, *at, data.len() as u32, [start]);
        written.expect("a record");
    }
    fs::write(path, writer.finish().expect("the end")).expect("a file");
}

fn write_all(path: &str, packets: &[Packet]) {
    write_cut(path, packets, usize::MAX);
}

/// The document of a replay.
fn document(args: &[&str]) -> Value {
    ends(0, &[&["replay", "--json"], args].concat()).json()
}

/// What was found, without the settings.
fn found(mut document: Value) -> Value {
    let map = document.as_object_mut().expect("a document");
    for key in ["settings", "host"] {
        map.remove(key);
    }
    document
}

#[test]
fn a_sweep_is_what_single_runs_are() {
    let scratch = Scratch::new("replay-sweep");
    let input = scratch.file("in.pcapng");
    write_all(&input, &mixture(3000));
    let lists = [
        "--coalesce",
        "reversible,stream",
        "--mode",
        "hash,sorted",
        "--flows",
        "2,1024",
        "--hold",
        "20us,1ms",
        "--queues",
        "1,4",
        "--ack-limit",
        "1,8",
        "--gro-bytes",
        "9000",
        "--gro-packets",
        "10,1000",
    ];
    let sweep = document(&[&[&input[..]], &lists[..]].concat());
    let runs = sweep["runs"].as_array().expect("a sweep");
    // A limit of ACKs is for `stream` only.
    assert_eq!(runs.len(), 2 * 2 * 2 * 2 * 2 * (1 + 2));
    for run in runs {
        assert_documented(run, &["replay-one"]);
        let of = |key: &str| match &run["settings"][key] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let hold = format!("{}ns", of("hold_ns"));
        let [coalesce, mode, flows, queues, packets] =
            ["coalesce", "mode", "flows", "queues", "packets"].map(of);
        let mut args = vec![
            &input[..],
            "--coalesce",
            &coalesce,
            "--mode",
            &mode,
            "--flows",
            &flows,
            "--hold",
            &hold,
            "--queues",
            &queues,
            "--gro-packets",
            &packets,
            "--gro-bytes",
            "9000",
        ];
        let limit = of("ack_limit");
        if coalesce == "stream" {
            args.extend(["--ack-limit", &limit]);
        }
        let one = document(&args);
        assert_documented(&one, &["all", "replay", "replay-one"]);
        for key in ["rows", "total", "conservation", "restored", "differing"] {
            assert_eq!(one[key], run[key], "{key}: {args:?}");
        }
    }
    // They differ, or there would be nothing to compare.
    let ratios: BTreeSet<_> = runs
        .iter()
        .map(|run| run["total"]["ratio"].to_string())
        .collect();
    assert!(ratios.len() > 8, "{ratios:?}");
    let mut top = sweep.clone();
    top.as_object_mut().expect("a document").remove("runs");
    assert_documented(&top, &["all", "replay"]);

    let ran = ends(
        0,
        &[
            "replay",
            &input,
            "--flows",
            "2,1024",
            "--mode",
            "hash,sorted",
        ],
    );
    let head = ran.out.lines().find(|line| line.contains("packets out"));
    let head: Vec<_> = head.expect("a table").split_whitespace().collect();
    assert_eq!(&head[..4], ["mode", "flows", "packets", "out"], "{ran:?}");
    for start in [
        "  hash      2 ",
        "  hash  1,024 ",
        "sorted      2 ",
        "sorted  1,024 ",
    ] {
        assert!(
            ran.out.lines().any(|line| line.starts_with(start)),
            "{start}: {}",
            ran.out
        );
    }
    assert!(!ran.out.contains(" 0 %"), "{ran:?}");
    let ledgers = "ledgers of 4 configurations, 3,000 received in each: closed";
    assert!(ran.out.contains(ledgers), "{ran:?}");
    // A list of one value is one configuration.
    let ran = ends(0, &["replay", &input, "--flows", "2,2"]);
    assert!(
        ran.out
            .contains("ledger: 3,000 received = 3,000 transmitted"),
        "{ran:?}"
    );
}

#[test]
fn several_captures_are_read_as_one_in_the_order_of_time() {
    let scratch = Scratch::new("replay-several");
    let packets = mixture(2000);
    let input = scratch.file("in.pcapng");
    write_all(&input, &packets);
    let lists = ["--flows", "2,1024", "--hold", "20us,1ms"];
    let whole = found(document(&[&[&input[..]], &lists[..]].concat()));
    let mut paths: Vec<_> = (0..3)
        .map(|part| scratch.file(&format!("{part}.pcapng")))
        .collect();
    // Rotated files, one of them compressed, and files that were captured at the same time.
    for rotated in [true, false] {
        for (part, path) in paths.iter().enumerate() {
            let mine = packets
                .iter()
                .enumerate()
                .filter(|(index, _)| match rotated {
                    true => index / 700 == part,
                    false => index / 5 % 3 == part,
                });
            let mine: Vec<_> = mine.map(|(_, packet)| packet.clone()).collect();
            write_all(path, &mine);
        }
        for _ in 0..3 {
            paths.rotate_left(1);
            let names = paths.iter().map(String::as_str);
            let args: Vec<_> = names.chain(lists).collect();
            let several = document(&args);
            let inputs = several["settings"]["inputs"].as_array().expect("a list");
            let first = scratch.file("0.pcapng");
            assert_eq!((inputs.len(), &inputs[0]), (3, &first.into()), "{several}");
            assert_eq!(found(several), whole, "{rotated}");
        }
        paths.sort();
    }
}

#[test]
fn of_a_cut_capture_the_headers_count() {
    let scratch = Scratch::new("replay-headers");
    let [whole, cut, short] = ["whole", "cut", "short"].map(|name| scratch.file(name));
    let packets = mixture(2000);
    write_all(&whole, &packets);
    write_cut(&cut, &packets, 96);
    write_cut(&short, &packets, 40);
    let lists = [
        "--flows",
        "2,1024",
        "--queues",
        "1,4",
        "--coalesce",
        "reversible,stream",
    ];
    let run = |path: &str, by_headers: u64, more: &[&str]| {
        let mut json = document(&[&[path], &lists[..], more].concat());
        for run in json["runs"].as_array_mut().expect("a sweep") {
            let row = run["rows"][0].as_object_mut().expect("an interface");
            assert_eq!(row.remove("by_headers"), Some(by_headers.into()), "{row:?}");
            row.remove("captured_bytes");
        }
        json["runs"].take()
    };
    let expected = run(&whole, 0, &[]);
    assert_eq!(run(&cut, 2000, &[]), expected);
    assert_eq!(run(&cut, 2000, &["--headers-only"]), expected);
    assert_eq!(run(&whole, 2000, &["--headers-only"]), expected);
    let said = |path: &str, more: &[&str]| ends(0, &[&["replay", path], more].concat()).out;
    let note = "note: 2,000 of 2,000 packets are cut by the snapshot length and read by their \
                headers only: their checksums are taken as correct\n";
    assert!(said(&cut, &[]).contains(note));
    assert!(!said(&whole, &[]).contains("note: "));
    let forced = "note: 2,000 of 2,000 packets are read by their headers only (--headers-only)";
    assert!(said(&whole, &["--headers-only"]).contains(forced));
    let note = "2,000 packets are cut by the snapshot length before the end of their headers";
    let text = said(&short, &[]);
    assert!(text.contains(note) && text.contains("1.00:1"), "{text}");
    // Such packets are not written as others, so nothing is merged.
    let output = scratch.file("out");
    let text = said(&cut, &["-o", &output]);
    assert!(
        text.contains("such packets are not merged: capture whole"),
        "{text}"
    );
    assert_eq!(document(&[&output])["total"]["packets"], 2000);

    // The addresses were replaced, and the checksums were not.
    let mut packets = packets;
    for (_, data) in &mut packets {
        data[29] ^= 0x55;
    }
    write_all(&whole, &packets);
    let json = document(&[&whole]);
    assert_eq!(json["rows"][0]["not_taken"]["bad_checksum"], 2000, "{json}");
    let json = document(&[&whole, "--headers-only"]);
    let row = &json["rows"][0];
    assert_eq!(
        (&row["bad_checksums"], &row["by_headers"]),
        (&0.into(), &2000.into()),
        "{json}"
    );
    assert_eq!(json["total"]["emitted"], expected[2]["total"]["emitted"]);
}

/// A source, a destination, and the hash of both.
type Vector = ([u8; 4], u16, [u8; 4], u16, u32);

/// By the vectors of Microsoft's "Verifying the RSS hash calculation", in a table of 128 entries.
#[test]
fn queues_are_those_of_the_toeplitz_hash() {
    let scratch = Scratch::new("replay-queues");
    let input = scratch.file("in.pcapng");
    let vectors: [Vector; 3] = [
        (
            [66, 9, 149, 187],
            2794,
            [161, 142, 100, 80],
            1766,
            0x51cc_c178,
        ),
        (
            [199, 92, 111, 2],
            14230,
            [65, 69, 140, 83],
            4739,
            0xc626_b0ea,
        ),
        (
            [24, 19, 198, 95],
            12898,
            [12, 22, 207, 184],
            38024,
            0x5c2b_394a,
        ),
    ];
    for queues in [2_u32, 6, 8, 128] {
        let mut expected = vec![0; queues as usize];
        let mut packets = Vec::new();
        for (index, (from, source, to, destination, hash)) in vectors.into_iter().enumerate() {
            let mut packet = segment(0);
            packet[26..30].copy_from_slice(&from);
            packet[30..34].copy_from_slice(&to);
            packet[34..36].copy_from_slice(&source.to_be_bytes());
            packet[36..38].copy_from_slice(&destination.to_be_bytes());
            expected[(hash % 128 % queues) as usize] += 1 + index;
            packets.extend(vec![(1_000_000_000, packet); 1 + index]);
        }
        write_all(&input, &packets);
        let json = document(&[&input, "--headers-only", "--queues", &queues.to_string()]);
        let row = &json["rows"][0];
        let of = |queue: &Value| queue["packets"].as_u64().expect("a count") as usize;
        let got: Vec<_> = row["queues"]
            .as_array()
            .expect("queues")
            .iter()
            .map(of)
            .collect();
        assert_eq!(got, expected, "{queues}");
        let skew = *expected.iter().max().expect("a queue") as f64 * f64::from(queues) / 6.0;
        assert_eq!(row["skew"].as_f64(), Some(skew), "{row}");
    }
    // All packets of one flow are in one queue.
    capture(&input, 50);
    let ran = ends(0, &["replay", &input, "--queues", "8"]);
    let skew = "skew: 8.00 (packets of the busiest queue divided by the mean)";
    assert!(ran.out.contains(skew), "{ran:?}");
    assert!(ran.out.contains("50  100.0 %  ████"), "{ran:?}");
}

/// Delays, shares, and a clock that is coarser than `--hold`.
#[test]
fn figures_and_notes_for_analysts() {
    let scratch = Scratch::new("replay-figures");
    let input = scratch.file("in.pcapng");
    // Ten packets 1 us apart, and the window ends 1 ms after the first one.
    let mut packets: Vec<_> = (0..10)
        .map(|index| (1_000_000_000 + u64::from(index) * 1000, segment(index)))
        .collect();
    write_all(&input, &packets);
    let json = document(&[&input, "--hold", "1ms"]);
    let delay = &json["total"]["delay_ns"];
    assert_eq!(delay["max"], 1_000_000, "{json}");
    let p50 = delay["p50"].as_u64().expect("a delay");
    assert!((990_000..=1_000_000).contains(&p50), "{json}");
    assert_eq!(
        (&json["seconds"], &json["clock_step_ns"]),
        (&9e-6.into(), &1000.into())
    );

    // A pure ACK, a datagram, and one to port 443.
    let mut ack = segment(0);
    ack.truncate(54);
    ack[16..18].copy_from_slice(&40_u16.to_be_bytes());
    let datagram = |port: u16| {
        let mut packet = segment(0);
        packet[23] = 17;
        packet[36..38].copy_from_slice(&port.to_be_bytes());
        packet[38..40].copy_from_slice(&1020_u16.to_be_bytes());
        packet
    };
    packets.truncate(1);
    packets.extend([ack, datagram(53), datagram(443)].map(|packet| (2_000_000_000, packet)));
    write_all(&input, &packets);
    let ran = ends(0, &["replay", &input, "--headers-only"]);
    let shares = "of all packets 25.0 % are pure ACKs and 50.0 % UDP, 25.0 % from or to port 443";
    assert!(ran.out.contains(shares), "{ran:?}");

    let noted = |step: u64, hold: &str| {
        let packets: Vec<_> = (0..20_u64)
            .map(|index| ((1000 + index / 5) * step, segment(index as u32)))
            .collect();
        write_all(&input, &packets);
        let out = ends(0, &["replay", &input, "--hold", hold]).out;
        let note = out.lines().find(|line| line.starts_with("note: "));
        note.map(str::to_owned)
    };
    let note = "note: all times are multiples of 1 ms, and --hold is less than 10 of them: the \
                clock of the capture decides which packets are one batch";
    assert_eq!(noted(1_000_000, "9999us").as_deref(), Some(note));
    assert_eq!(noted(1_000_000, "10ms"), None);
    assert_eq!(noted(1000, "50us"), None);
    assert_eq!(noted(7, "1ns"), None);
    // In a sweep the shortest one counts.
    assert_eq!(noted(1_000_000, "9ms,10ms,100ms").as_deref(), Some(note));
    let same = "note: all packets have the same time: --hold has no effect";
    assert_eq!(noted(0, "50us"), None, "no times");
    write_all(&input, &[(5, segment(0)), (5, segment(1))]);
    let out = ends(0, &["replay", &input]).out;
    assert!(out.contains(same), "{out}");
}

#[test]
fn what_does_not_fit_together_is_a_usage_error() {
    let scratch = Scratch::new("replay-usage");
    let [a, b, fifo] = ["a.pcapng", "b.pcapng", "fifo"].map(|name| scratch.file(name));
    capture(&a, 5);
    capture(&b, 5);
    let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
    assert!(made.success());
    let out = scratch.file("out");
    let cases: &[(&[&str], &str)] = &[
        (
            &[&a, "-o", &out, "--headers-only"],
            "-o needs whole packets",
        ),
        (
            &[&a, "--segment", "1500", "--headers-only"],
            "--segment needs whole packets",
        ),
        (
            &[&a, "-o", &out, "--flows", "8,64", "--hold", "1us,2us"],
            "-o is for one configuration, and the lists are 4",
        ),
        (
            &[&a, &b, "-o", &out],
            "-o is for one input, and there are 2",
        ),
        (
            &[&a, &b, "--segment", "original"],
            "--segment is for one input, and there are 2",
        ),
        (&[&a, &a], "a.pcapng is given twice"),
        (&[&a, &fifo], "fifo is no file"),
        (&["-", &a], "- is no file"),
        (&[&a, "--flows", "8,0"], "write a number from 1 to 524288"),
        (&[&a, "--queues", "129"], "write a number from 1 to 128"),
        (&[&a, "--mode", "hash,lots"], "hash, sorted, auto"),
        (
            &[&a, "--ack-limit", "1,2"],
            "--ack-limit is for --coalesce stream",
        ),
        (
            &[&a, "--coalesce", "stream,off", "--segment", "original"],
            "--segment is for one",
        ),
    ];
    for (args, expected) in cases {
        let ran = ends(2, &[&["replay"], *args].concat());
        assert_eq!(ran.out, "", "{args:?}");
        assert!(ran.error_line().contains(expected), "{args:?}: {ran:?}");
    }
    assert!(!fs::exists(&out).expect("the folder can be read"));
    let many = (1..=33)
        .map(|n| n.to_string())
        .collect::<Vec<_>>()
        .join(",");
    let ran = ends(2, &["replay", &a, "--flows", &many, "--gro-packets", &many]);
    let expected = "the lists have 1089 combinations, more than 1024";
    assert!(ran.error_line().contains(expected), "{ran:?}");
}

/// In every build; tests/parquet.rs is for one with Parquet.
#[test]
fn parquet_is_an_option_of_every_build() {
    let help = ends(0, &["replay", "--help"]).out;
    assert!(
        help.contains("--parquet <DIR>") && help.contains("--dataset <NAME>"),
        "{help}"
    );
    let scratch = Scratch::new("replay-no-parquet");
    let [input, out] = ["in.pcapng", "out"].map(|name| scratch.file(name));
    capture(&input, 5);
    let ran = ends(2, &["replay", &input, "--dataset", "some"]);
    assert!(ran.error_line().contains("of --parquet DIR"), "{ran:?}");
    if cfg!(not(feature = "parquet")) {
        let ran = ends(2, &["replay", &input, "--parquet", &out]);
        assert_eq!(
            ran.error_line(),
            "--parquet: this build has no Parquet: build with `cargo build --release -p \
             packtrain-cli --features parquet`"
        );
        assert!(!fs::exists(&out).expect("the folder can be read"));
    }
}

#[test]
fn a_file_that_fails_in_a_sweep_is_named() {
    let scratch = Scratch::new("replay-broken");
    let names = ["first.pcapng", "cut.pcapng", "text", "gone"];
    let [first, cut, text, gone] = names.map(|name| scratch.file(name));
    let packets = mixture(900);
    write_all(&first, &packets[..400]);
    write_all(&cut, &packets[400..]);
    let bytes = fs::read(&cut).expect("the capture");
    fs::write(&cut, &bytes[..bytes.len() - 10]).expect("a file");
    fs::write(&text, "this is not a capture").expect("a file");
    let lists = ["--flows", "2,1024", "--json"];
    let ran = ends(4, &[&["replay", &cut, &first][..], &lists].concat());
    assert!(ran.error_line().contains("cut.pcapng"), "{ran:?}");
    for run in ran.json()["runs"].as_array().expect("a sweep") {
        assert_eq!(run["total"]["packets"], 899, "{run}");
        assert_eq!(run["conservation"]["closed"], true, "{run}");
    }
    for (path, expected) in [
        (&text, "neither a pcap nor a pcapng"),
        (
            &gone,
            "No such file or directory (os error 2); check the path; a capture to write is",
        ),
    ] {
        let ran = ends(4, &[&["replay", &first, path][..], &lists].concat());
        assert_eq!(ran.out, "");
        let line = ran.error_line();
        assert!(
            line.contains(&path[..]) && line.contains(expected),
            "{ran:?}"
        );
    }
}
