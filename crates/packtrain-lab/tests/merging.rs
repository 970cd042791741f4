//! Kernel TCP and UDP through software coalescing: from a TAP without offloads to one with all of
//! them. The far interface gets large packets, every byte arrives, and no packet is lost,
//! retransmitted or reordered. In the other direction ACKs are merged for the kernel that sends.

use packtrain::driver::{Coalesce, DeviceCounters, Features, Port, PortConfig};
use packtrain::engine::{Report, Session};
use packtrain::stats::RxSnapshot;
use packtrain_lab::LabError;
use packtrain_lab::counters::Counters;
use packtrain_lab::harness;
use packtrain_lab::netns;
use packtrain_lab::topology::Settings;
use packtrain_lab::traffic::{Amount, IpVersion, Protocol, Transfer, TransferReport};
use std::process::ExitCode;

fn main() -> ExitCode {
    harness::main(&[
        ("far_interface_gets_large_packets", large_packets),
        (
            "acknowledgements_are_merged_towards_a_sender",
            acknowledgements,
        ),
        ("nothing_is_merged_where_it_is_off", off),
    ])
}

const BYTES: u64 = 8 << 20;
/// Room for all packets that TCP may have in flight, so that the kernel drops none in front of
/// packtrain. Then packtrain is the cause of each retransmission and reordering.
const TX_QUEUE_LEN: u32 = 20_000;

#[derive(Clone, Copy, Debug)]
struct Case {
    coalesce: Coalesce,
    protocol: Protocol,
    ip: IpVersion,
    streams: u32,
    mtu: u32,
    /// The payload comes from the interface with offloads, so the merged packets are ACKs.
    acks: bool,
}

/// The result of one transfer.
struct Counts {
    transfer: TransferReport,
    report: Report,
    /// The kernel's counts of each interface, in its directions.
    devices: [DeviceCounters; 2],
    /// For each host, during the transfer.
    kernels: [Counters; 2],
}

impl Counts {
    fn kernel_drops(&self) -> u64 {
        let dropped = |device: &DeviceCounters| device.rx_dropped + device.tx_dropped;
        self.devices.iter().map(dropped).sum()
    }
}

fn run(case: Case) -> Result<Counts, LabError> {
    let settings = Settings {
        mtu: case.mtu,
        tx_queue_len: TX_QUEUE_LEN,
        ..Settings::default()
    };
    let offloads = [Features::NONE, Features::ALL];
    let (hosts, a, b) = harness::taps(&settings, ["merge-a", "merge-b"], |side, config| {
        config.offload = side.of(offloads);
    });
    let config = |offload| PortConfig {
        offload,
        coalesce: case.coalesce,
        ..PortConfig::default()
    };
    let [a, b] = [(a, Features::NONE), (b, Features::ALL)].map(|(driver, offload)| Port {
        driver,
        config: config(offload),
    });
    let session = Session::between(a, b).start();
    let session = session.unwrap_or_else(|error| panic!("{case:?}: {error}"));
    let transfer = match case.protocol {
        Protocol::Tcp => Transfer::tcp(case.ip, Amount::Bytes(BYTES)),
        // The receiver can buffer that many while it does not run.
        Protocol::Udp => Transfer::udp(case.ip, Amount::Bytes(BYTES / 4))
            .train(40)
            .window(256)
            .gro(true),
    };
    let before = [hosts.left.counters()?, hosts.right.counters()?];
    let (from, to) = if case.acks {
        (&hosts.right, &hosts.left)
    } else {
        (&hosts.left, &hosts.right)
    };
    let transfer = transfer.streams(case.streams).run(from, to)?;
    let kernels = [
        hosts.left.counters()?.since(&before[0]),
        hosts.right.counters()?.since(&before[1]),
    ];
    // The devices are read after the last packet was sent, so their counts equal packtrain's.
    let report = session.finish();
    let devices = [0, 1].map(|port: usize| report.devices[port].expect("a TAP counts"));
    Ok(Counts {
        transfer,
        report,
        devices,
        kernels,
    })
}

fn flushes(rx: &RxSnapshot) -> u64 {
    sum(rx, "gro_flush_")
}

fn passed(rx: &RxSnapshot) -> u64 {
    sum(rx, "gro_passed_")
}

fn sum(rx: &RxSnapshot, prefix: &str) -> u64 {
    let of = rx.values().filter(|(name, _)| name.starts_with(prefix));
    of.map(|(_, count)| count).sum()
}

fn check(case: Case, counts: &Counts) {
    let Counts {
        transfer,
        report,
        devices,
        kernels,
    } = counts;
    let snapshot = &report.snapshot;
    assert!(report.error.is_none(), "{case:?}: {:?}", report.error);
    assert!(transfer.hash_ok, "{case:?}: bytes differ");
    assert!(snapshot.ledger.closed(), "{case:?}: {:?}", snapshot.ledger);
    assert_eq!(snapshot.ledger.held, 0, "{case:?}");
    assert_eq!(snapshot.ledger.dropped, 0, "{case:?}: {:?}", snapshot.drops);
    assert_eq!(kernels[0].tcp_in_csum_errors, 0, "{case:?}");
    assert_eq!(kernels[1].tcp_in_csum_errors, 0, "{case:?}");
    let (sender, receiver) = if case.acks { (1, 0) } else { (0, 1) };
    if counts.kernel_drops() == 0 {
        // No packet was lost, so packtrain is the cause of any reordering.
        assert_eq!(kernels[receiver].tcp_ofo_queue, 0, "{case:?}");
        // Tail loss probes and timeouts are caused by hosts that did not run for that long.
        let probes = kernels[sender].tcp_loss_probes;
        let timed_out = kernels[sender].tcp_timeouts > 0;
        assert!(
            transfer.retransmits <= probes || timed_out,
            "{case:?}: {probes} probes, {transfer:?}"
        );
    }
    // The kernel's counts of sent and received packets against packtrain's.
    let (rx, tx) = (snapshot.ports[0].rx_total(), snapshot.ports[1].tx_total());
    assert_eq!(rx.packets, devices[0].tx_packets, "{case:?}");
    assert_eq!(tx.packets, devices[1].rx_packets, "{case:?}");
    assert_eq!(devices[1].rx_errors + devices[1].rx_dropped, 0, "{case:?}");
    // Every packet was counted once. The far side has fewer packets by those that were merged.
    assert_eq!(rx.gso_packets, 0, "{case:?}");
    if case.coalesce != Coalesce::Off {
        let alone = flushes(&rx) - rx.gro_packets;
        assert_eq!(rx.packets, passed(&rx) + rx.gro_wire_packets + alone);
    }
    let fewer = rx.gro_wire_packets - rx.gro_packets;
    assert_eq!(
        devices[0].tx_packets - devices[1].rx_packets,
        fewer,
        "{case:?}"
    );
    assert_eq!(rx.csum_bad, 0, "{case:?}");
    assert_eq!(tx.defrag + tx.collapse, 0, "{case:?}: merged packets fit");
}

fn large_packets() {
    let versions = netns::ip_versions();
    let modes = [
        Coalesce::Auto,
        Coalesce::Hash,
        Coalesce::Sorted,
        Coalesce::Stream,
    ];
    for &ip in versions {
        for (protocol, streams, mtu) in [
            (Protocol::Tcp, 1, 1500),
            (Protocol::Tcp, 8, 1500),
            (Protocol::Tcp, 1, 9000),
            (Protocol::Udp, 1, 1500),
        ] {
            for coalesce in modes {
                let case = Case {
                    coalesce,
                    protocol,
                    ip,
                    streams,
                    mtu,
                    acks: false,
                };
                let counts = run(case).unwrap_or_else(|error| panic!("{case:?}: {error}"));
                print(case, &counts);
                check(case, &counts);
                let (sent, arrived) = (counts.devices[0].tx_packets, counts.devices[1].rx_packets);
                // Much fewer, by the two kernels' own counts; how many depends on the scheduler.
                let limit = if mtu == 1500 { sent / 2 } else { sent * 4 / 5 };
                assert!(arrived < limit, "{case:?}: {arrived} frames for {sent}");
            }
        }
    }
}

/// Data goes to the interface without offloads, and is segmented. Its kernel acknowledges every
/// second packet, and the ACKs are merged for the kernel that sends.
fn acknowledgements() {
    let versions = netns::ip_versions();
    for &ip in versions {
        for (coalesce, streams) in [
            (Coalesce::Stream, 1),
            (Coalesce::Stream, 8),
            (Coalesce::Hash, 1),
        ] {
            let case = Case {
                coalesce,
                protocol: Protocol::Tcp,
                ip,
                streams,
                mtu: 1500,
                acks: true,
            };
            let counts = run(case).unwrap_or_else(|error| panic!("{case:?}: {error}"));
            print(case, &counts);
            check(case, &counts);
            let rx = counts.report.snapshot.ports[0].rx_total();
            let (sent, arrived) = (counts.devices[0].tx_packets, counts.devices[1].rx_packets);
            // By the two kernels' own counts.
            assert_eq!(rx.absorbed, sent - arrived, "{case:?}");
            if coalesce == Coalesce::Stream {
                assert!(rx.absorbed > 0, "{case:?}: {arrived} frames for {sent}");
            } else {
                assert_eq!(rx.absorbed, 0, "{case:?}: no cut gives them back");
            }
        }
    }
}

fn print(case: Case, counts: &Counts) {
    let rx = counts.report.snapshot.ports[0].rx_total();
    let flushes: Vec<_> = rx
        .values()
        .filter(|(name, count)| *count > 0 && name.starts_with("gro_"))
        .map(|(name, count)| format!("{}={count}", &name["gro_".len()..]))
        .collect();
    println!(
        "{case:?}: {} frames from {} wire packets; {} dropped by kernels, {} resent; {}",
        counts.devices[1].rx_packets,
        counts.devices[0].tx_packets,
        counts.kernel_drops(),
        counts.transfer.retransmits,
        flushes.join(" ")
    );
}

fn off() {
    let case = Case {
        coalesce: Coalesce::Off,
        protocol: Protocol::Tcp,
        ip: IpVersion::V4,
        streams: 1,
        mtu: 1500,
        acks: false,
    };
    let counts = run(case).unwrap_or_else(|error| panic!("{case:?}: {error}"));
    check(case, &counts);
    assert_eq!(counts.devices[0].tx_packets, counts.devices[1].rx_packets);
    assert_eq!(counts.report.snapshot.ports[1].tx_total().gso_packets, 0);
}
