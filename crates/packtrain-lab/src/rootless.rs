//! A user namespace in which the process is root, so that an unprivileged user can use the
//! laboratory.

use std::fs;

use crate::error::{Feature, Missing};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

/// Capability numbers from `linux/capability.h`.
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

/// Makes the process root of a new user namespace (only the current user and group exist in it).
///
/// `main` must call it first: the kernel refuses it if the process has more than one
/// thread. In the namespace network namespaces, veth, TAP and AF_PACKET work. BPF programs, real
/// interfaces and socket buffers above `net.core.rmem_max` do not.
///
/// # Errors
/// [`Missing`] with [`Feature::UserNamespaces`].
pub fn enter() -> Result<(), Missing> {
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).map_err(unshare_failed)?;
    // Since Linux 3.19 an unprivileged gid map requires that setgroups is denied first.
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", &format!("0 {gid} 1"))
}

/// Calls [`enter`] only if the process lacks the privilege to administer networks. Returns whether
/// it did. The same rule about threads applies.
///
/// # Errors
/// As [`enter`].
pub fn enter_if_needed() -> Result<bool, Missing> {
    if privileged() {
        return Ok(false);
    }
    enter()?;
    Ok(true)
}

/// Whether the process has `CAP_NET_ADMIN` and `CAP_SYS_ADMIN` in effect in its user namespace.
pub fn privileged() -> bool {
    let wanted = 1u64 << CAP_NET_ADMIN | 1u64 << CAP_SYS_ADMIN;
    fs::read_to_string("/proc/thread-self/status")
        .ok()
        .and_then(|status| capabilities(&status))
        .is_some_and(|effective| effective & wanted == wanted)
}

/// The `CapEff` line of a `/proc/*/status` file.
fn capabilities(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

fn unshare_failed(errno: Errno) -> Missing {
    let errno = errno as i32;
    let hint = match errno {
        libc::EINVAL if threads() > 1 => "it must be entered before any thread is started",
        libc::EINVAL | libc::ENOSYS => "the kernel is built without CONFIG_USER_NS; run as root",
        libc::ENOSPC | libc::EUSERS => {
            "the sysctl user.max_user_namespaces is 0 or used up; raise it or run as root"
        }
        libc::EPERM => {
            "policy forbids it (kernel.unprivileged_userns_clone, seccomp or chroot); run as root"
        }
        _ => "run as root",
    };
    Missing {
        feature: Feature::UserNamespaces,
        errno,
        hint,
    }
}

fn write(path: &str, text: &str) -> Result<(), Missing> {
    fs::write(path, text).map_err(|error| Missing {
        feature: Feature::UserNamespaces,
        errno: error.raw_os_error().unwrap_or(libc::EIO),
        hint: "identity maps are refused (kernel.apparmor_restrict_unprivileged_userns=1?); \
               run as root",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_capability_line() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t0000000000201000\n";
        assert_eq!(capabilities(status), Some(0x20_1000));
        assert_eq!(capabilities("Name:\tx\n"), None);
        assert_eq!(capabilities("CapEff:\tzz\n"), None);
    }

    #[test]
    fn entering_with_threads_says_so() {
        // The test harness runs this on a second thread, so the kernel refuses with EINVAL.
        let missing = enter().expect_err("a process with threads cannot enter");
        assert_eq!(missing.feature, Feature::UserNamespaces);
        assert_eq!(missing.errno, libc::EINVAL);
        assert_eq!(
            missing.hint,
            "it must be entered before any thread is started"
        );
        assert_eq!(missing.to_string().lines().count(), 1);
    }
}
