//! The file of an experiment, as it is written (TOML). [`super::Experiment`] is made of it.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;

use packtrain_measure::document::{Better, Original, Statistic};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::{Spanned, Value};

use crate::guest::CardModel;

/// Options of the testbed, of the workload, or settings to check. A later layer replaces values of
/// an earlier one.
pub type Layer = BTreeMap<String, Spanned<Value>>;

/// Settings of axes, by the axis: one, or several of them.
pub type Selection = BTreeMap<String, Spanned<Names>>;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct File {
    pub name: String,
    pub source: String,
    pub title: String,
    /// What the outcome means for the choice of a setting.
    pub meaning: String,
    /// What the experiment cannot show.
    #[serde(default)]
    pub limits: String,
    pub document: Original,
    /// Rounds without `--repeats`.
    pub repeats: Option<NonZeroUsize>,
    #[serde(default)]
    pub needs: Needs,
    /// Where all rows are run, if not on this machine.
    pub guest: Option<GuestSpec>,
    #[serde(default)]
    pub testbed: Layer,
    pub workload: Layer,
    /// Settings that must be read back after each run.
    #[serde(default)]
    pub check: Layer,
    pub axes: Vec<Axis>,
    /// Combinations that are left out.
    #[serde(default)]
    pub skip: Vec<Selection>,
    pub figures: Vec<Figure>,
    #[serde(default)]
    pub claims: Vec<Claim>,
    #[serde(default)]
    pub quick: Quick,
}

/// What a machine must have. Kernel features and programs that are missing are found by a run.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Needs {
    /// CPUs.
    #[serde(default)]
    pub cpus: usize,
}

/// The `[guest]` of an experiment: the virtual machine with network cards in which all of its rows
/// are run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GuestSpec {
    /// Its cards. A cable joins the first two, the next two, and so on; a last one without a
    /// partner has a cable that leads nowhere.
    pub cards: Vec<CardModel>,
    /// Its CPUs.
    #[serde(default = "one")]
    pub cpus: u8,
    /// Whether its clock counts instructions: each takes a nanosecond.
    #[serde(default)]
    pub icount: bool,
}

const fn one() -> u8 {
    1
}

/// One thing that varies.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Axis {
    pub name: Spanned<String>,
    pub settings: Vec<Setting>,
}

/// One setting of an axis. A bare string or number is its name and its value.
#[derive(Clone, Debug)]
pub struct Setting {
    pub name: String,
    /// What `{AXIS}` stands for.
    pub value: Value,
    pub overlay: Overlay,
}

/// What a setting, or `--quick`, changes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Overlay {
    pub testbed: Layer,
    /// With `tool`, the whole workload is replaced.
    pub workload: Layer,
    pub check: Layer,
    pub needs: Needs,
}

/// What `--quick` changes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Quick {
    pub workload: Layer,
    /// Combinations that a quick run leaves out.
    pub skip: Vec<Selection>,
}

/// A figure that is shown.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Figure {
    pub key: Spanned<String>,
    pub title: String,
    #[serde(default)]
    pub unit: String,
    pub better: Option<Better>,
}

/// What is expected.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    pub text: Spanned<String>,
    pub figure: Spanned<String>,
    #[serde(default)]
    pub statistic: Statistic,
    #[serde(default)]
    pub of: Selection,
    /// The figure is divided by that of these settings.
    pub to: Option<Selection>,
    pub at_least: Option<f64>,
    pub at_most: Option<f64>,
    pub within: Option<Within>,
    /// The value in the document, in words.
    #[serde(default)]
    pub document: String,
    /// The same ratio in the document, if it has the values.
    pub effect: Option<f64>,
    /// Why it may not be reproduced here, in one sentence.
    #[serde(default)]
    pub if_not: String,
    /// Why it may exceed the document's ratio by far, in one sentence.
    #[serde(default)]
    pub if_more: String,
    /// Whether the figure is a count that no load of the machine changes.
    #[serde(default)]
    pub exact: bool,
    /// Whether the program fails if it is not reproduced.
    #[serde(default)]
    pub must: bool,
}

/// A distance from a value, in the figure's unit.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Within {
    pub value: f64,
    pub distance: f64,
}

/// Names of settings, one or several.
#[derive(Clone, Debug)]
pub struct Names(pub Vec<String>);

/// The name of a setting that is written as a string or as a number.
fn named(value: &Value) -> Option<String> {
    match value {
        Value::String(name) => Some(name.clone()),
        Value::Integer(number) => Some(number.to_string()),
        _ => None,
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let names = match &value {
            Value::Array(values) => values.iter().map(named).collect(),
            value => named(value).map(|name| vec![name]),
        };
        names.map(Self).ok_or_else(|| {
            de::Error::custom("write the name of a setting, or a list of names: [\"a\", \"b\"]")
        })
    }
}

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SettingVisitor)
    }
}

struct SettingVisitor;

impl SettingVisitor {
    fn bare<E>(value: Value) -> Result<Setting, E> {
        Ok(Setting {
            name: named(&value).unwrap_or_default(),
            value,
            overlay: Overlay::default(),
        })
    }
}

impl<'de> Visitor<'de> for SettingVisitor {
    type Value = Setting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name, a whole number, or a table with a name")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Setting, E> {
        Self::bare(text.into())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Setting, E> {
        Self::bare(number.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Setting, A::Error> {
        // Without `flatten`, which would lose the lines.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        struct Table {
            name: Value,
            value: Option<Value>,
            #[serde(default)]
            testbed: Layer,
            #[serde(default)]
            workload: Layer,
            #[serde(default)]
            check: Layer,
            #[serde(default)]
            needs: Needs,
        }
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        let name = named(&table.name)
            .ok_or_else(|| de::Error::custom("the name of a setting is a string or a number"))?;
        Ok(Setting {
            name,
            value: table.value.unwrap_or(table.name),
            overlay: Overlay {
                testbed: table.testbed,
                workload: table.workload,
                check: table.check,
                needs: table.needs,
            },
        })
    }
}
