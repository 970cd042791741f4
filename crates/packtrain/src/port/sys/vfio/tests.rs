//! Functions below a root of the test: none of the machine is touched.

use super::files::{of_locked, users};
use super::*;
use crate::port::card::pci::keep_awake;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;

/// The system's files of a machine with PCI functions, removed at the end.
struct Machine(PathBuf);

impl Machine {
    fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("packtrain-vfio-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
        self
    }

    fn link(&self, from: &str, to: &str) -> &Self {
        let from = self.0.join(from);
        fs::create_dir_all(from.parent().expect("a folder")).expect("a folder");
        symlink(self.0.join(to), from).expect("a link");
        self
    }

    /// A function of a class, with its driver and its group.
    fn function(
        &self,
        address: &str,
        class: &str,
        driver: Option<&str>,
        group: Option<u32>,
    ) -> &Self {
        let folder = format!("sys/bus/pci/devices/{address}");
        self.file(&format!("{folder}/class"), &format!("{class}\n"))
            .file(&format!("{folder}/vendor"), "0x8086\n")
            .file(&format!("{folder}/device"), "0x10d3\n");
        if let Some(driver) = driver {
            let to = format!("sys/bus/pci/drivers/{driver}");
            self.link(&format!("{folder}/driver"), &to);
        }
        if let Some(group) = group {
            let all = format!("sys/kernel/iommu_groups/{group}");
            self.link(&format!("{folder}/iommu_group"), &all)
                .file(&format!("{all}/devices/{address}"), "");
        }
        self
    }

    fn open(&self, address: &str) -> String {
        let opened = Vfio::open_below(&self.0, address);
        opened.expect_err("no function of VFIO").to_string()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

const ETHERNET: &str = "0x020000";
const BRIDGE: &str = "0x060400";

#[test]
fn a_link_is_kept_awake_where_it_may_sleep() {
    let machine = Machine::new();
    let folder = "sys/bus/pci/devices/0000:01:00.0/link";
    machine.file(&format!("{folder}/l1_aspm"), "1");
    keep_awake(&machine.0, "01:00.0");
    let read = |name: &str| fs::read_to_string(machine.0.join(folder).join(name)).ok();
    assert_eq!(read("l1_aspm").as_deref(), Some("0"));
    assert_eq!(read("l0s_aspm"), None);
}

#[test]
fn addresses_are_those_of_lspci() {
    for (text, shown) in [
        ("0000:01:00.0", "0000:01:00.0"),
        ("01:00.0", "0000:01:00.0"),
        ("a:1f.7", "0000:0a:1f.7"),
        ("10000:FF:1F.3", "10000:ff:1f.3"),
    ] {
        let address: Address = text.parse().expect(text);
        assert_eq!(address.to_string(), shown);
        assert_eq!(shown.parse(), Ok(address));
    }
    for text in [
        "",
        "eth0",
        "01:00",
        "01:00.8",
        "01:20.0",
        "100:00.0",
        "01:00.0.0",
        "0:0:01:00.0",
        "01:00.",
        ":00.0",
        "+1:00.0",
        "-1:00.0",
        "123456789:01:00.0",
    ] {
        assert_eq!(text.parse::<Address>(), Err(AddressError), "{text}");
    }
}

#[test]
fn a_function_that_is_not_given_to_vfio_says_what_to_type() {
    let machine = Machine::new();
    machine
        .function("0000:01:00.0", ETHERNET, Some("e1000e"), Some(7))
        .file("sys/bus/pci/devices/0000:01:00.0/net/eth0/mtu", "1500")
        .function("0000:02:00.0", ETHERNET, None, Some(8));
    assert_eq!(
        machine.open("01:00.0"),
        "0000:01:00.0 is bound to e1000e (eth0), and VFIO has to have all of IOMMU group 7 that \
         the kernel uses: type `driverctl set-override 0000:01:00.0 vfio-pci`, or the commands of \
         `packtrain doctor`"
    );
    let line = machine.open("0000:02:00.0");
    assert!(
        line.starts_with("0000:02:00.0 has no driver, and VFIO "),
        "{line}"
    );
    let line = machine.open("0000:03:00.0");
    assert_eq!(
        line,
        "this machine has no PCI function 0000:03:00.0: `lspci -D` lists all"
    );
    let line = machine.open("eth0");
    assert!(
        line.starts_with("\"eth0\" is no address of a PCI function"),
        "{line}"
    );
}

#[test]
fn the_other_functions_of_its_group_are_named() {
    let machine = Machine::new();
    machine
        .function("0000:00:01.0", BRIDGE, Some("pcieport"), Some(7))
        .function("0000:01:00.0", ETHERNET, Some("vfio-pci"), Some(7))
        .function("0000:01:00.1", ETHERNET, Some("igb"), Some(7))
        .function("0000:01:00.2", ETHERNET, None, Some(7))
        .function("0000:01:00.3", ETHERNET, Some("mlx5_vfio_pci"), Some(7));
    let line = machine.open("0000:01:00.0");
    assert_eq!(
        line,
        "0000:01:00.1 is bound to igb, and VFIO has to have all of IOMMU group 7 that the kernel \
         uses: type `driverctl set-override 0000:01:00.1 vfio-pci`, or the commands of `packtrain \
         doctor`; or unplug 0000:01:00.1"
    );
    // VFIO accepts the bridge and the function without a driver in the group.
    let read = |address: &str| {
        let address = address.parse().expect("an address");
        Function::read(&machine.0, address).expect("it is there")
    };
    let given = read("0000:01:00.3");
    assert!(given.is_given());
    let to_give = given.to_give(&machine.0).expect("the group");
    assert_eq!(to_give, [read("0000:01:00.1")]);
    let network = Function::network(&machine.0).expect("sysfs");
    assert_eq!(network.len(), 4);
    assert_eq!(network[1], to_give[0]);
}

#[test]
fn without_an_iommu_the_firmware_and_the_kernel_are_named() {
    let machine = Machine::new();
    machine.function("0000:01:00.0", ETHERNET, Some("vfio-pci"), None);
    let line = machine.open("0000:01:00.0");
    assert!(
        line.contains("VT-d") && line.contains("`intel_iommu=on`"),
        "{line}"
    );
    // VFIO's mode without an IOMMU: the function could access all memory.
    machine
        .function("0000:02:00.0", ETHERNET, Some("vfio-pci"), Some(0))
        .file("sys/kernel/iommu_groups/0/name", "vfio-noiommu\n");
    assert!(
        machine
            .open("0000:02:00.0")
            .starts_with("no IOMMU limits what 0000:02:00.0 accesses")
    );
}

#[test]
fn without_its_files_the_module_is_named() {
    let machine = Machine::new();
    machine.function("0000:01:00.0", ETHERNET, Some("vfio-pci"), Some(7));
    let line = machine.open("0000:01:00.0");
    assert_eq!(
        line,
        "/dev/vfio/vfio is not there: `modprobe vfio-pci`, or give the container /dev/vfio"
    );
    // By iommufd alone.
    machine
        .file("sys/bus/pci/devices/0000:01:00.0/vfio-dev/vfio3/dev", "")
        .file("dev/vfio/devices/vfio3", "");
    let line = machine.open("0000:01:00.0");
    assert_eq!(
        line,
        "/dev/iommu is not there: `modprobe vfio-pci`, or give the container /dev/iommu"
    );
    machine.file("dev/iommu", "");
    let line = machine.open("0000:01:00.0");
    assert!(
        line.starts_with("cannot make an address space by iommufd: "),
        "{line}"
    );
    // A file that is not VFIO's.
    machine.file("dev/vfio/vfio", "");
    let line = machine.open("0000:01:00.0");
    assert!(
        line.starts_with("cannot ask VFIO for its version: "),
        "{line}"
    );
}

#[test]
fn who_uses_a_group_is_named() {
    let machine = Machine::new();
    machine
        .file("proc/12/comm", "qemu\n")
        .link("proc/12/fd/3", "dev/vfio/7")
        .file("proc/13/comm", "sh\n")
        .file("proc/13/fd/0", "")
        .file("proc/self/comm", "x\n");
    let file = machine.0.join("dev/vfio/7");
    let file = file.to_str().expect("UTF-8");
    assert_eq!(users(&machine.0, file), " by qemu (process 12)");
    assert_eq!(users(&machine.0, "/dev/vfio/8"), "");
}

#[test]
fn locked_memory_beyond_the_limit_says_what_to_raise() {
    let errno = |errno| io::Error::from_raw_os_error(errno);
    let line = of_locked(errno(libc::ENOMEM), 4096).to_string();
    assert!(
        line.contains("needs 4096 bytes") && line.contains("`ulimit -l`"),
        "{line}"
    );
    let other = of_locked(errno(libc::EEXIST), 4096);
    assert_eq!(other.raw_os_error(), Some(libc::EEXIST));
}
