//! Plants faults, one at a time, in a copy of the tree, and says which of them no test sees.
//!
//! The list is written by hand: the decisions of `coalesce/rules.rs` and `coalesce/finish.rs`, each
//! made wrong in the way that is easiest to get wrong. What survives, and why, is in
//! `docs/mutants.md`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

const FOLDER: &str = "crates/packtrain-offload/src/coalesce";

/// File, what is there, what is put in its place.
const FAULTS: &[(&str, &str, &str)] = &[
    (
        "rules.rs",
        "TCP_URG | TCP_PSH | TCP_RST | TCP_SYN | TCP_FIN",
        "TCP_URG | TCP_PSH | TCP_RST | TCP_SYN",
    ),
    (
        "rules.rs",
        "new.payload_bytes < u32::from(TCP_GSO_SIZE_MIN)",
        "new.payload_bytes < u32::from(TCP_GSO_SIZE_MIN) - 1",
    ),
    (
        "rules.rs",
        "if bytes > config.max_bytes {",
        "if bytes >= config.max_bytes {",
    ),
    ("rules.rs", "== [1, 1, 8, 10]", "!= [0, 0, 0, 0]"),
    (
        "rules.rs",
        "Semantics::Reversible => TCP_URG | TCP_RST | TCP_SYN | TCP_CWR,",
        "Semantics::Reversible => TCP_URG | TCP_RST | TCP_SYN,",
    ),
    (
        "rules.rs",
        "if new.seq != held.next_seq || new.payload_bytes == 0 {",
        "if new.seq != held.next_seq {",
    ),
    (
        "rules.rs",
        "held.ip_bytes_with(new.payload_bytes) > config.max_bytes {",
        "held.ip_bytes_with(new.payload_bytes) > config.max_bytes + 1 {",
    ),
    (
        "rules.rs",
        "u32::from(held.count) + 1 >= TCP_SEGMENTS_MAX",
        "u32::from(held.count) >= TCP_SEGMENTS_MAX",
    ),
    (
        "rules.rs",
        "usize::from(held.count) + 1 >= UDP_GSO_SEGMENTS_MAX",
        "usize::from(held.count) >= UDP_GSO_SEGMENTS_MAX",
    ),
    (
        "rules.rs",
        "first.wrapping_add(held.count)",
        "first.saturating_add(held.count)",
    ),
    (
        "rules.rs",
        "Ids::Fixed | Ids::Undecided if fixed",
        "Ids::Fixed | Ids::Counting | Ids::Undecided if fixed",
    ),
    ("rules.rs", "if held.ids == Ids::Sealed {", "if false {"),
    (
        "rules.rs",
        "if new.seq != held.next_seq || before(ack, was) {",
        "if new.seq != held.next_seq {",
    ),
    (
        "rules.rs",
        "&& window <= load16(held_head, transport + 14)",
        "&& window == load16(held_head, transport + 14)",
    ),
    (
        "rules.rs",
        "held.count >= config.ack_limit",
        "held.count > config.ack_limit",
    ),
    ("rules.rs", "(a.wrapping_sub(b) as i32) < 0", "a < b"),
    (
        "rules.rs",
        "head[transport + 14..transport + 16].copy_from_slice(&self.window);",
        "",
    ),
    ("finish.rs", "head[transport + 13] |= state.flags;", ""),
    ("finish.rs", "next.swap_bytes()", "next"),
    ("finish.rs", "!shape.kind().is_tcp());", "false);"),
    ("finish.rs", ".max(TCP_GSO_SIZE_MIN)", ""),
    ("finish.rs", ".max(fewest)", ""),
    ("finish.rs", "store16(head, network + 10, sum);", ""),
    ("finish.rs", "(ip_bytes - 40) as u16", "ip_bytes as u16"),
    ("finish.rs", "if state.ids == Ids::Fixed {", "if false {"),
    ("finish.rs", "absorbed: state.absorbed,", "absorbed: 0,"),
    ("work.rs", "|| state.shape != shape", ""),
];

/// Runs the tests of the coalescer once for each fault. Fails if a fault cannot be planted any
/// more, or is not seen.
pub fn run(root: &Path) -> Result<()> {
    let copy = root.join("target/mutants");
    if copy.exists() {
        fs::remove_dir_all(&copy).context("the copy of the last run")?;
    }
    fs::create_dir_all(&copy).context("cannot make target/mutants")?;
    let export = "git archive HEAD | tar --extract --directory target/mutants";
    let mut command = Command::new("sh");
    if !command
        .args(["-c", export])
        .current_dir(root)
        .status()?
        .success()
    {
        bail!("git archive failed");
    }
    if tests_fail(root, &copy)? {
        bail!("the tests fail without a fault");
    }
    let mut missed = 0;
    for (file, from, to) in FAULTS {
        let path = copy.join(FOLDER).join(file);
        let source = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        if !source.contains(from) {
            bail!("{file} has no `{from}` any more: change the list");
        }
        fs::write(&path, source.replacen(from, to, 1))?;
        let seen = tests_fail(root, &copy)?;
        fs::write(&path, source)?;
        missed += usize::from(!seen);
        let verdict = if seen { "seen" } else { "SURVIVED" };
        println!("{verdict}: {file}: {from} -> {to}");
    }
    if missed > 0 {
        bail!("{missed} of {} faults were not seen", FAULTS.len());
    }
    println!("{} faults, all seen", FAULTS.len());
    Ok(())
}

/// Whether the tests of the copy fail, or do not even build.
fn tests_fail(root: &Path, copy: &Path) -> Result<bool> {
    let output = Command::new("cargo")
        .args(["test", "-p", "packtrain-offload", "--lib", "coalesce::"])
        .env("CARGO_TARGET_DIR", root.join("target/mutants-build"))
        .current_dir(copy)
        .output()
        .context("cannot start cargo")?;
    Ok(!output.status.success())
}
