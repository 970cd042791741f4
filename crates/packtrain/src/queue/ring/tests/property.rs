//! Random events, with producers that are preempted at the worst moment: what comes out is what
//! was reserved, in that order, and whatever waits has somebody who knows.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A producer reserves, and stops there.
    Reserve(u64, Claim),
    /// One of those goes on.
    Publish(usize),
    /// A producer does all at once, with a batch that may not fit.
    Enqueue(u32, Claim),
    /// The worker comes, though nobody may have called it.
    Consume(usize),
    /// The device has room for so many more, and says so.
    Kick(usize, Claim),
}

fn claim() -> impl Strategy<Value = Claim> {
    prop_oneof![Just(Claim::Never), Just(Claim::Free), Just(Claim::Any)]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (1..6_u64, claim()).prop_map(|(count, claim)| Event::Reserve(count, claim)),
        3 => (0..8_usize).prop_map(Event::Publish),
        3 => (0..90_u32, claim()).prop_map(|(count, claim)| Event::Enqueue(count, claim)),
        2 => (0..40_usize).prop_map(Event::Consume),
        2 => (0..60_usize, claim()).prop_map(|(count, claim)| Event::Kick(count, claim)),
    ]
}

/// The ring, and what the test knows of it.
struct World<'a> {
    ring: &'a Ring<u32, Sink>,
    preempted: Vec<(Reserved, Claim)>,
    /// By position: what is to come out there.
    expected: Vec<u32>,
    next: u32,
    woken: bool,
}

/// A device with credit, shared with the test.
struct Sink {
    sent: Vec<u32>,
    credit: Rc<Cell<usize>>,
    most: usize,
}

fn turn(sink: &mut Sink, drained: &mut Drained<'_, u32, Sink>) -> Turn {
    assert!(drained.len() <= 64);
    let count = sink.credit.get().min(drained.len()).min(sink.most);
    // Some one by one, and if they are all that there are, the others as they lie.
    let all = count == drained.len();
    let singly = if all {
        sink.sent.len() % (count + 1)
    } else {
        count
    };
    sink.sent.extend(drained.by_ref().take(singly));
    if all {
        drained.take_each(|item| sink.sent.push(item));
    }
    sink.credit.set(sink.credit.get() - count);
    if sink.credit.get() == 0 && drained.len() > 0 {
        Turn::Stalled(Stall::NoDescriptor)
    } else {
        Turn::More
    }
}

impl<'a> World<'a> {
    fn fulfil(&mut self, duty: Duty<'a, u32, Sink>, budget: usize) {
        match duty {
            Duty::None => {}
            Duty::Wake => self.woken = true,
            Duty::Drain(consumer) => self.drain(consumer, budget),
        }
    }

    fn drain(&mut self, mut consumer: Consumer<'a, u32, Sink>, budget: usize) {
        let before = consumer.with_state(|sink| sink.sent.len());
        let mut taken = before;
        let exit = consumer.drain(budget, |sink, drained| {
            let said = turn(sink, drained);
            taken = sink.sent.len();
            said
        });
        assert!(taken - before <= budget.max(1), "over budget");
        self.woken |= exit == Exit::Abdicated;
    }

    fn items(&mut self, count: u64) -> Vec<u32> {
        let first = self.next;
        self.next += count as u32;
        (first..self.next).collect()
    }

    fn publish(&mut self, which: usize) {
        let (reserved, claim) = self.preempted.remove(which);
        let mut items = &self.expected[distance(0, reserved.at) as usize..];
        self.ring.put(&reserved, &mut items);
        let duty = self.ring.duty(&reserved, claim);
        self.fulfil(duty, 20);
    }

    fn step(&mut self, event: Event, credit: &Cell<usize>) {
        match event {
            Event::Reserve(count, claim) => {
                if let Some(reserved) = self.ring.reserve(count, claim) {
                    assert!(reserved.count <= count);
                    let items = self.items(reserved.count);
                    self.expected.extend(items);
                    self.preempted.push((reserved, claim));
                }
            }
            Event::Publish(which) => {
                if let Some(which) = which.checked_rem(self.preempted.len()) {
                    self.publish(which);
                }
            }
            Event::Enqueue(count, claim) => {
                let mut batch: VecDeque<u32> = self.items(count.into()).into();
                let all: Vec<u32> = batch.iter().copied().collect();
                let enqueued = self.ring.enqueue(&mut batch, claim);
                let (accepted, back) = all.split_at(enqueued.accepted);
                assert_eq!(batch, back);
                self.expected.extend(accepted);
                self.fulfil(enqueued.duty, 33);
            }
            Event::Consume(budget) => {
                if let Some(consumer) = self.ring.try_consume(Claim::Any) {
                    self.drain(consumer, budget);
                }
            }
            Event::Kick(more, claim) => {
                credit.set(credit.get() + more);
                let duty = self.ring.kick(claim);
                self.fulfil(duty, 50);
            }
        }
        // Whatever waits, somebody knows.
        match self.ring.status() {
            Status::Idle => assert!(self.ring.is_empty()),
            Status::Abdicated => assert!(
                self.woken || self.preempted.iter().any(|(one, _)| one.edge),
                "abdicated, and the worker sleeps"
            ),
            Status::Busy => assert!(!self.preempted.is_empty(), "nobody is at work"),
            Status::Stalled(_) => {}
        }
        assert!(self.ring.len() <= self.ring.capacity());
    }

    /// Everybody goes on, the device takes all, and the worker comes when it is called.
    fn end(&mut self, credit: &Cell<usize>) {
        while !self.preempted.is_empty() {
            self.publish(0);
        }
        credit.set(usize::MAX);
        let duty = self.ring.kick(Claim::Any);
        self.fulfil(duty, 10);
        while std::mem::take(&mut self.woken) {
            if let Some(consumer) = self.ring.try_consume(Claim::Any) {
                self.drain(consumer, 10);
            }
        }
        assert_eq!(self.ring.status(), Status::Idle);
        assert!(self.ring.is_empty());
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
    fn what_is_reserved_comes_out_in_order(
        capacity in prop_oneof![1..9_usize, Just(64), 60..140_usize],
        most in prop_oneof![Just(usize::MAX), 0..5_usize],
        events in prop::collection::vec(event(), 0..if cfg!(miri) { 20 } else { 120 }),
    ) {
        let credit = Rc::new(Cell::new(0));
        let sink = Sink {
            sent: Vec::new(),
            credit: Rc::clone(&credit),
            most,
        };
        let mut ring = Ring::new(capacity, sink).unwrap();
        let mut world = World {
            ring: &ring,
            preempted: Vec::new(),
            expected: Vec::new(),
            next: 0,
            woken: false,
        };
        for event in events {
            world.step(event, &credit);
        }
        // A turn that takes nothing, for ever, would never end.
        if most == 0 {
            return Ok(());
        }
        world.end(&credit);
        let expected = world.expected;
        prop_assert_eq!(&ring.state_mut().sent, &expected);
    }
}
