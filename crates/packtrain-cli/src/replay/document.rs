//! What a replay found, as JSON.

use super::args::{ReplayArgs, Switch};
use super::found::Found;
use crate::args::word;
use crate::json;
use packtrain_capture::replay::Segment;
use packtrain_replay::{configuration, figures, input};
use serde_json::{Map, Value, json};

/// The document: of several configurations, each one is an element of `runs`.
pub fn of(args: &ReplayArgs, found: &Found) -> Map<String, Value> {
    let mut document = json::document("replay");
    let mut settings = common(args, found);
    let all: Vec<_> = found.runs.iter().zip(&found.reports).collect();
    let mut figures = match all[..] {
        [(options, report)] => {
            settings.append(&mut configuration(options));
            figures(report)
        }
        _ => {
            let runs = all.iter().map(|(options, report)| {
                let mut run = json::fields(&json!({"settings": configuration(options)}));
                run.append(&mut figures(report));
                run
            });
            let runs: Vec<_> = runs.collect();
            json::fields(&json!({ "runs": runs }))
        }
    };
    document.insert("settings".into(), settings.into());
    if let Some(report) = found.reports.first() {
        document.append(&mut input(report));
    }
    document.insert("stopped".into(), found.stopped.into());
    document.append(&mut figures);
    let stored = found.stored.as_ref().map(|stored| {
        json!({
            "folder": stored.folder,
            "dataset": stored.dataset,
            "written": stored.written,
            "kept": stored.kept,
        })
    });
    document.insert("parquet".into(), stored.into());
    document
}

/// The settings of all configurations.
fn common(args: &ReplayArgs, found: &Found) -> Map<String, Value> {
    json::fields(&json!({
        "input": found.inputs.first(),
        "inputs": found.inputs,
        "output": args.output,
        "inactive": args.gro_inactive == Switch::On,
        "flush": args.gro_flush.to_string(),
        "id": word(&args.gro_id),
        "tunnel_ports": args.tunnel_ports,
        "rx_pause": args.rx_pause,
        "segment": match args.segment {
            Segment::Off => Value::from("off"),
            Segment::Original => Value::from("original"),
            Segment::Mtu(mtu) => Value::from(mtu),
        },
        "headers_only": args.headers_only,
        "user0": args.user0.as_ref().map(word),
    }))
}
