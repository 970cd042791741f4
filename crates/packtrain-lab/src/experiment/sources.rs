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
        title: "iflib: copy packets whose chains of buffers do not fit the device (m_defrag after \
                m_collapse)",
        author: "FreeBSD",
        date: "not dated",
        published: "description of a patch to FreeBSD's iflib, with netperf on ix(4)",
    },
    Source {
        id: "S1",
        title: "Re: svn commit: r344027 (what iflib costs em(4))",
        author: "Bruce Evans, in answer to Marius Strobl",
        date: "2019-02-14",
        published: "FreeBSD's svn-src-stable list",
    },
    Source {
        id: "S2",
        title: "Re: [PATCH 0/9 Rev3] Implement batching skb API and support in IPoIB",
        author: "Bill Fink, in answer to John Heffner",
        date: "2007-08-26",
        published: "ofa-general list of OpenFabrics",
    },
    Source {
        id: "S3",
        title: "the commits to tcp_lro.c (sorting, limits, inactive entries)",
        author: "Mellanox, Microsoft, Netflix and others",
        date: "to 2016-05",
        published: "FreeBSD's source tree; reviews D4914, D5185, D6472",
    },
    Source {
        id: "S4",
        title: "iavf patch [4/4]: TX queue direct dispatch",
        author: "Yuichiro NAITO",
        date: "2025-02-07",
        published: "OpenBSD's tech list",
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
            let source = &experiment.definition.source;
            assert!(
                SOURCES.iter().any(|one| one.id == source),
                "{name}: {source}"
            );
        }
    }

    #[test]
    fn the_documentation_has_the_same_table() {
        // Without the marks of code and the addresses of links.
        let text = include_str!("../../../../docs/experiments.md").replace(['`', '[', ']'], "");
        let mut parts = text.split("(https://");
        let first = parts.next().unwrap_or_default().to_owned();
        let after = |part: &str| part.split_once(')').map_or("", |(_, rest)| rest).to_owned();
        let text = parts.fold(first, |all, part| all + &after(part));
        for one in SOURCES {
            let title = one.title.replace(['[', ']'], "");
            let row = format!(
                "| {} | {title} | {} | {} | {} |",
                one.id, one.author, one.date, one.published
            );
            assert!(text.contains(&row), "docs/experiments.md has no row {row}");
        }
    }
}
