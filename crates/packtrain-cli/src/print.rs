//! Writing to standard output and standard error, also if they are closed.

use crate::exit::{Exit, Failure};
use packtrain::file::STANDARD;
use packtrain::name;
use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use textwrap::{WordSeparator, WordSplitter};

/// Standard output is a file that a port writes packets to.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Set by a signal that ends the program.
static SIGNALLED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Names the flag of the signals. The terminal echoes them (`^C`) where the next text begins, so
/// that text replaces its line.
pub fn after(flag: Arc<AtomicBool>) {
    // A run has one flag; another one would be the same.
    SIGNALLED.get_or_init(|| flag);
}

/// Removes what the terminal echoed of a signal, once.
fn remove_echo(stream: &mut (impl Write + IsTerminal)) -> std::io::Result<()> {
    static REMOVED: AtomicBool = AtomicBool::new(false);
    let is_signalled = SIGNALLED
        .get()
        .is_some_and(|flag| flag.load(Ordering::Relaxed));
    if is_signalled && stream.is_terminal() && !REMOVED.swap(true, Ordering::Relaxed) {
        stream.write_all(b"\r\x1b[K")?;
    }
    Ok(())
}

/// Whether `path` is standard output (`-`), or the file or the pipe behind it, by device and inode:
/// as `/dev/stdout`, `/proc/self/fd/1`, or by its own name.
pub fn is_stdout(path: &Path) -> bool {
    if path.as_os_str() == STANDARD {
        return true;
    }
    let own = || File::from(stdout().as_fd().try_clone_to_owned()?).metadata();
    let (Ok(own), Ok(other)) = (own(), std::fs::metadata(path)) else {
        return false;
    };
    let holds_bytes = |metadata: &Metadata| metadata.is_file() || metadata.file_type().is_fifo();
    holds_bytes(&own) && (own.dev(), own.ino()) == (other.dev(), other.ino())
}

/// Keeps [`output`] from a file that packets are written to: if it is standard output, text goes
/// to standard error from now on.
pub fn keep_from(path: &Path) {
    if is_stdout(path) {
        TAKEN.store(true, Ordering::Relaxed);
    }
}

/// How text is shown where it goes: whether it is emphasised by colour, and how wide it may be.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    colour: bool,
    columns: Option<usize>,
}

impl Style {
    /// No emphasis.
    pub const PLAIN: Self = Self {
        colour: false,
        columns: None,
    };

    /// No emphasis, on a terminal with so many columns.
    #[cfg(test)]
    pub const fn on(columns: usize) -> Self {
        Self {
            colour: false,
            columns: Some(columns),
        }
    }

    /// For standard output.
    pub fn stdout() -> Self {
        if TAKEN.load(Ordering::Relaxed) {
            return Self::stderr();
        }
        Self::of(stdout())
    }

    /// For standard error.
    pub fn stderr() -> Self {
        Self::of(stderr())
    }

    fn of(stream: impl IsTerminal + AsFd) -> Self {
        let terminal = stream.is_terminal();
        // https://no-color.org: any value that is not empty.
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self {
            colour: terminal && !unwanted && !dumb,
            columns: columns_of(stream),
        }
    }

    /// Columns of the terminal; `None` if the text goes elsewhere, where lines have any length.
    pub const fn columns(self) -> Option<usize> {
        self.columns
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// A heading.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// A success.
    pub fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// A failure.
    pub fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }
}

/// The emphasis of [`Style`].
const EMPHASIS: [&str; 4] = ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m"];

/// `line` in lines of at most `columns`, each indented as it is. A line ends at a space; a word
/// that is longer is in one piece.
pub fn filled(line: &str, columns: usize) -> String {
    let words = line.trim_start_matches(' ');
    let indent = &line[..line.len() - words.len()];
    let options = textwrap::Options::new(columns)
        .initial_indent(indent)
        .subsequent_indent(indent)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(words, options)
}

/// `text` for a terminal of so many columns: lines that are longer, which are prose, are several.
/// Elsewhere lines have any length.
fn wrapped(text: &str, columns: Option<usize>) -> Cow<'_, str> {
    let Some(columns) = columns else {
        return text.into();
    };
    let lines = text.split_inclusive('\n').map(|line| {
        let (line, end) = line
            .strip_suffix('\n')
            .map_or((line, ""), |line| (line, "\n"));
        match textwrap::core::display_width(line) {
            width if width <= columns => format!("{line}{end}"),
            _ => filled(line, columns) + end,
        }
    });
    lines.collect::<String>().into()
}

/// A command that a user may copy: its line is not wrapped.
pub fn in_one_line(command: &str) -> String {
    name::printable(command).replace(' ', NO_BREAK)
}

/// A space at which no line ends. [`terminal`] makes it a space.
const NO_BREAK: &str = "\u{a0}";

/// `text` without control characters that a name from outside has brought: a file, an interface, a
/// key of a TOML or JSON file. Lines and the emphasis of this program stay.
fn terminal(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(['\n', '\x1b']).unwrap_or(rest.len());
        clean.push_str(&name::printable(&rest[..end]));
        rest = &rest[end..];
        let own = ["\n"].iter().chain(&EMPHASIS);
        let own = own.copied().find(|own| rest.starts_with(own));
        let len = own.map_or(usize::from(!rest.is_empty()), str::len);
        match own {
            Some(own) => clean.push_str(own),
            None => clean.push_str(&name::printable(&rest[..len])),
        }
        rest = &rest[len..];
    }
    clean.replace(NO_BREAK, " ")
}

/// Writes [`lines`] for people to standard output, or to standard error if packets are written
/// there: see [`keep_from`]. A reader that has ended (`| head`) is no error.
///
/// # Errors
///
/// If it cannot be written for another reason, such as a full disk.
pub fn output(text: &str) -> Result<(), Failure> {
    if TAKEN.load(Ordering::Relaxed) {
        lines(text);
        return Ok(());
    }
    document(&terminal(&wrapped(text, columns_of(stdout()))))
}

/// A JSON document, whose strings have control characters below U+0020 escaped, with all others of
/// [`name::is_escaped`] escaped as well: JSON allows them.
pub fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for one in json.chars() {
        if one != '\n' && name::is_escaped(one) {
            text.push_str(&format!("\\u{:04x}", u32::from(one)));
        } else {
            text.push(one);
        }
    }
    text
}

/// Writes a JSON document, or other text that has no control characters but line ends.
///
/// # Errors
///
/// As [`output`].
pub fn document(text: &str) -> Result<(), Failure> {
    if TAKEN.load(Ordering::Relaxed) {
        raw(text);
        return Ok(());
    }
    let mut out = stdout().lock();
    let echo = remove_echo(&mut out);
    let text = echo.and_then(|()| out.write_all(text.as_bytes()));
    written(text.and_then(|()| out.flush()))
}

/// The result of writing to standard output without [`output`].
///
/// # Errors
///
/// As [`output`].
pub fn written(result: std::io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::new(
            Exit::Port,
            format!("cannot write to standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Writes one line to standard error: a line end in it is escaped. If that is closed, the text is
/// lost, and the run continues.
pub fn message(line: &str) {
    lines(&format!("{}\n", name::printable(line)));
}

/// Writes lines to standard error, as [`message`]. Names from outside in them are
/// [`Name`](packtrain::name::Name)s or cells of a [`Table`](crate::table::Table).
pub fn lines(text: &str) {
    raw(&terminal(&wrapped(text, columns())));
}

/// Writes a JSON document to standard error, in one line of any length.
pub fn json_line(json: &str) {
    raw(&format!("{}\n", escaped(json)));
}

/// Replaces the last line of standard error, a terminal. It is in one line.
pub fn progress(line: &str) {
    raw(&format!("\r\x1b[K{}", name::printable(line)));
}

/// Removes the last `lines` lines of standard error, a terminal.
pub fn remove(lines: usize) {
    raw(&format!("\x1b[{lines}F\x1b[J"));
}

fn raw(text: &str) {
    let mut err = stderr().lock();
    drop(remove_echo(&mut err));
    drop(err.write_all(text.as_bytes()).and_then(|()| err.flush()));
}

/// Columns of the terminal behind standard error; `None` if it is no terminal or has no size.
pub fn columns() -> Option<usize> {
    columns_of(stderr())
}

fn columns_of(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Prints in one line why the program fails.
pub fn error_line(line: &str) {
    // A name from the command line may contain anything.
    let line = name::printable(line);
    lines(&format!("{} {line}\n", Style::stderr().bad("packtrain:")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_wrapped_at_the_width_of_the_terminal() {
        let line = "offload: none; csum: checksums; full: checksums, TSO and USO";
        let text = format!("{line}\n  {line}\nshort  line\n");
        assert_eq!(wrapped(&text, None), text);
        assert_eq!(wrapped(&text, Some(80)), text);
        assert_eq!(
            wrapped(&text, Some(40)),
            "offload: none; csum: checksums; full:\nchecksums, TSO and USO\n  offload: none; csum: \
             checksums; full:\n  checksums, TSO and USO\nshort  line\n"
        );
        // Emphasis has no width; a word and a command are in one piece.
        let style = Style {
            colour: true,
            columns: None,
        };
        let bold = style.bold("0123456789");
        assert_eq!(wrapped(&bold, Some(10)), bold);
        let command = format!("  {}\n", in_one_line("modprobe tun"));
        assert_eq!(terminal(&wrapped(&command, Some(10))), "  modprobe tun\n");
    }

    #[test]
    fn a_json_document_has_no_control_characters_and_says_the_same() {
        let value = serde_json::Value::from("\u{9b}2J\u{7f}\r\n\x1b\u{a0}\u{202e}");
        let text = escaped(&value.to_string());
        let control = text.chars().find(|one| name::is_escaped(*one));
        assert_eq!(control, None, "{text:?}");
        let read = serde_json::from_str::<serde_json::Value>(&text);
        assert_eq!(read.ok(), Some(value));
    }

    #[test]
    fn only_lines_and_the_emphasis_of_the_program_reach_a_terminal() {
        let style = Style {
            colour: true,
            columns: None,
        };
        let own = format!("{}\n{}", style.bold("a"), style.bad("b"));
        assert_eq!(terminal(&own), own);
        assert_eq!(terminal(&style.good("c")), style.good("c"));
        for hostile in [
            "\x1b]0;title\x07",
            "\x1b[2J",
            "\r\x1b[K",
            "\u{9b}2J",
            "\x08",
            "x\x1b",
            "\u{202e}",
        ] {
            let text = terminal(&format!("name {hostile}\n"));
            let control = text.trim_end().chars().find(|one| name::is_escaped(*one));
            assert_eq!(control, None, "{text:?}");
            assert!(
                text.starts_with("name ") && text.ends_with('\n'),
                "{text:?}"
            );
        }
    }
}
