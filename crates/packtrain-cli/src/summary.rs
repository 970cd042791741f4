//! The plan in a few lines: what packtrain does in software, and why.

use crate::joint::Joint;
use packtrain::driver::Features;
use packtrain::plan::{Direction, Who};

/// The plan in a line for each direction: what packtrain does in software, and why. A note follows
/// for each setting that a device refused.
pub fn plan(joint: &Joint) -> String {
    let directions = joint.plan.directions.iter();
    let mut text: String = directions.map(direction_line).collect();
    for note in &joint.plan.notes {
        text.extend(["note: ", note, "\n"]);
    }
    text
}

fn direction_line(direction: &Direction) -> String {
    let (from, to) = (&direction.from, &direction.to);
    let mut parts: Vec<String> = Vec::new();
    for (features, cause) in by_cause(direction) {
        parts.push(format!("{} ({to}: {cause})", offloads(features)));
    }
    if let Some(how) = &direction.coalesce {
        let kinds = listed(how.kinds, &MERGED);
        parts.push(format!("merging of {kinds} ({to} accepts large packets)"));
    }
    let software = if parts.is_empty() {
        "nothing".to_owned()
    } else {
        parts.join(", ")
    };
    let device = all_of(direction, Who::Device);
    let device = if device.is_empty() {
        String::new()
    } else {
        format!("; offloaded to {to}: {}", offloads(device))
    };
    format!("{from} -> {to}: in software: {software}{device}\n")
}

/// The features that packtrain does in software for packets of this direction, by cause.
fn by_cause(direction: &Direction) -> Vec<(Features, &str)> {
    let mut causes: Vec<(Features, &str)> = Vec::new();
    for decision in &direction.decisions {
        if decision.who != Who::Software || decision.feature == Features::LARGE_RECEIVE {
            continue;
        }
        // A reason ends with a colon and its cause.
        let why = decision.why.as_str();
        let cause = why.rsplit_once(": ").map_or(why, |(_, cause)| cause);
        match causes.iter_mut().find(|(_, known)| *known == cause) {
            Some((features, _)) => *features |= decision.feature,
            None => causes.push((decision.feature, cause)),
        }
    }
    causes
}

fn all_of(direction: &Direction, who: Who) -> Features {
    let decisions = direction.decisions.iter();
    decisions
        .filter(|decision| decision.who == who)
        .fold(Features::NONE, |all, decision| all | decision.feature)
}

/// Offloads that have a common name.
const FAMILIES: [(Features, &str); 3] = [
    (Features::CSUM, "checksums"),
    (Features::TSO, "TSO"),
    (Features::USO, "USO"),
];

/// Kinds of packets that are merged, each as the feature that the egress needs.
const MERGED: [(Features, &str); 6] = [
    (Features::TSO4.union(Features::TSO6), "TCP"),
    (Features::USO, "UDP"),
    (Features::TSO4, "TCP/IPv4"),
    (Features::TSO6, "TCP/IPv6"),
    (Features::USO4, "UDP/IPv4"),
    (Features::USO6, "UDP/IPv6"),
];

/// A list of all in `features`; a set that comes earlier in `names` goes before its parts.
fn listed<'a>(
    mut features: Features,
    names: impl IntoIterator<Item = &'a (Features, &'static str)>,
) -> String {
    let mut words = Vec::new();
    for &(feature, word) in names {
        if features.contains(feature) {
            words.push(word);
            features = features.without(feature);
        }
    }
    words.join(", ")
}

fn offloads(features: Features) -> String {
    listed(features, FAMILIES.iter().chain(&Features::NAMED))
}
