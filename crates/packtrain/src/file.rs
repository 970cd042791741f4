//! The file that a capture is written to.

use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Where links are the kernel's or root's, and name what the process has open: `/dev/stdout`,
/// `/dev/fd/5`.
const LINKS_FOLLOWED: [&str; 3] = ["/dev", "/dev/fd", "/proc/self/fd"];

/// Creates a file to write a capture to, which only its owner may read and write (mode 0600): it
/// holds what others sent. A file that exists is emptied, and keeps its mode. A symbolic link is
/// not followed, since another user may have made it to have a file of this one emptied; links of
/// `/dev`, `/dev/fd` and `/proc/self/fd` are.
///
/// # Errors
///
/// When the system refuses; [`ErrorKind::InvalidInput`] for a symbolic link.
pub fn create(path: &Path) -> io::Result<File> {
    let folder = path.parent();
    let follow = LINKS_FOLLOWED.map(Path::new).map(Some).contains(&folder);
    let flags = if follow {
        OFlags::empty()
    } else {
        OFlags::NOFOLLOW
    };
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let opened = options.custom_flags(flags.bits().cast_signed()).open(path);
    opened.map_err(|error| {
        if path.is_symlink() && !follow {
            let why = "it is a symbolic link, which is not followed; name the file behind it";
            io::Error::new(ErrorKind::InvalidInput, why)
        } else {
            error
        }
    })
}
