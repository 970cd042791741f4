//! The files of VFIO and iommufd, and what their errors say.

use crate::driver::DeviceError;
use crate::port::sys::device::{failed, unsupported};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No call within leaves a state that is half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error of a mapping: the kernel locks the memory in place.
pub(super) fn of_locked(error: io::Error, bytes: usize) -> io::Error {
    if error.raw_os_error() != Some(libc::ENOMEM) {
        return error;
    }
    let limit = getrlimit(Resource::Memlock).current;
    let limit = limit.map_or("unlimited".to_owned(), |limit| format!("{limit} bytes"));
    io::Error::new(
        io::ErrorKind::OutOfMemory,
        format!(
            "{error}: a card needs {bytes} bytes locked in memory, and the limit on all \
             (RLIMIT_MEMLOCK) is {limit}; raise it with `ulimit -l`, or LimitMEMLOCK= of the \
             service"
        ),
    )
}

/// Opens a file of the kernel's by its path below the root: `dev/vfio/vfio` makes a container,
/// `dev/iommu` an iommufd, and others are a group or a function.
pub(super) fn open_file(root: &Path, path: &str) -> Result<OwnedFd, DeviceError> {
    let shown = format!("/{path}");
    match open(
        root.join(path),
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Err(Errno::NOENT) => unsupported(format!(
            "{shown} is not there: `modprobe vfio-pci`, or give the container {}",
            match path.starts_with("dev/vfio") {
                true => "/dev/vfio",
                false => &shown,
            }
        )),
        Err(Errno::BUSY) => unsupported(format!(
            "{shown} is in use{}: an IOMMU group is for one process at a time",
            users(root, &shown)
        )),
        Err(error @ (Errno::ACCESS | Errno::PERM)) => {
            let text = format!("{error}; run as root, or `sudo chown $USER {shown}`");
            let kind = io::ErrorKind::PermissionDenied;
            Err(failed("open a file of VFIO")(io::Error::new(kind, text)))
        }
        opened => opened
            .map_err(io::Error::from)
            .map_err(failed("open a file of VFIO")),
    }
}

/// The processes that have a file open, as the end of "in use"; empty if none is seen.
pub(super) fn users(root: &Path, file: &str) -> String {
    let has = |process: &Path| {
        let fds = fs::read_dir(process.join("fd")).into_iter().flatten();
        let mut targets = fds.flatten().map(|fd| fs::read_link(fd.path()));
        targets.any(|target| target.is_ok_and(|target| target == Path::new(file)))
    };
    let processes = fs::read_dir(root.join("proc")).into_iter().flatten();
    let named = processes.flatten().filter_map(|process| {
        let id: u32 = process.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(process.path().join("comm")).ok()?;
        has(&process.path()).then(|| format!("{} (process {id})", name.trim()))
    });
    let mut named: Vec<_> = named.collect();
    named.sort();
    match named.is_empty() {
        true => String::new(),
        false => format!(" by {}", named.join(", ")),
    }
}
