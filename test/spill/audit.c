#include "audit.h"

#include <string.h>

#include "spill/spill_state.h"

enum { ASKS = 4096, PUTS = KVP_STORE_QUEUE_MAX };

/* What is found in all records. */
struct found {
    uint64_t ops;
    uint64_t waiting;
    uint64_t queued_bytes;
    uint64_t loads;
    uint64_t loading_blocks;
    uint64_t slots; /* bits */
    uint64_t n_slots;
    uint64_t lent_blocks;
};

/* ----------------------------------------------------------------------------------------- asks */

static int wants_record(const kvp_spill *spill, const struct kvpi_spill_ask *ask, uint32_t at)
{
    const uint32_t group = at % spill->n_kinds;
    const uint32_t end = (at / spill->n_kinds + 1) * kvpi_spill_entries(spill, group);
    const int32_t *blocks = ask->blocks + (size_t)group * spill->max_entries + end;
    int is_wanted = 0;
    for (uint32_t i = 1; i <= spill->pieces[group]; i++)
        is_wanted |= blocks[-(int32_t)i] != KVP_NULL_BLOCK;
    return is_wanted;
}

static const char *audit_loads(const kvp_spill *spill, const struct kvpi_spill_ask *ask,
                               struct found *found)
{
    uint64_t bytes = 0;
    uint32_t n_out = 0;
    for (uint32_t i = 0; i < spill->config.max_gets; i++) {
        const struct kvpi_spill_get *get = &spill->gets[i];
        if (get->ask != (uint32_t)(ask - spill->asks))
            continue;
        n_out++;
        bytes += spill->record_bytes[get->group];
        if (!wants_record(spill, ask, get->record * spill->n_kinds + get->group))
            return "a record is read that is not wanted";
    }
    for (uint32_t at = ask->cursor; at < ask->end; at++)
        bytes += wants_record(spill, ask, at) ? spill->record_bytes[at % spill->n_kinds] : 0;
    if (ask->n_gets_out != n_out)
        return "n_gets_out";
    /* What is given up counts until the loads have ended. */
    if (ask->cursor > ask->end || ask->left_bytes < bytes ||
        (ask->cursor < ask->end && ask->left_bytes != bytes))
        return "left_bytes";
    for (uint32_t i = 0; i < ask->n_loads; i++) {
        const struct kvpi_spill_load *load = &ask->loads[i];
        for (uint32_t e = load->entries.begin; e < load->entries.end; e++)
            found->loading_blocks +=
                !kvpi_spill_is_state(spill, load->group) &&
                ask->blocks[(size_t)load->group * spill->max_entries + e] != KVP_NULL_BLOCK;
    }
    found->loads += ask->n_loads;
    found->queued_bytes += ask->left_bytes;
    return ask->state == KVPI_ASK_LOADING || ask->n_loads + n_out + ask->left_bytes == 0
               ? NULL
               : "an ask that loads nothing has loads";
}

/* It waits for loads of others, that go on. */
static const char *audit_sharing(const kvp_spill *spill, const struct kvpi_spill_ask *ask)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < (spill->config.max_asks + 63) / 64 * 64; i++) {
        if (!(ask->on[i / 64] >> i % 64 & 1))
            continue;
        n++;
        if (i >= spill->config.max_asks || &spill->asks[i] == ask ||
            spill->asks[i].state != KVPI_ASK_LOADING || spill->asks[i].space != ask->space)
            return "an ask waits for a load that is over";
    }
    return n == ask->n_shared ? NULL : "n_shared";
}

static const char *audit_asks(const kvp_spill *spill, struct found *found)
{
    static uint8_t is_queued[ASKS];
    uint64_t asked_ns = 0;
    memset(is_queued, 0, spill->config.max_asks);
    for (uint32_t i = 0; i < spill->n_queue; i++) {
        const struct kvpi_spill_ask *ask = &spill->asks[spill->queue[i]];
        if (is_queued[spill->queue[i]]++ || ask->asked_ns < asked_ns)
            return "the order of asks";
        if (ask->waits + ask->has_answer > 1 ||
            (ask->state == KVPI_ASK_LOADED && !ask->waits && !ask->has_answer))
            return "an ask that is over is queued";
        if ((ask->tag != 0) != (ask->state == KVPI_ASK_LOOKED))
            return "the tag of an ask";
        const char *wrong = audit_loads(spill, ask, found);
        if (wrong == NULL)
            wrong = audit_sharing(spill, ask);
        if (wrong != NULL)
            return wrong;
        asked_ns = ask->asked_ns;
        found->waiting += ask->waits;
        found->ops += ask->tag != 0;
    }
    for (uint32_t i = 0; i < spill->config.max_asks; i++)
        if (is_queued[i] != (spill->asks[i].state != KVPI_ASK_FREE))
            return "an ask that is not free is not queued";
    return found->waiting == spill->n_waiting ? NULL : "n_waiting";
}

/* ----------------------------------------------------------------------------------------- gets */

static const char *audit_gets(const kvp_spill *spill, struct found *found)
{
    uint8_t used[1024] = {0}; /* as many gets as there may be */
    uint64_t bytes = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < spill->config.max_gets; i++) {
        const struct kvpi_spill_get *get = &spill->gets[i];
        const int is_out = get->ask != KVPI_SPILL_NONE;
        if (is_out != (get->tag != 0))
            return "the tag of a get";
        if (!is_out)
            continue;
        n++;
        bytes += spill->record_bytes[get->group];
        if (get->scratch != KVPI_SPILL_NONE && used[get->scratch]++)
            return "two gets read to one place";
    }
    found->ops += n;
    /* With config.take there are as many places as gets. */
    for (uint32_t i = 0; i < spill->config.n_scratch && spill->config.take == NULL; i++)
        if (used[i] != spill->scratch_used[i])
            return "scratch_used";
    return n == spill->n_gets && bytes == spill->get_bytes ? NULL : "n_gets, get_bytes";
}

/* ----------------------------------------------------------------------------------------- puts */

static const char *audit_slot(const struct kvpi_spill_put *put, struct found *found)
{
    const struct kvpi_spill_slot *slot = &put->slot;
    if (slot->place == KVPI_SPILL_NONE)
        return slot->seq.bits == 0 && slot->is_told ? NULL : "a put of no state holds a slot";
    if (found->slots >> slot->place & 1)
        return "two states have one place";
    if (slot->is_told ? slot->plan == 0 : slot->seq.bits == 0 || put->state == KVPI_PUT_WRITING)
        return "a slot is not held until it is copied";
    found->slots |= UINT64_C(1) << slot->place;
    found->n_slots++;
    return NULL;
}

/* Its children that still wait for it; they stand behind it. */
static const char *audit_children(const kvp_spill *spill, uint32_t at)
{
    const struct kvpi_spill_put *put = &spill->puts[spill->put_queue[at]];
    uint32_t n = 0;
    for (uint32_t i = 0; i < spill->n_puts; i++) {
        const struct kvpi_spill_put *child = &spill->puts[spill->put_queue[i]];
        if (child->parent != spill->put_queue[at] || child->parent_order != put->order)
            continue;
        n++;
        if (i <= at || memcmp(&child->identity.parent, &put->key, sizeof put->key) != 0)
            return "the parent of a put";
    }
    return n <= put->n_children ? NULL : "n_children";
}

static const char *audit_put(const kvp_spill *spill, uint32_t at, struct found *found)
{
    const uint32_t number = spill->put_queue[at];
    const struct kvpi_spill_put *put = &spill->puts[number];
    const struct kvpi_spill_put *before = at > 0 ? &spill->puts[spill->put_queue[at - 1]] : NULL;
    const char *wrong = audit_slot(put, found);
    if (wrong == NULL)
        wrong = audit_children(spill, at);
    if (put->state == KVPI_PUT_FREE || (before != NULL && before->order >= put->order))
        return "the order of puts";
    if ((put->tag != 0) != (put->state == KVPI_PUT_WRITING))
        return "the tag of a put";
    if (spill->put_marks[number] != kvpi_records_mark_of(&put->key))
        return "the mark of a put";
    if (put->bytes != spill->record_bytes[put->identity.group])
        return "the bytes of a put";
    found->ops += put->tag != 0;
    return wrong;
}

/* Blocks that puts read, each once. */
static uint64_t count_lent(const kvp_spill *spill)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < spill->n_puts; i++) {
        const struct kvpi_spill_put *put = &spill->puts[spill->put_queue[i]];
        for (uint32_t b = 0; b < put->n_blocks && put->state == KVPI_PUT_WRITING; b++) {
            int is_first = 1;
            for (uint32_t k = 0; k < i && is_first; k++) {
                const struct kvpi_spill_put *other = &spill->puts[spill->put_queue[k]];
                for (uint32_t o = 0; o < other->n_blocks && is_first; o++)
                    is_first =
                        other->state != KVPI_PUT_WRITING || other->blocks[o] != put->blocks[b];
            }
            n += (uint64_t)is_first;
        }
    }
    return n;
}

static const char *audit_puts(const kvp_spill *spill, struct found *found)
{
    static uint8_t is_listed[PUTS];
    const uint32_t max_puts = spill->config.max_puts;
    uint64_t bytes = 0;
    memset(is_listed, 0, max_puts);
    for (uint32_t i = 0; i < spill->n_puts; i++) {
        const char *wrong = audit_put(spill, i, found);
        if (wrong != NULL)
            return wrong;
        bytes += spill->puts[spill->put_queue[i]].bytes;
        is_listed[spill->put_queue[i]]++;
    }
    for (uint32_t i = 0; i < max_puts - spill->n_puts; i++) {
        const uint32_t number = spill->put_free[i];
        if (spill->puts[number].state != KVPI_PUT_FREE || spill->put_marks[number] != 0)
            return "a put that is not free";
        is_listed[number]++;
    }
    for (uint32_t i = 0; i < max_puts; i++)
        if (is_listed[i] != 1)
            return "a put is in no list, or in two";
    found->lent_blocks = count_lent(spill);
    return bytes == spill->put_bytes && found->n_slots == spill->n_slots &&
                   found->slots == spill->slots_used
               ? NULL
               : "put_bytes, n_slots, slots_used";
}

/* ---------------------------------------------------------------------------------------- drops */

static const char *audit_drops(const kvp_spill *spill, struct found *found)
{
    const struct kvpi_spill_wrong *w = &spill->wrong;
    if (w->n_marks > w->n_keys || w->n_out > w->n_marks || (w->tag != 0) != (w->n_out > 0))
        return "the number of drops";
    for (uint32_t i = 1; i < w->n_marks; i++)
        if (w->marks[i - 1] > w->marks[i])
            return "the order of drops";
    for (uint32_t i = 0; i < w->n_marks; i++)
        if (!kvpi_wrong_has(spill, &w->keys[i]))
            return "a drop without its mark";
    found->ops += w->n_out > 0;
    return NULL;
}

/* ----------------------------------------------------------------------------------- statistics */

static int are_of_records(const kvp_spill *spill, uint64_t n, uint64_t bytes)
{
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t g = 0; g < spill->n_kinds; g++) {
        least = spill->record_bytes[g] < least ? spill->record_bytes[g] : least;
        most = spill->record_bytes[g] > most ? spill->record_bytes[g] : most;
    }
    return bytes >= n * least && bytes <= n * most;
}

/* What was offered, asked and decided has come to one end. */
static const char *audit_stats(const kvp_spill *spill)
{
    const kvp_spill_stats *s = &spill->stats;
    uint64_t answered = 0;
    for (uint32_t i = 1; i < KVP_SPILL_OUTCOMES; i++)
        answered += s->outcomes[i];
    const uint64_t known = answered + spill->n_waiting; /* and those that were aborted meanwhile */
    if (s->asked < known || s->asked > known + s->aborted)
        return "asked";
    if (s->offered != s->written + s->known + s->over_budget + s->no_place + s->no_block + s->lost +
                          s->taken_back + s->put_failed + spill->n_puts)
        return "offered";
    if (s->decided_all + s->decided_part + s->decided_none > s->outcomes[KVP_SPILL_WAITS] ||
        s->decided_all + s->decided_part < s->outcomes[KVP_SPILL_LOADED] ||
        s->decided_none > s->outcomes[KVP_SPILL_COMPUTE])
        return "decided";
    if (!are_of_records(spill, s->written, s->written_bytes) ||
        !are_of_records(spill, s->loaded, s->loaded_bytes) || s->scratch_bytes > s->loaded_bytes)
        return "written_bytes, loaded_bytes";
    if (s->states_written > s->written || s->states_loaded > s->loaded ||
        s->states_left_out > s->offered || s->device_tokens + s->host_tokens > s->asked_tokens ||
        s->store_tokens > s->asked_tokens)
        return "states, tokens";
    return NULL;
}

/* ------------------------------------------------------------------------------------------ all */

static const char *audit_cache(const kvp_spill *spill, const struct found *found)
{
    kvp_stats stats;
    if (kvp_cache_stats_get(spill->config.cache, &stats) != KVP_OK)
        return NULL;
    if (stats.open_loads != found->loads || stats.host_loading_blocks != found->loading_blocks)
        return "loads that the cache has";
    return stats.host_lent_blocks >= found->loading_blocks + found->lent_blocks
               ? NULL
               : "blocks that the cache has lent";
}

const char *spill_audit(const kvp_spill *spill)
{
    struct found found = {.ops = spill->flush.tag != 0};
    const char *wrong = audit_asks(spill, &found);
    if (wrong == NULL)
        wrong = audit_gets(spill, &found);
    if (wrong == NULL)
        wrong = audit_puts(spill, &found);
    if (wrong == NULL)
        wrong = audit_drops(spill, &found);
    if (wrong == NULL)
        wrong = audit_stats(spill);
    if (wrong == NULL)
        wrong = audit_cache(spill, &found);
    if (wrong == NULL && (found.ops != spill->n_ops || found.queued_bytes != spill->queued_bytes))
        wrong = "n_ops, queued_bytes";
    return wrong;
}

/* ---------------------------------------------------------------------------------------- marks */

static const char *audit_mark(const kvp_spill *spill, uint32_t tier, int32_t block)
{
    enum { TOKENS = 512, KEYS = 16 };
    static int32_t tokens[TOKENS];
    static kvp_digest digests[TOKENS];
    static kvp_key keys[KEYS];
    const struct kvpi_spill_mark *mark =
        &spill->marks[(tier == KVP_HOST ? spill->cache.n_blocks : 0) + (uint32_t)block];
    const struct kvpi_spill_space *space = kvpi_epochs_serial(spill, mark->space);
    kvp_cache *cache = spill->config.cache;
    kvp_hash_input input = {.unit_tokens = spill->part_tokens, .tokens = tokens, .keys = keys};
    kvp_block_origin origin;
    if (space == NULL || kvp_block_origin_get(cache, tier, block, &origin) != KVP_OK ||
        origin.generation != mark->generation || origin.ns.bits != space->ns.bits ||
        origin.n_tokens - origin.first < kvpi_spill_block_tokens(spill, origin.group))
        return NULL;
    if (kvp_block_prefix(cache, tier, block, tokens, TOKENS, &input.n_tokens) != KVP_OK ||
        kvp_block_keys(cache, tier, block, keys, KEYS, &input.n_keys) != KVP_OK)
        return NULL;
    if (input.n_tokens != mark->n_tokens)
        return "the tokens of a mark";
    if (kvp_digest_blocks(spill->digester, &input, &space->root, digests) != KVP_OK)
        return NULL;
    const kvp_digest *last = &digests[input.n_tokens / spill->part_tokens - 1];
    return memcmp(last, &mark->digest, sizeof *last) == 0 ? NULL : "the digest of a mark";
}

const char *spill_audit_marks(const kvp_spill *spill)
{
    const char *wrong = NULL;
    for (uint32_t b = 1; b < spill->cache.n_blocks && wrong == NULL; b++)
        wrong = audit_mark(spill, KVP_DEVICE, (int32_t)b);
    for (uint32_t b = 1; b < spill->cache.host_blocks && wrong == NULL; b++)
        wrong = audit_mark(spill, KVP_HOST, (int32_t)b);
    return wrong;
}
