//! TAP and TUN keep the promises of the driver contract, with the kernel on the other side.

use crate::line::{Line, NAME, within};
use packtrain::driver::{Driver, Features};
use packtrain::port::tap::{Tap, TapConfig, TapKind};
use packtrain::port::{self, AnyPort};
use packtrain_testkit::conformance::Skip;
use packtrain_testkit::driver_conformance;
use std::fmt::{Debug, Display};
use std::thread::sleep;
use std::time::Duration;

/// Opens an interface. A process that another test has forked holds the descriptor of the one
/// before until it executes its program.
fn opened<T, E: Debug + Display>(open: impl Fn() -> Result<T, E>) -> T {
    let mut result = open();
    for _ in 0..60_000 {
        if !matches!(&result, Err(error) if error.to_string().contains("is in use")) {
            break;
        }
        sleep(Duration::from_millis(1));
        result = open();
    }
    result.expect("it opens")
}

fn line(kind: TapKind, offload: Features) -> Result<Line<Tap>, Skip> {
    let config = TapConfig {
        offload,
        ..TapConfig::new(kind, NAME)
    };
    let tap = opened(|| Tap::open(&config));
    assert_eq!(tap.capabilities().rx.is_empty(), offload.is_empty());
    Ok(Line::new(tap))
}

/// The interface as a program opens it: from its spec, in the closed set of ports.
fn from_spec(kind: &str) -> Result<Line<AnyPort>, Skip> {
    let port = opened(|| port::open(&format!("{kind}:{NAME},queues=1")));
    assert!(matches!(port.driver, AnyPort::Tap(_)));
    Ok(Line::new(port.driver))
}

driver_conformance!(tap, |_| line(TapKind::Tap, Features::ALL), within);
driver_conformance!(tun, |_| line(TapKind::Tun, Features::ALL), within);
driver_conformance!(tap_off, |_| line(TapKind::Tap, Features::NONE), within);
driver_conformance!(tun_off, |_| line(TapKind::Tun, Features::NONE), within);
driver_conformance!(tap_csum, |_| line(TapKind::Tap, Features::CSUM), within);
driver_conformance!(any_tap, |_| from_spec("tap"), within);
driver_conformance!(any_tun, |_| from_spec("tun"), within);
