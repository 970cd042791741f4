//! A testbed (RFC 2544): two hosts, and the device under test that joins them.

use std::fs;
use std::time::Duration;

use clap::{Args, ValueEnum};
use packtrain::driver::Port;
use packtrain::engine::{Report, Session};
use packtrain::policy::placement::Placement;
use packtrain::port::spec::{PortKind, PortSpec};
use packtrain::port::wrap::{FaultCounters, Faults};
use packtrain::port::{AnyPort, open_spec};
use packtrain_testkit::VirtualMachine;
use serde::Deserialize;

use crate::baseline::{self, Baseline, BaselineError, Mode};
use crate::cards;
use crate::cpu::napi_threads;
use crate::cpus::{self, Cpus};
use crate::error::{LabError, ToolError};
use crate::ethtool::Offload;
use crate::exec::{Exec, Program};
use crate::netns::Netns;
use crate::options::{Fields, PolicyOptions, some_from_text};
use crate::session;
use crate::topology::{self, Host, Settings, Side, TwoHosts};
use crate::units::{LineRate, Time};
use crate::used::Used;

/// What joins the hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Through {
    /// packtrain, in this process, between a TAP or TUN interface in each host
    #[default]
    Packtrain,
    /// A veth pair: no forwarder, the least that the kernel needs
    Veth,
    /// A bridge of the kernel between two veth pairs
    // In a guest also between the cards `a` and `b`, which the kernel then drives.
    Bridge,
    /// A minimal forwarder in C between two TAP interfaces; needs a C compiler
    C,
    /// Any program between two TUN or TAP interfaces: that of --exec
    Exec,
    /// In a file only: the cable between the cards of both hosts.
    #[value(skip)]
    Cable,
}

/// How the hosts are joined: the options of every tool, and the `[testbed]` of an experiment.
#[derive(Clone, Debug, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TestbedOptions {
    /// What joins the two hosts
    #[arg(long, value_enum, default_value_t)]
    pub through: Through,
    /// packtrain's port in host A: tap or tun, and keys as in tap,offload=off,queues=2
    #[arg(long, value_name = "PORT", default_value = "tap")]
    pub a: String,
    /// packtrain's port in host B
    #[arg(long, value_name = "PORT", default_value = "tap")]
    pub b: String,
    /// A shell command for the program of --through exec, where {a} and {b} stand for the names of
    /// its interfaces; given twice, for each of its ends
    #[arg(long, value_name = "COMMAND")]
    pub exec: Vec<String>,
    /// MTU of both interfaces, in bytes without the Ethernet header: 1280 to 65521
    #[arg(long, value_name = "N", default_value_t = 1500)]
    pub mtu: u32,
    /// Line rate of both hosts' interfaces in bit/s, as 1G: senders wait for it, as for a NIC;
    /// without it a TAP whose queue is full drops
    #[arg(long, value_name = "RATE")]
    pub link: Option<LineRate>,
    /// Whether the C forwarder's interfaces have offloads
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub c_offload: bool,
    /// The policies of packtrain's queues and workers.
    #[command(flatten)]
    #[serde(flatten)]
    pub policies: PolicyOptions,
    /// Binds the parts to CPUs, as in sender=0,worker=1,receiver=2; worker is all workers of
    /// packtrain, in the place of --placement, or the C forwarder
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<Cpus>,
    /// In a file only: the virtual machine on whose CPUs workers and senders run, in virtual time.
    #[arg(skip)]
    #[serde(deserialize_with = "some_from_text")]
    pub machine: Option<VirtualMachine>,
    /// In a file only, for a guest: the address of the card whose interface host A has in place of
    /// a TAP. `a` is then the card at the other end of its cable.
    #[arg(skip)]
    pub host_a: Option<String>,
    /// The same of host B.
    #[arg(skip)]
    pub host_b: Option<String>,
    /// In a file only, for a guest: how long the cable of port B's card is plugged in before it is
    /// pulled for 100 ms, again and again.
    #[arg(skip)]
    pub pull: Option<Time>,
}

/// How long a cable that is pulled is out: long enough that every driver notices.
pub(crate) const PULLED: Duration = Duration::from_millis(100);

impl TestbedOptions {
    /// Refuses what is for two hosts, for a tool without them, which only packtrain can run.
    pub(crate) fn refuse_through(&self, tool: &str) -> Result<(), ToolError> {
        let option = match self {
            Self { link: Some(_), .. } => "link",
            Self {
                through: Through::Packtrain,
                ..
            } => return Ok(()),
            _ => "through",
        };
        let line = format!("tool {tool} does not join two hosts: leave `{option}` out");
        Err(ToolError::Usage(line))
    }

    /// Refuses a port of this machine's kernel, or a file, on a virtual machine.
    pub(crate) fn refuse_real(&self, option: &str, port: &str) -> Result<(), ToolError> {
        let is_in_memory = ["sim:", "null:"].iter().any(|kind| port.starts_with(kind));
        if self.machine.is_none() || is_in_memory {
            return Ok(());
        }
        Err(ToolError::Usage(format!(
            "{option} cannot be '{port}' on a virtual machine, which has no kernel: write a port \
             in memory, as in sim:rate=1000000"
        )))
    }

    /// The policies, with the worker of `--cpus` as placement.
    pub(crate) fn checked_policies(&self) -> Result<PolicyOptions, ToolError> {
        let policies = PolicyOptions {
            placement: placement(self)?,
            ..self.policies.clone()
        };
        // A virtual machine checks them when a session is added.
        if self.machine.is_none() {
            let checked = policies.settings().check();
            checked.map_err(|error| ToolError::of_start(&error))?;
        }
        Ok(policies)
    }

    /// The cards of both hosts, for what joins no TAPs.
    fn both_cards(&self) -> Result<[&str; 2], ToolError> {
        let cards = self.host_a.as_deref().zip(self.host_b.as_deref());
        cards.map(<[_; 2]>::from).ok_or_else(|| {
            let line = "both hosts need a card: write host-a and host-b";
            ToolError::Usage(line.to_owned())
        })
    }

    /// Opens a TAP from its keys, as in `tap,queues=2`, in a host of its own.
    pub(crate) fn open_alone(
        &self,
        option: &str,
        text: &str,
    ) -> Result<(Host, Port<AnyPort>), ToolError> {
        let spec = spec(option, text, &format!("pt-{option}"))?;
        let settings = Settings {
            mtu: self.mtu,
            ..Settings::default()
        };
        let create = || Ok::<_, ToolError>((spec.name.clone(), open(&spec)?));
        Host::alone(&settings, Side::Right, create)
    }

    /// Whether the process may use the CPUs to which parts are bound.
    pub(crate) fn check_cpus(&self) -> Result<(), ToolError> {
        let Some(cpus) = self.cpus else { return Ok(()) };
        let allowed = match &self.machine {
            Some(machine) => (0..machine.hardware.cpus).collect(),
            None => cpus::allowed()?,
        };
        cpus.check(&allowed)
            .map_err(|error| ToolError::Missing(format!("--cpus: {error}")))
    }
}

/// Two hosts that are joined.
#[derive(Debug)]
pub struct Testbed {
    // Dropped first: it uses the hosts' interfaces.
    device: Device,
    hosts: TwoHosts,
    settings: Fields,
    faults: [Option<FaultCounters>; 2],
    cpus: Cpus,
}

#[derive(Debug)]
enum Device {
    Packtrain(Box<Session>),
    Veth,
    Bridge(#[allow(dead_code, reason = "the bridge exists as long as this does")] Netns),
    C(Baseline),
    Exec(Program),
    /// What the caller joins the hosts by: a process, or the kernel.
    Caller(Option<u32>),
}

/// How a run of packtrain in a testbed ended.
#[derive(Debug)]
pub struct Ended {
    /// packtrain's final report; `None` for another device.
    pub report: Option<Box<Report>>,
}

impl Testbed {
    /// Makes the hosts and the device under test. On return packets pass.
    ///
    /// # Errors
    /// [`ToolError`]: a wrong port, a missing feature, a device that cannot be opened.
    pub fn start(options: &TestbedOptions) -> Result<Self, ToolError> {
        options.check_cpus()?;
        let binds_workers = options.cpus.is_some_and(|cpus| cpus.worker.is_some());
        if binds_workers && !matches!(options.through, Through::Packtrain | Through::C) {
            return Err(ToolError::Usage(
                "--cpus has a CPU for the forwarder's threads, and the kernel joins the hosts: \
                 leave worker= out"
                    .to_owned(),
            ));
        }
        ToolError::unless_in(topology::MTU, "--mtu", options.mtu.into())?;
        let topology = Settings {
            mtu: options.mtu,
            line_rate: options.link.map(LineRate::bytes),
            ..Settings::default()
        };
        let mut faults = [None, None];
        let (hosts, device, mut settings) = match options.through {
            Through::Packtrain => packtrain(options, &topology, &mut faults)?,
            Through::Bridge if options.host_a.is_some() => {
                let middle = bridge_of_cards(options)?;
                let hosts = with_cards(options.both_cards()?, &topology)?;
                (hosts, Device::Bridge(middle), Fields::new())
            }
            Through::Veth => (TwoHosts::veth(&topology)?, Device::Veth, Fields::new()),
            Through::Bridge => {
                let (hosts, middle) = TwoHosts::bridge(&topology)?;
                (hosts, Device::Bridge(middle), Fields::new())
            }
            Through::C => c(options, &topology)?,
            Through::Exec => exec(options, &topology)?,
            Through::Cable => {
                let hosts = with_cards(options.both_cards()?, &topology)?;
                (hosts, Device::Veth, Fields::new())
            }
        };
        let name = options.through.to_possible_value();
        let name = name.as_ref().map_or("cable", |value| value.get_name());
        settings.insert("through".into(), name.into());
        for (card, host) in [
            (&options.host_a, &hosts.left),
            (&options.host_b, &hosts.right),
        ] {
            if card.is_some() {
                cards::wait_for_link(&host.netns, host.link.index)?;
            }
        }
        let mtu = |side: Side| {
            let host = hosts.host(side);
            let link = host.netns.rtnl()?.link_by_index(host.link.index)?;
            Ok::<_, LabError>(link.mtu)
        };
        settings.insert("mtu".into(), mtu(Side::Left)?.into());
        if mtu(Side::Right)? != options.mtu || mtu(Side::Left)? != options.mtu {
            return Err(ToolError::Failed(format!(
                "the interfaces did not take an MTU of {}",
                options.mtu
            )));
        }
        if let Some(wanted) = options.link {
            for side in [Side::Left, Side::Right] {
                let host = hosts.host(side);
                let found = host.netns.rtnl()?.line_rate(host.link.index)?;
                if found != Some(wanted.bytes()) {
                    return Err(ToolError::Failed(format!(
                        "--link {wanted} did not take: an interface has another rate"
                    )));
                }
            }
            settings.insert("link".into(), wanted.to_string().into());
        }
        for (key, host) in [
            ("kernel_threads_a", &hosts.left),
            ("kernel_threads_b", &hosts.right),
        ] {
            let threads = napi_threads(&host.link.name).len();
            if threads > 0 {
                settings.insert(key.into(), threads.into());
            }
        }
        let cpus = options.cpus.unwrap_or_default();
        if options.cpus.is_some() {
            settings.insert("cpus".into(), cpus.to_string().into());
            settings.insert("cpus_shared".into(), cpus.sharing().into());
        }
        Ok(Self {
            device,
            hosts,
            settings,
            faults,
            cpus,
        })
    }

    /// A testbed of hosts that the caller joins, in which tools measure what they measure in any
    /// other. `forwarder` is the process that joins them, whose CPU time is that of the forwarder;
    /// `None` if the kernel does. The caller ends it.
    pub fn around(hosts: TwoHosts, forwarder: Option<u32>) -> Self {
        Self {
            device: Device::Caller(forwarder),
            hosts,
            settings: Fields::new(),
            faults: [None, None],
            cpus: Cpus::default(),
        }
    }

    /// A testbed whose hosts a program joins.
    ///
    /// # Errors
    /// As [`Program::start`].
    pub fn of_program(exec: &Exec, settings: &Settings) -> Result<Self, ToolError> {
        let (program, hosts) = Program::start(exec, settings)?;
        Ok(Self {
            device: Device::Exec(program),
            ..Self::around(hosts, None)
        })
    }

    /// The hosts.
    pub fn hosts(&self) -> &TwoHosts {
        &self.hosts
    }

    /// The settings in force, read back from the kernel and packtrain.
    pub fn settings(&self) -> &Fields {
        &self.settings
    }

    /// The CPUs to which a tool binds its senders and receivers.
    pub fn cpus(&self) -> Cpus {
        self.cpus
    }

    /// packtrain's session, if it is the device under test.
    pub fn session(&self) -> Option<&Session> {
        match &self.device {
            Device::Packtrain(session) => Some(session),
            _ => None,
        }
    }

    /// What the forwarder has used, now.
    pub fn used(&self) -> Used {
        match &self.device {
            Device::Packtrain(session) => {
                let snapshot = session.snapshot();
                let workers = &snapshot.workers;
                Used {
                    cpu: Duration::from_nanos(snapshot.cpu_ns),
                    threads: workers.len(),
                    voluntary_switches: workers.iter().map(|one| one.voluntary_switches).sum(),
                    involuntary_switches: workers.iter().map(|one| one.involuntary_switches).sum(),
                    packtrain: Some(Box::new(snapshot)),
                }
            }
            Device::C(baseline) => Used::of_process(baseline.pid()),
            Device::Exec(program) => program.used(),
            Device::Caller(Some(process)) => Used::of_process(*process),
            Device::Veth | Device::Bridge(_) | Device::Caller(None) => Used::default(),
        }
    }

    /// The faults that packtrain's ports have injected so far (`drop=` and other keys), A first;
    /// `None` for a port without any.
    pub fn faults(&self) -> [Option<Faults>; 2] {
        let get = |counters: &Option<FaultCounters>| Some(counters.as_ref()?.get());
        self.faults.each_ref().map(get)
    }

    /// Stops the device under test. packtrain drains first, and its ledger must close.
    ///
    /// # Errors
    /// [`ToolError::Failed`] if packtrain or another forwarder ended early, [`ToolError::Check`] if
    /// packtrain's ledger does not close.
    pub fn finish(self) -> Result<Ended, ToolError> {
        let report = match self.device {
            Device::Packtrain(session) => Some(Box::new(session::checked(session.finish())?)),
            Device::C(forwarder) => {
                let finished = forwarder.finish();
                finished.map_err(|error| ToolError::Failed(error.to_string()))?;
                None
            }
            Device::Exec(program) => match program.ended() {
                Some(status) => {
                    let printed = program.printed();
                    let line = format!("the program ended by itself: {status}{printed}");
                    return Err(ToolError::Failed(line));
                }
                None => None,
            },
            Device::Veth | Device::Bridge(_) | Device::Caller(_) => None,
        };
        Ok(Ended { report })
    }
}

type Made = (TwoHosts, Device, Fields);

fn packtrain(
    options: &TestbedOptions,
    topology: &Settings,
    faults: &mut [Option<FaultCounters>; 2],
) -> Result<Made, ToolError> {
    let ends = [
        ("--a", &options.a, "pt-a", &options.host_a),
        ("--b", &options.b, "pt-b", &options.host_b),
    ];
    let specs = ends.map(|(option, text, name, card)| match card {
        None => spec(option, text, name),
        Some(_) => whole(option, text, "it is a card, as in e1000e:0000:02:00.0"),
    });
    let [a, b] = specs;
    let (specs, here) = ([a?, b?], Netns::current()?);
    let (hosts, a, b) = TwoHosts::with(topology, |side| {
        let (spec, (.., card)) = (side.of(specs.each_ref()), side.of(ends));
        let mut port = open(spec)?;
        cards::wait_for_port(side.of([&options.a, &options.b]), &mut port)?;
        let name = match card {
            None => spec.name.clone(),
            Some(card) => cards::bring(card, &here)?,
        };
        Ok::<_, ToolError>((name, port))
    })?;
    let ports = [a, b];
    *faults = ports.each_ref().map(|port| port.driver.faults());
    let (sides, policies) = (session::sides(&ports), options.checked_policies()?);
    let [a, b] = ports;
    let session = Session::between(a, b)
        .settings(policies.settings())
        .start()
        .map_err(|error| ToolError::of_start(&error))?;
    let settings = session::settings(&session, &sides, &policies, &[&options.a, &options.b]);
    Ok((hosts, Device::Packtrain(Box::new(session)), settings))
}

/// Two hosts whose interfaces are those of cards of the kernel, host A's first.
fn with_cards(addresses: [&str; 2], topology: &Settings) -> Result<TwoHosts, ToolError> {
    let here = Netns::current()?;
    let (hosts, (), ()) = TwoHosts::with(topology, |side| {
        Ok::<_, ToolError>((cards::bring(side.of(addresses), &here)?, ()))
    })?;
    Ok(hosts)
}

/// A namespace with a bridge between the cards that `a` and `b` name, which the kernel drives.
fn bridge_of_cards(options: &TestbedOptions) -> Result<Netns, ToolError> {
    let (here, middle) = (Netns::current()?, Netns::new()?);
    let mut rtnl = middle.rtnl()?;
    rtnl.create_bridge("bridge0")?;
    let bridge = rtnl.link("bridge0")?.index;
    rtnl.set_mtu(bridge, options.mtu)?;
    rtnl.set_up(bridge)?;
    for (option, port) in [("a", &options.a), ("b", &options.b)] {
        let address = cards::address(port).ok_or_else(|| {
            ToolError::Usage(format!(
                "{option} cannot be '{port}': the bridge joins cards, as in e1000e:0000:02:00.0"
            ))
        })?;
        let name = middle.run(|| cards::bring(address, &here))??;
        let index = rtnl.link(&name)?.index;
        rtnl.set_mtu(index, options.mtu)?;
        rtnl.set_bridge(index, bridge)?;
        rtnl.set_up(index)?;
        cards::wait_for_link(&middle, index)?;
    }
    Ok(middle)
}

/// Where the workers run: the CPU of `--cpus`, or `--placement`.
fn placement(options: &TestbedOptions) -> Result<Placement, ToolError> {
    let placement = &options.policies.placement;
    match options.cpus.and_then(|cpus| cpus.worker) {
        None => Ok(placement.clone()),
        Some(cpu) if *placement == Placement::default() => format!("list({cpu})")
            .parse()
            .map_err(|error| ToolError::Usage(format!("--cpus: {error}"))),
        Some(_) => Err(ToolError::Usage(format!(
            "--placement {placement} and a worker in --cpus contradict each other: give one of the \
             two"
        ))),
    }
}

/// A port of a host from its kind and keys.
pub(crate) fn spec(option: &str, text: &str, name: &str) -> Result<PortSpec, ToolError> {
    let (kind, keys) = match text.split_once(',') {
        Some((kind, keys)) => (kind, format!(",{keys}")),
        None => (text, String::new()),
    };
    if !["tap", "tun"].contains(&kind) {
        return Err(ToolError::Usage(format!(
            "{option} cannot be '{text}': the hosts have a tap or a tun, with keys as in \
             tap,offload=off"
        )));
    }
    let spec: PortSpec = format!("{kind}:{name}{keys}")
        .parse()
        .map_err(|error| ToolError::Usage(format!("{option}: {error}")))?;
    debug_assert!(matches!(spec.kind, PortKind::Tap(_) | PortKind::Tun(_)));
    Ok(spec)
}

/// A whole port, of a tool without hosts. `hint` says what the tool takes.
pub(crate) fn whole(option: &str, text: &str, hint: &str) -> Result<PortSpec, ToolError> {
    text.parse()
        .map_err(|error| ToolError::Usage(format!("{option}: {error} ({hint})")))
}

pub(crate) fn open(spec: &PortSpec) -> Result<Port<AnyPort>, ToolError> {
    open_spec(spec, None).map_err(|error| ToolError::of_open(&error))
}

fn c(options: &TestbedOptions, topology: &Settings) -> Result<Made, ToolError> {
    const NAMES: [&str; 2] = ["c-a", "c-b"];
    let missing = |error: BaselineError| ToolError::Missing(error.to_string());
    let program = baseline::Program::forwarder().map_err(missing)?;
    let mode = if options.c_offload {
        Mode::Vnet
    } else {
        Mode::Plain
    };
    let middle = Netns::new()?;
    let worker = options.cpus.and_then(|cpus| cpus.worker);
    // The process inherits the mask of the thread that starts it.
    let start = || Baseline::start(&program, NAMES, mode).map_err(missing);
    let forwarder = middle.run(|| cpus::on_cpu(worker, start))??;
    let allowed = allowed_cpus(forwarder.pid());
    if worker.is_some_and(|cpu| allowed != cpu.to_string()) {
        return Err(ToolError::Failed(format!(
            "--cpus worker= did not take: the C forwarder may use the CPUs {allowed}"
        )));
    }
    let hosts = TwoHosts::moved(topology, &middle, NAMES)?;
    let has_offload = |side| {
        let host = hosts.host(side);
        Offload::Tso.get(&host.netns, &host.link.name)
    };
    let found = has_offload(Side::Left)?;
    if found != options.c_offload || has_offload(Side::Right)? != options.c_offload {
        return Err(ToolError::Failed(format!(
            "--c-offload {} did not take: an interface of the C forwarder has another TSO",
            options.c_offload
        )));
    }
    let mut settings = Fields::new();
    settings.insert("c_offload".into(), found.into());
    settings.insert("c_cpus".into(), allowed.into());
    Ok((hosts, Device::C(forwarder), settings))
}

/// How long a program may take to open its interfaces.
const OPENS: Duration = Duration::from_secs(10);

fn exec(options: &TestbedOptions, topology: &Settings) -> Result<Made, ToolError> {
    if options.exec.is_empty() || options.exec.len() > 2 {
        let line = "--through exec needs a command: write --exec './my-forwarder {a} {b}', or give \
                    it twice, for each end of a VPN";
        return Err(ToolError::Usage(line.to_owned()));
    }
    let exec = Exec {
        commands: options.exec.clone(),
        made: None,
        wait: OPENS,
        log: None,
    };
    let (program, hosts) = Program::start(&exec, topology)?;
    let mut settings = Fields::new();
    settings.insert("exec".into(), options.exec.join(" & ").into());
    Ok((hosts, Device::Exec(program), settings))
}

/// The CPUs that a process of one thread may use, as in `0,2-3`; empty if it has ended.
fn allowed_cpus(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let name = "Cpus_allowed_list:";
    let list = status.lines().find_map(|line| line.strip_prefix(name));
    list.map_or("", str::trim).to_owned()
}
