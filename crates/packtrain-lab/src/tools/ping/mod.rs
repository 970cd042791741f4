//! `ping`: round trips at a rate or one after the other, without coordinated omission: the time of
//! a request counts from when it was due, so a stall makes all requests of its time late, and not
//! only the one that was under way.

mod echo;
mod figures;
mod options;
mod requests;

pub use figures::{Figures, Load, Phase, Settings, Times};
pub use options::{Beside, Ping};

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::cpus::on_cpu;
use crate::error::ToolError;
use crate::ip::IpVersion;
use crate::joined::Joined;
use crate::testbed::{Testbed, TestbedOptions};
use crate::threads::{AtEnd, join, spawn};
use crate::tool::{Control, Measured, Tool, Watch};
use crate::tools::frame;
use crate::traffic::{Amount, Transfer, TransferReport};
use echo::{Echo, answer};
use packtrain::engine::Report;
use packtrain_testkit::VirtualMachine;
use packtrain_testkit::load::DUE_AT;
use requests::{DATA_MIN, Recorded, Replies, Requests, Schedule};

/// How long the load runs before the first request, so that TCP has left slow start.
const WARM_UP: Duration = Duration::from_millis(200);

/// How long after the last request the last reply is there, on a virtual machine.
const LATE: Duration = Duration::from_millis(1);

impl Tool for Ping {
    type Settings = Settings;
    type Figures = Figures;

    fn run(
        &self,
        testbed: &Testbed,
        control: &Control<'_>,
    ) -> Result<Measured<Settings, Figures>, ToolError> {
        let requests = self.requests(testbed.hosts().left.link.mtu)?;
        let mut measured = Measured::<_, Figures> {
            settings: self.settings(),
            ..Measured::default()
        };
        let is_beside = self.load == Beside::Stream;
        if is_beside {
            (control.progress)("without load");
        }
        let run = self.ping(&requests, testbed, control)?;
        measured.figures.phase = run.figures();
        if !is_beside || control.stopped() {
            measured.flags.extend(run.flag);
            return Ok(measured);
        }
        let flag = run.flag.map(|flag| format!("without load, {flag}"));
        measured.flags.extend(flag);
        (control.progress)("beside a TCP stream");
        let (loaded, stream) = self.ping_loaded(&requests, testbed, control)?;
        measured.figures = Figures {
            idle: Some(measured.figures.phase),
            phase: loaded.figures(),
            load: Some(Load {
                load_goodput_gbps: stream.gbps(),
                load_retransmits: stream.retransmits,
            }),
        };
        measured.flags.extend(loaded.flag);
        Ok(measured)
    }
}

impl Ping {
    const fn ip(&self) -> IpVersion {
        IpVersion::of(self.ipv6)
    }

    fn requests(&self, mtu: u32) -> Result<Requests, ToolError> {
        let count = self.count.unwrap_or(u64::MAX);
        ToolError::unless_in(1..=u64::MAX, "--count", count)?;
        Ok(Requests {
            schedule: if self.flood {
                Schedule::Flood
            } else {
                Schedule::Every(1.0 / self.rate.0)
            },
            data: frame::payload("--size", self.size, self.ip(), DATA_MIN, mtu)?,
            count,
            duration: self.duration.0,
            timeout: self.timeout.0,
        })
    }

    fn settings(&self) -> Settings {
        Settings {
            protocol: if self.icmp { "icmp" } else { "udp" },
            ip: self.ip().to_string(),
            frame_bytes: self.size,
            rate_per_second: (!self.flood).then_some(self.rate.0),
            count_requests: self.count,
            duration_seconds: self.duration.0.as_secs_f64(),
            timeout_seconds: self.timeout.0.as_secs_f64(),
            load: match self.load {
                Beside::None => "none",
                Beside::Stream => "stream",
            },
        }
    }

    /// The same on a virtual machine: requests arrive at port A, and port B's other end sends them
    /// back.
    pub(crate) fn in_virtual_time(
        &self,
        machine: &VirtualMachine,
        testbed: &TestbedOptions,
    ) -> Result<(Measured<Settings, Figures>, Report), ToolError> {
        if self.flood || self.icmp || self.ipv6 || self.load == Beside::Stream {
            let line =
                "flood=, icmp=, ipv6= and load= are not for a virtual machine: leave them out";
            return Err(ToolError::Usage(line.to_owned()));
        }
        let frame = frame::udp("size", self.size, testbed.mtu)?;
        let latency = Arc::new(Mutex::new(Recorded::new()?));
        let recorded = Arc::clone(&latency);
        let mut joined = Joined::new(machine, testbed, move |now, bytes| {
            let due = bytes.get(DUE_AT..).and_then(|rest| rest.first_chunk());
            let due = due.map(|due| packtrain::time::Instant::from_nanos(u64::from_be_bytes(*due)));
            let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
            recorded.add(due.map_or(Duration::MAX, |due| now.since(due)));
        })?;
        let mut measured = Measured {
            testbed: std::mem::take(&mut joined.settings),
            settings: self.settings(),
            ..Measured::<_, Figures>::default()
        };
        let (sent, report) = joined.run(Some((self.rate, frame)), self.duration.0, LATE)?;
        let latency = latency.lock().unwrap_or_else(PoisonError::into_inner);
        let (received, seconds) = (latency.count(), report.elapsed.as_secs_f64());
        measured.figures.phase = Phase {
            sent_requests: sent,
            received_replies: received,
            lost_requests: sent - received.min(sent),
            lost_percent: 100.0 * (sent - received.min(sent)) as f64 / sent.max(1) as f64,
            requests_per_second: sent as f64 / self.duration.0.as_secs_f64(),
            latency_us: latency.figures(),
            cpu_forwarder_percent: report.snapshot.cpu_ns as f64 / seconds / 1e7,
            ..Phase::default()
        };
        Ok((measured, report))
    }

    /// Sends the requests, and answers them.
    fn ping(
        &self,
        requests: &Requests,
        testbed: &Testbed,
        control: &Control<'_>,
    ) -> Result<Run, ToolError> {
        let (mut echo, answers) = Echo::open(testbed.hosts(), self.ip(), self.icmp)?;
        let ended = AtomicBool::new(false);
        let cpus = testbed.cpus();
        let (start, used, watch) = (Instant::now(), testbed.used(), Watch::start()?);
        // Closed when no request is due any more: waiting for lost replies is no part of the load.
        let (sending, all_sent) = channel::<()>();
        // Open until the answering thread has ended: an answer to a closed socket is an error.
        let echo = &mut echo;
        thread::scope(|scope| {
            let answers_end = AtEnd(|| ended.store(true, Ordering::Relaxed));
            let answering = answers.as_ref().map(|socket| {
                let ended = || ended.load(Ordering::Relaxed);
                spawn(scope, move || {
                    on_cpu(cpus.receiver, || answer(socket, ended))
                })
            });
            let answering = answering.transpose()?;
            // A thread of its own, since it stays bound.
            let run = move || requests.run(echo, control, || drop(sending));
            let requesting = spawn(scope, move || on_cpu(cpus.sender, run))?;
            while all_sent.recv().is_ok() {}
            let (wall, forwarder) = (start.elapsed(), testbed.used().since(&used));
            let watched = watch.end(forwarder.of_other_process());
            let replies = join(requesting);
            drop(answers_end);
            answering.map_or(Ok(()), join)?;
            Ok(Run {
                replies: replies?,
                forwarder: forwarder.cpu,
                wall,
                flag: watched?.1,
            })
        })
    }

    /// The same beside a TCP stream.
    fn ping_loaded(
        &self,
        requests: &Requests,
        testbed: &Testbed,
        control: &Control<'_>,
    ) -> Result<(Run, TransferReport), ToolError> {
        let hosts = testbed.hosts();
        let mut stream = Transfer::tcp(self.ip(), Amount::Open);
        let time = WARM_UP.saturating_add(requests.time());
        stream.limit = stream.limit.saturating_add(time);
        stream.sender_cpu = testbed.cpus().sender;
        stream.receiver_cpu = testbed.cpus().receiver;
        let opened = stream.open(&hosts.left, &hosts.right)?;
        thread::scope(|scope| {
            let load_ends = AtEnd(|| opened.end());
            let stream = spawn(scope, || opened.run())?;
            thread::sleep(WARM_UP);
            let run = self.ping(requests, testbed, control);
            drop(load_ends);
            let stream = join(stream);
            Ok((run?, stream?))
        })
    }
}

/// One phase.
#[derive(Debug)]
struct Run {
    replies: Replies,
    /// CPU time of the forwarder in `wall`.
    forwarder: Duration,
    /// From before the first request to when none was due any more.
    wall: Duration,
    flag: Option<String>,
}

impl Run {
    fn figures(&self) -> Phase {
        let replies = &self.replies;
        let (sent, received) = (replies.sent, replies.sequences.unique);
        let lost = sent - received;
        let wall = self.wall.as_secs_f64();
        let percent = |cpu: Duration| 100.0 * cpu.as_secs_f64() / wall;
        Phase {
            sent_requests: sent,
            received_replies: received,
            lost_requests: lost,
            lost_percent: 100.0 * lost as f64 / sent.max(1) as f64,
            duplicate_replies: replies.sequences.duplicates,
            late_requests: replies.late,
            requests_per_second: sent as f64 / replies.time.as_secs_f64(),
            latency_us: replies.latency.figures(),
            send_delay_us: replies.delay.figures(),
            cpu_requester_percent: percent(replies.cpu.cpu()),
            cpu_forwarder_percent: percent(self.forwarder),
        }
    }
}
