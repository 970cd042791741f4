//! The folder with the kernel of a guest, its modules and BusyBox.

use packtrain::name::Name;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::ToolError;

/// The environment variable with the folder.
pub const FOLDER_VARIABLE: &str = "PACKTRAIN_GUEST";

const PROVIDE: &str = include_str!("provide.sh");

/// A folder with `vmlinuz` (and the same as `vmlinux`, decompressed, which boots faster), `busybox`
/// (static) and modules (`*.ko`, not compressed).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    folder: PathBuf,
}

impl Kernel {
    /// The folder of the environment variable [`FOLDER_VARIABLE`], or `packtrain/guest` in the
    /// user's folder of caches.
    ///
    /// # Errors
    /// [`ToolError::Missing`] if neither that variable nor `XDG_CACHE_HOME` or `HOME` is set.
    pub fn folder() -> Result<PathBuf, ToolError> {
        let of = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let cache = || {
            let cache = of("XDG_CACHE_HOME").map(PathBuf::from);
            let cache = cache.or_else(|| Some(Path::new(&of("HOME")?).join(".cache")));
            Some(cache?.join("packtrain/guest"))
        };
        let folder = of(FOLDER_VARIABLE).map(PathBuf::from).or_else(cache);
        folder.ok_or_else(|| {
            let line =
                "no folder for the kernel of guests: neither HOME nor PACKTRAIN_GUEST is set";
            ToolError::Missing(line.to_owned())
        })
    }

    /// The kernel in `folder`.
    ///
    /// # Errors
    /// [`ToolError::Missing`] if there is none.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, ToolError> {
        let folder = folder.into();
        for name in ["vmlinuz", "busybox"] {
            if !folder.join(name).exists() {
                return Err(ToolError::Missing(format!(
                    "no {name} for guests in {}: `packtrain guest --fetch` downloads Debian's \
                     kernel and BusyBox into it (70 MB, with apt-get; it installs nothing)",
                    Name::from(folder)
                )));
            }
        }
        Ok(Self { folder })
    }

    /// Downloads Debian's kernel and BusyBox with apt-get, and puts them into `folder`. What
    /// apt-get prints goes to standard error.
    ///
    /// # Errors
    /// [`ToolError::Failed`] if apt-get or one of its helpers fails: they have said why.
    pub fn provide(folder: impl Into<PathBuf>) -> Result<Self, ToolError> {
        let folder = folder.into();
        let failed = |why: String| ToolError::Failed(format!("cannot download a kernel: {why}"));
        let mut command = Command::new("sh");
        command.args(["-s", "--"]).arg(&folder);
        command.stdin(Stdio::piped()).stdout(std::io::stderr());
        let mut child = command
            .spawn()
            .map_err(|error| failed(format!("sh: {error}")))?;
        let mut script = child.stdin.take().expect("it is piped");
        let written = script.write_all(PROVIDE.as_bytes());
        drop(script);
        let status = child
            .wait()
            .map_err(|error| failed(format!("sh: {error}")))?;
        written.map_err(|error| failed(format!("sh: {error}")))?;
        if !status.success() {
            return Err(failed(format!("apt-get or dpkg-deb failed ({status})")));
        }
        Self::open(folder)
    }

    /// The image to boot.
    pub fn image(&self) -> PathBuf {
        let decompressed = self.folder.join("vmlinux");
        if decompressed.exists() {
            return decompressed;
        }
        self.folder.join("vmlinuz")
    }

    /// The bytes of a file of the folder.
    ///
    /// # Errors
    /// [`ToolError::Missing`] if it cannot be read.
    pub fn file(&self, name: &str) -> Result<Vec<u8>, ToolError> {
        let path = self.folder.join(name);
        let read = fs::read(&path);
        read.map_err(|error| ToolError::Missing(format!("{}: {error}", Name::from(path))))
    }

    /// These modules and those that they need, as names and bytes, each behind those that it needs.
    ///
    /// # Errors
    /// [`ToolError::Missing`] if one cannot be read.
    pub fn modules(&self, names: &[&str]) -> Result<Vec<(String, Vec<u8>)>, ToolError> {
        let mut all = Vec::new();
        for name in names {
            self.module(name, &mut all)?;
        }
        Ok(all)
    }

    fn module(&self, name: &str, all: &mut Vec<(String, Vec<u8>)>) -> Result<(), ToolError> {
        if all.iter().any(|(other, _)| other == name) {
            return Ok(());
        }
        let bytes = self.file(&format!("{name}.ko"))?;
        for needed in needs(&bytes) {
            self.module(&needed, all)?;
        }
        all.push((name.to_owned(), bytes));
        Ok(())
    }

    /// The names of all modules of the folder.
    ///
    /// # Errors
    /// [`ToolError::Missing`] if the folder cannot be read.
    pub(super) fn names(&self) -> Result<Vec<String>, ToolError> {
        let folder = Name::from(&self.folder);
        let failed = |error| ToolError::Missing(format!("{folder}: {error}"));
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let name = Name::from(entry.map_err(failed)?.file_name());
            names.extend(name.exact().strip_suffix(".ko").map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }
}

/// The value of a key of a module's section `.modinfo`: `key=value` between zeroes.
fn information<'a>(module: &'a [u8], key: &str) -> Option<&'a str> {
    let key = [b"\0", key.as_bytes(), b"="].concat();
    let start = module.windows(key.len()).position(|window| window == key)? + key.len();
    let value = module[start..].split(|byte| *byte == 0).next()?;
    std::str::from_utf8(value).ok()
}

/// The names of the modules that a module needs.
pub(super) fn needs(module: &[u8]) -> Vec<String> {
    let names = information(module, "depends").unwrap_or_default();
    let names = names.split(',').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// The release of the kernel that a module is for, as `uname -r` prints it.
pub(super) fn release(module: &[u8]) -> Option<String> {
    let magic = information(module, "vermagic")?;
    Some(magic.split(' ').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{needs, release};

    #[test]
    fn a_module_says_what_it_needs_and_of_which_kernel_it_is() {
        let module = b"\x7fELF\0name=a\0depends=vfio-pci-core,vfio\0vermagic=6.1.0-9-amd64 SMP\0";
        assert_eq!(needs(module), ["vfio-pci-core", "vfio"]);
        assert_eq!(release(module).as_deref(), Some("6.1.0-9-amd64"));
        assert!(needs(b"\0depends=\0").is_empty());
        assert_eq!(release(b"\0nothing"), None);
    }
}
