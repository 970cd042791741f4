//! Workers and an application thread on four cores with two CPUs each.

use packtrain::engine::{Session, Settings};
use packtrain::policy::dispatch::Dispatch;
use packtrain::policy::placement::Placement;
use packtrain::policy::topology::CpuId;
use packtrain::port::sim::{Far, Sim, SimConfig};
use packtrain_testkit::rig::{Rig, Sender, fixed, ms, twice};
use packtrain_testkit::{Costs, World, machine_with_siblings};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// How long an application thread on CPU 2 needs for its packets, which a TX worker sends, and the
/// CPUs on which the workers ran.
fn send(placement: &Placement) -> (Duration, Vec<usize>) {
    twice(|| {
        let mut rig = Rig::new(machine_with_siblings(4), Costs::default(), 1);
        let settings = Settings {
            placement: placement.clone(),
            ..fixed(Dispatch::Deferred)
        };
        let port = Sim::alone(SimConfig::default(), Far::Discard, 1);
        let session = rig.add(Session::on(port).senders(0, 1), settings, 1);
        let placed = rig.sessions[session].placed();
        assert!(placed.cpus.iter().all(Option::is_some), "{placed:?}");
        let accepted = Rc::new(Cell::new(0));
        let mut sender = Sender::new(&rig.sessions[session], 0, 32_000, 32, &accepted);
        let sender = rig
            .world
            .actor(move |now, waker| sender.run(now, waker), Some(CpuId(2)));
        let trace = rig.world.run(ms(100));
        let ended = trace.tasks[sender].ended.expect("it has sent all");
        rig.end();
        let busy = (0..trace.cpus.len()).filter(|&cpu| !trace.cpus[cpu].busy.is_zero());
        (ended.since(ms(0)), busy.collect())
    })
}

/// The workers have the first two cores. The siblings of a busy CPU stay idle.
#[test]
fn auto_gives_workers_cores_of_their_own() {
    let (auto, cpus) = send(&Placement::Auto);
    assert_eq!(cpus, [0, 1, 2]);
    // The TX worker on the sibling of the application's CPU: both lose a third of their speed.
    let (stacked, cpus) = send(&"list(0,6)".parse().expect("a placement"));
    assert_eq!(cpus, [0, 2, 6]);
    let slower = stacked.as_secs_f64() / auto.as_secs_f64();
    assert!((1.4..=1.5).contains(&slower), "{stacked:?} and {auto:?}");
}

/// The list is checked against the machine of the world.
#[test]
fn a_list_with_a_cpu_that_the_machine_lacks_is_refused() {
    let world = World::new(machine_with_siblings(4), Costs::default(), 1);
    let settings = Settings {
        placement: "list(0,99)".parse().expect("a placement"),
        ..fixed(Dispatch::Deferred)
    };
    let port = Sim::alone(SimConfig::default(), Far::Discard, 1);
    let builder = Session::on(port).settings(settings);
    let error = builder.assemble_placed(world.runtime()).unwrap_err();
    let expected = "placement 'list(0,99)' has CPU 99, which";
    assert!(error.to_string().contains(expected), "{error}");
}
