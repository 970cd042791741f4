//! Other programs.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// True if the command can be started and succeeds. Its output is dropped.
pub fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Runs a command that has to succeed.
pub fn ensure(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("cannot start {program}; is it installed?"))?;
    if !status.success() {
        bail!("{program}: {status}");
    }
    Ok(())
}

/// The output of a command, without the end of the line.
pub fn printed(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot start {program}; is it installed?"))?;
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
