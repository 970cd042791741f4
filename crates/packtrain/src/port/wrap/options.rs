//! The wrappers of a port, from its keys.

use crate::driver::key::{Key, keys};
use std::path::PathBuf;
use std::time::Duration;

/// The longest delay of `delay=`.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// The wrappers around a driver: capture, trace, faults, and for tests a VLAN tag. The default is
/// none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wrappers {
    /// Writes every packet, both ways, to this pcapng file.
    pub capture: Option<PathBuf>,
    /// Prints every packet, both ways.
    pub trace: bool,
    /// Probability that a packet is lost, 0 to 1.
    pub drop: f64,
    /// Probability that a packet comes twice, 0 to 1.
    pub duplicate: f64,
    /// Probability that a packet's bytes are damaged, 0 to 1.
    pub corrupt: f64,
    /// Probability that a packet comes after its successor, 0 to 1.
    pub reorder: f64,
    /// The delay of each packet.
    pub delay: Duration,
    /// The seed of all chance, here and in a simulated NIC; `None` for a fixed default.
    pub seed: Option<u64>,
    /// Each packet from the device gets this VLAN tag (1 to 4094), and each packet to it loses it:
    /// the framework between the ports sees tagged traffic.
    pub vlan: Option<u16>,
}

impl Wrappers {
    /// The keys of the wrappers, which every kind of port has.
    pub(crate) const KEYS: &'static [Key<Self>] = keys! { Self;
        "capture" (Text("FILE")) capture: "write every packet of the port to a pcapng file";
        "trace" (Flag) trace: "print every packet";
        "drop" (Text("0..1")) drop: "probability that a received packet is lost";
        "duplicate" (Text("0..1")) duplicate: "probability that a received packet is duplicated";
        "corrupt" (Text("0..1")) corrupt: "probability that a received packet is corrupted";
        "reorder" (Text("0..1")) reorder:
            "probability that a received packet is overtaken by the next three";
        "delay" (Time(Duration::ZERO, DELAY_MAX)) delay:
            "delay of each received packet; packets in the delay at the end do not arrive";
        "seed" (Range(0, u64::MAX)) seed: "seed of all random choices";
        // Without 0, which means "no VLAN", and 4095, which is reserved (IEEE 802.1Q table 9-2).
        "vlan" (Range(1, 4094)) vlan: "tag received packets, and untag sent ones (for tests)";
    };

    /// Whether a fault injector is needed.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        let chances = [self.drop, self.duplicate, self.corrupt, self.reorder];
        chances.iter().any(|&chance| chance > 0.0) || !self.delay.is_zero()
    }
}
