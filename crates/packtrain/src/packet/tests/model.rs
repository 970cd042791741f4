//! Random operations on packets that share frames, next to a model of them.

use super::*;
use std::collections::HashMap;

#[derive(Clone, Debug)]
enum Op {
    Make(usize),
    AppendCopy(usize, usize),
    AddFrame(usize),
    Append(usize, usize),
    AppendShared(usize, usize, usize, usize),
    Clone(usize),
    Truncate(usize, usize),
    TrimFront(usize, usize),
    DropEmptyFront(usize),
    Prepend(usize, usize),
    Pull(usize, usize),
    Collapse(usize, usize),
    Write(usize, u8),
    Drop(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let p = 0..8_usize;
    let n = prop_oneof![0..40_usize, 0..4000_usize];
    prop_oneof![
        n.clone().prop_map(Op::Make),
        (p.clone(), n.clone()).prop_map(|(p, n)| Op::AppendCopy(p, n)),
        p.clone().prop_map(Op::AddFrame),
        (p.clone(), p.clone()).prop_map(|(a, b)| Op::Append(a, b)),
        (p.clone(), p.clone(), n.clone(), n.clone())
            .prop_map(|(a, b, m, n)| Op::AppendShared(a, b, m, n)),
        (p.clone(), p.clone(), n.clone(), n.clone())
            .prop_map(|(a, b, m, n)| Op::AppendShared(a, b, m, n)),
        p.clone().prop_map(Op::Clone),
        (p.clone(), n.clone()).prop_map(|(p, n)| Op::Truncate(p, n)),
        (p.clone(), n.clone()).prop_map(|(p, n)| Op::TrimFront(p, n)),
        p.clone().prop_map(Op::DropEmptyFront),
        (p.clone(), prop_oneof![0..2_usize, 0..300_usize]).prop_map(|(p, n)| Op::Prepend(p, n)),
        (p.clone(), n).prop_map(|(p, n)| Op::Pull(p, n)),
        (p.clone(), 0..20_usize).prop_map(|(p, n)| Op::Collapse(p, n)),
        (p.clone(), any::<u8>()).prop_map(|(p, b)| Op::Write(p, b)),
        p.prop_map(Op::Drop),
    ]
}

/// Packets and, for each, the bytes it must have.
#[derive(Default)]
struct World {
    packets: Vec<(Packet, Vec<u8>)>,
    serial: u8,
}

impl World {
    fn fresh(&mut self, n: usize) -> Vec<u8> {
        self.serial = self.serial.wrapping_add(17);
        let before = usize::from(self.serial);
        numbered(before + n).split_off(before)
    }

    fn pick(&mut self, index: usize) -> Option<&mut (Packet, Vec<u8>)> {
        let n = self.packets.len();
        self.packets.get_mut(index.checked_rem(n)?)
    }

    fn apply(&mut self, arena: &Arena, op: &Op) -> Option<()> {
        match *op {
            Op::Make(n) => {
                let bytes = self.fresh(n);
                if let Ok(packet) = arena.packet_from(&bytes) {
                    self.packets.push((packet, bytes));
                }
            }
            Op::AppendCopy(p, n) => {
                let more = self.fresh(n);
                let (packet, bytes) = self.pick(p)?;
                match packet.append_copy(SMALL, &more) {
                    Ok(()) => bytes.extend(more),
                    // The part that fitted stays.
                    Err(_) => bytes.extend(&more[..packet.bytes() - bytes.len()]),
                }
            }
            Op::AddFrame(p) => {
                let (packet, _) = self.pick(p)?;
                let before = packet.segment_count();
                let added = packet.add_frame(SMALL).is_ok();
                assert_eq!(packet.segment_count(), before + usize::from(added));
            }
            Op::Append(a, b) => self.append(a, b)?,
            Op::AppendShared(a, b, m, n) => self.append_shared(a, b, m, n)?,
            Op::Clone(p) => {
                let (packet, bytes) = self.pick(p)?;
                if let Ok(clone) = packet.try_clone() {
                    let bytes = bytes.clone();
                    self.packets.push((clone, bytes));
                }
            }
            Op::Truncate(p, n) => {
                let (packet, bytes) = self.pick(p)?;
                packet.truncate(n);
                bytes.truncate(n);
            }
            Op::TrimFront(p, n) => {
                let (packet, bytes) = self.pick(p)?;
                packet.trim_front(n);
                bytes.drain(..n.min(bytes.len()));
            }
            Op::DropEmptyFront(p) => self.pick(p)?.0.drop_empty_front(),
            Op::Prepend(p, n) => {
                let more = self.fresh(n);
                let (packet, bytes) = self.pick(p)?;
                let room = packet.headroom();
                match packet.prepend(n) {
                    Ok(new) => {
                        new.copy_from_slice(&more);
                        bytes.splice(0..0, more);
                    }
                    Err(PacketError::NoHeadroom) => assert!(room < n || room == 0),
                    Err(other) => panic!("prepend failed with {other:?}"),
                }
            }
            Op::Pull(p, n) => {
                let (packet, bytes) = self.pick(p)?;
                if packet.pull(n).is_ok() && !bytes.is_empty() {
                    let n = n.min(bytes.len());
                    assert_eq!(
                        packet.headers_mut(n).map(|h| h.to_vec()),
                        Ok(bytes[..n].to_vec())
                    );
                }
            }
            Op::Collapse(p, n) => {
                let (packet, _) = self.pick(p)?;
                assert_eq!(packet.collapse(n), packet.segment_count() <= n);
            }
            Op::Write(p, byte) => {
                let (packet, bytes) = self.pick(p)?;
                if let Ok(first) = packet.headers_mut(1) {
                    first[0] = byte;
                    bytes[0] = byte;
                }
            }
            Op::Drop(p) => {
                let n = self.packets.len();
                self.packets.swap_remove(p.checked_rem(n)?);
            }
        }
        Some(())
    }

    fn append(&mut self, a: usize, b: usize) -> Option<()> {
        let n = self.packets.len();
        let (other, more) = self.packets.swap_remove(b.checked_rem(n)?);
        match self.pick(a) {
            None => self.packets.push((other, more)),
            Some((packet, bytes)) => match packet.append(other) {
                Ok(()) => bytes.extend(more),
                Err((_, other)) => self.packets.push((other, more)),
            },
        }
        Some(())
    }

    fn append_shared(&mut self, a: usize, b: usize, m: usize, n: usize) -> Option<()> {
        let count = self.packets.len();
        let (from, more) = self.packets.swap_remove(b.checked_rem(count)?);
        let range = m.min(n)..m.max(n);
        if let Some((packet, bytes)) = self.pick(a) {
            match packet.append_shared(&from, range.clone()) {
                Ok(()) => bytes.extend(&more[range]),
                Err(PacketError::OutOfRange) => assert!(range.end > more.len()),
                Err(PacketError::NoBuffer | PacketError::TooManySegments) => {}
                Err(other) => panic!("append_shared failed with {other:?}"),
            }
        }
        self.packets.push((from, more));
        Some(())
    }

    /// Every packet has its bytes, and every frame and line is in exactly one place.
    fn check(&self, arena: &Arena) {
        let mut references = HashMap::new();
        let mut lines = 0;
        for (packet, bytes) in &self.packets {
            assert_eq!(&content(packet), bytes);
            assert_eq!(packet.bytes(), bytes.len());
            let mut cursor = Cursor::new(packet.head());
            while let Some(segment) = cursor.next() {
                *references
                    .entry((segment.frame.class() == LARGE, segment.frame.index()))
                    .or_insert(0_u32) += 1;
                assert!(
                    segment.offset as usize + segment.len as usize
                        <= segment.frame.class().frame_bytes()
                );
            }
            let beyond = packet.segment_count().saturating_sub(HEAD_SEGMENTS);
            lines += 1 + beyond.div_ceil(MORE_SEGMENTS);
        }
        let used = |large| references.keys().filter(|key| key.0 == large).count() as u32;
        let (census, config) = (arena.census(), arena.config());
        let wanted = Census {
            small_free: config.small_frames - used(false),
            small_used: used(false),
            large_free: config.large_frames - used(true),
            large_used: used(true),
            lines_free: config.lines - lines as u32,
            lines_used: lines as u32,
        };
        assert_eq!(census, wanted);
        for (packet, _) in &self.packets {
            let mut cursor = Cursor::new(packet.head());
            while let Some(segment) = cursor.next() {
                let key = (segment.frame.class() == LARGE, segment.frame.index());
                assert_eq!(
                    arena.core().is_exclusive(segment.frame),
                    references[&key] == 1
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn packets_are_what_the_model_says(
        ops in proptest::collection::vec(op(), if cfg!(miri) { 25..26 } else { 1..80 }),
        small_frames in 1..40_u32,
        lines in 2..40_u32,
    ) {
        let arena = arena(small_frames, 2, lines);
        let mut world = World::default();
        for (i, op) in ops.iter().enumerate() {
            world.apply(&arena, op);
            // Miri looks at each operation itself, and takes a second for a check.
            if !cfg!(miri) || i % 8 == 0 {
                world.check(&arena);
            }
        }
        world.packets.clear();
        assert_all_free(&arena);
    }
}
