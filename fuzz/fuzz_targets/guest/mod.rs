//! The memory of a guest as its front end sees it, and what a device may write there.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

/// Bytes of the file. Its first and its last page are not shared.
pub const FILE_BYTES: usize = 64 << 10;
pub const SHARED: Range<usize> = 4096..60 << 10;
/// Where the guest has its memory, and where its front end has it.
pub const GUEST: u64 = 0x4000_0000;
pub const USER: u64 = 0x7F00_0000_0000;
/// Bytes of each ring: its descriptors, its avail ring, its used ring, tables and headers.
pub const RING_BYTES: u64 = 4096;
pub const AVAIL: u64 = 1024;
pub const USED: u64 = 1280;
pub const TABLES: u64 = 2048;
/// Descriptors of a ring as it is set up; a message may say otherwise.
pub const RING_SIZE: u16 = 64;

const SIZE_MAX: u32 = 256;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const TABLE: u16 = 4;

/// A region as a message has it.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub guest: u64,
    pub bytes: u64,
    pub user: u64,
    pub offset: u64,
}

/// A place of a ring.
#[derive(Clone, Copy, Debug)]
struct Place {
    descriptors: u64,
    used: u64,
    avail: u64,
}

/// The memory of one guest, and what its front end has said of it. What it said before stays: a
/// ring may be where it was, so what the device may write is at most too much.
#[derive(Debug)]
pub struct Memory {
    regions: Vec<Region>,
    places: Vec<Place>,
    size_max: u16,
    /// What it held before, and what it holds now.
    bytes: Vec<u8>,
    now: Vec<u8>,
    may: Vec<Range<usize>>,
}

/// One file for all inputs: a test of a few microseconds should not wait for pages.
fn file() -> &'static File {
    static FILE: OnceLock<File> = OnceLock::new();
    FILE.get_or_init(|| {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, FILE_BYTES as u64).expect("its length");
        File::from(file)
    })
}

impl Memory {
    /// Zeros.
    pub fn new() -> Self {
        let bytes = vec![0; FILE_BYTES];
        file().write_all_at(&bytes, 0).expect("guest memory");
        Self {
            regions: Vec::new(),
            places: Vec::new(),
            size_max: 0,
            now: bytes.clone(),
            bytes,
            may: Vec::new(),
        }
    }

    /// A descriptor of the file.
    pub fn fd() -> OwnedFd {
        file().try_clone().expect("a descriptor").into()
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        let end = FILE_BYTES as u64;
        let at = at.min(end);
        let n = bytes.len().min((end - at) as usize);
        file().write_all_at(&bytes[..n], at).expect("guest memory");
    }

    pub fn word(&self, at: u64) -> u16 {
        let mut word = [0; 2];
        let at = at.min(FILE_BYTES as u64 - 2);
        file().read_exact_at(&mut word, at).expect("guest memory");
        u16::from_le_bytes(word)
    }

    /// The front end shares regions.
    pub fn share(&mut self, regions: impl IntoIterator<Item = Region>) {
        self.regions.extend(regions);
    }

    /// The front end says where a ring is.
    pub fn place(&mut self, descriptors: u64, used: u64, avail: u64) {
        self.places.push(Place {
            descriptors,
            used,
            avail,
        });
    }

    /// The front end says how large a ring is. Returns what it says instead if that is so large
    /// that an input is only slow: no size at all.
    pub fn resize(&mut self, size: u32) -> u32 {
        if size > SIZE_MAX {
            return size | 1;
        }
        self.size_max = self.size_max.max(size as u16);
        size
    }

    /// What was said so often that an input is only slow.
    pub fn is_full(&self) -> bool {
        self.regions.len() > 6 || self.places.len() > 16
    }

    /// Notes what the memory holds, and what chains offer if `offered`. False if the device may
    /// write to what says that: then what it writes first decides what it may write next.
    pub fn before(&mut self, offered: bool) -> bool {
        file()
            .read_exact_at(&mut self.bytes, 0)
            .expect("guest memory");
        self.may.clear();
        if !offered {
            return true;
        }
        let (mut may, mut read) = (Vec::new(), Vec::new());
        self.walk_all(&mut may, &mut read);
        self.may.clone_from(&may);
        may.extend(self.used());
        let may = merged(may);
        let is_written = |read: Range<usize>| {
            let next = may.partition_point(|may| may.end <= read.start);
            may.get(next).is_some_and(|may| may.start < read.end)
        };
        !read.into_iter().any(is_written)
    }

    /// Checks that the device wrote nowhere else but to used rings.
    pub fn after(&mut self) {
        file()
            .read_exact_at(&mut self.now, 0)
            .expect("guest memory");
        let mut may = std::mem::take(&mut self.may);
        may.extend(self.used());
        for may in may {
            self.now[may.clone()].copy_from_slice(&self.bytes[may]);
        }
        // As slices: the fuzzer follows each comparison of numbers.
        let pages = self.now.chunks(4096).zip(self.bytes.chunks(4096));
        for (page, (now, before)) in pages.enumerate() {
            assert!(
                now == before,
                "the device wrote to page {page}, where nothing was offered"
            );
        }
    }

    /// The parts of the file where used rings are or were.
    fn used(&self) -> Vec<Range<usize>> {
        let bytes = 4 + 8 * u64::from(self.size_max) + 2;
        let places = self.places.iter();
        let parts = places.flat_map(|place| self.parts(place.used, bytes, |region| region.user));
        parts.collect()
    }

    /// The parts of the file that an area is in.
    fn parts(&self, at: u64, bytes: u64, of: impl Fn(&Region) -> u64) -> Vec<Range<usize>> {
        let end = at.saturating_add(bytes);
        let parts = self.regions.iter().map(|region| {
            let base = of(region);
            let from = at.max(base);
            let to = end.min(base.saturating_add(region.bytes));
            let clip = |address: u64| {
                let offset = address.saturating_sub(base).saturating_add(region.offset);
                offset.min(FILE_BYTES as u64) as usize
            };
            if from < to {
                clip(from)..clip(to)
            } else {
                0..0
            }
        });
        parts.filter(|part| !part.is_empty()).collect()
    }

    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = self.bytes.get(at..).and_then(<[u8]>::first_chunk);
        bytes.copied().unwrap_or([0; N])
    }

    /// Follows every chain that any avail ring names: what they offer, and what has to be read for
    /// that.
    fn walk_all(&self, may: &mut Vec<Range<usize>>, read: &mut Vec<Range<usize>>) {
        let size = u64::from(self.size_max);
        // Descriptors from which a chain was followed to its end.
        let mut seen = HashSet::new();
        for place in &self.places {
            let avail = self.parts(place.avail, 4 + 2 * size + 2, |region| region.user);
            read.extend(avail);
            let tables = self.parts(place.descriptors, 16 * size, |region| region.user);
            for ring in self.parts(place.avail.wrapping_add(4), 2 * size, |region| region.user) {
                for entry in ring.step_by(2) {
                    let head = u16::from_le_bytes(self.get(entry));
                    for table in &tables {
                        self.walk(table, head, &mut seen, may, read);
                    }
                }
            }
        }
    }

    fn walk(
        &self,
        table: &Range<usize>,
        head: u16,
        seen: &mut HashSet<usize>,
        may: &mut Vec<Range<usize>>,
        read: &mut Vec<Range<usize>>,
    ) {
        let mut index = usize::from(head);
        loop {
            let at = table.start + 16 * index;
            if at + 16 > table.end || !seen.insert(at) {
                return;
            }
            read.push(at..at + 16);
            let (address, bytes, flags) = self.row(at);
            if flags & TABLE != 0 {
                for rows in self.parts(address, bytes, |region| region.guest) {
                    if seen.insert(FILE_BYTES + rows.start) {
                        // All of them, whether or not they belong to its chain.
                        for at in rows.clone().step_by(16) {
                            let (address, bytes, flags) = self.row(at);
                            if flags & WRITE != 0 {
                                may.extend(self.parts(address, bytes, |region| region.guest));
                            }
                        }
                    }
                    read.push(rows);
                }
                return;
            }
            if flags & WRITE != 0 {
                may.extend(self.parts(address, bytes, |region| region.guest));
            }
            if flags & NEXT == 0 {
                return;
            }
            index = usize::from(u16::from_le_bytes(self.get(at + 14)));
        }
    }

    /// Address, bytes and flags of a descriptor.
    fn row(&self, at: usize) -> (u64, u64, u16) {
        (
            u64::from_le_bytes(self.get(at)),
            u32::from_le_bytes(self.get(at + 8)).into(),
            u16::from_le_bytes(self.get(at + 12)),
        )
    }
}

/// The same places in order, those together that touch.
fn merged(mut all: Vec<Range<usize>>) -> Vec<Range<usize>> {
    all.sort_by_key(|range| range.start);
    all.dedup_by(|next, last| {
        let touches = next.start <= last.end;
        if touches {
            last.end = last.end.max(next.end);
        }
        touches
    });
    all
}
