//! Numbers of the library as types.

use std::fmt;

use kvpager_sys as sys;

/// An enum of the library's numbers. One that the crate does not know stays what it is.
macro_rules! numbered {
    ($($(#[$doc:meta])* pub enum $name:ident {
        $($(#[$each:meta])* $variant:ident = $number:ident,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$each])* $variant,)*
            /// A number that this version of the crate does not know.
            Other(u32),
        }

        impl From<u32> for $name {
            fn from(number: u32) -> $name {
                match number {
                    $(sys::$number => $name::$variant,)*
                    other => $name::Other(other),
                }
            }
        }

        impl From<$name> for u32 {
            fn from(value: $name) -> u32 {
                match value {
                    $($name::$variant => sys::$number,)*
                    $name::Other(number) => number,
                }
            }
        }
    )*};
}

numbered! {
    /// What commit does when a full block's content is in another block already.
    pub enum CommitPolicy {
        /// Switch the row to the block that is there, release ours.
        Adopt = KVP_ADOPT,
        /// Rows are append-only: ours stays a private duplicate.
        Keep = KVP_KEEP,
    }

    /// What open does when every token of the prompt is cached.
    pub enum FullHit {
        /// Share all; the last token's KV is there: it is not written.
        Share = KVP_FULL_HIT_SHARE,
        /// End the hit at the last block boundary before the last token.
        Recompute = KVP_FULL_HIT_RECOMPUTE,
    }

    /// What becomes of content that is evicted from the device, with a host tier.
    pub enum KeepEvicted {
        /// It is lost, if the host does not have it.
        Drop = KVP_EVICTED_DROP,
        /// It is copied to the host, if it is not there.
        Keep = KVP_EVICTED_KEEP,
        /// The same, and the host gives up what the device has again.
        KeepOnce = KVP_EVICTED_KEEP_ONCE,
    }

    /// When a released block may be taken again.
    pub enum Steps {
        /// At once: later work runs after earlier work.
        Ordered = KVP_STEPS_ORDERED,
        /// When the steps that may still touch it are done.
        Overlapped = KVP_STEPS_OVERLAPPED,
    }

    /// Why a match ended where it did.
    pub enum Stop {
        /// Every full unit of the prompt was hit.
        End = KVP_STOP_END,
        /// The next unit is not known after this prefix.
        Miss = KVP_STOP_MISS,
        /// The next unit is known, but no block has its KV: a sequence is still computing it, or it
        /// was evicted while something after it stayed.
        NoKv = KVP_STOP_NO_KV,
        /// The next unit holds a token that must not be cached.
        Uncached = KVP_STOP_UNCACHED,
        /// The prefix cache is off, or the prompt asks for no match.
        Off = KVP_STOP_OFF,
        /// All was there; cut back by [`FullHit::Recompute`].
        FullHit = KVP_STOP_FULL_HIT,
        /// A hit inside a block was given up, because its source and a block to copy it to did not
        /// both fit. Or more blocks were on the host than the plan can ever hold.
        NoRoom = KVP_STOP_NO_ROOM,
    }

    /// Whether a call would find its blocks.
    pub enum Verdict {
        /// Now.
        Ok = KVP_ADMIT_OK,
        /// Not now.
        Later = KVP_ADMIT_LATER,
        /// Never.
        Never = KVP_ADMIT_NEVER,
    }

    /// What a block is.
    pub enum BlockState {
        /// The null block.
        Null = KVP_BLOCK_NULL,
        /// No content.
        Free = KVP_BLOCK_FREE,
        /// Not held, content known: may be hit, may be evicted.
        Cached = KVP_BLOCK_CACHED,
        /// At least one row refers to it.
        Held = KVP_BLOCK_HELD,
        /// Released; a step that is out may still touch it.
        Parked = KVP_BLOCK_PARKED,
    }

    /// What [`Cache::checkpoint`](crate::Cache::checkpoint) did.
    pub enum Checkpoint {
        /// Nothing: no slot was available to go on with, others read the slot, or the unit is not
        /// public or was flushed.
        Skipped = KVP_CHECKPOINT_SKIPPED,
        /// The state is kept.
        Made = KVP_CHECKPOINT_MADE,
        /// There is one already.
        There = KVP_CHECKPOINT_THERE,
    }

    /// How a request that must give its blocks up does so.
    pub enum Preempt {
        /// It is closed, and computed anew when it is admitted again.
        Recompute = KVP_PREEMPT_RECOMPUTE,
        /// To the host; recompute when that has no room.
        Swap = KVP_PREEMPT_SWAP,
        /// Whichever costs less, by the prices of the configuration.
        Cheaper = KVP_PREEMPT_CHEAPER,
    }

    /// Why a sample ended.
    pub enum EndReason {
        /// `finish` was told so.
        Stopped = KVP_END_STOPPED,
        /// `max_new_tokens` are generated.
        Length = KVP_END_LENGTH,
        /// The cache refused it: [`Ended::status`](crate::Ended::status) tells why.
        Refused = KVP_END_REFUSED,
    }

    /// Where a request is.
    pub enum RequestState {
        /// It waits for admission.
        Waiting = KVP_REQUEST_WAITING,
        /// It runs.
        Running = KVP_REQUEST_RUNNING,
        /// It is kept from being scheduled.
        Paused = KVP_REQUEST_PAUSED,
        /// Its sequences are on the host.
        Swapped = KVP_REQUEST_SWAPPED,
        /// A store loads its prefix.
        Loading = KVP_REQUEST_LOADING,
    }
}

/// Where KV is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Tier(pub u8);

impl Tier {
    /// Where sequences grow.
    pub const DEVICE: Tier = Tier(sys::KVP_DEVICE as u8);
    /// The host tier, if the configuration has one.
    pub const HOST: Tier = Tier(sys::KVP_HOST as u8);
    /// Of a [`Shortage`](crate::Shortage): slots of recurrent state were missing.
    pub const STATE_SLOTS: Tier = Tier(sys::KVP_STATE_SLOTS as u8);
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Tier::DEVICE => f.write_str("device"),
            Tier::HOST => f.write_str("host"),
            Tier::STATE_SLOTS => f.write_str("state slots"),
            Tier(other) => write!(f, "tier {other}"),
        }
    }
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<u32> for Tier {
    fn from(number: u32) -> Tier {
        Tier(number as u8)
    }
}
