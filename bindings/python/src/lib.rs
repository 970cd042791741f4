//! The module `packtrain._packtrain`: what the Python package is made of.

mod packets;
mod replays;
mod settings;
mod summary;
mod table;

use pyo3::prelude::*;

#[pymodule]
fn _packtrain(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<replays::Progress>()?;
    module.add_class::<replays::Replay>()?;
    module.add_class::<replays::Sweep>()?;
    module.add_class::<table::Table>()?;
    module.add_function(wrap_pyfunction!(packets::coalesce, module)?)?;
    module.add_function(wrap_pyfunction!(packets::segment, module)?)?;
    module.add_function(wrap_pyfunction!(replays::replay, module)?)?;
    module.add_function(wrap_pyfunction!(replays::sweep, module)?)?;
    Ok(())
}
