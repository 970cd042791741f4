//! Faults that tests plant in the framework, to show that a test can fail: the feature `plants`.
//!
//! The feature is for tests of packtrain only and off by default. Each plant is a few lines at the
//! place where a defect of that kind would be, behind `planted!`. Without the feature the macro
//! is the constant `false`, so a build without it has no instruction more.

/// Whether the plant of this name is set; `false` in a build without the feature `plants`.
#[cfg(feature = "plants")]
macro_rules! planted {
    ($name:ident) => {
        $crate::plant::is($crate::plant::Plant::$name)
    };
}
#[cfg(not(feature = "plants"))]
macro_rules! planted {
    ($name:ident) => {
        false
    };
}
pub(crate) use planted;

#[cfg(feature = "plants")]
pub use on::{Plant, current, set};
#[cfg(feature = "plants")]
pub(crate) use on::{RESET_AFTER, is};

#[cfg(feature = "plants")]
mod on {
    use std::fmt;
    use std::str::FromStr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    macro_rules! plants {
        ($($(#[$about:meta])* $name:ident $word:literal;)*) => {
            /// A fault. Each names the check that finds it. None has a state of its own beyond the
            /// queue that it is in, so a run is repeated from its seed.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum Plant {
                $($(#[$about])* $name,)*
            }

            impl Plant {
                /// All plants.
                pub const ALL: &[Self] = &[$(Self::$name),*];

                /// Its name on the command line.
                #[must_use]
                pub const fn name(self) -> &'static str {
                    match self {
                        $(Self::$name => $word,)*
                    }
                }
            }
        };
    }

    plants! {
        /// When the device takes no more of a burst, the last packet that is staged for it is lost.
        /// The ledger does not close.
        LostPacket "lost-packet";
        /// The last reference to a frame is dropped twice. A census of the arena finds a free frame
        /// whose count of references is not 0, and panics. No two packets get the frame.
        DoubleFree "double-free";
        /// A packet may have one segment more than the device allows. The device counts it
        /// (`SimCounters::unfit`); with debug assertions it panics.
        SegmentLimit "segment-limit";
        /// Packets that the coalescer flushes overtake those in its output. The order in a flow is
        /// wrong if two packets of it leave the coalescer in one burst.
        FlushReorders "flush-reorders";
        /// A checksum that the framework has to complete is left as it is. The checksums of the
        /// packets that arrive are wrong.
        SkippedChecksum "skipped-checksum";
        /// A TX queue that was stalled for want of descriptors gets no packet any more. Its packets
        /// are held after all faults have ended, and are `drop.shutdown` at the end.
        StallNotRestarted "stall-not-restarted";
        /// A bad packet is counted as received and not as dropped. The ledger does not close.
        NotCounted "not-counted";
        /// A bad packet takes the last good one of its poll with it, under the same reason. More
        /// packets are dropped as `bad_descriptor` than the device reported
        /// (`SimCounters::bad_descriptors`).
        BadDropsNeighbour "bad-drops-neighbour";
        /// A producer does not notify the TX worker. Packets in the ring wait until time ends the
        /// worker's sleep: the virtual world finds a worker that would move packets if it ran.
        LostWakeup "lost-wakeup";
        /// A reset takes packets back from the device and forgets them. The ledger does not close.
        ResetForgets "reset-forgets";
        /// As iflib in FreeBSD of 2017: an RX queue that met a bad descriptor loses what it
        /// receives, until a reset after 100 ms. The experiment `bad-rx` finds it.
        BadDescriptorResets "bad-descriptor-resets";
        /// As iflib in FreeBSD of 2017: a TX queue is not stopped for a change of the link, nor for
        /// a pause, so what is in flight then is not completed until the watchdog resets the queue.
        /// The experiment `media-change` finds it.
        LinkChangeIgnored "link-change-ignored";
        /// Among several ports, a lane waits for a port that has no space, with its packets for the
        /// others. These do not arrive while the port takes nothing.
        EgressWaits "egress-waits";
        /// Among several ports, the frames that wait for a port are not bounded. One that takes
        /// nothing has all of them in the end, so that no other port receives.
        FramesUnbounded "frames-unbounded";
        /// What a guest has the port read for a packet or a poll is not bounded. The tests of
        /// `vhost` count the descriptors.
        DescriptorsUnbounded "descriptors-unbounded";
    }

    /// The time to the reset of [`Plant::BadDescriptorResets`].
    pub(crate) const RESET_AFTER: Duration = Duration::from_millis(100);

    /// The place of the plant in [`Plant::ALL`], from 1; 0 for none.
    static PLANTED: AtomicUsize = AtomicUsize::new(0);

    /// Sets the plant of this process, or none. Queues that run see it at once.
    pub fn set(plant: Option<Plant>) {
        let number = plant.map_or(0, |plant| plant as usize + 1);
        PLANTED.store(number, Ordering::Relaxed);
    }

    /// The plant that is set.
    #[must_use]
    pub fn current() -> Option<Plant> {
        let number = PLANTED.load(Ordering::Relaxed);
        Plant::ALL.get(number.checked_sub(1)?).copied()
    }

    pub(crate) fn is(plant: Plant) -> bool {
        PLANTED.load(Ordering::Relaxed) == plant as usize + 1
    }

    impl fmt::Display for Plant {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.name())
        }
    }

    impl FromStr for Plant {
        type Err = String;

        fn from_str(text: &str) -> Result<Self, String> {
            let mut all = Self::ALL.iter().copied();
            all.find(|plant| plant.name() == text).ok_or_else(|| {
                let names: Vec<_> = Self::ALL.iter().map(|plant| plant.name()).collect();
                format!("write one of {}", names.join(", "))
            })
        }
    }
}
