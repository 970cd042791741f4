//! A program under test that moves packets between two TUN or TAP devices: its processes, and its
//! two interfaces in hosts.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};

use crate::error::{LabError, ToolError};
use crate::link::{Link, Rtnl};
use crate::netns::Netns;
use crate::output::{Log, Output};
use crate::tap::{self, Tap};
use crate::topology::{Settings, TwoHosts};
use crate::used::{Threads, Used, letter};

/// The names of both interfaces, which replace `{a}` and `{b}` in a command.
pub const NAMES: [&str; 2] = ["pt-a", "pt-b"];

/// Runs each command of its arguments by a shell, and then waits for the end of standard input, on
/// which it ends. It is the first process of a PID namespace: the kernel ends all others with it,
/// also if this process was killed. Descriptor 3 reports the commands that have ended.
const RUN: &str = r#"
exec 3>&1 1>&2
for command in "$@"; do
    (sh -c "$command" </dev/null 3>&-; echo "$?" >&3) &
done
exec 3>&- cat >/dev/null
"#;

/// How long the settings of an interface stay the same before it is moved, of the time that the
/// program has: until then it may be setting them.
const QUIET: Duration = Duration::from_millis(250);

/// How long a process may take to stop.
const STOPS: Duration = Duration::from_secs(1);

/// What is run.
#[derive(Clone, Debug)]
pub struct Exec {
    /// One command, or that of each end, as a shell reads them, with `{a}` and `{b}`.
    pub commands: Vec<String>,
    /// Devices that are made before it is started, and stay when it closes them.
    pub made: Option<Made>,
    /// How long its devices may take to appear.
    pub wait: Duration,
    /// Where its output goes, standard output and standard error of all commands. Without a log
    /// only the last line is kept, for errors.
    pub log: Option<Arc<Log>>,
}

/// The kind of devices that are made for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Made {
    /// TUN: IP packets
    Tun,
    /// TAP: Ethernet frames
    Tap,
}

impl Exec {
    /// One command of words.
    pub fn of_words(words: &[String]) -> Vec<String> {
        vec![
            words
                .iter()
                .map(|word| quoted(word))
                .collect::<Vec<_>>()
                .join(" "),
        ]
    }

    fn filled(&self) -> Vec<String> {
        let fill = |command: &String| {
            let [a, b] = NAMES;
            command.replace("{a}", a).replace("{b}", b)
        };
        self.commands.iter().map(fill).collect()
    }
}

/// A word as a shell reads it, placeholders as they are.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let rest = word.replace("{a}", "").replace("{b}", "");
    if !word.is_empty() && rest.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The processes of a program. Dropping it ends all of them.
#[derive(Debug)]
pub struct Program {
    first: Child,
    /// The inode of its PID namespace.
    namespace: u64,
    /// What its commands ended with, in the order of their ends.
    ended: Arc<Mutex<Vec<String>>>,
    /// Standard output and standard error of all its processes. A thread reads them, and keeps a
    /// tail of bounded length.
    output: Arc<Output>,
    /// What it runs in.
    netns: Netns,
}

impl Program {
    /// Starts a program, waits for its interfaces and moves them into hosts.
    ///
    /// # Errors
    /// [`ToolError::Failed`] with the last line that the program printed, if it ends or does not
    /// open its interfaces in time; [`ToolError::Missing`] without permission.
    pub fn start(exec: &Exec, settings: &Settings) -> Result<(Self, TwoHosts), ToolError> {
        let netns = Netns::new()?;
        for name in NAMES {
            match exec.made {
                None => {}
                Some(Made::Tun) => netns.run(|| persistent(&Tap::tun(name)))??,
                Some(Made::Tap) => netns.run(|| persistent(&Tap::new(name)))??,
            }
        }
        let (output, write) = io::pipe().map_err(LabError::from_io("pipe"))?;
        let output = Output::read(output.into(), exec.log.clone())?;
        let commands = exec.filled();
        let mut first = netns.run(|| {
            // Of this thread's children.
            unshare(CloneFlags::CLONE_NEWPID).map_err(LabError::from_errno("unshare(NEWPID)"))?;
            Command::new("sh")
                .args(["-c", RUN, "sh"])
                .args(&commands)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(write)
                .spawn()
                .map_err(LabError::from_io("start sh"))
        })??;
        let ended = Arc::default();
        if let Some(reports) = first.stdout.take() {
            let ended = Arc::clone(&ended);
            thread::spawn(move || collect(reports, &ended));
        }
        let namespace = pid_namespace(first.id()).unwrap_or(0);
        let program = Self {
            first,
            namespace,
            ended,
            output,
            netns,
        };
        program.wait_for_interfaces(exec)?;
        let hosts = TwoHosts::moved(settings, &program.netns, NAMES)?;
        Ok((program, hosts))
    }

    /// Waits until both interfaces are there and their settings are at rest.
    fn wait_for_interfaces(&self, exec: &Exec) -> Result<(), ToolError> {
        let start = Instant::now();
        let mut rtnl = self.netns.rtnl()?;
        let mut last: Option<[Link; 2]> = None;
        let (mut before, mut quiet) = (self.threads(), Duration::ZERO);
        loop {
            if let Some(status) = self.ended() {
                return Err(ToolError::Failed(format!(
                    "the program ended before it had both interfaces: {status}{}",
                    self.printed()
                )));
            }
            let links = rtnl.links()?;
            let find = |name| {
                let link = links.iter().find(|link| link.name == name).cloned();
                // A device that was made is not the program's until that has opened it.
                link.filter(|link| exec.made.is_none() || link.passes_packets())
            };
            let found = match NAMES.map(find) {
                [Some(a), Some(b)] => Some([a, b]),
                _ => None,
            };
            let now = self.threads();
            quiet += before.had(&now);
            before = now;
            if found != last {
                (last, quiet) = (found, Duration::ZERO);
            } else if last.is_some() && quiet >= QUIET {
                return Ok(());
            }
            if start.elapsed() > exec.wait {
                let there = links.iter().map(|link| link.name.as_str());
                let there = there.filter(|name| *name != "lo").collect::<Vec<_>>();
                return Err(ToolError::Failed(format!(
                    "the program did not open interfaces called {} and {} within {} s (it has: \
                     {}); give it {{a}} and {{b}} as names, or --made tun or tap if it only opens \
                     devices that exist{}",
                    NAMES[0],
                    NAMES[1],
                    exec.wait.as_secs(),
                    if there.is_empty() {
                        "none".to_owned()
                    } else {
                        there.join(", ")
                    },
                    self.printed()
                )));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// What the program ended with; `None` while it runs. A command that succeeded may have left
    /// its work to other processes.
    pub fn ended(&self) -> Option<String> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = ended.iter().find(|status| *status != "0");
        let status = failed.or_else(|| ended.first().filter(|_| self.processes().next().is_none()));
        Some(match status?.parse::<i32>() {
            Ok(status @ 129..=192) => format!("ended by signal {}", status - 128),
            Ok(status) => format!("exit status {status}"),
            Err(_) => format!("ended ({status:?})"),
        })
    }

    /// The last line of its output, for the end of an error; empty if it printed nothing.
    pub fn printed(&self) -> String {
        let last = self.output.last_line();
        last.map_or_else(String::new, |line| {
            format!("; the last line it printed: {line}")
        })
    }

    /// Datagrams that its own UDP sockets had no room for: those between two ends.
    pub(crate) fn datagrams_refused(&self) -> Result<u64, LabError> {
        let counters = self.netns.counters()?;
        Ok(counters.udp_rcvbuf_errors + counters.udp6_rcvbuf_errors)
    }

    /// Stops all its processes, until [`resume`](Self::resume): what arrives meanwhile waits in
    /// queues, as while a scheduler runs other processes.
    pub(crate) fn pause(&self) {
        for pid in self.processes() {
            signal(pid, rustix::process::Signal::STOP);
        }
        let is_stopped = |pid: u32| state(pid).is_none_or(|state| state == 'T');
        let begin = Instant::now();
        while !self.processes().all(is_stopped) && begin.elapsed() < STOPS {
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Lets its processes go on.
    pub(crate) fn resume(&self) {
        for pid in self.processes() {
            signal(pid, rustix::process::Signal::CONT);
        }
    }

    /// Its threads now.
    pub(crate) fn threads(&self) -> Threads {
        Threads::of(self.processes(), "")
    }

    /// CPU time, context switches and threads of all its processes.
    pub fn used(&self) -> Used {
        let mut all = Used::default();
        for pid in self.processes() {
            let one = Used::of_process(pid);
            all.cpu += one.cpu;
            all.threads += one.threads;
            all.voluntary_switches += one.voluntary_switches;
            all.involuntary_switches += one.involuntary_switches;
        }
        all
    }

    /// Resident memory of all its processes, in bytes.
    pub fn resident(&self) -> u64 {
        let of = |pid: u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
        };
        self.processes().filter_map(of).sum::<u64>() * 1024
    }

    /// All processes of its PID namespace that run, but the first, which only waits. It takes no
    /// status of a process that has ended: such a zombie is left out.
    fn processes(&self) -> impl Iterator<Item = u32> {
        let (namespace, first) = (self.namespace, self.first.id());
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(move |entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let is_one = pid != first && pid_namespace(pid)? == namespace;
            (is_one && state(pid)? != 'Z').then_some(pid)
        })
    }
}

impl Program {
    /// Ends all its processes.
    pub fn end(&mut self) {
        let ended = self.first.kill().and_then(|()| self.first.wait());
        debug_assert!(ended.is_ok(), "{ended:?}");
        // The kernel has ended all others before: the pipe has the last of their output.
        self.output.take();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// A process that has ended meanwhile needs no signal.
fn signal(pid: u32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid.cast_signed()) {
        let _has_ended = rustix::process::kill_process(pid, signal);
    }
}

/// The letter of a process's state; `None` if there is no such process.
fn state(pid: u32) -> Option<char> {
    letter(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn pid_namespace(pid: u32) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{pid}/ns/pid")).ok()?.ino())
}

fn collect(reports: impl Read, ended: &Mutex<Vec<String>>) {
    for line in BufReader::new(reports).lines().map_while(Result::ok) {
        ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
    }
}

/// Makes a device that stays without a descriptor, and sets it up, so that its carrier tells when a
/// program has opened it.
fn persistent(tap: &Tap) -> Result<(), LabError> {
    let descriptors = tap.clone().multi_queue(false).open()?;
    tap::set_persistent(descriptors[0].as_fd())?;
    let mut rtnl = Rtnl::open()?;
    let index = rtnl.link(tap.name())?.index;
    rtnl.set_up(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        let words = [
            "./x",
            "tap:{a},offload=off",
            "a b",
            "",
            "it's",
            "{x:1,y:2}",
            "{b}",
        ];
        let words = words.map(str::to_owned);
        let exec = Exec {
            commands: Exec::of_words(&words),
            made: None,
            wait: Duration::ZERO,
            log: None,
        };
        let line = r"./x tap:pt-a,offload=off 'a b' '' 'it'\''s' '{x:1,y:2}' pt-b";
        assert_eq!(exec.filled(), [line]);
    }
}
