//! The import rules between modules.
//!
//! Only paths that begin with `crate`, `super` or `self` are read, since cargo checks paths between
//! crates. Test code is exempt.

use super::breach::Breach;
use super::paths::{self, Named, module_path};
use super::source::{Kind, Source, Token};
use super::tree::Tree;

/// The modules of one crate by layer. A module never imports one of a higher layer.
struct Layers {
    source: &'static str,
    modules: &'static [(u8, &'static [&'static str])],
}

const LAYERS: &[Layers] = &[
    Layers {
        source: "crates/packtrain/src/",
        modules: &[
            (
                2,
                &["stats", "sync", "time", "limits", "file", "advice", "trace"],
            ),
            (3, &["packet", "policy"]),
            (4, &["driver", "runtime"]),
            (6, &["plan"]),
            (7, &["queue"]),
            (8, &["port"]),
            (9, &["engine"]),
        ],
    },
    Layers {
        source: "crates/packtrain-capture/src/",
        modules: &[(0, &["codec"]), (1, &["replay"])],
    },
    Layers {
        source: "crates/packtrain-offload/src/",
        modules: &[
            (
                0,
                &[
                    "wire", "checksum", "offload", "limits", "prefetch", "random", "bits", "error",
                ],
            ),
            (1, &["layout"]),
            (
                2,
                &[
                    "virtio_net",
                    "segment",
                    "fragment",
                    "verify",
                    "flow",
                    "sort",
                ],
            ),
            (3, &["coalesce"]),
            (4, &["tun"]),
        ],
    },
];

/// The path of `crates/packtrain`; the rules below are about it alone.
const FRAMEWORK: &str = "crates/packtrain/src/";

/// The paths of the framework that a port may import, by their beginnings.
const PORT_MAY_IMPORT: &[&[&str]] = &[
    &["driver"],
    &["packet"],
    &["advice"],
    &["time"],
    &["limits"],
    &["file"],
    // A driver names the reason for a bad packet; it has no counters.
    &["stats", "DropReason"],
    &["sync"],
    &["port"],
];

/// The paths of the framework that a policy may import.
const POLICY_MAY_IMPORT: &[&[&str]] = &[&["limits"], &["time", "Instant"], &["policy"]];

/// Names that no policy has, since they would read a clock, wait, or call the system.
const POLICY_NEVER_NAMES: &[&str] = &[
    "f32",
    "f64",
    "fs",
    "io",
    "net",
    "env",
    "thread",
    "process",
    "SystemTime",
    "Clock",
];

/// Files of the policies that read files: once, for a decision, below a given folder.
const POLICY_READERS: &[&str] = &["policy/topology.rs"];

/// The state machine of a worker's thread, which is pure like a policy.
const SHELL: &str = "engine/shell.rs";

/// Pairs of an importing and an imported module that are forbidden although the layers allow them.
const NEVER: &[(&str, &str)] = &[("engine", "port")];

/// Files and folders of the framework that may name `libc`.
const LIBC_ALLOWED: &[&str] = &["port/sys/", "packet/sys.rs", "engine/sys.rs"];

/// The files of `port/sys/` that belong to a port of another name.
const SYS_OF_PORT: &[(&str, &[&str])] = &[
    ("tap", &["tap", "tun"]),
    // Turns descriptor numbers of the command line into owned descriptors.
    ("open", &["tun"]),
];

/// The file of the tables.
const TABLES: &str = "xtask/src/tidy/layers.rs";

const WHY_LAYERS: &str = "imports point down only, so that each layer can be read without the next";
const WHY_PORT: &str = "a driver author needs to know nothing but the driver contract";
const WHY_POLICY: &str =
    "a policy does the same in a worker and in a simulation, for the same numbers";
const WHY_LIBC: &str = "system calls live in few files, beside the unsafe code they need";

/// Entries of the tables that name a file or a module that does not exist.
pub fn stale(tree: &Tree) -> Vec<Breach> {
    let exists = |place: &str| {
        let is_it = |path: &str| match path.strip_prefix(place) {
            Some(rest) => {
                rest.is_empty() || rest == ".rs" || place.ends_with('/') || rest.starts_with('/')
            }
            None => false,
        };
        tree.sources().any(|(path, _)| is_it(path))
    };
    let in_framework = |inside: &str| format!("{FRAMEWORK}{inside}");
    let mut places = vec![in_framework(SHELL)];
    for layers in LAYERS {
        let modules = layers.modules.iter().flat_map(|(_, modules)| *modules);
        places.extend(modules.map(|module| format!("{}{module}", layers.source)));
    }
    let allowed = PORT_MAY_IMPORT.iter().chain(POLICY_MAY_IMPORT);
    places.extend(allowed.map(|path| in_framework(path[0])));
    places.extend(
        POLICY_READERS
            .iter()
            .chain(LIBC_ALLOWED)
            .map(|file| in_framework(file)),
    );
    for (port, files) in SYS_OF_PORT {
        places.push(in_framework(&format!("port/{port}")));
        places.extend(
            files
                .iter()
                .map(|file| in_framework(&format!("port/sys/{file}"))),
        );
    }
    places.retain(|place| !exists(place));
    let breach = |place: String| {
        let what = format!("a table names `{place}`, which does not exist");
        Breach::new(
            TABLES,
            1,
            what,
            "a rule about no file checks nothing",
            "correct or remove it",
        )
    };
    places.into_iter().map(breach).collect()
}

/// The import rules.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for layers in LAYERS {
        for (path, source) in tree.product_sources(layers.source) {
            let module = module_path(&path[layers.source.len()..]);
            // The root may name all modules.
            if let Some(top) = module.first() {
                check_file(layers, path, top, &module, source, &mut breaches);
            }
        }
    }
    for (path, source) in tree.product_sources(FRAMEWORK) {
        breaches.extend(check_libc(path, source));
        let Some(inside) = path.strip_prefix(FRAMEWORK) else {
            continue;
        };
        if is_policy(inside) || inside == SHELL {
            breaches.extend(check_pure_names(path, source));
        }
    }
    breaches
}

fn check_file(
    layers: &Layers,
    path: &str,
    top: &str,
    module: &[String],
    source: &Source,
    breaches: &mut Vec<Breach>,
) {
    let Some(own) = layer_of(layers, top) else {
        breaches.push(Breach::new(
            path,
            1,
            format!("module `{top}` is in no layer"),
            WHY_LAYERS,
            "give it a layer in LAYERS of xtask/src/tidy/layers.rs",
        ));
        return;
    };
    let is_framework = layers.source == FRAMEWORK;
    let named = paths::named(&source.product_tokens(), module);
    for import in named.iter().filter(|named| named.is_rooted) {
        let written = format!("crate::{}", import.path.join("::"));
        let Some(to) = import.path.first() else {
            continue;
        };
        let breach = |what: String, why, fix: &str| Breach::new(path, import.line, what, why, fix);
        if layer_of(layers, to).is_none() {
            if !import.is_macro {
                breaches.push(breach(
                    format!("`{written}` is reached through the crate root"),
                    WHY_LAYERS,
                    "write the path of the module that defines it",
                ));
            }
        } else if is_framework && top == "port" {
            breaches.extend(check_port_import(module, import, &written, breach));
        } else if is_framework && top == "policy" && !may(POLICY_MAY_IMPORT, import) {
            let allowed = listed(POLICY_MAY_IMPORT);
            breaches.push(breach(
                format!("a policy imports `{written}`"),
                WHY_POLICY,
                &format!("use only {allowed}, and take the rest as an observation"),
            ));
        } else if layer_of(layers, to).is_some_and(|layer| layer > own) {
            breaches.push(breach(
                format!("`{top}` (layer {own}) imports `{written}` of a higher layer"),
                WHY_LAYERS,
                "move what both need down, or pass it in as a value or a trait",
            ));
        } else if is_framework && NEVER.contains(&(top, to)) {
            breaches.push(breach(
                format!("`{top}` imports `{written}`"),
                "the engine is generic over drivers and the ports know no engine",
                "stay generic over `Driver`, and join the two in lib.rs or in the program",
            ));
        }
    }
}

/// Whether a path begins as one of `allowed`.
fn may(allowed: &[&[&str]], import: &Named) -> bool {
    allowed.iter().any(|prefix| {
        import.path.len() >= prefix.len() && prefix.iter().zip(&import.path).all(|(a, b)| a == b)
    })
}

fn listed(paths: &[&[&str]]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.join("::")).collect();
    paths.join(", ")
}

fn check_port_import(
    module: &[String],
    import: &Named,
    written: &str,
    breach: impl Fn(String, &'static str, &str) -> Breach,
) -> Option<Breach> {
    if !may(PORT_MAY_IMPORT, import) {
        return Some(breach(
            format!("a port imports `{written}`"),
            WHY_PORT,
            &format!("use only {}", listed(PORT_MAY_IMPORT)),
        ));
    }
    let names_sys = import.path.get(1).is_some_and(|name| name == "sys");
    let is_sys = module.get(1).is_some_and(|name| name == "sys");
    if !names_sys || is_sys {
        return None;
    }
    let port = module.get(1).map_or("port/mod.rs", String::as_str);
    let own = SYS_OF_PORT
        .iter()
        .find(|(name, _)| *name == port)
        .map(|(_, files)| *files);
    let is_own = import.path.get(2).is_some_and(|file| match own {
        Some(files) => files.contains(&file.as_str()),
        None => file == port,
    });
    (!is_own).then(|| {
        breach(
            format!("`{port}` imports `{written}`, which is not its own system call file"),
            "a port and its system calls are read, and replaced, together",
            "go through the port that owns it, or add it to SYS_OF_PORT of \
             xtask/src/tidy/layers.rs",
        )
    })
}

fn check_libc(path: &str, source: &Source) -> Option<Breach> {
    let inside = path.strip_prefix(FRAMEWORK)?;
    let allowed =
        |place: &&str| inside == *place || place.ends_with('/') && inside.starts_with(*place);
    if LIBC_ALLOWED.iter().any(allowed) {
        return None;
    }
    let token = source
        .product_tokens()
        .into_iter()
        .find(|token| token.is_word("libc"))?;
    let places = LIBC_ALLOWED.join(", ");
    let fix = format!("move the system call to one of {places}");
    Some(Breach::new(
        path,
        token.line,
        "names `libc`".to_owned(),
        WHY_LIBC,
        &fix,
    ))
}

fn is_policy(inside: &str) -> bool {
    let is_below = inside.starts_with("policy/") || inside == "policy.rs";
    is_below && !POLICY_READERS.contains(&inside)
}

/// The first forbidden name in a pure file, and any call of a `now()`.
fn check_pure_names(path: &str, source: &Source) -> Option<Breach> {
    let tokens = source.product_tokens();
    let names = |token: &Token| POLICY_NEVER_NAMES.iter().any(|word| token.is_word(word));
    let is_now = |at: usize| {
        let before = at.checked_sub(1).and_then(|i| tokens.get(i));
        tokens[at].is_word("now") && before.is_some_and(|t| t.kind == Kind::PathSep)
    };
    let at = (0..tokens.len()).find(|&at| names(&tokens[at]) || is_now(at))?;
    let Kind::Word(word) = &tokens[at].kind else {
        return None;
    };
    let part = if path.ends_with(SHELL) {
        "the shell"
    } else {
        "a policy"
    };
    Some(Breach::new(
        path,
        tokens[at].line,
        format!("{part} names `{word}`"),
        WHY_POLICY,
        "compute in integers, and take what is to be known as an argument",
    ))
}

fn layer_of(layers: &Layers, module: &str) -> Option<u8> {
    layers
        .modules
        .iter()
        .find(|(_, names)| names.contains(&module))
        .map(|(layer, _)| *layer)
}
