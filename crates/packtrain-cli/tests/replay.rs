//! `packtrain replay` as a user runs it.

mod program;

use packtrain_capture::{Format, Interface, LinkCode, Writer};
use program::{
    PACKTRAIN, Ran, Scratch, assert_documented, command, ends, finish, packtrain, signal, start,
};
use std::fs;
use std::io::{Read, Write};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// A TCP segment of 1000 bytes over IPv4 and Ethernet, with checksums computed by a plain loop.
fn segment(index: u32) -> Vec<u8> {
    let mut packet = vec![0; 14 + 40 + 1000];
    packet[12..14].copy_from_slice(&[8, 0]);
    let length = 1040_u16.to_be_bytes();
    packet[14..18].copy_from_slice(&[0x45, 0, length[0], length[1]]);
    packet[18..20].copy_from_slice(&(index as u16).to_be_bytes());
    packet[20..24].copy_from_slice(&[0x40, 0, 64, 6]);
    packet[26..34].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
    packet[34..38].copy_from_slice(&[0x13, 0x88, 0x01, 0xbb]);
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
