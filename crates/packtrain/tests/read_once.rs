//! Payload that is copied and summed is read once, in one pass: the test observes every load of it.
//!
//! The payload lies on unreadable pages. A load from there raises SIGSEGV. Its handler notes the
//! address, makes the pages readable, and sets the trap flag, so the processor stops after that one
//! instruction. The handler of SIGTRAP then makes the pages unreadable again. This works on x86-64
//! only.

#![cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
#![allow(unsafe_code, reason = "signal handlers, and pages that cannot be read")]

use packtrain_offload::checksum::{Level, copy_and_sum_with, sum};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{Gso, GsoKind, LinkType};
use packtrain_offload::segment::Segmenter;
use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::num::NonZeroU16;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const PAGES_BYTES: usize = 68 << 10;
const TRAP_FLAG: i64 = 0x100;
/// The widest vector in bytes, and the number of vectors that a loop takes at a time.
const VECTOR: usize = 64;
const ROW: usize = 4 * VECTOR;
/// The bytes that portable code copies before it sums them, from the first-level cache.
const SCALAR_BYTES: usize = 4096;

/// Where the pages are, and the addresses of loads from them.
static PAGES: AtomicUsize = AtomicUsize::new(0);
static LOADS: AtomicUsize = AtomicUsize::new(0);
static ADDRESSES: [AtomicUsize; 1 << 17] = [const { AtomicUsize::new(0) }; 1 << 17];
/// One test at a time: signal handlers belong to the process.
static TURN: Mutex<()> = Mutex::new(());

fn protect(pages: usize, protection: c_int) {
    // SAFETY: the pages are the test's own; the handler stops any thread that reads them meanwhile.
    let set = unsafe { libc::mprotect(pages as *mut c_void, PAGES_BYTES, protection) };
    if set != 0 {
        // This also runs in a handler, where only async-signal-safe calls are allowed.
        std::process::abort();
    }
}

extern "C" fn on_load(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let pages = PAGES.load(Ordering::Relaxed);
    // SAFETY: the kernel gives the handler of SIGSEGV an address.
    let address = unsafe { (*info).si_addr() }.addr();
    let slot = ADDRESSES.get(LOADS.load(Ordering::Relaxed));
    let (true, Some(slot)) = ((pages..pages + PAGES_BYTES).contains(&address), slot) else {
        // A fault outside of the test: the load is repeated, and ends the process.
        // SAFETY: takes no memory.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        return;
    };
    slot.store(address, Ordering::Relaxed);
    LOADS.fetch_add(1, Ordering::Relaxed);
    protect(pages, libc::PROT_READ);
    // SAFETY: the registers of the thread that stopped, which the kernel restores from here.
    unsafe {
        let context = context.cast::<libc::ucontext_t>();
        (*context).uc_mcontext.gregs[libc::REG_EFL as usize] |= TRAP_FLAG;
    }
}

extern "C" fn on_step(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    protect(PAGES.load(Ordering::Relaxed), libc::PROT_NONE);
    // SAFETY: as above.
    unsafe {
        let context = context.cast::<libc::ucontext_t>();
        (*context).uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG;
    }
}

/// Pages whose loads are observed.
struct Watched {
    pages: *mut u8,
    _turn: MutexGuard<'static, ()>,
}

impl Watched {
    fn new() -> Self {
        type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (read, map) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: fresh memory of its own.
        let pages = unsafe { libc::mmap(ptr::null_mut(), PAGES_BYTES, read, map, -1, 0) };
        assert_ne!(pages, libc::MAP_FAILED);
        PAGES.store(pages.addr(), Ordering::Relaxed);
        for (signal, handler) in [
            (libc::SIGSEGV, on_load as Handler),
            (libc::SIGTRAP, on_step as Handler),
        ] {
            // SAFETY: integers, and a handler that makes system calls only.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                assert_eq!(
                    libc::sigaction(signal, &raw const action, ptr::null_mut()),
                    0
                );
            }
        }
        let mut watched = Self {
            pages: pages.cast(),
            _turn: turn,
        };
        for (i, byte) in watched.bytes_mut().iter_mut().enumerate() {
            *byte = (i * 7 + i / 251) as u8;
        }
        watched
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped until `self` is dropped, and borrowed with it.
        unsafe { std::slice::from_raw_parts_mut(self.pages, PAGES_BYTES) }
    }

    /// Offsets of the loads that `act` makes, in the order in which it makes them.
    fn loads(&self, act: impl FnOnce(&[u8])) -> Vec<usize> {
        // SAFETY: as above; no other code changes them.
        let bytes = unsafe { std::slice::from_raw_parts(self.pages, PAGES_BYTES) };
        LOADS.store(0, Ordering::Relaxed);
        protect(self.pages.addr(), libc::PROT_NONE);
        act(bytes);
        protect(self.pages.addr(), libc::PROT_READ | libc::PROT_WRITE);
        let count = LOADS.load(Ordering::Relaxed);
        ADDRESSES[..count]
            .iter()
            .map(|address| address.load(Ordering::Relaxed) - self.pages.addr())
            .collect()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: no borrow of them is left.
        unsafe { libc::munmap(self.pages.cast(), PAGES_BYTES) };
    }
}

/// The longest distance that the loads of a piece go back, and the number of repeated loads. A
/// vector at either end is excluded: it is loaded again where that is faster than a shorter load.
fn again(loads: &[usize], piece: std::ops::Range<usize>) -> (usize, usize) {
    let inner = piece.start + VECTOR..piece.end.saturating_sub(VECTOR);
    let loads: Vec<usize> = loads
        .iter()
        .copied()
        .filter(|at| inner.contains(at))
        .collect();
    assert!(
        (loads.len() + 1) * VECTOR >= inner.len(),
        "{} loads of {} bytes are not all of them",
        loads.len(),
        inner.len()
    );
    let (mut highest, mut back, mut seen) = (0, 0, HashSet::new());
    let mut repeated = 0;
    for at in loads {
        back = back.max(highest - at.min(highest));
        highest = highest.max(at);
        repeated += usize::from(!seen.insert(at));
    }
    (back, repeated)
}

/// Payload of segments, and of jumbo frames.
const LENGTHS: [usize; 4] = [200, 536, 1448, 8948];

#[test]
fn a_second_read_is_detected() {
    let watched = Watched::new();
    for bytes in LENGTHS {
        let loads = watched.loads(|pages| {
            let piece = &pages[..bytes];
            let mut copy = vec![0; bytes];
            copy.copy_from_slice(piece);
            assert_eq!(sum(piece).fold(), sum(&copy).fold());
        });
        let (back, repeated) = again(&loads, 0..bytes);
        assert!(back >= ROW || repeated > 0, "{bytes} bytes: back by {back}");
    }
}

#[test]
fn copying_and_summing_reads_once() {
    let watched = Watched::new();
    let mut copy = vec![0; PAGES_BYTES];
    for level in Level::available() {
        for bytes in LENGTHS {
            // Where a piece begins decides how loops begin.
            for (from, to) in [(0, 0), (1, 0), (2, 5), (33, 1), (7, 31), (64, 63)] {
                let piece = from..from + bytes;
                let copy = &mut copy[to..to + bytes];
                let mut copied = None;
                let loads = watched.loads(|pages| {
                    copied = copy_and_sum_with(level, copy, &pages[piece.clone()]);
                });
                let copied = copied.expect("an available level");
                assert_eq!(copied.fold(), sum(copy).fold(), "{level}");
                let (back, repeated) = again(&loads, piece);
                let what = format!("{level}, {bytes} bytes from {from} to {to}: back by {back}");
                if level == Level::Scalar {
                    assert!(back <= SCALAR_BYTES, "{what}");
                } else {
                    assert!(back < ROW && repeated == 0, "{what}, {repeated} again");
                }
            }
        }
    }
}

#[test]
fn segments_are_cut_reading_payload_once() {
    const HEADERS: usize = 20 + 20;
    const BYTES: usize = 65_535;
    let mut watched = Watched::new();
    let packet = watched.bytes_mut();
    packet[..HEADERS].fill(0);
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(BYTES as u16).to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 6]);
    packet[12..20].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
    packet[32..34].copy_from_slice(&[0x50, 0x10]);
    let layout = Layout::parse(LinkType::RawIp, packet, BYTES as u32).expect("a packet");
    for size in [536, 1448, 8948] {
        let gso = Gso::new(GsoKind::TcpV4, NonZeroU16::new(size).expect("a size"));
        let packet = &watched.bytes_mut()[..BYTES];
        let segmenter = Segmenter::new(packet, &layout, gso, BYTES as u32).expect("it can be cut");
        for index in 0..segmenter.segments() {
            let range = segmenter.payload(index);
            let range = range.start as usize..range.end as usize;
            let mut out = vec![0; segmenter.wire_bytes(index)];
            let loads = watched.loads(|pages| {
                let written = segmenter.write_segment(index, &pages[..BYTES], &mut out);
                assert_eq!(written, Ok(out.len()));
            });
            let read: Vec<_> = loads.iter().filter(|at| **at >= HEADERS).collect();
            assert!(
                read.iter().all(|at| range.contains(at)),
                "loads of the segment alone"
            );
            let (back, repeated) = again(&loads, range.clone());
            let most = if Level::selected() == Level::Scalar {
                SCALAR_BYTES
            } else {
                assert_eq!(repeated, 0, "segment {index} of {size} bytes");
                ROW - 1
            };
            assert!(
                back <= most,
                "segment {index} of {size} bytes: back by {back}"
            );
            assert_eq!(out[HEADERS..], watched.bytes_mut()[range]);
        }
    }
}
