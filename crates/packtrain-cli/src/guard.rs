//! The guard: the program once more, as a process that removes the files of its sockets after it
//! was killed. No signal handler runs then, and the kernel leaves the file of a Unix socket.
//!
//! The guard waits for the end of a pipe that only the program holds open. It has the rights that
//! the program was started with, so it also removes what a `--user` may not.

use crate::print;
use crate::privileges::Privileges;
use packtrain::advice;
use packtrain::name::Name;
use packtrain::port::vhost::SocketFile;
use rustix::fs::{Mode, OFlags, open, openat};
use rustix::thread::{CapabilitySet, set_name};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The first argument of the guard. For each file follow its descriptor, that of its directory, and
/// its name there.
const WORD: &str = "socket-guard";
/// This program, also if its file was replaced by another version.
const PROGRAM: &str = "/proc/self/exe";
/// The descriptors of a process, by number.
const DESCRIPTORS: &str = "/proc/self/fd";

/// The guard of a run, if it made a socket. The guard ends, and is reaped, when this is dropped.
#[derive(Debug)]
pub struct Guard(Option<Child>);

impl Guard {
    /// Starts the guard of these files. A file that cannot be guarded is left if the program is
    /// killed, and a line says so. No other thread may start a process meanwhile: it would inherit
    /// the descriptors of the guard.
    pub fn of(files: impl Iterator<Item = SocketFile>) -> Self {
        let mut guard = Command::new(PROGRAM);
        guard.arg0("packtrain").arg(WORD);
        // Open until the guard has them.
        let mut held = Vec::new();
        for file in files {
            match hold(&file) {
                Ok((folder, socket)) => {
                    guard.args([&socket, &folder].map(|of| of.as_raw_fd().to_string()));
                    guard.arg(file.path.file_name().unwrap_or_default());
                    held.push((folder, socket));
                }
                Err(error) => say_unguarded(&Name::from(&file.path), &error),
            }
        }
        if held.is_empty() {
            return Self(None);
        }
        // Another group: Ctrl-C is for the program only. Another output: a reader of the program's
        // finds the end of it also if the guard is still there.
        guard.process_group(0).stdin(Stdio::piped());
        guard.stdout(Stdio::null()).stderr(Stdio::null());
        let started = guard
            .spawn()
            .inspect_err(|error| say_unguarded(&Name::from("its sockets"), error));
        Self(started.ok())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(guard) = &mut self.0 {
            // This closes the pipe first. A guard that has ended before was killed.
            guard.wait().map(drop).unwrap_or(());
        }
    }
}

fn say_unguarded(what: &Name, error: &io::Error) {
    let errno = error.raw_os_error();
    let (descriptors, threads) = (advice::on_descriptors(errno), advice::on_threads(errno));
    print::message(&format!(
        "note: if packtrain is killed, the next start removes {what}: no guard process \
         ({PROGRAM}): {error}{descriptors}{threads}"
    ));
}

/// The directory of the file and the file, as descriptors that a child inherits. The number of the
/// inode is not given to another file until they are closed, and after `--user` that user cannot
/// have the guard remove a file of another directory.
fn hold(file: &SocketFile) -> io::Result<(File, File)> {
    let folder = match file.path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = file.path.file_name().unwrap_or_default();
    let of_folder = OFlags::PATH | OFlags::DIRECTORY;
    let folder = open(folder, of_folder, Mode::empty())?;
    let of_socket = OFlags::PATH | OFlags::NOFOLLOW;
    let socket = openat(&folder, name, of_socket, Mode::empty())?;
    let (folder, socket) = (File::from(folder), File::from(socket));
    let found = socket.metadata()?;
    if (found.dev(), found.ino()) != (file.device, file.inode) {
        return Err(io::Error::other("another process has replaced it"));
    }
    Ok((folder, socket))
}

/// Is the guard, if the arguments of the program say so, until the end of the program that started
/// it.
pub fn serve(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if args.nth(1)? != WORD {
        return None;
    }
    let args: Vec<_> = args.collect();
    Some(match close_others(&args).and_then(|()| wait()) {
        Ok(()) => {
            for file in args.chunks_exact(3) {
                let [made, folder] = [0, 1].map(|at| Path::new(DESCRIPTORS).join(&file[at]));
                remove(&made, &folder.join(&file[2]));
            }
            ExitCode::SUCCESS
        }
        // There is no output to say so.
        Err(_) => ExitCode::FAILURE,
    })
}

/// Closes what the program was started with and has passed on, such as the sockets of `fd=`: as
/// long as another process has them open, their other ends wait.
fn close_others(args: &[OsString]) -> io::Result<()> {
    let own: Vec<_> = args.chunks_exact(3).flat_map(|file| &file[..2]).collect();
    let open = fs::read_dir(DESCRIPTORS)?.flatten();
    let others = open.map(|entry| entry.file_name());
    let others: Vec<_> = others.filter(|name| !own.contains(&name)).collect();
    let numbers = others
        .iter()
        .filter_map(|name| name.to_str()?.parse::<i32>().ok());
    for other in numbers.filter(|number| *number > 2) {
        match nix::unistd::close(other) {
            // The directory itself was among them.
            Ok(()) | Err(nix::Error::EBADF) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits for the end of standard input. Signals that can be handled do not end the guard: one for
/// the group of a service is for the program, which ends in order.
fn wait() -> io::Result<()> {
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ignored))?;
    }
    // `pkill packtrain` is for the program, too.
    set_name(c"socket-guard")?;
    // Writing to a directory of another user is all that it may need.
    let privileges = Privileges::of(None).and_then(|all| all.keep(CapabilitySet::DAC_OVERRIDE));
    privileges.map_err(|failure| io::Error::other(failure.line))?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

/// Removes the socket at `path` if it is still the one behind `made`. One that cannot be removed is
/// replaced by the next process.
fn remove(made: &Path, path: &Path) {
    let is_ours = |made: fs::Metadata, now: fs::Metadata| {
        now.file_type().is_socket() && (made.dev(), made.ino()) == (now.dev(), now.ino())
    };
    if let (Ok(made), Ok(now)) = (fs::metadata(made), fs::symlink_metadata(path))
        && is_ours(made, now)
    {
        fs::remove_file(path).unwrap_or(());
    }
}
