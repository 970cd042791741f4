//! Which part of a sending host segments TCP.

use super::options::Switch;
use crate::error::LabError;
use crate::ethtool::Offload;
use crate::topology::Host;

/// The settings of a host's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offloads {
    pub tso: bool,
    pub gso: bool,
    /// The most segments in a packet of the kernel.
    pub segments_max: u32,
}

impl Offloads {
    pub(super) fn of(host: &Host) -> Result<Self, LabError> {
        let get = |offload: Offload| offload.get(&host.netns, &host.link.name);
        let link = host.netns.rtnl()?.link_by_index(host.link.index)?;
        Ok(Self {
            tso: get(Offload::Tso)?,
            gso: get(Offload::Gso)?,
            segments_max: link.gso_max_segs,
        })
    }

    /// These settings with the requested changes. Without TSO and GSO a packet has one segment:
    /// that is a setting of its own, because TCP makes large packets also if GSO is off (since
    /// Linux 4.17).
    pub(super) fn with(self, tso: Option<Switch>, gso: Option<Switch>) -> Self {
        let is_on = |switch| switch == Switch::On;
        let changed = Self {
            tso: tso.map_or(self.tso, is_on),
            gso: gso.map_or(self.gso, is_on),
            ..self
        };
        match changed {
            Self {
                tso: false,
                gso: false,
                ..
            } => Self {
                segments_max: 1,
                ..changed
            },
            _ => changed,
        }
    }

    /// Sets and reads back what differs.
    pub(super) fn apply(self, host: &Host) -> Result<(), LabError> {
        let now = Self::of(host)?;
        let set = |offload: Offload, on| offload.set(&host.netns, &host.link.name, on);
        if self.gso != now.gso {
            set(Offload::Gso, self.gso)?;
        }
        if self.tso != now.tso {
            set(Offload::Tso, self.tso)?;
        }
        let wanted = self.segments_max;
        if wanted == now.segments_max {
            return Ok(());
        }
        let mut rtnl = host.netns.rtnl()?;
        rtnl.set_gso_max_segs(host.link.index, wanted)?;
        let found = rtnl.link_by_index(host.link.index)?.gso_max_segs;
        if found == wanted {
            return Ok(());
        }
        Err(LabError::NotTaken {
            what: "gso_max_segs",
            wanted: wanted.into(),
            found: found.into(),
            hint: "the kernel keeps it; leave out --gso off",
        })
    }
}
