//! The file that a capture is written to.

use rustix::fs::OFlags;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Where links are the kernel's or root's, and name what the process has open: `/dev/stdout`,
/// `/dev/fd/5`.
const LINKS_FOLLOWED: [&str; 3] = ["/dev", "/dev/fd", "/proc/self/fd"];

/// Creates a file to write a capture to, which only its owner may read and write (mode 0600): it
/// holds what others sent. A file that exists is emptied, and keeps its mode. The file is locked
/// (`flock`) until it is closed: two writers would corrupt it. A symbolic link is
/// not followed, since another user may have made it to have a file of this one emptied; links of
/// `/dev`, `/dev/fd` and `/proc/self/fd` are.
///
/// # Errors
///
/// When the system refuses; [`ErrorKind::InvalidInput`] for a symbolic link, and
/// [`ErrorKind::ResourceBusy`] for a file that is locked.
pub fn create(path: &Path) -> io::Result<File> {
    let folder = path.parent();
    let follow = LINKS_FOLLOWED.map(Path::new).map(Some).contains(&folder);
    let flags = if follow {
        OFlags::empty()
    } else {
        OFlags::NOFOLLOW
    };
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let opened = options.custom_flags(flags.bits().cast_signed()).open(path);
    let file = opened.map_err(|error| {
        if path.is_symlink() && !follow {
            let why = "it is a symbolic link, which is not followed; name the file behind it";
            io::Error::new(ErrorKind::InvalidInput, why)
        } else {
            error
        }
    })?;
    // Pipes and devices have no contents, and may have several writers.
    if file.metadata()?.is_file() {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let why = "another program or port writes to it; name another file";
                return Err(io::Error::new(ErrorKind::ResourceBusy, why));
            }
            // A file system without locks.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => {}
        }
        // Not before the lock: another writer's packets are not lost.
        file.set_len(0)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_of_a_file_is_refused_and_loses_nothing() {
        let name = format!("packtrain-lock-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let first = create(&path).expect("a file");
        std::fs::write(&path, "packets").expect("it is written");
        let second = create(&path).expect_err("the file is locked");
        assert_eq!(second.kind(), ErrorKind::ResourceBusy);
        assert_eq!(std::fs::read(&path).expect("the file"), b"packets");
        drop(first);
        let again = create(&path).expect("the first one has ended");
        assert_eq!(again.metadata().expect("its size").len(), 0);
        std::fs::remove_file(&path).expect("the file is removed");
    }
}
