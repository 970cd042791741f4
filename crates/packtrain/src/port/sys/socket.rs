//! Packet sockets (packet(7)): their options, and one packet for each system call.

#![allow(
    unsafe_code,
    reason = "socket options, control messages and ioctl(2) have no safe wrapper"
)]

use super::link::check;
use super::tun::request;
use crate::driver::Link;
use crate::packet::VlanTag;
use crate::port::vectored::{Filled, Posted};
use crate::port::vnet::{ReadError, WriteError};
use crate::stats::DropReason;
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use std::ffi::{c_int, c_uint};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// `TP_STATUS_VLAN_VALID` and `TP_STATUS_VLAN_TPID_VALID`: the tag, and its protocol.
const TAGGED: u32 = libc::TP_STATUS_VLAN_VALID;
const TAG_PROTOCOL: u32 = libc::TP_STATUS_VLAN_TPID_VALID;
/// The protocol of a tag whose protocol the kernel does not report (before Linux 3.14): 802.1Q.
const CUSTOMER_TAG: u16 = 0x8100;
/// Room for the control message with the aux data, and for a few that an embedder asked for.
const CONTROL_WORDS: usize = 32;
/// The length of the control message with the aux data.
// SAFETY: computes a length.
const AUX_BYTES: usize =
    unsafe { libc::CMSG_LEN(size_of::<libc::tpacket_auxdata>() as c_uint) } as usize;
/// Of a packet that the host itself sends (linux/if_packet.h).
const PACKET_OUTGOING: u32 = 4;
/// Accepts no byte of any packet (`BPF_RET | BPF_K`).
const NOTHING: [libc::sock_filter; 1] = [step(0x06, 0, 0, 0)];
/// Accepts all but what the host itself sends: loads the packet's type (`BPF_LD | BPF_B | BPF_ABS`
/// of `SKF_AD_PKTTYPE`), and compares it (`BPF_JMP | BPF_JEQ | BPF_K`).
const INCOMING: [libc::sock_filter; 4] = [
    step(0x30, 0, 0, (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32),
    step(0x15, 1, 0, PACKET_OUTGOING),
    step(0x06, 0, 0, u32::MAX),
    NOTHING[0],
];

/// Bytes of the header in front of every packet.
const HEADER_BYTES: usize = 10;
/// Packets that wait in a socket, at most: the largest buffer full of short ones.
const DISCARDED_MAX: usize = 1 << 22;

/// Packets that one call reads at most.
pub(in crate::port) const BATCH: usize = 32;

/// An instruction of a filter.
const fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// How packets are distributed over the queues (`PACKET_FANOUT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fanout {
    /// By the flow. The fragments of a datagram have no ports, so they go by their addresses: all
    /// to one queue, which may be another one than that of the flow's other packets.
    #[default]
    Hash,
    /// By the flow, and the kernel reassembles IPv4 fragments before
    /// (`PACKET_FANOUT_FLAG_DEFRAG`). A reassembled datagram is longer than the MTU, so most
    /// egress ports do not take it.
    Defrag,
}

/// One packet socket: a queue. Nothing arrives before it is bound.
#[derive(Debug)]
pub(in crate::port) struct Socket {
    fd: OwnedFd,
    /// Received packets that the kernel could not describe, if a call that sends was told of it:
    /// of all descriptors of the socket.
    undescribed: Arc<AtomicU64>,
}

impl Socket {
    /// A socket of the calling thread's network namespace, of no protocol.
    pub(in crate::port) fn open() -> io::Result<Self> {
        // SAFETY: takes no memory; the result is checked before use.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        // SAFETY: the kernel just made this descriptor for us, and it has no other owner.
        Ok(Self::of(unsafe { OwnedFd::from_raw_fd(check(fd)?) }))
    }

    /// Of a descriptor that may be no packet socket, for what any socket is asked.
    pub(in crate::port) fn of(fd: OwnedFd) -> Self {
        let undescribed = Arc::default();
        Self { fd, undescribed }
    }

    /// Takes over a descriptor of unknown origin, and makes it close-on-exec. `None` if it is no
    /// packet socket with link headers.
    pub(in crate::port) fn from_fd(fd: OwnedFd) -> io::Result<Option<Self>> {
        let socket = Self::of(fd);
        for (option, wanted) in [
            (libc::SO_DOMAIN, libc::AF_PACKET),
            (libc::SO_TYPE, libc::SOCK_RAW),
        ] {
            match socket.get::<c_int>(libc::SOL_SOCKET, option) {
                Ok(found) if found == wanted => {}
                Ok(_other) => return Ok(None),
                Err(error) if error.raw_os_error() == Some(libc::ENOTSOCK) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        fcntl_setfd(&socket.fd, FdFlags::CLOEXEC)?;
        Ok(Some(socket))
    }

    /// A number of the socket's network namespace that no other one has (`SO_NETNS_COOKIE`); `None`
    /// before Linux 5.14.
    pub(in crate::port) fn namespace_cookie(&self) -> Option<u64> {
        self.get(libc::SOL_SOCKET, libc::SO_NETNS_COOKIE).ok()
    }

    /// Another descriptor of the same socket.
    pub(in crate::port) fn try_clone(&self) -> io::Result<Self> {
        let undescribed = Arc::clone(&self.undescribed);
        let fd = self.fd.try_clone()?;
        Ok(Self { fd, undescribed })
    }

    /// Received packets that the kernel could not describe, since the last call, as far as the
    /// error went to a call that sends ([`receive_many`](Self::receive_many)).
    pub(in crate::port) fn undescribed(&self) -> u64 {
        self.undescribed.swap(0, Ordering::Relaxed)
    }

    /// A virtio-net header of 10 bytes in front of every packet, VLAN tags in the aux data, and no
    /// packets that the host itself sends by the interface.
    pub(in crate::port) fn set_up(&self) -> io::Result<()> {
        for option in [
            libc::PACKET_VNET_HDR,
            libc::PACKET_AUXDATA,
            libc::PACKET_IGNORE_OUTGOING,
        ] {
            self.set(libc::SOL_PACKET, option, &1)?;
        }
        Ok(())
    }

    /// Sets the bytes of kernel memory that may wait in the socket, in each direction. Returns how
    /// many received ones may: fewer if the system limits them.
    pub(in crate::port) fn set_buffers(&self, bytes: usize) -> io::Result<usize> {
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        for (force, limited) in [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        ] {
            // Beyond the system's limit, if permitted.
            if self.set(libc::SOL_SOCKET, force, &bytes).is_err() {
                self.set(libc::SOL_SOCKET, limited, &bytes)?;
            }
        }
        // The kernel doubles the value, for its own bookkeeping (socket(7)).
        let doubled: c_int = self.get(libc::SOL_SOCKET, libc::SO_RCVBUF)?;
        Ok(usize::try_from(doubled).unwrap_or(0) / 2)
    }

    /// Sends packets to the device directly, without its queueing discipline.
    pub(in crate::port) fn bypass_qdisc(&self) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1)
    }

    /// Has each system call that receives from the socket, or sends by it, receive up to `packets`
    /// packets from the device, which need no interrupt then (Linux 5.11).
    pub(in crate::port) fn poll_busily(&self, packets: u16) -> io::Result<()> {
        /// Microseconds that a call would wait for packets. One that does not block polls once.
        const WAIT: c_int = 20;
        for (option, value) in [
            (libc::SO_PREFER_BUSY_POLL, 1),
            (libc::SO_BUSY_POLL, WAIT),
            (libc::SO_BUSY_POLL_BUDGET, c_int::from(packets)),
        ] {
            self.set(libc::SOL_SOCKET, option, &value)?;
        }
        Ok(())
    }

    /// Drops every packet before it reaches the socket, without counting it.
    pub(in crate::port) fn refuse_all(&self) -> io::Result<()> {
        self.filter(NOTHING)
    }

    /// Undoes [`refuse_all`](Self::refuse_all).
    pub(in crate::port) fn accept_all(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
    }

    /// Undoes [`refuse_all`](Self::refuse_all), except for packets that the host itself sends.
    pub(in crate::port) fn accept_incoming(&self) -> io::Result<()> {
        self.filter(INCOMING)
    }

    fn filter<const N: usize>(&self, mut program: [libc::sock_filter; N]) -> io::Result<()> {
        let program = libc::sock_fprog {
            len: N as u16,
            filter: program.as_mut_ptr(),
        };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// Whether the socket has a filter: of an embedder, before the port attaches one.
    pub(in crate::port) fn has_filter(&self) -> io::Result<bool> {
        let mut count: libc::socklen_t = 0;
        // `SO_GET_FILTER` is the same number.
        let (fd, option) = (self.fd.as_raw_fd(), libc::SO_ATTACH_FILTER);
        let (none, count_at) = (std::ptr::null_mut(), &raw mut count);
        // SAFETY: with a length of 0 the kernel writes only how many instructions there are.
        let got = check(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, option, none, count_at) });
        match got {
            Ok(_) => Ok(count > 0),
            // Of a filter that was loaded with bpf(2), the kernel does not give the instructions.
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Drops the packets that wait in the socket, and forgets how many it had no room for. Those
    /// that arrive in the meantime may stay.
    pub(in crate::port) fn discard(&self) -> io::Result<()> {
        for _ in 0..DISCARDED_MAX {
            // As much as the header: the kernel refuses a shorter read.
            match recv(&self.fd, &mut [0_u8; HEADER_BYTES], RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => break,
                // One whose offload has no header is dropped as well. An interface that is down
                // is noticed without this report.
                Ok(_) | Err(Errno::INTR | Errno::INVAL | Errno::NETDOWN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.drops().map(drop)
    }

    /// Binds the socket to an interface of its namespace: from now on packets arrive.
    pub(in crate::port) fn bind(&self, index: u32) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: index.cast_signed(),
            ..no_address()
        };
        let bytes = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the kernel reads one address of that size, which lives until the call returns.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), bytes) })?;
        Ok(())
    }

    /// The index of the interface that the socket is bound to; 0 for none, negative once that
    /// interface was removed.
    pub(in crate::port) fn bound_to(&self) -> io::Result<i32> {
        let mut address = no_address();
        let mut bytes = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the kernel writes one address of that size, which lives until the call returns.
        check(unsafe {
            let address = (&raw mut address).cast();
            libc::getsockname(self.fd.as_raw_fd(), address, &raw mut bytes)
        })?;
        Ok(address.sll_ifindex)
    }

    /// Makes a fanout group with this socket as its first member, and returns its number. The
    /// socket is bound.
    pub(in crate::port) fn found_group(&self, fanout: Fanout) -> io::Result<u16> {
        self.join(0, fanout, libc::PACKET_FANOUT_FLAG_UNIQUEID)?;
        let group: c_uint = self.get(libc::SOL_PACKET, libc::PACKET_FANOUT)?;
        Ok(group as u16)
    }

    /// Joins a fanout group of the same interface.
    pub(in crate::port) fn join_group(&self, group: u16, fanout: Fanout) -> io::Result<()> {
        self.join(group, fanout, 0)
    }

    fn join(&self, group: u16, fanout: Fanout, more: c_uint) -> io::Result<()> {
        // The group has a hook of its own, to which the option of the socket does not apply.
        let flags = more | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        let defrag = match fanout {
            Fanout::Hash => 0,
            Fanout::Defrag => libc::PACKET_FANOUT_FLAG_DEFRAG,
        };
        let kind = libc::PACKET_FANOUT_HASH | flags | defrag;
        let value = c_uint::from(group) | kind << 16;
        self.set(libc::SOL_PACKET, libc::PACKET_FANOUT, &value)
    }

    /// Has the interface receive packets for any address, as long as the socket is open.
    pub(in crate::port) fn set_promiscuous(&self, index: u32) -> io::Result<()> {
        let membership = libc::packet_mreq {
            mr_ifindex: index.cast_signed(),
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let option = libc::PACKET_ADD_MEMBERSHIP;
        self.set(libc::SOL_PACKET, option, &membership)
    }

    /// Packets that the socket had no room for, since the last call (`PACKET_STATISTICS`).
    pub(in crate::port) fn drops(&self) -> io::Result<u32> {
        let counts: Counts = self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(counts.drops)
    }

    /// The index of the interface `name` in the socket's namespace.
    pub(in crate::port) fn index_of(&self, name: &str) -> io::Result<u32> {
        let request = self.about_interface(libc::SIOCGIFINDEX, request(name)?)?;
        // SAFETY: every bit pattern is a valid index field, and the kernel wrote this one.
        let index = unsafe { request.ifr_ifru.ifru_ifindex };
        u32::try_from(index).map_err(io::Error::other)
    }

    /// The name of the interface, as it is now.
    pub(in crate::port) fn name_of(&self, index: u32) -> io::Result<String> {
        let request = self.named(index)?;
        let name = request.ifr_name.iter().map(|&c| c as u8);
        let name: Vec<u8> = name.take_while(|&c| c != 0).collect();
        Ok(String::from_utf8_lossy(&name).into_owned())
    }

    /// The type of the interface: `ARPHRD_ETHER` and others (linux/if_arp.h).
    pub(in crate::port) fn type_of(&self, index: u32) -> io::Result<u16> {
        let request = self.about_interface(libc::SIOCGIFHWADDR, self.named(index)?)?;
        // SAFETY: every bit pattern is a valid address, and the kernel wrote this one.
        Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
    }

    /// The MTU of the interface.
    pub(in crate::port) fn mtu_of(&self, index: u32) -> io::Result<u32> {
        let request = self.about_interface(libc::SIOCGIFMTU, self.named(index)?)?;
        // SAFETY: every bit pattern is a valid number, and the kernel wrote this one.
        u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).map_err(io::Error::other)
    }

    /// Has the kernel read and write a request of ethtool about the interface (`SIOCETHTOOL`). The
    /// command is in the first word, and `words` has as many as its structure.
    pub(super) fn ethtool<const N: usize>(
        &self,
        index: u32,
        mut words: [u32; N],
    ) -> io::Result<[u32; N]> {
        let mut request = self.named(index)?;
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        self.about_interface(libc::SIOCETHTOOL, request)?;
        Ok(words)
    }

    /// The link of the interface, in the socket's namespace. It needs no privilege.
    pub(in crate::port) fn link_of(&self, index: u32) -> io::Result<Link> {
        let flags = self.named(index).and_then(|named| {
            let request = self.about_interface(libc::SIOCGIFFLAGS, named)?;
            // SAFETY: every bit pattern is a valid flag field, and the kernel wrote this one.
            Ok(c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
        });
        let wanted = libc::IFF_UP | libc::IFF_RUNNING;
        match flags {
            Ok(flags) if flags & wanted == wanted => Ok(Link::Up),
            Ok(_) => Ok(Link::Down),
            Err(error) if is_gone(&error) => Ok(Link::Removed),
            Err(error) => Err(error),
        }
    }

    /// The link of the interface that the socket is bound to: three system calls.
    pub(in crate::port) fn link(&self) -> io::Result<Link> {
        match u32::try_from(self.bound_to()?) {
            Ok(index) => self.link_of(index),
            Err(_negative) => Ok(Link::Removed),
        }
    }

    /// The MTU of the interface that the socket is bound to: three system calls.
    pub(in crate::port) fn mtu(&self) -> io::Result<u32> {
        let bound = u32::try_from(self.bound_to()?);
        let index = bound.map_err(|_negative| io::Error::from_raw_os_error(libc::ENODEV))?;
        self.mtu_of(index)
    }

    /// Whether the kernel merges what the interface receives before it gives it to sockets (GRO).
    /// It needs no privilege.
    pub(in crate::port) fn merges(&self, index: u32) -> io::Result<bool> {
        /// `ETHTOOL_GGRO` of linux/ethtool.h.
        const GET_GRO: u32 = 0x2b;
        Ok(self.ethtool_value(index, GET_GRO)? != 0)
    }

    /// Whether the device of an interface cuts GSO packets of TCP itself. It needs no privilege.
    pub(in crate::port) fn cuts_tcp(&self, index: u32) -> io::Result<bool> {
        /// `ETHTOOL_GTSO` of linux/ethtool.h.
        const GET_TSO: u32 = 0x1e;
        Ok(self.ethtool_value(index, GET_TSO)? != 0)
    }

    /// Whether the device of the interface that the socket is bound to cuts them still, as it did
    /// when it was opened; true if that is not known.
    pub(in crate::port) fn still_cuts_tcp(&self) -> bool {
        let index = self.bound_to().ok().and_then(|at| u32::try_from(at).ok());
        index.is_none_or(|index| self.cuts_tcp(index).unwrap_or(true))
    }

    /// The answer to a command of ethtool(8) that asks for a number (`struct ethtool_value`).
    fn ethtool_value(&self, index: u32, command: u32) -> io::Result<u32> {
        Ok(self.ethtool(index, [command, 0])?[1])
    }

    fn named(&self, index: u32) -> io::Result<libc::ifreq> {
        let mut wanted = request("")?;
        wanted.ifr_ifru.ifru_ifindex = index.cast_signed();
        self.about_interface(libc::SIOCGIFNAME, wanted)
    }

    fn about_interface(&self, call: u64, mut request: libc::ifreq) -> io::Result<libc::ifreq> {
        let call = call as libc::Ioctl;
        // SAFETY: the kernel reads and writes one `ifreq`, which lives until the call returns.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), call, &raw mut request) })?;
        Ok(request)
    }

    /// The network namespace of the socket, which needs `CAP_NET_ADMIN` there (`SIOCGSKNS`).
    pub(in crate::port) fn namespace(&self) -> io::Result<File> {
        let call = libc::SIOCGSKNS as libc::Ioctl;
        // SAFETY: no memory is passed; the result is checked before use.
        let fd = check(unsafe { libc::ioctl(self.fd.as_raw_fd(), call) })?;
        // SAFETY: the kernel just made this descriptor for us, and it has no other owner.
        Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Reads one packet, header in front, into `buffers`. Returns its bytes, as many as fit, and
    /// the VLAN tag that the kernel took off it.
    pub(in crate::port) fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Result<(usize, Option<VlanTag>), ReadError> {
        let mut control = [0_u64; CONTROL_WORDS];
        // SAFETY: integers, and pointers for which null is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        // `IoSliceMut` is an `iovec` in memory.
        message.msg_iov = buffers.as_mut_ptr().cast();
        message.msg_iovlen = buffers.len() as _;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let (fd, flags) = (self.fd.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: the kernel writes within the buffers, which live until the call returns.
        let bytes = received(|| unsafe { libc::recvmsg(fd, &raw mut message, flags) })?;
        Ok((bytes, tag_of(&message)?))
    }

    /// Reads up to as many packets as there are buffers, at most `N`, one into each, as
    /// [`receive`](Self::receive) does. Calls `each` with the number of a packet, its bytes and its
    /// tag, which is [`DropReason::BadDescriptor`] if it is not known.
    ///
    /// An error behind the first packet is that of the next call (recvmmsg(2)), of this socket or,
    /// if it is sooner, of one that sends.
    #[inline]
    pub(in crate::port) fn receive_many<const N: usize>(
        &self,
        buffers: &mut [[IoSliceMut<'_>; 2]],
        mut each: impl FnMut(usize, usize, Tag),
    ) -> Result<(), ReadError> {
        let mut control = [const { MaybeUninit::<[u64; CONTROL_WORDS]>::uninit() }; N];
        // SAFETY: integers, and pointers for which null is valid.
        let mut messages: [libc::mmsghdr; N] = unsafe { std::mem::zeroed() };
        let count = buffers.len().min(N);
        let both = buffers.iter_mut().zip(&mut control);
        for (message, (buffer, control)) in messages.iter_mut().zip(both) {
            let header = &mut message.msg_hdr;
            // `IoSliceMut` is an `iovec` in memory.
            header.msg_iov = buffer.as_mut_ptr().cast();
            header.msg_iovlen = buffer.len() as _;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = size_of_val(control) as _;
        }
        let (fd, flags) = (self.fd.as_raw_fd(), libc::MSG_DONTWAIT as _);
        let (first, most, no_limit) = (messages.as_mut_ptr(), count as _, std::ptr::null_mut());
        // SAFETY: the kernel writes within that many messages and their buffers, which live until
        // the call returns.
        let call = || unsafe { libc::recvmmsg(fd, first, most, flags, no_limit) };
        let got = received(|| call() as isize)?;
        for (number, message) in messages.iter().enumerate().take(got) {
            let tag = tag_of(&message.msg_hdr).map_err(|_lost| DropReason::BadDescriptor);
            each(number, message.msg_len as usize, tag);
        }
        Ok(())
    }

    /// Sends one packet that is in one piece, header and all.
    pub(in crate::port) fn send(&self, packet: &[u8]) -> Result<(), WriteError> {
        self.apart(|| sent(packet.len(), || send(&self.fd, packet, SendFlags::DONTWAIT)))
    }

    /// Sends one packet of `bytes` bytes in pieces, header and all.
    pub(in crate::port) fn send_pieces(
        &self,
        pieces: &[IoSlice<'_>],
        bytes: usize,
    ) -> Result<(), WriteError> {
        let call = || {
            let mut control = SendAncillaryBuffer::default();
            sendmsg(&self.fd, pieces, &mut control, SendFlags::DONTWAIT)
        };
        self.apart(|| sent(bytes, call))
    }

    /// The result of `send`; of a second one if the first only reported that the interface had been
    /// down, or that a packet had been received that the kernel cannot describe: the socket tells
    /// one of its two halves, whenever that makes its next call, and has sent nothing then.
    fn apart(&self, send: impl Fn() -> Result<(), WriteError>) -> Result<(), WriteError> {
        match send() {
            Err(WriteError::Down) if matches!(self.link(), Ok(Link::Up)) => send(),
            Err(WriteError::Invalid) => {
                let again = send();
                if again != Err(WriteError::Invalid) {
                    self.undescribed.fetch_add(1, Ordering::Relaxed);
                }
                again
            }
            sent => sent,
        }
    }

    fn set<T>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        let bytes = size_of::<T>() as libc::socklen_t;
        let value = std::ptr::from_ref(value).cast();
        let fd = self.fd.as_raw_fd();
        // SAFETY: the kernel reads that many bytes of a value that lives until the call returns.
        check(unsafe { libc::setsockopt(fd, level, option, value, bytes) })?;
        Ok(())
    }

    fn get<T: Plain>(&self, level: c_int, option: c_int) -> io::Result<T> {
        let mut value = T::default();
        let mut bytes = size_of::<T>() as libc::socklen_t;
        let (fd, place) = (self.fd.as_raw_fd(), (&raw mut value).cast());
        // SAFETY: the kernel writes at most that many bytes, and any bytes are a valid `Plain`.
        check(unsafe { libc::getsockopt(fd, level, option, place, &raw mut bytes) })?;
        Ok(value)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The VLAN tag that the kernel took off a packet, or the reason why the packet is lost.
pub(in crate::port) type Tag = Result<Option<VlanTag>, DropReason>;

/// Packets that were read and wait in their frames.
///
/// A call reads several packets while they are small, twice as many each time that it gets all that
/// it asks for. Behind a large packet it reads one: several in a row would come from a farther
/// cache when they are sent.
#[derive(Debug)]
pub(in crate::port) struct Inbox {
    read: Vec<(Filled, Tag)>,
    taken: usize,
    most: usize,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            read: Vec::with_capacity(BATCH),
            taken: 0,
            most: 1,
        }
    }
}

impl Inbox {
    /// Whether packets were read and not taken.
    pub(in crate::port) fn has_more(&self) -> bool {
        self.taken < self.read.len()
    }

    /// The next packet that was read.
    #[inline]
    pub(in crate::port) fn take(&mut self) -> Option<(Filled, Tag)> {
        let next = self.read.get(self.taken).copied();
        self.taken += usize::from(next.is_some());
        next
    }

    /// Reads packets into `posted` when all that were read are taken, at most `wanted`: those that
    /// are not taken would be lost with the port. False when too few frames are posted.
    pub(in crate::port) fn fill(
        &mut self,
        socket: &Socket,
        posted: &mut Posted,
        wanted: usize,
    ) -> Result<bool, ReadError> {
        debug_assert!(!self.has_more());
        self.read.clear();
        self.taken = 0;
        let most = self.most.min(wanted);
        if most > 1 {
            let read = &mut self.read;
            posted.read_many::<BATCH, ReadError>(most, |frames, reading| {
                socket.receive_many::<BATCH>(frames, |number, bytes, tag| {
                    read.push((reading.filled(number, bytes), tag));
                })
            })?;
        } else {
            let mut tag = None;
            let filled = posted.read(|pieces| {
                let (bytes, found) = socket.receive(pieces)?;
                tag = found;
                Ok::<_, ReadError>(bytes)
            })?;
            self.read.extend(filled.map(|filled| (filled, Ok(tag))));
        }
        let is_small = |(filled, _): &(Filled, Tag)| filled.is_small();
        if !self.read.iter().all(is_small) {
            self.most = 1;
        } else if self.read.len() == self.most && posted.reads_many() {
            self.most = BATCH.min(2 * self.most);
        }
        Ok(!self.read.is_empty())
    }
}

/// True if there is no such interface.
pub(in crate::port) fn is_gone(error: &io::Error) -> bool {
    let gone = [libc::ENODEV, libc::ENXIO];
    error
        .raw_os_error()
        .is_some_and(|errno| gone.contains(&errno))
}

/// `tpacket_stats`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Counts {
    packets: c_uint,
    drops: c_uint,
}

/// Values of options: any bytes are one.
trait Plain: Default {}
impl Plain for c_int {}
impl Plain for c_uint {}
impl Plain for u64 {}
impl Plain for Counts {}

fn no_address() -> libc::sockaddr_ll {
    // SAFETY: all of it is integers.
    unsafe { std::mem::zeroed() }
}

/// The result of a call that receives.
fn received(mut call: impl FnMut() -> isize) -> Result<usize, ReadError> {
    loop {
        if let Ok(count) = usize::try_from(call()) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EINTR) => continue,
            Some(libc::EAGAIN) => ReadError::Empty,
            Some(libc::EINVAL) => ReadError::Lost,
            Some(libc::ENETDOWN) => ReadError::Down,
            _ => ReadError::Failed(error),
        });
    }
}

/// The tag in the aux data of a message that was received. Without all of its control messages the
/// packet is lost: whether it has a tag is not known.
fn tag_of(message: &libc::msghdr) -> Result<Option<VlanTag>, ReadError> {
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(ReadError::Lost);
    }
    // SAFETY: walks the control messages that the kernel wrote, by its own macros.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: not null, so it is a whole header within the buffer.
        let header = unsafe { &*next };
        let is_aux =
            (header.cmsg_level, header.cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA);
        if is_aux && header.cmsg_len as usize >= AUX_BYTES {
            // SAFETY: by its length, all of a `tpacket_auxdata` is behind this header.
            let data = unsafe {
                let data = libc::CMSG_DATA(next);
                data.cast::<libc::tpacket_auxdata>().read_unaligned()
            };
            return Ok(tag_in(&data));
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    Ok(None)
}

fn tag_in(data: &libc::tpacket_auxdata) -> Option<VlanTag> {
    let protocol = if data.tp_status & TAG_PROTOCOL == 0 {
        CUSTOMER_TAG
    } else {
        data.tp_vlan_tpid
    };
    (data.tp_status & TAGGED != 0).then_some(VlanTag {
        protocol,
        control: data.tp_vlan_tci,
    })
}

/// The result of a call that sends a packet of `bytes` bytes.
fn sent(bytes: usize, call: impl Fn() -> Result<usize, Errno>) -> Result<(), WriteError> {
    loop {
        let error = match call() {
            Ok(all) if all == bytes => return Ok(()),
            Ok(_partly) => return Err(WriteError::Other),
            Err(error) => error,
        };
        return Err(match error {
            Errno::INTR => continue,
            Errno::AGAIN => WriteError::Busy,
            // Also from the queueing discipline and the device, if they have no room.
            Errno::NOBUFS | Errno::NOMEM => WriteError::NoMemory,
            Errno::NETDOWN => WriteError::Down,
            Errno::NXIO | Errno::NODEV => WriteError::Removed,
            Errno::INVAL => WriteError::Invalid,
            Errno::MSGSIZE => WriteError::Mtu,
            Errno::TOOBIG => WriteError::Bytes,
            _ => WriteError::Other,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(status: u32) -> libc::tpacket_auxdata {
        libc::tpacket_auxdata {
            tp_status: status,
            tp_len: 60,
            tp_snaplen: 60,
            tp_mac: 0,
            tp_net: 14,
            tp_vlan_tci: 0x6007,
            tp_vlan_tpid: 0x88a8,
        }
    }

    #[test]
    fn a_tag_has_the_protocol_that_the_kernel_reports() {
        let tag = |protocol| VlanTag {
            protocol,
            control: 0x6007,
        };
        assert_eq!(tag_in(&data(0)), None);
        assert_eq!(tag_in(&data(TAG_PROTOCOL)), None);
        assert_eq!(tag_in(&data(TAGGED)), Some(tag(0x8100)));
        assert_eq!(tag_in(&data(TAGGED | TAG_PROTOCOL)), Some(tag(0x88a8)));
        // A tag of VLAN 0, which has only a priority, here the lowest.
        let priority = libc::tpacket_auxdata {
            tp_vlan_tci: 0,
            ..data(TAGGED)
        };
        let untagged = tag_in(&priority).map(|tag| (tag.protocol, tag.control));
        assert_eq!(untagged, Some((0x8100, 0)));
    }

    /// A message whose control message with a tag has `bytes` bytes, and the flags `flags`.
    fn tag_in_message(bytes: usize, flags: c_int) -> Result<Option<VlanTag>, ReadError> {
        let mut control = [0_u64; CONTROL_WORDS];
        // SAFETY: integers, and pointers for which null is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = bytes as _;
        message.msg_flags = flags;
        let header = control.as_mut_ptr().cast::<libc::cmsghdr>();
        // SAFETY: the array has room for the header and the data, and is aligned for both.
        unsafe {
            (*header).cmsg_len = bytes as _;
            (*header).cmsg_level = libc::SOL_PACKET;
            (*header).cmsg_type = libc::PACKET_AUXDATA;
            libc::CMSG_DATA(header)
                .cast::<libc::tpacket_auxdata>()
                .write_unaligned(data(TAGGED));
        }
        tag_of(&message)
    }

    #[test]
    fn only_whole_aux_data_is_read() {
        assert!(matches!(tag_in_message(AUX_BYTES, 0), Ok(Some(_))));
        assert!(matches!(tag_in_message(AUX_BYTES - 1, 0), Ok(None)));
        assert!(matches!(
            tag_in_message(AUX_BYTES, libc::MSG_CTRUNC),
            Err(ReadError::Lost)
        ));
    }

    #[test]
    fn each_refusal_of_the_kernel_has_its_reason() {
        for (errno, expected) in [
            (Errno::AGAIN, WriteError::Busy),
            (Errno::NOBUFS, WriteError::NoMemory),
            (Errno::NETDOWN, WriteError::Down),
            (Errno::NXIO, WriteError::Removed),
            (Errno::INVAL, WriteError::Invalid),
            (Errno::MSGSIZE, WriteError::Mtu),
            (Errno::TOOBIG, WriteError::Bytes),
            (Errno::PERM, WriteError::Other),
        ] {
            assert_eq!(sent(60, || Err(errno)), Err(expected), "{errno}");
        }
        assert_eq!(sent(60, || Ok(60)), Ok(()));
        assert_eq!(sent(60, || Ok(59)), Err(WriteError::Other));
        let calls = std::cell::Cell::new(0);
        let interrupted = || {
            calls.set(calls.get() + 1);
            if calls.get() < 3 {
                Err(Errno::INTR)
            } else {
                Ok(60)
            }
        };
        assert_eq!(sent(60, interrupted), Ok(()));
    }

    /// The error of a received packet, of which a call that sends was told.
    #[test]
    fn what_the_other_half_is_owed_costs_no_packet() {
        let socket = Socket::of(File::open("/dev/null").expect("a file").into());
        let twin = socket.try_clone().expect("a descriptor");
        let calls = std::cell::Cell::new(0);
        let once = || match calls.replace(calls.get() + 1) {
            0 => Err(WriteError::Invalid),
            _ => Ok(()),
        };
        assert_eq!(socket.apart(once), Ok(()));
        assert_eq!((calls.get(), twin.undescribed()), (2, 1));
        assert_eq!(
            socket.apart(|| Err(WriteError::Invalid)),
            Err(WriteError::Invalid)
        );
        assert_eq!(twin.undescribed(), 0);
    }

    #[test]
    fn a_descriptor_that_is_no_packet_socket_is_refused() {
        let file = File::open("/dev/null").expect("a file");
        assert!(
            Socket::from_fd(file.into())
                .expect("a descriptor")
                .is_none()
        );
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(Socket::from_fd(udp.into()).expect("a descriptor").is_none());
    }
}
