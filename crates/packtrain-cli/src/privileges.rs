//! What `packtrain forward` gives up once its ports and files are open: bytes from the network do
//! not meet the privileges that opened them.

use crate::exit::{Exit, Failure};
use nix::unistd::{User, getgrouplist};
use packtrain::engine::Settings;
use packtrain::policy::priority::Serves;
use rustix::io::Errno;
use rustix::process::getpriority_process;
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, capabilities, set_capabilities, set_keep_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use std::ffi::CString;
use std::{panic, thread};

/// What a run may do after its start.
#[derive(Clone, Debug)]
pub struct Privileges {
    /// The user that the run becomes, if another one was asked for.
    account: Option<Account>,
}

#[derive(Clone, Debug)]
struct Account {
    name: String,
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Privileges {
    /// Those of a run that becomes `user` (`--user`).
    ///
    /// # Errors
    ///
    /// If there is no such user.
    pub fn of(user: Option<&str>) -> Result<Self, Failure> {
        let account = user.map(Account::find).transpose()?;
        Ok(Self { account })
    }

    /// Runs `work` on a thread without any privilege, which the threads that it starts inherit.
    ///
    /// # Errors
    ///
    /// If the privileges cannot be given up, or as `work`.
    pub fn without(
        &self,
        work: impl FnOnce() -> Result<(), Failure> + Send,
    ) -> Result<(), Failure> {
        let run = || {
            self.keep(CapabilitySet::empty())?;
            work()
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new().spawn_scoped(scope, run);
            let thread = thread.map_err(|error| Failure::of_thread(&error))?;
            let result = thread.join();
            result.unwrap_or_else(|panic| panic::resume_unwind(panic))
        })
    }

    /// Gives up all privileges of the calling thread, and of the threads that it starts from now
    /// on, but the capabilities of `kept` that it has.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn keep(&self, kept: CapabilitySet) -> Result<(), Failure> {
        self.become_user(kept).map_err(|error| self.refused(error))
    }

    /// The system calls of rustix change the calling thread only, those of the C library all
    /// threads of the process: another one may be opening ports.
    fn become_user(&self, kept: CapabilitySet) -> Result<(), Errno> {
        set_no_new_privs(true)?;
        let kept = kept & capabilities(None)?.permitted;
        if let Some(Account {
            uid, gid, groups, ..
        }) = &self.account
        {
            // A thread that is root no more would have no capability either.
            set_keep_capabilities(true)?;
            set_thread_groups(groups)?;
            set_thread_res_gid(*gid, *gid, *gid)?;
            set_thread_res_uid(*uid, *uid, *uid)?;
            set_keep_capabilities(false)?;
        }
        set_capabilities(
            None,
            CapabilitySets {
                effective: kept,
                permitted: kept,
                inheritable: CapabilitySet::empty(),
            },
        )
    }

    fn refused(&self, error: Errno) -> Failure {
        let Some(Account { name, .. }) = &self.account else {
            let line = format!("cannot give up privileges: {error}");
            return Failure::new(Exit::Port, line);
        };
        let line = format!(
            "--user {name}: the system refuses to change the user: {error}; run as root \
             (CAP_SETUID and CAP_SETGID), in a user namespace with users that are mapped, or leave \
             --user out"
        );
        Failure::new(Exit::Privilege, line)
    }
}

impl Account {
    fn find(name: &str) -> Result<Self, Failure> {
        let failed = |error: nix::Error| {
            let line = format!("--user {name}: the user cannot be looked up: {error}");
            Failure::new(Exit::Port, line)
        };
        let Some(user) = User::from_name(name).map_err(failed)? else {
            let line = format!("--user {name}: no such user; `getent passwd` lists all users");
            return Err(Failure::new(Exit::Usage, line));
        };
        let of_group = |group: nix::unistd::Gid| Gid::from_raw(group.as_raw());
        // A name that was found has no zero byte.
        let c_name = CString::new(user.name).map_err(|_| failed(nix::Error::EINVAL))?;
        let groups = getgrouplist(&c_name, user.gid).map_err(failed)?;
        Ok(Self {
            name: name.to_owned(),
            uid: Uid::from_raw(user.uid.as_raw()),
            gid: of_group(user.gid),
            groups: groups.into_iter().map(of_group).collect(),
        })
    }
}

/// The capabilities that the start of a run uses once its ports are open, and those of a run after
/// it, each for its reason. The end of a run needs none: the kernel undoes what was opened.
pub fn used(
    settings: &Settings,
    has_interface: bool,
    waits: bool,
    pins_memory: bool,
) -> [CapabilitySet; 2] {
    let mut running = CapabilitySet::empty();
    // AF_XDP pins the memory of packets once the run has it. Linux before 5.19 needs the other one
    // to give packets to its sockets, and any to load a program for an interface that is made
    // again.
    let pins = CapabilitySet::IPC_LOCK | CapabilitySet::BPF;
    let mut used = if pins_memory { pins } else { running };
    if waits {
        // Opens an interface that is made again, by packet sockets, as a TAP or through AF_XDP.
        running |= used | CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN;
    }
    if has_interface {
        // Limits the kernel's large packets, and asks for the link state and the counters of an
        // interface that is moved to another network namespace.
        running |= CapabilitySet::NET_ADMIN;
    }
    used |= running;
    let now = getpriority_process(None).ok();
    if let Some(now) = now.and_then(|nice| i8::try_from(nice).ok())
        && let Some(wanted) = settings.priority.nice(settings.idle, Serves::Devices, now)
        && wanted < now
    {
        // Gives the workers' threads their priority (`--priority`).
        used |= CapabilitySet::SYS_NICE;
    }
    [used, running]
}
