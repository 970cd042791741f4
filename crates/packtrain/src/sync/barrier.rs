//! A barrier between two threads of which one is in a hurry: `membarrier(2)`.
//!
//! Where two threads each write a word and then read the other's, one of them must see what the
//! other wrote. That takes a full fence on both sides, which costs about as much as a whole
//! enqueue. The kernel can have all threads of this process run one at the request of the side
//! that has the time; then the other side only has to keep the compiler from reordering.
//!
//! Loom and Miri know nothing of it: there, and where the kernel refuses, both sides have a fence,
//! which allows the same and nothing more.

#![allow(unsafe_code, reason = "membarrier is a raw system call")]

use super::{fence, in_program_order};
use std::sync::OnceLock;

/// Whether the kernel does the work of the light side. Asked once, before any thread relies on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    by_kernel: bool,
}

impl Barrier {
    /// Registers this process with the kernel (`MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`, Linux
    /// 4.14).
    pub(crate) fn new() -> Self {
        static BY_KERNEL: OnceLock<bool> = OnceLock::new();
        let by_kernel = *BY_KERNEL.get_or_init(|| {
            !cfg!(any(packtrain_loom, miri))
                && membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
        });
        Self { by_kernel }
    }

    /// As where the kernel refuses.
    #[cfg(test)]
    pub(crate) const fn without_kernel() -> Self {
        Self { by_kernel: false }
    }

    /// Whether the side in a hurry has no fence: only the compiler must not reorder.
    #[inline(always)]
    pub(crate) const fn is_light(self) -> bool {
        self.by_kernel
    }

    /// Between the write and the read of the side in a hurry.
    #[inline(always)]
    pub(crate) fn light(self) {
        if self.by_kernel {
            in_program_order();
        } else {
            fence();
        }
    }

    /// Between the write and the read of the other side. Some microseconds.
    pub(crate) fn heavy(self) {
        fence();
        if self.by_kernel {
            let done = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
            assert!(done, "membarrier(2) fails only where it was not registered");
        }
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: it takes numbers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    result == 0
}
