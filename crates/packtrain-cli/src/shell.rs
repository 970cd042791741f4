//! `packtrain completions` and `packtrain man`: completions of shells and manual pages, made from
//! the definition of the command line.

use crate::exit::{Exit, Failure};
use crate::print;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use packtrain::advice;
use packtrain::name::Name;
use packtrain::port::spec::kinds;
use packtrain_lab::check::CHECKS;
use packtrain_lab::experiment::BUILT_IN;
use packtrain_lab::guest::CardModel;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// `packtrain completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  packtrain completions bash > /etc/bash_completion.d/packtrain
  packtrain completions zsh > ~/.zfunc/_packtrain
  packtrain completions fish > ~/.config/fish/completions/packtrain.fish
  source <(packtrain completions bash)
      for this shell only

A folder of zsh has to be in its fpath before it runs compinit.")]
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

/// A parser whose argument takes other values, too: a shell offers these.
#[derive(Clone)]
pub struct Offering<P> {
    parser: P,
    values: &'static [String],
}

impl<P: TypedValueParser> TypedValueParser for Offering<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<P::Value, clap::Error> {
        self.parser.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values = self.values.iter();
        Some(Box::new(values.map(|value| PossibleValue::new(&**value))))
    }
}

/// Text that is a port, of which the kinds are offered.
pub fn port() -> impl TypedValueParser<Value = String> {
    static KINDS: LazyLock<Vec<String>> = LazyLock::new(|| {
        kinds()
            .iter()
            .map(|kind| format!("{}:", kind.name))
            .collect()
    });
    offering(&KINDS, clap::builder::StringValueParser::new())
}

/// Experiments, or the file of one.
pub fn experiment() -> impl TypedValueParser<Value = String> {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let names = BUILT_IN.iter().map(|(name, _)| *name);
        names.chain(["all", "list"]).map(str::to_owned).collect()
    });
    offering(&NAMES, clap::builder::StringValueParser::new())
}

/// The name of a check.
pub fn check() -> impl TypedValueParser<Value = String> {
    static NAMES: LazyLock<Vec<String>> =
        LazyLock::new(|| CHECKS.iter().map(|check| check.name.to_owned()).collect());
    offering(&NAMES, clap::builder::StringValueParser::new())
}

/// A card of a guest, which `parser` reads.
pub fn card<P>(parser: P) -> Offering<P> {
    static MODELS: LazyLock<Vec<String>> =
        LazyLock::new(|| CARDS.iter().map(|(name, _)| (*name).to_owned()).collect());
    offering(&MODELS, parser)
}

fn offering<P>(values: &'static LazyLock<Vec<String>>, parser: P) -> Offering<P> {
    Offering { parser, values }
}

/// Prints the completions of a shell; `program` is the definition of the command line.
///
/// # Errors
///
/// If they cannot be printed.
pub fn completions(args: &CompletionsArgs, mut program: Command) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut program, "packtrain", &mut text);
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
