//! `packtrain stream`: the text of its report.

use crate::args::StreamArgs;
use crate::exit::Failure;
use crate::print::Style;
use crate::table::{Align, Table, grouped};
use crate::tool;
use packtrain_lab::tool::Measured;
use serde_json::Value;

/// Runs the command.
///
/// # Errors
///
/// As [`tool::run`].
pub fn run(args: &StreamArgs) -> Result<(), Failure> {
    tool::run("stream", args, |measured, style| {
        text(&measured.clone().fields(), style)
    })
}

fn text(measured: &Measured, style: Style) -> String {
    let mut text = conditions(measured);
    text.push_str(&totals(measured, style));
    text.push('\n');
    text.push_str(&sides(measured).render(2, style));
    text.push('\n');
    text.push_str(&kernels(measured).render(2, style));
    let forwarder = &measured.figures["forwarder"];
    if forwarder["packets"].is_u64() {
        text.push_str(&format!(
            "forwarder  {} packets of {} wire packets, {} a doorbell; {} wake-ups\n",
            count(&forwarder["packets"]),
            number(&forwarder["wire_packets_per_packet"], 1),
            number(&forwarder["packets_per_doorbell"], 1),
            count(&forwarder["wakeups"]),
        ));
    }
    for (host, interface) in [("A", "interface_a"), ("B", "interface_b")] {
        let dropped = &measured.figures[interface]["tx_dropped"];
        if dropped.as_u64() != Some(0) {
            let packets = count(dropped);
            text.push_str(&format!(
                "dropped    {packets} in the queue of host {host}\n"
            ));
        }
    }
    if let Some(drops) = measured.figures.get("drops").and_then(Value::as_object) {
        for (reason, packets) in drops {
            text.push_str(&format!("dropped    {} {reason}\n", count(packets)));
        }
    }
    text + &tool::flags(&measured.flags)
}

/// The load and the testbed, as they were in force.
fn conditions(measured: &Measured) -> String {
    let set = |name: &str| word(&measured.settings[name]);
    let direction = match measured.settings["direction"].as_str() {
        Some("a_to_b") => "A to B",
        Some("b_to_a") => "B to A",
        _ => "both directions",
    };
    let messages = if measured.settings.contains_key("request_bytes") {
        let (request, response) = (set("request_bytes"), set("response_bytes"));
        format!("requests of {request} bytes, responses of {response}")
    } else {
        format!("{} bytes a message", set("message_bytes"))
    };
    let transport = if measured.settings.contains_key("mss_bytes") {
        format!("MSS {}, {}", set("mss_bytes"), set("congestion_control"))
    } else {
        format!("rate {}", set("rate"))
    };
    let switch = |name: &str| match measured.settings[name].as_bool() {
        Some(true) => "on",
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
fn totals(measured: &Measured, style: Style) -> String {
    let figure = |name: &str| &measured.figures[name];
    let mut text = match measured.figures.get("goodput_gbps") {
        Some(goodput) => format!("goodput {} Gbit/s", style.bold(&number(goodput, 3))),
        None => format!(
            "{} transactions a second, {} us each",
            style.bold(&number(figure("transactions_per_second"), 0)),
            number(figure("transaction_us"), 1)
        ),
    };
    if let Some(there) = measured.figures.get("goodput_a_to_b_gbps") {
        let back = number(figure("goodput_b_to_a_gbps"), 3);
        text.push_str(&format!(" (A to B {}, B to A {back})", number(there, 3)));
    }
    let rest = match measured.figures.get("retransmits") {
        Some(again) => format!("{} retransmitted segments", count(again)),
        None => format!(
            "{} % lost: {} of {} datagrams; {} duplicates, {} reordered",
            number(figure("lost_percent"), 3),
            count(figure("lost_packets")),
            count(figure("sent_packets")),
            count(figure("duplicate_packets")),
            count(figure("reordered_packets")),
        ),
    };
    let bottleneck = word(figure("bottleneck"));
    let seconds = number(figure("seconds"), 2);
    text + &format!(", {rest}\nbottleneck: {bottleneck}; {seconds} s measured\n")
}

/// What each side used.
fn sides(measured: &Measured) -> Table {
    let figure = |name: &str| &measured.figures[name];
    let mut table = Table::new([
        ("side", Align::Left),
        ("CPU %", Align::Right),
        ("busiest thread %", Align::Right),
        ("system calls", Align::Right),
    ]);
    let calls = [
        ("sender", figure("send_calls")),
        ("receiver", figure("receive_calls")),
        ("forwarder", &figure("forwarder")["system_calls"]),
    ];
    for (side, calls) in calls {
        table.row([
            side.to_owned(),
            number(figure(&format!("cpu_{side}_percent")), 1),
            number(figure(&format!("cpu_{side}_busiest_percent")), 1),
            count(calls),
        ]);
    }
    let of_all = |name| format!("{} of all", number(figure(name), 1));
    table.row(["softirqs".to_owned(), of_all("cpu_softirq_percent")]);
    table.row(["machine".to_owned(), of_all("cpu_machine_percent")]);
    table
}

/// The counters of both kernels that explain a stream; those that did not count are left out.
fn kernels(measured: &Measured) -> Table {
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
        let values = ["nstat_a", "nstat_b"].map(|host| &measured.figures[host][name]);
        if values.iter().any(|value| value.as_u64() != Some(0)) {
            table.row([name.to_owned(), count(values[0]), count(values[1])]);
        }
    }
    table
}

fn word(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn count(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), grouped)
}

fn number(value: &Value, decimals: usize) -> String {
    value
        .as_f64()
        .map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}
