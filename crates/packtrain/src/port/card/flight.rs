//! The packets in a TX ring whose descriptors the card completes in order.

use crate::driver::Token;
use std::collections::VecDeque;

/// Which descriptors of a TX ring are used, and by which packets.
#[derive(Debug)]
pub struct Flight {
    /// By descriptor: the packet that ends with it.
    ends: Box<[Option<Token>]>,
    /// The oldest descriptor in use, and how many are.
    oldest: usize,
    used: usize,
    /// Descriptors whose completion the card reports, in order.
    reports: VecDeque<usize>,
    /// Descriptors from the oldest one on that are complete.
    finished: usize,
}

impl Flight {
    /// For a ring of `descriptors`, of which one stays free: a ring that is full would look like an
    /// empty one.
    #[must_use]
    pub fn new(descriptors: usize) -> Self {
        Self {
            ends: vec![None; descriptors].into(),
            oldest: 0,
            used: 0,
            reports: VecDeque::with_capacity(descriptors),
            finished: 0,
        }
    }

    /// Descriptors that are free.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.ends.len() - 1 - self.used
    }

    /// Whether none is used.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The oldest descriptor in use; the next free one if none is.
    #[must_use]
    pub const fn oldest(&self) -> usize {
        self.oldest
    }

    /// The next free descriptor.
    #[must_use]
    pub const fn tail(&self) -> usize {
        let tail = self.oldest + self.used;
        if tail < self.ends.len() {
            tail
        } else {
            tail - self.ends.len()
        }
    }

    /// Uses the next descriptor, and returns its index. `end` is the packet if it is its last one.
    ///
    /// # Panics
    ///
    /// Without [`room`](Self::room).
    pub fn put(&mut self, end: Option<Token>) -> usize {
        assert!(self.room() > 0, "a descriptor is free");
        let index = self.tail();
        self.ends[index] = end;
        self.used += 1;
        index
    }

    /// Frees the descriptors up to the first one that ends a packet, and returns that packet.
    fn complete(&mut self) -> Option<Token> {
        while self.used > 0 {
            let index = self.oldest;
            self.used -= 1;
            self.oldest += 1;
            if self.oldest == self.ends.len() {
                self.oldest = 0;
            }
            if let Some(token) = self.ends[index].take() {
                return Some(token);
            }
        }
        None
    }

    /// The card reports the completion of the descriptor that was [`put`](Self::put) last, of a
    /// card that does so only for some.
    pub fn report(&mut self) {
        if self.used > 0 && self.reports.len() < self.ends.len() {
            let last = self.tail().checked_sub(1);
            self.reports.push_back(last.unwrap_or(self.ends.len() - 1));
        }
    }

    /// The descriptor whose report comes next.
    #[must_use]
    pub fn next_report(&self) -> Option<usize> {
        self.reports.front().copied()
    }

    /// The next report has come: all descriptors up to it are complete.
    pub fn reported(&mut self) {
        if let Some(last) = self.reports.pop_front() {
            self.finish(last);
        }
    }

    /// All descriptors up to `last` are complete, as a card says that writes which ones. Returns
    /// false if `last` is not in use.
    pub fn finish(&mut self, last: usize) -> bool {
        let count = self.ends.len();
        let is_used = last < count && (last + count - self.oldest) % count < self.used;
        if is_used {
            self.finished = (last + count - self.oldest) % count + 1;
        }
        is_used
    }

    /// Whether [`next_complete`](Self::next_complete) returns a packet.
    #[must_use]
    pub const fn has_finished(&self) -> bool {
        self.finished > 0
    }

    /// Frees the descriptors of the next packet that was reported, and returns it.
    pub fn next_complete(&mut self) -> Option<Token> {
        if self.finished == 0 {
            return None;
        }
        let before = self.used;
        let token = self.complete();
        self.finished = self.finished.saturating_sub(before - self.used);
        token
    }

    /// Frees all descriptors, and calls `each` with the packets, in order, and the descriptors in
    /// front of each one.
    pub fn clear(&mut self, mut each: impl FnMut(Token, usize)) {
        let mut before = 0;
        let all = self.used;
        while let Some(token) = self.complete() {
            each(token, before);
            before = all - self.used;
        }
        (self.oldest, self.used, self.finished) = (0, 0, 0);
        self.reports.clear();
    }
}
