//! Each rule on a tree that breaks it, and on the nearest tree that does not.

use super::breach::breach;
use super::source::Source;
use super::tree::Tree;
use super::{check, port_lines};
use crate::report::words;

/// The breaches of all rules in a tree of these files, as `path:line: what`. Those of the tables
/// and of the list, which it lacks, are left out.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let has_list = files.iter().any(|(path, _)| *path == "ARCHITECTURE.md");
    let breaches = check(&tree(files)).into_iter().filter(|breach| {
        !breach.path.starts_with("xtask/") && (has_list || breach.path != "ARCHITECTURE.md")
    });
    breaches
        .map(|breach| format!("{}:{}: {}", breach.path, breach.line, breach.text[0]))
        .collect()
}

fn tree(files: &[(&str, &str)]) -> Tree {
    let files = files.iter();
    Tree::new(files.map(|&(path, text)| (path.to_owned(), text.to_owned())))
}

/// `breaches.txt` has trees: a title after `# `, files after `--- `, and after `=> ` each breach of
/// the file above it.
#[test]
fn each_tree_has_the_breaches_that_it_says() {
    let all = include_str!("tests/breaches.txt");
    for block in all.strip_prefix("# ").expect("a title").split("\n# ") {
        let mut parts = block.split("\n--- ");
        let title = parts.next();
        let mut files = Vec::new();
        let mut wanted = Vec::new();
        for part in parts {
            let (path, rest) = part.split_once('\n').unwrap_or((part, ""));
            let lines = rest
                .lines()
                .map(|line| line.strip_prefix("=> ").ok_or(line));
            let (breaches, lines): (Vec<_>, Vec<_>) = lines.partition(Result::is_ok);
            let lines: Vec<&str> = lines.into_iter().filter_map(Result::err).collect();
            files.push((path, lines.join("\n") + "\n"));
            let breaches = breaches.into_iter().flatten();
            wanted.extend(breaches.map(|breach| format!("{path}:{breach}")));
        }
        wanted.sort();
        let files = files.iter().map(|(path, text)| (*path, text.as_str()));
        let mut found = found(&files.collect::<Vec<_>>());
        found.sort();
        assert_eq!(found, wanted, "{title:?}");
    }
}

#[test]
fn breaches_of_all_rules_are_lines_sorted_by_place() {
    let files = [
        ("x/src/b.rs", "use crate::a::A; struct B;"),
        ("x/src/a.rs", "use crate::b::B; struct A;\nmod utils {}"),
        (
            "crates/packtrain/src/plan.rs",
            "use crate::engine::Engine; fn f() { libc::g() }",
        ),
    ];
    let breaches = check(&tree(&files));
    assert!(breaches.is_sorted());
    for place in [
        "ARCHITECTURE.md",
        "crates/packtrain/src/plan.rs",
        "x/src/a.rs",
        "xtask/src/tidy/fences.rs",
        "xtask/src/tidy/layers.rs",
    ] {
        assert!(breaches.iter().any(|one| one.path == place), "{place}");
    }
    let line = breach("a.rs", 3, "x", "y", "z").to_string();
    assert_eq!(line, "a.rs:3: x; y; z");
}

#[test]
fn entries_of_tables_name_what_exists() {
    let clock = "`crates/packtrain/src/time.rs` does not name `std::time`";
    let policy = "`crates/packtrain/src/policy` does not exist";
    let system = "`crates/packtrain/src/port/sys/` does not name `libc`";
    let stats = "`crates/packtrain/src/stats` does not exist";
    let tun = "`crates/packtrain/src/port/sys/tun` does not exist";
    for (file, text, entry, is_stale) in [
        ("time.rs", "", clock, true),
        ("time.rs", "use std::time::Instant;", clock, false),
        ("time.rs", "", policy, true),
        ("policy/idle.rs", "", policy, false),
        ("port/sys/tun.rs", "", system, true),
        ("port/sys/tun.rs", "use libc::c_int;", system, false),
        ("port/sys/tun.rs", "", tun, false),
        ("stats.rs", "", stats, false),
        ("stats/mod.rs", "", stats, false),
        ("stats/deeper/one.rs", "", stats, false),
        ("statistics.rs", "", stats, true),
        ("statistics.rs", "", tun, true),
    ] {
        let path = format!("crates/packtrain/src/{file}");
        let breaches = check(&tree(&[(&path, text)]));
        let told = format!("{entry} and is listed");
        let is_told = breaches.iter().any(|breach| breach.text[0] == told);
        assert_eq!(is_told, is_stale, "{file}: {text}: {entry}");
    }
}

#[test]
fn circles_are_not_made_by_declaring_and_re_exporting_children() {
    let child = ("c/src/a/x.rs", "use super::Thing; pub struct X;");
    for (parent, circles) in [
        ("mod x; pub use x::X; pub struct Thing;", 0),
        (
            "mod x; pub(crate) use self::x::{X as Y}; pub struct Thing;",
            0,
        ),
        ("mod x; pub use x::*; pub struct Thing;", 0),
        // Its own use of what it re-exports makes one, and so does an import.
        ("mod x; pub use x::X; pub struct Thing(X);", 1),
        ("mod x; use x::X; pub struct Thing;", 1),
        ("mod x; pub struct Thing(x::X);", 1),
        ("mod x; pub struct Thing(self::x::X);", 1),
        ("mod x; pub struct Thing(crate::a::x::X);", 1),
        // The same if the child takes from the parent what another file defines.
        ("mod x; mod y; use x::X; pub use y::Thing;", 0),
    ] {
        for path in ["c/src/a.rs", "c/src/a/mod.rs"] {
            let files = [(path, parent), child, ("c/src/a/y.rs", "pub struct Thing;")];
            assert_eq!(found(&files).len(), circles, "{path}: {parent}");
        }
    }
}

#[test]
fn circles_are_found_through_re_exports_globs_and_other_names() {
    for (root, b) in [
        ("mod a; mod b; pub use a::A;", "use crate::A; pub struct B;"),
        ("mod a; mod b; pub use a::*;", "use crate::A; pub struct B;"),
        ("mod a; mod b;", "use crate::a::A as X; pub struct B;"),
        ("mod a; mod b;", "use super::a; pub struct B(a::A);"),
        (
            "mod a; mod b;",
            "use super::a; use x::*; use y::*; use z::z; pub struct B(a::A, z::Z);",
        ),
        (
            "mod a; mod b;",
            "use super::a; fn a() { a::A } pub struct B;",
        ),
        ("mod a; mod b;", "use crate::a::*; pub struct B;"),
        ("mod a; mod b;", "fn f() { crate::word!() } pub struct B;"),
        (
            "mod a; mod b;",
            "mod i { use super::super::a::A; } pub struct B;",
        ),
    ] {
        let a = "use crate::b::B; pub struct A; macro_rules! word { () => {} }";
        let files = [("c/src/lib.rs", root), ("c/src/a.rs", a), ("c/src/b.rs", b)];
        assert_eq!(found(&files).len(), 1, "{root} {b}");
    }
}

/// A driver of so many lines of code, with as many comments, blank lines, and tests.
fn port(lines: usize) -> String {
    let body = "    const X: u8 = 1; // why\n\n    // nothing\n".repeat(lines - 2);
    let tests = "#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
    format!("impl Driver for Tap {{\n{body}}}\n{tests}")
}

#[test]
fn a_port_is_bounded_with_all_its_files_and_without_tests_comments_and_blanks() {
    let tap = "crates/packtrain/src/port/tap.rs";
    assert_eq!(found(&[(tap, &port(260))]), [""; 0]);
    let told = format!("{tap}:1: port `tap` has 261 code lines, more than 260");
    assert_eq!(found(&[(tap, &port(261))]), [told.as_str()]);
    let more = ("crates/packtrain/src/port/tap/rx.rs", "const X: u8 = 1;\n");
    assert_eq!(found(&[(tap, &port(260)), more]), [told]);
}

#[test]
fn what_ports_share_is_shown_and_not_bounded() {
    let line = "const X: u8 = 1;\n";
    let files = [
        ("tap.rs", port(100)),
        ("tap/keys.rs", line.repeat(400)),
        ("spec.rs", line.repeat(300)),
        ("sys/tap.rs", line.repeat(40)),
        ("sys/mod.rs", "mod tun;\n".to_owned()),
        ("sys/tun.rs", line.repeat(7)),
        ("wrap/fault.rs", port(300)),
        ("tests.rs", port(300)),
    ];
    let files = files.map(|(file, text)| (format!("crates/packtrain/src/port/{file}"), text));
    let tree = Tree::new(files);
    assert_eq!(port_lines::check(&tree), []);
    let rows = ["spec shared 300 -", "tap driver 100 40", "tun sys - 7"];
    assert_eq!(words(&port_lines::table(&tree))[1..], rows);
    let all = (3 * 98 + 2 + 4) + 400 + 300 + 40 + 1 + 7 + 2 * (3 * 298 + 2 + 4);
    let product = (3 * 98 + 2) + 400 + 300 + 40 + 1 + 7 + (3 * 298 + 2);
    let rows = ["packtrain", "total"].map(|name| format!("{name} {all} {product}"));
    assert_eq!(words(&port_lines::of_crates(&tree))[1..], rows);
}

#[test]
fn files_are_bounded_without_their_tests_and_lines_in_columns_not_bytes() {
    let lines = "const X: u8 = 1;\n".repeat(900);
    let tests = "#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
    let [most, longer, twice] = [
        format!("{lines}{tests}"),
        format!("{lines}\n{tests}"),
        format!("{lines}{lines}"),
    ];
    assert_eq!(
        found(&[("a.rs", &most), ("crates/x/tests/grid.rs", &twice)]),
        [""; 0]
    );
    assert_eq!(
        found(&[("a.rs", &longer)]),
        ["a.rs:901: 901 lines without tests, more than 900"]
    );
    let [most, longer] = [("é", 100), ("e", 101)].map(|(c, n)| format!("// {}", c.repeat(n - 3)));
    assert_eq!(found(&[("a.rs", &most)]), [""; 0]);
    assert_eq!(
        found(&[("a.rs", &longer)]),
        ["a.rs:1: 101 columns, more than 100"]
    );
}

#[test]
fn comments_and_literals_are_no_words() {
    let text = "//! doc\n/// word\nfn f() { // yes\n    let a = \"b\\nc\";\n\n}";
    let source = Source::parse("a.rs", text);
    let texts = source.tokens.iter().map(|token| token.text.as_str());
    let code = texts.collect::<Vec<_>>().join(" ");
    assert!(code.ends_with("fn f ( ) { let a = \" ; }"), "{code}");
    assert!(!code.contains("word") && !code.contains("yes"), "{code}");
    assert_eq!(source.code_lines(), 3);
}

#[test]
fn test_items_end_where_they_end() {
    let text = "#[cfg(test)]\nuse a::B;\nfn product() {}\n\
        #[cfg(all(test, unix))]\n#[derive(Debug)]\nstruct T([u8; 3]);\nfn product2() {}\n\
        struct S {\n    #[cfg(test)]\n    f: u8,\n    g: u8,\n}\n\
        #[cfg(not(test))]\nfn product3() {}\n";
    let product = |text: &str| -> Vec<usize> {
        let source = Source::parse("a.rs", text);
        source.product_lines().map(|(number, _)| number).collect()
    };
    assert_eq!(product(text), [3, 7, 8, 11, 12, 13, 14]);
    assert_eq!(product("#![cfg(test)]\nfn f() {}\n"), [0; 0]);
}
