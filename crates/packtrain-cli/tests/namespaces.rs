//! Runs with TAP interfaces, each in a network namespace of its own.

mod program;

use packtrain_lab::harness::wait_quiet;
use program::{
    AWAIT, PACKTRAIN, Scratch, assert_documented, command, finish, in_namespace, interrupted,
    namespaced, scripted, start, wait_for_line,
};
use std::time::Duration;

#[test]
fn two_taps_are_made_and_removed_again() {
    let Some(way) = in_namespace() else { return };
    let args = [
        "forward",
        "tap:pta",
        "tap:ptb,segs=3",
        "--duration",
        "3s",
        "--json",
    ];
    let ran = finish(namespaced(&way, &args));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("pta: link is down"), "{ran:?}");
    let document = ran.json();
    assert_documented(&document, &["all", "forward", "plan"]);
    assert_eq!(document["conservation"]["closed"], true);
    let segments = &document["plan"]["ports"]["ptb"]["tx_segments"];
    assert_eq!(
        (&segments["effective"], &segments["advertised"]),
        (&3.into(), &2.into())
    );
    assert_eq!(document["plan"]["ports"]["pta"]["rx"], "pieces(1792)");
    assert!(document["ports"]["pta"]["device"]["tx_dropped"].is_u64());
}

/// A run of two TAPs fits a screen of 24 lines.
#[test]
fn a_run_of_two_taps_is_one_screen() {
    let Some(way) = in_namespace() else { return };
    let source = "null:source,count=1000";
    let runs = [
        ["forward", "tap:pta", "tap:ptb,offload=off"],
        ["forward", source, "tap:ptb"],
    ];
    for run in runs {
        let args = [&run[..], &["--duration", "2s"]].concat();
        let ran = finish(namespaced(&way, &args));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let said = format!("{}{}", ran.err, ran.out);
        assert!(said.lines().count() <= 24, "{said}");
        assert!(!said.contains("not needed"), "{said}");
        if run[1] == source {
            let lost = "link_down         1,000  the link of the egress port was down: for an \
                        interface ip link set NAME up\n";
            assert!(ran.out.contains(lost), "{said}");
        } else {
            let there = "pta -> ptb: in software: checksums, TSO, USO \
                         (ptb: switched off by offload=)\n";
            let back = "ptb -> pta: in software: merging of TCP, UDP (pta accepts large packets)\n";
            assert!(ran.err.starts_with(&format!("{there}{back}")), "{said}");
        }
    }
}

#[test]
fn the_plan_of_two_taps() {
    let Some(way) = in_namespace() else { return };
    let plan = |a: &str, b: &str| {
        let ran = finish(namespaced(&way, &["plan", a, b, "--json"]));
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
        ran.json()
    };
    let document = plan("tap:pta", "tap:ptb,offload=csum");
    assert_documented(&document, &["all", "plan"]);
    let there = &document["plan"]["directions"][0];
    assert_eq!(
        (&there["from"], &there["to"]),
        (&"pta".into(), &"ptb".into())
    );
    assert_eq!(there["offloads"]["tso4"]["who"], "software");
    assert_eq!(there["offloads"]["ipv4-checksum"]["who"], "device");
    let back = &document["plan"]["directions"][1]["offloads"];
    assert_eq!(back["tso4"]["who"], "not_needed");
    let ran = finish(namespaced(&way, &["plan", "tap:pta", "tun:ptb"]));
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

#[test]
fn a_removed_interface_ends_the_run_with_4() {
    let Some(way) = in_namespace() else { return };
    let script = format!(
        "{AWAIT}
        \"$0\" forward tap:pta tap:ptb -q --json & run=$!
        await joined
        ip link set pta up && ip link delete pta; wait $run"
    );
    let ran = scripted(&way, &script);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(
        ran.err.contains("packtrain: pta: the device was removed"),
        "{ran:?}"
    );
    let document = ran.json();
    assert_eq!(document["run"]["ended"], "failure");
    let error = "pta: the device was removed; with gone=wait the run goes on until it is back";
    assert_eq!(document["run"]["error"], error);
    assert_eq!(document["conservation"]["closed"], true);
}

/// As the same user without privileges but those that are kept: one interface is made again by
/// packtrain, the other one by the script.
#[test]
fn with_gone_wait_a_removed_interface_comes_back_in_the_run() {
    let Some(way) = in_namespace() else { return };
    let script = format!(
        "{AWAIT}
        make() {{
            ip link add near0 mtu $1 type veth peer name far0 mtu $1 &&
            ip link set near0 up && ip link set far0 up
        }}
        is_promiscuous() {{ ip -d link show near0 | grep -q 'promiscuity 1 '; }}
        make 1500
        \"$0\" forward tap:pta,gone=wait packet:near0,queues=2,gone=wait --json & run=$!
        await joined; await is_promiscuous
        ip link delete near0; make 9000; await is_promiscuous
        before=$(cat /sys/class/net/pta/ifindex)
        ip link set pta up; ip link delete pta
        await '[ $(cat /sys/class/net/pta/ifindex) != $before ]'
        sleep 1.5; kill -INT $run; wait $run"
    );
    let ran = scripted(&way, &script);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document = ran.json();
    assert_documented(&document, &["all", "forward", "plan"]);
    assert_eq!(document["conservation"]["closed"], true);
    let changes = document["run"]["changes"]["last"].as_array();
    let changes = changes.expect("a list");
    let (mtus, ends): (Vec<_>, Vec<_>) = changes.iter().partition(|change| change["what"] == "mtu");
    let queues: Vec<_> = mtus
        .iter()
        .filter_map(|mtu| mtu["queue"].as_u64())
        .collect();
    assert!(queues.contains(&0), "{ran:?}");
    for mtu in mtus {
        assert_eq!(mtu["port"], "near0", "{ran:?}");
        assert_eq!(mtu["why"], "its MTU is 9000 now", "{ran:?}");
    }
    let mut ends: Vec<_> = ends
        .iter()
        .filter(|change| {
            !change["why"]
                .as_str()
                .is_some_and(|why| why.starts_with("it cannot"))
        })
        .map(|change| (change["port"].as_str(), change["what"].as_str()))
        .collect();
    // Of each port in their order: a port may go while the other is on its way back.
    ends.sort_by_key(|(port, _)| *port);
    let of = |port, what| (Some(port), Some(what));
    let expected = [
        of("near0", "gone"),
        of("near0", "back"),
        of("pta", "gone"),
        of("pta", "back"),
    ];
    assert_eq!(ends, expected, "{ran:?}");
    for line in [
        "near0: the device was removed; packets for it are dropped until it is back",
        "near0: the device is back",
        "pta: the device is back",
    ] {
        assert!(ran.err.contains(line), "{line} in {ran:?}");
    }
}

/// A TAP and a veth, ended by a signal that no program can handle, and again: the interface keeps
/// nothing of the first run.
#[test]
fn a_packet_port_that_is_killed_leaves_nothing() {
    let Some(way) = in_namespace() else { return };
    let script = format!(
        "{AWAIT}
        ip link add near0 type veth peer name far0 && ip link set near0 up && ip link set far0 up
        is_promiscuous() {{ ip -d link show near0 | grep -q 'promiscuity 1 '; }}
        is_not() {{ ip -d link show near0 | grep -q 'promiscuity 0 '; }}
        for end in KILL INT; do
            \"$0\" forward tap:pta packet:near0,queues=2 -q --json & run=$!
            await joined; await is_promiscuous
            kill -$end $run; wait $run; code=$?; await is_not
        done
        exit $code"
    );
    let ran = scripted(&way, &script);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document = ran.json();
    assert_eq!(document["run"]["ended"], "signal");
    assert_eq!(document["conservation"]["closed"], true);
    let plan = &document["plan"]["directions"][0];
    assert_eq!(plan["offloads"]["tso4"]["who"], "device", "{plan}");
    assert!(document["ports"]["near0"]["device"]["rx_packets"].is_u64());
}

/// As that, with a program on the interface, also on one that is made again.
#[test]
fn an_xdp_port_that_is_killed_leaves_nothing() {
    let Some(way) = in_namespace() else { return };
    let script = format!(
        "{AWAIT}
        make() {{
            ip link add near0 type veth peer name far0 &&
            ip link set near0 up && ip link set far0 up
        }}
        make
        \"$0\" plan null: xdp:near0,mode=copy >/dev/null || exit 3
        is_attached() {{ ip -d link show near0 | grep -q 'prog/xdp '; }}
        is_not() {{ ! is_attached && ip -d link show near0 | grep -q 'promiscuity 0 '; }}
        for end in KILL INT; do
            \"$0\" forward tap:pta xdp:near0,mode=copy,gone=wait -q --json & run=$!
            await joined; await is_attached
            ip link delete near0; make; await is_attached
            kill -$end $run; wait $run; code=$?; await is_not
        done
        exit $code"
    );
    let ran = scripted(&way, &script);
    if ran.code == Some(3) {
        println!("SKIP: no XDP program can be loaded here: {}", ran.err);
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document = ran.json();
    assert_eq!(document["run"]["ended"], "signal");
    assert_eq!(document["conservation"]["closed"], true);
    let plan = &document["plan"]["directions"][0];
    assert_eq!(plan["offloads"]["tso4"]["who"], "software", "{plan}");
    assert_eq!(plan["offloads"]["ipv4-checksum"]["who"], "device", "{plan}");
    assert!(document["ports"]["near0"]["device"]["rx_packets"].is_u64());
}

#[test]
fn each_change_of_a_link_is_printed_once() {
    let Some(way) = in_namespace() else { return };
    let scratch = Scratch::new("link-news");
    let said = scratch.file("said");
    let script = format!(
        "{AWAIT}
        \"$0\" forward tap:pta tap:ptb -q 2>'{said}' & run=$!
        count() {{ [ $(grep -c \"$1\" '{said}') = $2 ]; }}
        await count \"'pta: link is down'\" 1; ip link set pta up
        await count \"'pta: link is up'\" 1; ip link set pta down
        await count \"'pta: link is down'\" 2; kill -INT $run; wait $run; code=$?
        cat '{said}' >&2; exit $code"
    );
    let ran = scripted(&way, &script);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let said = |text: &str| ran.err.matches(text).count();
    assert_eq!(said("pta: link is down"), 2, "{ran:?}");
    assert_eq!(said("until it is up (ip link set pta up)"), 2, "{ran:?}");
    assert_eq!(said("pta: link is up"), 1, "{ran:?}");
    assert_eq!(said("ptb: link is down"), 1, "{ran:?}");
    assert_eq!(said("ptb: link is up"), 0, "{ran:?}");
}

#[test]
fn two_taps_without_traffic_let_the_workers_sleep() {
    let Some(way) = in_namespace() else { return };
    let mut child = namespaced(&way, &["forward", "tap:pta", "tap:ptb"]);
    wait_for_line(&mut child, "ptb: link is down");
    wait_quiet(child.id());
    interrupted(child, "INT");
}

#[test]
fn the_demo_has_a_row_for_every_transfer_and_closes() {
    let ran = program::packtrain(&["demo", "--seconds", "0.05", "--seed", "7", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document = ran.json();
    assert_documented(&document, &["all", "demo"]);
    assert_eq!(document["seed"], 7);
    assert_eq!(document["conservation"]["closed"], true);
    let rows = document["rows"].as_array().expect("rows");
    for setting in ["none", "csum", "full"] {
        for protocol in ["tcp", "udp"] {
            for direction in ["a_to_b", "b_to_a"] {
                let of = |row: &&serde_json::Value| {
                    row["setting"] == setting
                        && row["protocol"] == protocol
                        && row["direction"] == direction
                };
                let found: Vec<_> = rows.iter().filter(of).collect();
                assert!(!found.is_empty(), "{setting} {protocol} {direction}");
                assert!(found.iter().all(|row| row["hash_ok"] == true), "{found:?}");
            }
        }
    }
    assert!(rows.iter().all(|row| row["experiment"] == "demo"));
}

#[test]
fn an_interrupted_demo_ends_soon_and_without_failure() {
    let mut child = start(&mut command(PACKTRAIN, &["demo", "--seconds", "5"]));
    wait_for_line(&mut child, "");
    std::thread::sleep(Duration::from_millis(300));
    let ran = interrupted(child, "INT");
    // The whole demo takes two minutes.
    assert!(ran.out.contains("stopped early"), "{ran:?}");
}

#[test]
fn a_stream_has_the_documented_keys() {
    let times = ["--duration", "300ms", "--warm-up", "100ms"];
    let loads: [&[&str]; 4] = [
        &["--tso", "off", "--check"],
        &["--direction", "both", "--through", "veth"],
        &["--exchange", "1,1", "--ipv6"],
        &[
            "--protocol",
            "udp",
            "--rate",
            "10M",
            "--direction",
            "b-to-a",
        ],
    ];
    for load in loads {
        let args = [&["stream", "--json"], &times[..], load].concat();
        let ran = program::packtrain(&args);
        if ran.code == Some(3) {
            println!("SKIP: {}", ran.err);
            continue;
        }
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let document = ran.json();
        assert_documented(&document, &["all", "testbed", "stream"]);
        let row = &document["rows"][0];
        assert_eq!(row["experiment"], "stream");
        assert!(row["seconds"].as_f64() >= Some(0.2), "{row}");
        if row["through"] == "packtrain" {
            assert_eq!(document["conservation"]["closed"], true);
        }
    }
}

#[test]
fn a_stream_fits_a_screen_and_its_errors_a_line() {
    let stream = |args: &[&str]| {
        let times = ["stream", "--duration", "300ms", "--warm-up", "0"];
        program::packtrain(&[&times[..], args].concat())
    };
    let ran = stream(&[]);
    if ran.code == Some(3) {
        println!("SKIP: {}", ran.err);
        return;
    }
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    for text in ["goodput ", "bottleneck: ", "forwarder ", "TcpExtTCPHPHits "] {
        assert!(ran.out.contains(text), "{text}: {ran:?}");
    }
    assert!(ran.out.lines().count() <= 24, "{}", ran.out);
    assert!(ran.out.lines().all(|line| line.len() <= 100), "{}", ran.out);
    for (args, code, text) in [
        (["--rate", "1M"], 2, "--rate is for udp"),
        (["--rate", "fast"], 2, "--rate cannot be 'fast'"),
        (["--warm-up", "290ms"], 2, "--duration cannot be '300ms'"),
        (["--mss", "1461"], 4, "mss 1461 did not take"),
    ] {
        let ran = match args[0] {
            "--warm-up" => {
                program::packtrain(&[&["stream", "--duration", "300ms"], &args[..]].concat())
            }
            _ => stream(&args),
        };
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.error_line().contains(text), "{ran:?}");
    }
}

#[test]
fn a_demo_without_tun_says_so_and_runs_in_memory() {
    let hidden = "mount -t tmpfs none /dev/net && exec \"$0\" demo --seconds 0.05 --json";
    let run = |options| {
        let words = [options, "sh", "-c", hidden, PACKTRAIN];
        command("unshare", &words).spawn().map(finish)
    };
    let ran = [run("-m"), run("-Urm")]
        .into_iter()
        .flatten()
        .find(|ran| !ran.out.is_empty() || ran.err.contains("packtrain: "));
    let Some(ran) = ran else {
        println!("SKIP: no mount namespace can be made here to hide /dev/net/tun in");
        return;
    };
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.err.matches('\n').count(), 1, "{ran:?}");
    let document = ran.json();
    assert_documented(&document, &["all", "demo"]);
    assert_eq!(document["world"]["kind"], "sim");
    let reason = document["world"]["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("/dev/net/tun") && ran.err.contains(reason),
        "{ran:?}"
    );
    assert_eq!(document["conservation"]["closed"], true);
    let rows = document["rows"].as_array().expect("rows");
    assert!(rows.len() >= 12 && rows.iter().all(|row| row["hash_ok"] == true));
}
