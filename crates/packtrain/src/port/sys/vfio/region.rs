//! A region of a function (BAR) as registers: mapped, or where it cannot be, by system calls.

#![allow(unsafe_code, reason = "maps registers, and accesses them")]

use super::abi::{MAPPABLE, RegionInfo};
use rustix::io::{pread, pwrite};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

/// What a register has: 8, 16 or 32 bits, little endian.
pub(super) trait Word: Copy {
    /// What a function that is gone reads as.
    const ONES: Self;

    /// From the order of the bus, or to it.
    fn swapped(self) -> Self;

    /// Reads it by a system call; `None` if that fails.
    fn pread(device: BorrowedFd<'_>, at: u64) -> Option<Self>;

    /// Writes it by a system call. Returns false if that fails.
    fn pwrite(self, device: BorrowedFd<'_>, at: u64) -> bool;
}

macro_rules! words {
    ($($word:ty),*) => { $(
        impl Word for $word {
            const ONES: Self = Self::MAX;

            #[inline]
            fn swapped(self) -> Self {
                self.to_le()
            }

            fn pread(device: BorrowedFd<'_>, at: u64) -> Option<Self> {
                let mut bytes = [0; size_of::<Self>()];
                let read = pread(device, &mut bytes, at);
                (read == Ok(bytes.len())).then(|| Self::from_le_bytes(bytes))
            }

            fn pwrite(self, device: BorrowedFd<'_>, at: u64) -> bool {
                let bytes = self.to_le_bytes();
                pwrite(device, &bytes, at) == Ok(bytes.len())
            }
        }
    )* };
}
words!(u8, u16, u32);

/// A region of a function. Empty if the function does not have it.
#[derive(Debug, Default)]
pub(super) struct Region {
    bytes: usize,
    /// Where the file of the device has it.
    offset: u64,
    /// The parts that are mapped: mostly all of it.
    areas: Box<[Area]>,
}

/// A part of a region that is mapped.
#[derive(Debug)]
struct Area {
    start: usize,
    bytes: usize,
    at: NonNull<u8>,
    /// The length of the mapping, which is unmapped at the end; 0 for memory of a test.
    mapped: usize,
}

// SAFETY: registers have no thread affinity, no Rust reference to them exists, and each access is
// one volatile one of a word.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Drop for Area {
    fn drop(&mut self) {
        if self.mapped > 0 {
            // SAFETY: the mapping was made with this address and length, and nothing that borrows
            // the area is left. It fails for no mapping of ours.
            unsafe { libc::munmap(self.at.as_ptr().cast(), self.mapped) };
        }
    }
}

impl Area {
    fn map(
        device: BorrowedFd<'_>,
        region: &RegionInfo,
        start: u64,
        bytes: u64,
    ) -> io::Result<Self> {
        let fits = |number: u64| usize::try_from(number).map_err(io::Error::other);
        let (first, mapped) = (fits(start)?, fits(bytes)?);
        let offset = libc::off_t::try_from(region.offset + start).map_err(io::Error::other)?;
        // SAFETY: without a wanted address the kernel chooses one that is free, so no mapping of
        // this process changes; a wrong descriptor or length is an error.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                device.as_raw_fd(),
                offset,
            )
        };
        match NonNull::new(at.cast::<u8>()) {
            Some(at) if at.as_ptr().cast() != libc::MAP_FAILED => Ok(Self {
                start: first,
                bytes: mapped,
                at,
                mapped,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Region {
    /// Maps what the kernel lets a program map of a region.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn new(device: BorrowedFd<'_>, info: &RegionInfo) -> io::Result<Self> {
        let whole = [(0, info.bytes)];
        let areas: &[_] = match &info.areas {
            _ if info.flags & MAPPABLE == 0 || info.bytes == 0 => &[],
            Some(areas) => areas,
            None => &whole,
        };
        let areas = areas.iter().filter(|(_, bytes)| *bytes > 0);
        let areas = areas.map(|(start, bytes)| Area::map(device, info, *start, *bytes));
        Ok(Self {
            bytes: usize::try_from(info.bytes).map_err(io::Error::other)?,
            offset: info.offset,
            areas: areas.collect::<io::Result<_>>()?,
        })
    }

    /// Its bytes; 0 if the function has no such region.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where a word is mapped; `None` if it is not.
    ///
    /// # Panics
    ///
    /// If it is not within the region, or not aligned: a defect of the driver.
    #[inline]
    fn find<W: Word>(&self, at: usize) -> Option<NonNull<W>> {
        let bytes = size_of::<W>();
        let is_within = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(
            is_within && at.is_multiple_of(bytes),
            "no register of {bytes} bytes at {at:#x} of {:#x}",
            self.bytes
        );
        let has = |area: &&Area| at >= area.start && at + bytes <= area.start + area.bytes;
        let area = self.areas.iter().find(has)?;
        // SAFETY: within the area. It starts at a page (at a word in a test), so the word is
        // aligned.
        Some(unsafe { area.at.add(at - area.start) }.cast())
    }

    /// Reads a register. `device` is the file that the region was made with.
    #[inline]
    pub(super) fn read<W: Word>(&self, device: BorrowedFd<'_>, at: usize) -> W {
        match self.find::<W>(at) {
            // SAFETY: the word is mapped as long as `self` lives, and aligned.
            Some(register) => unsafe { register.read_volatile() }.swapped(),
            None => W::pread(device, self.offset + at as u64).unwrap_or(W::ONES),
        }
    }

    /// Writes a register.
    #[inline]
    pub(super) fn write<W: Word>(&self, device: BorrowedFd<'_>, at: usize, value: W) {
        match self.find::<W>(at) {
            // SAFETY: as in `read`. What the write makes the function do is the driver's: it
            // reaches only memory that was mapped for it.
            Some(register) => unsafe { register.write_volatile(value.swapped()) },
            // It fails if the function was removed.
            None => {
                value.pwrite(device, self.offset + at as u64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A region of 16 bytes whose words from 4 to 12 are mapped: as one with a table of MSI-X.
    fn region(memory: &mut [u32; 2]) -> Region {
        let area = Area {
            start: 4,
            bytes: 8,
            at: NonNull::from(memory).cast(),
            mapped: 0,
        };
        Region {
            bytes: 16,
            offset: 0,
            areas: [area].into(),
        }
    }

    #[test]
    fn registers_are_little_endian_and_as_wide_as_asked_for() {
        let mut memory = [0; 2];
        let file = File::open("/dev/null").expect("it is there");
        let region = region(&mut memory);
        region.write(file.as_fd(), 4, 0x1122_3344_u32);
        region.write(file.as_fd(), 8, 0xabcd_u16);
        region.write(file.as_fd(), 11, 0x7f_u8);
        assert_eq!(region.read::<u32>(file.as_fd(), 4), 0x1122_3344);
        assert_eq!(region.read::<u8>(file.as_fd(), 4), 0x44);
        assert_eq!(region.read::<u16>(file.as_fd(), 6), 0x1122);
        assert_eq!(region.read::<u32>(file.as_fd(), 8), 0x7f00_abcd);
    }

    // Miri makes accesses of files short, and VFIO never does.
    #[cfg(not(miri))]
    #[test]
    fn what_is_not_mapped_goes_through_the_file_and_a_removed_one_reads_all_ones() {
        let path = std::env::temp_dir().join(format!("packtrain-region-{}", std::process::id()));
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path);
        let file = file.expect("a file");
        std::fs::remove_file(&path).expect("its name");
        file.set_len(16).expect("its length");
        let mut memory = [0; 2];
        let region = region(&mut memory);
        region.write(file.as_fd(), 12, 0x0102_0304_u32);
        assert_eq!(region.read::<u32>(file.as_fd(), 12), 0x0102_0304);
        assert_eq!(region.read::<u8>(file.as_fd(), 0), 0);
        // An empty file has no byte to read, and this one none to write.
        let gone = File::open("/dev/null").expect("it is there");
        region.write(gone.as_fd(), 0, 1_u8);
        assert_eq!(region.read::<u8>(gone.as_fd(), 0), u8::MAX);
        assert_eq!(region.read::<u16>(gone.as_fd(), 2), u16::MAX);
        assert_eq!(region.read::<u32>(gone.as_fd(), 12), u32::MAX);
    }

    #[test]
    fn an_access_outside_of_a_region_is_a_defect() {
        let mut memory = [0; 2];
        let file = File::open("/dev/null").expect("it is there");
        let (region, none) = (region(&mut memory), Region::default());
        let access = |region: &Region, at: usize| {
            let read = AssertUnwindSafe(|| region.read::<u32>(file.as_fd(), at));
            catch_unwind(read).is_err()
        };
        for at in [13, 16, usize::MAX - 1, 2, 6] {
            assert!(access(&region, at), "{at}");
        }
        assert!(access(&none, 0));
        assert!(!access(&region, 12));
    }
}
