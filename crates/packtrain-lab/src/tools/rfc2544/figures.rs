//! The settings and the figures of `rfc2544`.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Serialize;

use crate::tools::{blast, ping};

/// The settings in force: the attributes of the search goals.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Settings {
    /// With Ethernet header and FCS.
    pub frame_bytes: u32,
    /// The loss ratio of each goal.
    pub loss_ratio: Vec<f64>,
    /// The share of trials that may lose more.
    pub exceed_ratio: f64,
    /// The shortest trial.
    pub initial_seconds: f64,
    /// The longest trial.
    pub final_seconds: f64,
    /// Trials of a load in sum.
    pub sum_seconds: f64,
    /// The distance of the relevant bounds, by the upper one.
    pub width_ratio: f64,
    /// How long late frames may take.
    pub settle_seconds: f64,
}

/// The result of a goal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Throughput {
    /// The throughput.
    pub throughput_kpps: f64,
    /// Bits of frames with FCS, without preamble and gap.
    pub throughput_gbps: f64,
    /// The relevant lower bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_kpps: Option<f64>,
    /// The relevant upper bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper_kpps: Option<f64>,
    /// Frames that the sender did not send, of those expected.
    pub unsent_percent: f64,
    /// Frames that the receiver's socket lost.
    pub lost_at_socket_percent: f64,
    /// `device`, `sender` or `receiver`: what the upper bound is one of.
    pub limit: Option<&'static str>,
    /// `regular`, `at_max`, `below_min` or `time_limit`.
    pub end: &'static str,
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Search {
    /// That of the first goal.
    #[serde(flatten)]
    pub first: Throughput,
    /// Those of all goals, by loss ratio.
    pub goals: IndexMap<String, Throughput>,
    /// Trials of the search.
    pub trials: usize,
    /// Their durations in sum.
    pub trial_seconds: f64,
}

/// What became of a load beside which times were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct OfLoad {
    /// The rate of the sender.
    pub offered_kpps: f64,
    /// The rate at which frames arrived.
    pub received_kpps: f64,
    /// Frames that did not.
    pub lost_percent: f64,
}

impl From<&blast::Figures> for OfLoad {
    fn from(of: &blast::Figures) -> Self {
        Self {
            offered_kpps: of.offered_kpps,
            received_kpps: of.received_kpps,
            lost_percent: of.lost_percent,
        }
    }
}

/// Round-trip times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Latency {
    /// By load, in percent of the throughput.
    pub latency_us: IndexMap<String, ping::Times>,
    /// What became of these loads.
    pub latency_load: IndexMap<String, OfLoad>,
}

/// The frame loss rate, by load in percent of what a sender sends flat out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Loss {
    /// Frames lost.
    pub loss_percent: IndexMap<String, f64>,
    /// Those of them that the receiver's socket lost.
    pub loss_at_socket_percent: IndexMap<String, f64>,
}

/// Bursts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Bursts {
    /// The longest one that arrived.
    pub back_to_back_frames: u64,
    /// The longest one that was tried.
    pub back_to_back_tried_frames: u64,
}

/// What was measured; a test that was stopped is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// What the sender can send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flat_out_kpps: Option<f64>,
    /// The throughput.
    #[serde(flatten)]
    pub search: Option<Search>,
    /// Round-trip times beside loads.
    #[serde(flatten)]
    pub latency: Option<Latency>,
    /// Loss at falling loads.
    #[serde(flatten)]
    pub loss: Option<Loss>,
    /// Frames back to back.
    #[serde(flatten)]
    pub bursts: Option<Bursts>,
}
