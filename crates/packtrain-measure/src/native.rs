//! A bench, built for the CPU that it runs on.
//!
//! Peers in C are compiled for this CPU when a bench starts. Like is compared with like: the bench
//! builds itself once more, for this CPU too, and that build runs in its place.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The option that keeps a bench from being built again.
pub const AS_BUILT: &str = "--as-built";

/// A bench that can be built.
#[derive(Clone, Copy, Debug)]
pub struct Bench<'a> {
    /// Its name.
    pub name: &'a str,
    /// The folder of its package.
    pub package: &'a Path,
    /// Where its figures go without `--json`.
    pub json: &'a Path,
}

impl Bench<'_> {
    /// Builds it with its peers, below `directory`, and runs that with the arguments of this
    /// process and [`AS_BUILT`]. Returns how it ended.
    ///
    /// # Errors
    ///
    /// The reason why it was not built or did not run, in words.
    pub fn run_for_this_cpu(&self, directory: &Path) -> Result<ExitCode, String> {
        let executable = self.build(directory)?;
        // The last option takes precedence.
        let mut arguments: Vec<OsString> = vec!["--json".into(), self.json.into()];
        arguments.extend(std::env::args_os().skip(1));
        arguments.push(AS_BUILT.into());
        let ended = Command::new(&executable).args(arguments).status();
        let ended = ended.map_err(|error| format!("{} does not run: {error}", self.name))?;
        let code = ended.code().and_then(|code| u8::try_from(code).ok());
        Ok(ExitCode::from(code.unwrap_or(u8::MAX)))
    }

    fn build(&self, directory: &Path) -> Result<PathBuf, String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
        let output = Command::new(cargo)
            .args(["bench", "--no-run", "--features", "peers"])
            .args(["--bench", self.name])
            .arg("--manifest-path")
            .arg(self.package.join("Cargo.toml"))
            .args(["--message-format", "json-render-diagnostics"])
            .env("CARGO_TARGET_DIR", directory.join("native"))
            .env("RUSTFLAGS", "-C target-cpu=native")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cargo does not start: {error}"))?;
        if !output.status.success() {
            return Err("the build for this CPU failed".to_owned());
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        let executable = messages.lines().rev().find_map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            (message["target"]["name"] == self.name)
                .then(|| message["executable"].as_str().map(PathBuf::from))?
        });
        executable.ok_or("cargo did not say where the build for this CPU is".to_owned())
    }
}

/// The build options of this executable.
#[must_use]
pub const fn built_for() -> &'static str {
    if cfg!(all(target_arch = "x86_64", target_feature = "avx2")) {
        "this CPU or one like it"
    } else {
        "any CPU of its kind"
    }
}
