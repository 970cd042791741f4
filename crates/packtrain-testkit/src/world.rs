//! Events, tasks and virtual CPUs.

use crate::costs::{Costs, Work};
use crate::runtime::{NotifierId, VirtualRuntime};
use crate::trace::{CpuTrace, Digest, TaskTrace, Trace};
use packtrain::engine::{Action, Snapshot, Worker};
use packtrain::policy::topology::CpuId;
use packtrain::runtime::{Machine, Runtime};
use packtrain::time::Instant;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// A world with virtual time and virtual CPUs: see the [crate](crate).
///
/// - **Events** are ordered by time, then class: hardware, notification, CPU. Among equal ones the
///   seed decides; with the seed 0 they come as they were scheduled.
/// - **A CPU** runs its tasks in turn. A step is atomic: it happens at the time at which it begins,
///   and the CPU is busy afterwards for what it costs.
/// - **A task** without a CPU of its own continues on the CPU where it ran last, or on an idle one
///   if that is busy.
/// - **A step costs** what the counters ([`World::counters`]) say that it did, at the prices of
///   [`Costs`].
///
/// Not modelled: caches, hardware threads of one core, frequencies, preemption by a task that wakes
/// up.
pub struct World {
    runtime: Arc<VirtualRuntime>,
    costs: Costs,
    seed: u64,
    now: Instant,
    events: BinaryHeap<Reverse<Event>>,
    /// Events scheduled.
    sequence: u64,
    /// Events handled.
    handled: u64,
    tasks: Vec<Task>,
    cpus: Vec<Cpu>,
    hardware: Vec<Box<dyn FnMut(Instant) -> Option<Instant>>>,
    counters: Vec<Box<dyn Fn() -> Snapshot>>,
    /// As of the end of the last step.
    work: Work,
    digest: Digest,
}

/// Ordered by its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: Instant,
    what: Class,
    tie: u64,
    sequence: u64,
    /// The number of the process, the notifier, the task or the CPU.
    of: usize,
    /// Of a timer: the sleep that it ends.
    sleep: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Hardware,
    Notification,
    Timer,
    Cpu,
}

struct Task {
    kind: Kind,
    notifier: NotifierId,
    pinned: bool,
    /// Where it ran last, or runs.
    cpu: usize,
    state: State,
    /// The end of its last step.
    free_at: Instant,
    trace: TaskTrace,
}

/// What a thread of an application does.
type Run = Box<dyn FnMut(Instant, &Waker) -> Action>;

enum Kind {
    Worker(Box<Worker>),
    Actor(Run, Waker),
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It runs, or waits for a CPU.
    Ready,
    Asleep,
    Ended,
}

#[derive(Debug, Default)]
struct Cpu {
    queue: VecDeque<usize>,
    current: Option<usize>,
    /// When another task has its turn.
    slice_end: Instant,
    last: Option<usize>,
    busy: bool,
    trace: CpuTrace,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("now", &self.now)
            .field("costs", &self.costs)
            .field("tasks", &self.tasks.len())
            .field("cpus", &self.cpus)
            .finish_non_exhaustive()
    }
}

impl World {
    /// A world at time 0, with the CPUs of `machine`.
    ///
    /// # Panics
    ///
    /// If the machine has no CPU, or a step costs nothing.
    #[must_use]
    pub fn new(machine: Machine, costs: Costs, seed: u64) -> Self {
        assert!(machine.cpus > 0, "a world needs a CPU");
        assert!(
            !costs.step.is_zero(),
            "a step that costs nothing never ends"
        );
        Self {
            runtime: Arc::new(VirtualRuntime::new(machine)),
            costs,
            seed,
            now: Instant::default(),
            events: BinaryHeap::new(),
            sequence: 0,
            handled: 0,
            tasks: Vec::new(),
            cpus: (0..machine.cpus).map(|_| Cpu::default()).collect(),
            hardware: Vec::new(),
            counters: Vec::new(),
            work: Work::default(),
            digest: Digest::default(),
        }
    }

    /// The runtime for the sessions of this world.
    #[must_use]
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime) as Arc<dyn Runtime>
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Counters of a session: the cost of a step is what they change by. Without any, each step
    /// costs [`Costs::step`].
    pub fn counters(&mut self, read: impl Fn() -> Snapshot + 'static) {
        self.counters.push(Box::new(read));
        self.work = self.work_now();
    }

    /// A worker of a session whose runtime is that of this world. It runs on `cpu` only, or on any
    /// CPU.
    ///
    /// # Panics
    ///
    /// If the world has no such CPU, or the worker has another runtime.
    pub fn worker(&mut self, worker: Worker, cpu: Option<CpuId>) {
        // The number of the worker's notifier is what a notification names.
        let before = self.runtime.take_news();
        worker.notifier().notify();
        let notifier = self.runtime.take_news().first().copied();
        let notifier = notifier.expect("the worker has the runtime of this world");
        worker.notifier().clear();
        self.notify(&before);
        self.task(Kind::Worker(Box::new(worker)), notifier, cpu);
    }

    /// A thread of an application. `run` is called with the time and a waker that ends its sleep,
    /// and returns what the thread does next, as a worker does.
    ///
    /// # Panics
    ///
    /// If the world has no such CPU.
    pub fn actor(
        &mut self,
        run: impl FnMut(Instant, &Waker) -> Action + 'static,
        cpu: Option<CpuId>,
    ) {
        let notifier = Arc::new(self.runtime.virtual_notifier());
        let id = notifier.id();
        let kind = Kind::Actor(Box::new(run), Waker::from(notifier));
        self.task(kind, id, cpu);
    }

    /// A wire, a DMA engine, or a hand at the cable: uses no CPU. `run` is called now, and again at
    /// each time that it returns.
    pub fn hardware(&mut self, run: impl FnMut(Instant) -> Option<Instant> + 'static) {
        self.hardware.push(Box::new(run));
        self.schedule(self.now, Class::Hardware, self.hardware.len() - 1, 0);
    }

    /// Runs until there is no event before `until`, and returns what has happened since the world
    /// began. It may be called again.
    ///
    /// # Panics
    ///
    /// If a wake-up was lost: no event is left, packets are held, and their workers sleep.
    pub fn run(&mut self, until: Instant) -> Trace {
        self.take_notifications();
        while let Some(Reverse(event)) = self.events.peek().copied() {
            if event.at > until {
                break;
            }
            self.events.pop();
            self.handled += 1;
            self.set_now(event.at);
            match event.what {
                Class::Hardware => {
                    if let Some(at) = self.hardware[event.of](self.now) {
                        self.schedule(at, Class::Hardware, event.of, 0);
                    }
                }
                Class::Notification => self.notified(event.of),
                Class::Timer => self.timer(event.of, event.sleep),
                Class::Cpu => self.cpu(event.of),
            }
            self.take_notifications();
        }
        if self.events.is_empty() {
            self.assert_no_wakeup_was_lost();
        }
        self.set_now(until.max(self.now));
        self.trace()
    }

    fn trace(&self) -> Trace {
        Trace {
            now: self.now,
            events: self.handled,
            digest: self.digest.get(),
            tasks: self.tasks.iter().map(|task| task.trace.clone()).collect(),
            cpus: self.cpus.iter().map(|cpu| cpu.trace).collect(),
        }
    }

    fn assert_no_wakeup_was_lost(&self) {
        let held = |kind: &Kind| match kind {
            Kind::Worker(worker) => worker.held(),
            Kind::Actor(..) | Kind::Ended => 0,
        };
        for (number, task) in self.tasks.iter().enumerate() {
            let held = held(&task.kind);
            assert!(held == 0, "task {number} sleeps for ever and holds {held}");
        }
        for read in &self.counters {
            let ledger = read().ledger;
            assert!(ledger.held == 0, "all tasks sleep for ever: {ledger:?}");
        }
    }

    fn set_now(&mut self, now: Instant) {
        self.now = now;
        self.runtime.set_now(now);
    }

    fn schedule(&mut self, at: Instant, what: Class, of: usize, sleep: u64) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.events.push(Reverse(Event {
            at: at.max(self.now),
            what,
            tie: match self.seed {
                0 => 0,
                seed => mix(seed ^ mix(sequence)),
            },
            sequence,
            of,
            sleep,
        }));
    }

    fn task(&mut self, kind: Kind, notifier: NotifierId, cpu: Option<CpuId>) {
        let number = self.tasks.len();
        let (pinned, cpu) = match cpu {
            Some(cpu) => (true, usize::from(cpu.0)),
            None => (false, number % self.cpus.len()),
        };
        assert!(cpu < self.cpus.len(), "the world has no CPU {cpu}");
        self.tasks.push(Task {
            kind,
            notifier,
            pinned,
            cpu,
            state: State::Ready,
            free_at: self.now,
            trace: TaskTrace::default(),
        });
        self.enqueue(number);
    }

    fn take_notifications(&mut self) {
        let news = self.runtime.take_news();
        self.notify(&news);
    }

    fn notify(&mut self, notifiers: &[NotifierId]) {
        let at = self.now.after(self.costs.latency);
        for &notifier in notifiers {
            self.schedule(at, Class::Notification, notifier, 0);
        }
    }

    fn notified(&mut self, notifier: NotifierId) {
        let of = |task: &Task| task.notifier == notifier;
        // That of the end of a session has no task.
        let Some(number) = self.tasks.iter().position(of) else {
            return;
        };
        let task = &mut self.tasks[number];
        // A task that time has woken meanwhile has taken it.
        if task.state == State::Asleep && self.runtime.is_notified(notifier) {
            task.trace.wakeups += 1;
            self.wake(number);
        }
    }

    fn timer(&mut self, number: usize, sleep: u64) {
        let task = &self.tasks[number];
        if task.state == State::Asleep && task.trace.sleeps == sleep {
            self.wake(number);
        }
    }

    fn wake(&mut self, number: usize) {
        let task = &mut self.tasks[number];
        task.state = State::Ready;
        // Until its last step has ended, the CPU is busy with the task itself.
        if !task.pinned && self.now >= task.free_at && self.cpus[task.cpu].busy {
            let idle = self.cpus.iter().position(|cpu| !cpu.busy);
            task.cpu = idle.unwrap_or(task.cpu);
        }
        self.enqueue(number);
    }

    fn enqueue(&mut self, number: usize) {
        let of = self.tasks[number].cpu;
        let cpu = &mut self.cpus[of];
        cpu.queue.push_back(number);
        if !std::mem::replace(&mut cpu.busy, true) {
            self.schedule(self.now, Class::Cpu, of, 0);
        }
    }

    /// The CPU is done with a step.
    fn cpu(&mut self, of: usize) {
        let (now, costs) = (self.now, self.costs);
        let cpu = &mut self.cpus[of];
        if now >= cpu.slice_end && !cpu.queue.is_empty() {
            cpu.queue.extend(cpu.current.take());
        }
        let Some(number) = cpu.current.or_else(|| cpu.queue.pop_front()) else {
            cpu.busy = false;
            return;
        };
        if cpu.current.replace(number).is_none() {
            cpu.slice_end = now.after(costs.slice);
        }
        let mut cost = Duration::ZERO;
        if cpu.last.replace(number).is_some_and(|last| last != number) {
            cpu.trace.switches += 1;
            cost += costs.switch;
        }
        let action = self.step(number);
        let work = self.work_now();
        cost += (work - self.work).cost(&costs);
        self.work = work;
        let task = &mut self.tasks[number];
        task.trace.steps += 1;
        task.trace.busy += cost;
        task.free_at = now.after(cost);
        let cpu = &mut self.cpus[of];
        cpu.trace.busy += cost;
        for part in [now.as_nanos(), number as u64, cost.as_nanos() as u64] {
            self.digest.add(part);
        }
        self.digest.add(match action {
            Action::Step => 0,
            Action::Spin => 1,
            Action::Yield => 2,
            Action::Done => 3,
            Action::Sleep { until: None } => 4,
            Action::Sleep { until: Some(at) } => 5 + at.as_nanos(),
        });
        match action {
            Action::Step | Action::Spin => {}
            Action::Yield => cpu.queue.extend(cpu.current.take()),
            Action::Sleep { until } => {
                cpu.current = None;
                self.sleep(number, until);
            }
            Action::Done => {
                cpu.current = None;
                let task = &mut self.tasks[number];
                task.state = State::Ended;
                task.trace.ended = Some(now);
                task.kind = Kind::Ended;
            }
        }
        self.schedule(now.after(cost), Class::Cpu, of, 0);
    }

    fn sleep(&mut self, number: usize, until: Option<Instant>) {
        let task = &mut self.tasks[number];
        task.state = State::Asleep;
        task.trace.sleeps += 1;
        if self.runtime.is_notified(task.notifier) {
            // As a descriptor that is readable: the sleep ends at once.
            task.trace.wakeups += 1;
            self.wake(number);
        } else if let Some(at) = until {
            let sleep = task.trace.sleeps;
            self.schedule(at, Class::Timer, number, sleep);
        }
    }

    fn step(&mut self, number: usize) -> Action {
        let task = &mut self.tasks[number];
        match &mut task.kind {
            Kind::Worker(worker) => worker.run(self.now).unwrap_or_else(|error| {
                task.trace.error = Some(error.to_string());
                Action::Done
            }),
            Kind::Actor(run, waker) => {
                self.runtime.clear(task.notifier);
                run(self.now, waker)
            }
            Kind::Ended => Action::Done,
        }
    }

    fn work_now(&self) -> Work {
        let mut work = Work::default();
        for read in &self.counters {
            work.add(&read());
        }
        work
    }
}

/// The output of SplitMix64 (Steele, Lea, Flood 2014) for a state.
const fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;
    use std::cell::RefCell;
    use std::rc::Rc;

    const fn us(us: u64) -> Instant {
        Instant::from_nanos(us * 1000)
    }

    fn world(cpus: usize, seed: u64) -> World {
        World::new(machine(cpus), Costs::default(), seed)
    }

    #[test]
    fn tasks_share_a_cpu_by_slices() {
        let mut world = world(1, 0);
        for _ in 0..3 {
            world.actor(|_, _| Action::Step, None);
        }
        let trace = world.run(us(900_000));
        for task in &trace.tasks {
            let share = task.busy.as_micros();
            assert!((299_000..=301_000).contains(&share), "{task:?}");
        }
        // A slice is 750 us.
        assert!((1_190..=1_201).contains(&trace.cpus[0].switches));
    }

    #[test]
    fn a_task_without_a_cpu_of_its_own_takes_an_idle_one() {
        let mut world = world(2, 0);
        world.actor(|_, _| Action::Step, Some(CpuId(0)));
        let mut sleep = 0;
        let sleeper = move |now: Instant, _: &Waker| {
            sleep += 1;
            Action::Sleep {
                until: (sleep < 10).then(|| now.after(Duration::from_micros(10))),
            }
        };
        world.actor(sleeper, Some(CpuId(0)));
        let pinned = world.run(us(10_000));
        assert_eq!(pinned.cpus[1].busy, Duration::ZERO);
        assert_eq!(pinned.tasks[1].steps, 10);
    }

    #[test]
    fn a_notification_ends_a_sleep_once() {
        let mut world = world(2, 0);
        let waker = Rc::new(RefCell::new(None::<Waker>));
        let told = Rc::clone(&waker);
        world.actor(
            move |_, own| {
                told.replace(Some(own.clone()));
                Action::Sleep { until: None }
            },
            None,
        );
        world.hardware(move |now| {
            if let Some(waker) = waker.borrow().as_ref() {
                waker.wake_by_ref();
                waker.wake_by_ref();
            }
            (now < us(300)).then(|| now.after(Duration::from_micros(100)))
        });
        let trace = world.run(us(1_000));
        assert_eq!((trace.tasks[0].wakeups, trace.tasks[0].steps), (3, 4));
    }

    #[test]
    fn events_come_by_time_and_class_and_the_seed_decides_among_equal_ones() {
        let order = |seed| {
            let (mut world, order) = (world(8, seed), Rc::new(RefCell::new(Vec::new())));
            for number in 0..8 {
                let order = Rc::clone(&order);
                let run = move |_: Instant, _: &Waker| {
                    order.borrow_mut().push(number);
                    Action::Done
                };
                world.actor(run, None);
            }
            let hardware = Rc::clone(&order);
            world.hardware(move |_| {
                hardware.borrow_mut().push(99);
                None
            });
            world.run(us(1));
            order.take()
        };
        assert_eq!(order(0), [99, 0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(order(1), order(1));
        assert!((1..9).any(|seed| order(seed) != order(0)));
        assert!((1..9).all(|seed| order(seed)[0] == 99));
    }

    #[test]
    #[should_panic(expected = "all tasks sleep for ever")]
    fn a_lost_wakeup_is_found() {
        let mut world = world(1, 0);
        world.actor(|_, _| Action::Sleep { until: None }, None);
        world.counters(|| {
            let mut snapshot = Snapshot::default();
            snapshot.ledger.held = 1;
            snapshot
        });
        world.run(us(1));
    }
}
