//! The demo: TCP and UDP of real kernels through packtrain, without offloads, with checksums
//! only, and with all offloads. Every byte is hashed, and every packet accounted for.

mod error;
mod memory;
mod namespaces;
mod report;
mod session;

use crate::tap;
use std::sync::atomic::Ordering;

pub use error::DemoError;
pub use report::{Options, Outcome, Row, Setting, SettingReport, World};

/// Runs the demo: in namespaces if they are available, and otherwise in memory. `on_world` is
/// called once before the first transfer, `on_row` after each.
///
/// # Errors
///
/// [`DemoError`], if a namespace or port fails during the run. Lost or damaged data is not an
/// error: its row has no `hash_ok`.
pub fn run(
    options: &Options,
    on_world: impl FnOnce(&World),
    mut on_row: impl FnMut(&Row),
) -> Result<Outcome, DemoError> {
    let world = match tap::available() {
        Ok(()) if options.in_memory => World::Memory {
            reason: "asked for".to_owned(),
        },
        Ok(()) => World::Namespaces,
        Err(missing) => World::Memory {
            reason: missing.to_string(),
        },
    };
    on_world(&world);
    let mut outcome = Outcome {
        world,
        rows: Vec::new(),
        settings: Vec::new(),
        stopped: false,
    };
    for setting in Setting::ALL {
        let rows = &mut outcome.rows;
        let mut on_row = |row: Row| {
            on_row(&row);
            rows.push(row);
        };
        let report = match outcome.world {
            World::Namespaces => namespaces::run(setting, options, &mut on_row)?,
            World::Memory { .. } => memory::run(setting, options, &mut on_row)?,
        };
        outcome.settings.push(report);
        if options.stop.load(Ordering::Relaxed) {
            outcome.stopped = true;
            break;
        }
    }
    Ok(outcome)
}
