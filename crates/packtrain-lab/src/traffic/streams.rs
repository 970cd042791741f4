//! All streams of a transfer: the threads of their ends, and the sum of what they did.

use std::thread;

use super::gauge::{Gauge, Gauges};
use super::limits::{End, Limits};
use super::payload::Datagrams;
use super::transfer::{Calls, TransferReport};
use crate::cpu::Usage;
use crate::cpus::on_cpu;
use crate::error::LabError;
use crate::threads::{join, spawn};

/// Runs both ends of every stream, each on a thread of its own, and waits for all. The ends get the
/// number of their stream. The first one that fails ends the others.
pub(super) fn run<S: Sync>(
    limits: &Limits<'_>,
    sockets: &[S],
    gauges: &[Gauges],
    send: impl Fn(u32, &S, &Gauge) -> Result<End, LabError> + Sync,
    receive: impl Fn(u32, &S, &Gauge) -> Result<End, LabError> + Sync,
) -> Result<(Vec<End>, Vec<End>), LabError> {
    let (send, receive) = (&send, &receive);
    let transfer = limits.transfer;
    let (sent, received) = thread::scope(|scope| -> Result<_, LabError> {
        let mut senders = Vec::new();
        let mut receivers = Vec::new();
        for ((stream, sockets), gauges) in (0u32..).zip(sockets).zip(gauges) {
            let receiver = spawn(scope, move || {
                let gauge = &gauges.receiver;
                let receive = || timed(gauge, || receive(stream, sockets, gauge));
                on_cpu(transfer.receiver_cpu, receive).inspect_err(|_| limits.abort())
            });
            receivers.push(receiver.inspect_err(|_| limits.abort())?);
            let sender = spawn(scope, move || {
                let gauge = &gauges.sender;
                let send = || timed(gauge, || send(stream, sockets, gauge));
                on_cpu(transfer.sender_cpu, send).inspect_err(|_| limits.abort())
            });
            senders.push(sender.inspect_err(|_| limits.abort())?);
        }
        let sent: Vec<_> = senders.into_iter().map(join).collect();
        let received: Vec<_> = receivers.into_iter().map(join).collect();
        Ok((sent, received))
    })?;
    // The sender of a broken connection often sees only a reset, so the receivers' errors come
    // first.
    match (first_error(received), first_error(sent)) {
        (Ok(received), Ok(sent)) => Ok((sent, received)),
        (Err(LabError::Cancelled), Err(error)) | (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// An end with the CPU time of the calling thread.
fn timed(gauge: &Gauge, run: impl FnOnce() -> Result<End, LabError>) -> Result<End, LabError> {
    let cpu = Usage::of_thread();
    gauge.start()?;
    let end = run()?;
    let cpu = Usage::of_thread().since(&cpu);
    Ok(End { cpu, ..end })
}

/// The result of all threads: the first error that is not a consequence of another.
fn first_error<T>(results: Vec<Result<T, LabError>>) -> Result<Vec<T>, LabError> {
    let mut values = Vec::with_capacity(results.len());
    let mut failure = None;
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(LabError::Cancelled) => failure = failure.or(Some(LabError::Cancelled)),
            Err(error) if matches!(failure, None | Some(LabError::Cancelled)) => {
                failure = Some(error);
            }
            Err(_) => {}
        }
    }
    failure.map_or(Ok(values), Err)
}

/// The report without what only one protocol has. `hash` makes one of those of all streams.
pub(super) fn report(
    sent: &[End],
    received: &[End],
    hash: impl Fn(&[End]) -> u64,
) -> TransferReport {
    let sum = |ends: &[End], of: fn(&End) -> u64| ends.iter().map(of).sum();
    let cpu = |ends: &[End]| {
        ends.iter()
            .fold(Usage::default(), |sum, end| sum.plus(&end.cpu))
    };
    let datagrams = |which: usize| {
        let counts = received.iter().map(|end| end.datagrams[which]);
        counts.fold(Datagrams::default(), |total, flow| total.plus(&flow))
    };
    let mut pairs = sent.iter().zip(received);
    TransferReport {
        sent_bytes: sum(sent, |end| end.bytes),
        received_bytes: sum(received, |end| end.bytes),
        sent_hash: hash(sent),
        received_hash: hash(received),
        hash_ok: pairs.all(|(s, r)| s.hash == r.hash && s.bytes == r.bytes),
        elapsed: received
            .iter()
            .map(|end| end.elapsed)
            .max()
            .unwrap_or_default(),
        datagrams: datagrams(0),
        marked: datagrams(1),
        retransmits: 0,
        calls: Calls {
            send: sum(sent, |end| end.calls),
            receive: sum(received, |end| end.calls),
        },
        send_cpu: cpu(sent),
        receive_cpu: cpu(received),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_reported_not_its_consequences() {
        let cause = LabError::Os {
            what: "send",
            errno: libc::EPIPE,
        };
        let results = vec![
            Ok(1),
            Err(LabError::Cancelled),
            Err(cause),
            Err(LabError::Cancelled),
        ];
        assert_eq!(first_error(results), Err(cause));
        assert_eq!(first_error(vec![Ok(1), Ok(2)]), Ok(vec![1, 2]));
        assert_eq!(
            first_error::<u8>(vec![Err(LabError::Cancelled)]),
            Err(LabError::Cancelled)
        );
    }
}
