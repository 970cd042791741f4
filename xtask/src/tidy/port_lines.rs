//! A driver has about a hundred lines: counts those of each port.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::breach::Breach;
use super::source::{Source, Token};
use super::tree::Tree;

/// Code lines (no tests, comments or blank lines) that a port may have above `port/sys/`.
const MAX_CODE_LINES: usize = 260;

/// Ports that may have more, with the reason.
const LONGER: &[(&str, usize, &str)] = &[
    (
        "sim",
        1655,
        "it is the simulated hardware as well, its faults, and its time",
    ),
    (
        "pcap",
        760,
        "a file that is read and one that is written are two devices, with pacing, pipes and link \
         headers",
    ),
    (
        "null",
        590,
        "its source builds packets of three protocols and three links, in trains",
    ),
];

/// The folder of the ports.
const PORTS: &str = "crates/packtrain/src/port/";

/// Folders of [`PORTS`] that hold no port of their own.
const NOT_PORTS: &[&str] = &["sys", "wrap"];

/// The file of a port's keys: its settings as text, which a driver does without.
const KEYS: &str = "/keys.rs";

/// The code lines of one port, or of a file that several share.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PortLines {
    /// The file that implements `Driver`; None for what ports share (the spec parser, …).
    driver: Option<String>,
    code: usize,
    sys: usize,
}

/// The lines of every port by its name.
pub fn count(tree: &Tree) -> BTreeMap<String, PortLines> {
    let mut ports: BTreeMap<String, PortLines> = BTreeMap::new();
    let mut sys: BTreeMap<String, usize> = BTreeMap::new();
    for (path, source) in tree.product_sources(PORTS) {
        let inside = &path[PORTS.len()..];
        let name = first_part(inside);
        if let Some(file) = inside.strip_prefix("sys/") {
            // `sys/mod.rs` only declares the files.
            if file != "mod.rs" {
                *sys.entry(first_part(file).to_owned()).or_default() += source.code_lines();
            }
        } else if !NOT_PORTS.contains(&name) && !inside.ends_with(KEYS) {
            let port = ports.entry(name.to_owned()).or_default();
            port.code += source.code_lines();
            if implements_driver(source) {
                port.driver = Some(path.to_owned());
            }
        }
    }
    for (name, lines) in sys {
        ports.entry(name).or_default().sys = lines;
    }
    ports
}

/// Ports above [`MAX_CODE_LINES`].
pub fn check(tree: &Tree) -> Vec<Breach> {
    let too_long = |(name, port): (String, PortLines)| {
        let path = port.driver?;
        let code = port.code;
        let longer = LONGER.iter().find(|(longer, ..)| *longer == name);
        let most = longer.map_or(MAX_CODE_LINES, |&(_, lines, _)| lines);
        (code > most).then(|| {
            Breach::new(
                &path,
                1,
                format!("port `{name}` has {code} code lines, more than {most}"),
                "what makes a driver long is the framework's work",
                "move what another driver would repeat into the framework",
            )
        })
    };
    count(tree).into_iter().filter_map(too_long).collect()
}

/// The table that `tidy` prints; empty without ports.
pub fn table(tree: &Tree) -> String {
    let ports = count(tree);
    let mut out = String::new();
    if ports.is_empty() {
        return out;
    }
    let mut row = |name: &str, kind: &str, code: &str, sys: &str| {
        // Writing to a String cannot fail.
        writeln!(out, "{name:<14} {kind:<7} {code:>10} {sys:>10}").expect("memory");
    };
    row("port", "", "code lines", "port/sys/");
    let number = |n: usize| {
        if n == 0 {
            "-".to_owned()
        } else {
            n.to_string()
        }
    };
    for (name, port) in &ports {
        let kind = match port {
            PortLines {
                driver: Some(_), ..
            } => "driver",
            PortLines { code: 0, .. } => "sys",
            _ => "shared",
        };
        row(name, kind, &number(port.code), &number(port.sys));
    }
    out
}

fn first_part(path: &str) -> &str {
    let part = path.split('/').next().unwrap_or(path);
    part.strip_suffix(".rs").unwrap_or(part)
}

/// True for `impl … Driver for …`.
fn implements_driver(source: &Source) -> bool {
    let is_impl = |pair: &[Token]| pair[0].is_word("Driver") && pair[1].is_word("for");
    source.product_tokens().windows(2).any(is_impl)
}
