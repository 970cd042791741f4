//! The module `packtrain._packtrain`: what the Python package is made of.

mod found;
mod packets;
mod replays;
mod settings;
mod summary;
mod table;
mod tasks;

use pyo3::prelude::*;

#[pymodule]
fn _packtrain(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<found::Progress>()?;
    module.add_class::<found::Replay>()?;
    module.add_class::<found::Sweep>()?;
    module.add_class::<table::Table>()?;
    module.add_function(wrap_pyfunction!(packets::coalesce, module)?)?;
    module.add_function(wrap_pyfunction!(packets::segment, module)?)?;
    module.add_function(wrap_pyfunction!(replays::replay, module)?)?;
    module.add_function(wrap_pyfunction!(replays::sweep, module)?)?;
    module.add_function(wrap_pyfunction!(replays::dataset_of, module)?)?;
    for function in [
        wrap_pyfunction!(tasks::plan, module)?,
        wrap_pyfunction!(tasks::work, module)?,
        wrap_pyfunction!(tasks::merge, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
