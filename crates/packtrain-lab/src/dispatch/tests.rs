//! The whole way, with few and short runs: what has to be there is there, whatever the figures.

use super::run::{Span, once};
use super::sweep::CAPACITY_RUNS;
use super::*;
use crate::claim::Verdict;
use load::Load;
use std::sync::atomic::Ordering;
use std::time::Instant;

fn options(grid: Grid) -> Options {
    Options {
        grid,
        thresholds: vec![4],
        repeats: 2,
        again: 0,
        window: Duration::from_millis(4),
        warm_up: Duration::from_millis(1),
        seed: 1,
        stop: Arc::default(),
    }
}

fn grid(ports: &[PortKind], loads: &[Load]) -> Grid {
    Grid {
        ports: ports.to_vec(),
        producers: vec![2],
        frames: vec![64],
        loads: loads.to_vec(),
        all: true,
        asked: schedule::Asked::default(),
    }
}

#[test]
fn every_setting_runs_in_every_cell_and_every_run_closes() {
    let loads = [Load::Trickle, Load::Percent(20), Load::Bulk];
    let options = options(grid(&[PortKind::Sim, PortKind::Null], &loads));
    let mut told = Vec::new();
    let outcome = run(&options, |progress| match progress {
        Progress::Done(done) => told.push(done),
        Progress::Begin(runs, _) => assert!(told.is_empty() && runs > 0),
        Progress::LeftOut(port, why) => panic!("{port}: {why}"),
        Progress::Again(..) => panic!("nobody asked for it"),
    });
    let outcome = outcome.unwrap();
    let places = outcome
        .places
        .iter()
        .filter(|place| place.same_as.is_none());
    let settings = 4 * 2 * places.count() + 1;
    assert_eq!(outcome.rows.len(), 2 * loads.len() * settings);
    assert_eq!(outcome.cells().count(), 2 * loads.len());
    assert_eq!(told.last(), Some(&(outcome.rows.len() * 2)));
    assert_eq!(outcome.unclosed, Vec::<String>::new());
    assert!(outcome.ledger.generated > 0 && outcome.ledger.closed());
    assert_eq!(outcome.ledger.dropped, 0);
    for row in &outcome.rows {
        assert_eq!(row.samples.len(), 2);
        assert_eq!(row.offered.is_some(), row.cell.load.is_paced());
        assert!(row.is_adaptive() || row.regret.is_none());
        for sample in &row.samples {
            assert!(sample.elapsed > Duration::ZERO);
            assert_eq!(sample.ledger.generated, sample.ledger.transmitted);
        }
    }
    for cell in outcome.cells() {
        assert!(cell.last().is_some_and(Row::is_adaptive));
        assert_eq!(cell.iter().filter(|row| row.is_adaptive()).count(), 1);
    }
    let claims = claims(&outcome);
    assert!(claims[0].must && claims[0].verdict == Verdict::Reproduced);
    assert!(claims[1..].iter().all(|claim| !claim.must));
}

#[test]
fn a_stop_ends_it_with_what_there_is() {
    let options = options(grid(&[PortKind::Null], &[Load::Saturation]));
    let stop = Arc::clone(&options.stop);
    let outcome = run(&options, |progress| {
        if let Progress::Done(3) = progress {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let outcome = outcome.unwrap();
    assert!(outcome.stopped);
    assert_eq!(outcome.repeats, 0);
    assert_eq!(outcome.runs, 3 + CAPACITY_RUNS + outcome.retaken);
    // Of a repeat that is not complete nothing counts.
    assert!(outcome.rows.iter().all(|row| row.samples.is_empty()));
    assert_eq!(claims(&outcome).len(), 1);
}

#[test]
fn of_a_repeat_that_was_stopped_no_cell_keeps_a_sample() {
    for complete in [0, 1] {
        let loads = [Load::Saturation, Load::Bulk, Load::Trickle];
        let options = options(grid(&[PortKind::Null], &loads));
        let stop = Arc::clone(&options.stop);
        let mut runs = 0;
        let outcome = run(&options, |progress| match progress {
            Progress::Begin(all, _) => runs = all,
            // In the last cell of the repeat.
            Progress::Done(done) if done == runs / 2 * (complete + 1) - 1 => {
                stop.store(true, Ordering::Relaxed);
            }
            _ => {}
        });
        let outcome = outcome.unwrap();
        assert_eq!((outcome.stopped, outcome.repeats), (true, complete));
        assert!(outcome.rows.iter().all(|row| row.samples.len() == complete));
        let claims = claims(&outcome);
        let switches = claims.iter().any(|claim| claim.claim.contains("switches"));
        assert_eq!(switches, complete > 0);
    }
}

/// What missed its goal is looked at again, and nothing else; which that is depends on the machine.
#[test]
fn what_missed_its_goal_is_looked_at_again() {
    let loads = [Load::Trickle, Load::Percent(20), Load::Saturation];
    let mut options = options(grid(&[PortKind::Sim, PortKind::Null], &loads));
    options.again = 3;
    let (mut runs, mut done) = (None, 0);
    let outcome = run(&options, |progress| match progress {
        Progress::Again(cells, all, _) => runs = Some((cells, all)),
        Progress::Done(so_far) => done = so_far,
        _ => {}
    });
    let outcome = outcome.unwrap();
    let (mut cells, mut compared, mut all) = (0, 0, 0);
    for cell in outcome.cells() {
        let ran = cell.iter().filter(|row| !row.again.is_empty()).count();
        let (adaptive, fixed) = cell.split_last().unwrap();
        assert!(cell.iter().all(|row| [0, 3].contains(&row.again.len())));
        assert!(fixed.iter().all(|row| row.first.is_none()));
        let most = match adaptive.cell.load.is_paced() {
            true => LATENCY_REGRET_MAX,
            false => THROUGHPUT_REGRET_MAX,
        };
        // What a stalled machine sent nothing of cannot be compared, in either look.
        let first = adaptive.first.or(adaptive.regret);
        let missed = first.is_some_and(|first| first.regret > most);
        assert_eq!(missed, ran > 0, "{}", adaptive.cell);
        assert!(adaptive.first.is_none() || ran > 0, "{}", adaptive.cell);
        if ran > 0 {
            (cells, all) = (cells + 1, all + 3 * ran);
            // Three fixed ones, and of two repeats nobody is called the worst.
            assert_eq!((ran, adaptive.again.len()), (4, 3));
            if adaptive.first.is_some() {
                compared += 1;
                assert!(!fixed[adaptive.regret.unwrap().best].again.is_empty());
            }
            // They are measured for longer.
            let least = options.window * 4;
            assert!(adaptive.again.iter().all(|sample| sample.elapsed >= least));
        }
    }
    assert_eq!(runs, (cells > 0).then_some((cells, all)));
    assert_eq!(outcome.again, if cells > 0 { 3 } else { 0 });
    if cells > 0 {
        assert_eq!(done, all);
    }
    let claims = claims(&outcome);
    let again = claims
        .iter()
        .filter(|one| one.measured.contains("again 3 times"));
    assert_eq!(again.count(), compared);
}

/// A row with these figures in each of four repeats.
pub(super) fn row(cell: Cell, settings: &Settings, packets: u64, latency_ns: u64) -> Row {
    let latency = packtrain::stats::Histogram::default();
    latency.record(latency_ns);
    let sample = Sample {
        elapsed: Duration::from_secs(1),
        packets,
        switches: 30,
        latency: latency.snapshot(),
        ..Sample::default()
    };
    Row {
        cell,
        settings: schedule::in_cell(settings, &cell),
        offered: None,
        // Fewer are certain of nothing.
        samples: vec![sample; 6],
        again: Vec::new(),
        regret: None,
        first: None,
    }
}

/// Two situations of `null:`, one at saturation and one paced, in which all fixed settings have
/// 1000 packets and 1 us. The adaptive one has `packets` and `latency_ns` in each repeat, but in
/// the last of them a tenth more and less than the others, if it is `lucky`. The two are of so many
/// `situations`.
fn compared(packets: u64, latency_ns: u64, lucky: bool, situations: usize) -> Outcome {
    let all = schedule::settings(&[], &[Placement::None]);
    let mut outcome = Outcome::default();
    for load in [Load::Saturation, Load::Trickle] {
        let cell = Cell {
            port: PortKind::Null,
            producers: 1,
            frame_bytes: 64,
            load,
        };
        let fixed = all.len() - 1;
        let mut rows: Vec<_> = all[..fixed]
            .iter()
            .map(|one| row(cell, one, 1000, 1000))
            .collect();
        let mut adaptive = row(cell, &schedule::adaptive(), packets, latency_ns);
        if lucky {
            let good = row(cell, &schedule::adaptive(), 1100, 900);
            *adaptive.samples.last_mut().unwrap() = good.samples[0].clone();
        }
        rows.push(adaptive);
        again::judge(&mut rows, situations);
        outcome.rows.extend(rows);
    }
    outcome
}

/// Of the claim with this in it; there is one.
fn verdict(claims: &[crate::claim::Claim], part: &str) -> Verdict {
    let mut found = claims.iter().filter(|claim| claim.claim.contains(part));
    let claim = found.next().unwrap_or_else(|| panic!("{part}: {claims:?}"));
    assert!(found.next().is_none(), "{part}");
    claim.verdict
}

#[test]
fn what_may_be_chance_is_not_called_a_miss() {
    use Verdict::{Direction, NotReproduced, Reproduced};
    let of = |packets, latency_ns, lucky, situations| {
        let claims = claims(&compared(packets, latency_ns, lucky, situations));
        ["best throughput", "best p99 latency"].map(|part| verdict(&claims, part))
    };
    // In all of six repeats; and in five of them.
    assert_eq!(of(960, 1200, false, 1), [NotReproduced, NotReproduced]);
    assert_eq!(of(960, 1200, true, 1), [Reproduced, Direction]);
    // One of many that are worse in each of six repeats is expected.
    assert_eq!(of(960, 1200, false, 36), [Direction, Direction]);
    // What it may lose is no question of certainty.
    assert_eq!(of(980, 1050, false, 36), [Reproduced, Reproduced]);
}

/// Latency of the adaptive setting in four paced situations of six repeats each, where all others
/// have 1 us, and whether that is near in all of them together.
#[test]
fn paced_situations_are_also_judged_together() {
    use Verdict::{Direction, NotReproduced, Reproduced};
    let pooled = |latency: [u64; 4]| {
        let mut all = Outcome::default();
        for (frame_bytes, latency) in (64..).zip(latency) {
            let mut rows = compared(1000, latency, false, 4).rows;
            rows.iter_mut()
                .for_each(|row| row.cell.frame_bytes = frame_bytes);
            all.rows.extend(rows);
        }
        let claims = claims(&all);
        let mut found = claims.iter().filter(|one| one.claim.contains("together"));
        let found = found.next().unwrap();
        (found.verdict, found.measured.clone())
    };
    let rows = [
        ([1000; 4], Reproduced, "0.0 % more (0.0 % to 0.0 %)"),
        (
            [1050, 1050, 1050, 2000],
            Reproduced,
            "5.0 % more (5.0 % to 5.0 %)",
        ),
        (
            [1050, 1050, 2000, 2000],
            Direction,
            "37.7 % more (5.0 % to 100.0 %)",
        ),
        (
            [2000; 4],
            NotReproduced,
            "100.0 % more (100.0 % to 100.0 %)",
        ),
    ];
    for (latency, verdict, measured) in rows {
        let measured = format!("{measured}, by 24 pairs of runs in 4 situations");
        assert_eq!(pooled(latency), (verdict, measured));
    }
    let none = "no figure: in a repeat nothing was sent".to_owned();
    assert_eq!(pooled([1000, 0, 1000, 1000]), (NotReproduced, none));
    // Of one situation its own row says it.
    let one = claims(&compared(1000, 1000, false, 1));
    assert!(!one.iter().any(|claim| claim.claim.contains("together")));
}

#[test]
fn claims_say_what_is_too_slow() {
    // 4 % less throughput, and 20 % more latency, than all others.
    let outcome = compared(960, 1200, false, 1);
    let claims = claims(&outcome);
    let verdict = |part| verdict(&claims, part);
    assert_eq!(verdict("best throughput"), Verdict::NotReproduced);
    assert_eq!(verdict("best p99 latency"), Verdict::NotReproduced);
    assert_eq!(verdict("worst fixed"), Verdict::NotReproduced);
    // 30 switches for 960 frames.
    assert_eq!(verdict("context switches"), Verdict::NotReproduced);
    assert_eq!(verdict("wakes nobody"), Verdict::Reproduced);
    assert_eq!(verdict("accounted for"), Verdict::Reproduced);
}

#[test]
fn who_wakes_the_worker_is_named() {
    let mut outcome = compared(1000, 1000, false, 1);
    let said = |outcome: &Outcome| {
        let claims = claims(outcome);
        let nobody = claims.iter().find(|one| one.claim.contains("wakes nobody"));
        let nobody = nobody.unwrap();
        (nobody.measured.clone(), nobody.verdict)
    };
    // Two loads, with a worker that halts and one that polls, six times 1000 packets each.
    let none = ("0 wakeups, 24000 packets".to_owned(), Verdict::Reproduced);
    assert_eq!(said(&outcome), none);
    outcome.rows[0].samples[3].wakeups = 2;
    let some = "2 wakeups, 24000 packets; 2 of null:, 1 producer, 64 bytes, saturation, direct, \
                halt, none";
    assert_eq!(said(&outcome), (some.to_owned(), Verdict::NotReproduced));
}

#[test]
fn placements_that_come_to_the_same_are_measured_once() {
    let places = places(1);
    assert_eq!(places[0].placement, Placement::None);
    assert_eq!((places[0].cpu, &places[0].same_as), (None, &None));
    for (i, place) in places.iter().enumerate() {
        let before = places[..i].iter().find(|other| other.cpu == place.cpu);
        assert_eq!(place.same_as.is_some(), before.is_some());
        if let (Some(same), Some(before)) = (&place.same_as, before) {
            assert_eq!(same, &before.placement);
        }
    }
}

#[test]
fn a_stop_ends_it_before_it_knows_what_the_ports_take() {
    let loads = [Load::Percent(20), Load::Percent(40)];
    let options = options(grid(&[PortKind::Null, PortKind::Sim], &loads));
    options.stop.store(true, Ordering::Relaxed);
    let outcome = run(&options, |progress| panic!("{progress:?}")).unwrap();
    assert!(outcome.stopped);
    assert_eq!(
        (outcome.runs, outcome.repeats, outcome.rows.len()),
        (0, 0, 0)
    );
}

#[test]
fn a_stop_ends_a_long_run_of_which_only_the_account_is_left() {
    let mut ports = Ports::default();
    ports.prepare(PortKind::Null).unwrap();
    let span = Span {
        warm_up: Duration::ZERO,
        window: Duration::from_secs(3600),
    };
    // Of the last rate every packet is due at the start: its producers are behind for ever.
    for rate in [None, Some(2000), Some(u64::MAX)] {
        let cell = Cell {
            port: PortKind::Null,
            producers: 2,
            frame_bytes: 64,
            load: rate.map_or(Load::Saturation, |_| Load::Percent(99)),
        };
        let stop = AtomicBool::new(false);
        let begin = Instant::now();
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(1500));
                stop.store(true, Ordering::Relaxed);
            });
            once(&ports, &cell, rate, &schedule::adaptive(), span, &stop).unwrap()
        });
        assert!(begin.elapsed() < Duration::from_secs(120), "{rate:?}");
        assert!(!ran.is_whole && ran.sample.closed(), "{rate:?}");
        assert!(ran.sample.ledger.generated > 0, "{rate:?}");
        assert_eq!((ran.sample.packets, ran.sample.unsent), (0, 0), "{rate:?}");
    }
}
