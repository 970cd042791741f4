//! The report as JUnit XML and as a page.

use packtrain_measure::markup::Markup;

use super::verdict::{Report, Row, Verdict};

/// One test suite of JUnit XML, as CI systems read it. The text of a failure is what a terminal
/// shows of it.
pub fn junit(report: &Report) -> String {
    let skipped = report.rows.iter().filter(|row| is_skipped(row)).count();
    let seconds: f64 = report.rows.iter().map(|row| row.seconds).sum();
    let mut m = Markup::default();
    m.own("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let suite = [
        ("name", "packtrain check"),
        ("tests", &report.rows.len().to_string()),
        ("failures", &report.failures().to_string()),
        ("skipped", &skipped.to_string()),
        ("time", &format!("{seconds:.3}")),
    ];
    m.element("testsuite", &suite, |m| {
        m.own("\n");
        for row in &report.rows {
            let case = [
                ("classname", "packtrain.check"),
                ("name", row.check),
                ("time", &format!("{:.3}", row.seconds)),
            ];
            m.own("  ");
            m.element("testcase", &case, |m| outcome(m, row));
            m.own("\n");
        }
    });
    m.own("\n");
    m.finish()
}

fn is_skipped(row: &Row) -> bool {
    matches!(row.verdict, Verdict::NotApplicable | Verdict::NotJudged)
}

/// What is in a test case.
fn outcome(m: &mut Markup, row: &Row) {
    let words = row.verdict.words();
    if row.verdict.is_failure() {
        let attributes = [("type", words), ("message", &*row.what)];
        m.leaf("failure", &attributes, &row.details(usize::MAX));
    } else if is_skipped(row) {
        let what = format!("{words} {}", row.what);
        m.empty("skipped", &[("message", what.trim())]);
    } else if !row.note.is_empty() {
        m.leaf("system-out", &[], &row.note);
    }
}

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:70em;\
padding:0 1em}table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;\
padding:.35em .6em;border-bottom:1px solid #8884}.failed td:nth-child(2){color:#c0392b;\
font-weight:600}.passed td:nth-child(2){color:#1e8449}pre{white-space:pre-wrap;margin:.3em 0}\
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}}";

/// The headings of the columns.
const HEADINGS: [&str; 4] = [
    "check",
    "verdict",
    "what a program that passes does, and what was found",
    "source",
];

/// A page with a row for each check, without anything to load.
pub fn html(report: &Report) -> String {
    const TITLE: &str = "packtrain check";
    Markup::page(TITLE, STYLE, |m| {
        m.leaf("h1", &[], TITLE);
        m.leaf("pre", &[], &report.commands.join("\n"));
        let line = format!(
            "{} of {} checks failed; {} devices, MTU {}",
            report.failures(),
            report.rows.len(),
            report.devices,
            report.mtu,
        );
        m.leaf("p", &[], &line);
        m.element("table", &[], |m| {
            m.element("tr", &[], |m| {
                for heading in HEADINGS {
                    m.leaf("th", &[], heading);
                }
            });
            for row in &report.rows {
                m.own("\n");
                row_of_page(m, row);
            }
        });
    })
}

fn row_of_page(m: &mut Markup, row: &Row) {
    let class = match row.verdict {
        Verdict::Passed => "passed",
        _ if row.verdict.is_failure() => "failed",
        _ => "",
    };
    m.element("tr", &[("class", class)], |m| {
        m.leaf("td", &[], row.check);
        m.leaf("td", &[], row.verdict.words());
        m.element("td", &[], |m| {
            m.text(row.about);
            let found = [&row.what, &row.cause, &row.figures, &row.note].map(String::as_str);
            let least = row.least.iter().map(String::as_str);
            let lines: Vec<_> = found.into_iter().chain(least).collect();
            if lines.iter().any(|line| !line.is_empty()) {
                let lines = lines.into_iter().filter(|line| !line.is_empty());
                m.leaf("pre", &[], &lines.collect::<Vec<_>>().join("\n"));
            }
        });
        m.leaf("td", &[], row.source);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(check: &'static str, verdict: &Verdict, what: &str) -> Row {
        Row {
            check,
            about: "about & so on",
            source: "RFC 1",
            verdict: verdict.clone(),
            what: what.to_owned(),
            cause: String::new(),
            shows_again: None,
            tries: 0,
            least: vec!["A to B: <one>".to_owned()],
            capture: None,
            figures: String::new(),
            note: match verdict {
                Verdict::Passed => "a note".to_owned(),
                _ => String::new(),
            },
            seconds: 0.5,
        }
    }

    #[test]
    fn reports_count_and_escape() {
        let report = Report {
            commands: vec!["vpn <a> & b".to_owned()],
            devices: "tun",
            mtu: 1500,
            rows: vec![
                row("one", &Verdict::Passed, ""),
                row("two", &Verdict::WrongBytes, "a \"b\" <c>\u{1b}[0m"),
                row("three", &Verdict::NotJudged, "why"),
                row("four", &Verdict::NotApplicable, ""),
            ],
            speeds: Vec::new(),
            speeds_missing: String::new(),
            is_interrupted: false,
            memory_bytes: 0,
        };
        let xml = junit(&report);
        assert!(
            xml.contains("tests=\"4\" failures=\"1\" skipped=\"2\" time=\"2.000\""),
            "{xml}"
        );
        let failure =
            "<failure type=\"wrong bytes\" message=\"a &quot;b&quot; &lt;c&gt;\u{fffd}[0m\">";
        assert!(xml.contains(failure), "{xml}");
        let text = "two: wrong bytes\n  a program that passes: about &amp; so on\n  here: a \
                    &quot;b&quot; &lt;c&gt;\\u{1b}[0m\n  the least input that shows it:\n    A to \
                    B: &lt;one&gt;\n  seen in, or required by: RFC 1\n</failure>";
        assert!(xml.contains(text), "{xml}");
        assert!(xml.contains("<system-out>a note</system-out>"), "{xml}");
        assert!(
            xml.contains("<skipped message=\"not judged why\"/>"),
            "{xml}"
        );
        let page = html(&report);
        assert!(page.contains("<pre>a note\nA to B:"), "{page}");
        assert!(
            page.contains("vpn &lt;a&gt; &amp; b") && page.contains("1 of 4 checks"),
            "{page}"
        );
        assert!(
            !page.contains("<one>") && page.contains("&lt;one&gt;"),
            "{page}"
        );
    }
}
