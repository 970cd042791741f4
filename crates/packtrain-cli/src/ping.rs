//! `packtrain ping`: round trips, idle and beside a load.

use crate::args::ToolArgs;
use crate::exit::Failure;
use crate::print::Style;
use crate::table::{Align, Table, grouped};
use crate::tool;
use packtrain_lab::tool::Measured;
use packtrain_lab::tools::ping::{Figures, Ping, Settings, Times};

/// Runs the command.
///
/// # Errors
///
/// As [`tool::run`].
pub fn run(args: &ToolArgs<Ping>) -> Result<(), Failure> {
    tool::run("ping", args, text)
}

type Pinged = Measured<Settings, Figures>;

/// The load and the testbed, as they were in force.
fn conditions(measured: &Pinged) -> String {
    let of = &measured.settings;
    let rate = match of.rate_per_second {
        Some(rate) => format!("{rate} requests due a second"),
        None => "one request after the other".to_owned(),
    };
    format!(
        "{} over {}, frames of {} bytes, {rate}\n{}\n",
        of.protocol,
        of.ip,
        of.frame_bytes,
        tool::testbed(&measured.testbed),
    )
}

fn text(measured: &Pinged, style: Style) -> String {
    let figures = &measured.figures;
    let phases = match &figures.idle {
        Some(idle) => vec![("idle", idle), ("loaded", &figures.phase)],
        None => vec![("", &figures.phase)],
    };
    let headings = ["min", "p50", "p90", "p99", "p99.9", "max", "mean"];
    let headings = headings.map(|heading| (heading, Align::Right));
    let mut table = Table::new([("us", Align::Left)].into_iter().chain(headings));
    let mut text = conditions(measured);
    for (name, of) in phases {
        let colon = if name.is_empty() { "" } else { ": " };
        text += &format!(
            "{name}{colon}{} requests in {:.2} s, {:.0} a second; {} lost ({:.3} %), {} late, {} \
             replies arrived again\n",
            grouped(of.sent_requests),
            of.sent_requests as f64 / of.requests_per_second,
            of.requests_per_second,
            grouped(of.lost_requests),
            of.lost_percent,
            grouped(of.late_requests),
            grouped(of.duplicate_replies),
        );
        for (times, what) in [
            (&of.latency_us, "round trip"),
            (&of.send_delay_us, "sent late by"),
        ] {
            let Times {
                min,
                p50,
                p90,
                p99,
                p999,
                max,
                mean,
                ..
            } = times;
            let cells = [min, p50, p90, p99, p999, max, mean];
            let cells = cells.map(|us| us.map_or_else(|| "-".to_owned(), |us| format!("{us:.1}")));
            let row = format!("{name} {what}").trim_start().to_owned();
            table.row([row].into_iter().chain(cells));
        }
    }
    if let Some(load) = &figures.load {
        text += &format!("load: {:.2} Gbit/s of TCP\n", load.load_goodput_gbps);
    }
    text.push('\n');
    text.push_str(&table.render(0, style));
    text.push_str(&tool::flags(&measured.flags));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain_lab::tools::ping::{Load, Phase};
    use packtrain_measure::key::fields;
    use serde_json::json;

    #[test]
    fn idle_is_beside_loaded() {
        let times = Times {
            min: Some(10.0),
            p50: Some(20.0),
            p90: Some(30.0),
            p99: Some(40.0),
            p999: Some(50.0),
            max: Some(60.04),
            mean: Some(21.0),
            ..Times::default()
        };
        let idle = Phase {
            sent_requests: 1000,
            requests_per_second: 2000.0,
            latency_us: times,
            ..Phase::default()
        };
        let phase = Phase {
            sent_requests: 2000,
            lost_requests: 1,
            ..idle.clone()
        };
        let load = Load {
            load_goodput_gbps: 3.456,
            ..Load::default()
        };
        let measured = Measured {
            testbed: fields(&json!({ "through": "bridge", "mtu": 1500 })),
            settings: Settings {
                protocol: "icmp",
                ip: "ipv6".to_owned(),
                frame_bytes: 102,
                rate_per_second: Some(1000.0),
                duration_seconds: 1.0,
                ..Settings::default()
            },
            figures: Figures {
                idle: Some(idle),
                phase,
                load: Some(load),
            },
            flags: Vec::new(),
        };
        let text = text(&measured, Style::PLAIN);
        assert!(
            text.starts_with(
                "icmp over ipv6, frames of 102 bytes, 1000 requests due a second\n\
                 through bridge, MTU 1500\n\nidle: 1,000 requests in 0.50 s, 2000 a second"
            ),
            "{text}"
        );
        assert!(
            text.contains("loaded: 2,000 requests in 1.00 s, 2000 a second; 1 lost"),
            "{text}"
        );
        assert!(text.contains("load: 3.46 Gbit/s of TCP\n"), "{text}");
        let row = "idle round trip      10.0  20.0  30.0  40.0   50.0  60.0  21.0\n";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("loaded sent late by     -"), "{text}");
    }
}
