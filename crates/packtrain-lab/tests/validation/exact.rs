//! The kernel's counters beside nstat.

use packtrain_lab::counters::Counters;
use packtrain_lab::netns;
use packtrain_lab::testbed::Through;
use packtrain_lab::tools::ping::Ping;
use packtrain_lab::tools::stream::Stream;
use packtrain_lab::topology::Host;
use serde_json::Value;
use std::collections::BTreeMap;

use crate::program::{Program, need};
use crate::{options, run, testbed};

/// nstat's counters by their names, and ours before and after it. None of them ever decreases, so
/// where nothing moves all three are equal.
struct Reading {
    before: Counters,
    nstat: BTreeMap<String, u64>,
    after: Counters,
}

impl Reading {
    fn of(host: &Host) -> Self {
        let before = host.counters().expect("counters");
        // Absolute values, zeros included, and no file that remembers them.
        let text = Program::start(host, &["nstat", "--json", "-a", "-s", "-z"]).output();
        let after = host.counters().expect("counters");
        let all: Value = serde_json::from_str(&text).expect("JSON");
        let all = all["kernel"].as_object().expect("counters");
        // Tcp MaxConn is -1, and none of ours.
        let all = all.iter();
        let all = all.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?)));
        Self {
            before,
            nstat: all.collect(),
            after,
        }
    }

    /// The growth since an earlier reading, each at least.
    fn at_least(&self, earlier: &Self) -> Counters {
        self.before.since(&earlier.after)
    }

    /// The growth since an earlier reading, each at most.
    fn at_most(&self, earlier: &Self) -> Counters {
        self.after.since(&earlier.before)
    }
}

/// Whether nstat's counter `name` is in a range. It has all, but IPv6's if that is switched off.
fn check(name: &str, nstat: Option<u64>, low: u64, high: u64) {
    match nstat {
        Some(nstat) => assert!(
            (low..=high).contains(&nstat),
            "{name}: {nstat}, and ours {low} to {high}"
        ),
        None => assert!(
            name.contains('6') && !netns::has_ipv6(),
            "nstat has no {name}"
        ),
    }
}

pub fn nstat() {
    need(&[("nstat", "iproute2")]);
    let testbed = testbed(Through::Veth, "tap");
    let hosts = [&testbed.hosts().left, &testbed.hosts().right];
    let earlier = hosts.map(Reading::of);
    for protocol in ["tcp", "udp"] {
        let keys = format!("protocol = '{protocol}', duration = '100ms', warm-up = '0'");
        run(&options::<Stream>(&[&keys]), &testbed);
    }
    for icmp in [true, false] {
        let keys = format!("icmp = {icmp}, ipv6 = {}, count = 10", netns::has_ipv6());
        run(&options::<Ping>(&[&keys]), &testbed);
    }
    let mut grown = 0;
    for (earlier, later) in earlier.iter().zip(hosts.map(Reading::of)) {
        for one in [earlier, &later] {
            for ((name, low), (_, high)) in one.before.nstat().zip(one.after.nstat()) {
                check(name, one.nstat.get(name).copied(), low, high);
            }
        }
        let (low, high) = (later.at_least(earlier), later.at_most(earlier));
        for ((name, low), (_, high)) in low.nstat().zip(high.nstat()) {
            let nstat = |reading: &Reading| reading.nstat.get(name).copied();
            let both = nstat(&later).zip(nstat(earlier));
            let growth = both.map(|(later, earlier)| later - earlier);
            check(name, growth, low, high);
            grown += usize::from(growth > Some(0));
        }
    }
    // Segments, acknowledgements, datagrams, messages and IP packets, on both sides.
    assert!(grown >= 20, "{grown} counters grew");
}
