//! Verdicts as marks.

use packtrain_measure::Verdict;

use super::markup::Markup;
use super::read::Part;
use crate::experiment::document::NOT_JUDGED;

/// A verdict on the page.
#[derive(Debug)]
pub struct Kind {
    /// As in documents.
    pub name: &'static str,
    /// Beside the colour, which not all readers see.
    sign: &'static str,
    class: &'static str,
    pub meaning: &'static str,
}

/// From the best to none.
pub const KINDS: [Kind; 4] = [
    Kind {
        name: Verdict::Reproduced.name(),
        sign: "✓",
        class: "reproduced",
        meaning: "the whole interval is as expected",
    },
    Kind {
        name: Verdict::Direction.name(),
        sign: "~",
        class: "direction",
        meaning: "the median is as expected; the interval is not, or the runs were quick",
    },
    Kind {
        name: Verdict::NotReproduced.name(),
        sign: "✗",
        class: "missed",
        meaning: "the median is not as expected",
    },
    Kind {
        name: NOT_JUDGED,
        sign: "–",
        class: "unjudged",
        meaning: "the runs do not decide it; the reason is given",
    },
];

/// How many claims of an experiment have a verdict.
pub fn count(part: &Part<'_>, verdict: &str) -> usize {
    let claims = part.claims.iter();
    claims.filter(|claim| claim["verdict"] == verdict).count()
}

/// A verdict as a mark with its word.
pub fn badge(m: &mut Markup, verdict: &str, count: Option<usize>) {
    let known = KINDS.iter().find(|kind| kind.name == verdict);
    let (sign, class) = known.map_or(("", "unjudged"), |kind| (kind.sign, kind.class));
    m.element("span", &[("class", &format!("badge {class}"))], |m| {
        m.leaf("span", &[("aria-hidden", "true")], sign);
        match count {
            Some(count) => m.text(&format!(" {count} {verdict}")),
            None => m.text(&format!(" {verdict}")),
        }
    });
}
