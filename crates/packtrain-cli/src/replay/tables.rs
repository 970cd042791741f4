//! What a replay found, as tables.

use super::args::ReplayArgs;
use super::found::{Found, Stored, ledger};
use super::shown::Shown;
use crate::print::Style;
use crate::table::{Align, BAR_COLUMNS, Table, bar, grouped};
use crate::{report, words};
use packtrain::name::Name;
use packtrain_capture::replay::{
    HISTOGRAM_FROM, InterfaceReport, Options, QueueReport, Report, Segment, Times,
};
use packtrain_measure::numbers::number;
use packtrain_replay::settings;

/// The reasons that a row of a sweep names: the most frequent ones.
const REASONS_SHOWN: usize = 3;

/// With fewer ticks of its clock in `--hold` a capture has a note.
const TICKS_MIN: u64 = 10;

/// The report of one configuration, or a row for each.
pub fn of(args: &ReplayArgs, found: &Found, style: Style) -> Shown {
    let mut shown = match (&found.runs[..], &found.reports[..]) {
        ([options], [report]) => one(args, options, report, style),
        _ => sweep(args, found, style),
    };
    if let Some(stored) = &found.stored {
        shown.lines(data_set(stored));
    }
    shown
}

/// What a data set has of the configurations of the command line.
fn data_set(stored: &Stored) -> String {
    let folder = Name::from(&stored.folder);
    format!(
        "\ndata set {} in {folder}: configurations written: {}, kept: {}\n",
        stored.dataset,
        stored.written.len(),
        stored.kept.len()
    )
}

fn title(index: usize, seen: &InterfaceReport) -> String {
    seen.name.clone().unwrap_or_else(|| index.to_string())
}

fn one(args: &ReplayArgs, options: &Options, report: &Report, style: Style) -> Shown {
    let mut shown = Shown::default();
    let names = [
        "interface",
        "packets",
        "bytes",
        "flows",
        "held at most",
        "merged packets",
        "ratio",
        "delay p50",
        "delay p99",
        "records out",
    ];
    let mut table = numbers_after_a_name(&names);
    for (index, seen) in report.interfaces.iter().enumerate() {
        table.row([
            title(index, seen),
            grouped(seen.frames),
            grouped(seen.bytes),
            grouped(seen.flows()),
            grouped(seen.held_max),
            grouped(seen.stats.supers),
            format!("{:.2}:1", seen.ratio()),
            time(seen.delays.quantile(0.5)),
            time(seen.delays.quantile(0.99)),
            grouped(seen.records),
        ]);
    }
    shown.table(table);
    let total = report.total();
    shown.lines(kinds(&total));
    shown.lines(hints(args, &[*options], report));
    queues(&total, &mut shown);
    shown.table(chart(report));
    reasons(report, &mut shown);
    if report.restored > 0 {
        let line = format!("restored: {} packets, ", grouped(report.restored));
        let end = if report.differing == 0 {
            style.good("every byte as it was")
        } else {
            style.bad(&format!("{} of them differ", grouped(report.differing)))
        };
        shown.lines(["\n", &line, &end, "\n"].concat());
    }
    let state = if report.is_closed() {
        style.good("closed")
    } else {
        style.bad("NOT CLOSED")
    };
    let sums = report::sums(&ledger(report));
    shown.lines(["\nledger: ", &sums, ": ", &state, "\n"].concat());
    shown.lines(last_bad(report));
    shown
}

/// A table whose columns are numbers but for the first one.
fn numbers_after_a_name(names: &[&str]) -> Table {
    Table::new(names.iter().enumerate().map(|(column, name)| {
        let align = if column == 0 {
            Align::Left
        } else {
            Align::Right
        };
        (*name, align)
    }))
}

/// A time in capture time.
fn time(ns: u64) -> String {
    let (scale, unit) = match ns {
        0..1000 => (1.0, "ns"),
        1000..1_000_000 => (1e3, "us"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {unit}", number(ns as f64 / scale))
}

fn percent(part: u64, all: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / all.max(1) as f64)
}

/// The shares of what coalescing treats in its own way.
fn kinds(total: &InterfaceReport) -> String {
    let share = |count: u64| percent(count, total.frames);
    format!(
        "of all packets {} are pure ACKs and {} UDP, {} from or to port 443 (QUIC)\n",
        share(total.pure_acks),
        share(total.udp),
        share(total.quic)
    )
}

/// What keeps the ratio low that is no matter of the traffic, and what the totals do not say.
fn hints(args: &ReplayArgs, runs: &[Options], report: &Report) -> String {
    let sum = |of: fn(&InterfaceReport) -> u64| report.interfaces.iter().map(of).sum::<u64>();
    let all = sum(|seen| seen.frames);
    let packets = grouped(all);
    // With `--segment` they are made wire packets, or the user knows of them.
    let large = match args.segment {
        Segment::Off => sum(|seen| seen.large),
        Segment::Original | Segment::Mtu(_) => 0,
    };
    let by_headers = sum(|seen| seen.by_headers);
    let cut_short = sum(|seen| seen.cut_short);
    let (of_headers, passed) = match args.writes() {
        true => (
            0,
            "are cut by the snapshot length, and such packets are not merged: capture whole \
             packets (tcpdump -s 0)",
        ),
        false => (
            by_headers,
            "are cut by the snapshot length before the end of their headers, and such packets are \
             not merged",
        ),
    };
    let of_headers = match args.headers_only {
        true => (
            of_headers,
            "are read by their headers only (--headers-only): their checksums are taken as correct",
        ),
        false => (
            of_headers,
            "are cut by the snapshot length and read by their headers only: their checksums are \
             taken as correct",
        ),
    };
    let hints = [
        (
            large,
            "are longer than 1500 bytes: TSO or GRO made them before the capture (switch both off \
             to see wire packets), or the MTU is larger",
        ),
        of_headers,
        (cut_short, passed),
    ];
    let lines = hints.into_iter().filter(|(count, _)| *count > 0);
    let mut text: String = lines
        .map(|(count, words)| format!("note: {} of {packets} packets {words}\n", grouped(count)))
        .collect();
    let [bytes, captured] = [sum(|seen| seen.bytes), sum(|seen| seen.captured_bytes)].map(grouped);
    if bytes != captured {
        let line =
            format!("note: bytes are those on the wire: the capture has {captured} of {bytes}\n");
        text.push_str(&line);
    }
    if let Some(times) = &report.times {
        text.push_str(&clock(times, runs, all));
    }
    if report.blocks_left_out > 0 {
        let count = grouped(report.blocks_left_out);
        let line = format!("note: blocks without packets that cannot be copied: {count}\n");
        text.push_str(&line);
    }
    text
}

/// A clock too coarse for `--hold`.
fn clock(times: &Times, runs: &[Options], packets: u64) -> String {
    if packets > 1 && times.first_ns == times.last_ns {
        return "note: all packets have the same time: --hold has no effect\n".to_owned();
    }
    let step = times.step_ns;
    let shortest = runs.iter().map(|options| options.hold_ns).min();
    let is_coarse = shortest.is_some_and(|hold| hold < step.saturating_mul(TICKS_MIN));
    if packets < 2 || step == 1 || !is_coarse {
        return String::new();
    }
    format!(
        "note: all times are multiples of {}, and --hold is less than {TICKS_MIN} of them: the \
         clock of the capture decides which packets are one batch\n",
        time(step)
    )
}

/// Each queue, and how evenly packets are spread.
fn queues(total: &InterfaceReport, shown: &mut Shown) {
    let Some(skew) = total.skew() else {
        return;
    };
    let mut table = Table::new([
        ("queue", Align::Right),
        ("packets", Align::Right),
        ("share", Align::Right),
        ("", Align::Bar),
        ("ratio", Align::Right),
    ]);
    let most = total.queues.iter().map(|queue| queue.packets).max();
    for (index, queue) in total.queues.iter().enumerate() {
        let QueueReport {
            packets, emitted, ..
        } = *queue;
        table.row([
            index.to_string(),
            grouped(packets),
            percent(packets, total.frames),
            bar(packets as f64, most.unwrap_or(0) as f64, BAR_COLUMNS),
            format!("{:.2}:1", packets as f64 / emitted.max(1) as f64),
        ]);
    }
    shown.table(table);
    shown.lines(format!(
        "skew: {skew:.2} (packets of the busiest queue divided by the mean)\n"
    ));
}

/// The settings that differ between configurations: the name of each, and its value in each.
fn varied(runs: &[Options]) -> Vec<(String, Vec<String>)> {
    let all: Vec<_> = runs.iter().map(settings).collect();
    let names = all.first().map_or(&[][..], Vec::as_slice);
    let columns = names.iter().enumerate().map(|(index, (name, _))| {
        let values = all.iter().zip(runs).map(|(row, options)| match *name {
            "hold_ns" => time(options.hold_ns),
            _ => match (&row[index].1[..], row[index].1.parse()) {
                (_, Ok(number)) => grouped(number),
                ("default", _) => "-".to_owned(),
                (word, _) => word.to_owned(),
            },
        });
        let name = match *name {
            "hold_ns" => "hold".to_owned(),
            "bytes" | "packets" => format!("gro-{name}"),
            name => name.replace('_', "-"),
        };
        (name, values.collect::<Vec<_>>())
    });
    let varies = |(_, values): &(_, Vec<String>)| values.iter().any(|value| *value != values[0]);
    columns.filter(varies).collect()
}

/// What all configurations read, and a row for each.
fn sweep(args: &ReplayArgs, found: &Found, style: Style) -> Shown {
    let mut shown = Shown::default();
    let Some(read) = found.reports.first() else {
        return shown;
    };
    let mut table = numbers_after_a_name(&["interface", "packets", "bytes", "flows"]);
    for (index, seen) in read.interfaces.iter().enumerate() {
        table.row([
            title(index, seen),
            grouped(seen.frames),
            grouped(seen.bytes),
            grouped(seen.flows()),
        ]);
    }
    shown.table(table);
    shown.lines(kinds(&read.total()));
    shown.lines(hints(args, &found.runs, read));

    let settings = varied(&found.runs);
    let has_queues = found.runs.iter().any(|options| options.queues > 1);
    let ratios: Vec<_> = found
        .reports
        .iter()
        .map(|report| report.total().ratio())
        .collect();
    let most = ratios.iter().copied().fold(0.0, f64::max);
    let right = |name| (name, Align::Right);
    let columns = settings.iter().map(|(name, _)| right(&name[..]));
    let columns = columns.chain(["packets out", "ratio"].map(right));
    let columns = columns.chain([("", Align::Bar)]);
    let columns = columns.chain(["delay p50", "delay p99"].map(right));
    let columns = columns.chain(has_queues.then_some(right("skew")));
    let last = [("passed on because of", Align::Left)];
    let mut table = Table::new(columns.chain(last));
    for (run, report) in found.reports.iter().enumerate() {
        let total = report.total();
        let row = settings.iter().map(|(_, values)| values[run].clone());
        let mut row: Vec<_> = row.collect();
        row.extend([
            grouped(total.emitted()),
            format!("{:.2}:1", ratios[run]),
            bar(ratios[run], most, BAR_COLUMNS),
            time(total.delays.quantile(0.5)),
            time(total.delays.quantile(0.99)),
        ]);
        if has_queues {
            let skew = total.skew().map(|skew| format!("{skew:.2}"));
            row.push(skew.unwrap_or_else(|| "-".to_owned()));
        }
        row.push(frequent(&total));
        table.row(row);
    }
    shown.table(table);
    shown.lines(mattered(&settings, &ratios));

    let open = found.reports.iter().filter(|report| !report.is_closed());
    let (open, all) = (open.count(), found.reports.len());
    let state = match open {
        0 => style.good("closed"),
        _ => style.bad(&format!("NOT CLOSED in {open}")),
    };
    let received = grouped(read.received);
    shown.lines(format!(
        "\nledgers of {all} configurations, {received} received in each: {state}\n"
    ));
    shown.lines(last_bad(read));
    shown
}

/// How far each setting changes the ratio, the others equal: of all such pairs of configurations
/// the one whose ratios differ most, the lower ratio first. The setting that changes most is first.
fn mattered(settings: &[(String, Vec<String>)], ratios: &[f64]) -> String {
    let changes = settings.iter().map(|(name, values)| {
        let others: Vec<_> = settings.iter().filter(|(other, _)| other != name).collect();
        let mut most = (0.0, "nothing".to_owned());
        for (low, least) in ratios.iter().enumerate() {
            for (high, ratio) in ratios.iter().enumerate() {
                let is_pair = || others.iter().all(|(_, of)| of[low] == of[high]);
                // What two digits show.
                if ratio - least > f64::max(most.0, 0.005) && is_pair() {
                    let [from, to] = [&values[low], &values[high]];
                    most = (
                        ratio - least,
                        format!("{from} to {to}: {least:.2} to {ratio:.2}"),
                    );
                }
            }
        }
        (name, most)
    });
    let mut changes: Vec<_> = changes.collect();
    changes.sort_by(|(_, (one, _)), (_, (other, _))| other.total_cmp(one));
    let words = changes.iter().map(|(name, (change, words))| match *change {
        0.0 => format!("{name}: {words}"),
        _ => format!("{name} {words}"),
    });
    let words: Vec<_> = words.collect();
    format!(
        "what a setting changes of the ratio at most: {}\n",
        words.join("; ")
    )
}

/// The most frequent reasons why packets left, by their names in the report of one configuration.
fn frequent(total: &InterfaceReport) -> String {
    let mut all = [held(total), not_held(total), not_seen(total)].concat();
    all.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    let emitted = total.emitted().max(1) as f64;
    // Without those that round to 0 %.
    all.retain(|(_, count, _)| *count as f64 / emitted > 0.005);
    let shown = all.into_iter().take(REASONS_SHOWN);
    let shown =
        shown.map(|(name, count, _)| format!("{name} {:.0} %", 100.0 * count as f64 / emitted));
    shown.collect::<Vec<_>>().join(", ")
}

/// The last record or other part that cannot be read, if reading went on.
fn last_bad(report: &Report) -> String {
    match (report.last_bad, report.stopped) {
        (Some(error), None) if !error.costs_a_record() => format!("not read: {error}\n"),
        (Some(error), None) => format!("the last record that cannot be read: {error}\n"),
        _ => String::new(),
    }
}

/// How many packets came out, by the number of packets merged into each.
fn chart(report: &Report) -> Table {
    let count = |index: usize| {
        let seen = report.interfaces.iter();
        seen.map(|seen| seen.histogram[index]).sum::<u64>()
    };
    let counts: [u64; HISTOGRAM_FROM.len()] = std::array::from_fn(count);
    let most = counts.iter().copied().max().unwrap_or(0);
    let mut table = Table::new([
        ("packets merged into one", Align::Right),
        ("", Align::Bar),
        ("how often", Align::Right),
    ]);
    if most == 0 {
        return table;
    }
    for (index, count) in counts.into_iter().enumerate() {
        let from = HISTOGRAM_FROM[index];
        let merged = match HISTOGRAM_FROM.get(index + 1) {
            None => format!("{from}+"),
            Some(next) if next - from == 1 => from.to_string(),
            Some(next) => format!("{from}-{}", next - 1),
        };
        let bar = bar(count as f64, most as f64, BAR_COLUMNS);
        table.row([merged, bar, grouped(count)]);
    }
    table
}

/// Every reason that came up, with its count over all interfaces and what it means.
fn reasons(report: &Report, shown: &mut Shown) {
    let of_all = |of: fn(&InterfaceReport) -> Vec<Reason>| summed(report, of);
    let groups = [
        ("passed on after being held", of_all(held)),
        ("passed on at once", of_all(not_held)),
        ("passed through", of_all(not_seen)),
    ];
    for (title, counts) in groups {
        let mut table = Table::new([
            (title, Align::Left),
            ("packets", Align::Right),
            ("because", Align::Left),
        ]);
        for (name, count, words) in counts {
            table.row([name.to_owned(), grouped(count), words.to_owned()]);
        }
        shown.table(table);
    }
    let unfinished: u64 = report.interfaces.iter().map(|seen| seen.unfinished).sum();
    if unfinished > 0 {
        let count = grouped(unfinished);
        shown.lines(format!(
            "\n{count} packets were captured before checksum offload: their checksums are \
             unfinished\n"
        ));
    }
}

/// A reason's name, its count, and what it means.
type Reason = (&'static str, u64, &'static str);

fn held(seen: &InterfaceReport) -> Vec<Reason> {
    let counts = seen.stats.flushes.iter();
    counts
        .map(|(reason, count)| (reason.name(), count, words::of_flush(reason)))
        .collect()
}

fn not_held(seen: &InterfaceReport) -> Vec<Reason> {
    let counts = seen.stats.not_taken.iter();
    counts
        .map(|(reason, count)| (reason.name(), count, words::of_not_taken(reason)))
        .collect()
}

/// Packets that the coalescer did not see.
fn not_seen(seen: &InterfaceReport) -> Vec<Reason> {
    vec![
        (
            "cut_short",
            seen.cut_short,
            "not captured whole (snapshot length)",
        ),
        (
            "other_link",
            seen.other_link,
            "of a link type that replay does not read",
        ),
        (
            "no_length",
            seen.no_length,
            "its IP length was left to the NIC (captured on the sender, with TSO on)",
        ),
        (
            "not_cut",
            seen.not_cut,
            "longer than --segment, and cannot be cut",
        ),
    ]
}

/// The sum over all interfaces, without the reasons that never came up.
fn summed(report: &Report, of: impl Fn(&InterfaceReport) -> Vec<Reason>) -> Vec<Reason> {
    let mut sums: Vec<Reason> = Vec::new();
    for seen in &report.interfaces {
        for one in of(seen) {
            match sums.iter_mut().find(|(known, ..)| *known == one.0) {
                Some((_, sum, _)) => *sum += one.1,
                None => sums.push(one),
            }
        }
    }
    sums.retain(|(_, count, _)| *count > 0);
    sums
}
