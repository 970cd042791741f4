//! The figures that a run can have, by the schemas of their structures.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

use super::{counters, forward, send};
use crate::options::Fields;
use crate::tools::{bad_frames, blast, ping, rfc2544, sort, stream};

/// The figure with the instructions of a run in a guest that counts them.
pub(super) const INSTRUCTIONS: &str = "instructions";
/// The figure with the times that the cable of a guest's card was pulled.
pub(super) const PULLS: &str = "pulls";

/// The schema of a structure, without references.
fn schema<T: JsonSchema>() -> Schema {
    let with = |settings: &mut SchemaSettings| settings.inline_subschemas = true;
    let settings = SchemaSettings::draft2020_12().with(with);
    settings.into_generator().into_root_schema_for::<T>()
}

/// The schemas of the figures of each tool, beside packtrain's counters, by the tools' names.
pub fn schemas() -> [(&'static str, Schema); 8] {
    [
        ("bad-frames", schema::<bad_frames::Figures>()),
        ("blast", schema::<blast::Figures>()),
        ("forward", schema::<forward::Figures>()),
        ("ping", schema::<ping::Figures>()),
        ("rfc2544", schema::<rfc2544::Figures>()),
        ("send", schema::<send::Figures>()),
        ("sort", schema::<sort::Figures>()),
        ("stream", schema::<stream::Figures>()),
    ]
}

/// The figures of a tool in a run, those of packtrain included: objects with the names of figures,
/// or a schema of what is below any name.
pub fn figures(tool: &str) -> Value {
    let of_ports = json!({ "a": counters::faults_names(), "b": counters::faults_names() });
    let mut names = counters::names();
    names.insert("ns_per_packet".into(), 0.into());
    names.insert(INSTRUCTIONS.into(), 0.into());
    names.insert(PULLS.into(), 0.into());
    names.insert("faults".into(), of_ports);
    names.insert("memory".into(), super::workload::memory([0; 4]));
    if tool == "sort" {
        names.clear();
    }
    let known = schemas().into_iter().find(|(name, _)| *name == tool);
    let mut schema = known.map_or(Value::Null, |(_, schema)| schema.into());
    let of_tool = properties(&schema).cloned().unwrap_or_default();
    let mut all: Fields = names
        .iter()
        .map(|(name, value)| (name.clone(), of_sample(value)))
        .collect();
    all.extend(of_tool);
    schema["properties"] = all.into();
    schema
}

fn of_sample(value: &Value) -> Value {
    match value.as_object() {
        None => json!({}),
        Some(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, value)| (name.clone(), of_sample(value)));
            json!({ "properties": fields.collect::<Fields>() })
        }
    }
}

fn properties(schema: &Value) -> Option<&Fields> {
    schema.get("properties")?.as_object()
}

/// The parts of a schema that hold beside it, or one of them.
fn parts(schema: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["allOf", "anyOf", "oneOf"].into_iter();
    lists.flat_map(|list| {
        schema
            .get(list)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    })
}

/// Whether there can be a figure at `path`.
pub fn is_known(schema: &Value, path: &str) -> bool {
    let (name, rest) = match path.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (path, None),
    };
    let named = properties(schema).and_then(|all| all.get(name));
    let any = schema
        .get("additionalProperties")
        .filter(|any| any.is_object());
    let below = |schema: &Value| rest.is_none_or(|rest| is_known(schema, rest));
    named.or(any).is_some_and(below) || parts(schema).any(|part| is_known(part, path))
}

/// The paths of all figures with a name of their own.
fn paths(schema: &Value, above: &str, all: &mut Vec<String>) {
    for part in parts(schema) {
        paths(part, above, all);
    }
    for (name, below) in properties(schema).into_iter().flatten() {
        let path = format!("{above}{name}");
        let known = all.len();
        paths(below, &format!("{path}."), all);
        if all.len() == known {
            all.push(path);
        }
    }
}

/// The paths that are most like `path`, the best first, three at most.
pub fn nearest(schema: &Value, path: &str) -> Vec<String> {
    let mut all = Vec::new();
    paths(schema, "", &mut all);
    all.sort_by_cached_key(|one| strsim::levenshtein(path, one));
    all.dedup();
    all.truncate(3);
    all
}
