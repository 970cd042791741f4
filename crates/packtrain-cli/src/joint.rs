//! Two port specs from the command line, opened and planned.

use crate::exit::{Exit, Failure};
use packtrain::driver::{Driver, Input};
use packtrain::plan::{Plan, Side, Wishes, plan};
use packtrain::port::spec::PortSpec;
use packtrain::port::{AnyPort, OpenErrorKind, open_pair};
use packtrain_offload::offload::LinkType;

/// Two ports, open but not attached, and how they would be joined.
#[derive(Debug)]
pub struct Joint {
    /// The ports.
    pub ports: [AnyPort; 2],
    /// What they can do and what is wished of them. Names are distinct, and are the ports' names
    /// in everything that is printed.
    pub sides: [Side; 2],
    /// The plan.
    pub plan: Plan,
}

impl Joint {
    /// Opens what `a` and `b` say and plans it.
    ///
    /// # Errors
    ///
    /// One line for a spec that is wrong, a port that cannot be opened, two that cannot be joined.
    pub fn open(a: &str, b: &str) -> Result<Self, Failure> {
        // Both are parsed before either is opened: a typo shall not have made an interface.
        let specs = [parse(a)?, parse(b)?];
        let ports = open(&specs[0], &specs[1])?;
        let mut sides = [side(&ports[0], &specs[0]), side(&ports[1], &specs[1])];
        if sides[0].name == sides[1].name {
            for (index, (side, spec)) in sides.iter_mut().zip(&specs).enumerate() {
                side.name = format!("{}{index}", spec.kind.name());
            }
        }
        let plan = plan(&sides[0], &sides[1])
            .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
        Ok(Self { ports, sides, plan })
    }

    /// What the packets of one port start with, in words.
    pub fn link_name(&self, index: usize) -> &'static str {
        match self.sides[index].capabilities.link {
            LinkType::Ethernet => "ethernet",
            LinkType::RawIp => "ip",
        }
    }

    /// Whether no packet can ever come: a sink joined to a file that is written, for example.
    pub fn has_no_input(&self) -> bool {
        let input = |side: &Side| side.capabilities.input;
        self.sides.iter().all(|side| input(side) == Input::None)
    }

    /// The two names.
    pub fn names(&self) -> [String; 2] {
        [self.sides[0].name.clone(), self.sides[1].name.clone()]
    }
}

fn parse(text: &str) -> Result<PortSpec, Failure> {
    text.parse()
        .map_err(|error| Failure::new(Exit::Usage, format!("{error}")))
}

fn open(a: &PortSpec, b: &PortSpec) -> Result<[AnyPort; 2], Failure> {
    open_pair(a, b).map_err(|error| {
        let exit = match error.kind() {
            OpenErrorKind::Privilege => Exit::Privilege,
            OpenErrorKind::Usage => Exit::Usage,
            OpenErrorKind::Open => Exit::Port,
        };
        Failure::new(exit, error.to_string())
    })
}

fn side(port: &AnyPort, spec: &PortSpec) -> Side {
    Side {
        name: port.name().to_owned(),
        capabilities: port.capabilities(),
        wishes: Wishes {
            offload: spec.offload,
            segments: spec.segments,
            queues: spec.queues,
            rx_buffers: spec.rx_buffers,
        },
    }
}
