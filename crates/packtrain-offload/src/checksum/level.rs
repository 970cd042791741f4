//! The implementations of the sum over long pieces, by name.

use core::fmt;

/// An implementation of the sum over long pieces. All of them give the same sums.
///
/// The level is detected once, from the processor and the operating system together (vector
/// registers that the system does not save are not used). If the compiler may assume the features
/// of the best level, there is no run-time detection. On targets without an operating system, and
/// under Miri, only the features assumed by the compiler are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Level {
    /// Portable code.
    Scalar,
    /// x86-64 with SSE4.1: 128-bit vectors.
    Sse41,
    /// x86-64 with AVX2: 256-bit vectors.
    Avx2,
    /// x86-64 with AVX-512 F and BW: 512-bit vectors, masked tails.
    Avx512,
    /// Little-endian AArch64 with NEON (Advanced SIMD): 128-bit vectors.
    Neon,
}

impl Level {
    /// Every variant.
    pub const ALL: &[Self] = &[
        Self::Scalar,
        Self::Sse41,
        Self::Avx2,
        Self::Avx512,
        Self::Neon,
    ];

    /// `scalar`, `sse4.1`, `avx2`, `avx512` or `neon`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Sse41 => "sse4.1",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
