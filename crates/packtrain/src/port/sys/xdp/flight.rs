//! Which packets a TX ring has: by the frames of their segments, since the kernel returns
//! addresses.

use crate::driver::Token;
use crate::limits::SMALL_FRAME_BYTES;
use std::ops::Range;

const NONE: u32 = u32::MAX;
/// Packets in flight of a queue that is used without the ring's size.
const TOKENS_MIN: usize = 256;

/// The descriptors in flight.
///
/// Several may have parts of one frame, or the same part: packets share frames. A completion then
/// counts for any of them. That is right, since the frame is free only when all packets that have
/// it are complete. It counts for the one that was put first, since the kernel sends in that order.
#[derive(Debug)]
pub(super) struct Flight {
    /// By frame: the last of its descriptors, whose next one is the first: a ring.
    of_frame: Box<[u32]>,
    entries: Box<[Entry]>,
    /// The first unused entry, a list, and how many there are.
    unused: u32,
    room: usize,
    /// By token: descriptors that are not complete.
    left: Box<[u32]>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    next: u32,
    token: Token,
}

impl Flight {
    /// For `descriptors` descriptors, and as many tokens, in frames with these addresses.
    pub(super) fn new(frames: Range<usize>, descriptors: usize) -> Self {
        let entry = |index| Entry {
            next: index + 1,
            token: Token(0),
        };
        Self {
            of_frame: vec![NONE; frames.len() / SMALL_FRAME_BYTES].into(),
            entries: (0..descriptors as u32).map(entry).collect(),
            unused: 0,
            room: descriptors,
            left: vec![0; descriptors.max(TOKENS_MIN)].into(),
        }
    }

    /// Whether `count` descriptors of a packet with this token can be put.
    pub(super) fn has_room(&self, count: usize, token: Token) -> bool {
        count <= self.room && (token.0 as usize) < self.left.len()
    }

    /// Puts a descriptor with a part of `frame`, after [`has_room`](Self::has_room).
    pub(super) fn put(&mut self, frame: usize, token: Token) {
        let index = self.unused;
        let entry = &mut self.entries[index as usize];
        self.unused = entry.next;
        self.room -= 1;
        *entry = Entry { next: index, token };
        let last = std::mem::replace(&mut self.of_frame[frame], index);
        if last != NONE {
            let first = std::mem::replace(&mut self.entries[last as usize].next, index);
            self.entries[index as usize].next = first;
        }
        self.left[token.0 as usize] += 1;
    }

    /// Whether a descriptor has a part of `frame`.
    pub(super) fn has(&self, frame: usize) -> bool {
        self.of_frame.get(frame).is_some_and(|last| *last != NONE)
    }

    /// A descriptor with a part of `frame` is complete. Returns the packet whose last one it was;
    /// `None` also if none has the frame.
    pub(super) fn complete(&mut self, frame: usize) -> Option<Token> {
        let last = self.of_frame.get_mut(frame).filter(|last| **last != NONE)?;
        let index = self.entries[*last as usize].next;
        let next = self.entries[index as usize].next;
        if *last == index {
            *last = NONE;
        } else {
            self.entries[*last as usize].next = next;
        }
        let entry = &mut self.entries[index as usize];
        entry.next = self.unused;
        self.unused = index;
        self.room += 1;
        let token = entry.token;
        let left = &mut self.left[token.0 as usize];
        *left -= 1;
        (*left == 0).then_some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_complete_with_its_last_descriptor() {
        let mut flight = Flight::new(0..8 * SMALL_FRAME_BYTES, 4);
        for round in 0..3 {
            let (a, b) = (Token(round), Token(9 - round));
            assert!(flight.has_room(4, a) && !flight.has_room(5, a));
            flight.put(0, a);
            flight.put(1, a);
            // Frame 1 is in both.
            flight.put(1, b);
            flight.put(7, b);
            assert!(!flight.has_room(1, a));
            assert_eq!(flight.complete(7), None);
            // One of frame 1's: each packet still has one descriptor, or one packet has two.
            let mut done: Vec<_> = flight.complete(1).into_iter().collect();
            done.extend(flight.complete(0));
            done.extend(flight.complete(1));
            done.sort();
            let mut expected = [a, b];
            expected.sort();
            assert_eq!(done, expected);
            assert_eq!(flight.complete(1), None, "none has it");
        }
    }

    #[test]
    fn packets_of_one_frame_are_complete_in_their_order() {
        let mut flight = Flight::new(0..8 * SMALL_FRAME_BYTES, 4);
        for token in [7, 3, 5] {
            flight.put(2, Token(token));
        }
        assert_eq!(flight.complete(2), Some(Token(7)));
        flight.put(2, Token(1));
        flight.put(6, Token(9));
        for token in [3, 5, 1] {
            assert_eq!(flight.complete(2), Some(Token(token)));
        }
        assert_eq!(flight.complete(2), None);
        assert_eq!(flight.complete(6), Some(Token(9)));
        assert!(flight.has_room(4, Token(0)));
    }

    #[test]
    fn what_the_kernel_cannot_have_is_ignored() {
        let mut flight = Flight::new(0..2 * SMALL_FRAME_BYTES, 4);
        assert!(!flight.has_room(1, Token(256)));
        for frame in [0, 2] {
            assert!(!flight.has(frame));
            assert_eq!(flight.complete(frame), None);
        }
        flight.put(1, Token(0));
        assert!(flight.has(1));
    }
}
