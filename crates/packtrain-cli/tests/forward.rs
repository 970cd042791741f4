//! `packtrain forward` without any privilege.

mod program;

use program::{
    PACKTRAIN, Scratch, TIMEOUT, assert_documented, command, ends, finish, interrupted, packtrain,
    signal, start, wait_for_line,
};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

/// Every received packet was transmitted, and the other terms of the ledger are 0.
fn assert_moved(document: &Value, packets: u64) {
    let account = &document["conservation"];
    assert_eq!(account["received"], packets, "{account}");
    assert_eq!(account["transmitted"], packets, "{account}");
    for zero in [
        "generated",
        "expanded",
        "delivered",
        "held",
        "absorbed",
        "dropped",
    ] {
        assert_eq!(account[zero], 0, "{zero} in {account}");
    }
    assert_eq!(account["closed"], true);
    assert_eq!(document["drops"], json!({}));
}

#[test]
fn a_counted_source_ends_by_itself_with_exact_counts() {
    let ran = packtrain(&[
        "forward",
        "null:source,count=12345,flows=7",
        "null:",
        "--json",
    ]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    let document = ran.json();
    assert_moved(&document, 12_345);
    assert_eq!(document["schema"], "packtrain/1");
    assert_eq!(document["command"], "forward");
    assert_eq!(document["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document["run"]["ended"], "end");
    assert_eq!(document["run"]["error"], Value::Null);
    // Two ports of one name are called by kind and index.
    let ports = &document["ports"];
    assert_eq!(ports["null0"]["rxq00"]["packets"], 12_345);
    assert_eq!(ports["null0"]["rxq00"]["bytes"], 12_345 * 60);
    assert_eq!(ports["null1"]["txq00"]["packets"], 12_345);
    assert_eq!(ports["null1"]["rxq00"]["packets"], 0);
    assert_eq!(ports["null1"]["device"]["rx_packets"], 12_345);
}

#[test]
fn the_documents_have_exactly_the_documented_keys() {
    let forward = packtrain(&[
        "forward",
        "null:source,count=100,queues=2,flows=2",
        "null:queues=2",
        "--json",
    ]);
    let document = forward.json();
    assert_documented(&document, &["all", "forward", "plan"]);
    assert!(document["ports"]["null0"]["rxq01"]["packets"].is_u64());
    let plan = packtrain(&["plan", "null:", "sim:segs=8", "--json"]);
    let document = plan.json();
    assert_documented(&document, &["all", "plan"]);
    assert!(document["plan"]["directions"][0]["coalesce"].is_null());
    // Merging pays for an egress with descriptors, and not for a sink.
    let document = packtrain(&["plan", "null:source,coalesce=hash", "sim:segs=8", "--json"]).json();
    assert_documented(&document, &["all", "plan"]);
    let [there, back] = [0, 1].map(|way| &document["plan"]["directions"][way]);
    assert_eq!(there["coalesce"]["setting"], "hash");
    assert_eq!(there["coalesce"]["segments"], 7);
    assert_eq!(there["offloads"]["large-receive"]["who"], "software");
    assert!(back["coalesce"].is_null());
}

/// A frame for an address that no host has shown goes to each other port.
#[test]
fn three_ports_are_a_bridge() {
    let folder = Scratch::new("bridge");
    let [one, two] = ["one.pcap", "two.pcap"].map(|name| folder.file(name));
    let [one, two] = [&one, &two].map(|path| format!("pcap:{path},write"));
    let source = "null:source,count=1000,flows=3";
    let document = ends(0, &["forward", source, &one, &two, "--json"]).json();
    assert_documented(&document, &["all", "forward", "plan"]);
    let account = &document["conservation"];
    assert_eq!(account["received"], 1000);
    assert_eq!(account["expanded"], 1000);
    assert_eq!(account["transmitted"], 2000);
    assert_eq!(account["closed"], true);
    assert_eq!(document["drops"], json!({}));
    assert_eq!(document["run"]["addresses"], 1);
    for name in ["one.pcap", "two.pcap"] {
        assert_eq!(document["ports"][name]["txq00"]["packets"], 1000);
        assert_eq!(document["plan"]["paths"][name]["kind"], "shared");
    }
    let directions = document["plan"]["directions"].as_array().expect("a list");
    let ways: Vec<_> = directions
        .iter()
        .map(|way| [&way["from"], &way["to"]])
        .collect();
    assert_eq!(
        ways[..3],
        [
            ["null0", "one.pcap"],
            ["null0", "two.pcap"],
            ["one.pcap", "null0"]
        ]
    );
    assert_eq!(ways.len(), 6);
    // From one capture to two others: the bytes are the same.
    let copies =
        ["copy.pcap", "other.pcap"].map(|name| format!("pcap:{},write", folder.file(name)));
    let read = one.replace(",write", "");
    let ran = ends(
        0,
        &["forward", &read, &copies[0], &copies[1], "--aging", "10s"],
    );
    let out = &ran.out;
    assert!(out.contains("port        packets in  packets out"), "{out}");
    assert!(
        out.contains("1,000 received + 1,000 expanded = 2,000 transmitted: closed"),
        "{out}"
    );
    assert!(out.contains("addresses known at the end: 1\n"), "{out}");
    assert!(
        ran.err
            .contains("bridging one.pcap, copy.pcap, other.pcap; it detects no loop")
    );
    let bytes = |name: &str| std::fs::read(folder.file(name)).expect("a file");
    assert!(bytes("copy.pcap") == bytes("other.pcap"));
    assert!(bytes("copy.pcap") == bytes("one.pcap"));
}

#[test]
fn drops_are_named() {
    let source = "null:source,count=1000,drop=0.5,seed=3";
    let document = ends(0, &["forward", source, "null:", "--json"]).json();
    assert_documented(&document, &["all", "forward", "plan"]);
    let lost = document["drops"]["fault_injected"].as_u64().expect("drops");
    assert!((300..700).contains(&lost), "{lost}");
    let account = &document["conservation"];
    assert_eq!(account["received"], 1000);
    assert_eq!(account["dropped"], lost);
    assert_eq!(account["transmitted"], 1000 - lost);
    let ports = &document["ports"];
    assert_eq!(ports["null0"]["faults"]["dropped"], lost);
    let without = ports["null1"].as_object().expect("a port");
    assert_eq!(without.get("faults"), Some(&Value::Null));
}

/// S0: 9000 bytes in small frames are six segments, which do not collapse into four.
#[test]
fn fit_and_headroom_decide_what_a_short_list_costs() {
    let run = |keys: &str| {
        let sink = format!("sim:segs=4{keys}");
        let source = "null:source,bytes=9000,count=1000";
        ends(0, &["forward", source, &sink, "--json"]).json()
    };
    let dropped = run(",fit=collapse");
    assert_eq!(dropped["drops"]["too_many_segments"], 1000);
    assert_eq!(dropped["conservation"]["closed"], true);
    let queue = &dropped["ports"]["sim0"]["txq00"];
    assert_eq!(
        (&queue["collapse_failed"], &queue["defrag_failed"]),
        (&1000.into(), &0.into())
    );
    let copied = run(",headroom=0");
    assert_eq!(copied["drops"], json!({}));
    assert_eq!(copied["ports"]["sim0"]["txq00"]["defrag"], 1000);
    let segments = &copied["plan"]["ports"]["sim0"]["tx_segments"];
    assert_eq!(
        (&segments["advertised"], &segments["headroom"]),
        (&4.into(), &0.into())
    );
    assert_eq!(segments["fit"], "defrag");
}

/// The plan has the limits in force, and the run shows their effect.
#[test]
fn limits_of_merging_are_read_back_and_in_force() {
    let limits = |keys: &str| {
        let source = format!("null:source,proto=tcp,count=2000,flows=16{keys}");
        let document = ends(0, &["forward", &source, "sim:", "--json"]).json();
        assert_documented(&document, &["all", "forward", "plan"]);
        let how = document["plan"]["directions"][0]["coalesce"].clone();
        let read = |key: &str| how[key].clone();
        let read = ["flows", "bytes_max", "packets", "inactive", "hold_us"].map(read);
        let more = ["flush", "id", "ack_limit", "rx_pause"].map(|key| how[key].clone());
        (
            json!([read, more]),
            document["ports"]["null0"]["rxq00"].clone(),
        )
    };
    let (usual, queue) = limits("");
    assert_eq!(
        usual,
        json!([
            [1024, 65_535, 1024, true, 200],
            ["off", "atomic", null, null]
        ])
    );
    assert_eq!(queue["gro_flush"]["evict"], 0);
    let (few, queue) =
        limits(",coalesce=hash,gro-flows=8,gro-bytes=9000,gro-packets=64,gro-id=exact");
    assert_eq!(
        few,
        json!([[8, 9000, 64, true, 200], ["off", "exact", null, null]])
    );
    let evicted = queue["gro_flush"]["evict"].as_u64().expect("a count");
    assert!(evicted > 1000, "{queue}");
    let keys = "coalesce=stream,gro-packets=8,ack-limit=3,gro-inactive=off";
    let (all, queue) = limits(&format!(",{keys},gro-flush=packets(7),rx-pause=5"));
    assert_eq!(
        all,
        json!([[8, 65_280, 8, false, null], ["packets(7)", "atomic", 3, 5]])
    );
    assert!(queue["pauses"].as_u64() > Some(0), "{queue}");

    let keys = "coalesce=stream,gro-inactive=off,gro-flush=usecs(50),ack-limit=3,rx-pause=5";
    let ran = packtrain(&["plan", &format!("null:source,{keys}"), "sim:"]);
    let line = "at most 1024 packets of 1024 flows held; ack-limit=3; gro-flush=usecs(50); \
                rx-pause=5; ";
    assert!(ran.out.contains(line), "{}", ran.out);
}

/// The source sends from port 1024.
#[test]
fn packets_of_a_further_tunnel_are_not_merged() {
    for (keys, count) in [("", 0), (",tunnel-ports=7471+1024", 500)] {
        let source = format!("null:source,count=500,coalesce=on{keys}");
        let run = ends(0, &["forward", &source, "sim:", "--json"]).json();
        let queue = &run["ports"]["null0"]["rxq00"];
        assert_eq!(queue["gro_passed"]["tunnel"], count, "{queue}");
        assert_eq!(queue["gro_packets"] == 0, count > 0, "{queue}");
    }
    let plan = ["plan", "null:source,coalesce=on,tunnel-ports=7471", "sim:"];
    let out = ends(0, &plan).out;
    assert!(out.contains("; tunnel-ports=7471; "), "{out}");
}

/// A packet of 65,549 bytes is 129 pieces of 512 bytes. Three fit behind one another in a frame, so
/// 43 segments remain.
#[test]
fn short_pieces_are_merged_or_copied() {
    let run = |keys: &str| {
        let sink = format!("sim:rings=4096{keys}");
        let source = "null:source,bytes=65549,count=500,rx=pieces(512)";
        let document = ends(0, &["forward", source, &sink, "--json"]).json();
        assert_eq!(document["conservation"]["closed"], true);
        document
    };
    let counts = |document: &Value| {
        let queue = &document["ports"]["sim0"]["txq00"];
        ["collapse", "collapse_failed", "defrag", "defrag_failed"].map(|name| queue[name].clone())
    };
    let merged = run(",segs=43");
    assert_eq!(counts(&merged), [500, 0, 0, 0].map(Value::from));
    assert_eq!(merged["plan"]["ports"]["null0"]["rx"], "pieces(512)");
    assert_eq!(counts(&run(",segs=42")), [0, 500, 500, 0].map(Value::from));
    let dropped = run(",segs=42,fit=collapse");
    assert_eq!(counts(&dropped), [0, 500, 0, 0].map(Value::from));
    assert_eq!(dropped["drops"]["too_many_segments"], 500);
    assert_eq!(counts(&run(",segs=129")), [0; 4].map(Value::from));
}

#[test]
fn the_keys_of_a_nic_in_memory_are_read_back_and_act() {
    let run = |source: &str, sink: &str| {
        let document = ends(0, &["forward", source, sink, "--json"]).json();
        assert_eq!(document["conservation"]["closed"], true);
        document
    };
    let source = "null:source,count=10000";
    let bad = run(source, "sim:far=echo,flow-control=on,bad-descriptors=10");
    let queue = &bad["ports"]["sim0"]["rxq00"];
    let count = |name: &str| queue[name].as_u64().expect("a counter");
    let received = count("packets") + count("bad_packets");
    assert!(received > 1000, "{queue}");
    assert_eq!(count("bad_packets"), received / 10);
    assert_eq!(bad["drops"]["bad_descriptor"], count("bad_packets"));
    let notes = bad["plan"]["notes"].to_string();
    assert!(notes.contains("1 of 10 packets that arrive"), "{notes}");
    // Eight packets before each doorbell, and seven buffers.
    let lost = |keys: &str| {
        let sink = format!("sim:far=echo,rings=8{keys}");
        let document = run(source, &sink);
        document["ports"]["sim0"]["device"]["tx_dropped"].as_u64()
    };
    assert!(lost("") > Some(0));
    assert_eq!(lost(",flow-control=on"), Some(0));
    let gso = "null:source,proto=tcp,flows=1,count=10000";
    let packets = |keys: &str, limit: u64| {
        let document = run(gso, &format!("sim:{keys}"));
        let segments = &document["plan"]["ports"]["sim0"]["tx_segments"];
        assert_eq!(segments["gso_device"], limit);
        document["ports"]["sim0"]["txq00"]["packets"].as_u64()
    };
    assert!(packets("gso-segs=4", 4) >= Some(10_000 / 3));
    assert!(packets("", 40) < Some(10_000 / 3));
    // Long enough for some changes of the link.
    let args = [
        "forward",
        "null:source",
        "sim:flap=5ms",
        "--duration",
        "1s",
        "--json",
    ];
    let flap = packtrain(&args).json();
    assert_eq!(flap["conservation"]["closed"], true);
    assert!(flap["drops"]["link_down"].as_u64() > Some(0));
    assert!(flap["ports"]["sim0"]["txq00"]["packets"].as_u64() > Some(0));
}

/// The counts are compared with those of the other port's queue.
#[test]
fn faults_are_counted_also_within_other_wrappers() {
    let scratch = Scratch::new("faults");
    let capture = scratch.file("all.pcapng");
    let faults = "duplicate=0.25,corrupt=0.25,reorder=0.25,seed=5";
    let source = format!("null:source,count=1000,{faults},capture={capture}");
    let document = ends(0, &["forward", &source, "null:", "--json"]).json();
    let count = |name: &str| {
        let count = &document["ports"]["null0"]["faults"][name];
        count.as_u64().expect("a count")
    };
    for name in ["duplicated", "corrupted", "reordered"] {
        assert!((150..350).contains(&count(name)), "{name}: {}", count(name));
    }
    assert_eq!((count("dropped"), count("delayed")), (0, 0));
    let got = document["ports"]["null1"]["txq00"]["packets"].as_u64();
    assert_eq!(got, Some(1000 + count("duplicated")));
    let text = packtrain(&["forward", &source, "null:", "--verbose"]);
    let line = |name: &str| {
        let line = text.out.lines().find(|line| line.starts_with(name));
        line.expect("a row").to_owned()
    };
    assert!(line("duplicated").ends_with(&count("duplicated").to_string()));
    assert!(line("corrupted").ends_with(&count("corrupted").to_string()));
    assert!(line("delayed").ends_with(" 0"));
    let (duplicated, corrupted) = (count("duplicated"), count("corrupted"));
    let line = format!(
        "faults injected into packets from null0: {duplicated} duplicated, {corrupted} corrupted, \
         {} reordered\n",
        count("reordered")
    );
    assert!(text.out.contains(&line), "{line}: {}", text.out);
}

#[test]
fn a_capture_is_copied_packet_by_packet() {
    let scratch = Scratch::new("copy");
    let [first, second] = ["first.pcapng", "second.pcap"].map(|name| scratch.file(name));
    let made = packtrain(&[
        "forward",
        "null:source,count=500,bytes=1514",
        &format!("pcap:{first},write"),
        "--json",
    ]);
    assert_moved(&made.json(), 500);
    let read = format!("pcap:{first}");
    let document = ends(
        0,
        &["forward", &read, &format!("pcap:{second},write"), "--json"],
    )
    .json();
    assert_moved(&document, 500);
    let ports = &document["ports"];
    assert_eq!(ports["first.pcapng"]["rxq00"]["bytes"], 500 * 1514);
    assert_eq!(ports["second.pcap"]["txq00"]["bytes"], 500 * 1514);
    let again = packtrain(&["forward", &format!("pcap:{second}"), "null:", "--json"]);
    assert_moved(&again.json(), 500);
}

/// The times that a capture has, in nanoseconds since 1970.
fn times(path: &str) -> Vec<Option<u64>> {
    times_of(std::fs::File::open(path).expect("the file"))
}

fn times_of(input: impl Read) -> Vec<Option<u64>> {
    let mut reader = packtrain_capture::Reader::new(input).expect("a capture");
    let mut times = Vec::new();
    while let Some(record) = reader.next_record().expect("a whole file") {
        times.push(record.timestamp_ns);
    }
    times
}

/// Writes a capture of frames with their times.
fn write(path: &str, frames: impl IntoIterator<Item = (u64, [u8; 60])>) {
    let interface = packtrain_capture::Interface {
        link: packtrain_capture::LinkCode::ETHERNET,
        snaplen: 0,
        name: None,
    };
    let format = packtrain_capture::Format::PcapNg;
    let writer = packtrain_capture::Writer::new(Vec::new(), format, &[interface]);
    let mut writer = writer.expect("a writer");
    for (at, frame) in frames {
        writer.write(0, at, 0, [frame]).expect("a record");
    }
    std::fs::write(path, writer.finish().expect("the end")).expect("a file");
}

#[test]
fn a_copy_of_a_capture_has_its_times() {
    let scratch = Scratch::new("copy-times");
    let [from, to] = ["from.pcapng", "to.pcap"].map(|name| scratch.file(name));
    let expected = [0, 1_700_000_000_123_456_789, 1_600_000_000_000_000_001];
    write(&from, expected.map(|at| (at, [2; 60])));
    let (a, b) = (format!("pcap:{from}"), format!("pcap:{to},write"));
    let copied = packtrain(&["forward", &a, &b, "--json"]);
    assert_moved(&copied.json(), 3);
    assert_eq!(times(&to), expected.map(Some));
}

/// The program gives the bridge the bound of a port.
#[test]
fn a_port_of_a_bridge_has_a_bound_of_addresses() {
    let scratch = Scratch::new("addresses");
    let file = scratch.file("many.pcap");
    let frame = |number| std::array::from_fn(|at| [2, 0, 0, 0, 1, number][at % 6]);
    write(&file, (0..10).map(|number| (0, frame(number))));
    for (keys, known) in [("", 10), (",addresses=3", 3)] {
        let port = format!("pcap:{file}{keys}");
        let document = ends(0, &["forward", &port, "null:", "null:", "--json"]).json();
        assert_eq!(document["run"]["addresses"], known);
    }
}

/// The file is a pipe whose reader reads only the beginning.
#[test]
fn a_capture_that_stops_is_reported_and_costs_no_packet() {
    let scratch = Scratch::new("capture-stops");
    let pipe = scratch.file("pipe.pcapng");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || {
            let mut file = std::fs::File::open(pipe).expect("the pipe");
            file.read_exact(&mut [0; 1000]).expect("a header and more");
        }
    });
    let port = format!("null:capture={pipe}");
    let source = "null:source,count=1000,bytes=1514";
    let ran = packtrain(&["forward", source, &port, "--json", "--quiet"]);
    reader.join().expect("it read");
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let document = ran.json();
    assert_moved(&document, 1000);
    let error = document["run"]["error"].as_str().expect("a sentence");
    assert!(error.contains("the capture stopped"), "{error}");
    assert!(ran.err.contains(error), "{ran:?}");
    assert_eq!(document["run"]["ended"], "end");
}

/// The run ends within its bound, and what the pipe does not have is counted.
#[test]
fn a_pipe_that_is_not_read_ends_no_later() {
    let scratch = Scratch::new("full-pipe");
    let pipe = scratch.file("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    for (ports, capture) in [
        (
            ["null:source".to_owned(), format!("pcap:{pipe},write")],
            false,
        ),
        (
            [
                "null:source,queues=2".to_owned(),
                format!("pcap:{pipe},write,tx=shared"),
            ],
            false,
        ),
        (
            ["null:source".to_owned(), format!("null:capture={pipe}")],
            true,
        ),
    ] {
        // Open for both, so that it has a reader and the start does not wait for one.
        let reader = std::fs::File::options().read(true).write(true).open(&pipe);
        let reader = reader.expect("the pipe");
        let ran = packtrain(&[
            "forward",
            &ports[0],
            &ports[1],
            "--duration",
            "200ms",
            "--json",
        ]);
        drop(reader);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let document = ran.json();
        assert_eq!(document["run"]["ended"], "duration");
        assert_eq!(document["conservation"]["closed"], true);
        let dropped = document["drops"]["shutdown"].as_u64().unwrap_or(0);
        assert_eq!(dropped > 0, !capture, "{ran:?}");
        assert_eq!(
            ran.err.contains("records are not in the capture"),
            capture,
            "{ran:?}"
        );
    }
}

#[test]
fn a_count_is_exact() {
    for queues in ["1", "4"] {
        let source = format!("null:source,queues={queues},flows=4");
        let sink = format!("null:queues={queues}");
        let document = ends(0, &["forward", &source, &sink, "--count", "1001", "--json"]).json();
        assert_moved(&document, 1001);
        assert_eq!(document["run"]["ended"], "end");
    }
}

#[test]
fn a_duration_is_kept() {
    let start = Instant::now();
    let args = [
        "forward",
        "null:source",
        "null:",
        "--duration",
        "300ms",
        "--json",
    ];
    let ran = packtrain(&args);
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document = ran.json();
    assert_eq!(document["run"]["ended"], "duration");
    let seconds = document["run"]["seconds"].as_f64().expect("seconds");
    assert!(seconds >= 0.3, "{seconds}");
    let received = document["conservation"]["received"]
        .as_u64()
        .expect("received");
    assert!(received > 0);
    assert_moved(&document, received);
}

#[test]
fn signals_end_a_run_in_good_order_also_when_inherited_as_ignored() {
    for name in ["INT", "TERM", "HUP"] {
        for ignored in [false, true] {
            // nohup(1) has SIGHUP ignored on purpose.
            if ignored && name == "HUP" {
                continue;
            }
            let run = "exec \"$0\" forward null:source null: --json --stats-interval 50ms";
            let script = if ignored {
                format!("trap '' INT TERM; {run}")
            } else {
                run.to_owned()
            };
            // The tests may run under nohup(1).
            let args = ["--default-signal=HUP", "sh", "-c", &script, PACKTRAIN];
            let mut child = start(&mut command("env", &args));
            wait_for_line(&mut child, "\"interval\"");
            signal(&child, name);
            let ran = finish(child);
            assert_eq!(ran.code, Some(0), "{name}, ignored {ignored}: {ran:?}");
            let document = ran.json();
            assert_eq!(document["run"]["ended"], "signal");
            let received = document["conservation"]["received"].as_u64();
            let received = received.expect("received");
            assert!(received > 0);
            assert_moved(&document, received);
        }
    }
}

/// Intervals with `--json` are JSON lines that add up to what SIGUSR1 asks for, with the reasons of
/// drops. A SIGHUP that nohup(1) has ignored ends nothing.
#[test]
fn statistics_and_totals_of_a_run_that_goes_on_have_reasons() {
    let run = "trap '' HUP; exec \"$0\" forward null:source,drop=0.5,seed=3 null: \"$@\"";
    let with = |more: &[&str]| {
        let args = [&["-c", run, PACKTRAIN, "--stats-interval", "50ms"], more].concat();
        let mut child = start(&mut command("sh", &args));
        let stderr = child.stderr.take().expect("it is captured");
        (child, BufReader::new(stderr).lines().map_while(Result::ok))
    };
    let (child, mut lines) = with(&["--json"]);
    let mut sum = (0, 0);
    for _ in 0..3 {
        let line: Value = serde_json::from_str(&lines.next().expect("a line")).expect("JSON");
        assert_documented(&line, &["interval"]);
        assert_eq!(
            (&line["kind"], &line["command"]),
            (&"interval".into(), &"forward".into())
        );
        sum.0 += line["drops"]["fault_injected"].as_u64().unwrap_or(0);
        sum.1 += line["ports"]["null1"]["tx_wire_packets"]
            .as_u64()
            .expect("a count");
    }
    assert!(sum.0 > 0 && sum.1 > 0, "{sum:?}");
    signal(&child, "HUP");
    signal(&child, "USR1");
    let totals = lines
        .find(|line| line.contains("\"totals\""))
        .expect("totals");
    let totals: Value = serde_json::from_str(&totals).expect("JSON");
    assert_documented(&totals, &["interval"]);
    assert!(
        totals["drops"]["fault_injected"].as_u64() >= Some(sum.0),
        "{totals}"
    );
    assert_eq!(totals["seconds"], totals["interval_seconds"]);
    let rest = std::thread::spawn(move || lines.for_each(drop));
    let document = interrupted(child, "TERM").json();
    rest.join().expect("it is read");
    let moved = document["conservation"]["transmitted"].as_u64();
    assert!(
        moved >= totals["ports"]["null1"]["tx_wire_packets"].as_u64(),
        "{totals}"
    );
    let (child, mut lines) = with(&["-q"]);
    let reason = |line: &String| line.contains("; dropped ") && line.contains(": fault_injected ");
    assert!(lines.any(|line| reason(&line)));
    signal(&child, "USR1");
    assert!(lines.any(|line| line.starts_with("fault_injected ")));
    assert!(lines.any(|line| line.starts_with("ledger so far (wire packets): ")));
    assert!(lines.any(|line| reason(&line)), "the run goes on");
    let rest = std::thread::spawn(move || lines.for_each(drop));
    assert!(interrupted(child, "INT").out.contains(": closed"));
    rest.join().expect("it is read");
}

#[test]
fn a_run_without_input_says_so_and_ends_at_once_after_a_signal() {
    let mut child = start(&mut command(PACKTRAIN, &["forward", "null:", "null:"]));
    wait_for_line(&mut child, "neither port has any input");
    let asked = Instant::now();
    let ran = interrupted(child, "INT");
    assert!(asked.elapsed() < TIMEOUT, "{ran:?}");
    assert!(
        ran.out
            .contains("ledger (wire packets): 0 received = 0 transmitted: closed"),
        "{ran:?}"
    );
}

#[test]
fn people_get_a_line_for_each_direction_first_and_the_totals_last() {
    let ran = ends(0, &["forward", "null:source,count=1000", "null:"]);
    assert_eq!(
        ran.err,
        "null0 -> null1: in software: nothing\n\
         null1 -> null0: in software: nothing\n\
         note: null0: makes UDP datagrams of 60 bytes; flows: 1\n\
         forwarding between null0 and null1; Ctrl-C ends it\n"
    );
    let lines: Vec<_> = ran.out.lines().collect();
    let words =
        |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    assert!(lines[0].starts_with("direction"), "{}", ran.out);
    let there = ["null0", "->", "null1", "1,000", "1,000", "1,000", "60,000"];
    assert_eq!(words(lines[1])[..7], there, "{}", ran.out);
    let back = ["null1", "->", "null0", "0", "0", "0", "0", "0", "0.000"];
    assert_eq!(words(lines[2]), back, "{}", ran.out);
    let end = [
        "",
        "lost by packtrain: nothing",
        "ledger (wire packets): 1,000 received = 1,000 transmitted: closed",
    ];
    assert_eq!(lines[4..], end, "{}", ran.out);
    let quiet = packtrain(&["forward", "null:source,count=1000", "null:", "-q"]);
    assert_eq!(quiet.err, "");
}

#[test]
fn verbose_adds_the_whole_plan_and_every_counter() {
    let ran = ends(
        0,
        &["forward", "null:source,count=1000", "null:", "--verbose"],
    );
    for text in ["ipv4-checksum  not needed", "large-receive", "workers: 0: "] {
        assert!(ran.err.contains(text), "{text} in {}", ran.err);
    }
    for text in ["null0, received", "null1, transmitted", "budget_exhausted"] {
        assert!(ran.out.contains(text), "{text} in {}", ran.out);
    }
    // The totals stay first.
    assert!(ran.out.starts_with("direction"), "{}", ran.out);
}

/// Each line has the offloads with one cause together, and what packtrain merges.
#[test]
fn a_direction_says_what_is_done_in_software_and_why() {
    let first_line = |a: &str, b: &str| {
        let ran = ends(0, &["plan", a, b]);
        ran.out.lines().next().expect("a line").to_owned()
    };
    assert_eq!(
        first_line("null:source", "sim:"),
        "null0 -> sim0: in software: merging of TCP, UDP (sim0 accepts large packets)"
    );
    assert_eq!(
        first_line("null:source", "sim:offload=tso4"),
        "null0 -> sim0: in software: merging of TCP/IPv4 (sim0 accepts large packets)"
    );
}

#[test]
fn a_loss_has_its_reason_in_words() {
    let ran = ends(
        0,
        &["forward", "null:source,count=1000,drop=1", "null:", "-q"],
    );
    let line = "fault_injected         1,000  dropped on request (drop=)\n";
    assert!(ran.out.contains(line), "{}", ran.out);
    let line = "ledger (wire packets): 1,000 received = 0 transmitted + 1,000 dropped: closed\n";
    assert!(ran.out.ends_with(line), "{}", ran.out);
}

/// Packets that a reset took back and that were sent again.
#[test]
fn the_totals_have_the_wire_packets_of_the_ledger() {
    let ran = ends(
        0,
        &[
            "forward",
            "null:source,count=300,coalesce=off",
            "sim:hang",
            "-q",
        ],
    );
    let row = ran.out.lines().nth(1).expect("a row");
    let words: Vec<_> = row.split_whitespace().collect();
    assert_eq!(
        words[..6],
        ["null0", "->", "sim0", "300", "600", "300"],
        "{row}"
    );
    assert!(
        ran.out.contains("300 received = 300 transmitted"),
        "{}",
        ran.out
    );
}

#[test]
fn statistics_come_when_asked_for() {
    let run = ["forward", "null:source", "null:", "-q"];
    let quiet = packtrain(&[&run[..], &["--duration", "1200ms"]].concat());
    assert_eq!(quiet.err, "");
    let asked = [&run[..], &["--stats-interval", "50ms"]].concat();
    let (begin, mut child) = (Instant::now(), start(&mut command(PACKTRAIN, &asked)));
    let mut lines = BufReader::new(child.stderr.take().expect("it is captured")).lines();
    for number in 1..=5 {
        let line = lines.next().expect("a line").expect("text");
        assert!(begin.elapsed() >= number * Duration::from_millis(50));
        assert!(line.contains("null0 -> null1"), "{line}");
        assert!(
            line.contains("wire packets/s") && line.contains("Gbit/s"),
            "{line}"
        );
    }
    signal(&child, "INT");
    lines.for_each(drop);
    assert_eq!(finish(child).code, Some(0));
}

#[test]
fn a_file_that_ends_in_the_middle_of_a_packet_is_accounted_for() {
    let scratch = Scratch::new("cut");
    let (whole, cut) = (scratch.file("whole.pcapng"), scratch.file("cut.pcapng"));
    let made = format!("pcap:{whole},write");
    packtrain(&["forward", "null:source,count=10", &made, "-q"]);
    let bytes = std::fs::read(&whole).expect("the file was written");
    std::fs::write(&cut, &bytes[..bytes.len() - 7]).expect("a file");
    let ran = packtrain(&["forward", &format!("pcap:{cut}"), "null:", "--json"]);
    let document = ran.json();
    assert_eq!(document["conservation"]["closed"], true);
    assert_eq!(document["conservation"]["transmitted"], 9);
    assert!([Some(0), Some(4)].contains(&ran.code), "{ran:?}");
}

/// The reported faults of a port's device.
fn troubles<'a>(document: &'a Value, port: &str) -> &'a Value {
    &document["ports"][port]["txq00"]["troubles"]
}

#[test]
fn a_device_that_hangs_is_reported_and_reset_and_loses_no_packet() {
    let ran = ends(
        0,
        &[
            "forward",
            "null:source,count=300,coalesce=off",
            "sim:hang",
            "--json",
        ],
    );
    let document = ran.json();
    assert_documented(&document, &["all", "forward", "plan"]);
    let account = &document["conservation"];
    assert_eq!(
        (&account["received"], &account["transmitted"]),
        (&300.into(), &300.into())
    );
    let queue = &document["ports"]["sim0"]["txq00"];
    assert_eq!(
        (&queue["hangs"], &queue["resets"]),
        (&1.into(), &1.into()),
        "{queue}"
    );
    let trouble = &troubles(&document, "sim0")[0];
    assert_eq!(trouble["cause"], "hangs");
    assert_eq!(trouble["was_reset"], true);
    assert_eq!(
        (&trouble["in_flight"], &trouble["in_flight_bytes"]),
        (&300.into(), &18_000.into())
    );
    let still = trouble["still_seconds"].as_f64().expect("seconds");
    let at = trouble["at_seconds"].as_f64().expect("seconds");
    assert!(still >= 1.0 && at >= still, "{trouble}");
    // One sentence: the fault, for how long, the packets, what was done, what to do.
    let expected = format!(
        "sim0: txq00: the device has packets and completes none, for {still:.1} s: \
         300 packets (18000 bytes) in flight, 0 wire packets waiting; the queue was reset and \
         sends again what the device had not sent; if this recurs, suspect the device or its \
         driver\n"
    );
    assert_eq!(ran.err, expected);
    // A healthy device is not reported.
    let ran = packtrain(&[
        "forward",
        "null:source,count=300,coalesce=off",
        "sim:",
        "--json",
    ]);
    assert_eq!(ran.err, "");
    assert_eq!(*troubles(&ran.json(), "sim0"), serde_json::json!([]));
}

#[test]
fn a_lost_wake_up_of_a_device_is_reported_and_costs_no_packet() {
    let source = "null:source,count=300,coalesce=off";
    let sink = "sim:lose-wakeups=4096,completion-delay=5reclaims";
    // A worker that had no CPU when it should have polled takes the wake-up for late. Then the run
    // is made again.
    let runs = (0..20).map(|_| {
        let ran = ends(0, &["forward", source, sink, "--idle", "halt", "--json"]);
        assert_eq!(ran.json()["conservation"]["transmitted"], 300);
        ran
    });
    let ran = { runs }.find(|ran| !ran.err.is_empty());
    let ran = ran.expect("no wake-up was reported as lost");
    let document = ran.json();
    let trouble = &troubles(&document, "sim0")[0];
    assert_eq!(trouble["cause"], "missed_wakeups", "{document}");
    assert_eq!(trouble["was_reset"], false);
    let said = "a wake-up of the device was lost, and polling found its work";
    assert_eq!(ran.err.matches(said).count(), 1, "{}", ran.err);
    assert!(ran.err.contains("a poll collected them"), "{}", ran.err);
}

/// The CPUs that thread `packtrain-0` of a process may use, in the kernel's notation.
fn cpus_of_the_worker(process: u32) -> Option<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let statuses = tasks.flatten().map(|task| {
        let status = task.path().join("status");
        std::fs::read_to_string(status).unwrap_or_default()
    });
    let worker = |status: &String| status.starts_with("Name:\tpacktrain-0\n");
    cpus_in(&statuses.into_iter().find(worker)?)
}

fn cpus_in(status: &str) -> Option<String> {
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

/// Also a worker that never sleeps.
#[test]
fn a_worker_runs_on_the_cpu_of_the_list() {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let own = cpus_in(&status).expect("a list");
    let last = own.rsplit([',', '-']).next().expect("a CPU");
    for input in ["null:source", "null:"] {
        let list = format!("list({last})");
        let args = ["forward", input, "null:", "--placement", &list, "--json"];
        let child = start(&mut command(PACKTRAIN, &args));
        let start = Instant::now();
        while cpus_of_the_worker(child.id()).as_deref() != Some(last) {
            assert!(start.elapsed() < TIMEOUT, "{input}: not on CPU {last}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let ran = interrupted(child, "TERM");
        let document = ran.json();
        let last: u64 = last.parse().expect("a number");
        assert_eq!(document["settings"]["cpus"][0], last);
        let placement = &document["run"]["placement"];
        assert_eq!(placement["cpus"][0], last);
        assert_eq!(placement["why"], "as listed");
    }
}

/// The sum of a counter over all workers of a run.
fn of_all_workers(document: &Value, counter: &str) -> u64 {
    let workers = document["run"]["workers"].as_array().expect("workers");
    let counts = workers.iter().map(|worker| worker[counter].as_u64());
    counts.map(|count| count.expect("a count")).sum()
}

#[test]
fn a_tx_worker_drains_a_shared_queue_and_an_owned_one_has_no_ring() {
    let run = |more: &[&str]| {
        let run = ["forward", "null:source,count=1000000"];
        let document = ends(0, &[&run, more, &["--json"]].concat()).json();
        assert_moved(&document, 1_000_000);
        document
    };
    let path = |document: &Value| {
        let path = &document["plan"]["paths"]["sim0"];
        let words = ["kind", "dispatch", "why"];
        words.map(|word| path[word].as_str().expect("a word").to_owned())
    };
    let packets = |document: &Value| {
        let queue = &document["ports"]["sim0"]["txq00"];
        queue["packets"].as_u64().expect("packets")
    };

    let shared = run(&["sim:", "--dispatch", "deferred"]);
    let why = "dispatch=deferred: the TX worker drains";
    assert_eq!(path(&shared), ["shared", "deferred", why]);
    let workers = shared["run"]["workers"].as_array().expect("workers");
    let parts = serde_json::json!(["TX queue 0 of null0", "TX queue 0 of sim0"]);
    let drains = |worker: &&Value| worker["parts"] == parts;
    let worker = workers.iter().find(drains).expect("a TX worker");
    assert_eq!(shared["plan"]["workers"][1], parts);
    assert_eq!(worker["drained"], packets(&shared), "{worker}");
    assert!(worker["wakeups"].as_u64() > Some(0), "{worker}");
    let queue = &shared["ports"]["sim0"]["txq00"];
    assert!(queue["deferred"].as_u64() > Some(0), "{queue}");
    assert_eq!(queue["direct"], 0, "{queue}");

    let owned = run(&["sim:", "--dispatch", "direct"]);
    let why = "dispatch=direct, and one RX worker feeds each queue";
    assert_eq!(path(&owned), ["owned", "direct", why]);
    let parts = serde_json::json!([["RX of null0, pair 0", "RX of sim0, pair 0"]]);
    assert_eq!(owned["plan"]["workers"], parts);
    assert_eq!(of_all_workers(&owned, "drained"), 0);
    let queue = &owned["ports"]["sim0"]["txq00"];
    for ring in ["direct", "deferred", "ring_full", "abdications", "wakeups"] {
        assert_eq!(queue[ring], 0, "{ring} in {queue}");
    }

    // A single producer that finds the ring idle drains it; the TX worker then drains no packet.
    let asked = run(&["sim:tx=shared", "--dispatch", "direct"]);
    assert_eq!(path(&asked), ["shared", "direct", "tx=shared"]);
    let queue = &asked["ports"]["sim0"]["txq00"];
    assert!(queue["direct"].as_u64() > Some(0), "{queue}");
    let drained = of_all_workers(&asked, "drained");
    assert!(drained < packets(&asked), "{drained} of {queue}");
}

#[test]
fn the_plan_has_a_line_for_each_port_and_one_for_the_workers() {
    let ports = ["null:queues=2,handover=packet", "sim:queues=2,tx=shared"];
    let ran = ends(0, &[&["plan"], &ports[..]].concat());
    for line in [
        "TX of null0: shared (handover=packet), packet by packet\n",
        "TX of sim0: shared (tx=shared)\n",
        "\nworkers: 0: ",
        "\nmemory for packets: at most ",
    ] {
        assert_eq!(ran.out.matches(line).count(), 1, "{line}: {}", ran.out);
    }
}

/// Memory is allocated when packets need it, and not for each queue at the start: a saturated port
/// with the most queues uses less than a tenth of what `plan` allows.
#[test]
fn as_many_queues_as_there_can_be_use_little_memory() {
    let ports = ["null:source,queues=256", "null:queues=256"];
    let plan = ends(0, &[&["plan"], &ports[..]].concat());
    let at_most = number_after(&plan.out, "memory for packets: at most ") << 20;
    let run = [
        &["forward"],
        &ports[..],
        &["--stats-interval", "50ms", "--json"],
    ]
    .concat();
    let mut child = start(&mut command(PACKTRAIN, &run));
    wait_for_line(&mut child, "\"interval\"");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    // The greatest resident memory until now, in KiB.
    let resident = number_after(&status.expect("it runs"), "VmHWM:") << 10;
    let ran = interrupted(child, "INT");
    let document = ran.json();
    assert_eq!(document["conservation"]["closed"], true, "{document}");
    let queues = document["ports"]["null0"].as_object().expect("a port");
    let rx = queues.keys().filter(|key| key.starts_with("rxq"));
    assert_eq!(rx.count(), 256);
    assert!(resident < at_most / 10, "{resident} of {at_most} bytes");
}

/// The number that follows `label` in a text.
fn number_after(text: &str, label: &str) -> u64 {
    let (_, rest) = text.split_once(label).unwrap_or_else(|| panic!("{text}"));
    let number = rest.split_whitespace().next().expect("a number");
    number.parse().unwrap_or_else(|_| panic!("{number}"))
}

/// The first stall of a device that a TX worker drains happens when the process cannot open another
/// descriptor.
#[test]
fn a_run_goes_on_without_a_descriptor_that_is_free() {
    let mut child = start(&mut command(
        PACKTRAIN,
        &[
            "forward",
            "null:source,count=1000,coalesce=off,delay=2s",
            "sim:rate=2000,rings=8",
            "--dispatch",
            "deferred",
            "--stats-interval",
            "50ms",
            "--json",
        ],
    ));
    wait_for_line(&mut child, "\"interval\"");
    let folder = format!("/proc/{}/fd", child.id());
    let open = || {
        let fds = std::fs::read_dir(&folder).expect("the run goes on");
        let numbers = fds.flatten().map(|fd| fd.file_name().into_string());
        numbers.flatten().count()
    };
    let limit = open() as u64;
    let free = (0..).find(|fd| !std::path::Path::new(&format!("{folder}/{fd}")).exists());
    let free = free.expect("a number");
    assert!(free <= limit, "{free} and {limit}");
    let limits = rustix::process::Rlimit {
        current: Some(free),
        maximum: Some(free),
    };
    let pid = rustix::process::Pid::from_child(&child);
    let of_files = rustix::process::Resource::Nofile;
    rustix::process::prlimit(Some(pid), of_files, limits).expect("a limit");
    let ran = finish(child);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document = ran.json();
    assert_moved(&document, 1000);
    assert_eq!(document["run"]["error"], Value::Null);
    assert_eq!(document["run"]["ended"], "end");
    let queue = &document["ports"]["sim0"]["txq00"];
    assert!(queue["stalls"].as_u64() > Some(0), "{queue}");
}

/// Standard output is a file that a port writes: totals go to standard error.
#[test]
fn a_capture_in_standard_output_has_no_totals_in_it() {
    let scratch = Scratch::new("forward-stdout");
    let output = scratch.file("out.pcapng");
    for name in ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1", &output] {
        for (a, b) in [
            ("null:source,count=5", format!("pcap:{name},write")),
            ("null:source,count=5", format!("null:capture={name}")),
        ] {
            let file = std::fs::File::create(&output).expect("a file");
            let mut command = std::process::Command::new(PACKTRAIN);
            let ended = command.args(["forward", a, &b, "--json"]).stdout(file);
            let ended = ended.output().expect("it runs");
            let told = String::from_utf8_lossy(&ended.stderr);
            assert!(
                ended.status.success() && told.contains("\"conservation\""),
                "{b}: {told}"
            );
            let input = std::fs::File::open(&output).expect("the file");
            let mut reader = packtrain_capture::Reader::new(input).expect("a capture");
            while reader.next_record().expect("a whole file").is_some() {}
            assert_eq!(reader.records(), 5, "{b}");
        }
    }
}

/// `sent` packets are in the file, and the others have their reason.
#[track_caller]
fn assert_lost(document: &Value, port: &str, sent: u64) {
    let sums = &document["conservation"];
    assert_eq!(sums["closed"], true, "{sums}");
    assert_eq!(
        (&sums["transmitted"], &sums["held"]),
        (&sent.into(), &0.into()),
        "{sums}"
    );
    assert_eq!(
        document["drops"]["device_reset"], sums["dropped"],
        "{document}"
    );
    assert!(sums["dropped"].as_u64() > Some(0), "{sums}");
    let queue = &document["ports"][port]["txq00"];
    let [packets, back] = ["wire_packets", "taken_back"].map(|key| queue[key].as_u64());
    assert_eq!(
        packets.zip(back).map(|(packets, back)| packets - back),
        Some(sent),
        "{queue}"
    );
}

#[test]
fn a_full_disk_costs_the_packets_that_are_not_in_the_file() {
    let scratch = Scratch::new("forward-full");
    let disk = scratch.file("disk");
    std::fs::create_dir(&disk).expect("a folder");
    // The copy stays when the namespace with the disk has ended.
    let script = "mount -t tmpfs -o size=64k none \"$1\" && cd \"$1\" && shift || exit 99
        \"$@\"; code=$?; cp out.* ..; exit $code";
    let is_root = rustix::process::geteuid().is_root();
    let space = if is_root { "-m" } else { "-rm" };
    for (name, port) in [
        ("out.pcapng", "pcap:out.pcapng,write"),
        ("out.pcap", "pcap:out.pcap,write"),
        ("out.pcapng", "null:capture=out.pcapng"),
    ] {
        let args = [space, "sh", "-c", script, "sh", &disk, PACKTRAIN, "forward"];
        let args = [
            &args[..],
            &["null:source,count=5000", port, "--json", "--quiet"],
        ]
        .concat();
        let ran = finish(start(&mut command("unshare", &args)));
        if ran.code == Some(99) || ran.err.starts_with("unshare:") {
            println!("SKIP: no file system can be mounted here: {ran:?}");
            return;
        }
        assert_eq!(ran.code, Some(4), "{ran:?}");
        assert!(ran.err.contains("No space left"), "{ran:?}");
        // Its last record is whole.
        let sent = times(&scratch.file(name)).len() as u64;
        assert!(sent > 10, "{sent}");
        if port.starts_with("pcap:") {
            let document = ran.json();
            assert_eq!(document["run"]["ended"], "failure");
            assert_lost(&document, name, sent);
        }
    }
}

/// As in tcpdump, `-` is standard input and output, also behind `>>`.
#[test]
fn a_dash_is_standard_input_and_output() {
    let scratch = Scratch::new("forward-dash");
    let script = "\"$0\" forward null:source,count=5 pcap:-,write |
            \"$0\" forward pcap:- pcap:-,write > once
        \"$0\" forward pcap:- null:capture=- < once > twice
        \"$0\" forward pcap:once pcap:-,write,format=pcapng >> twice
        \"$0\" forward pcap:- pcap:-,write < once 1<> once || echo $?
        ls";
    let mut sh = command(
        "sh",
        &[
            "-ec",
            &format!("cd {}; {script}", scratch.file("")),
            PACKTRAIN,
        ],
    );
    let ran = finish(start(&mut sh));
    assert_eq!(ran.out, "2\nonce\ntwice\n", "{ran:?}");
    let refused = "/dev/stdin is named twice, and writing empties it; name another file";
    assert!(ran.err.contains(refused), "{ran:?}");
    assert_eq!(ran.err.matches("ledger (wire").count(), 4, "{ran:?}");
    let [once, twice] = ["once", "twice"].map(|name| times(&scratch.file(name)));
    assert_eq!((once.len(), twice.len()), (5, 10));
    assert_eq!(twice[5..], once);
}

/// Non-blocking, it would be so for all programs that have it.
#[test]
fn a_socket_as_standard_input_or_output_stays_blocking() {
    use std::os::fd::OwnedFd;
    let scratch = Scratch::new("forward-socket");
    let file = scratch.file("file");
    ends(
        0,
        &[
            "forward",
            "null:source,count=5",
            &format!("pcap:{file},write"),
        ],
    );
    let pair = || std::os::unix::net::UnixStream::pair().expect("two sockets");
    let ((mut to, input), (from, output)) = (pair(), pair());
    to.write_all(&std::fs::read(file).expect("a capture"))
        .expect("it has room");
    drop(to);
    let ran = |args: &[&str]| {
        let of = |socket: &std::os::unix::net::UnixStream| {
            OwnedFd::from(socket.try_clone().expect("a descriptor"))
        };
        let mut sockets = command(PACKTRAIN, args);
        finish(start(sockets.stdin(of(&input)).stdout(of(&output))))
    };
    let copied = ran(&["forward", "pcap:-", "pcap:-,write"]);
    // A socket that is not read ends a run no later.
    let captured = ran(&["forward", "null:source,count=100000,capture=-", "null:"]);
    assert_eq!(
        (copied.code, captured.code),
        (Some(0), Some(0)),
        "{copied:?} {captured:?}"
    );
    assert!(
        captured.err.contains("records are not in the capture"),
        "{captured:?}"
    );
    for socket in [&input, &output] {
        let flags = rustix::fs::fcntl_getfl(socket).expect("its flags");
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "{flags:?}");
    }
    drop(output);
    let mut reader = packtrain_capture::Reader::new(from).expect("a capture");
    for _ in 0..5 {
        assert!(reader.next_record().expect("a record").is_some());
    }
}

#[test]
fn standard_output_has_one_writer_and_a_missing_input_does_not_wait_for_a_reader() {
    let scratch = Scratch::new("forward-writers");
    let script = "mkfifo fifo
        \"$0\" forward null:source,count=5,capture=- pcap:-,write > file || echo $? >> codes
        (\"$0\" forward null:source,count=5 pcap:-,write,capture=- || echo $? >> codes) | cat
        \"$0\" forward pcap:missing.pcap pcap:fifo,write || echo $? >> codes
        cat codes";
    let script = format!("cd {}; {script}", scratch.file(""));
    let ran = finish(start(&mut command("sh", &["-ec", &script, PACKTRAIN])));
    assert_eq!(ran.out, "2\n2\n4\n", "{ran:?}");
    let lines: Vec<_> = ran.err.lines().collect();
    assert_eq!(lines.len(), 3, "{ran:?}");
    let twice = ["named twice, and writing empties it", "is written twice"];
    let wanted = [twice[0], twice[1], "missing.pcap"];
    assert!(
        lines
            .iter()
            .zip(wanted)
            .all(|(line, wanted)| line.contains(wanted)),
        "{ran:?}"
    );
}

#[test]
fn a_fifo_without_a_reader_is_named_and_ends_with_the_duration_or_a_signal() {
    let scratch = Scratch::new("forward-fifo");
    let fifo = scratch.file("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo").success());
    let waits = format!("waiting for a program that reads {fifo}\n");
    let port = format!("pcap:{fifo},write");
    let capture = format!("null:capture={fifo}");
    for port in [&port, &capture] {
        let ran = packtrain(&["forward", "null:source", port, "--duration", "1ms"]);
        assert_eq!(ran.code, Some(4), "{ran:?}");
        let rest = ran.err.strip_prefix(&waits).expect("it waits");
        assert!(
            rest.contains("within --duration; start the reader first"),
            "{rest}"
        );
        let quiet = [
            "forward",
            "null:source",
            port,
            "--duration",
            "1ms",
            "--quiet",
        ];
        assert_eq!(packtrain(&quiet).err, rest);
    }
    let forward = ["forward", "null:source", &port];
    let replay = ["replay", "-", "-o", &fifo];
    for (args, code) in [(&forward[..], 0), (&replay, 4)] {
        let input = scratch.file("in.pcap");
        packtrain(&[
            "forward",
            "null:source,count=1",
            &format!("pcap:{input},write"),
        ]);
        let input = std::fs::File::open(input).expect("a capture");
        let mut child = start(command(PACKTRAIN, args).stdin(input));
        wait_for_line(&mut child, &waits);
        signal(&child, "INT");
        assert_eq!(finish(child).code, Some(code));
    }
    // A reader that comes later gets everything.
    let source = ["forward", "null:source,count=5", &port, "--duration", "60s"];
    let mut child = start(&mut command(PACKTRAIN, &source));
    wait_for_line(&mut child, &waits);
    assert_eq!(times(&fifo).len(), 5);
    assert_eq!(finish(child).code, Some(0));
}

/// The other end of all is one thread, which opens them one by one.
#[test]
fn fifos_are_opened_in_any_order() {
    let scratch = Scratch::new("forward-order");
    let [file, input, output, copy] = ["file", "in", "out", "copy"].map(|name| scratch.file(name));
    let fifos = [&input, &output, &copy];
    let made = std::process::Command::new("mkfifo").args(fifos).status();
    assert!(made.expect("mkfifo").success());
    ends(
        0,
        &[
            "forward",
            "null:source,count=5",
            &format!("pcap:{file},write"),
        ],
    );
    let bytes = std::fs::read(file).expect("a capture");
    let (a, b) = (
        format!("pcap:{input}"),
        format!("pcap:{output},write,capture={copy}"),
    );
    let forward = ["forward", &a, &b, "--duration", "60s"];
    let replay = ["replay", &input, "-o", &output, "--coalesce=off"];
    let orders: [([&str; 5], &[usize]); 6] = [
        (forward, &[0, 1, 2]),
        (forward, &[1, 0, 2]),
        (forward, &[1, 2, 0]),
        (forward, &[2, 1, 0]),
        (replay, &[0, 1]),
        (replay, &[1, 0]),
    ];
    for (args, order) in orders {
        let peer = std::thread::spawn({
            let order: Vec<_> = order.iter().map(|index| fifos[*index].clone()).collect();
            let (bytes, input) = (bytes.clone(), input.clone());
            move || {
                let mut outputs = Vec::new();
                for path in order {
                    let mut options = std::fs::File::options();
                    if path == input {
                        let mut fifo = options.write(true).open(path).expect("a FIFO");
                        fifo.write_all(&bytes).expect("it has room");
                    } else {
                        outputs.push(options.read(true).open(path).expect("a FIFO"));
                    }
                }
                outputs.into_iter().map(times_of).collect::<Vec<_>>()
            }
        });
        // The peer of a run that waits for the wrong FIFO waits for ever.
        let ran = packtrain(&args);
        assert_eq!(ran.code, Some(0), "{order:?}: {ran:?}");
        let outputs = peer.join().expect("it read the captures");
        assert_eq!(outputs.len() + 1, order.len());
        assert!(outputs.iter().all(|times| times.len() == 5), "{outputs:?}");
    }
}

/// Two writers would corrupt a file.
#[test]
fn a_capture_has_one_writer() {
    let scratch = Scratch::new("forward-lock");
    let output = scratch.file("out.pcapng");
    let other = std::fs::File::create(&output).expect("a file");
    other.lock().expect("as another program does");
    let port = format!("pcap:{output},write");
    let ran = ends(4, &["forward", "null:source,count=5", &port]);
    assert!(
        ran.err.contains("another program or port writes to it"),
        "{ran:?}"
    );
}
