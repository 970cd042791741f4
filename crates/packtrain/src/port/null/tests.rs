use super::*;
use crate::conformance::{Injects, Rig, Skip, Traits};
use crate::driver_conformance;

struct NullRig(Null);

impl Rig for NullRig {
    type Driver = Null;

    fn traits(&self) -> Traits {
        let injects = if self.0.config.source.is_some() {
            Injects::Itself
        } else {
            Injects::Never
        };
        Traits {
            injects,
            counts_exactly: true,
            ..Traits::default()
        }
    }

    fn driver(&mut self) -> &mut Null {
        &mut self.0
    }
}

fn sink(_seed: u64) -> Result<NullRig, Skip> {
    Ok(NullRig(Null::new(NullConfig::default())))
}

fn source(seed: u64) -> Result<NullRig, Skip> {
    let bytes = [60, 1500, 9000][seed as usize % 3];
    let source = Some(Source {
        bytes,
        flows: 3,
        count: None,
    });
    Ok(NullRig(Null::new(NullConfig {
        source,
        ..NullConfig::default()
    })))
}

driver_conformance!(conformance_sink, sink);
driver_conformance!(conformance_source, source);
