//! A driver has about a hundred lines: counts those of each port, and those of each crate.

use std::collections::BTreeMap;

use super::breach::{Breach, breach};
use super::source::Source;
use super::tree::Tree;
use crate::report::aligned;

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

/// The file of a port's keys: its settings as text, which a driver does without.
const KEYS: &str = "/keys.rs";

/// The code lines of one port, or of a file that several share.
#[derive(Default)]
struct PortLines<'a> {
    /// The file that implements `Driver`; none for what ports share (the spec parser, …).
    driver: Option<&'a str>,
    code: usize,
    sys: usize,
}

/// The lines of every port by its name.
fn count(tree: &Tree) -> BTreeMap<&str, PortLines<'_>> {
    let mut ports: BTreeMap<_, PortLines<'_>> = BTreeMap::new();
    for (path, source) in tree.product(PORTS) {
        let inside = &path[PORTS.len()..];
        let (folder, file) = match inside.strip_prefix("sys/") {
            Some(file) => ("sys", file),
            None => ("", inside),
        };
        let name = file.split(['/', '.']).next().unwrap_or(file);
        if folder == "sys" {
            // `sys/mod.rs` only declares the files.
            if file != "mod.rs" {
                ports.entry(name).or_default().sys += source.code_lines();
            }
        } else if name != "wrap" && !file.ends_with(KEYS) {
            let port = ports.entry(name).or_default();
            port.code += source.code_lines();
            port.driver = port.driver.or(implements_driver(source).then_some(path));
        }
    }
    ports
}

/// True for `impl … Driver for …`.
fn implements_driver(source: &Source) -> bool {
    let mut pairs = source.product.windows(2);
    pairs.any(|pair| pair[0].text == "Driver" && pair[1].text == "for")
}

/// Ports above [`MAX_CODE_LINES`].
pub fn check(tree: &Tree) -> Vec<Breach> {
    let too_long = |(name, port): (&str, PortLines<'_>)| {
        let longer = LONGER.iter().find(|(longer, ..)| *longer == name);
        let (code, most) = (
            port.code,
            longer.map_or(MAX_CODE_LINES, |&(_, lines, _)| lines),
        );
        let what = format!("port `{name}` has {code} code lines, more than {most}");
        let why = "what makes a driver long is the framework's work";
        let fix = "move what another driver would repeat into the framework";
        let path = port.driver.filter(|_| code > most)?;
        Some(breach(path, 1, what, why, fix))
    };
    count(tree).into_iter().filter_map(too_long).collect()
}

/// The table of the ports that `tidy` prints.
pub fn table(tree: &Tree) -> String {
    let number = |n: usize| {
        if n == 0 {
            "-".to_owned()
        } else {
            n.to_string()
        }
    };
    let head = ["port", "", "code lines", "port/sys/"].map(str::to_owned);
    let rows = count(tree).into_iter().map(|(name, port)| {
        let kind = match port {
            PortLines {
                driver: Some(_), ..
            } => "driver",
            PortLines { code: 0, .. } => "sys",
            _ => "shared",
        };
        [
            name.to_owned(),
            kind.to_owned(),
            number(port.code),
            number(port.sys),
        ]
    });
    aligned([head].into_iter().chain(rows), |column| column < 2)
}

/// The lines of Rust of each crate: all of them, and those outside of tests.
pub fn of_crates(tree: &Tree) -> String {
    let mut crates: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    let mut total = [0, 0];
    for (path, source) in &tree.sources {
        let inside = path.strip_prefix("crates/").unwrap_or(path);
        let name = inside.split('/').next().unwrap_or(inside);
        let product = if tree.is_test_file(path) {
            0
        } else {
            source.product_lines().count()
        };
        for of in [crates.entry(name).or_default(), &mut total] {
            of[0] += source.lines.len();
            of[1] += product;
        }
    }
    let head = ["crate", "lines", "without tests"].map(str::to_owned);
    let rows = crates.into_iter().chain([("total", total)]);
    let rows =
        rows.map(|(name, [all, product])| [name.to_owned(), all.to_string(), product.to_string()]);
    aligned([head].into_iter().chain(rows), |column| column == 0)
}
