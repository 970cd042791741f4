//! `packtrain replay` beside `tcpdump -r FILE -w /dev/null`, in pairs: what both do is reading each
//! packet of a capture that is in memory. CPU time is compared, so that neither gains by a second
//! processor. tcpdump copies packets; packtrain parses them, verifies checksums, finds flows and
//! decides on merging.
//!
//! `cargo bench -p packtrain-cli --bench replay -- --help` lists the options.

use clap::Parser;
use etherparse::TcpOptionElement::{Noop, Timestamp};
use etherparse::{IpHeaders, Ipv4Header, PacketBuilder};
use packtrain_capture::{Format, Interface, LinkCode, Writer};
use packtrain_lab::cpu::Usage;
use packtrain_measure::claim::{compared, save};
use packtrain_measure::options::{self, Common};
use packtrain_measure::report::{Conditions, rounded};
use packtrain_measure::{Claim, Expected, statistics};
use packtrain_offload::random::Random;
use serde::Serialize;
use serde_json::json;
use std::error::Error;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// The program that is measured: built with the bench's profile.
const PACKTRAIN: &str = env!("CARGO_BIN_EXE_packtrain");

#[derive(clap::Parser)]
struct Arguments {
    /// Runs of each program on each capture, 2 to 10000
    #[arg(long, value_name = "N", value_parser = options::rounds, default_value_t = 15)]
    #[arg(default_value_if("quick", "true", options::ROUNDS_QUICK))]
    rounds: usize,
    /// Megabytes of the capture, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 500)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    #[arg(default_value_if("quick", "true", "50"))]
    megabytes: u64,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    options::status("replay", run(&arguments).map(|()| true))
}

/// One run of both programs.
#[derive(Serialize)]
struct Row {
    capture: &'static str,
    round: usize,
    packtrain_cpu_s: f64,
    tcpdump_cpu_s: f64,
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("packtrain-bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let measured = in_folder(arguments, &folder);
    fs::remove_dir_all(&folder)?;
    measured
}

fn in_folder(arguments: &Arguments, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut conditions = Conditions::of_host();
    conditions.add(
        "samples",
        format!(
            "{} rounds, captures of {} MB in the page cache: 2,000 flows of TCP and UDP, 1,448 B",
            arguments.rounds, arguments.megabytes
        ),
    );
    conditions.print();
    let (mut rows, mut medians, mut claims) = (Vec::new(), Vec::new(), Vec::new());
    for (capture, snaplen) in [("whole packets", u32::MAX), ("headers of 96 B", 96)] {
        let path = folder.join("capture.pcap");
        write(&path, arguments.megabytes * 1_000_000, snaplen as usize)?;
        let path = path.display().to_string();
        let tcpdump = ["tcpdump", "-r", &path, "-w", "/dev/null"];
        let packtrain = [PACKTRAIN, "replay", "--json", &path];
        // Both once, so that neither is the first to read the file.
        cpu_s(&tcpdump)?;
        cpu_s(&packtrain)?;
        for round in 0..arguments.rounds {
            let first = (round % 2 == 0).then(|| cpu_s(&packtrain)).transpose()?;
            let tcpdump_cpu_s = cpu_s(&tcpdump)?;
            rows.push(Row {
                capture,
                round,
                packtrain_cpu_s: first.map_or_else(|| cpu_s(&packtrain), Ok)?,
                tcpdump_cpu_s,
            });
        }
        let of = rows.iter().filter(|row| row.capture == capture);
        let ratios: Vec<f64> = of
            .clone()
            .map(|row| row.tcpdump_cpu_s / row.packtrain_cpu_s)
            .collect();
        let median = |figure: fn(&Row) -> f64| {
            statistics::median(&of.clone().map(figure).collect::<Vec<_>>())
        };
        let ours = median(|row| row.packtrain_cpu_s);
        let theirs = median(|row| row.tcpdump_cpu_s);
        println!("{capture}: packtrain {ours:.3} s, tcpdump {theirs:.3} s of CPU time");
        medians.push(json!({
            "capture": capture,
            "packtrain_cpu_s": rounded(Some(ours)),
            "tcpdump_cpu_s": rounded(Some(theirs)),
        }));
        claims.push(Claim::of_ratio(
            capture,
            "captures for each CPU second beside tcpdump".to_owned(),
            "tcpdump -r FILE -w /dev/null",
            statistics::estimate(&ratios),
            Expected::AtLeast(1.0),
        ));
    }
    for claim in &claims {
        println!("{claim}");
    }
    if let Some(file) = &arguments.common.json {
        let rounds = arguments.rounds;
        let document = compared("replay", &conditions, rounds, &rows, medians, &claims);
        save(file, &document)?;
    }
    Ok(())
}

/// Runs a program, and returns its CPU time in seconds.
fn cpu_s(command: &[&str]) -> Result<f64, Box<dyn Error>> {
    let before = Usage::of_children();
    let (program, arguments) = command.split_first().ok_or("no program")?;
    let output = Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .output()
        .map_err(|error| format!("start {program}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program}: {}: {said}", output.status).into());
    }
    Ok(Usage::of_children().since(&before).cpu().as_secs_f64())
}

/// Writes a capture of `bytes` bytes of packets, of which it has `snaplen`: trains of 1 to 12
/// packets of 2,000 flows, a quarter of them pure ACKs, a seventh UDP.
fn write(path: &Path, bytes: u64, snaplen: usize) -> Result<(), Box<dyn Error>> {
    const FLOWS: usize = 2000;
    const PAYLOAD: usize = 1448;
    let interface = Interface {
        link: LinkCode::ETHERNET,
        snaplen: 0,
        name: None,
    };
    let file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let format = Format::Pcap { nanosecond: true };
    let mut writer = Writer::new(file, format, &[interface])?;
    let mut random = Random::new(1);
    let mut next = |below: u64| random.next() % below;
    let (mut seqs, mut ids) = ([1_u32; FLOWS], [0_u16; FLOWS]);
    let (mut at, mut written) = (1_700_000_000_000_000_000, 0);
    while written < bytes {
        let flow = next(FLOWS as u64) as usize;
        let is_udp = flow.is_multiple_of(7);
        let payload = if flow % 4 == 1 && !is_udp { 0 } else { PAYLOAD };
        for _ in 0..1 + next(12) {
            at += 300 + next(1200);
            ids[flow] = ids[flow].wrapping_add(1);
            let packet = packet(flow as u16, is_udp, seqs[flow], ids[flow], payload);
            seqs[flow] = seqs[flow].wrapping_add(payload as u32);
            let kept = packet.len().min(snaplen);
            writer.write(0, at, packet.len() as u32, [&packet[..kept]])?;
            written += kept as u64 + 16;
        }
    }
    Ok(writer.finish().map(drop)?)
}

fn packet(flow: u16, is_udp: bool, seq: u32, id: u16, payload: usize) -> Vec<u8> {
    let [high, low] = flow.to_be_bytes();
    let header = Ipv4Header {
        identification: id,
        dont_fragment: true,
        time_to_live: 64,
        source: [198, 18, high, low],
        destination: [198, 19, 0, 1],
        ..Ipv4Header::default()
    };
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
    let ip = link.ip(IpHeaders::Ipv4(header, Default::default()));
    let (mut packet, payload, port) = (Vec::new(), vec![0x5a; payload], 5000 + flow);
    let written = if is_udp {
        ip.udp(port, 443).write(&mut packet, &payload)
    } else {
        let options = [Noop, Noop, Timestamp(9, 8)];
        let tcp = ip.tcp(port, 443, seq, 256).ack(7).options(&options);
        tcp.expect("few options").write(&mut packet, &payload)
    };
    written.expect("a packet");
    packet
}
