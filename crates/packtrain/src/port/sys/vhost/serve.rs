//! The socket of a vhost-user port, and the thread that answers the front end: at once, also while
//! no worker runs, since a machine stands still meanwhile.

#[cfg(feature = "internals")]
use super::by_hand::FrontEnd;
use super::device::Device;
use super::message::{HEADER_BYTES, Header, REGIONS_MAX};
use crate::name::Name;
use crate::port::sys::threads::give_up_capabilities;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{Mode, fchmod};
use rustix::io::{Errno, IoSliceMut, write};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, bind, connect, listen, recvmsg, send, socket_with,
};
use rustix::time::Timespec;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// The time between attempts to connect.
const RETRY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
/// Connections that may wait to be turned away.
const BACKLOG: i32 = 16;

/// The time between two looks into the control ring. A guest that asks without end has each answer
/// wake all workers of the port.
const CONTROL_REST: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// How a front end and the port meet.
#[derive(Debug)]
pub(in crate::port) enum Endpoint {
    /// The front end connects.
    Listen(Listener),
    /// The front end listens at this path. It may be connected already.
    Connect(PathBuf, Option<UnixStream>),
    /// The front end is the caller: there is no thread.
    #[cfg(feature = "internals")]
    Hand(FrontEnd),
}

impl Endpoint {
    /// Connects to the front end that listens at `path`, if it is there: later this process may
    /// have fewer rights. One that is not there yet is waited for.
    ///
    /// # Errors
    ///
    /// Why no front end can be there, such as a file that is no socket.
    pub(in crate::port) fn connect(path: &Path) -> Result<Self, String> {
        let connected = match connect_to(path) {
            Ok(stream) => Some(stream),
            Err(error) => match obstacle(path, &error) {
                Some(why) => return Err(why),
                None => None,
            },
        };
        Ok(Self::Connect(path.to_owned(), connected))
    }

    /// The file of the socket, if it was made here.
    pub(in crate::port) fn file(&self) -> Option<&SocketFile> {
        match self {
            Self::Listen(listener) => listener.file.as_ref(),
            _ => None,
        }
    }
}

/// The file of a socket that a port has made, and removes when it is dropped. After a process was
/// killed its file is left: the next port of the same path replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketFile {
    /// The path, as it was given.
    pub path: PathBuf,
    /// The device of the file system (`st_dev`).
    pub device: u64,
    /// The number of the inode (`st_ino`). No other file has it while the port is open.
    pub inode: u64,
}

/// A socket that front ends connect to. Its file is removed when it is dropped, if it was made
/// here.
#[derive(Debug)]
pub(in crate::port) struct Listener {
    socket: UnixListener,
    file: Option<SocketFile>,
}

impl Listener {
    /// Makes the socket. The file of a process that has ended is replaced.
    ///
    /// # Errors
    ///
    /// The system's; [`io::ErrorKind::AddrInUse`] with the user of the path.
    pub(in crate::port) fn bind(path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let socket = unix_socket(SocketType::STREAM)?;
        // Who connects shares memory with this process, so only its user does. The file is made
        // with the mode of the socket.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {
                match make_room(path) {
                    // Another process removed it meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    made => made?,
                }
                bind(&socket, &address)
            }
            bound => bound,
        }?;
        listen(&socket, BACKLOG)?;
        let socket = UnixListener::from(socket);
        let file = fs::symlink_metadata(path)?;
        let mut listener = Self::from(socket);
        listener.file = Some(SocketFile {
            path: path.to_owned(),
            device: file.dev(),
            inode: file.ino(),
        });
        Ok(listener)
    }
}

impl From<UnixListener> for Listener {
    /// The file is left to its maker.
    fn from(socket: UnixListener) -> Self {
        Self { socket, file: None }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(made) = &self.file else {
            return;
        };
        // Another process may have made one in its place.
        let is_ours = fs::symlink_metadata(&made.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == (made.device, made.inode));
        if is_ours {
            // One that cannot be removed is replaced by the next process.
            fs::remove_file(&made.path).unwrap_or(());
        }
    }
}

/// A socket that does not block: the other side decides how long a call that does would take.
fn unix_socket(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    Ok(socket)
}

/// Connects. [`io::ErrorKind::WouldBlock`] if too many others wait there.
fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let socket = unix_socket(SocketType::STREAM)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Whether no process has a socket that is bound to the file at `path`, to which a stream cannot
/// connect: one that does not listen yet refuses a stream in the same way (`ECONNREFUSED`), and a
/// datagram by its type (`EPROTOTYPE`).
fn is_left(path: &Path) -> io::Result<bool> {
    let socket = unix_socket(SocketType::DGRAM)?;
    Ok(connect(&socket, &SocketAddrUnix::new(path)?) == Err(Errno::CONNREFUSED))
}

/// Why a front end cannot be connected to; `None` if it may only not be there yet.
fn obstacle(path: &Path, error: &io::Error) -> Option<String> {
    let shown = Name::from(path);
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::WouldBlock => None,
        // Also of what is no socket.
        io::ErrorKind::ConnectionRefused => {
            let found = fs::metadata(path).ok()?;
            (!found.file_type().is_socket()).then(|| {
                format!(
                    "connecting to {shown}, which is no socket: have the front end make its socket \
                     there"
                )
            })
        }
        _ => Some(format!(
            "connecting to {shown}: {error}; the path has to be that of the front end's socket, \
             for the user that packtrain runs as"
        )),
    }
}

/// Removes a socket without a listener.
fn make_room(path: &Path) -> io::Result<()> {
    let in_use = |by: String| Err(io::Error::new(io::ErrorKind::AddrInUse, by));
    let another = "another process has a socket there; end it, or use another path".to_owned();
    let found = fs::symlink_metadata(path)?;
    if !found.file_type().is_socket() {
        return in_use(
            "the path is no socket but a file or a folder; remove it, or use another path"
                .to_owned(),
        );
    }
    match connect_to(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // Another process may have replaced it meanwhile.
            let now = fs::symlink_metadata(path)?;
            if (now.dev(), now.ino()) != (found.dev(), found.ino()) || !is_left(path)? {
                return in_use(another);
            }
            fs::remove_file(path)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => in_use(another),
        Err(error) => Err(error),
        Ok(stream) => {
            let owner = rustix::net::sockopt::socket_peercred(&stream);
            let owner = owner.map(|of| of.pid.as_raw_nonzero().get());
            let name = |pid| fs::read_to_string(format!("/proc/{pid}/comm"));
            in_use(match owner {
                Ok(pid) => {
                    let name = name(pid).unwrap_or_default();
                    let name = Name::from(name.trim_end());
                    format!("process {pid} ({name}) listens there; end it, or use another path")
                }
                Err(_) => another,
            })
        }
    }
}

/// The thread of a port. It ends when this is dropped.
#[derive(Debug)]
pub(in crate::port) struct Server {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// The system's, without a free descriptor or thread.
    pub(in crate::port) fn start(endpoint: Endpoint, device: Device) -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let stop = Arc::new(stop);
        #[cfg(feature = "internals")]
        if let Endpoint::Hand(front) = &endpoint {
            front.attach(device);
            return Ok(Self { stop, thread: None });
        }
        if let Endpoint::Listen(listener) = &endpoint {
            listener.socket.set_nonblocking(true)?;
        }
        let thread = Thread {
            stop: Arc::clone(&stop),
            endpoint,
            device,
        };
        let builder = Builder::new().name("vhost-user".to_owned());
        let thread = builder.spawn(move || {
            give_up_capabilities();
            thread.run();
        })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if write(&*self.stop, &1_u64.to_ne_bytes()).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // If it has panicked, its message was printed.
            thread.join().unwrap_or(());
        }
    }
}

struct Thread {
    stop: Arc<OwnedFd>,
    endpoint: Endpoint,
    device: Device,
}

/// Why a session with a front end ends.
enum End {
    /// The port is closed.
    Stop,
    /// The front end has left.
    Left,
    /// It is not understood any more.
    Refused(String),
}

impl Drop for Thread {
    fn drop(&mut self) {
        // The link goes down: without this, packets would wait for rings that are served no more.
        if std::thread::panicking() {
            self.device.abandon();
        }
    }
}

impl Thread {
    fn run(mut self) {
        while let Some(stream) = self.meet() {
            self.device.connect();
            let ended = match stream.set_nonblocking(true) {
                Ok(()) => self.session(&stream),
                Err(error) => End::Refused(error.to_string()),
            };
            // Before the socket is closed: the front end may give its memory another use then.
            self.device.disconnect();
            if let End::Stop = ended {
                return;
            }
            self.device.record_gone();
            if let End::Refused(problem) = ended {
                self.device.refuse(&problem);
            }
            // One that closes each connection at once is not asked again at once.
            if let Endpoint::Connect(..) = self.endpoint
                && is_ready(&self.stop, &[], Some(&RETRY)).is_none()
            {
                return;
            }
        }
    }

    /// The next front end; `None` if the port is closed.
    fn meet(&mut self) -> Option<UnixStream> {
        let mut said = None;
        loop {
            let met = match &mut self.endpoint {
                Endpoint::Listen(listener) => {
                    if is_ready(&self.stop, &[&listener.socket], None)?[0] {
                        listener.socket.accept().ok().map(|(stream, _)| stream)
                    } else {
                        None
                    }
                }
                Endpoint::Connect(path, connected) => match connected.take() {
                    Some(stream) => Some(stream),
                    None => match connect_to(path) {
                        Ok(stream) => Some(stream),
                        Err(error) => {
                            let obstacle = obstacle(path, &error);
                            // Each one once.
                            if let Some(problem) = &obstacle
                                && obstacle != said
                            {
                                self.device.report(problem.clone());
                            }
                            said = obstacle;
                            None
                        }
                    },
                },
                #[cfg(feature = "internals")]
                Endpoint::Hand(_) => return None,
            };
            if met.is_some() {
                return met;
            }
            is_ready(&self.stop, &[], Some(&RETRY))?;
        }
    }

    fn session(&mut self, stream: &UnixStream) -> End {
        // More requests in the control ring; an accept failed, and is not tried for a while.
        let (mut more, mut rests) = (false, false);
        let alarm = self.device.alarm();
        loop {
            let listener = match &self.endpoint {
                Endpoint::Listen(listener) if !rests => Some(&listener.socket),
                _ => None,
            };
            let timeout = match (more, rests) {
                (true, _) => Some(&CONTROL_REST),
                (false, true) => Some(&RETRY),
                (false, false) => None,
            };
            rests = false;
            let mut fds: Vec<&dyn AsFd> = vec![stream, &*alarm];
            fds.extend(listener.map(|socket| socket as &dyn AsFd));
            if !more {
                fds.push(self.device.control_bell());
            }
            let Some(ready) = is_ready(&self.stop, &fds, timeout) else {
                return End::Stop;
            };
            if listener.is_some() && ready[2] {
                rests = !self.turn_away();
            }
            if ready[1] {
                self.device.calm();
            }
            if more || ready.last() == Some(&true) {
                // First: what rings from here on is seen by the next poll.
                self.device.control_bell().clear();
                more = self.device.serve_control();
            }
            if ready[0]
                && let Err(end) = self.message(stream)
            {
                return end;
            }
        }
    }

    /// One front end at a time: closes the connection of another one. False if it is still there.
    fn turn_away(&self) -> bool {
        if let Endpoint::Listen(listener) = &self.endpoint
            && let Ok((stream, _)) = listener.socket.accept()
        {
            drop(stream);
            let problem = "a second front end, which was turned away: the first one is connected";
            self.device.refuse(problem);
            return true;
        }
        false
    }

    /// Reads a message, does it, and answers.
    fn message(&mut self, stream: &UnixStream) -> Result<(), End> {
        let mut fds = Vec::new();
        let mut bytes = [0; HEADER_BYTES];
        self.receive(stream, &mut bytes, &mut fds)?;
        let header = Header::decode(bytes).map_err(End::Refused)?;
        let mut payload = vec![0; header.bytes];
        self.receive(stream, &mut payload, &mut fds)?;
        let answer = self.device.answer(&header, &payload, fds);
        let Some(reply) = answer.map_err(End::Refused)? else {
            return Ok(());
        };
        match send(stream, &reply, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == reply.len() => Ok(()),
            Ok(_) | Err(Errno::AGAIN) => {
                Err(End::Refused("a front end that reads no replies".to_owned()))
            }
            Err(_) => Err(End::Left),
        }
    }

    /// Fills `bytes`, and adds the descriptors that come with them.
    fn receive(
        &self,
        stream: &UnixStream,
        bytes: &mut [u8],
        fds: &mut Vec<OwnedFd>,
    ) -> Result<(), End> {
        let mut done = 0;
        while done < bytes.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REGIONS_MAX))];
            let mut with = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut bytes[done..])];
            let got = recvmsg(stream, &mut parts, &mut with, RecvFlags::CMSG_CLOEXEC);
            for message in with.drain() {
                if let RecvAncillaryMessage::ScmRights(more) = message {
                    fds.extend(more);
                }
            }
            // As many as a table of too many regions has, which is refused by its number.
            if fds.len() > 2 * REGIONS_MAX {
                let problem = "more descriptors with one message than any message has";
                return Err(End::Refused(problem.to_owned()));
            }
            match got {
                Ok(got) if got.bytes == 0 => return Err(End::Left),
                Ok(got) => done += got.bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    is_ready(&self.stop, &[stream], None).ok_or(End::Stop)?;
                }
                Err(_) => return Err(End::Left),
            }
        }
        Ok(())
    }
}

/// Waits until one of `fds` is readable, or `timeout` has passed; returns which are. `None` if the
/// thread is to end.
fn is_ready(stop: &OwnedFd, fds: &[&dyn AsFd], timeout: Option<&Timespec>) -> Option<Vec<bool>> {
    let mut all = vec![PollFd::new(stop, PollFlags::IN)];
    all.extend(
        fds.iter()
            .map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)),
    );
    // After an error nothing is ready, and it is tried again.
    poll(&mut all, timeout).unwrap_or(0);
    let mut ready = all.iter().map(|fd| !fd.revents().is_empty());
    if ready.next()? {
        return None;
    }
    Some(ready.collect())
}

#[cfg(test)]
mod tests {
    use super::super::device::Shared;
    use super::*;

    #[test]
    fn a_thread_that_panics_takes_the_link_down_and_says_so() {
        let shared = Arc::new(Shared::new(1).expect("descriptors"));
        let mut device = Device::new(Arc::clone(&shared), 0, None);
        device.connect();
        let stop = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        let thread = Thread {
            stop: Arc::new(stop),
            endpoint: Endpoint::Connect(PathBuf::new(), None),
            device,
        };
        let panics = std::thread::spawn(move || {
            let _thread = thread;
            panic!("a defect");
        });
        assert!(panics.join().is_err());
        let status = shared.status();
        assert!(!status.connected && !shared.is_up());
        let problem = status.problem.expect("it is said");
        assert!(problem.contains("defect"), "{problem}");
    }
}
