//! The stack use of grouping, measured with painted memory.
#![allow(
    unsafe_code,
    reason = "a function has to run on memory of the test's own"
)]

use packtrain_offload::sort::{Keyed, Scratch, group, words};

/// The bound that FreeBSD's `tcp_lro_sort()` was made for.
const STACK_BYTES_MAX: usize = 4096;

const PAINT: u8 = 0xA5;

/// The function to run on the painted stack.
struct Call<'a, 'b> {
    items: &'a mut [Keyed],
    scratch: &'a mut Scratch<'b>,
    groups: usize,
}

extern "C" fn call(call: &mut Call<'_, '_>) {
    if let Ok(grouped) = group(call.items, call.scratch) {
        call.groups = grouped.chunk_by(|a, b| a.key == b.key).count();
    }
}

/// Runs `call` on a painted stack, and returns how many bytes of it were changed.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn painted(of: &mut Call<'_, '_>) -> Option<usize> {
    let mut stack = vec![PAINT; 256 * 1024];
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
            function = in(reg) call as extern "C" fn(&mut Call<'_, '_>),
            inout("r12") top => _,
            in("rdi") std::ptr::from_mut(of),
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
            function = in(reg) call as extern "C" fn(&mut Call<'_, '_>),
            out("x20") _,
            in("x0") std::ptr::from_mut(of),
            clobber_abi("C"),
        );
    }
    let untouched = stack.iter().take_while(|&&byte| byte == PAINT).count();
    assert!(untouched > 0, "the stack overflowed");
    Some(stack.len() - untouched)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn painted(_: &mut Call<'_, '_>) -> Option<usize> {
    println!("SKIP: painting the stack needs x86_64 or aarch64");
    None
}

/// Random, equal, sorted, reversed and adversarial keys, in runs and mixed, up to the most items.
#[test]
fn grouping_needs_at_most_4096_bytes_of_stack() {
    // The inverse of the hash's multiplier: products are small numbers, which share a slot.
    let against_hash = |i: u64| i.wrapping_mul(0xF1DE_83E1_9937_733D);
    let kinds: [(&str, &dyn Fn(u64) -> u64); 7] = [
        ("random", &|i| {
            (i + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 7
        }),
        ("equal", &|_| 7),
        ("sorted", &|i| i),
        ("reversed", &|i| u64::MAX - i),
        ("eight flows", &|i| i.wrapping_mul(0x9E37_79B9) >> 5 & 7),
        ("runs", &|i| i / 9 % 100),
        ("adversarial", &|i| against_hash(i % 40_000)),
    ];
    for n in [13, 64, 4096, 65_536] {
        for (name, key) in &kinds {
            let item = |index| Keyed {
                key: key(index),
                index,
            };
            let mut items: Vec<Keyed> = (0..n).map(item).collect();
            let mut spare = items.clone();
            let mut words = vec![0; words(items.len())];
            let mut scratch = Scratch {
                spare: &mut spare,
                words: &mut words,
            };
            let mut call = Call {
                items: &mut items,
                scratch: &mut scratch,
                groups: 0,
            };
            let Some(bytes) = painted(&mut call) else {
                return;
            };
            assert!(call.groups > 0, "{name}, {n} items: not grouped");
            assert!(
                (1..=STACK_BYTES_MAX).contains(&bytes),
                "{name}, {n} items: {bytes} bytes of stack"
            );
        }
    }
}
