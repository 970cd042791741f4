//! The tools, each a load and its measurement: [`Tool`](crate::tool::Tool).

pub mod stream;
