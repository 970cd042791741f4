//! `tun::unread_packets` counts for the whole process, so this is a process of its own with one
//! test.

use packtrain_offload::tun::{TunOffload, unread_packets};

/// 3000 bytes of TCP at an MSS of 300: ten packets.
fn read() -> Vec<u8> {
    let mut read = vec![0; 10 + 40 + 3000];
    read[..10].copy_from_slice(&[1, 1, 40, 0, 0x2c, 1, 20, 0, 16, 0]);
    read[10..20].copy_from_slice(&[0x45, 0, 0x0b, 0xe0, 0, 1, 0x40, 0, 64, 6]);
    read[42..44].copy_from_slice(&[5 << 4, 16]);
    read
}

#[test]
fn packets_that_were_not_fetched_are_counted() {
    let tun = TunOffload::tun();
    let bytes = read().len();
    let mut lost = 0;
    let mut counted = |more, what: &str| {
        lost += more;
        assert_eq!(unread_packets(), lost, "{what}");
    };

    let mut memory = read();
    let mut packets = tun.packets(&mut memory).expect("a good header");
    while packets.next_packet().is_some() {}
    drop(packets);
    counted(0, "all were fetched");

    let mut memory = read();
    let mut packets = tun.packets(&mut memory).expect("a good header");
    assert!(packets.next_packet().is_some() && packets.skip_packet());
    drop(packets);
    counted(8, "one was fetched, one was left out");

    let mut reader = tun.reader(read());
    counted(0, "there was no read");
    reader.received(bytes).expect("a good header");
    assert_eq!(reader.next_into(&mut [0; 340]), Ok(Some(340)));
    assert_eq!(reader.remaining(), 9);
    counted(0, "they may still be fetched");
    reader.buffer().copy_from_slice(&read());
    counted(9, "they are overwritten");
    reader.received(bytes).expect("a good header");
    reader.received(5).expect_err("no header");
    counted(10, "the next read took their place");
    reader.buffer().copy_from_slice(&read());
    reader.received(bytes).expect("a good header");
    while reader.next_write().is_some() {}
    reader.buffer().copy_from_slice(&read());
    reader.received(bytes).expect("a good header");
    counted(0, "all were written");
    assert!(reader.skip_packet());
    assert_eq!(reader.into_buffer().len(), bytes);
    counted(9, "the buffer was taken back");
}
