//! The transmitting half of a capture: a file or a pipe that is written.

use super::file::{unwritable, wall_clock_ns};
use crate::driver::{
    Accepted, Completed, DeviceError, Interest, Refused, Reset, Token, TxDescriptors, TxPacket,
};
use crate::file::{Counted, may_block, remove_last};
use crate::packet::Packet;
use crate::stats::DropReason;
use crate::time::{Instant, WallTime};
use packtrain_capture::{IoFault, WriteError, Writer};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// The transmitting half: the end of a file, or a refusal of every packet.
#[derive(Debug)]
pub struct PcapTx(pub(super) Option<Box<Sink>>);

/// A file that is written.
///
/// Every flush writes everything to a regular file. To a pipe it writes what the pipe has room for.
/// A packet has completed when the file has all its bytes. So closing cannot fail, and transmitted
/// packets are in the file even after a kill, or if the disk is full.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) writer: Writer<Counted>,
    path: Arc<str>,
    /// Packets that the file does not have whole, or that have not been collected, oldest first,
    /// and where their records are.
    pending: VecDeque<(Token, Range<u64>)>,
    is_pipe: bool,
    /// The pipe was full at the last attempt to write.
    full: bool,
    /// The wall clock when the batch began, in nanoseconds since 1970.
    batch_ns: Option<u64>,
    flushes: u64,
    fault: Option<IoFault>,
}

impl Sink {
    pub(super) fn new(writer: Writer<Counted>, path: Arc<str>) -> Self {
        let is_pipe = writer.get_ref().is_some_and(|file| may_block(&file.file));
        Self {
            writer,
            path,
            pending: VecDeque::new(),
            is_pipe,
            full: false,
            batch_ns: None,
            flushes: 0,
            fault: None,
        }
    }

    fn encap(&mut self, packet: &Packet, token: Token) -> Result<Accepted, Refused> {
        if self.full {
            self.write_out();
        }
        if self.full {
            return Err(Refused::Busy);
        }
        let now_ns = *self.batch_ns.get_or_insert_with(wall_clock_ns);
        let at_ns = packet.meta().timestamp.map_or(now_ns, WallTime::as_nanos);
        let bytes = u32::try_from(packet.bytes()).unwrap_or(u32::MAX);
        let start = self.writer.position();
        let written = match self.fault {
            None => self.writer.write(0, at_ns, bytes, packet.segments()),
            Some(fault) => Err(WriteError::Io(fault)),
        };
        let record = match written {
            Ok(()) => start..self.writer.position(),
            Err(WriteError::Io(fault)) => {
                self.settle(Err(fault));
                if self.full {
                    return Err(Refused::Busy);
                }
                // Accepted, so that a flush follows, which fails with the fault. Never written.
                u64::MAX..u64::MAX
            }
            Err(_no_interface) => return Err(Refused::Bad(DropReason::BadRecord)),
        };
        self.pending.push_back((token, record));
        Ok(Accepted::Pending)
    }

    /// Writes what is buffered, as far as the file accepts it.
    fn write_out(&mut self) {
        match self.writer.flush() {
            Err(WriteError::Io(fault)) => self.settle(Err(fault)),
            // A flush has no other error.
            Ok(()) | Err(_) => self.settle(Ok(())),
        }
    }

    fn settle(&mut self, written: Result<(), IoFault>) {
        self.full = written.is_err_and(|fault| fault.kind == ErrorKind::WouldBlock);
        if let Err(fault) = written
            && !self.full
            && self.fault.is_none()
        {
            self.fault = Some(fault);
            self.end();
        }
    }

    /// After a fault nothing follows: a regular file ends with its last whole record.
    fn end(&mut self) {
        if let Some(output) = self.writer.get_ref() {
            // If that fails, too, the record stays cut. The run ends with the first error.
            remove_last(&output.file, self.writer.begun()).ok();
        }
        self.writer.truncate(0);
    }

    fn check(&self) -> Result<(), DeviceError> {
        let failed = |fault| unwritable(&self.path, WriteError::Io(fault));
        self.fault.map(failed).map_or(Ok(()), Err)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.check()?;
        if self.batch_ns.take().is_some() {
            self.flushes += 1;
            self.write_out();
        }
        self.check()
    }

    /// Returns the packets that the file has whole, and the error after which no more complete.
    fn reclaim(&mut self, completed: &mut Completed) {
        if self.full {
            self.write_out();
        }
        while let Some((token, record)) = self.pending.front()
            && record.end <= self.writer.written()
            && completed.push(*token)
        {
            self.pending.pop_front();
        }
        if let Err(error) = self.check() {
            completed.fail(error);
        }
    }

    /// Removes records that the file does not have. The rest of one that a pipe has in part is
    /// written when it has room, since a reader could not read what follows otherwise. After a
    /// fault nothing follows, and the packet of such a record is lost.
    fn reset(&mut self, sent: &mut Completed, unsent: &mut Completed) {
        let written = self.writer.written();
        let (mut whole, mut end) = (true, written);
        for (token, record) in self.pending.drain(..) {
            if record.end <= written {
                whole &= sent.push(token);
            } else if record.start >= written {
                whole &= unsent.push(token);
            } else if self.fault.is_none() {
                end = record.end;
            }
        }
        self.writer.truncate(end);
        debug_assert!(whole, "the framework has room for what it gave");
    }
}

impl TxDescriptors for PcapTx {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        match &mut self.0 {
            Some(sink) => sink.encap(packet.packet(), token),
            None => Err(Refused::Bad(DropReason::ReadOnly)),
        }
    }

    fn flush(&mut self, _now: Instant) -> Result<(), DeviceError> {
        self.0.as_mut().map_or(Ok(()), |sink| sink.flush())
    }

    fn reclaim(&mut self, _now: Instant, completed: &mut Completed) {
        if let Some(sink) = &mut self.0 {
            sink.reclaim(completed);
        }
    }

    fn is_blocked(&self) -> bool {
        self.0.as_ref().is_some_and(|sink| sink.full)
    }

    fn reset(
        &mut self,
        sent: &mut Completed,
        unsent: &mut Completed,
    ) -> Result<Reset, DeviceError> {
        let Some(sink) = &mut self.0 else {
            return Ok(Reset::Unsupported);
        };
        sink.reset(sent, unsent);
        Ok(Reset::Done)
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        let sink = self.0.as_ref().filter(|sink| sink.is_pipe)?;
        let file = sink.writer.get_ref()?;
        Some((file.file.as_fd(), Interest::Write))
    }

    fn doorbells(&self) -> u64 {
        self.0.as_ref().map_or(0, |sink| sink.flushes)
    }

    fn syscalls(&self) -> u64 {
        let file = self.0.as_ref().and_then(|sink| sink.writer.get_ref());
        file.map_or(0, |file| file.calls)
    }
}
