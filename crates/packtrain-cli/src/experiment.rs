//! `packtrain experiment`: a document's table beside what this machine shows.

use crate::args::{ExperimentArgs, Only};
use crate::exit::{Exit, Failure};
use crate::json;
use crate::print::{self, Style};
use crate::signals::Stop;
use crate::table::{Align, Table};
use crate::tool::{self, Progress};
use packtrain::advice;
use packtrain_lab::experiment::document::Parts;
use packtrain_lab::experiment::{
    BUILT_IN, Experiment, Load, Options, QUICK_ROUNDS, RunError, Setup, built_in, run as measure,
};
use packtrain_lab::report::{self, number};
use packtrain_lab::tool::Control;
use packtrain_lab::{ToolError, rootless};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// Rounds without `--repeats`.
const ROUNDS: usize = 5;
/// Columns of a line of text.
const WIDTH: usize = 100;

/// Runs the command.
///
/// # Errors
///
/// A wrong file or option, a run that failed, or a claim that must hold and does not.
pub fn run(args: &ExperimentArgs) -> Result<(), Failure> {
    if args.only == Some(Only::Sim) {
        let line = "--only sim: the simulator's column does not exist yet; leave --only out";
        return Err(Failure::new(Exit::Usage, line));
    }
    if args.what == ["list"] {
        return list(args.json);
    }
    let experiments = chosen(&args.what)?;
    // Before any thread starts: only a process with one thread can make a user namespace. Some
    // experiments need none, and the others say what they lack.
    let refused = rootless::enter_if_needed().err();
    let stop = Stop::install()?;
    let progress = Progress::new(args.quiet);
    let say = |line: &str| progress.say(line);
    let control = Control {
        stop: stop.flag(),
        progress: &say,
    };
    let options = Options {
        rounds: args
            .repeats
            .unwrap_or(if args.quick { QUICK_ROUNDS } else { ROUNDS }),
        quick: args.quick,
        seeds: args.seeds.unwrap_or(u64::MAX),
    };
    let mut head = json::document("experiment");
    let load = Load::now();
    head.insert("quick".into(), options.quick.into());
    head.insert("stopped".into(), false.into());
    head.insert("load".into(), load.one_minute.into());
    head.insert("uptime_seconds".into(), load.uptime_seconds.into());
    let files = Kept::of(args)?;
    for file in &files {
        file.check(&head)?;
    }
    let mut all = Parts::default();
    let mut failure = None;
    for (name, experiment) in &experiments {
        let mut setup = |setup: &Setup, control: &Control<'_>| setup.run(control);
        let results = measure(experiment, &options, &mut setup, &control);
        progress.clear();
        let results = results.map_err(|error| refuse(&error))?;
        let mut parts = Parts::default();
        parts.add(experiment, &results, &options, &command(name, args));
        if !args.json {
            let one = parts.clone().document();
            print::output(&text(&one, Style::stdout()))?;
        }
        all.append(parts);
        if results.stopped {
            head.insert("stopped".into(), true.into());
        }
        if !files.is_empty() {
            let document = Value::Object(whole(&head, &all));
            files.iter().try_for_each(|file| file.write(&document))?;
        }
        if let Some((cell, error)) = &results.failed {
            let at = format!("{}: {}", experiment.name, experiment.label(*cell));
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
        json::write(whole(&head, &all))?;
    } else if let Some(path) = &args.html {
        print::output(&format!("page: {}\n", path.display()))?;
    }
    for line in &all.open {
        print::message(&format!("{}\n", advice::printable(line)));
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    match all.failed.first() {
        Some(line) => Err(Failure::new(Exit::Check, line)),
        None => Ok(()),
    }
}

fn whole(head: &Map<String, Value>, parts: &Parts) -> Map<String, Value> {
    let mut document = head.clone();
    document.extend(parts.clone().document());
    document
}

fn refuse(error: &RunError) -> Failure {
    let exit = match error {
        RunError::File(_) => Exit::Usage,
        RunError::Setting { error, .. } => tool::failed(error).exit,
        RunError::NotTaken { .. } => tool::failed(&ToolError::Failed(String::new())).exit,
    };
    Failure::new(exit, error.to_string())
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
            return Err(Failure::new(
                Exit::Usage,
                format!(
                    "there is no experiment '{word}'; write list, all, a file such as \
                     ./{word}.toml, or some of {}",
                    names.join(", ")
                ),
            ));
        }
        let text = fs::read_to_string(word)
            .map_err(|error| Failure::new(Exit::Port, format!("{word}: {error}")))?;
        let experiment = Experiment::read(word, &text)
            .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
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
    if let Some(repeats) = args.repeats {
        command.push_str(&format!(" --repeats {repeats}"));
    }
    if let Some(seeds) = args.seeds {
        command.push_str(&format!(" --seeds {seeds}"));
    }
    command
}

/// A file that has all results so far.
struct Kept<'a> {
    option: &'static str,
    path: &'a Path,
    text: fn(&Value) -> String,
}

impl<'a> Kept<'a> {
    fn of(args: &'a ExperimentArgs) -> Result<Vec<Self>, Failure> {
        if args.html.is_some() && args.html == args.save {
            let line = "--save and --html name the same file";
            return Err(Failure::new(Exit::Usage, line));
        }
        let save: (_, _, fn(&Value) -> String) = ("--save", &args.save, |one| format!("{one}\n"));
        let files = [save, ("--html", &args.html, report::html)].into_iter();
        let files = files.filter_map(|(option, path, text)| {
            let path = path.as_deref()?;
            Some(Self { option, path, text })
        });
        Ok(files.collect())
    }

    /// Finds out before the first run that the file cannot be written.
    fn check(&self, head: &Map<String, Value>) -> Result<(), Failure> {
        if self.path.exists() {
            return report::can_save(self.path).map_err(|error| self.failed(&error));
        }
        self.write(&Value::Object(whole(head, &Parts::default())))
    }

    fn write(&self, document: &Value) -> Result<(), Failure> {
        let text = (self.text)(document);
        report::save(self.path, &text).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        let (option, path) = (self.option, self.path.display());
        Failure::new(Exit::Port, format!("{option} {path}: {error}"))
    }
}

fn list(as_json: bool) -> Result<(), Failure> {
    let all = BUILT_IN.iter().filter_map(|(name, _)| built_in(name));
    if as_json {
        let mut document = json::document("experiment list");
        let entries = all.map(|one| {
            json!({
                "name": one.name,
                "source": one.source,
                "title": one.title,
                "settings": one.cells.len(),
            })
        });
        document.insert("experiments".into(), entries.collect());
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
            one.name.clone(),
            one.source.clone(),
            one.cells.len().to_string(),
            one.title.clone(),
        ]);
    }
    print::output(&table.render(0, Style::stdout()))
}

/// One experiment for people. `document` has its parts, as in JSON.
fn text(document: &Map<String, Value>, style: Style) -> String {
    let part = |name: &str| document.get(name).and_then(Value::as_array);
    let (rows, claims) = (part("rows"), part("claims"));
    let (rows, claims) = (
        rows.map_or(&[][..], Vec::as_slice),
        claims.map_or(&[][..], Vec::as_slice),
    );
    let Some(experiment) = part("experiments").and_then(|all| all.first()) else {
        return String::new();
    };
    let heading = |text: &str| format!("\n{}\n", style.bold(text));
    let title = format!(
        "{} ({}): {}",
        word(&experiment["name"]),
        word(&experiment["source"]),
        word(&experiment["title"])
    );
    let mut text = format!("{}\n", style.bold(&title));
    let theirs = &experiment["document"];
    text.push_str(&heading("What the document claims"));
    text.push_str(&paragraph(&word(&theirs["claims"])));
    text.push_str(&their_table(theirs, style));
    let rounds = &experiment["rounds"];
    text.push_str(&heading(&format!(
        "Here: medians over {rounds} rounds [and their intervals of 95 %]"
    )));
    text.push_str(&our_table(experiment, rows, style));
    text.push_str(&not_shown(rows));
    text.push_str(&spreads(experiment, rows, style));
    if !claims.is_empty() {
        text.push_str(&heading("Claims"));
        let same = |a: &Value, b: &Value| a["claim"] == b["claim"];
        text.extend(claims.chunk_by(same).map(|one| claim_lines(one, style)));
    }
    text.push_str(&heading("What it means"));
    text.push_str(&paragraph(&word(&experiment["meaning"])));
    if experiment["stopped"] == true {
        text.push_str("\nstopped before the end: these are the runs until then\n");
    }
    text + &format!("\nto repeat: {}\n\n", word(&experiment["command"]))
}

/// A string without quotes; another value as JSON.
fn word(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Settings by axis, in words.
fn setting(value: &Value) -> String {
    let pairs = value.as_object().into_iter().flatten();
    let pairs: Vec<_> = pairs
        .map(|(axis, name)| format!("{axis}={}", word(name)))
        .collect();
    pairs.join(" ")
}

/// Text in lines of [`WIDTH`] columns, indented.
fn paragraph(text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() + word.len() + 3 > WIDTH {
            lines.push_str(&format!(" {line}\n"));
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    lines + &format!(" {line}\n")
}

fn their_table(theirs: &Value, style: Style) -> String {
    let list = |key: &str| theirs[key].as_array().map_or(&[][..], Vec::as_slice);
    let columns = list("columns").iter();
    let mut table = Table::new(columns.map(|name| (word(name), Align::Left)));
    for row in list("rows") {
        table.row(row.as_array().into_iter().flatten().map(word));
    }
    let mut text = String::new();
    if !table.is_empty() {
        text.push_str(&format!("\n{}", table.render(2, style)));
    }
    text.extend(list("notes").iter().map(|note| paragraph(&word(note))));
    text
}

fn our_table(experiment: &Value, rows: &[Value], style: Style) -> String {
    let axes = experiment["axes"].as_array().into_iter().flatten();
    let figures = experiment["figures"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let heads = axes.map(|axis| (word(&axis["name"]), Align::Left));
    let figure_heads = figures.iter().map(|figure| (title(figure), Align::Right));
    let mut table = Table::new(
        heads
            .chain(figure_heads)
            .chain([("runs".into(), Align::Right)]),
    );
    // A row without a run is missing, or was not reached.
    for row in rows.iter().filter(|row| row["runs"] != 0) {
        let names = row["setting"].as_object().into_iter().flatten();
        let names = names.map(|(_, name)| word(name));
        let cells = figures
            .iter()
            .map(|figure| interval(&row["figures"][word(&figure["key"])]));
        let (runs, flagged) = (word(&row["runs"]), word(&row["flagged"]));
        let runs = match flagged.as_str() {
            "0" => runs,
            _ => format!("{runs}, {flagged} flagged"),
        };
        table.row(names.chain(cells).chain([runs]));
    }
    table.render(2, style)
}

fn title(figure: &Value) -> String {
    let (title, unit) = (word(&figure["title"]), word(&figure["unit"]));
    match unit.as_str() {
        "" => title,
        _ => format!("{title}, {unit}"),
    }
}

/// A median with its interval; the interval is left out if it is nothing but the median.
fn interval(figure: &Value) -> String {
    let of = |key: &str| figure[key].as_f64().map(number);
    match [of("median"), of("low"), of("high")] {
        [Some(median), Some(low), Some(high)] if low == median && high == median => median,
        [Some(median), Some(low), Some(high)] => format!("{median} [{low}, {high}]"),
        _ => "-".to_owned(),
    }
}

/// What the host cannot show, a line for each reason.
fn not_shown(rows: &[Value]) -> String {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for row in rows.iter().filter(|row| !row["missing"].is_null()) {
        let (why, setting) = (word(&row["missing"]), setting(&row["setting"]));
        match reasons.iter_mut().find(|(other, _)| *other == why) {
            Some((_, settings)) => settings.push(setting),
            None => reasons.push((why, vec![setting])),
        }
    }
    let lines = reasons.into_iter().map(|(why, settings)| {
        let what = match settings.len() {
            all if all == rows.len() => "all settings".to_owned(),
            1..=3 => settings.join("; "),
            many => format!("{many} settings"),
        };
        paragraph(&format!(
            "not shown here, left to the simulator: {what}: {why}"
        ))
    });
    lines.collect()
}

/// How far apart the runs of equal settings are.
fn spreads(experiment: &Value, rows: &[Value], style: Style) -> String {
    let figures = experiment["figures"].as_array().into_iter().flatten();
    if experiment["rounds"].as_u64() < Some(2) {
        return String::new();
    }
    let mut table = Table::new([
        ("spread of equal settings", Align::Left),
        ("typical, %", Align::Right),
        ("greatest, %", Align::Right),
        ("from", Align::Right),
        ("to", Align::Right),
        ("outliers", Align::Right),
        ("greatest with", Align::Left),
    ]);
    for figure in figures {
        let key = word(&figure["key"]);
        let of = |row: &Value, part: &str| row["figures"][&key][part].as_f64();
        let spread = |row: &Value| {
            let (min, max) = (of(row, "min")?, of(row, "max")?);
            let median = of(row, "median").filter(|median| *median != 0.0)?;
            Some((100.0 * (max - min) / median, min, max))
        };
        let mut spreads: Vec<_> = rows
            .iter()
            .filter_map(|row| Some((spread(row)?, row)))
            .collect();
        spreads.sort_by(|a, b| a.0.0.total_cmp(&b.0.0));
        let Some(((greatest, min, max), row)) = spreads.last() else {
            continue;
        };
        let outliers = rows
            .iter()
            .filter_map(|row| row["figures"][&key]["outliers"].as_array());
        table.row([
            title(figure),
            number(spreads[spreads.len() / 2].0.0),
            number(*greatest),
            number(*min),
            number(*max),
            outliers.map(Vec::len).sum::<usize>().to_string(),
            setting(&row["setting"]),
        ]);
    }
    if table.is_empty() {
        return String::new();
    }
    format!("\n{}", table.render(2, style))
}

/// A claim, and what was measured of it in each of the settings that it is about.
fn claim_lines(about: &[Value], style: Style) -> String {
    let Some(claim) = about.first() else {
        return String::new();
    };
    let mut head = format!(
        "{}: expected {}",
        word(&claim["claim"]),
        word(&claim["expected"])
    );
    let document = word(&claim["document"]);
    if !document.is_empty() {
        head.push_str(&format!("; in the document: {document}"));
    }
    if claim["must"] == true {
        head.push_str("; must hold");
    }
    let kind = match (word(&claim["statistic"]).as_str(), claim["to"].is_null()) {
        ("spread", true) => "spread of ",
        ("spread", false) => "ratio of the spreads of ",
        (_, true) => "",
        (_, false) => "ratio of ",
    };
    let mut text = paragraph(&head);
    // Settings that are not judged for the same reason have one line.
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for one in about {
        if let Some(why) = one["why"].as_str() {
            // The reason begins with the setting.
            let why = why.split_once(": ").map_or(why, |(_, why)| why);
            // What follows in parentheses differs from run to run.
            let what = |why: &str| why.split(" (").next().unwrap_or_default().to_owned();
            match reasons
                .iter_mut()
                .find(|(other, _)| what(other) == what(why))
            {
                Some((_, count)) => *count += 1,
                None => reasons.push((why, 1)),
            }
            continue;
        }
        let verdict = word(&one["verdict"]);
        let shown = match verdict.as_str() {
            "reproduced" => style.good(&verdict),
            "not reproduced" => style.bad(&verdict),
            _ => verdict,
        };
        let mut settings = setting(&one["of"]);
        if let Some(differ) = one["to"].as_object() {
            let differ: Map<String, Value> = differ
                .iter()
                .filter(|(axis, name)| one["of"][*axis] != **name)
                .map(|(axis, name)| (axis.clone(), name.clone()))
                .collect();
            settings.push_str(&format!(" to {}", setting(&Value::Object(differ))));
        }
        let figure = word(&one["figure"]);
        let measured = interval(&one["measured"]);
        text.push_str(&format!(
            "    {shown}: {settings}: {kind}{figure} {measured}\n"
        ));
    }
    for (why, count) in reasons {
        let settings = match count {
            1 => "one setting".to_owned(),
            _ => format!("{count} settings"),
        };
        text.push_str(&format!("    not judged: {settings}: {why}\n"));
    }
    text
}
