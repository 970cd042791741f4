//! The memory of packets: frames for bytes, lines for handles, all mapped at start. The system
//! provides a page on its first use. The lowest free frames and lines are used first, so a run uses
//! no more pages than it needs at once.
//!
//! Each thread keeps short stacks of free frames and lines, and reuses the one freed last, which is
//! still in the CPU cache. The line of a packet of one small frame keeps that frame in a stack of
//! its own, and the next such packet reuses both. Frames that one thread takes and another frees go
//! through a shared set, in batches, so that its lock is taken once for many packets. `Arena::new`
//! does all allocation.

#![allow(
    unsafe_code,
    reason = "hands out pieces of one mapping and owns packets' lines"
)]

use super::frame::{FrameClass, FrameId, Segment};
use super::free::FreeSet;
use super::meta::Meta;
use super::sys::Mapping;
use crate::limits::{LARGE_FRAME_BYTES, PACKET_BYTES_MAX, SEGMENTS_MAX, SMALL_FRAME_BYTES};
use crate::plant::planted;

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The end of a list of lines.
pub(super) const NO_LINE: u32 = u32::MAX;
/// Segments in a packet's first line.
pub(super) const HEAD_SEGMENTS: usize = 4;
/// Segments in each further line.
pub(super) const MORE_SEGMENTS: usize = 9;

/// The start of each line.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct LineHeader {
    /// The arena's shared state; never changes.
    pub(super) core: NonNull<Core>,
    /// This line's own index; never changes.
    pub(super) index: u32,
    /// In a packet's first line: its last line, or [`NO_LINE`] without further ones. In a further
    /// line: the next one; in the last one: the first further line. So both ends are near.
    pub(super) next: u32,
}

/// A packet's first line.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Line {
    pub(super) header: LineHeader,
    /// Bytes over all segments.
    pub(super) bytes: u32,
    /// Segments, empty ones included.
    pub(super) count: u16,
    /// [`PortSet::named`](super::PortSet), or 0.
    pub(super) egress: u16,
    pub(super) meta: Meta,
    pub(super) segments: [Segment; HEAD_SEGMENTS],
}

/// A further line of a packet, in the memory of a [`Line`].
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct MoreLine {
    pub(super) header: LineHeader,
    pub(super) segments: [Segment; MORE_SEGMENTS],
}

impl Line {
    pub(super) fn unused(core: NonNull<Core>, index: u32) -> Self {
        Self {
            header: LineHeader {
                core,
                index,
                next: NO_LINE,
            },
            bytes: 0,
            count: 0,
            egress: 0,
            meta: Meta::default(),
            segments: [Segment::UNUSED; HEAD_SEGMENTS],
        }
    }
}

const _: () = assert!(size_of::<Line>() == 128);
const _: () = assert!(size_of::<MoreLine>() == 128);
const _: () = assert!(SEGMENTS_MAX <= u16::MAX as usize);

/// The sizes of an arena, fixed at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaConfig {
    /// Frames of 2 KiB, headroom included.
    pub small_frames: u32,
    /// Frames of 68 KiB, headroom included: room for one whole GSO packet each.
    pub large_frames: u32,
    /// Packet handles. A packet of more than four segments takes further ones.
    pub lines: u32,
}

impl Default for ArenaConfig {
    /// 16 MiB of small and 17 MiB of large frames.
    fn default() -> Self {
        Self {
            small_frames: 8192,
            large_frames: 256,
            lines: 16_384,
        }
    }
}

impl ArenaConfig {
    /// An eighth of the default's small frames and lines, for tests and examples.
    #[must_use]
    pub const fn small() -> Self {
        Self {
            small_frames: 1024,
            large_frames: 160,
            lines: 2048,
        }
    }
}

impl ArenaConfig {
    /// Bytes of frames, of their reference counts, and of lines together.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        let counted = size_of::<References>() as u64;
        self.small_frames as u64 * (SMALL_FRAME_BYTES as u64 + counted)
            + self.large_frames as u64 * (LARGE_FRAME_BYTES as u64 + counted)
            + self.lines as u64 * size_of::<Line>() as u64
    }

    /// Indices must leave room for the class bit and for `NO_LINE`.
    fn check(self) -> io::Result<()> {
        let frames = u64::from(self.small_frames) + u64::from(self.large_frames);
        if frames > 1 << 31 || self.lines == NO_LINE {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "an arena has at most 2^31 frames and 2^32 - 1 lines",
            ));
        }
        Ok(())
    }
}

/// The number of free and used frames and lines of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Census {
    /// Free small frames, in the shared set or in a thread's cache.
    pub small_free: u32,
    /// Small frames that a packet refers to, or a line in the cache of another thread.
    pub small_used: u32,
    /// Free large frames.
    pub large_free: u32,
    /// Large frames that a packet refers to.
    pub large_used: u32,
    /// Free lines.
    pub lines_free: u32,
    /// Lines of live packets.
    pub lines_used: u32,
}

/// A bounded memory of packets. Cheap to clone: clones share it.
///
/// Packets may outlive the last clone. The drop of the last clone frees the memory. If packets or
/// threads' caches still refer to it then, the memory is freed later: when another arena is made or
/// dropped without such references.
#[derive(Clone)]
pub struct Arena {
    owner: Arc<Owner>,
}

/// Free frames and lines that are in no thread's cache.
struct Free {
    small: FreeSet,
    large: FreeSet,
    lines: FreeSet,
    /// Lines below this one are initialized.
    lines_made: u32,
}

/// The number of segments that refer to a frame. In a cache line of its own: one thread often takes
/// frames while another frees others.
#[derive(Debug)]
#[repr(align(64))]
struct References(AtomicU32);

/// Shared state of one arena, at a fixed address that lines and caches point to.
pub(super) struct Core {
    /// The frames. The memfd of this mapping may be shared with other processes.
    mapping: Mapping,
    /// The lines, and behind them the counts of references.
    _table: Mapping,
    config: ArenaConfig,
    lines: NonNull<Line>,
    /// References to each frame by segments; zero while it is free. Small ones first.
    references: NonNull<[References]>,
    free: Mutex<Free>,
    /// Threads with a cache bound to this arena. A thread decrements it as its last access to the
    /// core, so outside of the mutex, whose unlock is an access, too.
    bound_caches: AtomicU32,
}

// SAFETY: the core owns its mappings. Only the `Packet` that owns a line accesses it, or the thread
// that has taken its index from the set behind the mutex.
unsafe impl Send for Core {}
// SAFETY: as above.
unsafe impl Sync for Core {}

/// First byte of a segment.
#[inline]
pub(super) fn start(core: &Core, segment: Segment) -> *mut u8 {
    // SAFETY: segments lie within their frame.
    unsafe {
        core.frame_base(segment.frame)
            .as_ptr()
            .add(segment.offset as usize)
    }
}

struct Owner {
    core: NonNull<Core>,
}

// SAFETY: `Owner` is a counted pointer to a `Core`, which is `Send` and `Sync`.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    const fn core(&self) -> &Core {
        // SAFETY: made by `Box::leak` in `Arena::new` and freed only after `drop` below.
        unsafe { self.core.as_ref() }
    }
}

/// A core whose last owner was dropped.
struct Orphan(NonNull<Core>);

// SAFETY: a pointer to a `Core`, which is `Send`; used under the lock of `ORPHANS` only.
unsafe impl Send for Orphan {}

static ORPHANS: Mutex<Vec<Orphan>> = Mutex::new(Vec::new());

/// Frees the cores without references.
fn free_orphans(orphans: &mut Vec<Orphan>) {
    orphans.retain(|orphan| {
        // SAFETY: orphans are freed only here, which removes them from the list.
        if !unsafe { orphan.0.as_ref() }.is_unreachable() {
            return true;
        }
        // SAFETY: made by `Box::leak`; it has no owner, no packet and no cache.
        drop(unsafe { Box::from_raw(orphan.0.as_ptr()) });
        false
    });
}

fn lock_orphans() -> MutexGuard<'static, Vec<Orphan>> {
    ORPHANS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Owner {
    fn drop(&mut self) {
        flush_thread_cache(self.core);
        let mut orphans = lock_orphans();
        orphans.push(Orphan(self.core));
        free_orphans(&mut orphans);
    }
}

impl Arena {
    /// Makes an arena. Its memory is mapped now, and the system provides pages as packets use them:
    /// if it has none then, it kills the process. See
    /// [`memory_available`](super::memory_available).
    ///
    /// # Errors
    ///
    /// Those of the system for the mapping and the memfd; `InvalidInput` for more than 2^31 frames
    /// or 2^32 - 1 lines.
    pub fn new(config: ArenaConfig) -> io::Result<Self> {
        free_orphans(&mut lock_orphans());
        config.check()?;
        let small_bytes = config.small_frames as usize * SMALL_FRAME_BYTES;
        let large_bytes = config.large_frames as usize * LARGE_FRAME_BYTES;
        let mapping = Mapping::new((small_bytes + large_bytes).max(1))?;
        let frames = (config.small_frames + config.large_frames) as usize;
        let lines_bytes = config.lines as usize * size_of::<Line>();
        let table = Mapping::new((lines_bytes + frames * size_of::<References>()).max(1))?;
        let free = Free {
            small: FreeSet::all_below(config.small_frames)?,
            large: FreeSet::all_below(config.large_frames)?,
            lines: FreeSet::all_below(config.lines)?,
            lines_made: 0,
        };
        let lines = table.base().cast::<Line>();
        // SAFETY: the table has room for the lines, and for the counts behind them.
        let references = unsafe { lines.add(config.lines as usize) }.cast();
        let core = NonNull::from(Box::leak(Box::new(Core {
            mapping,
            _table: table,
            config,
            lines,
            references: NonNull::slice_from_raw_parts(references, frames),
            free: Mutex::new(free),
            bound_caches: AtomicU32::new(0),
        })));
        Ok(Self {
            owner: Arc::new(Owner { core }),
        })
    }

    /// Its sizes.
    #[must_use]
    pub fn config(&self) -> ArenaConfig {
        self.core().config
    }

    /// Whether the frames are in huge pages.
    #[must_use]
    pub fn huge_pages(&self) -> bool {
        self.core().mapping.huge_pages()
    }

    /// The memfd behind the frames; small frames start at offset 0. Its size is sealed.
    ///
    /// # Safety
    ///
    /// The frames are lent as `&[u8]` and `&mut [u8]`. Through this descriptor, a duplicate, a
    /// mapping of it, or another process that has it, the caller must write to no frame that a
    /// packet has, and read none that a packet can change at the same time.
    #[must_use]
    pub unsafe fn memfd(&self) -> BorrowedFd<'_> {
        self.core().mapping.fd()
    }

    /// The addresses of the small frames, frame by frame. The first one is at the start of a page.
    pub(crate) fn small_frames(&self) -> Range<usize> {
        let start = self.owner.core().mapping.base().addr().get();
        start..start + self.config().small_frames as usize * SMALL_FRAME_BYTES
    }

    /// The first byte of the frames, at the start of a page, and their bytes: whole pages.
    pub(crate) fn frames(&self) -> (NonNull<u8>, usize) {
        let mapping = &self.core().mapping;
        (mapping.base(), mapping.bytes())
    }

    pub(super) fn core(&self) -> &Core {
        self.owner.core()
    }

    /// Counts frames and lines, and checks that no free frame is in use.
    ///
    /// Exact only while no other thread allocates or frees, and only if all threads with a cache
    /// have ended or called [`Arena::flush_cache`]. Else free frames in the caches of other threads
    /// count as used, or not at all. It reads the counter of every frame, while no cache can be
    /// refilled: not for every packet.
    ///
    /// # Panics
    ///
    /// If a frame is free and in use, which is a defect of packtrain.
    #[must_use]
    pub fn census(&self) -> Census {
        self.flush_cache();
        let core = self.core();
        let free = core.lock();
        for (set, pieces, base) in [
            (&free.small, core.config.small_frames, 0),
            (
                &free.large,
                core.config.large_frames,
                core.config.small_frames,
            ),
        ] {
            for index in (0..pieces).filter(|&index| set.has(index)) {
                let slot = (base + index) as usize;
                let references = core.all_references()[slot].0.load(Ordering::Acquire);
                assert_eq!(references, 0, "frame {slot} is free and in use");
            }
        }
        let used = |range: Range<u32>| {
            let slots = &core.all_references()[range.start as usize..range.end as usize];
            slots
                .iter()
                .filter(|r| r.0.load(Ordering::Acquire) != 0)
                .count() as u32
        };
        let frames = core.config.small_frames + core.config.large_frames;
        Census {
            small_free: free.small.len() as u32,
            small_used: used(0..core.config.small_frames),
            large_free: free.large.len() as u32,
            large_used: used(core.config.small_frames..frames),
            lines_free: free.lines.len() as u32,
            lines_used: core.config.lines - free.lines.len() as u32,
        }
    }

    /// Returns this thread's cached frames and lines to the shared sets.
    pub fn flush_cache(&self) {
        flush_thread_cache(self.owner.core);
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("config", &self.core().config)
            .finish_non_exhaustive()
    }
}

impl Core {
    /// Whether no packet and no cache refers to it. Without an owner there can be no new reference.
    fn is_unreachable(&self) -> bool {
        let all_free = {
            let free = self.lock();
            free.small.len() == self.config.small_frames as usize
                && free.large.len() == self.config.large_frames as usize
                && free.lines.len() == self.config.lines as usize
        };
        // In this order: without packets no thread can bind a cache, so a zero that is read after
        // that stays. Pairs with the release of the last user's decrement.
        all_free && self.bound_caches.load(Ordering::Acquire) == 0
    }

    fn bind(&self) {
        self.bound_caches.fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        // A panic leaves the sets consistent: it precedes the change.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// First byte of a frame.
    pub(super) fn frame_base(&self, frame: FrameId) -> NonNull<u8> {
        let index = frame.index() as usize;
        let offset = match frame.class() {
            FrameClass::Small => index * SMALL_FRAME_BYTES,
            FrameClass::Large => {
                self.config.small_frames as usize * SMALL_FRAME_BYTES + index * LARGE_FRAME_BYTES
            }
        };
        debug_assert!(offset + frame.class().frame_bytes() <= self.mapping.bytes());
        // SAFETY: frame ids come from the sets, so the offset is within the mapping.
        unsafe { self.mapping.base().add(offset) }
    }

    const fn all_references(&self) -> &[References] {
        // SAFETY: the counts are in the table, aligned as lines are. The table starts as zeros,
        // which are valid counts, and only counts are written there.
        unsafe { self.references.as_ref() }
    }

    fn references(&self, frame: FrameId) -> &AtomicU32 {
        let base = match frame.class() {
            FrameClass::Small => 0,
            FrameClass::Large => self.config.small_frames,
        };
        &self.all_references()[(base + frame.index()) as usize].0
    }

    /// One more segment refers to `frame`.
    pub(super) fn share(&self, frame: FrameId) {
        // As in `Arc::clone`: the caller already has a reference.
        self.references(frame).fetch_add(1, Ordering::Relaxed);
    }

    /// True while exactly one segment refers to `frame`: its owner may write to it.
    pub(super) fn is_exclusive(&self, frame: FrameId) -> bool {
        // Pairs with the release in `unshare`: all reads of another owner come before.
        self.references(frame).load(Ordering::Acquire) == 1
    }

    /// One segment fewer refers to `frame`; the last one frees it.
    pub(super) fn unshare(&self, frame: FrameId) {
        let references = self.references(frame);
        // The common case is a single owner, and then no other thread changes the count.
        if references.load(Ordering::Acquire) == 1 {
            references.store(0, Ordering::Relaxed);
            if planted!(DoubleFree) {
                references.fetch_sub(1, Ordering::AcqRel);
            }
        } else if references.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        match frame.class() {
            FrameClass::Small => self.put(Kind::Small, frame.index()),
            FrameClass::Large => self.put(Kind::Large, frame.index()),
        }
    }

    /// A free frame with one reference; `None` if the class has none.
    pub(super) fn take_frame(&self, class: FrameClass) -> Option<FrameId> {
        let kind = match class {
            FrameClass::Small => Kind::Small,
            FrameClass::Large => Kind::Large,
        };
        let frame = FrameId::new(class, self.take(kind)?);
        self.references(frame).store(1, Ordering::Relaxed);
        Some(frame)
    }

    /// A free line.
    pub(super) fn take_line(&self) -> Option<NonNull<Line>> {
        let index = self.take(Kind::Lines)?;
        // SAFETY: indices of the set are within the table.
        Some(unsafe { self.lines.add(index as usize) })
    }

    /// The line with this index.
    pub(super) fn line(&self, index: u32) -> NonNull<Line> {
        debug_assert!(index != NO_LINE && index < self.config.lines);
        // SAFETY: indices are stored only from lines of this core.
        unsafe { self.lines.add(index as usize) }
    }

    /// Frees a line.
    #[inline]
    pub(super) fn put_line(&self, index: u32) {
        self.put(Kind::Lines, index);
    }

    /// Frees the frames and lines of `whole`, each by itself.
    fn part(&self, whole: &mut CacheStack<WHOLE_CACHED_MAX>, free: &mut Free) {
        for &index in &whole.indices[..whole.len] {
            // SAFETY: the line is free, so that only its cache refers to it; that is the caller.
            let frame = unsafe { (*self.line(index).as_ptr()).segments[0].frame };
            let references = self.references(frame);
            debug_assert_eq!(references.load(Ordering::Relaxed), 1, "{frame:?} is in use");
            references.store(0, Ordering::Relaxed);
            free.small.extend(&[frame.index()]);
        }
        whole.flush(&mut free.lines);
    }

    /// A free index. Usually this thread's stack has one.
    #[inline]
    fn take(&self, kind: Kind) -> Option<u32> {
        let here = NonNull::from(self);
        let cached = CACHE.try_with(|cache| {
            let mut cache = cache.borrow_mut();
            let is_ours = cache.core == Some(here);
            is_ours.then(|| cache.pop(kind)).flatten()
        });
        match cached {
            Ok(Some(index)) => Some(index),
            _ => self.take_slowly(kind),
        }
    }

    #[inline(never)]
    fn take_slowly(&self, kind: Kind) -> Option<u32> {
        let here = NonNull::from(self);
        let cached = CACHE.try_with(|cache| cache.borrow_mut().take(here, kind));
        cached.unwrap_or_else(|_ending| {
            let mut one = [0];
            let taken = self.take_shared(kind, &mut one);
            (taken > 0).then_some(one[0])
        })
    }

    /// Moves the lowest indices of the shared set to the front of `indices`; returns their number.
    fn take_shared(&self, kind: Kind, indices: &mut [u32]) -> usize {
        let mut free = self.lock();
        let shared = free.of(kind);
        let count = shared.len().min(indices.len());
        let taken = shared.take(&mut indices[..count]);
        debug_assert_eq!(taken, count, "the set has this many");
        if matches!(kind, Kind::Lines) {
            // The first index is the highest; lines below it are free or already initialized.
            let end = indices[..count].first().map_or(0, |highest| highest + 1);
            for index in free.lines_made..end {
                let line = Line::unused(NonNull::from(self), index);
                // SAFETY: within the table, and no packet has had this line yet.
                unsafe { self.lines.add(index as usize).write(line) };
            }
            free.lines_made = free.lines_made.max(end);
        }
        count
    }

    /// Frees an index. Usually this thread's stack has room.
    #[inline]
    fn put(&self, kind: Kind, index: u32) {
        let here = NonNull::from(self);
        let kept = CACHE.try_with(|cache| {
            let mut cache = cache.borrow_mut();
            cache.core == Some(here) && cache.push(kind, index)
        });
        if kept != Ok(true) {
            self.put_slowly(kind, index);
        }
    }

    #[inline(never)]
    fn put_slowly(&self, kind: Kind, index: u32) {
        let here = NonNull::from(self);
        if CACHE
            .try_with(|cache| cache.borrow_mut().put(here, kind, index))
            .is_err()
        {
            // The thread is ending, and its cache is already dropped. This may be the last
            // reference to the core.
            self.bind();
            self.lock().of(kind).extend(&[index]);
            self.bound_caches.fetch_sub(1, Ordering::Release);
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Small,
    Large,
    Lines,
}

impl Free {
    const fn of(&mut self, kind: Kind) -> &mut FreeSet {
        match kind {
            Kind::Small => &mut self.small,
            Kind::Large => &mut self.large,
            Kind::Lines => &mut self.lines,
        }
    }
}

/// The most small frames, and lines, in a thread's cache. Fewer under Miri, which is slow with
/// large arrays.
pub(super) const SMALL_CACHED_MAX: usize = if cfg!(miri) { 6 } else { 256 };
/// The most lines in a thread's cache that keep their small frame, and those that keep none.
const WHOLE_CACHED_MAX: usize = SMALL_CACHED_MAX / 2;
const APART_CACHED_MAX: usize = SMALL_CACHED_MAX - WHOLE_CACHED_MAX;
/// The most large frames in a thread's cache.
pub(super) const LARGE_CACHED_MAX: usize = if cfg!(miri) { 3 } else { 16 };

/// A short stack of one thread. It exchanges half of its depth with the shared set at a time.
struct CacheStack<const DEPTH: usize> {
    indices: [u32; DEPTH],
    len: usize,
}

impl<const DEPTH: usize> CacheStack<DEPTH> {
    const EMPTY: Self = Self {
        indices: [0; DEPTH],
        len: 0,
    };

    #[inline]
    fn pop(&mut self) -> Option<u32> {
        self.len = self.len.checked_sub(1)?;
        Some(self.indices[self.len])
    }

    /// False if there is no room.
    #[inline]
    fn push(&mut self, index: u32) -> bool {
        let place = self.indices.get_mut(self.len);
        place.is_some_and(|place| {
            *place = index;
            self.len += 1;
            true
        })
    }

    fn take(&mut self, core: &Core, kind: Kind) -> Option<u32> {
        if self.len == 0 {
            self.len = core.take_shared(kind, &mut self.indices[..(DEPTH / 2).max(1)]);
        }
        self.pop()
    }

    fn put(&mut self, core: &Core, kind: Kind, index: u32) {
        if self.len == DEPTH {
            // The oldest half: the CPU cache has the youngest.
            let half = DEPTH.div_ceil(2);
            core.lock().of(kind).extend(&self.indices[..half]);
            self.indices.copy_within(half.., 0);
            self.len = DEPTH - half;
        }
        self.push(index);
    }

    fn flush(&mut self, shared: &mut FreeSet) {
        shared.extend(&self.indices[..self.len]);
        self.len = 0;
    }
}

pub(super) struct Cache {
    core: Option<NonNull<Core>>,
    small: CacheStack<APART_CACHED_MAX>,
    large: CacheStack<LARGE_CACHED_MAX>,
    lines: CacheStack<APART_CACHED_MAX>,
    /// Lines that have kept their small frame: most packets are taken and freed as they are.
    whole: CacheStack<WHOLE_CACHED_MAX>,
}

thread_local! {
    static CACHE: RefCell<Cache> = const {
        RefCell::new(Cache {
            core: None,
            small: CacheStack::EMPTY,
            large: CacheStack::EMPTY,
            lines: CacheStack::EMPTY,
            whole: CacheStack::EMPTY,
        })
    };
}

impl Cache {
    /// Calls `take` with as many as `most` lines of `core` that have kept the small frame of their
    /// only segment, and returns how many there were. The frame still has its reference.
    #[inline]
    pub(super) fn take_whole(
        &mut self,
        core: &Core,
        most: usize,
        mut take: impl FnMut(NonNull<Line>),
    ) -> usize {
        if self.core != Some(NonNull::from(core)) {
            return 0;
        }
        let had = self.whole.len;
        let left = had.saturating_sub(most);
        while self.whole.len > left
            && let Some(index) = self.whole.pop()
        {
            take(core.line(index));
        }
        had - left
    }

    /// Keeps a free line with the small frame of its only segment. False without room: then each
    /// has to be freed by itself.
    #[inline]
    pub(super) fn keep(&mut self, core: NonNull<Core>, line: u32) -> bool {
        self.core == Some(core) && self.whole.push(line)
    }

    #[inline]
    fn pop(&mut self, kind: Kind) -> Option<u32> {
        match kind {
            Kind::Small => self.small.pop(),
            Kind::Large => self.large.pop(),
            Kind::Lines => self.lines.pop(),
        }
    }

    #[inline]
    fn push(&mut self, kind: Kind, index: u32) -> bool {
        match kind {
            Kind::Small => self.small.push(index),
            Kind::Large => self.large.push(index),
            Kind::Lines => self.lines.push(index),
        }
    }

    fn take(&mut self, core: NonNull<Core>, kind: Kind) -> Option<u32> {
        let core = self.bind(core);
        let taken = self.take_of(core, kind);
        if taken.is_none() && !matches!(kind, Kind::Large) && self.whole.len > 0 {
            core.part(&mut self.whole, &mut core.lock());
            return self.take_of(core, kind);
        }
        taken
    }

    fn take_of(&mut self, core: &Core, kind: Kind) -> Option<u32> {
        match kind {
            Kind::Small => self.small.take(core, kind),
            Kind::Large => self.large.take(core, kind),
            Kind::Lines => self.lines.take(core, kind),
        }
    }

    fn put(&mut self, core: NonNull<Core>, kind: Kind, index: u32) {
        let core = self.bind(core);
        match kind {
            Kind::Small => self.small.put(core, kind, index),
            Kind::Large => self.large.put(core, kind, index),
            Kind::Lines => self.lines.put(core, kind, index),
        }
    }

    /// Makes this the cache of `core`, and returns indices of another core.
    fn bind<'a>(&mut self, core: NonNull<Core>) -> &'a Core {
        // SAFETY: callers reach a core through a live `Arena` or a live packet's line, and the
        // binding itself (counted below) then keeps it from being freed.
        let this = unsafe { core.as_ref() };
        if self.core != Some(core) {
            self.flush();
            this.bind();
            self.core = Some(core);
        }
        this
    }

    fn flush(&mut self) {
        let Some(core) = self.core.take() else { return };
        // SAFETY: `bound_caches` still counts this cache, so the core has not been freed.
        let core = unsafe { core.as_ref() };
        let mut free = core.lock();
        self.small.flush(&mut free.small);
        self.large.flush(&mut free.large);
        self.lines.flush(&mut free.lines);
        core.part(&mut self.whole, &mut free);
        drop(free);
        core.bound_caches.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.flush();
    }
}

/// What `run` makes of this thread's cache; `None` if the thread ends and has none any more. `run`
/// must not access the cache in another way, as the drop of a packet does.
#[inline]
pub(super) fn with_cache<T>(run: impl FnOnce(&mut Cache) -> T) -> Option<T> {
    CACHE.try_with(|cache| run(&mut cache.borrow_mut())).ok()
}

fn flush_thread_cache(core: NonNull<Core>) {
    // An error means that the thread is ending and has flushed its cache.
    CACHE
        .try_with(|cache| {
            let mut cache = cache.borrow_mut();
            if cache.core == Some(core) {
                cache.flush();
            }
        })
        .unwrap_or(());
}

const _: () = assert!(FrameClass::Large.data_bytes() >= PACKET_BYTES_MAX);
