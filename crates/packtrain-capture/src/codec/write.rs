//! The writer of captures of either format.

use std::io::{self, Write};

use super::error::{IoFault, WriteError};
use super::pcapng::{self, BLOCK_HEADER_BYTES};
use super::{
    Format, LinkCode, MAX_BLOCK_BYTES, MAX_BODY_BYTES, MAX_CAPTURED_BYTES, MAX_INTERFACES,
    MAX_NAME_BYTES, MAX_OPTION_BYTES, pcap,
};

/// The bytes that are buffered before they are written to the output.
const FLUSH_BYTES: usize = 64 * 1024;

/// One interface of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface<'a> {
    /// The header at the start of its packets.
    pub link: LinkCode,
    /// The most bytes of each packet in the capture; 0, or more than [`MAX_CAPTURED_BYTES`], means
    /// that limit.
    pub snaplen: u32,
    /// Its name, which only pcapng records; at most [`MAX_NAME_BYTES`].
    pub name: Option<&'a str>,
}

/// A streaming writer of pcap and pcapng, in little-endian byte order.
///
/// It has its own buffer (about 384 KiB, allocated in [`new`](Self::new)); an output needs none.
/// The output gets whole records, except that the last one may be truncated if the output fails.
/// [`finish`](Self::finish) writes the buffered bytes; so does the drop of a writer, so that a
/// panic does not lose the packets before it.
#[derive(Debug)]
pub struct Writer<W: Write> {
    /// `None` only once finished.
    output: Option<W>,
    format: Format,
    /// The snapshot length of each interface.
    snaplens: Vec<u32>,
    /// Packets are not truncated to `snaplens`.
    whole: bool,
    buffer: Vec<u8>,
    /// The bytes of the buffer that are written already.
    taken: usize,
    /// All bytes that the output has accepted.
    written: u64,
    records: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the file header and the interface descriptions. Interfaces are numbered in the order
    /// given; records are in nanoseconds except in microsecond pcap.
    ///
    /// # Errors
    ///
    /// [`WriteError::InterfaceCount`] and [`WriteError::NameTooLong`] before any output;
    /// [`WriteError::Io`] if the output refuses the header. The output is then lost.
    pub fn new(
        output: W,
        format: Format,
        interfaces: &[Interface<'_>],
    ) -> Result<Self, WriteError> {
        Self::with_section(output, format, interfaces, &[])
    }

    /// As [`new`](Self::new), with the options of another capture
    /// ([`Reader::section_options`](super::Reader::section_options)), which classic pcap has not.
    ///
    /// # Errors
    ///
    /// As `new`; [`WriteError::OptionsTooLong`].
    pub fn with_section(
        output: W,
        format: Format,
        interfaces: &[Interface<'_>],
        options: &[u8],
    ) -> Result<Self, WriteError> {
        check_options(options, MAX_OPTION_BYTES)?;
        let count = interfaces.len();
        let fits = match format {
            Format::Pcap { .. } => count == 1,
            Format::PcapNg => count <= MAX_INTERFACES,
        };
        if !fits {
            return Err(WriteError::InterfaceCount { count });
        }
        let names = interfaces.iter().filter_map(|interface| interface.name);
        if let Some(bytes) = names.map(str::len).find(|bytes| *bytes > MAX_NAME_BYTES) {
            return Err(WriteError::NameTooLong { bytes });
        }
        let mut writer = Self {
            output: Some(output),
            format,
            snaplens: interfaces
                .iter()
                .map(|interface| effective(interface.snaplen))
                .collect(),
            whole: false,
            buffer: Vec::with_capacity(FLUSH_BYTES + MAX_BLOCK_BYTES),
            taken: 0,
            written: 0,
            records: 0,
        };
        if format == Format::PcapNg {
            pcapng::put_section_header(&mut writer.buffer, options);
        }
        for interface in interfaces {
            writer.make_room()?;
            let (link, snaplen) = (interface.link, effective(interface.snaplen));
            match format {
                Format::Pcap { nanosecond } => {
                    pcap::put_file_header(&mut writer.buffer, nanosecond, link, snaplen);
                }
                Format::PcapNg => {
                    let options = interface.name.map_or(Vec::new(), pcapng::name_option);
                    pcapng::put_interface(&mut writer.buffer, link, snaplen, &options);
                }
            }
        }
        writer.flush()?;
        Ok(writer)
    }

    /// Writes packets longer than the snapshot length of their interface whole, for copies of
    /// captures that have such packets. [`MAX_CAPTURED_BYTES`] is still the limit.
    #[must_use]
    pub const fn without_truncation(mut self) -> Self {
        self.whole = true;
        self
    }

    /// Adds an interface, also after packets were written, and returns its number.
    ///
    /// # Errors
    ///
    /// [`WriteError::InterfaceCount`] beyond [`MAX_INTERFACES`], and always in classic pcap;
    /// [`WriteError::NameTooLong`]; [`WriteError::Io`]. The interface is then not in the capture.
    pub fn add_interface(&mut self, interface: &Interface<'_>) -> Result<u32, WriteError> {
        if let Some(bytes) = interface.name.map(str::len)
            && bytes > MAX_NAME_BYTES
        {
            return Err(WriteError::NameTooLong { bytes });
        }
        let options = interface.name.map_or(Vec::new(), pcapng::name_option);
        self.add_interface_with(interface, &options)
    }

    /// As [`add_interface`](Self::add_interface), with the options of an interface of another
    /// capture ([`Item::Interface`](super::Item::Interface)). They have its name; that of
    /// `interface` is not written.
    ///
    /// # Errors
    ///
    /// As `add_interface`, without `NameTooLong`; [`WriteError::OptionsTooLong`].
    pub fn add_interface_with(
        &mut self,
        interface: &Interface<'_>,
        options: &[u8],
    ) -> Result<u32, WriteError> {
        let count = self.snaplens.len();
        if self.format != Format::PcapNg || count >= MAX_INTERFACES {
            return Err(WriteError::InterfaceCount { count: count + 1 });
        }
        check_options(options, MAX_OPTION_BYTES)?;
        self.make_room()?;
        let snaplen = effective(interface.snaplen);
        pcapng::put_interface(&mut self.buffer, interface.link, snaplen, options);
        self.snaplens.push(snaplen);
        Ok(count as u32)
    }

    /// Adds a block that holds no packet ([`Item::Block`](super::Item::Block)). Without effect in
    /// classic pcap.
    ///
    /// # Errors
    ///
    /// [`WriteError::OptionsTooLong`] if it is longer than the reader returns, or
    /// [`WriteError::Io`]. The block is then not in the capture.
    pub fn write_block(&mut self, kind: u32, body: &[u8]) -> Result<(), WriteError> {
        check_options(body, MAX_BODY_BYTES)?;
        if self.format == Format::PcapNg {
            self.make_room()?;
            pcapng::put_block(&mut self.buffer, kind, |out| {
                out.extend_from_slice(body);
                pcapng::put_padding(out, body.len());
            });
        }
        Ok(())
    }

    /// Adds one packet, given as its pieces, truncated to the interface's snapshot length, except
    /// with [`without_truncation`](Self::without_truncation).
    ///
    /// `timestamp_ns` is in nanoseconds since the Unix epoch; a time beyond the last one of the
    /// format becomes that (of classic pcap, it is in the year 2106). `original_bytes` is the
    /// length on the wire with its link header; if it is less than the sum of the pieces, that sum
    /// is recorded.
    ///
    /// # Errors
    ///
    /// [`WriteError::NoSuchInterface`], or [`WriteError::Io`] if the buffer is full and the output
    /// refuses it. The packet is then not in the capture, and others may follow.
    pub fn write<P: AsRef<[u8]>>(
        &mut self,
        interface: u32,
        timestamp_ns: u64,
        original_bytes: u32,
        pieces: impl IntoIterator<Item = P>,
    ) -> Result<(), WriteError> {
        self.write_with(interface, timestamp_ns, original_bytes, pieces, &[])
    }

    /// As [`write`](Self::write), with the options of a packet of another capture
    /// ([`PacketOptions::to_vec`](super::PacketOptions::to_vec)), which classic pcap has not.
    ///
    /// # Errors
    ///
    /// As `write`; [`WriteError::OptionsTooLong`].
    pub fn write_with<P: AsRef<[u8]>>(
        &mut self,
        interface: u32,
        timestamp_ns: u64,
        original_bytes: u32,
        pieces: impl IntoIterator<Item = P>,
        options: &[u8],
    ) -> Result<(), WriteError> {
        let limit = self.snaplen(interface)?;
        check_options(options, MAX_OPTION_BYTES)?;
        self.make_room()?;
        match self.format {
            Format::Pcap { nanosecond } => {
                let at = self.buffer.len();
                self.buffer
                    .extend_from_slice(&[0; pcap::RECORD_HEADER_BYTES]);
                let (captured, sum) = put_pieces(&mut self.buffer, limit, pieces);
                let original = original_bytes.max(sum);
                let header = pcap::record_header(nanosecond, timestamp_ns, captured, original);
                put_at(&mut self.buffer, at, &header);
            }
            Format::PcapNg => {
                pcapng::put_block(&mut self.buffer, pcapng::ENHANCED_PACKET, |out| {
                    pcapng::put_stamp(out, interface, timestamp_ns);
                    let at = out.len();
                    out.extend_from_slice(&[0; 8]);
                    let (captured, sum) = put_pieces(out, limit, pieces);
                    put_at(out, at, &captured.to_le_bytes());
                    put_at(out, at + 4, &original_bytes.max(sum).to_le_bytes());
                    pcapng::put_padding(out, captured as usize);
                    if !options.is_empty() {
                        out.extend_from_slice(options);
                        pcapng::put_option_end(out);
                    }
                });
            }
        }
        self.records += 1;
        Ok(())
    }

    /// Writes all buffered bytes to the output, and flushes the output.
    ///
    /// # Errors
    ///
    /// [`WriteError::Io`]; bytes that the output refused stay buffered.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.drain()?;
        match self.output.as_mut().map_or(Ok(()), Write::flush) {
            Ok(()) => Ok(()),
            Err(error) => Err(WriteError::Io(IoFault::from(&error))),
        }
    }

    /// [Flushes](Self::flush) and returns the output.
    ///
    /// # Errors
    ///
    /// [`WriteError::Io`]; the output is then lost. With an output that may return
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), call [`flush`](Self::flush) until it succeeds.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.flush()?;
        // Always present: only this call takes it, and it consumes the writer.
        self.output.take().ok_or(WriteError::Io(IoFault {
            kind: io::ErrorKind::NotConnected,
            os_error: None,
        }))
    }

    /// The format being written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The number of packets accepted.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The length of the capture so far, in bytes, buffered ones included. After a
    /// [`write`](Self::write) it is the end of that record.
    pub fn position(&self) -> u64 {
        self.written + (self.buffer.len() - self.taken) as u64
    }

    /// The bytes of the capture that the output has accepted.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The bytes that the output has of a record whose end it has not. After an error other than
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), remove them from a file, which then ends with a
    /// whole record.
    pub fn begun(&self) -> u64 {
        // The buffer begins with a record or another block.
        let (at, header) = match self.format {
            Format::Pcap { .. } => (8, pcap::RECORD_HEADER_BYTES),
            Format::PcapNg => (4, 0),
        };
        let mut start = 0;
        while start < self.taken {
            let length = self.buffer[start..].get(at..at + 4);
            let length = length.and_then(|bytes| bytes.try_into().ok());
            let length = header + length.map_or(0, u32::from_le_bytes) as usize;
            if length == 0 || start + length > self.taken {
                return (self.taken - start) as u64;
            }
            start += length;
        }
        0
    }

    /// Removes what lies behind `position`, except for bytes that the output has accepted. A
    /// position other than the end of a record corrupts the capture.
    pub fn truncate(&mut self, position: u64) {
        let kept = position.saturating_sub(self.written);
        let kept = usize::try_from(kept).unwrap_or(usize::MAX);
        self.buffer.truncate(self.taken.saturating_add(kept));
    }

    /// The output; `None` only while the writer is finished.
    pub fn get_ref(&self) -> Option<&W> {
        self.output.as_ref()
    }

    fn snaplen(&self, interface: u32) -> Result<usize, WriteError> {
        match self.snaplens.get(interface as usize) {
            Some(_) if self.whole => Ok(MAX_CAPTURED_BYTES),
            Some(snaplen) => Ok(*snaplen as usize),
            None => Err(WriteError::NoSuchInterface { interface }),
        }
    }

    /// Makes room for [`MAX_BLOCK_BYTES`], so that a record never grows the buffer.
    fn make_room(&mut self) -> Result<(), WriteError> {
        if self.buffer.len() < FLUSH_BYTES {
            return Ok(());
        }
        self.drain()
    }

    fn drain(&mut self) -> Result<(), WriteError> {
        let Some(output) = self.output.as_mut() else {
            return Ok(());
        };
        while let Some(rest @ [_, ..]) = self.buffer.get(self.taken..) {
            let error = match output.write(rest) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(count) => {
                    let count = count.min(rest.len());
                    self.taken += count;
                    self.written += count as u64;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            return Err(WriteError::Io(IoFault::from(&error)));
        }
        self.buffer.clear();
        self.taken = 0;
        Ok(())
    }
}

#[cfg(test)]
impl<W: Write> Writer<W> {
    /// The allocated size of the buffer.
    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}

impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        // A caller that needs the error calls `finish`.
        self.flush().ok();
    }
}

fn effective(snaplen: u32) -> u32 {
    const LIMIT: u32 = MAX_CAPTURED_BYTES as u32;
    if snaplen == 0 {
        LIMIT
    } else {
        snaplen.min(LIMIT)
    }
}

fn check_options(options: &[u8], bytes_max: usize) -> Result<(), WriteError> {
    match options.len() {
        bytes if bytes > bytes_max => Err(WriteError::OptionsTooLong { bytes }),
        _ => Ok(()),
    }
}

fn put_at(out: &mut [u8], at: usize, value: &[u8]) {
    if let Some(field) = out.get_mut(at..at + value.len()) {
        field.copy_from_slice(value);
    }
}

/// Appends at most `limit` bytes of the pieces. Returns the number of bytes appended, and the
/// length of all pieces.
fn put_pieces<P: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    limit: usize,
    pieces: impl IntoIterator<Item = P>,
) -> (u32, u32) {
    let mut room = limit;
    let mut sum = 0_u32;
    for piece in pieces {
        let piece = piece.as_ref();
        let kept = &piece[..piece.len().min(room)];
        out.extend_from_slice(kept);
        room -= kept.len();
        sum = sum.saturating_add(u32::try_from(piece.len()).unwrap_or(u32::MAX));
    }
    ((limit - room) as u32, sum)
}

const _: () = assert!(
    BLOCK_HEADER_BYTES + 12 + MAX_NAME_BYTES + 64 < MAX_BLOCK_BYTES,
    "an interface description fits into the buffer"
);
