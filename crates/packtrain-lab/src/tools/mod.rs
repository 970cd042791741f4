//! The tools, each a load and its measurement: [`Tool`](crate::tool::Tool).

pub mod blast;
mod frame;
mod pace;
pub mod ping;
pub mod rfc2544;
mod sequence;
pub mod sort;
pub mod stream;
