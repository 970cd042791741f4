//! Every crate of the workspace obeys the workspace's lints.

use super::breach::Breach;
use super::tree::Tree;

const ROOT: &str = "Cargo.toml";
const WHY: &str = "the lints hold for all of the code or for none";

/// Members of the workspace whose manifest does not inherit `[workspace.lints]`.
pub fn check(tree: &Tree) -> Vec<Breach> {
    let Some(root) = tree.text(ROOT) else {
        return vec![Breach::new(
            ROOT,
            1,
            "is missing".to_owned(),
            WHY,
            "run tidy in the project",
        )];
    };
    let mut breaches = Vec::new();
    for (member, line) in members(root) {
        let path = format!("{member}/Cargo.toml");
        match tree.text(&path) {
            Some(manifest) if inherits_lints(manifest) => {}
            Some(_) => breaches.push(Breach::new(
                &path,
                1,
                "does not inherit the lints of the workspace".to_owned(),
                WHY,
                "add `[lints]` with `workspace = true`",
            )),
            None => breaches.push(Breach::new(
                ROOT,
                line,
                format!("member `{member}` has no manifest"),
                WHY,
                "add the crate, or remove the member",
            )),
        }
    }
    breaches
}

/// The quoted strings of `members = […]`, with their lines.
fn members(manifest: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (i, line) in manifest.lines().enumerate() {
        let line = line.split('#').next().unwrap_or(line);
        let starts = line.trim_start().strip_prefix("members");
        inside |= starts.is_some_and(|rest| rest.trim_start().starts_with('='));
        if inside {
            let quoted = line.split('"').skip(1).step_by(2);
            found.extend(quoted.map(|member| (member.to_owned(), i + 1)));
            inside = !line.contains(']');
        }
    }
    found
}

fn inherits_lints(manifest: &str) -> bool {
    let mut section = "";
    manifest.lines().map(str::trim).any(|line| {
        if line.starts_with('[') {
            section = line;
        }
        let bare: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        section == "[lints]" && bare == "workspace=true"
    })
}
