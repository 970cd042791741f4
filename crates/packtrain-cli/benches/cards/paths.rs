//! What is compared: packtrain's driver beside the guest kernel's, with the same packets.

use crate::bed::{Bed, Error, Work, traffic_control};

/// Keys of a source of TCP.
const TCP: &str = ",proto=tcp";

/// What a path does, by each contestant. The first one is packtrain's driver.
pub struct Path {
    pub name: &'static str,
    pub about: &'static str,
    pub contestants: Vec<Contestant>,
}

/// One way of it.
pub struct Contestant {
    pub name: &'static str,
    /// Lines of the guest's shell before and after all of its runs.
    pub setup: String,
    pub cleanup: String,
    pub work: Work,
    /// It is no peer, but what packtrain does without a driver.
    pub is_share: bool,
}

impl Contestant {
    fn new(name: &'static str, work: Work) -> Self {
        Self {
            name,
            setup: String::new(),
            cleanup: String::new(),
            work,
            is_share: false,
        }
    }

    fn with(mut self, setup: String, cleanup: String) -> Self {
        (self.setup, self.cleanup) = (setup, cleanup);
        self
    }

    fn share(mut self) -> Self {
        self.is_share = true;
        self
    }
}

/// Brings interfaces up, and waits for their link.
fn up(interfaces: &[&str], promiscuous: bool) -> String {
    let promiscuous = if promiscuous { "on" } else { "off" };
    let each = interfaces.iter().map(|name| {
        format!(
            "ip link set {name} promisc {promiscuous} up
            until [ \"$(cat /sys/class/net/{name}/carrier)\" = 1 ]; do sleep 0.05; done
            "
        )
    });
    each.collect()
}

fn down(interfaces: &[&str]) -> String {
    let each = interfaces
        .iter()
        .map(|name| format!("ip link set {name} promisc off down\n"));
    each.collect()
}

/// pktgen(4) of the kernel (`Documentation/networking/pktgen.rst`).
fn pktgen(bed: &Bed, name: &'static str, keys: &[&str]) -> Contestant {
    let interface = bed.interface(0);
    let keys = keys.iter().map(|key| format!("echo '{key}' >$device\n"));
    let keys: String = keys.collect();
    let setup = format!(
        "{}modprobe pktgen
        echo rem_device_all >/proc/net/pktgen/kpktgend_0
        echo 'add_device {interface}' >/proc/net/pktgen/kpktgend_0
        device=/proc/net/pktgen/{interface}
        for key in 'pkt_size 60' 'delay 0' 'dst 198.19.0.1' 'dst_mac 02:00:00:00:00:01'; do
            echo $key >$device
        done
        {keys}",
        up(&[interface], false)
    );
    let line = format!(
        "echo 'count COUNT' >/proc/net/pktgen/{interface}
        echo start >/proc/net/pktgen/pgctrl
        grep -q 'errors: 0' /proc/net/pktgen/{interface}"
    );
    let work = Work {
        line,
        from_host: None,
    };
    let cleanup = "echo rem_device_all >/proc/net/pktgen/kpktgend_0\n".to_owned();
    Contestant::new(name, work).with(setup, cleanup + &down(&[interface]))
}

/// From one card to another.
fn forwards(bed: &Bed, source: &'static str) -> Result<Vec<Contestant>, Error> {
    let (first, second) = (bed.interface(0), bed.interface(1));
    let bridge = format!(
        "{}modprobe bridge
        ip link add br0 type bridge
        ip link set {first} master br0
        ip link set {second} master br0
        ip link set br0 up
        ",
        up(&[first, second], true)
    );
    let unbridge = "ip link del br0\n".to_owned() + &down(&[first, second]);
    let ours = bed.receives(source, &bed.card(1));
    let mut forwards = vec![
        Contestant::new("packtrain e1000e:", ours),
        Contestant::new("bridge", bed.kernel_receives(source)?).with(bridge, unbridge),
    ];
    if traffic_control().is_some() {
        // By its path: BusyBox has one, too.
        let redirect = format!(
            "{}/bin/tc qdisc add dev {first} ingress
            /bin/tc filter add dev {first} ingress protocol ip matchall \
             action mirred egress redirect dev {second}",
            up(&[first, second], true)
        );
        let end = format!("/bin/tc qdisc del dev {first} ingress\n") + &down(&[first, second]);
        let contestant = Contestant::new("tc mirred", bed.kernel_receives(source)?);
        forwards.push(contestant.with(redirect, end));
    } else {
        println!("missing: tc of iproute2, for forwarding by `mirred`");
    }
    Ok(forwards)
}

/// From one card to another by programs that poll.
fn polls(bed: &Bed) -> Vec<Contestant> {
    let ours = |keys| bed.receives_with("--idle poll", keys, "", &bed.card(1));
    // Without merging, as DPDK's driver.
    let mut polls = vec![
        Contestant::new("packtrain, coalesce=off", ours(",coalesce=off")),
        Contestant::new("packtrain e1000e:", ours("")).share(),
    ];
    match bed.testpmd("") {
        Some(testpmd) => polls.push(Contestant::new("testpmd", testpmd)),
        None => println!("missing: testpmd (dpdk-dev), for forwarding by DPDK's driver"),
    }
    polls
}

/// All paths.
pub fn all(bed: &Bed) -> Result<Vec<Path>, Error> {
    let first = bed.interface(0);
    let socket = format!("packet:{first}");
    let direct = format!("packet:{first},qdisc=bypass");
    let alone = |contestant: Contestant| contestant.with(up(&[first], false), down(&[first]));
    let receiving = |contestant: Contestant| contestant.with(up(&[first], true), down(&[first]));
    let mut sending = vec![
        Contestant::new("packtrain e1000e:", bed.sends("", &bed.card(0))),
        alone(Contestant::new("packet socket", bed.sends("", &socket))),
        alone(Contestant::new(
            "packet socket, no qdisc",
            bed.sends("", &direct),
        )),
        Contestant::new("packtrain, no driver", bed.sends("", "null:")).share(),
    ];
    if bed.guest.run("modprobe pktgen")?.success() {
        sending.extend([
            pktgen(bed, "pktgen", &["clone_skb 0"]),
            pktgen(bed, "pktgen, one packet", &["clone_skb 1000000"]),
            pktgen(
                bed,
                "pktgen, one, bursts",
                &["clone_skb 1000000", "burst 32"],
            ),
        ]);
    } else {
        println!("missing: pktgen.ko: fetch the kernel for guests again");
    }
    Ok(vec![
        Path {
            name: "tx 64",
            about: "frames of 64 bytes out of a card",
            contestants: sending,
        },
        Path {
            name: "rx 64",
            about: "frames of 64 bytes into a card",
            contestants: vec![
                Contestant::new("packtrain e1000e:", bed.receives("", "null:")),
                receiving(Contestant::new("packet socket", bed.receives_by_socket())),
                receiving(Contestant::new("dropped by IPv4", bed.kernel_receives("")?)),
            ],
        },
        Path {
            name: "forward 64",
            about: "frames of 64 bytes from one card to another",
            contestants: forwards(bed, "")?,
        },
        Path {
            name: "poll 64",
            about: "the same by programs that poll, without interrupts",
            contestants: polls(bed),
        },
        Path {
            name: "tx tso",
            about: "TCP segments of 1460 bytes, merged to packets that the card cuts",
            contestants: vec![
                Contestant::new("packtrain e1000e:", bed.sends(TCP, &bed.card(0))),
                alone(Contestant::new("packet socket", bed.sends(TCP, &socket))),
            ],
        },
        Path {
            name: "forward tcp",
            about: "TCP segments of 1460 bytes from one card to another, merged and cut again",
            contestants: forwards(bed, TCP)?,
        },
    ])
}
