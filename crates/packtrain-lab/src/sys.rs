//! Thin safe wrappers over the system calls that std does not have. All `unsafe` of this crate.

#![allow(
    unsafe_code,
    reason = "system calls without a std wrapper; each call is fenced here"
)]

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{c_int, c_uint, c_void, socklen_t};

/// Longest interface name, without the terminating zero (`IFNAMSIZ` is 16).
pub(crate) const NAME_MAX: usize = libc::IFNAMSIZ - 1;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Moves the calling thread into new namespaces: `CLONE_NEWNET` or `CLONE_NEWUSER`.
pub(crate) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: takes no pointer; it changes the calling thread's namespaces only (CLONE_NEWUSER is
    // refused by the kernel when the process has other threads).
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// Moves the calling thread into the network namespace behind `fd`.
pub(crate) fn set_netns(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes no pointer; the descriptor is open for the duration of the call.
    check(unsafe { libc::setns(fd.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Effective user and group identity of the process.
pub(crate) fn identity() -> (u32, u32) {
    // SAFETY: both take nothing and cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
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

/// The descriptor that a system call returned, or its error.
fn own(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = c_int::try_from(result).map_err(io::Error::other)?;
    let fd = check(fd)?;
    // SAFETY: the kernel has just made this descriptor for us, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until one of `fds` is readable or has an error; false after `timeout`.
pub(crate) fn poll_readable(fds: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<bool> {
    let mut list: Vec<libc::pollfd> = fds
        .iter()
        .map(|fd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let millis = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: the pointer and length describe `list`, which is alive and exclusively ours.
    match check(unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, millis) }) {
        Ok(ready) => Ok(ready > 0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
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

/// Sets a socket option whose value is an `int`.
pub(crate) fn set_int(fd: impl AsFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    set_option(fd.as_fd(), level, name, &value)
}

/// Reads a socket option whose value is an `int`.
pub(crate) fn get_int(fd: impl AsFd, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `value`.
    check(unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            (&raw mut value).cast::<c_void>(),
            &raw mut len,
        )
    })?;
    Ok(value)
}

/// `SO_RCVTIMEO` on a socket for which std has no setter (a listener).
pub(crate) fn set_receive_timeout(fd: impl AsFd, timeout: Duration) -> io::Result<()> {
    let value = libc::timeval {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        // Never 0 + 0: the kernel reads that as "for ever".
        tv_usec: libc::suseconds_t::from(timeout.subsec_micros()).max(1),
    };
    set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVTIMEO, &value)
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
/// when the kernel joined nothing. A datagram that does not fit is cut.
pub(crate) fn receive_gro(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, usize)> {
    /// Room for one control message with an int, aligned as cmsghdr must be.
    #[repr(C, align(8))]
    struct Control([u8; 64]);
    let mut control = Control([0; 64]);
    let mut piece = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: msghdr is plain old data, all zeroes is a valid value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the header points at one iovec over `buffer` and at `control`, both alive and
    // exclusively borrowed for the call, with their true lengths.
    let len = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, 0) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel filled `control` and set msg_controllen; the CMSG macros stay within it.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: a non-null header from CMSG_FIRSTHDR/NXTHDR is inside `control` and aligned.
        let found = unsafe { &*header };
        if found.cmsg_level == libc::SOL_UDP && found.cmsg_type == libc::UDP_GRO {
            // SAFETY: UDP_GRO's data is one int, read without assuming alignment.
            let size = unsafe { libc::CMSG_DATA(header).cast::<c_int>().read_unaligned() };
            let size = usize::try_from(size).unwrap_or(0);
            return Ok((len, if size == 0 { len } else { size }));
        }
        // SAFETY: same message, header from the previous step.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok((len, len))
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

/// Words of a CPU mask: for 65,536 CPUs, more than any kernel supports.
const MASK_WORDS: usize = 1024;
const WORD_BITS: usize = u64::BITS as usize;

/// Binds the calling thread to one CPU.
pub(crate) fn bind(cpu: usize) -> io::Result<()> {
    let mut mask = [0u64; MASK_WORDS];
    let word = mask.get_mut(cpu / WORD_BITS);
    *word.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))? = 1 << (cpu % WORD_BITS);
    // SAFETY: the pointer and the size describe `mask`, which the kernel only reads.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            0,
            size_of_val(&mask),
            mask.as_ptr(),
        )
    };
    if failed == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The CPUs that the calling thread may use, in order.
pub(crate) fn affinity() -> io::Result<Vec<usize>> {
    let mut mask = [0u64; MASK_WORDS];
    // SAFETY: the kernel writes at most the given number of bytes, the size of `mask`.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            0,
            size_of_val(&mask),
            mask.as_mut_ptr(),
        )
    };
    if failed < 0 {
        return Err(io::Error::last_os_error());
    }
    let has = |cpu: &usize| mask[cpu / WORD_BITS] & (1 << (cpu % WORD_BITS)) != 0;
    Ok((0..MASK_WORDS * WORD_BITS).filter(has).collect())
}

/// The usage of the calling thread.
pub(crate) fn rusage_thread() -> libc::rusage {
    rusage(libc::RUSAGE_THREAD)
}

/// The usage of the whole process.
pub(crate) fn rusage_process() -> libc::rusage {
    rusage(libc::RUSAGE_SELF)
}

fn rusage(who: c_int) -> libc::rusage {
    // SAFETY: rusage is plain old data, all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: writes one rusage through a valid pointer. It cannot fail for the
    // constants used here.
    unsafe { libc::getrusage(who, &raw mut usage) };
    usage
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
