//! The memory of a guest, mapped into this process.
//!
//! Another process writes to it at any time. So no Rust reference to it exists: bytes are copied in
//! and out, words are atomics, and each value is read once. All places are checked against the
//! mapped regions, and stay valid as long as the [`Memory`] that they were checked against.
//!
//! A file that becomes shorter would raise SIGBUS on an access. A guest cannot shorten it, the
//! process of the front end can. A memfd is therefore sealed against that (`F_SEAL_SHRINK`) where
//! its maker allows it, before its length is read. No seal helps where the kernel has no page for a
//! hole of the file (a full tmpfs), or another process provides the pages (FUSE).

#![allow(unsafe_code, reason = "maps memory that another process writes to")]

use super::message::RegionSpec;
use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals, fstat};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::{io, ptr};

/// The memory of a guest: its regions. Unmapped when it is dropped.
#[derive(Debug, Default)]
pub(in crate::port) struct Memory {
    regions: Vec<Region>,
    /// Whether no region can become shorter.
    sealed: bool,
    /// Whether every page of the files is allocated.
    populated: bool,
}

#[derive(Debug)]
struct Region {
    guest: u64,
    user: u64,
    bytes: u64,
    /// Where the region begins.
    at: NonNull<u8>,
    _mapping: Mapping,
}

// SAFETY: `at` points into the mapping that the region owns, which any thread may access, and to
// which no Rust reference exists.
unsafe impl Send for Region {}
// SAFETY: as above: all accesses are atomics or copies of raw bytes.
unsafe impl Sync for Region {}

/// A part of a file in the address space.
#[derive(Debug)]
struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

/// A piece of guest memory in one region, checked against the [`Memory`] that made it.
#[derive(Clone, Copy, Debug)]
pub(in crate::port) struct Piece {
    region: u32,
    bytes: u32,
    offset: u64,
}

impl Piece {
    /// Its length.
    pub(in crate::port) const fn bytes(&self) -> usize {
        self.bytes as usize
    }
}

/// A part of a ring: a piece of guest memory, with the memory that it belongs to. Its place is
/// found once.
#[derive(Debug)]
pub(in crate::port) struct Block {
    at: NonNull<u8>,
    bytes: usize,
    _memory: Arc<Memory>,
}

// SAFETY: `at` points into a mapping of the memory that the block owns a part of, which any thread
// may access, and to which no Rust reference exists.
unsafe impl Send for Block {}
// SAFETY: as above: all accesses are atomics or copies of raw bytes.
unsafe impl Sync for Block {}

impl Mapping {
    /// Maps `bytes` bytes of a file from `offset` on, which is a multiple of the page size.
    fn new(fd: &OwnedFd, offset: u64, bytes: usize) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: without a wanted address the kernel chooses one that is free, so no mapping of
        // this process changes; a wrong descriptor or length is an error.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                // Huge pages are reserved now: a missing one is an error here, and no SIGBUS later.
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                offset,
            )
        };
        match NonNull::new(at.cast::<u8>()) {
            Some(at) if at.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { at, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and every place in it borrows
        // or owns the memory that owns the mapping. It fails for no mapping of ours.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

impl Memory {
    /// Maps the regions, each from its file.
    ///
    /// # Errors
    ///
    /// One sentence: a region that is not in its file, or that the kernel does not map.
    pub(in crate::port) fn map(regions: Vec<(RegionSpec, OwnedFd)>) -> Result<Self, String> {
        let (mut sealed, mut populated) = (true, true);
        let regions = regions.into_iter().map(|(spec, fd)| {
            // First: the length that is checked is one that stays.
            sealed &= seal(&fd);
            populated &= is_populated(&fd);
            Region::map(&spec, &fd)
        });
        let regions = regions.collect::<Result<_, String>>()?;
        Ok(Self {
            regions,
            sealed,
            populated,
        })
    }

    /// Whether every page of the files was allocated when they were mapped.
    pub(in crate::port) const fn is_populated(&self) -> bool {
        self.populated
    }

    /// Whether no region can become shorter.
    pub(in crate::port) const fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// The piece at an address of the guest: as much of `bytes` as is in one region.
    #[inline]
    pub(in crate::port) fn guest(&self, address: u64, bytes: u32) -> Option<Piece> {
        self.find(address, bytes, |region| region.guest)
    }

    /// The block of `bytes` bytes at an address of the front end; `None` if it is not in one
    /// region, or not aligned to `align` bytes, a power of two.
    pub(in crate::port) fn block(
        self: &Arc<Self>,
        address: u64,
        bytes: usize,
        align: usize,
    ) -> Option<Block> {
        let wanted = u32::try_from(bytes).ok()?;
        let piece = self.find(address, wanted, |region| region.user)?;
        let at = NonNull::new(self.place(piece, 0, piece.bytes()))?;
        let is_aligned = at.addr().get().is_multiple_of(align);
        (piece.bytes == wanted && is_aligned).then(|| Block {
            at,
            bytes,
            _memory: Arc::clone(self),
        })
    }

    #[inline]
    fn find(&self, address: u64, bytes: u32, of: impl Fn(&Region) -> u64) -> Option<Piece> {
        self.regions.iter().enumerate().find_map(|(index, region)| {
            let offset = address.checked_sub(of(region))?;
            let left = region.bytes.checked_sub(offset).filter(|left| *left > 0)?;
            Some(Piece {
                region: index as u32,
                bytes: u64::from(bytes).min(left) as u32,
                offset,
            })
        })
    }

    /// Where byte `at` of a piece is, which has `bytes` bytes from there on.
    #[inline]
    fn place(&self, piece: Piece, at: usize, bytes: usize) -> *mut u8 {
        let fits = at
            .checked_add(bytes)
            .is_some_and(|end| end <= piece.bytes());
        let region = &self.regions[piece.region as usize];
        // Also if the piece is of another memory, whose regions differ.
        let end = piece.offset.checked_add(u64::from(piece.bytes));
        assert!(fits && end.is_some_and(|end| end <= region.bytes));
        // SAFETY: the region has its bytes from `at` on, and the piece, with these bytes of it, was
        // just found to be in the region.
        unsafe { region.at.as_ptr().add(piece.offset as usize + at) }
    }

    /// Copies from byte `at` of a piece on into `out`.
    ///
    /// # Panics
    ///
    /// If the piece is shorter.
    #[inline]
    pub(in crate::port) fn read(&self, piece: Piece, at: usize, out: &mut [u8]) {
        let from = self.place(piece, at, out.len());
        // SAFETY: `place` checked the bytes, which stay mapped while `self` is borrowed. `out` is
        // memory of this process, so they do not overlap. The guest may write meanwhile: then any
        // bytes are copied, and the caller takes none of them for granted.
        unsafe { ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
    }

    /// Copies `bytes` to byte `at` of a piece and the following ones.
    ///
    /// # Panics
    ///
    /// If the piece is shorter.
    #[inline]
    pub(in crate::port) fn write(&self, piece: Piece, at: usize, bytes: &[u8]) {
        let to = self.place(piece, at, bytes.len());
        // SAFETY: as in `read`; no reference to the guest's memory exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies a virtio-net header and the bytes behind it to the start of a piece.
    ///
    /// # Panics
    ///
    /// If the piece is shorter.
    #[inline]
    pub(in crate::port) fn write_packet(&self, piece: Piece, header: &[u8], packet: &[u8]) {
        let to = self.place(piece, 0, header.len() + packet.len());
        // SAFETY: as in `write`, for both.
        unsafe {
            // The compiler copies the usual header in place, without a call of `memcpy`.
            match <&[u8; 12]>::try_from(header) {
                Ok(header) => to.cast::<[u8; 12]>().write_unaligned(*header),
                Err(_) => ptr::copy_nonoverlapping(header.as_ptr(), to, header.len()),
            }
            ptr::copy_nonoverlapping(packet.as_ptr(), to.add(header.len()), packet.len());
        }
    }

    /// Reads two words of eight bytes at byte `at` of a piece, each once.
    ///
    /// # Panics
    ///
    /// If the piece is shorter.
    #[inline]
    pub(in crate::port) fn words(&self, piece: Piece, at: usize) -> [u64; 2] {
        let from = self.place(piece, at, 16);
        // SAFETY: `place` checked the sixteen bytes, which stay mapped while `self` is borrowed.
        unsafe { words_at(from) }
    }
}

/// Two words of eight bytes, each read once.
///
/// # Safety
///
/// The sixteen bytes are mapped.
#[inline]
unsafe fn words_at(from: *const u8) -> [u64; 2] {
    [0, 8].map(|at| {
        // SAFETY: the caller promises the bytes.
        let from = unsafe { from.add(at) };
        // A volatile read happens once: no later use reads the guest's memory again. That of bytes
        // needs no alignment, and is eight reads.
        if from.cast::<u64>().is_aligned() {
            // SAFETY: as above, and they are aligned.
            u64::from_le(unsafe { from.cast::<u64>().read_volatile() })
        } else {
            // SAFETY: as above.
            u64::from_le_bytes(unsafe { from.cast::<[u8; 8]>().read_volatile() })
        }
    })
}

impl Region {
    fn map(spec: &RegionSpec, fd: &OwnedFd) -> Result<Self, String> {
        let RegionSpec {
            guest,
            bytes,
            user,
            offset,
        } = *spec;
        let ends = [guest, user, offset].map(|start| start.checked_add(bytes));
        let [Some(_), Some(_), Some(end)] = ends else {
            return Err(format!(
                "a memory region of {bytes} bytes that wraps around"
            ));
        };
        let failed = |error: io::Error| format!("guest memory cannot be mapped: {error}");
        let file = fstat(fd).map_err(|error| failed(error.into()))?;
        let file_bytes = u64::try_from(file.st_size).unwrap_or(0);
        if bytes == 0 || end > file_bytes {
            return Err(format!(
                "a memory region at {offset} with {bytes} bytes in a file of {file_bytes}"
            ));
        }
        // Huge pages are mapped whole; their file names their size here.
        let page = u64::try_from(file.st_blksize).unwrap_or(0).max(PAGE_BYTES);
        if !page.is_power_of_two() {
            return Err(format!("guest memory in pages of {page} bytes"));
        }
        let start = offset & !(page - 1);
        let length = end - start;
        let length = length.checked_next_multiple_of(page).unwrap_or(length);
        let length = usize::try_from(length).map_err(|_| "guest memory is too large".to_owned())?;
        let mapping = Mapping::new(fd, start, length).map_err(failed)?;
        // SAFETY: the region begins within the mapping's first page, and its end was checked.
        let at = unsafe { mapping.at.add((offset - start) as usize) };
        Ok(Self {
            guest,
            user,
            bytes,
            at,
            _mapping: mapping,
        })
    }
}

/// The smallest page of any Linux.
const PAGE_BYTES: u64 = 4096;

/// Seals a file against becoming shorter; false for one that takes no seals.
fn seal(fd: &OwnedFd) -> bool {
    let is_sealed = || fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    is_sealed() || fcntl_add_seals(fd, SealFlags::SHRINK).is_ok()
}

/// Whether a file has no holes. A file of memory or of huge pages counts the pages that it has.
fn is_populated(fd: &OwnedFd) -> bool {
    /// Bytes of a block in `st_blocks`, on any file system.
    const BLOCK_BYTES: i64 = 512;
    fstat(fd).is_ok_and(|file| file.st_blocks.saturating_mul(BLOCK_BYTES) >= file.st_size)
}

impl Block {
    /// The 16-bit word at byte `at`, an even number.
    ///
    /// # Panics
    ///
    /// If it is outside of the block, or the block is not aligned to two bytes.
    #[inline]
    pub(in crate::port) fn load(&self, at: usize, order: Ordering) -> u16 {
        u16::from_le(self.word(at).load(order))
    }

    /// Sets the 16-bit word at byte `at`, an even number.
    ///
    /// # Panics
    ///
    /// If it is outside of the block, or the block is not aligned to two bytes.
    #[inline]
    pub(in crate::port) fn store(&self, at: usize, value: u16, order: Ordering) {
        self.word(at).store(value.to_le(), order);
    }

    /// Where byte `at` is, with `bytes` bytes from there on.
    #[inline]
    fn place(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.bytes));
        // SAFETY: these bytes are in the block, whose bytes were checked when it was made.
        unsafe { self.at.as_ptr().add(at) }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU16 {
        let place = self.place(at, 2).cast::<u16>();
        assert!(place.is_aligned());
        // SAFETY: the two bytes are mapped and aligned, and stay mapped while the block, which owns
        // the memory, is borrowed. This process accesses rings by atomics alone. If a guest names a
        // ring as a buffer, a copy of another thread can meet the access, as a write of the guest
        // can: any value may be read then, and none is taken for granted.
        unsafe { AtomicU16::from_ptr(place) }
    }

    /// Reads two words of eight bytes at byte `at`, each once.
    ///
    /// # Panics
    ///
    /// If they are outside of the block.
    #[inline]
    pub(in crate::port) fn words(&self, at: usize) -> [u64; 2] {
        // SAFETY: `place` checks the bytes, which stay mapped while the block owns the memory.
        unsafe { words_at(self.place(at, 16)) }
    }

    /// Copies `bytes` to byte `at` and the following ones.
    ///
    /// # Panics
    ///
    /// If they are outside of the block.
    #[inline]
    pub(in crate::port) fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.place(at, bytes.len());
        // SAFETY: as in `Memory::write`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::os::unix::net::UnixStream;

    const BYTES: u64 = 64 * 1024;

    fn file(flags: MemfdFlags) -> OwnedFd {
        let fd = memfd_create("guest", MemfdFlags::CLOEXEC | flags).expect("a memfd");
        ftruncate(&fd, BYTES).expect("its length");
        fd
    }

    fn region(guest: u64, user: u64, offset: u64, bytes: u64) -> RegionSpec {
        RegionSpec {
            guest,
            bytes,
            user,
            offset,
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_file() {
        let fd = file(MemfdFlags::ALLOW_SEALING);
        let outside = File::from(fd.try_clone().expect("a duplicate"));
        outside
            .write_all_at(b"of the guest", 5000)
            .expect("a write");
        // Not at the start of a page, and not to the end of the file.
        let spec = region(0x1_0000, 0x7000_0000, 4100, 8192);
        let memory = Arc::new(Memory::map(vec![(spec, fd)]).expect("it is in the file"));
        let piece = memory.guest(0x1_0000 + 900, 12).expect("it is mapped");
        let mut read = [0; 12];
        memory.read(piece, 0, &mut read);
        assert_eq!(&read, b"of the guest");
        memory.write(piece, 7, b"outer");
        outside.read_exact_at(&mut read, 5000).expect("a read");
        assert_eq!(&read, b"of the outer");
        let block = memory.block(0x7000_0000 + 900, 4, 2).expect("it is mapped");
        block.store(2, 0x1234, Ordering::Relaxed);
        assert_eq!(block.load(2, Ordering::Relaxed), 0x1234);
        outside.read_exact_at(&mut read[..4], 5000).expect("a read");
        assert_eq!(&read[..4], b"of\x34\x12");
    }

    #[test]
    fn an_address_is_in_one_region_with_all_its_bytes_or_cut_at_the_end() {
        let regions = vec![
            (region(0, 1 << 40, 0, 4096), file(MemfdFlags::empty())),
            (
                region(u64::MAX - 8192, 1 << 41, 4096, 8192),
                file(MemfdFlags::empty()),
            ),
        ];
        let memory = Arc::new(Memory::map(regions).expect("they are in their files"));
        let guest = |address, bytes| memory.guest(address, bytes).map(|piece| piece.bytes());
        assert_eq!(guest(0, 4096), Some(4096));
        assert_eq!(guest(4000, 1000), Some(96));
        assert_eq!(guest(0, u32::MAX), Some(4096));
        assert_eq!(guest(4096, 1), None);
        assert_eq!(guest(u64::MAX, 1), None);
        assert_eq!(guest(u64::MAX - 1, u32::MAX), Some(1));
        assert_eq!(guest(u64::MAX - 8193, 1), None);
        let block = |address, bytes, align| memory.block(address, bytes, align).is_some();
        assert!(block(1 << 40, 4096, 16));
        assert!(!block(1 << 40, 4097, 1), "it ends behind the region");
        assert!(!block((1 << 40) + 1, 16, 2), "it is not aligned");
        assert!(!block(0, 16, 1), "that is an address of the guest");
        assert!(!block(1 << 40, usize::MAX, 1));
    }

    #[test]
    fn a_region_outside_of_its_file_is_refused() {
        for (guest, user, offset, bytes) in [
            (0, 0, 0, 0),
            (0, 0, 0, BYTES + 1),
            (0, 0, 1, BYTES),
            (0, 0, BYTES, 1),
            (0, 0, u64::MAX, 2),
            (u64::MAX, 0, 0, 4096),
            (0, u64::MAX, 0, 4096),
            (0, 0, 0, u64::MAX),
        ] {
            let spec = region(guest, user, offset, bytes);
            Memory::map(vec![(spec, file(MemfdFlags::empty()))]).expect_err("it is not there");
        }
        let (socket, _other) = UnixStream::pair().expect("two sockets");
        let regions = vec![(region(0, 0, 0, 4096), socket.into())];
        Memory::map(regions).expect_err("a socket is no memory");
    }

    #[test]
    fn a_file_that_takes_seals_cannot_be_shortened_afterwards() {
        let fd = file(MemfdFlags::ALLOW_SEALING);
        let outside = fd.try_clone().expect("a duplicate");
        let memory = Memory::map(vec![(region(0, 0, 0, BYTES), fd)]).expect("it is in the file");
        assert!(memory.is_sealed());
        ftruncate(&outside, 4096).expect_err("it is sealed");
        let fd = file(MemfdFlags::empty());
        let memory = Memory::map(vec![(region(0, 0, 0, BYTES), fd)]).expect("it is in the file");
        assert!(!memory.is_sealed());
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn a_piece_of_a_larger_memory_is_not_followed() {
        let of = |bytes| {
            let fd = file(MemfdFlags::empty());
            Memory::map(vec![(region(0, 0, 0, bytes), fd)]).expect("it is in the file")
        };
        let piece = of(8192).guest(4096, 16).expect("it is mapped");
        of(4096).read(piece, 0, &mut [0; 16]);
    }
}
