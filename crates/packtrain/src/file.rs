//! Files that are written for the user: captures, documents and pages; and pipes and sockets that
//! are read or written without waiting.
//!
//! A symbolic link is not followed, since another user may have made it to have a file of this one
//! emptied; links of `/dev`, `/dev/fd` and `/proc/self/fd` are. A file that exists keeps its mode
//! and its owner. No folder is made.

use crate::name::Name;
use rustix::fs::OFlags;
use rustix::io::ioctl_fionbio;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::cell::Cell;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where links are the kernel's or root's, and name what the process has open: `/dev/stdout`,
/// `/dev/fd/5`.
const LINKS_FOLLOWED: [&str; 3] = ["/dev", "/dev/fd", "/proc/self/fd"];

/// The mode of a new capture: only its owner may read and write what others sent.
const PRIVATE: u32 = 0o600;

/// The name of standard input and of standard output, as in tcpdump.
pub const STANDARD: &str = "-";

/// The file that a user's `name` stands for: [`STANDARD`] is a file of `/dev`.
#[must_use]
pub fn named(name: &str, is_written: bool) -> &Path {
    Path::new(match (name, is_written) {
        (STANDARD, true) => "/dev/stdout",
        (STANDARD, false) => "/dev/stdin",
        _ => name,
    })
}

/// Creates a file to write a capture to, with mode 0600. A file that exists is emptied, except for
/// one behind standard output ([`STANDARD`]): the shell decided (`>` or `>>`). It is locked
/// (`flock`) until it is closed, since two writers would corrupt it.
///
/// # Errors
///
/// When the system refuses; [`ErrorKind::InvalidInput`] for a symbolic link, and
/// [`ErrorKind::ResourceBusy`] for a file that is locked.
pub fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    // Emptied below, not before the lock: packets of another writer are not lost.
    options.write(true).create(true).truncate(false);
    let is_standard = path.as_os_str() == STANDARD;
    let file = if is_standard {
        standard_output()?
    } else {
        open(path, options.mode(PRIVATE))?
    };
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
        if !is_standard {
            file.set_len(0)?;
        }
    }
    Ok(file)
}

/// A file that counts the calls made on it.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) file: File,
    pub(crate) calls: u64,
    /// Each call is made with `MSG_DONTWAIT`.
    dont_wait: Cell<bool>,
}

impl Counted {
    pub(crate) const fn new(file: File) -> Self {
        Self {
            file,
            calls: 0,
            dont_wait: Cell::new(false),
        }
    }

    /// From now on calls return instead of waiting for another program. A socket cannot be opened
    /// by its name, so it is standard input or output: non-blocking, it would be so for the other
    /// programs that have it, too.
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        if self.file.metadata()?.file_type().is_socket() {
            self.dont_wait.set(true);
        } else if may_block(&self.file) {
            ioctl_fionbio(&self.file, true)?;
        }
        Ok(())
    }
}

impl Read for Counted {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.calls += 1;
        if self.dont_wait.get() {
            let (bytes, _) = recv(&self.file, out, RecvFlags::DONTWAIT)?;
            return Ok(bytes);
        }
        self.file.read(out)
    }
}

impl Seek for Counted {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.calls += 1;
        self.file.seek(to)
    }
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.calls += 1;
        if self.dont_wait.get() {
            return Ok(send(&self.file, bytes, SendFlags::DONTWAIT)?);
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        // A `File` buffers nothing.
        Ok(())
    }
}

/// Whether a call on the file may wait for another program: a pipe, a terminal and the like.
pub(crate) fn may_block(file: &File) -> bool {
    // If the metadata cannot be read, it may.
    !file.metadata().is_ok_and(|metadata| metadata.is_file())
}

/// Removes the last `bytes` bytes that were written to a regular file: a part of a record, without
/// which the capture can be read. If the file continues behind them, nothing is removed.
pub(crate) fn remove_last(mut file: &File, bytes: u64) -> io::Result<()> {
    let metadata = file.metadata()?;
    if bytes > 0 && metadata.is_file() && metadata.len() == file.stream_position()? {
        let end = metadata.len().saturating_sub(bytes);
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
    }
    Ok(())
}

/// Opens a capture to read; [`STANDARD`] is standard input.
///
/// # Errors
///
/// When the system refuses.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    if path.as_os_str() != STANDARD {
        return File::open(path);
    }
    let again = || File::open(named(STANDARD, false));
    standard(io::stdin().as_fd(), again)
}

fn standard_output() -> io::Result<File> {
    let again = || File::options().write(true).open(named(STANDARD, true));
    standard(io::stdout().as_fd(), again)
}

/// A file shares the position with the shell. Anything else is opened again if it can be, as all
/// but a socket can: made non-blocking, it would be so for other programs, too.
fn standard(own: BorrowedFd<'_>, again: impl Fn() -> io::Result<File>) -> io::Result<File> {
    let own = File::from(own.try_clone_to_owned()?);
    if own.metadata()?.is_file() {
        return Ok(own);
    }
    Ok(again().unwrap_or(own))
}

/// Writes `text` to `path`. A new file has the mode that the process gives to its files. A regular
/// file that exists is replaced in one step, by a rename, so its readers and its other hard links
/// keep the old content; one of another user or group is written to in place, so it keeps both.
///
/// # Errors
///
/// As [`create`]. A file that is replaced is then unchanged.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    if let Some((mut temporary, name)) = replacement(path)? {
        let written = temporary.write_all(text.as_bytes());
        let renamed = written.and_then(|()| fs::rename(&name, path));
        if renamed.is_err() {
            fs::remove_file(&name)?;
        }
        return renamed;
    }
    open(path, File::options().write(true).truncate(true))?.write_all(text.as_bytes())
}

/// Finds out whether [`replace`] can write to `path`, and leaves what is there.
///
/// # Errors
///
/// As [`replace`].
pub fn can_replace(path: &Path) -> io::Result<()> {
    match replacement(path)? {
        Some((_, name)) => fs::remove_file(name),
        None => Ok(()),
    }
}

/// An empty file beside `path`, with the mode of `path` and the name under which it is until it
/// replaces it. `None` if `path` is to be written to in place, which is possible.
fn replacement(path: &Path) -> io::Result<Option<(File, PathBuf)>> {
    let old = match open(path, File::options().write(true)) {
        Ok(old) => Some(old.metadata()?),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    // A device, or a link that names what the process has open.
    if path.is_symlink() || old.as_ref().is_some_and(|old| !old.is_file()) {
        return Ok(None);
    }
    let name = Name::from(path.file_name().unwrap_or_default());
    let name = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let file = open(&name, File::options().write(true).create_new(true))?;
    if let Some(old) = old {
        let made = file.metadata()?;
        let owner = |file: &fs::Metadata| (file.uid(), file.gid());
        if owner(&made) != owner(&old) {
            fs::remove_file(name)?;
            return Ok(None);
        }
        file.set_permissions(old.permissions())?;
    }
    Ok(Some((file, name)))
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let folder = path.parent();
    let follow = LINKS_FOLLOWED.map(Path::new).map(Some).contains(&folder);
    let flags = if follow {
        OFlags::empty()
    } else {
        OFlags::NOFOLLOW
    };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A folder of its own, which is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir();
            let path = path.join(format!("packtrain-file-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn count(&self) -> usize {
            fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let removed = fs::remove_dir_all(&self.0);
            assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
        }
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_file_is_replaced_in_one_step_and_keeps_its_mode() {
        let folder = Folder::new("replace");
        let [path, other] = ["page", "second name"].map(|name| folder.0.join(name));
        replace(&path, "1").unwrap();
        assert_ne!(mode(&path), PRIVATE, "a page is not a capture");
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        fs::hard_link(&path, &other).unwrap();
        can_replace(&path).unwrap();
        assert_eq!((text(&path), folder.count()), ("1".to_owned(), 2));
        replace(&path, "2").unwrap();
        assert_eq!((text(&path), text(&other)), ("2".into(), "1".into()));
        assert_eq!((mode(&path), folder.count()), (0o640, 2));
    }

    #[test]
    fn a_file_of_another_user_is_written_to_in_place() {
        let folder = Folder::new("owner");
        let path = folder.0.join("page");
        fs::write(&path, "a long text").unwrap();
        let other = Some(65534);
        if std::os::unix::fs::chown(&path, other, other).is_err() {
            println!("SKIP: only root can give a file to another user");
            return;
        }
        replace(&path, "2").unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (65534, 65534));
        assert_eq!((text(&path), folder.count()), ("2".to_owned(), 1));
    }

    #[test]
    fn no_link_is_followed_and_no_folder_made() {
        let folder = Folder::new("links");
        let [file, link, below] = ["file", "link", "no/page"].map(|name| folder.0.join(name));
        fs::write(&file, "1").unwrap();
        symlink(&file, &link).unwrap();
        for refused in [
            create(&link).map(drop),
            replace(&link, "2"),
            can_replace(&link),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("symbolic link"), "{error}");
        }
        for refused in [
            create(&below).map(drop),
            replace(&below, "2"),
            can_replace(&below),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
        }
        replace(&folder.0, "2").unwrap_err();
        assert_eq!((text(&file), folder.count()), ("1".to_owned(), 2));
        // These name what the process has open.
        create(Path::new("/dev/null")).unwrap();
        replace(Path::new("/dev/null"), "2").unwrap();
    }

    #[test]
    fn a_second_writer_of_a_file_is_refused_and_loses_nothing() {
        let name = format!("packtrain-lock-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let first = create(&path).expect("a file");
        fs::write(&path, "packets").expect("it is written");
        let second = create(&path).expect_err("the file is locked");
        assert_eq!(second.kind(), ErrorKind::ResourceBusy);
        assert_eq!(fs::read(&path).expect("the file"), b"packets");
        drop(first);
        let again = create(&path).expect("the first one has ended");
        assert_eq!(again.metadata().expect("its size").len(), 0);
        fs::remove_file(&path).expect("the file is removed");
    }
}
