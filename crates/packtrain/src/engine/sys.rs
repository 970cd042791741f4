//! The system calls of the outer shell: epoll, eventfd, what a thread has used, CPU masks.

#![allow(unsafe_code, reason = "calls the kernel")]

use crate::driver::Interest;
use crate::policy::topology::{CpuId, CpuList};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// A set of descriptors to wait for.
#[derive(Debug)]
pub(super) struct Epoll {
    fd: OwnedFd,
    /// What is registered, so that the kernel is told of changes only.
    registered: Vec<Registered>,
    /// By descriptor number, which the kernel keeps small: its place in `registered` and one more;
    /// 0 for none.
    places: Vec<usize>,
    /// The kernel has no `epoll_pwait2` (before Linux 5.11), or a sandbox forbids it.
    only_milliseconds: bool,
}

/// `struct __kernel_timespec`: 64 bits each on every architecture.
#[repr(C)]
struct KernelTime {
    seconds: i64,
    nanoseconds: i64,
}

#[derive(Debug)]
struct Registered {
    fd: RawFd,
    events: u32,
    wanted: u32,
}

/// Takes ownership of a descriptor that a system call has just returned.
fn owned(raw: libc::c_int) -> io::Result<OwnedFd> {
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

const EVENTS: usize = 16;

impl Epoll {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Self {
            fd,
            registered: Vec::with_capacity(EVENTS),
            places: Vec::new(),
            only_milliseconds: false,
        })
    }

    /// Waits until one of `interests` is ready, or `timeout` (`None`: for ever), and calls `ready`
    /// for each. Level-triggered. Returns the number of system calls made.
    pub(super) fn wait(
        &mut self,
        interests: impl FnOnce(&mut dyn FnMut(BorrowedFd<'_>, Interest)),
        timeout: Option<Duration>,
        mut ready: impl FnMut(RawFd),
    ) -> io::Result<u64> {
        let mut syscalls = 1 + self.register(interests)?;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let mut count = self.wait_for(&mut events, timeout);
        if count < 0 && timeout.is_some() && !self.only_milliseconds {
            // Sandboxes answer EPERM for what they do not know.
            let error = io::Error::last_os_error().raw_os_error();
            if matches!(error, Some(libc::ENOSYS | libc::EPERM)) {
                self.only_milliseconds = true;
                syscalls += 1;
                count = self.wait_for(&mut events, timeout);
            }
        }
        if count < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            syscalls += 1;
        }
        for event in events.iter().take(usize::try_from(count).unwrap_or(0)) {
            ready(event.u64 as RawFd);
        }
        Ok(syscalls)
    }

    /// One system call; negative for an error, which is in `errno`. In milliseconds a time is
    /// rounded up: waking a moment early would only mean waiting again.
    fn wait_for(
        &self,
        events: &mut [libc::epoll_event; EVENTS],
        timeout: Option<Duration>,
    ) -> libc::c_long {
        let (epoll, events) = (self.fd.as_raw_fd(), events.as_mut_ptr());
        let room = EVENTS as libc::c_int;
        match timeout {
            Some(left) if !self.only_milliseconds => {
                let time = KernelTime {
                    seconds: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                    nanoseconds: i64::from(left.subsec_nanos()),
                };
                let no_mask = std::ptr::null::<libc::sigset_t>();
                let number = libc::SYS_epoll_pwait2;
                // SAFETY: `events` is valid for `EVENTS` entries and `time` for the call; without a
                // mask its size is not looked at. By number, since older C libraries lack it.
                unsafe { libc::syscall(number, epoll, events, room, &raw const time, no_mask, 0) }
            }
            _ => {
                let milliseconds = timeout.map_or(-1, |left| {
                    let up = left.as_nanos().div_ceil(1_000_000);
                    libc::c_int::try_from(up).unwrap_or(libc::c_int::MAX)
                });
                // SAFETY: `events` is valid for `EVENTS` entries.
                let count = unsafe { libc::epoll_wait(epoll, events, room, milliseconds) };
                libc::c_long::from(count)
            }
        }
    }

    fn register(
        &mut self,
        interests: impl FnOnce(&mut dyn FnMut(BorrowedFd<'_>, Interest)),
    ) -> io::Result<u64> {
        for registered in &mut self.registered {
            registered.wanted = 0;
        }
        let (all, places) = (&mut self.registered, &mut self.places);
        interests(&mut |fd, interest| {
            let events = match interest {
                Interest::Read => libc::EPOLLIN as u32,
                Interest::Write => libc::EPOLLOUT as u32,
            };
            let fd = fd.as_raw_fd();
            // An open descriptor's number is not negative.
            let number = fd.unsigned_abs() as usize;
            if number >= places.len() {
                places.resize(number + 1, 0);
            }
            match places[number].checked_sub(1) {
                Some(place) => all[place].wanted |= events,
                None => {
                    all.push(Registered {
                        fd,
                        events: 0,
                        wanted: events,
                    });
                    places[number] = all.len();
                }
            }
        });
        let epoll = self.fd.as_raw_fd();
        self.registered
            .iter_mut()
            .try_fold(0, |calls, known| Ok(calls + known.update(epoll)?))
    }
}

impl Registered {
    /// Tells the kernel of a change; returns the number of system calls made.
    fn update(&mut self, epoll: RawFd) -> io::Result<u64> {
        if self.events == self.wanted {
            return Ok(0);
        }
        let operation = match (self.events, self.wanted) {
            (0, _) => libc::EPOLL_CTL_ADD,
            (_, 0) => libc::EPOLL_CTL_DEL,
            _ => libc::EPOLL_CTL_MOD,
        };
        let mut event = libc::epoll_event {
            events: self.wanted,
            u64: self.fd as u64,
        };
        // SAFETY: `event` is valid for the call.
        if unsafe { libc::epoll_ctl(epoll, operation, self.fd, &raw mut event) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.events = self.wanted;
        Ok(1)
    }
}

/// Wakes one worker from another thread.
#[derive(Debug)]
pub(super) struct Waker {
    fd: OwnedFd,
}

impl Waker {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        Ok(Self { fd })
    }

    /// Makes [`Waker::fd`] readable.
    ///
    /// # Panics
    ///
    /// When the kernel refuses for another reason than that it is readable already: then this is
    /// no eventfd.
    pub(super) fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` is valid for its eight bytes.
        let written = unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        if written < 0 {
            let error = io::Error::last_os_error();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
        }
    }

    /// Makes it not readable. False if it was not.
    pub(super) fn clear(&self) -> bool {
        let mut count = [0u8; 8];
        let room = count.len();
        // SAFETY: `count` is valid for its eight bytes.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), count.as_mut_ptr().cast(), room) };
        read >= 0
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The words of a CPU mask: for 65 536 CPUs, more than any kernel is built for.
const MASK_WORDS: usize = 1024;
const WORD_BITS: usize = 64;

/// The CPUs that this thread may use (`sched_getaffinity(2)`).
pub(super) fn affinity() -> io::Result<CpuList> {
    let mut mask = vec![0u64; MASK_WORDS];
    // SAFETY: `mask` is valid for as many bytes as are said.
    let bytes = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            0,
            MASK_WORDS * size_of::<u64>(),
            mask.as_mut_ptr(),
        )
    };
    if bytes < 0 {
        return Err(io::Error::last_os_error());
    }
    let is_set = |cpu: &u16| {
        let cpu = usize::from(*cpu);
        mask[cpu / WORD_BITS] & 1 << (cpu % WORD_BITS) != 0
    };
    Ok((0..=u16::MAX).filter(is_set).map(CpuId).collect())
}

/// Binds this thread to `cpus` (`sched_setaffinity(2)`).
pub(super) fn bind_to(cpus: &[CpuId]) -> io::Result<()> {
    let mut mask = vec![0u64; MASK_WORDS];
    let mut bytes = 0;
    for cpu in cpus.iter().map(|cpu| usize::from(cpu.0)) {
        mask[cpu / WORD_BITS] |= 1 << (cpu % WORD_BITS);
        bytes = bytes.max((cpu / WORD_BITS + 1) * size_of::<u64>());
    }
    // SAFETY: `mask` is valid for at least as many bytes as are said.
    let failed = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, bytes, mask.as_ptr()) };
    if failed == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The kernel ends this thread's sleeps within a microsecond of their time, and not within the 50
/// that it usually takes the liberty of (`timer_slack_ns`, prctl(2)): signals are held back for
/// less. Where it refuses, sleeps are as long as they were.
pub(super) fn wake_in_time() {
    // SAFETY: no pointers are passed.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) };
}

/// What the calling thread has cost since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ThreadUsage {
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// Times it gave the CPU away itself: it waited for something.
    pub voluntary_switches: u64,
    /// Times the CPU was taken from it.
    pub involuntary_switches: u64,
}

/// System calls that [`thread_usage`] makes.
pub(super) const THREAD_USAGE_SYSCALLS: u64 = 2;

/// What this thread has used; zeros for what the kernel does not say.
pub(super) fn thread_usage() -> ThreadUsage {
    // SAFETY: all of its fields are integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for the call.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    let switches = |count: libc::c_long| {
        let known = u64::try_from(count).ok().filter(|_| failed == 0);
        known.unwrap_or(0)
    };
    ThreadUsage {
        // Of a clock, since the times in `usage` are in microseconds, on some systems in ticks.
        cpu_ns: thread_cpu_ns(),
        voluntary_switches: switches(usage.ru_nvcsw),
        involuntary_switches: switches(usage.ru_nivcsw),
    }
}

fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if failed != 0 {
        0
    } else {
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn times_below_a_millisecond_are_slept_and_not_much_more() {
        let mut epoll = Epoll::new().unwrap();
        for only_milliseconds in [false, true] {
            epoll.only_milliseconds = only_milliseconds;
            let time = Duration::from_micros(50);
            let start = Instant::now();
            let calls = epoll.wait(|_| {}, Some(time), |_| panic!("nothing is watched"));
            assert_eq!(calls.unwrap(), 1);
            assert!(start.elapsed() >= time);
        }
        // How soon it wakes up is the machine's affair; over many times the best is no accident.
        epoll.only_milliseconds = false;
        let slept = (0..200).map(|_| {
            let start = Instant::now();
            let calls = epoll.wait(|_| {}, Some(Duration::from_micros(50)), |_| {});
            (calls.unwrap(), start.elapsed())
        });
        let least = slept.map(|(_, time)| time).min().unwrap();
        if epoll.only_milliseconds {
            println!("SKIP: this kernel has no epoll_pwait2");
        } else {
            assert!(least < Duration::from_millis(1), "{least:?}");
        }
    }

    /// What /proc says of the calling thread.
    fn switches_in_proc() -> (u64, u64) {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let count = |key: &str| {
            let mut lines = status.lines();
            let value = lines.find_map(|line| line.strip_prefix(key)).unwrap();
            value.trim().parse::<u64>().unwrap()
        };
        (
            count("voluntary_ctxt_switches:"),
            count("nonvoluntary_ctxt_switches:"),
        )
    }

    #[test]
    fn a_thread_that_sleeps_is_counted_as_proc_counts_it() {
        const SLEEPS: u64 = 40;
        let thread = std::thread::spawn(|| {
            let mut epoll = Epoll::new().unwrap();
            let start = thread_usage();
            for _ in 0..SLEEPS {
                let slept = epoll.wait(|_| {}, Some(Duration::from_millis(1)), |_| {});
                slept.unwrap();
            }
            // Counts only grow: ours lies between one look of /proc before it and one after it.
            let before = switches_in_proc();
            let usage = thread_usage();
            let after = switches_in_proc();
            let slept = usage.voluntary_switches - start.voluntary_switches;
            assert!(slept >= SLEEPS, "{slept} switches in {SLEEPS} sleeps");
            assert!((before.0..=after.0).contains(&usage.voluntary_switches));
            assert!((before.1..=after.1).contains(&usage.involuntary_switches));
            assert!(usage.cpu_ns > start.cpu_ns);
        });
        thread.join().unwrap();
    }

    #[test]
    fn every_descriptor_is_watched_for_what_was_asked_last() {
        let mut epoll = Epoll::new().unwrap();
        let wakers: Vec<_> = (0..40).map(|_| Waker::new().unwrap()).collect();
        for waker in &wakers {
            waker.wake();
        }
        for watched in [0..40, 0..0, 7..9, 3..20] {
            let interests = |visit: &mut dyn FnMut(BorrowedFd<'_>, Interest)| {
                for waker in &wakers[watched.clone()] {
                    visit(waker.fd(), Interest::Read);
                }
            };
            let mut ready = Vec::new();
            let time = Some(Duration::ZERO);
            epoll.wait(interests, time, |fd| ready.push(fd)).unwrap();
            assert_eq!(ready.len(), watched.len().min(EVENTS));
            let fds: Vec<_> = wakers[watched].iter().map(|w| w.fd().as_raw_fd()).collect();
            assert!(ready.iter().all(|fd| fds.contains(fd)));
        }
    }

    #[test]
    fn a_waker_is_readable_until_it_is_cleared() {
        let waker = Waker::new().unwrap();
        assert!(!waker.clear());
        waker.wake();
        waker.wake();
        assert!(waker.clear());
        assert!(!waker.clear());
    }

    #[test]
    fn a_thread_is_bound_where_it_is_told() {
        let may = affinity().unwrap();
        let last = *may.as_slice().last().unwrap();
        let all = may.clone();
        let bound = std::thread::spawn(move || {
            bind_to(&[last]).unwrap();
            let one = affinity().unwrap();
            bind_to(all.as_slice()).unwrap();
            assert_eq!(affinity().unwrap(), all);
            one
        });
        assert_eq!(bound.join().unwrap().as_slice(), [last]);
        assert_eq!(affinity().unwrap(), may, "only that thread");
        assert!(bind_to(&[CpuId(u16::MAX)]).is_err());
        assert!(bind_to(&[]).is_err());
    }
}
