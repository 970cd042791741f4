//! One experiment on the page.

use std::{ptr, slice};

use packtrain_measure::chart::{self, Scale};
use packtrain_measure::document::{Axis, Figure, Row, Run};
use packtrain_measure::markup::Markup;
use packtrain_measure::numbers::number;
use packtrain_measure::statistics::{Estimate, outliers};

use super::distribution::Histogram;
use super::read::{Part, better, is_clean};
use super::text::{notes, paragraphs};
use super::verdict::{KINDS, badge, count};
use super::view::{Claimed, View};
use super::{distribution, table, view};

/// Colours of the style sheet.
const COLOURS: usize = 8;
/// Flagged and outlying runs that are shown without a click.
const RUNS_OPEN_MAX: usize = 12;

/// The section of an experiment. If it is not the only one, it has its own title.
pub fn section(m: &mut Markup, part: &Part<'_>, id: &str, with_title: bool) {
    let heading = format!("{id}-name");
    let view = View::of(part);
    m.element(
        "section",
        &[("id", id), ("aria-labelledby", &heading)],
        |m| {
            m.element("h2", &[("id", &heading)], |m| {
                m.text(&view.definition.name);
                m.text(" ");
                m.leaf("span", &[("class", "source")], &view.definition.source);
            });
            if with_title {
                m.leaf("p", &[("class", "title")], &view.definition.title);
            }
            if view.definition.stopped {
                m.leaf("p", &[("class", "stopped")], "Stopped before the end.");
            }
            verdicts(m, part);
            charts(m, part);
            m.leaf("h3", &[], "What it means");
            paragraphs(m, &view.definition.meaning);
            if !view.definition.limits.is_empty() {
                m.leaf("h3", &[], "What it cannot show");
                paragraphs(m, &view.definition.limits);
            }
            theirs_and_ours(m, &view);
            claims(m, &view);
            if let Some(spreads) = &view.spreads {
                m.leaf("h3", &[], "How far apart equal settings are");
                table::draw(m, "", spreads);
            }
            percentiles(m, part);
            histograms(m, part);
            settings(m, &view);
            runs(m, part);
            m.leaf("h3", &[], "To repeat it");
            m.element("pre", &[("tabindex", "0")], |m| {
                m.leaf("code", &[], &view.definition.command);
            });
        },
    );
}

fn verdicts(m: &mut Markup, part: &Part<'_>) {
    m.element("p", &[("class", "verdicts")], |m| {
        for kind in KINDS {
            let count = count(part, kind.verdict);
            if count > 0 {
                badge(m, kind.verdict, Some(count));
                m.text(" ");
            }
        }
        if part.claims.is_empty() {
            m.text("Nothing is claimed of the figures.");
        }
    });
}

/// The document's table beside this machine's, where the page is wide enough.
fn theirs_and_ours(m: &mut Markup, view: &View<'_>) {
    m.leaf("h3", &[], "What the document claims");
    paragraphs(m, &view.definition.document.claims);
    m.element("div", &[("class", "beside")], |m| {
        if view.theirs.is_some() || !view.definition.document.notes.is_empty() {
            m.element("div", &[], |m| {
                m.leaf("h3", &[], "What the document has");
                if let Some(theirs) = &view.theirs {
                    table::draw(m, "theirs", theirs);
                }
                notes(m, &view.definition.document.notes);
            });
        }
        m.element("div", &[], |m| {
            m.leaf("h3", &[], "What this machine shows");
            if let Some(ours) = &view.ours {
                table::draw(m, "ours", ours);
            }
            (view.extremes.iter()).for_each(|one| table::draw(m, "", one));
            for line in &view.missing {
                m.leaf("p", &[("class", "missing")], line);
            }
        });
    });
}

fn claims(m: &mut Markup, view: &View<'_>) {
    if view.claims.is_empty() {
        return;
    }
    m.leaf("h3", &[], "Verdicts");
    for one in &view.claims {
        m.element("div", &[("class", "claim")], |m| claim(m, one));
    }
}

/// A claim in all settings that it is about.
fn claim(m: &mut Markup, of: &Claimed<'_>) {
    m.leaf("h4", &[], of.text);
    m.leaf("p", &[("class", "about")], &of.about);
    of.reasons.iter().for_each(|why| m.leaf("p", &[], why));
    let estimates = of.judged.iter().filter_map(|one| one.measured);
    let values = estimates.flat_map(|one| [one.median, one.low, one.high]);
    let values: Vec<f64> = values.collect();
    let is_drawn = !values.is_empty();
    let has_reason = of.judged.iter().any(|one| !one.why.is_empty());
    let axis = Scale::linear(values.into_iter().chain([of.expected.0, of.expected.1]));
    table::boxed(m, "claims", &of.measured, |m| {
        table::heads(m, |m| {
            table::head(m, "verdict", false);
            table::head(m, "settings", false);
            if of.compares {
                table::head(m, "to", false);
            }
            table::head(m, "measured", true);
            if is_drawn {
                axis_head(m, "beside what is expected", |m| axis.draw(m));
            }
            if has_reason {
                table::head(m, "why not judged", false);
            }
        });
        m.element("tbody", &[], |m| {
            for one in &of.judged {
                m.element("tr", &[], |m| {
                    m.element("td", &[], |m| badge(m, one.verdict, None));
                    m.leaf("th", &[("scope", "row")], &one.of);
                    if of.compares {
                        m.leaf("td", &[], &one.to);
                    }
                    m.element("td", &[("class", "n")], |m| {
                        table::interval(m, one.measured.as_ref());
                    });
                    if is_drawn {
                        m.element("td", &[("class", "drawn")], |m| {
                            if let Some(estimate) = &one.measured {
                                chart::against(m, &axis, estimate, of.expected);
                            }
                        });
                    }
                    if has_reason {
                        m.leaf("td", &[("class", "why")], &one.why);
                    }
                });
            }
        });
    });
}

/// The head of a column of charts, with their axis.
fn axis_head(m: &mut Markup, text: &str, axis: impl FnOnce(&mut Markup)) {
    m.element("th", &[("scope", "col"), ("class", "drawn")], |m| {
        m.leaf("span", &[("class", "hidden")], text);
        axis(m);
    });
}

/// Bars of each figure.
fn charts(m: &mut Markup, part: &Part<'_>) {
    let drawn = |figure: &&Figure| {
        part.rows
            .iter()
            .any(|row| row.estimate(&figure.key).is_some())
    };
    let figures: Vec<_> = part.figures().iter().filter(drawn).collect();
    if figures.is_empty() {
        return;
    }
    m.leaf("h3", &[], "Charts");
    key(m, part);
    m.element("div", &[("class", "charts")], |m| {
        figures.iter().for_each(|figure| bars(m, part, figure));
    });
}

/// The axis in which the settings that claims compare differ most often. It has the colours, and
/// its settings are side by side.
fn subject<'a>(part: &Part<'a>) -> Option<&'a Axis> {
    let compared = |axis: &Axis| {
        let differ = part.claims.iter().filter(|claim| {
            let (of, to) = (claim.of.of(&axis.name), claim.to.as_ref());
            to.is_some_and(|to| to.of(&axis.name) != of)
        });
        differ.count()
    };
    let varying = part.axes().iter().filter(|axis| varies(&part.rows, axis));
    // Of equal ones the last.
    varying.max_by_key(|axis| compared(axis))
}

/// Whether rows differ in an axis.
fn varies(rows: &[&Row], axis: &Axis) -> bool {
    let mut names = rows.iter().map(|row| row.setting.of(&axis.name));
    names
        .next()
        .is_some_and(|first| names.any(|name| name != first))
}

/// What colours, marks and faded bars are.
fn key(m: &mut Markup, part: &Part<'_>) {
    m.element("p", &[("class", "key")], |m| {
        if let Some(axis) = subject(part) {
            m.leaf("strong", &[], &axis.name);
            for (at, name) in axis.settings.iter().enumerate() {
                m.element("span", &[], |m| swatch(m, at % COLOURS, name));
            }
        }
        m.element("span", &[], marks);
    });
}

/// A colour and its name.
fn swatch(m: &mut Markup, colour: usize, name: &str) {
    let class = format!("swatch b{colour}");
    m.leaf("i", &[("class", &class)], "");
    m.leaf("span", &[], name);
}

/// What the marks of bars are.
fn marks(m: &mut Markup) {
    m.element("i", &[("class", "marks")], sample);
    let text = "bar: median; whisker: its interval; ● a run; ○ a disturbed run; a pale bar: no \
                run was clean";
    m.leaf("span", &[], text);
}

/// A bar as an example.
pub fn sample(m: &mut Markup) {
    let estimate = Estimate {
        median: 6.0,
        low: 5.0,
        high: 7.0,
        count: 3,
    };
    let runs = [(5.0, true), (6.4, true), (8.5, false)];
    let scale = Scale::linear([10.0].into_iter());
    chart::bar(m, &scale, &estimate, &runs, 0);
}

fn bars(m: &mut Markup, part: &Part<'_>, figure: &Figure) {
    let of_row = |row: &Row| row.estimate(&figure.key);
    let of_runs = |row: &Row| -> Vec<(f64, bool)> {
        let runs = part.runs_of(row).into_iter();
        let values = runs.filter_map(|run| Some((figure.key.of(&run.figures)?, is_clean(run))));
        values.collect()
    };
    let rows = part.rows.iter().copied();
    let rows: Vec<&Row> = rows.filter(|row| of_row(row).is_some()).collect();
    let values = rows.iter().flat_map(|row| {
        let runs = of_runs(row).into_iter().map(|(value, _)| value);
        let ends = of_row(row).into_iter();
        runs.chain(ends.flat_map(|one| [one.median, one.low, one.high]))
    });
    let values: Vec<f64> = values.collect();
    if let ([first, ..], [row, _, ..]) = (&values[..], &rows[..])
        && values.iter().all(|value| value == first)
    {
        m.element("p", &[("class", "equal")], |m| {
            m.text(&format!("{}: ", figure.head()));
            table::number_of(m, &view::figure(row, &figure.key));
            m.text(&format!(
                " in each of {} settings, in every run.",
                rows.len()
            ));
        });
        return;
    }
    let axis = Scale::linear(values.into_iter());
    let caption = match better(figure) {
        "" => figure.head(),
        better => format!("{} ({better})", figure.head()),
    };
    chart_table(
        m,
        part,
        &rows,
        &caption,
        |m| axis.draw(m),
        |m| {
            let brackets = view::brackets(part, slice::from_ref(figure));
            table::head(m, &format!("median {brackets}"), true);
        },
        |m, row, colour| {
            let estimate = of_row(row);
            m.element("td", &[("class", "drawn")], |m| {
                if let Some(estimate) = &estimate {
                    chart::bar(m, &axis, estimate, &of_runs(row), colour);
                }
            });
            m.element("td", &[("class", "n")], |m| {
                table::number_of(m, &view::figure(row, &figure.key));
            });
        },
    );
}

/// A table with a chart in each row. Rows that differ in the subject of the comparison only are a
/// group; axes that do not vary are left out.
fn chart_table(
    m: &mut Markup,
    part: &Part<'_>,
    rows: &[&Row],
    caption: &str,
    axis: impl FnOnce(&mut Markup),
    heads: impl FnOnce(&mut Markup),
    cells: impl Fn(&mut Markup, &Row, usize),
) {
    let last = subject(part).or_else(|| part.axes().last());
    let known = last.map_or(&[][..], |axis| &axis.settings);
    let last = last.map_or("", |axis| &axis.name);
    let differs = |axis: &&Axis| axis.name != last && varies(rows, axis);
    let outer: Vec<&Axis> = part.axes().iter().filter(differs).collect();
    let place = |row: &Row, axis: &Axis| {
        let name = row.setting.of(&axis.name);
        axis.settings.iter().position(|known| known == name)
    };
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| {
        outer
            .iter()
            .map(|axis| place(row, axis))
            .collect::<Vec<_>>()
    });
    table::boxed(m, "bars", caption, |m| {
        table::heads(m, |m| {
            table::head(m, last, false);
            axis_head(m, "chart", axis);
            heads(m);
        });
        let same = |a: &&Row, b: &&Row| {
            let same = |axis: &&Axis| a.setting.of(&axis.name) == b.setting.of(&axis.name);
            outer.iter().all(same)
        };
        for group in rows.chunk_by(same) {
            m.element("tbody", &[], |m| {
                if !outer.is_empty() {
                    let names = outer.iter().map(|axis| {
                        let name = &axis.name;
                        format!("{name}={}", group[0].setting.of(name))
                    });
                    let names: Vec<_> = names.collect();
                    m.element("tr", &[("class", "group")], |m| {
                        let attributes = [("colspan", "9"), ("scope", "rowgroup")];
                        m.leaf("th", &attributes, &names.join(" "));
                    });
                }
                for row in group {
                    let name = row.setting.of(last);
                    let place = known.iter().position(|known| known == name);
                    m.element("tr", &[], |m| {
                        m.leaf("th", &[("scope", "row")], name);
                        cells(m, row, place.unwrap_or_default() % COLOURS);
                    });
                }
            });
        }
    });
}

fn percentiles(m: &mut Markup, part: &Part<'_>) {
    let all = distribution::distributions(part);
    if all.is_empty() {
        return;
    }
    fold(m, "Percentiles", true, |m| {
        m.leaf(
            "p",
            &[("class", "about")],
            "Medians of the runs’ percentiles on a logarithmic scale. The bar reaches from the \
             least to the 99th percentile, with a mark at the median. The line ends at the \
             greatest.",
        );
        m.element("div", &[("class", "wide")], |m| {
            for (name, rows) in &all {
                let values = rows.iter().flat_map(|(_, of)| [of.min, of.p50, of.max]);
                let scale = Scale::decades(values);
                let names: Vec<_> = rows.iter().map(|(row, _)| *row).collect();
                chart_table(
                    m,
                    part,
                    &names,
                    name,
                    |m| scale.draw(m),
                    |m| {
                        for head in ["least", "p50", "p90", "p99", "greatest"] {
                            table::head(m, head, true);
                        }
                    },
                    |m, row, colour| {
                        let of = rows.iter().find(|(other, _)| ptr::eq(*other, row));
                        let Some((_, of)) = of else { return };
                        m.element("td", &[("class", "drawn")], |m| {
                            chart::percentiles(m, &scale, of, colour);
                        });
                        for value in [of.min, of.p50, of.p90, of.p99, of.max] {
                            table::cell(m, Some(value));
                        }
                    },
                );
            }
        });
    });
}

fn histograms(m: &mut Markup, part: &Part<'_>) {
    let is_batch =
        |one: &Histogram<'_>| one.name.contains(".batches.") && !one.name.ends_with("us");
    let all = distribution::histograms(part).into_iter();
    let (batches, others): (Vec<_>, Vec<_>) = all.partition(is_batch);
    if !batches.is_empty() {
        fold(m, "Batch sizes, in packets", false, |m| {
            columns(m, part, &batches);
        });
    }
    for one in &others {
        let title = format!("Histogram of {}", one.name);
        fold(m, &title, false, |m| columns(m, part, slice::from_ref(one)));
    }
}

/// Histograms, those of a row side by side, and tables of their counts.
fn columns(m: &mut Markup, part: &Part<'_>, all: &[Histogram<'_>]) {
    let shares = |counts: &[u64]| -> Vec<f64> {
        let all = counts.iter().sum::<u64>().max(1) as f64;
        counts.iter().map(|count| *count as f64 / all).collect()
    };
    let most = |of: &Histogram<'_>| {
        let shares = of.rows.iter().flat_map(|(_, counts)| shares(counts));
        shares.fold(0.0, f64::max)
    };
    let heights = all
        .iter()
        .map(|one| format!("{} %", number(100.0 * most(one))));
    let about = format!(
        "A column is as high as the share of its values; the full height is {}. Below are the \
         least values of the bins. The tables have the counts.",
        heights.collect::<Vec<_>>().join(", ")
    );
    m.leaf("p", &[("class", "about")], &about);
    m.element("div", &[("class", "histograms")], |m| {
        for row in &part.rows {
            for one in all {
                let Some((_, counts)) = one.rows.iter().find(|(of, _)| ptr::eq(*of, *row)) else {
                    continue;
                };
                let about = format!("{}: {}", one.name.replace(".batches", ""), row.setting);
                m.element("figure", &[], |m| {
                    chart::columns(m, &about, &one.bins, &shares(counts), most(one));
                    m.leaf("figcaption", &[], &about);
                });
            }
        }
    });
    for one in all {
        let caption = format!("{}: counts by the least value of the bin", one.name);
        table::boxed(m, "counts", &caption, |m| {
            table::heads(m, |m| {
                table::axes(m, part);
                for least in &one.bins {
                    table::head(m, &number(*least as f64), true);
                }
            });
            m.element("tbody", &[], |m| {
                for (row, counts) in &one.rows {
                    m.element("tr", &[], |m| {
                        table::settings(m, part, &row.setting);
                        for count in counts {
                            let count = (*count > 0).then_some(*count as f64);
                            table::cell(m, count);
                        }
                    });
                }
            });
        });
    }
}

/// The plan and the settings in force.
fn settings(m: &mut Markup, view: &View<'_>) {
    let tables = [&view.differing, &view.shared].into_iter().flatten();
    let tables: Vec<_> = tables.collect();
    if tables.is_empty() {
        return;
    }
    fold(m, "Plan and settings, read back", false, |m| {
        tables.into_iter().for_each(|one| table::draw(m, "", one));
    });
}

/// Flagged and outlying runs, and all runs.
fn runs(m: &mut Markup, part: &Part<'_>) {
    if part.runs.is_empty() {
        return;
    }
    // Of the runs themselves: the figures of rows are rounded.
    let mut outlying: Vec<(&Run, &Figure)> = Vec::new();
    let figures = part.figures();
    for (row, figure) in (part.rows.iter()).flat_map(|row| figures.iter().map(move |of| (row, of)))
    {
        let runs = part.counted_runs_of(row, figure.exact).into_iter();
        let values = runs.filter_map(|run| Some((run, figure.key.of(&run.figures)?)));
        let values: Vec<_> = values.collect();
        let outliers = outliers(values.iter().map(|(_, value)| *value).collect());
        let found = values.iter().filter(|(_, value)| outliers.contains(value));
        outlying.extend(found.map(|(run, _)| (*run, figure)));
    }
    let is_outlier = |run: &Run, figure: &Figure| {
        let same = |one: &(&Run, &Figure)| ptr::eq(one.0, run) && ptr::eq(one.1, figure);
        outlying.iter().any(same)
    };
    let show = |m: &mut Markup, caption: &str, runs: &[&Run]| {
        table::boxed(m, "runs", caption, |m| {
            table::heads(m, |m| {
                table::axes(m, part);
                table::head(m, "round", true);
                table::head(m, "seed", true);
                table::head(m, "load", true);
                figures
                    .iter()
                    .for_each(|one| table::head(m, &one.head(), true));
                table::head(m, "flags", false);
            });
            m.element("tbody", &[], |m| {
                for run in runs {
                    m.element("tr", &[], |m| {
                        table::settings(m, part, &run.setting);
                        table::cell(m, Some((run.round + 1) as f64));
                        table::cell(m, Some(run.seed as f64));
                        table::cell(m, run.load);
                        for figure in figures {
                            m.element("td", &[("class", "n")], |m| {
                                let Some(value) = figure.key.of(&run.figures) else {
                                    return m.text(figure.key.word(&run.figures).unwrap_or("–"));
                                };
                                table::exact(m, value);
                                if is_outlier(run, figure) {
                                    m.text(" ");
                                    m.leaf("span", &[("class", "flag")], "outlier");
                                }
                            });
                        }
                        m.leaf("td", &[("class", "why")], &run.flags.join("; "));
                    });
                }
            });
        });
    };
    let is_odd = |run: &&Run| !is_clean(run) || figures.iter().any(|one| is_outlier(run, one));
    let odd: Vec<&Run> = part.runs.iter().copied().filter(is_odd).collect();
    let title = format!("Flagged and outlying runs ({})", odd.len());
    fold(m, &title, (1..=RUNS_OPEN_MAX).contains(&odd.len()), |m| {
        if odd.is_empty() {
            m.leaf(
                "p",
                &[],
                "No run was disturbed, failed, or lies far from its equals.",
            );
        } else {
            show(
                m,
                "Flagged and outlying runs, in the order in which they were made",
                &odd,
            );
        }
    });
    let title = format!("All runs ({})", part.runs.len());
    fold(m, &title, false, |m| {
        show(
            m,
            "All runs, in the order in which they were made",
            &part.runs,
        );
    });
}

/// A part that opens and closes.
fn fold(m: &mut Markup, title: &str, is_open: bool, inner: impl FnOnce(&mut Markup)) {
    let attributes: &[(&str, &str)] = if is_open { &[("open", "")] } else { &[] };
    m.element("details", attributes, |m| {
        m.element("summary", &[], |m| m.leaf("h3", &[], title));
        inner(m);
    });
}
