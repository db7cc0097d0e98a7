/* kvpager/states.h: layers with recurrent state (hybrid models).
 *
 *   config.state_slots = 512;                               slots of state, slot 0 included
 *   ...
 *   kvp_seq_open(cache, ns, &prompt, &seq, &info);          hits end where a state was kept
 *   kvp_seq_state_get(cache, seq, &state);                  where to end chunks of the prompt
 *   ... extend; before the step: ...
 *   kvp_meta_states(cache, seqs, n_seqs, read, write);      the slots that kernels read and write
 *   kvp_seq_commit(cache, seq, n);                          the state is the one after n tokens
 *   kvp_seq_checkpoint(cache, seq, &outcome);               keep it, for prompts that begin alike
 *
 * Layers such as Mamba, gated delta nets, linear attention and short convolutions keep one state of
 * fixed size for a sequence. Only the state after exactly p tokens lets a sequence go on from p.
 * With config.state_slots such layers are one more layer group, the *state group*. Its number is
 * n_groups, behind the groups of blocks. A *slot* holds one state of all these layers. Slots are
 * a pool of their own, with the states and the order of a pool of blocks (cache.h). Slot 0 is never
 * handed out. A slot is taken with the retention class of its sequence.
 *
 *   Reads, writes  A step reads one slot and writes one. They are the same in most steps. They
 *                  differ after a hit, a checkpoint or a fork: what is read then is kept. Read slot
 *                  0 stands for the initial state, before any token. A commit that raises the
 *                  computed tokens says that the state is the one after them, in the slot that was
 *                  written. The slot that was read is released.
 *   Slots          A sequence has a slot to write while it has writable slots for tokens. It takes
 *                  one in kvp_seq_open (unless it takes no block), or in the next kvp_seq_extend
 *                  that makes slots writable. It needs none if it alone holds the slot that it
 *                  reads and that is no checkpoint: then it writes that one. A slot is taken after
 *                  the sequence's blocks, and stays the sequence's until it is closed.
 *   Checkpoint     A slot with the state after a node's last token. It is sealed, and never written
 *                  again. A node has at most one. Held by no sequence, it is cached.
 *   Match          The last token of a prompt is always computed, so only the full units of its
 *                  first n_tokens - 1 tokens are matched. A hit is the longest prefix of which
 *                  each group of blocks has what it needs and which ends at a checkpoint. It may
 *                  end inside a block. If there is no room for the sources of such a hit
 *                  (kvp_cache_can_open), the longest prefix of whole blocks that ends at a
 *                  checkpoint is hit. If checkpoints end the hit, info.stop is KVP_STOP_NO_KV and
 *                  info.stop_group is n_groups.
 *   Open           holds the checkpoint, and copies nothing: the first step reads it.
 *   Chunks         The state at a place exists only if a step ends there. kvp_seq_state_get names
 *                  at most two places where a chunk of the prompt should end, for a checkpoint:
 *                  where the prompt leaves the path of known nodes (branch_end), and the last unit
 *                  boundary before its last token (prompt_end, behind the other one). Both lie
 *                  behind the hit, in units that are public and that nodes were free for.
 *   Admission      kvp_cache_can_open and kvp_cache_can_extend count both pools. If blocks suffice
 *                  and slots do not, the verdict is KVP_ADMIT_LATER with missing_blocks 0. The
 *                  calls themselves return KVP_E_NO_BLOCKS, with tier KVP_STATE_SLOTS in
 *                  kvp_cache_shortage_get. An open needs one slot, unless it takes no block, and
 *                  one more for a checkpoint that no sequence holds. There is no watermark for
 *                  slots.
 *   Fork           needs the state at that place: a checkpoint there, or the one that the parent
 *                  reads next; no state is needed at 0. Else KVP_E_DROPPED. What the parent reads
 *                  is shared. If the parent would write that slot, too, it must be extended (by 0
 *                  tokens will do) before its next step: its slots behind the computed tokens are
 *                  not writable any more. If it has tokens then that are not computed, a step may
 *                  be writing that slot: KVP_E_STATE.
 *   Truncate       to fewer than the computed tokens needs a checkpoint there, or 0. Else
 *                  KVP_E_DROPPED. Tokens that a step has run must be committed before they are
 *                  truncated, or invalidated. With a ring, those behind the accepted ones may be
 *                  truncated first.
 *   Rings          A step that runs a chain of drafts must leave the state after each token that
 *                  may be the last accepted one. An extend with KVP_BATCH_RING gives each sequence
 *                  a slot for each token that is not computed. The last of them has the slot to
 *                  write. The others have slots of a ring, which are taken behind all else that
 *                  the call takes, in the order of the sequences. kvp_meta_state_rings names all
 *                  of them in the order of tokens. A commit goes on with the slot of its last
 *                  token, and a truncate to more than the computed tokens makes it the slot to
 *                  write. Nothing is copied. A commit, invalidate, close or swap out, and a
 *                  truncate to the computed tokens or fewer, releases the slots of the ring:
 *                  between steps there is none. (A commit of no more than the computed tokens and
 *                  an invalidate from n_tokens change nothing: a step may be writing them.) Tokens
 *                  that are added without the flag share the slot to write with the last one. An
 *                  extend with the flag gives them other slots: commit what a step has run before.
 *                  Each sequence with a ring has KVP_STATE_RING_MAX tokens at most that are not
 *                  computed, else KVP_E_TOO_LONG. KVP_BATCH_RING_NEW is the same for batches with
 *                  other sequences: those that get no tokens have no ring. Both flags are KVP_E_ARG
 *                  with KVP_BATCH_EACH and without state group. The scheduler uses rings if its
 *                  config.state_rings is 1.
 *   Drafts         Without a ring a step that runs a chain of drafts leaves one state: the one
 *                  after the tokens that are accepted, and committed. The engine keeps those in
 *                  between, and copies the one after the last accepted token into the slot that
 *                  the step writes. Then it commits the accepted tokens and truncates to them. The
 *                  scheduler does both (sched.h, kvp_sched_finish_drafts).
 *   Invalidate     takes back the checkpoints of the units that it withdraws. The sequence goes
 *                  back to what it read, if that was not written and is the state at the computed
 *                  tokens that are left. Else it goes back to a checkpoint there. Else its state
 *                  is lost. Then the sequence cannot be extended, forked at that place or be part
 *                  of a step (KVP_E_DROPPED): truncate it to a checkpoint, or close it. Nothing
 *                  behind the computed tokens is writable afterwards.
 *   Close          releases the slots. Then some cached checkpoints of the sequence's nodes go to
 *                  the tail of their queue: first the last one, then upwards each that has two or
 *                  more checkpoints after it that do not come after the next one of the row. The
 *                  others keep the place that they have since they were made or read. So a
 *                  conversation keeps its last checkpoint longest, and prompts that share a prefix
 *                  keep the one at its end. A swap out does the same.
 *   Eviction       When a block is evicted, the checkpoints of its units without a holder are
 *                  evicted before it, the last one first: without the block they cannot be reached.
 *                  They stay if the other tier has the unit in a block. When a checkpoint is
 *                  evicted for its slot, blocks may be left that no other checkpoint makes
 *                  reachable: their units, up from the one that the checkpoint was of, have none at
 *                  them or after them. Those of them that are cached on the device go before all
 *                  others with content in their queue, the last one first. kvp_cache_evicted lists
 *                  checkpoints with their group.
 *   Host           With host_blocks there are host_state_slots: slots of states that sequences have
 *                  there, or that loads fill. Checkpoints are on the device only, and one that is
 *                  evicted is lost. Hits may have their blocks on either tier. If the plan has no
 *                  room for as many host blocks (max_copies), the hit is a shorter prefix that ends
 *                  at a checkpoint. With one group without a window it is the longest of whole
 *                  blocks before them.
 *   Swap           kvp_seq_swap_out copies the state that a sequence would read next to a slot of
 *                  the host, once for all sequences of the call that share it. The plan has the
 *                  copy, with group n_groups and 1 token. Then the sequence leaves its slots as by
 *                  close. kvp_seq_swap_in takes a slot for the state and has it copied, or finds a
 *                  checkpoint after the computed tokens, and reads that. Making room takes a slot
 *                  to write, as an extend does. Slots are taken behind the blocks that move, in
 *                  the order of the sequences. A sequence without slot to read (0 tokens, or a lost
 *                  state) moves its blocks only; with a lost state it cannot come back
 *                  (KVP_E_DROPPED). If blocks suffice and slots do not, kvp_cache_can_swap_out and
 *                  kvp_cache_can_swap_in say KVP_ADMIT_LATER with missing_blocks 0. The calls
 *                  return KVP_E_NO_BLOCKS with tier KVP_HOST_STATE_SLOTS or KVP_STATE_SLOTS.
 *
 * Events tell checkpoints like units that are stored, on the device, in the state group.
 * kvp_block_info_get reads a slot (group n_groups, of either tier): sealed_units is 1 for a
 * checkpoint, sealed_tokens is 0, and hash is the one of the unit that it ends.
 *
 * With overlapped steps (steps.h) no step writes the slot that it reads, not even alone with it:
 *
 *   Steps out      kvp_step_commit of more tokens than are computed, or declared, gives the slot to
 *                  write to that step. From then on the next step reads that slot, also before the
 *                  step is done: its pass starts when earlier passes of the sequence are finished.
 *                  It writes another slot, which the next kvp_seq_extend takes (by 0 tokens will
 *                  do). Without one, kvp_meta_states and declaring more are KVP_E_STATE. When the
 *                  step takes effect, its slot has the state after the computed tokens, and the one
 *                  that it read is released. A sequence that is in n steps that are out holds n + 2
 *                  slots at most.
 *   Order          Steps of a sequence are declared in their order: once a later step has a slot,
 *                  KVP_E_STATE for an earlier one that goes beyond what was declared up to it.
 *                  kvp_seq_commit of more than is computed is KVP_E_STATE while a step has a slot
 *                  for the sequence, or if there is no slot to write.
 *   Failures       If a step fails, its slot for a sequence is released, and so are those of later
 *                  steps whose commits are dropped. The next step reads what the failed one read.
 *                  Sequences that are cut go back to a checkpoint where they were cut. Without
 *                  one, their state is lost.
 *   Rings          are of sequences for which no step that is out has a slot, else KVP_E_STATE.
 *                  Which slot of the ring the next step reads is known when the pass has run. So
 *                  kvp_step_commit of more than the computed tokens is KVP_E_STATE while there is a
 *                  ring. When the pass has run, and before or after kvp_step_done, kvp_seq_commit
 *                  of the accepted tokens releases the slot that was read, and those of the ring
 *                  that are not needed. The next extend takes a slot to write. Meanwhile the
 *                  sequence is in no other step; other sequences may be. If the step fails, the
 *                  ring and what the step read are as before: the tokens may run again.
 *   Truncate       goes back to the computed tokens, or to where a step that is out ends: later
 *                  steps lose their slots. Between such places it is KVP_E_DROPPED, as far as a
 *                  step that is out goes. Other places are as above.
 *   Invalidate     also takes back all that steps which are out will commit.
 *   Checkpoint     of the computed tokens, while later steps are out. It takes no slot: the one
 *                  that it keeps is not written any more.
 *   Parking        Slots that are released while steps are out are parked, as blocks are. A
 *                  checkpoint that is parked can be hit; its need is 0 for kvp_cache_can_open.
 *   Swap           kvp_seq_swap_out copies the state after the computed tokens (computed_slot).
 *                  What steps that are out will leave is dropped with their commits. A sequence
 *                  that comes back always takes another slot to write.
 *   Arrival        A state that the plan copies to a slot of the device is there when the step of
 *                  the copy has taken effect. Until then kvp_seq_checkpoint skips such a slot, and
 *                  a checkpoint that was loaded (lend.h) is not hit, nor found by a swap in. So if
 *                  that step fails, only sequences that hold the slot are affected: the one that
 *                  was swapped, its forks, and what was copied on from there. They are cut where
 *                  their KV ends that is left, and go back to a checkpoint there; without one,
 *                  their state is lost. On the host there are none: a sequence that has lost its
 *                  state there, and has computed tokens, can only be closed. A checkpoint that was
 *                  loaded is withdrawn.
 *   Eviction       Checkpoints also stay if their block's content is on its way to the host
 *                  (config.keep_evicted). They cannot be hit before it is there.
 *
 * sched.h says what the scheduler does with slots and checkpoints.
 *
 * Namespaces may have quotas of slots (quotas.h).
 *
 * state_slots cannot be combined with trees, the learned policy or 8 groups of blocks
 * (kvp_config_check names the field). Loads can bring a state (lend.h). A spill writes and loads
 * checkpoints (spill.h). Transfers bring the state with the KV (transfer.h). Worker messages have
 * the slots that each sequence reads and writes, with those of rings (wire.h). Snapshots hold
 * checkpoints (snapshot.h). memory.h has layouts for slots (KVP_BYTES), and its copier runs the
 * copies.
 */
#ifndef KVPAGER_STATES_H
#define KVPAGER_STATES_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In kvp_shortage.tier: slots of state were missing, on the device or on the host. */
#define KVP_STATE_SLOTS      2
#define KVP_HOST_STATE_SLOTS 3

/* In kvp_batch.flags of kvp_seq_extend_many and kvp_cache_can_extend, alone: rings (see above), of
 * all sequences; or of those that get tokens, while the others have a slot to write. */
#define KVP_BATCH_RING     2u
#define KVP_BATCH_RING_NEW 4u

/* Most tokens of a sequence that a step leaves the states after. */
#define KVP_STATE_RING_MAX 17

/* What kvp_seq_checkpoint did. */
enum {
    KVP_CHECKPOINT_SKIPPED = 0, /* nothing: no slot was available to go on with, others read the
                                   slot, the unit is not public or was flushed, or the state or a
                                   loaded one of the node is still to arrive (see above) */
    KVP_CHECKPOINT_MADE = 1,    /* the state is kept */
    KVP_CHECKPOINT_THERE = 2    /* the node has one already */
};

/* Keep the state after the computed tokens, which end a unit, for prompts that begin alike.
 *
 * The slot with that state becomes the checkpoint of the unit's node. The next step reads it, and
 * writes a slot that this call takes, evicting another checkpoint if need be. If there is none,
 * nothing is kept (stats.skipped): the call never fails for lack of slots, and the sequence goes on
 * as before. Call it before a step is ordered that computes more, because that one may write the
 * slot: after the commit of a chunk, or when it is scheduled if commits are made then.
 *
 * Gives:   out_outcome  KVP_CHECKPOINT_...; may be NULL
 * Returns: KVP_OK; KVP_E_STATE: the cache has no state group; the sequence is swapped out; the
 *          computed tokens are 0, or end no unit; or their values are not known, or not kept;
 *          KVP_E_DROPPED: the state is lost
 * After-failure: unchanged
 * Thread:  cache. Cost: O(units before it, up to one with two more checkpoints after it). Evicting
 *          it, by any call that takes a slot or a block, costs the same, or less
 */
KVP_API kvp_status kvp_seq_checkpoint(kvp_cache *cache, kvp_seq seq, uint32_t *out_outcome);

typedef struct kvp_state_info {
    uint32_t read_slot;     /* that the next step reads; 0: the initial state, or it is lost. Of the
                            host if the sequence is swapped out */
    uint32_t write_slot;    /* that it writes; 0: extend first */
    uint32_t lost;          /* 1: the state after the computed tokens is nowhere */
    uint32_t branch_end;    /* where to end a chunk: the prompt leaves the known path; 0: nowhere */
    uint32_t prompt_end;    /* and: the last unit ends before the last token; 0: nowhere. Both as of
                            open; 0 for a fork */
    uint32_t ring_slots;    /* that its ring has: a slot for each token that is not computed but the
                            last one; 0: none */
    uint32_t computed_slot; /* with the state after the computed tokens: read_slot, unless a step
                               that is out has a slot for more (see above) */
} kvp_state_info;

/* Read what is known of a sequence's state. Not recorded.
 * Returns: KVP_OK; KVP_E_STATE: the cache has no state group. Thread: read. Cost: O(1) */
KVP_API kvp_status kvp_seq_state_get(const kvp_cache *cache, kvp_seq seq, kvp_state_info *out_info);

/* Count the slots that leave the queue if this prompt is opened now: the one that it takes, and the
 * checkpoint that its hit ends at, if no sequence holds that. kvp_cache_can_open asks whether the
 * slots, and the blocks, are there; callers that keep slots for others compare this number
 * themselves with free_slots + cached_slots.
 * Gives:   out_slots    0..2
 * Returns: KVP_OK; KVP_E_STATE: the cache has no state group; as kvp_cache_can_open
 * Thread:  cache (uses scratch memory; changes nothing, and is not recorded). Cost: O(n_tokens) */
KVP_API kvp_status kvp_state_need(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                                  uint32_t *out_slots);

/* Count the slots that leave the queue if these sequences are swapped in now: those that states are
 * copied to, checkpoints that are found instead and that no sequence holds, and those that making
 * room takes. kvp_cache_can_swap_in asks whether they are there.
 * Takes:   seqs         [n_seqs] on the host; reserve_tokens as kvp_seq_swap_in
 * Gives:   out_slots    slots; written on KVP_OK only
 * Returns: KVP_OK; KVP_E_STATE also when the cache has no state group; as kvp_cache_can_swap_in
 * Thread:  cache (uses scratch memory; changes nothing, and is not recorded). Cost: O(blocks) */
KVP_API kvp_status kvp_state_swap_need(kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                                       uint32_t reserve_tokens, uint32_t *out_slots);

/* Give the slots of the sequences of a step, in the order of the batch.
 * Gives:   out_read, out_write  [n_seqs] i32; either may be NULL; written on success only
 * Returns: KVP_OK; KVP_E_HANDLE; KVP_E_STATE: the cache has no state group, or a sequence has no
 *          slot to write (extend it); KVP_E_DROPPED: the state of one is lost
 * Thread:  read. Cost: O(n_seqs) */
KVP_API kvp_status kvp_meta_states(const kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                                   int32_t *out_read, int32_t *out_write);

/* Give the slots of a step that leaves more states than one behind, in the order of the batch.
 *
 * Sequence i writes the first out_n[i] slots of its row. The last one has the state after the last
 * token of the step. With a ring, the one at j before it has the state after the sequence's first
 * j + 1 tokens that are not computed. Without a ring there is only the last one.
 *
 * Takes:   capacity     slots of a row; KVP_STATE_RING_MAX always suffices
 * Gives:   out_read     [n_seqs] i32; may be NULL. As kvp_meta_states
 *          out_n        [n_seqs] 1..17
 *          out_write    [n_seqs][capacity] i32; -1 behind those that are written
 *          All are written on success only
 * Returns: as kvp_meta_states; KVP_E_TOO_SMALL: a row has more slots than `capacity`
 * Thread:  read. Cost: O(n_seqs x capacity) */
KVP_API kvp_status kvp_meta_state_rings(const kvp_cache *cache, const kvp_seq *seqs,
                                        uint32_t n_seqs, uint32_t capacity, int32_t *out_read,
                                        uint32_t *out_n, int32_t *out_write);

typedef struct kvp_state_stats { /* gauges, then counters since creation */
    uint64_t usable_slots;       /* state_slots - 1 = free + cached + held + parked; or 0 */
    uint64_t free_slots;
    uint64_t cached_slots; /* checkpoints that no sequence holds */
    uint64_t held_slots;
    uint64_t taken;             /* slots, evicting or not */
    uint64_t made;              /* checkpoints */
    uint64_t skipped;           /* that found no slot, or could not be reached */
    uint64_t hits;              /* opens that began at a checkpoint */
    uint64_t evicted;           /* checkpoints: by a take, or with their block */
    uint64_t host_usable_slots; /* gauges: host_state_slots - 1 = free + held + loading; or 0 */
    uint64_t host_free_slots;
    uint64_t host_held_slots;    /* of sequences that are swapped out */
    uint64_t host_loading_slots; /* that loads fill; lend.h */
    uint64_t parked_slots;       /* released while steps are out, which may touch them (steps.h) */
} kvp_state_stats;

/* Read counters and gauges of the state group; all 0 without one. Not recorded.
 * Returns: KVP_OK. Thread: any. Cost: O(1). */
KVP_API kvp_status kvp_cache_state_stats_get(const kvp_cache *cache, kvp_state_stats *out_stats);

#ifdef __cplusplus
}
#endif
#endif
