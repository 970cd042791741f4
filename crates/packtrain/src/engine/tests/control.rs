//! TX queues that are paused, resumed and reset while they run, on both paths. At random:
//! [`resets`](super::resets).

use super::rig::{Rig, Setup};
use crate::driver::DeviceError;
use crate::engine::control::{Command, CommandError, TxQueues};
use crate::limits::TX_RING_PACKETS;
use crate::time::Instant;
use std::time::Duration;

const TO_B: TxQueues = TxQueues::Port(1);

fn is_owned(path: &str) -> bool {
    path.ends_with("owned")
}

#[test]
fn what_a_pause_holds_back_goes_out_when_it_is_over() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        let device = rig.b[0].clone();
        rig.a[0].arrive(0..10);
        rig.settle();
        assert_eq!(rig.command(TO_B, Command::Pause), Ok(1), "{path}");
        assert_eq!(rig.command(TO_B, Command::Pause), Ok(1), "{path}");
        rig.a[0].arrive(10..1500);
        rig.settle();
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
        let ring = if is_owned(&path) { 0 } else { TX_RING_PACKETS };
        assert!(held >= ring && held <= ring + 128, "{path}: {held}");
        assert_eq!(rig.command(TO_B, Command::Resume), Ok(1), "{path}");
        rig.settle();
        assert_eq!(device.sent(), (0..1500).collect::<Vec<_>>(), "{path}");
        assert_eq!(rig.command(TO_B, Command::Resume), Ok(1), "{path}");
        let tx = rig.tx();
        assert_eq!((tx.stalls, tx.restarts, tx.hangs), (1, 1, 0), "{path}");
        assert_eq!(rig.finish().ledger.dropped, 0, "{path}");
    }
}

#[test]
fn what_the_device_has_at_a_pause_is_collected_and_wakes_no_worker() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        let device = rig.b[0].clone();
        device.tx().keeps = true;
        rig.a[0].arrive(0..20);
        rig.settle();
        rig.command(TO_B, Command::Pause).unwrap();
        rig.a[0].arrive(20..30);
        rig.settle();
        device.complete(20);
        rig.pass_until(|_| device.tx().kept.is_empty());
        assert_eq!(device.sent().len(), 20, "{path}");
        rig.command(TO_B, Command::Resume).unwrap();
        rig.settle();
        assert_eq!(device.sent(), (0..30).collect::<Vec<_>>(), "{path}");
        device.complete(30);
        rig.finish();
    }
}

/// A reset, a stall, and a link that is down, all of it behind a pause: nothing goes out before it
/// is resumed, and then all of it does, in order.
#[test]
fn a_pause_outlives_what_else_happens_to_the_queue() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        let device = rig.b[0].clone();
        (device.tx().keeps, device.tx().forgets, device.tx().room) = (true, true, 10);
        rig.a[0].arrive(0..30);
        rig.settle();
        assert_eq!(device.sent().len(), 10, "{path}: stalled");
        rig.command(TO_B, Command::Pause).unwrap();
        device.make_room(usize::MAX);
        rig.settle();
        rig.a[0].arrive(30..40);
        rig.settle();
        assert_eq!(device.sent().len(), 10, "{path}");
        rig.command(TO_B, Command::Reset).unwrap();
        device.tx().link_down = true;
        rig.settle();
        assert!(device.sent().is_empty(), "{path}: taken back");
        assert_eq!(rig.closed().ledger.transmitted, 0, "{path}");
        device.tx().link_down = false;
        rig.command(TO_B, Command::Resume).unwrap();
        rig.settle();
        assert_eq!(device.sent(), (0..40).collect::<Vec<_>>(), "{path}");
        device.complete(usize::MAX);
        let tx = rig.finish().ports[1].tx[0];
        assert_eq!((tx.resets, tx.taken_back), (1, 10), "{path}");
    }
}

/// What waits is sent, and the run ends at once.
#[test]
fn a_stop_overrides_a_pause() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        for keeps in [false, true] {
            let mut rig = setup.forward();
            let device = rig.b[0].clone();
            (device.tx().keeps, device.tx().room) = (keeps, 0);
            rig.a[0].arrive(0..50);
            rig.settle();
            rig.command(TO_B, Command::Pause).unwrap();
            device.make_room(usize::MAX);
            rig.settle();
            assert!(device.sent().is_empty(), "{path}");
            let stopped = rig.now();
            rig.session.stop();
            rig.settle();
            assert_eq!(device.sent(), (0..50).collect::<Vec<_>>(), "{path}");
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
        assert_eq!(
            rig.b[0].sent(),
            (0..5).collect::<Vec<_>>(),
            "{path}: paused"
        );
        rig.command(TO_B, Command::Resume).unwrap();
        rig.settle();
        assert_eq!(rig.b[0].sent(), (0..10).collect::<Vec<_>>(), "{path}");
        rig.finish();
    }
}

#[test]
fn a_command_is_answered_with_what_came_of_it() {
    for (path, setup) in Setup::new([3, 3]).on_every_path() {
        let mut rig = setup.forward();
        for (queue, forgets) in rig.b.iter().zip([true, false, true]) {
            queue.tx().forgets = forgets;
        }
        let of = |queue| TxQueues::Queue(1, queue);
        for what in [Command::Pause, Command::Resume] {
            assert_eq!(rig.command(TO_B, what), Ok(3), "{path}");
            assert_eq!(rig.command(of(2), what), Ok(1), "{path}");
        }
        assert_eq!(rig.command(of(0), Command::Reset), Ok(1), "{path}");
        let cannot = |done| Err(CommandError::Unsupported { done });
        assert_eq!(rig.command(of(1), Command::Reset), cannot(0), "{path}");
        assert_eq!(rig.command(TO_B, Command::Reset), cannot(2), "{path}");
        assert_eq!(
            rig.command(TxQueues::Port(0), Command::Reset),
            cannot(0),
            "{path}"
        );
        for what in [Command::Pause, Command::Resume, Command::Reset] {
            assert_eq!(
                rig.command(of(3), what),
                Err(CommandError::NoSuchQueue),
                "{path}"
            );
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

/// A device that does not come back from a reset ends the run.
#[test]
fn a_reset_that_fails_ends_the_run() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        rig.settle();
        rig.b[0].tx().removed = true;
        let sent = rig.session.control().send(TO_B, Command::Reset).unwrap();
        rig.try_settle();
        let error = rig.take_error();
        assert!(
            matches!(error.error, DeviceError::Removed),
            "{path}: {error}"
        );
        assert_eq!(error.port, Some(1), "{path}");
        rig.workers.clear();
        assert_eq!(sent.wait(), Err(CommandError::Ended { done: 0 }), "{path}");
        rig.closed();
    }
}

/// A worker that is dropped answers the commands that it has not carried out.
#[test]
fn a_worker_that_is_dropped_answers() {
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
