//! Network cards that QEMU emulates, for tests of their drivers: without a guest, without
//! privileges, some 100 ms after [`Card::start`].
//!
//! A machine of QEMU runs a BIOS that halts. The test reads and writes the registers of its cards
//! through QEMU's qtest socket, and its memory is the guest's ([`Bus::map`] plugs the memfd in as a
//! memory module), so that descriptors and frames are where the driver and the card both access
//! them. [`Qtest`] is one of these cards; a clone is the same card. Its netdev is in the hands of
//! the test ([`Net`]).
//!
//! Debian has the program in `qemu-system-x86`. It was tried with QEMU 7.2.
//!
//! # What differs from a card in a machine
//!
//! - A register access is a message to another process: a read takes tens of microseconds. A write
//!   is posted, as on a PCI bus: it may return before the card has it, and a read waits for the
//!   writes before.
//! - The timers of a card are real time.
//! - MSI and MSI-X are the card's writes to memory, as in a machine. Their address is a doorbell,
//!   whose device in QEMU signals the [`Interrupt`]; no interrupt controller is involved. At most
//!   64 vectors. QEMU keeps the descriptors of each [`Bus::connect`]: MSI with one vector can be
//!   connected 128 times.
//! - INTx is the line of the interrupt controller, which a thread of the test reads from the
//!   socket.
//! - There is no IOMMU. Memory that is mapped for one card is accessible to all cards of its
//!   machine. Accesses to other addresses do nothing, and [`Qtest::check_untouched`] reports them.
//! - A card without RX descriptors leaves frames where they are, instead of dropping them.
//! - [`Bus::reset`] is a reset of the bus behind the card's port, which has no other card.

mod function;
mod machine;
mod qmp;
mod sys;
mod wire;

use function::Function;
use machine::{Doorbell, Machine};
use packtrain::port::card::{Bus, Interrupt, InterruptKind, Memory};
use serde_json::{Map, Value, json};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use wire::Place;

/// Each has a line of its own for INTx.
const MOST_CARDS: usize = 4;

const INJECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time from one message of an 82574L to the next (its EITR: 65,535 times 256 ns). QEMU
/// ends by an assertion if messages are switched on or off meanwhile
/// (`e1000e_intrmgr_on_msix_throttling_timer`).
const THROTTLE_MAX: Duration = Duration::from_millis(17);

/// What a card is connected to.
#[derive(Debug, Default)]
pub enum Net {
    /// The test: [`Qtest::inject`] and [`Qtest::received`]. The frames have no virtio header, so
    /// that the card has to cut TSO packets by itself.
    #[default]
    Test,
    /// All cards of the machine with the same number.
    Hub(u32),
    /// A TAP, one descriptor a queue. If it has virtio headers (`IFF_VNET_HDR`), TSO packets of the
    /// card pass as they are.
    Tap(Vec<OwnedFd>),
}

/// A card of a machine that does not run yet.
#[derive(Debug)]
pub struct Card {
    model: String,
    net: Net,
}

impl Card {
    /// A model of QEMU, with properties as in its argument `-device`: `e1000e`, `vmxnet3`,
    /// `virtio-net-pci,packed=on,mac=52:54:00:00:00:01`.
    #[must_use]
    pub fn new(model: &str) -> Self {
        Self {
            model: model.to_owned(),
            net: Net::Test,
        }
    }

    /// Connects the card; [`Net::Test`] by default.
    #[must_use]
    pub fn net(mut self, net: Net) -> Self {
        self.net = net;
        self
    }

    /// Starts a machine with this card.
    ///
    /// # Errors
    ///
    /// Those of [`Qtest::start`].
    pub fn start(self) -> io::Result<Qtest> {
        let mut cards = Qtest::start(vec![self])?;
        cards.pop().ok_or_else(|| io::Error::other("no card"))
    }
}

/// A card of a running machine. QEMU ends when the last card of the machine is dropped, also when
/// the test is killed.
#[derive(Clone, Debug)]
pub struct Qtest(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: String,
    /// By which QEMU's monitor knows the card.
    id: String,
    function: Function,
    /// Where a message is an interrupt.
    doorbell: u64,
    interrupts: Mutex<Connected>,
    is_requested: AtomicBool,
    is_removed: AtomicBool,
    wire: Option<UnixDatagram>,
    machine: Arc<Machine>,
}

#[derive(Debug)]
struct Connected {
    doorbell: Doorbell,
    kind: Option<InterruptKind>,
    count: usize,
    /// The message of vector 0.
    first: u32,
}

impl Connected {
    fn set(&self, function: &Function, doorbell: u64) -> io::Result<()> {
        function.set_interrupts(self.kind, self.count, doorbell, self.first)
    }
}

impl Qtest {
    /// Whether QEMU can be started here.
    ///
    /// # Errors
    ///
    /// What is missing, and which package has it.
    pub fn available() -> io::Result<()> {
        let run = Command::new(machine::PROGRAM)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match run {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(io::Error::other(format!("{}: {status}", machine::PROGRAM))),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("{} (package qemu-system-x86): {error}", machine::PROGRAM),
            )),
        }
    }

    /// Starts a machine with these cards, at most 4, and returns them in their order.
    ///
    /// # Errors
    ///
    /// The system's, and what QEMU says: it is not installed, it has no such model.
    pub fn start(cards: Vec<Card>) -> io::Result<Vec<Self>> {
        let count = cards.len();
        if count > MOST_CARDS {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a machine has at most {MOST_CARDS} cards, not {count}"),
            ));
        }
        // A slot for each card, and then one for the device by which its interrupts arrive.
        let machine = Arc::new(Machine::start(2 * count)?);
        let cards = cards.into_iter().enumerate();
        cards
            .map(|(index, card)| {
                let plugged = Self::plug(&machine, [index, count + index], card);
                plugged.map_err(|error| machine.explain(&error))
            })
            .collect()
    }

    fn plug(machine: &Arc<Machine>, slots: [usize; 2], card: Card) -> io::Result<Self> {
        let [slot, doorbell_slot] = slots;
        let netdev = format!("net{slot}");
        let wire = connect(machine, &netdev, card.net)?;
        let id = format!("card{slot}");
        let mut properties = Map::new();
        let (model, rest) = card.model.split_once(',').unwrap_or((&card.model, ""));
        for property in rest.split(',').filter(|property| !property.is_empty()) {
            let (key, value) = property.split_once('=').unwrap_or((property, "on"));
            properties.insert(key.to_owned(), value.into());
        }
        let bus = format!("slot{slot}");
        let own = [
            ("driver", model),
            ("id", &id),
            ("bus", &bus),
            ("netdev", &netdev),
            // Firmware for a boot by network.
            ("romfile", ""),
        ];
        for (key, value) in own {
            properties.insert(key.to_owned(), value.into());
        }
        machine.qmp.run("device_add", &Value::Object(properties))?;
        let function = Function::new(Arc::clone(machine), slot)?;

        let doorbell = Doorbell::new(machine, &format!("doorbell{slot}"), doorbell_slot)?;
        let device = Function::new(Arc::clone(machine), doorbell_slot)?;
        let Some((Place::Memory(base), _)) = device.regions[0] else {
            return Err(io::Error::other("the doorbell has no memory"));
        };
        Ok(Self(Arc::new(Shared {
            name: format!("0000:{:02x}:00.0", slot + 1),
            id,
            function,
            doorbell: base + Doorbell::OFFSET,
            interrupts: Mutex::new(Connected {
                doorbell,
                kind: None,
                count: 0,
                first: 0,
            }),
            is_requested: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            wire,
            machine: Arc::clone(machine),
        })))
    }

    /// Sends a frame, without its FCS, to the card. If QEMU does not read it within 10 s, since the
    /// card has no descriptors, that is [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    ///
    /// That, and the system's.
    ///
    /// # Panics
    ///
    /// If the card is not connected to [`Net::Test`].
    pub fn inject(&self, frame: &[u8]) -> io::Result<()> {
        self.socket().send(frame)?;
        Ok(())
    }

    /// The next frame that the card has sent, if it comes within `wait`, which is at least 1 µs.
    ///
    /// # Errors
    ///
    /// The system's.
    ///
    /// # Panics
    ///
    /// If the card is not connected to [`Net::Test`].
    pub fn received(&self, wait: Duration) -> io::Result<Option<Vec<u8>>> {
        let mut frame = vec![0; 1 << 17];
        self.socket().set_read_timeout(Some(wait))?;
        match self.socket().recv(&mut frame) {
            Ok(bytes) => {
                frame.truncate(bytes);
                Ok(Some(frame))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The other end of the card's cable, a frame a datagram.
    ///
    /// # Panics
    ///
    /// If the card is not connected to [`Net::Test`].
    #[must_use]
    pub fn socket(&self) -> &UnixDatagram {
        let wire = self.0.wire.as_ref();
        wire.expect("the card is connected to the test")
    }

    /// Plugs the cable in, or pulls it. QEMU's 82574 negotiates for half a second afterwards.
    ///
    /// # Errors
    ///
    /// What QEMU says.
    pub fn set_link(&self, is_up: bool) -> io::Result<()> {
        self.monitor("set_link", &json!({"name": self.0.id, "up": is_up}))?;
        Ok(())
    }

    /// Asks for the card's removal, as a system does that wants to take it away: it works until
    /// [`unplug`](Self::unplug).
    ///
    /// # Errors
    ///
    /// What QEMU says.
    pub fn request_removal(&self) -> io::Result<()> {
        if !self.0.is_requested.swap(true, Ordering::SeqCst) {
            self.monitor("device_del", &json!({"id": self.0.id}))?;
        }
        Ok(())
    }

    /// Removes the card, whether that was requested or not: from now on its registers read as all
    /// ones.
    ///
    /// # Errors
    ///
    /// What QEMU says.
    pub fn unplug(&self) -> io::Result<()> {
        self.0.is_removed.store(true, Ordering::SeqCst);
        self.request_removal()?;
        self.0.function.set_power(false)
    }

    /// Whether the cards of the machine have accessed mapped memory only: the machine's own is
    /// unchanged, and QEMU has refused no access.
    ///
    /// # Errors
    ///
    /// Which access it was.
    pub fn check_untouched(&self) -> io::Result<()> {
        // After the writes that were posted.
        self.0.function.config(0)?;
        self.0.machine.check_untouched()
    }

    /// What QEMU has said on its standard error: also what a model thinks of its driver.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn complaints(&self) -> io::Result<String> {
        self.0.machine.errors()
    }

    /// Runs a command of QEMU's monitor (QMP), and returns its result.
    ///
    /// # Errors
    ///
    /// What QEMU says.
    pub fn monitor(&self, command: &str, arguments: &Value) -> io::Result<Value> {
        let result = self.0.machine.qmp.run(command, arguments);
        result.map_err(|error| self.0.machine.explain(&error))
    }

    fn removed(&self) -> bool {
        self.0.is_removed.load(Ordering::SeqCst)
    }

    fn place(&self, bar: usize, at: usize, width: usize) -> Place {
        let region = self.0.function.regions.get(bar).copied().flatten();
        let Some((place, bytes)) = region else {
            panic!("{} has no region {bar}", self.0.name);
        };
        assert!(
            at.is_multiple_of(width) && at + width <= bytes,
            "region {bar} of {} has {bytes} bytes: no register of {width} bytes is at {at:#x}",
            self.0.name
        );
        match place {
            Place::Memory(base) => Place::Memory(base + at as u64),
            Place::Port(base) => Place::Port(base + at as u16),
        }
    }

    fn read(&self, bar: usize, at: usize, width: usize) -> u32 {
        let place = self.place(bar, at, width);
        if self.removed() {
            return u32::MAX;
        }
        let value = self.expect(self.0.machine.wire.read(place, width));
        if self.removed() { u32::MAX } else { value }
    }

    fn write(&self, bar: usize, at: usize, width: usize, value: u32) {
        let place = self.place(bar, at, width);
        if !self.removed() {
            self.expect(self.0.machine.wire.write(place, width, value));
        }
    }

    /// Switches the interrupts off, and then these on. Meanwhile the card must raise none: its
    /// driver has masked or reset it.
    fn switch(&self, kind: InterruptKind, interrupts: &[Interrupt]) -> io::Result<()> {
        let shared = &self.0;
        let (function, wire) = (&shared.function, &shared.machine.wire);
        let mut connected = shared
            .interrupts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        thread::sleep(THROTTLE_MAX);
        // QEMU runs its timers before it does what follows this answer.
        function.config(0)?;
        function.set_interrupts(None, 0, 0, 0)?;
        if connected.kind == Some(InterruptKind::Intx) {
            wire.connect(function.line(), None)?;
        }
        let is_message = kind != InterruptKind::Intx && !interrupts.is_empty();
        let mut first = 0;
        if is_message {
            // QEMU has the others when it has the last one, which no card raises.
            let mut events = interrupts.to_vec();
            let last = Interrupt::new()?;
            events.push(last.clone());
            first = connected
                .doorbell
                .connect(kind == InterruptKind::Msi, &events)?;
            let word = first + interrupts.len() as u32;
            function.ring(shared.doorbell, word, &last)?;
        }
        if let (false, Some(line)) = (is_message, interrupts.first()) {
            wire.connect(function.line(), Some(line.clone()))?;
        }
        connected.kind = (!interrupts.is_empty()).then_some(kind);
        connected.count = interrupts.len();
        connected.first = first;
        connected.set(function, shared.doorbell)
    }

    /// The result of an access, which has no errors unless QEMU has ended.
    fn expect<T>(&self, result: io::Result<T>) -> T {
        result.unwrap_or_else(|error| {
            let error = self.0.machine.explain(&error);
            panic!("QEMU does not answer for {}: {error}", self.0.name)
        })
    }
}

/// Makes the netdev of a card, and returns the end of the test.
fn connect(machine: &Machine, id: &str, net: Net) -> io::Result<Option<UnixDatagram>> {
    let qmp = &machine.qmp;
    match net {
        Net::Test => {
            let (mine, theirs) = UnixDatagram::pair()?;
            mine.set_write_timeout(Some(INJECT_TIMEOUT))?;
            qmp.give(id, theirs.as_fd())?;
            let local = json!({"type": "fd", "str": id});
            qmp.run(
                "netdev_add",
                &json!({"type": "dgram", "id": id, "local": local}),
            )?;
            Ok(Some(mine))
        }
        Net::Hub(hub) => {
            qmp.run(
                "netdev_add",
                &json!({"type": "hubport", "id": id, "hubid": hub}),
            )?;
            Ok(None)
        }
        Net::Tap(queues) => {
            let mut names = Vec::new();
            for (queue, fd) in queues.iter().enumerate() {
                let name = format!("{id}-{queue}");
                qmp.give(&name, fd.as_fd())?;
                names.push(name);
            }
            let key = if names.len() == 1 { "fd" } else { "fds" };
            let mut options = json!({"type": "tap", "id": id});
            options[key] = names.join(":").into();
            qmp.run("netdev_add", &options)?;
            Ok(None)
        }
    }
}

impl Bus for Qtest {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn region(&self, bar: usize) -> usize {
        let region = self.0.function.regions.get(bar).copied().flatten();
        region.map_or(0, |(_, bytes)| bytes)
    }

    fn read8(&self, bar: usize, at: usize) -> u8 {
        self.read(bar, at, 1) as u8
    }

    fn read16(&self, bar: usize, at: usize) -> u16 {
        self.read(bar, at, 2) as u16
    }

    fn read32(&self, bar: usize, at: usize) -> u32 {
        self.read(bar, at, 4)
    }

    fn write8(&self, bar: usize, at: usize, value: u8) {
        self.write(bar, at, 1, value.into());
    }

    fn write16(&self, bar: usize, at: usize, value: u16) {
        self.write(bar, at, 2, value.into());
    }

    fn write32(&self, bar: usize, at: usize, value: u32) {
        self.write(bar, at, 4, value);
    }

    fn config(&self, at: usize) -> io::Result<u32> {
        if self.removed() {
            return Ok(u32::MAX);
        }
        self.0.function.config(at)
    }

    fn map(&self, memory: &Memory<'_>) -> io::Result<u64> {
        let mapped = self.0.machine.map(memory);
        mapped.map_err(|error| self.0.machine.explain(&error))
    }

    fn interrupts(&self, kind: InterruptKind) -> usize {
        if self.removed() {
            return 0;
        }
        self.expect(self.0.function.interrupts(kind))
    }

    fn connect(&self, kind: InterruptKind, interrupts: &[Interrupt]) -> io::Result<()> {
        if self.removed() {
            return Ok(());
        }
        if interrupts.len() > self.interrupts(kind) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{} has {} {kind:?} interrupts, not {}",
                    self.0.name,
                    self.interrupts(kind),
                    interrupts.len()
                ),
            ));
        }
        let connected = self.switch(kind, interrupts);
        connected.map_err(|error| self.0.machine.explain(&error))
    }

    fn unmask(&self) {
        if !self.removed() {
            let unmasked = self.0.machine.wire.unmask(self.0.function.line());
            self.expect(unmasked);
        }
    }

    fn reset(&self) -> io::Result<()> {
        if self.removed() {
            return Ok(());
        }
        let connected = self.0.interrupts.lock();
        let connected = connected.unwrap_or_else(PoisonError::into_inner);
        self.0.function.reset()?;
        connected.set(&self.0.function, self.0.doorbell)
    }

    fn start(&self, accesses_memory: bool) -> io::Result<()> {
        if self.removed() {
            return Ok(());
        }
        self.0.function.set_master(accesses_memory)
    }

    fn is_removed(&self) -> bool {
        self.0.is_requested.load(Ordering::SeqCst)
    }

    fn pause(&self, time: Duration) {
        thread::sleep(time);
    }
}
