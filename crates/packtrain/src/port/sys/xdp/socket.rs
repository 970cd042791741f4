//! AF_XDP sockets: their options and rings, in the order that the kernel asks for.

pub(super) use super::ring::Descriptor;
use super::ring::{Consumer, Places, Producer};
use crate::limits::SMALL_FRAME_BYTES;
use crate::port::sys::socket::Socket as AnySocket;
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpRingOffset,
    XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
    sockopt,
};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Options of a descriptor: further ones of the same packet follow; metadata is in front.
pub(super) const CONTINUED: u32 = libc::XDP_PKT_CONTD;
pub(super) const METADATA: u32 = libc::XDP_TX_METADATA;

/// Bytes of the metadata in front of a packet: `struct xsk_tx_metadata` up to the checksum.
pub(super) const METADATA_BYTES: usize = 16;

/// The metadata that asks for the checksum of the bytes from `start` on, to be stored `offset`
/// bytes behind it.
pub(super) fn checksum_metadata(start: u16, offset: u16) -> [u8; METADATA_BYTES] {
    let mut bytes = [0; METADATA_BYTES];
    let flags = u64::from(libc::XDP_TXMD_FLAGS_CHECKSUM);
    bytes[..8].copy_from_slice(&flags.to_ne_bytes());
    bytes[8..10].copy_from_slice(&start.to_ne_bytes());
    bytes[10..12].copy_from_slice(&offset.to_ne_bytes());
    bytes
}

/// The memory of packets: frames of one size.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// The addresses of the frames.
    pub(super) frames: Range<usize>,
    pub(super) frame_bytes: u32,
    /// Bytes that the kernel leaves free in each frame in addition.
    pub(super) headroom: u32,
    /// Room for metadata in front of each packet.
    pub(super) metadata: bool,
}

/// The four rings of a socket.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) fill: Producer<u64>,
    pub(super) completion: Consumer<u64>,
    pub(super) rx: Consumer<Descriptor>,
    pub(super) tx: Producer<Descriptor>,
}

/// What a kernel knows of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Packets in several frames (Linux 6.6).
    pub(super) several: bool,
    /// Metadata in front of packets to send (Linux 6.11).
    pub(super) metadata: bool,
}

/// An AF_XDP socket.
///
/// Its mapped rings keep it alive as well as its descriptor: the kernel frees the queue when both
/// are gone.
#[derive(Debug)]
pub(in crate::port) struct Socket(OwnedFd);

impl Socket {
    /// A socket of the calling thread's network namespace.
    pub(super) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Self(socket_with(
            AddressFamily::XDP,
            SocketType::RAW,
            flags,
            None,
        )?))
    }

    /// Takes over a descriptor of unknown origin, and makes it close-on-exec. `None` if it is no
    /// AF_XDP socket.
    pub(super) fn from_fd(fd: OwnedFd) -> io::Result<Option<Self>> {
        match sockopt::socket_domain(&fd) {
            Ok(AddressFamily::XDP) => {}
            Ok(_) | Err(Errno::NOTSOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
        Ok(Some(Self(fd)))
    }

    /// Of any descriptor.
    #[cfg(test)]
    pub(super) const fn of(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// What the kernel knows, by requests that change nothing: it looks at their flags first, and
    /// then finds that there is no such memory or interface. An error of
    /// [`ResourceBusy`](io::ErrorKind::ResourceBusy) if the socket has memory, or is bound.
    pub(super) fn known(&self) -> io::Result<Known> {
        /// Aligned for every page size of Linux, at the end of all addresses, which is the
        /// kernel's.
        const BYTES: usize = 65_536;
        const START: usize = usize::MAX - (2 * BYTES - 1);
        let nowhere = Memory {
            frames: START..START + BYTES,
            frame_bytes: SMALL_FRAME_BYTES as u32,
            headroom: 0,
            metadata: true,
        };
        let metadata = match self.register(&nowhere) {
            Ok(()) => return Err(io::ErrorKind::ResourceBusy.into()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Err(error),
            Err(error) => error.kind() != io::ErrorKind::InvalidInput,
        };
        // A socket that is tied to an interface (SO_BINDTODEVICE) is not asked about another one.
        let answer = self.bind(0, 0, libc::XDP_COPY | libc::XDP_USE_SG);
        let answer = answer.map_err(|error| error.raw_os_error());
        Ok(Known {
            several: metadata || answer == Err(Some(libc::ENODEV)),
            metadata,
        })
    }

    /// Sets how many bytes of packets the kernel may copy and not have sent yet. Fewer if the
    /// process may not exceed the system's limit.
    pub(super) fn set_buffer(&self, bytes: usize) -> io::Result<()> {
        let forced = sockopt::set_socket_send_buffer_size_force(&self.0, bytes);
        forced.or_else(|_limited| sockopt::set_socket_send_buffer_size(&self.0, bytes))?;
        Ok(())
    }

    /// Has each system call for the socket receive up to `packets` packets from the device.
    pub(super) fn poll_busily(&self, packets: u16) -> io::Result<()> {
        AnySocket::of(self.0.try_clone()?).poll_busily(packets)
    }

    /// Registers the memory, which the kernel pins until the socket is closed.
    pub(super) fn register(&self, memory: &Memory) -> io::Result<()> {
        let (flags, bytes) = match memory.metadata {
            true => (libc::XDP_UMEM_TX_METADATA_LEN, METADATA_BYTES as u32),
            false => (0, 0),
        };
        let registration = XdpUmemReg {
            addr: memory.frames.start as u64,
            len: memory.frames.len() as u64,
            chunk_size: memory.frame_bytes,
            headroom: memory.headroom,
            flags: XdpUmemRegFlags::from_bits_retain(flags),
            tx_metadata_len: bytes,
        };
        Ok(sockopt::set_xdp_umem_reg(&self.0, registration)?)
    }

    /// Makes rings of `count` entries each, a power of two.
    pub(super) fn size_rings(&self, count: u32) -> io::Result<()> {
        sockopt::set_xdp_umem_fill_ring_size(&self.0, count)?;
        sockopt::set_xdp_umem_completion_ring_size(&self.0, count)?;
        sockopt::set_xdp_rx_ring_size(&self.0, count)?;
        sockopt::set_xdp_tx_ring_size(&self.0, count)?;
        Ok(())
    }

    /// Maps the rings of [`size_rings`](Self::size_rings).
    pub(super) fn map_rings(&self, count: u32) -> io::Result<Rings> {
        let offsets = sockopt::xdp_mmap_offsets(&self.0)?;
        let fd = self.0.as_fd();
        let [fill, completion, rx, tx] =
            [offsets.fr, offsets.cr, offsets.rx, offsets.tx].map(places);
        Ok(Rings {
            fill: Producer::map(fd, XDP_UMEM_PGOFF_FILL_RING, fill?, count)?,
            completion: Consumer::map(fd, XDP_UMEM_PGOFF_COMPLETION_RING, completion?, count)?,
            rx: Consumer::map(fd, XDP_PGOFF_RX_RING, rx?, count)?,
            tx: Producer::map(fd, XDP_PGOFF_TX_RING, tx?, count)?,
        })
    }

    /// Binds the socket to a queue of an interface, as the owner of the memory.
    pub(super) fn bind(&self, interface: u32, queue: u32, flags: u16) -> io::Result<()> {
        let flags = SocketAddrXdpFlags::from_bits_retain(flags);
        Ok(bind(&self.0, &SocketAddrXdp::new(flags, interface, queue))?)
    }

    /// Binds the socket to a further queue. It shares the memory, and the mode, of `owner`.
    pub(super) fn bind_shared(
        &self,
        interface: u32,
        queue: u32,
        owner: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
        let address = SocketAddrXdpWithSharedUmem {
            addr: SocketAddrXdp::new(flags, interface, queue),
            shared_umem_fd: owner,
        };
        Ok(bind(&self.0, &address)?)
    }

    /// Has the kernel send the packets of the TX ring: some of them, if it copies.
    pub(super) fn wake_tx(&self) -> Result<(), Errno> {
        send(&self.0, &[], SendFlags::DONTWAIT).map(drop)
    }

    /// Has the kernel take the frames of the fill ring.
    pub(super) fn wake_rx(&self) -> Result<(), Errno> {
        recv(&self.0, &mut [0_u8; 0], RecvFlags::DONTWAIT).map(drop)
    }

    /// Packets for this socket that the kernel dropped since it was bound: it had no frame, or no
    /// room in the RX ring.
    pub(in crate::port) fn lost(&self) -> io::Result<u64> {
        let counts = sockopt::xdp_statistics(&self.0)?;
        Ok(counts.rx_dropped + counts.rx_ring_full.unwrap_or(0))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The places of a ring. Linux before 5.4 has none for the flags.
fn places(offsets: XdpRingOffset) -> io::Result<Places> {
    let flags = offsets.flags.ok_or(io::ErrorKind::Unsupported)?;
    let [producer, consumer, flags, entries] =
        [offsets.producer, offsets.consumer, flags, offsets.desc].map(|offset| offset as usize);
    Ok(Places {
        producer,
        consumer,
        flags,
        entries,
    })
}
