//! Where packets are kept: sizes, and that nothing leaks.

use std::cell::Cell;
use std::rc::Rc;
use std::string::ToString;
use std::vec::Vec;

use super::*;
use crate::test_packets::frame::{Frame, tcp4, train};

/// A packet that records its drop.
struct Counted(Wire, Rc<Cell<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.set(self.1.get() + 1);
    }
}

impl Packet for Counted {
    fn head(&self) -> &[u8] {
        self.0.head()
    }

    fn head_mut(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.0.head_mut(bytes)
    }

    fn bytes(&self) -> u32 {
        self.0.bytes()
    }

    fn checksum(&self) -> ChecksumState {
        self.0.checksum()
    }

    fn sum(&self, range: Range<u32>) -> Sum {
        self.0.sum(range)
    }

    fn truncate(&mut self, bytes: u32) {
        self.0.truncate(bytes);
    }

    fn append(&mut self, tail: Self, payload: Range<u32>) -> Result<(), Self> {
        let payload = payload.start as usize..payload.end as usize;
        self.0.bytes.extend_from_slice(&tail.0.bytes[payload]);
        Ok(())
    }
}

/// Flows, of three packets each.
const FLOWS: u16 = if cfg!(miri) { 3 } else { 10 };

fn packets(dropped: &Rc<Cell<u32>>) -> Vec<Counted> {
    let mut all = Vec::new();
    for round in 0..3 {
        for port in 0..FLOWS {
            let mut frame = train(&tcp4(0), &[20; 3])[round].clone();
            frame.ports.0 = port;
            all.push(Counted(frame.unverified(), dropped.clone()));
        }
    }
    all
}

fn config_of(mode: Mode, flows: u32) -> Config {
    Config {
        mode,
        queue: 32,
        ..Config::new(Semantics::Reversible, LinkType::RawIp, flows)
    }
}

#[test]
fn packets_that_are_held_are_freed_with_the_storage() {
    for mode in MODES {
        for flows in [1, 2, 16] {
            let config = config_of(mode, flows);
            let dropped = Rc::new(Cell::new(0));
            let mut out = Vec::new();
            let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
            coalescer.push_burst(0, packets(&dropped), &mut |packet, _| out.push(packet));
            assert!(coalescer.held() > 0);
            drop(coalescer);
            drop(out);
            assert_eq!(
                dropped.get(),
                3 * u32::from(FLOWS),
                "{mode:?}, {flows} flows"
            );
        }
    }
}

#[test]
fn cleared_packets_are_freed_at_once_and_counted() {
    for mode in MODES {
        let config = config_of(mode, 16);
        let dropped = Rc::new(Cell::new(0));
        let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
        let mut sink = |_: Counted, _: &Done| panic!("nothing is handed on");
        coalescer.push_burst(0, packets(&dropped), &mut sink);
        assert_eq!(coalescer.clear(), 3 * u64::from(FLOWS));
        assert_eq!(dropped.get(), 3 * u32::from(FLOWS));
        assert_eq!(coalescer.held(), 0);
        coalescer.flush(&mut sink);
        // And it works as before.
        let mut out = Vec::new();
        coalescer.push_burst(0, packets(&dropped), &mut |packet, _| out.push(packet));
        coalescer.flush(&mut |packet, _| out.push(packet));
        assert_eq!(out.len(), usize::from(FLOWS));
        assert_eq!(coalescer.clear(), 0);
    }
}

#[test]
fn everything_is_handed_on_and_nothing_dropped_but_tails() {
    let config = config_of(Mode::Hash, 16);
    let dropped = Rc::new(Cell::new(0));
    let mut out = Vec::new();
    let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
    coalescer.push_burst(0, packets(&dropped), &mut |packet, _| out.push(packet));
    coalescer.flush(&mut |packet, _| out.push(packet));
    assert_eq!(out.len(), usize::from(FLOWS));
    assert_eq!(dropped.get(), 2 * u32::from(FLOWS));
}

/// The same as [`run`], in memory of the caller's.
pub(super) fn run_borrowed(config: Config, steps: Vec<Step>) -> (Output, Stats) {
    let mut memory = Owned::for_config(&config);
    run_in(config, Borrowed(memory.parts()), steps)
}

#[test]
fn a_storage_of_another_size_is_refused() {
    let config = config_of(Mode::Auto, 16);
    type Change = for<'s> fn(Parts<'s, Wire>) -> Parts<'s, Wire>;
    macro_rules! change {
        ($part:ident, $range:expr) => {
            |parts| Parts {
                $part: &mut parts.$part[$range],
                ..parts
            }
        };
    }
    let changes: [(Change, &str); 6] = [
        (change!(entries, ..15), "15 entries"),
        (change!(sets, ..3), "3 sets"),
        (change!(links, ..15), "15 links"),
        (change!(queue, ..31), "31 queue"),
        (change!(keys, ..63), "63 keys"),
        (change!(words, ..0), "0 words"),
    ];
    let says = |parts: Parts<'_, Wire>| {
        Coalescer::new(config, Borrowed(parts))
            .unwrap_err()
            .to_string()
    };
    for (change, wanted) in changes {
        let mut memory = Owned::for_config(&config);
        let error = says(change(memory.parts()));
        assert!(error.contains(wanted), "{error}");
    }
    let mut larger = Owned::for_config(&config_of(Mode::Auto, 32));
    let error = says(larger.parts());
    assert!(error.contains("32 entries"), "{error}");
    let mut memory = Owned::<Wire>::for_config(&config);
    assert!(Coalescer::new(config, Borrowed(memory.parts())).is_ok());
}

/// A coalescer that was dropped with packets in its memory leaves them there.
#[test]
fn a_storage_with_packets_in_it_is_refused() {
    for mode in [Mode::Hash, Mode::Sorted] {
        let config = config_of(mode, 16);
        let mut memory = Owned::for_config(&config);
        let mut first = Coalescer::new(config, Borrowed(memory.parts())).unwrap();
        first.push(0, tcp4(100).verified(), &mut |_, _| ());
        let error = Coalescer::new(config, Borrowed(memory.parts())).unwrap_err();
        assert!(error.to_string().contains("1 packets in it"), "{error}");
    }
}

#[test]
fn bounds_of_the_configuration() {
    const MOST: (usize, usize) = (Config::FLOWS_MAX as usize, sort::ITEMS_MAX);
    for (flows, expected) in [(0, (1, 1)), (1, (1, 1)), (u32::MAX, MOST)] {
        let config = Config {
            queue: flows,
            ..config_of(Mode::Auto, flows)
        };
        let needs = config.needs();
        assert_eq!((needs.entries, needs.queue), expected);
        assert!(needs.sets.is_power_of_two());
    }
    let config = Config {
        ack_limit: 0,
        max_bytes: u32::MAX,
        ..config_of(Mode::Hash, 8)
    };
    let coalescer = Coalescer::new(config, Owned::<Wire>::for_config(&config)).unwrap();
    let applied = coalescer.config();
    assert_eq!((applied.ack_limit, applied.max_bytes), (1, 65_535));
    let none = config_of(Mode::Hash, 8).needs();
    assert_eq!((none.queue, none.keys, none.words), (0, 0, 0));
}

#[test]
fn the_smallest_there_is() {
    for mode in MODES {
        let config = Config {
            queue: 0,
            ..config_of(mode, 0)
        };
        let input: Vec<Wire> = train(&tcp4(0), &[100; 5])
            .iter()
            .map(Frame::verified)
            .collect();
        let (output, _) = run(config, [Step::Burst(input)].into());
        assert_eq!(output.len(), if mode == Mode::Sorted { 5 } else { 1 });
    }
}
