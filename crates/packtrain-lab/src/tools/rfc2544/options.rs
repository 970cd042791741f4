//! The options of `rfc2544`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use super::search::Goal;
use crate::error::ToolError;
use crate::options::from_text;
use crate::units::Time;

/// The most goals of a search.
const GOALS_MAX: usize = 8;

/// Loss ratios, a search goal each.
#[derive(Clone, Debug, PartialEq)]
pub struct LossRatios(pub Vec<f64>);

impl FromStr for LossRatios {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ratios: Result<Vec<f64>, _> = text.split(',').map(str::parse).collect();
        match ratios {
            Ok(ratios)
                if ratios.len() <= GOALS_MAX
                    && ratios.iter().all(|ratio| (0.0..1.0).contains(ratio)) =>
            {
                Ok(Self(ratios))
            }
            _ => Err(format!(
                "write up to {GOALS_MAX} ratios, each at least 0 and less than 1, as in 0,0.005"
            )),
        }
    }
}

impl fmt::Display for LossRatios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratios: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&ratios.join(","))
    }
}

/// The throughput of one frame size by MLRsearch (RFC 9971), latency below it, the longest burst
/// and the frame loss rate (RFC 2544 sections 26.2 to 26.4), from host A to host B.
#[derive(Clone, Debug, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rfc2544 {
    /// The frame size in bytes, with Ethernet header and FCS.
    #[arg(skip = 64_u32)]
    pub size: u32,
    /// Loss ratios of trials that are accepted, a search goal each. Latency is measured below the
    /// throughput of the first
    #[arg(long, value_name = "RATIOS", default_value = "0,0.005")]
    #[serde(deserialize_with = "from_text")]
    pub loss_ratio: LossRatios,
    /// Share of the time of trials at a lower bound that may lose more
    #[arg(long, value_name = "RATIO", default_value_t = 0.5)]
    pub exceed_ratio: f64,
    /// Duration of the first, coarse trials of a search
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    pub initial_duration: Time,
    /// Duration of the trials that decide, and of those for latency and loss
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    pub final_duration: Time,
    /// Trials of this time in sum always decide about a load
    #[arg(long, value_name = "TIME", default_value = "1500ms")]
    pub duration_sum: Time,
    /// Distance of lower and upper bound at which a search ends, as a share of the upper bound
    #[arg(long, value_name = "RATIO", default_value_t = 0.02)]
    pub width: f64,
    /// The most time of all trials of a search
    #[arg(long, value_name = "TIME", default_value = "20s")]
    pub time_max: Time,
    /// How long a trial waits for late frames after the last one
    #[arg(long, value_name = "TIME", default_value = "50ms")]
    pub settle: Time,
    /// Measure the throughput only, without latency, loss rates and bursts
    #[arg(long)]
    pub throughput_only: bool,
    /// One short trial for each load, and a width of 0.1: a direction at most
    #[arg(long, conflicts_with_all =
          ["initial_duration", "final_duration", "duration_sum", "width"])]
    pub quick: bool,
}

impl Rfc2544 {
    /// The options with those that [`quick`](Self::quick) stands for, checked.
    ///
    /// # Errors
    /// [`ToolError::Usage`].
    pub(super) fn in_force(&self) -> Result<Self, ToolError> {
        let mut options = self.clone();
        if self.quick {
            options.initial_duration = Time(Duration::from_millis(50));
            options.final_duration = Time(Duration::from_millis(100));
            options.duration_sum = options.final_duration;
            options.width = 0.1;
        }
        let ratios = [
            (
                "exceed-ratio",
                options.exceed_ratio,
                (0.0..1.0).contains(&options.exceed_ratio),
            ),
            (
                "width",
                options.width,
                options.width > 0.0 && options.width < 1.0,
            ),
        ];
        for (name, value, is_right) in ratios {
            if !is_right {
                return Err(ToolError::Usage(format!(
                    "--{name} cannot be {value}: write a ratio below 1, as in 0.02"
                )));
            }
        }
        let (first, last) = (options.initial_duration, options.final_duration);
        if first.0 > last.0 {
            return Err(ToolError::Usage(format!(
                "--initial-duration {first} is longer than --final-duration {last}"
            )));
        }
        if options.duration_sum.0 < last.0 {
            return Err(ToolError::Usage(format!(
                "--duration-sum {} is shorter than --final-duration {last}",
                options.duration_sum
            )));
        }
        Ok(options)
    }

    /// The search goals.
    pub(super) fn goals(&self) -> Vec<Goal> {
        let goal = |loss_ratio: &f64| Goal {
            loss_ratio: *loss_ratio,
            exceed_ratio: self.exceed_ratio,
            initial_duration: self.initial_duration.0,
            final_duration: self.final_duration.0,
            duration_sum: self.duration_sum.0,
            width: self.width,
        };
        self.loss_ratio.0.iter().map(goal).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn loss_ratios() {
        for text in ["0", "0,0.005", "0.5"] {
            assert_eq!(text.parse::<LossRatios>().unwrap().to_string(), text);
        }
        for text in ["", "1", "-0.1", "0,", "nan", "5%", "0,0,0,0,0,0,0,0,0"] {
            assert!(text.parse::<LossRatios>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_experiment_gives_the_frame_size_and_what_differs_from_the_command_line() {
        let read = json!({"size": 1518, "loss-ratio": "0.01", "final-duration": "1s"});
        let read: Rfc2544 = serde_json::from_value(read).unwrap();
        assert_eq!((read.size, read.width), (1518, 0.02));
        assert_eq!(Rfc2544::default().size, 64);
        let goals = read.in_force().unwrap().goals();
        assert_eq!(goals.len(), 1);
        assert_eq!(goals[0].final_duration, Duration::from_secs(1));
        assert!(serde_json::from_value::<Rfc2544>(json!({"sice": 64})).is_err());
    }

    #[test]
    fn impossible_goals_are_explained() {
        let explain = |change: fn(&mut Rfc2544)| {
            let mut options = Rfc2544::default();
            change(&mut options);
            options.in_force().unwrap_err().to_string()
        };
        assert_eq!(
            explain(|options| options.width = 0.0),
            "--width cannot be 0: write a ratio below 1, as in 0.02"
        );
        assert!(explain(|options| options.exceed_ratio = 1.0).contains("--exceed-ratio cannot"));
        assert_eq!(
            explain(|options| options.initial_duration = Time(Duration::from_secs(2))),
            "--initial-duration 2s is longer than --final-duration 500ms"
        );
        assert!(
            explain(|options| options.duration_sum = Time(Duration::from_millis(1)))
                .contains("--duration-sum 1ms is shorter")
        );
    }
}
