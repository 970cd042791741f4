//! The tools, each a load and its measurement: [`Tool`](crate::tool::Tool).

pub mod blast;
mod frame;
mod pace;
mod sequence;
pub mod stream;
