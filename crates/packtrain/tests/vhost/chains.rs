//! Chains of descriptors that are wrong, each in one way.

use crate::guest::*;
use packtrain::stats::DropReason;
use packtrain_offload::virtio_net::VnetError;

/// Writes a chain that is wrong: `(guest, ring, head, address of its buffer)`.
pub type Chain = dyn Fn(&mut Guest, usize, u16, u64);

/// Chains that are wrong in either direction; `flag` is that of a descriptor of the right one. They
/// use the descriptor behind `head`, too.
pub fn either(flag: u16) -> Vec<(&'static str, Box<Chain>)> {
    let d = flag;
    let other = flag ^ WRITE;
    let end = GUEST_BASE + (5 * (8 << 20));
    let table = |rows: Vec<Vec<u8>>, bytes: u32| {
        Box::new(move |guest: &mut Guest, ring: usize, head: u16, _: u64| {
            let at = guest.table(ring, head);
            guest.write(at, &rows.concat());
            guest.describe(ring, head, GUEST_BASE + at, bytes, TABLE, 0);
        })
    };
    let one = |address: u64, bytes: u32, flags: u16, next: u16| {
        Box::new(move |guest: &mut Guest, ring: usize, head: u16, _: u64| {
            guest.describe(ring, head, address, bytes, flags, next);
        })
    };
    // In the buffer of the slot.
    let own = |bytes: u32, flags: u16, next: u16| {
        Box::new(move |guest: &mut Guest, ring: usize, head: u16, at: u64| {
            guest.describe(ring, head, at, bytes, flags, next);
        })
    };
    let row = descriptor;
    vec![
        (
            "in front of the memory",
            one(GUEST_BASE - 1, 100, d, 0) as _,
        ),
        ("at 0", one(0, 100, d, 0)),
        ("at the last address", one(u64::MAX, 100, d, 0)),
        ("to the last address", one(u64::MAX - 99, 100, d, 0)),
        ("behind the memory", one(end, 100, d, 0)),
        ("beyond the end of the memory", one(end - 50, 100, d, 0)),
        ("of all lengths", one(GUEST_BASE, u32::MAX, d, 0)),
        ("of no bytes", own(0, d, 0)),
        ("shorter than the header", own(11, d, 0)),
        ("that goes on outside of the ring", own(5, d | NEXT, 128)),
        ("that goes on far outside", own(5, d | NEXT, u16::MAX)),
        (
            "that goes on at itself",
            Box::new(move |guest: &mut Guest, ring, head, at| {
                guest.describe(ring, head, at, 0, d | NEXT, head);
            }),
        ),
        (
            "of two that go on at each other",
            Box::new(move |guest: &mut Guest, ring, head, at| {
                guest.describe(ring, head, at, 0, d | NEXT, head + 1);
                guest.describe(ring, head + 1, at, 0, d | NEXT, head);
            }),
        ),
        ("of the wrong direction", own(1000, other, 0)),
        (
            "that ends in the wrong direction",
            Box::new(move |guest: &mut Guest, ring, head, at| {
                guest.describe(ring, head, at, 6, d | NEXT, head + 1);
                guest.describe(ring, head + 1, at, 1000, other, 0);
            }),
        ),
        ("of a table of no bytes", table(vec![], 0)),
        ("of a table of half a row", table(vec![], 8)),
        ("of a table of one row and a byte", table(vec![], 17)),
        ("of a table outside", one(GUEST_BASE - 16, 16, TABLE, 0)),
        ("of a table beyond the end", one(end - 16, 32, TABLE, 0)),
        ("of a table of all lengths", one(GUEST_BASE, !15, TABLE, 0)),
        ("behind a table", one(GUEST_BASE, 16, TABLE | NEXT, 1)),
        (
            "of a table in a table",
            table(vec![row(GUEST_BASE, 16, TABLE, 0)], 16),
        ),
        (
            "that goes on outside of its table",
            table(vec![row(GUEST_BASE, 4, d | NEXT, 1)], 16),
        ),
        (
            "that goes round in its table",
            table(vec![row(GUEST_BASE, 0, d | NEXT, 0)], 16),
        ),
        (
            "of a table of 2000 rows of nothing",
            Box::new(move |guest: &mut Guest, ring, head, at| {
                let rows = (1..=2000).map(|next| row(at, 0, d | NEXT, next));
                guest.write(at - GUEST_BASE, &rows.collect::<Vec<_>>().concat());
                guest.describe(ring, head, at, 32_000, TABLE, 0);
            }),
        ),
        (
            "whose rest is outside",
            Box::new(move |guest: &mut Guest, ring, head, at| {
                guest.describe(ring, head, at, 6, d | NEXT, head + 1);
                guest.describe(ring, head + 1, 7, 1000, d, 0);
            }),
        ),
    ]
}

/// What only packets from the guest can have wrong, with its reason.
pub fn from_guest() -> Vec<(&'static str, DropReason, Box<Chain>)> {
    use DropReason::{BadDescriptor, TooLong};
    use VnetError::{CsumBounds, GsoTypeUnknown, GsoWithoutCsum, HdrLen, PacketTooShort};
    // One buffer with the words of this header, and this many bytes behind it.
    let headers = [
        ("a header alone", PacketTooShort, [0; 6], 0),
        ("13 bytes", PacketTooShort, [0; 6], 13),
        (
            "an unknown type",
            GsoTypeUnknown,
            [0x1F00, 0, 0, 0, 0, 0],
            100,
        ),
        (
            "a sum outside",
            CsumBounds,
            [1, 0, 0, 0xFFFF, 0xFFFF, 0],
            100,
        ),
        (
            "TSO without a sum",
            GsoWithoutCsum,
            [0x100, 54, 100, 0, 0, 0],
            1000,
        ),
        ("long headers", HdrLen, [0, 0xFFFF, 0, 0, 0, 0], 100),
        ("ones", HdrLen, [0xFFFF; 6], 100),
    ];
    let headers = headers.map(|(what, error, header, bytes)| {
        let write = move |guest: &mut Guest, ring, head, at| {
            guest.write(at - GUEST_BASE, &header.map(u16::to_le_bytes).concat());
            guest.describe(ring, head, at, 12 + bytes, 0, 0);
        };
        (what, DropReason::Vnet(error), Box::new(write) as Box<Chain>)
    });
    // Two buffers at the same place, of this many bytes.
    let lengths = [
        ("too many bytes in two buffers", TooLong, [40_000; 2]),
        ("4 GiB twice", BadDescriptor, [u32::MAX; 2]),
        ("a packet and a buffer of no bytes", BadDescriptor, [112, 0]),
    ];
    let lengths = lengths.map(|(what, reason, [first, second])| {
        let write = move |guest: &mut Guest, ring, head, at| {
            guest.write(at - GUEST_BASE, &[0; 12]);
            guest.describe(ring, head, at, first, NEXT, head + 1);
            guest.describe(ring, head + 1, at, second, 0, 0);
        };
        (what, reason, Box::new(write) as Box<Chain>)
    });
    let long = |guest: &mut Guest, ring, head, at| guest.describe(ring, head, at, 65_610, 0, 0);
    let long = ("too many bytes", TooLong, Box::new(long) as Box<Chain>);
    headers.into_iter().chain(lengths).chain([long]).collect()
}
