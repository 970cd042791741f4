//! Resets the card, and writes every register that the driver relies on: QEMU's reset leaves them
//! as an earlier user had them.

use super::registers::*;
use crate::driver::DeviceError;
use crate::port::card::{Bus, RSS_KEY, address_of};
use crate::port::sys::device::{failed, unsupported};
use std::io;
use std::time::Duration;

/// KiB of the packet buffer for each direction: its value after a reset. What is for TX has to have
/// room for the longest piece of a packet.
const PACKET_BUFFER: u32 = 20 << 16 | 20;
/// The gaps between frames on copper: the value of the data sheet.
const GAPS: u32 = 8 | 8 << 10 | 6 << 20;
const ETHERTYPE_VLAN: u32 = 0x8100;
/// Until DMA has ended (10 ms, Linux, 82571.c), and with it the longest delay of an interrupt: QEMU
/// 7.2 aborts if MSI-X is turned off before (`e1000e_intrmgr_on_msix_throttling_timer`).
const STOP: Duration = Duration::from_millis(12);
/// Until the card has read its settings (Linux, 82571.c).
const PHY_SETTINGS: Duration = Duration::from_millis(25);
/// After the bit that starts a reset.
const RESET: Duration = Duration::from_millis(1);
/// Between polls for a bit that is normally set at the first or second one.
const POLL: Duration = Duration::from_micros(100);
const POLLS_MAX: usize = 1000;
/// Where the data sheet has the PCI Express capability, its number, and the control of the link in
/// it, with two bits for the states of ASPM.
const PCIE: usize = 0xe0;
const PCIE_NUMBER: u32 = 0x10;
const LINK_CONTROL: usize = PCIE + 0x10;
const ASPM: u32 = 3;
/// The MDIO bus, between the card's firmware and its driver.
const MDIO_OWNED: u32 = 1 << 5;
const SETTINGS_READ: u32 = 1 << 9;
const ADDRESS_VALID: u32 = 1 << 31;

/// Registers that are 0, in any order, as EITR of each vector: no pause frames, sent or obeyed
/// (from FCAL on), and no delay of interrupts (from ITR on), for which the framework asks later.
const ZEROS: [usize; 19] = [
    FCAL, FCAH, FCT, FCTTV, FCRTL, FCRTH, ITR, RDTR, RADV, RSRPD, RAID, TIDV, TADV, EIAC, IAM,
    IVAR, PSRCTL, WUC, WUFC,
];

/// Registers with another value, in any order.
const VALUES: [(usize, u32); 6] = [
    (VET, ETHERTYPE_VLAN),
    (TIPG, GAPS),
    (
        RXCSUM,
        receive::HASH | receive::IP_CHECKSUM | receive::TRANSPORT_CHECKSUM,
    ),
    (
        RFCTL,
        receive::EXTENDED
            | receive::NO_ACK
            | receive::NO_NFS_READ
            | receive::NO_NFS_WRITE
            | receive::NO_IPV6_EXTENSIONS,
    ),
    (MRQC, receive::RSS),
    (PBA, PACKET_BUFFER),
];

pub(super) fn read(bus: &impl Bus, register: usize) -> u32 {
    bus.read32(BAR, register)
}

pub(super) fn write(bus: &impl Bus, register: usize, value: u32) {
    bus.write32(BAR, register, value);
}

pub(super) fn change(bus: &impl Bus, register: usize, clear: u32, set: u32) {
    write(bus, register, read(bus, register) & !clear | set);
}

/// Whether `done` becomes true within [`POLLS_MAX`] polls.
fn poll(bus: &impl Bus, mut done: impl FnMut() -> bool) -> bool {
    (0..POLLS_MAX).any(|_| {
        let is_done = done();
        if !is_done {
            bus.pause(POLL);
        }
        is_done
    })
}

/// Calls `access` while the card's firmware does not access the PHY.
fn own_phy<T>(bus: &impl Bus, access: impl FnOnce() -> T) -> T {
    poll(bus, || {
        change(bus, EXTCNF_CTRL, 0, MDIO_OWNED);
        read(bus, EXTCNF_CTRL) & MDIO_OWNED != 0
    });
    let result = access();
    change(bus, EXTCNF_CTRL, MDIO_OWNED, 0);
    result
}

/// Ends interrupts and DMA.
///
/// # Errors
///
/// If the system does not end the card's access to memory: then it may still write to it.
pub(super) fn stop(bus: &impl Bus) -> io::Result<()> {
    write(bus, IMC, u32::MAX);
    // The only place where RX ends: the card does not survive that without a reset (Linux,
    // `FLAG2_NO_DISABLE_RX`).
    write(bus, RCTL, 0);
    write(bus, TCTL, 0);
    read(bus, STATUS);
    bus.pause(STOP);
    change(bus, CTRL, 0, ctrl::MASTER_DISABLE);
    // A card that does not say so is stopped by the bus.
    poll(bus, || read(bus, STATUS) & status::MASTER == 0);
    bus.start(false)
}

/// Resets the card, and writes its registers. Returns its address.
///
/// # Errors
///
/// If it does not answer.
pub(super) fn reset(bus: &impl Bus, tx_queues_max: usize) -> Result<[u8; 6], DeviceError> {
    stop(bus).map_err(failed("stop the card"))?;
    // It takes effect by the reset.
    write(bus, PBA, PACKET_BUFFER);
    own_phy(bus, || {
        change(bus, CTRL, 0, ctrl::RESET);
        bus.pause(RESET);
    });
    if !poll(bus, || read(bus, EECD) & SETTINGS_READ != 0) {
        let name = bus.name();
        return unsupported(format!(
            "{name} does not answer after a reset: it has no settings (NVM), or was removed"
        ));
    }
    bus.pause(PHY_SETTINGS);
    write(bus, IMC, u32::MAX);
    read(bus, ICR);

    for register in ZEROS.into_iter().chain((0..5).map(eitr)) {
        write(bus, register, 0);
    }
    for (register, value) in VALUES {
        write(bus, register, value);
    }
    let off = ctrl::MASTER_DISABLE
        | ctrl::FORCE_SPEED
        | ctrl::FORCE_DUPLEX
        | ctrl::RX_FLOW
        | ctrl::TX_FLOW
        | ctrl::RESERVED
        | ctrl::VLAN_MODE;
    change(bus, CTRL, off, ctrl::SET_LINK_UP);
    let off = ctrl_ext::CLEAR
        | ctrl_ext::BYPASS_SPEED
        | ctrl_ext::EIAME
        | ctrl_ext::IAME
        | ctrl_ext::CLEAR_TIMERS
        | ctrl_ext::PBA_CLEAR
        | ctrl_ext::DRIVER_LOADED;
    change(bus, CTRL_EXT, off, ctrl_ext::SET);
    // Completions of PCIe that do not come, TX that stops (Linux, 82571.c).
    change(bus, GCR, 0, 1 << 27 | 1 << 22);
    change(bus, GCR2, 0, 1);
    for index in 0..FILTER_WORDS {
        write(bus, MTA + 4 * index, 0);
        write(bus, VFTA + 4 * index, 0);
    }
    for (index, word) in RSS_KEY.as_chunks().0.iter().enumerate() {
        write(bus, RSSRK + 4 * index, u32::from_le_bytes(*word));
    }
    spread(bus, 1);
    let two = if tx_queues_max > 1 { ARBITER_TWO } else { 0 };
    for queue in 0..2 {
        for ring in [RingRegisters::rx(queue), RingRegisters::tx(queue)] {
            place(bus, ring, 0, 0);
        }
        write(bus, RingRegisters::rx(queue).control(), threshold::EACH);
        // An erratum: the same in both queues (Linux, netdev.c).
        let both = threshold::EACH | threshold::TX;
        write(bus, RingRegisters::tx(queue).control(), both);
        write(bus, RingRegisters::tx(queue).arbiter(), ARBITER | two);
    }
    own_phy(bus, || negotiate(bus));
    address(bus)
}

/// Spreads flows over queues: the queue of an entry of the table is its highest bit.
pub(super) fn spread(bus: &impl Bus, queues: usize) {
    let entries = if queues > 1 { 0x8000_8000 } else { 0 };
    for index in 0..RETA_WORDS {
        write(bus, RETA + 4 * index, entries);
    }
}

/// Says where a ring is. It is empty.
pub(super) fn place(bus: &impl Bus, ring: RingRegisters, address: u64, bytes: usize) {
    write(bus, ring.base_low(), address as u32);
    write(bus, ring.base_high(), (address >> 32) as u32);
    write(bus, ring.bytes(), bytes as u32);
    write(bus, ring.head(), 0);
    write(bus, ring.tail(), 0);
}

/// Reads or writes a register of the PHY; `None` if it does not answer.
fn access_phy(bus: &impl Bus, register: u32, operation: u32) -> Option<u32> {
    write(bus, MDIC, mdic::PHY | register << 16 | operation);
    let done = poll(bus, || read(bus, MDIC) & mdic::READY != 0);
    let result = read(bus, MDIC);
    (done && result & mdic::ERROR == 0).then_some(result & 0xffff)
}

/// Whether both counters of errors of the PHY are at their maximum.
pub(super) fn is_phy_hung(bus: &impl Bus) -> bool {
    let is_full = |register, mask| {
        let count = access_phy(bus, register, mdic::READ);
        count.is_some_and(|count| count & mask == mask)
    };
    own_phy(bus, || {
        is_full(mdic::RX_ERRORS, 0xffff) && is_full(mdic::GIGABIT_STATUS, 0xff)
    })
}

/// Resets the PHY, which then negotiates again.
pub(super) fn reset_phy(bus: &impl Bus) {
    own_phy(bus, || {
        change(bus, CTRL, 0, ctrl::PHY_RESET);
        bus.pause(RESET);
        change(bus, CTRL, ctrl::PHY_RESET, 0);
    });
    bus.pause(PHY_SETTINGS);
    own_phy(bus, || negotiate(bus));
}

/// Whether the PCIe link of the card may sleep.
pub(super) fn link_sleeps(bus: &impl Bus) -> io::Result<bool> {
    let is_there = bus.config(PCIE)? & 0xff == PCIE_NUMBER;
    Ok(is_there && bus.config(LINK_CONTROL)? & ASPM != 0)
}

/// Has the PHY negotiate, unless it does: a negotiation ends a link that there is.
fn negotiate(bus: &impl Bus) {
    let access = |operation| access_phy(bus, mdic::CONTROL, operation);
    // Of a PHY that does not answer, the link stays down.
    let Some(control) = access(mdic::READ) else {
        return;
    };
    let wrong = mdic::LOOPBACK | mdic::POWER_DOWN | mdic::ISOLATE;
    if control & wrong != 0 || control & mdic::NEGOTIATE == 0 {
        let right = control & !wrong | mdic::NEGOTIATE | mdic::RESTART;
        access(mdic::WRITE | right);
    }
}

/// The card's address, which it has read from its settings. The other entries are free.
fn address(bus: &impl Bus) -> Result<[u8; 6], DeviceError> {
    for index in 1..ADDRESSES {
        write(bus, RAL + 8 * index, 0);
        write(bus, RAH + 8 * index, 0);
    }
    let (low, high) = (read(bus, RAL), read(bus, RAH));
    let address = address_of(low, high);
    if address == [0; 6] || address[0] & 1 != 0 {
        return unsupported(format!(
            "{} has no Ethernet address in its settings (NVM): {address:02x?}",
            bus.name()
        ));
    }
    // What the entry selects (16 and 17) is the destination.
    write(bus, RAH, high & 0xffff | ADDRESS_VALID);
    Ok(address)
}
