//! What joins the ends, as a process that runs.

use crate::arguments::Arguments;
use crate::paths::{INTERFACES, Program, SOCKETS};
use crate::process::{Error, Process};
use crate::testpmd::Testpmd;
use packtrain_lab::baseline::{self, Baseline, Mode};
use std::path::Path;
use std::process::Command;

/// The program that is measured: built with the bench's profile.
const PACKTRAIN: &str = env!("CARGO_BIN_EXE_packtrain");

/// A forwarder that runs. Dropped, it is killed.
#[derive(Debug)]
pub enum Forwarder {
    /// packtrain.
    Packtrain(Process),
    /// DPDK's.
    Testpmd(Testpmd),
    /// That in C.
    C(Baseline),
}

impl Forwarder {
    /// Starts it in the network namespace of the calling thread, with its sockets in a folder, and
    /// waits until it forwards. `None` if the kernel does.
    pub fn start(
        arguments: &Arguments,
        program: &Program,
        sockets: Option<&Path>,
    ) -> Result<Option<Self>, Error> {
        let folder = sockets.map_or_else(Default::default, Path::to_string_lossy);
        let with_folder = |spec: &&str| spec.replace(SOCKETS, &folder);
        let forwarder = match program {
            Program::Packtrain(ports) => {
                let mut command = Command::new(PACKTRAIN);
                command.arg("forward").args(ports.iter().map(with_folder));
                command.arg("--duration");
                command.arg(format!("{}s", arguments.lifetime_s()));
                let mut process = Process::start(command.args(["--quiet", "--json"]))?;
                process.wait_for_worker()?;
                Self::Packtrain(process)
            }
            Program::Testpmd(devices) => {
                let devices: Vec<String> = devices.iter().map(with_folder).collect();
                // The CPU of a front end that it serves is the other one.
                let cpus = [1, 0];
                Self::Testpmd(Testpmd::start(cpus, &devices, &["--forward-mode=io"])?)
            }
            Program::C => {
                let program = baseline::Program::forwarder()?;
                Self::C(Baseline::start(&program, INTERFACES, Mode::Vnet)?)
            }
            Program::Bridge(_) => return Ok(None),
        };
        Ok(Some(forwarder))
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        match self {
            Self::Packtrain(process) => process.child.id(),
            Self::Testpmd(testpmd) => testpmd.id(),
            Self::C(baseline) => baseline.pid(),
        }
    }

    /// Ends it. It is an error if it has ended before, or failed.
    pub fn end(self) -> Result<(), Error> {
        match self {
            Self::Packtrain(process) => process.end().map(drop),
            Self::Testpmd(testpmd) => testpmd.end(),
            Self::C(baseline) => Ok(baseline.finish()?),
        }
    }
}
