//! Every port behind one type: a closed enum, so that a run switches once a batch and never calls
//! through a pointer.

use super::null::{Null, NullRx, NullTx};
use super::pcap::{Pcap, PcapRx, PcapTx};
use super::sim::{Sim, SimRx, SimTx};
use super::tap::{Tap, TapRx, TapTx};
use super::wrap::{
    Capture, CaptureRx, CaptureStatus, CaptureTx, Fault, FaultCounters, FaultRx, Trace, TraceRx,
    TraceTx, Vlan, VlanRx, VlanTx,
};
use crate::driver::{
    Accepted, Armed, Attach, Capabilities, Completed, DeviceCounters, DeviceError, Driver,
    Interest, Link, QueuePair, Refused, Reset, RxBurst, RxDescriptors, Token, TxBatch,
    TxDescriptors, TxPacket,
};
use crate::packet::Arena;
use crate::time::Instant;
use std::os::fd::BorrowedFd;
use std::task::Waker;

macro_rules! any_port {
    ($($variant:ident: $driver:ty, $rx:ty, $tx:ty;)*) => {
        /// Any port. Wrappers hold another one.
        #[derive(Debug)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each variant is named like the driver it holds")]
        pub enum AnyPort { $($variant($driver),)* }

        /// The receiving half of any port's queue.
        #[derive(Debug)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each variant is named like the driver it belongs to")]
        pub enum AnyRx { $($variant($rx),)* }

        /// The transmitting half of any port's queue.
        #[derive(Debug)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each variant is named like the driver it belongs to")]
        pub enum AnyTx { $($variant($tx),)* }

        impl Driver for AnyPort {
            type Rx = AnyRx;
            type Tx = AnyTx;

            fn name(&self) -> &str {
                match self { $(Self::$variant(port) => port.name(),)* }
            }

            fn capabilities(&self) -> Capabilities {
                match self { $(Self::$variant(port) => port.capabilities(),)* }
            }

            fn attach(
                &mut self,
                how: &Attach,
                arena: &Arena,
            ) -> Result<Vec<QueuePair<Self>>, DeviceError> {
                match self {
                    $(Self::$variant(port) => {
                        let queues = port.attach(how, arena)?.into_iter();
                        let any = |(rx, tx)| (AnyRx::$variant(rx), AnyTx::$variant(tx));
                        Ok(queues.map(any).collect())
                    })*
                }
            }

            fn link(&mut self) -> Link {
                match self { $(Self::$variant(port) => port.link(),)* }
            }

            fn device_counters(&mut self) -> Option<DeviceCounters> {
                match self { $(Self::$variant(port) => port.device_counters(),)* }
            }
        }

        impl RxDescriptors for AnyRx {
            fn refill(&mut self, arena: &Arena) -> bool {
                match self { $(Self::$variant(rx) => rx.refill(arena),)* }
            }

            fn receive(
                &mut self,
                now: Instant,
                burst: &mut RxBurst<'_>,
            ) -> Result<(), DeviceError> {
                match self { $(Self::$variant(rx) => rx.receive(now, burst),)* }
            }

            fn set_interrupt(&mut self, interrupt: Waker) {
                match self { $(Self::$variant(rx) => rx.set_interrupt(interrupt),)* }
            }

            fn arm(&mut self) -> Armed {
                match self { $(Self::$variant(rx) => rx.arm(),)* }
            }

            fn arm_for(&mut self, packets: usize) -> Option<Armed> {
                match self { $(Self::$variant(rx) => rx.arm_for(packets),)* }
            }

            fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
                match self { $(Self::$variant(rx) => rx.wake(),)* }
            }

            fn next_at(&self) -> Option<Instant> {
                match self { $(Self::$variant(rx) => rx.next_at(),)* }
            }

            fn held(&self) -> u64 {
                match self { $(Self::$variant(rx) => rx.held(),)* }
            }

            fn syscalls(&self) -> u64 {
                match self { $(Self::$variant(rx) => rx.syscalls(),)* }
            }
        }

        impl TxDescriptors for AnyTx {
            fn encap(
                &mut self,
                packet: &mut TxPacket<'_>,
                token: Token,
            ) -> Result<Accepted, Refused> {
                match self { $(Self::$variant(tx) => tx.encap(packet, token),)* }
            }

            fn encap_batch(&mut self, batch: &mut impl TxBatch) -> Result<(), Refused> {
                match self { $(Self::$variant(tx) => tx.encap_batch(batch),)* }
            }

            fn flush(&mut self, now: Instant) -> Result<(), DeviceError> {
                match self { $(Self::$variant(tx) => tx.flush(now),)* }
            }

            fn reclaim(&mut self, now: Instant, completed: &mut Completed) {
                match self { $(Self::$variant(tx) => tx.reclaim(now, completed),)* }
            }

            fn set_interrupt(&mut self, interrupt: Waker) {
                match self { $(Self::$variant(tx) => tx.set_interrupt(interrupt),)* }
            }

            fn arm(&mut self) -> Option<Armed> {
                match self { $(Self::$variant(tx) => tx.arm(),)* }
            }

            fn arm_for(&mut self, packets: usize) -> Option<Armed> {
                match self { $(Self::$variant(tx) => tx.arm_for(packets),)* }
            }

            fn is_blocked(&self) -> bool {
                match self { $(Self::$variant(tx) => tx.is_blocked(),)* }
            }

            fn reset(
                &mut self,
                sent: &mut Completed,
                unsent: &mut Completed,
            ) -> Result<Reset, DeviceError> {
                match self { $(Self::$variant(tx) => tx.reset(sent, unsent),)* }
            }

            fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
                match self { $(Self::$variant(tx) => tx.wake(),)* }
            }

            fn next_at(&self) -> Option<Instant> {
                match self { $(Self::$variant(tx) => tx.next_at(),)* }
            }

            fn doorbells(&self) -> u64 {
                match self { $(Self::$variant(tx) => tx.doorbells(),)* }
            }

            fn syscalls(&self) -> u64 {
                match self { $(Self::$variant(tx) => tx.syscalls(),)* }
            }
        }
    };
}

any_port! {
    Tap: Tap, TapRx, TapTx;
    Pcap: Pcap, PcapRx, PcapTx;
    Null: Null, NullRx, NullTx;
    Sim: Sim, SimRx, SimTx;
    Fault: Box<Fault<AnyPort>>, Box<FaultRx<AnyRx>>, Box<AnyTx>;
    Capture: Box<Capture<AnyPort>>, Box<CaptureRx<AnyRx>>, Box<CaptureTx<AnyTx>>;
    Trace: Box<Trace<AnyPort>>, Box<TraceRx<AnyRx>>, Box<TraceTx<AnyTx>>;
    Vlan: Box<Vlan<AnyPort>>, Box<VlanRx<AnyRx>>, Box<VlanTx<AnyTx>>;
}

impl AnyPort {
    /// The status of the capture, on a port that was opened with `capture=`; `None` without one.
    #[must_use]
    pub fn capture(&self) -> Option<CaptureStatus> {
        match self {
            Self::Capture(capture) => Some(capture.status()),
            _ => self.wrapped()?.capture(),
        }
    }

    /// The number of each fault, on a port that was opened with `drop=`, `duplicate=`, `corrupt=`,
    /// `reorder=` or `delay=`; `None` without any of them.
    #[must_use]
    pub fn faults(&self) -> Option<FaultCounters> {
        match self {
            Self::Fault(fault) => Some(fault.counters()),
            _ => self.wrapped()?.faults(),
        }
    }

    /// The TAP or TUN interface behind all wrappers, if the port is one.
    pub(super) fn tap(&self) -> Option<&Tap> {
        match self {
            Self::Tap(tap) => Some(tap),
            _ => self.wrapped()?.tap(),
        }
    }

    /// The wrapped driver.
    fn wrapped(&self) -> Option<&Self> {
        match self {
            Self::Fault(outer) => Some(outer.inner()),
            Self::Capture(outer) => Some(outer.inner()),
            Self::Trace(outer) => Some(outer.inner()),
            Self::Vlan(outer) => Some(outer.inner()),
            Self::Tap(_) | Self::Pcap(_) | Self::Null(_) | Self::Sim(_) => None,
        }
    }
}
