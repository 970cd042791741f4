//! Random events, with producers that are preempted between reservation and publication. Items come
//! out in the order of their reservations, and pending work always has a thread that handles it.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A producer reserves, and is preempted. If it claims the idle ring, it is preempted after it
    /// has transmitted.
    Reserve(u32, ProducerKind, Decide),
    /// A preempted producer continues.
    Publish(usize),
    /// The holder of the role continues.
    Finish(usize),
    /// A producer that is not preempted, with a batch that may not fit.
    Put(u32, ProducerKind, Decide),
    /// A producer waits for space.
    Wait(ProducerKind),
    /// The TX worker runs a step, and keeps the role if that is true.
    Step(usize, bool),
    /// The device has space for this many more.
    Complete(usize),
}

fn source() -> impl Strategy<Value = ProducerKind> {
    prop_oneof![Just(ProducerKind::Application), Just(ProducerKind::Lane)]
}

fn decide() -> impl Strategy<Value = Decide> {
    prop_oneof![
        Just(direct as Decide),
        Just(adaptive as Decide),
        Just(deferred as Decide),
        Just(abdicate as Decide),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (1..6_u32, source(), decide()).prop_map(|(n, from, by)| Event::Reserve(n, from, by)),
        3 => (0..8_usize).prop_map(Event::Publish),
        2 => (0..40_usize).prop_map(Event::Finish),
        3 => (1..90_u32, source(), decide()).prop_map(|(n, from, by)| Event::Put(n, from, by)),
        1 => source().prop_map(Event::Wait),
        3 => (0..40_usize, any::<bool>()).prop_map(|(budget, keep)| Event::Step(budget, keep)),
        2 => (0..60_usize).prop_map(Event::Complete),
    ]
}

/// A device with credit, shared with the test.
#[derive(Debug)]
struct Sink {
    sent: Vec<u32>,
    credit: Rc<Cell<usize>>,
    most: usize,
}

impl Sink {
    fn turn(&mut self, drained: &mut Items<'_, u32, Self>) -> Turn {
        assert!(drained.len() <= 64);
        let count = self.credit.get().min(drained.len()).min(self.most);
        // Some one by one, and if it takes all, the others at once.
        let all = count == drained.len();
        let singly = if all {
            self.sent.len() % (count + 1)
        } else {
            count
        };
        for _ in 0..singly {
            drained.take(1, |item| self.sent.push(item));
        }
        if all {
            drained.take(usize::MAX, |item| self.sent.push(item));
        }
        self.credit.set(self.credit.get() - count);
        if self.credit.get() == 0 && drained.len() > 0 {
            Turn::Stalled
        } else {
            Turn::More
        }
    }
}

type Role<'a> = ConsumerGuard<'a, u32, Sink>;

/// The ring and its model.
struct World<'a> {
    ring: &'a Ring<u32, Sink>,
    credit: &'a Cell<usize>,
    preempted: Vec<(Reservation<'a, u32, Sink>, Vec<u32>)>,
    /// A producer with the role, and whether the device refused a part of its batch.
    role: Option<(Role<'a>, bool)>,
    kept: Option<Kept>,
    /// In the order of reservations, and of batches that bypassed an empty ring.
    expected: Vec<u32>,
    next: u32,
    notified: bool,
    waiters: Vec<ProducerKind>,
}

impl<'a> World<'a> {
    fn items(&mut self, count: u32) -> VecDeque<u32> {
        let first = self.next;
        self.next += count;
        (first..self.next).collect()
    }

    fn after_release(&mut self, from: RingState, released: Released) {
        if released.wake_waiters {
            self.wake_waiters();
        }
        self.notified |= released.attention
            || match released.state {
                RingState::Abdicated | RingState::Gap => true,
                RingState::Stalled => from != RingState::Stalled,
                RingState::Idle | RingState::Busy => false,
            };
    }

    fn wake_waiters(&mut self) {
        self.ring.clear_waiters();
        self.waiters.clear();
    }

    fn drain(&mut self, role: &mut Role<'a>, budget: usize) -> Ended {
        let before = role.state().sent.len();
        let drained = role.drain(budget, Sink::turn);
        let taken = role.state().sent.len() - before;
        assert!(taken <= budget.max(1), "over budget");
        drained
    }

    fn finish(&mut self, mut role: Role<'a>, stalled: bool, budget: usize) {
        let from = role.from();
        let drained = if stalled {
            Ended::Stalled
        } else {
            self.drain(&mut role, budget)
        };
        let released = role.release(drained).expect("no other thread reserves");
        self.after_release(from, released);
    }

    /// Transmits a batch past the slots, as far as the device accepts it, and enqueues the rest.
    fn bypass(
        &mut self,
        role: &mut Role<'a>,
        batch: &mut VecDeque<u32>,
        from: ProducerKind,
    ) -> bool {
        let state = role.state();
        assert!(state.sent.len() == self.expected.len(), "the ring is empty");
        let count = self.credit.get().min(batch.len());
        self.credit.set(self.credit.get() - count);
        self.expected.extend(batch.iter().take(count));
        state.sent.extend(batch.drain(..count));
        let expected = &mut self.expected;
        let refused = !batch.is_empty();
        let rest = batch.clone();
        let accepted = role.put_rest(batch, from, |batch, count| {
            expected.extend(batch.iter().take(count));
        });
        assert!(rest.iter().skip(accepted).eq(batch.iter()));
        refused
    }

    fn put(&mut self, count: u32, from: ProducerKind, decide: Decide) {
        let mut batch = self.items(count);
        let all = batch.clone();
        let ring = self.ring;
        let expected = &mut self.expected;
        let put = ring.put(&mut batch, from, decide, |batch, count| {
            expected.extend(batch.iter().take(count));
        });
        match put {
            Put::Closed => panic!("it is open"),
            Put::Full => {
                assert_eq!(batch, all);
                assert!(!self.ring.has_space(from));
            }
            Put::Enqueued { notify } => {
                assert!(all.iter().skip(all.len() - batch.len()).eq(&batch));
                self.notified |= notify;
            }
            Put::Drain(mut role) => {
                let idle = role.from() == RingState::Idle;
                let refused = idle && self.bypass(&mut role, &mut batch, from);
                self.finish(role, refused, 33);
            }
        }
    }

    fn reserve(&mut self, count: u32, from: ProducerKind, decide: Decide) {
        match self.ring.reserve(count as usize, from, decide) {
            Ok(slots) => {
                assert!((1..=u64::from(count)).contains(&slots.count));
                let items: Vec<u32> = self.items(slots.count as u32).into();
                self.expected.extend(&items);
                self.preempted.push((slots, items));
            }
            Err(Put::Drain(mut role)) => {
                let mut batch = self.items(count);
                let refused = self.bypass(&mut role, &mut batch, from);
                self.role = Some((role, refused));
            }
            Err(put) => assert!(matches!(put, Put::Full)),
        }
    }

    fn publish(&mut self, which: usize) {
        let (slots, items) = self.preempted.remove(which);
        match slots.publish(&mut &items[..], |_, _| {}) {
            Put::Enqueued { notify } => self.notified |= notify,
            Put::Drain(role) => self.role = Some((role, false)),
            other => panic!("{other:?}"),
        }
    }

    fn step(&mut self, budget: usize, keep: bool) {
        // A worker that was not notified does not request the role.
        let request = std::mem::take(&mut self.notified);
        let ring = self.ring;
        let mut role = match self.kept.take() {
            Some(kept) => ring.resume(kept),
            None => match ring.attend(|state| state != RingState::Idle, request) {
                Attended::Claimed(role) => role,
                Attended::Busy => {
                    assert!(!request || ring.has_attention());
                    return;
                }
                Attended::NotNeeded(state) => {
                    assert_eq!(state, RingState::Idle);
                    return;
                }
            },
        };
        assert!(!ring.has_attention());
        if keep {
            let drained = self.drain(&mut role, budget);
            let (kept, wake) = role.keep();
            self.kept = Some(kept);
            if wake {
                self.wake_waiters();
            }
            // A device that is full is watched.
            assert!(drained != Ended::Stalled || self.credit.get() == 0);
            return;
        }
        self.finish(role, false, budget);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Reserve(count, from, decide) => self.reserve(count, from, decide),
            Event::Publish(which) => {
                if let Some(which) = which.checked_rem(self.preempted.len()) {
                    self.publish(which);
                }
            }
            Event::Finish(budget) => {
                if let Some((role, stalled)) = self.role.take() {
                    self.finish(role, stalled, budget);
                }
            }
            Event::Put(count, from, decide) => self.put(count, from, decide),
            Event::Wait(from) => {
                if !self.ring.wait_for_space(from) {
                    self.waiters.push(from);
                }
            }
            Event::Step(budget, keep) => self.step(budget, keep),
            Event::Complete(more) => {
                self.credit.set(self.credit.get() + more);
                self.notified |= self.ring.state() == RingState::Stalled;
            }
        }
        self.check();
    }

    /// Pending work has a thread that handles it.
    fn check(&self) {
        let (ring, preempted) = (self.ring, &self.preempted);
        let will_notify = self.notified || preempted.iter().any(|(slots, _)| slots.notify);
        let roles = preempted.iter().filter(|(slots, _)| slots.role.is_some());
        let roles = roles.count() + usize::from(self.role.is_some());
        let roles = roles + usize::from(self.kept.is_some());
        let busy = ring.state() == RingState::Busy;
        assert_eq!(roles, usize::from(busy), "one consumer");
        match ring.state() {
            RingState::Idle => assert!(ring.is_empty()),
            RingState::Abdicated | RingState::Gap => assert!(will_notify, "the worker sleeps"),
            RingState::Busy | RingState::Stalled => {}
        }
        assert!(!ring.has_attention() || busy || self.notified);
        assert!(ring.len() <= ring.capacity());
        // No holder of the role was preempted between its last turn and the release.
        for waiter in &self.waiters {
            assert!(!ring.has_space(*waiter), "a waiter sleeps");
        }
    }

    /// All producers continue, the device accepts all, and the worker runs while it is notified.
    fn end(&mut self) {
        self.credit.set(usize::MAX);
        while !self.preempted.is_empty() {
            self.publish(0);
        }
        if let Some((role, stalled)) = self.role.take() {
            self.finish(role, stalled, 10);
        }
        self.notified |= self.kept.is_some() || self.ring.state() == RingState::Stalled;
        while self.notified {
            self.step(10, false);
            self.check();
        }
        assert_eq!(self.ring.state(), RingState::Idle);
        assert_eq!(self.waiters, []);
    }
}

proptest! {
    #![proptest_config(if cfg!(miri) {
        // No files there.
        ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() }
    } else {
        ProptestConfig::with_cases(512)
    })]

    #[test]
    fn items_come_out_in_the_order_of_their_reservations(
        capacity in prop_oneof![1..9_usize, Just(64), 60..140_usize],
        withheld in 0..70_usize,
        most in prop_oneof![Just(usize::MAX), 0..5_usize],
        events in prop::collection::vec(event(), 0..if cfg!(miri) { 20 } else { 120 }),
    ) {
        let credit = Rc::new(Cell::new(0));
        let sink = Sink {
            sent: Vec::new(),
            credit: Rc::clone(&credit),
            most,
        };
        let mut ring = Ring::new(capacity, sink);
        ring.withhold(withheld % capacity);
        let mut world = World {
            ring: &ring,
            credit: &credit,
            preempted: Vec::new(),
            role: None,
            kept: None,
            expected: Vec::new(),
            next: 0,
            notified: false,
            waiters: Vec::new(),
        };
        for event in events {
            world.event(event);
        }
        // A turn that takes nothing never ends.
        if most > 0 {
            world.end();
        }
        let expected = std::mem::take(&mut world.expected);
        drop(world);
        if most > 0 {
            prop_assert_eq!(&ring.state_mut().sent, &expected);
        } else {
            let sent = &ring.state_mut().sent;
            prop_assert!(expected.starts_with(sent));
        }
    }
}
