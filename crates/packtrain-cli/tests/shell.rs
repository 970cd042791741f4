//! `packtrain completions` and `packtrain man`.

mod program;

use program::{Scratch, ends, finish, packtrain};
use std::fs;
use std::path::{Path, PathBuf};

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
        PATH=$2:$PATH
        shift 2
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
        word=${COMP_WORDS[COMP_CWORD]}
        _clap_complete_packtrain packtrain "$word" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "$COMP_WORDBREAKS" "${COMPREPLY[@]}"
    "#;
    let program = Path::new(env!("CARGO_BIN_EXE_packtrain")).parent();
    let program = program.and_then(Path::to_str).expect("a folder");
    // Interfaces that are there now.
    let ethernet = fs::read_dir("/sys/class/net").expect("sysfs");
    let ethernet = ethernet.map(|entry| entry.expect("an entry").path());
    let is_ethernet =
        |path: &PathBuf| fs::read(path.join("type")).is_ok_and(|found| found == b"1\n");
    let name = |path: PathBuf| format!("packet:{}", path.file_name().unwrap().to_str().unwrap());
    let interfaces: Vec<_> = ethernet.filter(is_ethernet).map(name).collect();
    let interfaces: Vec<_> = interfaces.iter().map(String::as_str).collect();
    let capture = scratch.file("some.pcap");
    fs::write(&capture, "").expect("a file");
    let (captures, captured) = (scratch.file("so"), format!("pcap:{capture}"));
    let captures = format!("pcap:{captures}");
    let cases: &[(&[&str], &[&str])] = &[
        (&["packtrain", "fo"], &["forward"]),
        (&["packtrain", "co"], &["compare", "completions"]),
        (&["packtrain", "forward", "--stats-"], &["--stats-interval"]),
        (&["packtrain", "forward", "t"], &["tap:", "tun:"]),
        (&["packtrain", "plan", "tap:a", "vho"], &["vhost-user:"]),
        (&["packtrain", "forward", "packet:"], &interfaces),
        (&["packtrain", "forward", "tun:", &captures], &[&captured]),
        (&["packtrain", "experiment", "tso-"], &["tso-matrix"]),
        (&["packtrain", "check", "--only", "udp-si"], &["udp-sizes"]),
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
        let args = [&["-c", script, "bash", &path, program], *words].concat();
        let ran = run("bash", &args).expect("bash is part of every system");
        assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{words:?}: {ran:?}");
        assert!(ran.err.contains("_packtrain"), "{ran:?}");
        // A colon ends no word. The breaks have a line end.
        let (breaks, offered) = ran.out.split_once("|&(\n").expect("breaks");
        assert!(!breaks.contains(':'), "{ran:?}");
        let is_value = |word: &&str| !word.starts_with("-");
        let offers_options = expected[0].starts_with('-');
        let mut offered: Vec<_> = offered
            .lines()
            .filter(|word| offers_options || is_value(word))
            .collect();
        let mut expected = expected.to_vec();
        offered.sort_unstable();
        expected.sort_unstable();
        assert_eq!(offered, expected, "for {words:?}: {ran:?}");
    }
}

#[test]
fn each_shell_asks_the_program() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = ends(0, &["completions", shell]).out;
        assert!(text.contains("PACKTRAIN_COMPLETE"), "{shell}: {text}");
        let mut asked =
            program::command(env!("CARGO_BIN_EXE_packtrain"), &["--", "packtrain", "pl"]);
        asked
            .env("PACKTRAIN_COMPLETE", shell)
            .env("_CLAP_COMPLETE_INDEX", "1");
        let ran = finish(asked.spawn().expect("the program"));
        assert!(ran.out.starts_with("plan"), "{shell}: {ran:?}");
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
