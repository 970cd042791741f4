//! `packtrain completions` and `packtrain man`: completions of shells and manual pages, made from
//! the definition of the command line.

use crate::exit::{Exit, Failure};
use crate::print;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};
use clap_mangen::Man;
use packtrain::advice;
use packtrain::name::Name;
use packtrain::port::spec::kinds;
use packtrain_lab::check::CHECKS;
use packtrain_lab::experiment::BUILT_IN;
use packtrain_lab::guest::CardModel;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// `packtrain completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(packtrain completions bash)
      for this shell; as a line of ~/.bashrc for each new one
  packtrain completions zsh > ~/.zfunc/_packtrain
  packtrain completions fish > ~/.config/fish/completions/packtrain.fish
      files are to be written again after an upgrade

The shell asks this program at each tab, so it offers the interfaces of that moment. bash no longer
ends a word at a colon, in any command. A folder of zsh has to be in its fpath before it runs
compinit.")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// `packtrain man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  packtrain man | man -l -
      reads the page of the program
  packtrain man ~/.local/share/man/man1
      writes packtrain.1, packtrain-forward.1 and a page for each other command")]
pub struct ManArgs {
    /// Where the pages of all commands are written [default: prints the program's page]
    #[arg(value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
}

/// The models of cards, as they are written.
pub const CARDS: [(&str, CardModel); 3] = [
    ("e1000e", CardModel::E1000e),
    ("vmxnet3", CardModel::Vmxnet3),
    ("virtio", CardModel::Virtio),
];

/// The variable by which a shell asks for completions.
const ASKED: &str = "PACKTRAIN_COMPLETE";

/// Answers a shell that asks for the completions of a word of `program`, the definition of the
/// command line. `false` if none asks.
///
/// # Errors
///
/// If the shell is unknown, or the answer cannot be printed.
pub fn complete(program: impl Fn() -> Command) -> Result<bool, Failure> {
    let asked = CompleteEnv::with_factory(program).var(ASKED);
    let answered = asked.try_complete(std::env::args_os(), std::env::current_dir().ok().as_deref());
    answered.map_err(|error| {
        let text = error.to_string();
        let line = text.trim().trim_start_matches("error: ");
        Failure::new(Exit::Usage, format!("{ASKED}: {}", Name::from(line)))
    })
}

/// Ports: their kinds, and behind a kind the interfaces or files that it can have.
pub fn ports() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| {
        let word = word.to_str().unwrap_or_default();
        let Some((kind, rest)) = word.split_once(':') else {
            let names = kinds().into_iter().map(|kind| format!("{}:", kind.name));
            return begun(word, names);
        };
        let found = match kind {
            "pcap" | "vhost-user" => PathCompleter::any().complete(rest.as_ref()),
            "tap" | "tun" | "packet" | "xdp" => begun(rest, interfaces(kind)),
            _ => vec![],
        };
        let ports = found.into_iter().filter(|one| one.get_value() != ".");
        ports
            .map(|one| one.add_prefix(format!("{kind}:")))
            .collect()
    })
}

/// Those of `names` that begin with `word`.
fn begun<N: Into<String>>(
    word: &str,
    names: impl IntoIterator<Item = N>,
) -> Vec<CompletionCandidate> {
    let names = names.into_iter().map(Into::into);
    let begun = names.filter(|name| name.starts_with(word));
    begun.map(CompletionCandidate::new).collect()
}

/// The names of interfaces that a port of `kind` can have: none without sysfs.
fn interfaces(kind: &str) -> Vec<String> {
    let is_of_program = matches!(kind, "tap" | "tun");
    let link_type = if kind == "tun" { "65534" } else { "1" };
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten();
    let entries = entries.filter_map(Result::ok).filter(|entry| {
        let of = |file| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        of("type").trim() == link_type && (!is_of_program || !of("tun_flags").is_empty())
    });
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.collect()
}

/// Experiments, or the file of one.
pub fn experiments() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| {
        let names = BUILT_IN.iter().map(|(name, _)| *name);
        let mut found = begun(
            word.to_str().unwrap_or_default(),
            names.chain(["all", "list"]),
        );
        found.extend(PathCompleter::any().complete(word));
        found
    })
}

/// The checks of `packtrain check`.
pub fn checks() -> ArgValueCandidates {
    ArgValueCandidates::new(|| begun("", CHECKS.iter().map(|check| check.name)))
}

/// The models of cards of a guest.
pub fn cards() -> ArgValueCandidates {
    ArgValueCandidates::new(|| begun("", CARDS.map(|(name, _)| name)))
}

/// Prints the lines by which a shell asks this program for completions.
///
/// # Errors
///
/// If they cannot be printed.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let (shells, shell) = (Shells::builtins(), args.shell.to_string());
    let shell = shells.completer(&shell).expect("the same shells");
    let mut text = Vec::new();
    if args.shell == Shell::Bash {
        // Otherwise bash has a port end at its colon.
        text.extend(b"COMP_WORDBREAKS=${COMP_WORDBREAKS//:}");
    }
    let program = "packtrain";
    // A program that was started by its path need not be in PATH.
    let path = std::env::current_exe()
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok());
    let started = std::env::args().next().unwrap_or_default();
    let asked = path
        .filter(|_| started.contains('/'))
        .unwrap_or_else(|| program.to_owned());
    let written = shell.write_registration(ASKED, program, program, &asked, &mut text);
    written.expect("memory takes what is written");
    print::document(&String::from_utf8_lossy(&text))
}

/// Prints the manual page of `program`, or writes the pages of all commands to a folder.
///
/// # Errors
///
/// If a page cannot be printed or written.
pub fn man(args: &ManArgs, program: Command) -> Result<(), Failure> {
    let pages = pages(program);
    let Some(folder) = &args.folder else {
        return print::document(&pages[0].1);
    };
    let cannot = |path: &Path, error: std::io::Error| {
        let advice = advice::on_file(error.kind(), true);
        let line = format!("cannot write {}: {error}{advice}", Name::from(path));
        Failure::new(Exit::Port, line)
    };
    std::fs::create_dir_all(folder).map_err(|error| cannot(folder, error))?;
    for (name, page) in &pages {
        let path = folder.join(name);
        std::fs::write(&path, page).map_err(|error| cannot(&path, error))?;
    }
    Ok(())
}

/// File names and pages, that of the program first.
fn pages(program: Command) -> Vec<(String, String)> {
    let mut all = program.disable_help_subcommand(true);
    all.build();
    let commands = all.get_subcommands().filter(|one| !one.is_hide_set());
    [&all].into_iter().chain(commands).map(page).collect()
}

/// The manual page of a command and its file name: what clap_mangen makes, with the text behind the
/// options in sections of its own.
fn page(command: &Command) -> (String, String) {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let after = command
        .get_after_long_help()
        .or(command.get_after_help())
        .map_or_else(String::new, ToString::to_string);
    let alone = command
        .clone()
        .after_help(None::<&str>)
        .after_long_help(None::<&str>);
    let man = Man::new(alone)
        .title(name.to_uppercase())
        .source(concat!("packtrain ", env!("CARGO_PKG_VERSION")))
        .manual("User commands");
    let mut page = Vec::new();
    man.render(&mut page).expect("memory takes what is written");
    let page = String::from_utf8_lossy(&page).into_owned() + &sections(&after);
    (format!("{name}.1"), page)
}

/// `text` of a help as roff. A line at the margin that ends with a colon is the heading of a
/// section. Lines with an indent are as they are, others are filled.
fn sections(text: &str) -> String {
    let mut roff = String::new();
    let mut has_section = false;
    let mut is_indented = false;
    let mut is_filled = false;
    for line in text.lines() {
        let indented = line.starts_with(' ');
        if is_indented && !indented {
            roff.push_str(".fi\n");
            is_indented = false;
        }
        let heading = line.strip_suffix(':').filter(|_| !indented);
        if line.is_empty() {
            is_filled = false;
        } else if let Some(heading) = heading {
            roff.push_str(&format!(".SH {}\n", escaped(&heading.to_uppercase())));
            (has_section, is_filled) = (true, true);
        } else {
            if !has_section {
                roff.push_str(".SH NOTES\n");
                (has_section, is_filled) = (true, true);
            }
            if !is_filled {
                roff.push_str(".PP\n");
                is_filled = true;
            }
            if indented && !is_indented {
                roff.push_str(".nf\n");
                is_indented = true;
            }
            roff.push_str(&format!("{}\n", escaped(line)));
        }
    }
    if is_indented {
        roff.push_str(".fi\n");
    }
    roff
}

/// A line of text, in which roff finds nothing to obey.
fn escaped(line: &str) -> String {
    let line = line
        .replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\'', "\\(aq")
        .replace('`', "\\(ga")
        .replace('^', "\\(ha")
        .replace('~', "\\(ti");
    if line.starts_with('.') {
        format!("\\&{line}")
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_sections_with_examples_as_they_are() {
        let text =
            "Examples:\n  packtrain 'a-b'\n\nA line\nand more.\n\n.dot \\ \n\nKeys of x:\n  a=\n";
        let roff = sections(text);
        let expected = ".SH EXAMPLES\n.nf\n  packtrain \\(aqa\\-b\\(aq\n.fi\n.PP\nA line\n\
            and more.\n.PP\n\\&.dot \\e \n.SH KEYS OF X\n.nf\n  a=\n.fi\n";
        assert_eq!(roff, expected);
        assert_eq!(sections("Text."), ".SH NOTES\nText.\n");
        assert_eq!(sections(""), "");
    }
}
