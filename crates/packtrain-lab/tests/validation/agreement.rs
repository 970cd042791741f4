//! When two programs that measure the same disagree.
//!
//! A comparison has the ratio of both in each round, and the ratio of the tool to itself. From each
//! follows a median with its bootstrap interval ([`packtrain_measure::statistics`]). The *spread*
//! is how far the interval of the tool to itself reaches from 1, on its wider side. Two programs
//! agree if the interval of their ratio meets 1 ± spread.
//!
//! A test that fails whenever they do not agree would fail by chance, and because of honest
//! differences, such as the calls that a program makes. So they *disagree* only if all of the
//! interval is beyond the spread by a factor as well, which only another definition of the figure
//! explains. Noise that differs from round to round widens the spread and the interval. A load that
//! is always there can favour one program, since a thread that polls and one that is woken up are
//! scheduled differently: if other programs disturbed the comparison, the factor is that of a wrong
//! unit.

use packtrain_lab::LabError;
use packtrain_lab::cpu::Usage;
use packtrain_lab::harness::Outcome;
use packtrain_lab::tool::Watch;
use packtrain_measure::statistics::{Estimate, estimate};

/// Half way, in ratios, from agreement to a figure that is counted twice: both directions, or a
/// round trip for one way.
const DEFINITION: f64 = std::f64::consts::SQRT_2;

/// The same for the least mistake in a unit, bits for bytes: the root of 8.
const UNIT: f64 = 2.0 * std::f64::consts::SQRT_2;

/// Observes the machine during a comparison. The other programs are children of this process.
#[derive(Debug)]
pub struct Observer {
    watch: Watch,
    children: Usage,
}

impl Observer {
    pub fn start() -> Result<Self, LabError> {
        let (watch, children) = (Watch::start()?, Usage::of_children());
        Ok(Self { watch, children })
    }

    /// Why figures were disturbed, if they were.
    pub fn end(&self) -> Result<Option<String>, LabError> {
        let children = Usage::of_children().since(&self.children).cpu();
        let (_, flag) = self.watch.end(children)?;
        if let Some(flag) = &flag {
            println!("disturbed: {flag}");
        }
        Ok(flag)
    }
}

/// What was measured in each round.
#[derive(Debug, Default)]
pub struct Rounds {
    /// By the tool.
    pub tool: Vec<f64>,
    /// By the tool once more.
    pub again: Vec<f64>,
    /// By the other program.
    pub other: Vec<f64>,
}

impl Rounds {
    /// Compares, and prints the result. `what` and `unit` are for the text.
    ///
    /// # Errors
    /// The text, if they disagree.
    pub fn compare(&self, what: &str, unit: &str, is_disturbed: bool) -> Result<(), String> {
        let of = |others: &[f64]| -> Result<Estimate, String> {
            let pairs = self.tool.iter().zip(others);
            let ratios: Vec<f64> = pairs.map(|(tool, other)| tool / other).collect();
            estimate(&ratios).ok_or_else(|| format!("{what}: {self:?} is not positive"))
        };
        let (ratio, itself) = (of(&self.other)?, of(&self.again)?);
        let spread = itself.high.max(1.0 / itself.low);
        let meets = |reach: f64| ratio.low <= reach && ratio.high >= 1.0 / reach;
        let factor = if is_disturbed { UNIT } else { DEFINITION };
        let verdict = match (meets(spread), meets(spread * factor)) {
            (true, _) => "agree",
            (false, true) => "differ, by less than another definition explains",
            (false, false) => "disagree",
        };
        let rounds = |values: &[f64]| {
            let words: Vec<_> = values.iter().map(|value| format!("{value:.3}")).collect();
            words.join(" ")
        };
        let text = format!(
            "{what}: {} and {} {unit}: ratio {:.3} [{:.3}, {:.3}], to itself {:.3} [{:.3}, {:.3}]: \
             they {verdict}",
            rounds(&self.tool),
            rounds(&self.other),
            ratio.median,
            ratio.low,
            ratio.high,
            itself.median,
            itself.low,
            itself.high,
        );
        println!("{text}");
        if meets(spread * factor) {
            Ok(())
        } else {
            Err(text)
        }
    }
}

/// Rounds in which the machine's speed differs, the same for all runs of a round but for `noise`.
fn made(factor: f64, noise: f64) -> Rounds {
    let speeds = [9.0, 4.0, 10.0, 2.0, 7.0];
    let swing = [1.0, -0.6, 0.3, -1.0, 0.8];
    let with = |factor: f64, of: fn(f64) -> f64| -> Vec<f64> {
        let rounds = speeds.iter().zip(swing);
        rounds
            .map(|(speed, swing)| speed * factor * noise.powf(of(swing)))
            .collect()
    };
    Rounds {
        tool: with(factor, |swing| swing / 2.0),
        again: with(factor, |swing| -swing / 2.0),
        other: with(1.0, |swing| swing / 4.0),
    }
}

/// Twice, half, and wrong units; the latter also beside other programs.
pub fn another_definition() -> Outcome {
    for factor in [2.0, 0.5, 8.0, 1.0 / 8.0, 1e-3] {
        let is_unit = factor >= 8.0 || factor <= 1.0 / 8.0;
        for is_disturbed in [false, true] {
            let compared = made(factor, 1.05).compare("made up", "", is_disturbed);
            let disagree = is_unit || !is_disturbed;
            assert_eq!(compared.is_err(), disagree, "{factor}: {compared:?}");
        }
    }
    assert!(Rounds::default().compare("nothing", "", false).is_err());
    assert!(made(0.0, 1.05).compare("zero", "", false).is_err());
    Outcome::Done
}

/// Runs that differ from each other by up to a factor of three, and honest differences.
pub fn noise() -> Outcome {
    for (factor, noise) in [
        (1.0, 1.0),
        (1.0, 1.05),
        (1.0, 3.0),
        (1.2, 1.05),
        (0.8, 1.05),
    ] {
        let compared = made(factor, noise).compare("made up", "", false);
        assert_eq!(compared, Ok(()), "{factor} {noise}");
    }
    Outcome::Done
}
