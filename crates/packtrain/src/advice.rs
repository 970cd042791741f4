//! What a person can do about what the system said: the end of an error line.
//!
//! Every piece of advice begins with `; ` and goes behind the error; it is empty where there is
//! nothing to say.

use std::io;

const EAGAIN: i32 = 11; // A limit on threads, of a thread that was to start.
const EMFILE: i32 = 24; // "Too many open files" in this process, on every Linux.

/// For a call that makes a descriptor. A queue has up to two of them, and each of the one or two
/// workers of a pair of queues two.
#[must_use]
pub const fn on_descriptors(errno: Option<i32>) -> &'static str {
    match errno {
        Some(EMFILE) => {
            "; the limit on open files (RLIMIT_NOFILE) is too low: up to 4 for each queue of each \
             port and 16 besides are needed, so raise it with `ulimit -n`"
        }
        _ => "",
    }
}

/// For the start of a thread.
#[must_use]
pub const fn on_threads(errno: Option<i32>) -> &'static str {
    match errno {
        Some(EAGAIN) => {
            "; the limit on threads (RLIMIT_NPROC, or pids.max of the control group) is too low: \
             raise it"
        }
        _ => "",
    }
}

/// For a file that is to be read, or to be made and written.
#[must_use]
pub const fn on_file(kind: io::ErrorKind, write: bool) -> &'static str {
    match kind {
        io::ErrorKind::NotFound if write => "; make its directory first",
        io::ErrorKind::NotFound => "; check the path",
        io::ErrorKind::PermissionDenied => "; check the permissions of the file and its directory",
        io::ErrorKind::IsADirectory => "; name a file",
        io::ErrorKind::StorageFull => "; make room, or name a file elsewhere",
        _ => "",
    }
}
