//! Two or more port specs from the command line, opened and planned.

use crate::exit::{Exit, Failure};
use crate::guard::Guard;
use crate::{fifo, print};
use packtrain::driver::{Input, Port};
use packtrain::engine::Settings;
use packtrain::file;
use packtrain::limits::PORTS_MAX;
use packtrain::name::Name;
use packtrain::plan::{Demand, Plan, Side, plan, plan_among};
use packtrain::port::spec::{PortKind, PortSpec, SpecError};
use packtrain::port::{AnyPort, OpenErrorKind, open_all};
use packtrain::runtime::{Runtime, System};
use packtrain_lab::in_force::InForce;
use packtrain_lab::options::PolicyOptions;
use packtrain_offload::offload::LinkType;
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// The keys of a port that are not at their default, and their values.
pub type PortKeys = Vec<(&'static str, String)>;

/// Two or more ports, open but not attached, and how they would be joined.
#[derive(Debug)]
pub struct Joint {
    /// The ports.
    pub ports: Vec<Port<AnyPort>>,
    /// Their capabilities and requested settings. The names are distinct, and all output uses them.
    pub sides: Vec<Side>,
    /// Of each port, as in [`PortSpec::keys`].
    pub keys: Vec<PortKeys>,
    /// The plan.
    pub plan: Plan,
    /// Whether a port is an interface of the kernel.
    pub has_interface: bool,
    /// Whether a port may be opened again during the run (`gone=wait`).
    pub waits: bool,
    /// Whether the kernel pins the memory of packets for a device.
    pub pins_memory: bool,
    /// Removes the files of sockets if the program is killed. It ends when it is dropped, so it is
    /// kept longer than the ports.
    _guard: Guard,
}

impl Joint {
    /// Opens the ports of these specs and plans them, as [`packtrain::engine::Session`] will with
    /// these settings: two between each other, more among each other. Waits for `time_max` until
    /// each FIFO that is written has a reader. Says so, unless `is_quiet`. Other programs may open
    /// the FIFOs in any order.
    ///
    /// # Errors
    ///
    /// One line for a wrong spec, a port that cannot be opened, or two that cannot be joined.
    pub fn open(
        ports: &[&str],
        settings: &Settings,
        time_max: Option<Duration>,
        is_quiet: bool,
    ) -> Result<Self, Failure> {
        // All are parsed before any is opened, so that a typo makes no interface.
        let specs = parse_all(ports)?;
        check_twice(&specs)?;
        // An input that does not exist is reported at once, not after the wait.
        for spec in &specs {
            if files(spec).any(|(path, writes)| !writes && !path.exists()) {
                open(std::slice::from_ref(spec))?;
            }
        }
        let (opened, planned) = (specs.clone(), settings.clone());
        let join = move || Self::join(&opened, &opened, &planned);
        // The port of a FIFO that is read opens once its header is there. The program that writes
        // the header may read the other FIFOs, and open them first.
        let is_read_pipe = |(path, writes): (&Path, bool)| !writes && fifo::is_pipe(path);
        let opener = specs.iter().flat_map(files).any(is_read_pipe);
        let opener = opener.then(|| Builder::new().spawn(join.clone()));
        let opener = opener
            .transpose()
            .map_err(|error| Failure::of_thread(&error))?;
        let written = specs.iter().flat_map(files).filter(|(_, writes)| *writes);
        let written = written.map(|(path, _)| path);
        let readers = fifo::wait_for_readers(written, time_max, is_quiet, || {
            opener.as_ref().is_some_and(JoinHandle::is_finished)
        })?;
        let joined = match opener {
            Some(opener) => opener.join().unwrap_or_else(|panic| resume_unwind(panic)),
            None => join(),
        };
        drop(readers);
        joined
    }

    /// As [`Joint::open`], but creates and empties no file.
    ///
    /// # Errors
    ///
    /// As [`Joint::open`].
    pub fn look(ports: &[&str], settings: &Settings) -> Result<Self, Failure> {
        let specs = parse_all(ports)?;
        check_twice(&specs)?;
        let harmless: Vec<_> = specs.iter().cloned().map(without_writing).collect();
        Self::join(&specs, &harmless, settings)
    }

    /// Opens the ports of `opened`, and names them after `specs`.
    fn join(specs: &[PortSpec], opened: &[PortSpec], settings: &Settings) -> Result<Self, Failure> {
        let ports = open(opened)?;
        let front_ends = ports.iter().filter_map(|port| port.driver.vhost());
        let guard = Guard::of(front_ends.filter_map(|watch| watch.socket_file().cloned()));
        for spec in opened {
            if matches!(&spec.kind, PortKind::Pcap(pcap) if pcap.write) {
                print::keep_from(Path::new(&spec.name));
            }
            if let Some(path) = &spec.wrappers.capture {
                print::keep_from(path);
            }
        }
        let sides = ports.iter().zip(specs);
        let mut sides: Vec<_> = sides.map(|(port, spec)| side(port, spec)).collect();
        name_apart(&mut sides, specs);
        let plan = match &*sides {
            [a, b] => plan(a, b),
            sides => plan_among(sides),
        };
        let plan = plan.map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
        if let Some(side) = sides.first().filter(|_| plan.among)
            && side.capabilities.link != LinkType::Ethernet
        {
            let line = format!(
                "three and more ports are a bridge, and packets from {} have no Ethernet \
                 addresses; name two ports, or Ethernet ports (tap:, link=ethernet)",
                side.name
            );
            return Err(Failure::new(Exit::Usage, line));
        }
        let plan = plan.working(&Demand {
            dispatch: settings.dispatch,
            cpus: System::new().machine().cpus,
            // The program has no application senders.
            senders: [0; PORTS_MAX],
        });
        let is_interface =
            |spec: &PortSpec| matches!(spec.kind, PortKind::Tap(_) | PortKind::Tun(_));
        Ok(Self {
            ports,
            sides,
            keys: specs.iter().map(PortSpec::keys).collect(),
            plan,
            pins_memory: specs.iter().any(|spec| spec.kind.pins_memory()),
            has_interface: specs.iter().any(is_interface),
            waits: specs.iter().any(|spec| spec.kind.waits()),
            _guard: guard,
        })
    }

    /// The settings that would be in force with these options.
    pub fn in_force(&self, options: &PolicyOptions) -> InForce {
        let settings = options.settings();
        let placed = settings.place(&System::new(), self.plan.workers.len(), 0);
        let mut in_force = InForce::of(&self.sides, &self.plan, &settings, options, &placed);
        for (port, keys) in in_force.settings.ports.values_mut().zip(&self.keys) {
            let keys = keys.iter().map(|(name, value)| match &**value {
                "" => (*name, Value::Bool(true)),
                value => (*name, value.into()),
            });
            port.keys = keys.collect();
        }
        in_force
    }

    /// Whether no port has any input, as a sink joined to a file that is written.
    pub fn has_no_input(&self) -> bool {
        let input = |side: &Side| side.capabilities.input;
        self.sides.iter().all(|side| input(side) == Input::None)
    }

    /// The names.
    pub fn names(&self) -> Vec<Name> {
        self.sides.iter().map(|side| side.name.clone()).collect()
    }
}

/// Gives ports of one name names of their own, by their kind and place.
fn name_apart(sides: &mut [Side], specs: &[PortSpec]) {
    let twice =
        |sides: &[Side], name: &Name| sides.iter().filter(|side| side.name == *name).count() > 1;
    let renamed = |index: usize| format!("{}{index}", specs[index].kind.name());
    let same = (0..sides.len()).filter(|&index| twice(sides, &sides[index].name));
    let same: Vec<_> = same.collect();
    for index in same {
        sides[index].name = renamed(index).into();
    }
    // A further port may have one of those names.
    if sides.iter().any(|side| twice(sides, &side.name)) {
        for (index, side) in sides.iter_mut().enumerate() {
            side.name = renamed(index).into();
        }
    }
}

fn parse_all(ports: &[&str]) -> Result<Vec<PortSpec>, Failure> {
    if ports.len() > PORTS_MAX {
        let line = format!(
            "{} ports are too many: a bridge has {PORTS_MAX} at most",
            ports.len()
        );
        return Err(Failure::new(Exit::Usage, line));
    }
    let specs = ports.iter().enumerate();
    let specs = specs.map(|(index, text)| parse(index, text));
    let specs: Vec<_> = specs.collect::<Result<_, _>>()?;
    if let ([_, _], Some(most)) = (&*specs, specs.iter().find_map(|spec| spec.config.addresses)) {
        let line = format!(
            "addresses={most} is for three and more ports: two pass everything on, whatever its \
             address; leave it out, or name a further port"
        );
        return Err(Failure::new(Exit::Usage, line));
    }
    Ok(specs)
}

fn parse(index: usize, text: &str) -> Result<PortSpec, Failure> {
    text.parse().map_err(|error: SpecError| {
        // A letter or a number names the port, since several may have the key.
        let letter = ('A'..='Z').nth(index);
        let which = letter.map_or_else(|| (index + 1).to_string(), String::from);
        Failure::new(Exit::Usage, format!("port {which}: {error}"))
    })
}

fn open(specs: &[PortSpec]) -> Result<Vec<Port<AnyPort>>, Failure> {
    open_all(specs).map_err(|error| {
        let exit = match error.kind() {
            OpenErrorKind::Privilege => Exit::Privilege,
            OpenErrorKind::Usage => Exit::Usage,
            OpenErrorKind::Open => Exit::Port,
        };
        Failure::new(exit, error.to_string())
    })
}

/// The file that a port writes its packets to.
fn written_file(spec: &PortSpec) -> Option<&Path> {
    match &spec.kind {
        PortKind::Pcap(options) if options.write => Some(Path::new(&spec.name)),
        _ => None,
    }
}

/// Refuses a file that is written and named a second time, since writing empties it, and an
/// interface that is joined to itself.
fn check_twice(specs: &[PortSpec]) -> Result<(), Failure> {
    let refuse = |line: String| Err(Failure::new(Exit::Usage, line));
    let files: Vec<_> = specs.iter().flat_map(files).collect();
    for (index, (path, written)) in files.iter().enumerate() {
        let name = Name::from(path);
        for (other, writes) in &files[index + 1..] {
            // The packets of two writers would be mixed.
            if *written && *writes && path == other && fifo::is_pipe(path) {
                return refuse(format!("{name} is written twice; name another file"));
            }
            if !(*written || *writes) || place(path).is_none() || place(path) != place(other) {
                continue;
            }
            return refuse(format!(
                "{name} is named twice, and writing empties it; name another file"
            ));
        }
    }
    let interface = |spec: &PortSpec| match &spec.kind {
        PortKind::Tap(options) | PortKind::Tun(options) if options.fds.is_empty() => {
            Some(spec.name.clone())
        }
        _ => None,
    };
    let mut interfaces: Vec<_> = specs.iter().filter_map(interface).collect();
    interfaces.sort_unstable();
    let both = if specs.len() == 2 { "both" } else { "two" };
    match interfaces.windows(2).find(|pair| pair[0] == pair[1]) {
        Some([name, _]) => refuse(format!(
            "{both} ports are the interface {name}; name two different interfaces"
        )),
        _ => Ok(()),
    }
}

/// The files of a port, and whether it writes them.
fn files<'a>(spec: &'a PortSpec) -> impl Iterator<Item = (&'a Path, bool)> {
    let capture = spec.wrappers.capture.as_deref();
    let named = |path: &'a Path| path.to_str().map_or(path, |name| file::named(name, true));
    let capture = capture.map(|path| (named(path), true));
    let own = match &spec.kind {
        PortKind::Pcap(options) => Some((file::named(&spec.name, options.write), options.write)),
        _ => None,
    };
    own.into_iter().chain(capture)
}

/// Where a file is or would be. `None` for devices, pipes and the like, which may be opened twice.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    There(u64, u64),
    Missing(PathBuf),
}

fn place(path: &Path) -> Option<Place> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Some(Place::There(metadata.dev(), metadata.ino())),
        Ok(_) => None,
        Err(_) => {
            let folder = match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder,
                _ => Path::new("."),
            };
            let folder = std::fs::canonicalize(folder).ok()?;
            Some(Place::Missing(folder.join(path.file_name()?)))
        }
    }
}

/// The same port, writing to `/dev/null`.
fn without_writing(mut spec: PortSpec) -> PortSpec {
    const NOWHERE: &str = "/dev/null";
    if written_file(&spec).is_some() {
        spec.name = NOWHERE.to_owned();
    }
    if let Some(capture) = &mut spec.wrappers.capture {
        *capture = NOWHERE.into();
    }
    spec
}

fn side(port: &Port<AnyPort>, spec: &PortSpec) -> Side {
    let mut side = Side::of(&port.driver, port.config);
    // `look` opens another file than the spec names.
    if let Some(file) = written_file(spec).and_then(Path::file_name) {
        side.name = file.into();
    }
    side
}
