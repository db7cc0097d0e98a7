/* sched_slots: what the scheduler does about recurrent state (states.h).
 *
 * A sequence needs a slot to write, and reads one, which may be a checkpoint or another sample's:
 *
 *   prompt under way    the trunk has one slot, and reads one more after a hit or a checkpoint
 *   forked              n samples read the trunk's slot, and take n others for their first tokens:
 *                       those are promised when the request comes in
 *   beams reordered     of each parent with several children all children take one, while they read
 *                       the parent's: n + n / 2 at most, and submissions are refused beyond that
 *
 * With overlapped steps no step writes the slot that it reads. A commit leaves a sequence one slot,
 * so every step takes another one:
 *
 *   each sample         two slots while a step runs, whatever it does
 *   prompt under way    extended by 0 tokens before each step, for the slot
 *   drafts              a ring, if slots are available then; back when the step is finished
 *   promised            two for each sample, less those that the open took: to a request of one
 *                       sample until its first chunk is computed, to others until they have decoded
 *                       a token; to beams one for each that shares the slot of another one. The
 *                       same when a request is swapped in, less those that this takes
 *
 * So a request that comes in never takes what a running sample needs next.
 *
 * Chunks of a prompt end where kvp_seq_state_get says. When such a chunk is computed, its state is
 * kept, unless the slot that this takes is promised to others. (With overlapped steps it takes
 * none.) Slots lacked are like blocks lacked: victims are taken for them, or the request is left
 * out, or waits.
 */
#include "sched/sched_state.h"

uint64_t kvpi_slots_available(const kvp_sched *sched)
{
    kvp_state_stats stats;
    (void)kvp_cache_state_stats_get(sched->cache, &stats);
    return stats.free_slots + stats.cached_slots;
}

/* That steps which are out will give back. */
uint64_t kvpi_slots_parked(const kvp_sched *sched)
{
    kvp_state_stats stats;
    (void)kvp_cache_state_stats_get(sched->cache, &stats);
    return stats.parked_slots;
}

enum { SLOTS_OF_EACH = 2 }; /* of a sample: that it reads, and that it writes */

/* Slots that a request with so many samples may hold at once. */
uint32_t kvpi_slots_most_of(const kvp_sched *sched, uint32_t n_samples)
{
    return sched->renews_slots ? SLOTS_OF_EACH * n_samples : n_samples + n_samples / 2;
}

/* Slots to be promised when the request comes in: those that its samples will take when they are
 * forked; with overlapped steps all that it will hold. */
uint32_t kvpi_slots_to_promise(const kvp_sched *sched, const struct kvpi_request *request)
{
    if (sched->renews_slots) {
        return SLOTS_OF_EACH * request->n_live;
    }
    return sched->usable_slots > 0 && request->n_live > 1 ? request->n_live : 0;
}

void kvpi_slots_promise(kvp_sched *sched, struct kvpi_request *request, uint32_t n)
{
    sched->promised_slots += n;
    sched->promised_slots -= request->promised_slots;
    request->promised_slots = n;
}

enum { MOST_TO_OPEN = 2 }; /* the slot to write, and the checkpoint that the prompt hits */

/* Slots that are missing to open the prompt, beside what is promised. What it needs costs a match:
 * it is asked only if the most that it may need is not there. */
uint64_t kvpi_slots_missing(kvp_sched *sched, const struct kvpi_request *request,
                            const kvp_prompt *prompt)
{
    if (sched->usable_slots == 0) {
        return 0;
    }
    const uint64_t others = (uint64_t)kvpi_slots_to_promise(sched, request) + sched->promised_slots;
    const uint64_t available = kvpi_slots_available(sched);
    uint32_t need = 0; /* with overlapped steps, among the others */
    if (!sched->renews_slots && MOST_TO_OPEN + others > available) {
        (void)kvp_state_need(sched->cache, request->ns, prompt, &need); /* it can be opened */
    }
    return need + others > available ? need + others - available : 0;
}

/* Are there slots to swap in the sequences in swap_seqs, which will take `at_once` besides in this
 * step? *promise: to be promised to them then. With overlapped steps it becomes less by what they
 * take, as when a prompt is opened. */
int kvpi_slots_suffice_back(kvp_sched *sched, uint32_t n_seqs, uint32_t reserve, uint32_t at_once,
                            uint32_t *promise)
{
    uint32_t need;
    if (kvp_state_swap_need(sched->cache, sched->swap_seqs, n_seqs, reserve, &need) != KVP_OK) {
        return 0;
    }
    if (sched->renews_slots) {
        *promise -= need + at_once;
    }
    return (uint64_t)need + at_once + *promise + sched->promised_slots <=
           kvpi_slots_available(sched);
}

int kvpi_slots_are_all_there(const kvp_sched *sched)
{
    return kvpi_slots_available(sched) == sched->usable_slots;
}

/* ------------------------------------------------------------------------------------ victims */

static kvp_state_info slots_of_seq(const kvp_sched *sched, kvp_seq seq)
{
    kvp_state_info state = {0};
    if (seq.bits != 0) {
        (void)kvp_seq_state_get(sched->cache, seq, &state);
    }
    return state;
}

/* The step that should have copied it to the other tier has failed. */
int kvpi_slots_is_lost(const kvp_sched *sched, kvp_seq seq)
{
    return slots_of_seq(sched, seq).lost != 0;
}

static uint32_t count_readers(const kvp_sched *sched, const struct kvpi_request *request,
                              uint32_t slot)
{
    uint32_t n = 0;
    for (const struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        n += slots_of_seq(sched, s->seq).read_slot == slot;
    }
    return n;
}

/* Does a sample before this one read the slot, too? */
static int is_read_before(const kvp_sched *sched, const struct kvpi_request *request,
                          const struct kvpi_sample *sample, uint32_t slot)
{
    for (const struct kvpi_sample *s = kvpi_sched_first(sched, request); s && s != sample;
         s = kvpi_sched_next(sched, s)) {
        if (slots_of_seq(sched, s->seq).read_slot == slot) {
            return 1;
        }
    }
    return 0;
}

/* States that a swap of the request copies. */
uint32_t kvpi_slots_count_read(const kvp_sched *sched, const struct kvpi_request *request)
{
    uint32_t n = 0;
    for (const struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        const uint32_t slot = slots_of_seq(sched, s->seq).read_slot;
        n += slot != 0 && !is_read_before(sched, request, s, slot);
    }
    return n;
}

/* Would a slot be released with the request? The one that a sequence writes has no other holder. */
int kvpi_slots_are_released(const kvp_sched *sched, const struct kvpi_request *request)
{
    for (const struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        const kvp_state_info state = slots_of_seq(sched, s->seq);
        kvp_block_info info;
        if (state.write_slot != 0) {
            return 1;
        }
        if (state.read_slot != 0 &&
            kvp_block_info_get(sched->cache, sched->n_groups, KVP_DEVICE, (int32_t)state.read_slot,
                               &info) == KVP_OK &&
            info.ref_count <= count_readers(sched, request, state.read_slot)) {
            return 1;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------- with overlapped steps */

/* Has a prompt under way no slot to write? */
int kvpi_slots_is_needed(const kvp_sched *sched, const struct kvpi_sample *sample)
{
    return sched->renews_slots && sample->stage == KVPI_STAGE_PREFILL &&
           slots_of_seq(sched, sample->seq).write_slot == 0;
}

/* List those behind the items that decode, with 0 tokens in few_counts. Gives how many. */
uint32_t kvpi_slots_list_needed(kvp_sched *sched)
{
    uint32_t n = 0;
    uint32_t place = sched->renews_slots ? sched->prefill_first : KVPI_NONE;
    while (place != KVPI_NONE) {
        const struct kvpi_sample *sample = &sched->samples[place];
        if (kvpi_slots_is_needed(sched, sample)) {
            sched->item_seqs[sched->n_decoding + n] = sample->seq;
            sched->few_counts[sched->n_decoding + n++] = 0;
        }
        place = sample->list_after;
    }
    return n;
}

/* Beams: each that reads the slot of another one will have one of its own. */
void kvpi_slots_promise_shared(kvp_sched *sched, struct kvpi_request *request)
{
    if (sched->renews_slots) {
        kvpi_slots_promise(sched, request, request->n_live - kvpi_slots_count_read(sched, request));
    }
}

/* -------------------------------------------------------------------------------- checkpoints */

/* The next of the two places where a chunk should end, behind `from`; UINT32_MAX: there is none. */
static uint32_t next_chunk_end(const kvp_state_info *state, uint32_t from)
{
    const uint32_t branch = state->branch_end > from ? state->branch_end : UINT32_MAX;
    const uint32_t prompt = state->prompt_end > from ? state->prompt_end : UINT32_MAX;
    return kvpi_sched_min(branch, prompt);
}

/* How many of the sample's next n tokens are computed in this chunk? */
uint32_t kvpi_slots_cut_chunk(const kvp_sched *sched, const struct kvpi_sample *sample, uint32_t n)
{
    if (sched->usable_slots == 0) {
        return n;
    }
    const kvp_state_info state = slots_of_seq(sched, sample->seq);
    return kvpi_sched_min(n, next_chunk_end(&state, sample->computed) - sample->computed);
}

/* The last place up to `end` where the sample will leave a checkpoint; else 0. */
uint32_t kvpi_slots_last_kept(const kvp_sched *sched, const struct kvpi_sample *sample,
                              uint32_t end)
{
    const kvp_state_info state = slots_of_seq(sched, sample->seq);
    uint32_t last = 0;
    for (uint32_t at = next_chunk_end(&state, sample->computed); at <= end;
         at = next_chunk_end(&state, at)) {
        last = at;
    }
    return last;
}

static void keep_state(kvp_sched *sched, kvp_seq seq)
{
    uint32_t outcome = KVP_CHECKPOINT_SKIPPED;
    if (sched->renews_slots || kvpi_slots_available(sched) > sched->promised_slots) {
        (void)kvp_seq_checkpoint(sched->cache, seq, &outcome);
    }
    sched->stats.checkpoints += outcome == KVP_CHECKPOINT_MADE;
    sched->stats.skipped_checkpoints += outcome == KVP_CHECKPOINT_SKIPPED;
}

/* The chunks of the step are computed. */
void kvpi_slots_keep(kvp_sched *sched)
{
    for (uint32_t k = sched->n_decoding; sched->usable_slots > 0 && k < sched->n_items; k++) {
        const uint32_t end = sched->item_ends[k];
        if (sched->item_samples[k] != KVPI_NONE) {
            const kvp_state_info state = slots_of_seq(sched, sched->item_seqs[k]);
            if (end == state.branch_end || end == state.prompt_end) {
                keep_state(sched, sched->item_seqs[k]);
            }
        }
    }
}
