//! No circle of files: within the `src/` of a crate no files import each other.
//!
//! A path counts as an import of the file that defines the named item, also if other files
//! re-export it. A file that declares its children or re-exports from them does not import them,
//! unless its own code uses a re-exported item. Test code is exempt.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::breach::Breach;
use super::paths::{self, Named, Place, module_path};
use super::source::{Kind, Source, Token};
use super::tree::Tree;

const WHY: &str = "a file can be read after those that it imports, if there is no circle";

/// Names resolve through at most this many re-exports.
const STEPS_MAX: usize = 16;

/// An import of one file by another: the line, and the path as resolved up to there.
#[derive(Clone, Debug)]
struct Edge {
    line: usize,
    path: String,
}

/// For each file the files that it imports, with the first line that does.
type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Edge>>;

/// The circles of each crate.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for folder in source_folders(tree) {
        let graph = Crate::new(tree, &folder).graph();
        breaches.extend(groups(&graph).iter().map(|group| breach(&graph, group)));
    }
    breaches
}

fn breach(graph: &Graph<'_>, group: &[&str]) -> Breach {
    let first = group[0];
    let circle = shortest_circle(graph, group, first);
    let line = circle.first().map_or(1, |(_, edge)| edge.line);
    let steps: Vec<String> = circle
        .iter()
        .map(|(file, edge)| format!("{file}:{} names `{}`", edge.line, edge.path))
        .collect();
    Breach::new(
        first,
        line,
        format!("circle of {} files: {}", group.len(), steps.join(", ")),
        WHY,
        "move what both sides need to a file below both",
    )
}

/// Every folder `…/src/` of the tree.
fn source_folders(tree: &Tree) -> BTreeSet<String> {
    tree.sources()
        .filter_map(|(path, _)| Some(format!("{}/src/", path.split_once("/src/")?.0)))
        .collect()
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
    tokens: Vec<Token>,
    /// All paths in the file.
    named: Vec<Named>,
    /// The items at its top, macros included.
    items: BTreeSet<String>,
}

impl<'a> Crate<'a> {
    fn new(tree: &'a Tree, folder: &'a str) -> Self {
        let sources: Vec<_> = tree.product_sources(folder).collect();
        let mut moved = BTreeMap::new();
        for (path, source) in &sources {
            moved.extend(modules_elsewhere(&path[folder.len()..], source));
        }
        let mut modules: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut files = Vec::new();
        for (path, source) in sources {
            let file = &path[folder.len()..];
            let module = moved
                .get(file)
                .cloned()
                .unwrap_or_else(|| module_path(file));
            let tokens = source.product_tokens();
            modules.entry(module.clone()).or_default().push(files.len());
            files.push(File {
                path,
                named: paths::named(&tokens, &module),
                items: items(&tokens),
                module,
                tokens,
            });
        }
        Self { files, modules }
    }

    fn graph(&self) -> Graph<'a> {
        let mut graph = Graph::new();
        for file in &self.files {
            let mut edges: BTreeMap<&str, Edge> = BTreeMap::new();
            for named in &file.named {
                let Some(path) = self.rooted(file, named, STEPS_MAX) else {
                    continue;
                };
                for to in self.definers(&path, named.is_macro, STEPS_MAX) {
                    let is_own = named.place == Place::Reexport
                        && to.module.len() > file.module.len()
                        && to.module.starts_with(&file.module);
                    let line = if is_own {
                        file.first_use(&named.name)
                    } else {
                        Some(named.line)
                    };
                    if let Some(line) = line
                        && to.path != file.path
                    {
                        let path = path.join("::");
                        edges.entry(to.path).or_insert(Edge { line, path });
                    }
                }
            }
            graph.insert(file.path, edges);
        }
        graph
    }

    /// A path of a file from the root of the crate; `None` if it leads to another crate.
    fn rooted(&self, file: &File<'_>, named: &Named, steps: usize) -> Option<Vec<String>> {
        if named.is_rooted {
            return Some(named.path.clone());
        }
        let (first, rest) = named.path.split_first()?;
        let mut child = named.module.clone();
        child.push(first.clone());
        if self.modules.contains_key(&child) {
            child.extend_from_slice(rest);
            return Some(child);
        }
        let known = file.known_as(first).find(|known| *known != named)?;
        let mut path = self.rooted(file, known, steps.checked_sub(1)?)?;
        path.extend_from_slice(rest);
        Some(path)
    }

    /// The files that define the item of a path from the root; none if it is a module.
    fn definers(&self, path: &[String], is_macro: bool, steps: usize) -> Vec<&File<'a>> {
        let of = |path: &[String]| self.modules.get(path);
        if is_macro && path.len() == 1 {
            // `#[macro_export]` puts a macro at the root.
            let defines = |file: &&File<'_>| file.items.contains(&path[0]);
            return self.files.iter().filter(defines).collect();
        }
        let Some(depth) = (0..=path.len()).rev().find(|n| of(&path[..*n]).is_some()) else {
            return Vec::new();
        };
        let (module, rest) = path.split_at(depth);
        let Some(item) = rest.first() else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for &at in of(module).into_iter().flatten() {
            let file = &self.files[at];
            if item == "*" {
                found.push(file);
                continue;
            }
            let elsewhere = self.elsewhere(file, item, steps);
            if file.items.contains(item) || elsewhere.is_empty() {
                found.push(file);
            } else {
                found.extend(elsewhere);
            }
        }
        found
    }

    /// The files from which a `use` of `file` has `item`.
    fn elsewhere(&self, file: &File<'a>, item: &str, steps: usize) -> Vec<&File<'a>> {
        let Some(steps) = steps.checked_sub(1) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for known in file.known_as(item) {
            if let Some(path) = self.rooted(file, known, steps) {
                found.extend(self.definers(&path, known.is_macro, steps));
            }
        }
        for glob in file.known_as("*") {
            let Some(mut path) = self.rooted(file, glob, steps) else {
                continue;
            };
            path.pop();
            path.push(item.to_owned());
            let has = |to: &&File<'_>| to.items.contains(item);
            found.extend(self.definers(&path, false, steps).into_iter().filter(has));
        }
        found
    }
}

impl File<'_> {
    /// The `use`s that declare a name.
    fn known_as<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Named> {
        self.named
            .iter()
            .filter(move |named| named.place != Place::Code && named.name == name)
    }

    /// The first line outside of a `use` with this name.
    fn first_use(&self, name: &str) -> Option<usize> {
        let mut in_use = false;
        for (i, token) in self.tokens.iter().enumerate() {
            in_use = (in_use || token.is_word("use")) && !token.is_sign(';');
            let before = i.checked_sub(1).map(|i| &self.tokens[i]);
            let is_other =
                before.is_some_and(|before| before.is_sign('.') || before.kind == Kind::PathSep);
            if token.is_word(name) && !in_use && !is_other {
                return Some(token.line);
            }
        }
        None
    }
}

/// The names after `fn`, `struct` and the like outside of braces.
fn items(tokens: &[Token]) -> BTreeSet<String> {
    const KEYWORDS: &[&str] = &[
        "fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod",
    ];
    let mut found = BTreeSet::new();
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate() {
        let next = |n: usize| tokens.get(i + n);
        match &token.kind {
            Kind::Sign('{') => depth += 1,
            Kind::Sign('}') => depth = depth.saturating_sub(1),
            Kind::Word(word) if depth == 0 => {
                let is_item = KEYWORDS.contains(&word.as_str());
                let is_macro = word == "macro_rules" && next(1).is_some_and(|t| t.is_sign('!'));
                let name = next(if is_macro { 2 } else { 1 });
                if let Some(Kind::Word(name)) = name.map(|token| &token.kind)
                    && (is_item || is_macro)
                {
                    found.insert(name.clone());
                }
            }
            _ => {}
        }
    }
    found
}

/// The modules of a file with an attribute `path`, by the file that they are in.
fn modules_elsewhere(file: &str, source: &Source) -> Vec<(String, Vec<String>)> {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut found = Vec::new();
    for lines in source.lines().windows(2) {
        let path = lines[0].trim().strip_prefix("#[path = \"");
        let name = lines[1].rsplit_once("mod ").map(|(_, name)| name);
        if let Some(path) = path.and_then(|path| path.strip_suffix("\"]"))
            && let Some(name) = name.and_then(|name| name.strip_suffix(';'))
        {
            let mut module = module_path(file);
            module.push(name.to_owned());
            let separator = if folder.is_empty() { "" } else { "/" };
            found.push((format!("{folder}{separator}{path}"), module));
        }
    }
    found
}

/// The groups of at least two files that reach each other, sorted.
fn groups<'a>(graph: &Graph<'a>) -> Vec<Vec<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = graph
        .keys()
        .map(|&file| (file, reachable(graph, file)))
        .collect();
    let mut groups = BTreeSet::new();
    for (file, reach) in &reached {
        let group: Vec<&str> = reach
            .iter()
            .copied()
            .filter(|to| reached[to].contains(file))
            .collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

fn reachable<'a>(graph: &Graph<'a>, from: &'a str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(file) = next.pop() {
        for &to in graph.get(file).into_iter().flat_map(BTreeMap::keys) {
            if found.insert(to) {
                next.push(to);
            }
        }
    }
    found
}

/// The files and imports of the shortest circle through `first`.
fn shortest_circle<'a>(
    graph: &'a Graph<'a>,
    group: &[&'a str],
    first: &'a str,
) -> Vec<(&'a str, &'a Edge)> {
    let mut came_from: BTreeMap<&str, (&str, &Edge)> = BTreeMap::new();
    let mut next = VecDeque::from([first]);
    while let Some(file) = next.pop_front() {
        for (&to, edge) in &graph[file] {
            if !group.contains(&to) || came_from.contains_key(to) {
                continue;
            }
            came_from.insert(to, (file, edge));
            next.push_back(to);
        }
    }
    let mut circle = Vec::new();
    let mut at = first;
    while let Some(&(from, edge)) = came_from.get(at) {
        circle.push((from, edge));
        at = from;
        if at == first {
            break;
        }
    }
    circle.reverse();
    circle
}
