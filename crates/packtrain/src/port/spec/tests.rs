//! Every key, every rule, and two properties: no string panics, and printed specs parse back.

use super::*;
use crate::driver::{Coalesce, Fit, QueueConfig, RxBuffers};
use crate::limits::{QUEUES_MAX, SEGMENTS_MAX};
use crate::policy::dispatch::Dispatch;
use crate::policy::gro::{Flush, Gro};
use crate::policy::moderation::Moderation;
use crate::port::null::Protocol;
use crate::port::sim::CompletionDelay;
use packtrain_capture::Format;
use proptest::prelude::*;
use std::path::PathBuf;
use std::time::Duration;

fn parse(text: &str) -> PortSpec {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &str) -> String {
    match text.parse::<PortSpec>() {
        Ok(spec) => panic!("{text} parses, to {spec:?}"),
        Err(error) => error.to_string(),
    }
}

fn tun_tap(spec: &PortSpec) -> &TunTapOptions {
    match &spec.kind {
        PortKind::Tap(options) | PortKind::Tun(options) => options,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bare_port_requests_nothing() {
    for (text, kind, name) in [
        ("tap:tap0", PortKind::Tap(TunTapOptions::default()), "tap0"),
        (
            "tun:vpn.1",
            PortKind::Tun(TunTapOptions::default()),
            "vpn.1",
        ),
        (
            "pcap:a/b.pcap",
            PortKind::Pcap(PcapOptions::default()),
            "a/b.pcap",
        ),
        ("null:", PortKind::Null(NullOptions::default()), ""),
        ("sim:", PortKind::Sim(SimOptions::default()), ""),
    ] {
        let expected = PortSpec {
            kind,
            name: name.to_owned(),
            config: PortConfig::default(),
            wrappers: Wrappers::default(),
        };
        assert_eq!(parse(text), expected, "{text}");
        assert_eq!(expected.to_string(), text);
        assert!(!expected.wrappers.has_faults());
    }
}

#[test]
fn common_keys_on_every_kind() {
    for port in ["tap:t", "tun:t", "pcap:f", "null:", "sim:"] {
        let spec = parse(&format!(
            "{port},queues=4,offload=csum,segs=8,gso-segs=9,headroom=2,fit=collapse,rx=pieces,\
             coalesce=stream,gro-flows=8,gro-bytes=9000,gro-packets=64,gro-inactive=off,\
             gro-flush=packets(32),ack-limit=1,rx-pause=128,capture=a.pcapng,trace,\
             dispatch=threshold(8),moderation=fixed(50,32),tx=shared,drop=0.25,duplicate=1,\
             corrupt=1e-3,reorder=0.5,delay=200us,seed=7,vlan=100"
        ));
        assert_eq!(spec.config.queues, Some(4));
        assert_eq!(spec.config.offload, Features::CSUM);
        assert_eq!(spec.config.segments, Some(8));
        assert_eq!(spec.config.gso_segments, Some(9));
        assert_eq!(spec.config.segment_headroom, 2);
        assert_eq!(spec.config.fit, Fit::Collapse);
        assert_eq!(spec.config.rx_buffers, Some(RxBuffers::PIECES));
        assert_eq!(spec.config.coalesce, Coalesce::Stream);
        let gro = Gro {
            flows: Some(8),
            bytes: Some(9000),
            packets: Some(64),
            ack_limit: Some(1),
            inactive: false,
            flush: Flush::Packets(32),
            rx_pause: Some(128),
        };
        assert_eq!(spec.config.gro, gro);
        let (usecs, frames) = (50, 32);
        let work = QueueConfig {
            dispatch: Some(Dispatch::Threshold(8)),
            moderation: Some(Moderation::Fixed { usecs, frames }),
            shared: true,
        };
        assert_eq!(spec.config.work, work);
        let expected = Wrappers {
            capture: Some(PathBuf::from("a.pcapng")),
            trace: true,
            drop: 0.25,
            duplicate: 1.0,
            corrupt: 0.001,
            reorder: 0.5,
            delay: Duration::from_micros(200),
            seed: Some(7),
            vlan: Some(100),
        };
        assert_eq!(spec.wrappers, expected);
        assert!(spec.wrappers.has_faults());
    }
    assert_eq!(parse("tap:t,tx=auto"), parse("tap:t"));
    assert_eq!(parse("tap:t,gro-inactive=on,gro-flush=off"), parse("tap:t"));
    let text = "tap:t,gro-flush=usecs(50)";
    assert_eq!(parse(text).config.gro.flush, Flush::Usecs(50));
    assert_eq!(parse(text).to_string(), text);
    assert_eq!(parse("tap:t,headroom=1,fit=defrag"), parse("tap:t"));
    assert_eq!(parse("tap:t,rx=auto").config.rx_buffers, None);
    assert_eq!(
        parse("tap:t,rx=whole").config.rx_buffers,
        Some(RxBuffers::Whole)
    );
    for bytes in [256, 512, 1791] {
        let spec = parse(&format!("tap:t,rx=pieces({bytes}),segs=2"));
        assert_eq!(spec.config.rx_buffers, Some(RxBuffers::Pieces { bytes }));
        assert_eq!(spec.to_string(), format!("tap:t,segs=2,rx=pieces({bytes})"));
    }
    assert_eq!(parse("tap:t,rx=pieces(1792)"), parse("tap:t,rx=pieces"));
    assert_eq!(parse("tap:t,rx=whole").to_string(), "tap:t,rx=whole");
    for bad in ["1793", "0", "", "+512", "512,512", "512)"] {
        error(&format!("tap:t,rx=pieces({bad})"));
    }
}

#[test]
fn merging_has_a_word_for_each_way() {
    for (word, expected) in [
        ("auto", Coalesce::Auto),
        ("off", Coalesce::Off),
        ("on", Coalesce::On),
        ("hash", Coalesce::Hash),
        ("sorted", Coalesce::Sorted),
        ("stream", Coalesce::Stream),
    ] {
        let spec = parse(&format!("tap:t,coalesce={word}"));
        assert_eq!(spec.config.coalesce, expected);
        assert_eq!(parse(&spec.to_string()), spec);
    }
    assert_eq!(parse("tap:t").config.coalesce, Coalesce::Auto);
}

#[test]
fn commas_in_the_parentheses_of_a_setting_end_nothing() {
    let fixed = Some(Moderation::Fixed {
        usecs: 1,
        frames: 2,
    });
    for text in [
        "tap:t,moderation=fixed(1,2)",
        "tap:t,moderation=fixed(1,2),queues=2",
        "tap:t,queues=2,moderation=fixed(1\\,2),segs=3",
        "null:moderation=fixed(1,2)",
        "pcap:moderation=fixed(1,moderation=fixed(1,2)",
        "pcap:a(b,capture=c(d,moderation=fixed(1,2),trace",
    ] {
        let spec = parse(text);
        assert_eq!(spec.config.work.moderation, fixed, "{text}");
        assert_eq!(parse(&spec.to_string()), spec);
    }
    let spec = parse("pcap:a(b,capture=c(d,moderation=fixed(1,2),trace");
    assert_eq!(spec.name, "a(b");
    assert_eq!(spec.wrappers.capture, Some(PathBuf::from("c(d")));
    assert!(spec.wrappers.trace);
    // A setting with the default's value is still explicit, and overrides the setting for all
    // ports.
    assert_eq!(
        parse("tap:t,dispatch=adaptive").to_string(),
        "tap:t,dispatch=adaptive"
    );
}

#[test]
fn a_setting_that_is_wrong_says_so_itself() {
    for (text, line) in [
        (
            "tap:t,moderation=fixed(50,queues=2",
            "moderation= has 'fixed(50,queues=2', whose parentheses do not pair up; it takes \
             off|fixed(usecs,frames)|adaptive",
        ),
        (
            "tap:t,dispatch=threshold(8)),queues=2",
            "dispatch= has 'threshold(8))', whose parentheses do not pair up; it takes \
             direct|deferred|abdicate|threshold(n)|adaptive",
        ),
        (
            "null:moderation=fixed(50)",
            "moderation 'fixed(50)' lacks one of usecs and frames; write off, \
             fixed(usecs,frames) with usecs from 0 to 10000 and frames from 1 to 4096, or adaptive",
        ),
        (
            "tap:t,gro-flush=50us",
            "gro-flush '50us' is not known; write off, usecs(n) with n from 1 to 10000, or \
             packets(n) with n from 1 to 65536",
        ),
        (
            "tap:t,ack-limit=1",
            "key 'ack-limit' is for coalesce=stream, which alone merges pure ACKs; add \
             coalesce=stream, or leave 'ack-limit' out",
        ),
        (
            "sim:moderation=",
            "key 'moderation' needs a value: write moderation=off|fixed(usecs,frames)|adaptive",
        ),
        (
            "sim:moderation=off,moderation=off",
            "key 'moderation' is given twice; keep one of the two",
        ),
    ] {
        assert_eq!(error(text), line);
    }
}

/// Each item is parsed once, however many there are.
#[test]
fn long_specs_take_no_longer_than_they_are() {
    let commas = ",".repeat(1 << 20);
    assert_eq!(parse(&format!("null:{commas}")), parse("null:"));
}

#[test]
fn each_fault_alone_needs_the_injector_and_nothing_else_does() {
    for key in [
        "drop=0.1",
        "duplicate=0.1",
        "corrupt=0.1",
        "reorder=0.1",
        "delay=1ns",
    ] {
        assert!(parse(&format!("null:{key}")).wrappers.has_faults(), "{key}");
    }
    for key in [
        "drop=0",
        "delay=0s",
        "trace",
        "seed=1",
        "vlan=1",
        "capture=x",
    ] {
        assert!(
            !parse(&format!("null:{key}")).wrappers.has_faults(),
            "{key}"
        );
    }
}

#[test]
fn offload_words_bring_what_they_need() {
    use Features as F;
    for (text, expected) in [
        ("auto", F::ALL),
        ("off", F::NONE),
        ("csum", F::CSUM),
        ("tso", F::CSUM | F::TSO),
        ("uso", F::CSUM | F::USO),
        ("csum+tso", F::CSUM | F::TSO),
        ("tso+uso", F::CSUM | F::TSO | F::USO),
        ("ipv4-checksum", F::CSUM4),
        ("tso4", F::CSUM4 | F::TSO4),
        ("uso6", F::CSUM6 | F::USO6),
        ("tso6+uso4", F::CSUM | F::TSO6 | F::USO4),
        ("tso-ecn", F::CSUM | F::TSO),
        ("tso4+tso-ecn", F::CSUM4 | F::TSO4 | F::TSO_ECN),
        ("vlan", F::VLAN),
        ("large-receive", F::LARGE_RECEIVE),
        ("tso4+tso4", F::CSUM4 | F::TSO4),
    ] {
        let spec = parse(&format!("tap:t,offload={text}"));
        assert_eq!(spec.config.offload, expected, "{text}");
        assert_eq!(spec.config.offload.consistent(), expected, "{text}");
    }
    for text in [
        "tso5",
        "auto+csum",
        "off+csum",
        "csum+",
        "+",
        "CSUM",
        "csum tso",
    ] {
        let line = error(&format!("tap:t,offload={text}"));
        assert!(line.contains("csum, tso, uso"), "{line}");
    }
}

#[test]
fn keys_of_one_kind() {
    assert_eq!(tun_tap(&parse("tap:t,fd=5")).fds, [5]);
    let spec = parse("tun:,fd=5+6+7");
    assert_eq!(
        (tun_tap(&spec).fds.as_slice(), spec.config.queues),
        (&[5, 6, 7][..], Some(3))
    );
    assert_eq!(parse("tap:t,queues=2,fd=8+9").config.queues, Some(2));

    let pcap = PcapOptions {
        repeat: true,
        pace: Pace::Original,
        ..PcapOptions::default()
    };
    assert_eq!(
        parse("pcap:f,loop,pace=original").kind,
        PortKind::Pcap(pcap)
    );
    let pcap = PcapOptions {
        write: true,
        format: Some(Format::Pcap { nanosecond: true }),
        link: Some(LinkType::RawIp),
        ..PcapOptions::default()
    };
    assert_eq!(
        parse("pcap:f,write,format=pcap,link=ip").kind,
        PortKind::Pcap(pcap)
    );

    let null = NullOptions {
        source: true,
        protocol: Protocol::Tcp,
        bytes: Some(67),
        count: Some(1_000),
        burst: Some(2),
        flows: Some(9),
        active: Some(3),
        train: Some(4),
        timestamps: true,
        out_of_order: Some(5),
        link: Some(LinkType::Ipoib),
    };
    let text = "null:source,proto=tcp,bytes=67,count=1000,burst=2,flows=9,active=3,train=4,\
                timestamps,out-of-order=5,link=ipoib";
    assert_eq!(parse(text).kind, PortKind::Null(null));
    assert_eq!(parse(text).to_string(), text);

    let sim = SimOptions {
        rings: Some(512),
        far: Far::Echo,
        completion_delay: CompletionDelay::Flushes(3),
        rate: Some(9),
        interrupts: Interrupts::Each,
        shuffled: true,
        hang: true,
        lose_completions: Some(5),
        lose_wakeups: Some(6),
        bad_descriptors: Some(10),
        flap: Some(Duration::from_millis(2)),
        flow_control: true,
        link: Some(LinkType::Ipoib),
    };
    let spec = parse(
        "sim:rings=512,segs=8,seed=7,far=echo,completion-delay=3flushes,shuffled,link=ipoib,hang,\
         lose-completions=5,lose-wakeups=6,rate=9,interrupts=each,bad-descriptors=10,flap=2ms,\
         flow-control=on",
    );
    assert_eq!(spec.kind, PortKind::Sim(sim));
    assert_eq!(
        (spec.config.segments, spec.wrappers.seed),
        (Some(8), Some(7))
    );
}

/// Both ends of every range are accepted, the values one beyond are refused, and help agrees.
#[test]
fn ranges_end_where_help_says() {
    let max = u64::MAX.to_string();
    let cases: &[(&str, &str, &str, &str, &str)] = &[
        ("tap:t", "queues", "1", "256", "257"),
        ("tap:t", "segs", "1", "288", "289"),
        ("tap:t", "gso-segs", "1", "288", "289"),
        ("tap:t", "headroom", "0", "16", "17"),
        ("tap:t", "vlan", "1", "4094", "4095"),
        ("tap:t", "gro-flows", "1", "65536", "65537"),
        ("tap:t", "gro-bytes", "1", "65535", "65536"),
        ("tap:t", "gro-packets", "1", "65536", "65537"),
        ("tap:t", "rx-pause", "1", "65536", "65537"),
        ("tap:t,coalesce=stream", "ack-limit", "1", "65535", "65536"),
        ("tap:t", "seed", "0", &max, "18446744073709551616"),
        ("null:source", "count", "1", &max, "18446744073709551616"),
        ("null:source", "burst", "1", "64", "65"),
        ("null:source", "flows", "1", "100000", "100001"),
        ("null:source", "active", "1", "100000", "100001"),
        ("null:source", "train", "1", "4096", "4097"),
        ("null:source", "out-of-order", "1", "50", "51"),
        ("sim:", "rings", "8", "4096", "4097"),
        ("sim:", "rate", "1", "100000000", "100000001"),
        ("sim:", "lose-completions", "1", "4096", "4097"),
        ("sim:", "lose-wakeups", "1", "4096", "4097"),
        ("sim:far=echo", "bad-descriptors", "1", "1000000", "1000001"),
    ];
    for &(port, key, least, most, beyond) in cases {
        let takes = KEYS.iter().find(|k| k.name == key).unwrap().takes;
        assert_eq!(takes, format!("{least}..{most}"));
        parse(&format!("{port},{key}={least}"));
        parse(&format!("{port},{key}={most}"));
        for bad in [beyond, "-1", "+1", "1.0", "x", " 1", "0x10", "1,5"] {
            error(&format!("{port},{key}={bad}"));
        }
        if least != "0" {
            let below = least.parse::<u64>().unwrap() - 1;
            assert_eq!(
                error(&format!("{port},{key}={below}")),
                format!("{key}= cannot be '{below}'; it takes {takes}")
            );
        }
    }
    // One end of this range is of raw IP, the other of Ethernet.
    parse("null:source,link=ip,bytes=36");
    parse("null:source,link=ethernet,bytes=65549");
    for (link, bytes) in [("ip", 35), ("ethernet", 65_550)] {
        assert_eq!(
            error(&format!("null:source,link={link},bytes={bytes}")),
            format!("bytes= cannot be '{bytes}'; it takes 36..65549")
        );
    }
    assert_eq!((QUEUES_MAX, SEGMENTS_MAX), (256, 288));
    for bad in ["-0.1", "1.01", "nan", "inf", "x", "50%", ""] {
        error(&format!("tap:t,drop={bad}"));
    }
    assert!(parse("tap:t,drop=-0").wrappers.drop.is_sign_positive());
}

#[test]
fn times() {
    for (text, expected) in [
        ("0ns", Duration::ZERO),
        ("1ns", Duration::from_nanos(1)),
        ("200us", Duration::from_micros(200)),
        ("5ms", Duration::from_millis(5)),
        ("60s", DELAY_MAX),
        ("60000ms", DELAY_MAX),
    ] {
        let spec = parse(&format!("tap:t,delay={text}"));
        assert_eq!(spec.wrappers.delay, expected);
    }
    assert_eq!(parse("tap:t,delay=1000us").to_string(), "tap:t,delay=1ms");
    assert_eq!(
        parse("tap:t,delay=1001us").to_string(),
        "tap:t,delay=1001us"
    );
    for bad in [
        "5",
        "ms",
        "5 ms",
        "1.5ms",
        "-1ms",
        "61s",
        "60001ms",
        "99999999999999999999s",
        "1h",
    ] {
        let line = error(&format!("tap:t,delay={bad}"));
        assert!(line.contains("200us, 5ms, at most 60s"), "{line}");
    }
}

#[test]
fn a_link_flaps_within_its_range() {
    for (text, expected) in [
        ("1ms", Duration::from_millis(1)),
        ("60s", Duration::from_mins(1)),
    ] {
        let spec = parse(&format!("sim:flap={text}"));
        let PortKind::Sim(sim) = spec.kind else {
            panic!("{spec}")
        };
        assert_eq!(sim.flap, Some(expected));
    }
    for bad in ["0ms", "999us", "61s", "5"] {
        assert_eq!(
            error(&format!("sim:flap={bad}")),
            format!("flap= cannot be '{bad}'; it takes TIME (1ms to 60s)")
        );
    }
}

#[test]
fn keys_of_a_nic_in_memory_that_need_another() {
    let each = "interrupts=each needs a rate: without one, sent packets are completed when they \
                are looked for; add rate=N, or leave interrupts= out";
    let echo = " needs packets that arrive: add far=echo, or leave it out";
    for (keys, line) in [
        ("interrupts=each", each.to_owned()),
        ("bad-descriptors=9", format!("key 'bad-descriptors'{echo}")),
        ("flow-control=on", format!("flow-control=on{echo}")),
    ] {
        assert_eq!(error(&format!("sim:{keys}")), line);
    }
    for ok in [
        "sim:interrupts=counted",
        "sim:interrupts=each,rate=7",
        "sim:flow-control=off",
        "sim:flow-control=on,far=echo",
    ] {
        parse(ok);
    }
}

#[test]
fn commas_and_backslashes_are_escaped() {
    let spec = parse(r"pcap:a\,b\\c=d.pcap,capture=x\,y=z");
    assert_eq!(spec.name, r"a,b\c=d.pcap");
    assert_eq!(spec.wrappers.capture, Some(PathBuf::from("x,y=z")));
    assert_eq!(spec.to_string(), r"pcap:a\,b\\c=d.pcap,capture=x\,y=z");
    for bad in [r"pcap:a\b", r"pcap:a\", r"tap:t,capture=\x", r"pcap:a\\\"] {
        assert!(error(bad).contains(r"write \\ for a backslash and \, for a comma"));
    }
}

/// The whole line of each error.
#[test]
fn what_is_wrong_is_said_in_one_line() {
    for (text, line) in [
        (
            "tap0",
            "'tap0' is not a port: write KIND:NAME[,key=value...], as in tap:tap0,queues=4",
        ),
        (
            "tab:t",
            "unknown port kind 'tab': did you mean 'tap'? the kinds are tap, tun, pcap, null, sim",
        ),
        (
            "eth:t",
            "unknown port kind 'eth': the kinds are tap, tun, pcap, null, sim",
        ),
        (
            "xdp:eth0,queue=0",
            "port kind 'xdp' is not built into this version; use one of tap, tun, pcap, null, sim",
        ),
        (
            "tap:t,queue=4",
            "unknown key 'queue' of a tap: port; did you mean 'queues'?",
        ),
        (
            "tap:t,ofload=off",
            "unknown key 'ofload' of a tap: port; did you mean 'offload'?",
        ),
        (
            "tap:t,colour=red",
            "unknown key 'colour' of a tap: port; its keys are queues, offload, segs, \
             gso-segs, headroom, fit, rx, coalesce, gro-flows, gro-bytes, gro-packets, \
             gro-inactive, gro-flush, ack-limit, rx-pause, dispatch, moderation, tx, capture, \
             trace, drop, duplicate, corrupt, reorder, delay, seed, vlan, fd",
        ),
        (
            "tap:t,loop",
            "key 'loop' is not for tap: ports but for pcap:; leave it out",
        ),
        (
            "pcap:f,fd=3",
            "key 'fd' is not for pcap: ports but for tap:, tun:; leave it out",
        ),
        (
            "tap:t,trace=1",
            "key 'trace' takes no value, not even '1'; write it alone",
        ),
        (
            "tap:t,trace=",
            "key 'trace' takes no value, not even ''; write it alone",
        ),
        ("tap:t,segs", "key 'segs' needs a value: write segs=1..288"),
        ("tap:t,segs=", "key 'segs' needs a value: write segs=1..288"),
        (
            "tap:t,rx=some",
            "rx= cannot be 'some'; it takes auto|whole|pieces|pieces(256..1792)",
        ),
        (
            "tap:t,rx=pieces(255)",
            "rx= cannot be 'pieces(255)'; it takes auto|whole|pieces|pieces(256..1792)",
        ),
        (
            "tap:t,coalesce=yes",
            "coalesce= cannot be 'yes'; it takes auto|off|on|hash|sorted|stream",
        ),
        (
            "tap:t,segs=3,segs=3",
            "key 'segs' is given twice; keep one of the two",
        ),
        (
            "tap:t,trace,trace",
            "key 'trace' is given twice; keep one of the two",
        ),
        (
            "tap:t,queues=3,fd=5+6",
            "queues= and fd= differ: fd= has 2 of them, one for each queue; leave queues= out",
        ),
        (
            "pcap:f,write,loop",
            "key 'loop' is for a file that packtrain reads; leave 'write' out, or leave 'loop' out",
        ),
        (
            "pcap:f,format=pcap",
            "key 'format' is for a file that packtrain writes; add 'write', or leave 'format' out",
        ),
        (
            "null:count=5",
            "key 'count' is for a null: port that packets come from; add 'source', or leave \
             'count' out",
        ),
        (
            "null:proto=tcp",
            "key 'proto' is for a null: port that packets come from; add 'source', or leave \
             'proto' out",
        ),
        (
            "null:source,proto=sctp",
            "proto= cannot be 'sctp'; it takes udp|tcp|ack",
        ),
        (
            "null:source,timestamps",
            "key 'timestamps' is for TCP: add proto=tcp or proto=ack, or leave 'timestamps' out",
        ),
        (
            "null:source,proto=ack,bytes=60",
            "key 'bytes' is not for proto=ack, whose packets are headers alone; leave 'bytes' out",
        ),
        (
            "null:source,proto=tcp,bytes=66,timestamps",
            "bytes=66 does not fit: with this link=, proto= and timestamps it takes 67..65549",
        ),
        (
            "null:source,bytes=59",
            "bytes=59 does not fit: with this link=, proto= and timestamps it takes 60..65549",
        ),
        (
            "null:source,link=ipoib,bytes=39",
            "bytes=39 does not fit: with this link=, proto= and timestamps it takes 40..65539",
        ),
        ("tap:", "tap: needs an interface name, as in tap:tap0"),
        (
            "tun:queues=4",
            "tun: needs the interface's name in front of 'queues=4', as in tun:tun0,queues=...",
        ),
        (
            "tap:abcdefghijklmnop",
            "interface name 'abcdefghijklmnop' is too long: it has 16 bytes, and Linux accepts \
             at most 15",
        ),
        (
            "tap:..",
            "interface name '..' is reserved; choose another, as tap0",
        ),
        (
            "tap:a b",
            "interface name 'a b' has a slash, colon, space or control character, which Linux \
             does not accept; leave it out",
        ),
        (
            "pcap:",
            "pcap: needs a file, as in pcap:in.pcapng or pcap:out.pcapng,write",
        ),
    ] {
        assert_eq!(error(text), line, "{text}");
    }
}

#[test]
fn interface_names() {
    for name in ["a", "abcdefghijklmno", "tap%d", "ä", "a=b", "vpn-1.x"] {
        assert_eq!(parse(&format!("tap:{name}")).name, name);
    }
    for name in [
        "",
        ".",
        "..",
        "a/b",
        "a:b",
        "a\tb",
        "a\u{a0}b",
        "äääääääää",
        "a\nb",
        "a\0b",
    ] {
        let line = error(&format!("tap:{name}"));
        assert!(!line.chars().any(char::is_control), "{line:?}");
        // A name that comes with a descriptor follows the same rules.
        if !name.is_empty() {
            error(&format!("tap:{name},fd=4"));
        }
    }
    for fd in ["-1", "5+5", "5+", "2147483648", "5+x"] {
        assert!(error(&format!("tap:t,fd={fd}")).contains("open descriptors"));
    }
}

/// Every key of the table does something on every kind that has it, and only there.
#[test]
fn every_key_is_wired() {
    for port in [
        "tap:t",
        "tun:t",
        "pcap:f",
        "null:source",
        "null:source,proto=tcp",
        "sim:",
        "sim:rate=1,far=echo",
        "pcap:f,write",
    ] {
        let kind = port.split(':').next().unwrap();
        for key in KEYS {
            let text = match key.name {
                _ if key.is_flag() => key.name.to_owned(),
                "offload" => "offload=off".to_owned(),
                "capture" => "capture=f".to_owned(),
                "delay" => "delay=1ms".to_owned(),
                "completion-delay" => "completion-delay=1packets".to_owned(),
                "fd" => "fd=1".to_owned(),
                "gro-flush" => "gro-flush=packets(8)".to_owned(),
                "ack-limit" => "coalesce=stream,ack-limit=1".to_owned(),
                "rx" => "rx=pieces(512)".to_owned(),
                "flap" => "flap=1ms".to_owned(),
                name if key.takes.contains('|') => {
                    format!("{name}={}", key.takes.split('|').next_back().unwrap())
                }
                name => format!("{name}={}", key.takes.split("..").last().unwrap()),
            };
            let result = format!("{port},{text}").parse::<PortSpec>();
            let belongs = key.kinds.is_empty() || key.kinds.contains(&kind);
            match result {
                Ok(spec) => {
                    assert!(belongs, "{port},{text}");
                    assert_ne!(spec, parse(port), "{port},{text} does nothing");
                }
                Err(error) if belongs => {
                    let line = error.to_string();
                    let expected = ["twice", "for a file that", "is for TCP", " needs "];
                    let is_expected = expected.iter().any(|words| line.contains(words));
                    assert!(is_expected, "{port},{text}: {line}");
                }
                Err(_) => {}
            }
            assert!(!key.about.is_empty());
        }
    }
}

/// Text that is often nearly a spec: words of the grammar in any order, and noise.
fn nearly() -> impl Strategy<Value = String> {
    let mut words: Vec<String> = KEYS.iter().map(|key| key.name.to_owned()).collect();
    for word in [
        ":",
        ",",
        "=",
        "+",
        "\\",
        ".",
        "..",
        "tap:",
        "tun:t",
        "pcap:f",
        "null:",
        "sim:",
        "0",
        "1",
        "0.5",
        "200us",
        "60s",
        "auto",
        "off",
        "csum",
        "original",
        "pcap-us",
        "random",
        "ip",
        "\n",
        "é",
        "-",
        "1e400",
        "99999999999999999999",
        ",fd=4+5",
        ",drop=0.1",
        ",write",
        "(",
        ")",
        ",moderation=fixed(1,2)",
        ",dispatch=threshold(",
    ] {
        words.push(word.to_owned());
    }
    let word = prop_oneof![8 => prop::sample::select(words), 1 => any::<String>()];
    prop::collection::vec(word, 0..12).prop_map(|words| words.concat())
}

/// A spec put together from valid parts.
fn valid() -> impl Strategy<Value = String> {
    let key = |kind: &'static str| {
        let value = |key: &'static Key| -> BoxedStrategy<String> {
            match key.name {
                "offload" => prop::sample::subsequence(Features::NAMED.to_vec(), 1..=9)
                    .prop_map(|set| set.iter().map(|f| f.1).collect::<Vec<_>>().join("+"))
                    .boxed(),
                "capture" => "[a-z,\\\\=é ()]{1,9}"
                    .prop_map(|path| Escaped(&path).to_string())
                    .boxed(),
                "drop" | "duplicate" | "corrupt" | "reorder" => {
                    (0.0..=1.0f64).prop_map(|p| p.to_string()).boxed()
                }
                "completion-delay" => (1..=4096u32)
                    .prop_map(|n| {
                        format!("{n}{}", ["flushes", "reclaims", "packets"][n as usize % 3])
                    })
                    .boxed(),
                "delay" => (0..=60_000_000_000u64)
                    .prop_map(|ns| format!("{ns}ns"))
                    .boxed(),
                "fd" => Just("9+3+4".to_owned()).boxed(),
                "flap" => (1..=60_000_u32).prop_map(|ms| format!("{ms}ms")).boxed(),
                "rx" => prop_oneof![
                    Just("whole".to_owned()),
                    (256..=1792_u32).prop_map(|n| format!("pieces({n})")),
                ]
                .boxed(),
                "dispatch" => prop_oneof![
                    Just("direct".to_owned()),
                    (1..=64_u32).prop_map(|n| format!("threshold({n})")),
                ]
                .boxed(),
                "moderation" => prop_oneof![
                    Just("adaptive".to_owned()),
                    (0..=10_000_u32, 1..=4096_u32).prop_map(|(us, n)| format!("fixed({us},{n})")),
                ]
                .boxed(),
                "gro-flush" => prop_oneof![
                    Just("off".to_owned()),
                    (1..=10_000_u32).prop_map(|n| format!("usecs({n})")),
                    (1..=65_536_u32).prop_map(|n| format!("packets({n})")),
                ]
                .boxed(),
                "queues" => Just("3".to_owned()).boxed(),
                _ if key.takes.contains('|') => {
                    prop::sample::select(key.takes.split('|').collect::<Vec<_>>())
                        .prop_map(str::to_owned)
                        .boxed()
                }
                _ => {
                    let (least, most) = key.takes.split_once("..").unwrap();
                    let range = least.parse::<u64>().unwrap()..=most.parse::<u64>().unwrap();
                    range.prop_map(|n| n.to_string()).boxed()
                }
            }
        };
        let keys: Vec<_> = KEYS
            .iter()
            .filter(|key| key.kinds.is_empty() || key.kinds.contains(&kind))
            .map(|key| {
                let text = if key.is_flag() {
                    Just(key.name.to_owned()).boxed()
                } else {
                    value(key)
                        .prop_map(|value| format!("{}={value}", key.name))
                        .boxed()
                };
                prop::option::of(text)
            })
            .collect();
        keys.prop_map(move |keys| {
            let mut keys: Vec<_> = keys.into_iter().flatten().collect();
            if !keys.iter().any(|key| key == "coalesce=stream") {
                keys.retain(|key| !key.starts_with("ack-limit="));
            }
            format!("{kind}:name\\,x,{}", keys.join(","))
                .replace("null:name\\,x,", "null:")
                .replace("sim:name\\,x,", "sim:")
        })
    };
    prop_oneof![key("tap"), key("tun"), key("pcap"), key("null"), key("sim")]
}

fn prints_back(text: &str) {
    match text.parse::<PortSpec>() {
        Ok(spec) => {
            let printed = spec.to_string();
            assert_eq!(
                printed.parse().as_ref(),
                Ok(&spec),
                "{text:?} as {printed:?}"
            );
            assert_eq!(parse(&printed).to_string(), printed);
        }
        Err(error) => {
            let line = error.to_string();
            assert!(!line.chars().any(char::is_control), "{line:?}");
            assert!(line.len() < 1_000 && !line.is_empty(), "{line:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn no_string_panics_and_every_error_is_one_line(text in any::<String>(), near in nearly()) {
        prints_back(&text);
        prints_back(&near);
    }

    #[test]
    fn what_is_printed_parses_to_the_same(text in valid()) {
        prints_back(&text);
    }
}

/// The property above must not be about errors only.
#[test]
fn valid_specs_are_mostly_valid() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let parsed = (0..200)
        .filter(|_| {
            let tree = valid().new_tree(&mut runner).unwrap();
            let text = proptest::strategy::ValueTree::current(&tree);
            text.parse::<PortSpec>().is_ok()
        })
        .count();
    assert!(parsed > 100, "{parsed}");
}
