//! Ports: each represents one kind of device as descriptors.

mod any;
mod arriving;
mod big;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod by_hand;
pub mod card;
pub mod e1000e;
mod links;
pub mod null;
mod open;
pub mod packet;
pub mod pcap;
pub mod sim;
pub mod spec;
pub(crate) mod sys;
pub mod tap;
mod vectored;
pub mod vhost;
pub mod virtio;
mod virtqueue;
pub mod vmxnet3;
mod vnet;
pub mod wrap;
pub mod xdp;

pub use any::{AnyPort, AnyRx, AnyTx};
pub use links::LinkWatch;
pub use open::{OpenError, OpenErrorKind, open, open_all, open_pair, open_spec};
