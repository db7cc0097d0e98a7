/* Any bytes in the arena of a cache that is looked at from outside. The first byte says of which
 * cache, and whether it seems to move; then come edits, in order:
 *
 *   place in three bytes, modulo the arena's words; four bytes that stand there from now on
 *
 * Nothing may crash, nothing outside may be read, and every look ends, having used no more memory
 * than the arena has and read it once, and its head as often as a busy owner makes it. */
#include <stdlib.h>
#include <string.h>

#include <kvpager/inspect.h>
#include <kvpager/all.h>

#include "core/cache/state.h"

#include "meter.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_KINDS = 4, EDIT_BYTES = 7, MAX_TOKENS = 48, MAX_LOOKS = 1001, MAX_PARTS = 100 };

typedef struct arena {
    uint8_t *good;
    uint8_t *bytes;
    size_t n;
    uint64_t n_reads, read_bytes; /* by one look: what it costs */
} arena;

static kvp_config config_of(uint32_t kind)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = 4;
    config.unit_tokens = kind == 1 ? 2 : 4;
    config.n_blocks = 25;
    config.host_blocks = kind == 2 ? 9 : 0;
    config.max_seqs = 4;
    config.max_seq_tokens = MAX_TOKENS;
    config.max_namespaces = 2;
    config.max_unit_keys = 1;
    config.commit_policy = kind == 1 ? KVP_KEEP : KVP_ADOPT;
    config.steps = kind == 3 ? KVP_STEPS_OVERLAPPED : KVP_STEPS_ORDERED;
    config.n_groups = kind == 2 ? 2 : 1;
    config.groups[0].recent_tokens = kind == 3 ? 9 : 0;
    config.groups[1].recent_tokens = kind == 2 ? 6 : 0;
    config.quotas = kind == 2 || kind == 3;
    config.max_loads = kind == 2 ? 2 : 0;
    config.policy = kind == 0 ? KVP_POLICY_LEARNED : KVP_POLICY_LRU;
    return config;
}

/* Sequences that share, fork and wait to be copied; some are closed. */
static void work(kvp_cache *cache)
{
    int32_t tokens[MAX_TOKENS];
    kvp_ns ns;
    kvp_seq seqs[3], child;
    const kvp_key key = {1, 3, 6, 2, "ab"};
    require(kvp_ns_open(cache, "arena", 5, &ns) == KVP_OK);
    for (int32_t i = 0; i < 9; i++) {
        const uint32_t n = 13 + 3 * ((uint32_t)i % 3);
        for (int32_t t = 0; t < MAX_TOKENS; t++)
            tokens[t] = t + (t > 8 ? i % 4 : 0);
        const kvp_prompt prompt = {.struct_size = sizeof prompt,
                                   .tokens = tokens,
                                   .n_tokens = n,
                                   .keys = &key,
                                   .n_keys = i % 5 == 4};
        if (i >= 3)
            require(kvp_seq_close(cache, seqs[i % 3], NULL) == KVP_OK);
        require(kvp_seq_open(cache, ns, &prompt, &seqs[i % 3], NULL) == KVP_OK);
        require(kvp_seq_commit(cache, seqs[i % 3], n) == KVP_OK);
    }
    require(kvp_seq_fork(cache, seqs[0], KVP_END, 7, &child) == KVP_OK);
    (void)kvp_seq_extend(cache, child, tokens, 1, 0); /* a copy, where there is room for it */
}

static arena *arena_of(uint32_t kind)
{
    static arena arenas[N_KINDS];
    arena *a = &arenas[kind];
    if (a->good == NULL) {
        const kvp_config config = config_of(kind);
        kvp_cache *cache;
        require(kvp_cache_bytes(&config, &a->n) == KVP_OK);
        a->good = aligned_alloc(64, a->n);
        a->bytes = aligned_alloc(64, a->n);
        require(a->good != NULL && a->bytes != NULL);
        memset(a->good, 0, a->n);
        require(kvp_cache_create(&config, a->good, a->n, &cache) == KVP_OK);
        work(cache);
    }
    memcpy(a->bytes, a->good, a->n);
    return a;
}

static int read_bytes(void *context, uint64_t offset, void *out, size_t n)
{
    arena *a = context;
    require(n <= a->n && offset <= a->n - n);
    a->n_reads++;
    a->read_bytes += n;
    memcpy(out, a->bytes + offset, n);
    return 0;
}

static void note(void *context, const kvp_snapshot_item *item)
{
    uint64_t *n = context;
    (*n)++;
    if (item->kind == KVP_SNAPSHOT_NAMESPACE)
        require(item->name_bytes <= KVP_NAME_MAX_BYTES);
    else
        require(item->n_units > 0 && item->block.tier < 2 && item->retention < 8);
}

static void note_seq(void *context, const kvp_arena_seq *seq)
{
    uint64_t *n = context;
    (*n)++;
    require(seq->tier < 2);
}

static void note_quota(void *context, uint32_t ns, const kvp_ns_info *info)
{
    uint64_t *n = context;
    *n += info->openers;
    require(ns < 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    arena *a = arena_of(data[0] % N_KINDS);
    for (size_t at = 1; at + EDIT_BYTES <= size; at += EDIT_BYTES) {
        const size_t place = (data[at] | (size_t)data[at + 1] << 8 | (size_t)data[at + 2] << 16);
        memcpy(a->bytes + place % (a->n / 4) * 4, data + at + 3, 4);
    }
    a->bytes[offsetof(kvp_cache, calls)] ^= data[0] >> 7; /* moves: no audit goes before */
    uint64_t n_told = 0;
    const kvp_arena_source source = {a, a->n, read_bytes};
    const kvp_arena_options options = {sizeof options, &n_told, note, note_seq, 0, note_quota};
    kvp_arena_report report;
    a->n_reads = a->read_bytes = 0;
    meter_begin();
    const kvp_status status = kvp_arena_inspect(&source, &options, &report);
    const meter used = meter_end();
    require(used.peak <= a->n && used.n_asked <= 1);
    require(a->n_reads <= MAX_LOOKS * 3 + MAX_PARTS && n_told <= MAX_PARTS);
    require(a->read_bytes <= MAX_LOOKS * (sizeof(kvp_cache) + 16) + a->n);
    require(status == KVP_OK || status == KVP_E_FORMAT || status == KVP_E_VERSION);
    require(status == KVP_OK || n_told == 0);
    if (status == KVP_OK && report.state == KVP_ARENA_DAMAGED)
        require(report.violation.detail != NULL);
    return 0;
}
