//! DPDK's `rte_ring`, in a C library that is compiled when the bench starts.
#![allow(unsafe_code, reason = "functions of a C library are called")]

use crate::loader::{flags, load, shim};
use crate::sides::{Queue, Wait};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::rc::Rc;

shim! {
    /// `shim.c`.
    Shim {
        version: b"pt_version\0", fn() -> *const c_char;
        new: b"pt_ring_new\0", fn(c_uint) -> *mut c_void;
        free: b"pt_ring_free\0", fn(*mut c_void);
        produce: b"pt_ring_produce\0", fn(*mut c_void, c_uint, u64, u64, c_int);
        consume: b"pt_ring_consume\0", fn(*mut c_void, c_uint, u64, c_int) -> u64;
        same: b"pt_ring_same\0", fn(*mut c_void, c_uint, u64) -> u64;
    }
}

impl Shim {
    /// Compiles and loads it.
    pub fn load(directory: &Path) -> Result<Self, String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/ring/shim.c");
        Self::bind(load(&source, directory, &flags("libdpdk")?)?)
    }

    /// Name and version.
    pub fn version(&self) -> String {
        // SAFETY: it returns a string constant.
        let version = unsafe { CStr::from_ptr((self.version)()) };
        version.to_string_lossy().into_owned()
    }
}

/// Many producers, one consumer.
pub struct RteRing {
    shim: Rc<Shim>,
    ring: Threads,
}

/// The functions and the ring, for threads to use.
struct Threads(*mut c_void);

impl RteRing {
    /// For `capacity` items.
    pub fn new(shim: &Rc<Shim>, capacity: usize) -> Result<Self, String> {
        // SAFETY: it allocates, or says that it cannot.
        let ring = unsafe { (shim.new)(capacity as c_uint) };
        if ring.is_null() {
            return Err(format!("no rte_ring for {capacity} items"));
        }
        Ok(Self {
            shim: Rc::clone(shim),
            ring: Threads(ring),
        })
    }
}

impl Drop for RteRing {
    fn drop(&mut self) {
        // SAFETY: it was made by `new`, and no thread uses it any more.
        unsafe { (self.shim.free)(self.ring.0) }
    }
}

// SAFETY: the ring is made for several threads, of which one consumes, as `Queue` demands; the
// functions are constant, and the counter of `Rc` is touched by the thread that has the value.
unsafe impl Sync for RteRing {}

impl Queue for RteRing {
    fn produce(&self, burst: usize, first: u64, total: u64, wait: Wait) {
        let yields = c_int::from(wait == Wait::Yield);
        // SAFETY: a ring that is there, and a burst within the bound of the shim.
        unsafe { (self.shim.produce)(self.ring.0, burst as c_uint, first, total, yields) }
    }

    fn consume(&self, burst: usize, total: u64, wait: Wait) -> u64 {
        let yields = c_int::from(wait == Wait::Yield);
        // SAFETY: as above, and this is the only consumer.
        unsafe { (self.shim.consume)(self.ring.0, burst as c_uint, total, yields) }
    }

    fn same(&self, burst: usize, total: u64) -> u64 {
        // SAFETY: as above.
        unsafe { (self.shim.same)(self.ring.0, burst as c_uint, total) }
    }
}
