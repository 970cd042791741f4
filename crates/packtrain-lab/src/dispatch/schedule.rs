//! What is measured, and in which order.

use super::load::Load;
use packtrain::engine::Settings;
use packtrain::policy::dispatch::Dispatch;
use packtrain::policy::idle::Idle;
use packtrain::policy::placement::Placement;
use packtrain_bench::random::{Random, mix};
use std::fmt;
use std::str::FromStr;

/// The port that packets go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortKind {
    /// A NIC in memory: descriptors, doorbells, completions; nobody at the far end.
    Sim,
    /// A sink that takes everything: the framework alone.
    Null,
    /// A TAP in a namespace of its own: a system call and the kernel's receive path for each
    /// packet.
    Tap,
}

impl PortKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sim, Self::Null, Self::Tap];
}

impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sim => "sim",
            Self::Null => "null",
            Self::Tap => "tap",
        })
    }
}

impl FromStr for PortKind {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let kind = text.strip_suffix(':').unwrap_or(text);
        let found = Self::ALL.into_iter().find(|one| one.to_string() == kind);
        found.ok_or("write sim, null or tap")
    }
}

/// One situation in which all settings are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    /// Where packets go.
    pub port: PortKind,
    /// Threads that send.
    pub producers: usize,
    /// Bytes of each frame, Ethernet header included, no FCS.
    pub frame_bytes: usize,
    /// How much they send.
    pub load: Load,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.producers == 1 { "" } else { "s" };
        write!(
            f,
            "{}:, {} producer{s}, {} bytes, {}",
            self.port, self.producers, self.frame_bytes, self.load
        )
    }
}

/// What is to be combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Ports.
    pub ports: Vec<PortKind>,
    /// Numbers of producers.
    pub producers: Vec<usize>,
    /// Bytes of frames.
    pub frames: Vec<usize>,
    /// Loads.
    pub loads: Vec<Load>,
    /// Every combination. Otherwise the first number of producers and the first size have every
    /// load, and each other one saturation and the load in the middle, but for what is `asked`.
    pub all: bool,
    /// What was asked for by name.
    pub asked: Asked,
}

/// Of what the values were asked for, and are not only the usual ones: nobody who names one expects
/// that it is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Numbers of producers.
    pub producers: bool,
    /// Sizes of frames.
    pub frames: bool,
    /// Loads.
    pub loads: bool,
}

impl Grid {
    /// The cells of `port`.
    #[must_use]
    pub fn cells(&self, port: PortKind) -> Vec<Cell> {
        let mut cells = Vec::new();
        let asked = self.asked;
        for (p, &producers) in self.producers.iter().enumerate() {
            for (f, &frame_bytes) in self.frames.iter().enumerate() {
                for &load in &self.loads {
                    let is_pair = p == 0 || f == 0 || (asked.producers && asked.frames);
                    let is_first = (p, f) == (0, 0);
                    let has_load = is_first || asked.loads || self.is_typical(load);
                    if self.all || (is_pair && has_load) {
                        cells.push(Cell {
                            port,
                            producers,
                            frame_bytes,
                            load,
                        });
                    }
                }
            }
        }
        cells
    }

    /// Saturation, and the middle one of the paced loads.
    fn is_typical(&self, load: Load) -> bool {
        let mut paced: Vec<_> = self.loads.iter().filter(|load| load.is_paced()).collect();
        paced.sort();
        load == Load::Saturation || paced.get(paced.len() / 2) == Some(&&load)
    }
}

/// The fixed settings, and last the adaptive one. `placements` are those that differ here.
#[must_use]
pub fn settings(thresholds: &[u32], placements: &[Placement]) -> Vec<Settings> {
    let fixed = [Dispatch::Direct, Dispatch::Deferred, Dispatch::Abdicate];
    let thresholds = thresholds.iter().copied().map(Dispatch::Threshold);
    let mut all = Vec::new();
    for dispatch in fixed.into_iter().chain(thresholds) {
        for idle in [Idle::Halt, Idle::Poll] {
            for placement in placements {
                all.push(Settings {
                    dispatch,
                    idle,
                    placement: placement.clone(),
                    // Nothing is received here. Who halts goes ahead of others and who polls does
                    // not, as by default.
                    ..Settings::default()
                });
            }
        }
    }
    all.push(adaptive());
    all
}

/// The plainest of the fixed settings: direct dispatch with a worker that sleeps, wherever it is.
/// By what it takes, the capacity of a port is known.
#[must_use]
pub fn plain() -> Settings {
    Settings {
        dispatch: Dispatch::Direct,
        idle: Idle::Halt,
        placement: Placement::None,
        ..Settings::default()
    }
}

/// What nobody has to choose.
#[must_use]
pub fn adaptive() -> Settings {
    Settings {
        dispatch: Dispatch::Adaptive,
        idle: Idle::Adaptive,
        placement: Placement::Auto,
        ..Settings::default()
    }
}

/// A setting as it runs in a cell, whose producers want a core each: to bind the worker where it
/// displaces one is what S1 warns of.
#[must_use]
pub fn in_cell(settings: &Settings, cell: &Cell) -> Settings {
    Settings {
        senders: cell.producers,
        ..settings.clone()
    }
}

/// The order in which the settings of a cell run in one repeat: another one each time, so that what
/// one leaves behind, and what else the machine does, meets all of them.
#[must_use]
pub fn order(seed: u64, repeat: usize, cell: usize, settings: usize) -> Vec<usize> {
    let mut random = Random::new(mix(mix(seed ^ mix(repeat as u64)) ^ cell as u64));
    let mut order: Vec<usize> = (0..settings).collect();
    random.shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn grid() -> Grid {
        Grid {
            ports: vec![PortKind::Null],
            producers: vec![1, 2, 4],
            frames: vec![64, 1514],
            loads: ["trickle", "50%", "75%", "saturation", "bulk"]
                .map(|text| text.parse().unwrap())
                .to_vec(),
            all: false,
            asked: Asked::default(),
        }
    }

    #[test]
    fn what_is_asked_for_by_name_is_never_left_out() {
        let cells = |producers, frames, loads| {
            let asked = Asked {
                producers,
                frames,
                loads,
            };
            Grid { asked, ..grid() }.cells(PortKind::Null)
        };
        // Each load that was asked for, wherever there is a load at all.
        let loads = cells(false, false, true);
        assert_eq!(loads.len(), (3 + 1) * 5);
        // Each pair of what was asked for, with the usual loads.
        assert_eq!(cells(true, true, false).len(), 5 + 5 * 2);
        // Where the sizes are only the usual ones, no producers are left out for it.
        let producers: HashSet<_> = cells(true, false, false)
            .iter()
            .map(|c| c.producers)
            .collect();
        assert_eq!(producers.len(), 3);
        let every = Grid {
            all: true,
            ..grid()
        };
        assert_eq!(cells(true, true, true), every.cells(PortKind::Null));
    }

    #[test]
    fn the_first_of_each_has_every_load_and_the_others_the_typical_ones() {
        let cells = grid().cells(PortKind::Null);
        assert_eq!(cells.len(), 5 + 3 * 2);
        for cell in &cells {
            let typical = [Load::Saturation, Load::Percent(50)].contains(&cell.load);
            let base = cell.producers == 1 && cell.frame_bytes == 64;
            assert!(base || typical, "{cell}");
            assert!(cell.producers == 1 || cell.frame_bytes == 64, "{cell}");
        }
        let different: HashSet<_> = cells.iter().collect();
        assert_eq!(different.len(), cells.len());
    }

    #[test]
    fn all_is_every_combination() {
        let grid = Grid {
            all: true,
            ..grid()
        };
        assert_eq!(grid.cells(PortKind::Tap).len(), 3 * 2 * 5);
    }

    #[test]
    fn every_fixed_setting_is_there_once_and_the_adaptive_one_is_last() {
        let list = Placement::List("0".parse().unwrap());
        let all = settings(&[8, 32], &[Placement::None, Placement::Auto, list]);
        assert_eq!(all.len(), 5 * 2 * 3 + 1);
        assert_eq!(all.last(), Some(&adaptive()));
        assert!(all.contains(&plain()));
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one));
        }
    }

    #[test]
    fn placement_is_told_of_the_producers_of_each_cell() {
        for cell in grid().cells(PortKind::Null) {
            for settings in settings(&[8], &[Placement::None, Placement::Auto]) {
                let told = in_cell(&settings, &cell);
                assert_eq!(told.senders, cell.producers, "{cell}");
                assert_eq!(Settings { senders: 0, ..told }, settings);
            }
        }
    }

    #[test]
    fn an_order_is_all_settings_and_another_one_each_time() {
        let mut seen = HashSet::new();
        for (repeat, cell) in (0..4).flat_map(|repeat| (0..4).map(move |cell| (repeat, cell))) {
            let order = order(7, repeat, cell, 21);
            assert_eq!(order, super::order(7, repeat, cell, 21));
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..21));
            assert!(seen.insert(order), "{repeat} {cell}");
        }
    }

    #[test]
    fn loads_and_ports_are_read_as_they_are_written() {
        for load in grid().loads {
            assert_eq!(load.to_string().parse(), Ok(load));
        }
        for text in ["", "%", "0%", "100%", "x", "1.5%", "-1%"] {
            assert!(text.parse::<Load>().is_err(), "{text}");
        }
        for port in PortKind::ALL {
            assert_eq!(port.to_string().parse(), Ok(port));
            assert_eq!(format!("{port}:").parse(), Ok(port));
        }
        assert!("packet".parse::<PortKind>().is_err());
    }
}
