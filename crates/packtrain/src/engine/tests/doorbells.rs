//! Doorbells: one for each step on an owned path, one for each drain on a shared path.

use super::fake::Queue;
use super::rig::{POLICIES, Setup, drains, is_owned, with_senders};
use crate::limits::TX_DOORBELL_DESCRIPTORS_MAX;
use crate::policy::dispatch::Dispatch;

/// The number of packets of each doorbell, and the number of packets after the last one.
fn rings(queue: &Queue) -> (Vec<usize>, usize) {
    let tx = queue.tx();
    (tx.rings.clone(), tx.pending)
}

#[test]
fn a_step_rings_once_for_all_its_bursts() {
    for (path, setup) in in_bursts() {
        let mut rig = setup.settled();
        for (index, queue) in (0u32..).zip(&rig.a) {
            queue.arrive((0..10).map(|n| index << 20 | n));
        }
        rig.b[0].arrive([9 << 20]);
        rig.settle();
        let expected = match path.as_str() {
            path if is_owned(path) => vec![40],
            path if path.starts_with("threshold") => vec![10; 4],
            path if path.starts_with("direct") || path.starts_with("adaptive") => vec![10; 4],
            _ => vec![40],
        };
        assert_eq!(rings(&rig.b[0]), (expected, 0), "{path}");
        assert_eq!(
            rings(&rig.a[0]),
            (vec![1], 0),
            "{path}: the other direction"
        );
        let before = rings(&rig.b[0]).0.len();
        for (index, queue) in (0u32..).zip(&rig.a) {
            queue.arrive((10..58).map(|n| index << 20 | n));
        }
        rig.settle();
        let (all, pending) = rings(&rig.b[0]);
        assert_eq!(
            (all[before..].iter().sum::<usize>(), pending),
            (4 * 48, 0),
            "{path}"
        );
        assert!(
            all.iter().all(|&rung| rung <= TX_DOORBELL_DESCRIPTORS_MAX),
            "{path}: {all:?}"
        );
        assert_eq!(rig.tx().doorbells, all.len() as u64, "{path}");
        rig.finish();
    }
}

/// The paths on which lanes hand over bursts. A packet alone has a doorbell of its own.
fn in_bursts() -> impl Iterator<Item = (String, Setup)> {
    let paths = Setup::new([4, 1]).on_every_path().into_iter();
    paths.filter(|(path, _)| !path.ends_with("packet by packet"))
}

#[test]
fn a_stall_in_the_middle_of_a_step_rings_the_doorbell() {
    for (path, setup) in in_bursts() {
        let mut rig = setup.settled();
        rig.b[0].tx().room = 25;
        rig.a.iter().for_each(|queue| queue.arrive(0..10));
        rig.settle();
        let (rung, pending) = rings(&rig.b[0]);
        assert_eq!((rung.iter().sum::<usize>(), pending), (25, 0), "{path}");
        rig.make_room(usize::MAX);
        let (rung, pending) = rings(&rig.b[0]);
        assert_eq!((rung.iter().sum::<usize>(), pending), (40, 0), "{path}");
        assert!(rung.len() <= 7, "{path}: not for each packet: {rung:?}");
        rig.finish();
    }
}

#[test]
fn a_handle_rings_the_doorbell_for_all_packets_that_it_drains() {
    for dispatch in POLICIES {
        let mut rig = with_senders(dispatch, 1);
        let mut handle = rig.handle(0);
        for count in [5, 2, 64] {
            handle.try_send(&mut rig.burst(0..count)).unwrap();
            assert_eq!(rig.b[0].tx().pending, 0, "{dispatch}");
        }
        if drains(dispatch) {
            assert_eq!(rings(&rig.b[0]).0, [5, 2, 64], "{dispatch}");
        }
        rig.settle();
        assert_eq!(rings(&rig.b[0]).0.iter().sum::<usize>(), 71, "{dispatch}");
        rig.finish();
    }
}

/// With `handover=packet`. The batches are those of the ring: the TX worker drains many at once.
#[test]
fn packets_are_handed_over_one_by_one() {
    let mut setup = Setup::new([1, 1]).dispatch(Dispatch::Deferred);
    setup.config[1].work.by_packet = true;
    let mut rig = setup.settled();
    rig.receive(0..32);
    assert_eq!(rig.b[0].sent(), (0..32).collect::<Vec<_>>());
    let end = rig.finish();
    let enqueue = &end.ports[1].tx_batches[0].enqueue;
    assert_eq!((enqueue.count(), enqueue.max()), (32, 1));
}
