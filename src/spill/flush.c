/* flush: what is worth most is written before the process ends.
 *
 *   MIRROR -> COPIES -> OFFER -> DRAIN -> SYNC -> SYNCED
 *      |         |        |        ^
 *      +---------+--------+--------+  the deadline is over
 *
 * Blocks that would be evicted last are worth most. Each is offered with all of its prefix; what
 * the store has already costs nothing.
 */
#include "spill/spill_state.h"

enum { MIRRORS = 64, LISTED = 64 };

/* ----------------------------------------------------------------------------------------- list */

/* The cached blocks of a tier that a match can find, the coldest first. */
static void list_blocks(kvp_spill *spill, uint32_t tier)
{
    kvp_cold_cursor cursor = {0};
    kvp_cold cold[LISTED];
    uint32_t n = LISTED;
    spill->flush.n_blocks = 0;
    while (n == LISTED &&
           kvp_cache_cold_end(spill->config.cache, tier, &cursor, cold, LISTED, &n) == KVP_OK) {
        for (uint32_t i = 0; i < n; i++) {
            if (cold[i].findable) {
                spill->flush.blocks[spill->flush.n_blocks++] = cold[i].block;
            }
        }
    }
}

static void begin_mirror(kvp_spill *spill)
{
    struct kvpi_spill_flush *flush = &spill->flush;
    kvp_stats stats = {0};
    (void)kvp_cache_stats_get(spill->config.cache, &stats);
    list_blocks(spill, KVP_DEVICE);
    const uint64_t room = stats.host_free_blocks + stats.host_cached_blocks;
    const uint64_t most = room > spill->config.spare_blocks ? room - spill->config.spare_blocks : 0;
    flush->next = flush->n_blocks > most ? flush->n_blocks - (uint32_t)most : 0;
    flush->is_late = 0;
    flush->after = stats.plans + 1;
    flush->state = KVPI_FLUSH_MIRROR;
}

/* --------------------------------------------------------------------------------------- stages */

static void mirror_some(kvp_spill *spill)
{
    struct kvpi_spill_flush *flush = &spill->flush;
    const uint32_t n = kvpi_spill_min(flush->n_blocks - flush->next, MIRRORS);
    int32_t host[MIRRORS];
    kvp_mirrored mirrored = {0};
    kvp_stats stats = {0};
    (void)kvp_cache_mirror(spill->config.cache, flush->blocks + flush->next, n,
                           spill->config.spare_blocks, host, &mirrored);
    const uint32_t n_done = mirrored.copied + mirrored.found + mirrored.left_out;
    flush->next += n_done;
    (void)kvp_cache_stats_get(spill->config.cache, &stats);
    /* What found no room may find it when the copies are over that wait, or are out, now. */
    if (n_done > 0) {
        flush->after = stats.plans + 1;
    }
    const int is_over = stats.plans_done >= flush->after ||
                        (stats.pending_copies == 0 && stats.plans_done == stats.plans);
    if (flush->next == flush->n_blocks || (n_done < n && is_over)) {
        flush->state = KVPI_FLUSH_COPIES;
        flush->after = stats.plans + (stats.pending_copies > 0);
    }
}

/* Not for all plans: an engine may go on, and always have one out. But copies that were dropped
 * before their plan was taken are waited for no longer. */
static void wait_for_copies(kvp_spill *spill)
{
    kvp_stats stats = {0};
    (void)kvp_cache_stats_get(spill->config.cache, &stats);
    if (stats.plans_done >= spill->flush.after ||
        (stats.pending_copies == 0 && stats.plans_done == stats.plans)) {
        list_blocks(spill, KVP_HOST);
        kvpi_prove_index(spill);
        spill->flush.state = KVPI_FLUSH_OFFER;
    }
}

/* What of the block's prefix can be hit: an invalidation may have cut it off. The last token of a
 * prompt is never hit where there is recurrent state, so there is one more. */
static uint32_t count_hittable(kvp_spill *spill, kvp_ns ns, uint32_t n_tokens, uint32_t n_keys)
{
    kvp_prompt prompt = {.struct_size = sizeof(prompt),
                         .tokens = spill->tokens,
                         .n_tokens = n_tokens,
                         .keys = n_keys > 0 ? spill->keys : NULL,
                         .n_keys = n_keys};
    kvp_open_info info = {0};
    if (kvpi_spill_has_states(spill) && n_tokens < spill->cache.max_seq_tokens) {
        spill->tokens[n_tokens] = 0;
        prompt.n_tokens++;
    }
    const kvp_status status = kvp_cache_match(spill->config.cache, ns, &prompt, &info);
    return status == KVP_OK ? info.hit_tokens : 0;
}

/* Tokens and keys of a block's prefix, in the scratch arrays; 0: it cannot be stored. */
static int read_prefix(kvp_spill *spill, int32_t block, const kvp_block_origin *origin,
                       struct kvpi_spill_prefix *out)
{
    kvp_cache *cache = spill->config.cache;
    uint32_t n = 0;
    *out = (struct kvpi_spill_prefix){
        .space = kvpi_epochs_find(spill, origin->ns), .tier = KVP_HOST, .is_unproven = 1};
    if (out->space == NULL || origin->n_tokens > spill->config.max_tokens ||
        origin->n_keys > spill->config.max_keys ||
        kvp_block_prefix(cache, KVP_HOST, block, spill->tokens, origin->n_tokens, &n) != KVP_OK ||
        (origin->n_keys > 0 && kvp_block_keys(cache, KVP_HOST, block, spill->keys, origin->n_keys,
                                              &out->n_keys) != KVP_OK)) {
        return 0;
    }
    kvpi_records_keep_keys(spill->keys, out->n_keys, spill->key_bytes);
    const uint32_t n_hit = count_hittable(spill, origin->ns, n, out->n_keys);
    out->n_tokens = n_hit - n_hit % spill->record_tokens;
    out->has_state = kvpi_spill_has_states(spill) > 0 && out->n_tokens == n_hit;
    while (out->n_keys > 0 && spill->keys[out->n_keys - 1].begin >= out->n_tokens) {
        out->n_keys--;
    }
    return out->n_tokens > 0;
}

/* Was something left out that finds its place, or budget, later? */
static int is_left_out(const kvp_spill *spill, const kvp_spill_stats *before)
{
    return spill->stats.no_place != before->no_place ||
           spill->stats.over_budget != before->over_budget;
}

/* 0: there is no place, or no budget, for all of it now. */
static int offer_block(kvp_spill *spill, int32_t block)
{
    struct kvpi_spill_prefix prefix;
    kvp_block_origin origin;
    const kvp_spill_stats before = spill->stats;
    if (kvp_block_origin_get(spill->config.cache, KVP_HOST, block, &origin) != KVP_OK ||
        !read_prefix(spill, block, &origin, &prefix)) {
        return 1;
    }
    for (uint32_t i = 0; i < prefix.n_keys; i++) { /* what touches the last token ends behind it */
        spill->keys[i].end = kvpi_spill_min(spill->keys[i].end, prefix.n_tokens);
    }
    if (kvpi_prove_rows(spill, &prefix, &origin.root) != KVP_OK ||
        kvpi_offer_prefix(spill, &prefix) != KVP_OK) {
        return 1;
    }
    if (prefix.has_state && !is_left_out(spill, &before)) {
        (void)kvpi_offer_state(spill, &prefix);
    }
    if (!is_left_out(spill, &before)) {
        return 1;
    }
    /* It is offered again: nothing is left out yet. */
    spill->stats.states_left_out = before.states_left_out;
    spill->stats.offered -= spill->stats.no_place - before.no_place;
    spill->stats.offered -= spill->stats.over_budget - before.over_budget;
    spill->stats.no_place = before.no_place;
    spill->stats.over_budget = before.over_budget;
    return 0;
}

static void offer_next(kvp_spill *spill)
{
    struct kvpi_spill_flush *flush = &spill->flush;
    if (flush->n_blocks > 0 && offer_block(spill, flush->blocks[flush->n_blocks - 1])) {
        flush->n_blocks--;
    }
    if (flush->n_blocks == 0) {
        flush->state = KVPI_FLUSH_DRAIN;
    }
}

static void submit_sync(kvp_spill *spill)
{
    const uint64_t tag = kvpi_spill_tag(spill, KVPI_OP_SYNC, 0);
    if (spill->n_puts == 0 && kvp_store_sync(spill->config.store, tag) == KVP_OK) {
        spill->flush.tag = tag;
        spill->flush.state = KVPI_FLUSH_SYNC;
        spill->n_ops++;
    }
}

void kvpi_flush_synced(kvp_spill *spill, uint32_t result)
{
    spill->flush.result = result;
    spill->flush.state = KVPI_FLUSH_SYNCED;
}

/* ----------------------------------------------------------------------------------------- call */

static kvp_status end_flush(kvp_spill *spill)
{
    struct kvpi_spill_flush *flush = &spill->flush;
    flush->state = KVPI_FLUSH_IDLE;
    if (flush->result != KVP_STORE_OK) {
        return KVP_E_IO;
    }
    return flush->is_late ? KVP_E_STATE : KVP_OK;
}

static void be_late(kvp_spill *spill)
{
    kvpi_writes_forget(spill, 0, 0);
    spill->flush.is_late = 1;
    spill->flush.state = KVPI_FLUSH_DRAIN;
}

kvp_status kvp_spill_flush(kvp_spill *spill, uint64_t now_ns, uint64_t deadline_ns)
{
    if (spill == NULL) {
        return KVP_E_ARG;
    }
    struct kvpi_spill_flush *flush = &spill->flush;
    kvpi_rates_tick(spill, now_ns);
    if (flush->state == KVPI_FLUSH_IDLE && spill->config.give == NULL) {
        begin_mirror(spill);
    } else if (flush->state == KVPI_FLUSH_IDLE) {
        flush->is_late = 0;
        flush->state = KVPI_FLUSH_DRAIN;
    }
    if (flush->state <= KVPI_FLUSH_DRAIN && !flush->is_late && deadline_ns <= spill->now_ns &&
        (flush->state < KVPI_FLUSH_DRAIN || spill->n_puts > 0)) {
        be_late(spill);
    }
    switch (flush->state) {
    case KVPI_FLUSH_MIRROR: mirror_some(spill); break;
    case KVPI_FLUSH_COPIES: wait_for_copies(spill); break;
    case KVPI_FLUSH_OFFER: offer_next(spill); break;
    case KVPI_FLUSH_DRAIN: submit_sync(spill); break;
    case KVPI_FLUSH_SYNCED: return end_flush(spill);
    default: break;
    }
    return KVP_E_AGAIN;
}
