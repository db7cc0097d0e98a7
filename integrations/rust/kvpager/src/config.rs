//! What a cache is made of.

use kvpager_sys as sys;

use crate::error::{count, explain, outcome};
use crate::{CommitPolicy, FullHit, Group, KeepEvicted, Result, Steps};

/// Sizes and rules of a cache.
///
/// ```
/// let config = kvpager::Config { n_blocks: 4096, ..Default::default() };
/// assert_eq!(config.block_tokens, 16);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `S`, tokens of a block: 1..65536; default 16.
    pub block_tokens: u32,
    /// `U`, the grain of identity in tokens, divides `S`; 0 = `S` (default).
    pub unit_tokens: u32,
    /// `N`, null block included: 2..2^31-1; default 1024.
    pub n_blocks: u32,
    /// Sequences open at once, forks included: 1..2^20; default 256.
    pub max_seqs: u32,
    /// Tokens and reserve of one sequence: 1..2^31-1; default 32768.
    pub max_seq_tokens: u32,
    /// Namespaces open at once: 1..65536; default 16.
    pub max_namespaces: u32,
    /// Prefix nodes, more than `max_namespaces`; 0 (default) = enough for every unit of the pools.
    pub n_nodes: u32,
    /// Extra keys that may touch one unit: 0..64; default 0.
    pub max_unit_keys: u32,
    /// Copies that may wait in the plan, or be out in steps; 0 (default) = `max_seqs` + 64, and
    /// `n_blocks` more with a host tier.
    pub max_copies: u32,
    /// Default [`CommitPolicy::Adopt`].
    pub commit_policy: CommitPolicy,
    /// Default [`FullHit::Share`].
    pub full_hit: FullHit,
    /// `false`: nothing is matched or published; default `true`.
    pub prefix_cache: bool,
    /// Share of the blocks that is kept free when opening: 0 <= w < 1; default 0.
    pub watermark: f64,
    /// Default 0.
    pub hash_seed: u64,
    /// Token ids that must never be matched or published.
    pub uncached_tokens: Vec<i32>,
    /// Blocks of the host tier, null block included: 2..2^31-1; 0 (default): there is none.
    pub host_blocks: u32,
    /// Default [`KeepEvicted::Keep`].
    pub keep_evicted: KeepEvicted,
    /// Default [`Steps::Ordered`].
    pub steps: Steps,
    /// Steps begun and not reported: 1..64; default 4.
    pub max_steps_out: u32,
    /// Events that are remembered; 0 (default): none are made.
    pub max_events: u32,
    /// Tokens of one sequence's tree: 0..65536; default 0.
    pub max_tree_tokens: u32,
    /// The window and block size of each layer group, 1..8 of them; default one group that sees all
    /// keys.
    pub groups: Vec<Group>,
    /// Quotas of namespaces can be set; default `false`.
    pub quotas: bool,
    /// Loads begun at once, with a host tier: 0..4096; default 0.
    pub max_loads: u32,
    /// Most host blocks lent at once; 0 = half of them, with `max_loads`.
    pub lent_blocks: u32,
    /// Evict what is worth its place least by what came back, and not what was released longest ago.
    pub learned_policy: bool,
    /// Slots of recurrent state, slot 0 included: 2..2^30; 0 (default): there are none.
    pub state_slots: u32,
    /// The same on the host, for swaps: 0 without `state_slots` and a host tier.
    pub host_state_slots: u32,
    /// Window blocks for hits at multiples of it, and at places that prompts give, stay longer than
    /// others: a multiple of `unit_tokens`, or [`RETAIN_PROMPTS`](crate::RETAIN_PROMPTS); 0
    /// (default): all stay alike.
    pub retain_tokens: u32,
}

impl Default for Config {
    fn default() -> Config {
        let mut raw = sys::kvp_config::default();
        // SAFETY: writes the struct.
        unsafe { sys::kvp_config_init(&mut raw) };
        // SAFETY: the defaults have no uncached tokens.
        unsafe { Config::from_raw(&raw) }
    }
}

impl Config {
    /// Checks every field.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](crate::Error::Argument) with the first field that is wrong.
    pub fn check(&self) -> Result<()> {
        self.with(|raw| {
            // SAFETY: `raw` is complete, and read during the call only.
            outcome(unsafe { sys::kvp_config_check(raw, std::ptr::null_mut()) })
        })
    }

    /// Bytes of bookkeeping that a cache of this configuration needs. The system backs only what is
    /// touched.
    ///
    /// # Errors
    ///
    /// As [`check`](Config::check); [`Error::TooLong`](crate::Error::TooLong) if the size does not
    /// fit `usize`.
    pub fn bytes(&self) -> Result<usize> {
        let mut bytes = 0;
        self.with(|raw| {
            // SAFETY: as above; `bytes` is written on success.
            outcome(unsafe { sys::kvp_cache_bytes(raw, &mut bytes) })
        })?;
        Ok(bytes)
    }

    /// Calls something with the struct of C, and asks why if it refuses.
    pub(crate) fn with(&self, call: impl FnOnce(&sys::kvp_config) -> Result<()>) -> Result<()> {
        let raw = self.to_raw()?;
        call(&raw).map_err(|error| {
            // SAFETY: `raw` points into `self`.
            explain(error, |why| unsafe { sys::kvp_config_check(&raw, why) })
        })
    }

    fn to_raw(&self) -> Result<sys::kvp_config> {
        let mut groups = [Group::default(); sys::KVP_GROUPS_MAX as usize];
        for (place, group) in groups.iter_mut().zip(&self.groups) {
            *place = *group;
        }
        Ok(sys::kvp_config {
            struct_size: std::mem::size_of::<sys::kvp_config>(),
            block_tokens: self.block_tokens,
            unit_tokens: self.unit_tokens,
            n_blocks: self.n_blocks,
            max_seqs: self.max_seqs,
            max_seq_tokens: self.max_seq_tokens,
            max_namespaces: self.max_namespaces,
            n_nodes: self.n_nodes,
            max_unit_keys: self.max_unit_keys,
            max_copies: self.max_copies,
            commit_policy: self.commit_policy.into(),
            full_hit: self.full_hit.into(),
            prefix_cache: self.prefix_cache.into(),
            watermark: self.watermark,
            hash_seed: self.hash_seed,
            n_uncached_tokens: count("uncached_tokens", self.uncached_tokens.len())?,
            uncached_tokens: self.uncached_tokens.as_ptr(),
            host_blocks: self.host_blocks,
            keep_evicted: self.keep_evicted.into(),
            steps: self.steps.into(),
            max_steps_out: self.max_steps_out,
            max_events: self.max_events,
            max_tree_tokens: self.max_tree_tokens,
            n_groups: count("groups", self.groups.len())?,
            groups,
            quotas: self.quotas.into(),
            max_loads: self.max_loads,
            lent_blocks: self.lent_blocks,
            policy: self.learned_policy.into(),
            state_slots: self.state_slots,
            host_state_slots: self.host_state_slots,
            retain_tokens: self.retain_tokens,
            test_hash_bits: 0,
        })
    }

    /// # Safety
    ///
    /// `uncached_tokens` points to `n_uncached_tokens` ids.
    pub(crate) unsafe fn from_raw(raw: &sys::kvp_config) -> Config {
        // SAFETY: the caller's promise.
        let uncached_tokens = unsafe { crate::view(raw.uncached_tokens, raw.n_uncached_tokens) };
        Config {
            block_tokens: raw.block_tokens,
            unit_tokens: raw.unit_tokens,
            n_blocks: raw.n_blocks,
            max_seqs: raw.max_seqs,
            max_seq_tokens: raw.max_seq_tokens,
            max_namespaces: raw.max_namespaces,
            n_nodes: raw.n_nodes,
            max_unit_keys: raw.max_unit_keys,
            max_copies: raw.max_copies,
            commit_policy: raw.commit_policy.into(),
            full_hit: raw.full_hit.into(),
            prefix_cache: raw.prefix_cache != 0,
            watermark: raw.watermark,
            hash_seed: raw.hash_seed,
            uncached_tokens: uncached_tokens.to_vec(),
            host_blocks: raw.host_blocks,
            keep_evicted: raw.keep_evicted.into(),
            steps: raw.steps.into(),
            max_steps_out: raw.max_steps_out,
            max_events: raw.max_events,
            max_tree_tokens: raw.max_tree_tokens,
            groups: raw.groups.iter().take(raw.n_groups as usize).copied().collect(),
            quotas: raw.quotas != 0,
            max_loads: raw.max_loads,
            lent_blocks: raw.lent_blocks,
            learned_policy: raw.policy != 0,
            state_slots: raw.state_slots,
            host_state_slots: raw.host_state_slots,
            retain_tokens: raw.retain_tokens,
        }
    }
}
