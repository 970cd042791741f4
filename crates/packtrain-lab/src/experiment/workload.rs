//! The tools that an experiment can use, by name.

use serde::de::DeserializeOwned;

use super::forward::Forward;
use crate::error::ToolError;
use crate::testbed::TestbedOptions;
use crate::tool::{Control, Measured};

/// The names of the tools, as in `tool = "…"`.
pub const TOOLS: [&str; 1] = ["forward"];

/// A tool with its options.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Two ports are joined in this process, without hosts.
    Forward(Forward),
}

impl Workload {
    /// The tool called `name`, whose options `read` reads. `None` if there is no such tool.
    pub fn read<E>(name: &str, read: impl ReadOptions<E>) -> Option<Result<Self, E>> {
        Some(match name {
            "forward" => read.options().map(Self::Forward),
            _ => return None,
        })
    }

    /// One run.
    ///
    /// # Errors
    /// [`ToolError`]
    pub fn run(
        &self,
        testbed: &TestbedOptions,
        control: &Control<'_>,
    ) -> Result<Measured, ToolError> {
        match self {
            Self::Forward(forward) => forward.run(testbed, control),
        }
    }
}

/// Reads the options of a tool that is known only by name.
pub trait ReadOptions<E> {
    /// The options.
    ///
    /// # Errors
    /// Which option is wrong.
    fn options<T: DeserializeOwned>(self) -> Result<T, E>;
}
