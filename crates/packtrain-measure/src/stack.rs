//! The stack that a function needs, measured with painted memory.
#![allow(
    unsafe_code,
    reason = "a function has to run on memory that was painted before"
)]

/// The stack that [`used_bytes`] has for a function.
pub const STACK_BYTES: usize = 256 * 1024;

const PAINT: u8 = 0xA5;

type Work<'a> = &'a mut dyn FnMut();

extern "C" fn call(work: &mut Work<'_>) {
    work();
}

/// Runs `work` on a painted stack of [`STACK_BYTES`], and returns how many bytes of it were
/// changed. A panic in `work` aborts the process. `None`, and no run, except on x86-64 and AArch64.
///
/// # Panics
///
/// If the stack was too small.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub fn used_bytes(mut work: Work<'_>) -> Option<usize> {
    let work = &mut work;
    let mut stack = vec![PAINT; STACK_BYTES];
    let end = stack.as_mut_ptr_range().end;
    // The ABIs want the stack pointer at a multiple of 16 where a function is called.
    let top = end.wrapping_sub(end as usize % 16);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `top` is the aligned end of 256 KiB that no other code uses meanwhile, much more than
    // the call needs (the assertion below sees if not); r12 is kept by the callee, so that the
    // stack pointer comes back; a panic in an `extern "C"` function aborts and never unwinds here.
    unsafe {
        core::arch::asm!(
            "xchg rsp, r12",
            "call {function}",
            "mov rsp, r12",
            function = in(reg) call as extern "C" fn(&mut Work<'_>),
            inout("r12") top => _,
            in("rdi") std::ptr::from_mut(work),
            clobber_abi("C"),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; x20 is kept by the callee.
    unsafe {
        core::arch::asm!(
            "mov x20, sp",
            "mov sp, {top}",
            "blr {function}",
            "mov sp, x20",
            top = in(reg) top,
            function = in(reg) call as extern "C" fn(&mut Work<'_>),
            out("x20") _,
            in("x0") std::ptr::from_mut(work),
            clobber_abi("C"),
        );
    }
    let untouched = stack.iter().take_while(|&&byte| byte == PAINT).count();
    assert!(untouched > 0, "the stack overflowed");
    Some(stack.len() - untouched)
}

/// Not implemented for this architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn used_bytes(_: Work<'_>) -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn an_array_of_a_function_is_counted() {
        let mut sum = 0;
        let Some(bytes) = used_bytes(&mut || {
            let array = black_box([3_u8; 10_000]);
            sum = array.iter().map(|&byte| u32::from(byte)).sum();
        }) else {
            println!("SKIP: painting the stack needs x86_64 or aarch64");
            return;
        };
        assert_eq!(sum, 30_000);
        assert!((10_000..60_000).contains(&bytes), "{bytes}");
    }
}
