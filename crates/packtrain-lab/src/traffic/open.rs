//! A transfer whose sockets are open: its settings in force, its threads' counts while it runs, and
//! its end.

use std::sync::atomic::{AtomicBool, Ordering};

use super::gauge::{Gauges, Sample};
use super::in_force::InForce;
use super::limits::Way;
use super::transfer::{Protocol, Transfer, TransferReport};
use super::{tcp, udp};
use crate::error::LabError;
use crate::topology::Host;

/// A transfer whose sockets are open, made by [`Transfer::open`]. [`run`](Self::run) runs it on one
/// thread; meanwhile another may take samples and end it.
#[derive(Debug)]
pub struct Opened<'a> {
    transfer: &'a Transfer,
    sockets: Sockets,
    gauges: Vec<Gauges>,
    over: AtomicBool,
}

#[derive(Debug)]
enum Sockets {
    Tcp(Vec<tcp::Connection>),
    Udp(Vec<udp::Flow>),
}

impl Transfer {
    /// Opens the sockets of all streams. A forwarder must join the hosts.
    ///
    /// # Errors
    /// [`LabError::Setting`], [`LabError::NotTaken`], [`LabError::Stalled`] if no connection is
    /// made, or [`LabError::Os`] from a socket call.
    pub fn open(&self, from: &Host, to: &Host) -> Result<Opened<'_>, LabError> {
        self.check()?;
        let way = Way {
            from: &from.netns,
            to: &to.netns,
            address: to.ip(self.ip),
        };
        let sockets = match self.protocol {
            Protocol::Tcp => Sockets::Tcp(tcp::connect(self, &way)?),
            Protocol::Udp => Sockets::Udp(udp::open_all(self, &way)?),
        };
        Ok(Opened {
            transfer: self,
            sockets,
            gauges: (0..self.streams).map(|_| Gauges::default()).collect(),
            over: AtomicBool::new(false),
        })
    }
}

impl Opened<'_> {
    /// The transfer.
    pub fn transfer(&self) -> &Transfer {
        self.transfer
    }

    /// Runs the transfer and waits for its end. It is for one call.
    ///
    /// # Errors
    /// As [`Transfer::run`].
    pub fn run(&self) -> Result<TransferReport, LabError> {
        match &self.sockets {
            Sockets::Tcp(all) => tcp::run(self.transfer, all, &self.gauges, &self.over),
            Sockets::Udp(all) => udp::run(self.transfer, all, &self.gauges, &self.over),
        }
    }

    /// Senders of [`Amount::Open`](super::Amount::Open) stop soon.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether a stream has sent anything; of an exchange, whether a response has arrived
    /// or was given up.
    pub fn has_begun(&self) -> bool {
        self.gauges.iter().any(|gauges| gauges.sender.has_begun())
    }

    /// Starts the counts of [`TransferReport::marked`] with the next datagram.
    pub fn mark(&self) {
        if let Sockets::Udp(flows) = &self.sockets {
            flows.iter().for_each(udp::Flow::mark);
        }
    }

    /// What the threads have done so far.
    ///
    /// # Errors
    /// [`LabError::Os`] if a thread has ended already.
    pub fn sample(&self) -> Result<Sample, LabError> {
        let retransmits = match &self.sockets {
            Sockets::Tcp(connections) => tcp::retransmits_of_both(connections)?,
            Sockets::Udp(_) => 0,
        };
        Sample::of(&self.gauges, retransmits)
    }

    /// The settings in force.
    ///
    /// # Errors
    /// [`LabError::Os`] from a socket call.
    pub fn in_force(&self) -> Result<InForce, LabError> {
        match &self.sockets {
            Sockets::Tcp(all) => all.first().map(tcp::in_force),
            Sockets::Udp(all) => all.first().map(udp::in_force),
        }
        .unwrap_or(Ok(InForce::default()))
    }
}
