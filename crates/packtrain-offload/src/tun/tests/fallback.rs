//! Devices that refuse large writes, and what a `Fallback` does about them.

use super::*;
use crate::virtio_net::GSO_ECN;
use std::boxed::Box;
use std::io::{Error, ErrorKind};
use std::string::ToString;

const EIO: i32 = 5;
const EINVAL: i32 = 22;
const EBADFD: i32 = 77;

/// A device that answers by what a write is, and keeps the packets of what it accepted.
struct Device<'f> {
    /// The error for a large write (its `gso_type`) or one packet (0).
    refuses: Box<dyn FnMut(u8) -> Option<i32> + 'f>,
    accepted: Vec<Vec<u8>>,
    calls: usize,
}

impl<'f> Device<'f> {
    fn new(refuses: impl FnMut(u8) -> Option<i32> + 'f) -> Self {
        Self {
            refuses: Box::new(refuses),
            accepted: Vec::new(),
            calls: 0,
        }
    }

    fn write(&mut self, write: &[u8]) -> std::io::Result<usize> {
        self.calls += 1;
        if let Some(error) = (self.refuses)(write[1] & !GSO_ECN) {
            return Err(Error::from_raw_os_error(error));
        }
        let tun = TunOffload::tun();
        accepted(&tun, write);
        self.accepted.extend(wire(&tun, write));
        Ok(write.len())
    }
}

/// One batch by `write_batch`. Returns whether the device failed.
fn copy(
    fallback: &mut Fallback,
    device: &mut Device<'_>,
    batch: &[Vec<u8>],
) -> std::io::Result<()> {
    let mut buffers = vec![vec![STALE; WRITE_BYTES_MAX]; 9];
    let tun = fallback.offload();
    let written = tun.write_batch(&mut buffers, batch, |write| {
        fallback.write(write, |bytes| device.write(bytes))
    });
    written.map(|written| assert_eq!(written.buffer_too_short, 0))
}

/// One batch by `gather_batch`, as a task does it.
fn gather(
    fallback: &mut Fallback,
    device: &mut Device<'_>,
    batch: &[Vec<u8>],
) -> std::io::Result<()> {
    let (mut pieces, mut memory) = (Pieces::new(), behind(0, batch));
    let tun = fallback.offload();
    for write in tun.gather_batch(&mut pieces, &mut memory, 0) {
        let slices: Vec<_> = write.slices().collect();
        let result = device.write(&slices.concat());
        if fallback.check(slices[0], result)? == Outcome::Again {
            let mut again = vec![STALE; WRITE_BYTES_MAX];
            let bytes = write.copy_to(&mut again)?;
            let mut packets = tun.packets(&mut again[..bytes])?;
            while let Some(packet) = packets.next_write() {
                let result = device.write(packet);
                let _counted = fallback.check(packet, result)?;
            }
        }
    }
    Ok(())
}

/// A train of TCP and one of UDP.
fn batch() -> Vec<Vec<u8>> {
    let tcp = train(&Spec::tcp4(0), &[300, 300, 300, 20]);
    [tcp, train(&Spec::udp6(0), &[200; 5])].concat()
}

fn sorted(mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    packets.sort();
    packets
}

#[test]
fn what_is_refused_once_with_einval_is_off_and_nothing_is_lost() {
    for (large, what, off) in [
        (GSO_TCPV4, LargeWrite::TcpToDevice, "merging of TCP"),
        (GSO_UDP_L4, LargeWrite::UdpToDevice, "merging of UDP"),
    ] {
        for form in [copy, gather] {
            let mut fallback = Fallback::new(TunOffload::tun());
            let mut device = Device::new(|kind| (kind == large).then_some(EINVAL));
            let batch = batch();
            form(&mut fallback, &mut device, &batch).expect("the device is there");
            assert_eq!(sorted(device.accepted), sorted(batch.clone()));
            let tun = fallback.offload();
            let is_tcp = what == LargeWrite::TcpToDevice;
            assert_eq!((tun.merge_tcp, tun.merge_udp), (!is_tcp, is_tcp));
            assert_eq!(
                tun,
                TunOffload {
                    merge_tcp: !is_tcp,
                    merge_udp: is_tcp,
                    ..TunOffload::tun()
                }
            );
            let refused = fallback.notice().expect("what is off");
            assert_eq!((refused.what, refused.error), (what, EINVAL));
            let text = refused.to_string();
            assert!(
                text.contains(off) && text.contains("EINVAL") && !text.contains('\n'),
                "{text}"
            );
            assert_eq!(fallback.notice(), None, "said once");
            assert_eq!(
                fallback.refused(what),
                Some(refused),
                "and can be asked for"
            );
            assert_eq!((fallback.again(what), fallback.dropped()), (1, 0));
            // The next batch is not tried.
            let mut device = Device::new(|kind| (kind == large).then(|| panic!("it is off")));
            form(&mut fallback, &mut device, &batch).expect("the device is there");
            assert_eq!(device.accepted.len(), batch.len());
            assert_eq!(device.calls, if is_tcp { 5 } else { 6 });
        }
    }
}

/// Within a batch that was merged before.
#[test]
fn what_is_off_is_not_tried_again_by_write() {
    let trains = [Spec::tcp4(0), Spec::tcp6(0)].map(|spec| train(&spec, &[100; 3]));
    let batch = trains.concat();
    let mut fallback = Fallback::new(TunOffload::tun());
    let mut device = Device::new(|kind| (kind != 0).then_some(EINVAL));
    copy(&mut fallback, &mut device, &batch).expect("the device is there");
    assert_eq!(sorted(device.accepted), sorted(batch));
    assert_eq!(device.calls, 1 + 2 * 3);
    assert_eq!(fallback.again(LargeWrite::TcpToDevice), 2);
}

#[test]
fn eio_turns_off_after_two_large_writes_in_a_row_whose_packets_are_accepted() {
    for form in [copy, gather] {
        let mut fallback = Fallback::new(TunOffload::tun());
        let batch = train(&Spec::tcp6(0), &[100; 4]);
        let refused = Some(EIO);
        // A large one is accepted in between.
        let steps = [
            (refused, false),
            (None, false),
            (refused, false),
            (refused, true),
        ];
        for (step, (error, off)) in steps.into_iter().enumerate() {
            let mut device = Device::new(|kind| if kind == 0 { None } else { error });
            form(&mut fallback, &mut device, &batch).expect("the device is there");
            assert_eq!(device.accepted, batch, "in order, step {step}");
            assert_eq!(fallback.offload().merge_tcp, !off, "step {step}");
        }
        let text = fallback.notice().map(|refused| refused.to_string());
        assert!(text.is_some_and(|text| text.contains("EIO")));
        assert_eq!((fallback.notice(), fallback.dropped()), (None, 0));
    }
}

#[test]
fn a_device_that_refuses_everything_turns_nothing_off() {
    let batch = batch();
    for error in [EIO, EINVAL] {
        for form in [copy, gather] {
            let mut fallback = Fallback::new(TunOffload::tun());
            for round in 1..4 {
                let mut device = Device::new(|_| Some(error));
                form(&mut fallback, &mut device, &batch).expect("it is no error of the device");
                assert_eq!(fallback.dropped(), round * batch.len() as u64);
            }
            // It comes up after the large write was refused, once, and goes down again.
            for refuses in [|kind| (kind != 0).then_some(EIO), |_| Some(EIO)] {
                form(&mut fallback, &mut Device::new(refuses), &batch[..4]).expect("no error");
            }
            assert_eq!(fallback.offload(), TunOffload::tun());
            assert_eq!(fallback.notice(), None);
            let mut device = Device::new(|_| None);
            form(&mut fallback, &mut device, &batch).expect("the device is up");
            assert_eq!((device.calls, device.accepted.len()), (2, batch.len()));
        }
    }
}

#[test]
fn an_error_of_the_device_is_returned_and_others_are_counted() {
    for form in [copy, gather] {
        let mut fallback = Fallback::new(TunOffload::tun());
        let mut device = Device::new(|_| Some(EBADFD));
        let result = form(&mut fallback, &mut device, &batch());
        assert_eq!(
            result.err().and_then(|error| error.raw_os_error()),
            Some(EBADFD)
        );
        assert_eq!((device.calls, fallback.dropped()), (1, 0));
        // It is removed between the packets of a write.
        let mut calls = 0;
        let mut device = Device::new(|kind| {
            calls += 1;
            if kind != 0 {
                Some(EINVAL)
            } else {
                (calls > 2).then_some(EBADFD)
            }
        });
        form(&mut fallback, &mut device, &batch()).expect_err("it was removed");
        assert_eq!(device.calls, 3);
    }
    let mut fallback = Fallback::new(TunOffload::tun());
    let large = [0, GSO_TCPV4, 0, 0, 0, 0, 0, 0, 0, 0];
    let full = Error::from(ErrorKind::WouldBlock);
    assert_eq!(
        fallback.check::<()>(&large, Err(full)).ok(),
        Some(Outcome::Dropped)
    );
    assert_eq!(fallback.check_errno(&large, Err(EBADFD)), Err(EBADFD));
    let other = Error::other("of a library");
    assert!(fallback.check::<()>(&large, Err(other)).is_err());
    assert_eq!((fallback.dropped(), fallback.notice()), (1, None));
    // Without a virtio-net header there is nothing to write again.
    let mut bare = Fallback::new(TunOffload::headerless());
    let packet = Spec::tcp4(5000).build(Field::Final);
    assert_eq!(bare.check_errno(&packet, Err(EINVAL)), Ok(Outcome::Dropped));
    assert_eq!(bare.check_errno(&[], Err(EINVAL)), Ok(Outcome::Dropped));
}

#[test]
fn a_network_that_refuses_several_datagrams_at_once_gets_them_one_by_one() {
    let run = PacketRun {
        stride: 100,
        bytes: 250,
    };
    let one = PacketRun {
        stride: 100,
        bytes: 50,
    };
    for (error, name) in [(EIO, "EIO"), (EINVAL, "EINVAL")] {
        let mut fallback = Fallback::new(TunOffload::tun());
        assert_eq!(fallback.segments_max(64), 64);
        assert_eq!(fallback.check_run_errno(run, Err(error)), Outcome::Again);
        // Writes to the device say nothing about the network.
        assert_eq!(fallback.check_errno(&[0; 10], Ok(())), Ok(Outcome::Written));
        assert_eq!(fallback.segments_max(64), 64, "until one is accepted");
        assert_eq!(fallback.check_run_errno(one, Ok(())), Outcome::Written);
        assert_eq!(
            (fallback.segments_max(64), fallback.segments_max(0)),
            (1, 0)
        );
        let text = fallback.notice().map(|refused| refused.to_string());
        assert!(text.is_some_and(|text| text.contains("UDP_SEGMENT") && text.contains(name)));
        assert_eq!(
            fallback.offload(),
            TunOffload::tun(),
            "the device is another direction"
        );
        assert_eq!(fallback.again(LargeWrite::UdpToNetwork), 1);
        // Longer than the path takes, one by one too: nothing is turned off.
        let mut fallback = Fallback::new(TunOffload::tun());
        let refused: std::io::Result<()> = Err(Error::from_raw_os_error(error));
        assert_eq!(fallback.check_run(run, &refused), Outcome::Again);
        let unreachable: std::io::Result<()> = Err(Error::from_raw_os_error(101));
        assert_eq!(fallback.check_run(one, &unreachable), Outcome::Dropped);
        assert_eq!(fallback.check_run(one, &Ok(())), Outcome::Written);
        let unknown: std::io::Result<()> = Err(Error::other("of a library"));
        assert_eq!(fallback.check_run(run, &unknown), Outcome::Dropped);
        assert_eq!((fallback.segments_max(64), fallback.dropped()), (64, 2));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Each packet is accepted once, or is counted as dropped, with any errors in any order.
    #[test]
    fn any_errors_lose_only_what_is_counted(
        errors in prop::collection::vec(prop_oneof![3 => Just(None), 1 => Just(Some(EINVAL)),
            2 => Just(Some(EIO))], 1..60),
        rounds in 1_usize..6,
        gathered in any::<bool>(),
    ) {
        let mut fallback = Fallback::new(TunOffload::tun());
        let mut next = errors.into_iter().cycle();
        let mut device = Device::new(|_| next.next().flatten());
        let batch = batch();
        let form = if gathered { gather } else { copy };
        for _ in 0..rounds {
            form(&mut fallback, &mut device, &batch).expect("no error of the device");
        }
        let all = (rounds * batch.len()) as u64;
        prop_assert_eq!(device.accepted.len() as u64 + fallback.dropped(), all);
        prop_assert!(device.accepted.iter().all(|packet| batch.contains(packet)));
        let kinds = [LargeWrite::TcpToDevice, LargeWrite::UdpToDevice];
        let off = kinds.map(|what| fallback.refused(what));
        let notices = [fallback.notice(), fallback.notice(), fallback.notice()];
        prop_assert_eq!(notices.iter().flatten().count(), off.iter().flatten().count());
    }
}
