//! The options of `packtrain check`.

use crate::shell;
use clap::builder::RangedI64ValueParser;
use clap::{Args, value_parser};
use packtrain_lab::exec::Made;
use packtrain_lab::units::time;
use std::path::PathBuf;
use std::time::Duration;

/// What the interfaces of the hosts take.
fn mtu() -> RangedI64ValueParser<u32> {
    value_parser!(u32).range(1280..=65_521)
}

const EXAMPLES: &str = "\
Examples:
  packtrain check -- ./my-forwarder {a} {b}
      a program that opens both devices; {a} and {b} are the names that it has to give them
  packtrain check --a './vpn --config a.toml --dev {a}' --b './vpn --config b.toml --dev {b}'
      the two ends of a VPN, which reach each other at 127.0.0.1
  packtrain check --made tap -- ./back-end {a} {b}
      a program that only opens devices that exist
  packtrain check --only udp-sizes --captures out -- ./my-forwarder {a} {b}
      one check, with a capture of what failed
  packtrain check --junit report.xml -- ./my-forwarder {a} {b}
      for a CI system

The program runs in a network namespace of its own, where loopback is up. When it has opened both
devices, they are moved into two hosts, and get addresses there: its own settings of addresses and
MTU do not count. Packets are from 198.18.0.101 and fd00:18::101 to .102 and back; TCP is between
198.18.0.1 and .2, fd00:18::1 and ::2. The program ends with the check, with all processes that it
has started. No root is needed.
Exit status 1 if a check failed, 5 if none failed and one could not be judged, 2 for a wrong command
line, 3 if a privilege is missing, 4 if the program opens no devices or passes nothing, or if a file
cannot be written.";

/// `packtrain check`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// The program, which opens both devices: {a} and {b} stand for their names
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["a", "b"])]
    pub command: Vec<String>,
    /// A shell command for the program at end A, which opens {a}
    #[arg(long, value_name = "COMMAND", requires = "b")]
    pub a: Option<String>,
    /// The same at end B, which opens {b}
    #[arg(long, value_name = "COMMAND", requires = "a")]
    pub b: Option<String>,
    /// Makes both devices before the program is started, as persistent ones of this kind
    #[arg(long, value_enum, value_name = "KIND")]
    pub made: Option<Made>,
    /// How long the program may take to open its devices
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s")]
    pub wait: Duration,
    /// MTU of both devices: 1280 to 65521
    #[arg(long, value_name = "N", default_value = "1500", value_parser = mtu())]
    pub mtu: u32,
    /// Leaves IPv4 out, as what the program does not claim
    #[arg(long, conflicts_with = "no_ipv6")]
    pub no_ipv4: bool,
    /// Leaves IPv6 out
    #[arg(long)]
    pub no_ipv6: bool,
    /// Compares the identification of IPv4 packets with DF too, which has no meaning (RFC 6864)
    #[arg(long)]
    pub exact_id: bool,
    /// Expects TTL and hop limit one less, with the right header checksum: for one that routes
    #[arg(long)]
    pub ttl_decrement: bool,
    /// Never stops the program (SIGSTOP) while packets are sent: for one that does not bear it
    #[arg(long)]
    pub no_stop: bool,
    /// Runs this check only; may be given again
    #[arg(long, value_name = "NAME", add = shell::checks())]
    pub only: Vec<String>,
    /// Leaves this check out, as what the program does not claim; may be given again
    #[arg(long, value_name = "NAME", add = shell::checks())]
    pub skip: Vec<String>,
    /// Leaves out goodput, CPU time and round trips, beside a forwarder in C, a bridge and veth
    #[arg(long)]
    pub no_speed: bool,
    /// Names all checks, with what a program that passes does and where the fault was seen
    #[arg(long, conflicts_with = "command")]
    pub list: bool,
    /// Writes what the program prints, standard output and standard error, into this file
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Writes a capture (pcapng) of each failure into this folder: what was sent and what arrived
    #[arg(long, value_name = "FOLDER")]
    pub captures: Option<PathBuf>,
    /// How long a packet is waited for after the last one that arrived, until it counts as lost,
    /// and a late copy at the end. Time in which the program waits for a CPU does not count
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "3s")]
    pub patience: Duration,
    /// Seed of the payloads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Prints one JSON document instead of a table
    #[arg(long)]
    pub json: bool,
    /// Writes the report as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Writes the report as a page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Prints each check that failed with all lines, not only the first one of each cause
    #[arg(short, long, conflicts_with = "json")]
    pub verbose: bool,
    /// Prints no progress
    #[arg(short, long)]
    pub quiet: bool,
}
