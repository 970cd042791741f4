//! The XDP program that gives the packets of each queue to the socket of that queue, made and
//! attached by bpf(2).

#![allow(unsafe_code, reason = "bpf(2) has no wrapper")]

use crate::port::sys::link::check;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

// Commands, kinds and flags of linux/bpf.h.
const MAP_CREATE: c_int = 0;
const MAP_UPDATE: c_int = 2;
const MAP_DELETE: c_int = 3;
const PROGRAM_LOAD: c_int = 5;
const OBJECT_INFO: c_int = 15;
const LINK_CREATE: c_int = 28;
const MAP_KIND_XSK: u32 = 17;
/// Bytes of its keys, which are numbers of queues, and of its values, which are descriptors.
const NUMBER_BYTES: u32 = 4;
const PROGRAM_KIND_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// `BPF_F_XDP_HAS_FRAGS`: the program takes packets in several pieces (Linux 5.18).
const HAS_FRAGS: u32 = 1 << 5;
/// `XDP_FLAGS_DRV_MODE` and `XDP_FLAGS_SKB_MODE` (linux/if_link.h).
const NATIVE: u32 = 1 << 2;
const GENERIC: u32 = 1 << 1;
/// `BPF_PSEUDO_MAP_FD`: the constant is the descriptor of a map.
const MAP_CONSTANT: u8 = 1;
/// The function `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// `XDP_PASS`: what the function returns for a queue that has no socket.
const PASS: i32 = 2;
/// Where `struct xdp_md` has the queue.
const QUEUE_AT: i16 = 16;

/// An instruction (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// Destination and source, four bits each.
    registers: u8,
    offset: i16,
    constant: i32,
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> Instruction {
    let registers = match cfg!(target_endian = "little") {
        true => to | from << 4,
        false => to << 4 | from,
    };
    Instruction {
        code,
        registers,
        offset,
        constant,
    }
}

/// Redirects a packet to the socket of its queue in the map; without one the kernel's stack has it.
const fn redirect(map: c_int) -> [Instruction; 6] {
    [
        // r2 = the queue (BPF_LDX | BPF_MEM | BPF_W).
        instruction(0x61, 2, 1, QUEUE_AT, 0),
        // r1 = the map, in two instructions (BPF_LD | BPF_IMM | BPF_DW).
        instruction(0x18, 1, MAP_CONSTANT, 0, map),
        instruction(0, 0, 0, 0, 0),
        // r3 = what is returned if the map has none (BPF_ALU64 | BPF_MOV | BPF_K).
        instruction(0xb7, 3, 0, 0, PASS),
        // r0 = the function's result (BPF_JMP | BPF_CALL), returned (BPF_JMP | BPF_EXIT).
        instruction(0x85, 0, 0, 0, REDIRECT_MAP),
        instruction(0x95, 0, 0, 0, 0),
    ]
}

/// The start of `union bpf_attr` for each command; the kernel takes the rest as zero.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    code: u64,
    license: u64,
    log: [u64; 2],
    kernel: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
struct ObjectInfo {
    object: u32,
    bytes: u32,
    info: u64,
}

/// The start of `struct bpf_map_info`, of which the kernel writes as much as was asked for.
#[derive(Default)]
#[repr(C)]
struct MapInfo {
    kind: u32,
    id: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
}

/// Calls bpf(2).
///
/// # Safety
///
/// The attributes are those of the command, and the addresses in them are valid for it.
unsafe fn bpf<T>(command: c_int, attributes: &T) -> io::Result<c_int> {
    let (at, bytes) = (std::ptr::from_ref(attributes), size_of::<T>());
    // SAFETY: the kernel reads as many bytes of the attributes; the caller answers for the rest.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, at, bytes) };
    check(result as c_int)
}

/// A descriptor that the kernel has just made.
fn own(fd: c_int) -> OwnedFd {
    // SAFETY: the kernel just made this descriptor for us, and it has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The driver's receive path runs the program, or that of the kernel's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// In the driver, before the kernel has made a packet buffer.
    Native,
    /// In the stack, for any driver.
    Generic,
}

/// The program, attached to an interface until it is dropped: also if the process is killed. Or the
/// map of another one, which another process has attached.
#[derive(Debug)]
pub(super) struct Program {
    map: OwnedFd,
    /// Where it runs.
    pub(super) hook: Hook,
    /// Detaches the program when it is closed; `None` for another one.
    link: Option<OwnedFd>,
}

impl Program {
    /// Attaches a program to the interface of the calling thread's network namespace, for `queues`
    /// queues. Until a queue has a socket, its packets go to the kernel's stack.
    pub(super) fn attach(interface: u32, queues: u32, hook: Hook) -> io::Result<Self> {
        let map = MapCreate {
            kind: MAP_KIND_XSK,
            key_bytes: NUMBER_BYTES,
            value_bytes: NUMBER_BYTES,
            entries: queues,
        };
        // SAFETY: the attributes have no addresses.
        let map = own(unsafe { bpf(MAP_CREATE, &map) }?);
        let frags = load(&map, HAS_FRAGS);
        let program = frags.or_else(|_older_kernel| load(&map, 0))?;
        let link = LinkCreate {
            program: program.as_raw_fd().cast_unsigned(),
            interface,
            kind: ATTACH_XDP,
            flags: match hook {
                Hook::Native => NATIVE,
                Hook::Generic => GENERIC,
            },
        };
        // SAFETY: the attributes have no addresses.
        let link = own(unsafe { bpf(LINK_CREATE, &link) }?);
        Ok(Self {
            map,
            hook,
            link: Some(link),
        })
    }

    /// A program that another process has attached, by its map of sockets. `None` if the descriptor
    /// is no such map with an entry for each of `queues` queues.
    pub(super) fn given(map: OwnedFd, queues: u32, hook: Hook) -> io::Result<Option<Self>> {
        let mut found = MapInfo::default();
        let about = ObjectInfo {
            object: map.as_raw_fd().cast_unsigned(),
            bytes: size_of::<MapInfo>() as u32,
            info: (&raw mut found) as u64,
        };
        // SAFETY: the kernel writes as many bytes of the information, which lives until then.
        match unsafe { bpf(OBJECT_INFO, &about) } {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
            asked => asked?,
        };
        // A program reports its own kind and more in the same place.
        let is_map = found.kind == MAP_KIND_XSK && found.key_bytes == NUMBER_BYTES;
        let given = is_map && found.entries >= queues;
        Ok(given.then_some(Self {
            map,
            hook,
            link: None,
        }))
    }

    /// Whether another process has attached it.
    pub(super) const fn is_given(&self) -> bool {
        self.link.is_none()
    }

    /// Has the program give the packets of `queue` to `socket`.
    pub(super) fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd().cast_unsigned();
        let update = MapUpdate {
            map: self.map.as_raw_fd().cast_unsigned(),
            padding: 0,
            key: (&raw const queue) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        // SAFETY: key and value have the map's sizes and live until the call returns.
        unsafe { bpf(MAP_UPDATE, &update) }.map(drop)
    }

    /// Undoes [`set`](Self::set). Then no packet is on the way to the socket any more.
    pub(super) fn remove(&self, queue: u32) -> io::Result<()> {
        let removal = MapUpdate {
            map: self.map.as_raw_fd().cast_unsigned(),
            padding: 0,
            key: (&raw const queue) as u64,
            value: 0,
            flags: 0,
        };
        // SAFETY: the key has the map's size and lives until the call returns.
        unsafe { bpf(MAP_DELETE, &removal) }?;
        // The kernel reads the map within sections of RCU, for whose end this call waits.
        // SAFETY: the call takes no memory.
        match unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn load(map: &OwnedFd, flags: u32) -> io::Result<OwnedFd> {
    let code = redirect(map.as_raw_fd());
    let load = ProgramLoad {
        kind: PROGRAM_KIND_XDP,
        count: code.len() as u32,
        code: code.as_ptr() as u64,
        // The program calls no function for which the kernel asks for the GPL.
        license: c"MIT".as_ptr() as u64,
        log: [0; 2],
        kernel: 0,
        flags,
        name: *b"packtrain\0\0\0\0\0\0\0",
    };
    // SAFETY: the code and the C string live until the call returns; no log was asked for.
    unsafe { bpf(PROGRAM_LOAD, &load) }.map(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_program_is_that_of_the_manual() {
        // As bpf_redirect_map is used in Documentation/networking/af_xdp.rst.
        let words = redirect(7).map(|of| {
            let constant = of.constant.to_le_bytes();
            let offset = of.offset.to_le_bytes();
            let all = [of.code, of.registers, offset[0], offset[1]];
            u64::from_le_bytes([all, constant].concat().try_into().expect("eight bytes"))
        });
        assert_eq!(
            words,
            [
                0x0000_0000_0010_1261,
                0x0000_0007_0000_1118,
                0,
                0x0000_0002_0000_03b7,
                0x0000_0033_0000_0085,
                0x0000_0000_0000_0095,
            ]
        );
    }
}
