//! The same load through sockets and the kernel's driver of a card: what packtrain is compared to.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use packtrain_measure::key::fields;
use serde_json::json;

use super::{FIRST_PORT, Figures, Load, Senders, Sent};
use crate::cards;
use crate::cpu::Usage;
use crate::cpus::on_cpu;
use crate::error::{LabError, ToolError};
use crate::experiment::counters::{Work, per};
use crate::netns::Netns;
use crate::testbed::TestbedOptions;
use crate::threads::{join, spawn};
use crate::tool::{Control, Measured, Watch};
use crate::tools::frame::DISCARD;
use crate::topology::{Host, Settings, Side};
use crate::traffic::pace::Pacer;

/// How long the card may take to send what it has.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// How often that is polled.
const DRAIN_POLL: Duration = Duration::from_millis(1);

impl Senders {
    /// One run in a host whose interface is that of `card`.
    pub(super) fn through_sockets(
        &self,
        card: &str,
        load: &Load<'_>,
        testbed: &TestbedOptions,
        control: &Control<'_>,
    ) -> Result<Measured, ToolError> {
        if self.batch != 1 || self.filter != 0 {
            let line = "a socket sends one packet in a call, which is its system call: write \
                        batch = 1, and leave filter out";
            return Err(ToolError::Usage(line.to_owned()));
        }
        let (here, settings) = (Netns::current()?, Settings::default());
        let create = || Ok::<_, ToolError>((cards::bring(card, &here)?, ()));
        let (host, ()) = Host::alone(&settings, Side::Left, create)?;
        cards::wait_for_link(&host.netns, host.link.index)?;
        let before = host.stats()?;
        let watch = Watch::start()?;
        let start = Instant::now();
        let sent = self.send_by_sockets(&host, load, testbed, control)?;
        let all: u64 = sent.iter().map(|one| one.packets).sum();
        let ended = Instant::now();
        let received = loop {
            let received = host.stats()?.since(&before).tx_packets;
            if received >= all || ended.elapsed() >= DRAIN_MAX {
                break received;
            }
            thread::sleep(DRAIN_POLL);
        };
        let seconds = start.elapsed().as_secs_f64();
        let (activity, flag) = watch.end(Duration::ZERO)?;
        if control.stopped() {
            return Err(ToolError::Cancelled);
        }
        let lost = all.checked_sub(received).ok_or_else(|| {
            ToolError::Check(format!("the card sent {received} of {all} packets"))
        })?;
        let cpu: Duration = sent.iter().map(|one| one.cpu).sum();
        let work = Work {
            cpu,
            ..Work::default()
        };
        let figures = Figures {
            seconds,
            offered_packets: all,
            offered_least_packets: sent.iter().map(|one| one.packets).min(),
            sent_packets: received,
            received_packets: received,
            lost_packets: lost,
            lost_percent: per(100.0 * lost as f64, all as f64),
            sent_kpps: per(received as f64 / 1e3, seconds),
            received_kpps: per(received as f64 / 1e3, seconds),
            cpu_sender_percent: per(100.0 * cpu.as_secs_f64(), seconds),
            ns_per_packet_sender: work.ns_per_packet(received),
            send_calls: sent.iter().map(|one| one.calls).sum(),
            switches_machine: Some(activity.switches),
            costs: work.costs(received, seconds),
            ..Figures::default()
        };
        let mut settings = self.settings(load, testbed);
        settings.insert("path_a".to_owned(), json!("socket"));
        Ok(Measured {
            settings,
            figures: fields(&figures),
            flags: flag.into_iter().collect(),
            ..Measured::default()
        })
    }

    fn send_by_sockets(
        &self,
        host: &Host,
        load: &Load<'_>,
        testbed: &TestbedOptions,
        control: &Control<'_>,
    ) -> Result<Vec<Sent>, ToolError> {
        let cpu = testbed.cpus.and_then(|cpus| cpus.sender);
        let sockets = (FIRST_PORT..).take(self.senders as usize).map(|from| {
            let socket = host.netns.run(|| {
                let socket = UdpSocket::bind((host.side.ipv4(), from))?;
                socket.connect((host.side.other().ipv4(), DISCARD))?;
                Ok(socket)
            })?;
            socket.map_err(LabError::from_io("a UDP socket"))
        });
        let sockets: Vec<UdpSocket> = sockets.collect::<Result<_, _>>()?;
        let start = Instant::now();
        let sent: Result<Vec<Sent>, LabError> = thread::scope(|scope| {
            let senders = sockets.iter().map(|socket| {
                spawn(scope, move || {
                    on_cpu(cpu, || self.send_by_socket(socket, load, start, control))
                })
            });
            let senders: Vec<_> = senders.collect::<Result<_, _>>()?;
            senders.into_iter().map(join).collect()
        });
        Ok(sent?)
    }

    fn send_by_socket(
        &self,
        socket: &UdpSocket,
        load: &Load<'_>,
        start: Instant,
        control: &Control<'_>,
    ) -> Result<Sent, LabError> {
        let payload = vec![0; load.payload];
        let cpu = Usage::of_thread();
        let start = start.max(Instant::now());
        let end = start + self.duration.0;
        let mut pacer = load.pace.map(|(_, interval)| Pacer::new(start, interval));
        let burst = load.pace.map_or(1, |(burst, _)| burst);
        let mut sent = Sent::default();
        while !control.stopped() && Instant::now() < end {
            match &mut pacer {
                Some(pacer) if pacer.due() < end => pacer.wait(|| control.stopped()),
                Some(_) => break,
                None => {}
            }
            for _ in 0..burst {
                socket.send(&payload).map_err(LabError::from_io("send"))?;
                sent.packets += 1;
                sent.calls += 1;
            }
        }
        sent.cpu = Usage::of_thread().since(&cpu).cpu();
        Ok(sent)
    }
}
