//! Parts of a capture that are run on their own, and add up to the whole.

use super::error::Error;
use packtrain_capture::{Item, Reader};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
#[cfg(feature = "parquet")]
use {packtrain_capture::replay::Options, packtrain_offload::coalesce::Mode};

/// A part of a capture, by its bytes: what is before the first packet, and some packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "parquet", derive(serde::Serialize, serde::Deserialize))]
pub struct Part {
    /// Bytes before the first packet of the capture: file header, section and interfaces.
    pub head: u64,
    /// The first byte of the part's packets.
    pub start: u64,
    /// The byte behind them.
    pub end: u64,
}

impl Part {
    /// Bytes to read.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.head + self.end.saturating_sub(self.start)
    }

    pub(super) fn read(self, file: File) -> io::Result<impl Read + Send> {
        Ok(Pieces {
            file,
            at: 0,
            part: self,
        })
    }
}

/// The bytes of a part.
struct Pieces {
    file: File,
    /// Bytes read so far.
    at: u64,
    part: Part,
}

impl Read for Pieces {
    /// Before its end, a file that has no more bytes became shorter since it was divided.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Part { head, start, end } = self.part;
        let (from, to) = match self.at.checked_sub(head) {
            None => (self.at, head),
            Some(behind) => (start + behind, end),
        };
        let most = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
        let most = most.min(buffer.len());
        let read = self.file.read_at(&mut buffer[..most], from)?;
        if read == 0 && most > 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.at += read as u64;
        Ok(read)
    }
}

/// The parts of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// In the order of time; one, if the capture cannot be divided.
    pub parts: Vec<Part>,
    /// The packets of the capture.
    pub packets: u64,
}

impl Parts {
    /// Divides a capture where nothing arrives for longer than `hold_ns`: there every window is
    /// closed, so the parts have the trains of the whole. Parts have at least `bytes` bytes of
    /// packets, but for the last one. A compressed capture is one part, and so is what follows an
    /// interface that is described between packets, and a capture with something bad before its
    /// first packet.
    ///
    /// [`Mode::Auto`](packtrain_offload::coalesce::Mode::Auto) remembers from window to window
    /// whether it sorts, so only the other modes give the trains of the whole. For it, divide by
    /// queue: [`Settings::queue`](super::Settings::queue).
    ///
    /// # Errors
    /// If the file cannot be opened, or is no capture. One that ends in the middle of a record is
    /// divided as far as it goes.
    pub fn of(path: &Path, hold_ns: u64, bytes: u64) -> Result<Self, Error> {
        let name = || path.display().to_string();
        let of_file = |error| Error::Open {
            path: name(),
            error,
        };
        let file = File::open(path).map_err(of_file)?;
        let end = file.metadata().map_err(of_file)?.len();
        let mut reader = Reader::new(file).map_err(|error| Error::Capture {
            path: name(),
            error,
        })?;
        let is_packed = reader.packing().is_some();
        let whole = Part {
            head: 0,
            start: 0,
            end,
        };
        let mut found = Self {
            parts: Vec::new(),
            packets: 0,
        };
        // Of the part that is not ended: where its packets begin.
        let (mut head, mut begin, mut last) = (0, 0, None::<u64>);
        let mut is_whole = is_packed;
        loop {
            let offset = reader.offset();
            let at = match reader.next_item() {
                Ok(Some(Item::Record(record))) => record.timestamp_ns,
                Ok(Some(Item::Interface(_))) => {
                    // A part that begins behind it would not have it.
                    is_whole |= found.packets > 0;
                    continue;
                }
                Ok(Some(Item::Block { .. })) => continue,
                Ok(None) => break,
                Err(error) if error.is_fatal() => break,
                Ok(Some(Item::LeftOut)) => {
                    // Before the first packet it would be counted with each part. The bytes behind
                    // it may be skipped with the next call, so no part begins there.
                    is_whole |= found.packets == 0;
                    last = None;
                    continue;
                }
                Err(error) => {
                    // It may be an interface that a part behind it would not have.
                    is_whole |= found.packets == 0 || !error.costs_a_record();
                    last = None;
                    continue;
                }
            };
            found.packets += 1;
            if found.packets == 1 {
                (head, begin) = (offset, offset);
            }
            let gap = last.zip(at).map(|(last, at)| at.saturating_sub(last));
            last = at;
            let is_gap = gap.is_some_and(|gap| gap > hold_ns);
            if is_gap && !is_whole && offset - begin >= bytes {
                found.parts.push(Part {
                    head,
                    start: begin,
                    end: offset,
                });
                begin = offset;
            }
        }
        found.parts.push(match found.parts.is_empty() {
            true => whole,
            false => Part {
                head,
                start: begin,
                end,
            },
        });
        Ok(found)
    }
}

/// What a part of a data set has of its captures.
#[cfg(feature = "parquet")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Share {
    /// All packets.
    Whole,
    /// Those of a part that begins and ends where nothing arrives for longer than this hold time.
    Gap { hold_ns: u64, part: Part },
    /// Those of a queue, of so many.
    Queue { queue: u16, queues: u16 },
}

#[cfg(feature = "parquet")]
impl Share {
    /// Divides a capture of more than `bytes` bytes.
    pub(super) fn of(path: &Path, runs: &[Options], bytes: u64) -> Result<Vec<Self>, Error> {
        let length = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let hold_ns = runs.iter().map(|run| run.hold_ns).max().unwrap_or(0);
        if length > bytes && runs.iter().all(|run| run.mode != Mode::Auto) {
            let parts = Parts::of(path, hold_ns, bytes)?.parts;
            if parts.len() > 1 {
                let parts = parts.into_iter();
                return Ok(parts.map(|part| Self::Gap { hold_ns, part }).collect());
            }
        }
        let queues = runs.first().map_or(1, |run| run.queues.max(1));
        let of_queues = (0..queues).map(|queue| Self::Queue { queue, queues });
        let mut parts: Vec<_> = of_queues.collect();
        if length <= bytes || !parts.iter().all(|part| part.is_exact(runs)) {
            parts = vec![Self::Whole];
        }
        Ok(parts)
    }

    /// Whether its parts add up to the whole for these configurations.
    pub(super) fn is_exact(&self, runs: &[Options]) -> bool {
        runs.iter().all(|run| match *self {
            Self::Whole => true,
            Self::Gap { hold_ns, .. } => run.mode != Mode::Auto && run.hold_ns <= hold_ns,
            Self::Queue { queues, .. } => queues > 1 && run.queues == queues,
        })
    }
}
