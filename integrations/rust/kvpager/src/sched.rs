//! The scheduler: requests, queues, continuous batching, preemption.

use std::collections::HashMap;
use std::ops::Deref;
use std::ptr::{null, null_mut, NonNull};

use kvpager_sys as sys;

use crate::cache::get;
use crate::error::{audit, count, explain, outcome};
use crate::info::{mirror, same_layout};
use crate::prompt::same_length;
use crate::{
    BlockCopy, Cache, EndReason, Error, Namespace, OpenInfo, Preempt, Prompt, RequestState, Result,
    Seq, TokenRange,
};

/// Counters and gauges of a scheduler.
pub use kvpager_sys::kvp_sched_stats as SchedStats;

/// Rules of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedConfig {
    /// Requests submitted and not ended: 1..2^20; default 1024.
    pub max_requests: u32,
    /// Their samples, all together, >= `max_requests`; 0 (default) = `max_requests`.
    pub max_samples: u32,
    /// Sequences on the device at once, paused ones included: up to the cache's `max_seqs` and
    /// `max_copies`; 0 (default) = `max_seqs`.
    pub max_running: u32,
    /// Token budget of a step, >= `max_running`, up to 2^24; default 8192.
    pub step_tokens: u32,
    /// Most prompt tokens of one sequence in a step; 0 (default) = no such limit.
    pub chunk_tokens: u32,
    /// How often a request may be passed over; 0: strict order; default 16.
    pub max_passed_over: u32,
    /// Requests that do not fit, tried in one step: 1..`max_requests`; default 4.
    pub max_tries: u32,
    /// Default [`Preempt::Recompute`].
    pub preempt: Preempt,
    /// Swap victims out when a step begins with fewer available blocks than the watermark; default
    /// `false`.
    pub swap_ahead: bool,
    /// Room for prompts and generated tokens, rounded up to whole pages of 64; default 2^20.
    pub arena_tokens: u64,
    /// Prices for [`Preempt::Cheaper`], any unit; default 0.
    pub swap_cost: u64,
    /// Of one block, there and back.
    pub swap_block_cost: u64,
    /// Of a recompute.
    pub recompute_cost: u64,
    /// Of one token that is computed again.
    pub recompute_token_cost: u64,
    /// A waiting request whose prefix a running one computes is kept back until it can be hit;
    /// default `false`.
    pub wait_for_prefix: bool,
}

impl Default for SchedConfig {
    fn default() -> SchedConfig {
        let mut raw = sys::kvp_sched_config::default();
        // SAFETY: writes the struct.
        unsafe { sys::kvp_sched_config_init_sized(&mut raw, std::mem::size_of_val(&raw)) };
        SchedConfig {
            max_requests: raw.max_requests,
            max_samples: raw.max_samples,
            max_running: raw.max_running,
            step_tokens: raw.step_tokens,
            chunk_tokens: raw.chunk_tokens,
            max_passed_over: raw.max_passed_over,
            max_tries: raw.max_tries,
            preempt: raw.preempt.into(),
            swap_ahead: raw.swap_ahead != 0,
            arena_tokens: raw.arena_tokens,
            swap_cost: raw.swap_cost,
            swap_block_cost: raw.swap_block_cost,
            recompute_cost: raw.recompute_cost,
            recompute_token_cost: raw.recompute_token_cost,
            wait_for_prefix: raw.wait_for_prefix != 0,
        }
    }
}

impl SchedConfig {
    fn to_raw(&self) -> sys::kvp_sched_config {
        sys::kvp_sched_config {
            struct_size: std::mem::size_of::<sys::kvp_sched_config>(),
            max_requests: self.max_requests,
            max_samples: self.max_samples,
            max_running: self.max_running,
            step_tokens: self.step_tokens,
            chunk_tokens: self.chunk_tokens,
            max_passed_over: self.max_passed_over,
            max_tries: self.max_tries,
            preempt: self.preempt.into(),
            swap_ahead: self.swap_ahead.into(),
            arena_tokens: self.arena_tokens,
            swap_cost: self.swap_cost,
            swap_block_cost: self.swap_block_cost,
            recompute_cost: self.recompute_cost,
            recompute_token_cost: self.recompute_token_cost,
            wait_for_prefix: self.wait_for_prefix.into(),
            ..Default::default()
        }
    }
}

/// A request. A handle, as [`Seq`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Request(pub sys::kvp_request);

/// What to submit.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    /// Where the prompt is looked up.
    pub ns: Namespace,
    /// At least one token; no reserve. It is copied. Its tag is the request's.
    pub prompt: Prompt<'a>,
    /// Smaller goes first.
    pub priority: i32,
    /// Sequences that continue the prompt, which is computed once.
    pub n_samples: u32,
    /// A sample ends when it has generated so many; >= 1.
    pub max_new_tokens: u32,
}

impl<'a> Submission<'a> {
    /// One sample of a prompt, with priority 0.
    pub fn new(
        ns: Namespace,
        prompt: impl Into<Prompt<'a>>,
        max_new_tokens: u32,
    ) -> Submission<'a> {
        Submission { ns, prompt: prompt.into(), priority: 0, n_samples: 1, max_new_tokens }
    }
}

/// One sequence of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct StepSeq {
    /// Its handle in the cache.
    pub seq: Seq,
    /// Whose it is.
    pub request: Request,
    /// `0..n_samples`.
    pub sample: u32,
    /// Position of the first token to compute.
    pub begin: u32,
    /// Tokens to compute, >= 1.
    pub n_tokens: u32,
    /// Tokens to sample after the last of them.
    pub n_sampled: u32,
}

/// A sample that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct Ended {
    /// Stale when [`is_last`](Ended::is_last).
    pub request: Request,
    /// The caller's own.
    pub tag: u64,
    /// `0..n_samples`, or `u32::MAX`: every sample that had not ended.
    pub sample: u32,
    reason: u32,
    /// Why the cache refused it; 0 if it did not.
    pub status: i32,
    /// Generated by this sample.
    pub new_tokens: u32,
    is_last: u32,
}

impl Ended {
    /// Why.
    pub fn reason(&self) -> EndReason {
        self.reason.into()
    }

    /// The request has ended with it.
    pub fn is_last(&self) -> bool {
        self.is_last != 0
    }
}

same_layout! {
    StepSeq = kvp_step_seq;
    Ended = kvp_ended;
    Request = kvp_request;
}

mirror! {
    /// What is known of a request.
    pub struct RequestInfo = kvp_request_info {
        /// Where it is.
        state: RequestState,
        /// Smaller goes first.
        priority: i32,
        /// Sequences that continue the prompt.
        n_samples: u32,
        /// Samples that have not ended.
        n_live: u32,
        /// Tokens of the prompt.
        prompt_tokens: u32,
        /// Prompt and new tokens.
        max_tokens: u32,
        /// By others, since it last came in.
        passed_over: u32,
        /// By recompute and by swap.
        preemptions: u32,
        /// Of them, by swap.
        swaps: u32,
        /// 1, 2, ... by submission.
        arrival: u64,
        /// The caller's own.
        tag: u64,
        /// Where its prompt is looked up.
        ns: Namespace,
    }
}

/// What is known of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleInfo {
    /// Its sequence; of a swapped request, on the host. `None`: none is open.
    pub seq: Option<Seq>,
    /// It has ended.
    pub has_ended: bool,
    /// Prompt and generated, the newest one included.
    pub n_tokens: u32,
    /// Steps that are out not counted.
    pub computed_tokens: u32,
}

/// What to compute now. Slices are the scheduler's.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Step<'s> {
    /// 1, 2, ...
    pub number: u64,
    /// `[B]`; empty: nothing to compute, and nothing to finish.
    pub seqs: &'s [StepSeq],
    /// `[T]` input tokens of all sequences, concatenated.
    pub tokens: &'s [i32],
    /// Tokens to sample, all together.
    pub n_sampled: u32,
    /// So many first entries of `seqs` compute and sample one token.
    pub n_decoding: u32,
    /// Running requests that found no blocks in this step.
    pub n_left_out: u32,
    /// In order.
    pub admitted: &'s [Request],
    /// By recompute, and swapped ones that were closed. Their sequences are gone.
    pub preempted: &'s [Request],
    /// Their sequences are on the host.
    pub swapped_out: &'s [Request],
    /// Their sequences are back.
    pub swapped_in: &'s [Request],
    /// Refused at admission; others end in [`Scheduler::finish`].
    pub ended: &'s [Ended],
    /// Waiting requests by reason, [`sys`]`::KVP_WAIT_...`.
    pub waited: [u32; sys::KVP_WAIT_REASONS as usize],
    /// Swapped ones that are not paused, by reason.
    pub waited_swapped: [u32; sys::KVP_WAIT_REASONS as usize],
}

/// Decides which sequences compute which tokens in each step. It owns its cache: what may be read
/// there, block tables above all, is read through the scheduler.
///
/// ```
/// use kvpager::{Cache, Config, SchedConfig, Scheduler, Submission};
///
/// let cache = Cache::new(&Config { n_blocks: 64, ..Default::default() })?;
/// let mut sched = Scheduler::new(&SchedConfig::default(), cache)?;
/// let model = sched.namespace("llama-8b")?;
/// sched.submit(&Submission::new(model, &[1, 2, 3], 2))?;
/// let mut plan = Vec::new();
/// let mut n_steps = 0;
/// loop {
///     let step = sched.step()?;
///     let (is_idle, n_sampled) = (step.seqs.is_empty(), step.n_sampled);
///     sched.take_plan(&mut plan)?; // copies that must run first
///     if is_idle {
///         break;
///     }
///     let step = sched.current();
///     let row = sched.row(step.seqs[0].seq, 0)?; // ... run step.tokens over such rows, sample ...
///     assert_eq!(row, [1]);
///     sched.finish(&vec![9; n_sampled as usize], &[])?;
///     n_steps += 1;
/// }
/// assert_eq!(n_steps, 2);
/// # Ok::<(), kvpager::Error>(())
/// ```
///
/// As a cache, it may move to another thread, and two threads cannot use it at once:
///
/// ```compile_fail,E0277
/// # use kvpager::{Cache, Config, SchedConfig, Scheduler};
/// # let cache = Cache::new(&Config::default()).unwrap();
/// let sched = Scheduler::new(&SchedConfig::default(), cache).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(|| sched.sched_stats().unwrap().steps);
/// });
/// ```
///
/// A cache that has a scheduler is not lent for changes, because the scheduler is bound to it:
///
/// ```compile_fail,E0596
/// # use kvpager::{Cache, Config, SchedConfig, Scheduler};
/// # let cache = Cache::new(&Config::default()).unwrap();
/// let mut sched = Scheduler::new(&SchedConfig::default(), cache).unwrap();
/// sched.reset().unwrap();
/// ```
#[derive(Debug)]
pub struct Scheduler {
    raw: Raw, // destroyed before the cache
    step: sys::kvp_step,
    borrowed: HashMap<Request, Borrowed>,
    cache: Cache,
}

// SAFETY: a call needs exclusive access to the scheduler and its cache, from any thread. Pointers
// of `step` and `borrowed` are to memory that moves along.
unsafe impl Send for Scheduler {}

#[derive(Debug)]
struct Raw(NonNull<sys::kvp_sched>);

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: it is ours, and its cache is still there.
        unsafe { sys::kvp_sched_destroy(self.0.as_ptr()) }
    }
}

/// What C borrows of a prompt until the request ends.
#[derive(Debug, Default)]
struct Borrowed {
    keys: Vec<sys::kvp_key>,
    bytes: Vec<Box<[u8]>>,
    uncached: Vec<TokenRange>,
}

impl Borrowed {
    fn of(prompt: &Prompt<'_>) -> Borrowed {
        let mut copy = Borrowed { uncached: prompt.uncached.to_vec(), ..Borrowed::default() };
        for key in prompt.keys {
            let bytes: Box<[u8]> = key.bytes().into();
            copy.keys.push(sys::kvp_key { bytes: bytes.as_ptr().cast(), ..*key.raw() });
            copy.bytes.push(bytes);
        }
        copy
    }

    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.uncached.is_empty()
    }
}

/// For `?`: the cache is dropped.
impl From<(Error, Cache)> for Error {
    fn from((error, _): (Error, Cache)) -> Error {
        error
    }
}

impl Deref for Scheduler {
    type Target = Cache;

    fn deref(&self) -> &Cache {
        &self.cache
    }
}

/// The scheduler itself.
impl Scheduler {
    /// Creates a scheduler over a cache.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`], which names the field, [`Error::TooLong`] or [`Error::NoMemory`]. The cache
    /// comes back with it; `?` drops it.
    pub fn new(
        config: &SchedConfig,
        cache: Cache,
    ) -> std::result::Result<Scheduler, (Error, Cache)> {
        let (config, mut raw) = (config.to_raw(), null_mut());
        // SAFETY: the struct is complete; the cache will be there for as long as the scheduler; no
        // arena; `raw` is written on success.
        let status =
            unsafe { sys::kvp_sched_create(&config, cache.as_ptr(), null_mut(), 0, &mut raw) };
        if let Err(error) = outcome(status) {
            // SAFETY: reads both.
            let error = explain(error, |why| unsafe {
                sys::kvp_sched_config_check(&config, cache.as_ptr(), why)
            });
            return Err((error, cache));
        }
        let step = sys::kvp_step::default();
        match NonNull::new(raw) {
            Some(raw) => Ok(Scheduler { raw: Raw(raw), step, borrowed: HashMap::new(), cache }),
            None => Err((Error::NoMemory, cache)),
        }
    }

    /// Aborts every request, and gives the cache back.
    pub fn into_cache(self) -> Cache {
        let Scheduler { raw, cache, .. } = self;
        drop(raw);
        cache
    }

    /// The scheduler of C, for calls of [`sys`](crate::sys) that have no method here. It must not be
    /// destroyed; slices of a step end as its header says.
    pub fn as_sched_ptr(&self) -> *mut sys::kvp_sched {
        self.raw.0.as_ptr()
    }

    /// Counters and gauges. O(1).
    ///
    /// # Errors
    ///
    /// None that a caller can cause.
    pub fn sched_stats(&self) -> Result<SchedStats> {
        // SAFETY: writes `size` bytes.
        get(|out, size| unsafe { sys::kvp_sched_stats_get_sized(self.as_sched_ptr(), out, size) })
    }

    /// Audits the cache, at a level of [`Cache::check`], and then the scheduler.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] with what does not hold; [`Error::Argument`]: there is no such level.
    pub fn check(&mut self, level: i32) -> Result<()> {
        self.cache.check(level)?;
        // SAFETY: exclusive.
        audit(|out| unsafe { sys::kvp_sched_check(self.as_sched_ptr(), out) })
    }
}

/// Requests.
impl Scheduler {
    /// Submits a request: it waits from now on. O(prompt tokens + samples).
    ///
    /// # Errors
    ///
    /// What could never be served, however long it waited: [`Error::TooLong`], [`Error::Never`],
    /// [`Error::Argument`], which names the field if it is one of the prompt. [`Error::NoSeqs`] and
    /// [`Error::NoBlocks`]: too many requests or tokens are there, wait until something ends.
    /// [`Error::Handle`]: of the namespace.
    pub fn submit(&mut self, submission: &Submission<'_>) -> Result<Request> {
        let borrowed = Borrowed::of(&submission.prompt);
        let mut prompt = submission.prompt.to_raw()?;
        prompt.keys = borrowed.keys.as_ptr();
        prompt.uncached = borrowed.uncached.as_ptr();
        let raw = sys::kvp_submission {
            struct_size: std::mem::size_of::<sys::kvp_submission>(),
            prompt: &prompt,
            ns: submission.ns.0,
            priority: submission.priority,
            n_samples: submission.n_samples,
            max_new_tokens: submission.max_new_tokens,
            ..Default::default()
        };
        let mut request = sys::kvp_request::default();
        // SAFETY: exclusive; tokens are copied, and what is borrowed is kept below.
        let status =
            unsafe { sys::kvp_sched_submit(self.as_sched_ptr(), &raw, &mut request, null_mut()) };
        outcome(status).map_err(|error| {
            // SAFETY: exclusive; the prompt's pointers are still good.
            explain(error, |why| unsafe {
                sys::kvp_prompt_check(self.cache.as_ptr(), submission.ns.0, &prompt, why)
            })
        })?;
        if !borrowed.is_empty() {
            self.borrowed.insert(Request(request), borrowed);
        }
        Ok(Request(request))
    }

    /// Ends a request now. It appears in no list of ended requests.
    ///
    /// # Errors
    ///
    /// [`Error::Handle`].
    pub fn abort(&mut self, request: Request) -> Result<()> {
        // SAFETY: exclusive.
        outcome(unsafe { sys::kvp_sched_abort(self.as_sched_ptr(), request.0) })?;
        self.borrowed.remove(&request);
        Ok(())
    }

    /// Keeps a request from being scheduled.
    ///
    /// # Errors
    ///
    /// [`Error::Handle`].
    pub fn pause(&mut self, request: Request) -> Result<()> {
        // SAFETY: exclusive.
        outcome(unsafe { sys::kvp_sched_pause(self.as_sched_ptr(), request.0) })
    }

    /// Resumes a paused request from the next step.
    ///
    /// # Errors
    ///
    /// [`Error::Handle`].
    pub fn resume(&mut self, request: Request) -> Result<()> {
        // SAFETY: exclusive.
        outcome(unsafe { sys::kvp_sched_resume(self.as_sched_ptr(), request.0) })
    }

    /// What is known of a request.
    ///
    /// # Errors
    ///
    /// [`Error::Handle`].
    pub fn request(&self, request: Request) -> Result<RequestInfo> {
        let sched = self.as_sched_ptr();
        // SAFETY: writes `size` bytes.
        get(|out, size| unsafe { sys::kvp_request_info_get_sized(sched, request.0, out, size) })
            .map(|raw: sys::kvp_request_info| raw.into())
    }

    /// What is known of a sample.
    ///
    /// # Errors
    ///
    /// [`Error::Handle`]; [`Error::Argument`]: there is no such sample.
    pub fn sample(&self, request: Request, sample: u32) -> Result<SampleInfo> {
        let raw: sys::kvp_sample_info = get(|out, size| {
            // SAFETY: writes `size` bytes.
            unsafe {
                sys::kvp_request_sample_sized(self.as_sched_ptr(), request.0, sample, out, size)
            }
        })?;
        Ok(SampleInfo {
            seq: (raw.seq.bits != 0).then_some(Seq(raw.seq)),
            has_ended: raw.has_ended != 0,
            n_tokens: raw.n_tokens,
            computed_tokens: raw.computed_tokens,
        })
    }

    /// Reads tokens of a sample back, prompt and generated, from position `from` on: as many as
    /// `out` has room for.
    ///
    /// # Errors
    ///
    /// [`Error::Handle`]; [`Error::Argument`]: no such sample, or the range exceeds its tokens.
    pub fn request_tokens(
        &self,
        request: Request,
        sample: u32,
        from: u32,
        out: &mut [i32],
    ) -> Result<()> {
        let end = from.checked_add(count("out", out.len())?).ok_or(Error::Argument(None))?;
        let range = TokenRange { begin: from, end };
        let (sched, data) = (self.as_sched_ptr(), out.as_mut_ptr());
        // SAFETY: writes as many tokens as the range has.
        outcome(unsafe { sys::kvp_request_tokens(sched, request.0, sample, range, data) })
    }

    /// Reorders the samples of a request: the survivors of a beam search. Sample `i` becomes a copy
    /// of what sample `parents[i]` was before its newest token, and `tokens[i]` is its newest token.
    /// Call it after a finish in which the request sampled, before the next step.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: a parent that has ended or is none, a negative token, or not one entry
    /// for each sample; [`Error::State`]: a step is out, or a sample has not sampled;
    /// [`Error::Handle`].
    pub fn reorder(&mut self, request: Request, parents: &[u32], tokens: &[i32]) -> Result<()> {
        let n_samples = self.request(request)?.n_samples.into();
        same_length("parents", parents.len(), n_samples)?;
        same_length("tokens", tokens.len(), n_samples)?;
        let (parents, tokens) = (parents.as_ptr(), tokens.as_ptr());
        // SAFETY: exclusive; reads `n_samples` of each.
        outcome(unsafe { sys::kvp_sched_reorder(self.as_sched_ptr(), request.0, parents, tokens) })
    }
}

/// Steps.
impl Scheduler {
    /// Makes the next step. Take the plan after it, also if it computes nothing.
    /// O(scheduled + changed), and O(tokens) for each waiting request that is tried.
    ///
    /// # Errors
    ///
    /// [`Error::State`]: a step is out.
    pub fn step(&mut self) -> Result<Step<'_>> {
        let sched = self.as_sched_ptr();
        // SAFETY: exclusive; writes `size` bytes.
        self.step = get(|out, size| unsafe { sys::kvp_sched_step_sized(sched, out, size) })?;
        // SAFETY: the arrays are the scheduler's.
        let ended: &[Ended] = unsafe { crate::view(self.step.ended.cast(), self.step.n_ended) };
        forget(&mut self.borrowed, ended);
        Ok(self.current())
    }

    /// The newest step. After its end it has no sequences and no tokens.
    pub fn current(&self) -> Step<'_> {
        let step = &self.step;
        // SAFETY: the arrays are the scheduler's: `seqs` and `tokens` until the step ends, when
        // their numbers become 0; the others until the next step.
        unsafe {
            Step {
                number: step.number,
                seqs: crate::view(step.seqs.cast(), step.n_seqs),
                tokens: crate::view(step.tokens, step.n_tokens),
                n_sampled: step.n_sampled,
                n_decoding: step.n_decoding,
                n_left_out: step.n_left_out,
                admitted: crate::view(step.admitted.cast(), step.n_admitted),
                preempted: crate::view(step.preempted.cast(), step.n_preempted),
                swapped_out: crate::view(step.swapped_out.cast(), step.n_swapped_out),
                swapped_in: crate::view(step.swapped_in.cast(), step.n_swapped_in),
                ended: crate::view(step.ended.cast(), step.n_ended),
                waited: step.waited,
                waited_swapped: step.waited_swapped,
            }
        }
    }

    /// Reports the step done: its KV is written, and these tokens were sampled, `[n_sampled]`, in
    /// the order of its sequences. `ended` is empty, or tells for each whether its sample ends with
    /// it. Gives the samples that ended.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`]: a negative token, or slices of other lengths; [`Error::State`]: no step
    /// is out.
    pub fn finish(&mut self, tokens: &[i32], ended: &[bool]) -> Result<&[Ended]> {
        if self.step.n_seqs > 0 {
            same_length("tokens", tokens.len(), self.step.n_sampled.into())?;
            if !ended.is_empty() {
                same_length("ended", ended.len(), self.step.n_sampled.into())?;
            }
        }
        let flags = if ended.is_empty() { null() } else { ended.as_ptr().cast() };
        let sched = self.as_sched_ptr();
        let end: sys::kvp_step_end = get(|out, size| {
            // SAFETY: exclusive; without a step nothing is read, else `n_sampled` of each; a bool
            // is a byte, 0 or 1; writes `size` bytes.
            unsafe { sys::kvp_sched_finish_sized(sched, tokens.as_ptr(), flags, out, size) }
        })?;
        self.step_is_over();
        // SAFETY: the array is the scheduler's, until the next finish.
        let ended = unsafe { crate::view(end.ended.cast(), end.n_ended) };
        forget(&mut self.borrowed, ended);
        Ok(ended)
    }

    /// Reports that the step failed: nothing that it was to write counts, and its requests wait
    /// again.
    ///
    /// # Errors
    ///
    /// [`Error::State`]: no step is out.
    pub fn fail(&mut self) -> Result<()> {
        // SAFETY: exclusive.
        outcome(unsafe { sys::kvp_sched_fail(self.as_sched_ptr()) })?;
        self.step_is_over();
        Ok(())
    }

    fn step_is_over(&mut self) {
        self.step.n_seqs = 0;
        self.step.n_tokens = 0;
        self.step.n_sampled = 0;
        self.step.n_decoding = 0;
    }
}

/// Calls of the cache that an engine needs beside its scheduler.
impl Scheduler {
    /// [`Cache::namespace`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn namespace(&mut self, name: impl AsRef<[u8]>) -> Result<Namespace> {
        self.cache.namespace(name)
    }

    /// [`Cache::close_namespace`]. Requests of it that are not admitted yet end as refused.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn close_namespace(&mut self, ns: Namespace) -> Result<()> {
        self.cache.close_namespace(ns)
    }

    /// [`Cache::flush`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn flush(&mut self, ns: Namespace) -> Result<()> {
        self.cache.flush(ns)
    }

    /// [`Cache::find`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn find<'a>(&mut self, ns: Namespace, prompt: impl Into<Prompt<'a>>) -> Result<OpenInfo> {
        self.cache.find(ns, prompt)
    }

    /// [`Cache::take_plan`], after every step.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn take_plan(&mut self, out: &mut Vec<BlockCopy>) -> Result<()> {
        self.cache.take_plan(out)
    }

    /// [`Cache::begin_step`], after every step, with overlapped steps.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn begin_step(&mut self, out: &mut Vec<BlockCopy>) -> Result<u64> {
        self.cache.begin_step(out)
    }

    /// [`Cache::end_step`], before [`finish`](Scheduler::finish).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn end_step(&mut self, step: u64) -> Result<u64> {
        self.cache.end_step(step)
    }

    /// [`Cache::fail_step`], before [`fail`](Scheduler::fail).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn fail_step(&mut self, step: u64, cut: &mut Vec<Seq>) -> Result<()> {
        self.cache.fail_step(step, cut)
    }
}

/// What requests that have ended had borrowed.
fn forget(borrowed: &mut HashMap<Request, Borrowed>, ended: &[Ended]) {
    for each in ended.iter().filter(|each| each.is_last()) {
        borrowed.remove(&each.request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Key};

    /// Copies of keys go when their request has ended, is refused or aborted.
    #[test]
    fn what_is_borrowed_goes_with_the_request() {
        let cache = Cache::new(&Config { max_unit_keys: 1, ..Config::default() }).unwrap();
        let mut sched = Scheduler::new(&SchedConfig::default(), cache).unwrap();
        let (first, second) = (sched.namespace("1").unwrap(), sched.namespace("2").unwrap());
        let keys = [Key::new(1, 0..1, b"adapter")];
        let prompt = Prompt { keys: &keys, ..Prompt::new(&[1, 2, 3]) };
        let mut submit = |ns| sched.submit(&Submission::new(ns, prompt, 1)).unwrap();
        let aborted = submit(first);
        submit(first);
        submit(second);
        assert_eq!(sched.borrowed.len(), 3);
        sched.abort(aborted).unwrap();
        assert_eq!(sched.borrowed.len(), 2);
        sched.close_namespace(second).unwrap();
        assert_eq!(sched.step().unwrap().ended[0].reason(), EndReason::Refused);
        assert_eq!(sched.borrowed.len(), 1);
        sched.take_plan(&mut Vec::new()).unwrap();
        assert_eq!(sched.finish(&[4], &[]).unwrap().len(), 1);
        assert_eq!(sched.borrowed.len(), 0);
        sched.submit(&Submission::new(first, &[1], 1)).unwrap();
        assert_eq!(sched.borrowed.len(), 0);
    }

    #[test]
    fn a_configuration_reaches_c() {
        let raw = SchedConfig {
            max_requests: 1,
            max_samples: 2,
            max_running: 3,
            step_tokens: 4,
            chunk_tokens: 5,
            max_passed_over: 6,
            max_tries: 7,
            preempt: Preempt::Cheaper,
            swap_ahead: true,
            arena_tokens: 8,
            swap_cost: 9,
            swap_block_cost: 10,
            recompute_cost: 11,
            recompute_token_cost: 12,
            wait_for_prefix: true,
        }
        .to_raw();
        assert_eq!((raw.max_requests, raw.max_samples, raw.max_running), (1, 2, 3));
        assert_eq!((raw.step_tokens, raw.chunk_tokens), (4, 5));
        assert_eq!((raw.max_passed_over, raw.max_tries, raw.preempt), (6, 7, 2));
        assert_eq!((raw.swap_ahead, raw.wait_for_prefix, raw.arena_tokens), (1, 1, 8));
        assert_eq!((raw.swap_cost, raw.swap_block_cost), (9, 10));
        assert_eq!((raw.recompute_cost, raw.recompute_token_cost), (11, 12));
        let defaults = SchedConfig::default().to_raw();
        assert_eq!((defaults.step_tokens, defaults.max_tries), (8192, 4));
    }

    /// Each field is where C has it.
    #[test]
    fn fields_are_where_c_has_them() {
        let seq = sys::kvp_seq { bits: 1 };
        let request = sys::kvp_request { bits: 2 };
        let item =
            sys::kvp_step_seq { seq, request, sample: 3, begin: 4, n_tokens: 5, n_sampled: 6 };
        // SAFETY: same size, and every bit pattern is a value.
        let ours: StepSeq = unsafe { std::mem::transmute(item) };
        assert_eq!((ours.seq, ours.request, ours.sample), (Seq(seq), Request(request), 3));
        assert_eq!((ours.begin, ours.n_tokens, ours.n_sampled), (4, 5, 6));

        let (tag, reason, status) = (3, sys::KVP_END_LENGTH, -5);
        let ended =
            sys::kvp_ended { request, tag, sample: 4, reason, status, new_tokens: 6, is_last: 1 };
        // SAFETY: as above.
        let ours: Ended = unsafe { std::mem::transmute(ended) };
        assert_eq!((ours.request, ours.tag, ours.sample), (Request(request), 3, 4));
        assert_eq!((ours.reason(), ours.status, ours.new_tokens), (EndReason::Length, -5, 6));
        assert!(ours.is_last());
    }
}
