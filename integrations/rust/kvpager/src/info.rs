//! What calls give.

use kvpager_sys as sys;

use crate::{BlockState, Namespace, Seq, Stop, Tier, Verdict};

/// Counters since creation, and gauges.
pub use kvpager_sys::kvp_stats as Stats;

/// What a call released.
pub use kvpager_sys::kvp_released as Released;

/// What a swap did.
pub use kvpager_sys::kvp_swapped as Swapped;

/// What the layers of a group attend to.
pub use kvpager_sys::kvp_window as Window;

/// A layer group: its window, and the tokens of a block; 0: as many as the configuration says.
pub use kvpager_sys::kvp_group as Group;

/// Tokens `[begin, end)` of a sequence.
pub use kvpager_sys::kvp_range as TokenRange;

/// The content hash of a unit: equal on every machine.
pub use kvpager_sys::kvp_hash as Hash;

/// A struct with the fields of one of C, of better types.
macro_rules! mirror {
    ($($(#[$doc:meta])* pub struct $name:ident = $raw:ident {
        $($(#[$each:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$each])* pub $field: $type,)*
        }

        impl From<sys::$raw> for $name {
            fn from(raw: sys::$raw) -> $name {
                $name { $($field: raw.$field.into(),)* }
            }
        }
    )*};
}
pub(crate) use mirror;

mirror! {
    /// What a match found, and what an open did.
    pub struct OpenInfo = kvp_open_info {
        /// Tokens that need not be computed: min(`hit_tokens`, tokens - 1).
        cached_tokens: u32,
        /// Tokens whose KV is there: a multiple of `U`.
        hit_tokens: u32,
        /// Why the match ended there.
        stop: Stop,
        /// Of `hit_tokens`, those that the plan copies from the host.
        host_tokens: u32,
        /// Hit blocks that are shared.
        shared_blocks: u32,
        /// Hit blocks that are copied from the host, each to a taken one.
        host_blocks: u32,
        /// Of the shared ones, those that no sequence held.
        cached_blocks: u32,
        /// `hit_tokens % S`: copied into a block that is taken.
        copied_tokens: u32,
        /// Blocks taken for the rest; of a match: would be.
        taken_blocks: u32,
        /// Cached blocks that lost their content; of a match: 0.
        evicted_blocks: u32,
        /// [`Stop::NoKv`]: the layer group that ended the match; else 0.
        stop_group: u32,
    }

    /// What is known of a sequence. Counts are tokens, from its beginning, if not said otherwise.
    pub struct SeqInfo = kvp_seq_info {
        /// As opened; may have been closed since.
        ns: Namespace,
        /// The caller's own.
        tag: u64,
        /// Rises when an entry that was in the row is replaced or removed.
        row_version: u64,
        /// All tokens, with or without value.
        n_tokens: u32,
        /// Those with a value.
        known_tokens: u32,
        /// Given at open.
        prompt_tokens: u32,
        /// Not computed thanks to the cache, at open.
        cached_tokens: u32,
        /// Those whose KV is there.
        computed_tokens: u32,
        /// Slots of `[computed, writable)` may be written.
        writable_tokens: u32,
        /// Leading tokens in units that are, or once computed will be, matched by others.
        public_tokens: u32,
        /// Leading tokens whose values the cache has.
        kept_tokens: u32,
        /// Length of the row, blocks.
        n_blocks: u32,
        /// Why the match at open ended; of a fork, the parent's.
        stop: Stop,
        /// Value of the last known token; -1 when there is none, or not kept.
        last_token: i32,
        /// Class of the blocks that it takes.
        retention: u32,
        /// [`Tier::HOST`]: swapped out, the row's ids are the host's.
        tier: Tier,
        /// Tokens of its tree, not accepted yet, behind its tokens.
        tree_tokens: u32,
        /// [`Stop::NoKv`]: the layer group that ended the match at open; else 0.
        stop_group: u32,
    }

    /// Whether a call would find its blocks. Counts are blocks.
    pub struct Admission = kvp_admission {
        /// Now, later or never.
        verdict: Verdict,
        /// Blocks that leave the queue: taken, and hits that are cached.
        need_blocks: u32,
        /// Free and cached ones now.
        available: u32,
        /// Later: how many more must become available. Never: by how many the need alone exceeds
        /// the limit. Else 0.
        missing_blocks: u32,
        /// Of swaps: new blocks that the plan would copy to, copy-on-write not counted. Else 0.
        copied_blocks: u32,
    }

    /// What is known of a block.
    pub struct BlockInfo = kvp_block_info {
        /// What it is.
        state: BlockState,
        /// Rows that refer to it, and copies out in steps that keep it.
        ref_count: u32,
        /// Rises when its content is lost.
        generation: u64,
        /// Class, 0..7.
        retention: u32,
        /// Units attached to it.
        sealed_units: u32,
        /// End of the deepest attached unit within the block, tokens.
        sealed_tokens: u32,
        /// Of the deepest attached unit; zero when there is none.
        hash: Hash,
        /// Layer group that took it last.
        group: u32,
    }
}

/// One block copy of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct BlockCopy {
    /// 0, 1, ...: phases run in order, copies of a phase in any order.
    pub phase: u32,
    /// Layer group.
    pub group: u16,
    /// Where it is read.
    pub src_tier: Tier,
    /// Where it is written.
    pub dst_tier: Tier,
    /// Block id.
    pub src_block: i32,
    /// Block id.
    pub dst_block: i32,
    /// Used slots, from the block's start: 1..S.
    pub n_tokens: u32,
}

/// A cached block that lost its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct Evicted {
    /// Of the deepest unit that was sealed in the block.
    pub hash: Hash,
    /// Block id.
    pub block: i32,
    /// Whose block.
    pub tier: Tier,
    kept: u8,
    /// Layer group.
    pub group: u16,
}

impl Evicted {
    /// A device block whose content the plan copies to the host.
    pub fn is_kept(&self) -> bool {
        self.kept != 0
    }
}

/// Structs that are read where the library has them: a size that differs ends the build.
macro_rules! same_layout {
    ($($ours:ty = $raw:ident;)*) => {
        $(const _: () = {
            assert!(std::mem::size_of::<$ours>() == std::mem::size_of::<sys::$raw>());
            assert!(std::mem::align_of::<$ours>() == std::mem::align_of::<sys::$raw>());
        };)*
    };
}
pub(crate) use same_layout;

same_layout! {
    BlockCopy = kvp_copy;
    Evicted = kvp_evicted;
    Seq = kvp_seq;
    Namespace = kvp_ns;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each field is where C has it.
    #[test]
    fn fields_are_where_c_has_them() {
        let copy = sys::kvp_copy {
            phase: 1,
            group: 2,
            src_tier: 3,
            dst_tier: 4,
            src_block: 5,
            dst_block: 6,
            n_tokens: 7,
        };
        // SAFETY: same size, and every bit pattern is a value.
        let ours: BlockCopy = unsafe { std::mem::transmute(copy) };
        assert_eq!(
            (ours.phase, ours.group, ours.src_tier, ours.dst_tier),
            (1, 2, Tier(3), Tier(4))
        );
        assert_eq!((ours.src_block, ours.dst_block, ours.n_tokens), (5, 6, 7));

        let hash = Hash { bytes: [9; 16] };
        let evicted = sys::kvp_evicted { hash, block: 1, tier: 2, kept: 1, group: 3 };
        // SAFETY: as above.
        let ours: Evicted = unsafe { std::mem::transmute(evicted) };
        assert_eq!((ours.hash, ours.block, ours.tier, ours.group), (hash, 1, Tier(2), 3));
        assert!(ours.is_kept());
    }
}
