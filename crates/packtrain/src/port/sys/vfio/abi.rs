//! The calls of VFIO and iommufd: numbers, flags and layouts of linux/vfio.h and linux/iommufd.h,
//! which the kernel keeps for ever.
//!
//! Structures are bytes with numbers at offsets. The first word of most is their length, and the
//! kernel asks for more of it where it has more to say ([`ask`]).

#![allow(unsafe_code, reason = "ioctl, which takes any argument")]

use crate::port::card::Memory;
use libc::Ioctl;
use std::ffi::CString;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// All requests are `_IO(';', 100 + number)`: no size, no direction.
const BASE: Ioctl = 0x3b64;

const GET_API_VERSION: Ioctl = BASE;
const CHECK_EXTENSION: Ioctl = BASE + 1;
const SET_IOMMU: Ioctl = BASE + 2;
const GROUP_GET_STATUS: Ioctl = BASE + 3;
const GROUP_SET_CONTAINER: Ioctl = BASE + 4;
const GROUP_GET_DEVICE_FD: Ioctl = BASE + 6;
const DEVICE_GET_INFO: Ioctl = BASE + 7;
const DEVICE_GET_REGION_INFO: Ioctl = BASE + 8;
const DEVICE_GET_IRQ_INFO: Ioctl = BASE + 9;
const DEVICE_SET_IRQS: Ioctl = BASE + 10;
const DEVICE_RESET: Ioctl = BASE + 11;
const IOMMU_GET_INFO: Ioctl = BASE + 12;
const IOMMU_MAP_DMA: Ioctl = BASE + 13;
const IOMMU_UNMAP_DMA: Ioctl = BASE + 14;
const DEVICE_BIND_IOMMUFD: Ioctl = BASE + 18;
const DEVICE_ATTACH_IOMMUFD_PT: Ioctl = BASE + 19;
/// Of linux/iommufd.h, whose requests follow.
const IOAS_ALLOC: Ioctl = BASE + 29;
const IOAS_IOVA_RANGES: Ioctl = BASE + 32;
const IOAS_MAP: Ioctl = BASE + 33;
const IOAS_UNMAP: Ioctl = BASE + 34;

const API_VERSION: i32 = 0;
const TYPE1V2_IOMMU: usize = 3;
/// `VFIO_GROUP_FLAGS_VIABLE`: VFIO has all functions of the group.
const VIABLE: u32 = 1;
/// `VFIO_DEVICE_FLAGS_RESET`.
pub(super) const CAN_RESET: u32 = 1;
/// `VFIO_REGION_INFO_FLAG_MMAP`.
pub(super) const MAPPABLE: u32 = 4;
/// `VFIO_REGION_INFO_CAP_SPARSE_MMAP` and `VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE`.
const SPARSE_MMAP: u16 = 1;
const IOVA_RANGE: u16 = 1;
/// The flag that a structure has capabilities behind it.
const DEVICE_CAPS: u32 = 8;
const IOMMU_CAPS: u32 = 2;
/// `VFIO_DMA_MAP_FLAG_READ` and `_WRITE`: what the function may do.
const MAP_READ_WRITE: u32 = 1 | 2;
/// `IOMMU_IOAS_MAP_FIXED_IOVA`, `_WRITEABLE` and `_READABLE`: the same, at a chosen address.
const SPACE_MAP_READ_WRITE: u32 = 1 | 2 | 4;

/// The configuration space, behind the six regions and the ROM.
pub(super) const CONFIG_REGION: u32 = 7;
/// Interrupts beside those of the function: it reports an error that it cannot correct; the kernel
/// wants it back.
pub(super) const ERROR_IRQ: u32 = 3;
pub(super) const REQUEST_IRQ: u32 = 4;

/// What is to be done with an interrupt (`VFIO_IRQ_SET_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Irq<'a> {
    /// It raises these eventfds.
    Connect(&'a [RawFd]),
    /// All of a kind are turned off.
    Off,
    /// The first one can come again.
    Unmask,
}

/// A region of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RegionInfo {
    /// [`MAPPABLE`] and others.
    pub(super) flags: u32,
    pub(super) bytes: u64,
    /// Where the file of the device has it.
    pub(super) offset: u64,
    /// The parts that can be mapped, from where on and how many bytes; `None` for all.
    pub(super) areas: Option<Vec<(u64, u64)>>,
}

fn check(result: libc::c_int) -> io::Result<i32> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// A call whose argument is a number.
fn by_value(fd: BorrowedFd<'_>, request: Ioctl, value: usize) -> io::Result<i32> {
    // SAFETY: the requests of this file with a number touch no memory of this process; a wrong
    // descriptor is an error.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, value) })
}

/// A call whose argument is a structure.
///
/// # Safety
///
/// The kernel accesses no memory but `bytes` for this request: they are as long as their first
/// word says, or as the request's structure, and each address in them is of memory that a function
/// may access from now on.
unsafe fn by_bytes(fd: BorrowedFd<'_>, request: Ioctl, bytes: &mut [u8]) -> io::Result<i32> {
    // SAFETY: promised by the caller.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, bytes.as_mut_ptr()) })
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*bytes))
}

/// Asks for a structure of `bytes` bytes at least, whose third word is `index`. It comes as long as
/// the kernel wants it to be.
fn ask(fd: BorrowedFd<'_>, request: Ioctl, bytes: usize, index: u32) -> io::Result<Vec<u8>> {
    /// Of a region with a part for each page, and of an IOMMU's ranges.
    const MOST: usize = 1 << 20;
    let mut answer = vec![0; bytes];
    loop {
        let length = answer.len();
        put(&mut answer, 0, length as u32);
        put(&mut answer, 4, 0);
        put(&mut answer, 8, index);
        // SAFETY: the first word has the length, and these requests have no addresses.
        unsafe { by_bytes(fd, request, &mut answer) }?;
        match u32_at(&answer, 0).unwrap_or(0) as usize {
            longer if longer > length && longer <= MOST => answer = vec![0; longer],
            _ => return Ok(answer),
        }
    }
}

/// What is behind the header of a capability, in the list of `answer` that begins at `first`.
fn capability(answer: &[u8], first: u32, id: u16) -> Option<&[u8]> {
    const HEADER_BYTES: usize = 8;
    let mut at = first;
    loop {
        let header = answer.get(at as usize..)?;
        let found = u16::from_ne_bytes(*header.first_chunk()?);
        if at != 0 && found == id {
            return header.get(HEADER_BYTES..);
        }
        // The list ends with 0; one that goes back would have no end.
        at = u32_at(header, 4).filter(|next| *next > at)?;
    }
}

/// Pairs of numbers behind their count and a padding.
fn pairs(capability: &[u8]) -> Vec<(u64, u64)> {
    const HEADER_BYTES: usize = 8;
    let count = u32_at(capability, 0).unwrap_or(0) as usize;
    let pair = |index: usize| {
        let at = HEADER_BYTES + 16 * index;
        Some((u64_at(capability, at)?, u64_at(capability, at + 8)?))
    };
    (0..count).map_while(pair).collect()
}

/// Whether the container is one of the known interface, with an IOMMU of the known type.
pub(super) fn is_known(container: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(by_value(container, GET_API_VERSION, 0)? == API_VERSION
        && by_value(container, CHECK_EXTENSION, TYPE1V2_IOMMU)? > 0)
}

/// Whether VFIO has all functions of a group.
pub(super) fn is_viable(group: BorrowedFd<'_>) -> io::Result<bool> {
    let status = ask(group, GROUP_GET_STATUS, 12, 0)?;
    Ok(u32_at(&status, 4).is_some_and(|flags| flags & VIABLE != 0))
}

/// Puts a group into a container.
pub(super) fn join(group: BorrowedFd<'_>, container: BorrowedFd<'_>) -> io::Result<()> {
    let mut fd = container.as_raw_fd().to_ne_bytes();
    // SAFETY: the request's structure is one descriptor.
    unsafe { by_bytes(group, GROUP_SET_CONTAINER, &mut fd) }.map(|_| ())
}

/// Turns the IOMMU of a container on, which has its first group.
pub(super) fn guard(container: BorrowedFd<'_>) -> io::Result<()> {
    by_value(container, SET_IOMMU, TYPE1V2_IOMMU).map(|_| ())
}

/// Opens the function with this address.
pub(super) fn device(group: BorrowedFd<'_>, address: &str) -> io::Result<OwnedFd> {
    let address = CString::new(address).map_err(io::Error::other)?;
    let mut address = address.into_bytes_with_nul();
    // SAFETY: the request reads a string up to its end.
    let fd = unsafe { by_bytes(group, GROUP_GET_DEVICE_FD, &mut address) }?;
    // SAFETY: the kernel has just made it for us, closed on exec, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The flags of a function, such as [`CAN_RESET`].
pub(super) fn flags(device: BorrowedFd<'_>) -> io::Result<u32> {
    let info = ask(device, DEVICE_GET_INFO, 16, 0)?;
    Ok(u32_at(&info, 4).unwrap_or(0))
}

/// A region; one that the function does not have is empty.
pub(super) fn region(device: BorrowedFd<'_>, index: u32) -> io::Result<RegionInfo> {
    let info = ask(device, DEVICE_GET_REGION_INFO, 32, index)?;
    parse_region(&info).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse_region(info: &[u8]) -> Option<RegionInfo> {
    let flags = u32_at(info, 4)?;
    let first = u32_at(info, 12).filter(|first| flags & DEVICE_CAPS != 0 && *first != 0);
    let sparse = first.and_then(|first| capability(info, first, SPARSE_MMAP));
    Some(RegionInfo {
        flags,
        bytes: u64_at(info, 16)?,
        offset: u64_at(info, 24)?,
        areas: sparse.map(pairs),
    })
}

/// How many interrupts of a kind the function has.
pub(super) fn interrupts(device: BorrowedFd<'_>, index: u32) -> io::Result<usize> {
    let info = ask(device, DEVICE_GET_IRQ_INFO, 16, index)?;
    Ok(u32_at(&info, 12).unwrap_or(0) as usize)
}

/// Changes the interrupts of a kind.
pub(super) fn set_interrupts(device: BorrowedFd<'_>, index: u32, irq: Irq<'_>) -> io::Result<()> {
    // SAFETY: the first word has the length, and the structure has no addresses.
    match unsafe { by_bytes(device, DEVICE_SET_IRQS, &mut irq_set(index, irq)) }? {
        0 => Ok(()),
        // None is connected then.
        free => Err(io::Error::other(format!(
            "this machine has {free} interrupts free for the function: use fewer queues, \
             or irq=msi"
        ))),
    }
}

fn irq_set(index: u32, irq: Irq<'_>) -> Vec<u8> {
    const NO_DATA: u32 = 1;
    const EVENTFDS: u32 = 4;
    const UNMASK: u32 = 0x10;
    const TRIGGER: u32 = 0x20;
    let (flags, count, fds): (_, _, &[RawFd]) = match irq {
        Irq::Connect(fds) => (EVENTFDS | TRIGGER, fds.len(), fds),
        Irq::Off => (NO_DATA | TRIGGER, 0, &[]),
        Irq::Unmask => (NO_DATA | UNMASK, 1, &[]),
    };
    let bytes = 20 + 4 * fds.len() as u32;
    let head = [bytes, flags, index, 0, count as u32];
    let head = head.into_iter().flat_map(u32::to_ne_bytes);
    head.chain(fds.iter().flat_map(|fd| fd.to_ne_bytes()))
        .collect()
}

/// Resets a function that [can be](CAN_RESET).
pub(super) fn reset(device: BorrowedFd<'_>) -> io::Result<()> {
    by_value(device, DEVICE_RESET, 0).map(|_| ())
}

/// The addresses that the IOMMU of a container leaves free.
pub(super) fn addresses(container: BorrowedFd<'_>) -> io::Result<Vec<RangeInclusive<u64>>> {
    let info = ask(container, IOMMU_GET_INFO, 24, 0)?;
    Ok(parse_addresses(&info))
}

fn parse_addresses(info: &[u8]) -> Vec<RangeInclusive<u64>> {
    /// A kernel that does not say (before Linux 5.4): below the addresses of MSI messages of x86.
    const ANY: RangeInclusive<u64> = 0..=0xfedf_ffff;
    let has = u32_at(info, 4).is_some_and(|flags| flags & IOMMU_CAPS != 0);
    let first = u32_at(info, 16).filter(|first| has && *first != 0);
    match first.and_then(|first| capability(info, first, IOVA_RANGE)) {
        Some(ranges) => {
            let ranges = pairs(ranges).into_iter();
            ranges.map(|(first, last)| first..=last).collect()
        }
        None => vec![ANY],
    }
}

/// Lets the functions of a container read and write memory, at an address of its own.
pub(super) fn map(container: BorrowedFd<'_>, memory: &Memory<'_>, address: u64) -> io::Result<()> {
    let mut map = dma_map(memory.start().addr().get(), address, memory.bytes());
    // SAFETY: the first word has the length. The memory is there to be given to a card (`Memory`),
    // and is mapped: the kernel keeps its pages until they are unmapped, or the container is
    // closed.
    unsafe { by_bytes(container, IOMMU_MAP_DMA, &mut map) }?;
    Ok(())
}

fn dma_map(memory: usize, address: u64, bytes: usize) -> [u8; 32] {
    let mut map = [0; 32];
    put(&mut map, 0, 32);
    put(&mut map, 4, MAP_READ_WRITE);
    for (index, value) in [memory as u64, address, bytes as u64]
        .into_iter()
        .enumerate()
    {
        map[8 + 8 * index..][..8].copy_from_slice(&value.to_ne_bytes());
    }
    map
}

/// Takes memory back that was [mapped](map): the whole of a mapping.
pub(super) fn unmap(container: BorrowedFd<'_>, address: u64, bytes: usize) -> io::Result<()> {
    // SAFETY: the first word has the length. The addresses are those of functions: the kernel
    // accesses no memory of this process.
    unsafe { by_bytes(container, IOMMU_UNMAP_DMA, &mut dma_unmap(address, bytes)) }?;
    Ok(())
}

fn dma_unmap(address: u64, bytes: usize) -> [u8; 24] {
    let mut unmap = [0; 24];
    put(&mut unmap, 0, 24);
    unmap[8..16].copy_from_slice(&address.to_ne_bytes());
    unmap[16..].copy_from_slice(&(bytes as u64).to_ne_bytes());
    unmap
}

/// A new address space of an iommufd; it has no function yet. Returns its number.
pub(super) fn space(iommufd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut alloc = words(&[12, 0, 0]);
    // SAFETY: the first word has the length, and the structure has no addresses.
    unsafe { by_bytes(iommufd, IOAS_ALLOC, &mut alloc) }?;
    u32_at(&alloc, 8).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Takes a function, whose own file is open, for the user of an iommufd.
pub(super) fn bind(device: BorrowedFd<'_>, iommufd: BorrowedFd<'_>) -> io::Result<()> {
    let mut bind = words(&[16, 0, iommufd.as_raw_fd() as u32, 0]);
    // SAFETY: the first word has the length, and the structure has no addresses.
    unsafe { by_bytes(device, DEVICE_BIND_IOMMUFD, &mut bind) }.map(|_| ())
}

/// Limits a function that is [bound](bind) to an address space.
pub(super) fn attach(device: BorrowedFd<'_>, space: u32) -> io::Result<()> {
    let mut attach = words(&[12, 0, space]);
    // SAFETY: the first word has the length, and the structure has no addresses.
    unsafe { by_bytes(device, DEVICE_ATTACH_IOMMUFD_PT, &mut attach) }.map(|_| ())
}

/// The addresses that the IOMMU of a space leaves free, which has its first function.
pub(super) fn addresses_of_space(
    iommufd: BorrowedFd<'_>,
    space: u32,
) -> io::Result<Vec<RangeInclusive<u64>>> {
    /// Of a machine with many reserved ranges.
    const MOST: usize = 1 << 16;
    let mut pairs = vec![[0_u64; 2]; 16];
    loop {
        let mut ask = words(&[32, space, pairs.len() as u32, 0]);
        let to = pairs.as_mut_ptr().expose_provenance() as u64;
        ask.extend([to, 0].into_iter().flat_map(u64::to_ne_bytes));
        // SAFETY: the first word has the length. The kernel writes no more pairs than it is told,
        // to memory of this call alone.
        let asked = unsafe { by_bytes(iommufd, IOAS_IOVA_RANGES, &mut ask) };
        let has = u32_at(&ask, 8).unwrap_or(0) as usize;
        match asked {
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) && has <= MOST => {
                pairs.resize(has.max(pairs.len() + 1), [0; 2]);
            }
            asked => {
                asked?;
                let given = pairs.iter().take(has);
                return Ok(given.map(|[first, last]| *first..=*last).collect());
            }
        }
    }
}

/// Lets the functions of a space read and write memory, at an address of theirs.
pub(super) fn map_in_space(
    iommufd: BorrowedFd<'_>,
    space: u32,
    memory: &Memory<'_>,
    address: u64,
) -> io::Result<()> {
    let mut map = space_map(space, memory.start().addr().get(), address, memory.bytes());
    // SAFETY: the first word has the length. The memory is there to be given to a card (`Memory`),
    // and is mapped: the kernel keeps its pages until they are unmapped, or the iommufd is closed.
    unsafe { by_bytes(iommufd, IOAS_MAP, &mut map) }.map(|_| ())
}

fn space_map(space: u32, memory: usize, address: u64, bytes: usize) -> Vec<u8> {
    let mut map = words(&[40, SPACE_MAP_READ_WRITE, space, 0]);
    let numbers = [memory as u64, bytes as u64, address];
    map.extend(numbers.into_iter().flat_map(u64::to_ne_bytes));
    map
}

/// Takes memory back that was [mapped](map_in_space): the whole of a mapping.
pub(super) fn unmap_in_space(
    iommufd: BorrowedFd<'_>,
    space: u32,
    address: u64,
    bytes: usize,
) -> io::Result<()> {
    let mut unmap = space_unmap(space, address, bytes);
    // SAFETY: the first word has the length. The addresses are those of functions: the kernel
    // accesses no memory of this process.
    unsafe { by_bytes(iommufd, IOAS_UNMAP, &mut unmap) }.map(|_| ())
}

fn space_unmap(space: u32, address: u64, bytes: usize) -> Vec<u8> {
    let mut unmap = words(&[24, space]);
    let numbers = [address, bytes as u64];
    unmap.extend(numbers.into_iter().flat_map(u64::to_ne_bytes));
    unmap
}

/// Words as the kernel reads and writes them.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both halves of numbers of 64 bits.
    fn long(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|one| one.to_ne_bytes()).collect()
    }

    /// The header of a capability.
    fn header(id: u16, next: u32) -> Vec<u8> {
        let ids = [id.to_ne_bytes(), 1_u16.to_ne_bytes()].concat();
        [ids, next.to_ne_bytes().to_vec()].concat()
    }

    /// From linux/vfio.h: 32 bytes, and capabilities behind them.
    #[test]
    fn a_region_has_the_parts_that_can_be_mapped() {
        const MSIX_MAPPABLE: u16 = 3;
        let info = |flags: u32, first: u32| {
            let head = words(&[96, flags, 3, first]);
            let place = long(&[0x4000, 3 << 40]);
            let other = header(MSIX_MAPPABLE, 40);
            let areas = [header(SPARSE_MMAP, 0), words(&[2, 0])].concat();
            let areas = [areas, long(&[0, 0x1000, 0x3000, 0x1000])].concat();
            [head, place, other, areas].concat()
        };
        let whole = RegionInfo {
            flags: MAPPABLE | 3,
            bytes: 0x4000,
            offset: 3 << 40,
            areas: None,
        };
        assert_eq!(parse_region(&info(7, 32)), Some(whole.clone()));
        let in_parts = RegionInfo {
            flags: 15,
            areas: Some(vec![(0, 0x1000), (0x3000, 0x1000)]),
            ..whole.clone()
        };
        assert_eq!(parse_region(&info(15, 32)), Some(in_parts));
        // The kernel had no room for them.
        let none = RegionInfo { flags: 15, ..whole };
        assert_eq!(parse_region(&info(15, 0)), Some(none));
        assert_eq!(parse_region(&info(15, 32)[..31]), None);
    }

    #[test]
    fn a_list_of_capabilities_that_goes_back_ends() {
        let list = [header(9, 8), header(9, 8)].concat();
        assert_eq!(capability(&list, 8, 1), None);
        assert_eq!(capability(&list, 400, 1), None);
        let list = [vec![0; 8], header(9, 16), header(1, 0), vec![5]].concat();
        assert_eq!(capability(&list, 8, 1), Some(&[5][..]));
        // A count beyond what is there.
        assert_eq!(
            pairs(&[words(&[9, 0]), long(&[1, 2, 3])].concat()),
            [(1, 2)]
        );
    }

    #[test]
    fn the_addresses_of_an_iommu_are_inclusive() {
        let info = |flags: u32| {
            let head = [words(&[64, flags]), long(&[0x1000]), words(&[24, 0])].concat();
            let ranges = [header(IOVA_RANGE, 0), words(&[2, 0])].concat();
            let numbers = long(&[0, 0xfedf_ffff, 0xfef0_0000, 0x7f_ffff_ffff]);
            [head, ranges, numbers].concat()
        };
        let known = parse_addresses(&info(3));
        assert_eq!(known, [0..=0xfedf_ffff, 0xfef0_0000..=0x7f_ffff_ffff]);
        let old = parse_addresses(&info(1));
        assert_eq!(old, [0..=0xfedf_ffff]);
    }

    /// From linux/vfio.h: five words and the descriptors; two words and three of 64 bits.
    #[test]
    fn requests_are_laid_out_as_the_kernel_reads_them() {
        let connect = irq_set(2, Irq::Connect(&[5, 6]));
        assert_eq!(connect, words(&[28, 0x24, 2, 0, 2, 5, 6]));
        assert_eq!(irq_set(1, Irq::Off), words(&[20, 0x21, 1, 0, 0]));
        assert_eq!(irq_set(0, Irq::Unmask), words(&[20, 0x11, 0, 0, 1]));
        let map = dma_map(0x7f00_0000_1000, 0x20_0000, 0x3000);
        let numbers = long(&[0x7f00_0000_1000, 0x20_0000, 0x3000]);
        assert_eq!(map[..], [words(&[32, 3]), numbers].concat());
        let unmap = dma_unmap(0x20_0000, 0x3000);
        let numbers = long(&[0x20_0000, 0x3000]);
        assert_eq!(unmap[..], [words(&[24, 0]), numbers].concat());
        let numbers = (GET_API_VERSION, IOMMU_MAP_DMA, IOMMU_UNMAP_DMA);
        assert_eq!(numbers, (0x3b64, 0x3b71, 0x3b72));
    }

    /// From linux/iommufd.h.
    #[test]
    fn requests_of_iommufd_are_laid_out_as_the_kernel_reads_them() {
        let map = space_map(3, 0x7f00_0000_1000, 0x20_0000, 0x3000);
        let numbers = long(&[0x7f00_0000_1000, 0x3000, 0x20_0000]);
        assert_eq!(map, [words(&[40, 7, 3, 0]), numbers].concat());
        let unmap = space_unmap(3, 0x20_0000, 0x3000);
        let numbers = long(&[0x20_0000, 0x3000]);
        assert_eq!(unmap, [words(&[24, 3]), numbers].concat());
        let numbers = (DEVICE_BIND_IOMMUFD, DEVICE_ATTACH_IOMMUFD_PT);
        assert_eq!(numbers, (0x3b76, 0x3b77));
        let numbers = (IOAS_ALLOC, IOAS_IOVA_RANGES, IOAS_MAP, IOAS_UNMAP);
        assert_eq!(numbers, (0x3b81, 0x3b84, 0x3b85, 0x3b86));
    }

    /// A file of another kind has none of the requests.
    #[test]
    fn what_is_not_of_vfio_is_an_error() {
        use std::os::fd::AsFd;
        let file = std::fs::File::open("/dev/null").expect("it is there");
        let no = |error: io::Error| error.raw_os_error();
        for error in [
            is_known(file.as_fd()).map_err(no).err(),
            is_viable(file.as_fd()).map_err(no).err(),
            region(file.as_fd(), 0).map_err(no).err(),
            set_interrupts(file.as_fd(), 0, Irq::Off).map_err(no).err(),
            space(file.as_fd()).map_err(no).err(),
            bind(file.as_fd(), file.as_fd()).map_err(no).err(),
            attach(file.as_fd(), 1).map_err(no).err(),
            addresses_of_space(file.as_fd(), 1).map_err(no).err(),
            unmap_in_space(file.as_fd(), 1, 0, 1).map_err(no).err(),
        ] {
            assert_eq!(error, Some(Some(libc::ENOTTY)));
        }
    }
}
