//! The report as JUnit XML and as a page.

use std::fmt::Write;

use super::verdict::{Report, Row, Verdict};

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML 1.0 has no other control characters.
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// What is wrong, and the least input that shows it, in lines.
fn details(row: &Row) -> String {
    let mut text = row.what.clone();
    for line in &row.least {
        text.push_str("\n  ");
        text.push_str(line);
    }
    text
}

/// One test suite of JUnit XML, as CI systems read it.
pub fn junit(report: &Report) -> String {
    let skipped = |row: &&Row| matches!(row.verdict, Verdict::NotApplicable | Verdict::NotJudged);
    let seconds: f64 = report.rows.iter().map(|row| row.seconds).sum();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"packtrain check\" \
         tests=\"{}\" failures=\"{}\" skipped=\"{}\" time=\"{seconds:.3}\">\n",
        report.rows.len(),
        report.failures(),
        report.rows.iter().filter(skipped).count(),
    );
    for row in &report.rows {
        let head = format!(
            "  <testcase classname=\"packtrain.check\" name=\"{}\" time=\"{:.3}\"",
            row.check, row.seconds
        );
        let words = row.verdict.words();
        // Writing to a string does not fail.
        let _infallible = if row.verdict.is_failure() {
            let (what, details) = (escaped(&row.what), escaped(&details(row)));
            writeln!(
                text,
                "{head}>\n    <failure type=\"{words}\" message=\"{what}\">{details}</failure>\n  \
                 </testcase>"
            )
        } else if skipped(&row) {
            let what = escaped(&format!("{words} {}", row.what));
            writeln!(
                text,
                "{head}>\n    <skipped message=\"{}\"/>\n  </testcase>",
                what.trim()
            )
        } else {
            writeln!(text, "{head}/>")
        };
    }
    text + "</testsuite>\n"
}

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:70em;\
padding:0 1em}table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;\
padding:.35em .6em;border-bottom:1px solid #8884}.failed td:nth-child(2){color:#c0392b;\
font-weight:600}.passed td:nth-child(2){color:#1e8449}pre{white-space:pre-wrap;margin:.3em 0}\
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}}";

/// A page with a row for each check, without anything to load.
pub fn html(report: &Report) -> String {
    let mut rows = String::new();
    for row in &report.rows {
        let class = match row.verdict {
            Verdict::Passed => "passed",
            _ if row.verdict.is_failure() => "failed",
            _ => "",
        };
        let details = match details(row) {
            text if text.is_empty() => escaped(&row.figures),
            text => format!("<pre>{}</pre>", escaped(&text)),
        };
        let _infallible = writeln!(
            rows,
            "<tr class=\"{class}\"><td>{}</td><td>{}</td><td>{}{details}</td><td>{}</td></tr>",
            row.check,
            row.verdict.words(),
            escaped(row.about),
            escaped(row.source),
        );
    }
    let commands = escaped(&report.commands.join("\n"));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>packtrain check</title><style>{STYLE}</style></head>\
         <body><h1>packtrain check</h1><pre>{commands}</pre><p>{} of {} checks failed; {} devices, \
         MTU {}</p><table><tr><th>check</th><th>verdict</th><th>what a program that passes does, \
         and what was found</th><th>source</th></tr>\n{rows}</table></body></html>\n",
        report.failures(),
        report.rows.len(),
        report.devices,
        report.mtu,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(check: &'static str, verdict: Verdict, what: &str) -> Row {
        Row {
            check,
            about: "about",
            source: "RFC 1",
            verdict,
            what: what.to_owned(),
            least: vec!["A to B: <one>".to_owned()],
            capture: None,
            figures: String::new(),
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
                row("one", Verdict::Passed, ""),
                row("two", Verdict::WrongBytes, "a \"b\" <c>\u{1b}[0m"),
                row("three", Verdict::NotJudged, "why"),
                row("four", Verdict::NotApplicable, ""),
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
        assert!(
            xml.contains("<skipped message=\"not judged why\"/>"),
            "{xml}"
        );
        let page = html(&report);
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
