//! Inputs that are compressed by gzip or zstd, recognised by their first bytes.

use super::error::{PackedFault, Packing};
use super::window::{READ_BYTES, Window};
use flate2::{Crc, Decompress, FlushDecompress, Status};
use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, FrameHeaderError, ReadFrameHeaderError};
use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The longest part of a compressed input that has to be in memory at once: a zstd block with its
/// header and the checksum behind it. It is the limit for the header of a gzip member, too.
const PART_BYTES_MAX: usize = ZSTD_BLOCK_HEADER_BYTES + ZSTD_BLOCK_BYTES_MAX + 4;
/// RFC 8878 §3.1.1.2.
const ZSTD_BLOCK_HEADER_BYTES: usize = 3;
const ZSTD_BLOCK_BYTES_MAX: usize = 128 << 10;
/// The longest header of a frame, magic included (RFC 8878 §3.1.1).
const ZSTD_FRAME_HEADER_BYTES_MAX: usize = 18;
/// The most memory that a frame may ask for, which is the default of `zstd -d`.
const ZSTD_WINDOW_BYTES_MAX: u64 = 128 << 20;

/// An error of the decompression, inside of an [`io::Error`].
#[derive(Debug, Clone, Copy)]
pub(super) struct PackedError {
    pub(super) packing: Packing,
    pub(super) fault: PackedFault,
    /// Compressed bytes before the place.
    pub(super) offset: u64,
}

impl PackedError {
    /// The error inside of `error`, if there is one.
    pub(super) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl fmt::Display for PackedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault.fmt(f)
    }
}

impl Error for PackedError {}

/// An input, decompressed if it is compressed. After [`ErrorKind::WouldBlock`] nothing is lost.
#[derive(Debug)]
pub(super) struct Unpack<R> {
    window: Window<R>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The first bytes are not known yet.
    Start,
    Plain,
    Gzip(Box<Gzip>),
    Zstd(Box<Zstd>),
    /// Behind the compressed data.
    Rest(Rest),
    /// At the end, after the report of a rest.
    End(Packing),
}

/// What follows compressed data and belongs to no further member or frame.
#[derive(Debug, Clone, Copy)]
struct Rest {
    packing: Packing,
    /// Where it begins.
    offset: u64,
    /// Bytes so far, and whether all of them are zeros.
    bytes: u64,
    is_zeros: bool,
}

impl Rest {
    /// Reads to the end of the input.
    fn read<R: Read>(&mut self, input: &mut Window<R>) -> io::Result<PackedError> {
        while input.fill(1)? {
            let here = input.bytes();
            let count = here.len();
            self.is_zeros &= here.iter().all(|byte| *byte == 0);
            self.bytes += count as u64;
            input.consume(count);
        }
        let Self { bytes, .. } = *self;
        Ok(PackedError {
            packing: self.packing,
            fault: match self.is_zeros {
                true => PackedFault::Padding { bytes },
                false => PackedFault::Trailing { bytes },
            },
            offset: self.offset,
        })
    }
}

impl<R> Unpack<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            window: Window::new(input, ZSTD_MAGIC.len()),
            state: State::Start,
        }
    }

    /// How it is compressed, once its first bytes are read.
    pub(super) const fn packing(&self) -> Option<Packing> {
        match self.state {
            State::Start | State::Plain => None,
            State::Gzip(_) => Some(Packing::Gzip),
            State::Zstd(_) => Some(Packing::Zstd),
            State::Rest(Rest { packing, .. }) | State::End(packing) => Some(packing),
        }
    }

    pub(super) fn input(&self) -> &R {
        self.window.input()
    }

    pub(super) fn into_input(self) -> R {
        self.window.into_input()
    }
}

impl<R: Read> Unpack<R> {
    fn start(&mut self) -> io::Result<State> {
        self.window.fill(ZSTD_MAGIC.len())?;
        let start = self.window.bytes();
        let state = if start.starts_with(&GZIP_MAGIC) {
            State::Gzip(Box::default())
        } else if start.len() >= ZSTD_MAGIC.len() && may_begin_zstd(start) {
            State::Zstd(Box::default())
        } else {
            return Ok(State::Plain);
        };
        self.window.grow(PART_BYTES_MAX + READ_BYTES);
        Ok(state)
    }
}

impl<R: Read> Read for Unpack<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if matches!(self.state, State::Start) {
            self.state = self.start()?;
        }
        let (packing, got) = match &mut self.state {
            State::Start | State::Plain => return self.window.read_through(out),
            State::End(_) => return Ok(0),
            State::Rest(rest) => {
                let error = rest.read(&mut self.window)?;
                self.state = State::End(error.packing);
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
            State::Gzip(gzip) => (Packing::Gzip, gzip.read(&mut self.window, out)),
            State::Zstd(zstd) => (Packing::Zstd, zstd.read(&mut self.window, out)),
        };
        got.or_else(|stop| match stop {
            Stop::Input(error) => Err(error),
            Stop::Rest => {
                self.state = State::Rest(Rest {
                    packing,
                    offset: self.window.offset(),
                    bytes: 0,
                    is_zeros: true,
                });
                self.read(out)
            }
            Stop::Fault(fault) => {
                let offset = self.window.offset();
                let error = PackedError {
                    packing,
                    fault,
                    offset,
                };
                Err(io::Error::new(ErrorKind::InvalidData, error))
            }
        })
    }
}

impl<R: Seek> Unpack<R> {
    /// Starts again at byte 0 of the input.
    pub(super) fn rewind(&mut self) -> io::Result<()> {
        self.window.input_mut().seek(SeekFrom::Start(0))?;
        self.window.clear();
        self.state = State::Start;
        Ok(())
    }
}

/// Why a decompression returned nothing.
enum Stop {
    Input(io::Error),
    Fault(PackedFault),
    /// The data ended, and something else follows.
    Rest,
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Input(error)
    }
}

impl From<PackedFault> for Stop {
    fn from(fault: PackedFault) -> Self {
        Self::Fault(fault)
    }
}

/// Makes `count` compressed bytes available.
fn require<R: Read>(input: &mut Window<R>, count: usize) -> Result<(), Stop> {
    match input.fill(count)? {
        true => Ok(()),
        false => Err(PackedFault::Truncated.into()),
    }
}

/// The state of gzip.
#[derive(Debug)]
struct Gzip {
    part: GzipPart,
    /// A whole member was read.
    has_member: bool,
    inflate: Decompress,
    /// The data is corrupt behind what was given out.
    broken: bool,
    /// Of the member.
    sum: Crc,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GzipPart {
    Header,
    Data,
    Trailer,
}

impl Default for Gzip {
    fn default() -> Self {
        Self {
            part: GzipPart::Header,
            has_member: false,
            inflate: Decompress::new(false),
            broken: false,
            sum: Crc::new(),
        }
    }
}

impl Gzip {
    fn read<R: Read>(&mut self, input: &mut Window<R>, out: &mut [u8]) -> Result<usize, Stop> {
        while !out.is_empty() {
            match self.part {
                GzipPart::Header => {
                    input.fill(GZIP_MAGIC.len())?;
                    let start = input.bytes();
                    if start.is_empty() {
                        return Ok(0);
                    }
                    let begins = start.iter().zip(&GZIP_MAGIC).all(|(byte, of)| byte == of);
                    if self.has_member && !begins {
                        return Err(Stop::Rest);
                    }
                    let bytes = loop {
                        let there = input.bytes();
                        match gzip_header_bytes(there)? {
                            Some(bytes) => break bytes,
                            None if there.len() >= PART_BYTES_MAX => {
                                return Err(PackedFault::Corrupt.into());
                            }
                            None => require(input, there.len() + 1)?,
                        }
                    };
                    input.consume(bytes);
                    self.part = GzipPart::Data;
                }
                GzipPart::Data => {
                    if self.broken {
                        return Err(PackedFault::Corrupt.into());
                    }
                    require(input, 1)?;
                    let before = (self.inflate.total_in(), self.inflate.total_out());
                    let status = self
                        .inflate
                        .decompress(input.bytes(), out, FlushDecompress::None);
                    // Both are at most the length of a buffer.
                    let taken = (self.inflate.total_in() - before.0) as usize;
                    let made = (self.inflate.total_out() - before.1) as usize;
                    input.consume(taken);
                    self.sum.update(&out[..made]);
                    if matches!(status, Ok(Status::StreamEnd)) {
                        self.part = GzipPart::Trailer;
                    } else {
                        self.broken = status.is_err() || made == 0 && taken == 0;
                    }
                    // The bytes before a fault are returned first, so the result does not depend on
                    // the lengths of the reads.
                    if made > 0 {
                        return Ok(made);
                    }
                }
                GzipPart::Trailer => {
                    require(input, 8)?;
                    let [a, b, c, d, e, f, g, h] = input.array().unwrap_or_default();
                    let sum = u32::from_le_bytes([a, b, c, d]);
                    let length = u32::from_le_bytes([e, f, g, h]);
                    if sum != self.sum.sum() || length != self.sum.amount() {
                        return Err(PackedFault::Checksum.into());
                    }
                    input.consume(8);
                    self.inflate.reset(false);
                    self.sum.reset();
                    self.part = GzipPart::Header;
                    self.has_member = true;
                }
            }
        }
        Ok(0)
    }
}

/// The length of the header of a gzip member (RFC 1952 §2.3); `None` if not all of it is there.
fn gzip_header_bytes(bytes: &[u8]) -> Result<Option<usize>, PackedFault> {
    const EXTRA: u8 = 1 << 2;
    const NAME: u8 = 1 << 3;
    const COMMENT: u8 = 1 << 4;
    const HEADER_CRC: u8 = 1 << 1;
    let magic = [&GZIP_MAGIC[..], &[8]].concat();
    if !bytes.starts_with(&magic[..bytes.len().min(magic.len())]) {
        return Err(PackedFault::Corrupt);
    }
    let flags = match bytes.get(3) {
        Some(flags) => *flags,
        None => return Ok(None),
    };
    let end = || -> Option<usize> {
        let mut end = 10;
        if flags & EXTRA != 0 {
            let length = bytes.get(end..end + 2)?.first_chunk().copied()?;
            end += 2 + usize::from(u16::from_le_bytes(length));
        }
        for text in [NAME, COMMENT] {
            if flags & text != 0 {
                end += 1 + bytes.get(end..)?.iter().position(|byte| *byte == 0)?;
            }
        }
        if flags & HEADER_CRC != 0 {
            end += 2;
        }
        bytes.get(..end).map(<[u8]>::len)
    };
    Ok(end())
}

/// Whether bytes, of which there may be too few, are the magic of a frame of data, or of one of
/// other data that a reader skips (RFC 8878 §3.1.2): `pzstd` begins files with that.
fn may_begin_zstd(bytes: &[u8]) -> bool {
    let begins = |magic: [u8; 4]| bytes.iter().zip(&magic).all(|(byte, of)| byte == of);
    let skipped = bytes.first().is_some_and(|first| first & 0xf0 == 0x50);
    begins(ZSTD_MAGIC) || skipped && begins([bytes[0], 0x2a, 0x4d, 0x18])
}

/// The state of zstd.
struct Zstd {
    decoder: FrameDecoder,
    frame: Frame,
    /// A whole frame of data was read.
    has_data: bool,
    /// The input ended within the frame, whose data is given out before the error.
    truncated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    /// Between frames.
    None,
    /// In a frame, with a checksum or without.
    Data { has_checksum: bool },
    /// In a frame of other data, with that many bytes left.
    Skipped(u64),
}

impl Default for Zstd {
    fn default() -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW_BYTES_MAX);
        Self {
            decoder,
            frame: Frame::None,
            has_data: false,
            truncated: false,
        }
    }
}

impl fmt::Debug for Zstd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zstd")
            .field("frame", &self.frame)
            .finish_non_exhaustive()
    }
}

impl Zstd {
    fn read<R: Read>(&mut self, input: &mut Window<R>, out: &mut [u8]) -> Result<usize, Stop> {
        while !out.is_empty() {
            match self.frame {
                Frame::None => {
                    let whole = input.fill(ZSTD_FRAME_HEADER_BYTES_MAX)?;
                    if input.bytes().is_empty() {
                        return Ok(0);
                    }
                    if self.has_data && !may_begin_zstd(input.bytes()) {
                        return Err(Stop::Rest);
                    }
                    self.begin(input, whole)?;
                }
                Frame::Skipped(mut left) => {
                    let whole = input.skip(&mut left);
                    self.frame = Frame::Skipped(left);
                    if !whole? {
                        return Err(PackedFault::Truncated.into());
                    }
                    self.frame = Frame::None;
                }
                Frame::Data { has_checksum } => {
                    let made = self.decoder.read(out)?;
                    if made > 0 {
                        return Ok(made);
                    }
                    if !self.decoder.is_finished() {
                        match self.block(input, has_checksum) {
                            Err(Stop::Fault(PackedFault::Truncated)) => self.end(has_checksum)?,
                            other => other?,
                        }
                    } else if self.truncated {
                        return Err(PackedFault::Truncated.into());
                    } else if has_checksum
                        && self.decoder.get_checksum_from_data()
                            != self.decoder.get_calculated_checksum()
                    {
                        return Err(PackedFault::Checksum.into());
                    } else {
                        self.frame = Frame::None;
                        self.has_data = true;
                    }
                }
            }
        }
        Ok(0)
    }

    /// Reads the header of a frame. `whole` says whether the longest one would be there.
    fn begin<R: Read>(&mut self, input: &mut Window<R>, whole: bool) -> Result<(), Stop> {
        let bytes = input.bytes();
        // The descriptor is behind the magic (RFC 8878 §3.1.1.1.1).
        let has_checksum = bytes.get(4).is_some_and(|descriptor| descriptor & 4 != 0);
        let mut rest = bytes;
        let begun = self.decoder.reset(&mut rest);
        let (bytes, frame) = match begun {
            Ok(()) => (bytes.len() - rest.len(), Frame::Data { has_checksum }),
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => (8, Frame::Skipped(length.into())),
            Err(error) => return Err(fault_of(&error, whole).into()),
        };
        input.consume(bytes);
        self.frame = frame;
        Ok(())
    }

    /// Ends a frame whose input ended: the decoder keeps up to a window of data until it has the
    /// last block, so it gets an empty one.
    fn end(&mut self, has_checksum: bool) -> Result<(), Stop> {
        const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];
        let sum = if has_checksum { 4 } else { 0 };
        let block = &LAST_BLOCK[..ZSTD_BLOCK_HEADER_BYTES + sum];
        let ended = self.decoder.decode_from_to(block, &mut []);
        ended.map_err(|_error| PackedFault::Truncated)?;
        self.truncated = true;
        Ok(())
    }

    /// Decodes one block, so that what is decoded is bounded.
    fn block<R: Read>(&mut self, input: &mut Window<R>, has_checksum: bool) -> Result<(), Stop> {
        const RUN: u32 = 1;
        require(input, ZSTD_BLOCK_HEADER_BYTES)?;
        let [a, b, c] = input.array().unwrap_or_default();
        let header = u32::from_le_bytes([a, b, c, 0]);
        let (is_last, kind, length) = (header & 1 != 0, header >> 1 & 3, header >> 3);
        let content = if kind == RUN { 1 } else { length as usize };
        if content > ZSTD_BLOCK_BYTES_MAX {
            return Err(PackedFault::Corrupt.into());
        }
        let sum = if is_last && has_checksum { 4 } else { 0 };
        let bytes = ZSTD_BLOCK_HEADER_BYTES + content + sum;
        require(input, bytes)?;
        let block = input.bytes().get(..bytes).unwrap_or_default();
        let decoded = self.decoder.decode_from_to(block, &mut []);
        let (taken, _) = decoded.map_err(|error| fault_of(&error, true))?;
        if taken == 0 {
            return Err(PackedFault::Corrupt.into());
        }
        input.consume(taken);
        Ok(())
    }
}

/// The fault of a frame. If it is not `whole`, anything may be the effect of its end.
fn fault_of(error: &FrameDecoderError, whole: bool) -> PackedFault {
    match error {
        FrameDecoderError::WindowSizeTooBig { .. }
        | FrameDecoderError::FrameHeaderError(FrameHeaderError::WindowTooBig { .. })
        | FrameDecoderError::FailedToInitialize(FrameHeaderError::WindowTooBig { .. }) => {
            PackedFault::Window
        }
        FrameDecoderError::DictNotProvided { .. } => PackedFault::Dictionary,
        _ if whole => PackedFault::Corrupt,
        _ => PackedFault::Truncated,
    }
}
