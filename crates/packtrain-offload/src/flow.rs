//! Which packets belong together: the flow key and its hashes.
//!
//! | item | what it is for |
//! | --- | --- |
//! | [`FlowKey`] | what all packets of a flow have in common, to compare and to hash |
//! | [`FlowKey::hash`] | a fast hash for tables of one's own, with a seed |
//! | [`Toeplitz`], [`toeplitz()`] | the hash that devices compute (RSS), bit for bit |
//! | [`HashType`] | the fields that a device hashed |
//!
//! # What a flow is
//!
//! TCP and UDP: addresses, ports and protocol. Any other IP protocol: addresses and protocol. IP
//! fragments, the first one too: the addresses alone, because only the first fragment has ports and
//! all fragments must stay together. So a flow of which some datagrams are fragmented is two flows
//! here, as in Linux (`skb_flow_dissect` without `FLOW_DISSECTOR_F_PARSE_1ST_FRAG`). Other frames:
//! the Ethernet addresses. VLAN identifiers always belong to it, priorities never.

mod key;
mod rss;
mod toeplitz;

#[cfg(test)]
mod tests;

pub(crate) use key::fold;
pub use key::{FLOW_KEY_WORDS, FlowKey};
pub use rss::{HashType, RssInput, TOEPLITZ_INPUT_BYTES_MAX};
pub use toeplitz::{
    TOEPLITZ_KEY_BYTES, TOEPLITZ_KEY_MICROSOFT, TOEPLITZ_KEY_SYMMETRIC, Toeplitz,
    ToeplitzKeyTooShort, toeplitz,
};
