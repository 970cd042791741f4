//! x86-64: SSE4.1, AVX2 and AVX-512.
//!
//! Every loop keeps two sums of 64-bit lanes: of the words themselves, modulo 2^64, and of their
//! high halves, which is exact. The exact sum of the low halves follows from the two at the end, so
//! that no word has to be masked.
//!
//! The loops take addresses, not slices, and are never inlined. If the compiler can prove that
//! `dst` and `src` do not overlap, it splits each into a `memcpy` and a summing loop, and the bytes
//! are read twice.

#![allow(
    unsafe_code,
    reason = "vector instructions that the processor was asked for, and loads and stores by address"
)]

use core::arch::x86_64::{
    __m128i, __m256i, __m512i, __mmask64, _mm_add_epi64, _mm_loadu_si128, _mm_setzero_si128,
    _mm_slli_epi64, _mm_srli_epi64, _mm_storeu_si128, _mm_sub_epi64, _mm256_add_epi64,
    _mm256_loadu_si256, _mm256_setzero_si256, _mm256_slli_epi64, _mm256_srli_epi64,
    _mm256_storeu_si256, _mm256_sub_epi64, _mm512_add_epi32, _mm512_add_epi64, _mm512_and_si512,
    _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_reduce_add_epi64,
    _mm512_set1_epi32, _mm512_setzero_si512, _mm512_slli_epi64, _mm512_srli_epi32,
    _mm512_srli_epi64, _mm512_storeu_si512, _mm512_sub_epi64,
};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, Ordering};
use core::{ptr, slice};

use super::level::Level;
use super::scalar::{self, add_around};
use super::uninit;

// Each asks the processor and XCR0 once; constant where the compiler may assume the features.
cpufeatures::new!(avx512_found, "avx512f", "avx512bw");
cpufeatures::new!(avx2_found, "avx2");
cpufeatures::new!(sse41_found, "sse4.1");

/// Sum of the words of at most `BLOCK_BYTES` by the best level, or by the one requested; `None` if
/// the processor does not have that one.
#[inline]
pub(super) fn sum(only: Option<Level>, bytes: &[u8]) -> Option<u64> {
    // SAFETY: without COPY nothing is stored.
    unsafe { run::<false>(only, ptr::null_mut(), bytes) }
}

/// Copies and sums at most `BLOCK_BYTES`, up to the shorter length; else like `sum`.
#[inline]
pub(super) fn copy_and_sum(only: Option<Level>, dst: &mut [u8], src: &[u8]) -> Option<u64> {
    let src = src.get(..dst.len()).unwrap_or(src);
    // SAFETY: `dst` has at least the bytes of `src` and, being borrowed to be changed, lies
    // elsewhere.
    unsafe { run::<true>(only, dst.as_mut_ptr(), src) }
}

/// `copy_and_sum` into memory that need not be initialised. Returns the written slice, or else
/// `dst` untouched.
#[inline]
pub(super) fn copy_and_sum_uninit<'a>(
    dst: &'a mut [MaybeUninit<u8>],
    src: &[u8],
) -> Result<(&'a mut [u8], u64), &'a mut [MaybeUninit<u8>]> {
    let bytes = dst.len().min(src.len());
    // SAFETY: as in `copy_and_sum`; the type of `dst` allows to store any byte.
    match unsafe { run::<true>(None, dst.as_mut_ptr().cast(), &src[..bytes]) } {
        // SAFETY: `run` has stored a byte of `src` in each of these.
        Some(words) => Ok((unsafe { uninit::assume_init(&mut dst[..bytes]) }, words)),
        None => Err(dst),
    }
}

/// The selected level, as a number; another number before selection, and if there is none.
static CHOSEN: AtomicU8 = AtomicU8::new(0);
const CHOSE_AVX512: u8 = 1;
const CHOSE_AVX2: u8 = 2;
const CHOSE_SSE41: u8 = 3;

/// Sums all of `src`, and with `COPY` stores it to `dst`; by the best level, which is available, or
/// by the one requested.
///
/// # Safety
/// With `COPY`, `dst` is valid for storing `src.len()` bytes, and they do not overlap `src`.
#[inline(always)]
unsafe fn run<const COPY: bool>(only: Option<Level>, dst: *mut u8, src: &[u8]) -> Option<u64> {
    match only {
        // SAFETY: the caller answers for `dst`.
        None => Some(unsafe { best::<COPY>(dst, src) }),
        // SAFETY: as above.
        Some(level) => unsafe { by_level::<COPY>(level, dst, src) },
    }
}

/// The common path needs one comparison, and ends in tail calls, so that there is no stack frame.
///
/// # Safety
/// As for `run`.
#[inline(always)]
unsafe fn best<const COPY: bool>(dst: *mut u8, src: &[u8]) -> u64 {
    const BUILT_FOR_AVX512: bool =
        cfg!(all(target_feature = "avx512f", target_feature = "avx512bw"));
    let chosen = if BUILT_FOR_AVX512 {
        CHOSE_AVX512
    } else {
        CHOSEN.load(Ordering::Relaxed)
    };
    match chosen {
        // SAFETY: the processor has the features, a slice is valid, and the caller answers for
        // `dst`.
        CHOSE_AVX512 => unsafe { avx512::<COPY>(dst, src.as_ptr(), src.len()) },
        // SAFETY: as above.
        CHOSE_AVX2 => unsafe { avx2::<COPY>(dst, src.as_ptr(), src.len()) },
        // SAFETY: as above.
        CHOSE_SSE41 => unsafe { sse41::<COPY>(dst, src.as_ptr(), src.len()) },
        // SAFETY: the caller answers for `dst`.
        _ => unsafe { choose::<COPY>(dst, src) },
    }
}

/// `best` for the first time, or on a processor that has none of the levels.
///
/// # Safety
/// As for `run`.
#[inline(never)]
unsafe fn choose<const COPY: bool>(dst: *mut u8, src: &[u8]) -> u64 {
    for (level, number) in [
        (Level::Avx512, CHOSE_AVX512),
        (Level::Avx2, CHOSE_AVX2),
        (Level::Sse41, CHOSE_SSE41),
    ] {
        // SAFETY: the caller answers for `dst`.
        if let Some(words) = unsafe { by_level::<COPY>(level, dst, src) } {
            CHOSEN.store(number, Ordering::Relaxed);
            return words;
        }
    }
    if COPY {
        // SAFETY: the caller answers for `dst`.
        unsafe { ptr::copy_nonoverlapping(src.as_ptr(), dst, src.len()) };
    }
    scalar::sum(src)
}

/// By this level, if the processor has it and it is implemented here.
///
/// # Safety
/// As for `run`.
#[inline(never)]
unsafe fn by_level<const COPY: bool>(level: Level, dst: *mut u8, src: &[u8]) -> Option<u64> {
    let (from, bytes) = (src.as_ptr(), src.len());
    match level {
        Level::Avx512 if avx512_found::get() => {
            // SAFETY: the processor has the features, a slice is valid, and the caller answers for
            // `dst`.
            Some(unsafe { avx512::<COPY>(dst, from, bytes) })
        }
        Level::Avx2 if avx2_found::get() => {
            // SAFETY: as above.
            Some(unsafe { avx2::<COPY>(dst, from, bytes) })
        }
        Level::Sse41 if sse41_found::get() => {
            // SAFETY: as above.
            Some(unsafe { sse41::<COPY>(dst, from, bytes) })
        }
        _ => None,
    }
}

/// The two sums of one row of vectors.
#[derive(Clone, Copy)]
struct Sums512 {
    all: __m512i,
    high: __m512i,
}

impl Sums512 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new() -> Self {
        let zero = _mm512_setzero_si512();
        Self {
            all: zero,
            high: zero,
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn add(&mut self, v: __m512i) {
        self.all = _mm512_add_epi64(self.all, v);
        self.high = _mm512_add_epi64(self.high, _mm512_srli_epi64::<32>(v));
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn join(self, other: Self) -> Self {
        Self {
            all: _mm512_add_epi64(self.all, other.all),
            high: _mm512_add_epi64(self.high, other.high),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn total(self) -> u64 {
        let low = _mm512_sub_epi64(self.all, _mm512_slli_epi64::<32>(self.high));
        _mm512_reduce_add_epi64(_mm512_add_epi64(low, self.high)) as u64
    }
}

/// Vectors of which `few512` adds the words: its 32-bit lanes are far from an overflow, and for
/// more vectors the loop of `avx512` is faster.
const FEW_VECTORS: usize = 8;

/// Sum of one to `FEW_VECTORS` vectors. Words are added in 32-bit lanes, so that one sum has to be
/// added up across the lanes, and not two.
///
/// # Safety
/// `src` is valid for loading `bytes` bytes. The processor has AVX-512 F and BW.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn few512(src: *const u8, bytes: usize) -> u64 {
    const VECTOR: usize = size_of::<__m512i>();
    let low_half = _mm512_set1_epi32(0xFFFF);
    // SAFETY: the first vector ends within `src`.
    let first = unsafe { _mm512_loadu_si512(src.cast()) };
    let mut low = _mm512_and_si512(first, low_half);
    let mut high = _mm512_srli_epi32::<16>(first);
    // Unrolled by the compiler: one comparison for each vector.
    for end in (2..=FEW_VECTORS).map(|vectors| vectors * VECTOR) {
        if bytes < end {
            break;
        }
        // SAFETY: the vector ends within `src`.
        let v = unsafe { _mm512_loadu_si512(src.add(end - VECTOR).cast()) };
        low = _mm512_add_epi32(low, _mm512_and_si512(v, low_half));
        high = _mm512_add_epi32(high, _mm512_srli_epi32::<16>(v));
    }
    let rest = bytes % VECTOR;
    if rest > 0 {
        let mask: __mmask64 = u64::MAX >> (VECTOR - rest);
        // SAFETY: the bytes of the mask are the last ones of `src`.
        let v = unsafe { _mm512_maskz_loadu_epi8(mask, src.add(bytes - rest).cast()) };
        low = _mm512_add_epi32(low, _mm512_and_si512(v, low_half));
        high = _mm512_add_epi32(high, _mm512_srli_epi32::<16>(v));
    }
    // As 64-bit lanes: 2^32 is 1 modulo 0xFFFF.
    _mm512_reduce_add_epi64(_mm512_add_epi32(low, high)) as u64
}

/// # Safety
/// `src` is valid for loading `bytes` bytes, and with `COPY` `dst` for storing as many elsewhere.
/// The processor has AVX-512 F and BW.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn avx512<const COPY: bool>(dst: *mut u8, src: *const u8, bytes: usize) -> u64 {
    const VECTOR: usize = size_of::<__m512i>();
    // A closure would not have the features that the intrinsics need to be inlined.
    macro_rules! take {
        ($sums:expr, $at:expr) => {
            // SAFETY: the vector ends within `src`, and within `dst` if that is used.
            unsafe {
                let v = _mm512_loadu_si512(src.add($at).cast());
                if COPY {
                    _mm512_storeu_si512(dst.add($at).cast(), v);
                }
                $sums.add(v);
            }
        };
    }
    if !COPY && (VECTOR..=FEW_VECTORS * VECTOR).contains(&bytes) {
        // SAFETY: the caller answers for `src`.
        return unsafe { few512(src, bytes) };
    }
    let mut sums = [Sums512::new(); 2];
    let (mut at, mut is_turned) = (0, false);
    // Short pieces do not use these sums.
    if bytes > 4 * VECTOR {
        // Stores that cross the middle of a cache line take twice as long, and loads hardly do; but
        // where nothing is stored, loads of whole lines are faster than loads across two.
        let beside = if COPY {
            dst.addr() % (VECTOR / 2)
        } else {
            src.addr() % VECTOR
        };
        if beside != 0 {
            let mask: __mmask64 = u64::MAX << beside;
            // SAFETY: the first vector of `src`, and of `dst` if that is used. The bytes of the
            // mask are the first ones of `src`; what is in front of them is not loaded.
            unsafe {
                if COPY {
                    _mm512_storeu_si512(dst.cast(), _mm512_loadu_si512(src.cast()));
                }
                let from = src.wrapping_sub(beside).cast();
                sums[0].add(_mm512_maskz_loadu_epi8(mask, from));
            }
            at = VECTOR - beside;
            is_turned = beside % 2 == 1;
        }
        let mut four = [Sums512::new(); 4];
        while bytes - at > 4 * VECTOR {
            for (i, sums) in four.iter_mut().enumerate() {
                take!(sums, at + i * VECTOR);
            }
            at += 4 * VECTOR;
        }
        sums[0] = sums[0].join(four[0].join(four[2]));
        sums[1] = four[1].join(four[3]);
    }
    // Up to three vectors, and one that has a byte at least unless there is none at all.
    if bytes - at > VECTOR {
        take!(sums[0], at);
        at += VECTOR;
        if bytes - at > VECTOR {
            take!(sums[1], at);
            at += VECTOR;
            if bytes - at > VECTOR {
                take!(sums[0], at);
                at += VECTOR;
            }
        }
    }
    if at < bytes {
        let mask: __mmask64 = u64::MAX >> (VECTOR - (bytes - at));
        // SAFETY: the bytes of the mask lie within `src`, and within `dst` if that is used.
        let v = unsafe { _mm512_maskz_loadu_epi8(mask, src.add(at).cast()) };
        if COPY {
            if let Some(last) = bytes.checked_sub(VECTOR) {
                // Storing some bytes twice is faster than storing under a mask.
                // SAFETY: the last whole vector of `src`, and of `dst`.
                unsafe {
                    let v = _mm512_loadu_si512(src.add(last).cast());
                    _mm512_storeu_si512(dst.add(last).cast(), v);
                }
            } else {
                // SAFETY: the bytes of the mask lie within `dst`.
                unsafe { _mm512_mask_storeu_epi8(dst.add(at).cast(), mask, v) };
            }
        }
        sums[1].add(v);
    }
    let total = sums[0].join(sums[1]).total();
    // Where every word had its bytes the other way round, the sum has them too (RFC 1071 §2(B)).
    if is_turned {
        total.rotate_left(8)
    } else {
        total
    }
}

/// # Safety
/// As for `avx512`, but the processor has AVX2.
#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn avx2<const COPY: bool>(dst: *mut u8, src: *const u8, bytes: usize) -> u64 {
    const VECTOR: usize = size_of::<__m256i>();
    let zero = _mm256_setzero_si256();
    let (mut all, mut high) = ([zero; 4], [zero; 4]);
    let mut at = 0;
    while bytes - at >= 4 * VECTOR {
        for i in 0..4 {
            let from = at + i * VECTOR;
            // SAFETY: the vector ends within `src`, and within `dst` if that is used.
            let v = unsafe { _mm256_loadu_si256(src.add(from).cast()) };
            if COPY {
                // SAFETY: as above.
                unsafe { _mm256_storeu_si256(dst.add(from).cast(), v) };
            }
            all[i] = _mm256_add_epi64(all[i], v);
            high[i] = _mm256_add_epi64(high[i], _mm256_srli_epi64::<32>(v));
        }
        at += 4 * VECTOR;
    }
    while bytes - at >= VECTOR {
        // SAFETY: as above.
        let v = unsafe { _mm256_loadu_si256(src.add(at).cast()) };
        if COPY {
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(dst.add(at).cast(), v) };
        }
        all[0] = _mm256_add_epi64(all[0], v);
        high[0] = _mm256_add_epi64(high[0], _mm256_srli_epi64::<32>(v));
        at += VECTOR;
    }
    let all = _mm256_add_epi64(
        _mm256_add_epi64(all[0], all[1]),
        _mm256_add_epi64(all[2], all[3]),
    );
    let high = _mm256_add_epi64(
        _mm256_add_epi64(high[0], high[1]),
        _mm256_add_epi64(high[2], high[3]),
    );
    let low = _mm256_sub_epi64(all, _mm256_slli_epi64::<32>(high));
    let mut lanes = [0u64; 4];
    // SAFETY: the array has the size of the vector.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), _mm256_add_epi64(low, high)) };
    // SAFETY: `at` bytes are done, and the caller answers for all of them.
    add_around(lanes.iter().sum(), unsafe {
        rest::<COPY>(dst, src, bytes, at)
    })
}

/// # Safety
/// As for `avx512`, but the processor has SSE4.1.
#[inline(never)]
#[target_feature(enable = "sse4.1")]
unsafe fn sse41<const COPY: bool>(dst: *mut u8, src: *const u8, bytes: usize) -> u64 {
    const VECTOR: usize = size_of::<__m128i>();
    let zero = _mm_setzero_si128();
    let (mut all, mut high) = ([zero; 4], [zero; 4]);
    let mut at = 0;
    while bytes - at >= 4 * VECTOR {
        for i in 0..4 {
            let from = at + i * VECTOR;
            // SAFETY: the vector ends within `src`, and within `dst` if that is used.
            let v = unsafe { _mm_loadu_si128(src.add(from).cast()) };
            if COPY {
                // SAFETY: as above.
                unsafe { _mm_storeu_si128(dst.add(from).cast(), v) };
            }
            all[i] = _mm_add_epi64(all[i], v);
            high[i] = _mm_add_epi64(high[i], _mm_srli_epi64::<32>(v));
        }
        at += 4 * VECTOR;
    }
    while bytes - at >= VECTOR {
        // SAFETY: as above.
        let v = unsafe { _mm_loadu_si128(src.add(at).cast()) };
        if COPY {
            // SAFETY: as above.
            unsafe { _mm_storeu_si128(dst.add(at).cast(), v) };
        }
        all[0] = _mm_add_epi64(all[0], v);
        high[0] = _mm_add_epi64(high[0], _mm_srli_epi64::<32>(v));
        at += VECTOR;
    }
    let all = _mm_add_epi64(_mm_add_epi64(all[0], all[1]), _mm_add_epi64(all[2], all[3]));
    let high = _mm_add_epi64(
        _mm_add_epi64(high[0], high[1]),
        _mm_add_epi64(high[2], high[3]),
    );
    let low = _mm_sub_epi64(all, _mm_slli_epi64::<32>(high));
    let mut lanes = [0u64; 2];
    // SAFETY: the array has the size of the vector.
    unsafe { _mm_storeu_si128(lanes.as_mut_ptr().cast(), _mm_add_epi64(low, high)) };
    // SAFETY: `at` bytes are done, and the caller answers for all of them.
    add_around(lanes.iter().sum(), unsafe {
        rest::<COPY>(dst, src, bytes, at)
    })
}

/// Sums the remainder of a loop: the bytes from `at`, an even number, on.
///
/// # Safety
/// As for `avx512`, on any processor; `at` is at most `bytes`.
#[inline]
unsafe fn rest<const COPY: bool>(dst: *mut u8, src: *const u8, bytes: usize, at: usize) -> u64 {
    // SAFETY: the caller's `src` has these bytes.
    let tail = unsafe { slice::from_raw_parts(src.add(at), bytes - at) };
    if COPY {
        // SAFETY: the caller's `dst` has as many bytes, elsewhere.
        unsafe { ptr::copy_nonoverlapping(tail.as_ptr(), dst.add(at), tail.len()) };
    }
    scalar::sum_short(tail)
}
