//! A virtual machine with network cards behind an IOMMU, to work on drivers without a spare card:
//! Debian's kernel in QEMU, without KVM and without a disk. It boots in seconds.
//!
//! The kernel, its modules and BusyBox come from a folder ([`Kernel`]). The root is in memory, with
//! programs of this host and their libraries. The host writes commands to a virtio serial port, and
//! the guest answers with output and exit status ([`Guest::run`]). Each card has a PCI Express port
//! of its own, so it can be unplugged. Its far side is a TAP, a socket or other cards of the guest.
//!
//! QEMU ends when [`Guest`] is dropped, and also if this process is killed: the kernel then kills
//! it.
//!
//! ```no_run
//! use packtrain_lab::guest::{Bound, Card, CardModel, FarSide, Guest, GuestConfig, Kernel};
//!
//! # fn main() -> Result<(), packtrain_lab::ToolError> {
//! let kernel = Kernel::open(Kernel::folder()?)?;
//! let mut config = GuestConfig::new(kernel);
//! for _ in 0..2 {
//!     config.cards.push(Card::new(CardModel::E1000e, FarSide::Hub(0), Bound::Vfio));
//! }
//! let guest = Guest::start(config)?;
//! let output = guest.run("ls /sys/kernel/iommu_groups")?;
//! assert!(output.success());
//! # Ok(())
//! # }
//! ```

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::{Value, json};

use crate::error::ToolError;
use agent::{Agent, Lost};
use card::Place;
use monitor::Monitor;
use process::Process;

mod agent;
mod archive;
mod card;
mod config;
mod kernel;
mod monitor;
mod process;
mod root;

pub use agent::Output;
pub use archive::Archive;
pub use card::{Bound, Card, CardModel, FarSide, mac};
pub use config::{Console, GuestConfig, started};
pub use kernel::{FOLDER_VARIABLE, Kernel};

const PROGRAM: &str = "qemu-system-x86_64";
/// The first slot of the bus for ports of cards.
const SLOT: usize = 4;
/// How long a boot may take. Without other load it is some seconds, and only a hang is a failure.
const BOOT_MAX: Duration = Duration::from_secs(300);
/// How long QEMU may take to end once it was told to.
const QUIT_MAX: Duration = Duration::from_secs(5);
/// How often a stop is polled.
const STOP_POLL: Duration = Duration::from_millis(50);
/// How long a command may go on after its SIGINT: a program that moves packets drains first, and a
/// guest without KVM is slow.
const STOP_MAX: Duration = Duration::from_secs(10);
/// How often streamed output is polled.
const STREAM_POLL: Duration = Duration::from_millis(10);

/// A running guest. QEMU is killed when it is dropped.
#[derive(Debug)]
pub struct Guest {
    process: Process,
    monitor: Mutex<Monitor>,
    agent: Agent,
    streams: Mutex<[UnixStream; 2]>,
    console: Arc<Mutex<String>>,
    /// Of each card: the arguments of `device_add`.
    cards: Vec<Value>,
    places: Vec<Place>,
    ids: AtomicU64,
    run_max: Duration,
    boot: Duration,
}

impl Guest {
    /// Boots a guest, and binds its cards.
    ///
    /// # Errors
    /// [`ToolError::Missing`] if QEMU, setpriv or a file of the kernel's folder is missing;
    /// [`ToolError::Usage`] for a setting out of its range; [`ToolError::Failed`], with what QEMU
    /// or the console said, if the guest does not boot within five minutes, a driver does not take
    /// its card, or [`GuestConfig::stop`] is set meanwhile.
    pub fn start(config: GuestConfig) -> Result<Self, ToolError> {
        config.check()?;
        let start = Instant::now();
        need_programs()?;
        let shell = config.console == Console::Terminal;
        let root = root::write(&config, shell)?;
        let root = in_memory(&root).map_err(failed("the root of a guest"))?;
        let (monitor, theirs) = pair()?;
        let (console, terminal) = pair()?;
        let mut command = command(&config, &root);
        command.stderr(OwnedFd::from(theirs));
        if shell {
            command.stdin(Stdio::inherit()).stdout(Stdio::inherit());
        } else {
            let input = terminal.try_clone().map_err(failed("a socket"))?;
            command
                .stdin(OwnedFd::from(input))
                .stdout(OwnedFd::from(terminal));
            // Ctrl-C is for this process, which ends the guest in order.
            command.process_group(0);
        }
        let process = Process::start(command).map_err(failed(PROGRAM))?;
        let console = kept(console).map_err(failed("the console of a guest"))?;
        let mut monitor = Monitor::new(monitor)?;
        let [lines, out, err] = serial(&mut monitor)?;
        let agent = Agent::new(lines).map_err(failed("the port of a guest"))?;
        let places = Place::of(&config.cards);
        let binds = config.cards.iter().zip(&places);
        let bind: Vec<_> = binds.map(|(card, place)| card.bind(*place)).collect();
        // Function 0 of a device comes last: QEMU takes it for complete then.
        let mut cards = Vec::new();
        for (number, card) in config.cards.into_iter().enumerate().rev() {
            cards.push(card.plug(number, places[number], &mut monitor)?);
        }
        cards.reverse();
        monitor.execute("cont", &json!({}))?;
        let mut guest = Self {
            process,
            monitor: Mutex::new(monitor),
            agent,
            streams: Mutex::new([out, err]),
            console,
            cards,
            places,
            ids: AtomicU64::new(0),
            run_max: config.run_max,
            boot: Duration::ZERO,
        };
        guest.wait_ready(&config.stop)?;
        if !bind.is_empty() {
            guest.check(&bind.join(" && "))?;
        }
        guest.boot = start.elapsed();
        Ok(guest)
    }

    fn wait_ready(&self, stop: &AtomicBool) -> Result<(), ToolError> {
        let start = Instant::now();
        loop {
            match self.agent.wait_ready(STOP_POLL) {
                Ok(()) => return Ok(()),
                Err(Lost::Late) if stop.load(Ordering::Relaxed) => {
                    let line = "stopped while the guest was booting";
                    return Err(ToolError::Failed(line.to_owned()));
                }
                Err(Lost::Late) if start.elapsed() < BOOT_MAX => {}
                Err(lost) => return Err(self.lost("it does not boot", lost)),
            }
        }
    }

    /// How long the boot took, until the cards were bound.
    pub fn boot_time(&self) -> Duration {
        self.boot
    }

    /// What the console has shown.
    pub fn console(&self) -> String {
        lock(&self.console).clone()
    }

    /// The address of card `number`, from 0, on the guest's bus: `0000:01:00.0`.
    ///
    /// # Panics
    /// If there is no such card.
    pub fn address(&self, number: usize) -> String {
        self.places[number].to_string()
    }

    /// Runs a line of the shell (or several) to its end, with an empty standard input.
    ///
    /// # Errors
    /// [`ToolError::Failed`], with the console, if the guest ends or the command takes longer than
    /// [`GuestConfig::run_max`]. The exit status is in the output.
    pub fn run(&self, line: &str) -> Result<Output, ToolError> {
        self.begin(line)?.wait()
    }

    /// Runs a line of the shell that must succeed, and returns what it wrote to standard output.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`ToolError::Failed`] with its output if its status is not 0.
    pub fn check(&self, line: &str) -> Result<String, ToolError> {
        let output = self.run(line)?;
        if output.success() {
            return Ok(output.stdout);
        }
        let Output {
            status,
            stdout,
            stderr,
        } = output;
        Err(ToolError::Failed(format!(
            "in the guest `{line}` ended with {status}: {stdout}{stderr}"
        )))
    }

    /// Starts a line of the shell, and does not wait for its end. Several may run at once.
    ///
    /// # Errors
    /// [`ToolError::Failed`], with the console, if the guest has ended.
    pub fn begin(&self, line: &str) -> Result<Job<'_>, ToolError> {
        self.job("run", line)
    }

    fn job(&self, verb: &str, line: &str) -> Result<Job<'_>, ToolError> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let sent = self.agent.send(verb, id, line);
        sent.map_err(|lost| self.lost(line, lost))?;
        let line = line.to_owned();
        Ok(Job {
            guest: self,
            id,
            line,
        })
    }

    /// Runs a line of the shell, passes on what it prints while it runs, and returns its exit
    /// status. Once `stop` is set, the command gets SIGINT. One command at a time: others wait for
    /// it.
    ///
    /// # Errors
    /// [`ToolError::Failed`], with the console, if the guest ends, or if the output cannot be
    /// passed on; without it, if the command has not ended 10 s after its SIGINT.
    pub fn stream(
        &self,
        line: &str,
        mut out: impl Write,
        mut err: impl Write,
        stop: &AtomicBool,
    ) -> Result<i32, ToolError> {
        let streams = lock(&self.streams);
        let job = self.job("stream", line)?;
        let mut stopped = None;
        loop {
            // All that a command has written is here before its end is.
            let ended = self.agent.result(job.id, STREAM_POLL);
            agent::copy(&streams[0], &mut out).map_err(failed("standard output"))?;
            agent::copy(&streams[1], &mut err).map_err(failed("standard error"))?;
            match ended {
                Ok(output) => return Ok(output.status),
                Err(Lost::Late) => {}
                Err(lost) => return Err(self.lost(line, lost)),
            }
            let since = match stopped {
                Some(since) => since,
                None if stop.load(Ordering::Relaxed) => {
                    job.signal("INT")?;
                    *stopped.insert(Instant::now())
                }
                None => continue,
            };
            if since.elapsed() >= STOP_MAX {
                let seconds = STOP_MAX.as_secs();
                return Err(ToolError::Failed(format!(
                    "`{line}` has not ended {seconds} s after SIGINT: it ends with its guest"
                )));
            }
        }
    }

    /// Starts the shell of a guest whose console is a terminal of this size, and waits for its end,
    /// which is the guest's, or until `stop` is set.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn shell(&self, rows: u16, columns: u16, stop: &AtomicBool) -> Result<(), ToolError> {
        self.check(&format!(
            "echo rows {rows} cols {columns} >/run/size && mv /run/size /run/shell"
        ))?;
        while !self.process.wait(STOP_POLL) {
            if stop.load(Ordering::Relaxed) {
                return self.quit();
            }
        }
        Ok(())
    }

    /// Executes a command of QEMU's monitor (QMP) and returns its value.
    ///
    /// # Errors
    /// [`ToolError::Failed`] with QEMU's error.
    pub fn monitor(&self, command: &str, arguments: &Value) -> Result<Value, ToolError> {
        lock(&self.monitor).execute(command, arguments)
    }

    /// Gives card `number`, which is of this model, to another driver.
    ///
    /// # Errors
    /// [`ToolError::Failed`] if the driver does not take it.
    pub fn bind(&self, number: usize, model: CardModel, bound: Bound) -> Result<(), ToolError> {
        self.check(&card::bind(self.places[number], model, bound))
            .map(drop)
    }

    /// Sets the link of card `number` up or down.
    ///
    /// # Errors
    /// As [`monitor`](Self::monitor).
    pub fn set_link(&self, number: usize, up: bool) -> Result<(), ToolError> {
        let arguments = json!({ "name": card::name(number), "up": up });
        self.monitor("set_link", &arguments)?;
        Ok(())
    }

    /// Unplugs card `number`, and waits until the guest has let it go.
    ///
    /// # Errors
    /// As [`monitor`](Self::monitor), and if the guest keeps it for a minute.
    pub fn unplug(&self, number: usize) -> Result<(), ToolError> {
        let name = card::name(number);
        let mut monitor = lock(&self.monitor);
        monitor.execute("device_del", &json!({ "id": name }))?;
        monitor.wait_for("DEVICE_DELETED", &name)
    }

    /// Plugs card `number` in again. No driver is chosen for it: `bind-card ADDRESS DRIVER` in the
    /// guest does that.
    ///
    /// # Errors
    /// As [`monitor`](Self::monitor).
    pub fn plug(&self, number: usize) -> Result<(), ToolError> {
        self.monitor("device_add", &self.cards[number])?;
        Ok(())
    }

    /// The faults of the IOMMU since the boot, from the kernel's log: accesses of a card to memory
    /// that no driver gave it, and interrupts that were not remapped. The kernel limits their rate.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn iommu_faults(&self) -> Result<Vec<String>, ToolError> {
        let log = self.check("dmesg")?;
        let is_fault = |line: &&str| line.contains("DMAR:") && line.contains("fault");
        Ok(log.lines().filter(is_fault).map(str::to_owned).collect())
    }

    /// Instructions that the guest has executed since its start, on all processors: in user space,
    /// in the kernel and in the firmware. A halted processor executes none. The difference between
    /// two calls includes what the agent executes for a command between them, which a comparison
    /// with an empty command shows.
    ///
    /// # Errors
    /// [`ToolError::Failed`] if the guest was started without [`GuestConfig::icount`].
    pub fn instructions(&self) -> Result<u64, ToolError> {
        let replay = self.monitor("query-replay", &json!({}))?;
        let count = replay["icount"].as_u64().filter(|count| *count > 0);
        count.ok_or_else(|| {
            let line = "this guest counts no instructions: it was started without icount";
            ToolError::Failed(line.to_owned())
        })
    }

    /// Ends QEMU in order: it restores the terminal. Dropping the guest kills it.
    ///
    /// # Errors
    /// [`ToolError::Failed`] if QEMU does not end.
    pub fn quit(&self) -> Result<(), ToolError> {
        self.monitor("quit", &json!({}))?;
        if self.process.wait(QUIT_MAX) {
            return Ok(());
        }
        let line = format!(
            "{PROGRAM} does not end {} s after `quit`",
            QUIT_MAX.as_secs()
        );
        Err(ToolError::Failed(line))
    }

    /// The failure of `what`, with the end of the console.
    fn lost(&self, what: &str, lost: Lost) -> ToolError {
        let why = match lost {
            Lost::Closed => match self.process.status() {
                Some(status) => format!("the guest has ended ({status})"),
                None => "the guest has ended".to_owned(),
            },
            Lost::Late => "the time is over".to_owned(),
        };
        let console = self.console();
        ToolError::Failed(format!("{what}: {why}; its console:\n{console}"))
    }
}

/// A command that runs in a guest. If it is dropped, the command runs on.
#[derive(Debug)]
pub struct Job<'a> {
    guest: &'a Guest,
    id: u64,
    line: String,
}

impl Job<'_> {
    /// Sends a signal, named as kill(1) does (`INT`), to the processes of the command.
    ///
    /// # Errors
    /// [`ToolError::Failed`] if the guest has ended. If the command has, nothing is sent.
    pub fn signal(&self, name: &str) -> Result<(), ToolError> {
        let sent = self.guest.agent.send("signal", self.id, name);
        sent.map_err(|lost| self.guest.lost(&self.line, lost))
    }

    /// What it has written to standard output until now, while it runs.
    ///
    /// # Errors
    /// As [`Guest::run`].
    pub fn output(&self) -> Result<String, ToolError> {
        let file = format!("/run/{}.out", self.id);
        Ok(self.guest.run(&format!("cat {file}"))?.stdout)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// As [`Guest::run`]. A command that takes too long is killed.
    pub fn wait(self) -> Result<Output, ToolError> {
        let ended = self.guest.agent.result(self.id, self.guest.run_max);
        ended.map_err(|lost| {
            let error = self.guest.lost(&self.line, lost);
            // Its end is of no interest any more, nor whether the guest can be told.
            self.signal("KILL").unwrap_or(());
            error
        })
    }
}

/// The command of QEMU, by setpriv(1): it asks the kernel for a signal when its starter ends.
fn command(config: &GuestConfig, root: &File) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", PROGRAM]);
    command.args(["-nodefaults", "-display", "none", "-no-reboot", "-S"]);
    // QEMU counts each byte of `rep movsb`, which a kernel and a C library use where it is fast.
    let processor = config.icount.map_or("max", |_| "max,erms=off,fsrm=off");
    command.args(["-machine", "q35,kernel-irqchip=split", "-cpu", processor]);
    command.args(["-smp", &config.cpus.to_string()]);
    command.args(["-m", &config.memory_mib.to_string()]);
    match config.icount {
        None => command.args(["-accel", "tcg,thread=multi"]),
        Some(shift) => command
            .args(["-accel", "tcg,thread=single"])
            .args(["-icount", &format!("shift={shift},sleep=off")]),
    };
    command.args([
        "-chardev",
        "stdio,id=console,signal=off",
        "-serial",
        "chardev:console",
    ]);
    command.args([
        "-chardev",
        "socket,id=monitor,fd=2",
        "-mon",
        "chardev=monitor,mode=control",
    ]);
    command.args(["-device", "intel-iommu,intremap=on"]);
    command.args(["-device", "virtio-serial-pci,id=serial,addr=3"]);
    let ports = Place::of(&config.cards);
    for number in 0..ports.last().map_or(0, |last| last.port + 1) {
        let (name, slot) = (card::port(number), SLOT + number);
        let port = format!(
            "pcie-root-port,id={name},chassis={},addr={slot:#x}",
            number + 1
        );
        command.args(["-device", &port]);
    }
    command.arg("-kernel").arg(config.kernel.image());
    // QEMU opens the file once more.
    let root = format!("/proc/{}/fd/{}", std::process::id(), root.as_raw_fd());
    command.args(["-initrd", &root]);
    // `nopt`: the kernel's own drivers use the IOMMU, too.
    // `no_timer_check`: on a busy host the timer is late, and the kernel takes it for broken.
    let line = "console=ttyS0 quiet intel_iommu=on iommu=nopt panic=-1 mitigations=off \
                no_timer_check";
    command.args(["-append", &format!("{line} {}", config.kernel_line)]);
    command
}

/// Plugs in the three ports of the agent, and returns their far sides. The second and the third do
/// not block.
fn serial(monitor: &mut Monitor) -> Result<[UnixStream; 3], ToolError> {
    let mut sides = Vec::new();
    for number in 1..=3 {
        let (ours, theirs) = pair()?;
        let name = format!("agent{number}");
        monitor.give(&name, &theirs)?;
        let address = json!({ "type": "fd", "data": { "str": name } });
        let data = json!({ "addr": address, "server": false });
        let backend = json!({ "type": "socket", "data": data });
        monitor.execute("chardev-add", &json!({ "id": name, "backend": backend }))?;
        let port = json!({
            "driver": "virtserialport", "bus": "serial.0", "nr": number, "chardev": name,
        });
        monitor.execute("device_add", &port)?;
        ours.set_nonblocking(number > 1)
            .map_err(failed("a socket"))?;
        sides.push(ours);
    }
    Ok(sides.try_into().expect("three"))
}

fn pair() -> Result<(UnixStream, UnixStream), ToolError> {
    UnixStream::pair().map_err(failed("a pair of sockets"))
}

fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}

/// Keeps what a console shows, until its end.
fn kept(mut console: UnixStream) -> io::Result<Arc<Mutex<String>>> {
    let all: Arc<Mutex<String>> = Arc::default();
    let kept = Arc::clone(&all);
    let thread = thread::Builder::new().name("guest-console".to_owned());
    thread.spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = console.read(&mut bytes) {
            lock(&kept).push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    })?;
    Ok(all)
}

/// Checks that the programs that a guest needs can be started.
///
/// # Errors
/// [`ToolError::Missing`], with the command that installs the first one that cannot.
pub fn need_programs() -> Result<(), ToolError> {
    for (program, package) in [(PROGRAM, "qemu-system-x86"), ("setpriv", "util-linux")] {
        let version = Command::new(program).arg("--version").output();
        version.map_err(|error| {
            ToolError::Missing(format!(
                "{program}: {error}; to install it: apt-get install --no-install-recommends \
                 {package}"
            ))
        })?;
    }
    Ok(())
}

fn failed(what: &str) -> impl Fn(io::Error) -> ToolError {
    move |error| ToolError::Failed(format!("{what}: {error}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
