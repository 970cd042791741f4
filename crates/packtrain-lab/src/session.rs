//! A session of packtrain as a device under test: the settings that it has in force, and its end.

use packtrain::driver::{Coalesce, Features};
use packtrain::engine::{Report, Session};
use packtrain::plan::Coalescing;
use packtrain_offload::coalesce::Semantics;
use packtrain_offload::offload::LinkType;
use serde_json::{Value, json};

use crate::error::ToolError;
use crate::options::Fields;

/// The requested `ports`, one or two, and the settings in force, from the plan and the settings of
/// a session on them that was started. The names of those of a port end with `_a` or `_b`.
pub(crate) fn settings(session: &Session, ports: &[&str]) -> Fields {
    let (plan, placed) = (session.plan(), session.placed());
    let cpus = placed.cpus.iter().map(|cpu| cpu.map(|cpu| cpu.0));
    let mut fields = Fields::new();
    let ports = || ["a", "b"].into_iter().zip(ports);
    fields.extend(ports().map(|(name, port)| (name.to_owned(), json!(port))));
    let of_ports = ports().enumerate();
    let of_ports: Vec<_> = of_ports
        .map(|(port, (name, _))| (name, of_port(session, port)))
        .collect();
    for name in of_ports.iter().flat_map(|(_, values)| values.keys()) {
        for (port, values) in &of_ports {
            if let Some(value) = values.get(name) {
                fields.insert(format!("{name}_{port}"), value.clone());
            }
        }
    }
    let values = [
        ("idle", json!(session.settings().idle.to_string())),
        ("placement", json!(session.settings().placement.to_string())),
        ("placement_why", json!(placed.why.to_string())),
        ("workers", json!(plan.workers.len())),
        ("worker_cpus", cpus.collect()),
        ("notes", json!(plan.notes)),
    ];
    fields.extend(values.map(|(name, value)| (name.to_owned(), value)));
    fields
}

/// Those of port 0 or 1: of its queues, of packets to it, and of merging what it receives.
fn of_port(session: &Session, port: usize) -> Fields {
    let plan = session.plan();
    let (attach, path) = (&plan.attach[port], &plan.paths[port]);
    // A port alone sends where it receives.
    let (from, to) = (
        &plan.directions[port],
        &plan.directions[plan.directions.len() - 1 - port],
    );
    let (_, moderation) = session.settings().of_port(&plan.work[port]);
    let mut values: Vec<(&str, Value)> = vec![
        ("path", json!(path.kind.to_string())),
        ("dispatch", json!(path.dispatch.to_string())),
        ("moderation", json!(moderation.to_string())),
        ("queues", json!(attach.queues)),
        ("rx", json!(attach.rx_buffers.to_string())),
        ("rx_offloads", features(attach.rx)),
        ("tx_offloads", features(to.tx)),
        ("segments", json!(to.limits.segments_max)),
        ("gso_segments", json!(to.limits.gso_segments_max)),
        ("headroom", json!(to.limits.headroom)),
        ("fit", json!(to.limits.fit.to_string())),
    ];
    let coalesce = from.coalesce.as_ref();
    let setting = coalesce.map_or(Coalesce::Off, Coalescing::setting);
    values.push(("coalesce", json!(setting.to_string())));
    if let Some(how) = coalesce {
        let config = how.config(LinkType::Ethernet);
        values.extend([
            ("gro_flows", json!(config.flows)),
            ("gro_bytes", json!(config.max_bytes)),
            ("gro_packets", json!(how.packets_max())),
            ("gro_inactive", json!(how.gro.inactive)),
            ("gro_flush", json!(how.gro.flush.to_string())),
        ]);
        if how.semantics == Semantics::Stream {
            values.push(("ack_limit", json!(config.ack_limit)));
        }
        let pause = how.gro.rx_pause;
        values.extend(pause.map(|packets| ("rx_pause", json!(packets))));
    }
    let values = values.into_iter();
    values
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The names of a set of offloads, or `off`.
fn features(set: Features) -> Value {
    match set.names().collect::<Vec<_>>() {
        names if names.is_empty() => json!("off"),
        names => json!(names.join(", ")),
    }
}

/// Ends a session, whose ledger must close.
///
/// # Errors
/// [`ToolError::Failed`] if it ended early, [`ToolError::Check`] if its ledger does not close.
pub(crate) fn finish(session: Session) -> Result<Report, ToolError> {
    let report = session.finish();
    if let Some(error) = &report.error {
        return Err(ToolError::Failed(error.to_string()));
    }
    let ledger = report.snapshot.ledger;
    if !ledger.closed() {
        return Err(ToolError::Check(format!(
            "packets are not accounted for: {ledger:?}"
        )));
    }
    Ok(report)
}
