//! The interfaces of captures, under the numbers of the report.

use super::options::{Options, ReplayError};
use super::report::InterfaceReport;
use crate::codec::{Interface, LinkCode, MAX_INTERFACES, Reader, name_option};
use packtrain_offload::offload::LinkType;
use std::io::Read;

/// The name of an interface in the output whose description is bad in the input. It has no packets.
const BAD_INTERFACE: &str = "bad description";

/// One interface of the current section.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    /// Its number in the output, and in the report.
    pub to: u32,
    pub code: LinkCode,
    /// The header of its packets, if it is supported.
    pub link: Option<LinkType>,
}

/// The interfaces of one file.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    /// Those of the current section; `None` for one whose description is bad.
    lanes: Vec<Option<Lane>>,
    /// For each interface of the report, whether a lane of the current section has its number.
    used: Vec<bool>,
    section: u64,
}

/// Takes an interface that is new in the report, with its options.
pub(super) type Added<'a> = &'a mut dyn FnMut(&Interface<'_>, &[u8]) -> Result<(), ReplayError>;

impl Interfaces {
    pub fn new(section: u64) -> Self {
        Self {
            section,
            ..Self::default()
        }
    }

    pub fn lane(&self, interface: u32) -> Option<Lane> {
        self.lanes.get(interface as usize).copied().flatten()
    }

    /// The interfaces of a section, by the numbers of the report, if the input has begun another
    /// one since the last call. Those of the new one are described anew.
    pub fn ended_section<R: Read>(&mut self, input: &Reader<R>) -> Option<Vec<u32>> {
        if input.sections() == self.section {
            return None;
        }
        self.section = input.sections();
        self.used.fill(false);
        let lanes = self.lanes.drain(..).flatten();
        Some(lanes.map(|lane| lane.to).collect())
    }

    /// Adds the interfaces that the input has described since the last call. The last one has these
    /// options. An interface that the caller of [`run`](super::run) has read before has only its
    /// name: the reader does not keep its options.
    pub fn update<R: Read>(
        &mut self,
        input: &Reader<R>,
        settings: &Options,
        options: Option<&[u8]>,
        report: &mut Vec<InterfaceReport>,
        added: Added<'_>,
    ) -> Result<(), ReplayError> {
        let interfaces = input.interfaces();
        for index in self.lanes.len() as u32..interfaces {
            let first = input.interface(index);
            if let Some(first) = first.filter(|_| report.is_empty()) {
                // For all before it, whose descriptions are bad.
                for _ in 0..index {
                    self.placeholder(first.link, first.snaplen, settings, report, added)?;
                }
            }
            let lane = match (input.interface(index), options) {
                (Some(interface), Some(options)) if index + 1 == interfaces => {
                    Some(self.add(interface, options, settings, report, added)?)
                }
                (Some(interface), _) => {
                    let name = interface.name.map_or(Vec::new(), name_option);
                    Some(self.add(interface, &name, settings, report, added)?)
                }
                (None, _) => {
                    // Before the first good one, its link type is not known.
                    if let Some(first) = report.first() {
                        let (link, snaplen) = (first.link, first.snaplen);
                        self.placeholder(link, snaplen, settings, report, added)?;
                    }
                    None
                }
            };
            self.lanes.push(lane);
        }
        Ok(())
    }

    /// Adds an interface for one whose description is bad, so that later ones keep their numbers.
    /// Link type and snapshot length are those of the first good interface: libpcap refuses a file
    /// whose interfaces differ in them.
    fn placeholder(
        &mut self,
        link: LinkCode,
        snaplen: u32,
        settings: &Options,
        report: &mut Vec<InterfaceReport>,
        added: Added<'_>,
    ) -> Result<(), ReplayError> {
        let interface = Interface {
            link,
            snaplen,
            name: Some(BAD_INTERFACE),
        };
        let options = name_option(BAD_INTERFACE);
        self.add(interface, &options, settings, report, added)
            .map(drop)
    }

    fn add(
        &mut self,
        interface: Interface<'_>,
        options: &[u8],
        settings: &Options,
        report: &mut Vec<InterfaceReport>,
        added: Added<'_>,
    ) -> Result<Lane, ReplayError> {
        let seen = InterfaceReport::new(&interface, options);
        self.used.resize(report.len(), false);
        let mut known = report.iter().zip(&mut self.used);
        // A later section may describe the same interfaces again. A description costs one pass over
        // at most `MAX_INTERFACES` flags and descriptions, however many of them are equal.
        let same = known.position(|(known, used)| {
            let is_same = !*used && known.is_same(&seen);
            *used |= is_same;
            is_same
        });
        let to = if let Some(to) = same {
            to
        } else if report.len() == MAX_INTERFACES {
            return Err(ReplayError::TooManyInterfaces);
        } else {
            added(&interface, options)?;
            report.push(seen);
            self.used.push(true);
            report.len() - 1
        };
        Ok(Lane {
            to: to as u32,
            code: interface.link,
            link: link_type(interface.link, settings.user0),
        })
    }
}

/// The header of packets of a link type of captures, if it is supported.
const fn link_type(link: LinkCode, user0: Option<LinkType>) -> Option<LinkType> {
    match link {
        LinkCode::ETHERNET => Some(LinkType::Ethernet),
        LinkCode::USER0 => user0,
        link if link.is_raw_ip() => Some(LinkType::RawIp),
        // See `lead.rs`.
        link if link.is_cooked() => Some(LinkType::Ethernet),
        _ => None,
    }
}
