//! Rust peers built for this CPU, while our side is built for any.
//!
//! One executable has one target CPU. So the bench builds itself a second time, for this CPU, and
//! runs that build as a child that takes a sample whenever it is asked to. Both are kept on the
//! same CPU, and one of them waits while the other works.

use crate::peers;
use packtrain_bench::{Sample, Side, Work};
use std::cell::RefCell;
use std::error::Error;
use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;

/// The second build, running.
#[derive(Debug)]
pub struct Native {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// Builds this bench for this CPU, below `directory`.
fn build(directory: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let output = Command::new(cargo)
        .args([
            "bench",
            "--no-run",
            "--features",
            "peers",
            "--bench",
            "offload",
        ])
        .args([
            "--manifest-path",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        ])
        .args(["--message-format", "json-render-diagnostics"])
        .env("CARGO_TARGET_DIR", directory.join("native"))
        .env("RUSTFLAGS", "-C target-cpu=native")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    if !output.status.success() {
        return Err("the second build failed".to_owned());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = messages.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == "offload")
            .then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    executable.ok_or("cargo did not say where the second build is".to_owned())
}

impl Native {
    /// Builds and starts it.
    ///
    /// # Errors
    ///
    /// Why there is none, for people.
    pub fn start(directory: &Path) -> Result<Self, String> {
        let executable = build(directory)?;
        let mut child = Command::new(executable)
            .arg("--serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("the second build does not start: {error}"))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (requests, answers) = pipes.ok_or("the second build has no pipes")?;
        Ok(Self {
            child,
            requests,
            answers: BufReader::new(answers),
        })
    }

    /// Sends one line, and returns the words of the answer.
    fn ask(&mut self, request: &str) -> Result<Vec<String>, String> {
        let lost = |error| format!("the second build is gone: {error}");
        writeln!(self.requests, "{request}").map_err(lost)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(lost)?;
        let line = line.trim_end();
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        match kind {
            "ok" => Ok(rest.split(' ').map(str::to_owned).collect()),
            "missing" => Err(rest.to_owned()),
            _ => Err("the second build ended".to_owned()),
        }
    }

    /// The peer `name` of `work`, made over there.
    ///
    /// # Errors
    ///
    /// Why it cannot be made.
    pub fn side(this: &Rc<RefCell<Self>>, work: Work, name: &str) -> Result<Remote, String> {
        let index = Work::all().iter().position(|one| *one == work);
        let index = index.ok_or("an unknown work")?;
        let made = this.borrow_mut().ask(&format!("make {index} {name}"))?;
        let id = made.first().cloned().unwrap_or_default();
        Ok(Remote {
            native: Rc::clone(this),
            id,
        })
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // It ends by itself at the end of its input; this one does not wait for that.
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait().map(drop)) {
            eprintln!("offload: the second build does not end: {error}");
        }
    }
}

/// A side that runs in the second build.
pub struct Remote {
    native: Rc<RefCell<Native>>,
    id: String,
}

impl Side for Remote {
    fn sample(&mut self, seed: u64) -> Sample {
        let request = format!("sample {} {seed}", self.id);
        let answer = self.native.borrow_mut().ask(&request);
        let words = answer.unwrap_or_else(|error| panic!("{error}"));
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
        Sample {
            ns: number(0).expect("an answer is a number"),
            merge: number(1),
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let request = format!("drop {}", self.id);
        if let Err(error) = self.native.borrow_mut().ask(&request) {
            eprintln!("offload: {error}");
        }
    }
}

/// Answers requests until there are no more.
pub fn serve() -> Result<(), Box<dyn Error>> {
    let all = Work::all();
    let mut sides: Vec<Option<Box<dyn Side>>> = Vec::new();
    for line in stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        let answer = match words[..] {
            ["make", index, name] => {
                let work = all.get(index.parse::<usize>()?).ok_or("no such work")?;
                match peers::rust_side(*work, name) {
                    Ok(side) => {
                        sides.push(Some(side));
                        format!("ok {}", sides.len() - 1)
                    }
                    Err(missing) => format!("missing {missing}"),
                }
            }
            ["sample", id, seed] => {
                let side = sides.get_mut(id.parse::<usize>()?).and_then(Option::as_mut);
                let sample = side.ok_or("no such side")?.sample(seed.parse()?);
                match sample.merge {
                    Some(merge) => format!("ok {} {merge}", sample.ns),
                    None => format!("ok {}", sample.ns),
                }
            }
            ["drop", id] => {
                if let Some(side) = sides.get_mut(id.parse::<usize>()?) {
                    *side = None;
                }
                "ok".to_owned()
            }
            _ => return Err(format!("a request that is none: {line}").into()),
        };
        writeln!(stdout(), "{answer}")?;
        stdout().flush()?;
    }
    Ok(())
}
