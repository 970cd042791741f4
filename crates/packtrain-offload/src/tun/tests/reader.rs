//! Reads that are fetched with several calls, from one buffer that the reader keeps.

use super::*;

/// Reads with their packets: merged, alone, and with an unfinished checksum.
fn reads(tun: &TunOffload) -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
    let kinds = [Spec::tcp4(0), Spec::tcp6(0), Spec::udp4(0), Spec::udp6(0)];
    let mut reads = Vec::new();
    for spec in &kinds {
        for sizes in [&[300; 60][..], &[90, 90, 7], &[1200]] {
            let batch = train(spec, sizes);
            let (mut writes, _) = copied(tun, 2, &batch);
            assert_eq!(writes.len(), 1, "one read");
            reads.push((writes.remove(0), batch));
        }
    }
    let spec = Spec::udp4(50);
    let unfinished = VnetHeader {
        flags: FLAG_NEEDS_CSUM,
        csum_start: spec.transport() as u16,
        csum_offset: 6,
        ..VnetHeader::default()
    };
    let form = tun.header.expect("one with a header");
    let mut read = vec![0; form.bytes()];
    unfinished.encode(&mut read, form).expect("room");
    read.extend(spec.build(Field::Preload));
    reads.push((read, vec![spec.build(Field::Final)]));
    reads
}

/// Fetches some packets with the call of this number. Says how many packets it took from the read.
fn fetch<B: AsRef<[u8]> + AsMut<[u8]>>(
    tun: &TunOffload,
    packets: &mut Packets<B>,
    call: usize,
    most: usize,
    got: &mut Vec<Vec<u8>>,
) {
    let (left, before) = (packets.remaining(), got.len());
    let next = packets.next_bytes();
    let mut out = vec![STALE; 70_000];
    match call {
        0 => got.extend(packets.next_packet().map(|packet| packet.to_vec())),
        1 => {
            let bytes = packets.next_into(&mut out).expect("room");
            got.extend(bytes.map(|bytes| out[..bytes].to_vec()));
        }
        2 => {
            let header = tun.header_bytes();
            if let Some(write) = packets.next_write() {
                assert!(write[..10].iter().all(|&byte| byte == 0), "an empty header");
                let count = &write[10..header];
                assert!(count.is_empty() || count == [1, 0], "one buffer");
                got.push(write[header..].to_vec());
            }
        }
        3 => {
            let (mut buffers, mut lengths) = (vec![vec![STALE; 1400]; most], vec![0; most]);
            let count = packets.fill(&mut buffers, 9, &mut lengths).expect("room");
            let filled = buffers.iter().zip(lengths).take(count);
            got.extend(filled.map(|(buffer, length)| buffer[9..9 + length].to_vec()));
        }
        _ => {
            let run = packets.fill_run(&mut out, 5, 3, most + 1).expect("room");
            for piece in run
                .map_or(&mut [][..], |run| &mut out[..run.bytes])
                .chunks_mut(run.map_or(1, |run| run.stride))
            {
                got.push(piece[5..piece.len() - 3].to_vec());
            }
        }
    }
    let fetched = got.len() - before;
    assert_eq!(packets.remaining(), left - fetched, "call {call}");
    if fetched > 0 {
        assert_eq!(next, Some(got[before].len()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// How the packets of a read are fetched, with how many calls of which kind, from a borrowed or
    /// from an owned buffer that had other reads before: they are the same packets.
    #[test]
    fn any_calls_fetch_the_same_packets(
        calls in prop::collection::vec((0_usize..5, 0_usize..20), 1..80),
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
        form in 0_usize..2,
    ) {
        let tun = TunOffload { header: Some(FORMS[form]), ..TunOffload::tun() };
        let reads = reads(&tun);
        let mut reader = tun.reader(vec![STALE; WRITE_BYTES_MAX].into_boxed_slice());
        let mut calls = calls.into_iter().cycle();
        for index in order {
            let (read, batch) = index.get(&reads);
            reader.buffer()[..read.len()].copy_from_slice(read);
            reader.received(read.len()).expect("a good header");
            let mut memory = read.clone();
            let mut packets = tun.packets(&mut memory).expect("a good header");
            let (mut owned, mut borrowed) = (Vec::new(), Vec::new());
            // A call for no packets fetches none: then one of another kind follows.
            while reader.remaining() > 0 {
                let (call, most) = calls.next().expect("for ever");
                fetch(&tun, &mut reader, call, most, &mut owned);
                fetch(&tun, &mut reader, 0, 1, &mut owned);
                fetch(&tun, &mut packets, call, most, &mut borrowed);
                fetch(&tun, &mut packets, 0, 1, &mut borrowed);
            }
            prop_assert_eq!(&owned, batch);
            prop_assert_eq!(&borrowed, batch);
        }
    }
}

#[test]
fn a_reader_without_a_read_has_no_packets() {
    let tun = TunOffload::tun();
    let mut reader = tun.reader(vec![STALE; WRITE_BYTES_MAX]);
    let mut got = Vec::new();
    for call in 0..5 {
        fetch(&tun, &mut reader, call, 3, &mut got);
    }
    assert_eq!((got.len(), reader.next_bytes()), (0, None));
    assert!(!reader.skip_packet());
    assert_eq!(reader.into_buffer().len(), WRITE_BYTES_MAX);
}

#[test]
fn a_read_that_is_refused_leaves_the_reader_usable() {
    let tun = TunOffload::tun();
    let (read, batch) = reads(&tun).swap_remove(1);
    let mut reader = tun.reader(vec![0; WRITE_BYTES_MAX]);
    reader.buffer()[1] = 3; // UFO.
    reader.buffer()[10] = 0x45;
    assert_eq!(reader.received(60), Err(VnetError::GsoUfo));
    assert_eq!(reader.received(0), Err(VnetError::HeaderTruncated));
    assert_eq!((reader.remaining(), reader.next_packet()), (0, None));
    reader.buffer()[..read.len()].copy_from_slice(&read);
    reader.received(read.len()).expect("a good header");
    let mut got = Vec::new();
    while reader.remaining() > 0 {
        fetch(&tun, &mut reader, 0, 1, &mut got);
    }
    assert_eq!(got, batch);
    // More bytes than the buffer has are as many as it has.
    let mut memory = read.clone();
    let mut short = tun.reader(&mut memory[..]);
    short.received(usize::MAX).expect("a good header");
    assert_eq!(short.remaining(), batch.len());
    while short.skip_packet() {}
}

/// The buffer is free as soon as the packets are not used, without a block around them.
#[test]
fn the_buffer_of_a_read_can_be_used_again_in_the_same_scope() {
    let tun = TunOffload::tun();
    let (mut read, batch) = reads(&tun).swap_remove(1);
    let mut packets = tun.packets(&mut read).expect("a good header");
    let first = packets.next_packet().map(|packet| packet.to_vec());
    while packets.skip_packet() {}
    assert_eq!(first, Some(batch[0].clone()));
    read.clear();
    assert!(read.is_empty());
}

#[test]
fn a_packet_longer_than_its_buffer_costs_no_other() {
    let tun = TunOffload::tun();
    let batch = train(&Spec::udp4(0), &[300, 300, 120]);
    let (mut writes, _) = copied(&tun, 2, &batch);
    let mut packets = tun.packets(&mut writes[0]).expect("a good header");
    let (mut buffers, mut lengths) = ([vec![0; 400], vec![0; 100]], [0; 2]);
    assert_eq!(packets.fill(&mut buffers, 9, &mut lengths), Ok(1));
    assert_eq!(buffers[0][9..9 + lengths[0]], batch[0]);
    // The second one is the first of this call.
    buffers.swap(0, 1);
    let error = TooShort {
        has: 91,
        needs: 328,
    };
    assert_eq!(packets.fill(&mut buffers, 9, &mut lengths), Err(error));
    let far = packets.fill(&mut buffers, 1000, &mut lengths);
    assert_eq!(far, Err(TooShort { has: 0, needs: 148 }));
    assert_eq!(packets.fill(&mut buffers, 9, &mut lengths), Ok(0));
    assert_eq!(packets.remaining(), 0);
}
