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
