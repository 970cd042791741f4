//! Queues that are paused, resumed and reset while they run, on both paths. The tests in
//! [`resets`](super::resets) do so at random.

use super::coalesce::{flow, merging};
use super::rig::{Rig, Setup, is_owned, ring_slots};
use crate::engine::control::{Command, CommandError, Queues};
use crate::time::Instant;
use std::time::Duration;

const TO_B: Queues = Queues::tx(1);
const FROM_A: Queues = Queues::rx(0);

#[test]
fn packets_that_wait_for_a_pause_go_out_after_it() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        let device = rig.b[0].clone();
        rig.receive(0..10);
        assert_eq!(rig.command(TO_B, Command::Pause), Ok(1), "{path}");
        assert_eq!(rig.command(TO_B, Command::Pause), Ok(1), "{path}");
        rig.receive(10..1500);
        let (polls, asked) = (rig.a[0].rx().polls, device.tx().asked);
        for _ in 0..5 {
            rig.settle();
            rig.advance(Duration::from_millis(300));
        }
        assert_eq!(rig.a[0].rx().polls, polls, "{path}: not polled");
        assert_eq!(
            (device.sent().len(), device.tx().asked),
            (10, asked),
            "{path}"
        );
        let tx = rig.tx();
        assert_eq!(
            (tx.stalls, tx.stall_flush, tx.restarts),
            (1, 1, 0),
            "{path}"
        );
        let held = rig.closed().ledger.held as usize;
        let ring = ring_slots(&path);
        assert!(held >= ring && held <= ring + 128, "{path}: {held}");
        assert_eq!(rig.command(TO_B, Command::Resume), Ok(1), "{path}");
        device.assert_sent(0..1500, &path);
        assert_eq!(rig.command(TO_B, Command::Resume), Ok(1), "{path}");
        let tx = rig.tx();
        assert_eq!((tx.stalls, tx.restarts, tx.hangs), (1, 1, 0), "{path}");
        assert_eq!(rig.finish().ledger.dropped, 0, "{path}");
    }
}

#[test]
fn packets_in_the_device_at_a_pause_are_collected_without_a_wake_up() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        let device = rig.b[0].clone();
        device.tx().keeps = true;
        rig.receive(0..20);
        rig.command(TO_B, Command::Pause).unwrap();
        rig.receive(20..30);
        device.complete(20);
        rig.pass_until(|_| device.tx().kept.is_empty());
        assert_eq!(device.sent().len(), 20, "{path}");
        rig.command(TO_B, Command::Resume).unwrap();
        device.assert_sent(0..30, &path);
        device.complete(30);
        rig.finish();
    }
}

/// A reset, a stall and a link that is down during a pause. No packet goes out before the resume,
/// and then all do, in order.
#[test]
fn a_pause_outlasts_a_stall_a_reset_and_a_link_that_is_down() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        let device = rig.b[0].clone();
        (device.tx().keeps, device.tx().forgets, device.tx().room) = (true, true, 10);
        rig.receive(0..30);
        assert_eq!(device.sent().len(), 10, "{path}: stalled");
        rig.command(TO_B, Command::Pause).unwrap();
        rig.make_room(usize::MAX);
        rig.receive(30..40);
        assert_eq!(device.sent().len(), 10, "{path}");
        rig.command(TO_B, Command::Reset).unwrap();
        device.tx().link_down = true;
        rig.settle();
        assert!(device.sent().is_empty(), "{path}: taken back");
        assert_eq!(rig.closed().ledger.transmitted, 0, "{path}");
        device.tx().link_down = false;
        rig.command(TO_B, Command::Resume).unwrap();
        device.assert_sent(0..40, &path);
        device.complete(usize::MAX);
        let tx = rig.finish().ports[1].tx[0];
        assert_eq!((tx.resets, tx.taken_back), (1, 10), "{path}");
    }
}

/// Waiting packets are sent, and the run ends at once.
#[test]
fn a_stop_overrides_a_pause() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        for keeps in [false, true] {
            let mut rig = setup.forward();
            let device = rig.b[0].clone();
            (device.tx().keeps, device.tx().room) = (keeps, 0);
            rig.receive(0..50);
            rig.command(TO_B, Command::Pause).unwrap();
            rig.make_room(usize::MAX);
            assert!(device.sent().is_empty(), "{path}");
            let stopped = rig.now();
            rig.session.stop();
            rig.settle();
            device.assert_sent(0..50, &path);
            device.complete(50);
            rig.settle();
            assert!(rig.is_done() && rig.now() == stopped, "{path}, {keeps}");
            let end = rig.finish();
            assert_eq!(
                (end.ledger.transmitted, end.ledger.dropped),
                (50, 0),
                "{path}"
            );
        }
    }
}

/// A command reaches a TX worker while producers keep the ring busy.
#[test]
fn a_command_is_carried_out_while_a_producer_drains() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        if is_owned(&path) || !path.ends_with("senders") {
            continue;
        }
        let mut rig = setup.forward();
        let mut handle = rig.handle(0);
        rig.settle();
        let control = rig.session.control().clone();
        rig.b[0].tx().meanwhile = Some(Box::new(move || {
            assert!(control.send(TO_B, Command::Pause).is_some());
        }));
        handle.try_send(&mut rig.burst(0..5)).unwrap();
        rig.settle();
        handle.try_send(&mut rig.burst(5..10)).unwrap();
        rig.settle();
        rig.b[0].assert_sent(0..5, format!("{path}: paused"));
        rig.command(TO_B, Command::Resume).unwrap();
        rig.b[0].assert_sent(0..10, &path);
        rig.finish();
    }
}

#[test]
fn a_command_returns_its_number_of_queues_or_an_error() {
    for (path, setup) in Setup::new([3, 3]).on_every_path() {
        let mut rig = setup.forward();
        for (queue, forgets) in rig.b.iter().zip([true, false, true]) {
            queue.tx().forgets = forgets;
        }
        let of = |queue| Queues::tx(1).only(queue);
        for what in [Command::Pause, Command::Resume] {
            assert_eq!(rig.command(TO_B, what), Ok(3), "{path}");
            assert_eq!(rig.command(of(2), what), Ok(1), "{path}");
            assert_eq!(rig.command(FROM_A, what), Ok(3), "{path}");
            assert_eq!(rig.command(FROM_A.only(1), what), Ok(1), "{path}");
        }
        assert_eq!(rig.command(of(0), Command::Reset), Ok(1), "{path}");
        let cannot = |done| Err(CommandError::Unsupported { done });
        assert_eq!(rig.command(of(1), Command::Reset), cannot(0), "{path}");
        assert_eq!(rig.command(TO_B, Command::Reset), cannot(2), "{path}");
        assert_eq!(
            rig.command(Queues::tx(0), Command::Reset),
            cannot(0),
            "{path}"
        );
        assert_eq!(rig.command(FROM_A, Command::Reset), cannot(0), "{path}");
        for what in [Command::Pause, Command::Resume, Command::Reset] {
            for queues in [of(3), FROM_A.only(3), Queues::rx(2), Queues::tx(2)] {
                let none = Err(CommandError::NoSuchQueue);
                assert_eq!(rig.command(queues, what), none, "{path}");
            }
        }
        let resets: Vec<_> = rig.b.iter().map(|queue| queue.tx().resets).collect();
        assert_eq!(resets, [2, 0, 1], "{path}");
        rig.stop();
        rig.workers.clear();
        let ended = Err(CommandError::Ended { done: 0 });
        let control = rig.session.control().clone();
        assert_eq!(control.command(TO_B, Command::Reset), ended, "{path}");
    }
}

/// A device that is removed at a reset ends the run.
#[test]
fn a_reset_that_fails_ends_the_run() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.settled();
        rig.b[0].tx().removed = true;
        let sent = rig.session.control().send(TO_B, Command::Reset).unwrap();
        rig.try_settle();
        assert_eq!(rig.removed_port(), Some(1), "{path}");
        rig.workers.clear();
        assert_eq!(sent.wait(), Err(CommandError::Ended { done: 0 }), "{path}");
        rig.closed();
    }
}

/// A dropped worker answers the commands that it has not carried out.
#[test]
fn a_dropped_worker_answers_its_commands() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig: Rig = setup.forward();
        let sent = rig.session.control().send(TO_B, Command::Pause).unwrap();
        rig.workers.clear();
        assert_eq!(sent.wait(), Err(CommandError::Ended { done: 0 }), "{path}");
        assert!(rig.session.is_over(), "{path}");
        assert!(rig.now() > Instant::default());
        rig.closed();
    }
}

/// Steps of all workers.
fn steps(rig: &Rig) -> u64 {
    let workers = rig.closed().workers;
    workers.iter().map(|worker| worker.steps).sum()
}

/// The device raises an interrupt, has a descriptor that stays readable, or names a time: each
/// would wake the worker of a running queue.
#[test]
fn a_paused_rx_queue_is_not_polled_and_wakes_no_worker() {
    for (path, setup) in Setup::new([2, 2]).on_every_path() {
        for with_fds in [false, true] {
            let setup = Setup {
                with_fds,
                ..setup.clone()
            };
            let mut rig = setup.forward();
            let (first, second) = (rig.a[0].clone(), rig.a[1].clone());
            first.arrive(0..10);
            rig.settle();
            let only = FROM_A.only(0);
            assert_eq!(rig.command(only, Command::Pause), Ok(1), "{path}");
            assert_eq!(rig.command(only, Command::Pause), Ok(1), "{path}");
            // The queue was armed before the pause, so one interrupt ends a sleep.
            first.arrive(10..20);
            first.rx().next_at = Some(Instant::from_nanos(0));
            rig.settle();
            let asked = || {
                let rx = first.rx();
                (rx.polls, rx.arms)
            };
            let (before, steps_before) = (asked(), steps(&rig));
            for number in 20..1500 {
                first.arrive([number]);
                rig.settle();
            }
            assert_eq!(steps(&rig), steps_before, "{path}");
            // The other queues continue.
            second.arrive(5000..5010);
            rig.b[0].arrive(6000..6010);
            rig.settle();
            rig.advance(Duration::from_secs(3));
            rig.settle();
            assert_eq!(asked(), before, "{path}");
            assert_eq!(rig.b[0].sent().len(), 10, "{path}");
            rig.b[1].assert_sent(5000..5010, &path);
            rig.a[0].assert_sent(6000..6010, &path);
            assert_eq!(rig.closed().ledger.held, 0, "{path}");
            // Packets that have arrived are received at once, and later ones wake the worker.
            first.rx().next_at = None;
            assert_eq!(rig.command(only, Command::Resume), Ok(1), "{path}");
            rig.b[0].assert_sent(0..1500, &path);
            first.arrive([1500]);
            rig.settle();
            assert_eq!(rig.b[0].sent().len(), 1501, "{path}");
            let end = rig.finish();
            let pauses = end.ports[0].rx.iter().map(|rx| rx.pauses);
            assert!(pauses.eq([1, 0]), "{path}");
            assert_eq!(end.ledger.dropped, 0, "{path}");
        }
    }
}

/// The port is paused before its first packet, which arrives during the pause. No step polls the
/// queues before the resume.
#[test]
fn a_packet_that_arrives_during_a_pause_is_not_missed() {
    for (path, setup) in Setup::new([2, 2]).on_every_path() {
        let mut rig = setup.forward();
        assert_eq!(rig.command(FROM_A, Command::Pause), Ok(2), "{path}");
        assert!(rig.a.iter().all(|queue| queue.rx().polls == 0), "{path}");
        rig.a.iter().for_each(|queue| queue.arrive([1]));
        rig.settle();
        assert_eq!(rig.closed().ledger.received, 0, "{path}");
        assert_eq!(rig.command(FROM_A, Command::Resume), Ok(2), "{path}");
        assert!(rig.b.iter().all(|queue| queue.sent() == [1]), "{path}");
        rig.finish();
    }
}

/// The command flushes the packets held by the coalescer, even if the TX queue is paused right
/// after.
#[test]
fn a_pause_flushes_the_coalescer() {
    for (path, setup) in merging([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        rig.a[0].arrive_tcp(flow(7, 0..30));
        rig.run(0);
        assert_eq!(rig.closed().ledger.held, 30, "{path}");
        assert!(rig.b[0].tx().tcp.is_empty(), "{path}");
        let polls = rig.a[0].rx().polls;
        let control = rig.session.control().clone();
        let sent = [FROM_A, TO_B].map(|queues| control.send(queues, Command::Pause).unwrap());
        rig.settle();
        assert_eq!(sent.map(|ticket| ticket.wait()), [Ok(1); 2], "{path}");
        assert_eq!(rig.a[0].rx().polls, polls, "{path}");
        let reached = |rig: &Rig| rig.b[0].tx().tcp.len();
        if is_owned(&path) {
            assert_eq!(reached(&rig), 1, "{path}");
        } else {
            let tx = rig.tx();
            assert_eq!(tx.direct + tx.deferred, 1, "{path}: in the ring or sent");
        }
        rig.command(TO_B, Command::Resume).unwrap();
        assert_eq!((reached(&rig), rig.closed().ledger.held), (1, 0), "{path}");
        rig.finish();
    }
}

/// Packets received before the pause that wait for a device leave when it has room.
#[test]
fn a_paused_rx_queue_sends_its_packets_after_a_stall() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        let device = rig.b[0].clone();
        device.tx().room = 0;
        rig.receive(0..3000);
        let received = rig.closed().ledger.received;
        assert!(received > 0, "{path}");
        assert_eq!(rig.command(FROM_A, Command::Pause), Ok(1), "{path}");
        assert_eq!(rig.closed().ledger.held, received, "{path}");
        rig.make_room(usize::MAX);
        let ledger = rig.closed().ledger;
        assert_eq!(
            (ledger.received, ledger.transmitted, ledger.held),
            (received, received, 0),
            "{path}"
        );
        assert_eq!(rig.command(FROM_A, Command::Resume), Ok(1), "{path}");
        device.assert_sent(0..3000, &path);
        rig.finish();
    }
}

/// Packets that wait in the queue's device stay there.
#[test]
fn a_stop_overrides_the_pause_of_an_rx_queue() {
    for (path, setup) in merging([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        rig.a[0].arrive_tcp(flow(7, 0..30));
        rig.settle();
        rig.command(FROM_A, Command::Pause).unwrap();
        rig.a[0].arrive_tcp(flow(7, 30..60));
        rig.settle();
        let stopped = rig.now();
        rig.session.stop();
        rig.settle();
        assert!(rig.is_done() && rig.now() == stopped, "{path}");
        let ledger = rig.finish().ledger;
        assert_eq!((ledger.received, ledger.dropped), (30, 0), "{path}");
    }
}
