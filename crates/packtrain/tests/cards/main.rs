//! Drivers of network cards on the cards that QEMU emulates, without a guest.

mod e1000e;
#[allow(dead_code, reason = "`tap` uses all of it")]
#[path = "../tap/line.rs"]
mod line;
mod rig;
mod same;
mod tap;
#[allow(dead_code, reason = "`tap` uses all of it")]
#[path = "../tap/traffic.rs"]
mod traffic;
mod virtio;
mod vmxnet3;
#[allow(dead_code, reason = "`tap` uses all of it")]
#[path = "../tap/world.rs"]
mod world;
