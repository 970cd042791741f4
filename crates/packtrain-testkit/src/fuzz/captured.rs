//! A capture of what the links of a world carry.

use packtrain::port::AnyPort;
use packtrain::port::wrap::{Capture, CaptureOptions, CaptureStatus};
use packtrain::runtime::Runtime;
use std::io::{self, Write};
use std::sync::Arc;

/// All ports of a world that has a capture write to one output.
#[derive(Default)]
pub(super) enum Captured {
    /// There is none.
    #[default]
    Off,
    /// No port has begun.
    New(Box<dyn Write + Send>),
    On(CaptureStatus),
}

impl Captured {
    pub(super) fn to(output: Box<dyn Write + Send>) -> Self {
        Self::New(output)
    }

    /// The port, captured with the time of `runtime` if there is a capture.
    pub(super) fn capture(
        &mut self,
        port: AnyPort,
        runtime: Arc<dyn Runtime>,
    ) -> io::Result<AnyPort> {
        let capture = match std::mem::take(self) {
            Self::Off => return Ok(port),
            Self::New(output) => {
                Capture::new(port, output, CaptureOptions::default())?.with_clock(runtime)
            }
            Self::On(status) => Capture::beside(port, &status)?,
        };
        *self = Self::On(capture.status());
        Ok(AnyPort::Capture(Box::new(capture)))
    }

    /// After the world: the records that were written.
    pub(super) fn finish(self) -> io::Result<u64> {
        let Self::On(status) = self else {
            return Err(io::Error::other("the output accepts nothing"));
        };
        let whole = status.flush() && status.missed() == 0;
        match status.note() {
            Some(note) => Err(io::Error::other(note)),
            None if whole => Ok(status.records()),
            None => Err(io::Error::other("the output does not accept all records")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::decisions::bytes_of;
    use crate::fuzz::memory::Memory;
    use crate::fuzz::run::{Outcome, run, run_captured};
    use crate::fuzz::scene::Scene;
    use crate::fuzz::traffic::{Flow, Kind};
    use packtrain::packet::{Arena, ArenaConfig};
    use pcap_parser::{Block, OptionCode, PcapBlockOwned, PcapError, create_reader};
    use std::collections::BTreeMap;
    use std::sync::{Mutex, PoisonError};

    /// An output that outlives its writer.
    #[derive(Clone, Default)]
    struct File(Arc<Mutex<Vec<u8>>>);

    impl Write for File {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            file.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A world and its capture.
    fn captured(scene: &Scene) -> (Outcome, u64, Vec<u8>) {
        let file = File::default();
        let mut links = Captured::to(Box::new(file.clone()));
        let outcome = run_captured(scene, &mut Memory::default(), &mut links);
        let records = links.finish().unwrap();
        let bytes = file.0.lock().unwrap().clone();
        (outcome, records, bytes)
    }

    /// Time and bytes of the records of each interface that has some, by an independent reader.
    fn records(file: &[u8]) -> BTreeMap<String, Vec<(u64, Vec<u8>)>> {
        let mut reader = create_reader(1 << 20, file).expect("a capture");
        let (mut names, mut all) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
        loop {
            match reader.next() {
                Ok((used, block)) => {
                    match block {
                        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                            let mut options = interface.options.iter();
                            let name = options.find(|option| option.code == OptionCode(2));
                            let name = name.expect("it has a name");
                            let name = &name.value[..usize::from(name.len)];
                            names.push(String::from_utf8(name.to_vec()).unwrap());
                        }
                        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                            let at = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                            let bytes = packet.data[..packet.caplen as usize].to_vec();
                            let name = names[packet.if_id as usize].clone();
                            all.entry(name).or_default().push((at, bytes));
                        }
                        _ => {}
                    }
                    reader.consume(used);
                }
                Err(PcapError::Eof) => return all,
                Err(PcapError::Incomplete(_)) => reader.refill().expect("more"),
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    /// Both ends of the link have each packet with the bytes that follow from its number, and with
    /// the time of the world.
    #[test]
    fn a_capture_has_what_the_links_carried() {
        let mut scene = Scene::draw(&[]);
        let flow = Flow {
            kind: Kind::Udp4,
            unit: 1000,
            pieces: 2,
            partial: true,
            burst: 8,
            bursts: 20,
            ..scene.flows[0]
        };
        scene.flows = vec![scene.flows[0], flow];
        let (outcome, count, file) = captured(&scene);
        assert_eq!(outcome.failure, None);
        let arena = Arena::new(ArenaConfig::small()).unwrap();
        let mut expected = Vec::new();
        for (number, &flow) in scene.flows.iter().enumerate() {
            let plain = Flow {
                pieces: 1,
                partial: false,
                ..flow
            };
            // One more of each flow is sent after the load.
            for unit in 0..flow.burst as u32 * flow.bursts + 1 {
                let packet = plain.packet(number, unit, &arena, &mut Vec::new()).unwrap();
                expected.push(packet.first().to_vec());
            }
        }
        assert_eq!(outcome.wire_packets, expected.len() as u64);
        expected.sort();
        let ends = records(&file);
        let names: Vec<_> = ends.keys().collect();
        assert_eq!(names, ["link1-end received", "link1-start transmitted"]);
        assert_eq!(count, 2 * outcome.wire_packets);
        for (name, records) in &ends {
            let times: Vec<_> = records.iter().map(|(at, _)| *at).collect();
            assert!(times.is_sorted(), "{name}: {times:?}");
            assert!(times[0] >= 1_000_000, "{name}: {times:?}");
            assert!(times.last().copied() <= Some(outcome.time.as_nanos() as u64));
            let mut bytes: Vec<_> = records.iter().map(|(_, bytes)| bytes.clone()).collect();
            bytes.sort();
            assert_eq!(bytes, expected, "{name}");
        }
    }

    #[test]
    fn a_capture_is_the_same_twice_and_changes_nothing() {
        for number in 0..20 {
            let bytes = bytes_of(5, number);
            let scene = Scene::draw(&bytes);
            let plain = run(&scene, &mut Memory::default());
            let [first, second] = [(); 2].map(|()| captured(&scene));
            assert_eq!(first.0.failure, None, "world {number}: {scene:?}");
            assert_eq!(first.0.digest, plain.digest, "world {number}");
            assert!(first.2 == second.2, "world {number}");
        }
    }

    #[test]
    fn an_output_that_is_full_is_an_error() {
        /// It takes the beginning.
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let taken = bytes.len().min(self.0);
                self.0 -= taken;
                match taken {
                    0 => Err(io::ErrorKind::StorageFull.into()),
                    _ => Ok(taken),
                }
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for room in [0, 200, 600] {
            let mut links = Captured::to(Box::new(Full(room)));
            run_captured(&Scene::draw(&[]), &mut Memory::default(), &mut links);
            links.finish().unwrap_err();
        }
    }
}
