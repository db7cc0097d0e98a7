//! Recurrent state: slots, checkpoints.

use kvpager_sys as sys;

use crate::cache::get;
use crate::error::{count, outcome};
use crate::prompt::same_length;
use crate::{Cache, Checkpoint, Result, Seq};

/// Counters and gauges of the slots of recurrent state.
pub use kvpager_sys::kvp_state_stats as StateStats;

/// What is known of a sequence's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateInfo {
    /// Slot that the next step reads; 0: the initial state, or it is lost.
    pub read_slot: u32,
    /// Slot that it writes; 0: extend first.
    pub write_slot: u32,
    /// The state after the computed tokens is nowhere.
    pub is_lost: bool,
    /// Where a chunk of the prompt should end: the prompt leaves the known path; 0: nowhere.
    pub branch_end: u32,
    /// And: the last unit ends before the last token; 0: nowhere.
    pub prompt_end: u32,
    /// Slot with the state after the computed tokens: `read_slot`, unless a step that is out has a
    /// slot for more.
    pub computed_slot: u32,
}

impl From<sys::kvp_state_info> for StateInfo {
    fn from(raw: sys::kvp_state_info) -> StateInfo {
        StateInfo {
            read_slot: raw.read_slot,
            write_slot: raw.write_slot,
            is_lost: raw.lost != 0,
            branch_end: raw.branch_end,
            prompt_end: raw.prompt_end,
            computed_slot: raw.computed_slot,
        }
    }
}

/// Recurrent state, with [`Config::state_slots`](crate::Config::state_slots). `states.h` has its
/// rules.
///
/// ```
/// use kvpager::{Cache, Checkpoint, Config};
///
/// let config = Config { block_tokens: 4, n_blocks: 9, state_slots: 5, ..Default::default() };
/// let mut cache = Cache::new(&config)?;
/// let model = cache.namespace("mamba")?;
/// let prompt: Vec<i32> = (0..10).collect();
/// let (seq, _) = cache.open(model, &prompt)?;
/// let (mut read, mut write) = ([0], [0]);
/// for end in [cache.state(seq)?.prompt_end, 10] {
///     cache.state_slots(&[seq], &mut read, &mut write)?;
///     cache.commit(seq, end)?; // after the model ran: it read one slot and wrote the other
///     if end % 4 == 0 {
///         assert_eq!(cache.checkpoint(seq)?, Checkpoint::Made);
///     }
/// }
/// assert_eq!((read, write), ([1], [2]));
/// cache.close(seq)?;
/// assert_eq!(cache.open(model, &prompt)?.1.cached_tokens, 8);
/// # Ok::<(), kvpager::Error>(())
/// ```
impl Cache {
    /// Keeps the state after the computed tokens, which end a unit, for prompts that begin alike.
    ///
    /// # Errors
    ///
    /// [`Error::State`](crate::Error::State): there are no slots of state, or the computed tokens
    /// end no unit whose tokens are known and kept; [`Error::Dropped`](crate::Error::Dropped): the
    /// state is lost; [`Error::Handle`](crate::Error::Handle).
    pub fn checkpoint(&mut self, seq: Seq) -> Result<Checkpoint> {
        let mut done = 0;
        // SAFETY: exclusive; writes the outcome on success.
        self.done(unsafe { sys::kvp_seq_checkpoint(self.as_ptr(), seq.0, &mut done) })?;
        Ok(done.into())
    }

    /// What is known of a sequence's state.
    ///
    /// # Errors
    ///
    /// [`Error::State`](crate::Error::State): there are no slots of state;
    /// [`Error::Handle`](crate::Error::Handle).
    pub fn state(&self, seq: Seq) -> Result<StateInfo> {
        // SAFETY: writes `size` bytes.
        get(|out| unsafe { sys::kvp_seq_state_get(self.as_ptr(), seq.0, out) })
            .map(|raw: sys::kvp_state_info| raw.into())
    }

    /// The slots that the sequences of a step read and write, in the order of the batch.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](crate::Error::Argument): slices of different lengths;
    /// [`Error::State`](crate::Error::State): there are no slots of state, or a sequence has none
    /// to write; [`Error::Dropped`](crate::Error::Dropped): the state of one is lost;
    /// [`Error::Handle`](crate::Error::Handle).
    pub fn state_slots(&self, seqs: &[Seq], read: &mut [i32], write: &mut [i32]) -> Result<()> {
        let n = count("seqs", seqs.len())?;
        same_length("read", read.len(), n.into())?;
        same_length("write", write.len(), n.into())?;
        let (seqs, read, write) = (seqs.as_ptr().cast(), read.as_mut_ptr(), write.as_mut_ptr());
        // SAFETY: reads `n` handles; writes `n` slots of each on success.
        outcome(unsafe { sys::kvp_meta_states(self.as_ptr(), seqs, n, read, write) })
    }

    /// Counters and gauges of the slots of state; all 0 without them. O(1).
    ///
    /// # Errors
    ///
    /// None that a caller can cause.
    pub fn state_stats(&self) -> Result<StateStats> {
        // SAFETY: writes `size` bytes.
        get(|out| unsafe { sys::kvp_cache_state_stats_get(self.as_ptr(), out) })
    }
}
