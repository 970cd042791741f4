//! The process of QEMU, and what its cards share.

use super::qmp::{Qmp, send};
use super::sys;
use super::wire::Wire;
use packtrain::port::card::{Interrupt, Memory};
use rustix::fs::{MemfdFlags, fstat, memfd_create};
use serde_json::json;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(super) const PROGRAM: &str = "qemu-system-x86_64";

/// Kills QEMU when the test ends, also if it is killed: its end of the pipe is closed then.
const KEEPER: &str = r#""$@" & exec >/dev/null; read -r line; kill -KILL $!; wait"#;

/// The machine's own memory, which no card may access.
const RAM_BYTES: usize = 4 << 20;
const PATTERN: u8 = 0xa5;

/// Where memory of drivers is mapped: above 4 GiB, so that a driver which loses half of an address
/// is found, and each piece with a gap behind it.
const FIRST_ADDRESS: u64 = 8 << 30;
const GAP: u64 = 1 << 30;
const LAST_ADDRESS: u64 = 240 << 30;

/// How long QEMU may take to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Machine {
    child: Child,
    pub(super) qmp: Qmp,
    pub(super) wire: Arc<Wire>,
    ram: File,
    errors: File,
    /// The pieces that were mapped, and the address of the next one.
    next: Mutex<(usize, u64)>,
}

fn memory_file(name: &str, content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    Ok(file)
}

/// By which a child of this process opens a file.
fn path(fd: &impl AsRawFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd())
}

fn text(file: &File) -> io::Result<String> {
    // The offset is QEMU's, too.
    let mut text = Vec::new();
    let mut own = File::open(path(file))?;
    own.rewind()?;
    own.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A BIOS that disables interrupts and halts.
fn bios() -> Vec<u8> {
    let mut bios = vec![0xf4; 64 << 10];
    // cli; hlt; jmp to the hlt: at the reset vector.
    bios[0xfff0..0xfff4].copy_from_slice(&[0xfa, 0xf4, 0xeb, 0xfd]);
    bios
}

impl Machine {
    /// A machine with so many slots, each a PCI Express port in which a device can be plugged.
    pub(super) fn start(slots: usize) -> io::Result<Self> {
        let ram = memory_file("qtest-ram", &vec![PATTERN; RAM_BYTES])?;
        let bios = memory_file("qtest-bios", &bios())?;
        let errors = memory_file("qtest-stderr", &[])?;
        let (monitor, theirs) = UnixStream::pair()?;
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "sh", PROGRAM]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
        command.args(["-accel", "tcg", "-M", "q35,memory-backend=ram"]);
        command.args(["-m", &format!("{}M,slots=256,maxmem=256G", RAM_BYTES >> 20)]);
        command.args([
            "-object",
            &format!(
                "memory-backend-file,id=ram,size={RAM_BYTES},share=on,mem-path={}",
                path(&ram)
            ),
        ]);
        command.args(["-bios", &path(&bios)]);
        // An access of a card to an address that is not mapped is such an error.
        command.args(["-d", "guest_errors"]);
        // Slots are controlled by registers of their ports, without ACPI.
        command.args([
            "-global",
            "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off",
        ]);
        command.args(["-chardev", "socket,id=monitor,fd=1"]);
        command.args(["-mon", "chardev=monitor,mode=control"]);
        for slot in 0..slots {
            command.args([
                "-device",
                &format!(
                    "pcie-root-port,id=slot{slot},addr={:#x},chassis={slot},slot={slot}",
                    Self::port(slot)
                ),
            ]);
        }
        let child = command
            .stdin(Stdio::piped())
            .stdout(OwnedFd::from(theirs))
            .stderr(errors.try_clone()?)
            .spawn()?;
        drop(command);
        let mut reaped = Reaped(Some(child));
        monitor.set_read_timeout(Some(TIMEOUT))?;
        let built = || -> io::Result<(Qmp, Wire)> {
            let qmp = Qmp::new(monitor)?;
            let stream = socket(&qmp, "qtest")?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            qmp.run(
                "object-add",
                &json!({
                    "qom-type": "qtest", "id": "qtest", "chardev": "qtest", "log": "none",
                }),
            )?;
            Ok((qmp, Wire::new(stream)))
        };
        let (qmp, wire) = built().map_err(|error| with_errors(&error, &errors))?;
        Ok(Self {
            child: reaped.0.take().expect("not taken yet"),
            qmp,
            wire: Arc::new(wire),
            ram,
            errors,
            next: Mutex::new((0, FIRST_ADDRESS)),
        })
    }

    /// The device number of a slot's port on the root bus.
    pub(super) const fn port(slot: usize) -> usize {
        2 + slot
    }

    /// A character device of QEMU that is a socket, and its other end.
    pub(super) fn socket(&self, name: &str) -> io::Result<UnixStream> {
        socket(&self.qmp, name)
    }

    /// Maps memory, and returns its address for the cards.
    pub(super) fn map(&self, memory: &Memory<'_>) -> io::Result<u64> {
        let fd = sys::descriptor(memory);
        // That of a huge page where the memory has such.
        let page = fstat(fd)?.st_blksize as u64;
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, address) = *next;
        let end = address + memory.bytes() as u64;
        if end > LAST_ADDRESS {
            return Err(io::Error::other("the memory of QEMU's machine is full"));
        }
        self.qmp.run(
            "object-add",
            &json!({
                "qom-type": "memory-backend-file", "id": format!("memory{number}"),
                "size": memory.bytes(), "share": true, "align": page, "mem-path": path(&fd),
            }),
        )?;
        self.qmp.run(
            "device_add",
            &json!({
                "driver": "pc-dimm", "id": format!("dimm{number}"),
                "memdev": format!("memory{number}"), "addr": address,
            }),
        )?;
        *next = (number + 1, (end + GAP).next_multiple_of(GAP));
        Ok(address)
    }

    /// What QEMU has written to its standard error.
    pub(super) fn errors(&self) -> io::Result<String> {
        text(&self.errors)
    }

    /// An error with what QEMU says about it.
    pub(super) fn explain(&self, error: &io::Error) -> io::Error {
        with_errors(error, &self.errors)
    }

    /// See [`Qtest::check_untouched`](super::Qtest::check_untouched).
    pub(super) fn check_untouched(&self) -> io::Result<()> {
        let mut ram = Vec::with_capacity(RAM_BYTES);
        let mut file = File::open(path(&self.ram))?;
        file.read_to_end(&mut ram)?;
        if let Some(at) = ram.iter().position(|byte| *byte != PATTERN) {
            return Err(io::Error::other(format!(
                "a card has written to {at:#x}, which is not mapped"
            )));
        }
        let errors = self.errors()?;
        match errors.lines().find(|line| line.starts_with("Invalid ")) {
            None => Ok(()),
            Some(line) => Err(io::Error::other(format!(
                "a card has accessed an address that is not mapped: {line}"
            ))),
        }
    }
}

fn socket(qmp: &Qmp, name: &str) -> io::Result<UnixStream> {
    let (mine, theirs) = UnixStream::pair()?;
    qmp.give(name, theirs.as_fd())?;
    let address = json!({"type": "fd", "data": {"str": name}});
    qmp.run(
        "chardev-add",
        &json!({
            "id": name,
            "backend": {"type": "socket", "data": {"addr": address, "server": false}},
        }),
    )?;
    Ok(mine)
}

fn with_errors(error: &io::Error, errors: &File) -> io::Error {
    let said = text(errors).unwrap_or_else(|error| format!("(unreadable: {error})"));
    io::Error::new(
        error.kind(),
        format!("{error}; QEMU says: {}", said.trim_end()),
    )
}

/// A child that ends with its keeper.
struct Reaped(Option<Child>);

impl Drop for Reaped {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            end(child);
        }
    }
}

fn end(child: &mut Child) {
    drop(child.stdin.take());
    let ended = child.wait();
    debug_assert!(ended.is_ok(), "it is our child, which is waited for once");
}

impl Drop for Machine {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// The interrupts of a card as messages: a device of QEMU (ivshmem) signals an event descriptor
/// when a word is written to its doorbell, by a card or by a test. The lower half of the word is
/// the index of the descriptor, the upper half a peer that has given it to QEMU.
///
/// A peer that has gone and comes back makes QEMU 7.2 use memory that it has freed. So no peer
/// goes, and earlier descriptors stay where they are.
#[derive(Debug)]
pub(super) struct Doorbell {
    server: UnixStream,
    /// The descriptors of [`FIRST_PEER`].
    used: usize,
    /// The next other peer.
    peer: u16,
    _shared: OwnedFd,
}

/// The peer of messages of 16 bits.
const FIRST_PEER: u16 = 0;
/// That of QEMU.
const ITSELF: u16 = 1;
/// The most descriptors of a peer: the index is 8 bits.
const DESCRIPTORS: usize = 256;

impl Doorbell {
    /// The offset of the doorbell in the device's first region.
    pub(super) const OFFSET: u64 = 12;
    /// Most interrupts of a card.
    pub(super) const VECTORS: usize = 64;

    pub(super) fn new(machine: &Machine, name: &str, slot: usize) -> io::Result<Self> {
        let server = machine.socket(name)?;
        let shared = memfd_create("qtest-doorbell", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&shared, 4096)?;
        // The version of the protocol, the number of the device, the shared memory.
        for value in [0, i64::from(ITSELF)] {
            send(&server, &value.to_le_bytes(), None)?;
        }
        send(&server, &(-1_i64).to_le_bytes(), Some(shared.as_fd()))?;
        machine.qmp.run(
            "device_add",
            &json!({
                "driver": "ivshmem-doorbell", "id": name, "chardev": name, "ioeventfd": "off",
                "vectors": DESCRIPTORS.to_string(), "bus": format!("slot{slot}"),
            }),
        )?;
        Ok(Self {
            server,
            used: 0,
            peer: ITSELF + 1,
            _shared: shared,
        })
    }

    /// Gives QEMU descriptors, and returns the word that signals the first one; those that follow
    /// signal the others. QEMU has them some time later.
    ///
    /// If the messages are `short`, they have 16 bits, of which the card counts up the lower ones.
    pub(super) fn connect(&mut self, short: bool, events: &[Interrupt]) -> io::Result<u32> {
        let Some(filler) = events.first() else {
            return Ok(0);
        };
        if !short {
            let peer = self.peer;
            self.peer = peer.checked_add(1).ok_or_else(full)?;
            for event in events {
                self.give(peer, event)?;
            }
            return Ok(u32::from(peer) << 16);
        }
        let first = self.used.next_multiple_of(events.len().next_power_of_two());
        if first + events.len() > DESCRIPTORS {
            return Err(full());
        }
        let fillers = std::iter::repeat_n(filler, first - self.used);
        for event in fillers.chain(events) {
            self.give(FIRST_PEER, event)?;
            self.used += 1;
        }
        Ok(first as u32)
    }

    fn give(&self, peer: u16, event: &Interrupt) -> io::Result<()> {
        let peer = i64::from(peer).to_le_bytes();
        send(&self.server, &peer, Some(event.as_fd()))
    }
}

fn full() -> io::Error {
    io::Error::other("too many interrupts were connected: QEMU keeps all descriptors")
}
