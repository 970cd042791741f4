//! Parts over workers: laws for all small numbers of queues and CPUs.

use super::{PlannedPart, QueueCounts};

#[test]
fn each_part_has_one_worker_and_no_tx_queue_one_of_its_lanes() {
    for ports in 1..=2 {
        for (a, b) in (1..=9).flat_map(|a| (1..=9).map(move |b| (a, b))) {
            for cpus in 1..=8 {
                for bits in 0..8 {
                    let flag = |bit: u32| bits & (1 << bit) != 0;
                    let queues = QueueCounts {
                        counts: [a, b][..ports].to_vec(),
                        shared: [flag(0), flag(1)][..ports].to_vec(),
                        per_direction: flag(2),
                        among: false,
                    };
                    check(&queues, cpus);
                }
            }
        }
    }
}

/// A TX queue is beside lanes that feed it only if each worker has some.
#[test]
fn among_several_ports_each_part_has_one_worker() {
    for ports in 2..=5 {
        for (count, cpus) in (1..=3).flat_map(|count| (1..=16).map(move |cpus| (count, cpus))) {
            let queues = QueueCounts {
                counts: (0..ports).map(|port| count + port % 2).collect(),
                shared: vec![true; ports],
                per_direction: true,
                among: true,
            };
            check(&queues, cpus);
            let workers = queues.place(cpus);
            for &part in workers.iter().flatten() {
                let PlannedPart::Tx { port, .. } = part else {
                    continue;
                };
                let feeds = |parts: &Vec<PlannedPart>| {
                    parts.iter().any(|part| match *part {
                        PlannedPart::Lanes { direction, .. } => direction != port,
                        PlannedPart::Tx { .. } => false,
                    })
                };
                let own = workers.iter().find(|parts| parts.contains(&part)).unwrap();
                assert!(
                    !feeds(own) || workers.iter().all(feeds),
                    "{queues:?}, {cpus} CPUs"
                );
            }
        }
    }
}

fn check(queues: &QueueCounts, cpus: usize) {
    let name = format!("{queues:?}, {cpus} CPUs");
    let workers = queues.place(cpus);
    assert!(workers.len() <= cpus.max(2), "{name}");
    assert!(workers.iter().all(|parts| !parts.is_empty()), "{name}");
    let pairs = *queues.counts.iter().min().unwrap();
    let ports = queues.counts.len();
    let lanes = (0..ports)
        .flat_map(|direction| (0..pairs).map(move |pair| PlannedPart::Lanes { direction, pair }));
    let shared = (0..ports).filter(|&port| queues.shared[port]);
    let tx = shared.flat_map(|port| {
        (0..queues.counts[port]).map(move |queue| PlannedPart::Tx { port, queue })
    });
    let mut expected: Vec<_> = lanes.chain(tx).collect();
    let mut found: Vec<_> = workers.iter().flatten().copied().collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "{name}: each part exactly once");
    for parts in &workers {
        for &part in parts {
            let PlannedPart::Tx { port, queue } = part else {
                continue;
            };
            if queues.among {
                continue;
            }
            let feeds = PlannedPart::Lanes {
                direction: ports - 1 - port,
                pair: queue % pairs,
            };
            assert!(
                !parts.contains(&feeds),
                "{name}: {part} is beside its lanes"
            );
        }
    }
    // A worker for each group and each shared TX queue, up to the limit.
    let groups = if queues.per_direction {
        pairs * ports
    } else {
        pairs
    };
    let tx_queues = found.len() - pairs * ports;
    assert_eq!(
        workers.len(),
        (groups + tx_queues).min(cpus.max(2)),
        "{name}"
    );
}
