//! Rows that are run in a guest with emulated network cards.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use packtrain_measure::document::Fields;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::file::GuestSpec;
use super::known::{INSTRUCTIONS, PULLS};
use super::matrix::{Place, Setup};
use crate::cards::address;
use crate::error::ToolError;
use crate::guest::{Bound, Card, FarSide, Guest, GuestConfig, Kernel, started};
use crate::testbed::{PULLED, Through};
use crate::threads::{join, spawn};
use crate::tool::{Control, DISTURBED, INTERRUPTED, Measured};
use crate::units::Time;

/// Memory of a guest: its root has the program, and packtrain's frames are locked in it.
const MEMORY_MIB: u32 = 1024;
/// Of the guest's folders the one for files that the host writes.
const FILE: &str = "/run/row.toml";

/// The guest in which the rows of an experiment are run, one after the other, by the program that
/// runs here: it is booted for the first of them, and again if an experiment needs another one.
#[derive(Debug, Default)]
pub struct Guests {
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    guest: Guest,
    spec: Arc<GuestSpec>,
    /// The driver of each card.
    bound: Vec<Bound>,
}

/// What the program in a guest prints of a run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Printed {
    /// The settings in force.
    pub settings: Fields,
    /// What was measured.
    pub figures: Fields,
    /// Why no verdict may rest on it.
    pub flags: Vec<String>,
}

impl Guests {
    /// One run, in a guest if the setup is for one.
    ///
    /// # Errors
    /// As [`Setup::run`]; [`ToolError::Missing`] if there is no QEMU or no kernel for a guest.
    pub fn run(&mut self, setup: &Setup, control: &Control<'_>) -> Result<Measured, ToolError> {
        let Some(place) = &setup.place else {
            return setup.run(control);
        };
        let outcome = self.run_there(setup, place, control);
        // It may hang or have ended, and the next row shall not.
        if matches!(outcome, Err(ToolError::Failed(_))) {
            self.running = None;
            if control.stopped() {
                return Err(ToolError::Cancelled);
            }
        }
        outcome
    }

    fn run_there(
        &mut self,
        setup: &Setup,
        place: &Place,
        control: &Control<'_>,
    ) -> Result<Measured, ToolError> {
        let running = match self.running.take() {
            Some(running) if running.spec == place.guest => running,
            _ => {
                (control.progress)("booting a guest");
                Running::boot(&place.guest, control)?
            }
        };
        self.running.insert(running).run(setup, place, control)
    }
}

impl Running {
    fn boot(spec: &Arc<GuestSpec>, control: &Control<'_>) -> Result<Self, ToolError> {
        // What cannot be installed by itself first.
        crate::guest::need_programs()?;
        let mut config = GuestConfig::new(Kernel::open(Kernel::folder()?)?);
        config.packtrain = Some(started());
        config.cpus = spec.cpus;
        config.memory_mib = MEMORY_MIB;
        config.icount = spec.icount.then_some(0);
        config.stop = Arc::clone(&control.stop);
        let cables = spec.cards.iter().zip((0..).flat_map(|cable| [cable; 2]));
        let cards = cables.map(|(model, cable)| Card::new(*model, FarSide::Hub(cable), BOOTED));
        config.cards = cards.collect();
        let guest = Guest::start(config)?;
        // For rows with a TAP or a bridge; such a row says so if there is none.
        guest.run("modprobe tun; modprobe bridge")?;
        Ok(Self {
            guest,
            spec: Arc::clone(spec),
            bound: vec![BOOTED; spec.cards.len()],
        })
    }

    fn run(
        &mut self,
        setup: &Setup,
        place: &Place,
        control: &Control<'_>,
    ) -> Result<Measured, ToolError> {
        self.bind(setup)?;
        let pull = self.pull_of(setup)?;
        let Self { guest, spec, .. } = &*self;
        let Place { text, .. } = place;
        guest.check(&format!("cat >{FILE} <<'END'\n{text}\nEND"))?;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let line = format!("exec packtrain experiment {FILE} --once");
        let run = || guest.stream(&line, &mut out, &mut err, &control.stop);
        let (status, pulls) = beside_pulls(guest, pull, run)?;
        let (status, pulls) = (status?, pulls.transpose()?);
        let faults = guest.iommu_faults()?;
        if !faults.is_empty() {
            let faults = faults.join("; ");
            return Err(ToolError::Check(format!(
                "the IOMMU stopped accesses of a card to memory: {faults}"
            )));
        }
        if status != 0 {
            let said = String::from_utf8_lossy(&err).trim().to_owned();
            let line = format!("in the guest: {said}");
            // The exit codes of the program.
            return Err(match status {
                _ if control.stopped() => ToolError::Cancelled,
                1 => ToolError::Check(line),
                2 => ToolError::Usage(line),
                3 => ToolError::Missing(line),
                _ => ToolError::Failed(line),
            });
        }
        let printed: Printed = serde_json::from_slice(&out).map_err(|error| {
            let out = String::from_utf8_lossy(&out);
            ToolError::Failed(format!("the program in the guest printed {out:?}: {error}"))
        })?;
        let Printed {
            mut settings,
            mut figures,
            mut flags,
        } = printed;
        // Its clock counts them, as long as one of its CPUs has something to do.
        let seconds = figures.get("seconds").and_then(Value::as_f64);
        if let Some(seconds) = seconds.filter(|_| spec.icount) {
            figures.insert(INSTRUCTIONS.to_owned(), json!((seconds * 1e9).round()));
        }
        // What is not packtrain's there is its kernel, whose interrupts find an idle CPU.
        flags.retain(|flag| !spec.icount || !flag.starts_with(DISTURBED));
        settings.insert("where".to_owned(), "guest".into());
        settings.insert("guest_cpus".to_owned(), json!(spec.cpus));
        settings.insert("guest_icount".to_owned(), json!(spec.icount));
        figures.extend(pulls.map(|pulls| (PULLS.to_owned(), json!(pulls))));
        if control.stopped() {
            flags.push(INTERRUPTED.to_owned());
        }
        Ok(Measured {
            settings,
            figures,
            flags,
            ..Measured::default()
        })
    }

    /// The card whose cable is pulled, and how long it is plugged in before.
    fn pull_of(&self, setup: &Setup) -> Result<Option<(usize, Duration)>, ToolError> {
        let Some(Time(every)) = setup.testbed.pull else {
            return Ok(None);
        };
        let port = address(&setup.testbed.b);
        let mut numbers = 0..self.spec.cards.len();
        let found = numbers.find(|number| port == Some(&*self.guest.address(*number)));
        let card = found.ok_or_else(|| {
            let line = "pull is for a card as port B: write b as in e1000e:0000:03:00.0";
            ToolError::Usage(line.to_owned())
        })?;
        Ok(Some((card, every)))
    }

    /// Gives packtrain the cards that a row names as ports, and the kernel all others.
    fn bind(&mut self, setup: &Setup) -> Result<(), ToolError> {
        let testbed = &setup.testbed;
        let is_packtrain = testbed.through == Through::Packtrain;
        let ports = [&*testbed.a, &*testbed.b].map(address);
        let hosts = [testbed.host_a.as_deref(), testbed.host_b.as_deref()];
        for (number, model) in self.spec.cards.iter().enumerate() {
            let here = self.guest.address(number);
            let here = Some(here.as_str());
            let is_port = is_packtrain && ports.contains(&here) && !hosts.contains(&here);
            let bound = if is_port { Bound::Vfio } else { Bound::Kernel };
            if self.bound[number] != bound {
                self.guest.bind(number, *model, bound)?;
                self.bound[number] = bound;
            }
        }
        Ok(())
    }
}

/// Runs `act`, and pulls the cable of a card meanwhile, if one is given. Returns how often it was
/// pulled, too.
fn beside_pulls<T>(
    guest: &Guest,
    pull: Option<(usize, Duration)>,
    act: impl FnOnce() -> T,
) -> Result<(T, Option<Result<u64, ToolError>>), ToolError> {
    thread::scope(|scope| {
        // Dropped also if `act` panics, which ends the thread.
        let (end, ended) = channel::<()>();
        let pulling = pull.map(|(card, every)| {
            spawn(scope, move || {
                pull_again_and_again(guest, card, every, &ended)
            })
        });
        let pulling = pulling.transpose()?;
        let result = act();
        drop(end);
        Ok((result, pulling.map(join)))
    })
}

/// Pulls the cable of a card each time that it was plugged in for `every`, until `ended` is closed,
/// and leaves it plugged in. Returns how often it was pulled.
fn pull_again_and_again(
    guest: &Guest,
    card: usize,
    every: Duration,
    ended: &Receiver<()>,
) -> Result<u64, ToolError> {
    let mut pulls = 0;
    while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        guest.set_link(card, false)?;
        pulls += 1;
        // The next wait ends at once if the run has ended meanwhile.
        thread::sleep(PULLED);
        guest.set_link(card, true)?;
    }
    Ok(pulls)
}

/// The driver of a card after the boot.
const BOOTED: Bound = Bound::Kernel;
