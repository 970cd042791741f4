//! Verdicts as marks.

use packtrain_measure::Verdict;
use packtrain_measure::markup::Markup;

use super::read::Part;

/// A verdict on the page.
#[derive(Debug)]
pub struct Kind {
    pub verdict: Verdict,
    /// Beside the colour, which not all readers see.
    sign: &'static str,
    class: &'static str,
    pub meaning: &'static str,
}

/// From the best to none.
pub const KINDS: [Kind; 5] = [
    Kind {
        verdict: Verdict::Reproduced,
        sign: "✓",
        class: "reproduced",
        meaning: "the whole interval is as expected",
    },
    Kind {
        verdict: Verdict::Direction,
        sign: "~",
        class: "direction",
        meaning: "the median is as expected; the interval is not, or the runs were quick",
    },
    Kind {
        verdict: Verdict::Exceeds,
        sign: "»",
        class: "direction",
        meaning: "more than twice the document's effect, in logarithms: another cause is at work",
    },
    Kind {
        verdict: Verdict::NotReproduced,
        sign: "✗",
        class: "missed",
        meaning: "the median is not as expected",
    },
    Kind {
        verdict: Verdict::NotJudged,
        sign: "–",
        class: "unjudged",
        meaning: "the runs do not decide it; the reason is given",
    },
];

/// How many claims of an experiment have a verdict.
pub fn count(part: &Part<'_>, verdict: Verdict) -> usize {
    let claims = part.claims.iter();
    claims.filter(|claim| claim.verdict == verdict).count()
}

/// A verdict as a mark with its word.
pub fn badge(m: &mut Markup, verdict: Verdict, count: Option<usize>) {
    let known = KINDS.iter().find(|kind| kind.verdict == verdict);
    let (sign, class) = known.map_or(("", "unjudged"), |kind| (kind.sign, kind.class));
    let name = verdict.name();
    m.element("span", &[("class", &format!("badge {class}"))], |m| {
        m.leaf("span", &[("aria-hidden", "true")], sign);
        match count {
            Some(count) => m.text(&format!(" {count} {name}")),
            None => m.text(&format!(" {name}")),
        }
    });
}
