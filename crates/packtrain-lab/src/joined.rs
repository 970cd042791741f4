//! Two ports in memory that packtrain joins on a virtual machine, in virtual time.

use std::time::Duration;

use packtrain::engine::{Report, Session};
use packtrain::port::sim::SimControl;
use packtrain::port::{AnyPort, open_pair};
use packtrain::time::Instant;
use packtrain_testkit::VirtualMachine;
use packtrain_testkit::load::{POSTED, STARTS};
use packtrain_testkit::rig::Rig;

use crate::error::ToolError;
use crate::options::Fields;
use crate::session;
use crate::testbed::{TestbedOptions, whole};
use crate::units::Rate;

/// A session between two ports of a virtual machine.
#[derive(Debug)]
pub(crate) struct Joined {
    /// The world.
    pub rig: Rig,
    /// The settings in force.
    pub settings: Fields,
    /// The device of port A, if it is a NIC.
    device: Option<SimControl>,
}

/// What a machine is called in settings.
pub(crate) fn name(machine: &VirtualMachine) -> String {
    format!("virtual {machine}")
}

impl Joined {
    /// Joins the ports of a testbed. `seen` is called with the time and the first bytes of each
    /// packet that port A sends.
    pub fn new(
        machine: &VirtualMachine,
        testbed: &TestbedOptions,
        seen: impl Fn(Instant, &[u8]) + Send + Sync + 'static,
    ) -> Result<Self, ToolError> {
        testbed.refuse_real("a", &testbed.a)?;
        testbed.refuse_real("b", &testbed.b)?;
        let hint = "as in sim:far=echo";
        let specs = [whole("a", &testbed.a, hint)?, whole("b", &testbed.b, hint)?];
        let policies = testbed.checked_policies()?;
        let ports = open_pair(&specs[0], &specs[1]).map_err(|error| ToolError::of_open(&error))?;
        let sides = session::sides(&ports);
        let [a, b] = ports;
        let device = match &a.driver {
            AnyPort::Sim(sim) => Some(sim.control()),
            _ => None,
        };
        let mut rig = machine.rig();
        let [mut a, b] = [a, b].map(|port| rig.wire(port, machine.vectors));
        a.driver.watch(seen);
        let added = rig.try_add(Session::between(a, b), policies.settings(), 0);
        let session = &rig.sessions[added.map_err(|error| ToolError::of_start(&error))?];
        let requested = [&*testbed.a, &*testbed.b];
        let mut settings = session::settings(session, &sides, &policies, &requested);
        settings.insert("machine".to_owned(), name(machine).into());
        Ok(Self {
            rig,
            settings,
            device,
        })
    }

    /// Frames arrive at port A at a rate, for `duration`. Returns their number, and the report of
    /// the session, `rest` later.
    pub fn run(
        mut self,
        arrive: Option<(Rate, Vec<u8>)>,
        duration: Duration,
        rest: Duration,
    ) -> Result<(u64, Report), ToolError> {
        self.rig.world.run(self.rig.world.now().after(POSTED));
        let begin = self.rig.sessions[0].elapsed();
        let arrived = match (arrive, self.device.take()) {
            (None, _) => None,
            (Some((Rate(rate), frame)), Some(device)) => {
                Some(self.rig.arrive(device, frame, 1.0 / rate, duration))
            }
            (Some(_), None) => {
                let line = "a rate needs a NIC at which packets arrive: write a = \"sim:\"";
                return Err(ToolError::Usage(line.to_owned()));
            }
        };
        let world = &mut self.rig.world;
        world.run(world.now().after(STARTS + duration + rest));
        let mut report = session::checked(self.rig.finish().swap_remove(0))?;
        report.elapsed = report.elapsed.saturating_sub(begin);
        Ok((arrived.map_or(0, |arrived| arrived.get()), report))
    }
}
