//! Verdicts as marks.

use super::markup::Markup;
use super::read::Part;

/// The verdicts, from the best to none, each with its sign, its class and what it means.
pub const VERDICTS: [(&str, &str, &str, &str); 4] = [
    (
        "reproduced",
        "✓",
        "reproduced",
        "the whole interval is as expected",
    ),
    (
        "direction",
        "~",
        "direction",
        "the median is as expected, the interval reaches beyond",
    ),
    (
        "not reproduced",
        "✗",
        "missed",
        "the median is not as expected",
    ),
    (
        "not judged",
        "–",
        "unjudged",
        "there are fewer than three clean runs; the reason is given",
    ),
];

/// How many claims of an experiment have a verdict.
pub fn count(part: &Part<'_>, verdict: &str) -> usize {
    let claims = part.claims.iter();
    claims.filter(|claim| claim["verdict"] == verdict).count()
}

/// A verdict as a mark with its word.
pub fn badge(m: &mut Markup, verdict: &str, count: Option<usize>) {
    let known = VERDICTS.iter().find(|one| one.0 == verdict);
    let (sign, class) = known.map_or(("", "unjudged"), |one| (one.1, one.2));
    m.element("span", &[("class", &format!("badge {class}"))], |m| {
        m.leaf("span", &[("aria-hidden", "true")], sign);
        match count {
            Some(count) => m.text(&format!(" {count} {verdict}")),
            None => m.text(&format!(" {verdict}")),
        }
    });
}
