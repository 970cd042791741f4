//! What is printed and written.

use crate::arguments::Arguments;
use crate::figures::{Figure, Figures, Row};
use crate::paths::{Goal, Path};
use packtrain_lab::topology::Settings;
use packtrain_lab::traffic::congestion_control;
use packtrain_measure::claim::figures;
use packtrain_measure::report::{Conditions, rounded};
use packtrain_measure::statistics::{self, Estimate};
use packtrain_measure::{Claim, Expected};
use serde_json::{Value, json};

/// What a column shows.
type Of = fn(&Figures) -> Option<f64>;

/// The heading of a column, its figure, and digits behind the point.
type Column = (&'static str, Of, usize);

const COLUMNS: [Column; 12] = [
    ("1 TCP", |of| of.tcp1_gbps, 3),
    ("CPU/GB", |of| of.tcp1_cpu_s_per_gb, 3),
    ("all/GB", |of| of.tcp1_machine_s_per_gb, 3),
    ("8 TCP", |of| of.tcp8_gbps, 3),
    ("CPU/GB", |of| of.tcp8_cpu_s_per_gb, 3),
    ("all/GB", |of| of.tcp8_machine_s_per_gb, 3),
    ("kpps", |of| of.kpps, 1),
    ("lost %", |of| of.lost_percent, 1),
    ("CPU/Mp", |of| of.cpu_s_per_mpps, 3),
    ("all/Mp", |of| of.machine_s_per_mpps, 3),
    ("RTT us", |of| of.round_trip_us, 1),
    ("99 %", |of| of.round_trip_p99_us, 1),
];

/// Figures whose medians are in the JSON document.
const NAMES: [(&str, Of); 10] = [
    ("tcp1_gbps", |of| of.tcp1_gbps),
    ("tcp1_cpu_s_per_gb", |of| of.tcp1_cpu_s_per_gb),
    ("tcp1_machine_s_per_gb", |of| of.tcp1_machine_s_per_gb),
    ("tcp8_gbps", |of| of.tcp8_gbps),
    ("tcp8_cpu_s_per_gb", |of| of.tcp8_cpu_s_per_gb),
    ("tcp8_machine_s_per_gb", |of| of.tcp8_machine_s_per_gb),
    ("kpps", |of| of.kpps),
    ("cpu_s_per_mpps", |of| of.cpu_s_per_mpps),
    ("machine_s_per_mpps", |of| of.machine_s_per_mpps),
    ("round_trip_us", |of| of.round_trip_us),
];

/// On what everything is measured.
pub fn conditions(arguments: &Arguments) -> Conditions {
    let mut conditions = Conditions::of_host();
    let congestion = congestion_control().unwrap_or_else(|_| "unknown".to_owned());
    conditions.add("tcp", congestion);
    let Settings { mtu, .. } = Settings::default();
    conditions.add(
        "samples",
        format!(
            "{} rounds of {} s for each load, from left to right, IPv4, MTU {mtu}",
            arguments.rounds,
            arguments.timed.time.as_secs_f64()
        ),
    );
    conditions.add(
        "columns",
        "goodput in Gbit/s; CPU seconds of the forwarder and of the whole machine for 1 GB of \
         payload and for 1 M packets; thousands of 64-byte packets a second that arrive; round \
         trips of a flood ping; far: offloads of the hosts' veths",
    );
    conditions
}

/// The heads of the columns.
pub fn print_head() {
    let heads = COLUMNS.iter().map(|(head, ..)| format!(" {head:>7}"));
    let heads: String = heads.collect();
    println!(
        "{:>6} {:<13} {:<18} {:>3}{heads}",
        "round", "path", "forwarder", "far"
    );
}

/// One line for one contestant in one round.
pub fn print_row(row: &Row) {
    print_line(&row.round.to_string(), row, |figure| figure(&row.figures));
}

/// One line about a contestant; `figure` gets what a column shows.
fn print_line(what: &str, row: &Row, figure: impl Fn(Of) -> Option<f64>) {
    let cells = COLUMNS.iter().map(|(_, of, digits)| match figure(*of) {
        Some(value) => format!(" {value:>7.digits$}"),
        None => format!(" {:>7}", "-"),
    });
    let cells: String = cells.collect();
    println!(
        "{what:>6} {:<13} {:<18} {:>3}{cells}",
        row.path, row.forwarder, row.far_offloads
    );
}

fn of<'a>(rows: &'a [Row], contestant: &str) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| row.forwarder == contestant)
}

/// Prints the median, the least and the greatest figures of each contestant, and returns the
/// medians for the JSON document.
pub fn medians(path: &Path, rows: &[Row]) -> Vec<Value> {
    let medians = path.contestants.iter().filter_map(|contestant| {
        let rows: Vec<&Row> = of(rows, contestant.name).collect();
        let first = rows.first()?;
        let sorted = |figure: Of| {
            let mut all: Vec<f64> = rows.iter().filter_map(|row| figure(&row.figures)).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let median = |figure| {
            let all = sorted(figure);
            (!all.is_empty()).then(|| statistics::median(&all))
        };
        if rows.len() > 1 {
            print_line("median", first, median);
            print_line("least", first, |figure| sorted(figure).first().copied());
            print_line("most", first, |figure| sorted(figure).last().copied());
        }
        let mut document = json!({
            "path": first.path,
            "forwarder": first.forwarder,
            "far_offloads": first.far_offloads,
        });
        for (name, figure) in NAMES {
            document[name] = rounded(median(figure));
        }
        Some(document)
    });
    medians.collect()
}

/// The ratio of two contestants, first to second, over the rounds.
fn ratio(rows: &[Row], [ours, theirs]: [&str; 2], figure: Figure) -> Option<Estimate> {
    let ratio = |ours: &Row| {
        let theirs = of(rows, theirs).find(|row| row.round == ours.round)?;
        Some(figure.of(&ours.figures)? / figure.of(&theirs.figures)?)
    };
    statistics::estimate(&of(rows, ours).filter_map(ratio).collect::<Vec<_>>())
}

/// Compares the first contestant with the others, and prints the verdicts on the goals.
pub fn judge(path: &Path, rows: &[Row]) -> Vec<Claim> {
    println!();
    let mut contestants = path.contestants.iter().map(|contestant| contestant.name);
    let ours = contestants.next().unwrap_or_default();
    for name in contestants {
        let is_goal = |figure| {
            let mut goals = path.goals.iter();
            let is = |goal: &Goal| goal.ours == ours && goal.beside == name;
            goals.any(|goal| is(goal) && goal.figure == figure)
        };
        for figure in Figure::ALL {
            if !is_goal(figure)
                && let Some(ratio) = ratio(rows, [ours, name], figure)
            {
                let ratio = figures(Some(ratio));
                println!("ports/{}: {} ({name}): {ratio}", path.name, figure.name());
            }
        }
    }
    let claim = |goal: &Goal| {
        let claim = Claim::of_ratio(
            &format!("ports/{}", path.name),
            format!("{}: {}", goal.ours, goal.figure.name()),
            goal.beside,
            ratio(rows, [goal.ours, goal.beside], goal.figure),
            Expected::AtLeast(goal.least),
        );
        println!("{claim}");
        claim
    };
    let claims = path.goals.iter().map(claim).collect();
    println!();
    claims
}
