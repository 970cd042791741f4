//! One transfer through one forwarder.

use crate::arguments::Arguments;
use crate::forwarder::{self, Contestant, INTERFACES};
use crate::process::{Error, Process};
use packtrain_lab::LabError;
use packtrain_lab::link::Rtnl;
use packtrain_lab::netns::Netns;
use packtrain_lab::topology::{Host, Settings, Side, TwoHosts};
use packtrain_lab::traffic::{Amount, IpVersion, Transfer};
use serde::Serialize;
use std::sync::{Mutex, PoisonError};

/// Which way the payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Direction {
    /// From the host of `bench-a`.
    #[serde(rename = "a_to_b")]
    AToB,
    /// From the host of `bench-b`.
    #[serde(rename = "b_to_a")]
    BToA,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::AToB, Self::BToA];

    /// As in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AToB => "a_to_b",
            Self::BToA => "b_to_a",
        }
    }
}

/// The figures of one transfer.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which comparison.
    #[serde(rename = "comparison")]
    pub experiment: &'static str,
    /// The forwarder.
    pub forwarder: &'static str,
    /// With how many threads.
    pub threads: u32,
    /// On which interfaces there were offloads.
    pub offload: &'static str,
    /// Where the payload went.
    pub direction: Direction,
    /// Figures of one round are compared.
    pub round: usize,
    /// Payload received, in Gbit/s.
    pub gbps: f64,
    /// CPU seconds of the forwarder for 10^9 bytes of payload.
    pub cpu_s_per_gb: f64,
    /// Of these in user mode, counted in clock ticks.
    pub user_s_per_gb: f64,
    /// The same CPU seconds, counted in the process's clock ticks.
    pub cpu_ticks_s_per_gb: f64,
    /// Segments that TCP sent again.
    pub retransmits: u64,
    /// Packets that the kernel dropped at either interface.
    pub kernel_drops: u64,
    /// Packets that the forwarder lost.
    pub lost: u64,
    /// System calls for each packet read.
    pub syscalls_per_packet: f64,
    /// Packets between two waits.
    pub packets_per_sleep: f64,
    /// Average size of the packets with payload as the sender's interface gave them, in bytes.
    pub packet_bytes: f64,
    /// Packets a second, both ways.
    pub packets_per_s: f64,
}

/// The hosts, joined by a forwarder that was started in the left one's namespace as a user would:
/// it makes both interfaces, and the second is then given to the other host.
fn join(contestant: &Contestant) -> Result<(TwoHosts, Process), Error> {
    let here: Mutex<Option<Rtnl>> = Mutex::new(None);
    let (hosts, process, _none) = TwoHosts::with(&Settings::default(), |side| {
        let mut here = here.lock().unwrap_or_else(PoisonError::into_inner);
        match side {
            Side::Left => {
                let process = contestant.start()?;
                *here = Some(Rtnl::open()?);
                Ok::<_, Error>((INTERFACES[0].to_owned(), Some(process)))
            }
            Side::Right => {
                let rtnl = here.as_mut().ok_or("the left host comes first")?;
                let index = rtnl.link(INTERFACES[1])?.index;
                rtnl.move_to(index, &Netns::current()?)?;
                Ok((INTERFACES[1].to_owned(), None))
            }
        }
    })?;
    Ok((hosts, process.ok_or("the left host has the forwarder")?))
}

fn drops(hosts: &TwoHosts) -> Result<u64, LabError> {
    let of = |host: &Host| {
        let stats = host.stats()?;
        Ok::<_, LabError>(stats.dropped() + stats.rx_errors)
    };
    Ok(of(&hosts.left)? + of(&hosts.right)?)
}

/// Starts the forwarder, transfers, and ends it.
pub fn run(
    arguments: &Arguments,
    experiment: &'static str,
    contestant: &Contestant,
    direction: Direction,
    round: usize,
) -> Result<Row, Error> {
    let (hosts, process) = join(contestant)?;
    let (from, to) = match direction {
        Direction::AToB => (&hosts.left, &hosts.right),
        Direction::BToA => (&hosts.right, &hosts.left),
    };
    let transfer =
        Transfer::tcp(IpVersion::V4, Amount::Time(arguments.timed.time)).seed(round as u64);
    let (sent_before, drops_before) = (from.stats()?, drops(&hosts)?);
    let cpu_before = forwarder::cpu_time(&process)?;
    let report = transfer.run(from, to)?;
    let cpu_after = forwarder::cpu_time(&process)?;
    let sent = from.stats()?.since(&sent_before);
    let kernel_drops = drops(&hosts)? - drops_before;
    let account = forwarder::end(process)?;
    if !report.hash_ok {
        let name = contestant.name();
        return Err(format!("{name}: what arrived is not what was sent").into());
    }
    let gigabytes = report.received_bytes as f64 / 1e9;
    let user = cpu_after.user - cpu_before.user;
    let ticks = user + cpu_after.system - cpu_before.system;
    let ratio = |counted: u64, of: u64| counted as f64 / of.max(1) as f64;
    Ok(Row {
        experiment,
        forwarder: contestant.name(),
        threads: contestant.threads(),
        offload: contestant.offload(),
        direction,
        round,
        gbps: report.gbps(),
        cpu_s_per_gb: (cpu_after.threads - cpu_before.threads) / gigabytes,
        user_s_per_gb: user / gigabytes,
        cpu_ticks_s_per_gb: ticks / gigabytes,
        retransmits: report.retransmits,
        kernel_drops,
        lost: account.lost,
        syscalls_per_packet: ratio(account.syscalls, account.packets),
        packets_per_sleep: ratio(account.packets, account.sleeps),
        packet_bytes: ratio(sent.tx_bytes, sent.tx_packets),
        packets_per_s: account.packets as f64 / report.elapsed.as_secs_f64(),
    })
}
