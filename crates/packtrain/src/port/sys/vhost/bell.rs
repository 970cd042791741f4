//! What ends the sleep of a worker: one descriptor that stays the same, for kicks that arrive on
//! other descriptors after each connection.

use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};
use rustix::io::{Errno, write};
use rustix::time::Timespec;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The descriptor of one half of a queue: an epoll set with the kicks of its ring, and with an
/// eventfd of our own. Edge-triggered: a kick is seen once and never read.
#[derive(Debug)]
pub(in crate::port) struct Bell {
    set: OwnedFd,
    own: OwnedFd,
}

impl Bell {
    /// A bell that nothing rings.
    ///
    /// # Errors
    ///
    /// The system's, without a free descriptor.
    pub(in crate::port) fn new() -> io::Result<Self> {
        let own = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = Self {
            set: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            own,
        };
        bell.watch(&bell.own)?;
        Ok(bell)
    }

    /// Replaces the descriptor that rings it.
    ///
    /// # Errors
    ///
    /// The system's: it cannot be waited for.
    pub(in crate::port) fn replace(
        &self,
        old: Option<&Arc<OwnedFd>>,
        new: Option<&Arc<OwnedFd>>,
    ) -> io::Result<()> {
        // The set would keep a closed one whose file the front end still has.
        match old.map(|old| epoll::delete(&self.set, old)) {
            None | Some(Ok(()) | Err(Errno::NOENT)) => {}
            Some(Err(error)) => return Err(error.into()),
        }
        new.map_or(Ok(()), |new| self.watch(new))
    }

    fn watch(&self, fd: &OwnedFd) -> io::Result<()> {
        let data = epoll::EventData::new_u64(0);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.set, fd, data, flags)?)
    }

    /// Rings it, from any thread.
    pub(in crate::port) fn ring(&self) {
        // It fails only while its counter is full: the kick has not been read yet.
        write(&self.own, &1_u64.to_ne_bytes()).unwrap_or(0);
    }

    /// Forgets that it rang. What rings it from now on ends the next sleep.
    pub(in crate::port) fn clear(&self) {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 2];
        if epoll::wait(&self.set, &mut events, Some(&NO_TIME)).is_err() {
            // Rather one step too many than one too few.
            self.ring();
        }
    }
}

const NO_TIME: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

/// Adds one to an eventfd of the front end.
///
/// The front end shares its flags, so it can have a write to a full one wait: it is asked first.
pub(super) fn signal(event: &OwnedFd) -> Result<(), Errno> {
    let mut fds = [PollFd::new(event, PollFlags::OUT)];
    if poll(&mut fds, Some(&NO_TIME))? == 0 {
        // It is full of calls that the guest has not seen yet.
        return Ok(());
    }
    match write(event, &1_u64.to_ne_bytes()) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn rings(bell: &Bell) -> bool {
        let mut fds = [PollFd::new(bell, PollFlags::IN)];
        poll(&mut fds, Some(&NO_TIME)).expect("a poll") > 0
    }

    fn kick() -> Arc<OwnedFd> {
        Arc::new(eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd"))
    }

    #[test]
    fn it_rings_once_for_each_kick_after_it_was_heard() {
        let bell = Bell::new().expect("descriptors");
        assert!(!rings(&bell));
        let (first, second) = (kick(), kick());
        bell.replace(None, Some(&first)).expect("an eventfd");
        for _ in 0..3 {
            write(&*first, &1_u64.to_ne_bytes()).expect("a kick");
            assert!(rings(&bell));
            bell.clear();
            assert!(!rings(&bell), "it was heard, though nobody reads the kick");
        }
        bell.ring();
        assert!(rings(&bell));
        bell.clear();
        // A kick from before the descriptor is watched is not missed, one of an old descriptor is
        // not heard.
        write(&*second, &1_u64.to_ne_bytes()).expect("a kick");
        bell.replace(Some(&first), Some(&second))
            .expect("an eventfd");
        assert!(rings(&bell));
        bell.clear();
        write(&*first, &1_u64.to_ne_bytes()).expect("a kick");
        assert!(!rings(&bell));
    }
}
