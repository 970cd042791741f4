//! `packtrain plan`, and the plan that `packtrain forward` prints at its start.

use crate::args::{PlanArgs, SettingArgs};
use crate::exit::Failure;
use crate::in_force::PortSettings;
use crate::joint::Joint;
use crate::json;
use crate::print::{self, Style};
use crate::summary;
use crate::table::{Align, Table};
use packtrain::driver::Fit;
use packtrain::engine::{Settings, arena_config};
use packtrain::limits::COALESCE_HOLD_MAX;
use packtrain::plan::{Coalescing, FitLimits, PlannedPart};
use packtrain::policy::gro::Flush;
use packtrain::policy::placement::Placed;
use packtrain::policy::topology::CpuId;
use packtrain_offload::coalesce::{Mode, Semantics};
use packtrain_offload::offload::LinkType;

/// Opens the ports, prints the plan and closes the ports.
///
/// # Errors
///
/// As [`Joint::look`].
pub fn run(args: &PlanArgs) -> Result<(), Failure> {
    let settings = args.settings.settings();
    check(&settings)?;
    let joint = Joint::look(&args.a, &args.b, &settings)?;
    let placed = joint.place(&settings);
    if args.json {
        let mut document = json::document("plan");
        document.insert("plan".into(), json::plan(&joint));
        let settings = json::settings(&args.settings, &joint.sides, &joint.keys, &placed);
        document.insert("settings".into(), settings);
        json::write(document)
    } else {
        let mut text = text(&joint, &args.settings, Style::stdout());
        text.push_str(&settings_line(&settings, &placed));
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
pub fn settings_line(settings: &Settings, placed: &Placed) -> String {
    let (idle, priority, placement) = (&settings.idle, &settings.priority, &settings.placement);
    let cpus = cpus(placed);
    format!(
        "idle: {idle}; priority: {priority}; placement: {placement}, {}{cpus}\n",
        placed.why
    )
}

/// The CPUs that threads are bound to, to append to the reason; empty if none is bound.
fn cpus(placed: &Placed) -> String {
    let cpus: Vec<_> = placed.cpus.iter().flatten().map(CpuId::to_string).collect();
    if cpus.is_empty() {
        String::new()
    } else {
        format!(", on CPU {}", cpus.join(", "))
    }
}

/// The whole plan, which begins with its [`summary`](summary::plan).
pub fn text(joint: &Joint, settings: &SettingArgs, style: Style) -> String {
    let mut text = summary::plan(joint);
    text.push('\n');
    for direction in &joint.plan.directions {
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
        if let Some(how) = &direction.coalesce {
            text.push_str(&coalescing(how));
        }
        text.push('\n');
    }
    text.push_str(&attachments(joint, settings, style));
    for (side, path) in joint.sides.iter().zip(&joint.plan.paths) {
        let (name, kind, why) = (&side.name, path.kind, &path.why);
        text.push_str(&format!("TX of {name}: {kind} ({why})\n"));
    }
    text.push_str(&workers(joint));
    let bytes = arena_config(&joint.plan).bytes();
    let mib = bytes.div_ceil(1 << 20);
    text.push_str(&format!("memory for packets: at most {mib} MiB\n"));
    text
}

/// What each worker has, in a line: RX by pair of queues, TX by queue.
fn workers(joint: &Joint) -> String {
    let plan = &joint.plan;
    let group = |kind: &str, one: &str, all: usize, found: &[usize], name: &str| match found {
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
fn coalescing(how: &Coalescing) -> String {
    let (gro, config) = (&how.gro, how.config(LinkType::Ethernet));
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
        how.segments_max,
        config.max_bytes,
        how.packets_max(),
        config.flows,
    );
    if gro.inactive {
        text.push_str(&format!(", for {} us", COALESCE_HOLD_MAX.as_micros()));
    }
    if let (Semantics::Stream, Some(limit)) = (how.semantics, gro.ack_limit) {
        text.push_str(&format!("; ack-limit={limit}"));
    }
    if gro.flush != Flush::Off {
        text.push_str(&format!("; gro-flush={}", gro.flush));
    }
    if let Some(packets) = gro.rx_pause {
        text.push_str(&format!("; rx-pause={packets}"));
    }
    text.push_str(if gro.exact_id {
        "; IPv4 packets with DF and one identification are not merged (gro-id=exact)"
    } else {
        "; IPv4 packets with DF and one identification are merged (gro-id=exact does not)"
    });
    let kib = how.bytes().div_ceil(1024);
    text.push_str(&format!("; {kib} KiB of memory for each queue\n"));
    text
}

/// How each port is attached, and the settings of its queues, side by side.
fn attachments(joint: &Joint, settings: &SettingArgs, style: Style) -> String {
    let [a, b] = joint.names();
    let mut table = Table::new([
        ("port".to_owned(), Align::Left),
        (a, Align::Left),
        (b, Align::Left),
    ]);
    let columns = [attachment(joint, 0), attachment(joint, 1)];
    let [a, b] = columns;
    for ((name, a), (_, b)) in a.into_iter().zip(b) {
        table.row([name, &a, &b]);
    }
    let [a, b] = [0, 1].map(|port| {
        let work = PortSettings::of(settings, &joint.sides[port].config.work);
        [work.dispatch.to_string(), work.moderation.to_string()]
    });
    table.row(["dispatch", &a[0], &b[0]]);
    table.row(["moderation", &a[1], &b[1]]);
    table.render(0, style)
}

/// How one port is attached: names and values.
fn attachment(joint: &Joint, index: usize) -> [(&'static str, String); 10] {
    let (side, attach) = (&joint.sides[index], &joint.plan.attach[index]);
    let limits = &joint.plan.directions[1 - index].limits;
    let device = FitLimits::new(&side.capabilities, None);
    let both = |ordinary: usize, gso: usize| {
        if ordinary == gso {
            ordinary.to_string()
        } else {
            format!("{ordinary} ({gso} with GSO)")
        }
    };
    let bytes = if limits.segment_bytes_max == usize::MAX {
        "any".to_owned()
    } else {
        format!("at most {}", limits.segment_bytes_max)
    };
    let headers = if limits.contiguous_headers {
        "in the first segment"
    } else {
        "anywhere"
    };
    let unfit = match limits.fit {
        Fit::Collapse => "merged, else dropped",
        Fit::Defrag => "merged, else copied",
    };
    let padding = match limits.min_packet_bytes {
        0 => "none".to_owned(),
        bytes => format!("to {bytes} bytes"),
    };
    let buffers = attach.rx_buffers.to_string();
    let queues = format!("{} of {}", attach.queues, side.capabilities.queues_max);
    [
        ("link", joint.link_name(index).to_owned()),
        ("queues", queues),
        ("receive buffers", buffers),
        (
            "transmit segments, device",
            both(device.segments_max, device.gso_segments_max),
        ),
        (
            "transmit segments, effective",
            both(limits.segments_max, limits.gso_segments_max),
        ),
        (
            "transmit segments, advertised",
            limits.advertised().to_string(),
        ),
        ("too many segments", unfit.to_owned()),
        ("bytes of a segment", bytes),
        ("headers", headers.to_owned()),
        ("padding", padding),
    ]
}
