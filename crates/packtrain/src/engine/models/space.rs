//! Who waits for space in a ring, beside who makes some.

use super::Waker as Bell;
use super::tests::model;
use crate::engine::egress::space::Space;
use crate::queue::ring::{Claim, Duty, Exit, Ring, Turn};
use loom::thread;
use std::sync::Arc;
use std::task::{Wake, Waker};

/// What a waiting producer sleeps on.
pub(super) struct Sleep(Bell);

impl Sleep {
    /// Until it is told.
    pub(super) fn wait(&self) {
        self.0.wait();
    }
}

impl Wake for Sleep {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

pub(super) fn sleep() -> (Arc<Sleep>, Waker) {
    let sleep = Arc::new(Sleep(Bell::new().unwrap()));
    (Arc::clone(&sleep), Waker::from(sleep))
}

/// A ring for few items, and those that wait for its place.
struct Line {
    ring: Ring<u32, Vec<u32>>,
    space: Space,
}

impl Line {
    /// With so many items in it: as many as it holds.
    fn full(items: u32) -> Arc<Self> {
        let line = Self {
            ring: Ring::new(items as usize, Vec::new()).unwrap(),
            space: Space::new(),
        };
        line.space.make_place(2);
        assert!((0..items).all(|_| line.send(1)));
        Arc::new(line)
    }

    /// Leaves it to somebody else to take it out.
    fn send(&self, item: u32) -> bool {
        let enqueued = self.ring.enqueue(&mut vec![item], Claim::Never);
        assert!(matches!(enqueued.duty, Duty::None | Duty::Wake));
        enqueued.accepted == 1
    }

    fn drain(&self) -> Vec<u32> {
        self.drain_some(8)
    }

    /// As `Egress::drain`: space is given back, then those are told that wait for it.
    fn drain_some(&self, budget: usize) -> Vec<u32> {
        let mut sent = Vec::new();
        if let Some(consumer) = self.ring.try_consume(Claim::Any) {
            let exit = consumer.drain(budget, |state, items| {
                state.extend(items);
                sent.clone_from(state);
                Turn::More
            });
            // What was reserved and not published yet is its producer's.
            let passed = matches!(exit, Exit::Idle | Exit::Passed);
            assert!(passed || matches!(exit, Exit::Abdicated if budget == 1));
            self.space.tell_after(exit, true);
        }
        sent
    }
}

/// It writes itself down and looks once more, or else sleeps until it is told.
fn wait_and_send(line: &Line, id: u64, item: u32) {
    let (sleep, waker) = sleep();
    if line.send(item) {
        return;
    }
    line.space.wait(id, &waker);
    if !line.send(item) {
        sleep.wait();
        assert!(line.send(item), "it was told so");
    }
}

#[test]
fn who_waits_while_the_consumer_drains_is_told_or_sees_the_space() {
    model(5, || {
        let line = Line::full(1);
        let consumer = {
            let line = Arc::clone(&line);
            thread::spawn(move || line.drain())
        };
        wait_and_send(&line, 1, 2);
        assert!(!consumer.join().unwrap().is_empty());
        let sent = line.drain();
        assert!(sent.is_empty() || sent == [1, 2], "{sent:?}");
    });
}

/// Of two that wait one gives up, as a send does whose time is over: the other one is told.
#[test]
fn who_gives_up_takes_no_wake_up_with_it() {
    model(4, || {
        let line = Line::full(1);
        let [(_, gives_up), (sleep, waits)] = [sleep(), sleep()];
        line.space.wait(1, &gives_up);
        line.space.wait(2, &waits);
        let consumer = {
            let line = Arc::clone(&line);
            thread::spawn(move || line.drain())
        };
        line.space.forget(1);
        if !line.send(2) {
            sleep.wait();
            assert!(line.send(2), "it was told so");
        }
        consumer.join().unwrap();
    });
}

/// Two consumers, one after the other or at once: whoever comes last tells who waits last.
#[test]
fn who_waits_again_is_told_again() {
    model(3, || {
        let line = Line::full(1);
        let consumer = {
            let line = Arc::clone(&line);
            thread::spawn(move || {
                line.drain();
                line.drain();
            })
        };
        wait_and_send(&line, 1, 2);
        // The place may have been taken out again by now.
        let (sleep, waker) = sleep();
        line.space.wait(1, &waker);
        if !line.send(3) {
            // Only a drain that comes later makes space: this one at the latest.
            line.drain();
            sleep.wait();
            assert!(line.send(3), "it was told so");
        }
        consumer.join().unwrap();
    });
}

/// Where something is left only one is told, since a drain is to follow: the other one then.
#[test]
fn who_is_not_told_at_once_is_told_by_the_next_drain() {
    model(3, || {
        let line = Line::full(2);
        let [(first, told), (second, waits)] = [sleep(), sleep()];
        line.space.wait(1, &told);
        line.space.wait(2, &waits);
        let consumer = {
            let line = Arc::clone(&line);
            thread::spawn(move || {
                line.drain_some(1);
                line.drain();
            })
        };
        // Nobody sends before it is told.
        first.wait();
        assert!(line.send(2), "it was told so");
        // What it has sent may be what is left by now.
        line.drain();
        second.wait();
        assert!(line.send(3), "it was told so");
        consumer.join().unwrap();
    });
}
