//! `tool = "sort"`: groups keys as LRO does, beside the standard library's sort.

use std::hint::black_box;
use std::time::{Duration, Instant};

use packtrain_measure::clock::Laps;
use packtrain_measure::key::fields;
use packtrain_measure::keys::is_grouped;
use packtrain_measure::random::mix;
use packtrain_measure::stack;
use packtrain_offload::sort::{self, ITEMS_MAX, Keyed, Scratch, ScratchTooSmall, Steps};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::ToolError;
use crate::testbed::TestbedOptions;
use crate::tool::{Control, Measured, Watch};
use crate::units::Time;

/// Keys that each side sorts before the other one does: about a millisecond.
const LAP_KEYS: usize = 1 << 15;

/// The inverse, modulo 2^64, of the multiplier of packtrain's hash: products of small numbers with
/// it share a slot.
const AGAINST_HASH: u64 = 0xF1DE_83E1_9937_733D;

/// The keys to sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keys {
    /// All different, in no order.
    #[default]
    Random,
    /// All equal, as of one connection.
    Equal,
    /// Eight, in no order.
    Few,
    /// All different, chosen so that they share a slot of packtrain's table.
    Adversarial,
}

impl Keys {
    /// The key of item `index` in the lap `lap`.
    const fn key(self, index: u64, lap: u64) -> u64 {
        let random = mix(mix(lap + 1) ^ index);
        match self {
            Self::Random => random,
            Self::Equal => lap,
            Self::Few => mix(random % 8),
            Self::Adversarial => index.wrapping_mul(AGAINST_HASH),
        }
    }
}

/// Sorts keys by packtrain's `sort::group` and by `slice::sort_unstable_by_key`, alternating.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sort {
    /// The keys to sort.
    pub keys: Keys,
    /// Keys that are sorted at once, 1 to [`ITEMS_MAX`]: the packets that are merged together.
    pub n: usize,
    /// For how long it sorts.
    pub duration: Time,
}

impl Default for Sort {
    fn default() -> Self {
        Self {
            keys: Keys::default(),
            n: 4096,
            duration: Time(Duration::from_millis(100)),
        }
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// Keys that were sorted, by each of the two.
    pub keys: u64,
    /// The offload crate's grouping.
    pub group: Group,
    /// The standard library's sorting.
    pub std: Std,
}

/// The cost of grouping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Group {
    /// Time of a key.
    pub ns_per_key: f64,
    /// The most passes over the keys.
    pub passes: u64,
    /// The most probes of the table.
    pub probes_per_key: f64,
    /// Stack that it used; `None` if that cannot be measured.
    pub stack_bytes: Option<usize>,
}

/// The cost of sorting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Std {
    /// Time of a key.
    pub ns_per_key: f64,
    /// Stack that it used; `None` if that cannot be measured.
    pub stack_bytes: Option<usize>,
}

impl Sort {
    /// One run.
    ///
    /// # Errors
    /// [`ToolError`]
    pub fn run(
        &self,
        testbed: &TestbedOptions,
        control: &Control<'_>,
    ) -> Result<Measured, ToolError> {
        let Self { keys, n, duration } = *self;
        testbed.refuse_through("sort")?;
        if !(1..=ITEMS_MAX).contains(&n) {
            return Err(ToolError::Usage(format!(
                "n is {n}, and must be from 1 to {ITEMS_MAX}"
            )));
        }
        let watch = Watch::start()?;
        let (mut own, mut std) = (Own::new(n), Laps::new());
        own.check(&mut items(keys, n, 0))?;
        let [mut first, mut again] = [items(keys, n, 0), items(keys, n, 0)];
        let own_stack = stack::used_bytes(&mut || _ = black_box(own.group(&mut first, |_| ())));
        let std_stack = stack::used_bytes(&mut || sort_by_std(&mut again));
        let start = Instant::now();
        let mut lap = 0;
        while lap == 0 || start.elapsed() < duration.0 {
            if control.stopped() {
                return Err(ToolError::Cancelled);
            }
            let arrays = (LAP_KEYS / n).max(1) as u64;
            let fresh: Vec<Keyed> = (0..arrays)
                .flat_map(|array| items(keys, n, lap * arrays + array))
                .collect();
            // The first of the two has the keys in cache, so each is first in turn.
            for own_turn in [lap % 2 == 0, lap % 2 == 1] {
                let mut fresh = fresh.clone();
                if own_turn {
                    own.time(&mut fresh).map_err(failed)?;
                } else {
                    std.time(|| fresh.chunks_exact_mut(n).for_each(sort_by_std));
                    black_box(&fresh);
                }
            }
            lap += 1;
        }
        let sorted = lap * ((LAP_KEYS / n).max(1) * n) as u64;
        let (_, flag) = watch.end(Duration::ZERO)?;
        let settings = [("keys", json!(keys)), ("n", json!(n))];
        let figures = Figures {
            keys: sorted,
            group: Group {
                ns_per_key: own.laps.per(sorted),
                passes: own.most.passes.into(),
                probes_per_key: own.most.probes as f64 / n as f64,
                stack_bytes: own_stack,
            },
            std: Std {
                ns_per_key: std.per(sorted),
                stack_bytes: std_stack,
            },
        };
        let named = |(name, value): (&str, _)| (name.to_owned(), value);
        Ok(Measured {
            settings: settings.into_iter().map(named).collect(),
            figures: fields(&figures),
            flags: flag.into_iter().collect(),
            ..Measured::default()
        })
    }
}

/// `n` items of the lap `lap`, numbered.
fn items(keys: Keys, n: usize, lap: u64) -> Vec<Keyed> {
    let item = |index| Keyed {
        key: keys.key(index, lap),
        index,
    };
    (0..n as u64).map(item).collect()
}

/// By key, and in the order of arrival, as packtrain groups.
fn sort_by_std(items: &mut [Keyed]) {
    items.sort_unstable_by_key(|item| (item.key, item.index));
}

fn failed(error: ScratchTooSmall) -> ToolError {
    ToolError::Check(error.to_string())
}

/// packtrain's grouping of arrays of `n` items.
struct Own {
    n: usize,
    spare: Vec<Keyed>,
    words: Vec<u32>,
    laps: Laps,
    /// The most work of one call.
    most: Steps,
}

impl Own {
    fn new(n: usize) -> Self {
        Self {
            n,
            spare: vec![Keyed::default(); n],
            words: vec![0; sort::words(n)],
            laps: Laps::new(),
            most: Steps::default(),
        }
    }

    /// Groups one array, and gives the result to `take`.
    fn group<T>(
        &mut self,
        items: &mut [Keyed],
        take: impl FnOnce(&[Keyed]) -> T,
    ) -> Result<T, ScratchTooSmall> {
        let mut scratch = Scratch {
            spare: &mut self.spare,
            words: &mut self.words,
        };
        let mut steps = Steps::default();
        let grouped = sort::group_counted(items, &mut scratch, &mut steps)?;
        self.most.passes = self.most.passes.max(steps.passes);
        self.most.probes = self.most.probes.max(steps.probes);
        Ok(take(grouped))
    }

    /// Groups every array of `fresh`, timed.
    fn time(&mut self, fresh: &mut [Keyed]) -> Result<(), ScratchTooSmall> {
        let n = self.n;
        let mut laps = std::mem::take(&mut self.laps);
        let done = laps.time(|| {
            let mut arrays = fresh.chunks_exact_mut(n);
            arrays.try_for_each(|items| self.group(items, |grouped| _ = black_box(grouped)))
        });
        self.laps = laps;
        done
    }

    /// Whether equal keys come together, in the order of arrival.
    fn check(&mut self, items: &mut [Keyed]) -> Result<(), ToolError> {
        let key = |item: &Keyed| (item.key, item.index);
        let grouped = self.group(items, |grouped| is_grouped(grouped, key, true));
        if grouped.map_err(failed)? {
            Ok(())
        } else {
            Err(ToolError::Check("keys are not grouped".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain_offload::sort::PASSES_MAX;
    use std::collections::HashSet;

    fn run(keys: Keys, n: usize) -> Result<Measured, ToolError> {
        let duration = Time(Duration::from_millis(1));
        let sort = Sort { keys, n, duration };
        sort.run(&TestbedOptions::default(), &Control::default())
    }

    #[test]
    fn keys_are_what_they_are_called() {
        for (keys, distinct) in [
            (Keys::Random, 1000),
            (Keys::Equal, 1),
            (Keys::Few, 8),
            (Keys::Adversarial, 1000),
        ] {
            let all: HashSet<u64> = items(keys, 1000, 3).iter().map(|item| item.key).collect();
            assert_eq!(all.len(), distinct, "{keys:?}");
        }
    }

    #[test]
    fn any_keys_take_bounded_passes_probes_and_stack() {
        for n in [1, 64, 4096, ITEMS_MAX] {
            for keys in [Keys::Random, Keys::Equal, Keys::Few, Keys::Adversarial] {
                let measured = run(keys, n).unwrap();
                assert_eq!(measured.settings["n"], n);
                let group = &measured.figures["group"];
                let passes = group["passes"].as_u64().unwrap();
                assert!((1..=u64::from(PASSES_MAX)).contains(&passes), "{group}");
                let probes = group["probes_per_key"].as_f64().unwrap() * n as f64;
                assert!(probes < (4 * n + 130) as f64, "{keys:?}: {group}");
                let adversarial = keys == Keys::Adversarial && n > 1;
                assert_eq!(probes > (3 * n) as f64, adversarial, "{keys:?}: {group}");
                // A single key may take less than reading the clock.
                let time = group["ns_per_key"].as_f64().unwrap();
                assert!(time > 0.0 || n == 1, "{keys:?}: {group}");
                assert!(group["stack_bytes"].as_u64().is_none_or(|bytes| bytes > 0));
            }
        }
    }

    #[test]
    fn too_many_keys_are_refused() {
        for n in [0, ITEMS_MAX + 1] {
            let error = run(Keys::Random, n).unwrap_err().to_string();
            assert!(error.ends_with("must be from 1 to 65536"), "{error}");
        }
    }
}
