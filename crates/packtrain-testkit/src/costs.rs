//! What a step costs in virtual time.

use packtrain::engine::{self, Snapshot};
use std::ops::{AddAssign, Sub};
use std::time::Duration;

/// The price of each thing that a step does.
///
/// The defaults are those of a shared virtual CPU at about 3 GHz, rounded. They are meant to be in
/// proportion to each other; no virtual figure is a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A step that finds nothing: a poll of each queue.
    pub step: Duration,
    /// A packet received from a device, or given to one.
    pub packet: Duration,
    /// 1024 bytes received from a device, given to one, or copied since the device could not take
    /// them as they were.
    pub kilobyte: Duration,
    /// A doorbell.
    pub doorbell: Duration,
    /// A system call.
    pub syscall: Duration,
    /// Ending the sleep of another thread, for the thread that does it.
    pub wakeup: Duration,
    /// From there, or from the interrupt of a device, until the CPU of the other thread knows.
    pub interrupt: Duration,
    /// From there until an idle CPU runs the thread: the exit latency of its idle state.
    pub idle_exit: Duration,
    /// Another task than before runs on a CPU.
    pub switch: Duration,
    /// How long a task runs while others wait for the CPU. One of another nice value has as many
    /// slices more or fewer as its weight says.
    pub slice: Duration,
    /// Reading a register of a device: the cause of an interrupt.
    pub register: Duration,
    /// The least time between two interrupts of a shared line
    /// ([`Vectors::Shared`](crate::Vectors::Shared)).
    pub timer: Duration,
}

impl Costs {
    /// Each price with its name.
    pub(crate) fn prices_mut(&mut self) -> [(&'static str, &mut Duration); 12] {
        [
            ("step", &mut self.step),
            ("packet", &mut self.packet),
            ("kilobyte", &mut self.kilobyte),
            ("doorbell", &mut self.doorbell),
            ("syscall", &mut self.syscall),
            ("wakeup", &mut self.wakeup),
            ("interrupt", &mut self.interrupt),
            ("idle-exit", &mut self.idle_exit),
            ("switch", &mut self.switch),
            ("slice", &mut self.slice),
            ("register", &mut self.register),
            ("timer", &mut self.timer),
        ]
    }
}

impl Default for Costs {
    fn default() -> Self {
        let ns = Duration::from_nanos;
        Self {
            // Some cache lines that other threads write.
            step: ns(50),
            // 80 ns for a packet from its producer to a device that does nothing.
            packet: ns(40),
            // Copied once from memory that is not cached, at about 10 GB/s.
            kilobyte: ns(100),
            // A write that is not cached, and crosses PCIe.
            doorbell: ns(100),
            syscall: ns(300),
            // Of a futex or an eventfd, with the interrupt to the other CPU.
            wakeup: ns(1_500),
            // "About a microsecond, and a wake-up takes five or more": see `engine/shared.rs`.
            interrupt: ns(1_000),
            idle_exit: ns(4_000),
            switch: ns(1_200),
            // Linux's `base_slice_ns` with one CPU.
            slice: ns(750_000),
            // A read that crosses PCIe, and waits for the answer.
            register: ns(1_000),
            // The interrupt throttle of S1's em(4): "itr=125".
            timer: ns(125_000),
        }
    }
}

/// What the counters of sessions say of the work that was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    packets: u64,
    bytes: u64,
    doorbells: u64,
    syscalls: u64,
    wakeups: u64,
}

impl Work {
    pub(crate) fn add(&mut self, snapshot: &Snapshot) {
        for port in &snapshot.ports {
            for rx in &port.rx {
                self.packets += rx.packets;
                self.bytes += rx.bytes;
            }
            for tx in &port.tx {
                self.packets += tx.packets;
                self.bytes += tx.bytes + tx.fit_bytes_copied;
                self.doorbells += tx.doorbells;
                self.wakeups += tx.wakeups;
            }
        }
        self.syscalls += snapshot.syscalls;
    }

    /// Packets received from devices, or given to them.
    pub(crate) const fn packets(&self) -> u64 {
        self.packets
    }

    /// What a step costs that did this.
    pub(crate) fn cost(&self, costs: &Costs) -> Duration {
        let times = |price: Duration, count: u64| price.as_nanos() as u64 * count;
        let bytes = times(costs.kilobyte, self.bytes) / 1024;
        Duration::from_nanos(
            times(costs.step, 1)
                + times(costs.packet, self.packets)
                + bytes
                + times(costs.doorbell, self.doorbells)
                + times(costs.syscall, self.syscalls)
                + times(costs.wakeup, self.wakeups),
        )
    }
}

impl From<engine::Work> for Work {
    fn from(work: engine::Work) -> Self {
        Self {
            packets: work.packets,
            bytes: work.bytes,
            doorbells: work.doorbells,
            syscalls: work.syscalls,
            wakeups: work.wakeups,
        }
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, more: Self) {
        self.packets += more.packets;
        self.bytes += more.bytes;
        self.doorbells += more.doorbells;
        self.syscalls += more.syscalls;
        self.wakeups += more.wakeups;
    }
}

impl Sub for Work {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
            doorbells: self.doorbells - before.doorbells,
            syscalls: self.syscalls - before.syscalls,
            wakeups: self.wakeups - before.wakeups,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain::engine::PortSnapshot;
    use packtrain::stats::{RxSnapshot, TxSnapshot};

    #[test]
    fn work_is_what_the_counters_say() {
        let port = |rx, tx| PortSnapshot {
            rx: vec![rx],
            tx: vec![tx],
            ..PortSnapshot::default()
        };
        let mut rx = RxSnapshot::default();
        (rx.packets, rx.bytes) = (1, 10);
        let mut tx = TxSnapshot::default();
        (tx.packets, tx.bytes, tx.fit_bytes_copied) = (2, 200, 3_000);
        (tx.doorbells, tx.wakeups) = (4, 5);
        let snapshot = Snapshot {
            ports: vec![
                port(rx, TxSnapshot::default()),
                port(RxSnapshot::default(), tx),
            ],
            syscalls: 6,
            ..Snapshot::default()
        };
        let mut work = Work::default();
        work.add(&snapshot);
        let expected = Work {
            packets: 3,
            bytes: 3_210,
            doorbells: 4,
            syscalls: 6,
            wakeups: 5,
        };
        assert_eq!((work, work.packets()), (expected, 3));
    }

    #[test]
    fn a_step_costs_what_it_did() {
        let costs = Costs::default();
        let before = Work::default();
        assert_eq!((before - before).cost(&costs), costs.step);
        let after = Work {
            packets: 2,
            bytes: 1024,
            doorbells: 1,
            syscalls: 3,
            wakeups: 1,
        };
        let sum = costs.step
            + 2 * costs.packet
            + costs.kilobyte
            + costs.doorbell
            + 3 * costs.syscall
            + costs.wakeup;
        assert_eq!((after - before).cost(&costs), sum);
    }
}
