/* records: which record has which entries, what it is known by, and which ones the store is
 * thought to have. */
#include "spill/spill_state.h"

#include <string.h>

int kvpi_records_is_full(const kvp_spill *spill, uint32_t group)
{
    return spill->cache.groups[group].recent_tokens == 0;
}

uint32_t kvpi_records_sinks(const kvp_spill *spill, uint32_t group)
{
    const kvp_group *window = &spill->cache.groups[group];
    return window->sink_tokens == KVP_CHUNKED ? 0 : window->sink_tokens;
}

/* The first position behind the sinks that a query sees. */
static uint32_t first_seen(const kvp_group *window, uint32_t query)
{
    if (query < window->recent_tokens) {
        return 0;
    }
    return window->sink_tokens == KVP_CHUNKED ? query - query % window->recent_tokens
                                              : query + 1 - window->recent_tokens;
}

struct kvpi_kept kvpi_records_kept(const kvp_spill *spill, uint32_t group, uint32_t n_tokens,
                                   uint32_t prompt_tokens)
{
    const uint32_t S = kvpi_spill_block_tokens(spill, group);
    const kvp_group *window = &spill->cache.groups[group];
    struct kvpi_kept kept = {.n = n_tokens / S};
    if (window->recent_tokens == 0 || kept.n == 0) {
        return kept;
    }
    const uint32_t query = kvpi_spill_min(n_tokens, prompt_tokens - 1);
    const uint32_t sink_tokens = kvpi_records_sinks(spill, group);
    const uint32_t sinks = sink_tokens / S + (sink_tokens % S != 0);
    kept.recent = kvpi_spill_min(first_seen(window, query) / S, kept.n);
    kept.sinks = kvpi_spill_min(sinks, kept.recent);
    return kept;
}

uint32_t kvpi_records_keys(const kvp_key *keys, uint32_t n_keys, uint32_t begin, uint32_t end,
                           kvp_key *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_keys && keys[i].begin < end; i++) {
        if (keys[i].end > begin) {
            out[n++] = keys[i];
        }
    }
    return n;
}

void kvpi_records_keep_keys(kvp_key *keys, uint32_t n_keys, uint8_t *bytes)
{
    for (uint32_t i = 0; i < n_keys; i++, bytes += KVP_KEY_MAX_BYTES) {
        if (keys[i].n_bytes > 0) {
            memcpy(bytes, keys[i].bytes, keys[i].n_bytes);
        }
        keys[i].bytes = bytes;
    }
}

kvp_status kvpi_records_key(kvp_spill *spill, const kvp_digest *digest, uint32_t group,
                            kvp_digest *out_key)
{
    return kvp_record_key(spill->digester, digest, group, &spill->config.slice, out_key);
}

void *kvpi_records_address(const kvp_spill *spill, uint32_t group, int32_t block)
{
    const kvp_spill_host *host = &spill->config.host[group];
    return (uint8_t *)host->base + (size_t)block * host->stride;
}

kvp_identity kvpi_records_identity(const kvp_spill *spill, const struct kvpi_spill_space *space,
                                   uint32_t group, uint32_t record)
{
    return (kvp_identity){.kind = kvpi_spill_is_state(spill, group) ? KVP_IDENTITY_STATE
                                                                    : KVP_IDENTITY_TOKENS,
                          .group = group,
                          .slice = spill->config.slice,
                          .fingerprint = spill->config.fingerprint,
                          .space = space->number,
                          .position = record * spill->record_tokens,
                          .block_tokens = spill->part_tokens,
                          .n_blocks = spill->n_parts};
}

uint32_t kvpi_records_before(const kvp_spill *spill, uint32_t group, uint32_t record)
{
    uint32_t g = 0;
    if (!kvpi_spill_is_state(spill, group)) {
        return kvpi_records_is_full(spill, group) && record > 0 ? group : KVPI_SPILL_NONE;
    }
    while (g < spill->cache.n_groups && !kvpi_records_is_full(spill, g)) {
        g++;
    }
    return g < spill->cache.n_groups ? g : KVPI_SPILL_NONE;
}

kvp_status kvpi_records_digests(kvp_spill *spill, const kvp_digest *root, const kvp_hash_input *of)
{
    return kvp_digest_blocks(spill->digester, of, root, spill->digests);
}

/* ---------------------------------------------------------------------------------------- marks */

static struct kvpi_spill_mark *mark_at(const kvp_spill *spill, uint32_t tier, int32_t block)
{
    return &spill->marks[(tier == KVP_DEVICE ? 0 : spill->cache.n_blocks) + (uint32_t)block];
}

/* The last block of a record, sealed to its end, and its generation; 0: there is none. */
static int32_t last_block(const kvp_spill *spill, const struct kvpi_spill_prefix *prefix,
                          uint32_t group, uint32_t record, uint64_t *out_generation)
{
    const int32_t block = spill->rows[(size_t)group * spill->max_entries +
                                      (size_t)(record + 1) * kvpi_spill_entries(spill, group) - 1];
    kvp_block_info info;
    if (block == KVP_NULL_BLOCK ||
        kvp_block_info_get(spill->config.cache, group, prefix->tier, block, &info) != KVP_OK ||
        info.group != group || info.sealed_tokens != kvpi_spill_block_tokens(spill, group)) {
        return KVP_NULL_BLOCK;
    }
    *out_generation = info.generation;
    return block;
}

int kvpi_records_has_end(const kvp_spill *spill, const struct kvpi_spill_prefix *prefix,
                         uint32_t record)
{
    uint64_t generation;
    for (uint32_t g = 0; g < spill->cache.n_groups; g++) {
        if (last_block(spill, prefix, g, record, &generation) != KVP_NULL_BLOCK) {
            return 1;
        }
    }
    return 0;
}

struct kvpi_spill_mark *kvpi_records_recall(const kvp_spill *spill,
                                            const struct kvpi_spill_prefix *prefix, uint32_t record)
{
    for (uint32_t g = 0; g < spill->cache.n_groups && !prefix->is_unproven; g++) {
        uint64_t generation = 0;
        const int32_t block = last_block(spill, prefix, g, record, &generation);
        struct kvpi_spill_mark *mark = mark_at(spill, prefix->tier, block);
        if (block != KVP_NULL_BLOCK && mark->space == prefix->space->serial &&
            mark->generation == generation &&
            mark->n_tokens == (record + 1) * spill->record_tokens) {
            return mark;
        }
    }
    return NULL;
}

void kvpi_records_mark(kvp_spill *spill, const struct kvpi_spill_prefix *prefix, uint32_t record,
                       const kvp_digest *digest, uint32_t next)
{
    for (uint32_t g = 0; g < spill->cache.n_groups && !prefix->is_unproven; g++) {
        uint64_t generation = 0;
        const int32_t block = last_block(spill, prefix, g, record, &generation);
        if (block != KVP_NULL_BLOCK) {
            *mark_at(spill, prefix->tier, block) =
                (struct kvpi_spill_mark){.generation = generation,
                                         .space = prefix->space->serial,
                                         .digest = *digest,
                                         .n_tokens = (record + 1) * spill->record_tokens,
                                         .next = next};
        }
    }
}

/* ---------------------------------------------------------------------------------------- known
 *
 * A table of sets of WAYS places, one set for each hash of a key. In a full set one is replaced. A
 * wrong answer costs a record that is not written, or a put that ends with KVP_STORE_KNOWN and has
 * mirrored blocks for nothing; never wrong KV. */

enum { WAYS = 8 };

/* A key is a SHA-256: its bytes are as good as a hash. Zero is an empty place. */
uint64_t kvpi_records_mark_of(const kvp_digest *key)
{
    uint64_t mark;
    memcpy(&mark, key->bytes, sizeof(mark));
    return mark | 1;
}

static uint64_t *set_of(const kvp_spill *spill, const kvp_digest *key)
{
    uint32_t place;
    memcpy(&place, key->bytes + 8, sizeof(place));
    return &spill->known[(place & spill->known_mask) / WAYS * WAYS];
}

/* The place in a set that has a mark; WAYS: none has. */
static uint32_t find_mark(const uint64_t *set, uint64_t mark)
{
    uint32_t i = 0;
    while (i < WAYS && set[i] != mark) {
        i++;
    }
    return i;
}

static void note(const kvp_spill *spill, const kvp_digest *key, int is_there)
{
    if (spill->config.note != NULL) {
        spill->config.note(spill->config.note_context, key, is_there);
    }
}

void kvpi_records_know(kvp_spill *spill, const kvp_digest *key)
{
    note(spill, key, 1);
    const uint64_t mark = kvpi_records_mark_of(key);
    uint64_t *set = set_of(spill, key);
    if (find_mark(set, mark) == WAYS) {
        const uint32_t empty = find_mark(set, 0);
        set[empty < WAYS ? empty : key->bytes[12] % WAYS] = mark;
    }
}

void kvpi_records_forget(kvp_spill *spill, const kvp_digest *key)
{
    note(spill, key, 0);
    uint64_t *set = set_of(spill, key);
    const uint32_t place = find_mark(set, kvpi_records_mark_of(key));
    if (place < WAYS) {
        set[place] = 0;
    }
}

int kvpi_records_is_known(const kvp_spill *spill, const kvp_digest *key)
{
    return find_mark(set_of(spill, key), kvpi_records_mark_of(key)) < WAYS;
}

void kvpi_records_tick(kvp_spill *spill)
{
    kvp_store_stats stats;
    if (spill->config.give == NULL || kvp_store_stats_get(spill->config.store, &stats) != KVP_OK) {
        return;
    }
    const uint64_t n_gone = stats.evicted + stats.dropped + stats.expired;
    if (n_gone - spill->n_gone > stats.records / 2) {
        memset(spill->known, 0, ((size_t)spill->known_mask + 1) * sizeof(*spill->known));
        spill->n_gone = n_gone;
    }
}

uint32_t kvpi_records_lookups(const kvp_spill *spill, const struct kvpi_spill_ask *ask,
                              uint32_t group, uint32_t *out_begin)
{
    uint32_t end = 0;
    for (uint32_t g = 0; g <= group && g < spill->n_kinds; g++) {
        *out_begin = end;
        end += ask->n_records > ask->first[g] ? ask->n_records - ask->first[g] : 0;
    }
    return end;
}

void kvpi_records_forget_from(kvp_spill *spill, const struct kvpi_spill_ask *ask, uint32_t group,
                              uint32_t record)
{
    uint32_t begin = 0;
    const uint32_t end = kvpi_records_lookups(spill, ask, group, &begin);
    const uint32_t first = ask->first[group];
    for (uint32_t i = begin + (record > first ? record - first : 0); i < end; i++) {
        kvpi_records_forget(spill, &ask->lookups[i]);
    }
    if (kvpi_spill_has_states(spill) && !kvpi_spill_is_state(spill, group)) {
        kvpi_records_forget_from(spill, ask, spill->cache.n_groups, record);
    }
}
