//! What an experiment or a bench is to show, and whether it did.

use std::fmt;

/// What came of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As expected.
    Reproduced,
    /// Not as much as expected, and not shown to be otherwise: the difference is within the noise.
    Direction,
    /// Otherwise.
    NotReproduced,
}

impl Verdict {
    /// [`Verdict::Reproduced`] if `reached`, else [`Verdict::NotReproduced`].
    #[must_use]
    pub const fn of(reached: bool) -> Self {
        if reached {
            Self::Reproduced
        } else {
            Self::NotReproduced
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Reproduced => "reproduced",
            Self::Direction => "direction",
            Self::NotReproduced => "not reproduced",
        })
    }
}

/// One claim, and what was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What is claimed, in words.
    pub claim: String,
    /// What was expected.
    pub expected: String,
    /// What was found.
    pub measured: String,
    /// What came of it.
    pub verdict: Verdict,
    /// Whether the run fails without it.
    pub must: bool,
}
