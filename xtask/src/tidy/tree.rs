//! The text files of the repository, in memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::source::Source;

/// Folders without sources of the project.
const SKIPPED_FOLDERS: &[&str] = &["target", "corpus", "artifacts", "node_modules"];

/// Rust sources, manifests, pages and texts by their path from the root, with `/` between folders.
#[derive(Debug, Default)]
pub struct Tree {
    /// Every Rust source, tests included.
    pub sources: BTreeMap<String, Source>,
    /// Every manifest, page and text.
    pub texts: BTreeMap<String, String>,
    /// Paths, without `.rs`, of the modules declared as `#[cfg(test)] mod name;`.
    test_files: Vec<String>,
}

impl Tree {
    /// Builds a tree from paths and texts.
    pub fn new(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            if let Some(stem) = path.strip_suffix(".rs") {
                let inside = path
                    .split_once("/src/")
                    .map_or(&*path, |(_, inside)| inside);
                let source = Source::parse(inside, &text);
                let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
                let is_folder = ["mod", "lib", "main"].contains(&name);
                let base = if is_folder { folder } else { stem };
                let tests = source.test_modules().iter();
                tree.test_files
                    .extend(tests.map(|name| format!("{base}/{name}")));
                tree.sources.insert(path, source);
            } else {
                tree.texts.insert(path, text);
            }
        }
        tree
    }

    /// Reads `.rs`, `.toml`, `.md` and `.txt` files below `root`. Hidden folders, build output and
    /// symbolic links are left out.
    pub fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder);
            for entry in entries.with_context(|| format!("cannot list {}", folder.display()))? {
                let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
                let (kind, name) = (entry?, path.file_name().unwrap_or_default());
                let name = name.to_string_lossy();
                let is_text = [".rs", ".toml", ".md", ".txt"]
                    .iter()
                    .any(|end| name.ends_with(end));
                let is_skipped = name.starts_with('.') || SKIPPED_FOLDERS.contains(&&*name);
                if kind.is_dir() && !is_skipped {
                    folders.push(path);
                } else if kind.is_file() && is_text {
                    let text = fs::read_to_string(&path)
                        .with_context(|| format!("cannot read {}", path.display()))?;
                    files.push((
                        path.strip_prefix(root)?.to_string_lossy().into_owned(),
                        text,
                    ));
                }
            }
        }
        Ok(Self::new(files))
    }

    /// Every Rust source below a folder, or with this path, that is not wholly test code.
    pub fn product<'a>(&'a self, place: &'a str) -> impl Iterator<Item = (&'a str, &'a Source)> {
        let sources = self
            .sources
            .iter()
            .map(|(path, source)| (path.as_str(), source));
        sources.filter(move |(path, _)| is_in(path, place) && !self.is_test_file(path))
    }

    /// Whether a module or a folder has a source.
    pub fn has(&self, place: &str) -> bool {
        self.sources.keys().any(|path| is_in(path, place))
    }

    /// True if all of a file is compiled for tests only: it is below `tests/`, it is called
    /// `tests.rs`, or its parent declares it as `#[cfg(test)] mod name;`.
    pub fn is_test_file(&self, path: &str) -> bool {
        let mut parts = path.split('/');
        parts.any(|part| part == "tests" || part == "tests.rs")
            || self.test_files.iter().any(|test| is_in(path, test))
    }
}

/// Whether `path` is the file `place`, of the module `place`, or below the folder `place/`.
pub fn is_in(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| {
        place.ends_with('/') || ["", ".rs"].contains(&rest) || rest.starts_with('/')
    })
}
