//! What a guest has in its root: BusyBox, modules, programs with their libraries, and the scripts.

use packtrain::name::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use super::agent;
use super::archive::Archive;
use super::config::GuestConfig;
use super::kernel::{Kernel, needs, release};
use crate::error::ToolError;

/// The first process: it ends when the guest does.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root
mount -t proc p /proc
mount -t sysfs s /sys
mount -t devtmpfs d /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts p /dev/pts
mount -t tmpfs t /dev/shm
mount -t tracefs t /sys/kernel/tracing
echo /bin/modprobe >/proc/sys/kernel/modprobe
ip link set lo up
modprobe virtio_pci
modprobe virtio_console
# The driver makes the file of a port before the port can be opened (ENXIO).
for port in 1 2 3; do
    until (: </dev/vport0p$port) 2>/dev/null; do sleep 0.01; done
done
";
/// The end of [`INIT`], with a shell on the console and without.
const WITH_SHELL: &str = "setsid setsid agent
until [ -e /run/shell ]; do sleep 0.02; done
stty -F /dev/ttyS0 $(cat /run/shell)
setsid -c sh -l </dev/ttyS0 >/dev/ttyS0 2>&1
poweroff -f
";
const WITHOUT_SHELL: &str = "agent
poweroff -f
";
/// Gives a card to a driver, and takes it from another one.
const BIND: &str = "#!/bin/sh
# bind-card ADDRESS DRIVER: such as `bind-card 0000:01:00.0 vfio-pci`
card=/sys/bus/pci/devices/$1
if [ ! -e $card ]; then
    echo \"no card at $1; there are: $(ls /sys/bus/pci/devices | tr '\\n' ' ')\" >&2
    exit 1
fi
modprobe $2
[ ! -e $card/driver ] || echo $1 >$card/driver/unbind
echo $2 >$card/driver_override
echo $1 >/sys/bus/pci/drivers_probe
if [ \"$(basename \"$(readlink $card/driver)\")\" != $2 ]; then
    echo \"the driver $2 does not take the card at $1: $(dmesg | tail -n 1)\" >&2
    exit 1
fi
";

/// Writes the root: with a shell on the console once the host has written `/run/shell`, or without.
pub(super) fn write(config: &GuestConfig, has_shell: bool) -> Result<Vec<u8>, ToolError> {
    let kernel = &config.kernel;
    let mut root = Root::default();
    for folder in ["proc", "sys", "dev", "run", "tmp", "root"] {
        root.folder(folder);
    }
    root.file("bin/busybox", &kernel.file("busybox")?);
    root.file("bin/agent", agent::AGENT.as_bytes());
    root.file("bin/job", agent::JOB.as_bytes());
    root.file("bin/bind-card", BIND.as_bytes());
    let end = if has_shell { WITH_SHELL } else { WITHOUT_SHELL };
    root.file("init", [INIT, end].concat().as_bytes());
    root.modules(kernel)?;
    if let Some(program) = &config.packtrain {
        root.program(program, "packtrain")?;
    }
    for program in &config.programs {
        let name = program.file_name().unwrap_or_default();
        root.program(program, &Name::from(name).to_string())?;
    }
    Ok(root.archive.finish())
}

#[derive(Default)]
struct Root {
    archive: Archive,
    paths: BTreeSet<String>,
}

impl Root {
    fn folder(&mut self, path: &str) {
        if path.is_empty() || self.paths.contains(path) {
            return;
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent);
        }
        self.archive.directory(path);
        self.paths.insert(path.to_owned());
    }

    /// A file, once.
    fn file(&mut self, path: &str, bytes: &[u8]) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent);
        }
        if self.paths.insert(path.to_owned()) {
            self.archive.file(path, bytes);
        }
    }

    /// All modules, where modprobe looks for them.
    fn modules(&mut self, kernel: &Kernel) -> Result<(), ToolError> {
        let names = kernel.names()?;
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let modules = kernel.modules(&names)?;
        let release = modules.iter().find_map(|(_, bytes)| release(bytes));
        let folder = format!("lib/modules/{}", release.unwrap_or_default());
        // Of each the files that it needs, in the order of depmod(8): modprobe loads from the end.
        let mut all: BTreeMap<String, String> = BTreeMap::new();
        let mut list = String::new();
        for (name, bytes) in &modules {
            self.file(&format!("{folder}/{name}.ko"), bytes);
            let nearest = needs(bytes);
            let mut files: String = nearest.iter().map(|name| format!(" {name}.ko")).collect();
            for name in &nearest {
                files += all.get(name).map_or("", String::as_str);
            }
            list += &format!("{name}.ko:{files}\n");
            all.insert(name.clone(), files);
        }
        self.file(&format!("{folder}/modules.dep"), list.as_bytes());
        Ok(())
    }

    /// A program in `/bin` with this name, and the libraries that it is linked with at their own
    /// paths.
    fn program(&mut self, program: &Path, name: &str) -> Result<(), ToolError> {
        let failed = |path: &Path, error| {
            ToolError::Failed(format!(
                "cannot put {} into a guest: {error}",
                Name::from(path)
            ))
        };
        let bytes = fs::read(program).map_err(|error| failed(program, error))?;
        self.file(&format!("bin/{name}"), &bytes);
        // It fails for a static program, which has none.
        let listed = Command::new("ldd").arg(program).output();
        let listed = listed.map_err(|error| failed(Path::new("ldd"), error))?;
        for path in libraries(&String::from_utf8_lossy(&listed.stdout)) {
            let bytes = fs::read(path).map_err(|error| failed(Path::new(path), error))?;
            self.file(path.trim_start_matches('/'), &bytes);
        }
        Ok(())
    }
}

/// The paths in the output of ldd(1).
fn libraries(listed: &str) -> impl Iterator<Item = &str> {
    listed.lines().filter_map(|line| {
        let line = line.trim();
        let path = line.split_once("=> ").map_or(line, |(_, path)| path);
        let path = path.split(' ').next()?;
        path.starts_with('/').then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::libraries;

    #[test]
    fn the_libraries_of_a_program_are_what_ldd_lists() {
        let listed = "\tlinux-vdso.so.1 (0x00007f6a9db85000)\n\
                      \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f6a9cb3e000)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f6a9db87000)\n";
        let paths: Vec<_> = libraries(listed).collect();
        assert_eq!(
            paths,
            [
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib64/ld-linux-x86-64.so.2"
            ]
        );
        assert_eq!(libraries("\tstatically linked\n").count(), 0);
    }
}
