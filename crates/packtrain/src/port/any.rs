//! Every port behind one type: a closed enum, so that a run switches once a batch and never calls
//! through a pointer.

use super::card::Vfio;
use super::e1000e::{E1000e, E1000eRx, E1000eTx};
use super::null::{Null, NullRx, NullTx};
use super::packet::{PacketRx, PacketSocket, PacketTx};
use super::pcap::{Pcap, PcapRx, PcapTx};
use super::sim::{Sim, SimRx, SimTx};
use super::tap::{Tap, TapRx, TapTx};
use super::vhost::{Vhost, VhostRx, VhostTx, VhostWatch};
use super::virtio::{Virtio, VirtioRx, VirtioTx};
use super::vmxnet3::{Vmxnet3, Vmxnet3Rx, Vmxnet3Tx};
use super::wrap::{
    Capture, CaptureRx, CaptureStatus, CaptureTx, Fault, FaultCounters, FaultRx, Returning,
    ReturningRx, ReturningTx, Trace, TraceRx, TraceTx, Vlan, VlanRx, VlanTx,
};
use super::xdp::{XdpRx, XdpSocket, XdpTx};
use crate::driver::*;

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

            fn attach(
                &mut self,
                how: &Attach,
                arena: &Arena,
            ) -> Result<Vec<QueuePair<Self>>, DeviceError> {
                match self {
                    $(Self::$variant(port) => {
                        let queues = Driver::attach(port, how, arena)?.into_iter();
                        let any = |(rx, tx)| (AnyRx::$variant(rx), AnyTx::$variant(tx));
                        Ok(queues.map(any).collect())
                    })*
                }
            }

            pass_on_driver! { variants $($variant)* }
        }

        impl RxDescriptors for AnyRx {
            pass_on_rx! { variants $($variant)* }
        }

        impl TxDescriptors for AnyTx {
            fn encap_batch(&mut self, batch: &mut impl TxBatch) -> Result<(), Refused> {
                match self { $(Self::$variant(tx) => TxDescriptors::encap_batch(tx, batch),)* }
            }

            pass_on_tx! { variants $($variant)* }
        }
    };
}

any_port! {
    Tap: Tap, TapRx, TapTx;
    Packet: PacketSocket, PacketRx, PacketTx;
    Pcap: Pcap, PcapRx, PcapTx;
    Null: Null, NullRx, NullTx;
    Sim: Sim, SimRx, SimTx;
    Vhost: Vhost, VhostRx, VhostTx;
    Xdp: XdpSocket, XdpRx, XdpTx;
    E1000e: E1000e<Vfio>, E1000eRx<Vfio>, E1000eTx<Vfio>;
    Virtio: Virtio<Vfio>, VirtioRx<Vfio>, VirtioTx<Vfio>;
    Vmxnet3: Vmxnet3<Vfio>, Vmxnet3Rx<Vfio>, Vmxnet3Tx<Vfio>;
    Returning: Box<Returning<AnyPort>>, Box<ReturningRx<AnyPort>>, Box<ReturningTx<AnyPort>>;
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

    /// The other side of a `vhost-user:` port; `None` for another kind.
    #[must_use]
    pub fn vhost(&self) -> Option<VhostWatch> {
        match self {
            Self::Vhost(vhost) => Some(vhost.watch()),
            _ => self.wrapped()?.vhost(),
        }
    }

    /// The wrapped driver.
    fn wrapped(&self) -> Option<&Self> {
        match self {
            Self::Fault(outer) => Some(outer.inner().inner()),
            Self::Capture(outer) => Some(outer.inner().inner()),
            Self::Trace(outer) => Some(outer.inner().inner()),
            Self::Vlan(outer) => Some(outer.inner().inner()),
            Self::Tap(_)
            | Self::Packet(_)
            | Self::Pcap(_)
            | Self::Null(_)
            | Self::Sim(_)
            | Self::Vhost(_)
            | Self::Xdp(_)
            | Self::E1000e(_)
            | Self::Virtio(_)
            | Self::Vmxnet3(_)
            | Self::Returning(_) => None,
        }
    }
}
