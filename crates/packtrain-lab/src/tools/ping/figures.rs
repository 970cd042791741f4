//! The settings and the figures of `ping`.

use std::borrow::Cow;

use packtrain_measure::key::{Fields, fields};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// What the names of the phase without load begin with.
const IDLE: &str = "idle_";

/// The settings in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Settings {
    /// `icmp` or `udp`.
    pub protocol: &'static str,
    /// `ipv4` or `ipv6`.
    pub ip: String,
    /// With Ethernet header and FCS.
    pub frame_bytes: usize,
    /// `None` if a request follows the reply to the last one.
    pub rate_per_second: Option<f64>,
    /// The most requests.
    pub count_requests: Option<u64>,
    /// How long requests are due at most.
    pub duration_seconds: f64,
    /// How long a reply may take.
    pub timeout_seconds: f64,
    /// `none` or `stream`.
    pub load: &'static str,
}

/// Times in microseconds; `None` if there are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Times {
    /// The least.
    pub min: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// The 90th percentile.
    pub p90: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The 99.9th percentile.
    pub p999: Option<f64>,
    /// The greatest.
    pub max: Option<f64>,
    /// The mean.
    pub mean: Option<f64>,
    /// The least whole microsecond of each bucket that is not empty, with its count.
    pub buckets: Vec<(u64, u64)>,
}

/// What was measured of one phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Phase {
    /// Requests that the kernel accepted.
    pub sent_requests: u64,
    /// Requests with a reply.
    pub received_replies: u64,
    /// Requests without a reply.
    pub lost_requests: u64,
    /// Of those sent.
    pub lost_percent: f64,
    /// Replies that arrived again.
    pub duplicate_replies: u64,
    /// Requests that were sent when the next one was due already.
    pub late_requests: u64,
    /// The rate at which requests were sent.
    pub requests_per_second: f64,
    /// From when a request was due to its reply.
    pub latency_us: Times,
    /// From when a request was due to when it was sent.
    pub send_delay_us: Times,
    /// CPU time of the thread that sends requests, of one CPU.
    pub cpu_requester_percent: f64,
    /// CPU time of the forwarder, of one CPU.
    pub cpu_forwarder_percent: f64,
}

/// What was measured: without load, if a load followed, and the phase itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Without load; its names begin with `idle_`.
    pub idle: Option<Phase>,
    /// Beside the load, if there is one.
    pub phase: Phase,
    /// The load.
    pub load: Option<Load>,
}

/// A TCP stream beside the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Load {
    /// Payload that arrived.
    pub load_goodput_gbps: f64,
    /// Segments that were sent again.
    pub load_retransmits: u64,
}

fn idle<'a>((name, value): (&String, &'a Value)) -> (String, &'a Value) {
    (format!("{IDLE}{name}"), value)
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = Fields::new();
        if let Some(phase) = &self.idle {
            let phase = fields(phase);
            let idle = phase.iter().map(idle);
            all.extend(idle.map(|(name, value)| (name, value.clone())));
        }
        all.extend(fields(&self.phase));
        all.extend(self.load.as_ref().map(fields).unwrap_or_default());
        all.serialize(serializer)
    }
}

impl JsonSchema for Figures {
    fn schema_name() -> Cow<'static, str> {
        "PingFigures".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Phase::json_schema(generator);
        let load = Load::json_schema(generator);
        let properties = |of: &Schema| {
            let properties = of.get("properties").and_then(Value::as_object);
            properties.cloned().unwrap_or_default()
        };
        let (mut all, load) = (properties(&schema), properties(&load));
        let phase = all.clone();
        let idle = phase.iter().map(idle);
        all.extend(idle.map(|(name, value)| (name, value.clone())));
        all.extend(load);
        schema.insert("properties".to_owned(), all.into());
        schema
    }
}
