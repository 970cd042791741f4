//! A virtual CPU: which of the tasks that want to run has it.
//!
//! The rules are the essentials of Linux's EEVDF scheduler (`kernel/sched/fair.c`, Linux 6.6 and
//! later; Stoica and Abdel-Wahab 1995). Each one names the function or the feature that it is from.
//! Control groups, ticks and delayed dequeuing are left out.

use crate::trace::CpuTrace;
use packtrain::time::Instant;
use std::time::Duration;

/// The weight of a task with nice value 0 (`NICE_0_LOAD`).
const WEIGHT_NICE_0: i64 = 1024;

/// Weights of the nice values from -20 to 19 (`sched_prio_to_weight`): a level is a factor of 1.25.
const WEIGHTS: [i64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// A task, as the queue of a CPU knows it. Virtual time runs slower for a task of more weight; its
/// unit is 1/1024 ns of a task with nice value 0, so that a short step of a heavy task counts.
#[derive(Clone, Copy, Debug)]
struct Entity {
    task: usize,
    weight: i64,
    /// The virtual time that it has had (`vruntime`).
    had: i64,
    /// When the request for a slice that it makes now has to be fulfilled.
    deadline: i64,
}

/// What a task takes along when it sleeps or moves to another CPU: the virtual time that it was due
/// and has not had (`vlag`); below zero if it had more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lag(i64);

/// The tasks of one CPU that want to run.
#[derive(Debug)]
pub(crate) struct RunQueue {
    slice: Duration,
    waiting: Vec<Entity>,
    current: Option<Entity>,
    /// The current task has to be chosen anew.
    resched: bool,
}

/// A CPU: its tasks, and what it does now.
#[derive(Debug)]
pub(crate) struct Cpu {
    pub(crate) queue: RunQueue,
    pub(crate) last: Option<usize>,
    /// It runs a task, or is about to.
    pub(crate) busy: bool,
    /// The number of its next turn.
    pub(crate) turn: u64,
    /// The polls that it has instead of steps.
    pub(crate) polls: Option<Polls>,
    pub(crate) trace: CpuTrace,
}

/// Polls of a worker that find nothing: they are counted and not run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Polls {
    pub(crate) task: usize,
    /// When the first one begins, and the time of each.
    pub(crate) from: Instant,
    pub(crate) each: Duration,
    pub(crate) until: Instant,
}

impl Cpu {
    /// An idle CPU. `slice`: how long a task runs while others wait.
    pub(crate) const fn new(slice: Duration) -> Self {
        Self {
            queue: RunQueue::new(slice),
            last: None,
            busy: false,
            turn: 0,
            polls: None,
            trace: CpuTrace {
                busy: Duration::ZERO,
                switches: 0,
            },
        }
    }
}

/// So much time for a task, as virtual time (`calc_delta_fair`).
const fn virtual_time(time: Duration, weight: i64) -> i64 {
    time.as_nanos() as i64 * 1024 * WEIGHT_NICE_0 / weight
}

impl RunQueue {
    /// `slice`: how long a task runs before another one has its turn (`base_slice_ns`).
    pub(crate) const fn new(slice: Duration) -> Self {
        Self {
            slice,
            waiting: Vec::new(),
            current: None,
            resched: false,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Entity> {
        self.waiting.iter().chain(&self.current)
    }

    /// The sum of all weights, and the average of the virtual times that the tasks have had,
    /// weighted (`avg_vruntime`). None has had too little if each has had as much as this.
    fn average(&self) -> (i64, i64) {
        let weights = self.all().map(|task| task.weight).sum();
        // Relative to one of them: the sum stays small.
        let Some(zero) = self.all().next().map(|task| task.had) else {
            return (0, 0);
        };
        let sum = self
            .all()
            .map(|task| i128::from(task.had - zero) * i128::from(task.weight));
        let average = sum.sum::<i128>().div_euclid(i128::from(weights));
        (weights, zero + average as i64)
    }

    /// The task to run: of those that have had no more than their share, the one whose deadline is
    /// the first (`pick_eevdf`).
    fn pick(&self) -> Option<usize> {
        let (_, average) = self.average();
        let eligible = self.all().filter(|task| task.had <= average);
        // The average is rounded down, and the task that has had the least is still eligible.
        eligible
            .min_by_key(|task| task.deadline)
            .map(|task| task.task)
    }

    /// A task wants to run. It is due what it was due when it left (`place_entity`, `PLACE_LAG`),
    /// but not more than two slices (`entity_lag`).
    pub(crate) fn enqueue(&mut self, task: usize, nice: i8, lag: Lag) {
        let weight = WEIGHTS[(i32::from(nice) + 20).clamp(0, 39) as usize];
        let (weights, average) = self.average();
        let slice = virtual_time(self.slice, weight);
        let had = match weights {
            0 => 0,
            // The task itself moves the average.
            _ => {
                let lag = lag.0.clamp(-2 * slice, 2 * slice);
                let lag = i128::from(lag) * i128::from(weights + weight) / i128::from(weights);
                average - lag as i64
            }
        };
        self.waiting.push(Entity {
            task,
            weight,
            had,
            deadline: had + slice,
        });
    }

    /// A task that was enqueued is not of the class `SCHED_BATCH`. It takes the place of the
    /// current task only if that one has had more than its share, and it is the next by the rule
    /// (`check_preempt_wakeup_fair`, `RUN_TO_PARITY`).
    pub(crate) fn preempt(&mut self, task: usize) {
        let (_, average) = self.average();
        if self.current.is_some_and(|current| current.had > average) {
            self.resched |= self.pick() == Some(task);
        }
    }

    /// The current task has run for `time`. A slice that is used up ends its turn
    /// (`update_curr`, `update_deadline`).
    pub(crate) fn charge(&mut self, time: Duration) {
        if let Some(current) = &mut self.current {
            current.had += virtual_time(time, current.weight);
            if current.had >= current.deadline {
                current.deadline = current.had + virtual_time(self.slice, current.weight);
                self.resched = true;
            }
        }
    }

    /// So many steps of `time` use up the slice of the current task: at least one.
    pub(crate) fn steps_left(&self, time: Duration) -> u64 {
        let steps = self.current.map(|task| {
            let left = task.deadline.saturating_sub(task.had).max(1);
            left.unsigned_abs()
                .div_ceil(virtual_time(time, task.weight).max(1).unsigned_abs())
        });
        steps.unwrap_or(1)
    }

    /// The current task lets the others run: it forfeits the rest of its slice (`yield_task_fair`).
    pub(crate) fn give_way(&mut self) {
        let slice = self.slice;
        if let Some(current) = &mut self.current {
            current.had = current.deadline;
            current.deadline += virtual_time(slice, current.weight);
            self.resched = true;
        }
    }

    /// The current task sleeps or ends.
    pub(crate) fn leave(&mut self) -> Lag {
        let (_, average) = self.average();
        let left = self.current.take();
        Lag(left.map_or(0, |task| average - task.had))
    }

    /// A step has ended: the task that runs now, and the one that it took the CPU from.
    pub(crate) fn next(&mut self) -> (Option<usize>, Option<usize>) {
        let before = self.current.map(|task| task.task);
        if before.is_some() && !std::mem::take(&mut self.resched) {
            return (before, None);
        }
        self.resched = false;
        let picked = self.pick();
        if picked == before {
            return (before, None);
        }
        self.waiting.extend(self.current.take());
        let place = self
            .waiting
            .iter()
            .position(|task| Some(task.task) == picked);
        self.current = place.map(|place| self.waiting.remove(place));
        (picked, before)
    }

    /// The first task that waits and may move, for another CPU.
    pub(crate) fn give(&mut self, may_move: impl Fn(usize) -> bool) -> Option<(usize, Lag)> {
        let (_, average) = self.average();
        let place = self.waiting.iter().position(|task| may_move(task.task))?;
        let task = self.waiting.remove(place);
        Some((task.task, Lag(average - task.had)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(1);
    const STEP: Duration = Duration::from_micros(10);

    fn queue(nice: &[i8]) -> RunQueue {
        let mut queue = RunQueue::new(SLICE);
        for (task, &nice) in nice.iter().enumerate() {
            queue.enqueue(task, nice, Lag::default());
        }
        queue
    }

    /// The time of each task after so many steps, and how often the CPU changed from one to
    /// another.
    fn run(queue: &mut RunQueue, steps: usize) -> (Vec<Duration>, usize) {
        let (mut times, mut switches) = (vec![Duration::ZERO; 4], 0);
        for _ in 0..steps {
            let (task, preempted) = queue.next();
            times[task.expect("a task wants to run")] += STEP;
            switches += usize::from(preempted.is_some());
            queue.charge(STEP);
        }
        (times, switches)
    }

    #[test]
    fn a_slice_is_run_before_another_task_has_its_turn() {
        let (times, switches) = run(&mut queue(&[0, 0]), 1000);
        assert_eq!(times[..2], [5 * SLICE, 5 * SLICE]);
        assert_eq!(switches, 9);
    }

    /// Five levels are three quarters of a CPU that two tasks want.
    #[test]
    fn the_nice_value_is_a_share_of_the_cpu() {
        let (times, _) = run(&mut queue(&[-5, 0]), 100_000);
        let share = times[0].as_secs_f64() / (times[0] + times[1]).as_secs_f64();
        assert!((0.749..0.756).contains(&share), "{share}");
        let (times, _) = run(&mut queue(&[0, 0, 19]), 100_000);
        let share = times[2].as_secs_f64() / times[0].as_secs_f64();
        assert!((0.01..0.02).contains(&share), "15 to 1024: {share}");
    }

    /// A task that sleeps takes along what it was due.
    #[test]
    fn a_task_that_is_due_time_takes_the_cpu_when_it_wakes_up() {
        let mut queue = queue(&[0, 0]);
        assert_eq!(queue.next(), (Some(0), None));
        queue.charge(SLICE);
        // The second one waited for a slice, and needs one step of its own.
        assert_eq!(queue.next(), (Some(1), Some(0)));
        queue.charge(STEP);
        let lag = queue.leave();
        assert!(lag > Lag(0), "{lag:?}");
        assert_eq!(queue.next(), (Some(0), None));
        queue.charge(STEP);
        queue.enqueue(1, 0, lag);
        queue.preempt(1);
        assert_eq!(queue.next(), (Some(1), Some(0)));
    }

    #[test]
    fn without_preemption_it_waits_for_the_end_of_the_slice() {
        let mut queue = queue(&[0]);
        run(&mut queue, 10);
        queue.enqueue(1, 0, Lag(virtual_time(SLICE, WEIGHT_NICE_0)));
        let (times, _) = run(&mut queue, 91);
        assert_eq!(times[..2], [SLICE - 10 * STEP, STEP]);
    }

    /// Though its weight is greater, and its deadline earlier.
    #[test]
    fn a_task_that_is_due_nothing_waits_for_the_end_of_the_slice() {
        let mut queue = queue(&[0]);
        run(&mut queue, 10);
        queue.enqueue(1, -10, Lag::default());
        queue.preempt(1);
        let (times, _) = run(&mut queue, 91);
        assert_eq!(times[..2], [SLICE - 10 * STEP, STEP]);
    }

    #[test]
    fn of_those_that_may_run_the_one_with_the_earliest_deadline_does() {
        let mut both = queue(&[0, -10]);
        assert_eq!(both.next(), (Some(1), None));
        // The second one has had more than its share.
        let mut one = queue(&[0]);
        let more = virtual_time(SLICE / 20, WEIGHT_NICE_0);
        one.enqueue(1, -10, Lag(-more));
        assert!(one.waiting[1].deadline < one.waiting[0].deadline);
        assert_eq!(one.next(), (Some(0), None));
    }

    #[test]
    fn what_a_task_is_due_is_at_most_two_slices() {
        let due = |lag| {
            let mut queue = queue(&[0]);
            run(&mut queue, 1);
            queue.enqueue(1, 0, Lag(lag));
            queue.average().1 - queue.waiting[0].had
        };
        let slice = virtual_time(SLICE, WEIGHT_NICE_0);
        assert_eq!(due(slice), slice);
        assert_eq!(due(10 * slice), 2 * slice);
        assert_eq!(due(-10 * slice), -2 * slice);
    }

    #[test]
    fn the_steps_that_are_left_end_the_slice_at_once_or_one_by_one() {
        let mut one = queue(&[0, -3]);
        one.next();
        one.charge(3 * STEP);
        let steps = one.steps_left(STEP);
        let mut other = queue(&[0, -3]);
        other.next();
        other.charge(3 * STEP);
        for _ in 0..steps {
            assert!(!other.resched);
            other.charge(STEP);
        }
        one.charge(STEP * steps as u32);
        assert!(one.resched && other.resched);
        assert_eq!(one.next(), other.next());
    }

    #[test]
    fn a_task_that_gives_way_runs_again_after_the_others() {
        let mut queue = queue(&[0, 0]);
        for turn in 0..6 {
            let (task, _) = queue.next();
            assert_eq!(task, Some(turn % 2));
            queue.charge(STEP);
            queue.give_way();
        }
    }

    #[test]
    fn a_task_that_gives_way_forfeits_its_slice() {
        let mut queue = queue(&[0]);
        queue.next();
        // It could not run before the end of the slice.
        queue.enqueue(1, 0, Lag(-virtual_time(SLICE / 2, WEIGHT_NICE_0)));
        queue.give_way();
        assert_eq!(queue.next(), (Some(1), Some(0)));
    }

    #[test]
    fn a_task_that_waits_moves_with_what_it_is_due() {
        let mut queue = queue(&[0, 0, 0]);
        queue.next();
        queue.charge(SLICE);
        let (task, lag) = queue.give(|task| task != 1).expect("task 2 may move");
        assert_eq!(task, 2);
        assert_eq!(lag, Lag(virtual_time(SLICE, WEIGHT_NICE_0) / 3));
        assert_eq!(queue.give(|task| task != 1), None);
    }
}
