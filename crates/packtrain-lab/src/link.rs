//! Interfaces, addresses and neighbours through rtnetlink, synchronously.
//!
//! An [`Rtnl`] works on the namespace in which it was opened, from any thread.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::num::NonZeroI32;
use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkMessage, NetlinkPayload, Nla,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage,
};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::error::{Feature, LabError, Missing};
use crate::sys;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Bytes for one netlink datagram: the kernel builds answers of at most 32 KiB (`rtnl_dump_ifinfo`
/// caps `min_dump_alloc` there), with room to spare.
const ANSWER_MAX: usize = 64 * 1024;

/// Of requests that make something new, and of those that replace what is there.
const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;
const REPLACE: u16 = NLM_F_CREATE | NLM_F_REPLACE;

/// The queueing discipline of a [line rate](Rtnl::set_line_rate).
const TOKEN_BUCKET: &str = "tbf";
/// What a link has beside a frame: preamble, frame check sequence and gap (IEEE 802.3). The kernel
/// adds it once to a GSO packet, so with TSO the rate is up to 1.6 % higher than that of such a
/// link.
const FRAME_OVERHEAD: u16 = 8 + 4 + 12;
/// Bytes that may leave at once, at least: more than a GSO packet, which would be cut otherwise.
/// Above 1 Gbit/s as many as a millisecond has, for timers that are late.
const LINE_BURST: u32 = 128 * 1024;
/// Bytes that wait at most, more than the send buffers of usual tests: then a socket waits, and
/// nothing is dropped.
const LINE_QUEUE: u32 = 64 * 1024 * 1024;

macro_rules! stats {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// The kernel's counters of an interface (`rtnl_link_stats64`, `/proc/net/dev`).
        ///
        /// Directions are the kernel's: frames that user space writes into a TAP are received. A
        /// TAP counts one packet per frame, also for a GSO frame; bytes include the Ethernet header
        /// and no virtio-net header. In `/proc/net/dev` `rx_dropped` includes `rx_missed_errors`,
        /// and `rx_frame_errors` the length, overrun and CRC errors; a TAP has none of these.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LinkStats {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl LinkStats {
            /// Packets dropped in either direction.
            pub fn dropped(&self) -> u64 {
                self.rx_dropped + self.tx_dropped
            }

            /// The growth since `earlier`, counters wrapping.
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($field: self.$field.wrapping_sub(earlier.$field),)* }
            }
        }
    };
}

stats! {
    /// Packets the kernel received from the interface.
    rx_packets,
    /// Bytes of those, Ethernet header included.
    rx_bytes,
    /// Bad packets received. On a TAP these are frames with an illegal virtio-net header.
    rx_errors,
    /// Good packets dropped on reception, for lack of memory or because the link was down.
    rx_dropped,
    /// Frame errors among `rx_errors`; on a TAP a refused virtio-net header.
    rx_frame_errors,
    /// Packets the kernel transmitted through the interface.
    tx_packets,
    /// Bytes of those, Ethernet header included.
    tx_bytes,
    /// Packets that failed in transmission.
    tx_errors,
    /// Packets dropped before transmission; on a TAP mostly because its ring was full.
    tx_dropped,
}

/// One interface, at the time of the query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// Interface index, unique in its namespace, never 0.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// `IFF_*` flags (`linux/if.h`).
    pub flags: u32,
    /// Maximum transmission unit in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Hardware address; `None` when it is not 6 bytes long (TUN).
    pub mac: Option<Mac>,
    /// Length of the transmit queue in packets; on a TAP the size of its ring.
    pub tx_queue_len: u32,
    /// Transmit queues the device was made with.
    pub tx_queues: u32,
    /// The most segments in a packet that the kernel passes to the device, software segmentation
    /// included.
    pub gso_max_segs: u32,
    /// Queueing discipline; `noop` (which drops everything) as long as the device is not active.
    pub qdisc: String,
    /// A TUN or TAP whose program reads and writes a virtio-net header (`IFF_VNET_HDR`).
    pub vnet_header: bool,
}

impl Link {
    /// Administratively up (`IFF_UP`).
    pub fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// Up and with carrier (`IFF_RUNNING`).
    pub fn is_running(&self) -> bool {
        self.flags & libc::IFF_RUNNING as u32 != 0
    }

    /// Running, also if it was set up again just now: until the kernel has seen that its carrier is
    /// off, `IFF_RUNNING` is that of before.
    pub fn passes_packets(&self) -> bool {
        let carrier = self.flags & LinkFlags::LowerUp.bits() != 0;
        carrier && !self.is_settling()
    }

    /// Has carrier (`IFF_LOWER_UP`), but the kernel has not activated the interface yet. It does so
    /// from a work queue (`linkwatch_event`), up to a second later, and drops sent packets until
    /// then.
    pub fn is_settling(&self) -> bool {
        let carrier = self.flags & LinkFlags::LowerUp.bits() != 0;
        carrier && (!self.is_running() || self.qdisc == "noop")
    }
}

/// A synchronous rtnetlink socket.
pub struct Rtnl {
    socket: Socket,
    sequence: u32,
    answer: Vec<u8>,
}

impl std::fmt::Debug for Rtnl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rtnl")
            .field("fd", &self.socket.as_raw_fd())
            .finish_non_exhaustive()
    }
}

/// Methods that set one attribute of the interface with an index.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($value:ident: $kind:ty), $what:literal, $attribute:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`LabError::Os`]; `EINVAL` if the device does not accept the value.
            pub fn $name(&mut self, index: u32, $value: $kind) -> Result<(), LabError> {
                self.set_attribute(concat!("RTM_SETLINK ", $what), index, $attribute)
            }
        )*
    };
}

impl Rtnl {
    /// Opens a socket in the namespace of the calling thread.
    ///
    /// # Errors
    /// [`LabError::Os`] if netlink sockets are refused.
    pub fn open() -> Result<Self, LabError> {
        let mut socket =
            Socket::new(NETLINK_ROUTE).map_err(LabError::from_io("socket(NETLINK_ROUTE)"))?;
        socket
            .bind_auto()
            .map_err(LabError::from_io("bind(NETLINK_ROUTE)"))?;
        socket
            .connect(&SocketAddr::new(0, 0))
            .map_err(LabError::from_io("connect(NETLINK_ROUTE)"))?;
        Ok(Self {
            socket,
            sequence: 0,
            answer: Vec::with_capacity(ANSWER_MAX),
        })
    }

    /// Every interface of the namespace, in index order of the kernel's dump.
    ///
    /// # Errors
    /// [`LabError::Os`] or [`LabError::Answer`].
    pub fn links(&mut self) -> Result<Vec<Link>, LabError> {
        let request = Message::GetLink(LinkMessage::default());
        let answers = self.request("RTM_GETLINK dump", request, NLM_F_DUMP)?;
        Ok(answers.iter().filter_map(link_of).collect())
    }

    /// The interface called `name`.
    ///
    /// # Errors
    /// [`LabError::Os`] with `ENODEV` if there is none.
    pub fn link(&mut self, name: &str) -> Result<Link, LabError> {
        if name.is_empty() || name.len() > sys::NAME_MAX {
            return Err(LabError::Setting("an interface name has 1 to 15 bytes"));
        }
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.into()));
        self.one_link(message)
    }

    /// The interface with this index.
    ///
    /// # Errors
    /// [`LabError::Os`] with `ENODEV` if there is none.
    pub fn link_by_index(&mut self, index: u32) -> Result<Link, LabError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.one_link(message)
    }

    fn one_link(&mut self, message: LinkMessage) -> Result<Link, LabError> {
        let request = Message::GetLink(message);
        let answers = self.request("RTM_GETLINK", request, NLM_F_ACK)?;
        answers
            .iter()
            .find_map(link_of)
            .ok_or(LabError::Answer("RTM_GETLINK without a link"))
    }

    /// Sets an interface up.
    ///
    /// # Errors
    /// [`LabError::Os`].
    pub fn set_up(&mut self, index: u32) -> Result<(), LabError> {
        self.set_flags(index, LinkFlags::Up, LinkFlags::Up)
    }

    /// Sets an interface down. The kernel then removes its IPv6 addresses and routes.
    ///
    /// # Errors
    /// [`LabError::Os`].
    pub fn set_down(&mut self, index: u32) -> Result<(), LabError> {
        self.set_flags(index, LinkFlags::empty(), LinkFlags::Up)
    }

    /// Switches address resolution on an interface. If it is off (`IFF_NOARP`), the kernel sends
    /// neither ARP nor neighbour discovery there, and no MLD report, since it joins no
    /// solicited-node group. Only permanent [neighbours](Self::add_neighbour) are reached.
    ///
    /// # Errors
    /// [`LabError::Os`].
    pub fn set_arp(&mut self, index: u32, on: bool) -> Result<(), LabError> {
        let flags = if on {
            LinkFlags::empty()
        } else {
            LinkFlags::Noarp
        };
        self.set_flags(index, flags, LinkFlags::Noarp)
    }

    fn set_flags(
        &mut self,
        index: u32,
        flags: LinkFlags,
        change: LinkFlags,
    ) -> Result<(), LabError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = flags;
        message.header.change_mask = change;
        self.act("RTM_SETLINK flags", Message::SetLink(message), 0)
    }

    fn set_attribute(
        &mut self,
        what: &'static str,
        index: u32,
        attribute: LinkAttribute,
    ) -> Result<(), LabError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.push(attribute);
        self.act(what, Message::SetLink(message), 0)
    }

    setters! {
        /// Sets the carrier of the interface, like a cable that is plugged in or pulled. Of the
        /// interfaces made here TAP and TUN support it (`ndo_change_carrier`), others say
        /// `EOPNOTSUPP`.
        set_carrier(on: bool), "carrier", LinkAttribute::Carrier(on.into());

        /// Sets the MTU in bytes, without the Ethernet header. IPv6 needs at least 1280 (RFC 8200
        /// section 5); a TAP takes 68 to 65521.
        set_mtu(mtu: u32), "mtu", LinkAttribute::Mtu(mtu);

        /// Sets the transmit queue length in packets; on a TAP it resizes the ring of every queue.
        set_tx_queue_len(packets: u32), "txqueuelen", LinkAttribute::TxQueueLen(packets);

        /// Sets the most segments in a packet that the kernel passes to the device, 1 to 65535.
        /// Connections that are open keep the limit that they had.
        set_gso_max_segs(segments: u32), "gso_max_segs", LinkAttribute::GsoMaxSegs(segments);

        /// Sets the most bytes of a packet of IPv6 that the kernel passes to the device: up to
        /// 524,280 for a veth (BIG TCP). A value of up to 65,536 is also that of IPv4.
        set_gso_max_size(bytes: u32), "gso_max_size", LinkAttribute::GsoMaxSize(bytes);

        /// The same for IPv4 alone; since Linux 6.3.
        set_gso_ipv4_max_size(bytes: u32), "gso_ipv4_max_size",
            LinkAttribute::GsoIpv4MaxSize(bytes);

        /// Sets the Ethernet address; `EBUSY` from drivers that require the link to be down.
        set_mac(mac: Mac), "address", LinkAttribute::Address(mac.to_vec());

        /// Makes the interface a port of the bridge with that index.
        set_bridge(bridge: u32), "master", LinkAttribute::Controller(bridge);
    }

    /// Gives an interface a line rate, in bytes a second. Its packets wait in a token bucket
    /// (tc-tbf(8)) until it is their turn. They stay in their socket's send buffer meanwhile, so
    /// that a sender waits as it does for a NIC, where a TAP whose ring is full drops.
    ///
    /// # Errors
    /// [`LabError::Missing`] if the kernel has no such queueing discipline, else [`LabError::Os`].
    pub fn set_line_rate(&mut self, index: u32, bytes: u32) -> Result<(), LabError> {
        /// `TC_LINKLAYER_ETHERNET`.
        const ETHERNET: u8 = 1;
        /// `TCA_TBF_PARMS` and `TCA_TBF_BURST` of linux/pkt_sched.h.
        const PARAMETERS: u16 = 1;
        const BURST: u16 = 6;
        // `tc_tbf_qopt`: the rate (`tc_ratespec`), no peak rate, the limit; the burst is apart.
        let mut parameters = vec![0; 36];
        parameters[1] = ETHERNET;
        parameters[2..4].copy_from_slice(&FRAME_OVERHEAD.to_ne_bytes());
        parameters[8..12].copy_from_slice(&bytes.to_ne_bytes());
        parameters[24..28].copy_from_slice(&LINE_QUEUE.to_ne_bytes());
        let options = [
            DefaultNla::new(PARAMETERS, parameters),
            DefaultNla::new(BURST, LINE_BURST.max(bytes / 1000).to_ne_bytes().to_vec()),
        ];
        let mut message = TcMessage::with_index(index.cast_signed());
        message.header.parent = TcHandle::ROOT;
        message.attributes = vec![
            TcAttribute::Kind(TOKEN_BUCKET.to_owned()),
            TcAttribute::Options(options.map(TcOption::Other).into()),
        ];
        let request = Message::NewQueueDiscipline(message);
        let set = self.act("RTM_NEWQDISC tbf", request, REPLACE);
        set.map_err(|error| match error.errno() {
            Some(errno @ libc::ENOENT) => LabError::Missing(Missing {
                feature: Feature::TokenBucket,
                errno,
                hint: "load it (modprobe sch_tbf), or leave the link without a rate",
            }),
            _ => error,
        })
    }

    /// The line rate in force, in bytes a second; `None` without one.
    ///
    /// # Errors
    /// [`LabError::Os`].
    pub fn line_rate(&mut self, index: u32) -> Result<Option<u32>, LabError> {
        let message = TcMessage::with_index(index.cast_signed());
        let request = Message::GetQueueDiscipline(message);
        let answers = self.request("RTM_GETQDISC dump", request, NLM_F_DUMP)?;
        Ok(answers.iter().find_map(|answer| rate_of(answer, index)))
    }

    /// Moves an interface into the namespace of the descriptor `netns`. It loses its addresses and
    /// is set down; its index may change.
    ///
    /// # Errors
    /// [`LabError::Os`].
    pub fn move_to(&mut self, index: u32, netns: impl AsFd) -> Result<(), LabError> {
        let fd = netns.as_fd().as_raw_fd();
        self.set_attribute("RTM_SETLINK netns", index, LinkAttribute::NetNsFd(fd))
    }

    /// Deletes an interface. A veth's peer is deleted with it.
    ///
    /// # Errors
    /// [`LabError::Os`] with `EOPNOTSUPP` for devices that cannot be deleted this way.
    pub fn delete(&mut self, index: u32) -> Result<(), LabError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.act("RTM_DELLINK", Message::DelLink(message), 0)
    }

    /// Creates a veth pair: `name` here, `peer` in the namespace of the descriptor `peer_netns`,
    /// each with `queues` transmit and receive queues, both down.
    ///
    /// # Errors
    /// [`LabError::Os`]: `EEXIST` for a name in use, `EOPNOTSUPP` on a kernel without veth.
    pub fn create_veth(
        &mut self,
        name: &str,
        peer: &str,
        peer_netns: impl AsFd,
        queues: u32,
    ) -> Result<(), LabError> {
        let end = |name: &str| {
            let mut message = LinkMessage::default();
            message.attributes.extend([
                LinkAttribute::IfName(name.into()),
                LinkAttribute::NumTxQueues(queues),
                LinkAttribute::NumRxQueues(queues),
            ]);
            message
        };
        let mut other = end(peer);
        other
            .attributes
            .push(LinkAttribute::NetNsFd(peer_netns.as_fd().as_raw_fd()));
        let mut message = end(name);
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(other))),
        ]));
        self.act("RTM_NEWLINK veth", Message::NewLink(message), NEW)
    }

    /// Creates a bridge without spanning tree, as the kernel makes them, down.
    ///
    /// # Errors
    /// [`LabError::Os`]: `EEXIST` for a name in use, `EOPNOTSUPP` on a kernel without bridges.
    pub fn create_bridge(&mut self, name: &str) -> Result<(), LabError> {
        let mut message = LinkMessage::default();
        message.attributes.extend([
            LinkAttribute::IfName(name.into()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
        ]);
        self.act("RTM_NEWLINK bridge", Message::NewLink(message), NEW)
    }

    /// Adds an address with its on-link prefix route. IPv6 addresses skip duplicate address
    /// detection, so they are usable at once.
    ///
    /// # Errors
    /// [`LabError::Os`]: `EEXIST` if it exists already, `EACCES` or `EOPNOTSUPP` for IPv6
    /// where it is disabled or the MTU is below 1280.
    pub fn add_address(&mut self, index: u32, ip: IpAddr, prefix: u8) -> Result<(), LabError> {
        let mut message = AddressMessage::default();
        message.header.family = family(ip);
        message.header.prefix_len = prefix;
        message.header.index = index;
        if ip.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
            message
                .attributes
                .push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        message
            .attributes
            .extend([AddressAttribute::Address(ip), AddressAttribute::Local(ip)]);
        self.act("RTM_NEWADDR", Message::NewAddress(message), NEW)
    }

    /// Adds a permanent neighbour: the kernel sends to it without ARP or neighbour discovery.
    /// Replaces an entry for the same address.
    ///
    /// # Errors
    /// [`LabError::Os`].
    pub fn add_neighbour(&mut self, index: u32, ip: IpAddr, mac: Mac) -> Result<(), LabError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(ip);
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message.attributes.extend([
            NeighbourAttribute::Destination(match ip {
                IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
                IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
            }),
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
        ]);
        self.act("RTM_NEWNEIGH", Message::NewNeighbour(message), REPLACE)
    }

    /// Whether `ip` is a local address of the namespace. For a new IPv6 address it becomes so a
    /// little later: the kernel adds the local route from a work queue (`addrconf_dad_work`), also
    /// without duplicate address detection.
    ///
    /// # Errors
    /// [`LabError::Os`], `ENETUNREACH` without a route.
    pub fn is_local(&mut self, ip: IpAddr) -> Result<bool, LabError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(ip);
        message.header.destination_prefix_length = if ip.is_ipv4() { 32 } else { 128 };
        message
            .attributes
            .push(RouteAttribute::Destination(route_address(ip)));
        let request = Message::GetRoute(message);
        let answers = self.request("RTM_GETROUTE", request, NLM_F_ACK)?;
        Ok(answers.iter().any(|answer| {
            matches!(answer, Message::NewRoute(route)
                if route.header.kind == RouteType::Local)
        }))
    }

    /// A request whose answer is an acknowledgement only.
    fn act(&mut self, what: &'static str, message: Message, flags: u16) -> Result<(), LabError> {
        self.request(what, message, flags | NLM_F_ACK).map(drop)
    }

    /// Sends one request and gathers the answers up to its acknowledgement or end of dump.
    fn request(
        &mut self,
        what: &'static str,
        message: Message,
        flags: u16,
    ) -> Result<Vec<Message>, LabError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut packet = NetlinkMessage::from(message);
        packet.header.flags = flags | NLM_F_REQUEST;
        packet.header.sequence_number = self.sequence;
        packet.finalize();
        let mut buffer = vec![0; packet.buffer_len()];
        packet.serialize(&mut buffer);
        retry(|| self.socket.send(&buffer, 0)).map_err(LabError::from_io(what))?;

        let mut answers = Vec::new();
        loop {
            let Self { socket, answer, .. } = self;
            answer.clear();
            retry(|| socket.recv(answer, 0)).map_err(LabError::from_io(what))?;
            if read_answers(what, &self.answer, self.sequence, &mut answers)? {
                return Ok(answers);
            }
        }
    }
}

/// Collects the messages of one datagram that answer the request with this number; true if the
/// answer is complete.
fn read_answers(
    what: &'static str,
    mut rest: &[u8],
    sequence: u32,
    answers: &mut Vec<Message>,
) -> Result<bool, LabError> {
    let ended = |code: i32| match code {
        0 => Ok(true),
        code => Err(LabError::Os {
            what,
            errno: code.saturating_abs(),
        }),
    };
    while !rest.is_empty() {
        let message =
            NetlinkMessage::<Message>::deserialize(rest).map_err(|_| LabError::Answer(what))?;
        // Messages are aligned to 4 bytes; a length of 0 would loop for ever.
        let len = (message.header.length as usize).next_multiple_of(4);
        if len == 0 {
            return Err(LabError::Answer(what));
        }
        rest = rest.get(len..).unwrap_or(&[]);
        if message.header.sequence_number != sequence {
            continue;
        }
        match message.payload {
            NetlinkPayload::Error(error) => return ended(error.code.map_or(0, NonZeroI32::get)),
            // A dump that failed in the middle ends with an error, too.
            NetlinkPayload::Done(done) => return ended(done.code),
            NetlinkPayload::InnerMessage(inner) => answers.push(inner),
            NetlinkPayload::Overrun(_) => return Err(LabError::Answer(what)),
            _ => {}
        }
    }
    Ok(false)
}

/// Repeats a call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}

fn route_address(ip: IpAddr) -> RouteAddress {
    match ip {
        IpAddr::V4(ip) => RouteAddress::Inet(ip),
        IpAddr::V6(ip) => RouteAddress::Inet6(ip),
    }
}

fn rate_of(message: &Message, index: u32) -> Option<u32> {
    let Message::NewQueueDiscipline(message) = message else {
        return None;
    };
    let is_kind = |one: &TcAttribute| *one == TcAttribute::Kind(TOKEN_BUCKET.to_owned());
    if message.header.index != index.cast_signed() || !message.attributes.iter().any(is_kind) {
        return None;
    }
    message.attributes.iter().find_map(|one| match one {
        TcAttribute::Options(options) => match options.as_slice() {
            // The parameters come first, behind an attribute's header.
            [TcOption::Other(nested)] => {
                let mut bytes = vec![0; nested.value_len()];
                nested.emit_value(&mut bytes);
                let rate = bytes.get(4 + 8..4 + 12)?;
                Some(u32::from_ne_bytes(rate.try_into().ok()?))
            }
            _ => None,
        },
        _ => None,
    })
}

fn link_of(message: &Message) -> Option<Link> {
    let Message::NewLink(message) = message else {
        return None;
    };
    let mut link = Link {
        index: message.header.index,
        flags: message.header.flags.bits(),
        ..Link::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Address(mac) => link.mac = Mac::try_from(mac.as_slice()).ok(),
            LinkAttribute::TxQueueLen(len) => link.tx_queue_len = *len,
            LinkAttribute::NumTxQueues(queues) => link.tx_queues = *queues,
            LinkAttribute::GsoMaxSegs(segments) => link.gso_max_segs = *segments,
            LinkAttribute::Qdisc(qdisc) => link.qdisc.clone_from(qdisc),
            LinkAttribute::LinkInfo(infos) => link.vnet_header = infos.iter().any(has_vnet_header),
            _ => {}
        }
    }
    Some(link)
}

/// Whether an attribute says that a TUN or TAP has a virtio-net header.
fn has_vnet_header(info: &LinkInfo) -> bool {
    /// `linux/if_link.h`.
    const IFLA_TUN_VNET_HDR: u16 = 5;
    let LinkInfo::Data(InfoData::Tun(list)) = info else {
        return false;
    };
    list.iter().any(|one| {
        let mut value = [0];
        let is_meant = one.kind() == IFLA_TUN_VNET_HDR && one.value_len() == value.len();
        if is_meant {
            one.emit_value(&mut value);
        }
        value != [0]
    })
}

/// Switches off the packets that IPv6 sends by itself, for an interface of the calling thread's
/// namespace, or with `default` for interfaces created there later. No router solicitations, no
/// autoconfigured or link-local address, no duplicate address detection. Without IPv6 in the kernel
/// it has no effect.
///
/// It also enables IPv6: a new namespace may inherit from the host that it is disabled
/// (`net.core.devconf_inherit_init_net`, `net.ipv6.conf.default.disable_ipv6`).
///
/// # Errors
/// [`LabError::Os`] if a setting exists and is refused.
pub fn quiet_ipv6(interface: &str) -> Result<(), LabError> {
    /// `Documentation/networking/ip-sysctl.rst`; `addr_gen_mode` 1 makes no link-local address.
    /// Enabling IPv6 would make one, so that is last.
    const SETTINGS: [(&str, &str); 7] = [
        ("accept_ra", "0"),
        ("autoconf", "0"),
        ("router_solicitations", "0"),
        ("accept_dad", "0"),
        ("dad_transmits", "0"),
        ("addr_gen_mode", "1"),
        ("disable_ipv6", "0"),
    ];
    for (name, value) in SETTINGS {
        match fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/{name}"), value) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LabError::os("write /proc/sys/net/ipv6/conf", &error));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::{DoneMessage, NetlinkHeader};

    #[test]
    fn a_dump_that_fails_half_way_is_no_whole_one() {
        let read = |code| {
            let link = Message::NewLink(LinkMessage::default());
            let mut done = DoneMessage::default();
            done.code = code;
            let mut bytes = Vec::new();
            for payload in [NetlinkPayload::from(link), NetlinkPayload::Done(done)] {
                let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
                message.header.sequence_number = 7;
                message.finalize();
                let start = bytes.len();
                bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
                message.serialize(&mut bytes[start..start + message.buffer_len()]);
            }
            let mut answers = Vec::new();
            let complete = read_answers("a dump", &bytes, 7, &mut answers);
            (complete, answers.len())
        };
        assert_eq!(read(0), (Ok(true), 1));
        let failed = LabError::Os {
            what: "a dump",
            errno: libc::ENOMEM,
        };
        assert_eq!(read(-libc::ENOMEM), (Err(failed), 1));
    }
}
