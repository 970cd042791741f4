//! The demo with real kernels: two namespaces, a TAP in each, sockets inside.

use super::error::DemoError;
use super::report::{Options, Row, Setting, SettingReport};
use super::session::{Moved, forward, settle};
use crate::error::LabError;
use crate::netns;
use crate::topology::{Settings, TwoHosts};
use crate::traffic::{Amount, IpVersion, Protocol, Transfer};
use packtrain::port::tap::{Tap, TapConfig, TapKind};

/// Datagrams in one `UDP_SEGMENT` send: nearly 64 KiB.
const UDP_TRAIN: u32 = 44;

/// Runs all transfers of one setting.
pub(super) fn run(
    setting: Setting,
    options: &Options,
    on_row: &mut impl FnMut(Row),
) -> Result<SettingReport, DemoError> {
    let (hosts, a, b) = TwoHosts::with(&Settings::default(), |side| {
        let name = side.of(["tap-a", "tap-b"]);
        let config = TapConfig {
            offload: setting.features(),
            ..TapConfig::new(TapKind::Tap, name)
        };
        Ok::<_, DemoError>((name.to_owned(), Tap::open(&config)?))
    })?;
    let session = forward(a, b, setting)?;
    let ways = [
        ("a_to_b", &hosts.left, &hosts.right),
        ("b_to_a", &hosts.right, &hosts.left),
    ];
    for (protocol, ip) in transfers() {
        for (direction, from, to) in ways {
            let transfer = transfer(protocol, ip, options);
            let before = session.snapshot();
            let report = match transfer.run(from, to) {
                Err(LabError::Cancelled) => return settle(setting, session.finish()),
                // If the forwarder has failed, its error is the reason.
                Err(error) => {
                    let cause = session.finish().error.map(DemoError::Run);
                    return Err(cause.unwrap_or(DemoError::Lab(error)));
                }
                Ok(report) => report,
            };
            let moved = Moved::between(&before, &session.snapshot());
            let seconds = report.elapsed.as_secs_f64();
            on_row(Row {
                setting,
                protocol: match protocol {
                    Protocol::Tcp => "tcp",
                    Protocol::Udp => "udp",
                },
                ip: match ip {
                    IpVersion::V4 => "4",
                    IpVersion::V6 => "6",
                },
                direction,
                gbps: report.gbps(),
                wire_packets: moved.wire_packets,
                frames: moved.frames,
                syscalls_per_mb: moved.syscalls as f64 * 1e6 / report.received_bytes.max(1) as f64,
                cpu_percent: moved.cpu.as_secs_f64() * 100.0 / seconds,
                hash_ok: report.hash_ok,
            });
        }
    }
    settle(setting, session.finish())
}

fn transfers() -> impl Iterator<Item = (Protocol, IpVersion)> {
    let versions = netns::ip_versions();
    [Protocol::Tcp, Protocol::Udp]
        .into_iter()
        .flat_map(move |protocol| versions.iter().map(move |&ip| (protocol, ip)))
}

fn transfer(protocol: Protocol, ip: IpVersion, options: &Options) -> Transfer {
    let amount = Amount::Time(options.transfer_time);
    let transfer = match protocol {
        Protocol::Tcp => Transfer::tcp(ip, amount),
        // Every setting has the same sockets. The kernel segments packets that the port does not
        // accept whole.
        Protocol::Udp => Transfer::udp(ip, amount).train(UDP_TRAIN).gro(true),
    };
    transfer.seed(options.seed).stop(options.stop.clone())
}
