use super::*;
use crate::LabError;
use crate::error::{Feature, Missing};
use crate::harness::rows;
use packtrain::driver::Features;
use packtrain::port::spec::PortSpec;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// The system's files of a host that lacks nothing, removed at the end.
struct Tree(PathBuf);

const STATUS: &str = "proc/thread-self/status";
const LIMITS: &str = "proc/self/limits";
const MOUNTS: &str = "proc/self/mounts";
const APPARMOR: &str = "kernel.apparmor_restrict_unprivileged_userns";

impl Tree {
    fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("packtrain-doctor-{}-{number}", std::process::id());
        let tree = Self(std::env::temp_dir().join(name));
        tree.file("sys/devices/system/cpu/online", "0-3")
            .file(STATUS, "Name:\tx\nCpus_allowed_list:\t0-3")
            .file("proc/cpuinfo", "flags\t\t: fpu vme sse2")
            .file(
                "proc/meminfo",
                "HugePages_Total:      64\nHugePages_Free:       60",
            )
            .file("proc/misc", "200 tun\n237 loop-control")
            .file("proc/sys/kernel/threads-max", "2000")
            .file("proc/sys/user/max_user_namespaces", "1000")
            .file(
                LIMITS,
                "Max open files            1024       4096      files",
            )
            .file(MOUNTS, "tracefs /sys/kernel/tracing tracefs rw 0 0")
            .file("sys/kernel/tracing/README", "tracing")
            .file("sys/bus/event_source/devices/uprobe/type", "7")
            .file("etc/os-release", "NAME=\"Debian GNU/Linux\"\nID=debian");
        for cpu in 0..4 {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            tree.file(
                &format!("{folder}/topology/thread_siblings_list"),
                &cpu.to_string(),
            )
            .file(&format!("{folder}/topology/physical_package_id"), "0")
            .file(&format!("{folder}/cpufreq/scaling_governor"), "performance");
        }
        tree.file("dev/kvm", "")
            .file("dev/vfio/vfio", "")
            .file("sys/bus/pci/drivers/vfio-pci/bind", "")
            .card("0000:01:00.0", Some("vfio-pci"), 4);
        tree.file(bpftrace().to_str().expect("UTF-8"), "a program");
        tree
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, format!("{text}\n")).expect("a file");
        self
    }

    /// A network card in an IOMMU group of its own, or of several functions.
    fn card(&self, address: &str, driver: Option<&str>, group: u32) -> &Self {
        let folder = format!("sys/bus/pci/devices/{address}");
        let members = format!("sys/kernel/iommu_groups/{group}/devices");
        self.file(&format!("{folder}/class"), "0x020000")
            .file(&format!("{folder}/vendor"), "0x8086")
            .file(&format!("{folder}/device"), "0x10d3")
            .file(&format!("{members}/{address}"), "");
        let link = |from: &str, to: &str| {
            symlink(format!("../../../../../{to}"), self.0.join(from)).expect("a link");
        };
        link(
            &format!("{folder}/iommu_group"),
            &format!("sys/kernel/iommu_groups/{group}"),
        );
        if let Some(driver) = driver {
            link(
                &format!("{folder}/driver"),
                &format!("sys/bus/pci/drivers/{driver}"),
            );
        }
        self
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.0.join(path)).expect("the file is there");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Where the doctor looks first, without the leading slash.
fn bpftrace() -> PathBuf {
    let path = std::env::var_os("PATH").expect("cargo has one");
    let first = std::env::split_paths(&path).find(|folder| folder.is_absolute());
    let first = first.expect("a folder").join("bpftrace");
    first.strip_prefix("/").expect("absolute").to_owned()
}

/// An unprivileged process to which nothing is refused.
fn trials() -> Trials {
    Trials {
        program: "packtrain".to_owned(),
        superuser: false,
        admin: true,
        user_namespace: Some(Ok(())),
        network_namespace: Ok(()),
        laboratory: Ok(()),
        tun_flags: Ok(libc::IFF_NAPI | libc::IFF_NAPI_FRAGS),
        inside: Some(Inside {
            offloads: Ok(Features::CSUM | Features::TSO | Features::USO),
            queues: Ok(()),
            header: Ok(()),
            packet: Ok(()),
            xdp_copy: Ok(()),
        }),
        packet: Ok(()),
        xdp: Ok(()),
        xdp_program: Ok(()),
        io_uring: Ok(()),
        shared_memory: Ok(()),
        packet_bytes: Some(39 << 20),
        huge_pages: true,
        memory: Some(1 << 30),
        receive_buffer: Ok(16 << 20),
        nice_levels: Ok(5),
    }
}

fn missing(feature: Feature, errno: i32) -> Missing {
    let hint = "the hint";
    Missing {
        feature,
        errno,
        hint,
    }
}

/// State, command and detail of a subject.
fn found(report: &Report, subject: &str) -> (State, Option<String>, String) {
    let mut findings = report.findings().map(|(_, finding)| finding);
    let finding = findings.find(|finding| finding.subject == subject);
    let finding = finding.unwrap_or_else(|| panic!("{subject} in {report:#?}"));
    (finding.state, finding.mend.clone(), finding.detail.clone())
}

#[test]
fn a_host_that_lacks_nothing_needs_no_command() {
    let report = report(&Tree::new().0, &trials());
    for (group, finding) in report.findings() {
        let state = if finding.detail.starts_with("not built") {
            State::No
        } else {
            State::Yes
        };
        let expected = (state, &None);
        assert_eq!(
            (finding.state, &finding.mend),
            expected,
            "{group}: {finding:?}"
        );
        assert_eq!(finding.detail.lines().count(), 1, "{finding:?}");
    }
    assert_eq!(report.missing(), None);
    let subjects: BTreeSet<_> = report
        .findings()
        .map(|(_, finding)| finding.subject)
        .collect();
    assert_eq!(subjects.len(), report.findings().count());
}

/// A kind of port that is added needs a finding.
#[test]
fn every_kind_of_port_is_in_the_report() {
    let error = "none:x"
        .parse::<PortSpec>()
        .expect_err("no such kind")
        .to_string();
    let (_, kinds) = error.split_once("the kinds are ").expect("the kinds");
    let kinds: Vec<_> = kinds.split(", ").collect();
    assert!(kinds.len() > 1, "{error}");
    let report = report(&Tree::new().0, &trials());
    for kind in kinds {
        let (state, _, detail) = found(&report, kind);
        assert_eq!(state, State::Yes, "{kind}: {detail}");
    }
}

#[test]
fn each_file_that_limits_has_its_command() {
    let check = |file: &str, text: &str, subject: &str, state: &str, mend: &str| {
        let tree = Tree::new();
        let report = report(&tree.file(file, text).0, &trials());
        let (found, command, detail) = found(&report, subject);
        let found = (found.to_string(), command.unwrap_or_default());
        assert_eq!(found, (state.into(), mend.into()), "{subject}: {detail}");
        // None of them stops the laboratory.
        assert_eq!(report.missing(), None, "{subject}");
    };
    let governor = "sudo sh -c 'echo performance | tee \
                    /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor'";
    let file = "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor";
    check(file, "powersave", "CPU frequency", "limited", governor);
    let smt = "sudo sh -c 'echo off > /sys/devices/system/cpu/smt/control'";
    let file = "sys/devices/system/cpu/cpu1/topology/thread_siblings_list";
    check(file, "0-1", "SMT", "limited", smt);
    check(
        "sys/devices/system/cpu/online",
        "0-1",
        "CPUs",
        "limited",
        "",
    );
    check(
        "proc/cpuinfo",
        "flags\t: fpu hypervisor",
        "bare metal",
        "limited",
        "",
    );
    check("sys/hypervisor/type", "xen", "bare metal", "limited", "");
    for [file, text, subject, state, mend] in rows(
        "
        proc/thread-self/status | Cpus_allowed_list:\t0-2 | CPUs | limited | taskset -cp 0-3 $$
        proc/self/limits | Max open files 40 4096 files | open files | limited | ulimit -n 48
        proc/self/limits | Max open files 40 40 files | open files | limited | HARD
        proc/self/mounts | proc /proc proc rw 0 0 | tracefs | no | MOUNT
        ",
    ) {
        let mend = mend.replace("HARD", "sudo prlimit --pid $$ --nofile=48");
        let mount = "sudo mount -t tracefs tracefs /sys/kernel/tracing";
        check(file, text, subject, state, &mend.replace("MOUNT", mount));
    }
    let tree = Tree::new();
    let report = report(
        &tree.file(LIMITS, "Max open files 20 4096 files").0,
        &trials(),
    );
    let missing = report.missing().expect("no port gets a queue");
    assert_eq!(
        (missing.subject, missing.mend.as_deref()),
        ("open files", Some("ulimit -n 48"))
    );
}

#[test]
fn a_program_that_is_not_installed_is_installed_by_the_distribution() {
    for [release, command] in rows(
        "
        ID=ubuntu;ID_LIKE=debian | sudo apt-get install bpftrace
        ID=\"rocky\";ID_LIKE=\"rhel centos fedora\" | sudo dnf install bpftrace
        ID=arch | sudo pacman -S bpftrace
        ID=\"opensuse-leap\";ID_LIKE=\"suse opensuse\" | sudo zypper install bpftrace
        ID=alpine | sudo apk add bpftrace
        ID=other | none
        ",
    ) {
        let tree = Tree::new();
        tree.file("etc/os-release", &release.replace(';', "\n"));
        tree.remove(bpftrace().to_str().expect("UTF-8"));
        let (state, mend, _) = found(&report(&tree.0, &trials()), "bpftrace");
        let mend = mend.unwrap_or("none".to_owned());
        assert_eq!((state, &*mend), (State::No, command), "{release}");
    }
}

#[test]
fn the_sysctl_that_forbids_namespaces_is_the_command() {
    let user = |errno| Trials {
        user_namespace: Some(Err(missing(Feature::UserNamespaces, errno))),
        network_namespace: Err(missing(Feature::NetworkNamespaces, libc::EPERM)),
        laboratory: Err(missing(Feature::NetworkNamespaces, libc::EPERM)),
        inside: None,
        admin: false,
        ..trials()
    };
    for (sysctl, text, errno, allowed) in [
        ("user.max_user_namespaces", "0", libc::ENOSPC, "1000"),
        ("kernel.unprivileged_userns_clone", "0", libc::EPERM, "1"),
        (APPARMOR, "1", libc::EACCES, "0"),
    ] {
        let (file, command) = (sysctl.replace('.', "/"), format!("{sysctl}={allowed}"));
        let tree = Tree::new();
        tree.file(&format!("proc/sys/{file}"), text);
        let refused = report(&tree.0, &user(errno));
        let expected = Some(format!("sudo sysctl -w {command}"));
        for subject in ["user namespaces", "network namespaces"] {
            let (state, mend, _) = found(&refused, subject);
            assert_eq!((state, &mend), (State::No, &expected), "{subject}");
        }
        let first = refused.missing().expect("it is needed");
        assert_eq!(first.subject, "user namespaces");
        assert_eq!(found(&refused, "tap").0, State::Limited);

        // A privileged process does without them, and says so.
        let root = Trials {
            user_namespace: None,
            superuser: true,
            ..trials()
        };
        let privileged = report(&tree.0, &root);
        let (state, mend, _) = found(&privileged, "user namespaces");
        assert_eq!(state, State::Limited);
        assert_eq!(mend, Some(format!("sysctl -w {command}")));
        assert_eq!(privileged.missing(), None);
    }
    // Ubuntu's sysctl lets them be made.
    let tree = Tree::new();
    let restricted = Trials {
        user_namespace: Some(Ok(())),
        ..user(libc::EPERM)
    };
    tree.file(&format!("proc/sys/{}", APPARMOR.replace('.', "/")), "1");
    for subject in ["user namespaces", "network namespaces"] {
        let (state, mend, _) = found(&report(&tree.0, &restricted), subject);
        assert_ne!(state, State::Yes, "{subject}");
        let command = format!("sudo sysctl -w {APPARMOR}=0");
        assert_eq!(mend, Some(command), "{subject}");
    }
    // No sysctl: a sandbox.
    let (_, mend, detail) = found(
        &report(&Tree::new().0, &user(libc::EPERM)),
        "user namespaces",
    );
    assert_eq!(mend.as_deref(), Some("sudo packtrain doctor"));
    assert!(detail.ends_with("; the hint"), "{detail}");
    // A kernel without them.
    let (_, mend, _) = found(
        &report(&Tree::new().0, &user(libc::EINVAL)),
        "user namespaces",
    );
    assert_eq!(mend, None);
}

#[test]
fn a_device_that_cannot_be_opened_has_its_command() {
    let cases = [
        (
            libc::ENOENT,
            true,
            "sh -c 'mkdir -p /dev/net && mknod -m 666 /dev/net/tun c 10 200'",
        ),
        (libc::ENOENT, false, "modprobe tun"),
        (libc::ENODEV, true, "modprobe tun"),
        (libc::EACCES, true, "chmod 666 /dev/net/tun"),
        (libc::EPERM, true, "packtrain doctor"),
    ];
    for (errno, has_driver, command) in cases {
        let tree = Tree::new();
        if !has_driver {
            tree.file("proc/misc", "237 loop-control");
        }
        let refused = Err(missing(Feature::Tun, errno));
        let tried = Trials {
            tun_flags: Err(missing(Feature::Tun, errno)),
            laboratory: refused,
            ..trials()
        };
        let report = report(&tree.0, &tried);
        for subject in ["/dev/net/tun", "tap", "tun"] {
            let (state, mend, detail) = found(&report, subject);
            assert_eq!(state, State::No, "{subject}: {detail}");
            assert_eq!(mend, Some(format!("sudo {command}")), "{subject}");
        }
        assert_eq!(
            report.missing().map(|one| one.subject),
            Some("/dev/net/tun")
        );
    }
}

#[test]
fn each_trial_that_failed_is_a_finding() {
    type Change = fn(&mut Trials);
    fn inside(trials: &mut Trials) -> &mut Inside {
        trials.inside.as_mut().expect("a namespace")
    }
    let without: &[(Change, &str)] = &[
        (
            |t| inside(t).offloads = Ok(Features::CSUM | Features::TSO),
            "uso",
        ),
        (|t| inside(t).offloads = Ok(Features::NONE), "checksums"),
        (
            |t| inside(t).queues = Err("no".to_owned()),
            "several queues",
        ),
        (
            |t| inside(t).header = Err(LabError::Setting("no")),
            "virtio-net header",
        ),
        (|t| t.tun_flags = Ok(0), "NAPI of a TAP"),
        (
            |t| {
                t.packet = Err(libc::EAFNOSUPPORT);
                inside(t).packet = Err(libc::EAFNOSUPPORT);
            },
            "AF_PACKET",
        ),
        (|t| t.shared_memory = Err(libc::ENOSYS), "vhost-user"),
        (|t| t.io_uring = Err(libc::ENOSYS), "io_uring"),
        (|t| t.nice_levels = Err("no".to_owned()), "sim"),
    ];
    let without = without.iter();
    let without = without.map(|(change, subject)| (*change, *subject, State::No, None));
    let others: &[(Change, &str, State, Option<&str>)] = &[
        (
            |t| t.packet = Err(libc::EPERM),
            "packet",
            State::Limited,
            Some("sudo packtrain doctor"),
        ),
        (
            |t| t.xdp_program = Err(libc::EPERM),
            "xdp",
            State::No,
            Some("sudo packtrain doctor"),
        ),
        (
            |t| inside(t).xdp_copy = Err(libc::EOPNOTSUPP),
            "AF_XDP copy mode",
            State::No,
            Some("sudo packtrain doctor"),
        ),
        (|t| t.memory = Some(1 << 20), "memory", State::Limited, None),
        // Four are in use, and 39 MiB in two mappings take 21.
        (
            |t| t.huge_pages = false,
            "huge pages",
            State::Limited,
            Some("sudo sysctl -w vm.nr_hugepages=25"),
        ),
        (
            |t| t.receive_buffer = Ok(425_984),
            "net.core.rmem_max",
            State::Limited,
            Some("sudo sysctl -w net.core.rmem_max=8388608"),
        ),
        (
            |t| t.nice_levels = Ok(0),
            "nice levels",
            State::Limited,
            Some("sudo prlimit --pid $$ --nice=25"),
        ),
        (
            |t| t.admin = false,
            "tun",
            State::Limited,
            Some(r#"sudo ip tuntap add dev tun0 mode tun multi_queue user "$USER""#),
        ),
    ];
    let tree = Tree::new();
    let cases = without.chain(others.iter().copied());
    for (number, (change, subject, state, mend)) in cases.enumerate() {
        let mut tried = trials();
        change(&mut tried);
        let (found, command, detail) = found(&report(&tree.0, &tried), subject);
        let context = format!("case {number}: {subject}: {detail}");
        assert_eq!((found, command.as_deref()), (state, mend), "{context}");
    }
    // The sysctl is the reason only if it is set.
    tree.file("proc/sys/kernel/io_uring_disabled", "2");
    let tried = Trials {
        io_uring: Err(libc::EPERM),
        ..trials()
    };
    let (_, mend, _) = found(&report(&tree.0, &tried), "io_uring");
    assert_eq!(
        mend.as_deref(),
        Some("sudo sysctl -w kernel.io_uring_disabled=0")
    );
}

#[test]
fn a_cpu_quota_has_the_command_that_removes_it() {
    let tree = Tree::new();
    let quota = |tree: &Tree| found(&report(&tree.0, &trials()), "CPU quota");
    let (state, mend, _) = quota(&tree);
    assert_eq!((state, mend), (State::Yes, None));
    let mount = "25 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
    tree.file("proc/self/cgroup", "0::/run")
        .file("proc/self/mountinfo", mount)
        .file("sys/fs/cgroup/run/cpu.max", "150000 100000");
    let (state, mend, detail) = quota(&tree);
    assert_eq!(state, State::Limited);
    let command = "sudo sh -c 'echo max > \"/sys/fs/cgroup/run/cpu.max\"'";
    assert_eq!(mend.as_deref(), Some(command));
    let start = "1.50 CPUs by /sys/fs/cgroup/run/cpu.max: ";
    assert!(detail.starts_with(start), "{detail}");
    tree.file("sys/fs/cgroup/run/cpu.max", "400000 100000");
    assert_eq!(quota(&tree).0, State::Yes);
}

#[test]
fn a_card_of_the_kernel_has_the_commands_that_give_it_to_a_program() {
    let tree = Tree::new();
    let cards = |tree: &Tree| found(&report(&tree.0, &trials()), "network cards");
    let (state, mend, detail) = cards(&tree);
    let expected = "a program can open 0000:01:00.0 (8086:10d3, vfio-pci)";
    assert_eq!((state, mend, &*detail), (State::Yes, None, expected));

    // Two functions of one group, of which one has an interface, and a card that is in use.
    let given = "sys/bus/pci/devices/0000:01:00.0";
    fs::remove_dir_all(tree.0.join(given)).expect("the card");
    tree.card("0000:02:00.0", Some("e1000e"), 5)
        .card("0000:02:00.1", None, 5)
        .card("0000:03:00.0", Some("igb"), 6)
        .file("sys/bus/pci/devices/0000:02:00.0/net/eth0/mtu", "1500")
        .file("sys/class/net/eth0/operstate", "down")
        .file("sys/bus/pci/devices/0000:03:00.0/net/eth1/mtu", "1500")
        .file("sys/class/net/eth1/operstate", "up");
    let (state, mend, detail) = cards(&tree);
    assert_eq!(state, State::Limited);
    let expected = "the kernel's: 0000:02:00.0 (8086:10d3, e1000e, eth0), 0000:02:00.1 \
                    (8086:10d3, no driver), 0000:03:00.0 (8086:10d3, igb, eth1, up)";
    assert_eq!(detail, expected);
    let give = |address: &str, unbind: &str| {
        let folder = format!("/sys/bus/pci/devices/{address}");
        format!(
            "echo vfio-pci > {folder}/driver_override; {unbind}echo {address} > \
             /sys/bus/pci/drivers_probe"
        )
    };
    let unbind = "echo 0000:02:00.0 > /sys/bus/pci/devices/0000:02:00.0/driver/unbind; ";
    // The second needs the first, and the first does without the second.
    let (a, b) = (give("0000:02:00.0", unbind), give("0000:02:00.1", ""));
    assert_eq!(
        mend,
        Some(format!("sudo sh -c 'modprobe vfio-pci; {a}; {b}'"))
    );

    // Only cards that are in use.
    for card in ["0000:02:00.0", "0000:02:00.1"] {
        fs::remove_dir_all(tree.0.join("sys/bus/pci/devices").join(card)).expect("the card");
    }
    let (state, mend, detail) = cards(&tree);
    assert_eq!((state, mend), (State::Limited, None), "{detail}");
    assert!(detail.ends_with("an interface that is up"), "{detail}");
}

#[test]
fn a_machine_that_gives_no_card_says_why() {
    let tree = Tree::new();
    let of = |tree: &Tree, subject| found(&report(&tree.0, &trials()), subject);
    tree.remove("dev/vfio/vfio");
    let (state, mend, _) = of(&tree, "VFIO");
    let modprobe = Some("sudo modprobe vfio-pci".to_owned());
    assert_eq!((state, &mend), (State::No, &modprobe));
    tree.file("dev/iommu", "")
        .file("dev/vfio/devices/vfio0", "");
    let (state, _, detail) = of(&tree, "VFIO");
    assert_eq!(state, State::Yes);
    assert!(detail.contains("/dev/iommu"), "{detail}");
    tree.file("dev/vfio/vfio", "");
    fs::remove_dir_all(tree.0.join("sys/bus/pci/drivers/vfio-pci")).expect("the driver");
    let (state, mend, detail) = of(&tree, "VFIO");
    assert_eq!((state, mend), (State::No, modprobe));
    assert!(
        detail.starts_with("/sys/bus/pci/drivers/vfio-pci"),
        "{detail}"
    );

    tree.remove("dev/kvm");
    let (state, _, detail) = of(&tree, "vhost-user");
    assert_eq!(state, State::Limited);
    assert!(detail.contains("virtio-net-pci vectors=0"), "{detail}");

    fs::remove_dir_all(tree.0.join("sys/kernel/iommu_groups")).expect("the groups");
    tree.remove("sys/bus/pci/devices/0000:01:00.0/iommu_group");
    let (state, mend, detail) = of(&tree, "IOMMU");
    assert_eq!((state, mend), (State::No, None));
    assert!(detail.contains("intel_iommu=on"), "{detail}");
    let (state, mend, detail) = of(&tree, "network cards");
    assert_eq!((state, mend), (State::No, None));
    assert!(detail.ends_with("needs an IOMMU for one"), "{detail}");

    fs::remove_dir_all(tree.0.join("sys/bus/pci")).expect("all cards");
    assert_eq!(of(&tree, "network cards").0, State::No);
}
