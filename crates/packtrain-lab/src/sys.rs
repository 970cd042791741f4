//! Thin safe wrappers over the system calls that std does not have. All `unsafe` of this crate.

#![allow(
    unsafe_code,
    reason = "system calls without a std wrapper; each call is fenced here"
)]

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
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

/// `TUNSETIFF`: creates or attaches to the TUN/TAP interface `name`. At most [`NAME_MAX`] bytes.
pub(crate) fn tun_set_iff(fd: BorrowedFd<'_>, name: &str, flags: c_int) -> io::Result<()> {
    if name.is_empty() || name.len() > NAME_MAX || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: ifreq is plain old data, all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
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
    // SAFETY: the kernel writes at most as many bytes as it is told, the size of `mask`.
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
    // SAFETY: writes one rusage through a valid pointer. It cannot fail for the two constants
    // used here.
    unsafe { libc::getrusage(who, &raw mut usage) };
    usage
}
