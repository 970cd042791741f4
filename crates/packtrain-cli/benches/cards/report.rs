//! What is printed and written.

use crate::Arguments;
use crate::paths::Path;
use packtrain_measure::claim::figures;
use packtrain_measure::report::Conditions;
use packtrain_measure::statistics::{self, Estimate};
use packtrain_measure::{Claim, Expected};
use serde::Serialize;
use serde_json::{Value, json};

/// One contestant in one round.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub path: &'static str,
    pub contestant: &'static str,
    pub round: usize,
    /// For each packet: instructions of the whole guest.
    pub instructions: f64,
    /// For each packet: reads and writes of the cards' registers.
    pub reads: Option<f64>,
    pub writes: Option<f64>,
    /// Packets that came in for each one that went out.
    pub segments: Option<f64>,
}

/// On what everything is measured.
pub fn conditions(arguments: &Arguments) -> Conditions {
    let mut conditions = Conditions::of_host();
    let translated = match arguments.translated {
        true => "translated for the kernel's drivers, too (Debian's default)",
        false => "passed through for the kernel's drivers (iommu=pt), its best case",
    };
    conditions.add(
        "guest",
        "QEMU with -icount, 1 processor, 82574L, mitigations=off",
    );
    conditions.add("addresses", translated);
    conditions.add("samples", format!("{} rounds", arguments.rounds));
    conditions
}

fn number(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.3}"))
}

/// One line.
pub fn print_row(row: &Row) {
    println!(
        "{:>3} {:<11} {:<24} {:>9.1} instructions, {} reads, {} writes, {} in one",
        row.round,
        row.path,
        row.contestant,
        row.instructions,
        number(row.reads),
        number(row.writes),
        number(row.segments),
    );
}

fn sorted(rows: &[Row], contestant: &str) -> Vec<f64> {
    let rows = rows.iter().filter(|row| row.contestant == contestant);
    let mut all: Vec<f64> = rows.map(|row| row.instructions).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// Prints the median, the least and the greatest figure of each contestant, and returns them.
pub fn medians(path: &Path, rows: &[Row]) -> Vec<Value> {
    let of = |name: &str| {
        let all = sorted(rows, name);
        let (least, most) = (*all.first()?, *all.last()?);
        let median = statistics::median(&all);
        println!(
            "    {:<11} {name:<24} {median:>9.1} instructions ({least:.1} to {most:.1})",
            path.name
        );
        Some(json!({
            "path": path.name,
            "contestant": name,
            "instructions": median,
            "least": least,
            "most": most,
        }))
    };
    path.contestants
        .iter()
        .filter_map(|contestant| of(contestant.name))
        .collect()
}

/// The ratio of the first contestant to another one, over the rounds.
fn ratio(rows: &[Row], ours: &str, theirs: &str) -> Option<Estimate> {
    let of = |name: &str, round: usize| {
        rows.iter()
            .find(|row| row.contestant == name && row.round == round)
    };
    let rounds = rows.iter().filter(|row| row.contestant == ours);
    let ratios =
        rounds.filter_map(|row| Some(row.instructions / of(theirs, row.round)?.instructions));
    statistics::estimate(&ratios.collect::<Vec<_>>())
}

/// Compares the first contestant with the others, and prints the verdicts.
pub fn judge(path: &Path, rows: &[Row]) -> Vec<Claim> {
    let Some(ours) = path.contestants.first() else {
        return Vec::new();
    };
    let mut claims = Vec::new();
    for other in &path.contestants[1..] {
        let ratio = ratio(rows, ours.name, other.name);
        if other.is_share {
            println!(
                "cards/{}: instructions ({}): {}",
                path.name,
                other.name,
                figures(ratio)
            );
            continue;
        }
        let claim = Claim::of_ratio(
            &format!("cards/{}", path.name),
            "instructions".to_owned(),
            other.name,
            ratio,
            Expected::AtMost(1.0),
        );
        println!("{claim}");
        claims.push(claim);
    }
    println!();
    claims
}
