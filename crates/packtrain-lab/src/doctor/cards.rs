//! Network cards that a program can have to itself, by VFIO.

use packtrain::port::card::pci::Function;

use super::finding::Finding;
use super::host::Host;

pub(super) fn findings(host: &Host<'_>) -> Vec<Finding> {
    vec![iommu(host), vfio(host), cards(host)]
}

const BOOT: &str =
    "switch VT-d or AMD-Vi on in the firmware, and boot with intel_iommu=on on Intel";

pub(super) fn iommu(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "IOMMU";
    let groups = host.path("sys/kernel/iommu_groups").read_dir();
    match groups.into_iter().flatten().count() {
        0 => Finding::no(SUBJECT, format!("the kernel uses none: {BOOT}")),
        groups => Finding::yes(SUBJECT, format!("groups of devices: {groups}")),
    }
}

pub(super) fn vfio(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "VFIO";
    // The first file is there before the module, since opening it loads the module. The second is
    // that of a kernel without groups.
    let by_itself = !host.path("dev/vfio/vfio").exists() && host.path("dev/vfio/devices").exists();
    let file = if by_itself {
        "dev/iommu"
    } else {
        "dev/vfio/vfio"
    };
    let files = [file, "sys/bus/pci/drivers/vfio-pci"];
    match files.iter().find(|file| !host.path(file).exists()) {
        Some(file) => {
            let mend = Some(host.as_root("modprobe vfio-pci"));
            Finding::no(SUBJECT, format!("/{file} is not there")).mend(mend)
        }
        None => Finding::yes(
            SUBJECT,
            format!("the kernel has /{file} and the driver vfio-pci"),
        ),
    }
}

fn cards(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "network cards";
    let all = match Function::network(host.root) {
        Ok(all) => all,
        Err(error) => return Finding::no(SUBJECT, format!("sysfs cannot be read: {error}")),
    };
    let (ready, others): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|card| card.usable(host.root).is_ok());
    let list = |cards: &[Function]| {
        let names = cards.iter().map(|card| described(host, card));
        names.collect::<Vec<_>>().join(", ")
    };
    if !ready.is_empty() {
        return Finding::yes(SUBJECT, format!("a program can open {}", list(&ready)));
    }
    if others.is_empty() {
        return Finding::no(SUBJECT, "none is a PCI function of this machine");
    }
    let detail = format!("the kernel's: {}", list(&others));
    if others.iter().all(|card| card.group.is_none()) {
        return Finding::no(
            SUBJECT,
            format!("{detail}; a program needs an IOMMU for one"),
        );
    }
    let mut commands: Vec<String> = Vec::new();
    for card in others.iter().filter(|card| card.group.is_some()) {
        let of_group = card.to_give(host.root).unwrap_or_default();
        // The machine may be reached by it.
        if of_group.iter().any(|card| is_up(host, card)) {
            continue;
        }
        for command in of_group.iter().map(Function::give_commands) {
            if !commands.contains(&command) {
                commands.push(command);
            }
        }
    }
    let (why, mend) = match commands.is_empty() {
        true => ("; each has an interface that is up", None),
        false => {
            let commands = commands.join("; ");
            (
                "",
                Some(host.as_root(&format!("sh -c 'modprobe vfio-pci; {commands}'"))),
            )
        }
    };
    Finding::limited(SUBJECT, detail + why).mend(mend)
}

fn is_up(host: &Host<'_>, card: &Function) -> bool {
    let state = |name: &String| host.read(&format!("sys/class/net/{name}/operstate"));
    let mut states = card.interfaces.iter().filter_map(state);
    states.any(|state| state == "up")
}

/// A card with its numbers, its driver and its interfaces.
fn described(host: &Host<'_>, card: &Function) -> String {
    let (address, (vendor, device)) = (card.address, card.id);
    let mut words = vec![format!("{vendor:04x}:{device:04x}")];
    words.push(card.driver.clone().unwrap_or("no driver".to_owned()));
    words.extend(card.interfaces.iter().cloned());
    if is_up(host, card) {
        words.push("up".to_owned());
    }
    format!("{address} ({})", words.join(", "))
}
