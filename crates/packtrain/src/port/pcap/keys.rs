//! A capture file from the keys of a port.

use super::{Pace, Pcap, PcapRead, PcapWrite, format_of};
use crate::driver::DeviceError;
use crate::driver::key::{Key, Words, keys};
use crate::driver::options::{Options, Request, TakesLink};
use packtrain_capture::Format;
use packtrain_offload::offload::LinkType;
use std::path::Path;

/// What a `pcap:` port is, from its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcapOptions {
    /// The file is written; else it is read.
    pub write: bool,
    /// The settings of a file that is read.
    pub read: PcapRead,
    /// The format of a file to write; `None` goes by the file name: pcap for `.pcap`, else pcapng.
    pub format: Option<Format>,
    /// The link type of a file to write; `None` takes the other port's.
    pub link: Option<LinkType>,
}

impl Words for Pace {
    const WORDS: &'static [(&'static str, Self)] =
        &[("fast", Self::AsFast), ("original", Self::Original)];
}

impl Words for Format {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("pcapng", Self::PcapNg),
        ("pcap", Self::Pcap { nanosecond: true }),
        ("pcap-us", Self::Pcap { nanosecond: false }),
    ];
}

/// The keys of a file that is read, and of one that is written.
const READ: &[&str] = &["loop", "pace"];
const WRITE: &[&str] = &["format", "link"];

impl Options for PcapOptions {
    type Driver = Pcap;

    const KEYS: &'static [Key<Self>] = keys! { Self;
        "write" (Flag) write: "write the file instead of reading it; an existing file is emptied";
        "loop" (Flag) read.repeat: "read the file again and again";
        "pace" (Words) read.pace: "read at once, or at the recorded times";
        "format" (Words) format: "format of the written file";
        "link" (Words) link: "link type of its packets";
    };

    fn check(&self, port: &Request<'_>, given: &[&str]) -> Result<(), String> {
        let why = if port.name.is_empty() {
            "pcap: needs a file, as in pcap:in.pcapng or pcap:out.pcapng,write"
        } else if port.name.contains('\0') {
            "the file name has a zero byte, which no file has; leave it out"
        } else {
            let (wrong, does, hint) = if self.write {
                (READ, "reads", "leave 'write' out")
            } else {
                (WRITE, "writes", "add 'write'")
            };
            let wrong = given.iter().find(|key| wrong.contains(key));
            return wrong.map_or(Ok(()), |key| {
                Err(format!(
                    "key '{key}' is for a file that packtrain {does}; {hint}, or leave '{key}' out"
                ))
            });
        };
        Err(why.to_owned())
    }

    fn open(&self, port: &Request<'_>) -> Result<Pcap, DeviceError> {
        let path = Path::new(port.name);
        if !self.write {
            let link = port.link;
            return Pcap::open_read(path, PcapRead { link, ..self.read });
        }
        let how = PcapWrite {
            format: self.format.unwrap_or_else(|| format_of(path)),
            link: self.link.or(port.link).unwrap_or_default(),
            snaplen: 0,
        };
        Pcap::open_write(path, how)
    }

    fn takes_link(&self) -> TakesLink {
        match self.link {
            None if self.write => TakesLink::Any,
            None => TakesLink::Some,
            Some(_) => TakesLink::None,
        }
    }
}
