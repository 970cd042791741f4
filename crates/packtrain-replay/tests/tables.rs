//! Tables and data sets: what is read back is what was run.
