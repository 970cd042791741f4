//! The whole page: conditions, warnings, all experiments, and how to read them.

use packtrain_measure::document::Document;
use packtrain_measure::markup::Markup;

use super::read::{Part, is_clean};
use super::verdict::{KINDS, badge, count};
use super::{part, table, view};
use crate::experiment::{SOURCES, Source};

/// Forbids the page to load anything or to run scripts, whatever is in the document.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// The page of a document that `packtrain experiment` writes.
pub fn html(document: &Document) -> String {
    let parts = Part::all(document);
    let title = match &parts[..] {
        [one] => format!("{}: {}", one.definition.name, one.definition.title),
        _ => "Experiments".to_owned(),
    };
    let mut m = Markup::default();
    m.own("<!doctype html>\n");
    m.element("html", &[("lang", "en")], |m| {
        head(m, &title);
        m.element("body", &[], |m| {
            m.leaf(
                "a",
                &[("class", "skip"), ("href", "#main")],
                "Skip to the results",
            );
            m.element("header", &[], |m| {
                m.leaf("p", &[("class", "program")], "packtrain experiment");
                m.leaf("h1", &[], &title);
                conditions(m, document);
                warnings(m, document, &parts);
            });
            m.element("main", &[("id", "main"), ("tabindex", "-1")], |m| {
                if parts.len() > 1 {
                    overview(m, &parts);
                }
                for (at, part) in parts.iter().enumerate() {
                    part::section(m, part, &format!("e{at}"), parts.len() > 1);
                }
            });
            m.element("footer", &[], |m| {
                legend(m);
                sources(m, &parts);
            });
        });
    });
    m.text("\n");
    m.finish()
}

fn head(m: &mut Markup, title: &str) {
    m.element("head", &[], |m| {
        m.empty("meta", &[("charset", "utf-8")]);
        let policy = [
            ("http-equiv", "Content-Security-Policy"),
            ("content", POLICY),
        ];
        m.empty("meta", &policy);
        let viewport = "width=device-width, initial-scale=1";
        m.empty("meta", &[("name", "viewport"), ("content", viewport)]);
        m.empty(
            "meta",
            &[("name", "color-scheme"), ("content", "light dark")],
        );
        m.empty("link", &[("rel", "icon"), ("href", "data:,")]);
        m.leaf("title", &[], &format!("{title} – packtrain"));
        m.element("style", &[], |m| m.own(include_str!("style.css")));
    });
}

/// The machine and its state.
fn conditions(m: &mut Markup, document: &Document) {
    m.element("dl", &[("class", "conditions")], |m| {
        for (name, value) in view::conditions(document) {
            m.element("div", &[], |m| {
                m.leaf("dt", &[], name);
                m.leaf("dd", &[], &value);
            });
        }
    });
}

fn warnings(m: &mut Markup, document: &Document, parts: &[Part<'_>]) {
    let runs: usize = parts.iter().map(|part| part.runs.len()).sum();
    let flagged = parts.iter().flat_map(|part| &part.runs);
    let flagged = flagged.filter(|run| !is_clean(run)).count();
    let mut lines = Vec::new();
    if runs == 0 {
        lines.push("No run has ended yet.".to_owned());
    }
    if document.stopped {
        lines.push("Stopped before the end: these are the runs until then.".to_owned());
    }
    if document.quick {
        lines.push("Quick: shorter runs, so no verdict is better than “direction”.".to_owned());
    }
    if flagged > 0 {
        lines.push(format!(
            "{flagged} of {runs} runs were disturbed or failed. They are shown, and no verdict \
             rests on them, except on counts that no load changes."
        ));
    }
    if lines.is_empty() {
        return;
    }
    m.element("ul", &[("class", "warnings")], |m| {
        lines.iter().for_each(|line| m.leaf("li", &[], line));
    });
}

/// The experiments with how many verdicts of each kind they have.
fn overview(m: &mut Markup, parts: &[Part<'_>]) {
    m.element("nav", &[("aria-label", "Experiments")], |m| {
        table::scrolling(m, "Verdicts", |m| {
            m.element("thead", &[], |m| {
                m.element("tr", &[], |m| {
                    table::head(m, "Experiment", false);
                    table::head(m, "From", false);
                    KINDS
                        .iter()
                        .for_each(|kind| table::head(m, kind.verdict.name(), true));
                });
            });
            m.element("tbody", &[], |m| {
                for (at, part) in parts.iter().enumerate() {
                    m.element("tr", &[], |m| {
                        m.element("th", &[("scope", "row")], |m| {
                            m.leaf("a", &[("href", &format!("#e{at}"))], &part.definition.name);
                            m.leaf("span", &[("class", "about")], &part.definition.title);
                        });
                        m.leaf("td", &[], &part.definition.source);
                        for kind in KINDS {
                            let count = count(part, kind.verdict);
                            let class = if count == 0 { "n none" } else { "n" };
                            m.leaf("td", &[("class", class)], &count.to_string());
                        }
                    });
                }
            });
        });
    });
}

fn legend(m: &mut Markup) {
    m.leaf("h2", &[], "How to read it");
    m.element("dl", &[("class", "legend")], |m| {
        for kind in KINDS {
            m.element("dt", &[], |m| badge(m, kind.verdict, None));
            m.leaf("dd", &[], kind.meaning);
        }
        m.leaf("dt", &[], "1.23 [1.20, 1.31]");
        let interval = "the median over the clean runs, or over all runs if none was clean or the \
                        figure is a count that no load changes, with the least and the greatest \
                        run; from six runs on, with its bootstrap interval of 95 %. That of a \
                        ratio or of a spread is always the bootstrap's";
        m.leaf("dd", &[], interval);
        m.leaf("dt", &[], "41 (3 of 4) | 3,398 (1 of 4)");
        let groups = "the runs are two groups far from each other: the median and the number of \
                      runs of each";
        m.leaf("dd", &[], groups);
        m.element("dt", &[], part::sample);
        let bar = "bar: the median; whisker: the interval; dots: single runs, hollow if flagged";
        m.leaf("dd", &[], bar);
        m.leaf("dt", &[], "Flagged");
        let flagged = "other programs or a CPU quota disturbed the run, or it failed";
        m.leaf("dd", &[], flagged);
        m.leaf("dt", &[], "Outlier");
        let outlier = "more than 1.5 interquartile ranges outside of the quartiles of its setting";
        m.leaf("dd", &[], outlier);
    });
}

/// The documents that the experiments of the page are from.
fn sources(m: &mut Markup, parts: &[Part<'_>]) {
    let is_named = |one: &&Source| {
        let mut names = parts.iter().map(|part| &part.definition.source);
        names.any(|name| name.contains(one.id))
    };
    let named: Vec<&Source> = SOURCES.iter().filter(is_named).collect();
    if named.is_empty() {
        return;
    }
    m.leaf("h2", &[], "The documents");
    table::scrolling(m, "What the documents say of themselves", |m| {
        table::heads(m, |m| {
            for head in ["", "title", "author", "date", "published"] {
                table::head(m, head, false);
            }
        });
        m.element("tbody", &[], |m| {
            for one in named {
                m.element("tr", &[], |m| {
                    m.leaf("th", &[("scope", "row")], one.id);
                    for text in [one.title, one.author, one.date, one.published] {
                        m.leaf("td", &[], text);
                    }
                });
            }
        });
    });
}
