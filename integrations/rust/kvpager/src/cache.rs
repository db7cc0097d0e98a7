//! The cache: namespaces, sequences, admission, plans.

use std::ptr::{null, null_mut, NonNull};

use kvpager_sys as sys;

use crate::error::{audit, count, explain, outcome, text};
use crate::prompt::same_length;
use crate::{
    Admission, Batch, BlockCopy, BlockInfo, Config, Error, Evicted, Namespace, OpenInfo, Prompt,
    Released, Result, Seq, SeqGuard, SeqInfo, Shortage, Stats, Swapped, Tier, TokenRange,
};

/// One cache: bookkeeping only. The KV memory is the engine's.
///
/// It may move to another thread, and two threads cannot use it at once:
///
/// ```
/// let cache = kvpager::Cache::new(&kvpager::Config::default()).unwrap();
/// std::thread::spawn(move || cache.stats().unwrap().usable_blocks).join().unwrap();
/// ```
///
/// ```compile_fail,E0277
/// let cache = kvpager::Cache::new(&kvpager::Config::default()).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(|| cache.stats().unwrap().usable_blocks);
/// });
/// ```
///
/// What a call gives as a slice is in the cache, so no call that changes the cache can be made while
/// the slice is in use:
///
/// ```
/// # let mut cache = kvpager::Cache::new(&kvpager::Config::default()).unwrap();
/// # let ns = cache.namespace("").unwrap();
/// # let (seq, _) = cache.open(ns, &[1, 2, 3]).unwrap();
/// let row = cache.row(seq, 0).unwrap().to_vec();
/// cache.close(seq).unwrap();
/// assert_eq!(row, [1]);
/// ```
///
/// ```compile_fail,E0502
/// # let mut cache = kvpager::Cache::new(&kvpager::Config::default()).unwrap();
/// # let ns = cache.namespace("").unwrap();
/// # let (seq, _) = cache.open(ns, &[1, 2, 3]).unwrap();
/// let row = cache.row(seq, 0).unwrap();
/// cache.close(seq).unwrap();
/// assert_eq!(row, [1]);
/// ```
#[derive(Debug)]
pub struct Cache {
    raw: NonNull<sys::kvp_cache>,
}

// SAFETY: a call needs exclusive access during the call, from any thread.
unsafe impl Send for Cache {}

impl Drop for Cache {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nothing borrows from it.
        unsafe { sys::kvp_cache_destroy(self.raw.as_ptr()) }
    }
}

/// The cache itself.
impl Cache {
    /// Creates a cache, in memory that the library maps. No later call allocates, but for what is
    /// put into the caller's `Vec`s.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] names the field; [`Error::TooLong`]; [`Error::NoMemory`].
    pub fn new(config: &Config) -> Result<Cache> {
        let mut raw = null_mut();
        config.with(|config| {
            // SAFETY: the struct is complete; no arena; `raw` is written on success.
            outcome(unsafe { sys::kvp_cache_create(config, null_mut(), 0, &mut raw) })
        })?;
        NonNull::new(raw).map(|raw| Cache { raw }).ok_or(Error::NoMemory)
    }

    /// The cache of C, for calls of [`sys`](crate::sys) that have no method here. It must not be
    /// destroyed, and slices that were given end with the next call that changes it.
    pub fn as_ptr(&self) -> *mut sys::kvp_cache {
        self.raw.as_ptr()
    }

    /// Closes every sequence, drops all content, and empties the plan. Namespaces stay open;
    /// [`Seq`]s are stale.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`].
    pub fn reset(&mut self) -> Result<()> {
        // SAFETY: exclusive.
        outcome(unsafe { sys::kvp_cache_reset(self.as_ptr()) })
    }

    /// The configuration, with every default resolved.
    ///
    /// # Errors
    ///
    /// None that a caller can cause.
    pub fn config(&self) -> Result<Config> {
        let raw = get(|out| {
            // SAFETY: writes `size` bytes.
            unsafe { sys::kvp_cache_config_get(self.as_ptr(), out) }
        })?;
        // SAFETY: `uncached_tokens` is in the cache.
        Ok(unsafe { Config::from_raw(&raw) })
    }

    /// Counters and gauges. O(1).
    ///
    /// # Errors
    ///
    /// None that a caller can cause.
    pub fn stats(&self) -> Result<Stats> {
        // SAFETY: writes `size` bytes.
        get(|out| unsafe { sys::kvp_cache_stats_get(self.as_ptr(), out) })
    }

    /// Audits the cache. Level 1: sums, O(1); 2: pool and queue, O(N); 3: every invariant.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] with what does not hold; [`Error::Argument`]: there is no such level.
    pub fn check(&mut self, level: i32) -> Result<()> {
        // SAFETY: exclusive.
        audit(|out| unsafe { sys::kvp_cache_check(self.as_ptr(), level, out) })
    }

    /// What the most recent call that changed the cache evicted, in order.
    ///
    /// # Errors
    ///
    /// [`Error::Behind`]: it evicted more than the list has room for.
    pub fn evicted(&self) -> Result<&[Evicted]> {
        let (mut data, mut n) = (null(), 0);
        // SAFETY: gives an array in the cache, valid until a call that changes it.
        unsafe {
            outcome(sys::kvp_cache_evicted(self.as_ptr(), &mut data, &mut n))?;
            Ok(crate::view(data.cast(), n))
        }
    }

    /// What is known of a block of a tier, `0..N-1`. Layer groups share a pool.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: no such tier or block.
    pub fn block(&self, tier: Tier, block: i32) -> Result<BlockInfo> {
        get(|out| {
            // SAFETY: writes `size` bytes.
            unsafe { sys::kvp_block_info_get(self.as_ptr(), 0, tier.0.into(), block, out) }
        })
        .map(|raw: sys::kvp_block_info| raw.into())
    }

    /// Evicts the coldest cached blocks of the device now, until `n_blocks` are free: for an engine
    /// whose accelerator waits while the next step is made. Gives how many lost their content.
    /// [`Scheduler::reclaim`](crate::Scheduler::reclaim) counts what the next step takes.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`].
    pub fn reclaim(&mut self, n_blocks: u32) -> Result<u32> {
        let mut n = 0;
        // SAFETY: exclusive; writes the number on success.
        self.done(unsafe { sys::kvp_cache_reclaim(self.as_ptr(), n_blocks, &mut n) })?;
        Ok(n)
    }

    /// The open sequences, in the order of their places. O(`max_seqs`).
    ///
    /// # Errors
    ///
    /// None that a caller can cause.
    pub fn seqs(&self, out: &mut Vec<Seq>) -> Result<()> {
        collect(out, |data, capacity, n| {
            // SAFETY: writes at most `capacity` handles.
            unsafe { sys::kvp_cache_seqs(self.as_ptr(), data.cast(), capacity, n) }
        })
    }
}

/// Namespaces, which separate tenants, adapters and model versions.
impl Cache {
    /// Opens a namespace by name, 0..255 bytes. If it is open already, this is the same one, with
    /// one more opener.
    ///
    /// # Errors
    ///
    /// [`Error::NoNamespaces`]; [`Error::Argument`]: the name is too long.
    pub fn namespace(&mut self, name: impl AsRef<[u8]>) -> Result<Namespace> {
        let name = name.as_ref();
        let mut ns = sys::kvp_ns::default();
        // SAFETY: reads the name; writes the handle on success.
        outcome(unsafe {
            sys::kvp_ns_open(self.as_ptr(), name.as_ptr().cast(), name.len(), &mut ns)
        })?;
        Ok(Namespace(ns))
    }

    /// Closes a namespace once. The last close flushes it. Its open sequences continue.
    ///
    /// # Errors
    ///
    /// [`Error::Handle`].
    pub fn close_namespace(&mut self, ns: Namespace) -> Result<()> {
        // SAFETY: exclusive; a handle is checked.
        outcome(unsafe { sys::kvp_ns_close(self.as_ptr(), ns.0) })
    }

    /// Forgets everything cached in the namespace. Open sequences continue; what they compute from
    /// now on cannot be hit. O(1).
    ///
    /// # Errors
    ///
    /// [`Error::Handle`].
    pub fn flush(&mut self, ns: Namespace) -> Result<()> {
        // SAFETY: as above.
        outcome(unsafe { sys::kvp_ns_flush(self.as_ptr(), ns.0) })
    }
}

/// Prompts.
impl Cache {
    /// How much of a prompt is cached. Holds and changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Handle`]; [`Error::TooLong`]; [`Error::Argument`] names the field of the prompt.
    pub fn find<'a>(&mut self, ns: Namespace, prompt: impl Into<Prompt<'a>>) -> Result<OpenInfo> {
        self.ask(ns, prompt.into(), |cache, prompt, out: &mut sys::kvp_open_info| {
            // SAFETY: exclusive; reads the prompt; writes `size` bytes.
            unsafe { sys::kvp_cache_match(cache, ns.0, prompt, out) }
        })
        .map(Into::into)
    }

    /// Whether [`open`](Cache::open) would find its blocks now.
    ///
    /// # Errors
    ///
    /// As [`find`](Cache::find).
    pub fn can_open<'a>(
        &mut self,
        ns: Namespace,
        prompt: impl Into<Prompt<'a>>,
    ) -> Result<Admission> {
        self.ask(ns, prompt.into(), |cache, prompt, out: &mut sys::kvp_admission| {
            // SAFETY: as above.
            unsafe { sys::kvp_cache_can_open(cache, ns.0, prompt, out) }
        })
        .map(Into::into)
    }

    /// Opens a sequence: matches the longest cached prefix, holds its blocks, takes blocks for the
    /// rest. Run the tokens from [`OpenInfo::cached_tokens`] on, then [`commit`](Cache::commit).
    /// O(tokens).
    ///
    /// # Errors
    ///
    /// [`Error::NoBlocks`]; [`Error::Never`]; [`Error::NoSeqs`]; [`Error::PlanFull`];
    /// [`Error::Handle`]; [`Error::TooLong`]; [`Error::Argument`] names the field of the prompt.
    pub fn open<'a>(
        &mut self,
        ns: Namespace,
        prompt: impl Into<Prompt<'a>>,
    ) -> Result<(Seq, OpenInfo)> {
        let mut seq = sys::kvp_seq::default();
        let info = self.ask(ns, prompt.into(), |cache, prompt, out: &mut sys::kvp_open_info| {
            // SAFETY: as above; writes the handle on success.
            unsafe { sys::kvp_seq_open(cache, ns.0, prompt, &mut seq, out) }
        })?;
        Ok((Seq(seq), info.into()))
    }

    /// Closes the sequence when the guard goes, unless it is kept.
    pub fn guard(&mut self, seq: Seq) -> SeqGuard<'_> {
        SeqGuard::new(self, seq)
    }

    /// A call with a prompt, and why it was refused.
    fn ask<T: Default>(
        &mut self,
        ns: Namespace,
        prompt: Prompt<'_>,
        call: impl FnOnce(*mut sys::kvp_cache, &sys::kvp_prompt, &mut T) -> i32,
    ) -> Result<T> {
        let prompt = prompt.to_raw()?;
        let mut out = T::default();
        let status = call(self.as_ptr(), &prompt, &mut out);
        match self.done(status) {
            Ok(()) => Ok(out),
            // SAFETY: exclusive; the prompt's pointers are still good.
            Err(error) => Err(explain(error, |why| unsafe {
                sys::kvp_prompt_check(self.as_ptr(), ns.0, &prompt, why)
            })),
        }
    }
}

/// Sequences. Counts and positions are tokens.
impl Cache {
    /// Makes room for more tokens: afterwards the slots of all tokens that are not computed, and of
    /// `reserve_tokens` more, may be written. The plan gets the copies that this needs.
    ///
    /// # Errors
    ///
    /// [`Error::NoBlocks`]; [`Error::Never`]; [`Error::TooLong`]; [`Error::State`]: it is swapped
    /// out, or has tokens without value; [`Error::PlanFull`]; [`Error::InFlight`];
    /// [`Error::Dropped`]; [`Error::Handle`]; [`Error::Argument`]: a negative token id.
    pub fn extend(&mut self, seq: Seq, tokens: &[i32], reserve_tokens: u32) -> Result<()> {
        let n = count("tokens", tokens.len())?;
        // SAFETY: exclusive; reads `n` tokens.
        self.done(unsafe {
            sys::kvp_seq_extend(self.as_ptr(), seq.0, tokens.as_ptr(), n, reserve_tokens)
        })
    }

    /// Makes room for tokens whose values [`fill`](Cache::fill) gives later.
    ///
    /// # Errors
    ///
    /// As [`extend`](Cache::extend).
    pub fn extend_unknown(&mut self, seq: Seq, n_tokens: u32, reserve_tokens: u32) -> Result<()> {
        // SAFETY: exclusive; no values.
        self.done(unsafe {
            sys::kvp_seq_extend(self.as_ptr(), seq.0, null(), n_tokens, reserve_tokens)
        })
    }

    /// Makes room for many sequences, in the order given: all get it, or none.
    /// [`Shortage::index`] is the first one for which blocks do not suffice.
    ///
    /// # Errors
    ///
    /// As [`extend`](Cache::extend); [`Error::Argument`] also for slices whose lengths do not fit
    /// together, and for a sequence named twice.
    pub fn extend_many(&mut self, batch: &Batch<'_>) -> Result<()> {
        let raw = batch.to_raw()?;
        // SAFETY: exclusive; `raw` points into the batch, whose lengths were compared.
        self.done(unsafe { sys::kvp_seq_extend_many(self.as_ptr(), &raw) })
    }

    /// Makes room for each sequence by itself, in the order given. One that is refused is left
    /// unchanged, and the others continue. `statuses` gets one for each: [`outcome`] reads them.
    ///
    /// # Errors
    ///
    /// What is wrong with the batch itself, as [`extend_many`](Cache::extend_many): then nothing was
    /// changed.
    pub fn extend_each(&mut self, batch: &Batch<'_>, statuses: &mut Vec<i32>) -> Result<()> {
        let mut raw = batch.to_raw()?;
        statuses.clear();
        statuses.resize(batch.seqs.len(), sys::KVP_OK);
        raw.flags = sys::KVP_BATCH_EACH;
        raw.statuses = statuses.as_mut_ptr();
        // SAFETY: as above; writes a status for each sequence.
        self.done(unsafe { sys::kvp_seq_extend_many(self.as_ptr(), &raw) })
    }

    /// Whether [`extend_many`](Cache::extend_many) would find its blocks now.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`]; [`Error::State`]; [`Error::InFlight`]; [`Error::Handle`];
    /// [`Error::Argument`].
    pub fn can_extend(&mut self, batch: &Batch<'_>) -> Result<Admission> {
        let raw = batch.to_raw()?;
        // SAFETY: as above; writes `size` bytes.
        get(|out| unsafe { sys::kvp_cache_can_extend(self.as_ptr(), &raw, out) })
            .map(|raw: sys::kvp_admission| raw.into())
    }

    /// Gives the values of tokens that were extended without, in order.
    ///
    /// # Errors
    ///
    /// [`Error::State`]: there are fewer of them; [`Error::Handle`]; [`Error::Argument`].
    pub fn fill(&mut self, seq: Seq, tokens: &[i32]) -> Result<()> {
        let n = count("tokens", tokens.len())?;
        // SAFETY: exclusive; reads `n` tokens.
        self.done(unsafe { sys::kvp_seq_fill(self.as_ptr(), seq.0, tokens.as_ptr(), n) })
    }

    /// [`fill`](Cache::fill) for each of many sequences, all or nothing.
    ///
    /// # Errors
    ///
    /// As [`fill`](Cache::fill), and for slices that do not fit together.
    pub fn fill_many(&mut self, batch: &Batch<'_>) -> Result<()> {
        let raw = batch.to_raw()?;
        // SAFETY: as in `extend_many`.
        self.done(unsafe { sys::kvp_seq_fill_many(self.as_ptr(), &raw) })
    }

    /// Declares the KV of the first `n_tokens` computed: written, or ordered to be written before
    /// anything can read it. Its full units can be hit from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: more than the sequence has; [`Error::State`]: slots up to there were
    /// never made writable; [`Error::Handle`].
    pub fn commit(&mut self, seq: Seq, n_tokens: u32) -> Result<()> {
        // SAFETY: exclusive.
        self.done(unsafe { sys::kvp_seq_commit(self.as_ptr(), seq.0, n_tokens) })
    }

    /// [`commit`](Cache::commit) for each of many sequences, all or nothing: `[B]` and `[B]`.
    ///
    /// # Errors
    ///
    /// As [`commit`](Cache::commit), and for slices of different lengths.
    pub fn commit_many(&mut self, seqs: &[Seq], n_tokens: &[u32]) -> Result<()> {
        let n = count("seqs", seqs.len())?;
        same_length("n_tokens", n_tokens.len(), n.into())?;
        // SAFETY: exclusive; reads `n` of each.
        self.done(unsafe {
            sys::kvp_seq_commit_many(self.as_ptr(), seqs.as_ptr().cast(), n_tokens.as_ptr(), n)
        })
    }

    /// Takes back the KV of tokens from `from` on: the step that was to write it failed. `sharing`
    /// gets other sequences whose KV may be wrong, too.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: `from` exceeds the tokens; [`Error::Handle`].
    pub fn invalidate(&mut self, seq: Seq, from: u32, sharing: &mut Vec<Seq>) -> Result<()> {
        let cache = self.as_ptr();
        collect(sharing, |data, capacity, n| {
            // SAFETY: exclusive; writes at most `capacity` handles.
            unsafe { sys::kvp_seq_invalidate(cache, seq.0, from, data.cast(), capacity, n) }
        })
    }

    /// A second sequence that shares everything before `at`; [`END`](crate::END): all tokens. It
    /// takes no block: the first of the two to write into a shared block gets its own copy.
    ///
    /// # Errors
    ///
    /// [`Error::State`]: tokens before `at` are not computed, or have no value;
    /// [`Error::Argument`]: `at` exceeds the tokens; [`Error::NoSeqs`]; [`Error::Dropped`];
    /// [`Error::Handle`].
    pub fn fork(&mut self, parent: Seq, at: u32, tag: u64) -> Result<Seq> {
        let mut child = sys::kvp_seq::default();
        // SAFETY: exclusive; writes the handle on success.
        self.done(unsafe { sys::kvp_seq_fork(self.as_ptr(), parent.0, at, tag, &mut child) })?;
        Ok(Seq(child))
    }

    /// Rolls back to `n_tokens`, at any place, also into shared blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: more than the sequence has; [`Error::State`]; [`Error::Dropped`];
    /// [`Error::Handle`].
    pub fn truncate(&mut self, seq: Seq, n_tokens: u32) -> Result<Released> {
        let mut out = Released::default();
        // SAFETY: exclusive; writes `out` on success.
        self.done(unsafe { sys::kvp_seq_truncate(self.as_ptr(), seq.0, n_tokens, &mut out) })?;
        Ok(out)
    }

    /// Closes a sequence. What it computed stays cached.
    ///
    /// # Errors
    ///
    /// [`Error::Handle`].
    pub fn close(&mut self, seq: Seq) -> Result<Released> {
        let mut out = Released::default();
        // SAFETY: as above.
        self.done(unsafe { sys::kvp_seq_close(self.as_ptr(), seq.0, &mut out) })?;
        Ok(out)
    }

    /// Sets the retention class, 0..7, of the blocks that hold these positions. Lower classes are
    /// evicted first.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: the range is empty or exceeds the row, or there is no such class;
    /// [`Error::Handle`].
    pub fn retain(&mut self, seq: Seq, range: TokenRange, retention: u32) -> Result<()> {
        // SAFETY: exclusive.
        self.done(unsafe { sys::kvp_seq_retain(self.as_ptr(), seq.0, range, retention) })
    }

    /// Adds a range of positions that must not be cached; they may lie ahead of the tokens.
    ///
    /// # Errors
    ///
    /// [`Error::State`]: the unit with `range.begin` is public already; [`Error::Argument`];
    /// [`Error::Handle`].
    pub fn uncache(&mut self, seq: Seq, range: TokenRange) -> Result<()> {
        // SAFETY: exclusive.
        self.done(unsafe { sys::kvp_seq_uncache(self.as_ptr(), seq.0, range) })
    }
}

/// What a sequence knows.
impl Cache {
    /// All that is known of a sequence.
    ///
    /// # Errors
    ///
    /// [`Error::Handle`].
    pub fn info(&self, seq: Seq) -> Result<SeqInfo> {
        // SAFETY: writes `size` bytes.
        get(|out| unsafe { sys::kvp_seq_info_get(self.as_ptr(), seq.0, out) })
            .map(|raw: sys::kvp_seq_info| raw.into())
    }

    /// Reads token values back, from position `from` on: as many as `out` has room for.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: the range exceeds the tokens; [`Error::Unknown`]: one has no value;
    /// [`Error::Handle`].
    pub fn tokens(&self, seq: Seq, from: u32, out: &mut [i32]) -> Result<()> {
        let n = count("out", out.len())?;
        // SAFETY: writes `n` tokens.
        outcome(unsafe { sys::kvp_seq_tokens(self.as_ptr(), seq.0, from, n, out.as_mut_ptr()) })
    }

    /// The block table for a layer group: block ids in order, reserved ones included. 0: dropped by
    /// a window. O(1).
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: no such group; [`Error::Handle`].
    pub fn row(&self, seq: Seq, group: u32) -> Result<&[i32]> {
        let (mut data, mut n) = (null(), 0);
        // SAFETY: gives an array in the cache, valid until a call that changes it.
        unsafe {
            outcome(sys::kvp_seq_row(self.as_ptr(), seq.0, group, &mut data, &mut n))?;
            Ok(crate::view(data, n))
        }
    }

    /// Slots for the KV of tokens from position `from` on, as many as `out` has room for: block x S
    /// + offset, or [`NO_SLOT`](crate::NO_SLOT) for a token that is computed already.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: the range exceeds the row, or no such group; [`Error::State`]: it holds
    /// slots that are neither computed nor writable; [`Error::Handle`].
    pub fn slots(&self, seq: Seq, group: u32, from: u32, out: &mut [i64]) -> Result<()> {
        let n = count("out", out.len())?;
        // SAFETY: writes `n` slots.
        outcome(unsafe {
            sys::kvp_seq_slots(self.as_ptr(), seq.0, group, from, n, out.as_mut_ptr())
        })
    }
}

/// Work: plans, steps, the host tier.
impl Cache {
    /// Takes the plan: the copies that must run, in order, before any forward pass that uses the
    /// rows. `out` is emptied first; keep it, and no later call allocates.
    ///
    /// # Errors
    ///
    /// [`Error::State`]: the steps of the configuration are overlapped.
    pub fn take_plan(&mut self, out: &mut Vec<BlockCopy>) -> Result<()> {
        let cache = self.as_ptr();
        collect(out, |data, capacity, n| {
            // SAFETY: exclusive; writes at most `capacity` copies.
            unsafe { sys::kvp_plan_take(cache, data.cast(), capacity, n) }
        })
    }

    /// Begins a step: gives its number, and takes the plan as its own.
    ///
    /// # Errors
    ///
    /// [`Error::State`]: the steps of the configuration are ordered; [`Error::NoSteps`].
    pub fn begin_step(&mut self, out: &mut Vec<BlockCopy>) -> Result<u64> {
        let (cache, mut step) = (self.as_ptr(), 0);
        collect(out, |data, capacity, n| {
            // SAFETY: as above; writes the number on success.
            unsafe { sys::kvp_step_begin(cache, data.cast(), capacity, n, &mut step) }
        })?;
        Ok(step)
    }

    /// Declares: when the step takes effect, the first `n_tokens[i]` of `seqs[i]` are computed.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: the step is not out, a count exceeds the tokens, or the slices do not
    /// fit together; [`Error::State`]; [`Error::Handle`].
    pub fn commit_step(&mut self, step: u64, seqs: &[Seq], n_tokens: &[u32]) -> Result<()> {
        let n = count("seqs", seqs.len())?;
        same_length("n_tokens", n_tokens.len(), n.into())?;
        let (seqs, counts) = (seqs.as_ptr().cast(), n_tokens.as_ptr());
        // SAFETY: exclusive; reads `n` of each.
        self.done(unsafe { sys::kvp_step_commit(self.as_ptr(), step, seqs, counts, n) })
    }

    /// Reports a step done. Gives the newest step that has taken effect.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: it is not out, or was reported already.
    pub fn end_step(&mut self, step: u64) -> Result<u64> {
        let mut effective = 0;
        // SAFETY: exclusive; writes the number on success.
        self.done(unsafe { sys::kvp_step_done(self.as_ptr(), step, &mut effective) })?;
        Ok(effective)
    }

    /// Reports that a step failed: what it should have copied or computed is never found. `cut` gets
    /// the sequences whose computed tokens were cut; each continues at its `computed_tokens`.
    ///
    /// # Errors
    ///
    /// As [`end_step`](Cache::end_step).
    pub fn fail_step(&mut self, step: u64, cut: &mut Vec<Seq>) -> Result<()> {
        let cache = self.as_ptr();
        collect(cut, |data, capacity, n| {
            // SAFETY: exclusive; writes at most `capacity` handles.
            unsafe { sys::kvp_step_failed(cache, step, data.cast(), capacity, n) }
        })
    }

    /// Moves sequences to the host, all or nothing. The plan has the copies.
    ///
    /// # Errors
    ///
    /// [`Error::State`]: one is swapped out already; [`Error::NoBlocks`] and [`Error::Never`] of the
    /// host; [`Error::PlanFull`]; [`Error::Handle`]; [`Error::Argument`]: one is named twice.
    pub fn swap_out(&mut self, seqs: &[Seq]) -> Result<Swapped> {
        let n = count("seqs", seqs.len())?;
        let mut out = Swapped::default();
        // SAFETY: exclusive; reads `n` handles; writes `out` on success.
        self.done(unsafe {
            sys::kvp_seq_swap_out(self.as_ptr(), seqs.as_ptr().cast(), n, &mut out)
        })?;
        Ok(out)
    }

    /// Moves sequences back, with room for `reserve_tokens` more of each, all or nothing.
    ///
    /// # Errors
    ///
    /// As [`swap_out`](Cache::swap_out), with blocks of the device; [`Error::State`]: one is not
    /// swapped out; [`Error::Dropped`]; [`Error::TooLong`].
    pub fn swap_in(&mut self, seqs: &[Seq], reserve_tokens: u32) -> Result<Swapped> {
        let n = count("seqs", seqs.len())?;
        let mut out = Swapped::default();
        let handles = seqs.as_ptr().cast();
        // SAFETY: as above.
        self.done(unsafe {
            sys::kvp_seq_swap_in(self.as_ptr(), handles, n, reserve_tokens, &mut out)
        })?;
        Ok(out)
    }

    /// Whether [`swap_out`](Cache::swap_out) would find its blocks now: the host's.
    ///
    /// # Errors
    ///
    /// [`Error::State`]; [`Error::Handle`]; [`Error::Argument`].
    pub fn can_swap_out(&mut self, seqs: &[Seq]) -> Result<Admission> {
        let (n, handles) = (count("seqs", seqs.len())?, seqs.as_ptr().cast());
        get(|out| {
            // SAFETY: exclusive; reads `n` handles; writes `size` bytes.
            unsafe { sys::kvp_cache_can_swap_out(self.as_ptr(), handles, n, out) }
        })
        .map(|raw: sys::kvp_admission| raw.into())
    }

    /// Whether [`swap_in`](Cache::swap_in) would find its blocks now.
    ///
    /// # Errors
    ///
    /// As [`swap_in`](Cache::swap_in), but for blocks and the plan.
    pub fn can_swap_in(&mut self, seqs: &[Seq], reserve_tokens: u32) -> Result<Admission> {
        let (n, handles) = (count("seqs", seqs.len())?, seqs.as_ptr().cast());
        get(|out| {
            // SAFETY: as above.
            unsafe { sys::kvp_cache_can_swap_in(self.as_ptr(), handles, n, reserve_tokens, out) }
        })
        .map(|raw: sys::kvp_admission| raw.into())
    }

    /// The outcome of a call that changes the cache, with the blocks that it missed.
    pub(crate) fn done(&self, status: i32) -> Result<()> {
        match outcome(status) {
            Err(Error::NoBlocks(_)) => Err(Error::NoBlocks(self.shortage())),
            Err(Error::Never(_)) => Err(Error::Never(self.shortage())),
            other => other,
        }
    }

    fn shortage(&self) -> Shortage {
        let raw: Result<sys::kvp_shortage> = get(|out| {
            // SAFETY: writes `size` bytes.
            unsafe { sys::kvp_cache_shortage_get(self.as_ptr(), out) }
        });
        raw.map_or(Shortage::default(), |raw| Shortage {
            missing_blocks: raw.missing_blocks,
            index: raw.index,
            tier: raw.tier.into(),
        })
    }
}

/// The library's version, `0.2.0`.
pub fn version() -> &'static str {
    // SAFETY: pure; a static string.
    text(unsafe { sys::kvp_version() })
}

/// What a call writes into a struct of this size.
pub(crate) fn get<T: Default>(call: impl FnOnce(*mut T) -> i32) -> Result<T> {
    let mut out = T::default();
    outcome(call(&mut out)).map(|()| out)
}

/// Replaces what is in `out` by what a call gives. It takes a capacity, and reports how many there
/// are also when that is not enough.
fn collect<T>(out: &mut Vec<T>, mut call: impl FnMut(*mut T, u32, &mut u32) -> i32) -> Result<()> {
    out.clear();
    out.reserve(1); // capacity 0 would only ask
    loop {
        let capacity = u32::try_from(out.capacity()).unwrap_or(u32::MAX);
        let mut n = 0;
        match call(out.as_mut_ptr(), capacity, &mut n) {
            sys::KVP_E_TOO_SMALL if n > capacity => out.reserve(n as usize),
            status => {
                outcome(status)?;
                // SAFETY: the call has written `n` elements, within the capacity.
                unsafe { out.set_len(n as usize) };
                return Ok(());
            }
        }
    }
}
