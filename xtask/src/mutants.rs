//! Plants faults, one at a time, in a copy of the tree, and says which of them no test sees.
//!
//! The lists are written by hand: the decisions of `coalesce/rules.rs`, `coalesce/finish.rs`,
//! `coalesce/run.rs` and what they go by, and those of all that cuts ([`segment`]), each made wrong
//! in the way that is easiest to get wrong. What survives, and why, is in `docs/mutants.md`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

mod segment;

/// File, what is there (once, or the first place is taken), what is put in its place.
type Fault = (&'static str, &'static str, &'static str);

/// A list of faults, and the tests that have to see them.
struct List {
    name: &'static str,
    /// Where the files are.
    folder: &'static str,
    faults: &'static [Fault],
    /// Names of tests contain one of these.
    tests: &'static [&'static str],
}

const LISTS: &[List] = &[
    List {
        name: "coalesce",
        folder: "crates/packtrain-offload/src/coalesce",
        faults: COALESCE,
        tests: &["coalesce::"],
    },
    List {
        name: "segment",
        folder: "crates/packtrain-offload/src",
        faults: segment::FAULTS,
        tests: &["segment::", "fragment::", "checksum::", "virtio_net::"],
    },
];

const COALESCE: &[Fault] = &[
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
    ("finish.rs", "*flags |= state.flags;", ""),
    ("finish.rs", "next.swap_bytes()", "next"),
    (
        "finish.rs",
        "finish_partial(sum, !tcp)",
        "finish_partial(sum, false)",
    ),
    ("finish.rs", ".max(TCP_GSO_SIZE_MIN)", ""),
    ("finish.rs", ".max(fewest)", ""),
    ("finish.rs", "    store16(ip, 10, checksum);\n", ""),
    ("finish.rs", "(lengths.ip - 40) as u16", "lengths.ip as u16"),
    ("finish.rs", "if state.ids == Ids::Fixed {", "if false {"),
    ("finish.rs", "absorbed: state.absorbed,", "absorbed: 0,"),
    (
        "finish.rs",
        "checksum::update_u16(checksum, before, lengths.ip as u16)",
        "checksum",
    ),
    (
        "run.rs",
        "const ENDS: u8 = TCP_CWR | TCP_FIN | TCP_PSH;",
        "const ENDS: u8 = TCP_FIN | TCP_PSH;",
    ),
    (
        "run.rs",
        "const ENDS: u8 = TCP_CWR | TCP_FIN | TCP_PSH;",
        "const ENDS: u8 = TCP_CWR | TCP_PSH;",
    ),
    (
        "run.rs",
        "u32::from_be_bytes(array(head, transport + 4)) != state.next_seq",
        "false",
    ),
    (
        "run.rs",
        "|| u32::from(state.count) + 1 >= segments_max(shape.kind())",
        "",
    ),
    (
        "run.rs",
        "!recent.fits(u32::from(state.payload_bytes) + u32::from(state.size))",
        "false",
    ),
    ("run.rs", "|| packet.aside() != state.aside", ""),
    (
        "run.rs",
        "(step == (count << 48).wrapping_sub(count))",
        "(step >> 48 == count)",
    ),
    (
        "run.rs",
        "(step == (count << 48).wrapping_sub(count))",
        "(step as u16 == (count as u16).wrapping_neg())",
    ),
    (
        "run.rs",
        "Ids::Fixed => (step == 0).then_some(Ids::Fixed),",
        "Ids::Fixed => Some(Ids::Fixed),",
    ),
    ("run.rs", "if !has_checksum(shape, head) {", "if false {"),
    (
        "run.rs",
        "if !has_checksum(shape, head) || !state.summed {",
        "if !state.summed {",
    ),
    (
        "run.rs",
        "if !has_checksum(shape, head) || !state.summed {",
        "if !has_checksum(shape, head) {",
    ),
    ("run.rs", "if !is_of(shape, checksum) {", "if false {"),
    ("run.rs", " && [ip[10], ip[11]] != [0xFF; 2]", ""),
    ("run.rs", "            || !ipv4_is_right\n", ""),
    ("run.rs", "            || ip_end != packet.bytes()\n", ""),
    (
        "run.rs",
        "            || ip_end < header_bytes + least\n",
        "            || ip_end < header_bytes\n",
    ),
    (
        "run.rs",
        "            || !recent.fits(ip_end - header_bytes)\n",
        "",
    ),
    (
        "run.rs",
        "            || (!kind.is_tcp() && two(transport + 4) != ip_end - transport as u32)\n",
        "",
    ),
    (
        "run.rs",
        "&& !self.is_right(&packet, headers, header_bytes..ip_end)",
        "&& false",
    ),
    (
        "run.rs",
        "words += u64::from(u32::from_ne_bytes(array(head, transport + 4)));",
        "",
    ),
    (
        "entry.rs",
        "(tcp && template[shape.transport() + 13] & TCP_CWR != 0)",
        "false",
    ),
    (
        "shape.rs",
        "bits[network + 6..network + 8].copy_from_slice(&IPV4_NOT_DF.to_be_bytes());",
        "",
    ),
    ("shape.rs", "bits[transport + 13] = NOT_FIRST;", ""),
    ("shape.rs", "bits[transport + 12] = 0xF0;", ""),
    (
        "ahead.rs",
        "Some(packet) => slots[at % SLOTS] = self.first_step(packet),",
        "Some(packet) => slots[(at + 1) % SLOTS] = self.first_step(packet),",
    ),
    (
        "table.rs",
        "self.sets[set as usize].tags[way as usize] = 0;",
        "",
    ),
];

/// Runs the tests once for each fault with `text` in it, of the list of this name or of all. Fails
/// if a fault cannot be planted any more, does not compile, or is not seen.
pub fn run(root: &Path, name: Option<&str>, text: &str) -> Result<()> {
    let lists: Vec<&List> = LISTS
        .iter()
        .filter(|list| name.is_none_or(|name| name == list.name))
        .collect();
    if lists.is_empty() {
        let names: Vec<_> = LISTS.iter().map(|list| list.name).collect();
        bail!("there is no such list; there are: {}", names.join(", "));
    }
    let copy = root.join("target/mutants");
    if copy.exists() {
        fs::remove_dir_all(&copy).context("the copy of the last run")?;
    }
    fs::create_dir_all(&copy).context("cannot make target/mutants")?;
    // As new as the clock has it: cargo must not take the last fault's build for these files.
    let export = "git archive HEAD | tar --extract --touch --directory target/mutants";
    let mut command = Command::new("sh");
    if !command
        .args(["-c", export])
        .current_dir(root)
        .status()?
        .success()
    {
        bail!("git archive failed");
    }
    let (mut missed, mut planted) = (0, 0);
    for list in lists {
        let has_it = |(file, from, _): &&Fault| file.contains(text) || from.contains(text);
        let faults: Vec<_> = list.faults.iter().filter(has_it).collect();
        missed += run_list(root, &copy, list, &faults)?;
        planted += faults.len();
    }
    if missed > 0 {
        bail!("{missed} of {planted} faults were not seen");
    }
    println!("{planted} faults, all seen");
    Ok(())
}

/// Says how many faults of a list were not seen.
fn run_list(root: &Path, copy: &Path, list: &List, faults: &[&Fault]) -> Result<usize> {
    if tests_fail(root, copy, list)? {
        bail!("the tests of {} fail without a fault", list.name);
    }
    let mut missed = 0;
    for (file, from, to) in faults {
        let path = copy.join(list.folder).join(file);
        let source = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        if !source.contains(from) {
            bail!("{file} has no `{from}` any more: change the list");
        }
        fs::write(&path, source.replacen(from, to, 1))?;
        let seen =
            tests_fail(root, copy, list).with_context(|| format!("{file}: {from} -> {to}"))?;
        fs::write(&path, source)?;
        missed += usize::from(!seen);
        let verdict = if seen { "seen" } else { "SURVIVED" };
        println!("{verdict}: {file}: {from} -> {to}");
    }
    Ok(missed)
}

/// Whether the tests of the copy fail. An error if they cannot be built: nobody would commit such
/// a fault.
fn tests_fail(root: &Path, copy: &Path, list: &List) -> Result<bool> {
    let cargo = |arguments: &[&str]| {
        Command::new("cargo")
            .args(["test", "-p", "packtrain-offload", "--lib"])
            .args(arguments)
            .env("CARGO_TARGET_DIR", root.join("target/mutants-build"))
            // Half the time goes into compiling.
            .env("CARGO_PROFILE_TEST_DEBUG", "0")
            .env("RUSTFLAGS", "--cap-lints=allow")
            .current_dir(copy)
            .output()
            .context("cannot start cargo")
    };
    let built = cargo(&["--no-run"])?;
    if !built.status.success() {
        bail!(
            "it does not compile:\n{}",
            String::from_utf8_lossy(&built.stderr)
        );
    }
    let tests = [&["--"], list.tests].concat();
    Ok(!cargo(&tests)?.status.success())
}
