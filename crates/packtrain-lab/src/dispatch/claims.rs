//! What the bench is to show.

use super::regret::{Better, together};
use super::schedule;
use super::{Outcome, Row, Sample};
use crate::claim::{Claim, Verdict};
use packtrain::policy::dispatch::Dispatch;

/// What the adaptive setting may lose of the throughput of the best fixed one, as a fraction.
pub const THROUGHPUT_REGRET_MAX: f64 = 0.03;
/// By how much its 99th percentile of latency may be above that of the best, as a fraction.
pub const LATENCY_REGRET_MAX: f64 = 0.10;
/// Context switches for each device frame that it may take at saturation.
pub const SWITCHES_PER_FRAME_MAX: f64 = 0.02;

/// What was to be shown, and what was.
#[must_use]
pub fn claims(outcome: &Outcome) -> Vec<Claim> {
    let mut claims = vec![conservation(outcome)];
    let adaptive: Vec<&Row> = outcome
        .rows
        .iter()
        .filter(|row| row.is_adaptive())
        .collect();
    let cells = adaptive.iter().filter_map(|row| {
        let fixed = outcome.cells().find(|cell| cell[0].cell == row.cell)?;
        cell(row, fixed).or_else(|| without_figure(row))
    });
    claims.extend(cells);
    claims.extend(latency(outcome));
    claims.extend(never_worst(&adaptive));
    claims.extend(switches(&adaptive));
    claims.extend(no_wakeup(outcome));
    claims
}

fn conservation(outcome: &Outcome) -> Claim {
    let closed = outcome.runs - outcome.unclosed.len();
    Claim {
        claim: "every packet of every run is accounted for".to_owned(),
        expected: "all runs".to_owned(),
        measured: format!("{closed} of {} runs", outcome.runs),
        verdict: Verdict::of(outcome.unclosed.is_empty()),
        must: true,
    }
}

fn percent(fraction: f64) -> String {
    format!("{:.1} %", fraction * 100.0)
}

/// How near one adaptive row comes to the best of its cell.
fn cell(row: &Row, rows: &[Row]) -> Option<Claim> {
    let regret = row.regret?;
    let best = super::named(&rows.get(regret.best)?.settings);
    let again = row.first.map(|first| {
        let (first, repeats) = (percent(first.regret), row.again.len());
        format!("; looked at again {repeats} times, {first} at first")
    });
    let (what, expected, most, in_noise) = if row.cell.load.is_paced() {
        let most = percent(LATENCY_REGRET_MAX);
        let expected = format!("at most {most}");
        let in_noise = Verdict::Direction;
        ("p99 latency", expected, LATENCY_REGRET_MAX, in_noise)
    } else {
        let most = percent(THROUGHPUT_REGRET_MAX);
        let expected = format!("at most {most}, or within the noise");
        let in_noise = Verdict::Reproduced;
        ("throughput", expected, THROUGHPUT_REGRET_MAX, in_noise)
    };
    let (verdict, certain) = match regret.is_loss() {
        _ if regret.regret <= most => (Verdict::Reproduced, ""),
        None => (Verdict::Direction, ", of too few repeats to be certain"),
        Some(false) => (in_noise, ", which may be chance"),
        Some(true) => (Verdict::NotReproduced, ", which is no chance"),
    };
    let measured = format!(
        "a regret of {} ({} to {}{certain}), beside {best}{}",
        percent(regret.regret),
        percent(regret.low),
        percent(regret.high),
        again.unwrap_or_default()
    );
    Some(Claim {
        claim: format!("adaptive comes near the best {what}: {}", row.cell),
        expected,
        measured,
        verdict,
        must: false,
    })
}

/// What the adaptive setting loses of p99 beside the plainest one in all paced situations together:
/// the ratio of a single one may be noise alone. By the first look, in which all were measured as
/// often.
fn latency(outcome: &Outcome) -> Option<Claim> {
    let cells = outcome.cells().filter(|cell| cell[0].cell.load.is_paced());
    let (mut adaptive, mut plain, mut situations) = (Vec::new(), Vec::new(), 0);
    for cell in cells {
        let of = |is_it: fn(&Row) -> bool| Some(cell.iter().find(|row| is_it(row))?.judged());
        adaptive.extend(of(Row::is_adaptive)?);
        plain.extend(of(is_plain)?);
        situations += 1;
    }
    // Of one alone its own row says more.
    if situations < 2 {
        return None;
    }
    let claim = |measured, verdict| Claim {
        claim: format!(
            "p99 latency of adaptive in all paced situations together is near that of {}",
            super::named(&schedule::plain())
        ),
        expected: format!("at most {} more", percent(LATENCY_REGRET_MAX)),
        measured,
        verdict,
        must: false,
    };
    if adaptive.iter().chain(&plain).any(|&figure| figure <= 0.0) {
        let none = "no figure: in a repeat nothing was sent".to_owned();
        return Some(claim(none, Verdict::NotReproduced));
    }
    let found = together(&adaptive, &plain, Better::Lower)?;
    let [more, low, high] = [found.regret, found.low, found.high].map(percent);
    let pairs = adaptive.len();
    let verdict = if found.regret <= LATENCY_REGRET_MAX {
        Verdict::Reproduced
    } else if found.low <= LATENCY_REGRET_MAX {
        Verdict::Direction
    } else {
        Verdict::NotReproduced
    };
    let measured = format!(
        "{more} more ({low} to {high}), by {pairs} pairs of runs in {situations} situations"
    );
    Some(claim(measured, verdict))
}

fn is_plain(row: &Row) -> bool {
    row.settings == schedule::in_cell(&schedule::plain(), &row.cell)
}

/// Of repeats in which nothing was sent there is no ratio: that is no success.
fn without_figure(row: &Row) -> Option<Claim> {
    // One is too few to compare: it was interrupted.
    (row.samples.len() > 1).then(|| Claim {
        claim: format!("adaptive can be compared: {}", row.cell),
        expected: "packets in every repeat".to_owned(),
        measured: "no figure: in a repeat nothing was sent, by it or by the best".to_owned(),
        verdict: Verdict::NotReproduced,
        must: false,
    })
}

fn never_worst(adaptive: &[&Row]) -> Option<Claim> {
    let regrets = adaptive.iter().filter_map(|row| Some((row, row.regret?)));
    let all = regrets.clone().count();
    let worst: Vec<_> = regrets.filter(|(_, regret)| regret.is_worst).collect();
    let names = worst.iter().map(|(row, _)| format!("; {}", row.cell));
    (all > 0).then(|| Claim {
        claim: "adaptive is never worse than the worst fixed setting".to_owned(),
        expected: "in no cell".to_owned(),
        measured: format!("in {} of {all}{}", worst.len(), names.collect::<String>()),
        verdict: Verdict::of(worst.is_empty()),
        must: false,
    })
}

fn switches(adaptive: &[&Row]) -> Option<Claim> {
    let full = adaptive.iter().filter(|row| !row.cell.load.is_paced());
    let full = full.filter(|row| !row.samples.is_empty());
    let figure = |row: &&&Row| row.median(Sample::switches_per_frame);
    let most = full.max_by(|a, b| figure(a).total_cmp(&figure(b)))?;
    let found = most.median(Sample::switches_per_frame);
    Some(Claim {
        claim: "adaptive needs few context switches at saturation".to_owned(),
        expected: format!("less than {SWITCHES_PER_FRAME_MAX} for each frame"),
        measured: format!("at most {found:.4}: {}", most.cell),
        verdict: Verdict::of(found < SWITCHES_PER_FRAME_MAX),
        must: false,
    })
}

/// One producer, one packet at a time: nobody else is ever asked.
fn no_wakeup(outcome: &Outcome) -> Option<Claim> {
    let direct = outcome.rows.iter().filter(|row| {
        row.settings.dispatch == Dispatch::Direct
            && row.cell.producers == 1
            && row.cell.load.batch() == 1
    });
    let wakeups_of = |row: &Row| row.all_samples().map(|one| one.wakeups).sum::<u64>();
    let packets = direct.clone().flat_map(Row::all_samples);
    let packets: u64 = packets.map(|sample| sample.packets).sum();
    let (mut wakeups, mut whose) = (0, String::new());
    for (row, some) in direct.map(|row| (row, wakeups_of(row))) {
        wakeups += some;
        if some > 0 {
            let setting = super::named(&row.settings);
            whose.push_str(&format!("; {some} of {}, {setting}", row.cell));
        }
    }
    (packets > 0).then(|| Claim {
        claim: "one packet at a time under direct dispatch wakes nobody".to_owned(),
        expected: "0 wakeups".to_owned(),
        measured: format!("{wakeups} wakeups, {packets} packets{whose}"),
        verdict: Verdict::of(wakeups == 0),
        must: false,
    })
}
