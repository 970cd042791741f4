//! The module `packtrain._packtrain`: what the package `packtrain` calls.

mod grid;
mod packets;
mod raised;
mod runs;
mod table;

/// Replays, and data sets of them.
#[pyo3::pymodule]
mod _packtrain {
    #[pymodule_export]
    use super::grid::Grid;
    #[pymodule_export]
    use super::packets::{coalesce, segment};
    #[pymodule_export]
    use super::runs::{merge, name_of, plan, run, work};
    #[pymodule_export]
    use super::table::Table;
}
