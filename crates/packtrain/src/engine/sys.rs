//! The system calls of the workers' threads: ppoll, CPU time and context switches, CPU masks, nice
//! values, scheduling classes, timer slack.

#![allow(unsafe_code, reason = "calls the kernel")]

use super::worker::ThreadUsage;
use crate::driver::Interest;
use crate::policy::topology::CpuId;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// Descriptors to wait for.
///
/// Uses `ppoll`, not `epoll`. A descriptor in an epoll set has a callback on its wait queue while
/// it is registered. A TAP or a packet socket runs it, with two locks, for every packet that it
/// queues, even while the worker is awake (`sock_def_readable`, `ep_poll_callback`). `ppoll` is on
/// the wait queues only while it sleeps.
#[derive(Debug)]
pub(super) struct Poll {
    /// The descriptors of the last wait; reused to avoid allocations.
    watched: Vec<libc::pollfd>,
    /// By descriptor number, which the kernel keeps small: the index in `watched`.
    places: Vec<usize>,
}

impl Poll {
    pub(super) const fn new() -> Self {
        Self {
            watched: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Waits until one of `interests` is ready or `timeout` is over (`None`: no timeout). Calls
    /// `ready` for each ready descriptor, including those with an error or a hang-up. Returns the
    /// number of system calls, at least 1.
    pub(super) fn wait(
        &mut self,
        interests: impl FnOnce(&mut dyn FnMut(BorrowedFd<'_>, Interest)),
        timeout: Option<Duration>,
        mut ready: impl FnMut(RawFd),
    ) -> io::Result<u64> {
        self.watch(interests);
        let time = timeout.map(timespec);
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let count = self.watched.len() as libc::nfds_t;
        // SAFETY: `watched` is valid for `count` entries, `time` is valid for the call or null, and
        // a null mask is not read.
        let found =
            unsafe { libc::ppoll(self.watched.as_mut_ptr(), count, time, std::ptr::null()) };
        if found < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                // The kernel has marked no descriptor as ready.
                io::ErrorKind::Interrupted => Ok(1),
                _ => Err(error),
            };
        }
        for watched in self.watched.iter().filter(|watched| watched.revents != 0) {
            if watched.revents & libc::POLLNVAL != 0 {
                // A device closed the descriptor before its half was dropped. Each further wait
                // would return at once.
                return Err(io::Error::from_raw_os_error(libc::EBADF));
            }
            ready(watched.fd);
        }
        Ok(1)
    }

    /// Builds the list of descriptors: each once, with all of its interests.
    fn watch(&mut self, interests: impl FnOnce(&mut dyn FnMut(BorrowedFd<'_>, Interest))) {
        let Self { watched, places } = self;
        watched.clear();
        interests(&mut |fd, interest| {
            let events = match interest {
                Interest::Read => libc::POLLIN,
                Interest::Write => libc::POLLOUT,
            };
            let fd = fd.as_raw_fd();
            // An open descriptor's number is not negative.
            let number = fd.unsigned_abs() as usize;
            if number >= places.len() {
                places.resize(number + 1, 0);
            }
            // A place may be from an earlier wait, so the entry is compared.
            match watched
                .get_mut(places[number])
                .filter(|known| known.fd == fd)
            {
                Some(known) => known.events |= events,
                None => {
                    places[number] = watched.len();
                    watched.push(libc::pollfd {
                        fd,
                        events,
                        revents: 0,
                    });
                }
            }
        });
    }
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Words of a CPU mask: for 65 536 CPUs, more than any kernel supports.
const MASK_WORDS: usize = 1024;
const WORD_BITS: usize = 64;

/// Binds this thread to `cpus` (`sched_setaffinity(2)`).
pub(super) fn bind_to(cpus: &[CpuId]) -> io::Result<()> {
    let mut mask = vec![0u64; MASK_WORDS];
    let mut bytes = 0;
    for cpu in cpus.iter().map(|cpu| usize::from(cpu.0)) {
        mask[cpu / WORD_BITS] |= 1 << (cpu % WORD_BITS);
        bytes = bytes.max((cpu / WORD_BITS + 1) * size_of::<u64>());
    }
    // SAFETY: `mask` is valid for at least `bytes` bytes.
    let failed = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, bytes, mask.as_ptr()) };
    if failed == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The nice value of this thread (getpriority(2): in Linux each thread has its own).
pub(super) fn nice() -> io::Result<i8> {
    // All nice values of the kernel fit into an `i8`.
    Ok(rustix::process::getpriority_process(None)? as i8)
}

/// Sets the nice value of this thread (setpriority(2)).
pub(super) fn set_nice(nice: i8) -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, nice.into())?)
}

/// Gives this thread the class `SCHED_BATCH`, if it has the usual one (sched(7)). A class that was
/// chosen for the program, such as a real-time one, remains. Returns whether the thread has it. If
/// the kernel refuses, the thread keeps its class.
pub(super) fn set_batch() -> bool {
    let param = libc::sched_param { sched_priority: 0 };
    // The calls of musl's library fail with ENOSYS.
    // SAFETY: no pointers are passed.
    let class = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    if class == libc::c_long::from(libc::SCHED_OTHER) {
        let (call, batch) = (libc::SYS_sched_setscheduler, libc::SCHED_BATCH);
        // SAFETY: `param` is valid for the call.
        return unsafe { libc::syscall(call, 0, batch, &raw const param) } == 0;
    }
    class == libc::c_long::from(libc::SCHED_BATCH)
}

/// Sets the timer slack of this thread to a microsecond, from the usual 50 (`timer_slack_ns`,
/// prctl(2)): interrupt moderation delays wake-ups by less. If the kernel refuses, the slack stays
/// as it is.
pub(super) fn wake_in_time() {
    // SAFETY: no pointers are passed.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) };
}

/// System calls that [`thread_usage`] makes.
pub(super) const THREAD_USAGE_SYSCALLS: u64 = 2;

/// The usage of the calling thread; 0 for each value that the kernel does not report.
pub(super) fn thread_usage() -> ThreadUsage {
    // SAFETY: all of its fields are integers, so zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for the call.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    let switches = |count: libc::c_long| {
        let known = u64::try_from(count).ok().filter(|_| failed == 0);
        known.unwrap_or(0)
    };
    ThreadUsage {
        // From a clock, since the times in `usage` are in microseconds, on some systems in ticks.
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
    use crate::policy::topology::Topology;
    use crate::runtime::{Notifier, Runtime, System};
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Instant;

    fn notifier() -> Arc<dyn Notifier> {
        System::new().notifier().unwrap()
    }

    #[test]
    fn short_sleeps_last_their_time_and_the_kernel_gets_it_in_nanoseconds() {
        let mut poll = Poll::new();
        let time = Duration::from_micros(50);
        for _ in 0..200 {
            let start = Instant::now();
            let calls = poll.wait(|_| {}, Some(time), |_| panic!("nothing is watched"));
            assert_eq!(calls.unwrap(), 1);
            assert!(start.elapsed() >= time);
        }
        let parts = |time| (timespec(time).tv_sec, timespec(time).tv_nsec);
        assert_eq!(parts(time), (0, 50_000));
        assert_eq!(parts(Duration::new(3, 1)), (3, 1));
        assert_eq!(parts(Duration::MAX).0, libc::time_t::MAX);
    }

    /// The context switches of the calling thread in /proc.
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
    fn context_switches_agree_with_proc() {
        const SLEEPS: u64 = 40;
        let thread = std::thread::spawn(|| {
            let mut poll = Poll::new();
            let start = thread_usage();
            for _ in 0..SLEEPS {
                let slept = poll.wait(|_| {}, Some(Duration::from_millis(1)), |_| {});
                slept.unwrap();
            }
            // The counts only grow: ours lies between two reads of /proc, one before it and one
            // after.
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
    fn each_wait_watches_its_own_descriptors() {
        let mut poll = Poll::new();
        let wakers: Vec<_> = (0..40).map(|_| notifier()).collect();
        for waker in &wakers {
            waker.notify();
        }
        for watched in [0..40, 0..0, 7..9, 3..20] {
            let interests = |visit: &mut dyn FnMut(BorrowedFd<'_>, Interest)| {
                for waker in &wakers[watched.clone()] {
                    visit(waker.fd().unwrap(), Interest::Read);
                }
            };
            let mut ready = Vec::new();
            let time = Some(Duration::ZERO);
            poll.wait(interests, time, |fd| ready.push(fd)).unwrap();
            let fds: Vec<_> = wakers[watched]
                .iter()
                .map(|w| w.fd().unwrap().as_raw_fd())
                .collect();
            assert_eq!(ready, fds);
        }
    }

    #[test]
    fn a_descriptor_with_two_interests_is_reported_once() {
        let waker = notifier();
        let (mut poll, mut ready) = (Poll::new(), 0);
        let both = |visit: &mut dyn FnMut(BorrowedFd<'_>, Interest)| {
            visit(waker.fd().unwrap(), Interest::Read);
            visit(waker.fd().unwrap(), Interest::Write);
        };
        poll.wait(both, None, |_| ready += 1).unwrap();
        assert_eq!(ready, 1);
        assert_eq!(poll.watched.len(), 1);
        assert_eq!(poll.watched[0].revents, libc::POLLOUT);
        waker.notify();
        poll.wait(both, None, |_| ready += 1).unwrap();
        assert_eq!(ready, 2);
        assert_eq!(poll.watched[0].revents, libc::POLLIN | libc::POLLOUT);
    }

    #[test]
    fn a_closed_descriptor_is_an_error_and_not_an_endless_wake_up() {
        // SAFETY: no open descriptor has this number, and the test only waits for it.
        let gone = unsafe { BorrowedFd::borrow_raw(99_999) };
        let interests = |visit: &mut dyn FnMut(BorrowedFd<'_>, Interest)| {
            visit(gone, Interest::Read);
        };
        let result = Poll::new().wait(interests, None, |_| {
            panic!("a closed descriptor is not ready")
        });
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    /// The CPUs that the calling thread may use.
    fn affinity() -> Vec<CpuId> {
        let topology = Topology::read(Path::new("/")).unwrap();
        topology.cpus().iter().map(|cpu| cpu.id).collect()
    }

    #[test]
    fn a_thread_is_bound_to_its_cpu_and_no_other_thread_is() {
        let may = affinity();
        let last = *may.last().unwrap();
        let bound = std::thread::spawn(move || {
            bind_to(&[last]).unwrap();
            affinity()
        });
        assert_eq!(bound.join().unwrap(), [last]);
        assert_eq!(affinity(), may);
        assert!(bind_to(&[CpuId(u16::MAX)]).is_err());
        assert!(bind_to(&[]).is_err());
    }

    /// The kernel has the class (proc_pid_stat(5), field 41), and one that the program was given
    /// remains.
    #[test]
    fn a_batch_thread_has_the_class() {
        let class = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let field = stat.rsplit(')').next().unwrap().split(' ').nth(39);
            field.unwrap().parse::<i32>().unwrap()
        };
        let test = move || {
            let param = libc::sched_param { sched_priority: 0 };
            let call = libc::SYS_sched_setscheduler;
            // SAFETY: `param` is valid for the call.
            let set = |class: i32| unsafe { libc::syscall(call, 0, class, &raw const param) };
            // The thread has the class of the thread that started the tests.
            assert_eq!((set(libc::SCHED_OTHER), class()), (0, libc::SCHED_OTHER));
            assert!(set_batch());
            assert_eq!(class(), libc::SCHED_BATCH);
            assert!(set_batch());
            let idle = libc::SCHED_IDLE;
            assert_eq!((set(idle), set_batch(), class()), (0, false, idle));
        };
        std::thread::spawn(test).join().unwrap();
    }
}
