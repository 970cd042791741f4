//! `Fragmenter` over any bytes: fragments fit, tile the payload, and keep what the packet says.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packtrain_fuzz::{Input, be16, plain_sum};
use packtrain_offload::fragment::{FragmentError, Fragmenter};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::ChecksumState;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let link = input.link();
    let mtu = u32::from(input.word());
    let packet = input.rest();
    let bytes = packet.len() as u32;
    let Ok(layout) = Layout::parse(link, packet, bytes) else {
        return;
    };
    let made = match Fragmenter::new(packet, &layout, mtu, ChecksumState::None, bytes) {
        Ok(made) => made,
        Err(error) => {
            assert!(FragmentError::ALL.contains(&error));
            return;
        }
    };
    let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
    let word = be16(packet, network + 6);
    let mut payload = Vec::new();
    for index in 0..made.fragments() {
        let mut fragment = vec![0; made.wire_bytes(index)];
        let wrote = made.write_fragment(index, packet, &mut fragment);
        assert_eq!(wrote, Ok(fragment.len()));
        assert!(fragment.len() - network <= mtu as usize);
        assert_eq!(fragment[..network], packet[..network]);
        let header = made.header_bytes(index);
        if made.fragments() == 1 {
            assert_eq!(fragment, packet[..layout.ip_end as usize]);
        } else {
            let is_last = index + 1 == made.fragments();
            let parsed = Layout::parse(link, &fragment, fragment.len() as u32);
            let parsed = parsed.expect("a fragment parses");
            assert!(parsed.fragment && usize::from(parsed.transport) == header);
            assert_eq!(plain_sum(&[&fragment[network..header]]), 0xffff);
            let now = be16(&fragment, network + 6);
            let offset = usize::from(now & 0x1fff) - usize::from(word & 0x1fff);
            assert_eq!(offset * 8, payload.len());
            assert_eq!(now & 0x2000 != 0, !is_last || word & 0x2000 != 0);
            assert_eq!(
                fragment[network + 4..network + 6],
                packet[network + 4..network + 6]
            );
        }
        payload.extend_from_slice(&fragment[header..]);
    }
    assert_eq!(payload, packet[transport..layout.ip_end as usize]);
});
