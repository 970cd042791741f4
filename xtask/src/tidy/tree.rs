//! The text files of the repository, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::source::Source;

/// Folders without sources of the project.
const SKIPPED_FOLDERS: &[&str] = &["target", "corpus", "artifacts", "node_modules"];

/// Rust sources, manifests and pages by their path from the root, with `/` between folders.
#[derive(Debug, Default)]
pub struct Tree {
    sources: BTreeMap<String, Source>,
    texts: BTreeMap<String, String>,
    test_files: BTreeSet<String>,
}

impl Tree {
    /// Builds a tree from paths and texts.
    pub fn new<P: Into<String>, T: Into<String>>(files: impl IntoIterator<Item = (P, T)>) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            let (path, text) = (path.into(), text.into());
            if path.ends_with(".rs") {
                tree.sources.insert(path, Source::parse(&text));
            } else {
                tree.texts.insert(path, text);
            }
        }
        tree.test_files = tree.find_test_files();
        tree
    }

    /// Reads `.rs`, `.toml` and `.md` files below `root`. Hidden folders, build output and
    /// symbolic links are left out.
    pub fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder)
                .with_context(|| format!("cannot list {}", folder.display()))?;
            for entry in entries {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    if !name.starts_with('.') && !SKIPPED_FOLDERS.contains(&name.as_str()) {
                        folders.push(entry.path());
                    }
                } else if kind.is_file() && has_text_ending(&name) {
                    let path = entry.path();
                    let text = fs::read_to_string(&path)
                        .with_context(|| format!("cannot read {}", path.display()))?;
                    let relative = path.strip_prefix(root)?.to_string_lossy().into_owned();
                    files.push((relative, text));
                }
            }
        }
        Ok(Self::new(files))
    }

    /// Every Rust source, tests included.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.sources
            .iter()
            .map(|(path, source)| (path.as_str(), source))
    }

    /// Every Rust source below a folder that is not wholly test code. `folder` ends with `/`.
    pub fn product_sources<'a>(
        &'a self,
        folder: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Source)> {
        self.sources()
            .filter(move |(path, _)| path.starts_with(folder) && !self.is_test_file(path))
    }

    /// Every manifest and page.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let texts = self.texts.iter();
        texts.map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of a manifest or page.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// True if all of a file is compiled for tests only: it is below `tests/`, it is called
    /// `tests.rs`, or its parent declares it as `#[cfg(test)] mod name;`.
    pub fn is_test_file(&self, path: &str) -> bool {
        let in_tests = path
            .split('/')
            .any(|part| part == "tests" || part == "tests.rs");
        in_tests
            || self.test_files.iter().any(|test| {
                path.strip_prefix(test.as_str())
                    .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            })
    }

    /// Paths, without `.rs`, of the modules declared as `#[cfg(test)] mod name;`.
    fn find_test_files(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (path, source) in &self.sources {
            let stem = path.strip_suffix(".rs").unwrap_or(path);
            let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
            let base = if ["mod", "lib", "main"].contains(&name) {
                folder
            } else {
                stem
            };
            for module in source.test_modules() {
                found.insert(format!("{base}/{module}"));
            }
        }
        found
    }
}

fn has_text_ending(name: &str) -> bool {
    [".rs", ".toml", ".md"]
        .iter()
        .any(|ending| name.ends_with(ending))
}
