//! Every key, every rule, and two properties: no string panics, and printed specs parse back.

use super::*;
use crate::driver::{Coalesce, Features, Fit, QueueConfig, RxBuffers};
use crate::policy::dispatch::Dispatch;
use crate::policy::gro::{Flush, Gro};
use crate::policy::moderation::Moderation;
use crate::port::card::InterruptKind;
use crate::port::null::{Protocol, Source};
use crate::port::pcap::{Pace, PcapRead};
use crate::port::sim::{CompletionDelay, Far, Interrupts, SimConfig};
use crate::port::virtio::VirtioIrq;
use crate::port::xdp::XdpMode;
use packtrain_capture::Format;
use packtrain_offload::layout::TunnelPorts;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
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

/// The cases of a text: a port, and indented what is said of it.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut lines = text.lines();
    std::iter::from_fn(move || Some((lines.next()?, lines.next()?.trim_start())))
}

/// Each kind with keys that let all its other keys be given.
const PORTS: &[(&str, &str)] = &[
    ("tap", "tap:t"),
    ("tun", "tun:t"),
    ("packet", "packet:e"),
    ("pcap", "pcap:f"),
    ("pcap", "pcap:f,write"),
    ("null", "null:source"),
    ("null", "null:source,proto=tcp"),
    ("sim", "sim:"),
    ("sim", "sim:rate=1,far=echo"),
];

fn keys_of(kind: &str) -> Vec<KeyHelp> {
    let own = kinds().into_iter().filter(|of| of.name == kind);
    own.flat_map(|of| of.keys).chain(common_keys()).collect()
}

/// Values that a key takes, those at the ends of its range among them.
fn values(key: &KeyHelp) -> Vec<String> {
    let all: &[&str] = match key.name {
        "offload" => &["auto", "off", "csum", "tso4+vlan"],
        "rx" => &["auto", "whole", "pieces", "pieces(256)", "pieces(1791)"],
        "capture" => &["f"],
        "delay" => &["0ns", "1ns", "200us", "60s"],
        "flap" => &["1ms", "1001us", "60s"],
        "completion-delay" => &["1packets", "4096flushes", "2reclaims"],
        "fd" => &["5", "9+3+4"],
        "drop" | "duplicate" | "corrupt" | "reorder" => &["0", "1e-3", "0.5", "1"],
        "dispatch" => &["direct", "threshold(8)", "adaptive"],
        "moderation" => &["off", "fixed(50,32)", "adaptive"],
        "gro-flush" => &["off", "usecs(50)", "packets(32)"],
        "tunnel-ports" => &["1", "7471+65535", "1+2+3+4+5+6+7+8"],
        "bytes" => &["67", "1514", "65539"],
        _ => match key.takes.split_once("..") {
            Some((least, most)) => return vec![least.to_owned(), most.to_owned()],
            None => return key.takes.split('|').map(str::to_owned).collect(),
        },
    };
    all.iter().map(|value| (*value).to_owned()).collect()
}

/// A port with a key and what that needs.
fn with(port: &str, key: &KeyHelp, value: &str) -> String {
    let separator = if port.ends_with(':') { "" } else { "," };
    let needs = if key.name == "ack-limit" {
        "coalesce=stream,"
    } else {
        ""
    };
    let equals = if key.takes.is_empty() { "" } else { "=" };
    format!("{port}{separator}{needs}{}{equals}{value}", key.name)
}

/// Every key does something on every kind that has it; each of its values is printed back; values
/// beyond its range are refused in the same words.
#[test]
fn every_key_takes_its_values_on_its_kinds() {
    for (kind, port) in PORTS {
        for key in keys_of(kind) {
            assert!(
                !key.about.is_empty() && !key.about.ends_with('.'),
                "{key:?}"
            );
            let mut changes = false;
            for value in values(&key) {
                let text = with(port, &key, &value);
                match text.parse::<PortSpec>() {
                    Ok(spec) => {
                        assert_eq!(parse(&spec.to_string()), spec, "{text}");
                        changes |= spec != parse(port);
                    }
                    // The kind has it beside other keys, as the next port of the table.
                    Err(error) => {
                        let line = error.to_string();
                        let beside = ["twice", "for a file that", "is for TCP", " needs ", "fit"];
                        let is_beside = beside.iter().any(|words| line.contains(words));
                        assert!(is_beside, "{text}: {line}");
                        changes = true;
                    }
                }
            }
            assert!(changes, "{} of {port} does nothing", key.name);
            if let Some((least, most)) = key.takes.split_once("..")
                && !key.takes.contains('(')
                && key.takes != "0..1"
            {
                let below = least.parse::<u64>().expect("a number").checked_sub(1);
                let above = most.parse::<u128>().expect("a number") + 1;
                let beyond = below.map(|below| below.to_string()).unwrap_or_default();
                let others = ["-1", "+1", "1.0", "x", " 1", "0x10"].map(str::to_owned);
                for bad in [beyond, above.to_string()].into_iter().chain(others) {
                    let line = error(&with(port, &key, &bad));
                    let refused =
                        format!("{0}= cannot be '{bad}'; it takes {1}", key.name, key.takes);
                    let is_refused = line == refused || bad.is_empty() || line.contains("twice");
                    assert!(is_refused, "{line}");
                }
            }
        }
    }
}

#[test]
fn common_keys_set_the_settings_of_every_kind() {
    for port in ["tap:t,", "tun:t,", "packet:e,", "pcap:f,", "null:", "sim:"] {
        let spec = parse(&format!(
            "{port}queues=4,offload=csum,segs=8,gso-segs=9,headroom=2,fit=collapse,mtu=1400,\
             rx=pieces,coalesce=stream,gro-flows=8,gro-bytes=9000,gro-packets=64,gro-inactive=off,\
             gro-flush=packets(32),gro-id=exact,ack-limit=1,rx-pause=128,capture=a.pcapng,trace,\
             tunnel-ports=7471+65535,addresses=4,dispatch=threshold(8),moderation=fixed(50,32),\
             tx=shared,handover=packet,\
             drop=0.25,duplicate=1,corrupt=1e-3,reorder=0.5,delay=200us,seed=7,vlan=100"
        ));
        let config = PortConfig {
            queues: Some(4),
            offload: Features::CSUM,
            segments: Some(8),
            gso_segments: Some(9),
            segment_headroom: 2,
            fit: Fit::Collapse,
            mtu: Some(1400),
            rx_buffers: Some(RxBuffers::PIECES),
            addresses: Some(4),
            coalesce: Coalesce::Stream,
            gro: Gro {
                flows: Some(8),
                bytes: Some(9000),
                packets: Some(64),
                ack_limit: Some(1),
                inactive: false,
                flush: Flush::Packets(32),
                exact_id: true,
                tunnels: TunnelPorts::with_other(&[7471, 65_535]).expect("two"),
                rx_pause: Some(128),
            },
            work: QueueConfig {
                dispatch: Some(Dispatch::Threshold(8)),
                moderation: Some(Moderation::Fixed {
                    usecs: 50,
                    frames: 32,
                }),
                shared: true,
                by_packet: true,
            },
        };
        assert_eq!(spec.config, config);
        let wrappers = Wrappers {
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
        assert_eq!(spec.wrappers, wrappers);
    }
    assert!(parse("tap:t,drop=-0").wrappers.drop.is_sign_positive());
    let faults = [
        "drop=0.1",
        "duplicate=0.1",
        "corrupt=0.1",
        "reorder=0.1",
        "delay=1ns",
    ];
    let others = [
        "drop=0",
        "delay=0s",
        "trace",
        "seed=1",
        "vlan=1",
        "capture=x",
        "",
    ];
    for (keys, has) in [(&faults[..], true), (&others[..], false)] {
        for key in keys {
            let wrappers = parse(&format!("null:{key}")).wrappers;
            assert_eq!(wrappers.has_faults(), has, "{key}");
        }
    }
}

#[test]
fn keys_of_one_kind_set_its_settings() {
    let read = PcapRead {
        link: None,
        repeat: true,
        pace: Pace::Original,
        count: None,
    };
    let reads = PcapOptions {
        read,
        ..PcapOptions::default()
    };
    let writes = PcapOptions {
        write: true,
        format: Some(Format::Pcap { nanosecond: true }),
        link: Some(LinkType::RawIp),
        ..PcapOptions::default()
    };
    let null = NullOptions {
        source: true,
        made: Source {
            protocol: Protocol::Tcp,
            count: Some(1_000),
            burst: 2,
            flows: 9,
            active: Some(3),
            train: 4,
            timestamps: true,
            out_of_order: 5,
            ..Source::default()
        },
        bytes: Some(67),
        link: Some(LinkType::Ipoib),
    };
    let sim = SimOptions {
        rings: Some(512),
        far: Far::Echo,
        device: SimConfig {
            delay: CompletionDelay::Flushes(3),
            rate: Some(9),
            interrupts: Interrupts::Each,
            reorder: true,
            corrupt_every: 10,
            flap: Some(Duration::from_millis(2)),
            flow_control: true,
            ..SimConfig::default()
        },
        hang: true,
        lose_completions: 5,
        lose_wakeups: 6,
        link: Some(LinkType::Ipoib),
    };
    let tap = |fds: &[i32]| TunTapOptions {
        fds: fds.to_vec(),
        ..TunTapOptions::default()
    };
    for (text, kind) in [
        ("tap:t", PortKind::Tap(tap(&[]))),
        ("tun:,fd=5+6+7", PortKind::Tun(tap(&[5, 6, 7]))),
        ("pcap:f", PortKind::Pcap(PcapOptions::default())),
        ("pcap:f,loop,pace=original", PortKind::Pcap(reads)),
        ("pcap:f,write,format=pcap,link=ip", PortKind::Pcap(writes)),
        ("null:", PortKind::Null(NullOptions::default())),
        (
            "null:source,proto=tcp,bytes=67,count=1000,burst=2,flows=9,active=3,train=4,\
             timestamps,out-of-order=5,link=ipoib",
            PortKind::Null(null),
        ),
        ("sim:", PortKind::Sim(SimOptions::default())),
        (
            "sim:rings=512,far=echo,completion-delay=3flushes,rate=9,interrupts=each,\
             bad-descriptors=10,flap=2ms,flow-control=on,shuffled,hang,lose-completions=5,\
             lose-wakeups=6,link=ipoib",
            PortKind::Sim(sim),
        ),
        (
            "xdp:eth0,fd=5+6,map=7",
            PortKind::Xdp(XdpOptions {
                fds: vec![5, 6],
                map: Some(7),
                ..XdpOptions::default()
            }),
        ),
        (
            "xdp:eth0,mode=generic,promiscuous=off,rings=512,busy-poll=32,gone=wait",
            PortKind::Xdp(XdpOptions {
                fds: vec![],
                map: None,
                mode: XdpMode::Generic,
                own_only: true,
                rings: Some(512),
                busy_poll: Some(32),
                waits: true,
            }),
        ),
        (
            "e1000e:0000:01:00.0",
            PortKind::E1000e(E1000eOptions::default()),
        ),
        (
            "e1000e:0000:01:00.0,irq=intx,promiscuous=off,rings=1024,gone=wait",
            PortKind::E1000e(E1000eOptions {
                interrupts: Some(InterruptKind::Intx),
                own_only: true,
                rings: Some(1024),
                waits: true,
            }),
        ),
        (
            "virtio:ffff:1f:1f.7",
            PortKind::Virtio(VirtioOptions::default()),
        ),
        (
            "virtio:0000:03:00.0,irq=intx,packed=off,promiscuous=off,rings=256,gone=wait",
            PortKind::Virtio(VirtioOptions {
                irq: VirtioIrq::Intx,
                own_only: true,
                rings: Some(256),
                is_split: true,
                waits: true,
            }),
        ),
        (
            "vmxnet3:0000:0b:00.0",
            PortKind::Vmxnet3(Vmxnet3Options::default()),
        ),
        (
            "vmxnet3:0000:0b:00.0,irq=msi,promiscuous=off,rings=96,gone=wait",
            PortKind::Vmxnet3(Vmxnet3Options {
                interrupts: Some(InterruptKind::Msi),
                own_only: true,
                rings: Some(96),
                waits: true,
            }),
        ),
        (
            "vhost-user:/run/vm0.sock",
            PortKind::Vhost(VhostOptions::default()),
        ),
        (
            "vhost-user:/run/a=b.sock,server",
            PortKind::Vhost(VhostOptions {
                server: true,
                fd: None,
            }),
        ),
        (
            "vhost-user:vm0,fd=5",
            PortKind::Vhost(VhostOptions {
                server: false,
                fd: Some(5),
            }),
        ),
    ] {
        assert_eq!(parse(text).kind, kind);
        assert_eq!(parse(text).to_string(), text);
    }
    assert_eq!(parse("tap:t,fd=8+9").kind.queues(), Some(2));
    assert_eq!(parse("tap:t,queues=2,fd=8+9").config.queues, Some(2));
}

/// Different texts of the same port, and the one that is printed.
#[test]
fn each_port_is_printed_in_one_way() {
    for (text, printed) in pairs(include_str!("printed.txt")) {
        let spec = parse(text);
        assert_eq!(spec.to_string(), printed);
        assert_eq!(parse(printed), spec);
        let offload = spec.config.offload;
        assert_eq!(offload.consistent(), offload, "{text}");
    }
    let spec = parse(r"pcap:a\,b\\c=d.pcap,capture=x\,y=z");
    assert_eq!(spec.name, r"a,b\c=d.pcap");
    assert_eq!(spec.wrappers.capture, Some(PathBuf::from("x,y=z")));
    // Each item is parsed once, however many there are.
    let commas = ",".repeat(1 << 20);
    assert_eq!(parse(&format!("null:{commas}")), parse("null:"));
}

/// The whole line of each error.
#[test]
fn what_is_wrong_is_said_in_one_line() {
    for (text, line) in pairs(include_str!("errors.txt")) {
        assert_eq!(error(text), line, "{text}");
    }
}

/// Values that are refused, by the key; and interface names.
#[test]
fn values_that_no_key_takes() {
    for (key, all) in [
        (
            "rx",
            "pieces(1793)|pieces(0)|pieces()|pieces(+512)|pieces(512))",
        ),
        ("drop", "-0.1|1.01|nan|inf|x|50%"),
        (
            "delay",
            "5|ms|5 ms|1.5ms|-1ms|60001ms|99999999999999999999s|1h",
        ),
        ("offload", "tso5|auto+csum|off+csum|csum+|+|CSUM|csum tso"),
        ("tunnel-ports", "0|65536|7471+|1+2+3+4+5+6+7+8+9|x"),
        ("fd", "-1|5+5|5+|2147483648|5+x"),
    ] {
        for value in all.split('|') {
            let line = error(&format!("tap:t,{key}={value}"));
            let start = format!("{key}= cannot be '{value}'; it takes ");
            assert!(line.starts_with(&start), "{line}");
        }
    }
    for bad in [r"pcap:a\b", r"pcap:a\", r"tap:t,capture=\x", r"pcap:a\\\"] {
        assert!(error(bad).contains(r"write \\ for a backslash and \, for a comma"));
    }
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
}

/// The table of keys in `docs/ports.md` is this one. With `PACKTRAIN_WRITE_DOCS=1` it is written.
#[test]
fn the_documentation_has_every_key() {
    const MARKS: [&str; 2] = ["<!-- keys -->\n", "<!-- /keys -->\n"];
    let mut table = String::new();
    let own = kinds()
        .into_iter()
        .map(|kind| (format!("Keys of `{}:`", kind.name), kind.keys));
    let all = ("Keys of every kind".to_owned(), common_keys());
    for (title, keys) in [all].into_iter().chain(own) {
        table += &format!("\n### {title}\n\n| key | values | effect |\n| --- | --- | --- |\n");
        for key in keys {
            let takes = key.takes.replace('|', "\\|");
            table += &format!("| `{}` | {takes} | {} |\n", key.name, key.about);
        }
    }
    table.push('\n');
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ports.md");
    let page = std::fs::read_to_string(&path).expect("docs/ports.md");
    let (before, rest) = page.split_once(MARKS[0]).expect("the first mark");
    let (found, after) = rest.split_once(MARKS[1]).expect("the second mark");
    if std::env::var_os("PACKTRAIN_WRITE_DOCS").is_some() {
        let page = [before, MARKS[0], &table, MARKS[1], after].concat();
        std::fs::write(&path, page).expect("docs/ports.md");
    } else {
        assert_eq!(found, table, "run this test with PACKTRAIN_WRITE_DOCS=1");
    }
}

/// Text that is often nearly a spec: words of the grammar in any order, and noise.
fn nearly() -> impl Strategy<Value = String> {
    let all = PORTS.iter().flat_map(|(kind, _)| keys_of(kind));
    let mut words: Vec<String> = all.map(|key| key.name.to_owned()).collect();
    let others = ": , = + \\ . .. tap: tun:t pcap:f null: sim: 0 1 0.5 200us 60s auto off csum \
                  original \
                  pcap-us random ip \u{e9} - 1e400 99999999999999999999 ,fd=4+5 ,drop=0.1 ,write \
                  ( ) \
                  ,moderation=fixed(1,2) ,dispatch=threshold(";
    words.extend(others.split_whitespace().map(str::to_owned));
    words.push("\n".to_owned());
    let word = prop_oneof![8 => prop::sample::select(words), 1 => any::<String>()];
    prop::collection::vec(word, 0..12).prop_map(|words| words.concat())
}

/// A random value of a key.
fn value(key: &KeyHelp) -> BoxedStrategy<String> {
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
        "delay" => (0..=60_000_000_000_u64)
            .prop_map(|ns| format!("{ns}ns"))
            .boxed(),
        "flap" => (1..=60_000_u32).prop_map(|ms| format!("{ms}ms")).boxed(),
        "queues" => Just("3".to_owned()).boxed(),
        "fd" => Just("9+3+4".to_owned()).boxed(),
        "moderation" => (0..=10_000_u32, 1..=4096_u32)
            .prop_map(|(us, n)| format!("fixed({us},{n})"))
            .boxed(),
        _ => match key.takes.split_once("..") {
            Some((least, most)) if !key.takes.contains('(') => {
                let number = |text: &str| text.parse::<u64>().expect("a number");
                (number(least)..=number(most))
                    .prop_map(|n| n.to_string())
                    .boxed()
            }
            _ => prop::sample::select(values(key)).boxed(),
        },
    }
}

/// A spec put together from valid parts.
fn valid() -> impl Strategy<Value = String> {
    let of_kind = |kind: &'static str| {
        let one = |key: KeyHelp| {
            let text = if key.takes.is_empty() {
                Just(key.name.to_owned()).boxed()
            } else {
                value(&key)
                    .prop_map(move |value| format!("{}={value}", key.name))
                    .boxed()
            };
            prop::option::of(text)
        };
        let keys: Vec<_> = keys_of(kind).into_iter().map(one).collect();
        keys.prop_map(move |keys| {
            let mut keys: Vec<_> = keys.into_iter().flatten().collect();
            if !keys.iter().any(|key| key == "coalesce=stream") {
                keys.retain(|key| !key.starts_with("ack-limit="));
            }
            let name = if ["null", "sim"].contains(&kind) {
                ""
            } else {
                "name\\,x,"
            };
            format!("{kind}:{name}{}", keys.join(","))
        })
    };
    prop_oneof![
        of_kind("tap"),
        of_kind("tun"),
        of_kind("pcap"),
        of_kind("null"),
        of_kind("sim")
    ]
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
    assert!(parsed > 80, "{parsed}");
}
