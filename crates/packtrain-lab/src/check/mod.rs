//! A conformance and torture test for programs that move packets between two TUN or TAP devices.
//!
//! The program runs in a namespace of its own. Its two interfaces are moved into two hosts, where
//! packets are sent into one by a packet socket, with a virtio-net header as the kernel's stack
//! would have it, and collected from the other. Each packet is built from its fields together with
//! the packets that have to arrive, so that a comparison of bytes judges, and no segmenter. The
//! kernels of both hosts judge TCP streams.

mod bench;
mod cause;
mod header;
mod own;
mod packet;
mod packets;
mod probe;
mod report;
mod shrink;
mod speed;
mod verdict;

use packtrain::name::Name;
use std::fs::{self, File};
use std::iter;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use packtrain_capture::{Format, Interface, LinkCode, Writer};

use crate::error::ToolError;
use crate::ip::IpVersion;
use crate::netns;
use crate::tool::Control;
use crate::topology::Side;
use bench::{Bench, Found};
use packet::{Link, Sent};
use packets::{Ground, Step};
use probe::Outcome;
use shrink::NOW_AND_THEN;

pub use bench::Options;
pub use report::{html, junit};
pub use speed::Speed;
pub use verdict::{Report, Row, Verdict};

/// How long copies of packets are waited for at the end of a check. The next checks see those that
/// arrive later, and the end of all does.
const LATE: Duration = Duration::from_millis(50);

/// A check.
#[derive(Debug)]
pub struct Check {
    /// Its name, for `--only`.
    pub name: &'static str,
    /// What a program that passes does.
    pub about: &'static str,
    /// Where such a fault was seen, or the rule.
    pub source: &'static str,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Lists of packets, for each direction and IP version.
    Packets(fn(&Ground) -> Vec<Step>),
    /// The same, of large packets.
    Large(fn(&Ground) -> Vec<Step>),
    /// What it does itself.
    Own(fn(&mut Bench<'_>) -> Result<Found, ToolError>),
}

macro_rules! checks {
    ($($name:literal $kind:ident($run:path), $about:literal, $source:literal;)*) => {
        /// All checks, in the order in which they run.
        pub const CHECKS: &[Check] = &[$(Check {
            name: $name,
            about: $about,
            source: $source,
            kind: Kind::$kind($run),
        }),*];
    };
}

checks! {
    "tcp-sizes" Large(packets::tcp_sizes),
        "a read is cut at its segment size, 88 bytes to what the MTU permits",
        "virtio 1.2 section 5.1.6.2; WireGuard/wireguard-go#151";
    "tcp-segments" Large(packets::tcp_segments),
        "all segments of a read arrive, 1 to 200 of them",
        "WireGuard/wireguard-go#151";
    "tcp-tails" Large(packets::tcp_tails),
        "a last segment that is shorter keeps its length",
        "tailscale/tailscale#13041, #19777";
    "udp-sizes" Packets(packets::udp_sizes),
        "datagrams of mixed sizes leave as they came",
        "RFC 768; benoitc/erlang_quic#217";
    "udp-segments" Large(packets::udp_segments),
        "datagrams that come in one read leave as datagrams",
        "virtio 1.2 section 5.1.6.2; tailscale/tailscale#21335";
    "ttl-tos" Packets(packets::ttl_tos),
        "TTL, DSCP, ECN, DF and flow label of each packet stay",
        "tailscale/wireguard-go#6, ssrlive/rust-tun#45";
    "tcp-options" Packets(packets::tcp_options),
        "TCP options of each segment stay",
        "RFC 9293 section 3.1; ssrlive/rust-tun#45";
    "tcp-flags" Packets(packets::tcp_flags),
        "FIN, PSH, URG, CWR and ECE stay where they are",
        "RFC 3168 section 6.1.2; tcp_gso_segment of Linux";
    "ip-id" Packets(packets::ip_id),
        "IPv4 identifications stay where they have a meaning: those that wrap, jump or repeat",
        "RFC 6864; microsoft/openvmm#3128";
    "zero-checksum" Packets(packets::zero_checksum),
        "UDP without a checksum stays so, and a sum of zero is sent as all ones",
        "RFC 768; tailscale/wireguard-go#70, smoltcp-rs/smoltcp#632";
    "wrong-checksum" Packets(packets::wrong_checksum),
        "a wrong checksum is not made right, and not vouched for",
        "FreeBSD ca1a7e1021a9, FDio/vpp#2438";
    "partial-checksum" Packets(packets::partial_checksum),
        "a checksum that is left to the device is completed, for any protocol",
        "virtio 1.2 section 5.1.6.2; FDio/vpp#2438";
    "short-packets" Packets(packets::short_packets),
        "packets of few bytes or without payload arrive",
        "cloud-hypervisor/cloud-hypervisor#4949";
    "fragments" Packets(packets::fragments),
        "fragments arrive as they are",
        "RFC 791, RFC 8200 section 4.5; tailscale/wireguard-go#6";
    "ipv4-options" Packets(packets::ipv4_options),
        "packets with IPv4 options arrive, with the right checksums",
        "RFC 791; doc.dpdk.org/guides-24.11 (rte_gro)";
    "ipv6-extensions" Packets(packets::ipv6_extensions),
        "packets with IPv6 extension headers arrive, with the right checksums",
        "RFC 8200 section 4";
    "mtu" Packets(packets::mtu),
        "packets as long as the MTU arrive; longer ones arrive whole or not at all",
        "google/gvisor#14011, mullvad/gotatun#145";
    "order" Packets(packets::order),
        "packets of a flow stay in order beside other flows",
        "firezone/firezone#10231";
    "acks" Packets(packets::acks),
        "acknowledgements that are equal or carry no data arrive, each",
        "RFC 5681 section 2; reviews.freebsd.org/D4914";
    "flows" Packets(packets::flows),
        "packets of 10,000 flows arrive",
        "tun-rs/tun-rs#149";
    "protocols" Packets(packets::protocols),
        "other protocols than TCP and UDP arrive",
        "microsoft/openvmm#3413";
    "ethernet" Packets(packets::ethernet),
        "a TAP passes frames that are no IP, and tagged ones",
        "IEEE 802.1Q; ssrlive/rust-tun#45";
    "idle" Packets(packets::idle),
        "a packet that nothing follows arrives",
        "firecracker-microvm/firecracker#293, #2057";
    "burst" Packets(packets::burst),
        "a burst of 400 packets arrives",
        "OISF/suricata#8058";
    "both-ways" Packets(packets::both_ways),
        "packets in both directions at the same time arrive",
        "virtio-win/kvm-guest-drivers-windows#1641";
    "refused-write" Packets(packets::refused_write),
        "what a kernel refuses costs no other packet",
        "tailscale/tailscale#13041, mullvad/gotatun#145";
    "down-up" Own(own::down_up),
        "packets pass again after an interface was down",
        "libkrun/libkrun#555, A3S-Lab/Box#204";
    "tcp-stream" Own(own::tcp_stream),
        "TCP of two kernels carries the bytes that were sent",
        "syswonder/hvisor-tool#102";
    "mss-speed" Own(own::mss_speed),
        "TCP does not collapse at a small MSS",
        "tun-rs 2.8, MSS 300 beside 1348";
}

/// Runs checks on a program.
///
/// # Errors
/// [`ToolError::Usage`] for a name of no check; those of
/// [`Program::start`](crate::exec::Program::start); [`ToolError::Cancelled`]
/// if it was stopped before the first check ended.
pub fn run(options: &Options, control: &Control<'_>) -> Result<Report, ToolError> {
    let chosen = chosen(options)?;
    if options.versions.is_empty() {
        let line = "no version of IP is left to check: this kernel has no other one";
        return Err(ToolError::Usage(line.to_owned()));
    }
    if let Some(folder) = &options.captures {
        let made = fs::create_dir_all(folder);
        made.map_err(|error| ToolError::Usage(format!("{}: {error}", Name::from(folder))))?;
    }
    let mut bench = Bench::start(options, control)?;
    let mut rows = Vec::new();
    for (number, check) in chosen.iter().enumerate() {
        if control.stopped() {
            break;
        }
        (control.progress)(&format!(
            "{} ({} of {})",
            check.name,
            number + 1,
            chosen.len()
        ));
        let row = bench.row(check)?;
        // A check that was stopped in the middle has no verdict.
        if control.stopped() && !row.verdict.is_failure() {
            break;
        }
        rows.push(row);
        bench.blame(&mut rows)?;
    }
    if rows.is_empty() {
        return Err(ToolError::Cancelled);
    }
    // A program that has just failed would be started again first.
    if !bench.is_spoiled && bench.end().is_none() {
        (control.progress)("copies of packets that arrive late");
        bench.listen()?;
        bench.blame(&mut rows)?;
    }
    let losses = bench.take_losses().words();
    for row in rows.iter_mut().filter(|row| row.cause == NOW_AND_THEN) {
        row.cause.clone_from(&losses);
    }
    let (mut speeds, mut speeds_missing) = (Vec::new(), String::new());
    if options.speed && !control.stopped() {
        (control.progress)("goodput, CPU time and round trips");
        bench.program.end();
        match speed::speeds(options, control) {
            Ok(measured) => speeds = measured,
            Err(error) => speeds_missing = error.to_string(),
        }
    }
    Ok(Report {
        speeds,
        speeds_missing,
        is_interrupted: control.stopped(),
        commands: options.exec.commands.clone(),
        devices: match bench.probe.link {
            Link::Tun => "tun",
            Link::Tap => "tap",
        },
        mtu: options.mtu,
        rows,
        memory_bytes: bench.memory_bytes,
    })
}

/// The checks that options name.
fn chosen(options: &Options) -> Result<Vec<&'static Check>, ToolError> {
    for name in options.only.iter().chain(&options.skip) {
        if !CHECKS.iter().any(|check| check.name == name) {
            let names = CHECKS.iter().map(|check| check.name);
            let near = names.max_by(|a, b| {
                let [a, b] = [a, b].map(|one| strsim::jaro_winkler(one, name));
                a.total_cmp(&b)
            });
            return Err(ToolError::Usage(format!(
                "there is no check '{name}': did you mean {}? `packtrain check --list` names all",
                near.unwrap_or_default()
            )));
        }
    }
    let is_in = |list: &[String], check: &Check| list.iter().any(|name| name == check.name);
    let wanted = |check: &&Check| {
        (options.only.is_empty() || is_in(&options.only, check)) && !is_in(&options.skip, check)
    };
    Ok(CHECKS.iter().filter(wanted).collect())
}

/// The IP versions of this kernel.
pub fn versions() -> Vec<IpVersion> {
    netns::ip_versions().to_vec()
}

impl Row {
    /// The row of a check before it ran.
    fn of(check: &Check) -> Self {
        Self {
            check: check.name,
            about: check.about,
            source: check.source,
            verdict: Verdict::Passed,
            what: String::new(),
            cause: String::new(),
            least: Vec::new(),
            shows_again: None,
            tries: 0,
            capture: None,
            figures: String::new(),
            note: String::new(),
            seconds: 0.0,
        }
    }
}

impl Bench<'_> {
    /// Runs a check, and writes a capture of what failed.
    fn row(&mut self, check: &'static Check) -> Result<Row, ToolError> {
        let begin = Instant::now();
        if self.is_spoiled || self.end().is_some() {
            if let Err(ToolError::Failed(line)) = self.restart() {
                return Ok(Row {
                    verdict: Verdict::Ended,
                    what: format!("it does not start again: {line}"),
                    ..Row::of(check)
                });
            }
            self.is_spoiled = false;
        }
        self.probe.check = check.name;
        let found = match check.kind {
            Kind::Packets(make) => self.packets(make),
            Kind::Large(make) => self.large_packets(make),
            Kind::Own(run) => run(self),
        };
        let found = match (found, self.end()) {
            // What a check does with an interface that is not there any more fails.
            (Err(ToolError::Failed(_)), Some(end)) => Found {
                fault: Some(end),
                ..Found::default()
            },
            (Err(ToolError::Failed(line)), None) => Found {
                doubt: Some(line),
                ..Found::default()
            },
            (found, _) => found?,
        };
        let found = match self.late_copy_of(check.name) {
            Some(late) if found.fault.is_none() => Found {
                fault: Some(late.fault),
                least: vec![late.least],
                outcome: late.outcome,
                ..found
            },
            _ => found,
        };
        self.memory_bytes = self.memory_bytes.max(self.program.resident());
        let mut cause = String::new();
        let (verdict, what) = match (found.fault, found.doubt) {
            (Some(fault), _) => {
                cause = fault.cause;
                (fault.wrong.into(), fault.what)
            }
            (None, Some(doubt)) => (Verdict::NotJudged, doubt),
            (None, None) if found.is_empty => (Verdict::NotApplicable, String::new()),
            (None, None) => (Verdict::Passed, String::new()),
        };
        let capture = match &self.options.captures {
            Some(folder) if verdict.is_failure() && !found.outcome.went.is_empty() => {
                Some(self.capture(folder, check.name, &found.outcome)?)
            }
            _ => None,
        };
        self.is_spoiled = verdict.is_failure();
        Ok(Row {
            verdict,
            what,
            cause,
            least: found.least,
            shows_again: found.shows_again,
            tries: found.tries,
            capture,
            figures: found.figures,
            note: found.note,
            seconds: begin.elapsed().as_secs_f64(),
            ..Row::of(check)
        })
    }

    /// Makes each copy that arrived late a failure of the check that sent the packet.
    fn blame(&mut self, rows: &mut [Row]) -> Result<(), ToolError> {
        for row in rows {
            let late = self.late_copy_of(row.check);
            let Some(late) = late.filter(|_| !row.verdict.is_failure()) else {
                continue;
            };
            if let Some(folder) = &self.options.captures {
                row.capture = Some(self.capture(folder, row.check, &late.outcome)?);
            }
            row.verdict = late.fault.wrong.into();
            (row.what, row.cause) = (late.fault.what, late.fault.cause);
            row.least = vec![late.least];
        }
        Ok(())
    }

    /// Where packets of a direction and an IP version are sent.
    fn grounds(&self) -> Vec<Ground> {
        let mut grounds = Vec::new();
        for ip in &self.options.versions {
            for from in [Side::Left, Side::Right] {
                grounds.push(Ground {
                    from,
                    ip: *ip,
                    link: self.probe.link,
                    mtu: self.options.mtu as usize,
                    routes: self.options.routes,
                });
            }
        }
        grounds
    }

    /// Notes if no large packet reached the program: the kernel then cuts them before, for a device
    /// without TSO or USO.
    fn large_packets(&mut self, make: fn(&Ground) -> Vec<Step>) -> Result<Found, ToolError> {
        let mut cut = Vec::new();
        let mut all = Found {
            is_empty: true,
            ..Found::default()
        };
        for ground in self.grounds() {
            let packets = |list: &[Sent]| list.iter().map(Sent::packets).sum::<usize>();
            let stops = self.options.stops;
            let steps = make(&ground).into_iter();
            let wire = steps.flat_map(|step| with_held(step, stops));
            let wire: usize = wire.map(|step| packets(&step.list)).sum();
            let before = self.hosts.host(ground.from).stats()?;
            let found = self.packets_of(make, &[ground])?;
            all.is_empty &= found.is_empty;
            if found.fault.is_some() || found.doubt.is_some() || self.control.stopped() {
                return Ok(found);
            }
            // What the program reads is transmitted, in the kernel's words.
            let read = self.hosts.host(ground.from).stats()?.since(&before);
            if read.tx_packets >= wire as u64 {
                cut.push((ground.from, ground.ip));
            }
        }
        all.note = cut_note(&cut, &self.options.versions);
        Ok(all)
    }

    fn packets(&mut self, make: fn(&Ground) -> Vec<Step>) -> Result<Found, ToolError> {
        self.packets_of(make, &self.grounds())
    }

    fn packets_of(
        &mut self,
        make: fn(&Ground) -> Vec<Step>,
        grounds: &[Ground],
    ) -> Result<Found, ToolError> {
        let mut found = Found {
            is_empty: true,
            ..Found::default()
        };
        for ground in grounds {
            let stops = self.options.stops;
            let steps = make(ground).into_iter();
            for step in steps.flat_map(|step| with_held(step, stops)) {
                if self.control.stopped() {
                    return Ok(found);
                }
                found.is_empty = false;
                let outcome = self.step(&step, ground, self.options.patience)?;
                if outcome.fault.is_some() {
                    return self.least(step, ground, outcome);
                }
                found.doubt = found.doubt.or(outcome.doubt);
                if self.has_late_copy() {
                    return Ok(found);
                }
            }
        }
        self.probe.listen(LATE)?;
        Ok(found)
    }

    fn capture(&self, folder: &Path, name: &str, of: &Outcome) -> Result<PathBuf, ToolError> {
        let path = folder.join(format!("{name}.pcapng"));
        let failed = |error: &dyn std::fmt::Display| {
            ToolError::Failed(format!("{}: {error}", Name::from(&path)))
        };
        let link = match self.probe.link {
            Link::Tun => LinkCode::RAW,
            Link::Tap => LinkCode::ETHERNET,
        };
        let names = ["sent in A", "sent in B", "arrived in A", "arrived in B"];
        let interfaces = names.map(|name| Interface {
            link,
            snaplen: 0,
            name: Some(name),
        });
        let file = File::create(&path).map_err(|error| failed(&error))?;
        let writer = Writer::new(file, Format::PcapNg, &interfaces);
        let mut writer = writer.map_err(|error| failed(&error))?;
        let mut add = |interface: u32, after: Duration, bytes: &[u8]| {
            let time = after.as_nanos() as u64;
            writer.write(interface, time, bytes.len() as u32, [bytes])
        };
        for (from, bytes) in &of.went {
            add(from.of([0, 1]), Duration::ZERO, bytes).map_err(|error| failed(&error))?;
        }
        for arrival in &of.arrived {
            let interface = arrival.at.of([2, 3]);
            add(interface, arrival.after, &arrival.bytes).map_err(|error| failed(&error))?;
        }
        writer.finish().map_err(|error| failed(&error))?;
        Ok(path)
    }
}

/// The note of a check whose large packets were cut before the program in some directions, with
/// some of the versions of IP; empty if in none.
fn cut_note(cut: &[(Side, IpVersion)], versions: &[IpVersion]) -> String {
    if cut.is_empty() {
        return String::new();
    }
    let mut note = "no large packet reached it".to_owned();
    if cut.len() == 2 * versions.len() {
        return note;
    }
    let of = |from: Side| {
        let direction = from.of(["A to B", "B to A"]);
        let all: Vec<_> = cut.iter().filter(|(side, _)| *side == from).collect();
        let is_whole = all.len() == versions.len();
        let named = move |(_, ip): &(Side, IpVersion)| match ip {
            _ if is_whole => direction.to_owned(),
            IpVersion::V4 => format!("{direction} over IPv4"),
            IpVersion::V6 => format!("{direction} over IPv6"),
        };
        all.into_iter()
            .take(if is_whole { 1 } else { 2 })
            .map(named)
    };
    let ways = [Side::Left, Side::Right].into_iter().flat_map(of);
    note += &format!(" from {}", ways.collect::<Vec<_>>().join(", "));
    note
}

/// The most packets that a program which is stopped is sent. All of them fit the receive buffer of
/// a UDP socket, as the two ends of a VPN have between them.
const HELD_MAX: usize = 64;

/// A step as it is, and once more in one batch.
fn with_held(step: Step, stops: bool) -> impl Iterator<Item = Step> {
    let can_be = (2..=HELD_MAX).contains(&step.list.len()) && step.mtu.is_none();
    let held = (can_be && stops).then(|| Step {
        is_held: true,
        ..step.clone()
    });
    iter::once(step).chain(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use IpVersion::{V4, V6};
    use Side::{Left, Right};

    #[test]
    fn a_note_names_where_large_packets_were_cut() {
        let note = |cut: &[(Side, IpVersion)]| cut_note(cut, &[V4, V6]);
        assert_eq!(note(&[]), "");
        let all = [(Left, V4), (Right, V4), (Left, V6), (Right, V6)];
        assert_eq!(note(&all), "no large packet reached it");
        let b_to_a = "no large packet reached it from B to A";
        assert_eq!(note(&[(Right, V4), (Right, V6)]), b_to_a);
        assert_eq!(cut_note(&[(Right, V6)], &[V6]), b_to_a);
        let mixed = "no large packet reached it from A to B, B to A over IPv6";
        assert_eq!(note(&[(Left, V4), (Left, V6), (Right, V6)]), mixed);
    }
}
