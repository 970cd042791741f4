//! Thin safe wrappers over the system calls that neither std nor nix has. All `unsafe` of this
//! crate.

#![allow(
    unsafe_code,
    reason = "system calls without a std wrapper; each call is fenced here"
)]

use std::io::{self, IoSliceMut};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{c_int, c_uint, c_void, socklen_t};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

/// Longest interface name, without the terminating zero (`IFNAMSIZ` is 16).
pub(crate) const NAME_MAX: usize = libc::IFNAMSIZ - 1;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// A request about the interface `name`, at most [`NAME_MAX`] bytes.
fn named_request(name: &str) -> io::Result<libc::ifreq> {
    if name.is_empty() || name.len() > NAME_MAX || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: ifreq is plain old data, all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok(request)
}

/// `TUNSETIFF`: creates or attaches to the TUN/TAP interface `name`. At most [`NAME_MAX`] bytes.
pub(crate) fn tun_set_iff(fd: BorrowedFd<'_>, name: &str, flags: c_int) -> io::Result<()> {
    let mut request = named_request(name)?;
    // The field is 16 bits wide in the kernel's ABI too.
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which `request` is, alive during the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) }).map(drop)
}

/// `TUNSETVNETHDRSZ`: bytes of virtio-net header before every frame.
pub(crate) fn tun_set_vnet_hdr_len(fd: BorrowedFd<'_>, len: c_int) -> io::Result<()> {
    // SAFETY: TUNSETVNETHDRSZ reads one int through the pointer, which outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &raw const len) })
        .map(drop)
}

/// `TUNSETOFFLOAD`: which offloads the reader of this device accepts (`TUN_F_*`).
pub(crate) fn tun_set_offload(fd: BorrowedFd<'_>, mask: c_uint) -> io::Result<()> {
    // SAFETY: the mask is passed by value; no pointer is involved.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::TUNSETOFFLOAD as _,
            libc::c_ulong::from(mask),
        )
    })
    .map(drop)
}

/// `TUNSETPERSIST`: the interface stays when its last descriptor is closed.
pub(crate) fn tun_set_persistent(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the switch is passed by value; no pointer is involved.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETPERSIST as _, 1 as libc::c_ulong) })
        .map(drop)
}

/// `TUNGETFEATURES`: the flags (`IFF_*`) that the TUN/TAP driver knows. The descriptor need not be
/// attached to an interface.
pub(crate) fn tun_features(fd: BorrowedFd<'_>) -> io::Result<c_int> {
    let mut flags: c_int = 0;
    // SAFETY: TUNGETFEATURES writes one int through the pointer, which outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNGETFEATURES as _, &raw mut flags) })?;
    Ok(flags)
}

/// Makes an io_uring with one entry, and closes it.
pub(crate) fn try_io_uring() -> io::Result<()> {
    // `struct io_uring_params`, all zero: no flags.
    let mut parameters = [0u64; 15];
    // SAFETY: the kernel reads and writes one io_uring_params of 120 bytes, which is what
    // `parameters` has, aligned for its widest field.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    own(fd).map(drop)
}

/// Loads an XDP program of two instructions (`return XDP_PASS`), attaches it to nothing, and
/// closes it.
pub(crate) fn try_xdp_program() -> io::Result<()> {
    /// The start of `union bpf_attr` for `BPF_PROG_LOAD`; the kernel takes the rest as zero.
    #[repr(C)]
    struct Load {
        kind: u32,
        instructions: u32,
        code: u64,
        license: u64,
    }
    const PROG_LOAD: c_int = 5;
    const PROG_TYPE_XDP: u32 = 6;
    /// `r0 = 2; exit`, in the encoding of linux/bpf.h: opcode, registers, offset, immediate.
    const CODE: [[u8; 8]; 2] = if cfg!(target_endian = "little") {
        [[0xb7, 0, 0, 0, 2, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]]
    } else {
        [[0xb7, 0, 0, 0, 0, 0, 0, 2], [0x95, 0, 0, 0, 0, 0, 0, 0]]
    };
    let load = Load {
        kind: PROG_TYPE_XDP,
        instructions: 2,
        code: CODE.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
    };
    // SAFETY: the kernel reads `Load` bytes of `load`, and through it the code and a C string,
    // which are constants. It writes nothing: no log was asked for.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const load, size_of::<Load>()) };
    own(fd).map(drop)
}

/// Binds an AF_XDP socket to the first queue of the interface in copy mode, and closes it.
pub(crate) fn try_xdp_copy(fd: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    /// One chunk of packet memory, aligned for every page size of Linux.
    #[repr(C, align(65536))]
    struct Area([u8; 65536]);
    const CHUNK: u32 = 4096;
    /// The least number of descriptors that is not one.
    const DESCRIPTORS: c_int = 2;
    let area = Box::new(Area([0; 65536]));
    let memory = libc::xdp_umem_reg {
        addr: area.0.as_ptr() as u64,
        len: size_of::<Area>() as u64,
        chunk_size: CHUNK,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    // The kernel pins the pages until the socket is closed. It never writes to them: no program
    // steers a packet to the socket.
    set_option(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &memory)?;
    for ring in [
        libc::XDP_UMEM_FILL_RING,
        libc::XDP_UMEM_COMPLETION_RING,
        libc::XDP_RX_RING,
        libc::XDP_TX_RING,
    ] {
        set_option(fd, libc::SOL_XDP, ring, &DESCRIPTORS)?;
    }
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_COPY,
        sxdp_ifindex: interface,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    // SAFETY: pointer and length describe `address`, which the kernel only reads.
    check(unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_xdp>() as socklen_t,
        )
    })
    .map(drop)
}

/// The most instructions of [`filter_getppid`]: `BPF_MAXINSNS` less its own.
pub(crate) const FILTER_INSTRUCTIONS_MAX: u16 = 4096 - 4;

/// Makes `getppid` of the calling thread pass a seccomp filter of so many instructions, which
/// permits it. The thread keeps the filter until it ends.
pub(crate) fn filter_getppid(instructions: u16) -> io::Result<()> {
    let instruction = |code: u32, k, jt| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    let allow = instruction(libc::BPF_RET, libc::SECCOMP_RET_ALLOW, 0);
    // The data begin with the call's number. For the other calls the kernel runs no filter: it
    // notes once that they are permitted (`seccomp_is_const_allow`), which an addition prevents.
    let mut code = vec![
        instruction(libc::BPF_LD | libc::BPF_ABS, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ, libc::SYS_getppid as u32, 1),
        allow,
    ];
    code.extend((0..instructions).map(|_| instruction(libc::BPF_ALU, 1, 0)));
    code.push(allow);
    let program = libc::sock_fprog {
        len: code.len() as u16,
        filter: code.as_mut_ptr(),
    };
    rustix::thread::set_no_new_privs(true)?;
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: `program` points at `len` instructions, alive during the call, which copies them.
    let set = unsafe {
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program)
    };
    check(set as c_int).map(drop)
}

/// The descriptor that a system call returned, or its error.
fn own(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = c_int::try_from(result).map_err(io::Error::other)?;
    let fd = check(fd)?;
    // SAFETY: the kernel has just made this descriptor for us, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A packet socket that sends whole frames through an interface of the calling thread's namespace,
/// and receives none.
pub(crate) fn frame_socket(interface: u32) -> io::Result<OwnedFd> {
    packet_socket(interface, 0, 0)
}

/// A non-blocking packet socket that sends whole frames through an interface of the calling
/// thread's namespace, and receives those that arrive there. In front of each is a virtio-net
/// header of 10 bytes (`PACKET_VNET_HDR`).
pub(crate) fn vnet_socket(interface: u32) -> io::Result<OwnedFd> {
    let socket = packet_socket(interface, libc::ETH_P_ALL as u16, libc::SOCK_NONBLOCK)?;
    for option in [libc::PACKET_VNET_HDR, libc::PACKET_IGNORE_OUTGOING] {
        set_option(socket.as_fd(), libc::SOL_PACKET, option, &(1 as c_int))?;
    }
    Ok(socket)
}

/// Frames that a packet socket had no room for, since the last call.
pub(crate) fn packet_socket_drops(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut counts = [0 as c_uint; 2];
    let mut len = size_of_val(&counts) as socklen_t;
    // SAFETY: PACKET_STATISTICS writes one tpacket_stats, two integers, at most `len` bytes.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            counts.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    Ok(counts[1].into())
}

fn packet_socket(interface: u32, protocol: u16, flags: c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags;
    // SAFETY: no pointer is involved. Without a protocol it receives nothing before it is bound.
    let socket = own(unsafe { libc::socket(libc::AF_PACKET, kind, 0) }.into())?;
    // SAFETY: sockaddr_ll is plain old data, all zeroes is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface.cast_signed();
    // SAFETY: pointer and length describe `address`, which the kernel only reads.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as socklen_t,
        )
    })?;
    Ok(socket)
}

fn set_option<T>(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, which outlives the call; the kernel only reads
    // it, and callers pass plain old data (int or timeval).
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast::<c_void>(),
            size_of::<T>() as socklen_t,
        )
    })
    .map(drop)
}

/// `TCP_INFO`'s `tcpi_total_retrans`: segments retransmitted over the life of the connection.
pub(crate) fn tcp_retransmits(fd: impl AsFd) -> io::Result<u64> {
    // SAFETY: tcp_info is plain old data, all zeroes is a valid value.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `info`.
    check(unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast::<c_void>(),
            &raw mut len,
        )
    })?;
    Ok(u64::from(info.tcpi_total_retrans))
}

/// Receives into `buffer` from a socket with `UDP_GRO` on. Returns the bytes received and the
/// payload size of each datagram in them (the last may be shorter), which is the length itself
/// when the kernel joined nothing. A datagram that does not fit is cut. `control` is
/// `cmsg_space!(i32)`.
pub(crate) fn receive_gro(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    control: &mut [u8],
) -> io::Result<(usize, usize)> {
    let mut pieces = [IoSliceMut::new(buffer)];
    let message = recvmsg::<()>(
        fd.as_raw_fd(),
        &mut pieces,
        Some(control),
        MsgFlags::empty(),
    )?;
    let size = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
        _ => None,
    });
    let size = size.filter(|size| *size > 0);
    Ok((message.bytes, size.unwrap_or(message.bytes)))
}

/// Messages of a datagram socket that are sent or received with one call, each in a place of the
/// same size.
pub(crate) struct Messages {
    data: Box<[u8]>,
    place: usize,
    pieces: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
}

impl Messages {
    /// `count` messages in places of `place` bytes each, both at least 1; all are zeroes.
    pub(crate) fn new(count: usize, place: usize) -> Self {
        let (count, place) = (count.max(1), place.max(1));
        let piece = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: place,
        };
        // SAFETY: mmsghdr is plain old data, all zeroes is a valid value.
        let header: libc::mmsghdr = unsafe { mem::zeroed() };
        Self {
            data: vec![0; count * place].into_boxed_slice(),
            place,
            pieces: vec![piece; count].into_boxed_slice(),
            headers: vec![header; count].into_boxed_slice(),
        }
    }

    /// How many.
    pub(crate) fn count(&self) -> usize {
        self.headers.len()
    }

    /// The place of a message.
    pub(crate) fn place(&mut self, index: usize) -> &mut [u8] {
        &mut self.data[index * self.place..][..self.place]
    }

    /// Sets how many bytes of its place are sent; at most the whole place.
    pub(crate) fn set_len(&mut self, index: usize, bytes: usize) {
        self.pieces[index].iov_len = bytes.min(self.place);
    }

    /// A received message: as much of it as its place holds, and its length.
    pub(crate) fn received(&self, index: usize) -> (&[u8], usize) {
        let len = self.headers[index].msg_len as usize;
        let kept = len.min(self.place);
        (&self.data[index * self.place..][..kept], len)
    }

    /// Points the headers at the places; the pointers are used by the next call only.
    fn point(&mut self, range: std::ops::Range<usize>) -> &mut [libc::mmsghdr] {
        // Each place is inside of `data`, since the three boxes have as many elements.
        let (pieces, places) = (&mut self.pieces, self.data.chunks_exact_mut(self.place));
        for (piece, place) in pieces.iter_mut().zip(places) {
            piece.iov_base = place.as_mut_ptr().cast();
        }
        for (header, piece) in self.headers.iter_mut().zip(pieces.iter_mut()) {
            header.msg_hdr.msg_iov = std::ptr::from_mut(piece);
            header.msg_hdr.msg_iovlen = 1;
        }
        &mut self.headers[range]
    }

    /// `sendmmsg`: sends the messages of `range`. Returns how many of them the kernel accepted, at
    /// least 1.
    pub(crate) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        range: std::ops::Range<usize>,
    ) -> io::Result<usize> {
        let headers = self.point(range);
        // SAFETY: the length is that of `headers`. Each points at one iovec, which points into
        // `data`; all three are alive and exclusively borrowed for the call.
        let sent = unsafe {
            libc::sendmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as c_uint,
                0,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// `recvmmsg`: waits for a message, as long as the socket's timeout, and takes the others that
    /// have arrived, too. A message is cut to its place; its length is the whole one.
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let headers = self.point(0..self.count());
        // SAFETY: as for `send`; the kernel writes at most the length of each iovec.
        let received = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as c_uint,
                libc::MSG_WAITFORONE | libc::MSG_TRUNC,
                std::ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }
}

/// The clock of the CPU time of one thread, readable by all threads of the process while it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuClock(libc::clockid_t);

impl CpuClock {
    /// Of the calling thread.
    pub(crate) fn of_thread() -> io::Result<Self> {
        let mut clock = 0;
        // SAFETY: pthread_self is always valid for the calling thread, and the clock's number is
        // written to a live variable.
        match unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) } {
            0 => Ok(Self(clock)),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// CPU time that the thread has used. It fails after the thread's end.
    pub(crate) fn now(self) -> io::Result<Duration> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: writes one timespec to a live variable; an outdated clock is an error.
        check(unsafe { libc::clock_gettime(self.0, &raw mut time) })?;
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
        Ok(Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds))
    }
}

/// Reads or sets one value of an interface of the socket's namespace (`SIOCETHTOOL` with a struct
/// `ethtool_value`): returns the value after the call. The name has at most [`NAME_MAX`] bytes.
pub(crate) fn ethtool_value(
    socket: impl AsFd,
    name: &str,
    command: u32,
    value: u32,
) -> io::Result<u32> {
    #[repr(C)]
    struct EthtoolValue {
        command: u32,
        value: u32,
    }
    let mut about = EthtoolValue { command, value };
    let mut request = named_request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut about).cast();
    // SAFETY: the kernel reads the name and the pointer, and reads and writes one ethtool_value
    // through it, which is alive during the call.
    check(unsafe {
        libc::ioctl(
            socket.as_fd().as_raw_fd(),
            libc::SIOCETHTOOL as _,
            &raw mut request,
        )
    })?;
    Ok(about.value)
}
