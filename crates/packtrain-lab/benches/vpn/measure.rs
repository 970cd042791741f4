//! One transfer through one VPN.

use crate::endpoint::{Endpoint, Wire};
use packtrain_lab::cpu::Usage;
use packtrain_lab::netns::Netns;
use packtrain_lab::topology::{Settings, Side, TwoHosts};
use packtrain_lab::traffic::{Amount, IpVersion, Transfer, TransferReport};
use serde::Serialize;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, panic};
use tun_rs::{DeviceBuilder, SyncDevice};

/// What stops the bench.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The TUN of each host, in its own network namespace.
const INTERFACE: &str = "vpn0";

/// The discard port: nothing listens there.
const DISCARD: u16 = 9;

/// The figures of one transfer.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Whose offloads.
    #[serde(rename = "offloads")]
    pub endpoint: &'static str,
    /// Figures of one round are compared.
    pub round: usize,
    /// Payload received, in Gbit/s.
    pub gbps: f64,
    /// CPU seconds of the VPN's two threads for 10^9 bytes of payload.
    pub cpu_s_per_gb: f64,
    /// Of these in user mode, counted in clock ticks.
    pub user_s_per_gb: f64,
    /// Average bytes that a read of the sender's TUN gave.
    pub read_bytes: f64,
    /// Average bytes that a write to the receiver's TUN gave.
    pub write_bytes: f64,
    /// Segments that TCP sent again.
    pub retransmits: u64,
    /// Packets that the kernel dropped at either TUN.
    pub kernel_drops: u64,
}

/// A running VPN: a thread for each direction.
struct Vpn {
    /// An interface lives as long as its device, and [`end`](Self::end) needs both.
    devices: [Arc<SyncDevice>; 2],
    threads: [JoinHandle<io::Result<Usage>>; 2],
    stop: Arc<AtomicBool>,
    /// Set by a thread that failed.
    failed: Arc<AtomicBool>,
}

impl Vpn {
    fn start<E: Endpoint>(left: SyncDevice, right: SyncDevice) -> Result<Self, Error> {
        let (left, right) = (Arc::new(left), Arc::new(right));
        let stop = Arc::new(AtomicBool::new(false));
        let failed = Arc::new(AtomicBool::new(false));
        let start = |from: &Arc<SyncDevice>, to: &Arc<SyncDevice>| {
            let (from, to) = (Arc::clone(from), Arc::clone(to));
            let (stop, failed) = (Arc::clone(&stop), Arc::clone(&failed));
            thread::Builder::new().spawn(move || {
                let result = forward::<E>(&from, &to, &stop);
                if result.is_err() {
                    failed.store(true, Ordering::Release);
                }
                result
            })
        };
        let threads = [start(&left, &right)?, start(&right, &left)?];
        Ok(Self {
            devices: [left, right],
            threads,
            stop,
            failed,
        })
    }

    /// Stops it, and returns its CPU time. A thread that waits for a packet gets one.
    fn end(self, hosts: &TwoHosts) -> Result<Usage, Error> {
        self.stop.store(true, Ordering::Release);
        for side in [Side::Left, Side::Right] {
            wake(&hosts.host(side).netns, side)?;
        }
        let mut usage = Usage::default();
        for thread in self.threads {
            let result = thread.join();
            let used = result.unwrap_or_else(|payload| panic::resume_unwind(payload))?;
            usage = usage.plus(&used);
        }
        drop(self.devices);
        Ok(usage)
    }
}

/// Moves packets until `stop`, and returns the CPU time that this took.
fn forward<E: Endpoint>(
    from: &SyncDevice,
    to: &SyncDevice,
    stop: &AtomicBool,
) -> io::Result<Usage> {
    let (mut endpoint, mut wire) = (E::default(), Wire::default());
    let before = Usage::of_thread();
    while !stop.load(Ordering::Acquire) {
        endpoint.device_to_wire(from, &mut wire)?;
        endpoint.wire_to_device(&mut wire, to)?;
    }
    Ok(Usage::of_thread().since(&before))
}

/// Sends a datagram out of the TUN of a host.
fn wake(netns: &Netns, side: Side) -> Result<(), Error> {
    let (from, to) = (side.ipv4(), side.other().ipv4());
    netns.run(|| UdpSocket::bind((from, 0))?.send_to(&[0], (to, DISCARD)))??;
    Ok(())
}

fn device() -> io::Result<SyncDevice> {
    DeviceBuilder::new()
        .name(INTERFACE)
        .offload(true)
        .build_sync()
}

/// Starts the VPN, transfers, and ends it.
///
/// # Errors
/// What failed; also if other bytes arrived than were sent.
pub fn run<E: Endpoint>(time: Duration, round: usize) -> Result<Row, Error> {
    let (hosts, left, right) = TwoHosts::with(&Settings::default(), |_side| {
        Ok::<_, Error>((INTERFACE.to_owned(), device()?))
    })?;
    let vpn = Vpn::start::<E>(left, right)?;
    let (sender, receiver) = (hosts.left.stats()?, hosts.right.stats()?);
    let transfer = Transfer::tcp(IpVersion::V4, Amount::Time(time)).seed(round as u64);
    let transfer = transfer.stop(Arc::clone(&vpn.failed));
    let report = transfer.run(&hosts.left, &hosts.right);
    let sender = hosts.left.stats()?.since(&sender);
    let receiver = hosts.right.stats()?.since(&receiver);
    // A transfer ends early if the VPN failed: its error is the cause.
    let usage = vpn.end(&hosts);
    let usage = usage.map_err(|error| format!("{}: {error}", E::NAME))?;
    let report: TransferReport = report?;
    if !report.hash_ok {
        return Err(format!("{}: what arrived is not what was sent", E::NAME).into());
    }
    let gigabytes = report.received_bytes as f64 / 1e9;
    let ratio = |sum: u64, of: u64| sum as f64 / of.max(1) as f64;
    Ok(Row {
        endpoint: E::NAME,
        round,
        gbps: report.gbps(),
        cpu_s_per_gb: usage.cpu().as_secs_f64() / gigabytes,
        user_s_per_gb: usage.user.as_secs_f64() / gigabytes,
        read_bytes: ratio(sender.tx_bytes, sender.tx_packets),
        write_bytes: ratio(receiver.rx_bytes, receiver.rx_packets),
        retransmits: report.retransmits,
        kernel_drops: [sender, receiver]
            .map(|stats| stats.tx_dropped + stats.rx_dropped + stats.rx_errors)
            .iter()
            .sum(),
    })
}
