//! The rules of a scheduler.

use kvpager_sys as sys;

use crate::Preempt;

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
    /// Most prompt tokens of one sequence in a step; 0 = no such limit; `u32::MAX` (default): half
    /// of `step_tokens`.
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
    /// Running requests are preempted for a waiting one with a smaller priority value that lacks
    /// places; default `false`.
    pub make_way: bool,
    /// Room for prompts and generated tokens, rounded up to whole pages of 64; default 2^20.
    pub arena_tokens: u64,
    /// Prices for [`Preempt::Cheaper`], any unit; default 0.
    pub swap_cost: u64,
    /// Of one block, there and back.
    pub swap_block_cost: u64,
    /// Of one state of recurrent layers, there and back.
    pub swap_state_cost: u64,
    /// Of a recompute.
    pub recompute_cost: u64,
    /// Of one token that is computed again.
    pub recompute_token_cost: u64,
    /// A waiting request whose prefix a running one computes is kept back until it can be hit;
    /// default `false`.
    pub wait_for_prefix: bool,
    /// Most free blocks that [`Scheduler::reclaim`](crate::Scheduler::reclaim) makes: up to a 64th
    /// of the cache's; 0 (default): it does nothing.
    pub free_target: u32,
    /// Most drafts of a decoding sequence in a step, 0..16; `step_tokens` >= `max_running` x (1 +
    /// `draft_tokens`). 0 (default): none.
    pub draft_tokens: u32,
}

impl Default for SchedConfig {
    fn default() -> SchedConfig {
        let mut raw = sys::kvp_sched_config::default();
        // SAFETY: writes the struct.
        unsafe { sys::kvp_sched_config_init(&mut raw) };
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
            make_way: raw.make_way != 0,
            arena_tokens: raw.arena_tokens,
            swap_cost: raw.swap_cost,
            swap_block_cost: raw.swap_block_cost,
            swap_state_cost: raw.swap_state_cost,
            recompute_cost: raw.recompute_cost,
            recompute_token_cost: raw.recompute_token_cost,
            wait_for_prefix: raw.wait_for_prefix != 0,
            free_target: raw.free_target,
            draft_tokens: raw.draft_tokens,
        }
    }
}

impl SchedConfig {
    pub(crate) fn to_raw(&self) -> sys::kvp_sched_config {
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
            make_way: self.make_way.into(),
            arena_tokens: self.arena_tokens,
            swap_cost: self.swap_cost,
            swap_block_cost: self.swap_block_cost,
            swap_state_cost: self.swap_state_cost,
            recompute_cost: self.recompute_cost,
            recompute_token_cost: self.recompute_token_cost,
            wait_for_prefix: self.wait_for_prefix.into(),
            free_target: self.free_target,
            draft_tokens: self.draft_tokens,
            state_rings: 0,
            reserved: 0,
            max_loading: 0, // stores are not in the one-file build
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            make_way: true,
            arena_tokens: 8,
            swap_cost: 9,
            swap_block_cost: 10,
            swap_state_cost: 15,
            recompute_cost: 11,
            recompute_token_cost: 12,
            wait_for_prefix: true,
            free_target: 13,
            draft_tokens: 14,
        }
        .to_raw();
        assert_eq!((raw.max_requests, raw.max_samples, raw.max_running), (1, 2, 3));
        assert_eq!((raw.step_tokens, raw.chunk_tokens), (4, 5));
        assert_eq!((raw.max_passed_over, raw.max_tries, raw.preempt), (6, 7, 2));
        assert_eq!(
            (raw.swap_ahead, raw.make_way, raw.wait_for_prefix, raw.arena_tokens),
            (1, 1, 1, 8)
        );
        assert_eq!((raw.swap_cost, raw.swap_block_cost, raw.swap_state_cost), (9, 10, 15));
        assert_eq!((raw.recompute_cost, raw.recompute_token_cost), (11, 12));
        assert_eq!((raw.free_target, raw.draft_tokens), (13, 14));
        let defaults = SchedConfig::default().to_raw();
        assert_eq!(
            (defaults.step_tokens, defaults.chunk_tokens, defaults.max_tries),
            (8192, u32::MAX, 4)
        );
    }
}
