//! The codec with hand-made files, hostile ones, and other programs.

mod hostile;
mod options;
mod oracle;
mod packed;
mod property;
mod rules;

use std::io::Read;

use super::fields::ByteOrder;
use super::*;

/// A record with owned data.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    timestamp_ns: Option<u64>,
    interface: u32,
    link: u16,
    original_bytes: u32,
    data: Vec<u8>,
}

impl From<Record<'_>> for Owned {
    fn from(record: Record<'_>) -> Self {
        Self {
            timestamp_ns: record.timestamp_ns,
            interface: record.interface,
            link: record.link.0,
            original_bytes: record.original_bytes,
            data: record.data.to_vec(),
        }
    }
}

type Outcome = Vec<Result<Owned, CaptureError>>;

/// All results of a reader, up to the end or a fatal error, which is last.
fn read_all<R: Read>(input: R) -> Outcome {
    let mut reader = match Reader::new(input) {
        Ok(reader) => reader,
        Err(error) => return vec![Err(error)],
    };
    drain(&mut reader)
}

fn drain<R: Read>(reader: &mut Reader<R>) -> Outcome {
    let mut outcome = Vec::new();
    loop {
        match reader.next_record() {
            Ok(Some(record)) => outcome.push(Ok(record.into())),
            Ok(None) => return outcome,
            Err(error) if error.is_fatal() => {
                outcome.push(Err(error));
                return outcome;
            }
            Err(CaptureError::Io { .. }) => {}
            Err(error) => outcome.push(Err(error)),
        }
    }
}

/// All records of a capture without errors.
#[track_caller]
fn read_good(bytes: &[u8]) -> Vec<Owned> {
    read_all(bytes)
        .into_iter()
        .map(|record| record.expect("a good record"))
        .collect()
}

/// A hand-made capture file in either byte order.
#[derive(Clone)]
struct File {
    order: ByteOrder,
    bytes: Vec<u8>,
}

const BOTH: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

impl File {
    fn empty(order: ByteOrder) -> Self {
        Self {
            order,
            bytes: Vec::new(),
        }
    }

    fn pcap(order: ByteOrder, magic: u32, link: u32) -> Self {
        Self::empty(order)
            .u32(magic)
            .u16(2)
            .u16(4)
            .u32(0)
            .u32(0)
            .u32(65_535)
            .u32(link)
    }

    fn pcapng(order: ByteOrder) -> Self {
        Self::empty(order).section(order)
    }

    fn section(mut self, order: ByteOrder) -> Self {
        self.order = order;
        let body = Self::empty(order)
            .u32(0x1a2b_3c4d)
            .u16(1)
            .u16(0)
            .u32(!0)
            .u32(!0);
        self.block(0x0a0d_0d0a, &body.bytes)
    }

    fn u16(mut self, value: u16) -> Self {
        self.bytes.extend(match self.order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        });
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.bytes.extend(match self.order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        });
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self
    }

    fn pad(mut self) -> Self {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
        self
    }

    /// A classic record.
    fn record(self, seconds: u32, fraction: u32, original: u32, data: &[u8]) -> Self {
        self.u32(seconds)
            .u32(fraction)
            .u32(data.len() as u32)
            .u32(original)
            .raw(data)
    }

    fn block(self, kind: u32, body: &[u8]) -> Self {
        let total = body.len() as u32 + 12;
        self.u32(kind).u32(total).raw(body).u32(total)
    }

    fn body(&self) -> Self {
        Self::empty(self.order)
    }

    fn interface(self, link: u16, snaplen: u32, options: &[(u16, &[u8])]) -> Self {
        let mut body = self.body().u16(link).u16(0).u32(snaplen);
        for (code, value) in options {
            body = body.u16(*code).u16(value.len() as u16).raw(value).pad();
        }
        self.block(1, &body.bytes)
    }

    /// An Enhanced Packet Block whose captured length may be wrong.
    fn enhanced(self, interface: u32, units: u64, lengths: (u32, u32), data: &[u8]) -> Self {
        let (captured, original) = lengths;
        let body = self
            .body()
            .u32(interface)
            .u32((units >> 32) as u32)
            .u32(units as u32);
        let body = body.u32(captured).u32(original).raw(data).pad();
        self.block(6, &body.bytes)
    }

    fn simple(self, original: u32, data: &[u8]) -> Self {
        let body = self.body().u32(original).raw(data).pad();
        self.block(3, &body.bytes)
    }
}
