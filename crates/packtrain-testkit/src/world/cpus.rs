//! The CPUs of a world: which task runs where, and what its steps cost.

use super::{Class, Kind, PROBE_AHEAD, PROBED_SLEEP, State, Task, World};
use crate::costs::Work;
use crate::cpu::Polls;
use crate::runtime::NotifierId;
use packtrain::engine::{Action, ThreadUsage};
use packtrain::time::Instant;
use std::time::Duration;

/// Polls in a row that have found nothing. A device that needs several polls has had them by then.
const EMPTY_POLLS: u32 = 32;

impl World {
    pub(super) fn notified(&mut self, notifier: NotifierId) {
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

    /// Polls a worker that sleeps and was not notified.
    pub(super) fn probe(&mut self, number: usize, sleep: u64) {
        let task = &self.tasks[number];
        let sleeps = task.state == State::Asleep && task.trace.sleeps == sleep;
        let long = task.free_at.after(PROBED_SLEEP) <= self.now.after(PROBE_AHEAD);
        let is_worker = matches!(task.kind, Kind::Worker(_));
        if !sleeps || !long || !is_worker || self.runtime.is_notified(task.notifier) {
            return;
        }
        // Producers may have done something for the session since.
        let session = task.session;
        self.take_work(session);
        let action = self.step(number);
        let moved = self.take_work(session).packets();
        assert!(
            moved == 0,
            "lost wake-up: task {number} slept since {:?} and would move {moved} packets",
            self.tasks[number].free_at
        );
        self.take_notifications(self.now);
        // The timer of the sleep stays as it is.
        if !matches!(action, Action::Sleep { .. }) {
            self.wake(number);
        }
    }

    pub(super) fn timer(&mut self, number: usize, sleep: u64) {
        let task = &self.tasks[number];
        if task.state == State::Asleep && task.trace.sleeps == sleep {
            self.wake(number);
        }
    }

    fn wake(&mut self, number: usize) {
        let task = &mut self.tasks[number];
        task.state = State::Ready;
        // Until its last step has ended, the CPU is busy with the task itself.
        let to = match self.now >= task.free_at {
            true => self.cpu_for(number),
            false => task.cpu,
        };
        self.enqueue(number, to);
    }

    /// Where a task runs best (`select_idle_sibling`): where it ran last, on a core that is idle,
    /// on an idle CPU.
    fn cpu_for(&self, number: usize) -> usize {
        let task = &self.tasks[number];
        if task.pinned || !self.cpus[task.cpu].busy {
            return task.cpu;
        }
        let idle = |&cpu: &usize| !self.cpus[cpu].busy;
        let mut all = 0..self.cpus.len();
        all.clone()
            .find(|cpu| idle(cpu) && !self.sibling_is_busy(*cpu))
            .or_else(|| all.find(idle))
            .unwrap_or(task.cpu)
    }

    /// Whether another CPU of the core runs a task.
    fn sibling_is_busy(&self, of: usize) -> bool {
        let core = (of % self.cores..self.cpus.len()).step_by(self.cores);
        core.filter(|&cpu| cpu != of).any(|cpu| self.cpus[cpu].busy)
    }

    fn enqueue(&mut self, number: usize, to: usize) {
        let idle_exit = self.costs.idle_exit;
        let task = &mut self.tasks[number];
        let from = std::mem::replace(&mut task.cpu, to);
        task.trace.migrations += u64::from(from != to);
        let cpu = &mut self.cpus[to];
        cpu.queue.enqueue(number, task.nice, task.lag);
        if !task.batch {
            cpu.queue.preempt(number);
        }
        if !std::mem::replace(&mut cpu.busy, true) {
            self.turn(to, self.now.after(idle_exit));
        }
    }

    /// Moves a task that waits at the CPU `from` to another one.
    fn pull(&mut self, from: usize, to: usize) -> bool {
        let tasks = &self.tasks;
        let given = self.cpus[from].queue.give(|task| !tasks[task].pinned);
        let Some((task, lag)) = given else {
            return false;
        };
        self.tasks[task].lag = lag;
        self.enqueue(task, to);
        true
    }

    /// The CPU takes its next turn at `at`, and none before.
    fn turn(&mut self, of: usize, at: Instant) {
        let cpu = &mut self.cpus[of];
        cpu.turn += 1;
        let turn = cpu.turn;
        self.schedule(at, Class::Cpu, of, turn);
    }

    /// The CPU is done with a step, or with polls.
    pub(super) fn cpu(&mut self, of: usize, turn: u64) {
        if self.cpus[of].turn != turn {
            return;
        }
        self.end_polls(of);
        let (now, costs) = (self.now, self.costs);
        let (mut picked, preempted) = self.cpus[of].queue.next();
        if picked.is_none() {
            self.resume_polls();
            // It looks for work elsewhere before it is idle (`sched_balance_newidle`).
            let found = (0..self.cpus.len()).any(|from| from != of && self.pull(from, of));
            picked = match found {
                true => self.cpus[of].queue.next().0,
                false => None,
            };
        }
        let Some(number) = picked else {
            self.cpus[of].busy = false;
            return;
        };
        if let Some(preempted) = preempted {
            self.tasks[preempted].trace.preemptions += 1;
            // An idle CPU is given what waits here (`sched_balance_trigger`, nohz).
            if let Some(idle) = self.cpus.iter().position(|cpu| !cpu.busy) {
                self.pull(of, idle);
            }
        }
        let mut cost = Duration::ZERO;
        let cpu = &mut self.cpus[of];
        if cpu.last.replace(number).is_some_and(|last| last != number) {
            cpu.trace.switches += 1;
            cost += costs.switch;
        }
        let action = self.step(number);
        let task = &self.tasks[number];
        let work = match (action, &task.kind) {
            // It found nothing.
            (Action::Spin, Kind::Actor(..)) => Work::default(),
            _ => self.take_work(task.session),
        };
        let found_nothing = action == Action::Spin && work == Work::default();
        let mut each = work.cost(&costs);
        cost += each + self.charge.0.take();
        if self.sibling_is_busy(of) {
            // Two threads of a core have two thirds of its speed each.
            (cost, each) = (cost * 3 / 2, each * 3 / 2);
        }
        let end = now.after(cost);
        if !found_nothing {
            self.resume_polls();
        }
        self.take_notifications(end);
        let task = &mut self.tasks[number];
        task.empty = match found_nothing {
            true => task.empty.saturating_add(1),
            false => 0,
        };
        task.trace.steps += 1;
        task.trace.busy += cost;
        task.free_at = end;
        let cpu = &mut self.cpus[of];
        cpu.trace.busy += cost;
        cpu.queue.charge(cost);
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
        task.publish(matches!(action, Action::Sleep { .. }));
        match action {
            Action::Step | Action::Spin => {}
            Action::Yield => cpu.queue.give_way(),
            Action::Sleep { until } => {
                task.lag = cpu.queue.leave();
                self.sleep(number, until);
            }
            Action::Done => {
                cpu.queue.leave();
                task.state = State::Ended;
                task.trace.ended = Some(now);
                task.kind = Kind::Ended;
            }
        }
        match self.polls(number, of, end, each) {
            Some(polls) => {
                let until = polls.until;
                self.cpus[of].polls = Some(polls);
                self.polling += 1;
                self.turn(of, until);
            }
            None => self.turn(of, end),
        }
    }

    /// The next polls of a worker, if they find nothing while nothing else happens: until it has
    /// work at a time or has used up its slice.
    fn polls(&self, task: usize, cpu: usize, from: Instant, each: Duration) -> Option<Polls> {
        let Task { kind, empty, .. } = &self.tasks[task];
        let Kind::Worker(worker) = kind else {
            return None;
        };
        if *empty < EMPTY_POLLS {
            return None;
        }
        let slice = self.cpus[cpu].queue.steps_left(each);
        let due = worker.next_due(self.now);
        let before = due.map_or(slice, |at| steps_before(from, at, each));
        let steps = u32::try_from(slice.min(before)).ok();
        let steps = steps.filter(|&steps| steps > 0)?;
        let until = from.after(each * steps);
        Some(Polls {
            task,
            from,
            each,
            until,
        })
    }

    /// Counts the polls of a CPU that began before now. Returns when the next one begins.
    fn end_polls(&mut self, of: usize) -> Option<Instant> {
        let cpu = &mut self.cpus[of];
        let Polls {
            task, from, each, ..
        } = cpu.polls.take()?;
        self.polling -= 1;
        let steps = steps_before(from, self.now, each);
        let cost = each * steps as u32;
        cpu.trace.busy += cost;
        cpu.queue.charge(cost);
        let task = &mut self.tasks[task];
        task.trace.steps += steps;
        task.trace.busy += cost;
        task.free_at = from.after(cost);
        task.publish(false);
        self.digest.add(steps);
        Some(task.free_at)
    }

    /// Something has happened: all workers poll again.
    pub(super) fn resume_polls(&mut self) {
        for cpu in 0..self.cpus.len() {
            if self.polling == 0 {
                return;
            }
            if let Some(next) = self.end_polls(cpu) {
                self.turn(cpu, next);
            }
        }
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
            let (sleep, free_at) = (task.trace.sleeps, task.free_at);
            self.schedule(at, Class::Timer, number, sleep);
            if at >= free_at.after(PROBED_SLEEP) {
                let before = Instant::from_nanos(at.as_nanos() - PROBE_AHEAD.as_nanos() as u64);
                self.schedule(before, Class::Probe, number, sleep);
            }
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

    /// What was done since the last call for a session, or for all.
    fn take_work(&mut self, session: Option<usize>) -> Work {
        let sessions = match session {
            Some(session) => &mut self.sessions[session..=session],
            None => &mut self.sessions[..],
        };
        let mut sum = Work::default();
        for session in sessions {
            let work = (session.work)();
            sum += work - std::mem::replace(&mut session.charged, work);
        }
        sum
    }
}

impl Task {
    /// Tells a worker what it has used, after a step that sends it to sleep or not.
    fn publish(&self, sleeps: bool) {
        if let Kind::Worker(worker) = &self.kind {
            worker.publish(&ThreadUsage {
                cpu_ns: self.trace.busy.as_nanos() as u64,
                voluntary_switches: self.trace.sleeps + u64::from(sleeps),
                involuntary_switches: self.trace.preemptions,
            });
        }
    }
}

/// Steps of `each` from `from` on that begin before `until`.
fn steps_before(from: Instant, until: Instant, each: Duration) -> u64 {
    let each = each.as_nanos().max(1);
    until.since(from).as_nanos().div_ceil(each) as u64
}
