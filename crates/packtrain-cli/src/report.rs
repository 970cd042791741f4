//! What a run prints at its end: the totals on one screen, and every counter on request.

use crate::print::Style;
use crate::table::{Align, Table, grouped, scaled};
use crate::words;
use packtrain::engine::{Ledger, PortSnapshot, Report, Snapshot, WorkerSnapshot};
use packtrain::name::Name;
use packtrain::port::wrap::Faults;
use packtrain::stats::{DropSnapshot, HistogramSnapshot};
use packtrain_lab::experiment::counters::{device_values, fault_values, worker_values};
use std::time::Duration;

/// Columns of queues that fit beside each other on a terminal.
const QUEUES_ABREAST: usize = 4;

/// The packets of each direction or port, the losses with their reasons, and the ledger.
/// `interfaces` are the ports that are TAP or TUN interfaces.
pub fn totals(
    names: &[Name],
    interfaces: &[bool],
    report: &Report,
    faults: &[Option<Faults>],
    style: Style,
) -> String {
    let snapshot = &report.snapshot;
    let mut text = moved(names, snapshot, report.elapsed, style);
    for (name, faults) in names.iter().zip(faults) {
        text.extend(faults.as_ref().map(|faults| fault_line(name, faults)));
    }
    text.push_str(&drops(&snapshot.drops, style));
    let devices = report.devices.iter().zip(interfaces);
    for (name, (device, &is_interface)) in names.iter().zip(devices) {
        // `rx` and `tx` are named from the device: it receives what packtrain transmits.
        let lost = device.map(|device| (device.rx_dropped, device.tx_dropped));
        text.extend(lost.and_then(|(from, to)| device_losses(name, is_interface, from, to)));
    }
    text + &ledger_line(&snapshot.ledger, style)
}

/// The totals of a run that goes on. Packets are under way, so its ledger is not judged.
pub fn so_far(names: &[Name], snapshot: &Snapshot, elapsed: Duration, style: Style) -> String {
    let sides = sides(&snapshot.ledger);
    moved(names, snapshot, elapsed, style)
        + &drops(&snapshot.drops, style)
        + &format!(
            "ledger so far (wire packets): {} in, {} out; it is not closed while packets are under \
             way\n",
            sides[0], sides[1]
        )
}

/// The packets of each direction or port, and what they cost.
fn moved(names: &[Name], snapshot: &Snapshot, elapsed: Duration, style: Style) -> String {
    let seconds = elapsed.as_secs_f64();
    directions(names, &snapshot.ports, seconds, style)
        + &format!(
            "{seconds:.3} s, {:.3} s of CPU time, {} system calls\n\n",
            snapshot.cpu_ns as f64 / 1e9,
            grouped(snapshot.syscalls)
        )
}

/// A row for each direction between two ports; one for each port among more, where a packet in may
/// go out anywhere.
fn directions(names: &[Name], ports: &[PortSnapshot], seconds: f64, style: Style) -> String {
    let columns = [
        "packets in",
        "packets out",
        "wire packets",
        "bytes",
        "wire packets/s",
        "Gbit/s",
    ];
    let columns = columns.map(|name| (name, Align::Right));
    let two = names.len() == 2;
    let title = [(if two { "direction" } else { "port" }, Align::Left)];
    let mut table = Table::new(title.into_iter().chain(columns));
    let rows = 0..names.len();
    for (from, to) in rows.map(|port| (port, if two { 1 - port } else { port })) {
        let (taken, sent) = (ports[from].rx_total(), ports[to].tx_total());
        let rate = |count: u64| count as f64 / seconds.max(1e-6);
        // As in the ledger: without those that a reset took back, which were sent again.
        let wire_packets = sent.wire_packets.saturating_sub(sent.taken_back);
        table.row([
            match two {
                true => format!("{} -> {}", names[from], names[to]),
                false => names[from].to_string(),
            },
            grouped(taken.packets),
            grouped(sent.packets),
            grouped(wire_packets),
            grouped(sent.bytes),
            scaled(rate(wire_packets)).trim_end().to_owned(),
            format!("{:.3}", rate(sent.bytes) * 8.0 / 1e9),
        ]);
    }
    table.render(0, style)
}

fn fault_line(name: &Name, faults: &Faults) -> String {
    let counts = fault_values(faults).into_iter();
    let counts: Vec<_> = counts
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{} {kind}", grouped(count)))
        .collect();
    let counts = if counts.is_empty() {
        "none".to_owned()
    } else {
        counts.join(", ")
    };
    format!("faults injected into packets from {name}: {counts}\n")
}

/// Losses outside of packtrain, which are not in the ledger; `None` if there are none.
fn device_losses(
    name: &Name,
    is_interface: bool,
    from_packtrain: u64,
    to_packtrain: u64,
) -> Option<String> {
    let sides = [(from_packtrain, "from"), (to_packtrain, "to")];
    let lost: Vec<_> = sides
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, side)| format!("{} packets {side} packtrain", grouped(count)))
        .collect();
    let lost = lost.join(", ");
    let advice = if is_interface && to_packtrain > 0 {
        format!(
            "an interface with a full queue drops: for a longer one, ip link set dev {name} \
             txqueuelen 4000; for senders that wait, tc qdisc replace dev {name} root tbf rate \
             1gbit burst 1mb limit 64mb (at most the rate that packtrain forwards)\n"
        )
    } else {
        String::new()
    };
    (!lost.is_empty())
        .then(|| format!("counted as dropped by the other side of {name}: {lost}\n{advice}"))
}

/// Every counter: by queue, by device, by fault and by worker.
pub fn details(names: &[Name], report: &Report, faults: &[Option<Faults>], style: Style) -> String {
    let snapshot = &report.snapshot;
    let mut text = "\n".to_owned();
    for (name, port) in names.iter().zip(&snapshot.ports) {
        text.push_str(&queues(name, port, style));
    }
    text.push_str(&batches(names, &snapshot.ports, style));
    let devices = names.iter().zip(&report.devices);
    let devices =
        devices.filter_map(|(name, of)| Some((name.to_string(), device_values(of.as_ref()?))));
    let devices: Vec<_> = devices.map(|(name, of)| (name, of.to_vec())).collect();
    let title = "the device's own counters";
    // Losses are always listed, also if there are none.
    let always = |counter: &str| counter.ends_with("dropped");
    text.push_str(&counters(title, &devices, always, style));
    let faults = names.iter().zip(faults);
    let faults =
        faults.filter_map(|(name, of)| Some((name.to_string(), fault_values(of.as_ref()?))));
    let faults: Vec<_> = faults.map(|(name, of)| (name, of.to_vec())).collect();
    text.push_str(&counters("faults, packets", &faults, |_| true, style));
    text.push_str(&changes(names, report, style));
    text + &workers(&snapshot.workers, style)
}

/// Whether every packet is accounted for, in one line.
pub fn ledger_line(ledger: &Ledger, style: Style) -> String {
    let verdict = if ledger.closed() {
        style.good("closed")
    } else {
        style.bad("NOT CLOSED")
    };
    format!("ledger (wire packets): {}: {verdict}\n", sums(ledger))
}

/// The two sides of the ledger.
pub fn sums(ledger: &Ledger) -> String {
    let [inflow, outflow] = sides(ledger);
    let sign = if ledger.closed() { "=" } else { "is not" };
    format!("{inflow} {sign} {outflow}")
}

fn sides(ledger: &Ledger) -> [String; 2] {
    let side = |terms: &[(&str, u64)]| {
        let terms: Vec<_> = terms
            .iter()
            .enumerate()
            .filter(|(index, (_, count))| *index == 0 || *count > 0)
            .map(|(_, (name, count))| format!("{} {name}", grouped(*count)))
            .collect();
        terms.join(" + ")
    };
    let inflow = side(&[
        ("received", ledger.received),
        ("generated", ledger.generated),
        ("expanded", ledger.expanded),
    ]);
    let outflow = side(&[
        ("transmitted", ledger.transmitted),
        ("delivered", ledger.delivered),
        ("held", ledger.held),
        ("absorbed", ledger.absorbed),
        ("dropped", ledger.dropped),
    ]);
    [inflow, outflow]
}

/// The counters of one port, a column for each queue.
fn queues(name: &Name, port: &PortSnapshot, style: Style) -> String {
    let rx = port.rx.iter().map(|queue| queue.values().collect());
    let tx = port.tx.iter().map(|queue| queue.values().collect());
    let of = |kind: &str, what: &str, queues: Vec<Counters>| -> String {
        let queues = queues.into_iter().enumerate();
        let queues = queues.map(|(index, values)| (format!("{kind}{index:02}"), values));
        let queues: Vec<_> = queues.collect();
        let title = format!("{name}, {what}");
        let abreast = queues.chunks(QUEUES_ABREAST);
        let tables = abreast.map(|some| counters(&title, some, |_| false, style));
        tables.collect()
    };
    of("rxq", "received", rx.collect()) + &of("txq", "transmitted", tx.collect())
}

/// Counters by name.
type Counters = Vec<(&'static str, u64)>;

/// A table with a column for each of `columns`, which have the same counters. A counter that is 0
/// in all of them is left out, unless it is one of `always`; so is a table without counters.
fn counters(
    title: &str,
    columns: &[(String, Counters)],
    always: impl Fn(&str) -> bool,
    style: Style,
) -> String {
    let heads = columns
        .iter()
        .map(|(name, _)| (name.as_str(), Align::Right));
    let mut table = Table::new([(title, Align::Left)].into_iter().chain(heads));
    let names = columns.first().into_iter().flat_map(|(_, values)| values);
    for (row, (name, _)) in names.enumerate() {
        let values = columns.iter().map(|(_, values)| values[row].1);
        if always(name) || values.clone().any(|value| value > 0) {
            let cells = [(*name).to_owned()];
            table.row(cells.into_iter().chain(values.map(grouped)));
        }
    }
    if table.is_empty() {
        return String::new();
    }
    table.render(0, style) + "\n"
}

/// The batch sizes of each queue that had any, in packets.
fn batches(names: &[Name], ports: &[PortSnapshot], style: Style) -> String {
    let columns = ["times", "p50", "p90", "p99", "max"];
    let columns = columns.map(|name| (name, Align::Right));
    let title = [("packets in a batch", Align::Left), ("of a", Align::Left)];
    let mut table = Table::new(title.into_iter().chain(columns));
    let mut row = |name: &str, kind: &str, sizes: &HistogramSnapshot| {
        if sizes.count() > 0 {
            let values = [
                sizes.count(),
                sizes.quantile(0.5),
                sizes.quantile(0.9),
                sizes.quantile(0.99),
                sizes.max(),
            ];
            let words = [name.to_owned(), kind.replace("_us", " (us)")];
            table.row(words.into_iter().chain(values.map(grouped)));
        }
    };
    for (name, port) in names.iter().zip(ports) {
        for (index, queue) in port.rx_batches.iter().enumerate() {
            for (kind, sizes) in queue.values() {
                row(&format!("{name} rxq{index:02}"), kind, sizes);
            }
        }
        for (index, queue) in port.tx_batches.iter().enumerate() {
            for (kind, sizes) in queue.values() {
                row(&format!("{name} txq{index:02}"), kind, sizes);
            }
        }
    }
    if table.is_empty() {
        return String::new();
    }
    table.render(0, style) + "\n"
}

/// What has changed since the plan was made; nothing if nothing has.
fn changes(names: &[Name], report: &Report, style: Style) -> String {
    let all = &report.snapshot.changes;
    if all.count == 0 {
        return String::new();
    }
    let mut table = Table::new([
        ("changes", Align::Left),
        ("at s", Align::Right),
        ("what", Align::Left),
    ]);
    for change in &all.last {
        let seconds = change.at.since(report.began).as_secs_f64();
        let name = names[usize::from(change.port)].to_string();
        table.row([name, format!("{seconds:.3}"), change.to_string()]);
    }
    let left_out = all.count - all.last.len() as u64;
    if left_out > 0 {
        let line = format!("{} earlier ones", grouped(left_out));
        table.row([String::new(), String::new(), line]);
    }
    table.render(0, style)
}

/// The counters of each worker.
fn workers(workers: &[WorkerSnapshot], style: Style) -> String {
    let names = worker_values(&WorkerSnapshot::default()).map(|(name, _)| name.replace('_', " "));
    let names = names
        .into_iter()
        .chain(["CPU ms", "nice"].map(str::to_owned));
    let columns = names.map(|name| (name, Align::Right));
    let mut table = Table::new(
        [("worker".to_owned(), Align::Left)]
            .into_iter()
            .chain(columns),
    );
    for (index, worker) in workers.iter().enumerate() {
        let values = worker_values(worker).map(|(_, value)| grouped(value));
        let cells = [index.to_string()].into_iter().chain(values);
        let cpu = grouped(worker.cpu_ns / 1_000_000);
        let class = if worker.batch { " batch" } else { "" };
        let priority = format!("{}{class}", worker.nice);
        table.row(cells.chain([cpu, priority]));
    }
    table.render(0, style)
}

/// What packtrain lost, and why.
fn drops(drops: &DropSnapshot, style: Style) -> String {
    let mut table = Table::new([
        ("lost", Align::Left),
        ("wire packets", Align::Right),
        ("why", Align::Left),
    ]);
    for (reason, count) in drops.nonzero() {
        table.row([
            reason.name().to_owned(),
            grouped(count),
            words::of_drop(reason),
        ]);
    }
    if table.is_empty() {
        "lost by packtrain: nothing\n".to_owned()
    } else {
        table.render(0, style)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_a_full_interface_dropped_come_with_what_to_do() {
        let said = |is_interface, from, to| device_losses(&"tap0".into(), is_interface, from, to);
        let lost = "counted as dropped by the other side of tap0: ";
        let only = |packets| Some(format!("{lost}{packets}\n"));
        assert_eq!(said(true, 0, 0), None);
        assert_eq!(said(true, 3, 0), only("3 packets from packtrain"));
        assert_eq!(said(false, 0, 4), only("4 packets to packtrain"));
        let full = said(true, 0, 4).expect("a loss");
        assert!(full.starts_with(&only("4 packets to packtrain").expect("a line")));
        for command in ["ip link set dev tap0 ", "tc qdisc replace dev tap0 root "] {
            assert!(full.contains(command), "{full}");
        }
    }
}
