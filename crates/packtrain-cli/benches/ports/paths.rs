//! The paths, what joins each, and the goals.

use crate::figures::Figure;

/// The device of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A veth, whose other end is the forwarder's interface.
    Veth,
    /// A TAP that the forwarder creates.
    Tap,
}

/// The ends of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Two hosts with a kernel. A veth is left of a TAP: its interface exists before the forwarder
    /// starts, which makes the TAP.
    Hosts([End; 2]),
    /// Two network devices of a DPDK program, the front ends of vhost-user ports.
    FrontEnds,
}

/// The interfaces of the forwarder, left first; a TAP has this name in its host, too.
pub const INTERFACES: [&str; 2] = ["port-a", "port-b"];
/// The third port of a bridge, at which there is no host.
pub const THIRD: &str = "port-c";
/// In specs and devices it stands for the folder of the sockets.
pub const SOCKETS: &str = "@";

/// packtrain with one worker that polls on a CPU of its own.
const POLL: &str = "packtrain-poll";

/// What joins the ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// `packtrain forward` with these ports and options.
    Packtrain(Vec<&'static str>),
    /// `dpdk-testpmd` that forwards between these devices.
    Testpmd([&'static str; 2]),
    /// The laboratory's forwarder in C, between two TAPs with offloads.
    C,
    /// The kernel's bridge, with veths to the hosts and this many ports.
    Bridge(usize),
}

/// One of those that are compared.
#[derive(Clone, Debug)]
pub struct Contestant {
    /// As in rows.
    pub name: &'static str,
    /// What it runs.
    pub program: Program,
    /// Whether the hosts' veths have checksum offload, TSO and GSO; `None` without veths.
    pub far_offloads: Option<bool>,
}

impl Contestant {
    /// Whether it is packtrain.
    pub fn is_ours(&self) -> bool {
        matches!(self.program, Program::Packtrain(_))
    }

    /// The offloads of the hosts' veths, as in rows.
    pub fn far(&self) -> &'static str {
        match self.far_offloads {
            Some(true) => "on",
            Some(false) => "off",
            None => "-",
        }
    }
}

/// A goal.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// The contestant that has it.
    pub ours: &'static str,
    /// Of what.
    pub figure: Figure,
    /// The contestant that it is compared with.
    pub beside: &'static str,
    /// The least ratio.
    pub least: f64,
}

/// A path.
#[derive(Clone, Debug)]
pub struct Path {
    /// As in rows and for `--only`.
    pub name: &'static str,
    /// In words.
    pub about: &'static str,
    /// What is joined.
    pub ends: Ends,
    /// Packtrain first.
    pub contestants: Vec<Contestant>,
    /// The goals.
    pub goals: Vec<Goal>,
}

fn packtrain(ports: &[&'static str], far_offloads: Option<bool>) -> Contestant {
    Contestant {
        name: "packtrain",
        program: Program::Packtrain(ports.to_vec()),
        far_offloads,
    }
}

fn testpmd(devices: [&'static str; 2], far_offloads: Option<bool>) -> Contestant {
    Contestant {
        name: "testpmd",
        program: Program::Testpmd(devices),
        far_offloads,
    }
}

fn bridge(ports: usize) -> Contestant {
    Contestant {
        name: "bridge",
        program: Program::Bridge(ports),
        far_offloads: Some(true),
    }
}

/// All of them.
pub fn all() -> Vec<Path> {
    let goal = |figure, beside, least| Goal {
        ours: "packtrain",
        figure,
        beside,
        least,
    };
    let (taps, veths) = ([End::Tap; 2], [End::Veth; 2]);
    let mixed = [End::Veth, End::Tap];
    vec![
        Path {
            name: "tap-tap",
            about: "two TAPs; the bridge has veths",
            ends: Ends::Hosts(taps),
            contestants: vec![
                packtrain(&["tap:port-a", "tap:port-b"], None),
                Contestant {
                    name: "c",
                    program: Program::C,
                    far_offloads: None,
                },
                bridge(2),
            ],
            goals: vec![],
        },
        Path {
            name: "three-taps",
            about: "a bridge of three TAPs, one without traffic; that of the kernel has veths",
            ends: Ends::Hosts(taps),
            contestants: vec![
                packtrain(&["tap:port-a", "tap:port-b", "tap:port-c"], None),
                bridge(3),
            ],
            goals: vec![],
        },
        Path {
            name: "packet-tap",
            about: "packet sockets on a veth, to a TAP; the bridge has veths",
            ends: Ends::Hosts(mixed),
            contestants: vec![
                packtrain(&["packet:port-a", "tap:port-b"], Some(true)),
                bridge(2),
            ],
            goals: vec![],
        },
        Path {
            name: "packet-packet",
            about: "packet sockets on two veths; testpmd with its driver af_packet, which carries \
                    no offloads, so that the hosts do without",
            ends: Ends::Hosts(veths),
            contestants: vec![
                packtrain(&["packet:port-a", "packet:port-b"], Some(true)),
                testpmd(
                    ["net_af_packet0,iface=port-a", "net_af_packet1,iface=port-b"],
                    Some(false),
                ),
                bridge(2),
            ],
            goals: vec![
                goal(Figure::Tcp1, "testpmd", 1.5),
                goal(Figure::Tcp8, "testpmd", 1.5),
            ],
        },
        Path {
            name: "xdp-xdp",
            about: "AF_XDP sockets on two veths, hosts without offloads; testpmd with its driver \
                    af_xdp. `packtrain-poll` is set up as testpmd: one worker, which polls, with \
                    a CPU",
            ends: Ends::Hosts(veths),
            contestants: vec![
                packtrain(&["xdp:port-a", "xdp:port-b"], Some(false)),
                Contestant {
                    name: POLL,
                    ..packtrain(
                        &[
                            "xdp:port-a",
                            "xdp:port-b",
                            "--idle=poll",
                            "--placement=list(0)",
                        ],
                        Some(false),
                    )
                },
                testpmd(
                    ["net_af_xdp0,iface=port-a", "net_af_xdp1,iface=port-b"],
                    Some(false),
                ),
            ],
            goals: vec![
                goal(Figure::Packets, "testpmd", 1.0),
                Goal {
                    ours: POLL,
                    ..goal(Figure::Packets, "testpmd", 1.0)
                },
            ],
        },
        Path {
            name: "xdp-packet",
            about: "AF_XDP sockets on a veth, to packet sockets on another; hosts without offloads",
            ends: Ends::Hosts(veths),
            contestants: vec![
                packtrain(&["xdp:port-a", "packet:port-b"], Some(false)),
                bridge(2),
            ],
            goals: vec![],
        },
        Path {
            name: "xdp-tap",
            about: "AF_XDP sockets on a veth, to a TAP, with and without merging; hosts without \
                    offloads",
            ends: Ends::Hosts(mixed),
            contestants: vec![
                packtrain(&["xdp:port-a", "tap:port-b"], Some(false)),
                Contestant {
                    name: "packtrain-unmerged",
                    ..packtrain(&["xdp:port-a,coalesce=off", "tap:port-b"], Some(false))
                },
            ],
            goals: vec![goal(Figure::Tcp1, "packtrain-unmerged", 2.0)],
        },
        Path {
            name: "vhost-vhost",
            about: "vhost-user between two devices of one testpmd (virtio-user), which sends and \
                    receives on both; testpmd with its driver vhost. `packtrain-poll` is set up \
                    as testpmd: one worker, which polls, with a CPU",
            ends: Ends::FrontEnds,
            contestants: vec![
                packtrain(&["vhost-user:@/a,server", "vhost-user:@/b,server"], None),
                Contestant {
                    name: POLL,
                    ..packtrain(
                        &[
                            "vhost-user:@/a,server,offload=off",
                            "vhost-user:@/b,server,offload=off",
                            "--idle=poll",
                            "--placement=list(0)",
                        ],
                        None,
                    )
                },
                testpmd(["net_vhost0,iface=@/a", "net_vhost1,iface=@/b"], None),
            ],
            goals: vec![
                goal(Figure::Packets, "testpmd", 0.7),
                Goal {
                    ours: POLL,
                    ..goal(Figure::Packets, "testpmd", 1.0)
                },
            ],
        },
    ]
}
