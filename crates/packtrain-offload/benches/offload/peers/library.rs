//! C peers, called.
#![allow(unsafe_code, reason = "C functions are called")]

use super::loader::{flags, load, shim};
use crate::loops::pieces::Pieces;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::path::{Path, PathBuf};

/// `shim/NAME.c`.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("benches/offload/shim/{name}.c"))
}

// SAFETY: a caller gives a block with `count` pieces of `bytes` bytes, `stride` apart.
type SumFn = unsafe extern "C" fn(*const u8, usize, usize, usize, usize) -> u64;
// SAFETY: and room for one piece in front of it.
type CopyFn = unsafe extern "C" fn(*mut u8, *const u8, usize, usize, usize, usize) -> u64;
// SAFETY: a caller gives an array and its length.
type SortFn = unsafe extern "C" fn(*mut Item, usize);

/// `struct item` of the shim.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Item {
    /// What is sorted by first.
    pub key: u64,
    /// The caller's.
    pub index: u64,
}

shim! {
    /// `shim/plain.c`.
    PlainShim {
        sum_adc: b"pt_sum_adc\0", fn(*const u8, usize, usize, usize, usize) -> u64;
        sum_wide: b"pt_sum_wide\0", fn(*const u8, usize, usize, usize, usize) -> u64;
        read: b"pt_read\0", fn(*const u8, usize, usize, usize, usize) -> u64;
        copy: b"pt_copy\0", fn(*mut u8, *const u8, usize, usize, usize, usize) -> u64;
        copy_then_sum: b"pt_copy_then_sum\0",
            fn(*mut u8, *const u8, usize, usize, usize, usize) -> u64;
        copy_sum_once: b"pt_copy_sum_once\0",
            fn(*mut u8, *const u8, usize, usize, usize, usize) -> u64;
        bits: b"pt_bits\0", fn(*mut Item, usize);
    }
}

fn sum(function: SumFn, pieces: &Pieces) -> u64 {
    let block = pieces.block();
    assert!(pieces.bytes <= pieces.stride && block.len() >= pieces.stride * pieces.count);
    // SAFETY: the function reads `bytes` bytes at each of `count` multiples of `stride`, which the
    // line above has seen to be in the block.
    unsafe {
        function(
            block.as_ptr(),
            pieces.stride,
            pieces.bytes,
            pieces.count,
            pieces.passes,
        )
    }
}

fn copy(function: CopyFn, to: &mut [u8], pieces: &Pieces) -> u64 {
    let block = pieces.block();
    assert!(pieces.bytes <= pieces.stride && block.len() >= pieces.stride * pieces.count);
    assert!(to.len() >= pieces.bytes);
    // SAFETY: as for `sum`; and it writes the `bytes` first bytes of `to`, which are there.
    unsafe {
        function(
            to.as_mut_ptr(),
            block.as_ptr(),
            pieces.stride,
            pieces.bytes,
            pieces.count,
            pieces.passes,
        )
    }
}

fn sort(function: SortFn, items: &mut [Item]) {
    // SAFETY: the function reads and writes the items of the slice, and `Item` is laid out as its
    // `struct item`.
    unsafe { function(items.as_mut_ptr(), items.len()) }
}

impl PlainShim {
    /// Compiles and loads it.
    pub fn load(directory: &Path) -> Result<Self, String> {
        Self::bind(load(&source("plain"), directory, &[])?)
    }

    /// 64-bit additions with carry.
    pub fn sum_adc(&self, pieces: &Pieces) -> u64 {
        sum(self.sum_adc, pieces)
    }

    /// AVX-512, or what the compiler makes of a plain loop.
    pub fn sum_wide(&self, pieces: &Pieces) -> u64 {
        sum(self.sum_wide, pieces)
    }

    /// Reads, and does next to nothing with it.
    pub fn read(&self, pieces: &Pieces) -> u64 {
        sum(self.read, pieces)
    }

    /// `memcpy`.
    pub fn copy(&self, to: &mut [u8], pieces: &Pieces) -> u64 {
        copy(self.copy, to, pieces)
    }

    /// `memcpy`, then [`sum_wide`](Self::sum_wide).
    pub fn copy_then_sum(&self, to: &mut [u8], pieces: &Pieces) -> u64 {
        copy(self.copy_then_sum, to, pieces)
    }

    /// Both at once.
    pub fn copy_sum_once(&self, to: &mut [u8], pieces: &Pieces) -> u64 {
        copy(self.copy_sum_once, to, pieces)
    }

    /// Partitions by bits of the key.
    pub fn bits(&self, items: &mut [Item]) {
        sort(self.bits, items);
    }
}

shim! {
    /// `shim/dpdk.c`. DPDK is one for a process, and so is what the shim holds.
    DpdkShim {
        version: b"pt_version\0", fn() -> *const c_char;
        eal: b"pt_eal\0", fn(c_int, c_int) -> c_int;
        raw_cksum: b"pt_raw_cksum\0", fn(*const u8, usize, usize, usize, usize) -> u64;
        gro_open: b"pt_gro_open\0", fn(c_uint, *const u8, usize, c_uint, c_uint) -> c_int;
        gro_load: b"pt_gro_load\0", fn(*const u8) -> c_int;
        gro_receive: b"pt_gro_receive\0", fn(c_uint, c_int) -> c_int;
        gro_flush: b"pt_gro_flush\0", fn();
        gro_collect: b"pt_gro_collect\0", fn() -> c_uint;
        gro_close: b"pt_gro_close\0", fn();
        gso_open: b"pt_gso_open\0", fn() -> c_int;
        gso_load: b"pt_gso_load\0", fn(c_uint, *const u8, usize) -> c_int;
        gso_cut: b"pt_gso_cut\0", fn(c_uint, c_uint, c_int) -> c_int;
        gso_clear: b"pt_gso_clear\0", fn();
        gso_close: b"pt_gso_close\0", fn();
    }
}

/// Bytes that [`DpdkShim::gro_load`] reads.
pub const GRO_HEADER_BYTES: usize = 14 + 20 + 32;

/// The longest payload that fits a buffer of the shim behind the headers.
const GRO_PAYLOAD_MAX: usize = 2048 - GRO_HEADER_BYTES;

/// The longest packet for [`DpdkShim::gso_load`].
const GSO_BYTES_MAX: usize = 65_520;

// SAFETY of the calls below: pointers are to slices of the length that is passed or asserted, the
// shim checks its own bounds where it says so with a negative result, and it is used by one thread,
// since `DpdkShim` is neither `Send` where it is held (in an `Rc`) nor cloned.
impl DpdkShim {
    /// Compiles, loads and starts it on `cpu`, with at most `mb` MiB of memory.
    pub fn load(directory: &Path, cpu: usize, mb: i32) -> Result<Self, String> {
        let flags = flags("libdpdk")?;
        let shim = Self::bind(load(&source("dpdk"), directory, &flags)?)?;
        let cpu = c_int::try_from(cpu).map_err(|error| error.to_string())?;
        // SAFETY: called once, before anything else of DPDK, as `rte_eal_init()` wants it.
        let result = unsafe { (shim.eal)(cpu, mb) };
        if result < 0 {
            return Err("rte_eal_init() failed".to_owned());
        }
        Ok(shim)
    }

    /// Name and version.
    pub fn version(&self) -> String {
        // SAFETY: it returns a string constant.
        let version = unsafe { CStr::from_ptr((self.version)()) };
        version.to_string_lossy().into_owned()
    }

    /// `rte_raw_cksum()`.
    pub fn raw_cksum(&self, pieces: &Pieces) -> u64 {
        sum(self.raw_cksum, pieces)
    }

    /// Buffers for `count` packets with this payload; `held` are flows and packets of each for a
    /// context, without which each burst is on its own.
    pub fn gro_open(
        &self,
        count: u32,
        payload: &[u8],
        held: Option<(u32, u32)>,
    ) -> Result<(), String> {
        assert!(payload.len() <= GRO_PAYLOAD_MAX);
        let (flows, items) = held.unwrap_or((0, 0));
        // SAFETY: it copies the payload into buffers that it has room in.
        let result =
            unsafe { (self.gro_open)(count, payload.as_ptr(), payload.len(), flows, items) };
        if result == 0 {
            return Ok(());
        }
        self.gro_close();
        Err("no memory for packets".to_owned())
    }

    /// One more packet with these headers.
    pub fn gro_load(&self, headers: &[u8; GRO_HEADER_BYTES]) {
        // SAFETY: it reads that many bytes, and fails when its buffers are used up.
        let result = unsafe { (self.gro_load)(headers.as_ptr()) };
        assert_eq!(result, 0, "DPDK has no buffer left");
    }

    /// The next `count` packets as a burst; says how many had wrong checksums. The caller has
    /// loaded them.
    pub fn gro_receive(&self, count: u32, verify: bool) -> i32 {
        // SAFETY: so many packets are loaded and not received yet.
        unsafe { (self.gro_receive)(count, c_int::from(verify)) }
    }

    /// All that is held.
    pub fn gro_flush(&self) {
        // SAFETY: it has room for all packets that there can be.
        unsafe { (self.gro_flush)() }
    }

    /// Frees what was given out; says how many packets.
    pub fn gro_collect(&self) -> u32 {
        // SAFETY: it frees only what it has a record of.
        unsafe { (self.gro_collect)() }
    }

    /// Frees the buffers.
    pub fn gro_close(&self) {
        // SAFETY: it frees only what it has a record of, once.
        unsafe { (self.gro_close)() }
    }

    /// Buffers for segmentation.
    pub fn gso_open(&self) -> Result<(), String> {
        // SAFETY: it makes pools, which `gso_close` frees.
        if unsafe { (self.gso_open)() } == 0 {
            return Ok(());
        }
        self.gso_close();
        Err("no memory for packets".to_owned())
    }

    /// Puts a packet into `slot`.
    pub fn gso_load(&self, slot: usize, packet: &[u8]) {
        assert!(packet.len() <= GSO_BYTES_MAX);
        // SAFETY: it copies the packet into a buffer with that much room, and checks the slot.
        let result = unsafe { (self.gso_load)(slot as c_uint, packet.as_ptr(), packet.len()) };
        assert_eq!(result, 0, "DPDK has no buffer left");
    }

    /// Cuts the packet in `slot`, which was loaded; says into how many segments.
    pub fn gso_cut(&self, slot: usize, mss: usize, all: bool) -> usize {
        // SAFETY: there is a packet in the slot, with the headers that it expects.
        let count = unsafe { (self.gso_cut)(slot as c_uint, mss as c_uint, c_int::from(all)) };
        usize::try_from(count).unwrap_or(0)
    }

    /// Frees the segments.
    pub fn gso_clear(&self) {
        // SAFETY: it frees only what it has a record of.
        unsafe { (self.gso_clear)() }
    }

    /// Frees the buffers.
    pub fn gso_close(&self) {
        // SAFETY: it frees only what it has a record of, once.
        unsafe { (self.gso_close)() }
    }
}
