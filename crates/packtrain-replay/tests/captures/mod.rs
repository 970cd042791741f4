//! Captures for tests.

#![allow(dead_code, reason = "each test file uses some of it")]

use etherparse::{IpHeaders, Ipv4Extensions, Ipv4Header, PacketBuilder};
use packtrain_capture::replay::Report;
use packtrain_capture::{Format, Interface, LinkCode, Writer};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("packtrain-replay-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("the folder");
    }
}

/// A packet: when, on which interface, and its bytes.
pub type Packet = (u64, u32, Vec<u8>);

/// A packet of a flow, over IPv4 and Ethernet: TCP with this sequence number, or UDP without one.
pub fn packet(flow: u8, seq: Option<u32>, payload: &[u8]) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let header = Ipv4Header {
        dont_fragment: true,
        time_to_live: 64,
        source: [198, 18, 0, flow],
        destination: [198, 18, 1, 1],
        ..Ipv4Header::default()
    };
    let ip = link.ip(IpHeaders::Ipv4(header, Ipv4Extensions::default()));
    let (mut data, port) = (Vec::new(), u16::from(flow));
    let written = match seq {
        Some(seq) => {
            let tcp = ip.tcp(5000 + port, 443, seq, 500).ack(1);
            tcp.write(&mut data, payload)
        }
        None => ip.udp(443, 4000 + port).write(&mut data, payload),
    };
    written.expect("a packet");
    data
}

/// Bursts of TCP and UDP of many flows, with pauses of a millisecond after each hundred packets.
pub fn traffic(packets: u32) -> Vec<Packet> {
    let mut seqs = [1_u32; 40];
    let mut at = 1_700_000_000_000_000_000;
    let packets = (0..packets).map(|index| {
        at += if index % 100 == 99 { 1_000_000 } else { 1_500 };
        // Eight in a row.
        let flow = ((index / 8).wrapping_mul(2_654_435_761) >> 16) % 40;
        let seq = &mut seqs[flow as usize];
        let payload = vec![index as u8; 200 + (flow as usize % 3) * 100];
        let tcp = (!flow.is_multiple_of(5)).then_some(*seq);
        *seq += payload.len() as u32;
        let data = packet(flow as u8, tcp, &payload);
        (at, flow % 2, data)
    });
    packets.collect()
}

/// A capture of interfaces with these names.
pub fn writer(format: Format, link: LinkCode, names: &[&str]) -> Writer<Vec<u8>> {
    let named = |name| Interface {
        link,
        snaplen: 0,
        name: Some(name),
    };
    let interfaces: Vec<_> = names.iter().copied().map(named).collect();
    Writer::new(Vec::new(), format, &interfaces).expect("a writer")
}

/// Writes packets of two interfaces.
pub fn write(path: &Path, format: Format, packets: &[Packet]) {
    write_cut(path, format, &["left", "right"], packets, usize::MAX);
}

/// Writes packets, of each one this many bytes at most. A classic pcap has the first interface.
pub fn write_cut(
    path: impl AsRef<Path>,
    format: Format,
    names: &[&str],
    packets: &[Packet],
    bytes: usize,
) {
    let interfaces = match format {
        Format::PcapNg => names.len(),
        Format::Pcap { .. } => 1,
    };
    let mut writer = writer(format, LinkCode::ETHERNET, &names[..interfaces]);
    for (at, interface, data) in packets {
        let interface = interface % interfaces as u32;
        let start = &data[..data.len().min(bytes)];
        let written = writer.write(interface, *at, data.len() as u32, [start]);
        written.expect("a record");
    }
    std::fs::write(path, writer.finish().expect("the end")).expect("a file");
}

/// The sum of reports.
pub fn merged(reports: impl IntoIterator<Item = Report>) -> Report {
    let mut reports = reports.into_iter();
    let first = reports.next().expect("a part");
    reports.fold(first, |mut sum, report| {
        sum.merge(&report);
        sum
    })
}
