//! Capture files keep the promises of the driver contract.

use packtrain::driver::Driver;
use packtrain::port::pcap::{Pcap, PcapRead, PcapWrite};
use packtrain::port::{self, AnyPort};
use packtrain_capture::{Format, Interface, LinkCode, Reader, Writer};
use packtrain_offload::offload::LinkType;
use packtrain_testkit::conformance::{Injects, Observes, Outside, Rig, Skip, Traits};
use packtrain_testkit::driver_conformance;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file that is removed when it goes out of scope.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("packtrain-conformance-{}-{number}.pcap", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

/// A capture that is read, and its writer, which runs first.
struct Reading<D> {
    driver: D,
    writer: Writer<File>,
    time_ns: u64,
    _file: Scratch,
}

fn format(seed: u64) -> Format {
    match seed % 2 {
        0 => Format::Pcap { nanosecond: true },
        _ => Format::PcapNg,
    }
}

fn reading<D>(seed: u64, open: impl FnOnce(&Path) -> D) -> Result<Reading<D>, Skip> {
    let file = Scratch::new();
    let interface = Interface {
        link: LinkCode::ETHERNET,
        snaplen: 0,
        name: None,
    };
    let output = File::create(&file.0).unwrap();
    let mut writer = Writer::new(output, format(seed), &[interface]).unwrap();
    // The reader asks for the link type of the first packet.
    writer.flush().unwrap();
    let driver = open(&file.0);
    Ok(Reading {
        driver,
        writer,
        time_ns: 0,
        _file: file,
    })
}

impl<D> Reading<D> {
    fn record(&mut self, original_bytes: usize, bytes: &[u8]) {
        self.time_ns += 1000;
        self.writer
            .write(0, self.time_ns, original_bytes as u32, [bytes])
            .unwrap();
        self.writer.flush().unwrap();
    }
}

impl<D: Driver> Rig for Reading<D> {
    type Driver = D;

    fn traits(&self) -> Traits {
        Traits {
            injects: Injects::BeforeAttach,
            injects_bad: true,
            window: 1,
            ..Traits::default()
        }
    }

    fn driver(&mut self) -> &mut D {
        &mut self.driver
    }

    fn inject(&mut self, packet: &Outside) -> bool {
        self.record(packet.bytes.len(), &packet.bytes);
        true
    }

    fn inject_bad(&mut self) -> bool {
        // Cut by the snapshot length of the capturing program.
        self.record(1500, &[0; 60]);
        true
    }
}

/// A capture that is written, and its reader, which runs afterwards.
struct Writing<D> {
    driver: D,
    seen: VecDeque<Outside>,
    file: Scratch,
}

fn writing<D>(open: impl FnOnce(&Path) -> D) -> Result<Writing<D>, Skip> {
    let file = Scratch::new();
    let driver = open(&file.0);
    let seen = VecDeque::new();
    Ok(Writing { driver, seen, file })
}

impl<D: Driver> Rig for Writing<D> {
    type Driver = D;

    fn traits(&self) -> Traits {
        Traits {
            observes: Observes::AfterDetach,
            window: 64,
            ..Traits::default()
        }
    }

    fn driver(&mut self) -> &mut D {
        &mut self.driver
    }

    fn observe(&mut self) -> Option<Outside> {
        self.seen.pop_front()
    }

    fn detached(&mut self) {
        let mut reader = Reader::new(File::open(&self.file.0).unwrap()).unwrap();
        while let Some(record) = reader.next_record().unwrap() {
            self.seen.push_back(Outside::complete(record.data.to_vec()));
        }
    }
}

fn reads_file(seed: u64) -> Result<Reading<Pcap>, Skip> {
    reading(seed, |path| {
        Pcap::open_read(path, PcapRead::default()).unwrap()
    })
}

fn writes_file(seed: u64) -> Result<Writing<Pcap>, Skip> {
    let how = PcapWrite {
        format: format(seed),
        link: LinkType::Ethernet,
        snaplen: 0,
    };
    writing(|path| Pcap::open_write(path, how).unwrap())
}

/// As a program opens it: from a spec, in the closed set of ports.
fn from_spec(path: &Path, options: &str) -> AnyPort {
    let text = format!("pcap:{}{options}", path.display());
    port::open(&text).unwrap().driver
}

fn reads_spec(seed: u64) -> Result<Reading<AnyPort>, Skip> {
    reading(seed, |path| from_spec(path, ""))
}

fn writes_spec(_seed: u64) -> Result<Writing<AnyPort>, Skip> {
    writing(|path| from_spec(path, ",write"))
}

driver_conformance!(reads, reads_file);
driver_conformance!(writes, writes_file);
driver_conformance!(any_reads, reads_spec);
driver_conformance!(any_writes, writes_spec);
