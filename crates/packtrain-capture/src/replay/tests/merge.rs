//! Totals of captures that are replayed in parts.

use super::*;
use proptest::prelude::*;

/// A capture of trains: flow, packets and interface of each.
fn capture() -> impl Strategy<Value = Vec<(u16, u32, u32)>> {
    prop::collection::vec((0_u16..4, 1_u32..6, 0_u32..3), 0..6)
}

fn report_of(trains: &[(u16, u32, u32)]) -> Report {
    let packets: Vec<Captured> = trains
        .iter()
        .flat_map(|&(flow, count, interface)| train(flow, count, 0, 1_000, interface))
        .collect();
    replayed(&file(Format::PcapNg, &packets), Options::default()).1
}

fn merged(first: &Report, second: &Report) -> Report {
    let mut sum = first.clone();
    sum.merge(second);
    sum
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn merging_reports_is_associative(a in capture(), b in capture(), c in capture()) {
        let (a, b, c) = (report_of(&a), report_of(&b), report_of(&c));
        let left = merged(&merged(&a, &b), &c);
        prop_assert_eq!(&left, &merged(&a, &merged(&b, &c)));
        prop_assert!(left.is_closed());
        prop_assert_eq!(left.received, a.received + b.received + c.received);
    }

    /// The flows of the parts are those of the whole: one in two parts counts once.
    #[test]
    fn merged_flows_are_those_of_the_whole(a in capture(), b in capture()) {
        let whole = report_of(&[a.clone(), b.clone()].concat());
        let parts = merged(&report_of(&a), &report_of(&b));
        let flows = |report: &Report| -> Vec<u64> {
            report.interfaces.iter().map(InterfaceReport::flows).collect()
        };
        prop_assert_eq!(flows(&parts), flows(&whole));
    }
}

/// Clocks of each step, and the end and the start of all.
#[test]
fn times_are_those_of_the_packets() {
    const START: u64 = 1_700_000_000_000_000_000;
    let report = |offsets: &[u64]| {
        let packets = offsets.iter();
        let packets = packets.map(|offset| Captured::new(START + offset, 0, udp(1, b"x")));
        let packets: Vec<_> = packets.collect();
        replayed(&file(Format::PcapNg, &packets), Options::default()).1
    };
    let times = |report: &Report| {
        let times = report.times.expect("packets");
        (times.first_ns - START, times.last_ns - START, times.step_ns)
    };
    let cases: [(&[u64], _); 5] = [
        (&[0, 2_000_000_000], (0, 2_000_000_000, 1_000_000_000)),
        (
            &[2_000_000_000, 1_000_000],
            (1_000_000, 2_000_000_000, 1_000_000),
        ),
        (&[1_000_000, 3000], (3000, 1_000_000, 1000)),
        (&[3000, 1_000_000, 1], (1, 1_000_000, 1)),
        (&[7], (7, 7, 1)),
    ];
    let mut sum = report(&[]);
    assert_eq!(sum.times, None);
    for (offsets, expected) in cases {
        let one = report(offsets);
        assert_eq!(times(&one), expected);
        sum.merge(&one);
    }
    assert_eq!(times(&sum), (0, 2_000_000_000, 1));
}

#[test]
fn all_interfaces_are_one_total() {
    let packets = (0..3).flat_map(|interface| train(1, 4, 0, 1000, interface));
    let packets: Vec<_> = packets.chain(train(2, 5, 0, 1000, 0)).collect();
    let input = file(Format::PcapNg, &packets);
    // With one queue there is nothing to compare.
    for queues in [1, 4] {
        let options = Options {
            queues,
            ..Options::default()
        };
        let report = replayed(&input, options).1;
        let total = report.total();
        assert_eq!((total.frames, total.flows()), (17, 2));
        let emitted = report.interfaces.iter().map(InterfaceReport::emitted);
        assert_eq!(total.emitted(), emitted.sum::<u64>());
        let of_queues = total.queues.iter().map(|queue| queue.packets);
        let most = of_queues.clone().max().map(|most| most as f64);
        assert_eq!(total.skew(), most.map(|most| most * 4.0 / 17.0));
        assert!(queues == 1 || of_queues.sum::<u64>() == 17);
    }
}
