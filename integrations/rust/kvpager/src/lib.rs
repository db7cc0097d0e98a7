//! kvpager manages the memory of the KV cache of large language models: it decides which blocks a
//! prompt shares, and which are allocated, copied or evicted. The engine copies and computes.
//!
//! ```
//! use kvpager::{Cache, Config};
//!
//! let mut cache = Cache::new(&Config { n_blocks: 4096, ..Default::default() })?;
//! let model = cache.namespace("llama-8b")?;
//! let mut prompt: Vec<i32> = (0..100).collect();
//! let mut cached = Vec::new();
//! for turn in 0..2 {
//!     prompt[99] = turn; // the rest of the prompt stays the same
//!     let (seq, info) = cache.open(model, &prompt)?;
//!     cached.push(info.cached_tokens);
//!     cache.commit(seq, 100)?; // after the model ran on those that are not
//!     cache.extend(seq, &[7], 0)?; // room for the sampled token
//!     cache.commit(seq, 101)?; // after it ran on that
//!     cache.close(seq)?; // full blocks stay cached
//! }
//! assert_eq!(cached, [0, 96]);
//! # Ok::<(), kvpager::Error>(())
//! ```
//!
//! Words: a *block* is KV memory of `S` = [`Config::block_tokens`] tokens; block 0 is the null
//! block, which no sequence is given. A *slot*, block x S + offset, is where one token's KV lives. A
//! *unit* of `U` = [`Config::unit_tokens`] tokens is the grain of what prompts can share. The *plan*
//! is the copies that the engine must run before its next forward pass.
//!
//! Rules for every call:
//!
//! - A call that fails changes nothing, unless its comment says so. [`Error::class`] tells whether
//!   to retry.
//! - [`Seq`], [`Namespace`] and [`Request`] are handles: they can be copied, and a stale one is
//!   [`Error::Handle`].
//! - A slice that a call gives borrows the cache, so it cannot outlive the next change.
//! - No call blocks, reads a clock or starts a thread. The same calls give the same blocks.
//! - A cache belongs to the process that created it: in a forked child, calls are [`Error::Busy`].
//!
//! What C has and this crate has not (token trees, events, quotas, kernels' metadata, snapshots,
//! stores) is in [`sys`], with [`Cache::as_ptr`].
#![warn(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

mod cache;
mod config;
mod error;
mod info;
mod numbers;
mod prompt;
mod sched;
mod sched_config;
mod seq;
mod states;

pub use kvpager_sys as sys;

pub use cache::{version, Cache};
pub use config::Config;
pub use error::{outcome, Class, Error, Result, Shortage, Violation, Why};
pub use info::{
    Admission, BlockCopy, BlockInfo, Evicted, Group, Hash, OpenInfo, Released, SeqInfo, Stats,
    Swapped, TokenRange, Window,
};
pub use numbers::{
    BlockState, Checkpoint, CommitPolicy, EndReason, FullHit, KeepEvicted, Preempt, RequestState,
    Steps, Stop, Tier, Verdict,
};
pub use prompt::{Batch, Key, Prompt};
pub use sched::{
    Ended, Request, RequestInfo, SampleInfo, SchedStats, Scheduler, Step, StepSeq, Submission,
};
pub use sched_config::SchedConfig;
pub use seq::{Namespace, Seq, SeqGuard};
pub use states::{StateInfo, StateStats};

/// As a position: the end of the sequence.
pub const END: u32 = sys::KVP_END;

/// As `sink_tokens` of a [`Window`]: queries see their own chunk of `recent_tokens` only.
pub const CHUNKED: u32 = sys::KVP_CHUNKED;

/// As [`Config::retain_tokens`]: only places that prompts give.
pub const RETAIN_PROMPTS: u32 = sys::KVP_RETAIN_PROMPTS;

/// "No slot": the KV of this token is there already and must not be written.
pub const NO_SLOT: i64 = sys::KVP_NO_SLOT as i64;

/// The array that a call gave.
///
/// # Safety
///
/// `data` points to `n` elements, unless `n` is 0, and they stay there for `'a`.
unsafe fn view<'a, T>(data: *const T, n: u32) -> &'a [T] {
    match n {
        0 => &[],
        // SAFETY: the caller's promise.
        n => unsafe { std::slice::from_raw_parts(data, n as usize) },
    }
}

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Manual;
