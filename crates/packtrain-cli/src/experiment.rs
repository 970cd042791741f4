//! `packtrain experiment`: a document's table beside what this machine shows.

use crate::args::{ExperimentArgs, word};
use crate::exit::{Exit, Failure};
use crate::json;
use crate::print::{self, Style, filled};
use crate::signals::Stop;
use crate::suggest::nearest;
use crate::table::{Align, Table};
use crate::tool::{self, Progress};
use packtrain::advice;
use packtrain::file;
use packtrain::name::{Name, printable};
use packtrain_lab::experiment::document::{Notices, part};
use packtrain_lab::experiment::judge::CLEAN_MIN;
use packtrain_lab::experiment::{
    BUILT_IN, Experiment, FileError, Guests, Load, Options, Printed, QUICK_ROUNDS, RunError,
    SOURCES, Setup, built_in, run as measure,
};
use packtrain_lab::report;
use packtrain_lab::report::view::{self, Cell, Claimed, Kind, View};
use packtrain_lab::tool::Control;
use packtrain_lab::{ToolError, rootless};
use packtrain_measure::Verdict;
use packtrain_measure::document::{Claim, Document};
use serde_json::json;
use std::fs;
use std::path::Path;

/// A table with more rows is shown in part, unless `--all` is given.
const ROWS_MAX: usize = 100;
/// Columns of a line of text, if the terminal has them.
const WIDTH: usize = 100;

/// Runs the command.
///
/// # Errors
///
/// A wrong file or option, a run that failed, or a claim that must hold and does not.
pub fn run(args: &ExperimentArgs) -> Result<(), Failure> {
    if args.what == ["list"] {
        return list(args.json);
    }
    if args.once {
        return once(&chosen(&args.what)?[0].1);
    }
    let options = |experiment: &Experiment| Options {
        rounds: args.repeats.unwrap_or(match args.quick {
            true => QUICK_ROUNDS,
            false => experiment.rounds,
        }),
        quick: args.quick,
        seeds: args.seeds.unwrap_or(u64::MAX),
        only: args.only,
    };
    let mut experiments = chosen(&args.what)?;
    experiments.retain(|(_, one)| {
        let options = options(one);
        let mut cells = one.cells.iter();
        cells.any(|cell| options.leave_out(cell).is_none())
    });
    if experiments.is_empty() {
        let line = "these experiments have no settings of the kind that --only names: leave it out";
        return Err(Failure::new(Exit::Usage, line));
    }
    #[cfg(feature = "plants")]
    args.planted.set();
    // Before any thread starts: only a process with one thread can make a user namespace. Some
    // experiments need none, and the others say what they lack.
    let refused = rootless::enter_if_needed().err();
    let stop = Stop::install()?;
    let progress = Progress::with_lines(args.quiet);
    let say = |line: &str| progress.say(line);
    let control = Control {
        stop: stop.flag(),
        progress: &say,
    };
    let load = Load::now();
    let mut all = Document {
        head: json::head("experiment"),
        quick: args.quick,
        load: Some(load.one_minute),
        uptime_seconds: Some(load.uptime_seconds),
        ..Document::default()
    };
    let files = Kept::of(args)?;
    for file in &files {
        file.check(&all)?;
    }
    let mut notices = Notices::default();
    let mut failure = None;
    let mut guests = Guests::default();
    for (name, experiment) in &experiments {
        let options = options(experiment);
        let mut setup = |setup: &Setup, control: &Control<'_>| guests.run(setup, control);
        let results = measure(experiment, &options, &mut setup, &control);
        progress.clear();
        let results = results.map_err(|error| refuse(&error))?;
        let command = command(name, args);
        let one = part(experiment, &results, &options, &command, &mut notices);
        if !args.json {
            if all.experiments.is_empty() {
                print::output(&machine(&all))?;
            }
            for view in View::all(&one) {
                print::output(&text(&view, args.all, Style::stdout()))?;
            }
        }
        all.append(one);
        files.iter().try_for_each(|file| file.write(&all))?;
        if let Some((cell, error)) = &results.failed {
            let at = format!("{}: {}", experiment.name(), experiment.label(*cell));
            let failed = tool::failed(error);
            failure.get_or_insert(Failure::new(failed.exit, format!("{at}: {}", failed.line)));
        }
        if results.stopped {
            break;
        }
    }
    if let Some(missing) = refused
        && all.runs.is_empty()
    {
        return Err(Failure::new(Exit::Privilege, missing.to_string()));
    }
    if args.json {
        json::write(json::fields(&all))?;
    } else if let Some(path) = &args.html {
        print::output(&format!("page: {}\n", Name::from(path)))?;
    }
    for line in &notices.open {
        print::message(line);
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    if let Some(line) = notices.failed.first() {
        return Err(Failure::new(Exit::Check, line));
    }
    let Some(line) = unjudged(&all) else {
        return Ok(());
    };
    // The user asked for fewer runs, or the rest has its verdicts.
    let is_few = |(_, one): &(String, Experiment)| options(one).rounds < CLEAN_MIN;
    let is_asked_for = all.stopped || experiments.iter().any(is_few);
    if is_asked_for || (notices.open.is_empty() && all.claims.iter().any(is_judged)) {
        if !args.quiet {
            print::message(&line);
        }
        return Ok(());
    }
    Err(Failure::new(Exit::NotJudged, line))
}

fn is_judged(claim: &Claim) -> bool {
    claim.verdict != Verdict::NotJudged
}

/// How many verdicts there are not, and the most frequent reason; `None` if there are all.
fn unjudged(all: &Document) -> Option<String> {
    let mut reasons: Vec<&str> = all
        .claims
        .iter()
        .filter(|claim| !is_judged(claim))
        .map(|claim| claim.why.as_deref().unwrap_or_default())
        .collect();
    reasons.sort_unstable();
    let most = reasons
        .chunk_by(|a, b| a == b)
        .max_by_key(|equal| equal.len())?;
    Some(format!(
        "not judged: {} of {} verdicts; {} of them: {}",
        reasons.len(),
        all.claims.len(),
        most.len(),
        most[0]
    ))
}

fn refuse(error: &RunError) -> Failure {
    let exit = match error {
        RunError::File(_) => Exit::Usage,
        RunError::Setting { error, .. } => tool::failed(error).exit,
        RunError::NotTaken { .. } => tool::failed(&ToolError::Failed(String::new())).exit,
    };
    Failure::new(exit, error.to_string())
}

/// Runs the first setting of an experiment once, as [`Guests`] has it done in a guest.
fn once(experiment: &Experiment) -> Result<(), Failure> {
    let wrong = |error: FileError| Failure::new(Exit::Usage, error.to_string());
    let setup = experiment.setup(0, 1, false).map_err(wrong)?;
    let stop = Stop::install()?;
    let control = Control {
        stop: stop.flag(),
        progress: &|_| {},
    };
    let measured = setup.run(&control).map_err(|error| tool::failed(&error))?;
    let printed = Printed {
        settings: measured.settings,
        figures: measured.figures,
        flags: measured.flags,
    };
    print::output(&format!("{}\n", json!(printed)))
}

/// The experiments to run, each with the word that chose it.
fn chosen(words: &[String]) -> Result<Vec<(String, Experiment)>, Failure> {
    if words == ["all"] {
        let names = BUILT_IN.iter().map(|(name, _)| *name);
        return Ok(names
            .filter_map(|name| Some((name.to_owned(), built_in(name)?)))
            .collect());
    }
    let one = |word: &String| {
        if let Some(experiment) = built_in(word) {
            return Ok((word.clone(), experiment));
        }
        let is_file = word.contains('/') || Path::new(word).extension().is_some();
        if !is_file {
            let names: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            let mut line = format!(
                "there is no experiment '{word}'; write list, all, a file such as ./{word}.toml, \
                 or some of {}",
                names.join(", ")
            );
            if let Some(meant) = nearest(word, names) {
                line.push_str(&format!("; did you mean '{meant}'?"));
            }
            return Err(Failure::new(Exit::Usage, line));
        }
        let text = fs::read_to_string(word)
            .map_err(|error| Failure::new(Exit::Port, format!("{word}: {error}")))?;
        let wrong = |error: FileError| Failure::new(Exit::Usage, error.to_string());
        let experiment = Experiment::read(word, &text).map_err(wrong)?;
        experiment.check_figures().map_err(wrong)?;
        Ok((word.clone(), experiment))
    };
    words.iter().map(one).collect()
}

/// The command that repeats an experiment.
fn command(name: &str, args: &ExperimentArgs) -> String {
    let mut command = format!("packtrain experiment {name}");
    if args.quick {
        command.push_str(" --quick");
    }
    if let Some(only) = &args.only {
        command.push_str(&format!(" --only {}", word(only)));
    }
    if let Some(repeats) = args.repeats {
        command.push_str(&format!(" --repeats {repeats}"));
    }
    if let Some(seeds) = args.seeds {
        command.push_str(&format!(" --seeds {seeds}"));
    }
    #[cfg(feature = "plants")]
    if let Some(plant) = args.planted.plant {
        command.push_str(&format!(" --plant {plant}"));
    }
    command
}

/// A file that has all results so far.
struct Kept<'a> {
    option: &'static str,
    path: &'a Path,
    text: fn(&Document) -> String,
}

impl<'a> Kept<'a> {
    fn of(args: &'a ExperimentArgs) -> Result<Vec<Self>, Failure> {
        if args.html.is_some() && args.html == args.save {
            let line = "--save and --html name the same file";
            return Err(Failure::new(Exit::Usage, line));
        }
        let save: (_, _, fn(&Document) -> String) =
            ("--save", &args.save, |one| format!("{}\n", json!(one)));
        let files = [save, ("--html", &args.html, report::html)].into_iter();
        let files = files.filter_map(|(option, path, text)| {
            let path = path.as_deref()?;
            Some(Self { option, path, text })
        });
        Ok(files.collect())
    }

    /// Finds out before the first run that the file cannot be written.
    fn check(&self, head: &Document) -> Result<(), Failure> {
        if self.path.exists() {
            return file::can_replace(self.path).map_err(|error| self.failed(&error));
        }
        self.write(head)
    }

    fn write(&self, document: &Document) -> Result<(), Failure> {
        let text = (self.text)(document);
        file::replace(self.path, &text).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        let (option, path) = (self.option, Name::from(&self.path));
        let advice = advice::on_file(error.kind(), true);
        Failure::new(Exit::Port, format!("{option} {path}: {error}{advice}"))
    }
}

fn list(as_json: bool) -> Result<(), Failure> {
    let all = BUILT_IN.iter().filter_map(|(name, _)| built_in(name));
    if as_json {
        let mut document = json::document("experiment list");
        let entries = all.map(|one| {
            json!({
                "name": one.definition.name,
                "source": one.definition.source,
                "title": one.definition.title,
                "settings": one.cells.len(),
            })
        });
        document.insert("experiments".into(), entries.collect());
        document.insert("sources".into(), json!(SOURCES));
        return json::write(document);
    }
    let mut table = Table::new([
        ("name", Align::Left),
        ("from", Align::Left),
        ("settings", Align::Right),
        ("what", Align::Left),
    ]);
    for one in all {
        table.row([
            one.definition.name.clone(),
            one.definition.source.clone(),
            one.cells.len().to_string(),
            one.definition.title.clone(),
        ]);
    }
    let mut text = table.render(0, Style::stdout());
    text.push_str("\nThe documents:\n");
    for one in SOURCES {
        let (title, author, date) = (one.title, one.author, one.date);
        text.push_str(&format!("{}: {author}, {date}: {title}\n", one.id));
        text.push_str(&format!("    {}\n", one.published));
    }
    print::output(&text)
}

/// The machine and its state, in two lines.
fn machine(document: &Document) -> String {
    let entries = view::conditions(document);
    let entries = entries
        .iter()
        .map(|(name, value)| printable(&format!("{name}: {value}")));
    let entries: Vec<_> = entries.collect();
    let lines = entries.chunks(4).map(|some| some.join("; ") + "\n");
    lines.collect::<String>() + "\n"
}

/// One experiment for people. Of a large one without `all`, the rows that lose to others.
fn text(view: &View<'_>, all: bool, style: Style) -> String {
    let rows = view.ours.as_ref().map_or(0, |ours| ours.rows.len());
    let is_brief = rows > ROWS_MAX && !all;
    let ours = view.ours.clone().map(|ours| match is_brief {
        false => ours,
        true => view::Table {
            caption: format!(
                "{}. {} of {rows} settings: those of claims that are not reproduced, and those \
                 that they are compared to. --all shows the others",
                ours.caption,
                view.lost.len()
            ),
            rows: view
                .lost
                .iter()
                .map(|&row| ours.rows[row].clone())
                .collect(),
            ..ours
        },
    });
    let heading = |text: &str| format!("\n{}\n", style.bold(text));
    let of = view.definition;
    let title = format!("{} ({}): {}", of.name, of.source, of.title);
    let mut text = format!("{}\n", style.bold(&printable(&title)));
    text.push_str(&heading("What the document claims"));
    text.push_str(&paragraph(&of.document.claims, style));
    if let Some(theirs) = &view.theirs {
        text.push_str(&format!("\n{}", table(theirs, style)));
    }
    text.extend(of.document.notes.iter().map(|note| paragraph(note, style)));
    text.push_str(&heading("What this machine shows"));
    let tables = ours.iter().chain(&view.extremes).chain(&view.spreads);
    for one in tables {
        let caption = paragraph(&one.caption, style);
        text.push_str(&format!("{caption}{}\n", table(one, style)));
    }
    text.extend(view.missing.iter().map(|line| paragraph(line, style)));
    if let Some(differing) = view.differing.as_ref().filter(|_| !is_brief) {
        text.push_str(&paragraph(&differing.caption, style));
        text.extend(differing.rows.iter().map(|row| {
            // As a table it would have a column for each setting.
            let pairs = differing.columns.iter().zip(row);
            let pairs = pairs.map(|(column, cell)| format!("{}={cell}", column.title));
            paragraph(&pairs.collect::<Vec<_>>().join("; "), style)
        }));
    }
    if let Some(shared) = &view.shared {
        let pairs = shared.rows.iter().map(|row| {
            let pair: Vec<_> = row.iter().map(Cell::to_string).collect();
            pair.join("=")
        });
        let pairs: Vec<_> = pairs.collect();
        let line = format!("{}: {}", shared.caption, pairs.join("; "));
        text.push_str(&paragraph(&line, style));
    }
    if !view.claims.is_empty() {
        text.push_str(&heading("Verdicts"));
        text.extend(view.claims.iter().map(|one| claim(one, style)));
    }
    text.push_str(&heading("What it means"));
    text.push_str(&paragraph(&of.meaning, style));
    if !of.limits.is_empty() {
        text.push_str(&heading("What it cannot show"));
        text.push_str(&paragraph(&of.limits, style));
    }
    if of.stopped {
        text.push_str("\nStopped before the end: these are the runs until then.\n");
    }
    text + &format!("\nTo repeat it: {}\n\n", printable(&of.command))
}

/// Text in lines of [`WIDTH`] columns, indented.
fn paragraph(text: &str, style: Style) -> String {
    let width = style.columns().map_or(WIDTH, |columns| columns.min(WIDTH));
    let words: Vec<_> = text.split_whitespace().collect();
    filled(&format!("  {}", words.join(" ")), width) + "\n"
}

fn table(of: &view::Table, style: Style) -> String {
    let columns = of.columns.iter().map(|column| {
        let align = match column.kind {
            Kind::Number => Align::Right,
            Kind::Name | Kind::Words => Align::Left,
        };
        (column.title.as_str(), align)
    });
    let mut table = Table::new(columns);
    for row in &of.rows {
        table.row(row.iter().map(Cell::to_string));
    }
    table.render(2, style)
}

/// A claim, and what was measured of it in each of the settings that it is about.
fn claim(of: &Claimed<'_>, style: Style) -> String {
    let mut text = paragraph(&format!("{}. {}", of.text, of.about), style);
    // Settings that are not judged for the same reason have one line.
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for one in &of.judged {
        if one.measured.is_none() {
            // What follows in parentheses differs from run to run.
            let what = |why: &str| why.split(" (").next().unwrap_or_default().to_owned();
            let known = reasons
                .iter_mut()
                .find(|(other, _)| what(other) == what(&one.why));
            match known {
                Some((_, count)) => *count += 1,
                None => reasons.push((&one.why, 1)),
            }
            continue;
        }
        let name = one.verdict.name();
        let verdict = match one.verdict {
            Verdict::Reproduced => style.good(name),
            Verdict::NotReproduced => style.bad(name),
            Verdict::Exceeds | Verdict::Direction | Verdict::NotJudged => name.to_owned(),
        };
        let mut settings = printable(&one.of);
        if !one.to.is_empty() {
            settings.push_str(&format!(" to {}", printable(&one.to)));
        }
        let measured = Cell::Estimate(one.measured);
        let what = printable(&of.measured);
        text.push_str(&format!("    {verdict}: {settings}: {what} {measured}"));
        if !one.why.is_empty() {
            text.push_str(&format!(": {}", printable(&one.why)));
        }
        text.push('\n');
    }
    for (why, count) in reasons {
        let settings = match count {
            1 => "one setting".to_owned(),
            _ => format!("{count} settings"),
        };
        let verdict = Verdict::NotJudged.name();
        text.push_str(&format!("    {verdict}: {settings}: {}\n", printable(why)));
    }
    text.extend(of.reasons.iter().map(|why| paragraph(why, style)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of a page without its tags.
    fn seen(page: &str) -> String {
        let mut text = String::new();
        for part in page.split('<') {
            let (tag, rest) = part.split_once('>').unwrap_or(("", part));
            // Elements of a line are part of its words.
            let within = ["data", "/data", "span", "/span"];
            let tag = tag.split(' ').next().unwrap_or_default();
            if !within.contains(&tag) {
                text.push(' ');
            }
            text.push_str(rest);
        }
        let entities = [
            ("&lt;", "<"),
            ("&gt;", ">"),
            ("&quot;", "\""),
            ("&#39;", "'"),
        ];
        let entities = entities.into_iter().chain([("&amp;", "&")]);
        words(&entities.fold(text, |text, (entity, c)| text.replace(entity, c)))
    }

    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_text_and_the_page_say_the_same() {
        let text = include_str!("../../packtrain-lab/tests/report/document.json");
        let document: Document = serde_json::from_str(text).expect("a document");
        let page = seen(&report::html(&document));
        let views = View::all(&document);
        let mut count = 0;
        for view in &views {
            let of = view.definition;
            let text = words(&super::text(view, true, Style::PLAIN));
            let mut both = |of: &str| {
                count += 1;
                let of = words(of);
                assert!(text.contains(&of), "the text has no {of:?}: {text}");
                assert!(page.contains(&of), "the page has no {of:?}: {page}");
            };
            for one in [
                &of.title,
                &of.document.claims,
                &of.meaning,
                &of.limits,
                &of.command,
            ] {
                one.split("\n\n").for_each(&mut both);
            }
            let shared = view.shared.iter().flat_map(|table| &table.rows);
            shared.flatten().for_each(|one| both(&one.to_string()));
            of.document
                .notes
                .iter()
                .chain(&view.missing)
                .for_each(|one| both(one));
            let differing = view.differing.iter();
            differing.for_each(|table| both(&table.caption));
            let tables = [&view.theirs, &view.ours, &view.spreads, &view.differing];
            for table in tables.into_iter().flatten().chain(&view.extremes) {
                table.columns.iter().for_each(|one| both(&one.title));
                table
                    .rows
                    .iter()
                    .flatten()
                    .for_each(|one| both(&one.to_string()));
            }
            for claim in &view.claims {
                both(claim.text);
                both(&claim.about);
                claim.reasons.iter().for_each(|why| both(why));
                for one in &claim.judged {
                    both(one.verdict.name());
                    if one.measured.is_some() {
                        both(&one.of);
                        both(&one.to);
                        both(&claim.measured);
                        both(&Cell::Estimate(one.measured).to_string());
                    }
                    both(&one.why);
                }
            }
        }
        assert!(count > 90, "{count}");
    }

    #[test]
    fn a_large_table_shows_what_loses_unless_all_is_asked_for() {
        let text = include_str!("../../packtrain-lab/tests/report/document.json");
        let document: Document = serde_json::from_str(text).expect("a document");
        let mut view = View::all(&document).remove(0);
        let ours = view.ours.as_mut().expect("a table");
        ours.rows = vec![ours.rows.clone(); 20].concat();
        let rows = |view: &View<'_>, all| {
            let text = super::text(view, all, Style::PLAIN);
            (text.matches("not shown here").count(), text)
        };
        assert_eq!(view.lost, [3]);
        assert_eq!(rows(&view, true).0, 20);
        let (missing, text) = rows(&view, false);
        assert_eq!(missing, 0, "{text}");
        assert!(
            words(&text).contains("1 of 120 settings: those of claims"),
            "{text}"
        );
        assert!(text.contains("TSO <doubles> goodput"), "{text}");
    }
}
