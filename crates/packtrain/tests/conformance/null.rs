//! The sink and the source of `null:`.

use packtrain::port::null::{Null, NullConfig, Protocol, Source};
use packtrain_offload::offload::LinkType;
use packtrain_testkit::conformance::{Injects, Rig, Skip, Traits};
use packtrain_testkit::driver_conformance;

struct NullRig {
    null: Null,
    injects: Injects,
}

impl Rig for NullRig {
    type Driver = Null;

    fn traits(&self) -> Traits {
        Traits {
            injects: self.injects,
            counts_exactly: true,
            ..Traits::default()
        }
    }

    fn driver(&mut self) -> &mut Null {
        &mut self.null
    }
}

fn sink(_seed: u64) -> Result<NullRig, Skip> {
    let null = Null::new(NullConfig::default());
    Ok(NullRig {
        null,
        injects: Injects::Never,
    })
}

fn source(seed: u64) -> Result<NullRig, Skip> {
    source_of(LinkType::Ethernet, seed)
}

fn ipoib(seed: u64) -> Result<NullRig, Skip> {
    source_of(LinkType::Ipoib, seed)
}

fn source_of(link: LinkType, seed: u64) -> Result<NullRig, Skip> {
    let (protocol, bytes) = [
        (Protocol::Udp, 60),
        (Protocol::Tcp, 1500),
        (Protocol::Udp, 9000),
        (Protocol::Ack, link.header_bytes() + 52),
    ][seed as usize % 4];
    let source = Some(Source {
        protocol,
        bytes,
        flows: 3,
        timestamps: true,
        out_of_order: 10,
        ..Source::default()
    });
    let null = Null::new(NullConfig {
        link,
        source,
        ..NullConfig::default()
    });
    Ok(NullRig {
        null,
        injects: Injects::Itself,
    })
}

driver_conformance!(sink, sink);
driver_conformance!(source, source);
driver_conformance!(ipoib, ipoib);
