//! Threads of ports.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Gives up the capabilities of the calling thread but those for files: a thread of a port that
/// answers another process or a device would keep what the start of a session needs.
pub(in crate::port) fn give_up_capabilities() {
    let files = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    let keep = |mut has: CapabilitySets| {
        has.permitted &= files | CapabilitySet::FOWNER;
        (has.effective, has.inheritable) = (has.permitted, CapabilitySet::empty());
        set_capabilities(None, has)
    };
    // Where a filter of system calls refuses that, the thread runs with what it has.
    capabilities(None).and_then(keep).unwrap_or(());
}
