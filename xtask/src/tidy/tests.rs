//! Each rule on a tree that breaks it, and on the nearest tree that does not.

use super::breach::Breach;
use super::source::{Kind, Source};
use super::tree::Tree;
use super::{check, circles, layers, manifest, port_lines, size, unsafe_list, waiting, words};

const PLAN: &str = "crates/packtrain/src/plan.rs";
const TAP: &str = "crates/packtrain/src/port/tap.rs";

fn one(rule: fn(&Tree) -> Vec<Breach>, path: &str, text: &str) -> Vec<Breach> {
    rule(&Tree::new([(path, text)]))
}

/// The one breach of a tree of one file, as `line: what`.
fn only(rule: fn(&Tree) -> Vec<Breach>, path: &str, text: &str) -> String {
    let breaches = one(rule, path, text);
    assert_eq!(breaches.len(), 1, "{breaches:?}");
    assert_eq!(breaches[0].path, path);
    format!("{}: {}", breaches[0].line, breaches[0].what)
}

fn is_clean(rule: fn(&Tree) -> Vec<Breach>, path: &str, text: &str) {
    assert_eq!(one(rule, path, text), []);
}

#[test]
fn a_breach_is_one_line_with_place_reason_and_remedy() {
    let breach = Breach::new("a.rs", 3, "x".to_owned(), "y", "z");
    assert_eq!(breach.to_string(), "a.rs:3: x; y; z");
}

#[test]
fn all_rules_run_and_are_sorted_by_place() {
    let long = format!("// {}\nmod utils {{}}\n", "x".repeat(100));
    let tree = Tree::new([
        ("a/Cargo.toml", "[package]\n"),
        ("b.rs", long.as_str()),
        (PLAN, "use crate::engine::Engine;"),
        ("x/src/a.rs", "use crate::b::B; struct A;"),
        ("x/src/b.rs", "\nuse crate::a::A; struct B;"),
    ]);
    let places: Vec<(String, usize)> = check(&tree)
        .into_iter()
        // The entries of the tables, of which this tree has none.
        .filter(|breach| !breach.path.starts_with("xtask/"))
        .map(|breach| (breach.path, breach.line))
        .collect();
    let expected = [
        ("ARCHITECTURE.md", 1),
        ("a/Cargo.toml", 1),
        ("b.rs", 1),
        ("b.rs", 2),
        (PLAN, 1),
        ("x/src/a.rs", 1),
    ];
    assert_eq!(places, expected.map(|(path, line)| (path.to_owned(), line)));
}

mod imports {
    use super::*;

    #[test]
    fn of_a_higher_layer_is_a_breach_of_an_equal_or_lower_one_is_not() {
        assert_eq!(
            only(layers::check, PLAN, "\nuse crate::queue::Ring;"),
            "2: `plan` (layer 6) imports `crate::queue::Ring` of a higher layer"
        );
        is_clean(
            layers::check,
            PLAN,
            "use crate::{driver::Caps, packet, policy::*, plan::X};",
        );
    }

    #[test]
    fn are_seen_in_trees_paths_super_and_macros() {
        let breaks = |text: &str| only(layers::check, "crates/packtrain/src/queue/tx.rs", text);
        let what = "`queue` (layer 7) imports `crate::engine::E` of a higher layer";
        assert_eq!(
            breaks("use crate::{\n driver::{self, A as B},\n engine::{E},\n};"),
            "3: ".to_owned() + what
        );
        assert_eq!(
            breaks("fn f() { let e = crate::engine::E::<u8>::new(); }"),
            "1: ".to_owned() + what
        );
        assert_eq!(
            breaks("use super::super::engine::E;"),
            "1: ".to_owned() + what
        );
        assert_eq!(
            breaks("mod inner { use super::super::super::engine::E; }"),
            "1: ".to_owned() + what
        );
        assert_eq!(
            breaks("macro_rules! m { () => { $crate::engine::E } }"),
            "1: ".to_owned() + what
        );
        assert_eq!(
            breaks("pub use crate::engine::*;"),
            "1: `queue` (layer 7) imports `crate::engine::*` of a higher layer"
        );
    }

    #[test]
    fn in_comments_strings_visibility_and_test_code_do_not_count() {
        let text = "// crate::engine::E\nconst S: &str = \"crate::engine::E\";\n\
            pub(in crate::engine) struct X;\n\
            #[cfg(test)]\nmod tests { use crate::engine::E; }\n";
        is_clean(layers::check, PLAN, text);
        is_clean(
            layers::check,
            "crates/packtrain/src/plan/tests.rs",
            "use crate::engine::E;",
        );
        let declared = Tree::new([
            (
                "crates/packtrain/src/plan.rs",
                "#[cfg(test)]\nmod checks;\nmod product;",
            ),
            (
                "crates/packtrain/src/plan/checks.rs",
                "use crate::engine::E;",
            ),
        ]);
        assert_eq!(layers::check(&declared), []);
        let product = "crates/packtrain/src/plan/product.rs";
        assert_eq!(
            one(layers::check, product, "use crate::engine::E;").len(),
            1
        );
    }

    #[test]
    fn through_the_crate_root_hide_the_layer_but_macros_live_there() {
        assert_eq!(
            only(layers::check, PLAN, "use crate::Engine;"),
            "1: `crate::Engine` is reached through the crate root"
        );
        assert_eq!(
            only(layers::check, PLAN, "use super::*;"),
            "1: `crate::*` is reached through the crate root"
        );
        is_clean(layers::check, PLAN, "crate::some_macro!();");
        let suite = "macro_rules! m { ($name:ident) => { mod $name { use super::*; } } }";
        is_clean(layers::check, PLAN, suite);
        is_clean(
            layers::check,
            "crates/packtrain/src/lib.rs",
            "pub use crate::engine::Engine;",
        );
    }

    #[test]
    fn need_a_layer_for_every_module() {
        let file = "crates/packtrain/src/stray.rs";
        assert_eq!(
            only(layers::check, file, ""),
            "1: module `stray` is in no layer"
        );
    }

    #[test]
    fn of_the_offload_crate_have_layers_of_their_own() {
        let layout = "crates/packtrain-offload/src/layout.rs";
        assert_eq!(
            only(layers::check, layout, "use crate::segment::S;"),
            "1: `layout` (layer 1) imports `crate::segment::S` of a higher layer"
        );
        is_clean(layers::check, layout, "use crate::wire::ipv4;");
    }

    #[test]
    fn of_a_port_are_the_driver_contract_only() {
        assert_eq!(
            only(layers::check, TAP, "use crate::queue::tx;"),
            "1: a port imports `crate::queue::tx`"
        );
        // Below the port's layer, and forbidden all the same.
        assert_eq!(
            only(layers::check, TAP, "use crate::plan::P;"),
            "1: a port imports `crate::plan::P`"
        );
        assert_eq!(
            only(layers::check, TAP, "use crate::stats::counter::C;"),
            "1: a port imports `crate::stats::counter::C`"
        );
        is_clean(
            layers::check,
            TAP,
            "use crate::{driver::Driver, packet::Packet, time, limits, sync};\n\
             use crate::stats::DropReason; use crate::port::spec;",
        );
    }

    #[test]
    fn between_engine_and_port_are_breaches_both_ways() {
        let engine = "crates/packtrain/src/engine/worker.rs";
        assert_eq!(
            only(layers::check, engine, "use crate::port::P;"),
            "1: `engine` imports `crate::port::P`"
        );
        assert_eq!(
            only(layers::check, TAP, "use crate::engine::E;"),
            "1: a port imports `crate::engine::E`"
        );
    }

    #[test]
    fn of_system_calls_are_of_the_ports_own_file() {
        is_clean(
            layers::check,
            TAP,
            "use crate::port::sys::tun; use super::sys::tap;",
        );
        assert_eq!(
            only(layers::check, TAP, "use super::sys::epoll;"),
            "1: `tap` imports `crate::port::sys::epoll`, which is not its own system call file"
        );
        assert_eq!(one(layers::check, TAP, "use super::sys;").len(), 1);
        assert_eq!(
            one(
                layers::check,
                "crates/packtrain/src/port/wrap/fault.rs",
                "use crate::port::sys::tun;"
            )
            .len(),
            1
        );
        is_clean(
            layers::check,
            "crates/packtrain/src/port/null.rs",
            "use super::sys::null;",
        );
        is_clean(
            layers::check,
            "crates/packtrain/src/port/sys/tap.rs",
            "use super::tun;",
        );
    }

    #[test]
    fn of_a_policy_are_numbers_only() {
        const IDLE: &str = "crates/packtrain/src/policy/idle.rs";
        let breaks = |text| only(layers::check, IDLE, text);
        assert_eq!(
            breaks("\nuse crate::stats::Counter;"),
            "2: a policy imports `crate::stats::Counter`"
        );
        assert_eq!(
            breaks("use crate::time::{Instant, MonotonicClock};"),
            "1: a policy imports `crate::time::MonotonicClock`"
        );
        for (text, name) in [
            ("fn f(x: f64) {}", "f64"),
            ("fn f() { std::thread::yield_now(); }", "thread"),
            ("use std::fs;", "fs"),
            ("fn f() { std::time::Instant::now(); }", "now"),
        ] {
            assert_eq!(breaks(text), format!("1: a policy names `{name}`"));
        }
        is_clean(
            layers::check,
            IDLE,
            "use crate::time::Instant; use super::x; use crate::limits::A; use std::time::Duration;
             fn f(now: u64) -> u64 { now } #[cfg(test)] fn g() { std::thread::park(); }",
        );
        // The rule is about policies alone, and the reader of the topology is none.
        is_clean(layers::check, PLAN, "use std::fs; fn f(x: f32) {}");
        is_clean(
            layers::check,
            "crates/packtrain/src/policy/topology.rs",
            "use std::{fs, io};",
        );
    }

    #[test]
    fn of_the_shell_are_as_pure_as_those_of_a_policy() {
        const SHELL: &str = "crates/packtrain/src/engine/shell.rs";
        for (text, name) in [
            ("fn f() { std::time::Instant::now(); }", "now"),
            ("use std::time::SystemTime;", "SystemTime"),
            ("fn f(x: f64) {}", "f64"),
            ("use std::thread;", "thread"),
            ("use std::fs::File;", "fs"),
        ] {
            let told = only(layers::check, SHELL, text);
            assert_eq!(told, format!("1: the shell names `{name}`"));
        }
        let text = "use crate::time::Instant; #[cfg(test)] mod t { use std::thread; }";
        is_clean(layers::check, SHELL, text);
    }

    /// What the rule of waiting says of `file`, without the entries of its list.
    fn waiting(file: &str, text: &str) -> Vec<String> {
        let breaches = one(waiting::check, file, text).into_iter();
        let told = breaches.filter(|breach| breach.path == file);
        told.map(|breach| format!("{}: {}", breach.line, breach.what))
            .collect()
    }

    #[test]
    fn of_threads_and_clocks_are_in_listed_files() {
        for (text, told) in [
            (
                "\nuse std::{fmt, thread::JoinHandle};",
                "2: names `std::thread`",
            ),
            (
                "fn f() { std::thread::yield_now(); }",
                "1: names `std::thread`",
            ),
            ("use core::hint::spin_loop;", "1: names `spin_loop`"),
            ("fn f(t: T) { t.park(); }", "1: names `park`"),
            (
                "use std::time::{Duration, Instant};",
                "1: names `std::time`",
            ),
            ("use std::time::{self, Duration};", "1: names `std::time`"),
            (
                "fn f() { std::time::SystemTime::now(); }",
                "1: names `std::time`",
            ),
        ] {
            // Files that no list has ever named, too.
            for file in [
                "engine/session.rs",
                "engine/new.rs",
                "port/new/mod.rs",
                "new.rs",
            ] {
                let path = format!("crates/packtrain/src/{file}");
                assert_eq!(waiting(&path, text), [told], "{file}");
            }
            let codec = "crates/packtrain-capture/src/codec/new.rs";
            assert_eq!(waiting(codec, text), [told]);
        }
        let thread = "crates/packtrain/src/engine/thread.rs";
        assert!(waiting(thread, "use std::thread; use std::hint::spin_loop;").is_empty());
        // A file of the list may do what its entry says, and no more.
        let runtime = "crates/packtrain/src/runtime.rs";
        assert!(waiting(runtime, "use std::thread;").is_empty());
        assert_eq!(waiting(runtime, "use std::hint::spin_loop;").len(), 1);
        let text = "use super::thread; use std::time::Duration; fn f() { thread::start(); } \
                    #[cfg(test)] use std::thread;";
        assert!(waiting("crates/packtrain/src/engine/session.rs", text).is_empty());
        assert!(waiting("crates/packtrain-lab/src/tool.rs", "use std::thread;").is_empty());
    }

    #[test]
    fn of_tables_are_files_that_exist() {
        let stale = one(waiting::check, "crates/packtrain/src/time.rs", "");
        assert!(stale.iter().any(|breach| breach.what
            == "`crates/packtrain/src/time.rs` does not exist, or does not name `std::time`"));
        let names = |breaches: &[Breach], file: &str| {
            breaches.iter().any(|breach| breach.what.contains(file))
        };
        for file in ["stats.rs", "stats/mod.rs", "stats/deeper/one.rs"] {
            let path = format!("crates/packtrain/src/{file}");
            let stale = one(layers::stale, &path, "");
            assert!(!names(&stale, "`crates/packtrain/src/stats`"), "{file}");
            assert!(names(&stale, "`crates/packtrain/src/port/sys/`"), "{file}");
        }
        let stale = one(layers::stale, "crates/packtrain/src/statistics.rs", "");
        assert!(names(&stale, "`crates/packtrain/src/stats`"));
        let stale = one(layers::stale, "crates/packtrain/src/port/sys/tun.rs", "");
        assert!(!names(&stale, "`crates/packtrain/src/port/sys/`"));
    }

    #[test]
    fn of_libc_are_in_the_listed_places() {
        assert_eq!(
            only(layers::check, TAP, "\n\nfn f() { libc::close(3); }"),
            "3: names `libc`"
        );
        assert_eq!(
            one(
                layers::check,
                "crates/packtrain/src/packet/arena.rs",
                "use libc as l;"
            )
            .len(),
            1
        );
        for place in ["port/sys/tun.rs", "packet/sys.rs", "engine/sys.rs"] {
            is_clean(
                layers::check,
                &format!("crates/packtrain/src/{place}"),
                "use libc::c_int;",
            );
        }
        is_clean(
            layers::check,
            TAP,
            "#[cfg(test)] fn f() { libc::close(3); }",
        );
    }
}

mod circles_of_files {
    use super::*;

    /// The breaches of a crate of these files, as `path:line: what`.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files = files
            .iter()
            .map(|(path, text)| (format!("c/src/{path}"), *text));
        circles::check(&Tree::new(files))
            .into_iter()
            .map(|breach| format!("{}:{}: {}", breach.path, breach.line, breach.what))
            .collect()
    }

    #[test]
    fn of_two_and_of_more_are_one_breach_each_with_the_shortest_way_around() {
        let two = found(&[
            ("a.rs", "\nuse crate::b::B;\nstruct A;"),
            ("b.rs", "struct B;\nfn f() { crate::a::A }"),
        ]);
        assert_eq!(
            two,
            [
                "c/src/a.rs:2: circle of 2 files: c/src/a.rs:2 names `b::B`, \
              c/src/b.rs:2 names `a::A`"
            ]
        );
        let four = found(&[
            ("a.rs", "use super::b::B; struct A;"),
            ("b.rs", "use super::{c::C, d::D}; struct B;"),
            ("c.rs", "use super::a::A; struct C;"),
            ("d.rs", "use super::c::C; struct D;"),
        ]);
        assert_eq!(
            four,
            [
                "c/src/a.rs:1: circle of 4 files: c/src/a.rs:1 names `b::B`, \
              c/src/b.rs:1 names `c::C`, c/src/c.rs:1 names `a::A`"
            ]
        );
        let none = [
            ("a.rs", "use super::{b::B, c::C}; struct A;"),
            ("b.rs", "use super::c::C; struct B;"),
            ("c.rs", "struct C;"),
        ];
        assert!(found(&none).is_empty());
    }

    #[test]
    fn are_not_made_by_declaring_and_re_exporting_children() {
        let child = ("a/x.rs", "use super::Thing; pub struct X;");
        for parent in [
            "mod x; pub use x::X; pub struct Thing;",
            "mod x; pub(crate) use self::x::{X as Y}; pub struct Thing;",
            "mod x; pub use x::*; pub struct Thing;",
        ] {
            for path in ["a.rs", "a/mod.rs"] {
                assert!(found(&[(path, parent), child]).is_empty(), "{parent}");
            }
        }
        // Its own use of what it re-exports makes one, and so does an import.
        for parent in [
            "mod x; pub use x::X; pub struct Thing(X);",
            "mod x; use x::X; pub struct Thing;",
            "mod x; pub struct Thing(x::X);",
            "mod x; pub struct Thing(self::x::X);",
            "mod x; pub struct Thing(crate::a::x::X);",
        ] {
            assert_eq!(found(&[("a.rs", parent), child]).len(), 1, "{parent}");
        }
        // The same if the child takes from the parent what another file defines.
        let files = [
            ("a.rs", "mod x; mod y; use x::X; pub use y::Thing;"),
            child,
            ("a/y.rs", "pub struct Thing;"),
        ];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn are_found_through_re_exports_globs_and_other_names() {
        for (root, b) in [
            ("mod a; mod b; pub use a::A;", "use crate::A; pub struct B;"),
            ("mod a; mod b; pub use a::*;", "use crate::A; pub struct B;"),
            ("mod a; mod b;", "use crate::a::A as X; pub struct B;"),
            ("mod a; mod b;", "use super::a; pub struct B(a::A);"),
            ("mod a; mod b;", "use crate::a::*; pub struct B;"),
            ("mod a; mod b;", "fn f() { crate::word!() } pub struct B;"),
            (
                "mod a; mod b;",
                "mod i { use super::super::a::A; } pub struct B;",
            ),
        ] {
            let a = "use crate::b::B; pub struct A; macro_rules! word { () => {} }";
            let files = [("lib.rs", root), ("a.rs", a), ("b.rs", b)];
            assert_eq!(found(&files).len(), 1, "{root} {b}");
        }
        // A module is no item: what counts is what is named through it.
        let files = [
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::a; use std::a::A; pub struct B;"),
        ];
        assert!(found(&files).is_empty());
        let on_a_path = [
            (
                "a.rs",
                "#[path = \"a/one.rs\"]\nmod x;\npub fn f() { x::X }",
            ),
            ("a/one.rs", "use super::f; pub struct X;"),
        ];
        assert_eq!(found(&on_a_path).len(), 1);
    }

    #[test]
    fn of_test_code_do_not_count() {
        let files = [
            ("a.rs", "use crate::b::B; pub struct A;"),
            (
                "b.rs",
                "pub struct B;\n#[cfg(test)]\nmod tests { use crate::a::A; }",
            ),
            ("a/tests.rs", "use super::A;"),
        ];
        assert!(found(&files).is_empty());
    }
}

mod unsafe_code {
    use super::*;

    const SOUND: &str = "fn f() {\n    // SAFETY: g takes no argument.\n    unsafe { g() }\n}\n";

    fn tree(list: &str, source: &str) -> Vec<Breach> {
        let page = format!("# Map\n<!-- unsafe-files -->\n{list}\n<!-- /unsafe-files -->\n");
        unsafe_list::check(&Tree::new([
            ("ARCHITECTURE.md", page.as_str()),
            ("a.rs", source),
        ]))
    }

    fn whats(breaches: &[Breach]) -> Vec<&str> {
        breaches.iter().map(|breach| breach.what.as_str()).collect()
    }

    #[test]
    fn is_listed_exactly() {
        assert_eq!(tree("- `a.rs`", SOUND), []);
        assert_eq!(tree("", "// unsafe\nfn f() { \"unsafe\"; }"), []);
        assert_eq!(
            whats(&tree("", SOUND)),
            ["contains `unsafe` and is not listed in ARCHITECTURE.md"]
        );
        let gone = tree("- `a.rs`\n- `b.rs`", SOUND);
        assert_eq!(
            whats(&gone),
            ["lists `b.rs`, which contains no `unsafe` or does not exist"]
        );
        assert_eq!(gone[0].line, 4);
    }

    #[test]
    fn needs_the_page_its_markers_and_its_form() {
        let page = |text: &str| one(unsafe_list::check, "ARCHITECTURE.md", text);
        assert_eq!(whats(&unsafe_list::check(&Tree::default())), ["is missing"]);
        assert_eq!(
            whats(&page("# Map")),
            ["has no line `<!-- unsafe-files -->`"]
        );
        assert_eq!(
            whats(&page("<!-- unsafe-files -->\n- `a.rs`")),
            ["has no line `<!-- /unsafe-files -->`"]
        );
        assert_eq!(
            whats(&tree("* a.rs", "")),
            ["has `* a.rs` in the list of files with `unsafe`"]
        );
    }
}

mod port_size {
    use super::*;

    fn port(lines: usize) -> String {
        let body = "    const X: u8 = 1; // why\n\n    // nothing\n".repeat(lines - 2);
        let tests = "#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
        format!("impl Driver for Tap {{\n{body}}}\n{tests}")
    }

    #[test]
    fn is_bounded_without_tests_comments_and_blanks() {
        is_clean(port_lines::check, TAP, &port(260));
        assert_eq!(
            only(port_lines::check, TAP, &port(261)),
            "1: port `tap` has 261 code lines, more than 260"
        );
    }

    #[test]
    fn counts_the_files_of_a_folder_together() {
        let tree = Tree::new([
            ("crates/packtrain/src/port/tap/mod.rs".to_owned(), port(200)),
            (
                "crates/packtrain/src/port/tap/rx.rs".to_owned(),
                "const X: u8 = 1;\n".repeat(61),
            ),
        ]);
        assert_eq!(port_lines::check(&tree).len(), 1);
    }

    #[test]
    fn does_not_bound_what_ports_share_but_shows_it() {
        let tree = Tree::new([
            (TAP.to_owned(), port(100)),
            (
                "crates/packtrain/src/port/spec.rs".to_owned(),
                "const X: u8 = 1;\n".repeat(300),
            ),
            (
                "crates/packtrain/src/port/sys/tap.rs".to_owned(),
                "const X: u8 = 1;\n".repeat(40),
            ),
            (
                "crates/packtrain/src/port/sys/mod.rs".to_owned(),
                "mod tun;\n".to_owned(),
            ),
            (
                "crates/packtrain/src/port/sys/tun.rs".to_owned(),
                "const X: u8 = 1;\n".repeat(7),
            ),
            (
                "crates/packtrain/src/port/wrap/fault.rs".to_owned(),
                port(300),
            ),
            ("crates/packtrain/src/port/tests.rs".to_owned(), port(300)),
        ]);
        assert_eq!(port_lines::check(&tree), []);
        let table = port_lines::table(&tree);
        let rows: Vec<Vec<&str>> = table
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            rows,
            [
                vec!["spec", "shared", "300", "-"],
                vec!["tap", "driver", "100", "40"],
                vec!["tun", "sys", "-", "7"],
            ]
        );
        assert_eq!(port_lines::table(&Tree::default()), "");
    }
}

#[test]
fn files_are_bounded_without_their_tests() {
    let lines = "const X: u8 = 1;\n".repeat(900);
    let tests = "#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
    is_clean(size::check, "a.rs", &format!("{lines}{tests}"));
    assert_eq!(
        only(size::check, "a.rs", &format!("{lines}\n{tests}")),
        "901: 901 lines without tests, more than 900"
    );
    is_clean(
        size::check,
        "crates/x/tests/grid.rs",
        &format!("{lines}{lines}"),
    );
}

#[test]
fn lines_are_bounded_in_columns_not_bytes() {
    is_clean(size::check, "a.rs", &"é".repeat(100));
    let what = only(size::check, "a.rs", &format!("\n{}", "e".repeat(101)));
    assert_eq!(what, "2: 101 columns, more than 100");
}

#[test]
fn unfinished_work_is_found_in_code_and_comments() {
    let breaks = |text: &str| only(words::check, "a.rs", text);
    assert_eq!(
        breaks("#[test]\n#[ignore = \"slow\"]\nfn f() {}"),
        "2: ignores a test"
    );
    for mark in ["FIXME", "XXX"] {
        let told = format!("2: a comment says {mark}");
        assert_eq!(breaks(&format!("\nfn f() {{}} // a {mark}: b")), told);
        let other = format!("fn {mark}() {{ \"{mark}\" }} // {mark}X");
        is_clean(words::check, "a.rs", &other);
    }
}

#[test]
fn names_say_something() {
    for path in [
        "src/utils.rs",
        "src/helpers/mod.rs",
        "tests/common/mod.rs",
        "src/types.rs",
    ] {
        assert_eq!(only(words::check, path, ""), "1: a name without a meaning");
    }
    assert_eq!(
        only(words::check, "a.rs", "\nmod helpers { }"),
        "2: module `helpers`"
    );
    is_clean(
        words::check,
        "src/common_header.rs",
        "struct Types; mod segment {}",
    );
}

#[test]
fn members_inherit_the_lints() {
    let check = |path, text| one(manifest::check, path, text).len();
    let lints = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n";
    assert_eq!(check("crates/a/Cargo.toml", lints), 0);
    let without = "[dependencies]\nworkspace = true\n";
    assert_eq!(check("crates/a/Cargo.toml", without), 1);
    assert_eq!(check("Cargo.toml", without), 0);
}

#[test]
fn comments_and_literals_are_no_names() {
    let text = "//! doc\n/// word\nfn f() { // yes\n    let a = \"b\\nc\";\n    /* d */\n\n}";
    let source = Source::parse(text);
    let words = ["fn", "f", "let", "a"];
    let found = source
        .tokens()
        .iter()
        .filter_map(|token| match &token.kind {
            Kind::Word(word) => Some(word.as_str()),
            _ => None,
        });
    assert_eq!(found.collect::<Vec<_>>(), words);
    assert_eq!(source.code_lines(), 3);
    for broken in ["\"", "/*", "#[cfg(test", "mod x {", "use crate::"] {
        let tree = Tree::new([("a.rs", broken)]);
        assert!(
            check(&tree)[1].what.starts_with("is not parsed"),
            "{broken}"
        );
    }
}

#[test]
fn test_items_end_where_they_end() {
    let text = "#[cfg(test)]\nuse a::B;\nfn product() {}\n\
        #[cfg(all(test, unix))]\n#[derive(Debug)]\nstruct T([u8; 3]);\nfn product2() {}\n\
        struct S {\n    #[cfg(test)]\n    f: u8,\n    g: u8,\n}\n\
        #[cfg(not(test))]\nfn product3() {}\n";
    let source = Source::parse(text);
    let test_lines: Vec<usize> = (1..=source.lines().len())
        .filter(|line| source.is_test(*line))
        .collect();
    assert_eq!(test_lines, [1, 2, 4, 5, 6, 9, 10]);
    assert_eq!(
        Source::parse("#![cfg(test)]\nfn f() {}\n").product_lines(),
        0
    );
}
