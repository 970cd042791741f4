use super::*;
use proptest::prelude::*;

fn list(text: &str) -> CpuList {
    text.parse().unwrap()
}

/// A machine of sockets, with as many cores each and threads of a core; each socket has a memory
/// node and a last-level cache. `pairs` counts the threads of a core one after the other (0 and 1),
/// as FreeBSD does; Linux mostly counts all first threads first (0 and 4).
fn machine(sockets: u16, cores: u16, threads: u16, pairs: bool, allowed: &str) -> Topology {
    let allowed = list(allowed);
    let all = sockets * cores;
    let id = |core: u16, thread: u16| {
        CpuId(if pairs {
            core * threads + thread
        } else {
            thread * all + core
        })
    };
    let cpus = (0..all).flat_map(|core| {
        let allowed = &allowed;
        (0..threads).map(move |thread| Cpu {
            id: id(core, thread),
            core: id(core, 0),
            l2: id(core, 0),
            llc: id(core / cores * cores, 0),
            node: core / cores,
            package: core / cores,
            allowed: allowed.contains(id(core, thread)),
        })
    });
    Topology::new(cpus.collect())
}

/// The 4×2 of S1, with siblings 0 and 1, 2 and 3, …
fn haswell(allowed: &str) -> Topology {
    machine(1, 4, 2, true, allowed)
}

fn ids(placed: &Placed) -> Vec<i32> {
    let number = |cpu: &Option<CpuId>| cpu.map_or(-1, |cpu| i32::from(cpu.0));
    placed.cpus.iter().map(number).collect()
}

fn auto(topology: &Topology, queues: &[Queue], busy: &str, application: usize) -> Placed {
    let wanted = Wanted {
        queues,
        busy: &list(busy),
        application,
    };
    place(&Placement::Auto, topology, &wanted)
}

const NEW: Queue = Queue {
    peer: None,
    now: None,
};

const fn peer(of: usize) -> Queue {
    Queue {
        peer: Some(of),
        now: None,
    }
}

const fn at(cpu: u16) -> Queue {
    Queue {
        peer: None,
        now: Some(CpuId(cpu)),
    }
}

#[test]
fn settings_are_written_as_they_are_read_or_refused() {
    for text in ["none", "auto", "list(0)", "list(0,2-3)", "list(6,4,2,0)"] {
        assert_eq!(text.parse::<Placement>().unwrap().to_string(), text);
    }
    assert_eq!(Placement::default(), Placement::Auto);
    let write = "write none, list(cpus) as in list(0,2-3), or auto";
    for (text, why) in [
        ("numa", "'numa' is not known"),
        ("auto(1)", "'auto(1)' has arguments, but 'auto' takes none"),
        ("list", "'list' lacks the arguments of 'list'"),
        ("list()", "'list()' names no CPU"),
        (
            "list(0,a)",
            "'list(0,a)' has something that is no number of a CPU",
        ),
        (
            "list(3-1)",
            "'list(3-1)' has a range that ends before it begins",
        ),
        ("list(2,2)", "'list(2,2)' has CPU 2 twice"),
        ("list(9999)", "'list(9999)' has a CPU above 8191"),
        ("list(1", "'list(1' does not end with its parenthesis"),
    ] {
        let error = text.parse::<Placement>().unwrap_err().to_string();
        assert_eq!(error, format!("placement {why}; {write}"));
    }
}

#[test]
fn none_binds_nothing() {
    let wanted = Wanted {
        queues: &[NEW, at(3)],
        busy: &list(""),
        application: 0,
    };
    let placed = place(&Placement::None, &haswell("0-7"), &wanted);
    assert_eq!((ids(&placed), placed.why), (vec![-1, -1], Why::Unbound));
}

/// mechanisms-bsd.md 4.8 case 1 and 6.10 case 8.
#[test]
fn a_list_goes_around() {
    for (text, queues, allowed, expected, why) in [
        ("0,2,4,6", 4, "0-7", vec![0, 2, 4, 6], Why::Listed),
        ("0,2,4,6", 6, "0-7", vec![0, 2, 4, 6, 0, 2], Why::Listed),
        ("0-1", 4, "0-7", vec![0, 1, 0, 1], Why::Listed),
        ("6,2", 3, "0-7", vec![6, 2, 6], Why::Listed),
        // The mask changed: where the list cannot be had, the scheduler chooses.
        ("6,2", 3, "0-3", vec![-1, 2, -1], Why::NotAllowed(CpuId(6))),
        ("9", 1, "0-7", vec![-1], Why::NotAllowed(CpuId(9))),
    ] {
        let wanted = Wanted {
            queues: &vec![NEW; queues],
            busy: &list("0-7"),
            application: 9,
        };
        let setting = Placement::List(list(text));
        let placed = place(&setting, &haswell(allowed), &wanted);
        assert_eq!((ids(&placed), placed.why), (expected, why), "{text}");
    }
}

#[test]
fn a_list_is_checked_at_start() {
    let topology = haswell("0-3");
    assert_eq!(Placement::Auto.check(&topology), Ok(()));
    assert_eq!(Placement::List(list("3,0")).check(&topology), Ok(()));
    let error = Placement::List(list("0,5")).check(&topology).unwrap_err();
    assert_eq!(
        error.to_string(),
        "placement 'list(0,5)' has CPU 5, which this process may not use, or which is offline; \
         choose from 0-3, or widen its cpuset or affinity mask"
    );
}

#[test]
fn on_a_4_by_2_machine_each_queue_has_a_core() {
    let linux = machine(1, 4, 2, false, "0-7");
    for (what, topology, queues, busy, application, expected) in [
        ("two queues", &haswell("0-7"), 2, "", 1, vec![0, 2]),
        ("as Linux counts", &linux, 4, "", 0, vec![0, 1, 2, 3]),
        ("all cores", &haswell("0-7"), 4, "", 0, vec![0, 2, 4, 6]),
        // S1: when CPU 6 runs another thread, neither 6 nor 7.
        ("6 is busy", &haswell("0-7"), 3, "6", 0, vec![0, 2, 4]),
        (
            "a sibling is busy",
            &haswell("0-7"),
            3,
            "1",
            0,
            vec![2, 4, 6],
        ),
        ("so as Linux counts", &linux, 3, "4", 0, vec![1, 2, 3]),
        // A sibling that this process may not use still shares the core.
        (
            "not ours, busy",
            &haswell("0,2,4-7"),
            3,
            "1",
            0,
            vec![2, 4, 6],
        ),
        (
            "only second threads",
            &haswell("1,3,5"),
            3,
            "",
            0,
            vec![1, 3, 5],
        ),
        ("nothing to place", &haswell("0-7"), 0, "", 0, vec![]),
    ] {
        let placed = auto(topology, &vec![NEW; queues], busy, application);
        assert_eq!(
            (ids(&placed), placed.why),
            (expected, Why::OwnCores),
            "{what}"
        );
    }
}

#[test]
fn where_cores_are_few_the_scheduler_chooses() {
    let few = |free, wanted| Why::FewCores { free, wanted };
    for (topology, queues, busy, application, why) in [
        (machine(1, 2, 1, true, "0-1"), 1, "", 0, Why::FewCpus(2)),
        (haswell("0,2"), 1, "", 0, Why::FewCpus(2)),
        (haswell("4"), 2, "", 0, Why::FewCpus(1)),
        // Four CPUs, but two cores.
        (haswell("0-3"), 2, "", 1, few(2, 3)),
        (haswell("0-7"), 5, "", 0, few(4, 5)),
        (haswell("0-7"), 4, "", 1, few(4, 5)),
        (haswell("0-7"), 3, "2,7", 0, few(2, 3)),
        (haswell("0-7"), 1, "0-7", 0, few(0, 1)),
        (haswell("0-7"), 1, "", usize::MAX, few(4, usize::MAX)),
    ] {
        let placed = auto(&topology, &vec![NEW; queues], busy, application);
        assert_eq!((ids(&placed), placed.why), (vec![-1; queues], why));
    }
}

#[test]
fn peers_are_near_each_other() {
    // Two sockets of four cores: 0 to 3, and 4 to 7.
    let two = |allowed| machine(2, 4, 1, true, allowed);
    for (what, topology, queues, busy, expected) in [
        (
            "the socket with more free cores, and all there",
            two("0-7"),
            vec![NEW, NEW, NEW],
            "0,2",
            vec![4, 5, 6],
        ),
        (
            "beside its peer, though lower cores are free",
            two("0-7"),
            vec![at(6), peer(0)],
            "",
            vec![6, 4],
        ),
        (
            "each beside its own",
            two("0-7"),
            vec![at(0), at(7), peer(1), peer(0)],
            "",
            vec![0, 7, 4, 1],
        ),
        (
            "no core is left there",
            two("0-7"),
            vec![at(6), peer(0)],
            "4,5,7",
            vec![6, 0],
        ),
        (
            "a peer that comes later, or never, is no peer",
            two("0-7"),
            vec![peer(1), peer(9), peer(2)],
            "",
            vec![0, 1, 2],
        ),
    ] {
        let placed = auto(&topology, &queues, busy, 0);
        assert_eq!(ids(&placed), expected, "{what}");
    }
}

#[test]
fn a_shared_second_level_cache_is_nearer_than_the_last_level() {
    // Cores 0 to 3, pairs of which share a second level: as the small cores of some machines.
    let cpus = (0..4).map(|id| Cpu {
        id: CpuId(id),
        core: CpuId(id),
        l2: CpuId(id % 2),
        llc: CpuId(0),
        node: 0,
        package: 0,
        allowed: true,
    });
    let placed = auto(&Topology::new(cpus.collect()), &[at(1), peer(0)], "", 0);
    assert_eq!(ids(&placed), [1, 3]);
}

#[test]
fn who_may_stay_stays_when_the_mask_changes() {
    for (what, allowed, queues, busy, expected) in [
        ("nothing changed", "0-7", vec![at(4), at(2)], "", vec![4, 2]),
        ("one has to go", "0-5", vec![at(6), at(2)], "", vec![0, 2]),
        // It is itself what makes the CPU busy.
        ("itself", "0-7", vec![at(4), NEW], "4", vec![4, 0]),
        (
            "stacked, the second goes",
            "0-7",
            vec![at(4), at(5)],
            "",
            vec![4, 0],
        ),
        ("unknown CPU", "0-7", vec![at(99)], "", vec![0]),
        ("too few", "0-1", vec![at(0), at(6)], "", vec![-1, -1]),
        (
            "too few cores",
            "0-3",
            vec![at(0), at(6), at(2)],
            "",
            vec![-1; 3],
        ),
    ] {
        let placed = auto(&haswell(allowed), &queues, busy, 0);
        assert_eq!(ids(&placed), expected, "{what}");
    }
}

fn any_cpus() -> impl Strategy<Value = CpuList> {
    prop::collection::vec(0..20_u16, 0..20).prop_map(|cpus| cpus.into_iter().map(CpuId).collect())
}

fn any_topology() -> impl Strategy<Value = Topology> {
    let group = || 0..16_u16;
    let cpu = (
        group(),
        group(),
        group(),
        group(),
        group(),
        group(),
        any::<bool>(),
    );
    prop::collection::vec(cpu, 0..16).prop_map(|cpus| {
        let cpu = |(id, core, l2, llc, node, package, allowed): (_, _, _, _, _, _, _)| Cpu {
            id: CpuId(id),
            core: CpuId(core),
            l2: CpuId(l2),
            llc: CpuId(llc),
            node,
            package,
            allowed,
        };
        Topology::new(cpus.into_iter().map(cpu).collect())
    })
}

proptest! {
    /// On any machine, also one that cannot be: who is bound is bound to what may be used, to a
    /// core of its own, and not beside what was busy before; and all or none are bound.
    #[test]
    fn queues_are_never_stacked(
        topology in any_topology(), busy in any_cpus(), application in 0..3_usize,
        queues in prop::collection::vec(
            (prop::option::of(0..9_usize), prop::option::of(0..20_u16)),
            0..8,
        ),
    ) {
        let queues: Vec<_> = queues
            .into_iter()
            .map(|(peer, now)| Queue { peer, now: now.map(CpuId) })
            .collect();
        let wanted = Wanted { queues: &queues, busy: &busy, application };
        let placed = place(&Placement::Auto, &topology, &wanted);
        prop_assert_eq!(placed.cpus.len(), queues.len());
        let bound: Vec<_> = placed.cpus.iter().flatten().collect();
        prop_assert!(bound.is_empty() || bound.len() == queues.len());
        let mut cores = Vec::new();
        for (cpu, queue) in placed.cpus.iter().zip(&queues) {
            let Some(id) = *cpu else { continue };
            prop_assert!(topology.allows(id));
            let core = topology.cpu(id).unwrap().core;
            prop_assert!(!cores.contains(&core), "stacked on core {}", core);
            cores.push(core);
            let beside = |busy: &&CpuId| topology.cpu(**busy).is_some_and(|cpu| cpu.core == core);
            prop_assert!(queue.now == *cpu || !busy.as_slice().iter().any(|busy| beside(&busy)));
        }
        // Asked again, with nothing changed, nobody moves.
        let settled: Vec<_> = queues
            .iter()
            .zip(&placed.cpus)
            .map(|(queue, &now)| Queue { now: now.or(queue.now), ..*queue })
            .collect();
        let wanted = Wanted { queues: &settled, busy: &busy, application };
        prop_assert_eq!(place(&Placement::Auto, &topology, &wanted), placed);
    }
}
