//! The settings and the figures of `blast`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::machine::CpuFigures;

/// The settings in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Settings {
    /// `ipv4` or `ipv6`.
    pub ip: String,
    /// With Ethernet header and FCS; each sender takes them in turn.
    pub frame_bytes: Vec<usize>,
    /// Of all senders together; `None` if they send flat out.
    pub rate_kpps: Option<f64>,
    /// Packets sent back to back; `None` if they are sent flat out.
    pub burst_packets: Option<u64>,
    /// Threads that send.
    pub senders: u32,
    /// Threads that only use a CPU.
    pub busy_threads: u32,
    /// The most packets of a system call.
    pub batch_packets: u32,
    /// The most packets.
    pub count_packets: Option<u64>,
    /// How long packets are sent at most.
    pub duration_seconds: f64,
    /// How long late packets may take.
    pub settle_seconds: f64,
    /// The receiver's buffer, the double of what was requested.
    pub receive_buffer_bytes: i32,
}

/// What was measured. `cpu_*` are of one CPU, but for those of the whole machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// Packets that the kernel accepted.
    pub sent_packets: u64,
    /// Packets that arrived.
    pub received_packets: u64,
    /// Packets that did not.
    pub lost_packets: u64,
    /// Of those sent.
    pub lost_percent: f64,
    /// Lost in front of the sender's interface.
    pub lost_at_interface_packets: u64,
    /// Lost at the receiver's sockets, because their buffers were full.
    pub lost_at_socket_packets: u64,
    /// Packets that arrived again.
    pub duplicate_packets: u64,
    /// Packets that arrived after one that was sent later.
    pub reordered_packets: u64,
    /// Packets that arrived damaged.
    pub damaged_packets: u64,
    /// The longest time in which a receiver got no packet, while its sender sent.
    pub longest_pause_ms: f64,
    /// The rate of the senders.
    pub offered_kpps: f64,
    /// The rate at which packets arrived.
    pub received_kpps: f64,
    /// CPU time of the senders.
    pub cpu_sender_percent: f64,
    /// CPU time of the receivers.
    pub cpu_receiver_percent: f64,
    /// CPU time of the forwarder.
    pub cpu_forwarder_percent: f64,
    /// CPUs that all three used.
    pub cpus_used: f64,
    /// CPU time of all three for 1000 packets a second that arrive.
    pub cpu_percent_per_kpps: f64,
    /// Context switches of the senders.
    pub switches_sender_per_second: f64,
    /// Context switches of the receivers.
    pub switches_receiver_per_second: f64,
    /// Context switches of the forwarder.
    pub switches_forwarder_per_second: f64,
    /// Voluntary context switches of the forwarder.
    pub wakeups_forwarder_per_second: f64,
    /// Context switches of the machine.
    pub switches_machine_per_second: f64,
    /// Interrupts that CPUs send each other.
    pub ipis_per_second: f64,
    /// System calls of the senders.
    pub send_calls: u64,
    /// System calls of the receivers.
    pub receive_calls: u64,
    /// CPU time of the machine.
    #[serde(flatten)]
    pub machine: CpuFigures,
}
