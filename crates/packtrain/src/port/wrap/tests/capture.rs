//! The content of captures.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Interface and data of every record.
fn records(file: &Memory) -> Vec<(u32, Vec<u8>)> {
    let bytes = lock(&file.0).clone();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let mut all = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        assert_eq!(record.original_bytes as usize, record.data.len());
        all.push((record.interface, record.data.to_vec()));
    }
    all
}

fn capturing(whole: bool) -> (Rig<Capture<Fake>>, Memory) {
    let file = Memory::default();
    let options = CaptureOptions { whole, snaplen: 0 };
    let output = Box::new(file.clone());
    (
        rig(|fake| Capture::new(fake, output, options).unwrap()),
        file,
    )
}

#[test]
fn a_capture_has_finished_wire_packets_of_both_directions() {
    let (mut rig, file) = capturing(false);
    let (packet, info) = large(&rig.arena);
    rig.fake.give(packet, info);
    rig.poll(1).1.unwrap();
    let segments = records(&file);
    assert_eq!(segments.len(), 4);
    assert!(
        segments
            .iter()
            .all(|(interface, data)| *interface == 0 && checksum_is_right(data))
    );
    let payload: Vec<_> = segments
        .iter()
        .flat_map(|(_, data)| data[54..].to_vec())
        .collect();
    assert_eq!(payload, tcp(4000)[54..]);

    let (unfinished, checksum) = partial(udp(300, 1), 6);
    let info = RxInfo {
        checksum,
        ..RxInfo::default()
    };
    let packet = rig.arena.packet_from(&unfinished).unwrap();
    rig.transmit(with_info(packet, info));
    assert_eq!(records(&file)[4], (1, udp(300, 1)));
    assert_eq!(
        rig.fake.sent()[0].0,
        unfinished,
        "the device gets what it would without"
    );
    assert_eq!(rig.driver.status().records(), 5);
}

#[test]
fn a_tag_beside_the_bytes_is_in_the_captured_ones() {
    let (mut rig, file) = capturing(false);
    let tag = VlanTag {
        protocol: 0x8100,
        control: 0x2007,
    };
    let (packet, info) = large(&rig.arena);
    let mut packet = with_info(packet, info);
    packet.meta_mut().vlan = Some(tag);
    rig.transmit(packet);
    let mut plain = rig.arena.packet_from(&udp(40, 3)).unwrap();
    plain.meta_mut().vlan = Some(tag);
    rig.transmit(plain);
    let records = records(&file);
    assert_eq!(records.len(), 5);
    for (_, data) in records {
        assert_eq!(data[12..16], [0x81, 0, 0x20, 7]);
        let untagged = [&data[..12], &data[16..]].concat();
        assert!(checksum_is_right(&untagged));
    }
}

#[test]
fn a_capture_of_whole_packets_has_them_as_they_are() {
    let (mut rig, file) = capturing(true);
    let (packet, info) = large(&rig.arena);
    let bytes = bytes_of(&packet);
    rig.fake.give(packet, info);
    rig.poll(1).1.unwrap();
    assert_eq!(records(&file), [(0, bytes)]);
}

#[test]
fn a_packet_without_wire_packets_is_captured_as_it_is() {
    let (mut rig, file) = capturing(false);
    let (_, info) = large(&rig.arena);
    rig.fake
        .give(rig.arena.packet_from(&udp(20, 0)).unwrap(), info);
    rig.poll(1).1.unwrap();
    assert_eq!(records(&file), [(0, udp(20, 0))]);
}

#[test]
fn a_refused_packet_is_not_captured() {
    let (mut rig, file) = capturing(false);
    lock(&rig.fake.0).refuse.push_back(Refused::LinkDown);
    let packet = rig.arena.packet_from(&udp(20, 0)).unwrap();
    rig.transmit(packet);
    assert!(records(&file).is_empty());
}

/// An output that has room for that many bytes.
struct Pipe(Memory, Arc<AtomicUsize>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.1.load(Ordering::Relaxed);
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let part = &bytes[..bytes.len().min(room)];
        self.1.fetch_sub(part.len(), Ordering::Relaxed);
        self.0.write(part)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_pipe_misses_records_and_neither_blocks_nor_ends_the_capture() {
    let (file, room) = (Memory::default(), Arc::new(AtomicUsize::new(2000)));
    let pipe = Pipe(file.clone(), Arc::clone(&room));
    let options = CaptureOptions::default();
    let mut rig = rig(|fake| Capture::new(fake, Box::new(pipe), options).unwrap());
    for _ in 0..1000 {
        rig.transmit(rig.arena.packet_from(&udp(1000, 0)).unwrap());
    }
    let status = rig.driver.status();
    assert!(
        !status.flush() && status.missed() > 900,
        "{}",
        status.missed()
    );
    assert_eq!((rig.fake.sent().len(), status.note()), (1000, None));
    room.store(usize::MAX, Ordering::Relaxed);
    assert!(status.flush());
    rig.transmit(rig.arena.packet_from(&udp(1000, 0)).unwrap());
    let missed = status.missed() as usize;
    assert_eq!(records(&file).len(), 1001 - missed);
    assert_eq!(status.records() as usize, 1001 - missed);
}

#[test]
fn outputs_that_fail_say_so() {
    let options = CaptureOptions::default();
    let mut tracing = rig(|fake| {
        Trace::new(
            Capture::new(fake, Box::new(Full(400)), options).unwrap(),
            Box::new(Full(100)),
        )
    });
    let trace = tracing.driver.status();
    assert_eq!((trace.note(), trace.lines()), (None, 0));
    tracing.give(30);
    assert_eq!(tracing.poll(1).0.len(), 30);
    let note = trace.note().unwrap();
    assert!(
        note.starts_with("the trace stopped, since its output failed"),
        "{note}"
    );
    assert_eq!(trace.lines(), 1);

    let mut capture = rig(|fake| Capture::new(fake, Box::new(Full(400)), options).unwrap());
    capture.give(30);
    assert_eq!(capture.poll(1).0.len(), 30);
    let note = capture.driver.status().note().unwrap();
    assert!(
        note.starts_with("the capture stopped, since its output failed: writing"),
        "{note}"
    );
    assert!(Capture::new(Fake::default(), Box::new(Full(0)), options).is_err());
}
