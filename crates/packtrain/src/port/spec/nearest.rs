//! Suggestions for a misspelled word.

use strsim::damerau_levenshtein;

/// The known word that `word` is most likely a misspelling of, if one is near enough.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    // Longer than any misspelled word. This also bounds the cost.
    if word.len() > 32 {
        return None;
    }
    let first = ranked(word, known).into_iter().next();
    first.filter(|near| is_near(word, near, damerau_levenshtein(word, near)))
}

/// The three nearest of the known words, in quotes.
pub(super) fn nearest_three(word: &str, known: &[&str]) -> String {
    let quoted = |near: &str| format!("'{near}'");
    let three = ranked(word, known).into_iter().take(3).map(quoted);
    three.collect::<Vec<_>>().join(", ")
}

/// The known words, the nearest first: a word that contains the other goes before the rest.
fn ranked<'a>(word: &str, known: &[&'a str]) -> Vec<&'a str> {
    // More letters are not worth a comparison. This also bounds the cost.
    let word: String = word.chars().take(32).collect();
    let mut ranked = known.to_vec();
    ranked.sort_by_cached_key(|near| {
        let is_part = word.len() > 1 && (near.contains(&word) || word.contains(near));
        let slips = damerau_levenshtein(&word, near);
        (!is_near(&word, near, slips), !is_part, slips)
    });
    ranked
}

/// Whether `near` is likely meant by `word`, which is so many slips away.
fn is_near(word: &str, near: &str, slips: usize) -> bool {
    slips <= (word.len().min(near.len()) / 2).min(2)
}
