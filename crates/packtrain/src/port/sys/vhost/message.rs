//! The messages of vhost-user: pure functions from bytes and descriptors to requests.
//!
//! The front end is not trusted. A message is taken apart here, with all lengths and counts
//! checked, before anything of it is used. The numbers are those of the vhost-user protocol
//! (`docs/interop/vhost-user.rst` of QEMU).

use std::os::fd::OwnedFd;

/// Bytes of the header of a message.
pub(in crate::port) const HEADER_BYTES: usize = 12;
/// Bytes of a reply: a header and a number.
pub(in crate::port) const REPLY_BYTES: usize = HEADER_BYTES + 8;
/// The longest payload of a message that is read: a table of more regions than are supported, so
/// that it can be said that there are too many.
pub(in crate::port) const PAYLOAD_BYTES_MAX: usize = 8 + 64 * REGION_BYTES;
/// The most regions of guest memory in one message (`VHOST_MEMORY_BASELINE_NREGIONS`), and so the
/// most descriptors that come with one.
pub(in crate::port) const REGIONS_MAX: usize = 8;
const REGION_BYTES: usize = 32;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const IS_REPLY: u32 = 1 << 2;
const NEEDS_REPLY: u32 = 1 << 3;
/// In the number of a ring: no descriptor comes with the message.
const NO_DESCRIPTOR: u64 = 1 << 8;

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const RESET_OWNER: u32 = 4;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const GET_QUEUE_NUM: u32 = 17;
const SET_VRING_ENABLE: u32 = 18;
const SEND_RARP: u32 = 19;

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::port) struct Header {
    /// The kind of request.
    pub(in crate::port) request: u32,
    /// The front end waits for an acknowledgement, if that was negotiated.
    pub(in crate::port) needs_reply: bool,
    /// Bytes of the payload, at most [`PAYLOAD_BYTES_MAX`].
    pub(in crate::port) bytes: usize,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    ///
    /// One sentence. The connection is of no use then: it is unknown where the next message starts.
    pub(in crate::port) fn decode(bytes: [u8; HEADER_BYTES]) -> Result<Self, String> {
        let [request, flags, length] = [0, 4, 8].map(|at| u32_at(&bytes, at).unwrap_or_default());
        if flags & VERSION_MASK != VERSION {
            let version = flags & VERSION_MASK;
            return Err(format!(
                "a message of version {version} of the protocol, not 1"
            ));
        }
        if flags & IS_REPLY != 0 {
            return Err(format!("a reply ({request}) to nothing"));
        }
        let length = length as usize;
        if length > PAYLOAD_BYTES_MAX {
            return Err(format!(
                "a message ({request}) of {length} bytes, more than any that packtrain knows"
            ));
        }
        Ok(Self {
            request,
            needs_reply: flags & NEEDS_REPLY != 0,
            bytes: length,
        })
    }

    /// The bytes of the reply to this message: a number.
    pub(in crate::port) fn reply(&self, value: u64) -> [u8; REPLY_BYTES] {
        let mut reply = [0; REPLY_BYTES];
        let words = [self.request, VERSION | IS_REPLY, 8];
        for (at, word) in words.into_iter().enumerate() {
            reply[at * 4..at * 4 + 4].copy_from_slice(&word.to_le_bytes());
        }
        reply[HEADER_BYTES..].copy_from_slice(&value.to_le_bytes());
        reply
    }
}

/// A region of guest memory: a part of the file that a descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::port) struct RegionSpec {
    /// Where the guest has it: the addresses in descriptors.
    pub(in crate::port) guest: u64,
    /// Its length.
    pub(in crate::port) bytes: u64,
    /// Where the front end has it: the addresses of rings.
    pub(in crate::port) user: u64,
    /// Where it begins in the file.
    pub(in crate::port) offset: u64,
}

/// The addresses of the parts of a ring, in the front end's address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::port) struct RingAddresses {
    pub(in crate::port) descriptors: u64,
    pub(in crate::port) used: u64,
    pub(in crate::port) avail: u64,
}

/// A request of the front end.
#[derive(Debug)]
pub(in crate::port) enum Request {
    /// Asks for the features on offer.
    GetFeatures,
    /// Sets the features in use.
    SetFeatures(u64),
    /// A session begins, or a message that needs nothing done.
    Nothing,
    /// The session ends: all rings stop.
    ResetOwner,
    /// Sets the memory of the guest.
    SetMemory(Vec<(RegionSpec, OwnedFd)>),
    /// Sets the number of descriptors of a ring.
    SetSize(u32, u32),
    /// Sets the place of a ring.
    SetAddresses(u32, RingAddresses),
    /// Sets the index of the next chain of a ring.
    SetBase(u32, u32),
    /// Stops a ring, and asks for the index of its next chain.
    GetBase(u32),
    /// Starts a ring. The guest writes to the descriptor if it adds a chain.
    SetKick(u32, Option<OwnedFd>),
    /// Where to tell the guest of used chains.
    SetCall(u32, Option<OwnedFd>),
    /// Where to tell the front end of a broken ring.
    SetError(u32, Option<OwnedFd>),
    /// Asks for the protocol's own features on offer.
    GetProtocolFeatures,
    /// Sets those in use.
    SetProtocolFeatures(u64),
    /// Asks for the number of pairs of rings.
    GetQueues,
    /// Sets whether packets pass a ring.
    SetEnabled(u32, bool),
}

impl Request {
    /// Reads the payload of a message, and takes its descriptors. Descriptors that the message
    /// must not have are closed.
    ///
    /// # Errors
    ///
    /// One sentence: a request that was not offered, or one that contradicts itself.
    pub(in crate::port) fn decode(
        header: &Header,
        payload: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<Self, String> {
        let short = || {
            let (request, bytes) = (header.request, payload.len());
            format!("a message ({request}) with too few bytes: {bytes}")
        };
        let number = || u64_at(payload, 0).ok_or_else(short);
        let state = || {
            let pair = u32_at(payload, 0).zip(u32_at(payload, 4));
            pair.ok_or_else(short)
        };
        Ok(match header.request {
            GET_FEATURES => Self::GetFeatures,
            SET_FEATURES => Self::SetFeatures(number()?),
            SET_OWNER | SEND_RARP => Self::Nothing,
            RESET_OWNER => Self::ResetOwner,
            SET_MEM_TABLE => Self::SetMemory(memory(payload, fds)?),
            SET_VRING_NUM => {
                let (ring, size) = state()?;
                Self::SetSize(ring, size)
            }
            SET_VRING_ADDR => {
                let (ring, _flags) = state()?;
                let [descriptors, used, avail] =
                    [8, 16, 24].map(|at| u64_at(payload, at).ok_or_else(short));
                let addresses = RingAddresses {
                    descriptors: descriptors?,
                    used: used?,
                    avail: avail?,
                };
                Self::SetAddresses(ring, addresses)
            }
            SET_VRING_BASE => {
                let (ring, base) = state()?;
                Self::SetBase(ring, base)
            }
            GET_VRING_BASE => Self::GetBase(state()?.0),
            request @ (SET_VRING_KICK | SET_VRING_CALL | SET_VRING_ERR) => {
                let number = number()?;
                let ring = (number & 0xFF) as u32;
                let mut fds = fds.into_iter();
                let fd = match fds.next() {
                    _ if number & NO_DESCRIPTOR != 0 => None,
                    None => return Err(format!("a message ({request}) without its descriptor")),
                    some => some,
                };
                match request {
                    SET_VRING_KICK => Self::SetKick(ring, fd),
                    SET_VRING_CALL => Self::SetCall(ring, fd),
                    _ => Self::SetError(ring, fd),
                }
            }
            GET_PROTOCOL_FEATURES => Self::GetProtocolFeatures,
            SET_PROTOCOL_FEATURES => Self::SetProtocolFeatures(number()?),
            GET_QUEUE_NUM => Self::GetQueues,
            SET_VRING_ENABLE => match state()? {
                (ring, enabled @ (0 | 1)) => Self::SetEnabled(ring, enabled == 1),
                (ring, other) => {
                    return Err(format!("ring {ring} to be enabled: {other}, not 0 or 1"));
                }
            },
            other => return Err(format!("a request ({other}) that was not offered")),
        })
    }

    /// Whether the answer of this request is a number, also without a negotiated acknowledgement.
    pub(in crate::port) const fn asks(&self) -> bool {
        matches!(
            self,
            Self::GetFeatures | Self::GetProtocolFeatures | Self::GetQueues | Self::GetBase(_)
        )
    }
}

/// Reads a table of regions, each with its descriptor.
fn memory(payload: &[u8], fds: Vec<OwnedFd>) -> Result<Vec<(RegionSpec, OwnedFd)>, String> {
    let count = u32_at(payload, 0).unwrap_or_default() as usize;
    let given = fds.len();
    if count == 0 || count > REGIONS_MAX {
        return Err(format!(
            "guest memory in {count} regions, where 1 to {REGIONS_MAX} are supported (DPDK with \
             huge pages: --single-file-segments)"
        ));
    }
    if given != count {
        return Err(format!(
            "guest memory in {count} regions with {given} descriptors"
        ));
    }
    let rows = payload.get(8..).unwrap_or_default();
    let (rows, _) = rows.as_chunks::<REGION_BYTES>();
    if rows.len() < count {
        return Err(format!(
            "guest memory in {count} regions, of which {} are described",
            rows.len()
        ));
    }
    let specs = rows.iter().map(|row| {
        let word = |at| u64_at(row, at).unwrap_or_default();
        RegionSpec {
            guest: word(0),
            bytes: word(8),
            user: word(16),
            offset: word(24),
        }
    });
    Ok(specs.zip(fds).collect())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    fn header(words: [u32; 3]) -> Result<Header, String> {
        let bytes = words.map(u32::to_le_bytes).concat();
        Header::decode(bytes.try_into().expect("three words"))
    }

    fn fds(count: usize) -> Vec<OwnedFd> {
        let fd = |_| eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        (0..count).map(fd).collect()
    }

    fn decode(request: u32, payload: &[u8], descriptors: usize) -> Result<Request, String> {
        let header = header([request, 1, payload.len() as u32])?;
        Request::decode(&header, payload, fds(descriptors))
    }

    #[test]
    fn a_header_has_the_version_and_a_length_that_is_known() {
        let read = header([5, 1 | NEEDS_REPLY, PAYLOAD_BYTES_MAX as u32]).expect("it is legal");
        assert!(read.needs_reply);
        assert_eq!((read.request, read.bytes), (5, PAYLOAD_BYTES_MAX));
        for (words, why) in [
            ([1, 0, 0], "version 0"),
            ([1, 2, 0], "version 2"),
            ([1, 1 | IS_REPLY, 0], "a reply (1)"),
            (
                [5, 1, PAYLOAD_BYTES_MAX as u32 + 1],
                "more than any that packtrain knows",
            ),
            ([5, 1, u32::MAX], "more than any that packtrain knows"),
        ] {
            let error = header(words).expect_err("it is malformed");
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_reply_is_a_number_with_the_request_in_front() {
        let reply = header([11, 1, 8]).expect("it is legal").reply(0x1234);
        let words = [11_u32, 5, 8, 0x1234, 0].map(u32::to_le_bytes).concat();
        assert_eq!(reply[..], words[..]);
    }

    #[test]
    fn every_payload_is_as_long_as_its_request_needs() {
        let needs = [
            (SET_FEATURES, 8),
            (SET_PROTOCOL_FEATURES, 8),
            (SET_VRING_NUM, 8),
            (SET_VRING_ADDR, 40 - 8),
            (SET_VRING_BASE, 8),
            (GET_VRING_BASE, 8),
            (SET_VRING_KICK, 8),
            (SET_VRING_CALL, 8),
            (SET_VRING_ERR, 8),
            (SET_VRING_ENABLE, 8),
        ];
        for (request, bytes) in needs {
            decode(request, &vec![0; bytes], 1).unwrap_or_else(|error| panic!("{error}"));
            let error = decode(request, &vec![0; bytes - 1], 1).expect_err("it is short");
            assert!(error.contains("too few bytes"), "{request}: {error}");
        }
    }

    #[test]
    fn a_descriptor_is_there_unless_the_message_says_that_it_is_not() {
        for request in [SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR] {
            let error = decode(request, &3_u64.to_le_bytes(), 0).expect_err("none came");
            assert!(error.contains("without its descriptor"), "{error}");
            let none = decode(request, &(3 | NO_DESCRIPTOR).to_le_bytes(), 1);
            assert!(matches!(
                none.expect("it says so"),
                Request::SetKick(3, None) | Request::SetCall(3, None) | Request::SetError(3, None)
            ));
        }
    }

    #[test]
    fn the_regions_of_memory_are_as_many_as_descriptors() {
        let table = |count: u32, rows: usize| {
            let mut bytes = [count, 0].map(u32::to_le_bytes).concat();
            bytes.resize(8 + rows * REGION_BYTES, 7);
            bytes
        };
        for (count, rows, given) in [(1, 1, 1), (8, 8, 8), (2, 3, 2)] {
            let read = decode(SET_MEM_TABLE, &table(count, rows), given).expect("it is legal");
            let Request::SetMemory(regions) = read else {
                panic!("it is a table")
            };
            assert_eq!(regions.len(), count as usize);
            assert_eq!(regions[0].0.guest, u64::from_le_bytes([7; 8]));
        }
        for (count, rows, given) in [(0, 0, 0), (2, 2, 1), (1, 1, 2), (2, 1, 2), (u32::MAX, 8, 8)] {
            decode(SET_MEM_TABLE, &table(count, rows), given).expect_err("they differ");
        }
        decode(SET_MEM_TABLE, &[], 0).expect_err("there is no table");
    }

    #[test]
    fn what_was_not_offered_is_refused() {
        // SET_LOG_BASE, NET_SET_MTU, GET_INFLIGHT_FD, GET_CONFIG, ADD_MEM_REG, none.
        for request in [0, 6, 7, 20, 21, 24, 31, 32, 37, 41, 1000, u32::MAX] {
            let error = decode(request, &[0; 16], 0).expect_err("it is not built");
            assert!(error.contains("not offered"), "{error}");
        }
        decode(SET_VRING_ENABLE, &[0, 0, 0, 0, 2, 0, 0, 0], 0).expect_err("neither 0 nor 1");
    }
}
