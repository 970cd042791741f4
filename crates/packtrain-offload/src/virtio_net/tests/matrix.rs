//! The matrix measured on a Linux kernel.

use super::*;

type Row = (
    &'static str,
    Case,
    fn(&mut VnetHeader),
    bool,
    Result<Option<u32>, VnetError>,
);

/// Rows: a name, a packet, a change of its header, whether the kernel takes it, and what we do.
macro_rules! rows {
    ($($name:literal: $case:expr, $h:ident => $change:expr, $kernel:literal => $ours:expr;)*) => {
        vec![$(($name, $case, |$h: &mut VnetHeader| { _ = $h; $change }, $kernel, $ours)),*]
    };
}

/// Every row of a matrix that was measured with writes to a TUN device of Linux 6.18: what that
/// kernel answers, and what we do (`Some(n)`: a GSO packet of n segments; `None`: an ordinary one).
#[test]
fn the_measured_matrix() {
    use VnetError as E;
    let tcp = |payload| Case::gso(&Spec::tcp4(payload), 1000);
    let uso = |payload, size| Case::gso(&Spec::udp4(payload), size);
    let plain = || Case::plain(&Spec::tcp4(3000));
    let rows: Vec<Row> = rows! {
        "as is": tcp(3000), h => (), true => Ok(Some(3));
        "tail of 1": tcp(1449), h => h.gso_size = 1448, true => Ok(Some(2));
        "hdr_len 0": tcp(3000), h => h.hdr_len = 0, true => Ok(Some(3));
        "hdr_len all": tcp(3000), h => h.hdr_len = 3040, true => Ok(Some(3));
        "hdr_len 65535": tcp(3000), h => h.hdr_len = 65_535, false => Err(E::HdrLen);
        "gso_size 0": tcp(3000), h => h.gso_size = 0, false => Err(E::GsoSizeZero);
        "gso_size 1": tcp(3000), h => h.gso_size = 1, true => Err(E::GsoSizeTooSmall);
        "gso_size 65535": tcp(3000), h => h.gso_size = 65_535, false => Err(E::GsoSizeReserved);
        "gso_size all": tcp(3000), h => h.gso_size = 3000, true => Ok(None);
        "no NEEDS_CSUM": tcp(3000), h => h.flags = 0, true => Err(E::GsoWithoutCsum);
        "csum_offset 6": tcp(3000), h => h.csum_offset = 6, false => Err(E::CsumOffset);
        "csum_start 0": tcp(3000), h => h.csum_start = 0, false => Err(E::CsumInNetwork);
        "csum_start 19": tcp(3000), h => h.csum_start = 19, false => Err(E::CsumInNetwork);
        "csum_start far": tcp(3000), h => h.csum_start = 60_000, false => Err(E::CsumBounds);
        "csum_start 24": tcp(3000), h => h.csum_start = 24, true => Err(E::CsumStart);
        "TCPV6 at 20": tcp(3000), h => h.gso_type = GSO_TCPV6, false => Err(E::GsoNetwork);
        "TCPV6 at 40": tcp(3000), h => (h.gso_type, h.csum_start) = (GSO_TCPV6, 40),
            true => Err(E::GsoNetwork);
        "TCPV4 + ECN": tcp(3000), h => h.gso_type |= GSO_ECN, true => Ok(Some(3));
        "USO": uso(3000, 1000), h => (), true => Ok(Some(3));
        "USO, no csum": uso(3000, 1000), h => h.flags = 0, false => Err(E::GsoWithoutCsum);
        "USO at 16": uso(3000, 1000), h => h.csum_offset = 16, false => Err(E::CsumOffset);
        "USO + ECN": uso(3000, 1000), h => h.gso_type |= GSO_ECN, false => Err(E::EcnOnUdp);
        "USO of 64": uso(6400, 100), h => (), true => Ok(Some(64));
        // Kernels before 6.10 took up to 64, the model as they; none of them sent more.
        "USO of 65": uso(6401, 100), h => (), false => Ok(Some(65));
        "USO of 128": uso(12_800, 100), h => (), false => Ok(Some(128));
        "USO of 129": uso(12_900, 100), h => (), false => Err(E::GsoTooManySegments);
        "USO, one": uso(3000, 1000), h => h.gso_size = 3001, true => Ok(None);
        "UFO": uso(3000, 1000), h => h.gso_type = GSO_UDP, true => Err(E::GsoUfo);
        "type 2": tcp(3000), h => h.gso_type = 2, false => Err(E::GsoTypeUnknown);
        "type 6": tcp(3000), h => h.gso_type = 6, false => Err(E::GsoTypeUnknown);
        "type 0x21": tcp(3000), h => h.gso_type = 0x21, false => Err(E::GsoTunnel);
        "NONE + size": plain(), h => h.gso_size = 5, true => Ok(None);
        "NONE, start 10": plain(), h => (h.flags, h.csum_start) = (1, 10),
            false => Err(E::CsumInNetwork);
        "flags 0xfe": plain(), h => h.flags = 0xfe, true => Err(E::RscInfo);
        "flags 0xf2": plain(), h => h.flags = 0xf2, true => Ok(None);
        "total 65535": Case::gso(&Spec::tcp4(65_495), 1000), h => (), true => Ok(Some(66));
        "over the MTU": plain(), h => (), true => Ok(None);
    };
    for (name, mut case, change, kernel, ours) in rows {
        change(&mut case.header);
        assert_eq!(case.kernel_accepts(), kernel, "model of the kernel: {name}");
        let got = case.validate();
        assert_eq!(got.map(|r| r.gso.map(|_| r.wire_packets)), ours, "{name}");
    }
}
