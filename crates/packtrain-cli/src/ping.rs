//! `packtrain ping`: round trips, idle and beside a load.

use crate::args::ToolArgs;
use crate::exit::Failure;
use crate::print::Style;
use crate::table::{Align, Table, grouped};
use crate::tool;
use packtrain_lab::tool::Measured;
use packtrain_lab::tools::ping::Ping;
use serde_json::Value;
use std::fmt::Write;

/// Runs the command.
///
/// # Errors
///
/// As [`tool::run`].
pub fn run(args: &ToolArgs<Ping>) -> Result<(), Failure> {
    tool::run("ping", args, text)
}

/// The times of a histogram and their headings.
const TIMES: [(&str, &str); 7] = [
    ("min", "min"),
    ("p50", "p50"),
    ("p90", "p90"),
    ("p99", "p99"),
    ("p999", "p99.9"),
    ("max", "max"),
    ("mean", "mean"),
];

/// The load and the testbed, as they were in force.
fn conditions(measured: &Measured) -> String {
    let settings = &measured.settings;
    let word = |name: &str| settings.get(name).and_then(Value::as_str).unwrap_or("-");
    let number = |name: &str| settings.get(name).and_then(Value::as_f64);
    let rate = match number("rate_per_second") {
        Some(rate) => format!("{rate} requests due a second"),
        None => "one request after the other".to_owned(),
    };
    format!(
        "{} over {}, frames of {} bytes, {rate}, {} s\n{}\n",
        word("protocol"),
        word("ip"),
        number("frame_bytes").unwrap_or(0.0),
        number("duration_seconds").unwrap_or(0.0),
        tool::testbed(measured),
    )
}

fn text(measured: &Measured, style: Style) -> String {
    let figures = &measured.figures;
    let count = |name: String| {
        let figure = figures.get(&name).and_then(Value::as_u64);
        figure.unwrap_or(0)
    };
    let loaded = figures.contains_key("load_goodput_gbps");
    let phases: &[(&str, &str)] = if loaded {
        &[("idle", "idle_"), ("loaded", "")]
    } else {
        &[("", "")]
    };
    let headings = TIMES.map(|(_, heading)| (heading, Align::Right));
    let mut table = Table::new([("us", Align::Left)].into_iter().chain(headings));
    let mut text = conditions(measured);
    for (phase, prefix) in phases {
        let of = |name: &str| count(format!("{prefix}{name}"));
        let number = |name: &str| {
            figures
                .get(&format!("{prefix}{name}"))
                .and_then(Value::as_f64)
        };
        let colon = if phase.is_empty() { "" } else { ": " };
        writeln!(
            text,
            "{phase}{colon}{} requests, {:.0} a second; {} lost ({:.3} %), {} late, {} replies \
             arrived again",
            grouped(of("sent_requests")),
            number("requests_per_second").unwrap_or(0.0),
            grouped(of("lost_requests")),
            number("lost_percent").unwrap_or(0.0),
            grouped(of("late_requests")),
            grouped(of("duplicate_replies")),
        )
        .expect("a string");
        for (name, what) in [
            ("latency_us", "round trip"),
            ("send_delay_us", "sent late by"),
        ] {
            let times = &figures
                .get(&format!("{prefix}{name}"))
                .unwrap_or(&Value::Null);
            let cells = TIMES.map(|(key, _)| match times[key].as_f64() {
                Some(us) => format!("{us:.1}"),
                None => "-".to_owned(),
            });
            let row = format!("{phase}{}{what}", if phase.is_empty() { "" } else { " " });
            table.row([row].into_iter().chain(cells));
        }
    }
    if let Some(gbps) = figures.get("load_goodput_gbps").and_then(Value::as_f64) {
        writeln!(text, "load: {gbps:.2} Gbit/s of TCP").expect("a string");
    }
    text.push('\n');
    text.push_str(&table.render(0, style));
    text.push_str(&tool::flags(measured));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn idle_is_beside_loaded() {
        let times = json!({
            "min": 10.0, "p50": 20.0, "p90": 30.0, "p99": 40.0, "p999": 50.0, "max": 60.04,
            "mean": 21.0,
        });
        let figures = json!({
            "sent_requests": 2000, "idle_sent_requests": 1000, "lost_requests": 1,
            "latency_us": times, "idle_latency_us": times, "send_delay_us": {"p50": null},
            "load_goodput_gbps": 3.456,
        });
        let settings = json!({
            "through": "bridge", "mtu": 1500, "protocol": "icmp", "ip": "ipv6",
            "frame_bytes": 102, "rate_per_second": 1000.0, "duration_seconds": 1.0,
        });
        let measured = Measured {
            settings: settings.as_object().cloned().unwrap_or_default(),
            figures: figures.as_object().cloned().unwrap_or_default(),
            ..Measured::default()
        };
        let text = text(&measured, Style::PLAIN);
        assert!(
            text.starts_with(
                "icmp over ipv6, frames of 102 bytes, 1000 requests due a second, 1 s\n\
                 through bridge, MTU 1500\n\nidle: 1,000 requests"
            ),
            "{text}"
        );
        assert!(
            text.contains("loaded: 2,000 requests, 0 a second; 1 lost"),
            "{text}"
        );
        assert!(text.contains("load: 3.46 Gbit/s of TCP\n"), "{text}");
        let row = "idle round trip      10.0  20.0  30.0  40.0   50.0  60.0  21.0\n";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("loaded sent late by     -"), "{text}");
    }
}
