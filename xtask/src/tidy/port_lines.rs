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
        "e1000e",
        1220,
        "430 lines are registers and the values that they start with; the card has contexts for \
         checksums and segments, errata, interrupts of three kinds, and counters",
    ),
    (
        "vmxnet3",
        1085,
        "350 lines are registers and the memory in which the card is told of its queues; packets \
         in pieces and merged ones, one interrupt or many, events",
    ),
    (
        "virtio",
        840,
        "a card: what both agree to, its commands, and checks of all that it writes",
    ),
    (
        "packet",
        275,
        "packets above 64 KiB are received in parts, between those of others",
    ),
    (
        "sim",
        1850,
        "it is the simulated hardware as well, its faults and their counts, and its time",
    ),
    (
        "pcap",
        760,
        "a file that is read and one that is written are two devices, with pacing, pipes and link \
         headers",
    ),
    (
        "null",
        630,
        "its source builds packets of three protocols and three links, in trains, and ACKs among \
         data",
    ),
];

/// The page that has the lines of each driver, in a table.
const PAGE: &str = "docs/drivers.md";

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
        let file = inside.strip_prefix("sys/");
        let name = file.unwrap_or(inside).split(['/', '.']).next();
        let name = name.unwrap_or_default();
        match file {
            // It only declares the files.
            Some("mod.rs") => {}
            Some(_) => ports.entry(name).or_default().sys += source.code_lines(),
            None if name == "wrap" || inside.ends_with(KEYS) => {}
            None => {
                let port = ports.entry(name).or_default();
                port.code += source.code_lines();
                port.driver = port.driver.or(implements_driver(source).then_some(path));
            }
        }
    }
    ports
}

/// True for `impl … Driver for …`.
fn implements_driver(source: &Source) -> bool {
    let mut pairs = source.product.windows(2);
    pairs.any(|pair| pair[0].text == "Driver" && pair[1].text == "for")
}

/// Ports above [`MAX_CODE_LINES`], and those of which the page says another number of lines.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let too_long = |(name, port): (&str, PortLines<'_>)| {
        let longer = LONGER.iter().find(|(longer, ..)| *longer == name);
        let most = longer.map_or(MAX_CODE_LINES, |&(_, lines, _)| lines);
        let code = port.code;
        let path = port.driver.filter(|_| code > most)?;
        let what = format!("port `{name}` has {code} code lines, more than {most}");
        let why = "what makes a driver long is the framework's work";
        let fix = "move what another driver would repeat into the framework";
        Some(breach(path, 1, what, why, fix))
    };
    let ports = count(tree);
    let page = tree.texts.get(PAGE).map_or("", String::as_str);
    // `any` only passes calls on.
    let drivers = ports
        .iter()
        .filter(|(name, port)| **name != "any" && port.driver.is_some());
    let untold = drivers.filter_map(|(name, port)| {
        let mut rows = (1..).zip(page.lines()).filter_map(|(number, line)| {
            let (_, cells) = line
                .strip_prefix(&format!("| `{name}"))?
                .split_once("` | ")?;
            let lines = cells.split(' ').next()?.replace(',', "").parse().ok()?;
            Some((number, lines))
        });
        let row: Option<(usize, usize)> = rows.next();
        // To a twentieth, so that not every change of a port changes the page.
        let holds = row.is_some_and(|(_, said)| said.abs_diff(port.code) * 20 <= port.code);
        (!page.is_empty() && !holds).then(|| {
            let what = format!("does not say that `{name}` has {} code lines", port.code);
            let why = "a reader plans a driver by those that are there";
            let fix = "write the count in the row of the port";
            breach(PAGE, row.map_or(1, |(number, _)| number), what, why, fix)
        })
    });
    let untold: Vec<_> = untold.collect();
    ports
        .into_iter()
        .filter_map(too_long)
        .chain(untold)
        .collect()
}

/// The table of the ports that `tidy` prints.
pub fn table(tree: &Tree) -> String {
    let number = |lines: usize| match lines {
        0 => "-".to_owned(),
        lines => lines.to_string(),
    };
    let rows = count(tree).into_iter().map(|(name, port)| {
        let kind = match (port.driver, port.code) {
            (Some(_), _) => "driver",
            (None, 0) => "sys",
            (None, _) => "shared",
        };
        let (code, sys) = (number(port.code), number(port.sys));
        vec![name.to_owned(), kind.to_owned(), code, sys]
    });
    let head = ["port", "", "code lines", "port/sys/"];
    aligned(&head, rows, |column| column < 2)
}

/// The lines of Rust of each crate: all of them, and those outside of tests.
pub fn of_crates(tree: &Tree) -> String {
    let mut crates: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    let mut total = [0, 0];
    for (path, source) in &tree.sources {
        let inside = path.strip_prefix("crates/").unwrap_or(path);
        let name = inside.split('/').next().unwrap_or(inside);
        let product = match tree.is_test_file(path) {
            true => 0,
            false => source.product_lines().count(),
        };
        for of in [crates.entry(name).or_default(), &mut total] {
            of[0] += source.lines.len();
            of[1] += product;
        }
    }
    let rows = crates.into_iter().chain([("total", total)]);
    let rows = rows
        .map(|(name, [all, product])| vec![name.to_owned(), all.to_string(), product.to_string()]);
    let head = ["crate", "lines", "without tests"];
    aligned(&head, rows, |column| column == 0)
}
