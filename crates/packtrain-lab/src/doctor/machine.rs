//! CPUs, their frequency, and virtualisation.

use std::collections::BTreeSet;

use packtrain::policy::topology::{CpuId, CpuList, Topology};

use super::finding::Finding;
use super::host::Host;

pub(super) fn findings(host: &Host<'_>) -> Vec<Finding> {
    let mut findings = match Topology::read(host.root) {
        Ok(topology) => vec![
            cpus(host, &topology),
            smt(host, &topology),
            governor(host, &topology),
        ],
        Err(error) => vec![Finding::limited("CPUs", error.to_string())],
    };
    findings.push(virtualisation(host));
    findings
}

const CPU: &str = "sys/devices/system/cpu";

fn cpus(host: &Host<'_>, topology: &Topology) -> Finding {
    const SUBJECT: &str = "CPUs";
    let allowed: CpuList = topology.cpus().iter().map(|cpu| cpu.id).collect();
    let online = host.read(&format!("{CPU}/online"));
    let online: Option<CpuList> = online.and_then(|text| text.parse().ok());
    let online = online.unwrap_or_else(|| allowed.clone());
    let packages: BTreeSet<_> = allowed
        .as_slice()
        .iter()
        .filter_map(|cpu| host.read(&format!("{CPU}/cpu{cpu}/topology/physical_package_id")))
        .collect();
    let (may, are) = (allowed.as_slice().len(), online.as_slice().len());
    let detail = format!(
        "{may} of {are} allowed ({allowed}); cores: {}; packages: {}",
        topology.cores().len(),
        packages.len().max(1),
    );
    if may < are {
        let mend = format!("taskset -cp {online} $$");
        return Finding::limited(SUBJECT, detail).mend(Some(mend));
    }
    if may <= 2 {
        return Finding::limited(SUBJECT, detail + "; placement=auto binds no thread");
    }
    Finding::yes(SUBJECT, detail)
}

fn smt(host: &Host<'_>, topology: &Topology) -> Finding {
    const SUBJECT: &str = "SMT";
    let siblings = topology.cpus().len() - topology.cores().len();
    if siblings == 0 {
        return Finding::yes(SUBJECT, "no two CPUs share a core");
    }
    let detail = format!("{siblings} CPUs share a core with another one, and slow each other");
    let switch = host.as_root("sh -c 'echo off > /sys/devices/system/cpu/smt/control'");
    Finding::limited(SUBJECT, detail).mend(Some(switch))
}

fn governor(host: &Host<'_>, topology: &Topology) -> Finding {
    const SUBJECT: &str = "CPU frequency";
    let of = |cpu: CpuId| host.read(&format!("{CPU}/cpu{cpu}/cpufreq/scaling_governor"));
    let governors: BTreeSet<_> = topology
        .cpus()
        .iter()
        .filter_map(|cpu| of(cpu.id))
        .collect();
    let names: Vec<_> = governors.iter().map(String::as_str).collect();
    match names[..] {
        [] => Finding::limited(
            SUBJECT,
            "not known: the firmware or the hypervisor sets it (no cpufreq)",
        ),
        ["performance"] => Finding::yes(SUBJECT, "governor: performance"),
        _ => {
            let detail = format!("governor: {}; it varies during a run", names.join(", "));
            let set = "sh -c 'echo performance | tee \
                       /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor'";
            Finding::limited(SUBJECT, detail).mend(Some(host.as_root(set)))
        }
    }
}

fn virtualisation(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "bare metal";
    let cpuinfo = host.read("proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    let has_flag = flags.is_some_and(|line| line.split(' ').any(|flag| flag == "hypervisor"));
    let dmi = ["sys_vendor", "product_name"].map(|name| {
        let text = host.read(&format!("sys/class/dmi/id/{name}"));
        text.filter(|text| !text.is_empty())
    });
    let dmi = dmi.into_iter().flatten().collect::<Vec<_>>().join(" ");
    // The second is that of machines with a device tree.
    let hypervisor = host
        .read("sys/hypervisor/type")
        .or_else(|| host.read("proc/device-tree/hypervisor/compatible"));
    let kind = hypervisor
        .map(|text| text.trim_end_matches('\0').to_owned())
        .or_else(|| has_flag.then(|| "hypervisor flag of the CPU".to_owned()));
    let machine = if dmi.is_empty() {
        String::new()
    } else {
        format!("; {dmi}")
    };
    match kind {
        Some(kind) => Finding::limited(
            SUBJECT,
            format!("a virtual machine ({kind}{machine}): other guests may share its CPUs"),
        ),
        None => Finding::yes(SUBJECT, format!("no sign of a hypervisor{machine}")),
    }
}
