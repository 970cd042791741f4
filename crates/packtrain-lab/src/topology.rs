//! Two hosts with one interface each; packtrain joins them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use crate::counters::{Counters, devices};
use crate::error::LabError;
use crate::ip::IpVersion;
use crate::link::{self, Link, LinkStats, Mac, Rtnl};
use crate::netns::{self, Netns};
use crate::tap::Tap;

/// How long the kernel may take to make a link usable. It takes milliseconds, or up to a second if
/// many links change at the same time, unless the machine is very busy.
const SETTLE: Duration = Duration::from_secs(60);

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// `198.18.0.1`, `fd00:18::1`.
    Left,
    /// `198.18.0.2`, `fd00:18::2`.
    Right,
}

impl Side {
    /// Of a pair, left first, what this side has.
    pub fn of<T>(self, [left, right]: [T; 2]) -> T {
        match self {
            Self::Left => left,
            Self::Right => right,
        }
    }

    /// The last byte of every address of the host.
    fn number(self) -> u8 {
        self.of([1, 2])
    }

    /// The other side.
    pub fn other(self) -> Self {
        self.of([Self::Right, Self::Left])
    }

    /// Its IPv4 address, in 198.18.0.0/24 (RFC 2544 benchmarking).
    pub fn ipv4(self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, 0, self.number())
    }

    /// Its IPv6 address, in fd00:18::/64 (RFC 4193 unique local).
    pub fn ipv6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0x18, 0, 0, 0, 0, 0, u16::from(self.number()))
    }

    /// Its Ethernet address, locally administered.
    pub fn mac(self) -> Mac {
        [0x02, 0, 0, 0x18, 0, self.number()]
    }
}

/// How the interfaces of both hosts are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// MTU in bytes, without the Ethernet header; 1280 to 65521.
    pub mtu: u32,
    /// Transmit queue length in packets; on a TAP the size of each queue's ring.
    pub tx_queue_len: u32,
    /// Whether ARP, neighbour discovery and multicast listener reports are switched off, so that
    /// the interfaces carry only the traffic of the test. Permanent neighbour entries exist in
    /// either case.
    pub quiet: bool,
    /// The line rate of both interfaces in bytes a second, for what the hosts send; `None` for as
    /// fast as the forwarder takes packets.
    pub line_rate: Option<u32>,
}

impl Default for Settings {
    /// MTU 1500, 1000 packets, quiet.
    fn default() -> Self {
        Self {
            mtu: 1500,
            tx_queue_len: 1000,
            quiet: true,
            line_rate: None,
        }
    }
}

/// A host: a namespace with one configured interface.
#[derive(Debug)]
pub struct Host {
    /// Its side.
    pub side: Side,
    /// Its namespace.
    pub netns: Netns,
    /// Its interface: name, index and settings at the time of the set-up.
    pub link: Link,
}

impl Host {
    /// A host alone, with an interface that `create` makes inside its namespace, as those of
    /// [`TwoHosts::with`]. Its peer exists only as an address and a neighbour.
    ///
    /// # Errors
    /// As [`TwoHosts::with`].
    pub fn alone<T: Send, E: From<LabError> + Send>(
        settings: &Settings,
        side: Side,
        create: impl FnOnce() -> Result<(String, T), E> + Send,
    ) -> Result<(Self, T), E> {
        check(settings)?;
        let (netns, name, kept) = Self::make(settings, side, create)?;
        Ok((Self::address(side, netns, &name)?, kept))
    }

    /// A namespace whose interface, made by `create`, is up and has no addresses; its name, and
    /// what else `create` returned.
    fn make<T: Send, E: From<LabError> + Send>(
        settings: &Settings,
        side: Side,
        create: impl FnOnce() -> Result<(String, T), E> + Send,
    ) -> Result<(Netns, String, T), E> {
        let netns = Netns::new()?;
        let (name, kept) = netns.run(|| {
            let (name, kept) = create()?;
            bring_up(&mut Rtnl::open()?, &name, side, settings)?;
            Ok::<_, E>((name, kept))
        })??;
        Ok((netns, name, kept))
    }

    /// Adds addresses and neighbours. Both ends must be up. On return the link carries packets in
    /// both directions.
    fn address(side: Side, netns: Netns, name: &str) -> Result<Self, LabError> {
        let mut rtnl = netns.rtnl()?;
        let Link { index, mac, .. } = rtnl.link(name)?;
        wait(|| Ok(!rtnl.link_by_index(index)?.is_settling()))?;
        let peer = side.other();
        let mut families: Vec<(IpAddr, u8, IpAddr)> =
            vec![(side.ipv4().into(), 24, peer.ipv4().into())];
        if netns::has_ipv6() {
            families.push((side.ipv6().into(), 64, peer.ipv6().into()));
        }
        for (ip, prefix, peer_ip) in families {
            rtnl.add_address(index, ip, prefix)?;
            if mac.is_some() {
                rtnl.add_neighbour(index, peer_ip, peer.mac())?;
            }
            wait(|| rtnl.is_local(ip))?;
        }
        let link = rtnl.link_by_index(index)?;
        Ok(Self { side, netns, link })
    }

    /// Its address of one IP version.
    pub fn ip(&self, version: IpVersion) -> IpAddr {
        match version {
            IpVersion::V4 => self.side.ipv4().into(),
            IpVersion::V6 => self.side.ipv6().into(),
        }
    }

    /// The protocol counters of its kernel, now.
    ///
    /// # Errors
    /// As [`Netns::counters`].
    pub fn counters(&self) -> Result<Counters, LabError> {
        self.netns.counters()
    }

    /// The counters of its interface, now. They are read without the lock of the kernel's network
    /// configuration, which rtnetlink takes: on a busy machine another program may hold that for
    /// many seconds, while it removes an interface.
    ///
    /// # Errors
    /// As [`Netns::run`] and [`devices`]; [`LabError::Os`] with `ENODEV` if the interface was
    /// removed.
    pub fn stats(&self) -> Result<LinkStats, LabError> {
        let devices = self.netns.run(devices)??;
        let mine = devices.iter().find(|(name, _)| *name == self.link.name);
        mine.map(|(_, stats)| *stats).ok_or(LabError::Os {
            what: "/proc/net/dev",
            errno: libc::ENODEV,
        })
    }
}

/// Two namespaces whose interfaces reach each other if a forwarder joins them ([`TwoHosts::veth`]
/// needs none). Dropping it removes the namespaces and their interfaces.
#[derive(Debug)]
pub struct TwoHosts {
    /// The host with number 1.
    pub left: Host,
    /// The host with number 2.
    pub right: Host,
}

impl TwoHosts {
    /// Two hosts with interfaces that `create` makes: it runs once for each side, inside its
    /// namespace, and returns the interface's name with a value for the caller, such as
    /// descriptors. Addresses, MTU and neighbours are then set here, and the interfaces
    /// are up on return.
    ///
    /// # Errors
    /// The error of `create`, or one of [`Netns::new`] and [`Rtnl`]'s methods.
    pub fn with<T: Send, E: From<LabError> + Send>(
        settings: &Settings,
        create: impl Fn(Side) -> Result<(String, T), E> + Sync,
    ) -> Result<(Self, T, T), E> {
        check(settings)?;
        let make = |side: Side| Host::make(settings, side, || create(side));
        let (left, left_name, left_kept) = make(Side::Left)?;
        let (right, right_name, right_kept) = make(Side::Right)?;
        let left = Host::address(Side::Left, left, &left_name)?;
        let right = Host::address(Side::Right, right, &right_name)?;
        Ok((Self { left, right }, left_kept, right_kept))
    }

    /// Two hosts with a TAP or TUN each, made by `tap(side)`; the descriptors of left and right
    /// come with them. The caller forwards between them.
    ///
    /// # Errors
    /// As [`with`](Self::with) and [`Tap::open`].
    pub fn taps(
        settings: &Settings,
        tap: impl Fn(Side) -> Tap + Sync,
    ) -> Result<(Self, Vec<OwnedFd>, Vec<OwnedFd>), LabError> {
        Self::with(settings, |side| {
            let tap = tap(side);
            Ok((tap.name().to_owned(), tap.open()?))
        })
    }

    /// Two hosts with the interfaces `names`, left first, which are moved there from the namespace
    /// `from`.
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub fn moved(settings: &Settings, from: &Netns, names: [&str; 2]) -> Result<Self, LabError> {
        let (hosts, (), ()) = Self::with(settings, |side| {
            let (mut rtnl, name) = (from.rtnl()?, side.of(names));
            let index = rtnl.link(name)?.index;
            rtnl.move_to(index, &Netns::current()?)?;
            Ok::<_, LabError>((name.to_owned(), ()))
        })?;
        Ok(hosts)
    }

    /// Two hosts joined by a veth pair, both ends called `veth0`.
    ///
    /// # Errors
    /// As [`Netns::new`] and [`Rtnl`]'s methods.
    pub fn veth(settings: &Settings) -> Result<Self, LabError> {
        check(settings)?;
        let (left, right) = (Netns::new()?, Netns::new()?);
        left.rtnl()?.create_veth("veth0", "veth0", &right, 1)?;
        for (netns, side) in [(&left, Side::Left), (&right, Side::Right)] {
            netns.run(|| bring_up(&mut Rtnl::open()?, "veth0", side, settings))??;
        }
        let left = Host::address(Side::Left, left, "veth0")?;
        let right = Host::address(Side::Right, right, "veth0")?;
        Ok(Self { left, right })
    }

    /// Two hosts whose veth interfaces, both called `veth0`, are joined by a bridge in a third
    /// namespace, which exists as long as the returned value. Quiet as the hosts' interfaces are,
    /// the bridge learns addresses from the first packets.
    ///
    /// # Errors
    /// As [`veth`](Self::veth), and [`Rtnl::create_bridge`].
    pub fn bridge(settings: &Settings) -> Result<(Self, Netns), LabError> {
        check(settings)?;
        let middle = Netns::new()?;
        let mut bridges = middle.rtnl()?;
        bridges.create_bridge("bridge0")?;
        let bridge = bridges.link("bridge0")?.index;
        bridges.set_mtu(bridge, settings.mtu)?;
        bridges.set_up(bridge)?;
        let make = |side: Side, port: &str| {
            let netns = Netns::new()?;
            netns.rtnl()?.create_veth("veth0", port, &middle, 1)?;
            let mut bridges = middle.rtnl()?;
            let index = bridges.link(port)?.index;
            bridges.set_mtu(index, settings.mtu)?;
            bridges.set_bridge(index, bridge)?;
            bridges.set_up(index)?;
            netns.run(|| bring_up(&mut Rtnl::open()?, "veth0", side, settings))??;
            Ok::<_, LabError>(netns)
        };
        let (left, right) = (make(Side::Left, "port-a")?, make(Side::Right, "port-b")?);
        let left = Host::address(Side::Left, left, "veth0")?;
        let right = Host::address(Side::Right, right, "veth0")?;
        Ok((Self { left, right }, middle))
    }

    /// The host of a side.
    pub fn host(&self, side: Side) -> &Host {
        side.of([&self.left, &self.right])
    }
}

/// The MTUs of [`Settings`]. 1280: RFC 8200 section 5. 65521: 65535 less the Ethernet header, the
/// most a TAP takes.
pub(crate) const MTU: RangeInclusive<u64> = 1280..=65_521;

fn check(settings: &Settings) -> Result<(), LabError> {
    if !MTU.contains(&settings.mtu.into()) {
        return Err(LabError::Setting("mtu is 1280 to 65521"));
    }
    if settings.tx_queue_len == 0 {
        return Err(LabError::Setting("tx_queue_len is at least 1"));
    }
    Ok(())
}

/// Configures the link itself and sets it up. Runs in the host's namespace: sysctl files are those
/// of the calling thread's.
fn bring_up(rtnl: &mut Rtnl, name: &str, side: Side, settings: &Settings) -> Result<(), LabError> {
    let Link { index, mac, .. } = rtnl.link(name)?;
    link::quiet_ipv6(name)?;
    rtnl.set_mtu(index, settings.mtu)?;
    rtnl.set_tx_queue_len(index, settings.tx_queue_len)?;
    // A TUN has no link layer and no addresses to resolve.
    if mac.is_some() {
        // Before the addresses: adding them joins multicast groups, and sends reports.
        rtnl.set_arp(index, !settings.quiet)?;
    }
    if let Some(rate) = settings.line_rate {
        rtnl.set_line_rate(index, rate)?;
    }
    rtnl.set_up(index)?;
    if mac.is_some() {
        // Not earlier: QEMU's vmxnet3 filters by its first address whenever its driver starts it,
        // which is when it is set up, and the driver tells it no other one then.
        rtnl.set_mac(index, side.mac())?;
    }
    Ok(())
}

/// Polls until `done`, because a part of the kernel's set-up runs in work queues.
fn wait(mut done: impl FnMut() -> Result<bool, LabError>) -> Result<(), LabError> {
    let start = Instant::now();
    while !done()? {
        if start.elapsed() >= SETTLE {
            return Err(LabError::Stalled {
                what: "link setup",
                after: SETTLE,
                bytes: 0,
            });
        }
        thread::sleep(Duration::from_micros(500));
    }
    Ok(())
}
