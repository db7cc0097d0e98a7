/* sched_swap: requests to the host and back, with all their live samples in one call, so that what
 * they share stays one block.
 *
 * On the host a request keeps its sequences, and nothing is promised to the samples that its trunk
 * has not been forked to yet; when it comes back they are counted again. The way back must fit one
 * plan, or a swapped request could wait for ever: kvpi_swap_is_possible checks that beforehand.
 *
 * With recurrent state, the way back needs slots: one for each state, and one for each sequence
 * that may not write the slot that it reads. It prefers checkpoints that are there to copies, so it
 * may need more than there are. A request that lacks slots when all are available is closed: it
 * fits when it is opened again.
 */
#include "sched/sched_state.h"

/* Blocks of the rows of all layer groups, those that windows have dropped left out. */
static uint64_t count_rows(const kvp_sched *sched, const struct kvpi_sample *sample)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < sched->n_groups; g++) {
        const int32_t *row;
        uint32_t n_row;
        if (kvp_seq_row(sched->cache, sample->seq, g, &row, &n_row) == KVP_OK) {
            for (uint32_t i = 0; i < n_row; i++) {
                n += row[i] != KVP_NULL_BLOCK;
            }
        }
    }
    return n;
}

/* Would it come back in one plan? Samples are counted besides, for copies of blocks that they share
 * and will write. */
int kvpi_swap_is_possible(const kvp_sched *sched, const struct kvpi_request *request)
{
    uint64_t n = 0;
    for (const struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        n += kvpi_sample_has_seq(s) ? count_rows(sched, s) : 0;
    }
    n = n < sched->usable_blocks ? n : sched->usable_blocks;
    const uint64_t n_groups = (uint64_t)sched->n_groups + (sched->usable_slots > 0);
    return n + request->n_live * n_groups <= sched->max_copies;
}

static uint32_t gather_samples(kvp_sched *sched, const struct kvpi_request *request)
{
    uint32_t n = 0;
    for (const struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        if (kvpi_sample_has_seq(s)) {
            sched->swap_seqs[n++] = s->seq;
        }
    }
    return n;
}

/* ------------------------------------------------------------------------------------- prices */

/* fixed + each x n, or the largest number there is. */
static uint64_t price(uint64_t fixed, uint64_t each, uint64_t n)
{
    uint64_t all;
    return __builtin_mul_overflow(each, n, &all) || __builtin_add_overflow(all, fixed, &all)
               ? UINT64_MAX
               : all;
}

static uint32_t count_holders(const kvp_sched *sched, const struct kvpi_request *request,
                              uint32_t idx, int32_t block)
{
    uint32_t n = 0;
    for (const struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        const int32_t *row;
        uint32_t n_row;
        n += kvpi_sample_has_seq(s) &&
             kvp_seq_row(sched->cache, s->seq, 0, &row, &n_row) == KVP_OK && idx < n_row &&
             row[idx] == block;
    }
    return n;
}

/* Computed tokens in leading full blocks of the first group that others hold, too. */
static uint32_t tokens_held_by_others(const kvp_sched *sched, const struct kvpi_request *request,
                                      const struct kvpi_sample *sample)
{
    const uint32_t n_full = kvpi_sample_computed(sample) / sched->block_tokens[0];
    const int32_t *row;
    uint32_t n_row;
    uint32_t idx = 0;
    if (kvp_seq_row(sched->cache, sample->seq, 0, &row, &n_row) != KVP_OK) {
        return 0;
    }
    for (; idx < kvpi_sched_min(n_full, n_row); idx++) {
        kvp_block_info info;
        if (kvp_block_info_get(sched->cache, 0, KVP_DEVICE, row[idx], &info) != KVP_OK ||
            info.ref_count <= count_holders(sched, request, idx, row[idx])) {
            break;
        }
    }
    return idx * sched->block_tokens[0];
}

static uint64_t count_lost_tokens(const kvp_sched *sched, const struct kvpi_request *request)
{
    const uint32_t prompt = request->prompt.n_tokens;
    uint64_t n = 0;
    int is_first = 1;
    for (const struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        if (kvpi_sample_has_seq(s)) {
            const uint32_t computed = kvpi_sample_computed(s);
            n += is_first ? computed - tokens_held_by_others(sched, request, s)
                          : kvpi_sched_max(computed, prompt) - prompt;
            is_first = 0;
        }
    }
    return n;
}

int kvpi_swap_is_cheaper(kvp_sched *sched, const struct kvpi_request *request)
{
    const kvp_sched_config *config = &sched->config;
    const uint32_t n = gather_samples(sched, request);
    kvp_admission admission;
    if (kvp_cache_can_swap_out(sched->cache, sched->swap_seqs, n, &admission) != KVP_OK ||
        admission.verdict != KVP_ADMIT_OK) {
        return 0;
    }
    const uint64_t fixed =
        price(config->swap_cost, config->swap_state_cost, kvpi_slots_count_read(sched, request));
    return price(fixed, config->swap_block_cost, admission.copied_blocks) <=
           price(config->recompute_cost, config->recompute_token_cost,
                 count_lost_tokens(sched, request));
}

/* ------------------------------------------------------------------------------- out, and in */

/* Gives 0, with nothing changed, when the cache refuses. */
int kvpi_swap_out(kvp_sched *sched, struct kvpi_request *request)
{
    const int is_paused = request->queue == KVPI_QUEUE_HALTED;
    const uint32_t n = gather_samples(sched, request);
    kvp_swapped swapped;
    if (kvp_seq_swap_out(sched->cache, sched->swap_seqs, n, &swapped) != KVP_OK) {
        return 0;
    }
    kvpi_life_leave(sched, request, is_paused ? KVPI_QUEUE_STORED : KVPI_QUEUE_SWAPPED);
    kvpi_life_unpromise(sched, request);
    kvpi_sched_count(&request->preemptions);
    kvpi_sched_count(&request->swaps);
    request->last_try.missing = 0;
    sched->swapped_out[sched->report.n_swapped_out++] = kvpi_sched_handle(sched, request);
    sched->stats.preemptions++;
    sched->stats.swapped_out++;
    sched->stats.swapped_out_blocks += swapped.copied_blocks;
    return 1;
}

/* Blocks of all layer groups from the one with token `begin` on, for tokens up to `end`. */
static uint32_t count_from(const kvp_sched *sched, uint32_t begin, uint32_t end)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < sched->n_groups; g++) {
        const uint32_t S = sched->block_tokens[g];
        n += kvpi_sched_ceil(end, S) - begin / S;
    }
    return n;
}

/* Blocks, and slots of state, that samples will take besides those of the swap-in: when the trunk
 * is forked, which is promised, and when generated tokens that are computed again get their room,
 * in this step. */
struct besides {
    uint32_t promised;
    uint32_t at_once;
    uint32_t promised_slots;
    uint32_t slots_at_once;
};

static struct besides count_besides(const kvp_sched *sched, const struct kvpi_request *request)
{
    const int is_ready = kvpi_life_is_ready(sched, request);
    struct besides n = {0};
    if (sched->renews_slots || (!is_ready && request->n_unforked > 0)) {
        n.promised_slots = kvpi_slots_to_promise(sched, request);
    }
    if (is_ready) {
        return n; /* the reserve is for what it computes */
    }
    if (request->n_unforked > 0) {
        n.promised =
            kvpi_open_blocks_to_promise(sched, request, kvpi_open_trunk_of(sched, request));
    }
    for (const struct kvpi_sample *s = kvpi_sched_first(sched, request); s;
         s = kvpi_sched_next(sched, s)) {
        const uint32_t goal = kvpi_sample_goal(sched, request, s);
        if (kvpi_sample_has_seq(s) && s->core < goal) {
            /* and the partly filled block that it shares with the trunk */
            n.at_once += count_from(sched, s->core, goal);
            n.slots_at_once += s->core == s->computed;
        }
    }
    return n;
}

/* Whether all of that fits, beside what was promised to others. */
static kvp_status check_all(kvp_sched *sched, uint32_t n_seqs, uint32_t reserve,
                            struct besides *besides)
{
    kvp_admission admission;
    const kvp_status status =
        kvp_cache_can_swap_in(sched->cache, sched->swap_seqs, n_seqs, reserve, &admission);
    if (status != KVP_OK) {
        return status;
    }
    const uint64_t others = (uint64_t)besides->promised + besides->at_once + sched->promised_blocks;
    const uint64_t all = admission.need_blocks + others + kvpi_open_watermark(sched);
    if (all > admission.available) {
        sched->missing = all - admission.available;
        return KVP_E_NO_BLOCKS;
    }
    if (sched->usable_slots > 0 &&
        !kvpi_slots_suffice_back(sched, n_seqs, reserve, besides->slots_at_once,
                                 &besides->promised_slots)) {
        sched->lacks_slots = 1;
        return KVP_E_NO_BLOCKS;
    }
    return KVP_OK;
}

static uint32_t reserve_of(const kvp_sched *sched, const struct kvpi_request *request)
{
    return kvpi_life_is_ready(sched, request) ? 1 : 0;
}

/* Would it come in? KVP_E_NO_BLOCKS: not now. */
kvp_status kvpi_swap_check(kvp_sched *sched, const struct kvpi_request *request)
{
    struct besides besides = count_besides(sched, request);
    return check_all(sched, gather_samples(sched, request), reserve_of(sched, request), &besides);
}

kvp_status kvpi_swap_in(kvp_sched *sched, struct kvpi_request *request)
{
    const uint32_t n = gather_samples(sched, request);
    const uint32_t reserve = reserve_of(sched, request);
    struct besides besides = count_besides(sched, request);
    kvp_swapped swapped;
    kvp_shortage shortage;
    kvp_status status = KVP_OK;
    sched->missing = 0;
    sched->lacks_slots = 0;
    if (besides.promised + besides.at_once + sched->promised_blocks + sched->usable_slots > 0) {
        status = check_all(sched, n, reserve, &besides);
    }
    if (status == KVP_OK) {
        status = kvp_seq_swap_in(sched->cache, sched->swap_seqs, n, reserve, &swapped);
        if (status == KVP_E_NO_BLOCKS &&
            kvp_cache_shortage_get(sched->cache, &shortage) == KVP_OK) {
            sched->missing = shortage.missing_blocks;
        }
    }
    if (status != KVP_OK) {
        return status;
    }
    request->promised = besides.promised;
    sched->promised_blocks += besides.promised;
    kvpi_slots_promise(sched, request, besides.promised_slots);
    sched->stats.swapped_in++;
    sched->stats.swapped_in_blocks += swapped.copied_blocks;
    return KVP_OK;
}
