/* spill_life: a spill is made and freed. */
#include "spill/spill_state.h"

#include "base/sized.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KNOWN = 1 << 16, ASKS_MAX = 4096, GETS_MAX = 1024, SCRATCH_MAX = 64, KEYS_MAX = 4096 };
enum { BLOCKS_MAX = 65535 };
enum { STATES = 4, STATES_MAX = 64, PAGE = 4096 };

#define MIB (UINT64_C(1) << 20)

void kvp_spill_config_init(kvp_spill_config *config)
{
    if (config == NULL) {
        return;
    }
    *config = (kvp_spill_config){
        .struct_size = sizeof(*config),
        .policy = KVP_SPILL_SECOND,
        .max_asks = 64,
        .max_keys = 16,
        .max_gets = 32,
        .max_puts = 64,
        .n_scratch = 4,
        .min_tokens = 256,
        .put_bytes = 256 * MIB,
        .get_bytes = 256 * MIB,
        .load_bytes_s = UINT64_C(1000000000),
        .compute_tokens_s = 10000,
        .max_wait_ns = UINT64_C(10000000000),
    };
}

/* --------------------------------------------------------------------------------------- checks */

struct why {
    char *text;
    size_t n_bytes;
};

__attribute__((format(printf, 2, 3))) static int wrong(const struct why *why, const char *format,
                                                       ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (why->text != NULL && why->n_bytes > 0) {
        (void)vsnprintf(why->text, why->n_bytes, format, arguments);
    }
    va_end(arguments);
    return 1;
}

static int is_outside(const struct why *why, const char *field, uint64_t value, uint64_t lowest,
                      uint64_t highest)
{
    return (value < lowest || value > highest) &&
           wrong(why, "%s is %llu, expected %llu to %llu", field, (unsigned long long)value,
                 (unsigned long long)lowest, (unsigned long long)highest);
}

static int is_zero(const kvp_digest *digest)
{
    static const kvp_digest zero;
    return memcmp(digest, &zero, sizeof(zero)) == 0;
}

/* A record that the engine gives and takes is one block to the store. */
static int is_wrong_move(const kvp_spill_config *config, const struct why *why)
{
    const int has_moves = config->give != NULL;
    if (has_moves != (config->take != NULL)) {
        return wrong(why, "%s is NULL, and the other is not", has_moves ? "take" : "give");
    }
    return is_outside(why, "record_blocks", config->record_blocks, (uint64_t)has_moves,
                      has_moves ? BLOCKS_MAX : 0) ||
           (has_moves && is_outside(why, "the store's record_blocks",
                                    kvp_store_record_blocks(config->store), 1, 1));
}

static int is_wrong(const kvp_spill_config *config, const struct why *why)
{
    if (config->cache == NULL || config->store == NULL) {
        return wrong(why, "%s is NULL", config->cache == NULL ? "cache" : "store");
    }
    if (is_zero(&config->fingerprint)) {
        return wrong(why, "fingerprint is zero: make it with kvp_fingerprint_make");
    }
    if (config->slice.n_layers == 0 || config->slice.n_heads == 0) {
        return wrong(why, "slice.%s is 0: a record is of layers and heads",
                     config->slice.n_layers == 0 ? "n_layers" : "n_heads");
    }
    return is_wrong_move(config, why) ||
           is_outside(why, "policy", config->policy, 0, KVP_SPILL_THROUGH) ||
           is_outside(why, "max_asks", config->max_asks, 1, ASKS_MAX) ||
           is_outside(why, "max_keys", config->max_keys, 0, KEYS_MAX) ||
           is_outside(why, "max_gets", config->max_gets, 1, GETS_MAX) ||
           is_outside(why, "max_puts", config->max_puts, 1, KVP_STORE_QUEUE_MAX) ||
           is_outside(why, "n_scratch", config->n_scratch, 1, SCRATCH_MAX) ||
           is_outside(why, "load_bytes_s", config->load_bytes_s, 1, UINT64_MAX) ||
           is_outside(why, "compute_tokens_s", config->compute_tokens_s, 1, UINT64_MAX) ||
           is_outside(why, "max_wait_ns", config->max_wait_ns, 1, UINT64_MAX / 2) ||
           is_outside(why, "max_states", config->max_states, 0, STATES_MAX);
}

/* Entries of a group that a hit at the end of a record needs, at most, of the record. */
static uint32_t needed_entries(const kvp_spill *spill, uint32_t group)
{
    const uint32_t S = kvpi_spill_block_tokens(spill, group);
    const uint32_t n = kvpi_spill_entries(spill, group);
    const uint32_t R = spill->cache.groups[group].recent_tokens;
    return R == 0 || kvpi_records_sinks(spill, group) > 0 ? n
                                                          : kvpi_spill_min(n, R / S + (R % S != 0));
}

/* A record has whole blocks of each group: all of them, or those that a hit at its end needs. */
static int has_wrong_blocks(const kvp_spill *spill, const struct why *why)
{
    for (uint32_t g = 0; g < spill->cache.n_groups; g++) {
        const uint32_t S = kvpi_spill_block_tokens(spill, g);
        const uint32_t of_store = kvp_store_group_blocks(spill->config.store, g);
        const uint32_t most = spill->config.give != NULL ? 1 : kvpi_spill_entries(spill, g);
        const uint32_t least = spill->config.give != NULL ? 1 : needed_entries(spill, g);
        if (spill->record_tokens % S != 0) {
            return wrong(why,
                         "a record has %u tokens, expected a multiple of groups[%u].block_tokens, "
                         "%u",
                         spill->record_tokens, g, S);
        }
        if (of_store < least || of_store > most) {
            return wrong(why,
                         "a record of the store has %u blocks of group %u, expected %u to %u: see "
                         "kvp_store_config.group_tokens",
                         of_store, g, least, most);
        }
    }
    return 0;
}

/* What the cache and the store must be. */
static int is_unfit(const kvp_spill *spill, const struct why *why)
{
    const kvp_spill_config *config = &spill->config;
    uint64_t largest = 0;
    for (uint32_t g = 0; g < spill->n_kinds; g++) {
        const int has_address =
            config->give != NULL ||
            (config->host[g].base != NULL && config->block_bytes[g] <= config->host[g].stride);
        if (!has_address || config->block_bytes[g] == 0) {
            return wrong(why,
                         "host[%u] or block_bytes[%u]: expected an address, and at most a "
                         "stride of bytes",
                         g, g);
        }
        largest = spill->record_bytes[g] > largest ? spill->record_bytes[g] : largest;
    }
    return has_wrong_blocks(spill, why) ||
           is_outside(why, "put_bytes", config->put_bytes, largest, UINT64_MAX / 2) ||
           is_outside(why, "get_bytes", config->get_bytes, 1, UINT64_MAX / 2) ||
           is_outside(why, "spare_blocks", config->spare_blocks, 0, spill->cache.host_blocks - 2);
}

/* --------------------------------------------------------------------------------------- memory */

/* Of each kind of record. */
static void measure_kinds(kvp_spill *spill)
{
    const kvp_spill_config *config = &spill->config;
    for (uint32_t g = 0; g < spill->n_kinds; g++) {
        const int is_state = kvpi_spill_is_state(spill, g);
        const int is_given = config->give != NULL;
        const uint32_t n_entries = kvpi_spill_entries(spill, g);
        spill->pieces[g] = is_given   ? n_entries
                           : is_state ? 1
                                      : kvp_store_group_blocks(config->store, g);
        const uint64_t bytes = config->block_bytes[g] * (is_given ? 1 : spill->pieces[g]);
        const size_t room = ((size_t)bytes + PAGE - 1) / PAGE * PAGE;
        spill->record_bytes[g] = bytes;
        spill->scratch_bytes = room > spill->scratch_bytes ? room : spill->scratch_bytes;
        spill->n_loads += !is_state && kvpi_records_sinks(spill, g) > 0 ? 2 : 1;
        if (spill->max_entries < spill->max_records * n_entries) {
            spill->max_entries = spill->max_records * n_entries;
        }
    }
}

/* What is found out of cache and store. */
static void measure(kvp_spill *spill)
{
    const kvp_spill_config *config = &spill->config;
    const uint64_t usable = spill->cache.host_blocks - 1;
    spill->n_parts = kvp_store_record_blocks(config->store);
    spill->record_tokens =
        spill->cache.block_tokens * (config->give != NULL ? config->record_blocks : spill->n_parts);
    spill->part_tokens = spill->record_tokens / spill->n_parts;
    if (config->give != NULL) {
        spill->config.n_scratch = config->max_gets;
    }
    if (config->max_tokens == 0 || config->max_tokens > spill->cache.max_seq_tokens) {
        spill->config.max_tokens = spill->cache.max_seq_tokens;
    }
    spill->max_records = config->max_tokens / spill->record_tokens;
    spill->n_kinds = spill->cache.n_groups + (spill->cache.state_slots > 0);
    spill->max_lookups = kvpi_spill_min(spill->max_records, KVP_STORE_KEYS_MAX) * spill->n_kinds;
    spill->max_lookups = kvpi_spill_min(spill->max_lookups, KVP_STORE_KEYS_MAX);
    if (config->max_states == 0) {
        spill->config.max_states = STATES;
    }
    measure_kinds(spill);
    spill->most_blocks = usable - kvpi_spill_min(config->spare_blocks, (uint32_t)usable);
    if (spill->most_blocks > spill->cache.lent_blocks) {
        spill->most_blocks = spill->cache.lent_blocks;
    }
    spill->known_mask = KNOWN - 1;
    spill->load_bytes_s = config->load_bytes_s;
    spill->compute_tokens_s = config->compute_tokens_s;
}

/* n x each elements; at least one byte. *failed is set when there is no memory. */
static void *take(int *failed, size_t n, size_t each, size_t element_bytes)
{
    if (each > 0 && element_bytes > SIZE_MAX / each) {
        *failed = 1;
        return NULL;
    }
    void *bytes = calloc(n > 0 ? n : 1, each > 0 ? each * element_bytes : 1);
    *failed |= bytes == NULL;
    return bytes;
}

/* n records, where a store can read and write them without a copy of its own. */
static uint8_t *take_records(int *failed, const kvp_spill *spill, size_t n)
{
    uint8_t *bytes =
        n > SIZE_MAX / spill->scratch_bytes ? NULL : aligned_alloc(PAGE, n * spill->scratch_bytes);
    *failed |= bytes == NULL;
    return bytes;
}

static uint32_t bit_words(const kvp_spill *spill)
{
    return (spill->max_lookups + 63) / 64;
}

static int take_asks(kvp_spill *spill)
{
    const size_t n = spill->config.max_asks;
    const size_t n_entries = (size_t)spill->max_entries * spill->n_kinds;
    int failed = 0;
    struct kvpi_spill_ask *first = take(&failed, n, 1, sizeof(*first));
    spill->asks = first;
    spill->queue = take(&failed, n, 1, sizeof(*spill->queue));
    if (failed) {
        return 0;
    }
    first->tokens = take(&failed, n, spill->config.max_tokens, sizeof(*first->tokens));
    first->digests = take(&failed, n, spill->max_records, sizeof(*first->digests));
    first->lookups = take(&failed, n, spill->max_lookups, sizeof(*first->lookups));
    first->bits = take(&failed, n, bit_words(spill), sizeof(*first->bits));
    first->keys = take(&failed, n, spill->config.max_keys, sizeof(*first->keys));
    first->key_bytes = take(&failed, n, spill->config.max_keys, KVP_KEY_MAX_BYTES);
    first->blocks = take(&failed, n, n_entries, sizeof(*first->blocks));
    first->whole = take(&failed, n, n_entries, 1);
    first->on = take(&failed, n, (n + 63) / 64, sizeof(*first->on));
    for (size_t i = 1; i < n && !failed; i++) {
        struct kvpi_spill_ask *ask = &first[i];
        ask->tokens = first->tokens + i * spill->config.max_tokens;
        ask->digests = first->digests + i * spill->max_records;
        ask->lookups = first->lookups + i * spill->max_lookups;
        ask->bits = first->bits + i * bit_words(spill);
        ask->keys = first->keys + i * spill->config.max_keys;
        ask->key_bytes = first->key_bytes + i * spill->config.max_keys * KVP_KEY_MAX_BYTES;
        ask->blocks = first->blocks + i * n_entries;
        ask->whole = first->whole + i * n_entries;
        ask->on = first->on + i * ((n + 63) / 64);
    }
    return !failed;
}

static int take_gets(kvp_spill *spill)
{
    const size_t n = spill->config.max_gets;
    const size_t n_keys = spill->config.max_keys;
    int failed = 0;
    spill->gets = take(&failed, n, 1, sizeof(*spill->gets));
    spill->scratch = take_records(&failed, spill, spill->config.n_scratch);
    spill->scratch_used = take(&failed, spill->config.n_scratch, 1, 1);
    if (failed) {
        return 0;
    }
    spill->gets->keys = take(&failed, n, n_keys, sizeof(kvp_key));
    for (size_t i = 0; i < n && !failed; i++) {
        spill->gets[i].ask = KVPI_SPILL_NONE;
        spill->gets[i].scratch = KVPI_SPILL_NONE;
        spill->gets[i].keys = spill->gets->keys + i * n_keys;
    }
    return !failed;
}

static int take_puts(kvp_spill *spill)
{
    const size_t n = spill->config.max_puts;
    const size_t n_keys = spill->config.max_keys;
    int failed = 0;
    struct kvpi_spill_put *first = take(&failed, n, 1, sizeof(*first));
    spill->puts = first;
    spill->put_queue = take(&failed, n, 1, sizeof(*spill->put_queue));
    spill->put_free = take(&failed, n, 1, sizeof(*spill->put_free));
    spill->put_marks = take(&failed, n, 1, sizeof(*spill->put_marks));
    if (failed) {
        return 0;
    }
    first->tokens = take(&failed, n, spill->record_tokens, sizeof(*first->tokens));
    first->keys = take(&failed, n, n_keys, sizeof(*first->keys));
    first->key_bytes = take(&failed, n, n_keys, KVP_KEY_MAX_BYTES);
    first->given = spill->config.give != NULL ? take_records(&failed, spill, n) : NULL;
    for (uint32_t i = 0; i < n && !failed; i++) {
        spill->put_free[i] = (uint32_t)n - 1 - i;
    }
    for (size_t i = 1; i < n && !failed; i++) {
        first[i].tokens = first->tokens + i * spill->record_tokens;
        first[i].keys = first->keys + i * n_keys;
        first[i].key_bytes = first->key_bytes + i * n_keys * KVP_KEY_MAX_BYTES;
        first[i].given = first->given != NULL ? first->given + i * spill->scratch_bytes : NULL;
    }
    return !failed;
}

static int take_others(kvp_spill *spill)
{
    const kvp_spill_config *config = &spill->config;
    int failed = 0;
    spill->spaces = take(&failed, spill->cache.max_namespaces, 1, sizeof(*spill->spaces));
    spill->uncached = take(&failed, spill->cache.n_uncached_tokens, 1, sizeof(*spill->uncached));
    spill->known = take(&failed, KNOWN, 1, sizeof(*spill->known));
    spill->marks = take(&failed, (size_t)spill->cache.n_blocks + spill->cache.host_blocks, 1,
                        sizeof(*spill->marks));
    const size_t n_drops = KVP_STORE_KEYS_MAX + (size_t)config->max_puts;
    spill->wrong.keys = take(&failed, n_drops, 1, sizeof(*spill->wrong.keys));
    spill->wrong.marks = take(&failed, n_drops, 1, sizeof(*spill->wrong.marks));
    spill->tokens = take(&failed, (size_t)config->max_tokens + 1, 1, sizeof(*spill->tokens));
    spill->digests = take(&failed, spill->max_records, spill->n_parts, sizeof(*spill->digests));
    spill->keys = take(&failed, config->max_keys, 1, sizeof(*spill->keys));
    spill->key_bytes = take(&failed, config->max_keys, 1, KVP_KEY_MAX_BYTES);
    spill->rows = take(&failed, spill->cache.n_groups, spill->max_entries, sizeof(*spill->rows));
    spill->flush.mask = 1;
    while (spill->flush.mask < 2 * (uint64_t)spill->cache.host_blocks) {
        spill->flush.mask = spill->flush.mask * 2 + 1;
    }
    spill->flush.blocks =
        take(&failed,
             spill->cache.n_blocks > spill->cache.host_blocks ? spill->cache.n_blocks
                                                              : spill->cache.host_blocks,
             1, sizeof(*spill->flush.blocks));
    spill->flush.index =
        take(&failed, (size_t)spill->flush.mask + 1, 1, sizeof(*spill->flush.index));
    spill->flush.tokens = take(&failed, config->max_tokens, 1, sizeof(*spill->flush.tokens));
    spill->flush.hashes = take(&failed, config->max_tokens / spill->cache.unit_tokens, 1,
                               sizeof(*spill->flush.hashes));
    spill->flush.keys = take(&failed, config->max_keys, 1, sizeof(*spill->flush.keys));
    spill->feasible = take(&failed, spill->max_records, 1, 1);
    spill->whole = take(&failed, spill->max_entries, 1, 1);
    return !failed;
}

static int compare_tokens(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left;
    const uint32_t b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static void sort_uncached(kvp_spill *spill)
{
    const uint32_t n = spill->cache.n_uncached_tokens;
    for (uint32_t i = 0; i < n; i++) {
        spill->uncached[i] = (uint32_t)spill->cache.uncached_tokens[i];
    }
    if (n > 0) {
        qsort(spill->uncached, n, sizeof(*spill->uncached), compare_tokens);
    }
}

/* ------------------------------------------------------------------------------ create, destroy */

static void free_asks(kvp_spill *spill)
{
    if (spill->asks != NULL) {
        free(spill->asks->tokens);
        free(spill->asks->digests);
        free(spill->asks->lookups);
        free(spill->asks->bits);
        free(spill->asks->keys);
        free(spill->asks->key_bytes);
        free(spill->asks->blocks);
        free(spill->asks->whole);
        free(spill->asks->on);
    }
    free(spill->asks);
    free(spill->queue);
}

static void free_spill(kvp_spill *spill)
{
    free_asks(spill);
    if (spill->gets != NULL) {
        free(spill->gets->keys);
    }
    free(spill->gets);
    free(spill->scratch);
    free(spill->scratch_used);
    if (spill->puts != NULL) {
        free(spill->puts->tokens);
        free(spill->puts->keys);
        free(spill->puts->key_bytes);
        free(spill->puts->given);
    }
    free(spill->puts);
    free(spill->put_queue);
    free(spill->put_free);
    free(spill->put_marks);
    free(spill->spaces);
    free(spill->uncached);
    free(spill->known);
    free(spill->marks);
    free(spill->wrong.keys);
    free(spill->wrong.marks);
    free(spill->tokens);
    free(spill->digests);
    free(spill->keys);
    free(spill->key_bytes);
    free(spill->rows);
    free(spill->flush.blocks);
    free(spill->flush.index);
    free(spill->flush.tokens);
    free(spill->flush.hashes);
    free(spill->flush.keys);
    free(spill->feasible);
    free(spill->whole);
    kvp_digester_destroy(spill->digester);
    free(spill);
}

/* The spill has its configuration and the cache's. */
static kvp_status fill(kvp_spill *spill, const struct why *why)
{
    measure(spill);
    if (is_unfit(spill, why)) {
        return KVP_E_ARG;
    }
    kvp_status status = kvp_digester_create(&spill->digester);
    if (status != KVP_OK) {
        (void)wrong(why, "%s", kvp_status_text(status));
        return status;
    }
    if (!take_asks(spill) || !take_gets(spill) || !take_puts(spill) || !take_others(spill)) {
        (void)wrong(why, "%s", kvp_status_text(KVP_E_NO_MEMORY));
        return KVP_E_NO_MEMORY;
    }
    sort_uncached(spill);
    return KVP_OK;
}

static kvp_status create(const kvp_spill_config *config, kvp_spill **out_spill,
                         const struct why *why)
{
    kvp_config cache;
    if (is_wrong(config, why)) {
        return KVP_E_ARG;
    }
    kvp_status status = kvp_cache_config_get(config->cache, &cache);
    if (status != KVP_OK) {
        return status;
    }
    if (cache.host_blocks == 0 || cache.max_loads == 0) {
        (void)wrong(why, "the cache has no %s",
                    cache.host_blocks == 0 ? "host_blocks" : "max_loads");
        return KVP_E_STATE;
    }
    if (cache.state_slots > 0 && cache.steps == KVP_STEPS_OVERLAPPED) {
        (void)wrong(why, "the cache has state_slots and overlapped steps: if a step fails, it is "
                         "not known which copies of kvp_spill_copies ran");
        return KVP_E_STATE;
    }
    if (config->give != NULL && (cache.state_slots > 0 || cache.steps == KVP_STEPS_OVERLAPPED)) {
        (void)wrong(why, "give is set, and the cache has %s: what is given must be there",
                    cache.state_slots > 0 ? "state_slots" : "overlapped steps");
        return KVP_E_STATE;
    }
    kvp_spill *spill = calloc(1, sizeof(*spill));
    if (spill == NULL) {
        (void)wrong(why, "%s", kvp_status_text(KVP_E_NO_MEMORY));
        return KVP_E_NO_MEMORY;
    }
    spill->config = *config;
    spill->cache = cache;
    status = fill(spill, why);
    if (status != KVP_OK) {
        free_spill(spill);
        return status;
    }
    *out_spill = spill;
    return KVP_OK;
}

kvp_status kvp_spill_create(const kvp_spill_config *config, kvp_spill **out_spill, char *out_why,
                            size_t why_bytes)
{
    const struct why why = {out_why, why_bytes};
    config = kvpi_sized(config, sizeof(*config));
    if (config == NULL || out_spill == NULL) {
        return KVP_E_ARG;
    }
    (void)wrong(&why, "%s", "");
    return create(config, out_spill, &why);
}

void kvp_spill_destroy(kvp_spill *spill)
{
    if (spill == NULL) {
        return;
    }
    for (uint32_t i = 0; i < spill->n_queue; i++) {
        const struct kvpi_spill_ask *ask = &spill->asks[spill->queue[i]];
        for (uint32_t k = 0; ask->state == KVPI_ASK_LOADING && k < ask->n_loads; k++) {
            (void)kvp_load_cancel(spill->config.cache, ask->loads[k].number);
        }
    }
    for (uint32_t i = 0; i < spill->n_puts; i++) {
        struct kvpi_spill_put *put = &spill->puts[spill->put_queue[i]];
        if (put->state == KVPI_PUT_WRITING) {
            (void)kvp_cache_give_back(spill->config.cache, put->blocks, put->n_blocks);
        }
        kvpi_slots_end(spill, put);
    }
    free_spill(spill);
}
