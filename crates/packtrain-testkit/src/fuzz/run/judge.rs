//! What the sessions of a world report, against what others have counted.

use super::{Counted, Play};
use crate::fuzz::scene::{Fault, Shape, receiver, sender};
use crate::fuzz::talker::lock;
use crate::fuzz::traffic::{Failure, Wrong};
use packtrain::engine::Report;
use packtrain::limits::TX_RING_PACKETS;
use packtrain::stats::DropReason;

impl Play<'_> {
    /// Compares the reports with what was counted elsewhere.
    pub(super) fn judge(&self, reports: &[Report], counted: &[Counted]) -> Result<(), Failure> {
        for (number, report) in reports.iter().enumerate() {
            let ledger = &report.snapshot.ledger;
            if !ledger.closed() || ledger.held > 0 {
                let line = format!("session {number}: {ledger:?}");
                return Err(Failure::new(Wrong::Ledger, line));
            }
            self.explained(number, report)?;
        }
        if let Some(unfit) = counted.iter().map(|link| link.unfit).find(|&n| n > 0) {
            let line = format!("{unfit} packets that a device cannot take");
            return Err(Failure::new(Wrong::Unfit, line));
        }
        self.counters(reports, counted)?;
        self.balance(reports, counted)
    }

    /// Each reason for which packets were dropped has a fault that explains it.
    fn explained(&self, number: usize, report: &Report) -> Result<(), Failure> {
        let swarm = self.scene.swarm;
        let resets = [Fault::Hang, Fault::Reset, Fault::LostCompletions];
        let resets = resets.into_iter().chain([Fault::LostInterrupts]);
        let is_gone = self.is_beside_gone(number);
        for (reason, count) in report.snapshot.drops.nonzero() {
            let is_explained = match reason {
                DropReason::NoBuffer => self.has(Fault::Memory) || self.may_lack_memory(number),
                DropReason::LinkDown => self.has(Fault::Link) || self.has(Fault::Remove),
                DropReason::DeviceReset | DropReason::Shutdown if is_gone => true,
                DropReason::BadDescriptor => self.has(Fault::BadDescriptor),
                DropReason::Truncated => self.has(Fault::Truncated),
                DropReason::TooLong => self.has(Fault::TooLong),
                DropReason::DeviceReset => resets.clone().any(|fault| self.has(fault)),
                // That of the host is compared with what was sent.
                DropReason::Mtu => {
                    number == 0
                        || number == 1 && count <= self.too_long(1)
                        || swarm.has(Fault::Duplicate)
                }
                // The queue of any port is full with that many packets.
                DropReason::EgressFull if self.scene.shape == Shape::Bridge && number == 1 => {
                    lock(&self.truths[0]).accepted(false) > TX_RING_PACKETS as u64
                }
                DropReason::FaultInjected => swarm.has(Fault::Loss),
                DropReason::TooManySegments => self.has(Fault::Memory) || self.collapses(),
                // The senders of a session say how many there can be.
                reason if number < 2 => lock(&self.truths[0]).lies(number == 1, reason) >= count,
                _ => false,
            };
            if !is_explained {
                let line = format!("{count} wire packets for {reason}, which no fault explains");
                return Err(Failure::new(Wrong::Drop, line));
            }
        }
        Ok(())
    }

    /// Counters against what others have counted.
    fn counters(&self, reports: &[Report], counted: &[Counted]) -> Result<(), Failure> {
        let equal = |what: &str, counter: u64, other: u64| {
            if counter == other {
                return Ok(());
            }
            let line = format!("{what} is {counter}, and {other} were counted");
            Err(Failure::new(Wrong::Counter, line))
        };
        for (number, from_forwarder) in [(0, false), (1, true)] {
            let report = match (self.scene.shape, from_forwarder) {
                (Shape::Host, true) => continue,
                _ => &reports[number],
            };
            let sent = lock(&self.truths[0]).accepted(from_forwarder);
            equal("generated", report.snapshot.ledger.generated, sent)?;
        }
        if !self.is_beside_gone(0) {
            let dropped = reports[0].snapshot.drops.get(DropReason::Mtu);
            equal("drop.mtu", dropped, self.too_long(0))?;
        }
        for (sink, truth) in self.scene.sinks().zip(&*self.truths) {
            let ledger = &reports[sink].snapshot.ledger;
            equal("delivered", ledger.delivered, lock(truth).wire_packets)?;
            for flow in 0..self.scene.flows.len() {
                if !self.scene.fits(flow, sink) {
                    let arrived = lock(truth).arrived_of(flow);
                    equal("units of a flow longer than an MTU", arrived, 0)?;
                }
            }
        }
        for (number, link) in counted.iter().enumerate() {
            let (session, port) = sender(number);
            let sent = reports[session].snapshot.ports[port].tx_total();
            let from = link.from;
            if sent.resets == 0 && !self.is_cut(number) {
                let read = from.rx_packets + from.rx_dropped + from.rx_errors;
                equal("packets of a TX queue", sent.packets, read)?;
                equal("taken_back without a reset", sent.taken_back, 0)?;
            }
            if self.is_gone(receiver(number)) {
                continue;
            }
            let received = reports[receiver(number)].snapshot.ports[0].rx_total();
            let faults = self.faults[number].get();
            if faults.corrupted == 0 {
                let all = received.packets + received.bad_packets;
                let arrived = link.to.tx_packets + faults.duplicated;
                equal("packets of an RX queue", all, arrived)?;
            }
            if !self.has(Fault::Memory) {
                let bad = link.bad_descriptors + faults.dropped;
                equal("bad_packets", received.bad_packets, bad)?;
            }
        }
        Ok(())
    }

    /// Wire packets that are too long for the links that a session sends to: of a host all that it
    /// drops for that, of others the most.
    fn too_long(&self, session: usize) -> u64 {
        let links = self.scene.links.iter().enumerate();
        let links =
            links.filter(|(link, ends)| sender(*link).0 == session && ends.from.port.mtu.is_some());
        let truth = lock(&self.truths[0]);
        let long = links.map(|(link, _)| {
            truth.too_long(
                |flow| self.scene.is_too_long(flow, link),
                |flow| session > 0 || !flow.from_forwarder,
            )
        });
        long.sum()
    }

    /// What was sent has arrived, was dropped and counted, or was lost outside of the sessions.
    fn balance(&self, reports: &[Report], counted: &[Counted]) -> Result<(), Failure> {
        let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
        let dropped = sum(|report| report.snapshot.ledger.dropped);
        let absorbed = sum(|report| report.snapshot.ledger.absorbed);
        let expanded = sum(|report| report.snapshot.ledger.expanded);
        let resets = sum(|report| report.snapshot.drops.get(DropReason::DeviceReset));
        let truth = lock(&self.truths[0]);
        let sent = truth.accepted(false) + truth.accepted(true);
        drop(truth);
        let arrived = self.total(|truth| truth.arrived() + truth.again + truth.damaged);
        let missing = (sent + expanded) as i64 - (arrived + dropped + absorbed) as i64;
        let lost: u64 = counted.iter().map(Counted::lost).sum();
        let faults = self.faults.iter().map(|faults| faults.get().duplicated);
        let twice: u64 = faults.sum();
        // A device counts a GSO packet once; a forwarder makes longer ones of any flow.
        let is_single =
            self.scene.shape == Shape::Host && self.scene.flows.iter().all(|flow| flow.units == 1);
        let most = if is_single { 1 } else { 700 };
        // A packet that a reset found sent in part has also arrived in part.
        let least = lost as i64 - (most * twice + resets) as i64;
        let gone = self.gone_with_devices(reports, counted);
        let most = (most * (lost + gone)) as i64 - twice as i64;
        if (least..=most).contains(&missing) {
            return Ok(());
        }
        let line = format!(
            "of {sent} wire packets sent, {arrived} arrived and {dropped} were dropped; \
             {absorbed} absorbed, {expanded} expanded, {lost} lost and {twice} repeated on a wire"
        );
        Err(Failure::new(Wrong::Lost, line))
    }

    /// Packets that removed devices had at most: those that they were given and did not read, and
    /// those that they received and nothing took.
    fn gone_with_devices(&self, reports: &[Report], counted: &[Counted]) -> u64 {
        let links = counted.iter().enumerate().map(|(number, link)| {
            let mut gone = 0;
            let (session, port) = sender(number);
            if self.is_gone(session) {
                let port = &reports[session].snapshot.ports[port];
                let read = link.from.rx_packets + link.from.rx_dropped + link.from.rx_errors;
                gone += port.tx_total().packets.saturating_sub(read);
            }
            if self.is_gone(receiver(number)) {
                let received = reports[receiver(number)].snapshot.ports[0].rx_total();
                let faults = self.faults[number].get();
                // A damaged GSO packet is received as several.
                let taken = match faults.corrupted {
                    0 => received.packets + received.bad_packets,
                    _ => 0,
                };
                gone += (link.to.tx_packets + faults.duplicated).saturating_sub(taken);
            }
            gone
        });
        links.sum()
    }
}
