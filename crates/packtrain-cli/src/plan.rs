//! `packtrain plan`, and the plan that `packtrain forward` prints at its start.

use crate::args::PlanArgs;
use crate::exit::Failure;
use crate::joint::Joint;
use crate::json;
use crate::print::{self, Style};
use crate::summary;
use crate::table::{Align, Table};
use packtrain::driver::Fit;
use packtrain::engine::Settings;
use packtrain::name::Name;
use packtrain::plan::{Coalescing, PlannedPart};
use packtrain::policy::gro::Flush;
use packtrain_lab::in_force::{InForce, Merging, Path, Policies, Setting, Source};
use packtrain_offload::coalesce::{Mode, Semantics};
use packtrain_offload::layout::TunnelPorts;

/// Opens the ports, prints the plan and closes the ports.
///
/// # Errors
///
/// As [`Joint::look`].
pub fn run(args: &PlanArgs) -> Result<(), Failure> {
    let settings = args.settings.settings();
    check(&settings)?;
    let joint = Joint::look(&args.ports(), &settings)?;
    let in_force = joint.in_force(&args.settings);
    if args.json {
        let mut document = json::document("plan");
        document.extend(json::fields(&in_force));
        json::write(document)
    } else {
        let mut text = text(&joint, &in_force, Style::stdout());
        text.push_str(&policies_line(&in_force.settings));
        print::output(&text)
    }
}

/// Refuses settings that this machine does not support, before anything is opened.
///
/// # Errors
///
/// The setting and what to write instead.
pub fn check(settings: &Settings) -> Result<(), Failure> {
    let checked = settings.check();
    checked.map_err(|error| Failure::of_start(&error))
}

/// What idle workers do, their priority and where they run, in a line.
pub fn policies_line(policies: &Policies) -> String {
    let (idle, priority, placement) = (&policies.idle, &policies.priority, &policies.placement);
    let (why, cpus) = (&policies.placed.why, policies.placed.cpus.iter().flatten());
    let cpus: Vec<_> = cpus.map(u16::to_string).collect();
    let cpus = match &*cpus {
        [] => String::new(),
        cpus => format!(", on CPU {}", cpus.join(", ")),
    };
    format!("idle: {idle}; priority: {priority}; placement: {placement}, {why}{cpus}\n")
}

/// The whole plan, which begins with its [`summary`](summary::plan).
pub fn text(joint: &Joint, in_force: &InForce, style: Style) -> String {
    let mut text = summary::plan(joint);
    text.push('\n');
    let plan = &in_force.plan;
    for (direction, limits) in joint.plan.directions.iter().zip(&plan.directions) {
        let title = format!("{} -> {}", direction.from, direction.to);
        text.push_str(&style.bold(&title));
        text.push('\n');
        let mut table = Table::new([
            ("feature", Align::Left),
            ("done by", Align::Left),
            ("why", Align::Left),
        ]);
        for decision in &direction.decisions {
            table.row([
                decision.feature.name(),
                &decision.who.to_string(),
                &decision.why,
            ]);
        }
        text.push_str(&table.render(2, style));
        if let Some((how, limits)) = direction.coalesce.as_ref().zip(limits.coalesce.as_ref()) {
            text.push_str(&merging(how, limits));
        }
        text.push('\n');
    }
    text.push_str(&attachments(joint, in_force, style));
    for (name, path) in joint.names().iter().zip(plan.paths.values()) {
        let Path { kind, why, .. } = path;
        let each = match path.handover {
            "packet" => ", packet by packet",
            _ => "",
        };
        text.push_str(&format!("TX of {name}: {kind} ({why}){each}\n"));
    }
    text.push_str(&workers(joint));
    let mib = plan.memory_bytes_max.div_ceil(1 << 20);
    let ports = joint.sides.len();
    let each = match ports {
        0..=2 => String::new(),
        ports => format!(", {} MiB for a port", mib.div_ceil(ports as u64)),
    };
    text.push_str(&format!("memory for packets: at most {mib} MiB{each}\n"));
    text
}

/// What each worker has, in a line: RX by pair of queues, TX by queue.
fn workers(joint: &Joint) -> String {
    let plan = &joint.plan;
    let group = |kind: &str, one: &str, all: usize, found: &[usize], name: &Name| match found {
        [] => None,
        _ if found.len() == all => Some(format!("{kind} of {name}")),
        [index] => Some(format!("{kind} {one} {index} of {name}")),
        _ => Some(format!(
            "{kind} of {name} ({} of {all} {one}s)",
            found.len()
        )),
    };
    let has = |parts: &Vec<PlannedPart>| {
        let groups = joint.sides.iter().enumerate().flat_map(|(port, side)| {
            let rx = parts.iter().filter_map(|part| match *part {
                PlannedPart::Lanes { direction, pair } => (direction == port).then_some(pair),
                PlannedPart::Tx { .. } => None,
            });
            let tx = parts.iter().filter_map(|part| match *part {
                PlannedPart::Tx { port: of, queue } => (of == port).then_some(queue),
                PlannedPart::Lanes { .. } => None,
            });
            let (rx, tx): (Vec<_>, Vec<_>) = (rx.collect(), tx.collect());
            let rx = group("RX", "pair", plan.pairs(), &rx, &side.name);
            let tx = group("TX", "queue", plan.attach[port].queues, &tx, &side.name);
            rx.into_iter().chain(tx)
        });
        groups.collect::<Vec<_>>().join(", ")
    };
    let workers = plan.workers.iter().enumerate();
    let workers: Vec<_> = workers
        .map(|(index, parts)| format!("{index}: {}", has(parts)))
        .collect();
    let why = if plan.worker_per_direction() {
        " (a port delivers large packets, so each direction can have its own worker)"
    } else {
        ""
    };
    format!("workers: {}{why}\n", workers.join("; "))
}

/// How packets are merged, in a sentence.
fn merging(how: &Coalescing, limits: &Merging) -> String {
    let mut text = format!(
        "  merging: {}; flows found by {}; at most {} segments and {} bytes in a packet; at most \
         {} packets of {} flows held",
        match how.semantics {
            Semantics::Reversible => "reversible",
            Semantics::Stream => "stream",
        },
        match how.mode {
            Mode::Hash => "hash",
            Mode::Sorted => "sorting",
            Mode::Auto => "hash or sorting",
        },
        limits.segments,
        limits.bytes_max,
        limits.packets,
        limits.flows,
    );
    if let Some(time) = limits.hold_us {
        text.push_str(&format!(", for {time} us"));
    }
    if let (Semantics::Stream, Some(limit)) = (how.semantics, how.gro.ack_limit) {
        text.push_str(&format!("; ack-limit={limit}"));
    }
    if how.gro.flush != Flush::Off {
        text.push_str(&format!("; gro-flush={}", limits.flush));
    }
    if let Some(packets) = limits.rx_pause {
        text.push_str(&format!("; rx-pause={packets}"));
    }
    if how.gro.tunnels != TunnelPorts::KNOWN {
        text.push_str(&format!("; tunnel-ports={}", how.gro.tunnels));
    }
    text.push_str(if how.gro.exact_id {
        "; IPv4 packets with DF and one identification are not merged (gro-id=exact)"
    } else {
        "; IPv4 packets with DF and one identification are merged (gro-id=exact does not)"
    });
    let kib = limits.bytes.div_ceil(1024);
    text.push_str(&format!("; {kib} KiB of memory for each queue\n"));
    text
}

/// How each port is attached, and the settings of its queues, side by side.
fn attachments(joint: &Joint, in_force: &InForce, style: Style) -> String {
    let names = joint.names();
    let heads = names.iter().map(|name| (name.to_string(), Align::Left));
    let mut table = Table::new([("port".to_owned(), Align::Left)].into_iter().chain(heads));
    let ports = 0..names.len();
    let ports: Vec<_> = ports
        .map(|index| attachment(joint, in_force, index))
        .collect();
    for row in 0..ports.first().map_or(0, |port| port.len()) {
        let name = ports[0][row].0.to_owned();
        let values = ports.iter().map(|port| port[row].1.clone());
        table.row([name].into_iter().chain(values));
    }
    table.render(0, style)
}

/// How one port is attached, and the settings of its queues: names and values.
fn attachment(joint: &Joint, in_force: &InForce, index: usize) -> [(&'static str, String); 13] {
    let (port, policies) = (&in_force.plan.ports[index], &in_force.settings.ports[index]);
    let segments = &port.tx_segments;
    let both = |ordinary: usize, gso: usize| {
        if ordinary == gso {
            ordinary.to_string()
        } else {
            format!("{ordinary} ({gso} with GSO)")
        }
    };
    let bytes = segments.bytes_max;
    let bytes = bytes.map_or_else(|| "any".to_owned(), |most| format!("at most {most}"));
    let headers = if segments.contiguous_headers {
        "in the first segment"
    } else {
        "anywhere"
    };
    let unfit = match joint.plan.to(index).limits.fit {
        Fit::Collapse => "merged, else dropped",
        Fit::Defrag => "merged, else copied",
    };
    let padding = match port.min_packet_bytes {
        0 => "none".to_owned(),
        bytes => format!("to {bytes} bytes"),
    };
    let mtu = match port.mtu {
        None => "any".to_owned(),
        Some(bytes) => bytes.to_string(),
    };
    let queues = format!("{} of {}", port.queues, port.queues_max);
    [
        ("link", port.link.to_owned()),
        ("queues", queues),
        ("receive buffers", port.rx.clone()),
        (
            "transmit segments, device",
            both(segments.device, segments.gso_device),
        ),
        (
            "transmit segments, effective",
            both(segments.effective, segments.gso_effective),
        ),
        (
            "transmit segments, advertised",
            segments.advertised.to_string(),
        ),
        ("too many segments", unfit.to_owned()),
        ("bytes of a segment", bytes),
        ("headers", headers.to_owned()),
        ("padding", padding),
        ("MTU", mtu),
        ("dispatch", sourced("dispatch", &policies.dispatch)),
        ("moderation", sourced("moderation", &policies.moderation)),
    ]
}

/// A setting with its source.
fn sourced(name: &str, Setting { setting, from }: &Setting) -> String {
    match from {
        Source::Port => format!("{setting}, by {name}="),
        Source::Option => format!("{setting}, by --{name}"),
        Source::Default => format!("{setting}, by default"),
    }
}
