//! Every crate of the workspace obeys the workspace's lints.

use super::breach::Breach;
use super::tree::Tree;

/// Manifests outside of the workspace.
const OTHERS: &[&str] = &["Cargo.toml", "fuzz/Cargo.toml"];

/// Crates whose manifest does not inherit `[workspace.lints]`.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let manifests = tree.texts().filter(|(path, _)| {
        path.rsplit('/').next() == Some("Cargo.toml") && !OTHERS.contains(path)
    });
    manifests
        .filter(|(_, text)| !text.contains("\n[lints]\nworkspace = true\n"))
        .map(|(path, _)| {
            Breach::new(
                path,
                1,
                "does not inherit the lints of the workspace".to_owned(),
                "the lints hold for all of the code or for none",
                "add `[lints]` with `workspace = true`",
            )
        })
        .collect()
}
