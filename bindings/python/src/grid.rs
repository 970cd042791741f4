//! Configurations, in the ranges of the program.

use packtrain_capture::replay::{Options, QUEUES_MAX};
use packtrain_offload::coalesce::{Config, Mode, Semantics};
use pyo3::prelude::*;
use std::fmt::Display;

use crate::raised::wrong;

/// The longest hold time: a year, as in the program.
const HOLD_US_MAX: f64 = 366.0 * 86_400e6;

const MODES: [(&str, Mode); 3] = [
    ("hash", Mode::Hash),
    ("sorted", Mode::Sorted),
    ("auto", Mode::Auto),
];
/// `None` of Python is `off`.
const SEMANTICS: [(&str, Option<Semantics>); 3] = [
    ("reversible", Some(Semantics::Reversible)),
    ("stream", Some(Semantics::Stream)),
    ("off", None),
];

/// The configurations of [`packtrain_replay::Grid::runs`].
#[pyclass(frozen, module = "packtrain._packtrain")]
pub struct Grid {
    pub runs: Vec<Options>,
}

#[pymethods]
impl Grid {
    #[new]
    #[pyo3(signature = (*, flows=vec![1024], hold_us=vec![50.0], mode=vec!["auto".into()],
                        queues=vec![1], coalesce=vec![Some("reversible".into())],
                        ack_limit=vec![None], headers_only=vec![None]))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords of Python")]
    fn new(
        flows: Vec<i64>,
        hold_us: Vec<f64>,
        mode: Vec<String>,
        queues: Vec<i64>,
        coalesce: Vec<Option<String>>,
        ack_limit: Vec<Option<i64>>,
        headers_only: Vec<Option<bool>>,
    ) -> PyResult<Self> {
        let [headers_only] = headers_only[..] else {
            let line = "headers_only: write one value, which holds for all configurations";
            return Err(wrong(line));
        };
        let mut base = Options::default();
        base.headers_only = headers_only.unwrap_or(false);
        let limit = |limit: Option<i64>| {
            let limit = limit.map(|limit| within("ack_limit", limit, u16::MAX));
            limit.transpose()
        };
        let grid = packtrain_replay::Grid {
            flows: all("flows", flows, |n| within("flows", n, Config::FLOWS_MAX))?,
            hold_ns: all("hold_us", hold_us, hold_ns)?,
            mode: all("mode", mode, |text| word("mode", &text, &MODES))?,
            queues: all("queues", queues, |n| within("queues", n, QUEUES_MAX))?,
            coalesce: all("coalesce", coalesce, |text| {
                word("coalesce", text.as_deref().unwrap_or("off"), &SEMANTICS)
            })?,
            ack_limit: all("ack_limit", ack_limit, limit)?,
            ..packtrain_replay::Grid::of(&base)
        };
        let limits = grid.ack_limit.iter().any(Option::is_some);
        if limits && !grid.coalesce.contains(&Some(Semantics::Stream)) {
            return Err(wrong(
                "ack_limit is for coalesce=\"stream\", which alone merges pure ACKs: add it, or \
                 leave ack_limit out",
            ));
        }
        Ok(Self { runs: grid.runs() })
    }
}

/// Reads the values of a setting.
fn all<T, U>(name: &str, values: Vec<T>, read: impl Fn(T) -> PyResult<U>) -> PyResult<Vec<U>> {
    match values.is_empty() {
        true => Err(wrong(format!("{name}=[]: write at least one value"))),
        false => values.into_iter().map(read).collect(),
    }
}

/// A number from 1 to `most`.
fn within<T: TryFrom<i64> + PartialOrd + Display>(name: &str, value: i64, most: T) -> PyResult<T> {
    let number = T::try_from(value).ok();
    let number = number.filter(|number| value >= 1 && *number <= most);
    number.ok_or_else(|| wrong(format!("{name}={value}: write 1 to {most}")))
}

fn hold_ns(us: f64) -> PyResult<u64> {
    match (0.0..=HOLD_US_MAX).contains(&us) {
        true => Ok((us * 1000.0).round() as u64),
        false => Err(wrong(format!(
            "hold_us={us}: write microseconds, from 0 to a year"
        ))),
    }
}

/// The value of a word.
pub fn word<T: Copy>(name: &str, word: &str, known: &[(&str, T)]) -> PyResult<T> {
    let found = known.iter().find(|(known, _)| *known == word);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<_> = known.iter().map(|(known, _)| *known).collect();
        wrong(format!("{name}={word:?}: write one of {known:?}"))
    })
}
