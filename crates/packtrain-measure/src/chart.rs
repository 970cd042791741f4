//! Charts as SVG. Places across are percentages, so a chart is as wide as its page lets it be, and
//! its text keeps its size. Colours are the style sheet's: the page's, or that of [`Lines`].

use indexmap::IndexMap;

use crate::markup::Markup;
use crate::numbers::scaled;
use crate::statistics::Estimate;

/// Height of a bar with its space, in pixels.
const BAR: f64 = 26.0;
/// Height of its middle, and half of its thickness.
const MIDDLE: f64 = 10.0;
const HALF: f64 = 6.0;
/// Height of the dots below it.
const DOTS: f64 = 21.0;
/// Height of the numbers below a scale.
const TICKS: f64 = 16.0;
/// Steps of a scale, about.
const STEPS: f64 = 4.0;

/// Where values are across a chart, and its round numbers.
#[derive(Clone, Debug)]
pub struct Scale {
    /// What is even on the page: the value, or its logarithm.
    even: fn(f64) -> f64,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
    /// A tick of so many has a number.
    every: usize,
}

impl Scale {
    /// A linear scale with 0 and all values on it, and round numbers at both ends.
    pub fn linear(values: impl Iterator<Item = f64>) -> Self {
        let values = values.filter(|value| value.is_finite());
        let (low, high) = values.fold((0.0_f64, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let high = if high > low { high } else { 1.0 };
        let rough = (high - low) / STEPS;
        let decade = 10_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
        let fits = |step: &f64| step * decade >= rough * 0.999;
        let step = steps.into_iter().find(fits).unwrap_or(10.0) * decade;
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        let count = (last - first) as u32;
        Self {
            even: |value| value,
            low: first * step,
            high: last * step,
            ticks: (0..=count)
                .map(|at| step * (first + f64::from(at)))
                .collect(),
            every: 1,
        }
    }

    /// A logarithmic scale of whole decades with all values on it. What is not positive is at its
    /// lower end.
    pub fn decades(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = logarithms(values);
        let low = low.floor();
        let high = high.ceil().max(low + 1.0);
        let decades = low as i32..=high as i32;
        Self {
            even: logarithm,
            low,
            high,
            ticks: decades.map(|decade| 10_f64.powi(decade)).collect(),
            every: ((high - low) / STEPS).ceil() as usize,
        }
    }

    /// A logarithmic scale that is little wider than its values, which are positive. Its round
    /// numbers are 1, 2 and 5 of each decade, or only 1 of many decades.
    pub fn fitted(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = logarithms(values);
        // A single value lies in the middle of a decade.
        let space = match high - low {
            0.1.. => 0.04 * (high - low),
            _ => 0.5,
        };
        let (low, high) = (low - space, high + space);
        let steps: &[f64] = match high - low {
            3.0.. => &[1.0],
            _ => &[1.0, 2.0, 5.0],
        };
        let decades = low.floor() as i32..=high.ceil() as i32;
        let ticks =
            decades.flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
        Self {
            even: logarithm,
            low,
            high,
            ticks: ticks
                .filter(|tick| (low..=high).contains(&tick.log10()))
                .collect(),
            every: 1,
        }
    }

    /// Where a value is, in percent of the width. What is beyond an end is there.
    pub fn place(&self, value: f64) -> f64 {
        let place = 100.0 * ((self.even)(value) - self.low) / (self.high - self.low);
        place.clamp(0.0, 100.0)
    }

    /// The numbers of the scale.
    pub fn draw(&self, m: &mut Markup) {
        svg(m, "axis", TICKS, |m| {
            for tick in self.ticks.iter().step_by(self.every) {
                label(m, self.place(*tick), 12.0, &scaled(*tick));
            }
        });
    }

    fn grid(&self, m: &mut Markup, height: f64) {
        for tick in &self.ticks {
            vertical(m, "grid", self.place(*tick), 0.0, height);
        }
    }
}

/// The logarithm of a positive value, and the least of another.
fn logarithm(value: f64) -> f64 {
    value.max(0.0).log10()
}

/// The logarithms of the least and the greatest positive value, or of 1.
fn logarithms(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let logs = values.map(logarithm).filter(|log| log.is_finite());
    let ends = logs.fold(None, |ends, log| {
        let (low, high) = ends.unwrap_or((log, log));
        Some((log.min(low), log.max(high)))
    });
    ends.unwrap_or_default()
}

/// A median as a bar, its interval as a whisker, and the single runs as dots: their values, and
/// whether they are clean. The dot of a disturbed run is hollow.
pub fn bar(
    m: &mut Markup,
    scale: &Scale,
    estimate: &Estimate,
    runs: &[(f64, bool)],
    colour: usize,
) {
    svg(m, "bar", BAR, |m| {
        scale.grid(m, BAR);
        // Not one run was clean: the figure is no verdict's.
        let disturbed = runs.iter().all(|(_, clean)| !clean);
        let class = format!(
            "value c{colour}{}",
            if disturbed { " disturbed" } else { "" }
        );
        let ends = [0.0, estimate.median].map(|value| scale.place(value));
        rectangle(m, &class, ends, MIDDLE - HALF, 2.0 * HALF);
        whisker(m, scale, estimate);
        for &(value, clean) in runs {
            let class = if clean { "run" } else { "run flagged" };
            dot(m, class, scale.place(value), DOTS, 2.2);
        }
    });
}

/// A measured value and its interval in front of the range that is expected, whose ends may be
/// infinite.
pub fn against(m: &mut Markup, scale: &Scale, estimate: &Estimate, expected: (f64, f64)) {
    svg(m, "against", 2.0 * MIDDLE, |m| {
        let expected = [expected.0, expected.1];
        let ends = expected.map(|value| scale.place(value));
        rectangle(m, "expected", ends, 0.0, 2.0 * MIDDLE);
        for end in expected.into_iter().filter(|end| end.is_finite()) {
            vertical(m, "goal", scale.place(end), 0.0, 2.0 * MIDDLE);
        }
        whisker(m, scale, estimate);
        dot(m, "median", scale.place(estimate.median), MIDDLE, 4.0);
    });
}

/// Percentiles of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentiles {
    /// The least value.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The greatest value.
    pub max: f64,
}

/// Percentiles of a distribution: a line from the least to the greatest, a bar up to the 99th
/// percentile, a mark at the median.
pub fn percentiles(m: &mut Markup, scale: &Scale, of: &Percentiles, colour: usize) {
    svg(m, "bar", BAR, |m| {
        scale.grid(m, BAR);
        let [least, median, most, max] =
            [of.min, of.p50, of.p99, of.max].map(|value| scale.place(value));
        horizontal(m, "whisker", [least, max], MIDDLE);
        vertical(m, "whisker", max, MIDDLE - 4.0, MIDDLE + 4.0);
        let class = format!("value c{colour}");
        rectangle(m, &class, [least, most], MIDDLE - HALF, 2.0 * HALF);
        let (top, bottom) = (MIDDLE - HALF - 2.0, MIDDLE + HALF + 2.0);
        vertical(m, "middle", median, top, bottom);
    });
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

/// Height of the field of [`Lines`], in pixels.
const FIELD: f64 = 330.0;
/// The style sheet of [`Lines`]. Colour-blind readers can distinguish its colours (Okabe and Ito
/// 2008).
const STYLE: &str = "svg{font:12px sans-serif}line{stroke:currentColor}circle{fill:currentColor}\
    .grid{stroke:#ddd}.c0{color:#D55E00;stroke-width:3}.c1{color:#0072B2}.c2{color:#009E73}\
    .c3{color:#CC79A7}.c4{color:#E69F00}.c5{color:#56B4E9}.c6{color:#7F7F7F}.c7{color:#000}";
const COLOURS: usize = 8;

/// Lines on logarithmic scales with a legend, as a document of its own. The first line is thick.
#[derive(Clone, Debug)]
pub struct Lines {
    title: &'static str,
    x: &'static str,
    y: &'static str,
    /// The points of each line, by x.
    lines: IndexMap<String, Vec<(f64, f64)>>,
}

impl Lines {
    /// A chart without lines. `title` is above it, `x` below and `y` at its side.
    pub fn new(title: &'static str, x: &'static str, y: &'static str) -> Self {
        let lines = IndexMap::new();
        Self { title, x, y, lines }
    }

    /// Adds a point to the line `name`. Of points at the same place across, the first counts.
    pub fn add(&mut self, name: &str, point: (f64, f64)) {
        let points = self.lines.entry(name.to_owned()).or_default();
        let at = points.partition_point(|(x, _)| *x < point.0);
        if points.get(at).is_none_or(|(x, _)| *x != point.0) {
            points.insert(at, point);
        }
    }

    /// The SVG document; `None` if there is no point, or one that is not positive.
    pub fn document(&self) -> Option<String> {
        let points = || self.lines.values().flatten();
        let is_shown = |value: f64| value > 0.0 && value.is_finite();
        if points().next().is_none() || !points().all(|(x, y)| is_shown(*x) && is_shown(*y)) {
            return None;
        }
        let across = Scale::fitted(points().map(|(x, _)| *x));
        let up = Scale::fitted(points().map(|(_, y)| *y));
        let whole = [
            ("xmlns", "http://www.w3.org/2000/svg"),
            ("width", "760"),
            ("height", "420"),
            ("viewBox", "0 0 760 420"),
        ];
        let height = pixels(FIELD);
        let field = [
            ("x", "70"),
            ("y", "40"),
            ("width", "450"),
            ("height", &*height),
            ("overflow", "visible"),
        ];
        let mut m = Markup::default();
        m.element("svg", &whole, |m| {
            m.element("style", &[], |m| m.own(STYLE));
            let paper = [("width", "100%"), ("height", "100%"), ("fill", "white")];
            m.empty("rect", &paper);
            m.element("svg", &field, |m| self.draw(m, &across, &up));
        });
        m.text("\n");
        Some(m.finish())
    }

    fn draw(&self, m: &mut Markup, across: &Scale, up: &Scale) {
        let height = |value| FIELD * (1.0 - up.place(value) / 100.0);
        across.grid(m, FIELD);
        for tick in &across.ticks {
            text(
                m,
                "middle",
                across.place(*tick),
                FIELD + 16.0,
                &scaled(*tick),
            );
        }
        for tick in &up.ticks {
            horizontal(m, "grid", [0.0, 100.0], height(*tick));
            text(m, "end", -1.4, height(*tick) + 4.0, &scaled(*tick));
        }
        m.element("g", &[("font-size", "15")], |m| {
            text(m, "middle", 50.0, -16.0, self.title);
        });
        text(m, "middle", 50.0, FIELD + 38.0, self.x);
        let side = format!("translate(-54 {}) rotate(-90)", pixels(FIELD / 2.0));
        m.element("g", &[("transform", &side)], |m| {
            text(m, "middle", 0.0, 0.0, self.y);
        });
        for (at, (name, points)) in self.lines.iter().enumerate() {
            let class = format!("c{}", at % COLOURS);
            let places = points.iter().map(|(x, y)| (across.place(*x), height(*y)));
            let places: Vec<_> = places.collect();
            for ends in places.windows(2) {
                let [(x1, y1), (x2, y2)] = [ends[0], ends[1]];
                line(m, &class, [x1, x2], [y1, y2]);
            }
            for (x, y) in places {
                dot(m, &class, x, y, 3.0);
            }
            let y = 10.0 + 20.0 * at as f64;
            horizontal(m, &class, [103.5, 108.0], y);
            text(m, "start", 109.4, y + 4.0, name);
        }
    }
}

fn svg(m: &mut Markup, class: &str, height: f64, inner: impl FnOnce(&mut Markup)) {
    m.element(
        "svg",
        &[
            ("class", class),
            ("width", "100%"),
            ("height", &pixels(height)),
            ("aria-hidden", "true"),
            ("focusable", "false"),
        ],
        inner,
    );
}

fn whisker(m: &mut Markup, scale: &Scale, estimate: &Estimate) {
    let ends = [estimate.low, estimate.high].map(|value| scale.place(value));
    horizontal(m, "whisker", ends, MIDDLE);
    for end in ends {
        vertical(m, "whisker", end, MIDDLE - 4.0, MIDDLE + 4.0);
    }
}

fn horizontal(m: &mut Markup, class: &str, ends: [f64; 2], y: f64) {
    line(m, class, ends, [y; 2]);
}

fn vertical(m: &mut Markup, class: &str, at: f64, top: f64, bottom: f64) {
    line(m, class, [at; 2], [top, bottom]);
}

fn line(m: &mut Markup, class: &str, x: [f64; 2], y: [f64; 2]) {
    let ([x1, x2], [y1, y2]) = (x.map(percent), y.map(pixels));
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

fn rectangle(m: &mut Markup, class: &str, ends: [f64; 2], y: f64, height: f64) {
    let [from, to] = ends;
    let [x, width] = [from.min(to), (to - from).abs()].map(percent);
    let [y, height] = [y, height].map(pixels);
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
    let (x, y, radius) = (percent(x), pixels(y), pixels(radius));
    m.empty(
        "circle",
        &[("class", class), ("cx", &x), ("cy", &y), ("r", &radius)],
    );
}

/// Text below a place: at the ends of the scale, it stays within.
fn label(m: &mut Markup, x: f64, y: f64, of: &str) {
    let anchor = match x {
        ..=2.0 => "start",
        98.0.. => "end",
        _ => "middle",
    };
    text(m, anchor, x, y, of);
}

fn text(m: &mut Markup, anchor: &str, x: f64, y: f64, of: &str) {
    let (x, y) = (percent(x), pixels(y));
    m.leaf("text", &[("x", &x), ("y", &y), ("text-anchor", anchor)], of);
}

fn percent(place: f64) -> String {
    format!("{place:.2}%")
}

fn pixels(length: f64) -> String {
    ((length * 10.0).round() / 10.0).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_has_all_values_and_round_ends() {
        let places = |values: &[f64]| {
            let scale = Scale::linear(values.iter().copied());
            values
                .iter()
                .map(|value| scale.place(*value).round())
                .collect::<Vec<_>>()
        };
        assert_eq!(places(&[0.0, 30.0, 100.0]), [0.0, 30.0, 100.0]);
        assert_eq!(places(&[75.0]), [94.0], "the scale ends at 80");
        assert_eq!(places(&[-50.0, 50.0]), [0.0, 100.0]);
        assert_eq!(places(&[0.0]), [0.0]);
        assert_eq!(places(&[f64::NAN, 1.0])[1], 100.0);
        assert_eq!(
            places(&[f64::NEG_INFINITY, 1.0, f64::INFINITY]),
            [0.0, 100.0, 100.0]
        );
        for values in [&[][..], &[0.0, -1.0], &[1.0, 1000.0], &[5.0, 5.0]] {
            let values = || values.iter().copied();
            for scale in [Scale::decades(values()), Scale::fitted(values())] {
                let mut m = Markup::default();
                scale.draw(&mut m);
                let markup = m.finish();
                assert!(
                    markup.contains("<text") && !markup.contains("NaN"),
                    "{markup}"
                );
            }
        }
    }

    #[test]
    fn a_bar_is_as_long_as_its_median() {
        let mut m = Markup::default();
        let scale = Scale::linear([200.0].into_iter());
        let estimate = Estimate {
            median: 50.0,
            low: 40.0,
            high: 60.0,
            count: 2,
        };
        bar(
            &mut m,
            &scale,
            &estimate,
            &[(44.0, true), (100.0, false)],
            2,
        );
        let markup = m.finish();
        for expected in [
            r#"<rect class="value c2" x="0.00%" width="25.00%""#,
            r#"<line class="whisker" x1="20.00%" x2="30.00%""#,
            r#"<circle class="run" cx="22.00%""#,
            r#"<circle class="run flagged" cx="50.00%""#,
        ] {
            assert!(markup.contains(expected), "{expected} in {markup}");
        }
    }

    #[test]
    fn a_document_has_its_lines_and_no_nonsense() {
        let mut chart = Lines::new("x", "x", "y");
        assert_eq!(chart.document(), None);
        for point in [(80_000.0, 30.0), (1.0, 10.0), (1.0, 20.0)] {
            chart.add("a < b", point);
        }
        let svg = chart.document().unwrap();
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<circle").count(), 2);
        // From the lower left to the upper right, with space around, and a sample in the legend.
        assert_eq!(svg.matches(r#"<line class="c0""#).count(), 2, "{svg}");
        let line = r#"<line class="c0" x1="3.70%" x2="96.30%" y1="317.8" y2="12.2"/>"#;
        assert!(svg.contains(line), "{svg}");
        chart.add("another", (1.0, 0.0));
        assert_eq!(chart.document(), None);
    }
}
