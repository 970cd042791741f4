//! The documents whose tables the experiments repeat.

use serde::Serialize;

/// A document. Its fields have what it says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Source {
    /// As experiments name it: `S0`.
    pub id: &'static str,
    /// Its title or subject.
    pub title: &'static str,
    /// Who wrote it.
    pub author: &'static str,
    /// The day on which it was written.
    pub date: &'static str,
    /// Where it was published.
    pub published: &'static str,
}

/// All documents.
pub const SOURCES: [Source; 5] = [
    Source {
        id: "S0",
        title: "a patch of iflib: m_defrag if m_collapse failed, and one segment less advertised",
        author: "not named",
        date: "not dated",
        published: "FreeBSD, description of a patch of iflib",
    },
    Source {
        id: "S1",
        title: "svn commit: r344027 - in stable/12/sys: dev/vmware/vmxnet3 modules/vmware/vmxnet3 \
                net",
        author: "Bruce Evans",
        date: "2019-02-14",
        published: "FreeBSD, mailing list svn-src-all",
    },
    Source {
        id: "S2",
        title: "Re: [PATCH 0/9 Rev3] Implement batching skb API and support in IPoIB",
        author: "Bill Fink",
        date: "2007-08-26",
        published: "OpenFabrics, mailing list ofa-general",
    },
    Source {
        id: "S3",
        title: "commits to tcp_lro: sorting by flow, LRO queues, flush of inactive entries",
        author: "not named; sponsored by Mellanox Technologies and others",
        date: "not dated",
        published: "FreeBSD, commit messages; reviews D6472 and D4914",
    },
    Source {
        id: "S4",
        title: "iavf patch [4/4]: TX queue direct dispatch",
        author: "Yuichiro NAITO",
        date: "2025-02-07",
        published: "OpenBSD, mailing list tech",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{BUILT_IN, built_in};

    #[test]
    fn the_source_of_every_experiment_is_in_the_table() {
        for (name, _) in BUILT_IN {
            let experiment = built_in(name).expect("a built-in experiment");
            let mut ids = experiment.source.split(", ");
            let known = |id: &str| SOURCES.iter().any(|one| id.starts_with(one.id));
            assert!(
                ids.all(known) || experiment.source == "packtrain",
                "{name}: {}",
                experiment.source
            );
        }
    }

    #[test]
    fn the_documentation_has_the_same_table() {
        let text = include_str!("../../../../docs/experiments.md");
        for one in SOURCES {
            let row = format!(
                "| {} | {} | {} | {} | {} |\n",
                one.id, one.title, one.author, one.date, one.published
            );
            assert!(text.contains(&row), "docs/experiments.md has no row {row}");
        }
    }
}
