//! Fixed-width fields in either byte order. Reading them never panics.

/// The byte order of a file or of a pcapng section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            Self::Little => i64::from_le_bytes(bytes),
            Self::Big => i64::from_be_bytes(bytes),
        }
    }
}

/// A cursor over bytes. Each method removes a field from the front; `None` if too few bytes remain.
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8], order: ByteOrder) -> Self {
        Self { bytes, order }
    }

    pub(super) fn order(&self) -> ByteOrder {
        self.order
    }

    pub(super) fn remaining(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*front)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        Some(self.order.u16(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(self.order.u32(self.array()?))
    }

    /// A pcapng time in the units of its interface: the upper half is first.
    pub(super) fn stamp(&mut self) -> Option<u64> {
        Some(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        Some(self.order.i64(self.array()?))
    }
}
