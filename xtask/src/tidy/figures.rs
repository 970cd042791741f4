//! Each figure has one source: a summary has what the section or the file of its row has.

use std::collections::BTreeMap;

use super::breach::{Breach, breach};
use super::tree::Tree;

/// The page of all measured figures.
const PAGE: &str = "docs/performance.md";

/// The section whose rows each name the source of their second cell, in the last cell.
const SUMMARY: &str = "At a glance";

/// Figures of the summary that its sources lack, and those of tables below "All rows" that the
/// file of rows lacks.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let page = tree.texts.get(PAGE).map_or("", String::as_str);
    let sections = page.split("\n## ").map(|text| {
        let title = text.lines().next().unwrap_or_default();
        (format!("#{}", anchor(title)), text)
    });
    let sections: BTreeMap<_, _> = sections.collect();
    let source = |target: &str| {
        let file = tree.texts.get(&format!("docs/{target}"));
        file.map(String::as_str)
            .or(sections.get(target).copied())
            .map(numbers)
    };
    let (mut title, mut rows, mut breaches) = ("", None, Vec::new());
    let mut named = BTreeMap::new();
    for (number, line) in (1..).zip(page.lines()) {
        if let Some(heading) = line.strip_prefix("## ") {
            (title, rows) = (heading, None);
        }
        for link in line.split('[').skip(1) {
            if let Some((text, rest)) = link.split_once("](") {
                let target = rest.split(')').next().unwrap_or_default();
                named.insert(text, source(target));
                if text == "All rows" {
                    rows = source(target);
                }
            }
        }
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, _, rest @ .., last, _] = &cells[..] else {
            continue;
        };
        let (figures, source) = if title == SUMMARY {
            let name = last.trim_start_matches('[').split([']', ':']).next();
            let source = name.and_then(|name| named.get(name)).cloned().flatten();
            // The head of a table, and the line below it.
            if rest.is_empty() || *last == "rows" || last.starts_with('-') {
                continue;
            }
            (rest.join(" "), source)
        } else if rows.is_some() {
            (format!("{} {last}", rest.join(" ")), rows.clone())
        } else {
            continue;
        };
        let why = "a figure that is written twice is stale in one place";
        let Some(source) = source else {
            let what = format!("`{last}` names no section and no file with these figures");
            let fix = "link the source in the last cell";
            breaches.push(breach(PAGE, number, what, why, fix));
            continue;
        };
        for (figure, decimals) in numbers(&figures) {
            // Whole numbers of a section's tables are often sizes of what is measured.
            if decimals == 0 && title != SUMMARY {
                continue;
            }
            // Sources are themselves rounded, so the half counts as either.
            let most = 0.501 * 10_f64.powi(-decimals);
            if !source.iter().any(|(of, _)| (of - figure).abs() <= most) {
                let what = format!("{figure} is not in the source of its row");
                let fix = "write what the source has, or measure both again";
                breaches.push(breach(PAGE, number, what, why, fix));
            }
        }
    }
    breaches
}

/// How a link calls a heading.
fn anchor(title: &str) -> String {
    let lower = title.to_lowercase().replace(' ', "-");
    let kept = lower
        .chars()
        .filter(|c| c.is_alphanumeric() || "-_".contains(*c));
    kept.collect()
}

/// The numbers of a text, each with its number of decimals. Digits within a word are none.
fn numbers(text: &str) -> Vec<(f64, i32)> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || "._,".contains(c)));
    let numbers = words.filter_map(|word| {
        let word = word.trim_matches(['.', ',']).replace(',', "");
        let decimals = word.split_once('.').map_or(0, |(_, after)| after.len());
        Some((word.parse().ok()?, i32::try_from(decimals).ok()?))
    });
    // `inf` and `nan` are words.
    numbers
        .filter(|(number, _): &(f64, i32)| number.is_finite())
        .collect()
}
