use super::*;
use crate::driver::RxDescriptors;
use crate::packet::{ArenaConfig, Burst, Ingress};
use crate::queue::{FitLimits, RxQueue, TxQueue};
use crate::time::Instant;

#[test]
fn a_packet_crosses_the_wire() {
    let arenas = [(); 2].map(|()| Arena::new(ArenaConfig::small()).unwrap());
    {
        let (mut a, mut b) = pair(SimConfig::default(), SimConfig::default(), 1);
        let (_a_rx, a_tx) = a.attach(&Attach::default(), &arenas[0]).unwrap().remove(0);
        let (b_rx, _b_tx) = b.attach(&Attach::default(), &arenas[1]).unwrap().remove(0);
        let caps = a.capabilities();
        let limits = FitLimits::new(&caps, None);
        let mut tx = TxQueue::new(
            a_tx,
            arenas[0].clone(),
            caps.tx,
            limits,
            caps.tx_ring,
            Arc::default(),
            Arc::default(),
        );
        let mut rx = RxQueue::new(
            b_rx,
            arenas[1].clone(),
            LinkType::Ethernet,
            Ingress::default(),
            Arc::default(),
            Arc::default(),
        );
        assert!(rx.device_mut().refill(&arenas[1]));
        let mut burst = Burst::new();
        for n in 0..10_u8 {
            let packet = arenas[0].packet_from(&[n; 5000]).unwrap();
            burst.push(packet).unwrap();
        }
        tx.transmit(&mut burst).unwrap();
        rx.poll(Instant::default(), &mut burst, 64).unwrap();
        let got: Vec<_> = burst.iter().map(|p| (p.bytes(), p.first()[0])).collect();
        assert_eq!(got, (0..10).map(|n| (5000, n)).collect::<Vec<_>>());
        assert_eq!(tx.reclaim(), 10);
    }
    for arena in arenas {
        assert_eq!(arena.census().lines_used, 0);
    }
}
