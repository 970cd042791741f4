//! `stream`: TCP and UDP between the hosts, with what it costs each side.

mod figures;
mod offloads;
mod options;

use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use self::figures::{
    Acks, Both, DatagramFigures, Figures, Forwarder, Interface, Moved, Segments, Transactions,
};
use self::figures::{Reading, Steady, figures};
use self::offloads::Offloads;
pub use self::options::{BitRate, Direction, ExchangeSizes, Stream, Switch, WarmUp};
use crate::error::{LabError, ToolError};
use crate::netns;
use crate::options::Fields;
use crate::testbed::Testbed;
use crate::threads::{AtEnd, join, spawn};
use crate::tool::{Control, Measured, Tool, Watch};
use crate::topology::{Host, Side};
use crate::traffic::{Opened, Protocol, TransferReport};
use crate::units::Time;

/// How often progress is reported and a stop is noticed.
const TICK: Duration = Duration::from_millis(100);

/// How often the tool checks whether the transfer has begun.
const START_TICK: Duration = Duration::from_millis(1);

/// A data direction: the sending side.
type Way = Side;

impl Direction {
    fn ways(self) -> &'static [Way] {
        match self {
            Self::AToB => &[Side::Left],
            Self::BToA => &[Side::Right],
            Self::Both => &[Side::Left, Side::Right],
        }
    }
}

/// A run of `stream`.
pub type Streamed = Measured<Fields, Figures>;

impl Tool for Stream {
    type Settings = Fields;
    type Figures = Figures;

    fn run(&self, testbed: &Testbed, control: &Control<'_>) -> Result<Streamed, ToolError> {
        let warm_up = self.warm_up()?;
        if self.ipv6 && !netns::has_ipv6() {
            return Err(ToolError::Missing(
                "--ipv6: this kernel has no IPv6".to_owned(),
            ));
        }
        let senders = self.direction.ways().iter();
        let senders = senders.map(|side| testbed.hosts().host(*side));
        let before = senders.map(|host| Ok((host, Offloads::of(host)?)));
        let before: Vec<_> = before.collect::<Result<_, LabError>>()?;
        let set = |(host, offloads): &(&Host, Offloads)| {
            let wanted = offloads.with(self.tso, self.gso);
            wanted.apply(host)
        };
        let taken = before.iter().try_for_each(set);
        let measured = match taken {
            Ok(()) => self.measure(testbed, control, warm_up),
            Err(error) => Err(with_option(error).into()),
        };
        for (host, offloads) in before {
            offloads.apply(host)?;
        }
        measured
    }
}

/// The error about a setting with the option that requests it.
fn with_option(error: LabError) -> LabError {
    let option = |what| match what {
        "tso" => "--tso",
        "gso" => "--gso",
        "mss" => "--mss",
        "a socket buffer of" => "--window",
        other => other,
    };
    match error {
        LabError::NotTaken {
            what,
            wanted,
            found,
            hint,
        } => LabError::NotTaken {
            what: option(what),
            wanted,
            found,
            hint,
        },
        other => other,
    }
}

impl Stream {
    fn measure(
        &self,
        testbed: &Testbed,
        control: &Control<'_>,
        warm_up: Duration,
    ) -> Result<Streamed, ToolError> {
        let hosts = testbed.hosts();
        let mut transfer = self.transfer(hosts.left.link.mtu)?;
        transfer.sender_cpu = testbed.cpus().sender;
        transfer.receiver_cpu = testbed.cpus().receiver;
        let ways = self.direction.ways();
        let open = |side: &Side| transfer.open(hosts.host(*side), hosts.host(side.other()));
        let opened = ways.iter().map(open).collect::<Result<Vec<_>, _>>();
        let opened = opened.map_err(with_option)?;
        let (steady, reports) = self.observe(testbed, control, warm_up, &opened)?;
        // After the run: the kernel has adapted the buffers to it.
        let settings = self.settings(testbed, &opened, warm_up)?;
        if self.check
            && self.protocol == Protocol::Tcp
            && reports.iter().any(|report| !report.hash_ok)
        {
            return Err(ToolError::Check(
                "the bytes that arrived are not those that were sent".to_owned(),
            ));
        }
        let figures = figures(self, &steady, &reports);
        Ok(Measured {
            settings,
            figures,
            flags: steady.flags,
            ..Measured::default()
        })
    }

    /// Runs all transfers and reads every counter after the warm-up and at the end.
    fn observe(
        &self,
        testbed: &Testbed,
        control: &Control<'_>,
        warm_up: Duration,
        opened: &[Opened<'_>],
    ) -> Result<(Steady, Vec<TransferReport>), ToolError> {
        let read = || Reading::now(testbed, opened);
        // Before the threads start if everything counts.
        let early = match warm_up {
            Duration::ZERO => Some((Watch::start()?, read()?)),
            _ => None,
        };
        thread::scope(|scope| {
            let transfers_end = AtEnd(|| opened.iter().for_each(Opened::end));
            let runs: Vec<_> = opened
                .iter()
                .map(|one| spawn(scope, move || one.run()))
                .collect::<Result<_, _>>()?;
            // If a transfer fails, its error is found when it is joined.
            let is_over = || runs.iter().any(ScopedJoinHandle::is_finished);
            let wait = |until: Instant, what: &str| {
                while Instant::now() < until && !is_over() && !control.stopped() {
                    let left = until.saturating_duration_since(Instant::now());
                    (control.progress)(&format!("{what}: {:.1} s left", left.as_secs_f64()));
                    thread::sleep(left.min(TICK));
                }
            };
            let steady = || {
                // On a busy machine a thread may start late.
                while !opened.iter().all(Opened::has_begun) && !is_over() {
                    if control.stopped() {
                        return Err(ToolError::Cancelled);
                    }
                    thread::sleep(START_TICK);
                }
                let start = Instant::now();
                let (watch, first) = match early {
                    Some(early) => early,
                    None => {
                        wait(start + warm_up, "warm-up");
                        if control.stopped() {
                            return Err(ToolError::InWarmUp(Time(warm_up)));
                        }
                        opened.iter().for_each(Opened::mark);
                        (Watch::start()?, read()?)
                    }
                };
                wait(
                    start.max(first.at) + (self.duration.0 - warm_up),
                    "measuring",
                );
                let last = read()?;
                // Datagrams are counted until the end.
                opened.iter().for_each(Opened::end);
                Steady::between(first, last, &watch)
            };
            let steady = steady();
            drop(transfers_end);
            let reports: Result<Vec<_>, LabError> = runs.into_iter().map(join).collect();
            // The error of a transfer comes first: it is why a reading failed.
            let reports = reports?;
            Ok((steady?, reports))
        })
    }

    /// The settings in force, read back.
    fn settings(
        &self,
        testbed: &Testbed,
        opened: &[Opened<'_>],
        warm_up: Duration,
    ) -> Result<Fields, ToolError> {
        let mut settings = Fields::new();
        let mut set = |name: &str, value: Value| settings.insert(name.to_owned(), value);
        let in_force = opened
            .first()
            .map(Opened::in_force)
            .transpose()?
            .unwrap_or_default();
        let direction = match self.direction {
            Direction::AToB => "a_to_b",
            Direction::BToA => "b_to_a",
            Direction::Both => "both",
        };
        set("protocol", self.protocol.to_string().into());
        set("ip", self.ip().to_string().into());
        set("direction", direction.into());
        set(
            "payload",
            if self.check { "hashed" } else { "plain" }.into(),
        );
        set("streams", self.streams.into());
        let transfer = opened.first().map(Opened::transfer);
        match self.exchange {
            Some(ExchangeSizes(exchange)) => {
                set("request_bytes", exchange.request.into());
                set("response_bytes", exchange.response.into());
            }
            None => {
                let message = transfer.map(|transfer| match self.protocol {
                    Protocol::Tcp => transfer.write_size,
                    Protocol::Udp => transfer.datagram,
                });
                set("message_bytes", json!(message));
            }
        }
        set("duration_seconds", self.duration.0.as_secs_f64().into());
        set("warm_up_seconds", warm_up.as_secs_f64().into());
        set("send_buffer_bytes", in_force.send_buffer.into());
        set("receive_buffer_bytes", in_force.receive_buffer.into());
        if self.protocol == Protocol::Tcp {
            set("mss_bytes", json!(in_force.mss));
            set("receive_work", self.receive_work.into());
            set("congestion_control", json!(in_force.congestion_control));
        } else {
            set("rate", self.rate.to_string().into());
            set("train", json!(in_force.train));
        }
        for (host, name) in [(&testbed.hosts().left, "a"), (&testbed.hosts().right, "b")] {
            let offloads = Offloads::of(host)?;
            set(&format!("tso_{name}"), offloads.tso.into());
            set(&format!("gso_{name}"), offloads.gso.into());
            set(
                &format!("gso_max_segments_{name}"),
                offloads.segments_max.into(),
            );
        }
        Ok(settings)
    }
}
