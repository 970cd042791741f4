//! Calls into DPDK with plain byte slices.
#![allow(unsafe_code, reason = "C functions are called")]

use crate::loader::{flags, load, shim};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::path::Path;
use std::sync::{LazyLock, Mutex};

/// Lengths of headers in bytes, as DPDK counts them: everything between an outer IP header and an
/// inner one is `l2`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Headers {
    pub outer_l2: u32,
    pub outer_l3: u32,
    pub l2: u32,
    pub l3: u32,
    pub l4: u32,
}

/// The protocols a packet is cut as, all over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Tcp,
    /// Into IP fragments.
    Udp,
    VxlanTcp,
    GreTcp,
}

/// Most packets of a burst (`RTE_GRO_MAX_BURST_ITEM_NUM`).
pub const BURST_MAX: usize = 128;
/// The longest packet that it has a buffer for.
pub const PACKET_MAX: usize = 65_520;
/// Room for the output.
const OUT_BYTES: usize = 512 << 10;
const SEGMENTS_MAX: usize = 2048;

shim! {
    /// `dpdk.c`.
    Shim {
        version: b"pt_version\0", fn() -> *const c_char;
        eal: b"pt_eal\0", fn(c_int, c_int) -> c_int;
        open: b"po_open\0", fn() -> c_int;
        raw_cksum: b"po_raw_cksum\0", fn(*const u8, usize) -> u16;
        l4_cksum: b"po_l4_cksum\0", fn(*const u8, c_int) -> u16;
        l4_is_right: b"po_l4_is_right\0", fn(*const u8, c_int) -> c_int;
        segment: b"po_segment\0",
            fn(
                *const u8, usize, *const Headers, c_int, c_uint, c_int,
                *mut u8, usize, *mut u32, c_uint
            ) -> c_int;
        merge: b"po_merge\0",
            fn(*const u8, *const u32, c_uint, c_uint, *mut u8, usize, *mut u32) -> c_int;
    }
}

/// A process has one DPDK.
static DPDK: LazyLock<Result<Mutex<Shim>, String>> = LazyLock::new(|| start().map(Mutex::new));

fn start() -> Result<Shim, String> {
    let flags = flags("libdpdk")?;
    let directory = std::env::temp_dir().join(format!("packtrain-dpdk-{}", std::process::id()));
    std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dpdk/dpdk.c");
    let library = load(Path::new(source), &directory, &flags);
    std::fs::remove_dir_all(&directory).map_err(|error| error.to_string())?;
    let shim = Shim::bind(library?)?;
    let cpu = packtrain_measure::clock::last_cpu().map_err(|error| error.to_string())?;
    let cpu = c_int::try_from(cpu).map_err(|error| error.to_string())?;
    // SAFETY: called once, before anything else of DPDK, as `rte_eal_init()` wants it; then pools
    // are made, once.
    if unsafe { (shim.eal)(cpu, 256) < 0 || (shim.open)() < 0 } {
        return Err("DPDK does not start".to_owned());
    }
    // SAFETY: it returns a string constant.
    let version = unsafe { CStr::from_ptr((shim.version)()) };
    println!("compared with {}", version.to_string_lossy());
    Ok(shim)
}

/// Runs `test` with DPDK, or prints why it cannot.
pub fn with_dpdk(name: &str, test: impl FnOnce(&Shim)) {
    match &*DPDK {
        // A failed test leaves it usable.
        Ok(shim) => test(
            &shim
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        ),
        Err(why) => println!("SKIP: {name}: {why}"),
    }
}

/// Splits contiguous packets.
fn pieces(mut bytes: &[u8], lengths: &[u32]) -> Vec<Vec<u8>> {
    let next = |length: &u32| {
        let (piece, rest) = bytes.split_at(*length as usize);
        bytes = rest;
        piece.to_vec()
    };
    lengths.iter().map(next).collect()
}

impl Shim {
    /// `rte_raw_cksum()`: the sum, folded, not complemented, in network order.
    pub fn raw_cksum(&self, bytes: &[u8]) -> u16 {
        // SAFETY: it reads that many bytes.
        u16::from_be(unsafe { (self.raw_cksum)(bytes.as_ptr(), bytes.len()) })
    }

    /// `rte_ipv4_udptcp_cksum()` or `rte_ipv6_udptcp_cksum()` of a packet that begins with an IP
    /// header without options, and has correct lengths.
    pub fn l4_cksum(&self, ip: &[u8]) -> u16 {
        // SAFETY: it reads as many bytes as the IP length, which the caller has checked.
        u16::from_be(unsafe { (self.l4_cksum)(ip.as_ptr(), c_int::from(ip[0] >> 4 == 6)) })
    }

    /// The same with `_verify`.
    pub fn l4_is_right(&self, ip: &[u8]) -> bool {
        // SAFETY: as above.
        unsafe { (self.l4_is_right)(ip.as_ptr(), c_int::from(ip[0] >> 4 == 6)) != 0 }
    }

    /// `rte_gso_segment()` into packets of at most `size` bytes, headers included, with all
    /// checksums by DPDK. The packet alone if it is not cut.
    pub fn segment(
        &self,
        packet: &[u8],
        headers: Headers,
        cut: Cut,
        size: usize,
        fixed_id: bool,
    ) -> Vec<Vec<u8>> {
        assert!(packet.len() <= PACKET_MAX);
        let mut out = vec![0; OUT_BYTES];
        let mut lengths = vec![0; SEGMENTS_MAX];
        // SAFETY: it reads the packet, and writes at most the given room, and returns how much.
        let count = unsafe {
            (self.segment)(
                packet.as_ptr(),
                packet.len(),
                &raw const headers,
                cut as c_int,
                size as c_uint,
                c_int::from(fixed_id),
                out.as_mut_ptr(),
                out.len(),
                lengths.as_mut_ptr(),
                lengths.len() as c_uint,
            )
        };
        let count = usize::try_from(count).unwrap_or_else(|_| panic!("rte_gso_segment: {count}"));
        if count == 0 {
            return vec![packet.to_vec()];
        }
        pieces(&out, &lengths[..count])
    }

    /// `rte_gro_reassemble_burst()` of Ethernet frames with TCP over IPv4 and a link header of `l2`
    /// bytes.
    pub fn merge(&self, burst: &[Vec<u8>], l2: usize) -> Vec<Vec<u8>> {
        assert!(burst.len() <= BURST_MAX);
        assert!(burst.iter().all(|frame| frame.len() > l2 + 40));
        let bytes = burst.concat();
        let lengths: Vec<u32> = burst.iter().map(|frame| frame.len() as u32).collect();
        let mut out = vec![0; OUT_BYTES];
        let mut out_lengths = vec![0; BURST_MAX];
        // SAFETY: it reads that many packets of these lengths, and writes at most the given room;
        // the output has at most as many packets as the input.
        let count = unsafe {
            (self.merge)(
                bytes.as_ptr(),
                lengths.as_ptr(),
                lengths.len() as c_uint,
                l2 as c_uint,
                out.as_mut_ptr(),
                out.len(),
                out_lengths.as_mut_ptr(),
            )
        };
        let count = usize::try_from(count).unwrap_or_else(|_| panic!("rte_gro: {count}"));
        pieces(&out, &out_lengths[..count])
    }
}
