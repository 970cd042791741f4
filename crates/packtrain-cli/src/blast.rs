//! `packtrain blast`: packets at a rate or flat out, and what became of them.

use crate::args::ToolArgs;
use crate::exit::Failure;
use crate::print::Style;
use crate::table::{Align, Table, grouped, scaled};
use crate::tool;
use packtrain_lab::tool::Measured;
use packtrain_lab::tools::blast::Blast;
use serde_json::Value;
use std::fmt::Write;

/// Runs the command.
///
/// # Errors
///
/// As [`tool::run`].
pub fn run(args: &ToolArgs<Blast>) -> Result<(), Failure> {
    tool::run("blast", args, text)
}

/// The load and the testbed, as they were in force.
fn conditions(measured: &Measured) -> String {
    let settings = &measured.settings;
    let number = |name: &str| settings.get(name).and_then(Value::as_f64);
    let ip = settings.get("ip").and_then(Value::as_str).unwrap_or("-");
    let sizes = settings.get("frame_bytes").and_then(Value::as_array);
    let sizes: Vec<_> = sizes.into_iter().flatten().map(Value::to_string).collect();
    let rate = match (number("rate_kpps"), number("burst_packets")) {
        (Some(kpps), Some(burst)) => {
            let rate = scaled(kpps * 1e3);
            format!("at {rate}pps in bursts of {burst}")
        }
        _ => "flat out".to_owned(),
    };
    let senders = number("senders").unwrap_or(0.0);
    format!(
        "udp over {ip}, frames of {} bytes, {rate}, {senders} sender{}, {} s\n{}",
        sizes.join(","),
        if senders > 1.0 { "s" } else { "" },
        number("duration_seconds").unwrap_or(0.0),
        tool::testbed(measured),
    )
}

fn text(measured: &Measured, style: Style) -> String {
    let figures = &measured.figures;
    let number = |name: &str| figures.get(name).and_then(Value::as_f64);
    let count = |name: &str| grouped(figures.get(name).and_then(Value::as_u64).unwrap_or(0));
    let rate = |name: &str| {
        let kpps = number(name).unwrap_or(0.0);
        format!("{}pps", scaled(kpps * 1e3))
    };
    let mut text = conditions(measured);
    text.push('\n');
    text += &format!(
        "offered   {:>12} packets  {}\nreceived  {:>12} packets  {}\nlost      {:>12} packets  \
         {:.3} %\n",
        count("sent_packets"),
        rate("offered_kpps"),
        count("received_packets"),
        rate("received_kpps"),
        count("lost_packets"),
        number("lost_percent").unwrap_or(0.0),
    );
    let others = [
        (
            "lost_at_interface_packets",
            "of these at the sender's interface (its queue was full)",
        ),
        (
            "lost_at_socket_packets",
            "of these at the receiver's socket (its buffer was full)",
        ),
        ("duplicate_packets", "arrived again"),
        ("reordered_packets", "arrived after one that was sent later"),
        ("damaged_packets", "arrived damaged"),
    ];
    for (name, what) in others {
        if number(name) > Some(0.0) {
            writeln!(text, "          {:>12} {what}", count(name)).expect("a string");
        }
    }
    text.push('\n');
    let mut table = Table::new([
        ("", Align::Left),
        ("CPU", Align::Right),
        ("switches/s", Align::Right),
        ("wakeups/s", Align::Right),
    ]);
    for (part, base) in [
        ("sender", "%"),
        ("receiver", "%"),
        ("forwarder", "%"),
        ("softirq", "% of all"),
        ("machine", "% of all"),
    ] {
        let cell =
            |name: String, show: &dyn Fn(f64) -> String| number(&name).map_or(String::new(), show);
        let per_second = &|value| grouped(f64::round(value) as u64);
        table.row([
            part.to_owned(),
            cell(format!("cpu_{part}_percent"), &|value| {
                format!("{value:.0} {base}")
            }),
            cell(format!("switches_{part}_per_second"), per_second),
            cell(format!("wakeups_{part}_per_second"), per_second),
        ]);
    }
    text.push_str(&table.render(0, style));
    if let Some(per_kpps) = number("cpu_percent_per_kpps") {
        let line = format!("\nCPU of sender, receiver and forwarder: {per_kpps:.3} % per kpps\n");
        text.push_str(&line);
    }
    text.push_str(&tool::flags(measured));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_did_not_happen_has_no_line() {
        let figures = json!({
            "sent_packets": 1_000_000, "received_packets": 999_000, "lost_packets": 1000,
            "lost_percent": 0.1, "offered_kpps": 1000.0, "received_kpps": 999.0,
            "duplicate_packets": 3, "reordered_packets": 0, "cpu_sender_percent": 99.6,
            "cpu_machine_percent": 95.1,
        });
        let figures = figures.as_object().cloned().unwrap_or_default();
        let settings = json!({
            "through": "veth", "mtu": 1500, "ip": "ipv4", "frame_bytes": [64, 1518],
            "rate_kpps": 20.0, "burst_packets": 2, "senders": 1, "duration_seconds": 0.5,
        });
        let settings = settings.as_object().cloned().unwrap_or_default();
        let measured = Measured {
            settings,
            figures,
            ..Measured::default()
        };
        let text = text(&measured, Style::PLAIN);
        assert!(
            text.starts_with(
                "udp over ipv4, frames of 64,1518 bytes, at 20.0 kpps in bursts of 2, 1 sender, \
                 0.5 s\nthrough veth, MTU 1500\n\noffered "
            ),
            "{text}"
        );
        assert!(
            text.contains("offered      1,000,000 packets  1.0 Mpps\n"),
            "{text}"
        );
        assert!(
            text.contains("lost             1,000 packets  0.100 %\n"),
            "{text}"
        );
        assert!(text.contains("3 arrived again\n"), "{text}");
        assert!(!text.contains("sent later"), "{text}");
        assert!(text.contains("sender           100 %\n"), "{text}");
        assert!(text.contains("machine    95 % of all\n"), "{text}");
    }
}
