//! A world: its events, tasks and sessions.

mod cpus;

use crate::Hardware;
use crate::costs::{Costs, Work};
use crate::cpu::{Cpu, Lag};
use crate::runtime::{NotifierId, VirtualRuntime};
use crate::trace::{Digest, TaskTrace, Trace};
use packtrain::engine::{Action, Ledger, Session, Snapshot, Worker};
use packtrain::policy::topology::CpuId;
use packtrain::runtime::Runtime;
use packtrain::time::Instant;
use packtrain_offload::random::Random;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Time that steps take beside what the counters say: that of an application, which has none.
#[derive(Clone, Debug, Default)]
pub struct Charge(Rc<Cell<Duration>>);

impl Charge {
    /// The step that is running takes this much longer.
    pub fn add(&self, time: Duration) {
        self.0.set(self.0.get() + time);
    }
}

/// A world with virtual time and virtual CPUs: see the [crate](crate).
///
/// - **Events** are ordered by time, then class: hardware, device, notification, timer, CPU. Among
///   equal ones the seed decides; with the seed 0 they come as they were scheduled.
/// - **A CPU** runs its tasks by the rules of Linux's scheduler: nice values, slices, preemption by
///   a task that wakes up, if it is not `SCHED_BATCH` ([`World::set_nice`], [`World::set_batch`],
///   [`Costs::slice`]). An idle one needs [`Costs::idle_exit`] before it runs a task. CPUs `i` and
///   `i + cores` of the [`Hardware`] share a core: while both are busy, a step takes half as long
///   again.
/// - **A task** that wakes up runs on the CPU where it ran last, or on an idle one if that is busy:
///   best on one whose sibling is idle too. A CPU with nothing to run takes a task that waits at
///   another one. A task with a CPU of its own never moves.
/// - **A step** is atomic. What it writes is there when it begins, and the tasks that it notifies
///   learn of that when it ends. The CPU is busy meanwhile. A producer that is preempted in the
///   middle of a send takes two steps for it: see the [crate](crate).
/// - **A step costs** what the counters ([`World::counters`]) say that it did, at the prices of
///   [`Costs`]. That of a worker costs what those of its session say.
/// - **Polls** of a worker with `idle=poll` are counted and not run once 32 in a row have found
///   nothing, until there is an event or another task does something, the worker has work at a
///   time, or its slice is over. The next poll is at the time that it would have had. The worker
///   itself does not count them as steps.
///
/// What is not modelled is listed in the [crate](crate).
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
    cores: usize,
    hardware: Vec<Box<dyn FnMut(Instant) -> Option<Instant>>>,
    /// By event: what a device wakes.
    timed: Vec<Option<Waker>>,
    sessions: Vec<Counted>,
    /// CPUs whose polls are counted and not run.
    polling: usize,
    charge: Charge,
    digest: Digest,
}

/// The counters of a session.
struct Counted {
    /// What its steps have done.
    work: Box<dyn Fn() -> Work>,
    /// The same as of the last step that was charged for it.
    charged: Work,
    ledger: Box<dyn Fn() -> Ledger>,
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
    /// Of a timer: the sleep that it ends. Of a CPU: its turn.
    sleep: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Hardware,
    /// A device that was told a time.
    Device,
    Notification,
    /// A timer is about to end a sleep.
    Probe,
    Timer,
    Cpu,
}

/// A worker that has slept for so long is polled before time ends its sleep. That is longer than
/// interrupt moderation delays a wake-up, and than a watchdog waits before it polls a device that
/// may have lost an interrupt.
const PROBED_SLEEP: Duration = Duration::from_millis(500);
/// So long before: nothing is due yet.
const PROBE_AHEAD: Duration = Duration::from_nanos(1);

struct Task {
    kind: Kind,
    notifier: NotifierId,
    /// The session of a worker.
    session: Option<usize>,
    pinned: bool,
    nice: i8,
    /// Polls in a row that found nothing.
    empty: u32,
    batch: bool,
    /// Where it ran last, or runs.
    cpu: usize,
    /// What it is due when it wakes up.
    lag: Lag,
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
    /// A world at time 0, with the CPUs of `machine`. `seed` decides the order of equal events, and
    /// what ports do at random ([`Runtime::seed`]).
    ///
    /// # Panics
    ///
    /// If the machine has no CPU or no core, or a step costs nothing.
    #[must_use]
    pub fn new(machine: Hardware, costs: Costs, seed: u64) -> Self {
        assert!(machine.cpus > 0 && machine.cores > 0, "a world needs a CPU");
        assert!(
            !costs.step.is_zero(),
            "a step that costs nothing never ends"
        );
        Self {
            runtime: Arc::new(VirtualRuntime::new(machine, seed)),
            costs,
            seed,
            now: Instant::default(),
            events: BinaryHeap::new(),
            sequence: 0,
            handled: 0,
            tasks: Vec::new(),
            cpus: (0..machine.cpus).map(|_| Cpu::new(costs.slice)).collect(),
            cores: machine.cores,
            hardware: Vec::new(),
            timed: Vec::new(),
            sessions: Vec::new(),
            polling: 0,
            charge: Charge::default(),
            digest: Digest::default(),
        }
    }

    /// The runtime for the sessions of this world.
    #[must_use]
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime) as Arc<dyn Runtime>
    }

    pub(crate) fn virtual_runtime(&self) -> Arc<VirtualRuntime> {
        Arc::clone(&self.runtime)
    }

    /// Its CPUs.
    #[must_use]
    pub const fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// The prices.
    #[must_use]
    pub const fn costs(&self) -> &Costs {
        &self.costs
    }

    /// What an actor's step takes beside what it does with packets.
    #[must_use]
    pub fn charge(&self) -> Charge {
        self.charge.clone()
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Counters of a session: the cost of a step is what they change by. Without any, each step
    /// costs [`Costs::step`]. The workers that are added next are those of this session.
    pub fn counters(&mut self, read: impl Fn() -> Snapshot + 'static) {
        let read = Rc::new(read);
        let counters = Rc::clone(&read);
        let work = move || {
            let mut work = Work::default();
            work.add(&counters());
            work
        };
        self.counted(work, move || read().ledger);
    }

    /// The same for a session, without a copy of all its counters at each step.
    pub fn session(&mut self, session: &Session) {
        let (work, counters) = (session.work(), session.counters());
        self.counted(move || Work::from(work()), move || counters().ledger);
    }

    fn counted(
        &mut self,
        work: impl Fn() -> Work + 'static,
        ledger: impl Fn() -> Ledger + 'static,
    ) {
        self.sessions.push(Counted {
            charged: work(),
            work: Box::new(work),
            ledger: Box::new(ledger),
        });
    }

    /// A worker of a session whose runtime is that of this world. It runs on `cpu` only, or on any
    /// CPU. Returns the number of the task, as in [`Trace::tasks`].
    ///
    /// # Panics
    ///
    /// If the world has no such CPU, or the worker has another runtime.
    pub fn worker(&mut self, worker: Worker, cpu: Option<CpuId>) -> usize {
        // The number of the worker's notifier is what a notification names.
        let before = self.runtime.take_notified();
        worker.notifier().notify();
        let notifier = self.runtime.take_notified().first().copied();
        let notifier = notifier.expect("the worker has the runtime of this world");
        worker.notifier().clear();
        self.notify(&before, self.now);
        let session = self.sessions.len().checked_sub(1);
        self.task(Kind::Worker(Box::new(worker)), notifier, session, cpu)
    }

    /// A thread of an application. `run` is called with the time and a waker that ends its sleep,
    /// and returns what the thread does next, as a worker does. A step that returns
    /// [`Action::Spin`] found nothing to do, and costs [`Costs::step`]. Returns the number of the
    /// task.
    ///
    /// # Panics
    ///
    /// If the world has no such CPU.
    pub fn actor(
        &mut self,
        run: impl FnMut(Instant, &Waker) -> Action + 'static,
        cpu: Option<CpuId>,
    ) -> usize {
        let notifier = Arc::new(self.runtime.virtual_notifier());
        let id = notifier.id();
        let kind = Kind::Actor(Box::new(run), Waker::from(notifier));
        self.task(kind, id, None, cpu)
    }

    /// Gives a task a nice value, from -20 to 19, from the next time on that it wakes up. It is 0
    /// before.
    ///
    /// # Panics
    ///
    /// If there is no such task.
    pub fn set_nice(&mut self, task: usize, nice: i8) {
        self.tasks[task].nice = nice;
    }

    /// Gives a task the class `SCHED_BATCH` (sched(7)): it preempts no other when it wakes up.
    ///
    /// # Panics
    ///
    /// If there is no such task.
    pub fn set_batch(&mut self, task: usize) {
        self.tasks[task].batch = true;
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
    /// If a wake-up was lost: a worker that has slept for 500 ms would move packets if it ran now,
    /// or no event is left and packets are held. For the first, a worker that nothing has notified
    /// is polled when time is about to end its sleep, and at the end of the run. The poll takes no
    /// time. The worker counts it, as it would count a spurious wake-up.
    pub fn run(&mut self, until: Instant) -> Trace {
        self.take_notifications(self.now);
        while let Some(Reverse(event)) = self.events.peek().copied() {
            if event.at > until {
                break;
            }
            self.events.pop();
            self.handled += 1;
            self.set_now(event.at);
            if event.what != Class::Cpu {
                self.resume_polls();
            }
            match event.what {
                Class::Hardware => {
                    if let Some(at) = self.hardware[event.of](self.now) {
                        self.schedule(at, Class::Hardware, event.of, 0);
                    }
                }
                Class::Device => {
                    if let Some(waker) = self.timed[event.of].take() {
                        waker.wake();
                    }
                }
                Class::Notification => self.notified(event.of),
                Class::Probe => self.probe(event.of, event.sleep),
                Class::Timer => self.timer(event.of, event.sleep),
                Class::Cpu => self.cpu(event.of, event.sleep),
            }
            self.take_notifications(self.now);
        }
        if self.events.is_empty() {
            self.assert_no_wakeup_was_lost();
        }
        self.set_now(until.max(self.now));
        // The caller may do anything before the next run.
        self.resume_polls();
        for number in 0..self.tasks.len() {
            self.probe(number, self.tasks[number].trace.sleeps);
        }
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
        for session in &self.sessions {
            let ledger = (session.ledger)();
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

    fn task(
        &mut self,
        kind: Kind,
        notifier: NotifierId,
        session: Option<usize>,
        cpu: Option<CpuId>,
    ) -> usize {
        let number = self.tasks.len();
        let (pinned, cpu) = match cpu {
            Some(cpu) => (true, usize::from(cpu.0)),
            None => (false, number % self.cpus.len()),
        };
        assert!(cpu < self.cpus.len(), "the world has no CPU {cpu}");
        self.tasks.push(Task {
            kind,
            notifier,
            session,
            pinned,
            nice: 0,
            empty: 0,
            batch: false,
            cpu,
            lag: Lag::default(),
            state: State::Asleep,
            free_at: self.now,
            trace: TaskTrace::default(),
        });
        // At its first event: the nice value is known then.
        self.schedule(self.now, Class::Timer, number, 0);
        number
    }

    fn take_notifications(&mut self, at: Instant) {
        if !self.runtime.take_news() {
            return;
        }
        for (time, waker) in self.runtime.take_timed() {
            self.timed.push(Some(waker));
            self.schedule(time, Class::Device, self.timed.len() - 1, 0);
        }
        let notified = self.runtime.take_notified();
        self.notify(&notified, at);
    }

    fn notify(&mut self, notifiers: &[NotifierId], at: Instant) {
        let at = at.after(self.costs.interrupt);
        for &notifier in notifiers {
            self.schedule(at, Class::Notification, notifier, 0);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Actors first: a worker waits for producers that have begun to send.
        self.tasks
            .retain(|task| matches!(task.kind, Kind::Worker(_)));
    }
}

/// The first number of a seed.
const fn mix(seed: u64) -> u64 {
    Random::new(seed).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{machine, machine_with_siblings};
    use std::cell::RefCell;

    const STEP: Duration = Duration::from_micros(1);

    /// Only a step and a slice cost anything: tests name what else does.
    fn costs() -> Costs {
        Costs {
            step: STEP,
            interrupt: Duration::ZERO,
            idle_exit: Duration::ZERO,
            switch: Duration::ZERO,
            ..Costs::default()
        }
    }

    const fn us(us: u64) -> Instant {
        Instant::from_nanos(us * 1000)
    }

    fn world(cpus: usize, seed: u64) -> World {
        World::new(machine(cpus), costs(), seed)
    }

    /// A thread that never waits.
    fn busy(_: Instant, _: &Waker) -> Action {
        Action::Step
    }

    /// A thread that runs a step each `period`, and notes when.
    fn periodic(
        period: Duration,
        times: &Rc<RefCell<Vec<Instant>>>,
    ) -> impl FnMut(Instant, &Waker) -> Action + 'static {
        let (times, mut due) = (Rc::clone(times), Instant::default());
        move |now, _| {
            times.borrow_mut().push(now);
            due = due.after(period);
            Action::Sleep { until: Some(due) }
        }
    }

    #[test]
    fn tasks_share_a_cpu_by_slices() {
        let mut world = world(1, 0);
        for _ in 0..3 {
            world.actor(busy, None);
        }
        let trace = world.run(us(90_000));
        for task in &trace.tasks {
            let share = task.busy.as_micros();
            assert!((29_200..=30_800).contains(&share), "{task:?}");
        }
        // A slice is 750 us.
        assert!((118..=120).contains(&trace.cpus[0].switches));
        let preemptions: u64 = trace.tasks.iter().map(|task| task.preemptions).sum();
        assert_eq!(preemptions, trace.cpus[0].switches);
    }

    #[test]
    fn the_nice_value_of_a_task_is_its_share() {
        let mut world = world(1, 0);
        let ahead = world.actor(busy, None);
        world.set_nice(ahead, -5);
        world.actor(busy, None);
        let trace = world.run(us(100_000));
        let share = trace.tasks[ahead].busy.as_micros();
        assert!((74_000..=77_000).contains(&share), "{share} us of 100,000");
    }

    #[test]
    fn another_task_costs_a_switch() {
        let switch = Duration::from_micros(10);
        let costs = Costs { switch, ..costs() };
        let mut world = World::new(machine(1), costs, 0);
        world.actor(|_, _| Action::Done, None);
        world.actor(|_, _| Action::Done, None);
        let trace = world.run(us(100));
        assert_eq!(trace.cpus[0].busy, 2 * STEP + switch);
    }

    #[test]
    fn an_idle_cpu_needs_time_to_run_a_task() {
        let costs = Costs {
            idle_exit: Duration::from_micros(4),
            ..costs()
        };
        let mut world = World::new(machine(1), costs, 0);
        let times = Rc::default();
        world.actor(periodic(Duration::from_micros(50), &times), None);
        world.run(us(120));
        assert_eq!(*times.borrow(), [us(4), us(54), us(104)]);
        // Beside another task, the CPU is not idle.
        world.actor(busy, None);
        world.run(us(10_000));
        let late = |at: &Instant| at.as_nanos() % 50_000 == 4_000;
        assert!(!times.borrow()[20..].iter().all(late));
    }

    #[test]
    fn a_busy_sibling_takes_a_third_of_the_speed() {
        let cost = |tasks: [u16; 2]| {
            let mut world = World::new(machine_with_siblings(2), costs(), 0);
            for cpu in tasks {
                world.actor(busy, Some(CpuId(cpu)));
            }
            let trace = world.run(us(3_000));
            trace.tasks[0].busy / trace.tasks[0].steps as u32
        };
        assert_eq!(cost([0, 1]), STEP, "cores of their own");
        assert_eq!(cost([0, 2]), STEP * 3 / 2, "siblings");
    }

    #[test]
    fn a_task_that_wakes_up_takes_a_core_before_a_sibling() {
        let mut world = World::new(machine_with_siblings(2), costs(), 0);
        world.actor(busy, Some(CpuId(2)));
        let times = Rc::default();
        // Its own CPU, 2, is busy. So is the sibling of CPU 0.
        let sleeper = world.actor(periodic(Duration::from_micros(50), &times), None);
        world.tasks[sleeper].cpu = 2;
        world.run(us(10));
        assert_eq!(world.tasks[sleeper].cpu, 1);
    }

    #[test]
    fn a_task_without_a_cpu_of_its_own_takes_an_idle_one() {
        let mut world = world(2, 0);
        world.actor(busy, Some(CpuId(0)));
        let times = Rc::default();
        let run = periodic(Duration::from_micros(10), &times);
        let pinned = world.actor(run, Some(CpuId(0)));
        let trace = world.run(us(5_000));
        assert_eq!(trace.cpus[1].busy, Duration::ZERO);
        assert_eq!(trace.tasks[pinned].migrations, 0);
        let run = periodic(Duration::from_micros(10), &times);
        let free = world.actor(run, None);
        let trace = world.run(us(10_000));
        assert!(trace.tasks[free].steps > 490, "{:?}", trace.tasks[free]);
        assert_eq!(trace.tasks[free].busy, trace.cpus[1].busy);
    }

    #[test]
    fn a_cpu_with_nothing_to_run_takes_a_task_that_waits() {
        let mut world = world(2, 0);
        let ends = |now: Instant, _: &Waker| match now < us(100) {
            true => Action::Step,
            false => Action::Done,
        };
        world.actor(busy, None);
        world.actor(ends, Some(CpuId(1)));
        world.actor(busy, None);
        let trace = world.run(us(1_100));
        assert_eq!(trace.tasks[2].migrations, 1);
        for cpu in &trace.cpus {
            assert!(cpu.busy >= 1_100 * STEP, "{cpu:?}");
        }
    }

    #[test]
    fn a_task_that_lost_its_cpu_goes_to_an_idle_one() {
        let mut world = world(2, 0);
        let free = world.actor(busy, None);
        world.actor(busy, Some(CpuId(0)));
        let trace = world.run(us(10_000));
        assert!(trace.tasks[free].busy > 9_900 * STEP, "{:?}", trace.tasks);
    }

    /// The sleeper is due what it waited for during its first slice.
    #[test]
    fn a_task_that_wakes_up_preempts_one_that_had_more() {
        let mut world = world(1, 0);
        world.actor(busy, None);
        let times = Rc::default();
        world.actor(periodic(Duration::from_micros(100), &times), None);
        let trace = world.run(us(3_000));
        let times = times.borrow();
        assert!(times[0] >= us(750), "{times:?}");
        let late = times.iter().skip(8).zip(8..);
        let late = late.map(|(at, period)| at.since(us(100 * period)));
        assert!(late.max().is_some_and(|late| late <= STEP), "{times:?}");
        assert!(trace.tasks[0].preemptions > 20, "{:?}", trace.tasks[0]);
    }

    #[test]
    fn a_batch_task_that_wakes_up_waits_for_the_end_of_the_slice() {
        let mut world = world(1, 0);
        world.actor(busy, None);
        let times = Rc::default();
        let batch = world.actor(periodic(Duration::from_micros(100), &times), None);
        world.set_batch(batch);
        let trace = world.run(us(3_000));
        // It runs as often as the other one has used up a slice of 750 us, and catches up then.
        assert!((3..=4).contains(&trace.tasks[0].preemptions), "{trace:?}");
        assert!(trace.tasks[batch].steps > 20, "{:?}", trace.tasks[batch]);
    }

    #[test]
    fn a_notification_ends_a_sleep_once() {
        let mut world = world(2, 0);
        let waker = Rc::new(RefCell::new(None::<Waker>));
        let stored = Rc::clone(&waker);
        world.actor(
            move |_, own| {
                stored.replace(Some(own.clone()));
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

    /// At the end of the step that notifies it, and when its CPU knows.
    #[test]
    fn a_notification_arrives_after_the_step_and_the_interrupt() {
        let costs = Costs {
            interrupt: Duration::from_micros(2),
            ..costs()
        };
        let mut world = World::new(machine(2), costs, 0);
        let waker = Rc::new(RefCell::new(None::<Waker>));
        let (stored, ran) = (Rc::clone(&waker), Rc::new(RefCell::new(Vec::new())));
        let times = Rc::clone(&ran);
        let sleeper = move |now, own: &Waker| {
            stored.replace(Some(own.clone()));
            times.borrow_mut().push(now);
            Action::Sleep { until: None }
        };
        world.actor(sleeper, None);
        let notifies = move |now: Instant, _: &Waker| {
            if now < us(10) {
                let until = Some(us(10));
                return Action::Sleep { until };
            }
            waker.borrow().as_ref().expect("it sleeps").wake_by_ref();
            Action::Done
        };
        world.actor(notifies, None);
        world.run(us(100));
        assert_eq!(*ran.borrow(), [us(0), us(10).after(STEP + costs.interrupt)]);
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
    fn packets_that_no_task_will_move_are_found() {
        let mut world = world(1, 0);
        world.actor(|_, _| Action::Sleep { until: None }, None);
        world.counters(|| {
            let mut snapshot = Snapshot::default();
            snapshot.ledger.held = 1;
            snapshot
        });
        world.run(us(10));
    }
}
