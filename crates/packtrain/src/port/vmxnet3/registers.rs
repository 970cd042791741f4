//! Registers, commands, descriptors and shared memory of vmxnet3 (`vmxnet3_defs.h` and
//! `upt1_defs.h` of Linux).

/// Words of a descriptor of any ring.
pub(super) const WORDS: usize = 4;

/// The region of the registers of queues and interrupts, 8 bytes each.
pub(super) const QUEUES_BAR: usize = 0;
/// Masks the interrupt with this number if it is 1.
pub(super) const fn imr(number: usize) -> usize {
    8 * number
}
/// The next free descriptor of a TX ring.
pub(super) const fn tx_tail(queue: usize) -> usize {
    0x600 + 8 * queue
}
/// That of the first or second RX ring of a queue.
pub(super) const fn rx_tail(queue: usize, ring: usize) -> usize {
    0x800 + 0x200 * ring + 8 * queue
}

/// The region of the other registers.
pub(super) const BAR: usize = 1;
/// The versions of the card and of its interface for NICs ("UPT"), a bit each.
pub(super) const VERSIONS: usize = 0x00;
pub(super) const UPT_VERSIONS: usize = 0x08;
/// The address of the shared memory.
pub(super) const SHARED_LOW: usize = 0x10;
pub(super) const SHARED_HIGH: usize = 0x18;
pub(super) const COMMAND: usize = 0x20;
pub(super) const MAC_LOW: usize = 0x28;
pub(super) const MAC_HIGH: usize = 0x30;
/// Of INTx: a read lowers the line.
pub(super) const ICR: usize = 0x38;
/// Clears events.
pub(super) const EVENTS: usize = 0x40;

/// The versions that the driver knows. The second one says of merged packets what they consist of.
pub(super) const VERSION_1: u32 = 1;
pub(super) const VERSION_2: u32 = 1 << 1;

/// Commands.
pub(super) mod command {
    pub(in super::super) const ACTIVATE: u32 = 0xcafe_0000;
    pub(in super::super) const QUIESCE: u32 = 0xcafe_0001;
    pub(in super::super) const RESET: u32 = 0xcafe_0002;
    /// Writes the status of each queue to the shared memory.
    pub(in super::super) const QUEUE_STATUS: u32 = 0xf00d_0000;
    /// Writes the counters there.
    pub(in super::super) const COUNTERS: u32 = 0xf00d_0001;
    /// Bit 0 is whether the link is up.
    pub(in super::super) const LINK: u32 = 0xf00d_0002;
    /// Bits 2 and 3 say which side masks interrupts; 0 is the card.
    pub(in super::super) const INTERRUPTS: u32 = 0xf00d_0008;
}

/// Features of packets that are received.
pub(super) mod feature {
    pub(in super::super) const CHECKSUM: u32 = 1;
    pub(in super::super) const RSS: u32 = 1 << 1;
    pub(in super::super) const MERGE: u32 = 1 << 3;
}

/// The packets that are received.
pub(super) mod mode {
    pub(in super::super) const UNICAST: u32 = 1;
    pub(in super::super) const BROADCAST: u32 = 1 << 2;
    pub(in super::super) const ALL_MULTICAST: u32 = 1 << 3;
    pub(in super::super) const PROMISCUOUS: u32 = 1 << 4;
}

/// Events.
pub(super) mod event {
    pub(in super::super) const RX_ERROR: u32 = 1;
    pub(in super::super) const TX_ERROR: u32 = 1 << 1;
    pub(in super::super) const LINK: u32 = 1 << 2;
}

/// The shared memory: offsets of words.
pub(super) mod shared {
    pub(in super::super) const BYTES: usize = 720;
    pub(in super::super) const MAGIC: usize = 0;
    pub(in super::super) const MAGIC_VALUE: u32 = 0xbabe_fee1;
    pub(in super::super) const DRIVER_VERSION: usize = 8;
    pub(in super::super) const SYSTEM: usize = 12;
    /// Linux, of 64 bits.
    pub(in super::super) const SYSTEM_VALUE: u32 = 2 | 1 << 2;
    pub(in super::super) const VERSION: usize = 16;
    pub(in super::super) const UPT_VERSION: usize = 20;
    pub(in super::super) const FEATURES: usize = 24;
    pub(in super::super) const QUEUES: usize = 40;
    pub(in super::super) const QUEUES_BYTES: usize = 52;
    pub(in super::super) const MTU: usize = 56;
    /// The most RX descriptors of a packet, and the numbers of TX and RX queues: 16, 8 and 8 bits.
    pub(in super::super) const COUNTS: usize = 60;
    /// Whether the card masks an interrupt that it raises, their number, that of events, and how
    /// each is moderated (0 is not): 8 bits each.
    pub(in super::super) const INTERRUPTS: usize = 80;
    pub(in super::super) const MODE: usize = 120;
    /// A bit for each VLAN whose packets are received, unless all are.
    pub(in super::super) const VLANS: usize = 136;
    pub(in super::super) const VLAN_WORDS: usize = 128;
    pub(in super::super) const RSS_VERSION: usize = 648;
    pub(in super::super) const RSS_BYTES: usize = 652;
    pub(in super::super) const RSS: usize = 656;
    pub(in super::super) const EVENTS: usize = 696;
}

/// How flows are spread.
pub(super) mod rss {
    /// The hash of either IP version with and without TCP ports, and its function (Toeplitz).
    pub(in super::super) const TYPES: u32 = 0xf | 1 << 16;
    /// The sizes of the key and of the table, 16 bits each.
    pub(in super::super) const SIZES: usize = 4;
    pub(in super::super) const KEY: usize = 8;
    pub(in super::super) const TABLE: usize = 48;
    pub(in super::super) const ENTRIES: usize = 128;
    pub(in super::super) const BYTES: usize = TABLE + ENTRIES;
}

/// The description of a queue, in the table of those of all TX queues and then all RX queues.
pub(super) mod queue {
    pub(in super::super) const BYTES: usize = 256;
    /// Of an RX queue: the card wants the tails of its rings.
    pub(in super::super) const WANTS_TAIL: usize = 0;
    /// The addresses and sizes: the ring and that of completions; in front of the latter another
    /// ring, which is of headers in a TX queue.
    pub(in super::super) const RINGS: usize = 16;
    pub(in super::super) const SIZES: usize = 56;
    pub(in super::super) const INTERRUPT: usize = 72;
    pub(in super::super) const STOPPED: usize = 80;
    pub(in super::super) const ERROR: usize = 84;
    /// Counters, 64 bits each.
    pub(in super::super) const COUNTERS: usize = 88;
    /// In either direction: packets of unicast, multicast and broadcast, each in front of their
    /// bytes.
    pub(in super::super) const KINDS: [usize; 3] = [2, 4, 6];
    /// Packets with errors, and those that were dropped, of a TX queue; packets without a buffer,
    /// and those with errors, of an RX queue.
    pub(in super::super) const TX_WRONG: [usize; 2] = [8, 9];
    pub(in super::super) const RX_NO_BUFFER: usize = 8;
    pub(in super::super) const RX_WRONG: usize = 9;
}

/// TX descriptors: bits of the words 2 and 3.
pub(super) mod tx {
    pub(in super::super) const GENERATION: u32 = 1 << 14;
    /// The segment size, or the place of the checksum.
    pub(in super::super) const OPERAND_SHIFT: u32 = 18;
    pub(in super::super) const OPERAND_MAX: usize = (1 << 14) - 1;
    /// The bytes of headers are below it.
    pub(in super::super) const HEADERS_MAX: usize = (1 << 10) - 1;
    pub(in super::super) const CHECKSUM: u32 = 2 << 10;
    pub(in super::super) const SEGMENT: u32 = 3 << 10;
    pub(in super::super) const END: u32 = 1 << 12;
    /// Asks for a completion.
    pub(in super::super) const REPORT: u32 = 1 << 13;
    /// Descriptors of a packet, and of one that is segmented (Linux: `VMXNET3_MAX_TXD_PER_PKT`,
    /// `VMXNET3_MAX_TSO_TXD_PER_PKT`).
    pub(in super::super) const PIECES_MAX: usize = 16;
    pub(in super::super) const CUT_PIECES_MAX: usize = 24;
    /// Bytes of a descriptor, of which the length field has 14 bits.
    pub(in super::super) const BYTES_MAX: usize = 1 << 14;
}

/// RX descriptors: bits of the word 2.
pub(super) mod rx {
    /// The buffer is none for the begin of a packet.
    pub(in super::super) const BODY: u32 = 1 << 14;
    pub(in super::super) const GENERATION: u32 = 1 << 31;
    pub(in super::super) const BYTES_MAX: usize = (1 << 14) - 1;
}

/// Completions.
pub(super) mod done {
    /// Word 0: the descriptor.
    pub(in super::super) const INDEX: u32 = 0xfff;
    /// Word 0, RX: the last one of a packet, the first one, the ring, the kind of hash, and whether
    /// no checksum was calculated.
    pub(in super::super) const END: u32 = 1 << 14;
    pub(in super::super) const BEGIN: u32 = 1 << 15;
    pub(in super::super) const RING_SHIFT: u32 = 16;
    pub(in super::super) const RING: u32 = 0x3ff;
    pub(in super::super) const HASHED: u32 = 0xf << 26;
    pub(in super::super) const NO_CHECKSUM: u32 = 1 << 30;
    /// Word 1 of a merged packet: the number of its packets. Of others it is the hash.
    pub(in super::super) const MERGED: u32 = 0xff;
    /// Word 2, RX.
    pub(in super::super) const BYTES: u32 = 0x3fff;
    pub(in super::super) const ERROR: u32 = 1 << 14;
    /// Word 3, RX: the payload of a merged packet's packets; what the card found right, and in what
    /// kind of packet.
    pub(in super::super) const SIZE: u32 = 0xffff;
    pub(in super::super) const TRANSPORT_RIGHT: u32 = 1 << 16;
    pub(in super::super) const UDP: u32 = 1 << 17;
    pub(in super::super) const TCP: u32 = 1 << 18;
    pub(in super::super) const IP_RIGHT: u32 = 1 << 19;
    pub(in super::super) const IPV6: u32 = 1 << 20;
    pub(in super::super) const IPV4: u32 = 1 << 21;
    pub(in super::super) const FRAGMENT: u32 = 1 << 22;
    pub(in super::super) const TYPE: u32 = 0x7f << 24;
    /// A merged packet.
    pub(in super::super) const LARGE: u32 = 4 << 24;
}
