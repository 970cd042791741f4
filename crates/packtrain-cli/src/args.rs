//! The command line.

use crate::check::args::CheckArgs;
use crate::ranges::within;
use crate::replay::args::ReplayArgs;
use crate::shell::{self, CARDS, CompletionsArgs, ManArgs};
use clap::{Args, Parser, Subcommand, ValueEnum};
use packtrain::bridge::{ADDRESSES_MAX, AGING_MIN};
#[cfg(feature = "plants")]
use packtrain::plant::{self, Plant};
use packtrain::port::spec::{INTERFACE_NAME_BYTES_MAX, KeyHelp, common_keys, kinds};
use packtrain_lab::experiment::Only;
use packtrain_lab::guest::{Bound, CardModel};
use packtrain_lab::options::PolicyOptions;
use packtrain_lab::testbed::{TestbedOptions, Through};
use packtrain_lab::tools::blast::Blast;
use packtrain_lab::tools::ping::Ping;
use packtrain_lab::tools::rfc2544::Rfc2544;
use packtrain_lab::tools::stream::Stream;
use packtrain_lab::units::time;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use textwrap::WordSplitter;

/// Joins network ports in user space, with batching and offloads, and accounts for every packet.
#[derive(Debug, Parser)]
#[command(
    name = "packtrain",
    version = env!("PACKTRAIN_VERSION"),
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{EXITS}")
)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  packtrain demo
      two kernels talk TCP and UDP through packtrain, with and without offloads
  packtrain doctor
      what this host allows, and the commands that mend what it does not
  packtrain plan tap:tap0 tap:tap1,offload=off
      where each offload between the two would be done, and why
  packtrain forward tap:tap0,queues=4 tap:tap1,queues=4 --stats-interval 1s
      joins two TAP interfaces until Ctrl-C
  packtrain forward pcap:in.pcapng pcap:out.pcapng,write --json
      copies a capture and prints all counters as JSON
  packtrain replay in.pcapng
      what coalescing could do for the traffic of a capture
  packtrain stream --tso off
      goodput between two kernels, and what it costs each side
  packtrain experiment all --quick
      what five documents measured, on this machine
  packtrain check -- ./my-vpn {a} {b}
      what another program does to packets between two TUN or TAP devices

`packtrain forward --help` lists all keys of a port.";

const EXITS: &str = "\
Exit codes:
  0  done
  1  a check failed: packets are not accounted for, bytes arrived wrong, a world
     failed, or a claim of an experiment that must hold does not
  2  the command line is wrong, or the two ports cannot be joined
  3  a privilege or a kernel feature is missing
  4  a port or file cannot be opened, or failed while running
  5  an experiment's runs do not decide its claims

NO_COLOR, or output that is not a terminal, turns colours off.";

const FORWARD_EXAMPLES: &str = "\
Examples:
  packtrain forward tap:tap0 tap:tap1
  packtrain forward tap:tap0,segs=8 tap:tap1,offload=off --duration 10s
  packtrain forward null:source,count=1000000 null: --json
  packtrain forward tap:tap0 pcap:out.pcapng,write --user nobody
  packtrain forward tap:tap0 tap:tap1 tap:tap2 --aging 60s

Once the ports and files are open, all capabilities are dropped but CAP_NET_ADMIN, if a port is a \
TAP or TUN interface (reads its link state and counters in any network namespace), and \
CAP_SYS_NICE, if --priority raises the workers' threads. No program that is executed gains \
privileges (no_new_privs). Without --user the user stays the same.

Three and more ports, up to 1024, are a bridge. Frames for an unknown address go to all other \
ports. It detects no loop: join the ports nowhere else. What a port has no space for is dropped, \
so that the others go on.

At the start packtrain prints a line for each direction: what it does in software, and why. At the \
end it prints totals: packets, bytes, rates, losses with their reasons, and the packet ledger. \
`packtrain plan`, --verbose and --json have everything else.

SIGINT (Ctrl-C), SIGTERM and SIGHUP end a run: packtrain receives no more, sends what it holds, \
and prints the totals. Under nohup(1) SIGHUP ends nothing. SIGUSR1 prints the totals so far on \
standard error, and the run goes on. A signal that ends a run ends the program at once while the \
ports are being opened.";

const PLAN_EXAMPLES: &str = "\
Examples:
  packtrain plan tap:tap0 tap:tap1
  packtrain plan tap:tap0,offload=csum sim:segs=8 --json

The ports are opened, because the devices are asked what they can do. A TAP interface that did not
exist is removed at the end. No file is written.";

/// Every kind of port, and every key of each.
fn ports(then: &str) -> String {
    let kinds = kinds();
    let mut text = "Ports: KIND:NAME[,key=value...]\n".to_owned();
    for kind in &kinds {
        text.push_str(&format!("  {:9}  {}\n", kind.form, kind.about));
    }
    text.push('\n');
    let groups = kinds
        .into_iter()
        .map(|kind| (format!("Keys of {}:", kind.name), kind.keys));
    let all = ("Keys of every kind".to_owned(), common_keys());
    for (title, keys) in [all].into_iter().chain(groups) {
        text.push_str(&title);
        text.push('\n');
        for KeyHelp { name, takes, about } in keys {
            let equals = if takes.is_empty() { "" } else { "=" };
            text.push_str(&key_lines(&format!("{name}{equals}{takes}"), about));
        }
        text.push('\n');
    }
    text + then
}

/// A key and what it sets, in lines of at most 100 columns.
fn key_lines(written: &str, about: &str) -> String {
    const ABOUT: usize = 38;
    const WIDTH: usize = 100;
    let options = textwrap::Options::new(WIDTH).word_splitter(WordSplitter::NoHyphenation);
    let of_key = options
        .clone()
        .initial_indent("  ")
        .subsequent_indent("      ");
    let key = textwrap::fill(written, of_key);
    let indent = " ".repeat(ABOUT);
    let of_about = options.initial_indent(&indent).subsequent_indent(&indent);
    let about = textwrap::fill(about, of_about);
    // A long list of values has lines of its own.
    if key.len() < ABOUT {
        format!("{key:ABOUT$}{}\n", about.trim_start())
    } else {
        format!("{key}\n{about}\n")
    }
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Joins two ports until Ctrl-C, or until the input ends
    Forward(ForwardArgs),
    /// Prints where each offload between two ports is done, and why; moves no packet
    Plan(PlanArgs),
    /// Measures TCP and UDP of two kernels through packtrain, with and without offloads
    Demo(DemoArgs),
    /// Coalesces and segments the packets of a capture, and prints what merged and what did not
    Replay(ReplayArgs),
    /// Prints what this host allows, what each kind of port would do, and what mends each lack
    Doctor(DoctorArgs),
    /// Boots a virtual machine with network cards behind an IOMMU: a shell, or one command
    Guest(GuestArgs),
    /// Repeats the experiments of five documents on this machine, beside their own tables
    Experiment(ExperimentArgs),
    /// Compares two saved results of experiments, row by row
    Compare(CompareArgs),
    /// Sends UDP packets between two hosts at a rate or flat out, and measures loss, CPU time and
    /// context switches
    #[command(after_help = BLAST_EXAMPLES)]
    Blast(ToolArgs<Blast>),
    /// Measures round trips between two hosts, idle and beside a load
    #[command(after_help = PING_EXAMPLES)]
    Ping(ToolArgs<Ping>),
    /// Sends TCP or UDP streams between two kernels, and measures what they cost each side
    #[command(after_help = STREAM_EXAMPLES)]
    Stream(StreamArgs),
    /// Searches the throughput for each frame size beside that of a bridge, and measures latency,
    /// bursts and loss
    #[command(after_help = RFC2544_EXAMPLES)]
    Rfc2544(Rfc2544Args),
    /// Checks a program that moves packets between two TUN or TAP devices: a VPN, a forwarder
    Check(CheckArgs),
    /// Runs worlds with faults in virtual time, drawn from a seed, or repeats one that failed
    Sim(SimArgs),
    /// Prints the completions of a shell
    Completions(CompletionsArgs),
    /// Prints the manual page of the program, or writes those of all commands to a folder
    Man(ManArgs),
}

/// `packtrain sim`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  packtrain sim fuzz
      a hundred worlds
  packtrain sim fuzz --runs 2000 --seed 7 --full
      more of them, each fault, drop reason and ring state at least once
  packtrain sim world-7-123
      the world that failed, again
  packtrain sim world-7-123 --pcap links.pcapng
      the same, with a capture of its links

Each world has its topology, policies, load and faults from the seed and its number. Then the faults
stop: all packets are accounted for, fresh ones arrive, and the sessions end. A world that fails is
shrunk and written to a file. Ctrl-C ends the run and prints what was reached until then.")]
pub struct SimArgs {
    /// `fuzz`, or the file of a world that failed
    #[arg(value_name = "fuzz|FILE")]
    pub what: PathBuf,
    /// Worlds at most [default: 100; with --packets no limit]
    #[arg(long, value_name = "N", value_parser = within(1..=u64::MAX))]
    pub runs: Option<u64>,
    /// Ends once N wire packets have arrived
    #[arg(long, value_name = "N", value_parser = count)]
    pub packets: Option<u64>,
    /// Seed of the worlds [default: 1]
    #[arg(long, value_name = "N", value_parser = within(0..=u64::MAX))]
    pub seed: Option<u64>,
    /// Fails if a fault, a drop reason or a state of a ring was never reached; also with
    /// PACKTRAIN_FULL=1
    #[arg(long)]
    pub full: bool,
    /// Where the bytes of a world that fails are written [default: world-SEED-NUMBER]
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// With the file of a world: writes a capture (pcapng) of what its links carry, with the times
    /// of the world
    #[arg(long, value_name = "CAPTURE")]
    pub pcap: Option<PathBuf>,
    /// Prints one JSON document instead of a table
    #[arg(long)]
    pub json: bool,
    /// Prints no progress
    #[arg(short, long)]
    pub quiet: bool,
    /// A planted fault.
    #[cfg(feature = "plants")]
    #[command(flatten)]
    pub planted: PlantOption,
}

const EXPERIMENT_EXAMPLES: &str = "\
Examples:
  packtrain experiment list
      the experiments that there are
  packtrain experiment tso-matrix --save before.json
      the document's table beside this machine's, with verdicts
  packtrain experiment tso-matrix --html tso.html
      the same as a page with charts, also for a phone
  packtrain experiment all --quick
      shorter runs of all; no verdict is better than `direction`
  packtrain experiment ./mine.toml
      your own settings, in a file of the same format
  packtrain compare before.json after.json

The runs of all settings alternate, and a warm-up is dropped. A run that other programs disturbed is
shown and not judged. Ctrl-C ends it and keeps what was measured. No root is needed.";

/// `packtrain experiment`.
#[derive(Debug, Args)]
#[command(after_help = EXPERIMENT_EXAMPLES)]
pub struct ExperimentArgs {
    /// `list`, names of experiments, `all`, or a TOML file of your own
    #[arg(required = true, value_name = "NAME|FILE")]
    #[arg(add = shell::experiments())]
    pub what: Vec<String>,
    /// The settings that are run
    #[arg(long, value_enum, value_name = "WHERE")]
    pub only: Option<Only>,
    /// Rounds: each has one run of every setting [default: 3 with --quick, else the file's, or 5]
    #[arg(long, value_name = "N", value_parser = within(1..=1000_usize))]
    pub repeats: Option<usize>,
    /// Shorter runs, fewer settings, three rounds
    #[arg(long)]
    pub quick: bool,
    /// Different seeds that the rounds take in turn [default: one for each round]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: Option<u64>,
    /// Writes the JSON document to a file, for `packtrain compare`
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Writes one page with tables and charts, which needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Prints every row of a large table, not only those of claims that are not reproduced
    #[arg(long, conflicts_with = "json")]
    pub all: bool,
    /// Prints one JSON document instead of tables
    #[arg(long)]
    pub json: bool,
    /// Prints no progress
    #[arg(short, long)]
    pub quiet: bool,
    /// Runs the first setting of a file once and prints that run as JSON: what the host of a guest
    /// asks for.
    #[arg(long, hide = true)]
    pub once: bool,
    /// A planted fault.
    #[cfg(feature = "plants")]
    #[command(flatten)]
    pub planted: PlantOption,
}

/// A fault that is planted in the framework, in builds with the feature `plants` only: for tests
/// that a check can fail.
#[cfg(feature = "plants")]
#[derive(Debug, Args)]
pub struct PlantOption {
    /// Plants a fault for the whole run
    #[arg(long, value_name = "NAME")]
    pub plant: Option<Plant>,
}

#[cfg(feature = "plants")]
impl PlantOption {
    /// Sets the plant of this process.
    pub fn set(&self) {
        plant::set(self.plant);
    }
}

/// `packtrain compare`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  packtrain experiment tso-matrix --save before.json
  packtrain experiment tso-matrix --save after.json
  packtrain compare before.json after.json --tolerance 10

A figure is a regression if the whole interval of B is worse than that of A by more than the \
tolerance. The exit code is then 1, as where no figure can be judged.")]
pub struct CompareArgs {
    /// A document that `packtrain experiment --save` wrote
    pub a: PathBuf,
    /// Another one, which is compared with it
    pub b: PathBuf,
    /// By how much a figure may be worse, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0,
          value_parser = within(0.0..=1000.0))]
    pub tolerance: f64,
    /// Prints every figure, not only those that became worse or better
    #[arg(long, conflicts_with = "json")]
    pub all: bool,
    /// Prints one JSON document instead of a table
    #[arg(long)]
    pub json: bool,
}

const STREAM_EXAMPLES: &str = "\
Examples:
  packtrain stream
      TCP through packtrain for 3 seconds: goodput, CPU of each side, the kernels' counters
  packtrain stream --tso off --mss 1460 --mtu 9000 --json
      the sending kernel segments, and segments are small
  packtrain stream --a tap,offload=off --b tap,offload=off --direction both --streams 4
      packtrain segments and merges
  packtrain stream --exchange 1,1 --through veth
      request and response, without a forwarder
  packtrain stream --protocol udp --rate 500M --train 44
      UDP at a constant rate, 44 datagrams in a send

Two network namespaces with an interface each are made and removed, also without root. What comes \
before --warm-up is over counts in no figure. CPU is in percent of one CPU, and that of softirqs \
and of the machine in percent of all CPUs that packtrain may use. The bottleneck is the \
busiest side with a thread that uses 95 % of a CPU or more; else the machine, if its CPUs together \
are that busy; else latency/window. A forwarder most of whose polls find no packet is never the \
bottleneck.";

/// The command line of a tool.
#[derive(Debug, Args)]
pub struct ToolArgs<T: Args> {
    /// The load.
    #[command(flatten)]
    pub tool: T,
    /// What joins the hosts.
    #[command(
        flatten,
        next_help_heading = "Testbed: two namespaces, and what joins them"
    )]
    pub testbed: TestbedOptions,
    /// Prints one JSON document instead of a table
    #[arg(long)]
    pub json: bool,
    /// Prints no progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// `packtrain stream`.
pub type StreamArgs = ToolArgs<Stream>;

const BLAST_EXAMPLES: &str = "\
Examples:
  packtrain blast
      minimal packets flat out through packtrain
  packtrain blast --through bridge
      the same through a bridge of the kernel
  packtrain blast --rate 100kpps --size imix --a tap,tx=shared --b tap,tx=shared
      a mix of sizes at a constant rate, with a TX worker for each queue
  packtrain blast --rate 10kpps --count 1000 --a tap,drop=0.01
      a forwarder that drops packets: the loss is reported

Sizes are those of Ethernet frames with header and FCS, as in RFC 2544, also through a tun. A sender
that is late catches up, but never sends bursts less than half an interval apart. CPU is in percent
of one CPU, and that of softirqs and of the machine in percent of all CPUs that packtrain may use. A
softirq is charged to the thread that it interrupts.";

const PING_EXAMPLES: &str = "\
Examples:
  packtrain ping
      1000 UDP round trips a second through packtrain
  packtrain ping --load stream --through bridge
      idle, and beside a TCP stream, through a bridge of the kernel
  packtrain ping --flood --icmp
      one ICMP echo after the other, as ping -f
  packtrain ping --rate 5k --idle halt --moderation fixed(50,64)
      what sleeping workers and interrupt moderation cost

A request that cannot be sent when it is due is sent late, and its round trip counts from when it
was due: a stall is in the times of all requests that it concerned (no coordinated omission).";

const RFC2544_EXAMPLES: &str = "\
Examples:
  packtrain rfc2544 --sizes 64,1518
      two frame sizes through packtrain and through a bridge, in about two minutes
  packtrain rfc2544 --beside bridge,c,veth
      all frame sizes, beside everything that can join the hosts, in a quarter of an hour
  packtrain rfc2544 --sizes 64 --beside none --quick
      a first impression in some seconds
  packtrain rfc2544 --loss-ratio 0 --exceed-ratio 0 --final-duration 60s --duration-sum 60s \
--time-max 2h
      the throughput of RFC 2544

Each search is an MLRsearch (RFC 9971): a load is a lower bound if at most the exceed ratio of its
trials' time has more loss than the loss ratio. Throughput is the rate that arrived at the largest
lower bound below all upper bounds. The largest load is what the sender sends flat out: if a device
loses none of that, the sender is the limit, and the throughput is marked with >=. Load is in one
direction, from host A to host B.";

/// `packtrain rfc2544`.
#[derive(Debug, Args)]
pub struct Rfc2544Args {
    /// Frame sizes in bytes, with Ethernet header and FCS. The MTU is raised to the largest
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = frame_size,
          default_value = "64,128,256,512,1024,1280,1518,9000")]
    pub sizes: Vec<u32>,
    /// What is measured in turn with --through, in the same way: some of packtrain, veth, bridge
    /// and c, or none
    #[arg(long, value_name = "LIST", default_value = "bridge")]
    pub beside: Beside,
    /// The tool and its testbed.
    #[command(flatten)]
    pub common: ToolArgs<Rfc2544>,
}

/// `--beside`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside(pub Vec<Through>);

impl FromStr for Beside {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(Vec::new()));
        }
        let all = text.split(',').map(|word| Through::from_str(word, false));
        let all: Result<_, String> = all.collect();
        all.map(Self).map_err(|_| {
            "write none, or some of packtrain, veth, bridge and c, as in bridge,c,veth".to_owned()
        })
    }
}

fn frame_size(text: &str) -> Result<u32, String> {
    match text.parse() {
        // RFC 2544 section 9.1, and the largest MTU of a TAP.
        Ok(size @ 64..=65_539) => Ok(size),
        _ => Err("write frame sizes from 64 to 65539 bytes, as in 64,1518".to_owned()),
    }
}

/// A value as it is written.
pub fn word(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// `packtrain forward`.
#[derive(Debug, Args)]
#[command(after_help = FORWARD_EXAMPLES, after_long_help = ports(FORWARD_EXAMPLES))]
pub struct ForwardArgs {
    /// The first port, KIND:NAME[,key=value...], as in tap:tap0,queues=4
    #[arg(add = shell::ports())]
    pub a: String,
    /// The second port
    #[arg(add = shell::ports())]
    pub b: String,
    /// Further ports. Three and more are a bridge: each frame goes to the port behind which its
    /// Ethernet address was seen last, or to all others. It detects no loop
    #[arg(value_name = "MORE", add = shell::ports())]
    pub more: Vec<String>,
    /// Ends the run after this time: 10s, 500ms, 2m, 1h; a bare number is seconds
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub duration: Option<Duration>,
    /// Ends the run after N packets were received, of all ports together; a GSO packet counts once
    #[arg(long, value_name = "N", value_parser = count)]
    pub count: Option<u64>,
    /// Prints statistics on standard error this often, at least 50ms apart; with --json as JSON
    /// lines [default: 1s on a terminal, else never]
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub stats_interval: Option<Duration>,
    /// Runs as this user once the ports and files are open; requires root
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// With three and more ports: how long an address is remembered after its last frame, at least
    /// 1s [default: 300s]
    #[arg(long, value_name = "TIME", value_parser = aging)]
    pub aging: Option<Duration>,
    /// With three and more ports: the most addresses that are remembered; addresses= of a port
    /// bounds those behind it [default: 8192]
    #[arg(long, value_name = "N", value_parser = within(1..=ADDRESSES_MAX))]
    pub addresses: Option<usize>,
    /// Policies of queues and workers.
    #[command(flatten)]
    pub settings: PolicyOptions,
    /// Prints one JSON document instead of tables
    #[arg(long)]
    pub json: bool,
    /// Also prints the whole plan at the start, and at the end every counter, histograms of batch
    /// sizes and what each worker did
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Prints nothing at the start, and statistics only when --stats-interval asks for them
    #[arg(short, long)]
    pub quiet: bool,
}

impl ForwardArgs {
    /// The ports, in order.
    pub fn ports(&self) -> Vec<&str> {
        listed(&self.a, &self.b, &self.more)
    }
}

impl PlanArgs {
    /// The ports, in order.
    pub fn ports(&self) -> Vec<&str> {
        listed(&self.a, &self.b, &self.more)
    }
}

fn listed<'a>(a: &'a str, b: &'a str, more: &'a [String]) -> Vec<&'a str> {
    let more = more.iter().map(String::as_str);
    [a, b].into_iter().chain(more).collect()
}

/// `packtrain plan`.
#[derive(Debug, Args)]
#[command(after_help = PLAN_EXAMPLES, after_long_help = ports(PLAN_EXAMPLES))]
pub struct PlanArgs {
    /// The first port, KIND:NAME[,key=value...], as in tap:tap0,queues=4
    #[arg(add = shell::ports())]
    pub a: String,
    /// The second port
    #[arg(add = shell::ports())]
    pub b: String,
    /// Further ports. Three and more are a bridge: each frame goes to the port behind which its
    /// Ethernet address was seen last, or to all others. It detects no loop
    #[arg(value_name = "MORE", add = shell::ports())]
    pub more: Vec<String>,
    /// Policies of queues and workers.
    #[command(flatten)]
    pub settings: PolicyOptions,
    /// Prints one JSON document instead of tables
    #[arg(long)]
    pub json: bool,
}

/// `packtrain demo`.
#[derive(Debug, Args)]
#[command(after_help = "\
Makes two network namespaces with a TAP interface in each, sends TCP and UDP in both directions, \
and compares what arrives with what was sent. It needs root or user namespaces. Without them it \
prints the reason and runs the same transfers over simulated NICs. All that it made is removed at \
the end.")]
pub struct DemoArgs {
    /// Seconds for each transfer, from 0.05 to 60
    #[arg(long, value_name = "S", default_value = "1", value_parser = within(0.05..=60.0))]
    pub seconds: f64,
    /// Seed of the bytes that are sent
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(0..=u64::MAX))]
    pub seed: u64,
    /// Prints one JSON document instead of tables
    #[arg(long)]
    pub json: bool,
}

/// `packtrain doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Opens, binds and loads each feature, closes it again, and changes nothing. Without root it works in
a user namespace. Exit code 0: TAP interfaces in network namespaces work, so `packtrain demo` does.
Exit code 3: they do not.")]
pub struct DoctorArgs {
    /// Prints one JSON document instead of tables
    #[arg(long)]
    pub json: bool,
}

/// `packtrain guest`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  packtrain guest --fetch
      downloads Debian's kernel and BusyBox (70 MB, with apt-get); installs nothing
  packtrain guest
      a shell beside two Intel 82574L that are joined; `exit` ends it
  packtrain guest -- packtrain doctor
      the same guest, one command of its shell, and its exit code
  packtrain guest --card vmxnet3 --card virtio,kernel,tap=tap0
      other cards; the second one is an interface of the guest and a TAP interface of this host
  packtrain guest --card e1000e,hub=1 --card e1000e,hub=2 --card e1000e,hub=1 --card e1000e,hub=2
      two pairs: the first card is joined to the third one, the second to the fourth

Cards are at 0000:01:00.0, 0000:02:00.0 and so on, each in an IOMMU group of its own and bound to
vfio-pci. The shell is BusyBox; `packtrain` is this program, and `bind-card ADDRESS DRIVER` gives a
card to another driver. It boots in some seconds, without KVM and without root (a TAP needs it).
Nothing in it is kept.

It needs qemu-system-x86_64, setpriv, and a folder with vmlinuz, *.ko and busybox:
PACKTRAIN_GUEST, or packtrain/guest in ~/.cache. If the IOMMU stops an access of a card, the fault
is printed, and the exit code is 1.")]
pub struct GuestArgs {
    /// A card, the first one at 0000:01:00.0: e1000e, vmxnet3 or virtio. `kernel` leaves it to the
    /// kernel's driver; `hub=N` joins it to the other cards of that hub (0), `tap=NAME` to a TAP
    /// interface of this host instead
    #[arg(long = "card", value_name = "MODEL[,kernel][,hub=N|,tap=NAME]")]
    #[arg(default_values = ["e1000e", "e1000e"])]
    #[arg(value_parser = GuestCard::from_str, add = shell::cards())]
    pub cards: Vec<GuestCard>,
    /// Puts this program of the host into the guest's /bin, too
    #[arg(long = "program", value_name = "PATH")]
    pub programs: Vec<PathBuf>,
    /// Memory of the guest in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    pub memory: u32,
    /// Downloads the kernel and BusyBox before
    #[arg(long)]
    pub fetch: bool,
    /// A line for the guest's shell, as words; without it there is a shell on the terminal
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// A card of `packtrain guest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestCard {
    /// What QEMU emulates.
    pub model: CardModel,
    /// The driver that takes it.
    pub bound: Bound,
    /// What it is joined to.
    pub wire: Wire,
}

/// What a card of `packtrain guest` is joined to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wire {
    /// The other cards of the hub with this number.
    Hub(u32),
    /// The TAP interface of this name.
    Tap(String),
}

impl FromStr for GuestCard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let model = words.next().unwrap_or_default();
        let Some((_, model)) = CARDS.iter().find(|(name, _)| *name == model) else {
            let names = CARDS.map(|(name, _)| name).join(", ");
            return Err(format!("the models are {names}"));
        };
        let mut card = Self {
            model: *model,
            bound: Bound::Vfio,
            wire: Wire::Hub(0),
        };
        for word in words {
            let hub = |number: &str| {
                number
                    .parse()
                    .map_err(|_| format!("'{number}' is no number"))
            };
            match word.split_once('=') {
                None if word == "kernel" => card.bound = Bound::Kernel,
                Some(("hub", number)) => card.wire = Wire::Hub(hub(number)?),
                Some(("tap", name)) if name.len() > INTERFACE_NAME_BYTES_MAX => {
                    return Err(format!(
                        "the name '{name}' has {} bytes, and Linux accepts at most \
                         {INTERFACE_NAME_BYTES_MAX}",
                        name.len()
                    ));
                }
                Some(("tap", name)) if !name.is_empty() => card.wire = Wire::Tap(name.to_owned()),
                _ => return Err(format!("'{word}' is not kernel, hub=N or tap=NAME")),
            }
        }
        Ok(card)
    }
}

/// As [`time`], and at least 50 ms.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = time(text)?;
    if interval < Duration::from_millis(50) {
        return Err("an interval must be at least 50ms".to_owned());
    }
    Ok(interval)
}

/// As [`time`], and at least [`AGING_MIN`].
fn aging(text: &str) -> Result<Duration, String> {
    let aging = time(text)?;
    if aging < AGING_MIN {
        return Err("an address must be remembered for at least 1s".to_owned());
    }
    Ok(aging)
}

fn count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err("write a number of packets, at least 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_times() {
        assert!(interval("10ms").is_err());
        let seconds = within(0.05..=60.0);
        assert!(seconds("0").is_err() && seconds("nan").is_err());
    }

    #[test]
    fn every_key_is_listed_in_lines_of_at_most_100_columns() {
        let text = ports("");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        for key in kinds()
            .into_iter()
            .flat_map(|kind| kind.keys)
            .chain(common_keys())
        {
            let start = format!("\n  {}", key.name);
            assert!(text.contains(&start), "{} in {text}", key.name);
        }
        // Words of a long list continue on the next line.
        assert!(text.contains("tso-ecn,\n      uso4"), "{text}");
    }

    #[test]
    fn controls() {
        let beside = |text: &str| text.parse::<Beside>();
        assert_eq!(beside("none"), Ok(Beside(Vec::new())));
        assert_eq!(
            beside("c,veth"),
            Ok(Beside(vec![Through::C, Through::Veth]))
        );
        assert!(beside("wire").unwrap_err().contains("write none"));
        assert!(frame_size("63").is_err() && frame_size("1518").is_ok());
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
