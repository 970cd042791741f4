//! Port specs: `KIND:NAME[,key=value…]` as people write it, parsed into plain data.
//!
//! ```
//! use packtrain::port::spec::{PortKind, PortSpec};
//!
//! let spec: PortSpec = "tap:tap0,queues=4,offload=csum+tso".parse()?;
//! assert!(matches!(spec.kind, PortKind::Tap(_)));
//! assert_eq!((spec.name.as_str(), spec.config.queues), ("tap0", Some(4)));
//! # Ok::<(), packtrain::port::spec::SpecError>(())
//! ```
//!
//! A `null:` or `sim:` port has no name, so its keys start right after the colon:
//! `sim:rings=512,seed=7`. In names and values a comma is written `\,` and a backslash `\\`; no
//! other character needs that. A setting with arguments (`moderation=fixed(50,32)`) has its commas
//! in parentheses, where they stay as they are. A key may be given once. [`common_keys`] and
//! [`kinds`] have every key with its values.

mod nearest;
mod text;

#[cfg(test)]
mod tests;

pub use super::e1000e::E1000eOptions;
pub use super::null::NullOptions;
pub use super::packet::PacketOptions;
pub use super::pcap::PcapOptions;
pub use super::sim::SimOptions;
pub use super::tap::{INTERFACE_NAME_BYTES_MAX, TunTapOptions};
pub use super::vhost::VhostOptions;
pub use super::virtio::VirtioOptions;
pub use super::vmxnet3::Vmxnet3Options;
pub use super::wrap::Wrappers;
pub use super::xdp::XdpOptions;
pub use crate::driver::KeyHelp;

use crate::driver::PortConfig;
use crate::driver::key::{Key, Quoted, Takes};
use crate::driver::options::{Options, Request, TakesLink};
use nearest::{nearest, nearest_three};
use packtrain_offload::offload::LinkType;
use std::fmt;
use std::str::FromStr;
use text::{Escaped, Items, unescape};

/// The error of a text that is not a port spec: one line that says what, why and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(String);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}

/// A port, as the user wrote it. Its `Display` is a spec that parses to the same port.
#[derive(Clone, Debug, PartialEq)]
pub struct PortSpec {
    /// The kind of port, with the keys that only this kind has.
    pub kind: PortKind,
    /// The interface's name, the card's address, or the capture file; empty for `null:` and `sim:`,
    /// and for an interface given by `fd=` without a name.
    pub name: String,
    /// The keys that every kind has. Offloads include those that they need: TSO includes its
    /// checksum. Segments are the device's own limits for `sim:`, else a limit lower than the
    /// device's.
    pub config: PortConfig,
    /// The wrappers around the driver.
    pub wrappers: Wrappers,
}

/// A kind of port, for help and documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindHelp {
    /// The text in front of the colon.
    pub name: &'static str,
    /// The form of a port: `tap:NAME`.
    pub form: &'static str,
    /// What it is.
    pub about: &'static str,
    /// The keys that only this kind has.
    pub keys: Vec<KeyHelp>,
}

macro_rules! kinds {
    ($($variant:ident($options:ty): $name:literal, $form:literal, $about:literal;)*) => {
        /// A kind of port, with the keys that only it has.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "`kinds` has a description of each")]
        pub enum PortKind { $($variant($options),)* }

        impl PortKind {
            /// The text in front of the colon.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)* }
            }

            fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant(Default::default())),)*
                    _ => None,
                }
            }

            /// Whether something is expected between the colon and the first key.
            fn is_named(&self) -> bool {
                match self { $(Self::$variant(_) => !$form.ends_with(':'),)* }
            }

            /// Sets the key `name`; `None` if the kind has no such key.
            fn set(&mut self, name: &str, value: Option<&str>) -> Option<Result<(), String>> {
                match self { $(Self::$variant(options) => set(options, name, value),)* }
            }

            fn shown(&self) -> Vec<(&'static str, String)> {
                match self { $(Self::$variant(options) => shown(Options::KEYS, options),)* }
            }

            /// Whether the port waits for an interface that is deleted (`gone=wait`).
            #[must_use]
            pub fn waits(&self) -> bool {
                match self { $(Self::$variant(options) => options.waits(),)* }
            }

            /// Whether the kernel pins the memory of packets for the device when the port is
            /// attached. It needs `CAP_IPC_LOCK` beyond the limit of locked memory.
            #[must_use]
            pub fn pins_memory(&self) -> bool {
                match self { $(Self::$variant(options) => options.pins_memory(),)* }
            }

            fn check(&self, port: &Request<'_>, given: &[&str]) -> Result<(), String> {
                match self { $(Self::$variant(options) => options.check(port, given),)* }
            }

            /// The number of queues that the keys of the kind imply.
            pub(super) fn queues(&self) -> Option<usize> {
                match self { $(Self::$variant(options) => options.queues(),)* }
            }

            /// Whether the port can have the link type of the other one.
            pub(super) fn takes_link(&self) -> TakesLink {
                match self { $(Self::$variant(options) => options.takes_link(),)* }
            }
        }

        /// Each kind of port, with the keys that only it has.
        #[must_use]
        pub fn kinds() -> Vec<KindHelp> {
            vec![$(KindHelp {
                name: $name,
                form: $form,
                about: $about,
                keys: <$options>::KEYS.iter().map(Key::help).collect(),
            },)*]
        }
    };
}

kinds! {
    Tap(TunTapOptions): "tap", "tap:NAME",
        "a TAP interface; created if it does not exist, and then down until you set it up";
    Tun(TunTapOptions): "tun", "tun:NAME", "the same without Ethernet headers";
    Packet(PacketOptions): "packet", "packet:IF",
        "an Ethernet interface that exists, through packet sockets";
    Xdp(XdpOptions): "xdp", "xdp:IF",
        "an Ethernet interface that exists, through AF_XDP sockets";
    E1000e(E1000eOptions): "e1000e", "e1000e:ADDRESS",
        "an Intel 82574L network card at its PCI address, without a driver of the kernel";
    Virtio(VirtioOptions): "virtio", "virtio:ADDRESS",
        "a virtio network card at its PCI address, in the same way";
    Vmxnet3(Vmxnet3Options): "vmxnet3", "vmxnet3:ADDRESS",
        "VMware's network card vmxnet3 at its PCI address, in the same way";
    Pcap(PcapOptions): "pcap", "pcap:FILE", "a capture file (pcap or pcapng), read or written";
    Null(NullOptions): "null", "null:",
        "a sink; with `source` also a generator of UDP, TCP or ACK packets";
    Sim(SimOptions): "sim", "sim:", "a NIC in memory";
    Vhost(VhostOptions): "vhost-user", "vhost-user:PATH",
        "a network device of a virtual machine (QEMU) or a DPDK program, through a socket";
}

/// The keys that every kind of port has.
#[must_use]
pub fn common_keys() -> Vec<KeyHelp> {
    let of_port = PortConfig::KEYS.iter().map(Key::help);
    of_port
        .chain(Wrappers::KEYS.iter().map(Key::help))
        .collect()
}

fn set<O: Options>(options: &mut O, name: &str, value: Option<&str>) -> Option<Result<(), String>> {
    set_in(O::KEYS, options, name, value)
}

fn set_in<O: Clone + Default + 'static>(
    keys: &[Key<O>],
    settings: &mut O,
    name: &str,
    value: Option<&str>,
) -> Option<Result<(), String>> {
    let key = keys.iter().find(|key| key.name == name)?;
    Some(key.set(settings, value))
}

/// The keys whose values are not the default, each as it is written.
fn shown<O: Clone + Default + 'static>(
    keys: &[Key<O>],
    settings: &O,
) -> Vec<(&'static str, String)> {
    let shown = |key: &Key<O>| {
        let value = key.shown(settings)?;
        Some(match key.takes {
            // The commas in its parentheses are no end.
            Takes::Setting(_) => (key.name, value),
            _ => (key.name, Escaped(&value).to_string()),
        })
    };
    keys.iter().filter_map(shown).collect()
}

/// Whether commas in the parentheses of a value of the key `name` do not end it.
fn nests(name: &str) -> bool {
    let mut keys = PortConfig::KEYS.iter();
    keys.any(|key| key.name == name && matches!(key.takes, Takes::Setting(_)))
}

impl PortKind {
    /// Whether it is a PCI function, whose address is its name.
    pub(super) const fn is_card(&self) -> bool {
        matches!(self, Self::E1000e(_) | Self::Virtio(_) | Self::Vmxnet3(_))
    }

    fn parse(name: &str) -> Result<Self, String> {
        let names: Vec<_> = kinds().iter().map(|kind| kind.name).collect();
        let listed = names.join(", ");
        Self::named(name).ok_or_else(|| {
            let meant = nearest(name, &names)
                .map_or_else(String::new, |near| format!("did you mean '{near}'? "));
            let name = Quoted(name);
            format!("unknown port kind {name}: {meant}the kinds are {listed}")
        })
    }

    /// Why the port has no key `name`.
    fn unknown(&self, name: &str) -> String {
        let kind = self.name();
        let all = kinds();
        let has = |of: &&KindHelp| of.keys.iter().any(|key| key.name == name);
        let others: Vec<_> = all
            .iter()
            .filter(has)
            .map(|of| format!("{}:", of.name))
            .collect();
        if !others.is_empty() {
            let others = others.join(", ");
            return format!("key '{name}' is not for {kind}: ports but for {others}; leave it out");
        }
        let own = all.into_iter().filter(|of| of.name == kind);
        let own = own.flat_map(|of| of.keys).map(|key| key.name);
        let known: Vec<_> = common_keys()
            .iter()
            .map(|key| key.name)
            .chain(own)
            .collect();
        let near = nearest(name, &known).map_or_else(
            || format!("the nearest are {}", nearest_three(name, &known)),
            |near| format!("did you mean '{near}'?"),
        );
        format!(
            "unknown key {} of a {kind}: port; {near} (`packtrain forward --help` lists all)",
            Quoted(name)
        )
    }
}

impl FromStr for PortSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::parse(text).map_err(SpecError)
    }
}

impl PortSpec {
    fn parse(text: &str) -> Result<Self, String> {
        let Some((kind, rest)) = text.split_once(':') else {
            let name = text.split(',').next().unwrap_or_default();
            let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic());
            let is_path = name.contains(['/', '.']);
            let meant = match name.len() {
                1..=INTERFACE_NAME_BYTES_MAX if is_plain && !is_path => format!(
                    "; for the interface of this name packet:{name} or xdp:{name}, for a TAP \
                     tap:{name}"
                ),
                _ if is_path => "; for a capture pcap:FILE".to_owned(),
                _ => String::new(),
            };
            return Err(format!(
                "{} is not a port: write KIND:NAME[,key=value...], as in tap:tap0,queues=4{meant}",
                Quoted(text)
            ));
        };
        let mut spec = Self {
            kind: PortKind::parse(kind)?,
            name: String::new(),
            config: PortConfig::default(),
            wrappers: Wrappers::default(),
        };
        let mut items = Items::new(rest, nests);
        if spec.kind.is_named() {
            let first = items.name();
            spec.set_name(first)?;
        }
        let mut given = Vec::new();
        // `null:` alone has one empty item, and so has a trailing comma: both are accepted.
        for item in items.filter(|item| !item.is_empty()) {
            let (name, value) = match item.split_once('=') {
                Some((name, value)) => (name, Some(unescape(value)?)),
                None => (item, None),
            };
            if given.contains(&name) {
                return Err(format!("key '{name}' is given twice; keep one of the two"));
            }
            spec.set(name, value.as_deref())
                .unwrap_or_else(|| Err(spec.kind.unknown(name)))?;
            given.push(name);
        }
        spec.config.check()?;
        spec.kind.check(&spec.request(None), &given)?;
        Ok(spec)
    }

    fn set_name(&mut self, text: &str) -> Result<(), String> {
        let kind = self.kind.name();
        if let Some((key, value)) = text.split_once('=')
            && !matches!(self.kind, PortKind::Pcap(_) | PortKind::Vhost(_))
            && self.clone().set(key, Some(value)).is_some()
        {
            return Err(format!(
                "{kind}: needs the interface's name in front of {}, as in {kind}:NAME,{key}=...",
                Quoted(text)
            ));
        }
        self.name = unescape(text)?;
        Ok(())
    }

    /// Sets the key `name`; `None` if the port has no such key.
    fn set(&mut self, name: &str, value: Option<&str>) -> Option<Result<(), String>> {
        set_in(PortConfig::KEYS, &mut self.config, name, value)
            .or_else(|| set_in(Wrappers::KEYS, &mut self.wrappers, name, value))
            .or_else(|| self.kind.set(name, value))
    }

    /// The keys that are not at their default, as they are written; the value of a flag is empty.
    #[must_use]
    pub fn keys(&self) -> Vec<(&'static str, String)> {
        let mut keys = shown(PortConfig::KEYS, &self.config);
        keys.extend(self.kind.shown());
        keys.extend(shown(Wrappers::KEYS, &self.wrappers));
        keys
    }

    /// What the kind needs beside its own keys.
    pub(super) fn request(&self, link: Option<LinkType>) -> Request<'_> {
        Request {
            kind: self.kind.name(),
            name: &self.name,
            config: &self.config,
            seed: self.wrappers.seed,
            link,
        }
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), Escaped(&self.name))?;
        let mut comma = if self.kind.is_named() { "," } else { "" };
        for (name, value) in self.keys() {
            let equals = if value.is_empty() { "" } else { "=" };
            write!(f, "{comma}{name}{equals}{value}")?;
            comma = ",";
        }
        Ok(())
    }
}
