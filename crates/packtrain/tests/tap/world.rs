//! A network namespace for each test, and the kernel calls that configure it.

#![allow(
    unsafe_code,
    reason = "namespaces, ioctls and netlink have no safe wrapper"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_short, c_uint, c_ulong};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// The longest wait for an expected event. On a busy machine the kernel's work queues, which remove
/// a namespace or give an IPv6 address its route, may be late by many seconds.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Set in a copy of this program that runs in a user namespace of its own.
const IN_USER_NAMESPACE: &str = "PACKTRAIN_TEST_IN_USER_NAMESPACE";

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn expect(result: c_int, what: &str) -> c_int {
    check(result).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Waits until `done`, and panics with `what` when that does not happen.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < TIMEOUT, "{what}: not in {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// [`in_namespace_as`] for a closure in the function of a test, whose name is in its type.
pub fn in_namespace<F: FnOnce() + Send + 'static>(test: F) {
    let name = std::any::type_name::<F>();
    let name = name
        .split_once("::")
        .and_then(|(_, name)| name.rsplit_once("::"));
    in_namespace_as(name.expect("crate::test::{{closure}}").0, test);
}

/// Runs `test` on a thread of its own in a fresh network namespace, as root or in a user namespace.
/// If neither is possible, or there is no /dev/net/tun, it prints that and returns.
pub fn in_namespace_as(name: &str, test: impl FnOnce() + Send + 'static) {
    if let Err(error) = File::options().read(true).write(true).open("/dev/net/tun") {
        println!("SKIP: {name}: /dev/net/tun: {error}");
        return;
    }
    let thread = std::thread::spawn(|| {
        enter_fresh_namespace()?;
        test();
        Ok(())
    });
    let result: io::Result<()> = match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    match result {
        Ok(()) => {}
        Err(error) if std::env::var_os(IN_USER_NAMESPACE).is_some() => {
            println!("SKIP: {name}: no network namespace in a user namespace either: {error}");
        }
        Err(_unprivileged) => rerun(name),
    }
}

/// A fresh network namespace for this thread, with as little background traffic as possible.
pub fn enter_fresh_namespace() -> io::Result<()> {
    // SAFETY: takes no memory, and changes this thread alone.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    // Neighbour and router discovery would only mix with the test's packets. If /proc/sys is
    // read-only the tests still pass, since they look for their own packets.
    for which in ["default", "all"] {
        for (setting, value) in [
            ("router_solicitations", "0"),
            ("accept_dad", "0"),
            ("dad_transmits", "0"),
            ("accept_ra", "0"),
            // No link-local address, and no groups to be joined and reported for it.
            ("addr_gen_mode", "1"),
        ] {
            let path = format!("/proc/sys/net/ipv6/conf/{which}/{setting}");
            std::fs::write(path, value).unwrap_or(());
        }
    }
    Ok(())
}

/// Writes a file of a sysfs that shows this thread's network namespace. Only a mount made in the
/// namespace does, so a thread makes one in a mount namespace of its own. A child process would
/// hold the other tests' interfaces between fork and exec.
pub fn write_sysfs(file: &str, value: &str) -> io::Result<()> {
    let write = || {
        // SAFETY: takes no memory, and changes this thread alone.
        check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
        mount(c"none", c"/", c"none", libc::MS_REC | libc::MS_PRIVATE)?;
        mount(c"none", c"/sys", c"sysfs", 0)?;
        std::fs::write(format!("/sys/{file}"), value)
    };
    let result = std::thread::scope(|scope| scope.spawn(write).join());
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: c_ulong) -> io::Result<()> {
    let [source, target, kind] = [source, target, kind].map(CStr::as_ptr);
    // SAFETY: three strings that live during the call. These kinds of mounts take no data.
    check(unsafe { libc::mount(source, target, kind, flags, std::ptr::null()) }).map(drop)
}

/// Runs one test again in a user namespace. Only a process with a single thread can enter one, so
/// it does between fork and exec.
fn rerun(name: &str) {
    let program = std::env::current_exe().expect("this program's path");
    // SAFETY: plain calls without arguments.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let maps = [
        (c"/proc/self/setgroups", "deny".to_owned()),
        (c"/proc/self/uid_map", format!("0 {uid} 1")),
        (c"/proc/self/gid_map", format!("0 {gid} 1")),
    ];
    let mut command = Command::new(program);
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command.env(IN_USER_NAMESPACE, "1");
    // SAFETY: the closure makes system calls only, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            check(libc::unshare(libc::CLONE_NEWUSER))?;
            for (path, text) in &maps {
                let fd = check(libc::open(path.as_ptr(), libc::O_WRONLY))?;
                let written = libc::write(fd, text.as_ptr().cast(), text.len());
                if usize::try_from(written) != Ok(text.len()) {
                    return Err(io::Error::last_os_error());
                }
                libc::close(fd);
            }
            Ok(())
        });
    }
    match command.output() {
        Err(error) => println!("SKIP: {name}: no user namespace: {error}"),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            // The harness may have written the test's name in front.
            for line in text.lines() {
                let said = ["SKIP: ", "not applicable: "].iter();
                if let Some(at) = said.filter_map(|words| line.find(words)).min() {
                    println!("{}", &line[at..]);
                }
            }
            // With a name that is not a test's, the harness runs nothing and succeeds.
            let ran = text.contains("test result: ok. 1 passed;");
            assert!(
                output.status.success() && ran,
                "{name} in a user namespace:\n{text}{errors}"
            );
        }
    }
}

/// Keeps a network namespace alive, and lets threads enter it.
pub struct Namespace(File);

impl Namespace {
    /// The namespace of this thread.
    pub fn current() -> Self {
        Self(File::open("/proc/thread-self/ns/net").expect("this thread's namespace"))
    }

    /// A fresh namespace; this thread stays in its own.
    pub fn fresh() -> Self {
        std::thread::spawn(|| {
            enter_fresh_namespace().expect("a further network namespace");
            Self::current()
        })
        .join()
        .expect("no panic")
    }

    /// Runs `act` in the namespace.
    pub fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: takes no memory, and changes this thread alone.
                let entered = unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) };
                expect(entered, "setns");
                act()
            });
            match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

fn socket(family: c_int) -> OwnedFd {
    // SAFETY: takes no memory.
    let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    // SAFETY: the kernel has just made the descriptor for this process.
    unsafe { OwnedFd::from_raw_fd(expect(fd, "socket")) }
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: integers and a pointer that may be null.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    assert!(name.len() < request.ifr_name.len());
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    request
}

fn interface_ioctl(call: c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    let socket = socket(libc::AF_INET);
    // SAFETY: the kernel reads and writes one `ifreq`.
    unsafe {
        check(libc::ioctl(
            socket.as_raw_fd(),
            call as libc::Ioctl,
            request,
        ))
    }?;
    Ok(())
}

/// The interface's flags; `None` when it does not exist in this namespace.
pub fn flags(name: &str) -> Option<c_int> {
    let mut request = request(name);
    interface_ioctl(libc::SIOCGIFFLAGS as c_ulong, &mut request).ok()?;
    // SAFETY: the kernel wrote this field.
    Some(unsafe { request.ifr_ifru.ifru_flags }.into())
}

/// How many packets the kernel keeps for each queue of the interface.
pub fn queue_length(name: &str) -> c_int {
    let mut request = request(name);
    interface_ioctl(libc::SIOCGIFTXQLEN as c_ulong, &mut request).expect("SIOCGIFTXQLEN");
    // SAFETY: the kernel wrote this field.
    unsafe { request.ifr_ifru.ifru_metric }
}

/// Sets the interface up or down.
pub fn set_up(name: &str, up: bool) {
    let mut request = request(name);
    let now = flags(name).expect("the interface exists");
    let wanted = if up {
        now | libc::IFF_UP
    } else {
        now & !libc::IFF_UP
    };
    request.ifr_ifru.ifru_flags = wanted as c_short;
    interface_ioctl(libc::SIOCSIFFLAGS as c_ulong, &mut request).expect("SIOCSIFFLAGS");
}

pub fn set_mtu(name: &str, bytes: c_int) {
    let mut request = request(name);
    request.ifr_ifru.ifru_mtu = bytes;
    interface_ioctl(libc::SIOCSIFMTU as c_ulong, &mut request).expect("an MTU");
}

/// Gives the interface 198.18.`net`.`host`/24 and fd00:`net`::`host`/64, and sets it up. On return
/// the kernel has acted on all of it.
pub fn configure(name: &str, net: u8, host: u8) {
    set_up(name, true);
    for (call, address) in [
        (libc::SIOCSIFADDR, [198, 18, net, host]),
        (libc::SIOCSIFNETMASK, [255, 255, 255, 0]),
    ] {
        let mut request = request(name);
        let mut data = [0; 14];
        data[2..6].copy_from_slice(&address.map(|byte: u8| byte as c_char));
        request.ifr_ifru.ifru_addr = libc::sockaddr {
            sa_family: libc::AF_INET as u16,
            sa_data: data,
        };
        interface_ioctl(call as c_ulong, &mut request).expect("an IPv4 address");
    }
    let mut address = [0_u8; 16];
    (address[0], address[3], address[15]) = (0xfd, net, host);
    add_ipv6_address(name, address);
    // The kernel makes the address its own a little later, even without duplicate detection: when
    // the route to it exists. It also notices in a work queue that the link runs.
    let digits: String = address.iter().map(|byte| format!("{byte:02x}")).collect();
    let route = format!("{digits} 80 ");
    wait_until("a route to the address", || {
        let routes = std::fs::read_to_string("/proc/thread-self/net/ipv6_route");
        let routes = routes.expect("/proc");
        routes.lines().any(|line| line.starts_with(&route))
    });
    wait_until_running(name);
}

/// Waits until the TUN or TAP accepts packets: packets sent before are lost.
fn wait_until_running(name: &str) {
    wait_until("the link to run", || {
        flags(name).expect("the interface exists") & libc::IFF_RUNNING != 0
    });
}

pub fn interface_index(name: &str) -> Option<u32> {
    let name = CString::new(name).expect("no zero byte");
    // SAFETY: a C string that lives until the call returns.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => None,
        index => Some(index),
    }
}

fn add_ipv6_address(name: &str, address: [u8; 16]) {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const IFA_F_NODAD: u8 = 2;
    let index = interface_index(name).expect("the interface exists");
    let mut body = vec![libc::AF_INET6 as u8, 64, IFA_F_NODAD, 0];
    body.extend(index.to_ne_bytes());
    push_attribute(&mut body, IFA_LOCAL, &address);
    push_attribute(&mut body, IFA_ADDRESS, &address);
    netlink(
        libc::RTM_NEWADDR,
        (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16,
        &body,
    );
}

fn link_message(name: &str) -> Vec<u8> {
    let index = interface_index(name).expect("the interface exists");
    let mut body = vec![0; 16];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body
}

fn push_attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((4 + value.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Makes a veth pair, both ends down.
pub fn create_veth(name: &str, peer: &str) {
    const VETH_INFO_PEER: u16 = 1;
    let named = |name: &str| {
        let mut link = vec![0; 16];
        push_attribute(
            &mut link,
            libc::IFLA_IFNAME,
            &[name.as_bytes(), &[0]].concat(),
        );
        link
    };
    let nested = |kind, value: &[u8]| {
        let mut attribute = vec![];
        push_attribute(&mut attribute, kind, value);
        attribute
    };
    let peer = nested(libc::IFLA_INFO_DATA, &nested(VETH_INFO_PEER, &named(peer)));
    let info = [nested(libc::IFLA_INFO_KIND, b"veth\0"), peer].concat();
    let mut body = named(name);
    push_attribute(&mut body, libc::IFLA_LINKINFO, &info);
    let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
    netlink(libc::RTM_NEWLINK, flags, &body);
}

/// Makes a bridge, which is down.
pub fn create_bridge(name: &str) -> io::Result<()> {
    // `SIOCBRADDBR` (linux/sockios.h).
    interface_ioctl(0x89a0, &mut request(name))
}

/// Makes the interface a port of a bridge.
pub fn add_to_bridge(bridge: &str, name: &str) {
    let mut request = request(bridge);
    request.ifr_ifru.ifru_ifindex = interface_index(name).expect("the interface exists") as c_int;
    // `SIOCBRADDIF`.
    interface_ioctl(0x89a2, &mut request).expect("SIOCBRADDIF");
}

/// Has the kernel read and write an ethtool request in `words`.
fn ethtool(name: &str, words: &mut [u32]) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    interface_ioctl(libc::SIOCETHTOOL as c_ulong, &mut request)
}

/// Switches an offload of the interface, by ethtool's name for it. `false` if the kernel does not
/// know it, or it did not change.
pub fn set_feature(name: &str, feature: &str, on: bool) -> bool {
    const ETH_SS_FEATURES: u32 = 4;
    const ETHTOOL_GSSET_INFO: u32 = 0x37;
    const ETHTOOL_GSTRINGS: u32 = 0x1b;
    const ETHTOOL_GFEATURES: u32 = 0x3a;
    const ETHTOOL_SFEATURES: u32 = 0x3b;
    const NAME_WORDS: usize = 8;
    // Command, reserved, a mask of 64 bits, and a number for each of its bits.
    let mut info = [ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0, 0];
    ethtool(name, &mut info).expect("ETHTOOL_GSSET_INFO");
    let count = info[4] as usize;
    let mut strings = vec![0; 3 + count * NAME_WORDS];
    strings[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32]);
    ethtool(name, &mut strings).expect("ETHTOOL_GSTRINGS");
    let is_it = |words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.split(|byte| *byte == 0).next() == Some(feature.as_bytes())
    };
    let Some(bit) = strings[3..].chunks(NAME_WORDS).position(is_it) else {
        return false;
    };
    let blocks = count.div_ceil(32);
    let mut set = vec![0; 2 + blocks * 2];
    set[..2].copy_from_slice(&[ETHTOOL_SFEATURES, blocks as u32]);
    // The mask of the bits that are set here, and their values.
    set[2 + bit / 32 * 2] = 1 << (bit % 32);
    set[3 + bit / 32 * 2] = u32::from(on) << (bit % 32);
    ethtool(name, &mut set).expect("ETHTOOL_SFEATURES");
    // Available, requested, active, never changed.
    let mut get = vec![0; 2 + blocks * 4];
    get[..2].copy_from_slice(&[ETHTOOL_GFEATURES, blocks as u32]);
    ethtool(name, &mut get).expect("ETHTOOL_GFEATURES");
    let active = get[2 + bit / 32 * 4 + 2] >> (bit % 32) & 1;
    active == u32::from(on)
}

/// Sets how many channels of the interface receive, and how many send.
pub fn set_channels(name: &str, rx: u32, tx: u32) {
    /// `ETHTOOL_SCHANNELS`.
    const SET_CHANNELS: u32 = 0x3d;
    // Four maxima, which are not set, and four counts: RX, TX, others, RX and TX.
    let mut words = [SET_CHANNELS, 0, 0, 0, 0, rx, tx, 0, 0];
    ethtool(name, &mut words).expect("ETHTOOL_SCHANNELS");
}

/// Deletes the interface.
pub fn delete(name: &str) {
    netlink(libc::RTM_DELLINK, 0, &link_message(name));
}

/// Moves the interface to another namespace, where it arrives down and without addresses.
pub fn move_to(name: &str, namespace: &Namespace) {
    let mut body = link_message(name);
    let fd = namespace.0.as_raw_fd().to_ne_bytes();
    push_attribute(&mut body, libc::IFLA_NET_NS_FD, &fd);
    netlink(libc::RTM_NEWLINK, 0, &body);
}

/// Renames the interface, which must be down.
pub fn rename(name: &str, new: &str) {
    let mut body = link_message(name);
    push_attribute(
        &mut body,
        libc::IFLA_IFNAME,
        &[new.as_bytes(), &[0]].concat(),
    );
    netlink(libc::RTM_NEWLINK, 0, &body);
}

/// Sends one request, and waits for its acknowledgement.
fn netlink(kind: u16, flags: u16, body: &[u8]) {
    let answer = netlink_ask(kind, flags | libc::NLM_F_ACK as u16, body);
    let error = i32::from_ne_bytes(answer[16..20].try_into().expect("four bytes"));
    assert_eq!(
        error,
        0,
        "netlink: {}",
        io::Error::from_raw_os_error(-error)
    );
}

/// The message that describes a link.
fn netlink_get(body: &[u8]) -> Vec<u8> {
    let answer = netlink_ask(libc::RTM_GETLINK, 0, body);
    let kind = u16::from_ne_bytes(answer[4..6].try_into().expect("two bytes"));
    assert_eq!(kind, libc::RTM_NEWLINK, "netlink: an error");
    answer
}

fn netlink_ask(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    // SAFETY: takes no memory.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE) };
    // SAFETY: the kernel has just made the descriptor for this process.
    let mut socket = File::from(unsafe { OwnedFd::from_raw_fd(expect(fd, "netlink socket")) });
    let flags = flags | libc::NLM_F_REQUEST as u16;
    let mut message = Vec::new();
    message.extend((16 + body.len() as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    socket.write_all(&message).expect("a netlink request");
    let mut answer = vec![0_u8; 32 * 1024];
    // SAFETY: the kernel writes within the buffer.
    let got = unsafe { libc::read(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len()) };
    assert!(got >= 20, "a netlink answer");
    answer.truncate(got.unsigned_abs());
    answer
}

/// A static neighbour entry, so that the test need not answer ARP.
pub fn add_neighbour(name: &str, net: u8, host: u8, mac: [u8; 6]) {
    // SAFETY: all integers.
    let mut entry: libc::arpreq = unsafe { std::mem::zeroed() };
    entry.arp_pa.sa_family = libc::AF_INET as u16;
    entry.arp_pa.sa_data[2..6]
        .copy_from_slice(&[198, 18, net, host].map(|byte: u8| byte as c_char));
    entry.arp_ha.sa_family = libc::ARPHRD_ETHER;
    entry.arp_ha.sa_data[..6].copy_from_slice(&mac.map(|byte| byte as c_char));
    entry.arp_flags = 0x02 | 0x04;
    for (to, from) in entry.arp_dev.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    let socket = socket(libc::AF_INET);
    // SAFETY: the kernel reads one `arpreq`.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), 0x8955 as libc::Ioctl, &entry) };
    expect(result, "SIOCSARP");
}

/// The interface's hardware address.
pub fn hardware_address(name: &str) -> [u8; 6] {
    let mut request = request(name);
    interface_ioctl(libc::SIOCGIFHWADDR as c_ulong, &mut request).expect("SIOCGIFHWADDR");
    // SAFETY: the kernel wrote this field.
    let data = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
    std::array::from_fn(|i| data[i] as u8)
}

/// A TUN or TAP descriptor as another program would open it.
pub fn raw_tun(name: &str, flags: c_int) -> io::Result<OwnedFd> {
    let fd = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")?;
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = flags as c_short;
    // SAFETY: the kernel reads and writes one `ifreq`.
    unsafe { check(libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &mut request)) }?;
    Ok(fd.into())
}

/// An ioctl that writes one int.
pub fn get_int(fd: &OwnedFd, request: libc::Ioctl) -> c_int {
    let mut value = 0;
    // SAFETY: the kernel writes one int.
    expect(
        unsafe { libc::ioctl(fd.as_raw_fd(), request, &mut value) },
        "ioctl",
    );
    value
}

/// An ioctl that reads one int.
pub fn set_int(fd: &OwnedFd, request: libc::Ioctl, value: c_int) {
    // SAFETY: the kernel reads one int.
    expect(
        unsafe { libc::ioctl(fd.as_raw_fd(), request, &value) },
        "ioctl",
    );
}

/// An ioctl whose argument is a number.
pub fn set_value(fd: &OwnedFd, request: libc::Ioctl, value: c_uint) {
    let value = c_ulong::from(value);
    // SAFETY: no memory is passed.
    expect(
        unsafe { libc::ioctl(fd.as_raw_fd(), request, value) },
        "ioctl",
    );
}

/// Makes further sends of this socket one GSO packet of `size` bytes for each datagram.
pub fn set_udp_segment(socket: &impl AsRawFd, size: c_int) {
    // SAFETY: the kernel reads one int.
    let result = unsafe {
        let value = (&raw const size).cast();
        let bytes = size_of::<c_int>() as libc::socklen_t;
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            value,
            bytes,
        )
    };
    expect(result, "UDP_SEGMENT");
}

/// A packet socket on one interface: the other side of a port. Every packet has a virtio-net header
/// of 10 bytes, in the machine's byte order, in front (packet(7)).
pub struct PacketSocket {
    fd: OwnedFd,
    index: c_int,
}

/// Bytes that a packet socket may keep for its reader: more than a test has in flight.
const PACKET_SOCKET_BYTES: c_int = 8 << 20;
/// `TP_STATUS_VLAN_VALID` and `TP_STATUS_VLAN_TPID_VALID` (linux/if_packet.h).
const VLAN_VALID: u32 = (1 << 4) | (1 << 6);
/// `PACKET_IGNORE_OUTGOING` (Linux 4.20).
const PACKET_IGNORE_OUTGOING: c_int = 23;

impl PacketSocket {
    /// A socket that reads the packets that interface `name` receives from now on, and sends by it.
    pub fn open(name: &str) -> Self {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes no memory. Protocol 0: nothing arrives before it is bound.
        let fd = expect(unsafe { libc::socket(libc::AF_PACKET, kind, 0) }, "socket");
        // SAFETY: the kernel has just made the descriptor for this process.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let index = interface_index(name).expect("the interface exists") as c_int;
        let socket = Self { fd, index };
        for (option, what) in [
            (libc::PACKET_VNET_HDR, "PACKET_VNET_HDR"),
            (libc::PACKET_AUXDATA, "PACKET_AUXDATA"),
            (PACKET_IGNORE_OUTGOING, "PACKET_IGNORE_OUTGOING"),
        ] {
            expect(socket.set(libc::SOL_PACKET, option, 1), what);
        }
        // Beyond the system's limit, if permitted; else the limit must suffice.
        if socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, PACKET_SOCKET_BYTES) < 0 {
            let set = socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, PACKET_SOCKET_BYTES);
            expect(set, "SO_RCVBUF");
        }
        let address = socket.address(libc::ETH_P_ALL as u16);
        let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel reads one address of that size.
        let bound =
            unsafe { libc::bind(socket.fd.as_raw_fd(), (&raw const address).cast(), bytes) };
        expect(bound, "bind");
        socket
    }

    /// The socket itself.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    fn set(&self, level: c_int, option: c_int, value: c_int) -> c_int {
        let bytes = size_of::<c_int>() as libc::socklen_t;
        let value = (&raw const value).cast();
        // SAFETY: the kernel reads one int.
        unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, option, value, bytes) }
    }

    fn address(&self, ethertype: u16) -> libc::sockaddr_ll {
        // SAFETY: all integers.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ethertype.to_be();
        address.sll_ifindex = self.index;
        address
    }

    /// Has the interface send a packet of this Ethernet type, its header in front.
    pub fn send(&self, ethertype: u16, bytes: &[u8]) -> io::Result<()> {
        let address = self.address(ethertype);
        // SAFETY: the kernel reads the buffer and one address, each of the size given.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                0,
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        match usize::try_from(sent) {
            Ok(sent) => {
                assert_eq!(sent, bytes.len());
                Ok(())
            }
            Err(_negative) => Err(io::Error::last_os_error()),
        }
    }

    /// The next packet that the interface received, its header in front, and the tag (protocol,
    /// control) that the kernel took off it. `None` when there is none now.
    pub fn receive(&self) -> Option<(Vec<u8>, Option<[u16; 2]>)> {
        let mut bytes = vec![0_u8; 10 + 65_600];
        let mut control = [0_u64; 16];
        let mut piece = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: integers and pointers that may be null.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // SAFETY: the kernel writes within the two buffers, which live until the end.
        let got = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, 0) };
        let Ok(got) = usize::try_from(got) else {
            let error = io::Error::last_os_error();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
            return None;
        };
        bytes.truncate(got);
        let mut tag = None;
        // SAFETY: walks the control messages that the kernel wrote, by its own macros.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        while !next.is_null() {
            // SAFETY: not null, so it is a whole header within the buffer.
            let header = unsafe { *next };
            if (header.cmsg_level, header.cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
                // SAFETY: the kernel puts one `tpacket_auxdata` behind this header.
                let data: libc::tpacket_auxdata = unsafe {
                    libc::CMSG_DATA(next)
                        .cast::<libc::tpacket_auxdata>()
                        .read_unaligned()
                };
                let tagged = data.tp_status & VLAN_VALID == VLAN_VALID;
                tag = tagged.then_some([data.tp_vlan_tpid, data.tp_vlan_tci]);
            }
            // SAFETY: as above.
            next = unsafe { libc::CMSG_NXTHDR(&raw const message, next) };
        }
        Some((bytes, tag))
    }
}

/// A packet socket without any option, of no interface. With protocol 0 nothing arrives; with
/// `ETH_P_ALL`, all packets of all interfaces.
pub fn unbound_packet_socket(protocol: c_int) -> OwnedFd {
    let protocol = c_int::from((protocol as u16).to_be());
    // SAFETY: takes no memory.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, protocol) };
    // SAFETY: the kernel has just made the descriptor for this process.
    unsafe { OwnedFd::from_raw_fd(expect(fd, "socket")) }
}

/// Has the socket receive only packets with the value `value` in byte `at`.
pub fn accept_only(socket: &OwnedFd, at: u32, value: u32) {
    // `BPF_LD | BPF_B | BPF_ABS`, `BPF_JMP | BPF_JEQ | BPF_K`, `BPF_RET | BPF_K`.
    let steps = [
        (0x30, 0, at),
        (0x15, 1, value),
        (0x06, 0, u32::MAX),
        (0x06, 0, 0),
    ];
    let mut program = steps.map(|(code, jf, k)| libc::sock_filter { code, jt: 0, jf, k });
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel reads a description of a program, which lives until the call returns.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    expect(set, "SO_ATTACH_FILTER");
}

/// Has the socket receive into a ring of one block.
pub fn make_ring(socket: &OwnedFd) {
    let ring = libc::tpacket_req {
        tp_block_size: 4096,
        tp_block_nr: 1,
        tp_frame_size: 2048,
        tp_frame_nr: 2,
    };
    // SAFETY: the kernel reads a description of a ring, which lives until the call returns.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_RX_RING,
            (&raw const ring).cast(),
            size_of_val(&ring) as libc::socklen_t,
        )
    };
    expect(set, "PACKET_RX_RING");
}

/// How many users have made the interface promiscuous.
pub fn promiscuity(name: &str) -> u32 {
    /// `IFLA_PROMISCUITY` (linux/if_link.h).
    const PROMISCUITY: u16 = 30;
    let answer = netlink_get(&link_message(name));
    let mut rest = &answer[32..];
    while let [low, high, kind_low, kind_high, ..] = *rest {
        let bytes = usize::from(u16::from_ne_bytes([low, high]));
        if u16::from_ne_bytes([kind_low, kind_high]) == PROMISCUITY {
            return u32::from_ne_bytes(rest[4..8].try_into().expect("four bytes"));
        }
        rest = rest.get(bytes.next_multiple_of(4)..).unwrap_or(&[]);
    }
    panic!("the kernel does not report the promiscuity of {name}");
}

/// Waits until frames from each end of a veth pair reach the other. The kernel drops what is sent
/// before its link watch, a work queue, has activated the queue of that end. No flag of the
/// interface says that it has, so frames are sent until one arrives.
pub fn wait_until_connected(near: &PacketSocket, far: &PacketSocket) {
    /// An Ethernet type for local experiments.
    const PROBE: u16 = 0x88B5;
    let mut probe = vec![0; 10];
    probe.extend([0xff; 6]);
    probe.extend([2, 0, 0, 0, 0, 1]);
    probe.extend(PROBE.to_be_bytes());
    probe.extend([0; 64]);
    for (from, to) in [(near, far), (far, near)] {
        wait_until("a frame comes through the veth", || {
            from.send(PROBE, &probe).expect("room in a queue");
            to.receive().is_some()
        });
    }
}

/// Asks whether the descriptor is readable, as an event loop does.
pub fn poll_once(fd: BorrowedFd<'_>) {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure, which lives until the call returns.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    assert!(ready >= 0, "poll: {}", io::Error::last_os_error());
}

/// Whether an XDP program is attached to the interface.
pub fn has_xdp_program(name: &str) -> bool {
    /// `IFLA_XDP` and, in it, `IFLA_XDP_ATTACHED` (linux/if_link.h).
    const XDP: u16 = 43;
    const ATTACHED: u16 = 2;
    const KIND_MASK: u16 = 0x3fff;
    let find = |attributes: &[u8], wanted: u16| -> Option<Vec<u8>> {
        let mut rest = attributes;
        while let [low, high, kind_low, kind_high, ..] = *rest {
            let bytes = usize::from(u16::from_ne_bytes([low, high]));
            if u16::from_ne_bytes([kind_low, kind_high]) & KIND_MASK == wanted {
                return Some(rest[4..bytes].to_vec());
            }
            rest = rest.get(bytes.next_multiple_of(4)..).unwrap_or(&[]);
        }
        None
    };
    let answer = netlink_get(&link_message(name));
    let xdp = find(&answer[32..], XDP).expect("the kernel reports XDP");
    find(&xdp, ATTACHED).is_some_and(|mode| mode[0] != 0)
}

/// An AF_XDP socket, or why there is none.
pub fn xdp_socket() -> io::Result<OwnedFd> {
    // SAFETY: takes no memory.
    let fd = check(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW, 0) })?;
    // SAFETY: the kernel has just made the descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The socket may be bound to this interface only (`SO_BINDTODEVICE`).
pub fn tie_to_interface(socket: &OwnedFd, name: &str) {
    let (fd, option) = (socket.as_raw_fd(), libc::SO_BINDTODEVICE);
    let (at, bytes) = (name.as_ptr().cast(), name.len() as libc::socklen_t);
    // SAFETY: the kernel reads that many bytes of the name.
    let tied = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, at, bytes) };
    expect(tied, "SO_BINDTODEVICE");
}

/// A map of the kernel (`BPF_MAP_CREATE`) whose keys and values have four bytes.
pub fn bpf_map(kind: u32, entries: u32) -> io::Result<OwnedFd> {
    bpf(0, &[kind, 4, 4, entries].map(u32::to_ne_bytes).concat())
}

/// Kinds of maps (linux/bpf.h): of numbers, and of AF_XDP sockets.
pub const MAP_ARRAY: u32 = 2;
pub const MAP_XSK: u32 = 17;

/// An XDP program of another process, in the driver of the interface, until it is dropped: what
/// arrives in a queue goes to the queue's socket in the map, and without one to the stack.
pub fn attach_redirect(name: &str, map: &OwnedFd) -> io::Result<OwnedFd> {
    // r2 = the queue; r1 = the map; r3 = XDP_PASS; bpf_redirect_map(); exit. Each instruction is a
    // code, two registers, an offset and a number.
    let code: [(u8, u8, i16, i32); 6] = [
        (0x61, 0x12, 16, 0),
        (0x18, 0x11, 0, map.as_raw_fd()),
        (0, 0, 0, 0),
        (0xb7, 3, 0, 2),
        (0x85, 0, 0, 51),
        (0x95, 0, 0, 0),
    ];
    let code = code.map(|(code, registers, offset, number)| {
        let head = [&[code, registers][..], &offset.to_le_bytes()].concat();
        [head, number.to_le_bytes().to_vec()].concat()
    });
    let code = code.concat();
    let (kind, count) = (6_u32, 6_u32);
    let license = c"MIT".as_ptr().addr() as u64;
    let places = [code.as_ptr().addr() as u64, license].map(u64::to_ne_bytes);
    let load = [
        [kind, count].map(u32::to_ne_bytes).concat(),
        places.concat(),
    ]
    .concat();
    let program = bpf(5, &load)?;
    let index = interface_index(name).expect("the interface exists");
    // `BPF_XDP` and `XDP_FLAGS_DRV_MODE`. The program stays with the link.
    let link = [program.as_raw_fd().cast_unsigned(), index, 37, 1 << 2];
    bpf(28, &link.map(u32::to_ne_bytes).concat())
}

/// A command of bpf(2) that makes a descriptor. Addresses in its attributes are valid.
fn bpf(command: c_int, attributes: &[u8]) -> io::Result<OwnedFd> {
    let (at, bytes) = (attributes.as_ptr(), attributes.len());
    // SAFETY: the kernel reads the attributes, and by their addresses what the callers keep alive.
    let fd = check(unsafe { libc::syscall(libc::SYS_bpf, command, at, bytes) } as c_int)?;
    // SAFETY: the kernel has just made the descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes all capabilities from this thread but that for packet sockets.
pub fn drop_capabilities_but_raw() {
    drop_capabilities_but(rustix::thread::CapabilitySet::NET_RAW);
}

/// Takes all capabilities from this thread.
pub fn drop_capabilities() {
    drop_capabilities_but(rustix::thread::CapabilitySet::empty());
}

fn drop_capabilities_but(kept: rustix::thread::CapabilitySet) {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).expect("fewer capabilities");
}

/// A UDP datagram to port 9 from port `flow`, with a checksum of 0.
pub fn datagram(mac: [u8; 6], flow: u16) -> Vec<u8> {
    let mut ip = vec![
        0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 2, 1, 198, 18, 2, 2,
    ];
    let sum = packtrain_offload::checksum::sum(&ip).finish().to_be_bytes();
    ip[10..12].copy_from_slice(&sum);
    let udp = [flow.to_be_bytes(), [0, 9], [0, 26], [0, 0]].concat();
    let frame = [mac, [2, 0, 0, 0, 9, 1]].concat();
    [frame, vec![8, 0], ip, udp, vec![7; 18]].concat()
}
