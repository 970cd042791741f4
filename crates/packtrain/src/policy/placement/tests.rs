use super::*;
use crate::policy::topology::Cpu;
use proptest::prelude::*;

fn list(text: &str) -> CpuList {
    text.parse().unwrap()
}

/// A machine of `cores` cores with `threads` threads each, of which the process may use `allowed`.
/// `pairs` numbers the threads of a core one after the other (0 and 1), as FreeBSD does; Linux
/// mostly numbers all first threads first (0 and 4).
fn machine(cores: u16, threads: u16, pairs: bool, allowed: &str) -> Topology {
    let allowed = list(allowed);
    let id = |core: u16, thread: u16| {
        CpuId(if pairs {
            core * threads + thread
        } else {
            thread * cores + core
        })
    };
    let all = (0..cores).flat_map(|core| (0..threads).map(move |thread| (core, thread)));
    let cpus = all.map(|(core, thread)| Cpu {
        id: id(core, thread),
        core: id(core, 0),
    });
    Topology::new(cpus.filter(|cpu| allowed.contains(cpu.id)).collect())
}

/// Four cores of two threads: 0 and 1, 2 and 3, and so on.
fn haswell(allowed: &str) -> Topology {
    machine(4, 2, true, allowed)
}

fn ids(placed: &Placed) -> Vec<i32> {
    let number = |cpu: &Option<CpuId>| cpu.map_or(-1, |cpu| i32::from(cpu.0));
    placed.cpus.iter().map(number).collect()
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
    let placed = place(&Placement::None, &haswell("0-7"), 2, 0);
    assert_eq!((ids(&placed), placed.why), (vec![-1, -1], Why::Unbound));
}

#[test]
fn a_list_starts_again_after_its_last_cpu() {
    for (text, workers, expected) in [
        ("0,2,4,6", 4, vec![0, 2, 4, 6]),
        ("0,2,4,6", 6, vec![0, 2, 4, 6, 0, 2]),
        ("0-1", 4, vec![0, 1, 0, 1]),
        ("6,2", 3, vec![6, 2, 6]),
        ("6,2", 1, vec![6]),
        ("6,2", 0, vec![]),
        ("", 2, vec![-1, -1]),
    ] {
        let setting = Placement::List(list(text));
        // A list ignores the senders.
        let placed = place(&setting, &haswell("0-7"), workers, 9);
        assert_eq!(
            (ids(&placed), placed.why),
            (expected, Why::Listed),
            "{text}"
        );
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
fn auto_gives_each_worker_a_core_within_the_mask() {
    let linux = machine(4, 2, false, "0-7");
    for (what, topology, workers, senders, expected) in [
        ("two workers", &haswell("0-7"), 2, 1, vec![0, 2]),
        ("numbered as Linux does", &linux, 4, 0, vec![0, 1, 2, 3]),
        ("all cores", &haswell("0-7"), 4, 0, vec![0, 2, 4, 6]),
        ("room for the senders", &haswell("0-7"), 1, 3, vec![0]),
        (
            "second threads only",
            &haswell("1,3,5"),
            3,
            0,
            vec![1, 3, 5],
        ),
        (
            "a thread of one core",
            &haswell("1,4-7"),
            3,
            0,
            vec![1, 4, 6],
        ),
        ("no worker", &haswell("0-7"), 0, 0, vec![]),
    ] {
        let placed = place(&Placement::Auto, topology, workers, senders);
        assert_eq!(
            (ids(&placed), placed.why),
            (expected, Why::OwnCores),
            "{what}"
        );
    }
}

#[test]
fn with_too_few_cores_auto_binds_nothing() {
    let few = |cores, wanted| Why::FewCores { cores, wanted };
    for (topology, workers, senders, why, words) in [
        (
            machine(2, 1, true, "0-1"),
            1,
            0,
            Why::FewCpus(2),
            "few CPUs (2): the scheduler chooses",
        ),
        (
            haswell("4"),
            2,
            0,
            Why::FewCpus(1),
            "few CPUs (1): the scheduler chooses",
        ),
        // Four CPUs, but two cores.
        (
            haswell("0-3"),
            2,
            1,
            few(2, 3),
            "2 cores for 3 threads: the scheduler chooses",
        ),
        (
            haswell("0-7"),
            5,
            0,
            few(4, 5),
            "4 cores for 5 threads: the scheduler chooses",
        ),
        (
            haswell("0-7"),
            4,
            1,
            few(4, 5),
            "4 cores for 5 threads: the scheduler chooses",
        ),
    ] {
        let placed = place(&Placement::Auto, &topology, workers, senders);
        assert_eq!(placed.why.to_string(), words);
        assert_eq!((ids(&placed), placed.why), (vec![-1; workers], why));
    }
    let placed = place(&Placement::Auto, &haswell("0-7"), 1, usize::MAX);
    assert_eq!(placed.why, few(4, usize::MAX));
}

#[test]
fn without_a_topology_only_a_list_binds() {
    let error = || TopologyError::NoCpu;
    for (setting, expected, why) in [
        ("none", [-1, -1, -1], Why::Unbound),
        ("auto", [-1, -1, -1], Why::Unknown(error())),
        ("list(7,1)", [7, 1, 7], Why::ListedUnchecked(error())),
    ] {
        let placed = place_unseen(&setting.parse().unwrap(), &error(), 3);
        assert_eq!(ids(&placed), expected, "{setting}");
        assert_eq!(placed.why, why, "{setting}");
    }
    let unchecked = Why::ListedUnchecked(error()).to_string();
    assert!(unchecked.starts_with("as listed, unchecked: no CPU"));
}

fn any_topology() -> impl Strategy<Value = Topology> {
    let cpu = (0..16_u16, 0..16_u16);
    prop::collection::vec(cpu, 0..16).prop_map(|cpus| {
        let cpu = |(id, core)| Cpu {
            id: CpuId(id),
            core: CpuId(core),
        };
        Topology::new(cpus.into_iter().map(cpu).collect())
    })
}

proptest! {
    /// On any machine, even an impossible one, either no worker is bound, or each is bound to a
    /// core of its own. The process may use these cores, and a core is left for each sender.
    #[test]
    fn workers_are_never_stacked(
        topology in any_topology(), workers in 0..8_usize, senders in 0..4_usize,
    ) {
        let placed = place(&Placement::Auto, &topology, workers, senders);
        prop_assert_eq!(placed.cpus.len(), workers);
        let bound: Vec<_> = placed.cpus.iter().flatten().collect();
        prop_assert!(bound.is_empty() || bound.len() == workers);
        let mut cores: Vec<_> = topology.cpus().iter().map(|cpu| cpu.core).collect();
        cores.sort();
        cores.dedup();
        if placed.why == Why::OwnCores {
            prop_assert!(cores.len() >= workers + senders);
        }
        for id in bound {
            let cpu = topology.cpus().iter().find(|cpu| cpu.id == *id).unwrap();
            let before = cores.len();
            cores.retain(|&core| core != cpu.core);
            prop_assert_eq!(cores.len() + 1, before, "stacked on core {}", cpu.core);
        }
    }
}
