//! Two hosts that a contestant joins, from a network namespace between them.

use crate::arguments::Arguments;
use crate::forwarder::Forwarder;
use crate::paths::{Contestant, End, INTERFACES, Program, THIRD};
use crate::process::Error;
use packtrain_lab::LabError;
use packtrain_lab::ethtool::Offload;
use packtrain_lab::link::{Rtnl, quiet_ipv6};
use packtrain_lab::netns::Netns;
use packtrain_lab::testbed::Testbed;
use packtrain_lab::topology::{Settings, Side, TwoHosts};
use std::sync::{Mutex, PoisonError};

/// The interface of a host that has a veth.
const VETH: &str = "veth0";
/// The bridge of [`TwoHosts::bridge`].
const BRIDGE: &str = "bridge0";

/// Hosts, and what joins them. Dropped, it ends.
#[derive(Debug)]
pub struct Joined {
    // Dropped first: it uses the hosts' interfaces.
    forwarder: Option<Forwarder>,
    testbed: Testbed,
    /// The interfaces of the forwarder exist as long as this does.
    _middle: Netns,
}

impl Joined {
    /// For the laboratory's tools.
    pub fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    /// Ends the forwarder.
    pub fn end(self) -> Result<(), Error> {
        self.forwarder.map_or(Ok(()), Forwarder::end)
    }
}

/// Makes the hosts, and has `contestant` join them. On return packets pass.
pub fn join(
    arguments: &Arguments,
    ends: [End; 2],
    contestant: &Contestant,
) -> Result<Joined, Error> {
    let settings = Settings::default();
    if let Program::Bridge(ports) = contestant.program {
        let (hosts, middle) = TwoHosts::bridge(&settings)?;
        if ports > 2 {
            add_third(&middle)?;
        }
        return Ok(Joined {
            forwarder: None,
            testbed: Testbed::around(hosts, None),
            _middle: middle,
        });
    }
    let middle = Netns::new()?;
    let start = || middle.run(|| Forwarder::start(arguments, &contestant.program, None))?;
    let forwarder: Mutex<Option<Forwarder>> = Mutex::new(None);
    let (hosts, (), ()) = TwoHosts::with(&settings, |side| {
        let name = side.of(INTERFACES);
        match side.of(ends) {
            End::Veth => {
                veth(&middle, side, contestant.far_offloads == Some(true))?;
                Ok::<_, Error>((VETH.to_owned(), ()))
            }
            // The forwarder makes it.
            End::Tap => {
                let mut forwarder = forwarder.lock().unwrap_or_else(PoisonError::into_inner);
                if forwarder.is_none() {
                    *forwarder = start()?;
                }
                let mut rtnl = middle.rtnl()?;
                let index = rtnl.link(name)?.index;
                rtnl.move_to(index, &Netns::current()?)?;
                Ok((name.to_owned(), ()))
            }
        }
    })?;
    let forwarder = forwarder
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let forwarder = match forwarder {
        None => start()?,
        started => started,
    };
    let is_third = |port: &&str| port.contains(THIRD);
    if matches!(&contestant.program, Program::Packtrain(ports) if ports.iter().any(is_third)) {
        set_up(&middle, THIRD)?;
    }
    let process = forwarder.as_ref().map(Forwarder::id);
    Ok(Joined {
        forwarder,
        testbed: Testbed::around(hosts, process),
        _middle: middle,
    })
}

/// A veth of the calling thread's namespace, whose other end is up in `middle`.
fn veth(middle: &Netns, side: Side, has_offloads: bool) -> Result<(), LabError> {
    let port = side.of(INTERFACES);
    Rtnl::open()?.create_veth(VETH, port, middle, 1)?;
    if !has_offloads {
        let host = Netns::current()?;
        for offload in [Offload::Checksum, Offload::Tso, Offload::Gso] {
            offload.set(&host, VETH, false)?;
        }
    }
    set_up(middle, port)
}

fn set_up(netns: &Netns, name: &str) -> Result<(), LabError> {
    netns.run(|| {
        quiet_ipv6(name)?;
        let mut rtnl = Rtnl::open()?;
        let index = rtnl.link(name)?.index;
        rtnl.set_up(index)
    })?
}

/// A third port of the kernel's bridge: a veth whose other end is up and has no address.
fn add_third(middle: &Netns) -> Result<(), LabError> {
    let mut rtnl = middle.rtnl()?;
    rtnl.create_veth(THIRD, "far-c", middle, 1)?;
    let (bridge, port) = (rtnl.link(BRIDGE)?.index, rtnl.link(THIRD)?.index);
    rtnl.set_bridge(port, bridge)?;
    set_up(middle, THIRD)?;
    set_up(middle, "far-c")
}
