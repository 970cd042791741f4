//! A process that ends with its owner, also if that is killed.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often its end is polled.
const POLL: Duration = Duration::from_millis(10);

/// A child process. It is killed when this is dropped.
///
/// The kernel kills it when the thread that started it ends (`PR_SET_PDEATHSIG`, see prctl(2)): a
/// thread of its own, which waits for its end. So it also ends when this process is killed.
#[derive(Debug)]
pub(super) struct Process {
    end: Option<Sender<()>>,
    status: Arc<Mutex<Option<String>>>,
    keeper: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a command that runs by setpriv(1) with the option `--pdeathsig`.
    pub(super) fn start(command: Command) -> io::Result<Self> {
        let (told, answer) = sync_channel(1);
        let (end, ends) = channel();
        let status = Arc::<Mutex<_>>::default();
        let kept = Arc::clone(&status);
        let keeper = thread::Builder::new().name("guest".to_owned());
        let keeper = keeper.spawn(move || keep(command, &told, &ends, &kept))?;
        let process = Self {
            end: Some(end),
            status,
            keeper: Some(keeper),
        };
        let gone = || io::Error::other("its thread has ended");
        answer.recv().map_err(|_| gone())??;
        Ok(process)
    }

    /// How it has ended, if it has.
    pub(super) fn status(&self) -> Option<String> {
        let status = self.status.lock();
        status.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for its end; false if it has not ended after `time_max`.
    pub(super) fn wait(&self, time_max: Duration) -> bool {
        let start = Instant::now();
        while self.status().is_none() {
            if start.elapsed() >= time_max {
                return false;
            }
            thread::sleep(POLL);
        }
        true
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end.take();
        if let Some(keeper) = self.keeper.take() {
            // It does not panic; a drop could not pass that on.
            keeper.join().unwrap_or(());
        }
    }
}

/// Starts a command, says whether that succeeded, and waits for its end, or kills it once `ends`
/// says so or its sender is dropped.
fn keep(
    mut command: Command,
    told: &SyncSender<io::Result<()>>,
    ends: &Receiver<()>,
    status: &Mutex<Option<String>>,
) {
    let child = command.spawn();
    // With its descriptors: the other end of each sees its end.
    drop(command);
    let (child, answer) = match child {
        Ok(child) => (Some(child), Ok(())),
        Err(error) => (None, Err(error)),
    };
    // The starter waits for it.
    told.send(answer).unwrap_or(());
    let Some(mut child) = child else {
        return;
    };
    let ended = wait(&mut child, ends);
    let ended = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
    *status.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
}

fn wait(child: &mut Child, ends: &Receiver<()>) -> io::Result<std::process::ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        match ends.recv_timeout(POLL) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                child.kill()?;
                return child.wait();
            }
        }
    }
}
