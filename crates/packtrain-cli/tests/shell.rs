//! `packtrain completions` and `packtrain man`.

mod program;

use program::{Scratch, ends, finish, packtrain};
use std::fs;

/// Runs a program that reads what packtrain wrote. `None` if it is not installed.
fn run(program: &str, args: &[&str]) -> Option<program::Ran> {
    match program::command(program, args).spawn() {
        Ok(child) => Some(finish(child)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => panic!("{program}: {error}"),
    }
}

#[test]
fn bash_completes_commands_options_and_values() {
    let scratch = Scratch::new("bash");
    let path = scratch.file("packtrain.bash");
    let ran = ends(0, &["completions", "bash"]);
    assert_eq!(ran.err, "");
    fs::write(&path, &ran.out).expect("a file");
    // What bash does at a tab: it calls the function with the words and the number of the last one.
    let script = r#"
        set -u
        source "$1"
        complete -p packtrain >&2
        shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _packtrain packtrain "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let cases: &[(&[&str], &[&str])] = &[
        (&["packtrain", "fo"], &["forward"]),
        (&["packtrain", "co"], &["compare", "completions"]),
        (&["packtrain", "forward", "--stats-"], &["--stats-interval"]),
        (&["packtrain", "forward", "t"], &["tap:", "tun:"]),
        (&["packtrain", "plan", "tap:a", "vho"], &["vhost-user:"]),
        (&["packtrain", "experiment", "tso-"], &["tso-matrix"]),
        (&["packtrain", "check", "--only", "udp-s"], &["udp-sizes"]),
        (
            &["packtrain", "guest", "--card", ""],
            &["e1000e", "virtio", "vmxnet3"],
        ),
        (
            &["packtrain", "completions", ""],
            &["bash", "elvish", "fish", "powershell", "zsh"],
        ),
    ];
    for (words, expected) in cases {
        let args = [&["-c", script, "bash", &path], *words].concat();
        let ran = run("bash", &args).expect("bash is part of every system");
        assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{words:?}: {ran:?}");
        assert!(ran.err.contains("_packtrain"), "{ran:?}");
        let offered: Vec<_> = ran
            .out
            .lines()
            .filter(|word| !word.starts_with("-h"))
            .collect();
        for word in *expected {
            assert!(offered.contains(word), "{word} for {words:?}: {ran:?}");
        }
    }
}

#[test]
fn each_shell_has_every_command() {
    let names = commands();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = ends(0, &["completions", shell]).out;
        for name in &names {
            assert!(text.contains(name.as_str()), "{name} for {shell}");
        }
    }
    let ran = packtrain(&["completions", "csh"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
    let line = ran.error_line();
    assert!(line.contains("write one of bash, elvish, fish"), "{line}");
}

/// The commands, by the help.
fn commands() -> Vec<String> {
    let help = ends(0, &["--help"]).out;
    let (_, list) = help.split_once("Commands:\n").expect("a list");
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| {
        let is_name = line.starts_with("  ") && !line.starts_with("   ");
        is_name.then(|| {
            line.split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        })
    });
    let names: Vec<_> = names.filter(|name| name != "help").collect();
    assert!(names.len() > 10, "{help}");
    names
}

#[test]
fn every_command_has_a_manual_page_that_groff_reads_without_a_warning() {
    let scratch = Scratch::new("man");
    // A folder that does not exist is made.
    let folder = scratch.file("share/man1");
    let ran = ends(0, &["man", &folder]);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""));
    let mut pages: Vec<_> = fs::read_dir(&folder)
        .expect("it was made")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    pages.sort();
    let mut expected: Vec<_> = commands()
        .iter()
        .map(|name| format!("packtrain-{name}.1"))
        .collect();
    expected.push("packtrain.1".to_owned());
    expected.sort();
    assert_eq!(pages, expected);

    let main = format!("{folder}/packtrain.1");
    let text = fs::read_to_string(&main).expect("it is there");
    assert_eq!(ends(0, &["man"]).out, text);
    for section in [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "SUBCOMMANDS",
        "EXAMPLES",
        "EXIT CODES",
    ] {
        assert!(
            text.contains(&format!("\n.SH {section}\n")),
            "{section} in {text}"
        );
    }
    for page in pages {
        let path = format!("{folder}/{page}");
        let Some(ran) = run("groff", &["-man", "-Tutf8", "-ww", "-rLL=100n", &path]) else {
            println!("SKIP: no groff here to read manual pages with");
            return;
        };
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{page}");
        let name = page.strip_suffix(".1").expect("a section");
        assert!(ran.out.contains(name), "{page}: {}", ran.out);
        if page == "packtrain.1" {
            assert!(
                ran.out
                    .contains("packtrain forward tap:tap0,queues=4 tap:tap1"),
                "{ran:?}"
            );
        }
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_4() {
    let scratch = Scratch::new("no-folder");
    let file = scratch.file("file");
    fs::write(&file, "").expect("a file");
    let ran = packtrain(&["man", &format!("{file}/man1")]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(4), ""), "{ran:?}");
    assert!(ran.error_line().contains("cannot write"), "{ran:?}");
}
