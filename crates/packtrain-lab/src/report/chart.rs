//! Charts as SVG. Places across are percentages, so a chart is as wide as the page lets it be, and
//! its text keeps its size. Colours are the style sheet's.

use packtrain_measure::statistics::Estimate;

use super::markup::Markup;
use super::numbers::scaled;

/// Height of a bar with its space, in pixels.
const BAR: f64 = 26.0;
/// Height of its middle, and half of its thickness.
const MIDDLE: f64 = 10.0;
const HALF: f64 = 6.0;
/// Height of the dots below it.
const DOTS: f64 = 21.0;
/// Height of the numbers below an axis.
const TICKS: f64 = 16.0;
/// Steps of an axis, about.
const STEPS: f64 = 4.0;

/// A linear axis with 0 on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    low: f64,
    high: f64,
    step: f64,
}

impl Linear {
    /// An axis with all values on it, and round numbers at both ends.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let values = values.filter(|value| value.is_finite());
        let (low, high) = values.fold((0.0_f64, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let rough = (high - low) / STEPS;
        if rough <= 0.0 {
            return Self {
                low: 0.0,
                high: 1.0,
                step: 1.0,
            };
        }
        let decade = 10_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
        let fits = |step: &f64| step * decade >= rough * 0.999;
        let step = steps.into_iter().find(fits).unwrap_or(10.0) * decade;
        Self {
            low: (low / step).floor() * step,
            high: (high / step).ceil() * step,
            step,
        }
    }

    /// Where a value is, in percent of the width.
    pub fn place(&self, value: f64) -> f64 {
        100.0 * (value - self.low) / (self.high - self.low)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (low, step) = (self.low, self.step);
        let count = ((self.high - low) / step).round() as u32;
        (0..=count).map(move |at| low + step * f64::from(at))
    }

    /// The numbers of the axis.
    pub fn draw(&self, m: &mut Markup) {
        svg(m, "axis", TICKS, |m| {
            for tick in self.ticks() {
                label(m, self.place(tick), 12.0, &scaled(tick));
            }
        });
    }

    fn grid(&self, m: &mut Markup) {
        for tick in self.ticks() {
            vertical(m, "grid", self.place(tick), 0.0, BAR);
        }
    }
}

/// A median as a bar, its interval as a whisker, and the single runs as dots: hollow if flagged.
pub fn bar(
    m: &mut Markup,
    axis: &Linear,
    estimate: &Estimate,
    runs: &[(f64, bool)],
    colour: usize,
) {
    svg(m, "bar", BAR, |m| {
        axis.grid(m);
        let (zero, end) = (axis.place(0.0), axis.place(estimate.median));
        // Not one run was clean: the figure is no verdict's.
        let disturbed = runs.iter().all(|(_, clean)| !clean);
        let class = format!(
            "value c{colour}{}",
            if disturbed { " disturbed" } else { "" }
        );
        rectangle(
            m,
            &class,
            zero.min(end),
            (end - zero).abs(),
            MIDDLE - HALF,
            2.0 * HALF,
        );
        whisker(m, axis, estimate);
        for &(value, clean) in runs {
            let class = if clean { "run" } else { "run flagged" };
            dot(m, class, axis.place(value), DOTS, 2.2);
        }
    });
}

/// A measured value and its interval in front of the range that is expected.
pub fn against(m: &mut Markup, axis: &Linear, estimate: &Estimate, expected: (f64, f64)) {
    svg(m, "against", 2.0 * MIDDLE, |m| {
        let ends = (expected.0.max(axis.low), expected.1.min(axis.high));
        let (from, to) = (axis.place(ends.0), axis.place(ends.1));
        rectangle(m, "expected", from, (to - from).max(0.0), 0.0, 2.0 * MIDDLE);
        for end in [expected.0, expected.1] {
            if end.is_finite() {
                vertical(m, "goal", axis.place(end), 0.0, 2.0 * MIDDLE);
            }
        }
        whisker(m, axis, estimate);
        dot(m, "median", axis.place(estimate.median), MIDDLE, 4.0);
    });
}

/// Percentiles of a distribution on a logarithmic scale: a line from the least to the greatest, a
/// bar up to the 99th percentile, a mark at the median.
pub fn percentiles(m: &mut Markup, scale: &Decades, of: &Percentiles, colour: usize) {
    svg(m, "bar", BAR, |m| {
        scale.grid(m);
        let [least, median, most, max] =
            [of.min, of.p50, of.p99, of.max].map(|value| scale.place(value));
        horizontal(m, "whisker", least, max);
        vertical(m, "whisker", max, MIDDLE - 4.0, MIDDLE + 4.0);
        let class = format!("value c{colour}");
        rectangle(
            m,
            &class,
            least,
            (most - least).max(0.0),
            MIDDLE - HALF,
            2.0 * HALF,
        );
        vertical(
            m,
            "middle",
            median,
            MIDDLE - HALF - 2.0,
            MIDDLE + HALF + 2.0,
        );
    });
}

/// Percentiles of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentiles {
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

/// A logarithmic axis of whole decades.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decades {
    low: i32,
    high: i32,
}

impl Decades {
    /// An axis with all values on it. What is not positive is at its lower end.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let logs = values.filter(|value| *value > 0.0).map(f64::log10);
        let (low, high) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| {
            (low.min(log), high.max(log))
        });
        if low > high {
            return Self { low: 0, high: 1 };
        }
        let low = low.floor() as i32;
        Self {
            low,
            high: (high.ceil() as i32).max(low + 1),
        }
    }

    fn place(&self, value: f64) -> f64 {
        if value <= 0.0 {
            return 0.0;
        }
        let share = (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        100.0 * share.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        (self.low..=self.high).map(|decade| 10_f64.powi(decade))
    }

    /// The numbers of the axis.
    pub fn draw(&self, m: &mut Markup) {
        let every = (self.high - self.low).unsigned_abs().div_ceil(STEPS as u32);
        svg(m, "axis", TICKS, |m| {
            for tick in self.ticks().step_by(every as usize) {
                label(m, self.place(tick), 12.0, &scaled(tick));
            }
        });
    }

    fn grid(&self, m: &mut Markup) {
        for tick in self.ticks() {
            vertical(m, "grid", self.place(tick), 0.0, BAR);
        }
    }
}

/// Columns: the share of each bin, on a scale that ends at `most`. `bins` are the least values.
/// `about` is the text alternative of the chart.
pub fn columns(m: &mut Markup, about: &str, bins: &[u64], shares: &[f64], most: f64) {
    let mut path = String::new();
    for (at, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
        // What is there is seen.
        let top = 100.0 - (100.0 * share / most).max(1.0);
        path.push_str(&format!("M{at}.06 100V{top:.1}h.88V100z"));
    }
    let view = format!("0 0 {} 100", bins.len());
    m.element(
        "svg",
        &[
            ("class", "columns"),
            ("role", "img"),
            ("aria-label", about),
            ("viewBox", &view),
            ("preserveAspectRatio", "none"),
        ],
        |m| m.empty("path", &[("class", "value c0"), ("d", &path)]),
    );
    let every = bins.len().div_ceil(5);
    svg(m, "axis", TICKS, |m| {
        for (at, least) in bins.iter().enumerate().step_by(every) {
            let middle = 100.0 * (at as f64 + 0.5) / bins.len() as f64;
            label(m, middle, 12.0, &scaled(*least as f64));
        }
    });
}

fn svg(m: &mut Markup, class: &str, height: f64, inner: impl FnOnce(&mut Markup)) {
    m.element(
        "svg",
        &[
            ("class", class),
            ("width", "100%"),
            ("height", &height.to_string()),
            ("aria-hidden", "true"),
            ("focusable", "false"),
        ],
        inner,
    );
}

fn whisker(m: &mut Markup, axis: &Linear, estimate: &Estimate) {
    let (low, high) = (axis.place(estimate.low), axis.place(estimate.high));
    horizontal(m, "whisker", low, high);
    for end in [low, high] {
        vertical(m, "whisker", end, MIDDLE - 4.0, MIDDLE + 4.0);
    }
}

fn horizontal(m: &mut Markup, class: &str, from: f64, to: f64) {
    line(m, class, [from, to], [MIDDLE; 2]);
}

fn vertical(m: &mut Markup, class: &str, at: f64, top: f64, bottom: f64) {
    line(m, class, [at; 2], [top, bottom]);
}

fn line(m: &mut Markup, class: &str, x: [f64; 2], y: [f64; 2]) {
    let [x1, x2] = x.map(percent);
    let [y1, y2] = y.map(|y| y.to_string());
    m.empty(
        "line",
        &[
            ("class", class),
            ("x1", &x1),
            ("x2", &x2),
            ("y1", &y1),
            ("y2", &y2),
        ],
    );
}

fn rectangle(m: &mut Markup, class: &str, x: f64, width: f64, y: f64, height: f64) {
    let (x, width) = (percent(x), percent(width));
    let [y, height] = [y, height].map(|y| y.to_string());
    m.empty(
        "rect",
        &[
            ("class", class),
            ("x", &x),
            ("width", &width),
            ("y", &y),
            ("height", &height),
        ],
    );
}

fn dot(m: &mut Markup, class: &str, x: f64, y: f64, radius: f64) {
    let (x, y, radius) = (percent(x), y.to_string(), radius.to_string());
    m.empty(
        "circle",
        &[("class", class), ("cx", &x), ("cy", &y), ("r", &radius)],
    );
}

/// Text below a place: at the ends of the axis, it stays within.
fn label(m: &mut Markup, x: f64, y: f64, text: &str) {
    let anchor = match x {
        ..=2.0 => "start",
        98.0.. => "end",
        _ => "middle",
    };
    let (x, y) = (percent(x), y.to_string());
    m.leaf(
        "text",
        &[("x", &x), ("y", &y), ("text-anchor", anchor)],
        text,
    );
}

fn percent(place: f64) -> String {
    format!("{place:.2}%")
}

/// A colour and its name.
pub fn swatch(m: &mut Markup, colour: usize, name: &str) {
    let class = format!("swatch b{colour}");
    m.leaf("i", &[("class", &class)], "");
    m.leaf("span", &[], name);
}

/// What the marks of [`bar`] are.
pub fn marks(m: &mut Markup) {
    m.element("i", &[("class", "marks")], sample);
    let text = "bar: median; whisker: its interval; ● a run; ○ a disturbed run; a pale bar: no \
                run was clean";
    m.leaf("span", &[], text);
}

/// A bar as an example.
pub fn sample(m: &mut Markup) {
    let estimate = Estimate {
        median: 6.0,
        low: 5.0,
        high: 7.0,
        count: 3,
    };
    let runs = [(5.0, true), (6.4, true), (8.5, false)];
    bar(m, &Linear::of([10.0].into_iter()), &estimate, &runs, 0);
}
