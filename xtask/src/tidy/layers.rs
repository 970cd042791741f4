//! The import rules between modules.
//!
//! Only paths that begin with `crate`, `super` or `self` are read, since cargo checks paths between
//! crates. Test code is exempt.

use super::breach::{Breach, breach, stale};
use super::paths::begins;
use super::tree::Tree;

/// The modules of each crate by layer. A module never imports one of a higher layer.
const LAYERS: &[(&str, &[(u8, &str)])] = &[
    (
        "crates/packtrain/src/",
        &[
            (2, "advice file limits name plant stats sync time trace"),
            (3, "packet policy"),
            (4, "driver runtime"),
            (6, "plan"),
            (7, "queue"),
            (8, "engine"),
            (9, "bridge port"),
        ],
    ),
    (
        "crates/packtrain-capture/src/",
        &[(0, "codec"), (1, "replay")],
    ),
    (
        "crates/packtrain-offload/src/",
        &[
            (0, "wire checksum offload limits prefetch random bits error"),
            (1, "layout"),
            (2, "virtio_net segment fragment verify flow sort"),
            (3, "coalesce"),
            (4, "tun"),
        ],
    ),
    (
        "crates/packtrain-smoltcp/src/",
        &[(0, "counts"), (1, "output"), (2, "input")],
    ),
];

/// Modules that may import less than their layer allows: the beginnings of the paths.
const ONLY: &[(&str, &str, &str)] = &[
    (
        "crates/packtrain/src/port",
        // A driver names the reason for a bad packet; it has no counters.
        "driver packet advice name time limits file plant stats::DropReason sync port",
        "a driver author needs to know nothing but the driver contract",
    ),
    (
        "crates/packtrain/src/policy",
        "limits name::Name time::Instant policy",
        "a policy does the same in a worker and in a simulation, for the same numbers",
    ),
];

/// The files of `port/sys/` that belong to a port of another name.
const SYS_OF_PORT: &[(&str, &str)] = &[
    ("tap", "tap tun"),
    ("packet", "packet socket device"),
    ("xdp", "xdp device"),
    ("card", "card vfio device threads"),
    ("e1000e", "device"),
    ("vmxnet3", "device"),
    // Turns descriptor numbers of the command line into owned descriptors.
    ("open", "tun"),
    // Makes the port for the fuzz target.
    ("by_hand", "vhost"),
];

/// The ports, and the file of these tables.
const PORTS: &str = "crates/packtrain/src/port/";
const TABLES: &str = "xtask/src/tidy/layers.rs";

const WHY: &str = "imports point down only, so that each layer can be read without the next";

/// The entries that name a file or a module that does not exist.
fn missing(tree: &Tree) -> Vec<Breach> {
    let mut places = Vec::new();
    for (folder, layers) in LAYERS {
        let modules = layers.iter().flat_map(|(_, modules)| modules.split(' '));
        places.extend(modules.map(|module| format!("{folder}{module}")));
    }
    for (port, files) in SYS_OF_PORT {
        places.push(format!("{PORTS}{port}"));
        places.extend(files.split(' ').map(|file| format!("{PORTS}sys/{file}")));
    }
    for (place, paths, _) in ONLY {
        let (folder, _) = place.rsplit_once('/').unwrap_or_default();
        let tops = paths.split(' ').filter_map(|path| path.split("::").next());
        places.extend(tops.map(|top| format!("{folder}/{top}")));
    }
    places.retain(|place| !tree.has(place));
    let missing = places
        .iter()
        .map(|place| format!("`{place}` does not exist"));
    missing.map(|what| stale(TABLES, &what)).collect()
}

/// The import rules.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = missing(tree);
    for (folder, layers) in LAYERS {
        let layer_of = |module: &str| {
            let mut layers = layers.iter();
            layers.find(|(_, modules)| modules.split(' ').any(|name| name == module))
        };
        for (path, source) in tree.product(folder) {
            // The root may name all modules.
            let Some(top) = source.module.first() else {
                continue;
            };
            let Some((own, _)) = layer_of(top) else {
                let what = format!("module `{top}` is in no layer");
                let fix = format!("give it a layer in {TABLES}");
                breaches.push(breach(path, 1, what, WHY, &fix));
                continue;
            };
            let mut only = ONLY.iter();
            let only = only.find(|(place, ..)| place.strip_prefix(folder) == Some(top));
            let port = source.module.get(1);
            let port = port.map_or("port/mod.rs", String::as_str);
            for import in &source.named {
                let Some(imported) = import.imported() else {
                    continue;
                };
                let to = import.path.first().map_or("", String::as_str);
                let written = &import.written;
                let may = |paths: &str| paths.split(' ').any(|start| begins(imported, start));
                let (what, why, fix) = match (layer_of(to), only) {
                    (None, _) if import.is_macro => continue,
                    (None, _) => (
                        format!("`{written}` is reached through the crate root"),
                        WHY,
                        "write the path of the module that defines it".to_owned(),
                    ),
                    (_, Some((_, allowed, why))) if !may(allowed) => (
                        format!("`{top}` imports `{written}`"),
                        *why,
                        format!("use only {allowed}"),
                    ),
                    _ if top == "port" && is_foreign(port, imported) => (
                        format!(
                            "`{port}` imports `{written}`, which is not its own system call file"
                        ),
                        "a port and its system calls are read, and replaced, together",
                        format!(
                            "go through the port that owns it, or add it to SYS_OF_PORT of {TABLES}"
                        ),
                    ),
                    (Some((layer, _)), None) if layer > own => (
                        format!("`{top}` (layer {own}) imports `{written}` of a higher layer"),
                        WHY,
                        "move what both need down, or pass it in as a value or a trait".to_owned(),
                    ),
                    _ => continue,
                };
                breaches.push(breach(path, import.line, what, why, &fix));
            }
        }
    }
    breaches
}

/// Whether a path leads to system calls that are not those of a port.
fn is_foreign(port: &str, imported: &str) -> bool {
    let own = SYS_OF_PORT.iter().find(|(name, _)| *name == port);
    let mut own = own.map_or(port, |(_, files)| files).split(' ');
    let is_own = own.any(|file| begins(imported, &format!("port::sys::{file}")));
    begins(imported, "port::sys") && port != "sys" && !is_own
}
