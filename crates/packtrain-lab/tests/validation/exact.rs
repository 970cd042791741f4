//! The kernel's counters beside nstat.

use packtrain_lab::counters::Counters;
use packtrain_lab::harness::Outcome;
use packtrain_lab::netns;
use packtrain_lab::testbed::Through;
use packtrain_lab::tools::ping::Ping;
use packtrain_lab::tools::stream::Stream;
use packtrain_lab::topology::Host;
use packtrain_lab::traffic::Protocol;
use serde_json::Value;
use std::collections::BTreeMap;

use crate::program::{Program, without};
use crate::{milliseconds, run, testbed};

/// nstat's counters by their names, between two readings of ours: none of them ever decreases.
fn read(host: &Host) -> (Counters, BTreeMap<String, u64>, Counters) {
    let before = host.counters().expect("counters");
    // Absolute values, zeros included, and no file that remembers them.
    let text = Program::start(host, &["nstat", "--json", "-a", "-s", "-z"]).output();
    let after = host.counters().expect("counters");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let all = all["kernel"].as_object().expect("counters");
    let all = all.iter().filter_map(|(name, value)| {
        // Tcp MaxConn is -1.
        Some((name.clone(), value.as_u64()?))
    });
    (before, all.collect(), after)
}

pub fn nstat() -> Outcome {
    if let Some(skip) = without(&[("nstat", "iproute2")]) {
        return skip;
    }
    let testbed = testbed(Through::Veth, "tap");
    let hosts = [&testbed.hosts().left, &testbed.hosts().right];
    let earlier = hosts.map(read);
    let tcp = Stream {
        duration: milliseconds(100),
        warm_up: "0".parse().expect("a time"),
        ..Stream::default()
    };
    let udp = Stream {
        protocol: Protocol::Udp,
        ..tcp.clone()
    };
    run(&tcp, &testbed);
    run(&udp, &testbed);
    for icmp in [true, false] {
        let ping = Ping {
            icmp,
            ipv6: netns::has_ipv6(),
            count: Some(10),
            ..Ping::default()
        };
        run(&ping, &testbed);
    }
    let mut grown = 0;
    for (earlier, later) in earlier.into_iter().zip(hosts.map(read)) {
        for ((before, theirs, after), moment) in [(&earlier, "before"), (&later, "after")]
            .map(|((before, theirs, after), moment)| ((before, theirs, after), moment))
        {
            for ((name, low), (_, high)) in before.nstat().zip(after.nstat()) {
                let Some(&theirs) = theirs.get(name) else {
                    // Without IPv6 the kernel has none of its counters.
                    let is_off = name.contains('6') && !netns::has_ipv6();
                    assert!(is_off, "nstat has no {name}");
                    continue;
                };
                let range = low..=high;
                assert!(
                    range.contains(&theirs),
                    "{name} {moment}: {theirs}, {range:?}"
                );
            }
        }
        // Where nothing moved between the readings, the growth of both is the same number.
        let (ours, unsettled) = (later.0.since(&earlier.2), later.2.since(&earlier.0));
        for ((name, low), (_, high)) in ours.nstat().zip(unsettled.nstat()) {
            let (Some(before), Some(after)) = (earlier.1.get(name), later.1.get(name)) else {
                continue;
            };
            let theirs = after - before;
            assert!(
                (low..=high).contains(&theirs),
                "{name}: {theirs}, {low}..={high}"
            );
            grown += usize::from(theirs > 0);
        }
    }
    // Segments, acknowledgements, datagrams, messages and IP packets, on both sides.
    assert!(grown >= 20, "{grown} counters grew");
    Outcome::Done
}
