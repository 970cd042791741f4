//! The guest with its cards, the host at their other ends, and the counts of instructions.

use packtrain_lab::counters;
use packtrain_lab::guest::{Bound, Card, CardModel, FarSide, Guest, GuestConfig, Kernel};
use packtrain_lab::link::{Rtnl, quiet_ipv6};
use packtrain_lab::netns::Netns;
use packtrain_lab::tap::Tap;
use serde_json::{Value, json};
use std::fs;
use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What stops a bench.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The program that is measured: built with the bench's profile.
const PACKTRAIN: &str = env!("CARGO_BIN_EXE_packtrain");
/// DPDK's forwarder, the file of its output in the guest, and its plugins.
const TESTPMD: &str = "dpdk-testpmd";
const OUTPUT: &str = "/run/testpmd";
const PLUGINS: [&str; 2] = ["librte_mempool_ring.so", "librte_net_e1000.so"];
/// The argument with which this executable runs in the guest: it waits for the last frame.
pub const AWAIT: &str = "await-the-last-frame";
/// Where the last frame goes: to all nodes of the link.
const LAST: (Ipv6Addr, u16) = (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 9999);
/// The cards: two of packtrain, and two of the guest's kernel.
const OURS: [usize; 2] = [0, 1];
const KERNELS: [usize; 2] = [2, 3];
const CARDS: usize = 4;
/// Frames that the host's end of a card holds.
const QUEUE: u32 = 1 << 16;
/// Bytes of the buffer of a packet socket.
const SOCKET_BYTES: usize = 256 << 20;
/// A guest that counts is slow, and the host may be busy.
const RUN_MAX: Duration = Duration::from_secs(300);

/// Waits for the last frame, in the guest.
pub fn await_the_last_frame() -> std::io::Result<()> {
    UdpSocket::bind((Ipv6Addr::UNSPECIFIED, LAST.1))?.recv(&mut [0; 16])?;
    Ok(())
}

/// A command in the guest, and where its packets come from.
#[derive(Clone, Debug)]
pub struct Work {
    /// A line of the guest's shell; `COUNT` is how many packets there are.
    pub line: String,
    /// The card at which the host has them ready; `None` if the command makes them.
    pub from_host: Option<FromHost>,
}

/// How the host's packets are taken.
#[derive(Clone, Debug)]
pub struct FromHost {
    card: usize,
    /// Keys of the host's source.
    source: &'static str,
    /// A line of the guest's shell that succeeds once the command receives.
    ready: String,
    /// The command waits for one more frame, behind the others.
    has_last: bool,
    /// The command does not end, and is ended once this card has sent all.
    sends_to: Option<usize>,
}

/// A guest that counts instructions, with four 82574L.
pub struct Bed {
    pub guest: Guest,
    netns: Netns,
    /// The interfaces of the kernel's cards.
    kernels: [String; 2],
    /// Those of DPDK that the guest has beside testpmd.
    plugins: Vec<PathBuf>,
    log: PathBuf,
}

fn tap(card: usize) -> String {
    format!("card{card}")
}

fn make_taps(netns: &Netns) -> Result<Vec<OwnedFd>, Error> {
    let taps = netns.run(|| {
        let mut rtnl = Rtnl::open()?;
        (0..CARDS)
            .map(|card| {
                let name = tap(card);
                let queue = Tap::new(&name).multi_queue(false).vnet_hdr(true).open()?;
                quiet_ipv6(&name)?;
                let index = rtnl.link(&name)?.index;
                rtnl.set_tx_queue_len(index, QUEUE)?;
                rtnl.set_up(index)?;
                let address = Ipv6Addr::new(0xfd00, 0, 0, card as u16, 0, 0, 0, 1);
                rtnl.add_address(index, address.into(), 64)?;
                Ok(queue)
            })
            .collect::<Result<Vec<_>, packtrain_lab::LabError>>()
    });
    Ok(taps??.into_iter().flatten().collect())
}

impl Bed {
    /// Boots it. Addresses of the kernel's cards are translated if `translated`, as those of
    /// packtrain's always are.
    pub fn new(kernel: Kernel, translated: bool, log: &Path) -> Result<Self, Error> {
        let netns = Netns::new()?;
        let mut config = GuestConfig::new(kernel);
        config.cpus = 1;
        config.icount = Some(0);
        config.run_max = RUN_MAX;
        config.memory_mib = 1024;
        if !translated {
            "iommu=pt".clone_into(&mut config.kernel_line);
        }
        config.programs = vec![PACKTRAIN.into(), std::env::current_exe()?];
        config.programs.extend(traffic_control());
        let testpmd = PathBuf::from("/usr/bin").join(TESTPMD);
        let plugins = if testpmd.exists() {
            plugins()
        } else {
            Vec::new()
        };
        if !plugins.is_empty() {
            config.programs.push(testpmd);
            config.programs.extend(plugins.iter().cloned());
        }
        let taps = make_taps(&netns)?.into_iter().enumerate();
        let cards = taps.map(|(card, queue)| {
            let bound = if OURS.contains(&card) {
                Bound::Vfio
            } else {
                Bound::Kernel
            };
            Card::new(CardModel::E1000e, FarSide::Tap(vec![queue]), bound)
        });
        config.cards = cards.collect();
        let guest = Guest::start(config)?;
        println!("boot: {} ms", guest.boot_time().as_millis());
        let name = |card: usize| {
            let found = guest.check(&format!(
                "ls /sys/bus/pci/devices/{}/net",
                guest.address(card)
            ));
            Ok::<_, Error>(found?.trim().to_owned())
        };
        let [first, second] = KERNELS;
        let kernels = [name(first)?, name(second)?];
        Ok(Self {
            guest,
            netns,
            kernels,
            plugins,
            log: log.to_owned(),
        })
    }

    /// A port of packtrain at one of its cards, 0 or 1.
    pub fn card(&self, number: usize) -> String {
        format!("e1000e:{}", self.guest.address(OURS[number]))
    }

    /// The interface of one of the kernel's cards.
    pub fn interface(&self, number: usize) -> &str {
        &self.kernels[number]
    }

    /// `packtrain forward` that makes its packets.
    pub fn sends(&self, source: &str, to: &str) -> Work {
        Work {
            line: format!("packtrain forward --json null:source,count=COUNT{source} {to}"),
            from_host: None,
        }
    }

    /// `packtrain forward` of packets that the host has for packtrain's first card, which its
    /// source makes with these keys.
    pub fn receives(&self, source: &'static str, to: &str) -> Work {
        self.receives_with("", "", source, to)
    }

    /// The same with options, and with keys of the first card.
    pub fn receives_with(&self, options: &str, keys: &str, source: &'static str, to: &str) -> Work {
        let (address, from) = (self.guest.address(OURS[0]), self.card(0));
        Work {
            line: format!("packtrain forward --json --count COUNT {options} {from}{keys} {to}"),
            from_host: Some(FromHost {
                card: OURS[0],
                source,
                ready: format!("grep -q {address} /proc/interrupts"),
                has_last: false,
                sends_to: None,
            }),
        }
    }

    /// The same by a packet socket at the kernel's first card.
    pub fn receives_by_socket(&self) -> Work {
        let interface = &self.kernels[0];
        // All of them, however much later the program runs.
        let port = format!("packet:{interface},buffer={SOCKET_BYTES}");
        Work {
            line: format!("packtrain forward --json --count COUNT {port} null:"),
            from_host: Some(FromHost {
                card: KERNELS[0],
                source: "",
                ready: "[ $(wc -l </proc/net/packet) -gt 1 ]".to_owned(),
                has_last: false,
                sends_to: None,
            }),
        }
    }

    /// The kernel alone does something with packets that the host has for its first card.
    pub fn kernel_receives(&self, source: &'static str) -> Result<Work, Error> {
        let program = std::env::current_exe()?;
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        Ok(Work {
            line: format!("{name} {AWAIT}"),
            from_host: Some(FromHost {
                card: KERNELS[0],
                source,
                ready: format!("grep -qi ':{:04x} ' /proc/net/udp6", LAST.1),
                has_last: true,
                sends_to: None,
            }),
        })
    }

    /// testpmd between packtrain's cards, by DPDK's own drivers: it polls, and does not end by
    /// itself, so its figure has up to 1 ms of polling after the last packet. `None` if it is not
    /// installed.
    pub fn testpmd(&self, source: &'static str) -> Option<Work> {
        let names = self.plugins.iter().filter_map(|path| path.file_name());
        let loads = names.map(|name| format!("-d /bin/{} ", name.display()));
        let plugins = Some(loads.collect::<String>()).filter(|all| !all.is_empty())?;
        let [a, b] = OURS.map(|card| self.guest.address(card));
        // It loads no plugin from a folder that others may write to, and ends with its input.
        let line = format!(
            "chmod 755 / /bin; mkdir -p /var/run
            sleep 1000 | {TESTPMD} --lcores '(0,1)@0' --no-huge --no-telemetry -m 64 {plugins} \
             -a {a} -a {b} -- --nb-cores=1 --total-num-mbufs=4096 --no-mlockall \
             --forward-mode=io --burst=64 --auto-start >{OUTPUT}"
        );
        Some(Work {
            line,
            from_host: Some(FromHost {
                card: OURS[0],
                source,
                // Its ports are started one after the other, and their links come later.
                ready: format!("[ $(grep -c 'link state change' {OUTPUT}) -ge 2 ]"),
                has_last: false,
                sends_to: Some(OURS[1]),
            }),
        })
    }

    /// Frames that a card has sent.
    fn sent(&self, card: usize) -> Result<u64, Error> {
        let devices = self.netns.run(counters::devices)??;
        let mine = devices.iter().find(|(name, _)| *name == tap(card));
        Ok(mine.ok_or("no TAP")?.1.rx_packets)
    }

    /// The instructions of a command with this number of packets, and what it printed.
    fn count(&self, work: &Work, packets: u64) -> Result<(u64, String), Error> {
        let line = work.line.replace("COUNT", &packets.to_string());
        let Some(from) = &work.from_host else {
            let before = self.guest.instructions()?;
            let printed = self.guest.check(&line)?;
            return Ok((self.guest.instructions()? - before, printed));
        };
        // The output of an earlier run is not that of this one.
        self.guest.check(&format!("rm -f {OUTPUT}"))?;
        let job = self.guest.begin(&line)?;
        let ready = &from.ready;
        self.guest
            .check(&format!("until {ready}; do sleep 0.02; done; sleep 0.2"))?;
        // A guest that is stopped takes no frames, so they wait at its cards.
        self.guest.monitor("stop", &json!({}))?;
        self.fill(from, packets)?;
        let before = self.guest.instructions()?;
        let sent = from.sends_to.map(|card| self.sent(card)).transpose()?;
        self.guest.monitor("cont", &json!({}))?;
        if let Some((card, sent)) = from.sends_to.zip(sent) {
            let began = Instant::now();
            while self.sent(card)? < sent + packets {
                if began.elapsed() > RUN_MAX {
                    return Err(format!("`{line}` does not send {packets} packets").into());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            let after = self.guest.instructions()?;
            job.signal("INT")?;
            return Ok((after - before, job.wait()?.stdout));
        }
        let output = job.wait()?;
        if !output.success() {
            return Err(format!("`{line}`: {output:?}").into());
        }
        Ok((self.guest.instructions()? - before, output.stdout))
    }

    /// Has packets ready for a card.
    fn fill(&self, from: &FromHost, packets: u64) -> Result<(), Error> {
        let (card, name) = (from.card as u16, tap(from.card));
        let ran = self.netns.run(|| {
            let ports = [
                format!("null:source,count={packets}{}", from.source),
                format!("packet:{name},qdisc=bypass,offload=off"),
            ];
            let ran = Command::new(PACKTRAIN)
                .args(["forward", "-q"])
                .args(ports)
                .output()?;
            if from.has_last {
                let source = Ipv6Addr::new(0xfd00, 0, 0, card, 0, 0, 0, 1);
                let socket = UdpSocket::bind((source, 0))?;
                let index = Rtnl::open()?.link(&name)?.index;
                socket.send_to(b"last", SocketAddrV6::new(LAST.0, LAST.1, 0, index))?;
            }
            Ok::<_, Error>(ran)
        })??;
        match ran.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&ran.stderr).into()),
        }
    }

    /// The growth of `figure` with the packets of a command: what each packet costs.
    fn of_each(
        &self,
        [few, many]: [u64; 2],
        mut figure: impl FnMut(u64) -> Result<u64, Error>,
    ) -> Result<f64, Error> {
        let (before, after) = (figure(few)?, figure(many)?);
        Ok((after as f64 - before as f64) / (many - few) as f64)
    }

    /// Instructions for each packet: the difference of a long and a short run, so that what
    /// processes and the agent cost falls out.
    pub fn instructions(&self, work: &Work, packets: [u64; 2]) -> Result<f64, Error> {
        self.of_each(packets, |packets| Ok(self.count(work, packets)?.0))
    }

    /// Packets that left `packtrain forward` by its second port, of this number that came in.
    pub fn transmitted(&self, work: &Work, packets: u64) -> Result<Option<f64>, Error> {
        let (_, printed) = self.count(work, packets)?;
        let Ok(document) = serde_json::from_str::<Value>(&printed) else {
            return Ok(None);
        };
        let ports = document["ports"].as_object().ok_or("no ports")?;
        let last = ports.values().next_back().ok_or("no ports")?;
        let queues = last.as_object().into_iter().flatten();
        let queues = queues.filter(|(key, _)| key.starts_with("txq"));
        let packets = queues.filter_map(|(_, queue)| queue["packets"].as_f64());
        Ok(Some(packets.sum()))
    }

    /// Reads and writes of the cards' registers for each packet, as QEMU sees them.
    pub fn accesses(&self, work: &Work, packets: [u64; 2]) -> Result<[f64; 2], Error> {
        const EVENTS: [&str; 2] = ["e1000e_core_read", "e1000e_core_write"];
        let human = |line: &str| {
            let line = json!({ "command-line": line });
            self.guest.monitor("human-monitor-command", &line)
        };
        let events = EVENTS.map(|event| format!("trace:{event}")).join(",");
        let mut counted = [[0; 2]; 2];
        for (of, packets) in counted.iter_mut().zip(packets) {
            human(&format!("logfile {}", self.log.display()))?;
            human(&format!("log {events}"))?;
            self.count(work, packets)?;
            // It closes the file.
            human("log none")?;
            let log = fs::read_to_string(&self.log)?;
            *of = EVENTS.map(|event| log.matches(event).count());
        }
        let [few, many] = counted;
        let more = (packets[1] - packets[0]) as f64;
        Ok([0, 1].map(|event| (many[event] as f64 - few[event] as f64) / more))
    }
}

/// tc(8) of this host, which BusyBox has not.
pub fn traffic_control() -> Option<PathBuf> {
    let paths = ["/usr/sbin/tc", "/sbin/tc", "/usr/bin/tc"];
    paths
        .map(PathBuf::from)
        .into_iter()
        .find(|path| path.exists())
}

/// DPDK's plugins for the cards, which testpmd loads; none if they are not installed.
fn plugins() -> Vec<PathBuf> {
    let folders = fs::read_dir("/usr/lib/x86_64-linux-gnu/dpdk")
        .into_iter()
        .flatten()
        .flatten();
    let found = folders.map(|folder| PLUGINS.map(|name| folder.path().join(name)));
    let mut found = found.filter(|paths| paths.iter().all(|path| path.exists()));
    found.next().map_or_else(Vec::new, Vec::from)
}
