//! No circle of files: within the `src/` of a crate no files import each other.
//!
//! A path counts as an import of the file that defines the named item, also if other files
//! re-export it. A file that declares its children or re-exports from them does not import them,
//! unless its own code uses a re-exported item. Test code is exempt.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::breach::{Breach, breach};
use super::paths::{self, Named, Place, module_path};
use super::source::{Source, Token, is_word};
use super::tree::Tree;

/// Names resolve through at most this many re-exports.
const STEPS_MAX: usize = 16;

/// For each file the files that it imports, with the line of the first import and its path.
type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, (usize, String)>>;

/// The circles of each crate.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let folders = tree
        .sources
        .keys()
        .filter_map(|path| path.split_once("/src/"));
    let folders: BTreeSet<String> = folders.map(|(name, _)| format!("{name}/src/")).collect();
    folders
        .iter()
        .flat_map(|folder| circles(&Crate::new(tree, folder).graph()))
        .collect()
}

/// A breach for each group of files that reach each other.
fn circles(graph: &Graph<'_>) -> Vec<Breach> {
    let ways: BTreeMap<_, _> = graph
        .keys()
        .map(|&file| (file, ways(graph, file)))
        .collect();
    let mut breaches = Vec::new();
    for (&first, reached) in &ways {
        let group: Vec<_> = reached
            .keys()
            .filter(|&file| ways[file].contains_key(first))
            .collect();
        // Each group once, at its first file.
        if group.first() != Some(&&first) {
            continue;
        }
        let (mut steps, mut at, mut line) = (Vec::new(), first, 1);
        while steps.is_empty() || at != first {
            at = reached[at];
            let (number, path) = &graph[at][steps.last().map_or(first, |(file, _)| *file)];
            steps.push((at, format!("{at}:{number} names `{path}`")));
            line = *number;
        }
        let steps: Vec<_> = steps.into_iter().rev().map(|(_, step)| step).collect();
        let what = format!("circle of {} files: {}", group.len(), steps.join(", "));
        let why = "a file can be read after those that it imports, if there is no circle";
        breaches.push(breach(
            first,
            line,
            what,
            why,
            "move what both sides need to a file below both",
        ));
    }
    breaches
}

/// The files that `first` reaches, with the file before each on the shortest way.
fn ways<'a>(graph: &Graph<'a>, first: &'a str) -> BTreeMap<&'a str, &'a str> {
    let mut before = BTreeMap::new();
    let mut next = VecDeque::from([first]);
    while let Some(file) = next.pop_front() {
        for &to in graph[file].keys() {
            before.entry(to).or_insert_with(|| {
                next.push_back(to);
                file
            });
        }
    }
    before
}

/// The files of one crate by module.
struct Crate<'a> {
    files: Vec<File<'a>>,
    /// A module has several files if the target decides which of them is compiled.
    modules: BTreeMap<Vec<String>, Vec<usize>>,
}

struct File<'a> {
    path: &'a str,
    module: Vec<String>,
    tokens: &'a [Token],
    /// All paths in the file.
    named: Vec<Named>,
    /// The items at its top, macros included.
    items: BTreeSet<&'a str>,
}

impl<'a> Crate<'a> {
    fn new(tree: &'a Tree, folder: &'a str) -> Self {
        let sources = || {
            tree.product(folder)
                .map(|(path, source)| (path, &path[folder.len()..], source))
        };
        let moved = sources().flat_map(|(_, file, source)| modules_elsewhere(file, source));
        let moved: BTreeMap<_, _> = moved.collect();
        let mut modules: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut files = Vec::new();
        for (path, file, source) in sources() {
            let module = moved
                .get(file)
                .cloned()
                .unwrap_or_else(|| module_path(file));
            modules.entry(module.clone()).or_default().push(files.len());
            files.push(File {
                path,
                named: paths::named(&source.product, &module),
                items: items(&source.product),
                module,
                tokens: &source.product,
            });
        }
        Self { files, modules }
    }

    fn graph(&self) -> Graph<'a> {
        let mut graph = Graph::new();
        for file in &self.files {
            let edges = graph.entry(file.path).or_default();
            for named in &file.named {
                let Some(path) = self.rooted(file, named, STEPS_MAX) else {
                    continue;
                };
                for to in self.definers(&path, named.is_macro, STEPS_MAX) {
                    let is_child = to.module != file.module && to.module.starts_with(&file.module);
                    let is_own = named.place == Place::Reexport && is_child;
                    let line = if is_own {
                        file.first_use(&named.name)
                    } else {
                        Some(named.line)
                    };
                    if let Some(line) = line.filter(|_| to.path != file.path) {
                        edges.entry(to.path).or_insert((line, path.join("::")));
                    }
                }
            }
        }
        graph
    }

    /// A path of a file from the root of the crate; `None` if it leads to another crate.
    fn rooted(&self, file: &File<'_>, named: &Named, steps: usize) -> Option<Vec<String>> {
        if named.is_rooted {
            return Some(named.path.clone());
        }
        let (first, rest) = named.path.split_first()?;
        let child = [&named.module[..], std::slice::from_ref(first)].concat();
        let start = if self.modules.contains_key(&child) {
            child
        } else {
            let known = file.known_as(first).find(|known| *known != named)?;
            self.rooted(file, known, steps.checked_sub(1)?)?
        };
        Some([&start[..], rest].concat())
    }

    /// The files that define the item of a path from the root; none if it is a module.
    fn definers(&self, path: &[String], is_macro: bool, steps: usize) -> Vec<&File<'a>> {
        if is_macro && path.len() == 1 {
            // `#[macro_export]` puts a macro at the root.
            return self
                .files
                .iter()
                .filter(|file| file.items.contains(&*path[0]))
                .collect();
        }
        let longest = (0..=path.len())
            .rev()
            .find(|&n| self.modules.contains_key(&path[..n]));
        let Some((module, [item, ..])) = longest.map(|depth| path.split_at(depth)) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for &at in &self.modules[module] {
            let file = &self.files[at];
            let elsewhere = self.elsewhere(file, item, steps);
            if item == "*" || file.items.contains(&**item) || elsewhere.is_empty() {
                found.push(file);
            } else {
                found.extend(elsewhere);
            }
        }
        found
    }

    /// The files from which a `use` of `file` has `item`.
    fn elsewhere(&self, file: &File<'a>, item: &str, steps: usize) -> Vec<&File<'a>> {
        let Some(steps) = steps.checked_sub(1).filter(|_| item != "*") else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for known in file.known_as(item) {
            let path = self.rooted(file, known, steps).unwrap_or_default();
            found.extend(self.definers(&path, known.is_macro, steps));
        }
        for glob in file.known_as("*") {
            let mut path = self.rooted(file, glob, steps).unwrap_or_default();
            if path.pop().is_some() {
                path.push(item.to_owned());
                let definers = self.definers(&path, false, steps).into_iter();
                found.extend(definers.filter(|to| to.items.contains(item)));
            }
        }
        found
    }
}

impl File<'_> {
    /// The `use`s that declare a name.
    fn known_as<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Named> {
        let named = self.named.iter();
        named.filter(move |named| named.place != Place::Code && named.name == name)
    }

    /// The first line outside of a `use` with this name.
    fn first_use(&self, name: &str) -> Option<usize> {
        let (mut in_use, mut before) = (false, "");
        self.tokens.iter().find_map(|token| {
            in_use = (in_use || token.text == "use") && token.text != ";";
            let is_other = [".", "::"].contains(&std::mem::replace(&mut before, &token.text));
            (token.text == name && name != "*" && !in_use && !is_other).then_some(token.line)
        })
    }
}

/// The names after `fn`, `struct` and the like outside of braces.
fn items(tokens: &[Token]) -> BTreeSet<&str> {
    const KEYWORDS: &[&str] = &[
        "fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod",
    ];
    let mut found = BTreeSet::new();
    let mut depth = 0_usize;
    let text = |at: usize| tokens.get(at).map_or("", |token| &*token.text);
    for at in 0..tokens.len() {
        match text(at) {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            word if depth == 0 => {
                let is_macro = word == "macro_rules" && text(at + 1) == "!";
                let name = text(at + 1 + usize::from(is_macro));
                if is_word(name) && (is_macro || KEYWORDS.contains(&word)) {
                    found.insert(name);
                }
            }
            _ => {}
        }
    }
    found
}

/// The modules of a file with an attribute `path`, by the file that they are in.
fn modules_elsewhere(file: &str, source: &Source) -> Vec<(String, Vec<String>)> {
    let folder = file.rfind('/').map_or("", |end| &file[..=end]);
    let of_lines = |lines: &[String]| {
        let path = lines[0]
            .trim()
            .strip_prefix("#[path = \"")?
            .strip_suffix("\"]")?;
        let (_, name) = lines[1].strip_suffix(';')?.rsplit_once("mod ")?;
        let module = [&module_path(file)[..], &[name.to_owned()]].concat();
        Some((format!("{folder}{path}"), module))
    };
    source.lines.windows(2).filter_map(of_lines).collect()
}
