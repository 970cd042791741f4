//! Chromium without a window.

use serde::Deserialize;
use serde_json::{Map, Value};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Names of the program.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Colours that the reader prefers.
#[derive(Clone, Copy, Debug)]
pub enum Scheme {
    Light,
    Dark,
}

/// What `probe.js` found.
#[derive(Debug, Deserialize)]
pub struct Probe {
    /// The page's title.
    pub title: String,
    /// By the width in pixels: by how much the page is wider, charts, and those without a size.
    pub widths: Map<String, Value>,
    pub tables: Vec<Table>,
    /// The text with the least contrast.
    pub contrast: Value,
    /// Luminance of the background, from 0 to 1.
    pub background: f64,
    /// Scripts in the page.
    pub scripts: usize,
    /// The element to which the skip link leads.
    pub skip: String,
    /// Charts that a screen reader would find without a name.
    pub unnamed: usize,
    pub viewport: String,
    /// Links that lead nowhere.
    pub broken: usize,
    /// What the console shows.
    #[serde(skip)]
    pub console: Vec<String>,
}

/// A table.
#[derive(Debug, Deserialize)]
pub struct Table {
    /// The section that it is in.
    pub section: String,
    /// Its class.
    pub kind: String,
    pub caption: String,
    /// The rows of its bodies.
    pub rows: Vec<Vec<Cell>>,
    /// Cells that are heads, and those of them that say what they are heads of.
    pub heads: usize,
    pub scoped: usize,
    /// Whether its box can have the focus.
    pub reachable: bool,
}

/// A cell.
#[derive(Debug, Deserialize)]
pub struct Cell {
    /// What is seen.
    pub text: String,
    /// The exact numbers.
    pub values: Vec<String>,
    /// Lengths of bars, as shares of their charts' widths.
    pub bar: Vec<f64>,
}

/// The program.
#[derive(Debug)]
pub struct Browser(&'static str);

impl Browser {
    /// The program, if it is installed.
    pub fn find() -> Option<Self> {
        let runs = |name: &&str| {
            let mut command = Command::new(name);
            command.arg("--version").stdout(Stdio::null());
            command
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        };
        NAMES.into_iter().find(runs).map(Self)
    }

    /// Draws a page, and measures it.
    pub fn probe(&self, page: &str, scheme: Scheme) -> Probe {
        let home = Home::new(scheme);
        let escaped = page.replace('&', "&amp;").replace('"', "&quot;");
        let wrapper = format!(
            "<!doctype html><meta charset=utf-8><meta name=color-scheme content=\"light dark\">\
             <iframe id=page srcdoc=\"{escaped}\"></iframe><pre id=probe></pre><script>{}</script>",
            include_str!("probe.js")
        );
        let file = home.0.join("wrapper.html");
        fs::write(&file, wrapper).expect("write the wrapper");
        let colours = match scheme {
            Scheme::Light => "--blink-settings=preferredColorScheme=1",
            Scheme::Dark => "--blink-settings=preferredColorScheme=0",
        };
        let output = Command::new(self.0)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ])
            .args(["--enable-logging=stderr", "--v=0", "--dump-dom", colours])
            .arg(format!(
                "--user-data-dir={}",
                home.0.join("profile").display()
            ))
            .arg(format!("file://{}", file.display()))
            .envs(["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"].map(|name| (name, &home.0)))
            .stdin(Stdio::null())
            .output()
            .expect("run Chromium");
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {log}", output.status);
        let dom = String::from_utf8(output.stdout).expect("a page in UTF-8");
        let found = dom.split_once("<pre id=\"probe\">").and_then(|(_, after)| {
            let (json, _) = after.split_once("</pre>")?;
            Some(
                json.replace("&lt;", "<")
                    .replace("&gt;", ">")
                    .replace("&amp;", "&"),
            )
        });
        let found = found.unwrap_or_else(|| panic!("no probe in {dom}; {log}"));
        let mut probe: Probe =
            serde_json::from_str(&found).unwrap_or_else(|error| panic!("{error}: {found}; {log}"));
        // As in `[1:2:1126/140000.0:INFO:CONSOLE:7] "text", source: file (7)`.
        let messages = log.lines().filter(|line| line.contains("CONSOLE"));
        let messages = messages.map(|line| match line.split_once("] \"") {
            Some((_, text)) => text.split("\", source:").next().unwrap_or(text).to_owned(),
            None => line.to_owned(),
        });
        probe.console = messages.collect();
        probe
    }
}

/// A folder for all that Chromium writes, removed when dropped.
struct Home(PathBuf);

impl Home {
    fn new(scheme: Scheme) -> Self {
        let name = format!("packtrain-report-{scheme:?}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}
