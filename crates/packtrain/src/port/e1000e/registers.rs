//! The registers and descriptors of the 82574 (Intel's data sheet, chapters 7 and 10): offsets in
//! the region 0, and bits.

use std::time::Duration;

/// Words of a descriptor.
pub(super) const WORDS: usize = 4;
/// The region (BAR) of the registers.
pub(super) const BAR: usize = 0;

pub(super) const CTRL: usize = 0x0000;
pub(super) const STATUS: usize = 0x0008;
pub(super) const EECD: usize = 0x0010;
pub(super) const CTRL_EXT: usize = 0x0018;
pub(super) const MDIC: usize = 0x0020;
pub(super) const FCAL: usize = 0x0028;
pub(super) const FCAH: usize = 0x002c;
pub(super) const FCT: usize = 0x0030;
pub(super) const VET: usize = 0x0038;
pub(super) const ICR: usize = 0x00c0;
pub(super) const ITR: usize = 0x00c4;
pub(super) const IMS: usize = 0x00d0;
pub(super) const IMC: usize = 0x00d8;
pub(super) const EIAC: usize = 0x00dc;
pub(super) const IAM: usize = 0x00e0;
pub(super) const IVAR: usize = 0x00e4;
pub(super) const RCTL: usize = 0x0100;
pub(super) const FCTTV: usize = 0x0170;
pub(super) const TCTL: usize = 0x0400;
pub(super) const TIPG: usize = 0x0410;
pub(super) const EXTCNF_CTRL: usize = 0x0f00;
pub(super) const PBA: usize = 0x1000;
pub(super) const FCRTL: usize = 0x2160;
pub(super) const FCRTH: usize = 0x2168;
pub(super) const PSRCTL: usize = 0x2170;
pub(super) const RDTR: usize = 0x2820;
pub(super) const RADV: usize = 0x282c;
pub(super) const RSRPD: usize = 0x2c00;
pub(super) const RAID: usize = 0x2c08;
pub(super) const TIDV: usize = 0x3820;
pub(super) const TADV: usize = 0x382c;
pub(super) const RXCSUM: usize = 0x5000;
pub(super) const RFCTL: usize = 0x5008;
pub(super) const MTA: usize = 0x5200;
pub(super) const RAL: usize = 0x5400;
pub(super) const RAH: usize = 0x5404;
pub(super) const VFTA: usize = 0x5600;
pub(super) const WUC: usize = 0x5800;
pub(super) const WUFC: usize = 0x5808;
pub(super) const MRQC: usize = 0x5818;
pub(super) const GCR: usize = 0x5b00;
pub(super) const GCR2: usize = 0x5b64;
pub(super) const RETA: usize = 0x5c00;
pub(super) const RSSRK: usize = 0x5c80;
/// Words of the tables MTA, VFTA, RETA and RSSRK, and entries of RAL and RAH.
pub(super) const FILTER_WORDS: usize = 128;
pub(super) const RETA_WORDS: usize = 32;
pub(super) const ADDRESSES: usize = 16;

/// The value of ITR and EITR for a shortest time between two interrupts: in units of 256 ns.
pub(super) fn delay_units(delay: Duration) -> u32 {
    delay.as_nanos().div_ceil(256).min(0xffff) as u32
}

/// The shortest time between two interrupts of a vector (EITR).
pub(super) const fn eitr(vector: usize) -> usize {
    0x00e8 + 4 * vector
}

/// The registers of a queue's ring: those of the queue 1 are 0x100 behind those of the queue 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingRegisters(usize);

impl RingRegisters {
    pub(super) const fn rx(queue: usize) -> Self {
        Self(0x2800 + 0x100 * queue)
    }

    pub(super) const fn tx(queue: usize) -> Self {
        Self(0x3800 + 0x100 * queue)
    }

    pub(super) const fn base_low(self) -> usize {
        self.0
    }

    pub(super) const fn base_high(self) -> usize {
        self.0 + 0x04
    }

    pub(super) const fn bytes(self) -> usize {
        self.0 + 0x08
    }

    pub(super) const fn head(self) -> usize {
        self.0 + 0x10
    }

    pub(super) const fn tail(self) -> usize {
        self.0 + 0x18
    }

    /// RXDCTL or TXDCTL: when descriptors are fetched and written back.
    pub(super) const fn control(self) -> usize {
        self.0 + 0x28
    }

    /// TARC, of a TX ring: the arbiter between the queues.
    pub(super) const fn arbiter(self) -> usize {
        self.0 + 0x40
    }
}

/// Bits of CTRL.
pub(super) mod ctrl {
    pub(in crate::port::e1000e) const MASTER_DISABLE: u32 = 1 << 2;
    pub(in crate::port::e1000e) const SET_LINK_UP: u32 = 1 << 6;
    pub(in crate::port::e1000e) const FORCE_SPEED: u32 = 1 << 11;
    pub(in crate::port::e1000e) const FORCE_DUPLEX: u32 = 1 << 12;
    pub(in crate::port::e1000e) const RESET: u32 = 1 << 26;
    pub(in crate::port::e1000e) const RX_FLOW: u32 = 1 << 27;
    pub(in crate::port::e1000e) const TX_FLOW: u32 = 1 << 28;
    pub(in crate::port::e1000e) const PHY_RESET: u32 = 1 << 31;
    /// Reserved: 0 (Linux, 82571.c).
    pub(in crate::port::e1000e) const RESERVED: u32 = 1 << 29;
    pub(in crate::port::e1000e) const VLAN_MODE: u32 = 1 << 30;
}

/// Bits of STATUS.
pub(super) mod status {
    pub(in crate::port::e1000e) const LINK_UP: u32 = 1 << 1;
    /// The higher bit of the speed.
    pub(in crate::port::e1000e) const GIGABIT: u32 = 1 << 7;
    pub(in crate::port::e1000e) const MASTER: u32 = 1 << 19;
}

/// Bits of CTRL_EXT.
pub(super) mod ctrl_ext {
    pub(in crate::port::e1000e) const BYPASS_SPEED: u32 = 1 << 15;
    /// Set, and the one behind it clear (Linux, 82571.c).
    pub(in crate::port::e1000e) const SET: u32 = 1 << 22;
    pub(in crate::port::e1000e) const CLEAR: u32 = 1 << 23;
    /// A vector that fires masks its causes.
    pub(in crate::port::e1000e) const EIAME: u32 = 1 << 24;
    pub(in crate::port::e1000e) const IAME: u32 = 1 << 27;
    pub(in crate::port::e1000e) const DRIVER_LOADED: u32 = 1 << 28;
    pub(in crate::port::e1000e) const CLEAR_TIMERS: u32 = 1 << 29;
    pub(in crate::port::e1000e) const PBA_CLEAR: u32 = 1 << 31;
}

/// Causes of interrupts: bits of ICR, IMS, IMC, EIAC and IAM.
pub(super) mod cause {
    /// A descriptor that the driver wants reported was written back.
    pub(in crate::port::e1000e) const TX: u32 = 1;
    pub(in crate::port::e1000e) const LINK: u32 = 1 << 2;
    /// With MSI-X, of all causes that no queue has, and these.
    pub(in crate::port::e1000e) const OTHER: u32 = 1 << 24;
    pub(in crate::port::e1000e) const OTHERS: u32 =
        OTHER | 1 << 18 | 7 << 16 | 1 << 9 | 1 << 6 | 1 << 2;
    pub(in crate::port::e1000e) const RX_LOW: u32 = 1 << 4;
    pub(in crate::port::e1000e) const RX_OVERRUN: u32 = 1 << 6;
    pub(in crate::port::e1000e) const RX: u32 = 1 << 7;

    pub(in crate::port::e1000e) const fn rx_queue(queue: usize) -> u32 {
        1 << (20 + queue)
    }

    pub(in crate::port::e1000e) const fn tx_queue(queue: usize) -> u32 {
        1 << (22 + queue)
    }
}

/// IVAR: four bits for each of RXQ0, RXQ1, TXQ0, TXQ1, and the other causes.
pub(super) mod ivar {
    pub(in crate::port::e1000e) const VALID: u32 = 8;
    /// An interrupt at each write-back of the TX rings.
    pub(in crate::port::e1000e) const TX_EACH: u32 = 1 << 31;
}

/// Bits of RCTL.
pub(super) mod rctl {
    pub(in crate::port::e1000e) const ENABLE: u32 = 1 << 1;
    pub(in crate::port::e1000e) const ALL_UNICAST: u32 = 1 << 3;
    pub(in crate::port::e1000e) const ALL_MULTICAST: u32 = 1 << 4;
    pub(in crate::port::e1000e) const LONG: u32 = 1 << 5;
    pub(in crate::port::e1000e) const BROADCAST: u32 = 1 << 15;
    pub(in crate::port::e1000e) const STRIP_CRC: u32 = 1 << 26;
    /// Bytes of the buffers, without BSEX.
    pub(in crate::port::e1000e) const BUFFERS: [(usize, u32); 3] =
        [(1024, 1 << 16), (512, 2 << 16), (256, 3 << 16)];
    pub(in crate::port::e1000e) const BUFFERS_2048: u32 = 0;
}

/// Bits of TCTL.
pub(super) mod tctl {
    pub(in crate::port::e1000e) const ENABLE: u32 = 1 << 1;
    pub(in crate::port::e1000e) const PAD: u32 = 1 << 3;
    pub(in crate::port::e1000e) const COLLISIONS: u32 = 15 << 4;
    pub(in crate::port::e1000e) const DISTANCE: u32 = 63 << 12;
    pub(in crate::port::e1000e) const RETRY_LATE: u32 = 1 << 24;
    pub(in crate::port::e1000e) const BASE: u32 = ENABLE | PAD | COLLISIONS | DISTANCE | RETRY_LATE;
    /// Several requests at a time, which two queues need (FreeBSD, if_em.c).
    pub(in crate::port::e1000e) const MULTIPLE: u32 = 1 << 28;
}

/// Bits of RXCSUM, RFCTL and MRQC.
pub(super) mod receive {
    pub(in crate::port::e1000e) const IP_CHECKSUM: u32 = 1 << 8;
    pub(in crate::port::e1000e) const TRANSPORT_CHECKSUM: u32 = 1 << 9;
    /// The RSS hash, and not a checksum of the packet, in the descriptor.
    pub(in crate::port::e1000e) const HASH: u32 = 1 << 13;
    pub(in crate::port::e1000e) const NO_NFS_WRITE: u32 = 1 << 6;
    pub(in crate::port::e1000e) const NO_NFS_READ: u32 = 1 << 7;
    /// No interrupt for each acknowledgement of TCP, which comes by the wrong vector (Linux).
    pub(in crate::port::e1000e) const NO_ACK: u32 = 1 << 12;
    /// Extended descriptors.
    pub(in crate::port::e1000e) const EXTENDED: u32 = 1 << 15;
    pub(in crate::port::e1000e) const NO_IPV6_EXTENSIONS: u32 = 3 << 16;
    /// RSS, over TCP and addresses of IPv4 and IPv6.
    pub(in crate::port::e1000e) const RSS: u32 = 1 | 0x1f << 16;
}

/// Thresholds of RXDCTL and TXDCTL.
pub(super) mod threshold {
    /// In descriptors, and written back one by one.
    pub(in crate::port::e1000e) const EACH: u32 = 1 << 24 | 1 << 16;
    /// Of TXDCTL: always set (Linux, 82571.c).
    pub(in crate::port::e1000e) const TX: u32 = 1 << 22;
}

/// TARC: a count of 3, which is its value after a reset, the queue enabled, and a bit that is
/// always set (Linux, 82571.c).
pub(super) const ARBITER: u32 = 1 << 26 | 1 << 10 | 3;
/// TARC of both queues, if both are used: an erratum (FreeBSD, if_em.c).
pub(super) const ARBITER_TWO: u32 = 7 << 23 | 1 << 7;

/// MDIC, which accesses the registers of the PHY.
pub(super) mod mdic {
    pub(in crate::port::e1000e) const PHY: u32 = 1 << 21;
    pub(in crate::port::e1000e) const WRITE: u32 = 1 << 26;
    pub(in crate::port::e1000e) const READ: u32 = 2 << 26;
    pub(in crate::port::e1000e) const READY: u32 = 1 << 28;
    pub(in crate::port::e1000e) const ERROR: u32 = 1 << 30;
    /// BMCR, and its bits (IEEE 802.3, 22.2.4.1).
    pub(in crate::port::e1000e) const CONTROL: u32 = 0;
    pub(in crate::port::e1000e) const LOOPBACK: u32 = 1 << 14;
    pub(in crate::port::e1000e) const NEGOTIATE: u32 = 1 << 12;
    pub(in crate::port::e1000e) const POWER_DOWN: u32 = 1 << 11;
    pub(in crate::port::e1000e) const ISOLATE: u32 = 1 << 10;
    pub(in crate::port::e1000e) const RESTART: u32 = 1 << 9;
    /// The status of 1000BASE-T, whose low byte counts idle errors, and, of this PHY, the errors
    /// that it received.
    pub(in crate::port::e1000e) const GIGABIT_STATUS: u32 = 10;
    pub(in crate::port::e1000e) const RX_ERRORS: u32 = 21;
}

/// Word 2 of an extended RX descriptor that was written back. Word 0 has the type of the hash in
/// its low 4 bits, word 1 the hash, word 3 the length in its low half.
pub(super) mod rx {
    pub(in crate::port::e1000e) const DONE: u32 = 1;
    pub(in crate::port::e1000e) const END: u32 = 1 << 1;
    /// The checksum bits mean nothing.
    pub(in crate::port::e1000e) const IGNORE: u32 = 1 << 2;
    pub(in crate::port::e1000e) const UDP_CHECKED: u32 = 1 << 4;
    pub(in crate::port::e1000e) const TCP_CHECKED: u32 = 1 << 5;
    /// CRC or alignment, symbol, sequence, carrier extension, and data errors.
    pub(in crate::port::e1000e) const ERRORS: u32 = 1 << 24 | 1 << 25 | 1 << 26 | 1 << 28 | 1 << 31;
    pub(in crate::port::e1000e) const BAD_TRANSPORT: u32 = 1 << 29;
    pub(in crate::port::e1000e) const BAD_IP: u32 = 1 << 30;
    pub(in crate::port::e1000e) const HASH_TYPE: u32 = 0xf;
}

/// Words 2 and 3 of TX descriptors: commands, and options.
pub(super) mod tx {
    pub(in crate::port::e1000e) const END: u32 = 1 << 24;
    pub(in crate::port::e1000e) const CRC: u32 = 1 << 25;
    pub(in crate::port::e1000e) const SEGMENT: u32 = 1 << 26;
    pub(in crate::port::e1000e) const REPORT: u32 = 1 << 27;
    pub(in crate::port::e1000e) const EXTENDED: u32 = 1 << 29;
    /// A data descriptor; a context descriptor without.
    pub(in crate::port::e1000e) const DATA: u32 = 1 << 20;
    /// Of a context descriptor.
    pub(in crate::port::e1000e) const TCP: u32 = 1 << 24;
    pub(in crate::port::e1000e) const IPV4: u32 = 1 << 25;
    /// Options in word 3: insert the checksum of IPv4, of the transport.
    pub(in crate::port::e1000e) const IP_CHECKSUM: u32 = 1 << 8;
    pub(in crate::port::e1000e) const CHECKSUM: u32 = 1 << 9;
    pub(in crate::port::e1000e) const DONE: u32 = 1;
}

/// Statistics, which are 0 after they were read.
pub(super) mod count {
    /// Frames that the card received in error: CRC, alignment, symbols, carrier extension, too
    /// long, and jabber. Not those that are too short (RUC): QEMU counts those that it delivers.
    pub(in crate::port::e1000e) const RX_ERRORS: [usize; 6] =
        [0x4000, 0x4004, 0x400c, 0x403c, 0x40ac, 0x40b0];
    /// Without room in its FIFO.
    pub(in crate::port::e1000e) const RX_MISSED: usize = 0x4010;
    /// Excessive and late collisions.
    pub(in crate::port::e1000e) const TX_ERRORS: [usize; 2] = [0x4018, 0x4020];
    pub(in crate::port::e1000e) const RX_PACKETS: usize = 0x4074;
    pub(in crate::port::e1000e) const TX_PACKETS: usize = 0x4080;
    /// 64 bits: the low half is read first.
    pub(in crate::port::e1000e) const RX_BYTES: usize = 0x4088;
    pub(in crate::port::e1000e) const TX_BYTES: usize = 0x4090;
}
