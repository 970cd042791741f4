//! `packtrain blast`: packets at a rate or flat out, and what became of them.

use crate::args::ToolArgs;
use crate::exit::Failure;
use crate::print::Style;
use crate::table::{Align, Table, grouped, scaled};
use crate::tool;
use packtrain_lab::tools::blast::{Blast, Blasted};

/// Runs the command.
///
/// # Errors
///
/// As [`tool::run`].
pub fn run(args: &ToolArgs<Blast>) -> Result<(), Failure> {
    tool::run("blast", args, text)
}

/// The load and the testbed, as they were in force.
fn conditions(measured: &Blasted) -> String {
    let of = &measured.settings;
    let sizes: Vec<_> = of.frame_bytes.iter().map(ToString::to_string).collect();
    let rate = match (of.rate_kpps, of.burst_packets) {
        (Some(kpps), Some(burst)) => {
            let rate = scaled(kpps * 1e3);
            format!("at {rate}pps in bursts of {burst}")
        }
        _ => "flat out".to_owned(),
    };
    let figures = &measured.figures;
    format!(
        "udp over {}, frames of {} bytes, {rate}, {} sender{}, {:.2} s measured\n{}",
        of.ip,
        sizes.join(","),
        of.senders,
        if of.senders > 1 { "s" } else { "" },
        figures.sent_packets as f64 / (figures.offered_kpps * 1e3),
        tool::testbed(&measured.testbed),
    )
}

fn text(measured: &Blasted, style: Style) -> String {
    let of = &measured.figures;
    let rate = |kpps: f64| format!("{}pps", scaled(kpps * 1e3));
    let mut text = conditions(measured);
    text += &format!(
        "\noffered   {:>12} packets  {}\nreceived  {:>12} packets  {}\nlost      {:>12} packets  \
         {:.3} %\n",
        grouped(of.sent_packets),
        rate(of.offered_kpps),
        grouped(of.received_packets),
        rate(of.received_kpps),
        grouped(of.lost_packets),
        of.lost_percent,
    );
    for (count, what) in [
        (
            of.lost_at_interface_packets,
            "of these at the sender's interface (its queue was full)",
        ),
        (
            of.lost_at_socket_packets,
            "of these at the receiver's socket (its buffer was full)",
        ),
        (of.duplicate_packets, "arrived again"),
        (
            of.reordered_packets,
            "arrived after one that was sent later",
        ),
        (of.damaged_packets, "arrived damaged"),
    ] {
        if count > 0 {
            text += &format!("          {:>12} {what}\n", grouped(count));
        }
    }
    text.push('\n');
    let mut table = Table::new([
        ("", Align::Left),
        ("CPU", Align::Right),
        ("switches/s", Align::Right),
        ("wakeups/s", Align::Right),
    ]);
    let count = |value: f64| grouped(value.round() as u64);
    let wakeups = count(of.wakeups_forwarder_per_second);
    for (part, percent, switches, wakeups) in [
        (
            "sender",
            of.cpu_sender_percent,
            of.switches_sender_per_second,
            "",
        ),
        (
            "receiver",
            of.cpu_receiver_percent,
            of.switches_receiver_per_second,
            "",
        ),
        (
            "forwarder",
            of.cpu_forwarder_percent,
            of.switches_forwarder_per_second,
            &wakeups,
        ),
    ] {
        table.row([part, &format!("{percent:.0} %"), &count(switches), wakeups]);
    }
    let machine = &of.machine;
    let of_all = |percent: Option<f64>| {
        percent.map_or_else(String::new, |percent| format!("{percent:.0} % of all"))
    };
    table.row(["softirq", &of_all(machine.cpu_softirq_percent)]);
    let switches = count(of.switches_machine_per_second);
    table.row(["machine", &of_all(machine.cpu_machine_percent), &switches]);
    text.push_str(&table.render(0, style));
    text += &format!(
        "\nCPU of sender, receiver and forwarder: {:.3} % per kpps\n",
        of.cpu_percent_per_kpps
    );
    text + &tool::flags(&measured.flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain_lab::machine::CpuFigures;
    use packtrain_lab::tool::Measured;
    use packtrain_lab::tools::blast::{Figures, Settings};
    use packtrain_measure::key::fields;
    use serde_json::json;

    #[test]
    fn what_did_not_happen_has_no_line() {
        let machine = CpuFigures {
            cpu_machine_percent: Some(95.1),
            ..CpuFigures::default()
        };
        let measured = Measured {
            testbed: fields(&json!({ "through": "veth", "mtu": 1500 })),
            settings: Settings {
                ip: "ipv4".to_owned(),
                frame_bytes: vec![64, 1518],
                rate_kpps: Some(20.0),
                burst_packets: Some(2),
                senders: 1,
                duration_seconds: 0.5,
                ..Settings::default()
            },
            figures: Figures {
                sent_packets: 1_000_000,
                received_packets: 999_000,
                lost_packets: 1000,
                lost_percent: 0.1,
                offered_kpps: 1000.0,
                received_kpps: 999.0,
                duplicate_packets: 3,
                cpu_sender_percent: 99.6,
                machine,
                ..Figures::default()
            },
            flags: Vec::new(),
        };
        let text = text(&measured, Style::PLAIN);
        assert!(
            text.starts_with(
                "udp over ipv4, frames of 64,1518 bytes, at 20.0 kpps in bursts of 2, 1 sender, \
                 1.00 s measured\nthrough veth, MTU 1500\n\noffered "
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
        assert!(
            text.contains("sender           100 %           0\n"),
            "{text}"
        );
        assert!(
            text.contains("machine    95 % of all           0\n"),
            "{text}"
        );
    }
}
