//! The tools, each a load and its measurement: [`Tool`](crate::tool::Tool).

pub mod blast;
pub(crate) mod frame;
pub mod ping;
pub mod rfc2544;
pub mod sort;
pub mod stream;
