//! The system's files below a root, and the commands that mend.

use packtrain::name::Name;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::trials::Trials;

/// What the findings are made of.
pub(super) struct Host<'a> {
    pub(super) root: &'a Path,
    pub(super) trials: &'a Trials,
}

impl Host<'_> {
    /// A path of the system, below the root.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The path of the system for one below the root.
    pub(super) fn system(&self, path: &Path) -> String {
        let path = path.strip_prefix(self.root).unwrap_or(path);
        Name::from(Path::new("/").join(path)).to_string()
    }

    /// The text of a file without the end of its line; `None` if it cannot be read.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.path(path)).ok()?;
        Some(text.trim_end().to_owned())
    }

    /// The value of a sysctl, such as `user.max_user_namespaces`.
    pub(super) fn sysctl(&self, name: &str) -> Option<String> {
        self.read(&format!("proc/sys/{}", name.replace('.', "/")))
    }

    /// A command that only root may run.
    pub(super) fn as_root(&self, command: &str) -> String {
        if self.trials.superuser {
            command.to_owned()
        } else {
            format!("sudo {command}")
        }
    }

    /// Sets a sysctl until the next boot.
    pub(super) fn set_sysctl(&self, name: &str, value: &str) -> String {
        self.as_root(&format!("sysctl -w {name}={value}"))
    }

    /// Raises `user.max_user_namespaces` or its like to the kernel's default.
    pub(super) fn raise_namespaces(&self, name: &str) -> Option<String> {
        // kernel/fork.c: half of the threads that the kernel allows.
        let threads: u64 = self.sysctl("kernel.threads-max")?.parse().ok()?;
        Some(self.set_sysctl(name, &(threads / 2).to_string()))
    }

    /// What a privilege mends: to be root, or as root of a container, to get its capabilities.
    pub(super) fn privilege(&self) -> String {
        if self.trials.superuser {
            "docker run --cap-add=SYS_ADMIN --cap-add=NET_ADMIN --device=/dev/net/tun IMAGE"
                .to_owned()
        } else {
            format!("sudo {} doctor", self.trials.program)
        }
    }

    /// Installs a package of the distribution; `None` for an unknown one.
    pub(super) fn install(&self, package: &str) -> Option<String> {
        let release = self.read("etc/os-release")?;
        let of = |key: &str| {
            let line = release.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_default().trim_matches('"')
        };
        let mut names = of("ID=")
            .split_whitespace()
            .chain(of("ID_LIKE=").split_whitespace());
        let install = names.find_map(|name| match name {
            "debian" | "ubuntu" => Some("apt-get install"),
            "fedora" | "rhel" => Some("dnf install"),
            "arch" => Some("pacman -S"),
            "alpine" => Some("apk add"),
            "suse" | "opensuse" => Some("zypper install"),
            _ => None,
        })?;
        Some(self.as_root(&format!("{install} {package}")))
    }
}

/// The words of the system for an error number.
pub(super) fn words(errno: i32) -> String {
    io::Error::from_raw_os_error(errno).to_string()
}
