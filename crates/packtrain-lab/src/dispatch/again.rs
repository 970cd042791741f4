//! The second look at what missed its goal in the first one.
//!
//! Of 36 situations one or two miss it by chance: each is judged by a few short runs, with noise of
//! ten percent. So where the adaptive setting lost more than it may, it runs again beside the
//! settings that were the best ones, more often and for longer, and is judged by these runs alone:
//! the first ones are those that were bad by chance, if it was chance. Nothing that reached the
//! goal is looked at again, so noise that is kind stays; by how much is what the interval says.

use super::Row;
use super::claims::{LATENCY_REGRET_MAX, THROUGHPUT_REGRET_MAX};
use super::regret::{Better, Regret, regret};
use packtrain_bench::statistics;

/// Fixed settings that run again: those that were the best ones.
const BEST: usize = 3;

impl Better {
    /// What decides in the situation of this row.
    fn of(row: &Row) -> Self {
        if row.cell.load.is_paced() {
            Self::Lower
        } else {
            Self::Higher
        }
    }

    /// What the adaptive setting may lose, as a fraction.
    const fn regret_max(self) -> f64 {
        match self {
            Self::Higher => THROUGHPUT_REGRET_MAX,
            Self::Lower => LATENCY_REGRET_MAX,
        }
    }
}

/// Works out the regret of a cell's adaptive row, which is the last one. The cell is one of so many
/// `cells`.
pub(super) fn judge(cell: &mut [Row], cells: usize) {
    let Some((adaptive, fixed)) = cell.split_last_mut() else {
        return;
    };
    let fixed: Vec<_> = fixed.iter().map(Row::judged).collect();
    adaptive.regret = regret(&adaptive.judged(), &fixed, Better::of(adaptive), cells);
}

/// Which rows of a cell run again, its adaptive one last; none where the goal was reached, or where
/// nothing can be said.
pub(super) fn rows(cell: &[Row]) -> Vec<usize> {
    let Some((adaptive, fixed)) = cell.split_last() else {
        return Vec::new();
    };
    let better = Better::of(adaptive);
    let missed = |regret: &Regret| regret.regret > better.regret_max();
    let Some(missed) = adaptive.regret.filter(missed) else {
        return Vec::new();
    };
    let median = |index: &usize| statistics::median(&fixed[*index].judged());
    let mut best: Vec<usize> = (0..fixed.len()).collect();
    best.sort_by(|a, b| match better {
        Better::Higher => median(b).total_cmp(&median(a)),
        Better::Lower => median(a).total_cmp(&median(b)),
    });
    best.truncate(BEST);
    if missed.is_worst && !best.contains(&missed.worst) {
        best.push(missed.worst);
    }
    best.push(fixed.len());
    best
}

/// Works the regret of a cell's adaptive row out again, by the runs of the second look; what it was
/// is kept beside it. Nothing is changed where there were none.
pub(super) fn judge_again(cell: &mut [Row], cells: usize) {
    let Some((adaptive, fixed)) = cell.split_last_mut() else {
        return;
    };
    let ran = (0..fixed.len()).filter(|&index| !fixed[index].again.is_empty());
    let ran: Vec<usize> = ran.collect();
    let figures: Vec<_> = ran
        .iter()
        .map(|&index| fixed[index].judged_again())
        .collect();
    let again = adaptive.judged_again();
    let found = regret(&again, &figures, Better::of(adaptive), cells);
    let (Some(first), Some(found)) = (adaptive.regret, found) else {
        return;
    };
    adaptive.first = Some(first);
    adaptive.regret = Some(Regret {
        best: ran[found.best],
        // The worst one ran again only where it was to be decided who that is.
        worst: first.worst,
        is_worst: first.is_worst && found.is_worst,
        ..found
    });
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;
    use crate::dispatch::load::Load;
    use crate::dispatch::schedule::{self, Cell, PortKind};
    use packtrain::policy::placement::Placement;

    /// A cell of as many fixed settings as there are `fixed`, with these packets, or latencies
    /// where it is paced, and the adaptive one.
    fn cell(load: Load, fixed: &[u64], adaptive: u64) -> Vec<Row> {
        let all = schedule::settings(&[], &[Placement::None]);
        let cell = Cell {
            port: PortKind::Null,
            producers: 1,
            frame_bytes: 64,
            load,
        };
        let figures = |figure| match load.is_paced() {
            true => (1000, figure),
            false => (figure, 1000),
        };
        let of = |settings: &packtrain::engine::Settings, figure| {
            let (packets, latency_ns) = figures(figure);
            row(cell, settings, packets, latency_ns)
        };
        let mut rows: Vec<_> = all.iter().zip(fixed).map(|(one, &f)| of(one, f)).collect();
        assert_eq!(rows.len(), fixed.len());
        rows.push(of(&schedule::adaptive(), adaptive));
        judge(&mut rows, 1);
        rows
    }

    /// Gives the rows that are to run again these figures there, in the order of `rows`.
    fn ran_again(cell: &mut [Row], figures: &[u64]) {
        let which = rows(cell);
        assert_eq!(which.len(), figures.len());
        for (index, &packets) in which.into_iter().zip(figures) {
            let again = row(cell[index].cell, &cell[index].settings, packets, 1000);
            cell[index].again = again.samples;
        }
        judge_again(cell, 1);
    }

    #[test]
    fn what_missed_its_goal_runs_again_beside_the_best_ones() {
        let fixed = [700, 1000, 800, 900, 600];
        let missed = cell(Load::Saturation, &fixed, 950);
        assert_eq!(rows(&missed), [1, 3, 2, 5]);
        // 3 % less is what it may have.
        assert!(rows(&cell(Load::Saturation, &fixed, 971)).is_empty());
        assert!(rows(&cell(Load::Saturation, &fixed, 1100)).is_empty());
        // Of latency less is better, and 10 % more are allowed.
        assert_eq!(rows(&cell(Load::Trickle, &fixed, 800)), [4, 0, 2, 5]);
        assert!(rows(&cell(Load::Trickle, &fixed, 620)).is_empty());
    }

    #[test]
    fn who_seems_to_be_the_worst_runs_again_beside_the_worst_one() {
        let missed = cell(Load::Saturation, &[700, 1000, 800, 900, 600], 500);
        assert!(missed[5].regret.is_some_and(|regret| regret.is_worst));
        assert_eq!(rows(&missed), [1, 3, 2, 4, 5]);
    }

    #[test]
    fn the_second_look_alone_decides_and_the_first_is_kept() {
        let mut cell = cell(Load::Saturation, &[700, 1000, 800, 900, 600], 500);
        // Beside 1, 3, 2 and the worst; now 3 is the best, and the adaptive setting 1 % below it.
        ran_again(&mut cell, &[950, 1000, 800, 600, 990]);
        let (found, first) = (cell[5].regret.unwrap(), cell[5].first.unwrap());
        assert!((found.regret - 0.01).abs() < 1e-12, "{found:?}");
        assert!((first.regret - 0.5).abs() < 1e-12, "{first:?}");
        assert_eq!((found.best, found.worst, found.is_worst), (3, 4, false));
        assert!(first.is_worst);
    }

    #[test]
    fn what_is_the_worst_in_both_looks_is() {
        let mut cell = cell(Load::Saturation, &[700, 1000, 800, 900, 600], 500);
        ran_again(&mut cell, &[950, 1000, 800, 600, 500]);
        assert!(cell[5].regret.unwrap().is_worst);
    }

    #[test]
    fn without_a_second_look_the_first_stands() {
        let mut cell = cell(Load::Saturation, &[700, 1000], 500);
        let first = cell[2].regret;
        judge_again(&mut cell, 1);
        assert_eq!((cell[2].regret, cell[2].first), (first, None));
    }
}
