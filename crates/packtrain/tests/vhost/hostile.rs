//! Guests and front ends that do everything wrong. A bad chain costs one packet, a bad index its
//! ring, a bad message its connection; another queue carries packets meanwhile.

use crate::chains::{Chain, either, from_guest};
use crate::guest::*;
use crate::{Joined, Queues};
use packtrain::driver::{Armed, Attach, Driver, Features, Link};
use packtrain::packet::{Arena, ArenaConfig};
use packtrain::stats::DropReason;
use packtrain_offload::random::Random;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;
use std::io::Read;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const FROM: usize = 1;
const TO: usize = 0;
/// The control ring of two pairs.
const CONTROL: usize = 4;

/// The guest whose chains are written by hand: indirect tables are allowed.
fn options() -> Options {
    Options::with_pairs(VERSION_1 | MRG_RXBUF | INDIRECT | EVENT_IDX | OFFLOADS, 2)
}

/// A guest of two pairs with a control ring.
fn with_control() -> Options {
    Options::with_pairs(
        VERSION_1 | MRG_RXBUF | INDIRECT | EVENT_IDX | MQ | CTRL_VQ,
        2,
    )
}

#[test]
fn a_bad_chain_from_a_guest_costs_one_packet() {
    let mut queues = Queues::new(options());
    let mut bad = 0;
    let total = |queues: &Queues| queues.rx_drops.snapshot().total();
    let give = |queues: &mut Queues, write: &Chain| {
        let slot = queues.guest().slot(FROM).expect("a slot");
        let at = GUEST_BASE + queues.guest().buffer(FROM, slot);
        write(queues.guest(), FROM, slot, at);
        queues.guest().push(FROM, slot);
    };
    for (what, write) in either(0) {
        give(&mut queues, &*write);
        assert!(queues.poll(0).is_empty(), "a chain {what} is no packet");
        bad += 1;
        assert_eq!(total(&queues), bad, "a chain {what} is counted once");
        queues.assert_passes(0, bad as u8);
        queues.assert_passes(1, bad as u8);
    }
    for (what, reason, write) in from_guest() {
        let before = queues.rx_dropped(reason);
        give(&mut queues, &*write);
        assert!(queues.poll(0).is_empty(), "{what}");
        assert_eq!(queues.rx_dropped(reason), before + 1, "{what}");
        bad += 1;
        queues.assert_passes(0, bad as u8);
        queues.assert_passes(1, bad as u8);
    }
    // A chain that begins nowhere cannot be given back.
    for head in [128, 129, u16::MAX] {
        queues.guest().push(FROM, head);
        assert!(queues.poll(0).is_empty());
        bad += 1;
        assert_eq!(total(&queues), bad);
        queues.assert_passes(0, 1);
    }
    assert!(bad >= 40, "{bad} kinds of bad chains");
}

#[test]
fn a_bad_buffer_of_a_guest_costs_no_packet() {
    let mut queues = Queues::new(options());
    let mut bad = 0;
    for (what, write) in either(WRITE) {
        // All good buffers are used up first.
        let head = drain(&mut queues);
        let at = GUEST_BASE + queues.guest().buffer(TO, head);
        write(queues.guest(), TO, head, at);
        queues.guest().push(TO, head);
        let held = queues.tx[0].held();
        assert_eq!(held, 1, "a packet waits");
        queues.send(0, &crate::frame(9, 300));
        bad += 1;
        assert_eq!(queues.joined.port.status().bad_buffers, bad, "{what}");
        assert!(
            queues.guest().take_used(TO).is_some(),
            "{what}: it is given back"
        );
        queues.guest().post(TO, head);
        queues.guest().post(TO, head + 1);
        queues.now = queues.now.after(Duration::from_millis(1));
        queues.tx[0]
            .transmit(&mut packtrain::packet::Burst::new())
            .expect("it works");
        for _ in 0..2 {
            queues
                .guest()
                .receive(0)
                .unwrap_or_else(|| panic!("behind a chain {what}"));
        }
        queues.assert_passes(1, bad as u8);
    }
    assert_eq!(queues.tx_drops.snapshot().total(), 0);
}

/// Uses up all buffers, without posting them again, until a packet waits; returns a free slot of
/// two.
fn drain(queues: &mut Queues) -> u16 {
    let mut sent = 0;
    while queues.tx[0].held() == 0 {
        queues.send(0, &crate::frame(3, 60));
        sent += 1;
        assert!(sent < 1000, "the ring is never full");
    }
    while queues.guest().take_used(TO).is_some() {}
    2
}

#[test]
fn a_bad_buffer_behind_a_short_one_does_not_stop_the_ring() {
    let mut queues = Queues::new(options());
    drain(&mut queues);
    let guest = queues.guest();
    for slot in 2..5 {
        let at = GUEST_BASE + guest.buffer(TO, slot);
        let (bytes, address) = if slot == 3 { (100, 0) } else { (100, at) };
        guest.describe(TO, slot, address, bytes, WRITE, 0);
        guest.push(TO, slot);
    }
    // It needs two of the good ones, and takes that behind the bad one after it.
    queues.send(0, &crate::frame(1, 150));
    let guest = queues.guest();
    let used: Vec<_> = std::iter::from_fn(|| guest.take_used(TO)).collect();
    assert_eq!(
        used.first(),
        Some(&(2, 72)),
        "the packet that waited had room: {used:?}"
    );
    for slot in 5..8 {
        queues.guest().post(TO, slot);
    }
    queues.send(0, &crate::frame(1, 60));
    assert!(queues.guest().take_used(TO).is_some());
    assert_eq!(queues.tx_drops.snapshot().total(), 0);
}

/// Describes chains of a thousand descriptors of one byte, the last of which is outside, from
/// `heads` on, and makes them available.
fn push_long(guest: &mut Guest, ring: usize, heads: std::ops::Range<u16>, flag: u16) {
    let (table, data) = (guest.buffer(ring, 45), GUEST_BASE + guest.buffer(ring, 40));
    let rows = (1..1000).map(|next| descriptor(data, 1, flag | NEXT, next));
    let rows = rows.chain([descriptor(0, 1, flag, 0)]);
    let rows = rows.collect::<Vec<_>>().concat();
    guest.write(table, &rows);
    for head in heads {
        guest.describe(ring, head, GUEST_BASE + table, rows.len() as u32, TABLE, 0);
        guest.push(ring, head);
    }
}

/// A packet of 1012 bytes with its header may need 7 descriptors, and 256 more are left over.
#[test]
fn packets_to_a_guest_are_not_looked_for_in_any_number_of_descriptors() {
    let mut queues = Queues::new(options());
    drain(&mut queues);
    push_long(queues.guest(), TO, 2..10, WRITE);
    for sent in 1..=300_u64 {
        queues.send(0, &crate::frame(1, 1000));
        let read = 1001 * queues.joined.port.status().bad_buffers;
        assert!(read < 256 + 7 * (sent + 1) + 1001, "{sent}: {read}");
    }
    let bad = queues.joined.port.status().bad_buffers;
    assert!((2..8).contains(&bad), "it goes on: {bad}");
    assert!(queues.tx_dropped(DropReason::BadDescriptor) >= 300);
    assert_eq!(queues.tx[0].held(), 0, "none waits for the guest");
    queues.assert_passes(1, 1);
}

#[test]
fn a_poll_does_not_read_any_number_of_descriptors() {
    let mut queues = Queues::new(options());
    push_long(queues.guest(), FROM, 1..20, 0);
    let sent = crate::frame(1, 60);
    queues.give(0, &sent);
    let (mut polls, mut came) = (0, vec![]);
    while came.is_empty() {
        assert_eq!(queues.rx[0].arm(), Armed::WorkPending, "there is more");
        polls += 1;
        came = queues.poll(0);
        let read = 1001 * queues.rx_drops.snapshot().total();
        assert!(read < 256 * (polls + 4), "{polls} polls: {read}");
    }
    assert_eq!(came, [sent]);
    assert_eq!(queues.rx_dropped(DropReason::BadDescriptor), 19);
    queues.assert_passes(1, 1);
}

#[test]
fn a_ring_that_goes_on_being_bad_is_off_until_it_is_started_again() {
    let mut queues = Queues::new(options());
    let mut bad = 0;
    let mut push = |queues: &mut Queues, chains: u64| {
        for _ in 0..chains {
            queues.guest().describe(FROM, 0, 0, 100, 0, 0);
            queues.guest().push(FROM, 0);
            assert!(queues.poll(0).is_empty());
            queues.guest().take_used(FROM);
        }
        bad += chains;
        assert_eq!(queues.rx_dropped(DropReason::BadDescriptor), bad);
    };
    for _ in 0..2 {
        push(&mut queues, 255);
        queues.assert_passes(0, 1);
    }
    assert_eq!(queues.joined.port.status().problem, None);
    push(&mut queues, 256);
    let status = queues.joined.port.status();
    let problem = status.problem.expect("it is said");
    assert!(problem.starts_with("ring 1 had 256 bad"), "{problem}");
    assert_eq!(status.refused, 1);
    push(&mut queues, 0);
    queues.assert_arrives(0, 2);
    // The same of the ring to the guest, whose queue uses the ring of the other one then.
    drain(&mut queues);
    for _ in 0..4 {
        for _ in 0..100 {
            queues.guest().describe(TO, 2, 0, 100, WRITE, 0);
            queues.guest().push(TO, 2);
        }
        queues.send(0, &crate::frame(1, 60));
    }
    let status = queues.joined.port.status();
    assert_eq!((status.refused, status.bad_buffers), (2, 256));
    while queues.guest().receive(1).is_some() {}
    for ring in [TO, FROM] {
        let guest = queues.guest();
        guest.restart(ring);
        guest.barrier();
    }
    assert_eq!(queues.joined.port.status().problem, None);
    queues.guest().post(TO, 1);
    queues.assert_passes(0, 5);
    queues.assert_passes(1, 6);
}

/// Its front end may have made it block, and read it first.
#[test]
fn a_kick_of_the_control_ring_is_seen_and_not_read() {
    let mut queues = Queues::new(with_control());
    queues.guest().start(CONTROL);
    queues.guest().barrier();
    for pairs in [1, 2, 1, 2] {
        assert_eq!(queues.guest().set_pairs(pairs), 0);
        let kick = &queues.guest().rings[CONTROL].kick;
        let mut fds = [PollFd::new(kick, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&Timespec::default())), Ok(1));
    }
    queues.assert_passes(1, 1);
}

#[test]
fn descriptors_that_no_message_has_end_a_connection_at_once() {
    let mut queues = Queues::new(options());
    let guest = queues.guest();
    // Parts of one header, which never becomes whole.
    for _ in 0..3 {
        send_raw(&guest.stream, &[0; 3], &[guest.memory.as_fd(); 8]);
    }
    let ended = (&guest.stream).read(&mut [0]);
    assert!(matches!(ended, Ok(0)), "{ended:?}");
    queues.joined.guest = None;
    queues.joined.join(options());
    queues.assert_passes(0, 1);
}

#[test]
fn requests_without_end_in_the_control_ring_hold_up_no_message() {
    let mut queues = Queues::new(with_control());
    let guest = queues.guest();
    let at = guest.buffer(CONTROL, 0);
    guest.write(at, &[4, 0, 1, 0, 0xFF]);
    let rows = [
        descriptor(GUEST_BASE + at, 4, NEXT, 1),
        descriptor(GUEST_BASE + at + 4, 1, WRITE, 0),
    ];
    let table = guest.table(CONTROL, 0);
    guest.write(table, &rows.concat());
    // The avail ring is the used ring: its index is always a hundred ahead, and its heads are what
    // is written for an answer of one byte, 0 and 1.
    for head in 0..2 {
        guest.describe(CONTROL, head, GUEST_BASE + table, 32, TABLE, 0);
    }
    let index_at = guest.used_at(CONTROL);
    guest.write(index_at, &100_u16.to_le_bytes());
    let descriptors = USER_BASE + CONTROL as u64 * (8 << 20);
    let both = USER_BASE + index_at - 2;
    let mut address = [CONTROL as u32, 0].map(u32::to_le_bytes).concat();
    address.extend([descriptors, both, both, 0].map(u64::to_le_bytes).concat());
    guest.state(SET_VRING_NUM, CONTROL, 128);
    guest.state(SET_VRING_BASE, CONTROL, 0);
    guest.say(SET_VRING_ADDR, &address, &[]);
    let kick = guest.rings[CONTROL].kick.as_fd();
    guest.say(SET_VRING_KICK, &(CONTROL as u64).to_le_bytes(), &[kick]);
    guest.kick_always(CONTROL);
    for _ in 0..20 {
        guest.barrier();
    }
    assert_ne!(guest.used(CONTROL), 100, "it was answered");
    guest.stop(CONTROL);
    queues.assert_passes(0, 1);
}

#[test]
fn an_index_that_cannot_be_costs_its_ring_until_it_is_started_again() {
    for ahead in [129, 1000, 0x8000, u16::MAX] {
        let mut queues = Queues::new(options());
        queues.assert_passes(0, 1);
        let index = queues.guest().rings[FROM].avail.wrapping_add(ahead);
        queues.guest().set_avail(FROM, index);
        assert!(queues.poll(0).is_empty());
        assert_eq!(queues.rx_dropped(DropReason::BadDescriptor), 1);
        let problem = queues.joined.port.status().problem;
        assert!(problem.is_some_and(|problem| problem.contains("ring 1 ")));
        for _ in 0..3 {
            assert!(queues.poll(0).is_empty(), "it is off");
        }
        assert_eq!(queues.rx_drops.snapshot().total(), 1);
        queues.assert_arrives(0, 2);
        queues.assert_passes(1, 3);
        // The same of the ring to the guest. An index one lower is only one buffer less.
        let index = queues.guest().rings[TO].avail.wrapping_add(ahead);
        queues.guest().set_avail(TO, index);
        for _ in 0..200 {
            queues.send(0, &crate::frame(1, 60));
        }
        let is_off = queues.tx_dropped(DropReason::LinkDown) > 0;
        assert_eq!(is_off, ahead != u16::MAX, "{ahead}");
        if is_off {
            // Its queue uses the ring of the other one.
            let until = Instant::now() + Duration::from_secs(60);
            let mut came = false;
            while !came || queues.tx[0].held() > 0 {
                assert!(
                    Instant::now() < until,
                    "{ahead}: it stays with a broken ring"
                );
                queues.send(0, &crate::frame(7, 70));
                while queues.guest().receive(1).is_some() {
                    came = true;
                }
            }
        }
        queues.assert_passes(1, 4);
        let guest = queues.guest();
        let rings = if is_off { &[TO, FROM][..] } else { &[] };
        for &ring in rings {
            guest.restart(ring);
        }
        guest.barrier();
        if is_off {
            guest.post(TO, 1);
            queues.assert_passes(0, 5);
        }
    }
}

#[test]
fn without_a_ring_that_works_the_link_is_down_and_a_new_front_end_is_not_blamed() {
    let options = Options {
        pairs: 1,
        ..options()
    };
    let mut queues = Queues::new(options);
    let index = queues.guest().rings[TO].avail.wrapping_add(1000);
    queues.guest().set_avail(TO, index);
    for _ in 0..200 {
        queues.send(0, &crate::frame(1, 60));
    }
    let joined = &mut queues.joined;
    joined.wait_for("broken link", |joined| joined.port.link() == Link::Down);
    let problem = joined.port.status().problem.expect("it is said");
    assert!(problem.starts_with("ring 0 has more chains"), "{problem}");
    joined.guest = None;
    joined.wait_for_leave();
    assert_eq!(joined.port.status().problem, None);
    joined.join(options);
    queues.assert_passes(0, 2);
}

#[test]
fn a_front_end_that_is_refused_makes_room_for_the_next_one() {
    let event = || eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    let (socket, _other) = UnixStream::pair().expect("sockets");
    let memory = |spec: [u64; 4]| {
        let mut table = vec![1, 0, 0, 0, 0, 0, 0, 0];
        table.extend(spec.map(u64::to_le_bytes).concat());
        table
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let long = |number: u64| number.to_le_bytes().to_vec();
    // A request, its payload, and whether an eventfd, a socket or the memory comes with it.
    let messages: Vec<(u32, Vec<u8>, u8)> = vec![
        (0, vec![], 0),
        (6, long(0), b'm'),
        (31, vec![0; 24], 0),
        (u32::MAX, vec![], 0),
        (SET_FEATURES, long(1 << 34), 0),
        (SET_FEATURES, long(1 << 26), 0),
        (SET_FEATURES, vec![0; 7], 0),
        (SET_PROTOCOL_FEATURES, long(1 << 12), 0),
        (SET_MEM_TABLE, memory([0, 4096, 0, 0]), 0),
        (SET_MEM_TABLE, memory([0, 4096, 0, 0]), b'e'),
        (SET_MEM_TABLE, memory([0, 4096, 0, 0]), b's'),
        (SET_MEM_TABLE, memory([0, u64::MAX, 0, 0]), b'm'),
        (SET_MEM_TABLE, memory([0, 1 << 40, 0, 0]), b'm'),
        (SET_MEM_TABLE, memory([u64::MAX, 4096, 0, 0]), b'm'),
        (SET_MEM_TABLE, memory([0, 0, 0, 0]), b'm'),
        (SET_MEM_TABLE, vec![], b'm'),
        (SET_VRING_NUM, words(&[0, 0]), 0),
        (SET_VRING_NUM, words(&[0, 3]), 0),
        (SET_VRING_NUM, words(&[0, 65_536]), 0),
        (SET_VRING_NUM, words(&[5, 64]), 0),
        (SET_VRING_NUM, words(&[u32::MAX, 64]), 0),
        (SET_VRING_BASE, words(&[0, 65_536]), 0),
        (SET_VRING_KICK, long(0), b'e'),
        (SET_VRING_KICK, long(0), b's'),
        (SET_VRING_KICK, long(0x100), 0),
        (SET_VRING_KICK, long(0), 0),
        (SET_VRING_KICK, long(9), b'e'),
        (SET_VRING_CALL, long(0), b's'),
        (SET_VRING_CALL, long(0), b'm'),
        (SET_VRING_ENABLE, words(&[0, 7]), 0),
        (GET_VRING_BASE, words(&[77, 0]), 0),
    ];
    let mut queues = Queues::new(options());
    queues.joined.guest = None;
    for (number, (request, payload, with)) in messages.into_iter().enumerate() {
        queues.joined.wait_for_leave();
        let refused = queues.joined.port.status().refused;
        let guest = Guest::connected(queues.joined.connect(), options());
        guest.barrier();
        let event = event();
        let fd = match with {
            b'e' => vec![event.as_fd()],
            b's' => vec![socket.as_fd()],
            b'm' => vec![guest.memory.as_fd()],
            _ => vec![],
        };
        guest.say(request, &payload, &fd);
        let mut byte = [0];
        let ended = (&guest.stream).read(&mut byte);
        assert!(
            matches!(ended, Ok(0) | Err(_)),
            "message {number} ({request}) is refused"
        );
        let status = queues.joined.port.status();
        assert_eq!(status.refused, refused + 1, "message {number}: {status:?}");
        assert!(status.problem.is_some_and(|problem| problem.len() > 10));
    }
    queues.joined.join(options());
    queues.assert_passes(0, 1);
    queues.assert_passes(1, 1);
}

#[test]
fn with_acknowledgements_a_refusal_is_an_answer() {
    let mut queues = Queues::new(options());
    let guest = queues.guest();
    guest.number(SET_PROTOCOL_FEATURES, 1 | 1 << 3);
    let needs_reply = |request: u32, payload: &[u8]| {
        let header = [request, 1 | 8, payload.len() as u32];
        let header = header.map(u32::to_le_bytes).concat();
        send_raw(&guest.stream, &[header, payload.to_vec()].concat(), &[]);
        guest.answer().expect("an answer")
    };
    assert_eq!(needs_reply(SET_FEATURES, &(1_u64 << 34).to_le_bytes()), 1);
    assert_eq!(needs_reply(41, &[]), 1);
    let features = guest.options.features;
    assert_eq!(needs_reply(SET_FEATURES, &features.to_le_bytes()), 0);
    queues.assert_passes(0, 1);
}

#[test]
fn random_messages_end_connections_and_nothing_else() {
    let mut joined = Joined::new(Features::ALL, options());
    let arena = Arena::new(ArenaConfig::small()).expect("memory");
    let how = Attach {
        queues: 2,
        ..Attach::default()
    };
    let halves = joined.attach(&how, &arena).expect("it attaches");
    joined.guest = None;
    let mut random = Random::new(47);
    let mut handled = 0;
    for _ in 0..150 {
        let guest = Guest::connected(joined.connect(), options());
        for _ in 0..random.index(12) {
            let request = [5, 2, 8, 9, 10, 11, 12, 13, 18, 31][random.index(10)];
            let length = [8, 8, 8, 40, random.index(70)][random.index(5)];
            let mut payload: Vec<u8> = (0..length).map(|_| random.index(3) as u8).collect();
            if random.index(4) == 0 && !payload.is_empty() {
                let at = random.index(payload.len());
                payload[at] = random.index(256) as u8;
            }
            let fds = vec![guest.memory.as_fd(); random.index(3)];
            guest.say(request, &payload, &fds);
            handled += 1;
        }
        guest.stream.shutdown(Shutdown::Write).unwrap_or(());
        // The port has met it, or turned it away, once it has closed the connection.
        let rest = (&guest.stream).read_to_end(&mut Vec::new());
        let is_late = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!rest.as_ref().is_err_and(is_late), "{rest:?}");
        joined.wait_for_leave();
    }
    assert!(handled > 500);
    joined.join(options());
    drop(halves);
}
