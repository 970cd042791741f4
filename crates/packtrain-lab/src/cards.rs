//! Hosts whose interfaces are network cards that the kernel drives, as in a guest.

use packtrain::name::Name;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use packtrain::driver::{Driver, Link, Port};
use packtrain::port::AnyPort;

use crate::error::ToolError;
use crate::netns::Netns;

/// How long the kernel may take until a card that it was given, or that returns from a namespace,
/// has an interface, and until that has a link. It takes a second or two.
const READY_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(2);

/// The address of the card in the text of a port: `0000:02:00.0` in `e1000e:0000:02:00.0,irq=msi`.
pub(crate) fn address(port: &str) -> Option<&str> {
    let (kind, rest) = port.split_once(':')?;
    let is_card = ["e1000e", "virtio", "vmxnet3"].contains(&kind);
    is_card.then(|| rest.split(',').next().unwrap_or(rest))
}

/// Moves the interface of the card at `address` from the namespace `from` to that of the calling
/// thread. Returns its name. The kernel moves it back when the namespace ends.
///
/// # Errors
/// [`ToolError::Usage`] if there is no such card, [`ToolError::Failed`] if it has no interface.
pub(crate) fn bring(address: &str, from: &Netns) -> Result<String, ToolError> {
    let device = Path::new("/sys/bus/pci/devices").join(address);
    if !device.exists() {
        return Err(ToolError::Usage(format!(
            "there is no card at '{address}': write an address as in 0000:01:00.0"
        )));
    }
    let start = Instant::now();
    let name = loop {
        if let Some(name) = interface(&device) {
            break name;
        }
        if start.elapsed() >= READY_MAX {
            return Err(ToolError::Failed(format!(
                "the card at {address} has no interface here: the kernel's driver has to have it"
            )));
        }
        thread::sleep(POLL);
    };
    let mut rtnl = from.rtnl()?;
    let index = rtnl.link(&name)?.index;
    rtnl.move_to(index, Netns::current()?)?;
    Ok(name)
}

/// The interface of a PCI device, or of the virtio device that is on it.
fn interface(device: &Path) -> Option<String> {
    let first = |folder: &Path| {
        let entry = fs::read_dir(folder).ok()?.next()?.ok()?;
        Some(Name::from(entry.file_name()).exact().to_owned())
    };
    let virtio = || {
        let entries = fs::read_dir(device).ok()?.flatten();
        let mut below =
            entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"virtio"));
        first(&below.next()?.path().join("net"))
    };
    first(&device.join("net")).or_else(virtio)
}

/// Waits until a port that was opened, if it is a card's, has a link: the card negotiates one.
///
/// # Errors
/// [`ToolError::Failed`] if it has none after half a minute.
pub(crate) fn wait_for_port(text: &str, port: &mut Port<AnyPort>) -> Result<(), ToolError> {
    let start = Instant::now();
    while address(text).is_some() && port.driver.link() != Link::Up {
        if start.elapsed() >= READY_MAX {
            return Err(no_link(text));
        }
        thread::sleep(POLL);
    }
    Ok(())
}

/// Waits until an interface has a link: a card negotiates one.
///
/// # Errors
/// [`ToolError::Failed`] if it has none after half a minute.
pub(crate) fn wait_for_link(netns: &Netns, index: u32) -> Result<(), ToolError> {
    let mut rtnl = netns.rtnl()?;
    let start = Instant::now();
    loop {
        let link = rtnl.link_by_index(index)?;
        if link.passes_packets() {
            return Ok(());
        }
        if start.elapsed() >= READY_MAX {
            return Err(no_link(&link.name));
        }
        thread::sleep(POLL);
    }
}

fn no_link(name: &str) -> ToolError {
    ToolError::Failed(format!("{name} has no link: is its cable joined?"))
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn ports_of_cards_have_an_address() {
        assert_eq!(address("e1000e:0000:02:00.0,irq=msi"), Some("0000:02:00.0"));
        assert_eq!(address("virtio:0000:03:00.0"), Some("0000:03:00.0"));
        for port in ["tap", "tap,queues=2", "null:source", "sim:"] {
            assert_eq!(address(port), None, "{port}");
        }
    }
}
