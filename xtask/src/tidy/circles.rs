//! No circle of files: within the `src/` of a crate no files import each other.
//!
//! A path counts as an import of the file that defines the named item, also if other files
//! re-export it. A file that declares its children or re-exports from them does not import them,
//! unless its own code uses a re-exported item. Test code is exempt.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::breach::{Breach, breach};
use super::paths::Place;
use super::source::Source;
use super::tree::Tree;

/// For each file the files that it imports, with the line of the first import and its path.
type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, (usize, &'a str)>>;

/// The circles of each crate.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let paths = tree.sources.keys();
    let folders = paths.filter_map(|path| Some(&path[..path.find("/src/")? + "/src/".len()]));
    let folders: BTreeSet<&str> = folders.collect();
    let graphs = folders
        .into_iter()
        .map(|folder| Crate::new(tree, folder).graph());
    graphs.flat_map(|graph| circles(&graph)).collect()
}

/// A breach for each circle of files that is the shortest one of its first file.
fn circles(graph: &Graph<'_>) -> Vec<Breach> {
    let found = graph.keys().filter_map(|&file| circle(graph, file));
    let found = found.filter(|files| files.iter().min() == files.first());
    let breach = |files: Vec<&str>| {
        let next = files.iter().cycle().skip(1);
        let steps = files.iter().zip(next).map(|(file, to)| {
            let (line, written) = graph[file][to];
            format!("{file}:{line} names `{written}`")
        });
        let steps = steps.collect::<Vec<_>>().join(", ");
        let what = format!("circle of {} files: {steps}", files.len());
        let why = "a file can be read after those that it imports, if there is no circle";
        let fix = "move what both sides need to a file below both";
        breach(files[0], graph[files[0]][files[1]].0, what, why, fix)
    };
    found.map(breach).collect()
}

/// The shortest way along imports from a file to itself.
fn circle<'a>(graph: &Graph<'a>, file: &'a str) -> Option<Vec<&'a str>> {
    let mut seen = BTreeSet::new();
    let mut ways = VecDeque::from([vec![file]]);
    while let Some(way) = ways.pop_front() {
        for &to in graph[way.last()?].keys() {
            if to == file {
                return Some(way);
            }
            if seen.insert(to) {
                ways.push_back([&way[..], &[to]].concat());
            }
        }
    }
    None
}

/// A file with its path.
type File<'a> = (&'a str, &'a Source);

/// The files of a crate by module. The root has two if the crate is a library and a program.
struct Crate<'a>(BTreeMap<&'a [String], Vec<File<'a>>>);

impl<'a> Crate<'a> {
    fn new(tree: &'a Tree, folder: &'a str) -> Self {
        let mut files: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (path, source) in tree.product(folder) {
            files
                .entry(&*source.module)
                .or_default()
                .push((path, source));
        }
        Self(files)
    }

    fn graph(&self) -> Graph<'a> {
        let mut graph = Graph::new();
        for &(file, source) in self.0.values().flatten() {
            let imports = graph.entry(file).or_default();
            for named in &source.named {
                let definers = match &named.path[..] {
                    [name] if named.is_macro => self.exporters(name),
                    path => self.definers(path, &[]),
                };
                for (path, to) in definers {
                    let is_child =
                        to.module != source.module && to.module.starts_with(&source.module);
                    let line = if named.place == Place::Reexport && is_child {
                        first_use(source, &named.name)
                    } else {
                        Some(named.line)
                    };
                    if let Some(line) = line.filter(|_| path != file) {
                        imports.entry(path).or_insert((line, &*named.written));
                    }
                }
            }
        }
        graph
    }

    /// The files with a macro that `#[macro_export]` puts at the root.
    fn exporters(&self, name: &str) -> Vec<File<'a>> {
        let files = self.0.values().flatten().copied();
        files
            .filter(|(_, file)| file.items.contains(name))
            .collect()
    }

    /// The files that define the item of a path; none if it is a module. What comes from another
    /// crate, or from a macro, counts as defined by the file that has it. `asked` are the names for
    /// which it is called: none leads to itself.
    fn definers(&self, path: &[String], asked: &[&[String]]) -> Vec<File<'a>> {
        let mut depths = (0..=path.len()).rev();
        let depth = depths.find(|&depth| self.0.contains_key(&path[..depth]));
        let Some((module, below @ [item, rest @ ..])) = depth.map(|depth| path.split_at(depth))
        else {
            return Vec::new();
        };
        let name = &path[..=module.len()];
        if asked.contains(&name) {
            return Vec::new();
        }
        let asked = [asked, &[name][..]].concat();
        let mut all = Vec::new();
        for &(file, source) in &self.0[module] {
            let (mut found, mut is_module) = (Vec::new(), false);
            let is_own = item == "*" || source.items.contains(item);
            let uses = source.named.iter();
            for used in uses.filter(|used| item != "*" && used.place != Place::Code) {
                // A function may be called as a module that the file uses.
                if used.name == *item {
                    let path = [&used.path[..], rest].concat();
                    is_module |= self.0.contains_key(&path[..]);
                    found.extend(self.definers(&path, &asked));
                } else if !is_own
                    && let Some((last, above)) = used.path.split_last()
                    && last == "*"
                {
                    let definers = self.definers(&[above, below].concat(), &asked);
                    let definers = definers.into_iter();
                    found.extend(definers.filter(|(_, to)| to.items.contains(item)));
                }
            }
            if is_own || found.is_empty() && !is_module {
                found.push((file, source));
            }
            all.extend(found);
        }
        all
    }
}

/// The first line outside of a `use` with this name.
fn first_use(source: &Source, name: &str) -> Option<usize> {
    let (mut in_use, mut before) = (false, "");
    source.product.iter().find_map(|token| {
        in_use = (in_use || token.text == "use") && token.text != ";";
        let is_other = [".", "::"].contains(&std::mem::replace(&mut before, &token.text));
        (token.text == name && name != "*" && !in_use && !is_other).then_some(token.line)
    })
}
