//! The front end of rust-vmm's crate `vhost`, which monitors of virtual machines use: it reads the
//! protocol in its own way, beside QEMU, DPDK and [`Guest`]. The memory and the rings are those of
//! [`Guest`].

use crate::guest::*;
use crate::life::wakes;
use crate::{Queues, frame};
use packtrain::driver::{Armed, Driver, Link};
use packtrain::stats::DropReason;
use std::fmt::Debug;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Error, Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

const PAIRS: usize = 2;
const RINGS: usize = 2 * PAIRS;
const FEATURES: u64 =
    VERSION_1 | MRG_RXBUF | EVENT_IDX | INDIRECT | OFFLOADS | MQ | CTRL_VQ | PROTOCOL;
/// Packed rings, which are not built.
const PACKED: u64 = 1 << 34;

/// The descriptor of an event, for the guest. The crate has no owned one without unsafe code.
fn duplicate(event: &EventFd) -> OwnedFd {
    let (from, to) = UnixStream::pair().expect("two sockets");
    from.send_with_fd(&[0_u8][..], event.as_raw_fd())
        .expect("it is sent");
    let (_, file) = to.recv_with_fd(&mut [0]).expect("it is received");
    file.map(File::into).expect("a descriptor")
}

/// That the port has refused a message, and said so.
fn assert_refused<T: Debug>(result: vhost::Result<T>) {
    let refused = vhost::Error::VhostUserProtocol(Error::BackendInternalError);
    let result = result.expect_err("it is refused");
    assert_eq!(format!("{result:?}"), format!("{refused:?}"));
}

/// A front end that has negotiated. Each of its messages waits for an acknowledgement.
fn connect(guest: &mut Guest, stream: UnixStream) -> Frontend {
    guest.stream = stream;
    let stream = guest.stream.try_clone().expect("a descriptor");
    let mut frontend = Frontend::from_stream(stream, RINGS as u64);
    let offered = frontend.get_features().expect("features");
    assert_eq!(offered & FEATURES, FEATURES, "{offered:#x}");
    assert_eq!(offered & PACKED, 0, "{offered:#x}");
    frontend.set_owner().expect("an owner");
    let protocol = frontend.get_protocol_features().expect("features");
    let expected = VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK;
    assert_eq!(protocol, expected);
    frontend
        .set_protocol_features(protocol)
        .expect("it is taken");
    frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    assert_refused(frontend.set_features(FEATURES | PACKED));
    frontend.set_features(FEATURES).expect("it is taken");
    let (guest_phys_addr, memory_size, userspace_addr, mmap_offset) = guest.region();
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr,
        memory_size,
        userspace_addr,
        mmap_offset,
        mmap_handle: guest.memory.as_raw_fd(),
    };
    frontend.set_mem_table(&[region]).expect("it is taken");
    frontend
}

/// Starts a ring at the chain with the index `base`. It stays as enabled as it was.
fn start(frontend: &Frontend, guest: &mut Guest, ring: usize, base: u16) {
    let size = guest.options.size;
    let [desc_table_addr, used_ring_addr, avail_ring_addr] = guest.parts(ring);
    let config = VringConfigData {
        queue_max_size: size,
        queue_size: size,
        desc_table_addr,
        used_ring_addr,
        avail_ring_addr,
        ..VringConfigData::default()
    };
    frontend.set_vring_num(ring, size).expect("a size");
    frontend.set_vring_base(ring, base).expect("a base");
    frontend.set_vring_addr(ring, &config).expect("addresses");
    let [kick, call, error] =
        [(); 3].map(|()| EventFd::new(libc::EFD_NONBLOCK).expect("an eventfd"));
    frontend.set_vring_err(ring, &error).expect("it is taken");
    frontend.set_vring_call(ring, &call).expect("it is taken");
    frontend.set_vring_kick(ring, &kick).expect("it is taken");
    (guest.rings[ring].kick, guest.rings[ring].call) = (duplicate(&kick), duplicate(&call));
}

fn enable(frontend: &mut Frontend, rings: impl IntoIterator<Item = usize>, enabled: bool) {
    for ring in rings {
        frontend
            .set_vring_enable(ring, enabled)
            .expect("it is taken");
    }
}

/// A port whose first guest has left, and the guest that comes next.
fn queues() -> (Queues, Guest) {
    let options = Options::with_pairs(FEATURES, PAIRS);
    let mut queues = Queues::new(options);
    queues.joined.guest = None;
    leaves(&mut queues);
    let stream = queues.joined.connect();
    (queues, Guest::connected(stream, options))
}

fn leaves(queues: &mut Queues) {
    queues.joined.wait_for_leave();
    assert_eq!(queues.joined.port.link(), Link::Down);
}

/// Frames pass in all pairs, both ways. The port hears kicks, and the guest calls.
fn assert_all_pass(queues: &mut Queues, number: u8) {
    assert_eq!(queues.joined.port.link(), Link::Up);
    for pair in 0..PAIRS {
        queues.assert_passes(pair, number);
        assert!(queues.poll(pair).is_empty());
    }
    assert_eq!(queues.rx[0].arm(), Armed::Idle);
    assert!(!wakes(queues), "nothing is there");
    let sent = frame(number, 90);
    queues.give(0, &sent);
    assert!(wakes(queues), "the guest kicked");
    assert_eq!(queues.poll(0), [sent]);
}

#[test]
fn rings_of_rust_vmm_carry_packets_once_they_are_enabled() {
    let (mut queues, mut guest) = queues();
    let stream = guest.stream.try_clone().expect("a descriptor");
    let mut frontend = connect(&mut guest, stream);
    for ring in 0..RINGS {
        start(&frontend, &mut guest, ring, 0);
    }
    queues.joined.guest = Some(guest);
    (0..PAIRS).for_each(|pair| queues.guest().post_all(2 * pair));
    // The features of the protocol are negotiated, so rings start disabled.
    assert_eq!(queues.joined.port.link(), Link::Down);
    queues.send(0, &frame(1, 60));
    assert_eq!(queues.tx_dropped(DropReason::LinkDown), 1);
    enable(&mut frontend, 0..RINGS, true);
    assert_all_pass(&mut queues, 2);
    // A ring that is disabled: what the guest sends there is lost, as without a link.
    enable(&mut frontend, [3], false);
    let lost = frame(3, 60);
    queues.give(1, &lost);
    assert!(queues.poll(1).is_empty());
    assert_eq!(queues.rx_dropped(DropReason::LinkDown), 1);
    queues.assert_passes(0, 4);
    enable(&mut frontend, [3], true);
    assert_all_pass(&mut queues, 5);
    // A ring that is not there, which the crate lets through.
    assert_refused(Frontend::set_vring_num(&wider(&mut queues), RINGS + 1, 128));
    assert_all_pass(&mut queues, 6);
}

/// A front end for the same connection that has more rings.
fn wider(queues: &mut Queues) -> Frontend {
    let stream = queues.guest().stream.try_clone().expect("a descriptor");
    let mut frontend = Frontend::from_stream(stream, 2 * RINGS as u64);
    frontend.get_features().expect("features");
    let protocol = VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK;
    frontend
        .set_protocol_features(protocol)
        .expect("it is taken");
    frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    frontend
}

#[test]
fn rings_of_rust_vmm_stop_and_go_on_also_over_a_new_connection() {
    let (mut queues, mut guest) = queues();
    let stream = guest.stream.try_clone().expect("a descriptor");
    let mut frontend = connect(&mut guest, stream);
    // Enabled before they are started.
    enable(&mut frontend, 0..RINGS, true);
    for ring in 0..RINGS {
        start(&frontend, &mut guest, ring, 0);
    }
    queues.joined.guest = Some(guest);
    (0..PAIRS).for_each(|pair| queues.guest().post_all(2 * pair));
    assert_all_pass(&mut queues, 1);
    for round in 2..4 {
        for ring in 0..RINGS {
            let base = frontend.get_vring_base(ring).expect("a base");
            let used = queues.guest().used(ring);
            assert_eq!(base, u32::from(used), "all taken chains are used");
            assert!(used > 0, "ring {ring} was in use");
        }
        assert_eq!(queues.joined.port.link(), Link::Down);
        if round == 3 {
            drop(frontend);
            // The other descriptor of the connection.
            let (gone, _) = UnixStream::pair().expect("two sockets");
            queues.guest().stream = gone;
            leaves(&mut queues);
            let stream = queues.joined.connect();
            frontend = connect(queues.guest(), stream);
            enable(&mut frontend, 0..RINGS, true);
        }
        for ring in 0..RINGS {
            let base = queues.guest().used(ring);
            start(&frontend, queues.guest(), ring, base);
        }
        assert_all_pass(&mut queues, round);
    }
    // Of pairs, as for QEMU and DPDK. The crate takes it for that of rings.
    assert_eq!(frontend.get_queue_num().expect("a number"), PAIRS as u64);
    enable(&mut frontend, 0..PAIRS, true);
    let refused = frontend.set_vring_enable(PAIRS, true);
    refused.expect_err("the crate has no more");
    assert_all_pass(&mut queues, 4);
    // Two to set up the port, and two of the crate.
    assert_eq!(queues.joined.port.status().connections, 4);
    assert_eq!(queues.rx_drops.snapshot().total(), 0);
    assert_eq!(queues.tx_drops.snapshot().total(), 0);
}
