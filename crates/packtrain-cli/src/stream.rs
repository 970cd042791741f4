//! `packtrain stream`: the text of its report.

use crate::args::StreamArgs;
use crate::exit::Failure;
use crate::print::Style;
use crate::table::{Align, Table, grouped};
use crate::tool;
use packtrain_lab::tools::stream::{Figures, Streamed};
use packtrain_measure::key::Fields;
use serde_json::Value;

/// Runs the command.
///
/// # Errors
///
/// As [`tool::run`].
pub fn run(args: &StreamArgs) -> Result<(), Failure> {
    tool::run("stream", args, text)
}

fn text(measured: &Streamed, style: Style) -> String {
    let figures = &measured.figures;
    let mut settings = measured.testbed.clone();
    settings.extend(measured.settings.clone());
    let mut text = conditions(&settings);
    text.push_str(&totals(figures, style));
    text.push('\n');
    text.push_str(&sides(figures).render(2, style));
    text.push('\n');
    text.push_str(&kernels(figures).render(2, style));
    if let Some(moved) = &figures.forwarder.packtrain {
        text += &format!(
            "forwarder  {} packets of {} wire packets, {} a doorbell; {} wake-ups\n",
            grouped(moved.packets),
            number(moved.wire_packets_per_packet, 1),
            number(moved.packets_per_doorbell, 1),
            grouped(moved.wakeups),
        );
    }
    for (host, interface) in [("A", &figures.interface_a), ("B", &figures.interface_b)] {
        if interface.tx_dropped > 0 {
            let packets = grouped(interface.tx_dropped);
            text += &format!("dropped    {packets} in the queue of host {host}\n");
        }
    }
    for (reason, packets) in figures.drops.iter().flatten() {
        text += &format!("dropped    {} {reason}\n", grouped(*packets));
    }
    text + &tool::flags(&measured.flags)
}

/// The load and the testbed, as they were in force.
fn conditions(settings: &Fields) -> String {
    let set = |name: &str| settings.get(name).map(word).unwrap_or_default();
    let direction = match set("direction").as_str() {
        "a_to_b" => "A to B",
        "b_to_a" => "B to A",
        _ => "both directions",
    };
    let messages = if settings.contains_key("request_bytes") {
        let (request, response) = (set("request_bytes"), set("response_bytes"));
        format!("requests of {request} bytes, responses of {response}")
    } else {
        format!("{} bytes a message", set("message_bytes"))
    };
    let transport = if settings.contains_key("mss_bytes") {
        format!("MSS {}, {}", set("mss_bytes"), set("congestion_control"))
    } else {
        format!("rate {}", set("rate"))
    };
    let switch = |name: &str| match settings.get(name) {
        Some(Value::Bool(true)) => "on",
        _ => "off",
    };
    let sender = match direction {
        "B to A" => "b",
        _ => "a",
    };
    format!(
        "{} over {}, {direction}, through {}, {} stream{}, {messages}, {} payload\n\
         MTU {}, {transport}, TSO {}, GSO {}, buffers {} and {} bytes\n",
        set("protocol"),
        set("ip"),
        set("through"),
        set("streams"),
        if set("streams") == "1" { "" } else { "s" },
        set("payload"),
        set("mtu"),
        switch(&format!("tso_{sender}")),
        switch(&format!("gso_{sender}")),
        set("send_buffer_bytes"),
        set("receive_buffer_bytes"),
    )
}

/// Goodput, losses and the bottleneck.
fn totals(of: &Figures, style: Style) -> String {
    let mut text = match &of.transactions {
        None => format!("goodput {} Gbit/s", style.bold(&number(of.goodput_gbps, 3))),
        Some(one) => format!(
            "{} transactions a second, {} us each",
            style.bold(&format!("{:.0}", one.transactions_per_second)),
            number(one.transaction_us, 1)
        ),
    };
    if let Some(both) = &of.both {
        let (there, back) = (both.goodput_a_to_b_gbps, both.goodput_b_to_a_gbps);
        text += &format!(" (A to B {there:.3}, B to A {back:.3})");
    }
    let rest = match &of.datagrams {
        None => {
            let again = of.retransmits.map_or_else(|| "-".to_owned(), grouped);
            format!("{again} retransmitted segments")
        }
        Some(all) => format!(
            "{} % lost: {} of {} datagrams; {} duplicates, {} reordered",
            number(all.lost_percent, 3),
            grouped(all.lost_packets),
            grouped(all.sent_packets),
            grouped(all.duplicate_packets),
            grouped(all.reordered_packets),
        ),
    };
    let (bottleneck, seconds) = (of.bottleneck, of.seconds);
    text + &format!(", {rest}\nbottleneck: {bottleneck}; {seconds:.2} s measured\n")
}

/// What each side used.
fn sides(of: &Figures) -> Table {
    let mut table = Table::new([
        ("side", Align::Left),
        ("CPU %", Align::Right),
        ("busiest thread %", Align::Right),
        ("system calls", Align::Right),
    ]);
    let forwarder = of.forwarder.packtrain.as_ref().map(|one| one.system_calls);
    for (side, all, busiest, calls) in [
        (
            "sender",
            of.cpu_sender_percent,
            of.cpu_sender_busiest_percent,
            Some(of.send_calls),
        ),
        (
            "receiver",
            of.cpu_receiver_percent,
            of.cpu_receiver_busiest_percent,
            Some(of.receive_calls),
        ),
        (
            "forwarder",
            of.cpu_forwarder_percent,
            of.cpu_forwarder_busiest_percent,
            forwarder,
        ),
    ] {
        table.row([
            side.to_owned(),
            format!("{all:.1}"),
            format!("{busiest:.1}"),
            calls.map_or_else(|| "-".to_owned(), grouped),
        ]);
    }
    let of_all = |percent| format!("{} of all", number(percent, 1));
    table.row([
        "softirqs".to_owned(),
        of_all(of.machine.cpu_softirq_percent),
    ]);
    table.row(["machine".to_owned(), of_all(of.machine.cpu_machine_percent)]);
    table
}

/// The counters of both kernels that explain a stream; those that did not count are left out.
fn kernels(of: &Figures) -> Table {
    const SHOWN: [&str; 14] = [
        "TcpOutSegs",
        "TcpInSegs",
        "TcpRetransSegs",
        "TcpExtTCPHPHits",
        "TcpExtTCPPureAcks",
        "TcpExtTCPHPAcks",
        "TcpExtTCPBacklogCoalesce",
        "TcpExtDelayedACKs",
        "UdpOutDatagrams",
        "UdpInDatagrams",
        "UdpRcvbufErrors",
        "Udp6OutDatagrams",
        "Udp6InDatagrams",
        "Udp6RcvbufErrors",
    ];
    let mut table = Table::new([
        ("kernel counter", Align::Left),
        ("host A", Align::Right),
        ("host B", Align::Right),
    ]);
    for name in SHOWN {
        let values = [&of.nstat_a, &of.nstat_b].map(|host| host.get(name).copied().unwrap_or(0));
        if values.iter().any(|value| *value > 0) {
            table.row([name.to_owned(), grouped(values[0]), grouped(values[1])]);
        }
    }
    table
}

fn word(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}
