//! Other programs, and the files that they write.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A program and its arguments, words without spaces, to be run at the root of the repository.
pub fn program(root: &Path, line: &str) -> Command {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).current_dir(root);
    command
}

/// Runs a command that has to succeed.
pub fn ensure(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status();
    let status = status.with_context(|| format!("cannot start {program}; is it installed?"))?;
    if !status.success() {
        bail!("{program}: {status}");
    }
    Ok(())
}

/// The output of a command that has to succeed, without the end of the line.
pub fn printed(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output();
    let output = output.with_context(|| format!("cannot start {program}; is it installed?"))?;
    if !output.status.success() {
        bail!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned())
}

/// Installs `cargo NAME` if `cargo`, which may have words in front, does not know it.
pub fn provide(root: &Path, cargo: &str, name: &str, version: &str) -> Result<()> {
    if printed(&mut program(root, &format!("{cargo} {name} --version"))).is_ok() {
        return Ok(());
    }
    eprintln!("{name}: cargo-{name} is missing; installing version {version}");
    // Not optimised: it only starts cargo, and is built in half the time. In a target directory of
    // its own: two cargos in one directory wait for each other.
    let package = format!("cargo-{name}");
    let line = format!("{cargo} install {package} --locked --debug --version {version}");
    let target = root.join("target").join(package);
    ensure(program(root, &line).env("CARGO_TARGET_DIR", target))
}

/// The text of a file.
pub fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// The JSON document in a file.
pub fn read_json(path: &Path) -> Result<Value> {
    serde_json::from_str(&read(path)?).with_context(|| path.display().to_string())
}

/// A folder below the root, which is made if it is missing.
pub fn folder(root: &Path, name: &str) -> Result<PathBuf> {
    let folder = root.join(name);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// Writes a file, and says so.
pub fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())?;
    println!("written: {}", path.display());
    Ok(())
}
