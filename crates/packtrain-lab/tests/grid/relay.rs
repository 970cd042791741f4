//! A host with a kernel behind a `vhost-user:` port. Its device is a TAP, whose virtio-net header
//! is that of the rings, and a front end relays packets with their headers between both, without
//! a change. So the host's kernel uses the offloads that the port offers, as that of a guest does,
//! and the counters of the TAP are those of the guest's device.

use crate::guest::{
    CTRL_VQ, EVENT_IDX, GET_FEATURES, Guest, INDIRECT, MQ, MRG_RXBUF, OFFLOADS, Options, VERSION_1,
};
use packtrain::driver::Features;
use packtrain::port::vhost::{Vhost, VhostWatch};
use packtrain_lab::LabError;
use packtrain_lab::tap::{self, Tap, VNET_HDR_LEN};
use packtrain_offload::virtio_net::Accept;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, IoSlice, read, write, writev};
use rustix::time::Timespec;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Bytes of a guest's buffer: a large packet takes several.
const BUFFER: u64 = 4096;
/// Room for any packet of a TAP with its header.
const PACKET_BYTES: usize = 66 << 10;
/// Packets of a queue and a direction before the next one has its turn.
const TURN: usize = 64;

/// The device of a host, and a connection to the port, which answers once it is attached.
pub struct Device {
    queues: Vec<OwnedFd>,
    stream: UnixStream,
    watch: VhostWatch,
}

impl Device {
    /// A TAP in the namespace of the calling thread, without offloads yet, and its port.
    pub fn open(name: &str, queues: usize, offload: Features) -> Result<(Self, Vhost), LabError> {
        // Names are those of the namespace, which is the host's.
        let address = SocketAddr::from_abstract_name(name).expect("a name");
        let socket = UnixListener::bind_addr(&address).expect("a socket");
        let stream = UnixStream::connect_addr(&address).expect("it listens");
        let port = Vhost::from_listener(name, socket, queues, offload);
        let port = port.unwrap_or_else(|error| panic!("{name}: {error}"));
        let device = Self {
            queues: Tap::new(name).queues(queues).vnet_hdr(true).open()?,
            stream,
            watch: port.watch(),
        };
        Ok((device, port))
    }

    /// Negotiates all that the port offers, starts the rings, and relays until it is dropped.
    pub fn relay(self) -> Result<Relay, LabError> {
        let pairs = self.queues.len();
        let several = if pairs > 1 { MQ | CTRL_VQ } else { 0 };
        let wanted = VERSION_1 | MRG_RXBUF | INDIRECT | EVENT_IDX | OFFLOADS | several;
        let options = Options {
            pairs,
            buffer: BUFFER,
            ..Options::new(wanted)
        };
        let mut guest = Guest::connected(self.stream, options);
        guest.options.features &= guest.ask(GET_FEATURES);
        let features = guest.options.features;
        assert_eq!(
            features & !OFFLOADS,
            options.features & !OFFLOADS,
            "the rest depends on no offload"
        );
        // What the device takes from its guest, the TAP hands over.
        let takes = Accept::from_host_features(features).tun_flags();
        tap::set_offload(self.queues[0].as_fd(), takes)?;
        guest.set_up();
        if pairs > 1 {
            guest.start(2 * pairs);
            assert_eq!(guest.set_pairs(pairs as u16), 0, "the pairs are used");
        }
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
        let (queues, stopped) = (self.queues, Arc::clone(&stop));
        Ok(Relay {
            features,
            watch: self.watch,
            stop,
            thread: Some(thread::spawn(move || relay(guest, &queues, &stopped))),
        })
    }
}

/// The thread of a front end. It ends when this is dropped.
pub struct Relay {
    /// The negotiated ones.
    pub features: u64,
    /// What the port says of the guest.
    pub watch: VhostWatch,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        write(&self.stop, &1_u64.to_ne_bytes()).expect("an eventfd");
        let ended = self.thread.take().map(JoinHandle::join);
        let is_ok = ended.is_some_and(|ended| ended.is_ok());
        assert!(is_ok || thread::panicking(), "the front end failed");
    }
}

fn relay(mut guest: Guest, queues: &[OwnedFd], stop: &OwnedFd) {
    let mut packet = vec![0; PACKET_BYTES];
    loop {
        for (pair, queue) in queues.iter().enumerate() {
            for _ in 0..TURN {
                if !to_port(&mut guest, pair, queue, &mut packet) {
                    break;
                }
            }
            for _ in 0..TURN {
                if !to_host(&mut guest, pair, queue) {
                    break;
                }
            }
        }
        let pairs = 0..queues.len();
        let has_slot: Vec<_> = pairs.map(|pair| guest.has_slot(2 * pair + 1)).collect();
        let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
        for (pair, queue) in queues.iter().enumerate() {
            let [rx, tx] = [0, 1].map(|half| &guest.rings[2 * pair + half].call);
            let from_host = if has_slot[pair] { queue } else { tx };
            fds.extend([rx, from_host].map(|fd| PollFd::new(fd, PollFlags::IN)));
        }
        // No call announces what was used before the guest asked for one.
        let is_asleep = (0..queues.len()).all(|pair| guest.rings[2 * pair].sleeps);
        let now = Timespec::default();
        poll(&mut fds, (!is_asleep).then_some(&now)).expect("a poll");
        if !fds[0].revents().is_empty() {
            return;
        }
    }
}

/// Relays a packet of the host, if there is one and a slot for it; returns whether.
fn to_port(guest: &mut Guest, pair: usize, queue: &OwnedFd, packet: &mut [u8]) -> bool {
    if !guest.has_slot(2 * pair + 1) {
        return false;
    }
    let bytes = match read(queue, &mut *packet) {
        Err(Errno::AGAIN) => return false,
        bytes => bytes.expect("a packet"),
    };
    let (header, packet) = packet[..bytes].split_at(VNET_HDR_LEN);
    guest.send(pair, header.try_into().expect("a header"), packet)
}

/// Relays a packet to the host, if there is one; returns whether.
fn to_host(guest: &mut Guest, pair: usize, queue: &OwnedFd) -> bool {
    let Some((header, packet)) = guest.receive(pair) else {
        return false;
    };
    let is_plain = header[..2] == [0, 0];
    let offloads = guest.options.features & OFFLOADS;
    assert!(is_plain || offloads != 0, "not negotiated: {header:?}");
    let written = writev(queue, &[&header[..], &packet].map(IoSlice::new)).expect("it takes it");
    assert_eq!(written, header.len() + packet.len());
    true
}
