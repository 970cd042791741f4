//! One fault.

/// File, what is there exactly once, what is put in its place.
pub type Fault = (&'static str, &'static str, &'static str);
