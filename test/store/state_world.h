/* An engine with recurrent state, its memory, and a connector that keeps states and KV in a store.
 * Each token's KV and each slot depend on every token before. What a hit brings is compared with
 * that, and a step checks the slot that it reads. After cmocka.h. */
#ifndef KVP_TEST_STATE_WORLD_H
#define KVP_TEST_STATE_WORLD_H

#include <kvpager/lend.h>
#include <kvpager/states.h>

#include "liar.h"
#include "sim_disk.h"
#include "store/file/store_file.h"
#include "store_inputs.h"

enum {
    GROUPS = 2, /* of KV; the next is the state group */
    DEVICE_BLOCKS = 33,
    HOST_BLOCKS = 61,
    SLOTS = 7,
    HOST_SLOTS = 5,
    STATE_BYTES = 100,
    TOKEN_BYTES = BLOCK_BYTES / TOKENS,
    RECORD = BLOCKS * TOKENS, /* tokens */
    LONGEST = 6 * RECORD,
    STORED_MAX = 8192
};

#define ok(call) assert_int_equal(call, KVP_OK)

/* ------------------------------------------------------------------------------------ the truth */

/* A number that stands for the first n tokens. */
static uint64_t word_of(const int32_t *tokens, uint32_t n, uint64_t salt)
{
    uint64_t word = salt + 1;
    for (uint32_t i = 0; i < n; i++)
        word = (word ^ (uint64_t)tokens[i]) * UINT64_C(0x9E3779B97F4A7C15) + (word >> 29);
    return word;
}

static void fill(uint8_t *out, size_t n_bytes, uint64_t word)
{
    for (size_t i = 0; i < n_bytes; i++)
        out[i] = (uint8_t)(word >> i % 8 * 8) ^ (uint8_t)i;
}

static void right_kv(const int32_t *tokens, uint32_t position, uint32_t group, uint8_t *out)
{
    fill(out, TOKEN_BYTES, word_of(tokens, position + 1, group));
}

static void right_state(const int32_t *tokens, uint32_t n, uint8_t *out)
{
    fill(out, STATE_BYTES, word_of(tokens, n, 99));
}

/* ----------------------------------------------------------------------------------- the engine */

struct engine {
    kvp_cache *cache;
    kvp_ns ns;
    uint8_t kv[2][HOST_BLOCKS][BLOCK_BYTES]; /* by tier */
    uint8_t states[2][SLOTS][STATE_BYTES];
};

static void start_engine(struct engine *e)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = TOKENS;
    config.unit_tokens = TOKENS / 2;
    config.n_blocks = DEVICE_BLOCKS;
    config.max_seqs = 8;
    config.max_seq_tokens = 256;
    config.max_namespaces = 2;
    config.n_groups = GROUPS;
    config.host_blocks = HOST_BLOCKS;
    config.state_slots = SLOTS;
    config.host_state_slots = HOST_SLOTS;
    config.max_loads = 4;
    memset(e, 0xEE, sizeof *e);
    ok(kvp_cache_create(&config, NULL, 0, &e->cache));
    ok(kvp_ns_open(e->cache, "model", 5, &e->ns));
}

static void stop_engine(struct engine *e)
{
    kvp_violation violation;
    ok(kvp_cache_check(e->cache, 3, &violation));
    kvp_cache_destroy(e->cache);
}

static void run_plan(struct engine *e)
{
    kvp_copy copies[256];
    uint32_t n;
    kvp_stats stats;
    ok(kvp_plan_take(e->cache, copies, 256, &n));
    for (uint32_t i = 0; i < n; i++) {
        const kvp_copy *c = &copies[i];
        if (c->group == GROUPS)
            memcpy(e->states[c->dst_tier][c->dst_block], e->states[c->src_tier][c->src_block],
                   STATE_BYTES);
        else
            memcpy(e->kv[c->dst_tier][c->dst_block], e->kv[c->src_tier][c->src_block],
                   (size_t)c->n_tokens * TOKEN_BYTES);
    }
    ok(kvp_cache_stats_get(e->cache, &stats));
    ok(kvp_plan_done(e->cache, stats.plans));
}

static uint8_t *kv_at(struct engine *e, kvp_seq seq, uint32_t group, uint32_t position)
{
    const int32_t *row;
    uint32_t n;
    ok(kvp_seq_row(e->cache, seq, group, &row, &n));
    return e->kv[KVP_DEVICE][row[position / TOKENS]] + (size_t)position % TOKENS * TOKEN_BYTES;
}

static uint32_t read_slot(const struct engine *e, kvp_seq seq)
{
    kvp_state_info info;
    ok(kvp_seq_state_get(e->cache, seq, &info));
    return info.read_slot;
}

static void check_read_state(const struct engine *e, kvp_seq seq, const int32_t *tokens, uint32_t n)
{
    uint8_t right[STATE_BYTES];
    right_state(tokens, n, right);
    if (n > 0)
        assert_memory_equal(e->states[KVP_DEVICE][read_slot(e, seq)], right, sizeof right);
}

static void check_hit(struct engine *e, kvp_seq seq, const int32_t *tokens, uint32_t n)
{
    uint8_t right[TOKEN_BYTES];
    for (uint32_t p = 0; p < n * GROUPS; p++) {
        right_kv(tokens, p / GROUPS, p % GROUPS, right);
        assert_memory_equal(kv_at(e, seq, p % GROUPS, p / GROUPS), right, sizeof right);
    }
    check_read_state(e, seq, tokens, n);
}

static void run_step(struct engine *e, kvp_seq seq, const int32_t *tokens, uint32_t begin,
                     uint32_t end)
{
    int32_t write;
    check_read_state(e, seq, tokens, begin);
    ok(kvp_meta_states(e->cache, &seq, 1, NULL, &write));
    for (uint32_t p = begin * GROUPS; p < end * GROUPS; p++)
        right_kv(tokens, p / GROUPS, p % GROUPS, kv_at(e, seq, p % GROUPS, p / GROUPS));
    right_state(tokens, end, e->states[KVP_DEVICE][write]);
    ok(kvp_seq_commit(e->cache, seq, end));
}

/* Open a prompt and compute the rest, with a checkpoint after each `every` tokens. */
static kvp_seq serve(struct engine *e, const int32_t *tokens, uint32_t n, uint32_t every,
                     kvp_open_info *info)
{
    const kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n};
    kvp_seq seq;
    ok(kvp_seq_open(e->cache, e->ns, &prompt, &seq, info));
    run_plan(e);
    check_hit(e, seq, tokens, info->hit_tokens);
    for (uint32_t begin = info->cached_tokens; begin < n;) {
        const uint32_t stop = begin / every * every + every;
        const uint32_t end = stop < n ? stop : n;
        run_step(e, seq, tokens, begin, end);
        if (end < n)
            ok(kvp_seq_checkpoint(e->cache, seq, NULL));
        run_plan(e);
        begin = end;
    }
    return seq;
}

/* Other prompts take all blocks and slots that nobody holds. */
static void press(struct engine *e)
{
    static int32_t next = 1000000;
    for (int i = 0; i < 3; i++) {
        int32_t tokens[LONGEST];
        kvp_open_info info;
        for (uint32_t k = 0; k < LONGEST; k++)
            tokens[k] = next++;
        ok(kvp_seq_close(e->cache, serve(e, tokens, 4 * TOKENS, TOKENS, &info), NULL));
    }
}

/* -------------------------------------------------------------------------------- the connector */

/* What a prompt is known by. */
struct chain {
    const int32_t *tokens;
    kvp_digest digests[LONGEST / TOKENS];
};

static kvp_digester *digester;

static void make_chain(struct chain *chain, const int32_t *tokens, uint32_t n)
{
    const kvp_digest print = input_digest(1);
    const kvp_hash_input input = {.unit_tokens = TOKENS, .n_tokens = n, .tokens = tokens};
    kvp_digest root;
    chain->tokens = tokens;
    ok(kvp_digest_root(digester, &print, "model", 5, 1, &root));
    ok(kvp_digest_blocks(digester, &input, &root, chain->digests));
}

/* The record of a group that ends after `end` tokens. States stand alone, or go with KV. */
static kvp_identity identity_of(const struct chain *chain, uint32_t group, uint32_t end)
{
    const int is_state = group == GROUPS;
    kvp_identity identity = {.kind = is_state ? KVP_IDENTITY_STATE : KVP_IDENTITY_TOKENS,
                             .group = group,
                             .slice = {.n_layers = 1, .n_heads = 1},
                             .fingerprint = input_digest(1),
                             .digest = chain->digests[end / TOKENS - 1],
                             .position = end - RECORD,
                             .block_tokens = TOKENS,
                             .n_blocks = BLOCKS,
                             .tokens = chain->tokens + end - RECORD};
    const uint32_t before = is_state ? end : end - RECORD;
    if (before > 0 && (!is_state || end % (2 * RECORD) == 0)) {
        kvp_identity parent = identity;
        parent.group = is_state ? 0 : group;
        parent.digest = chain->digests[before / TOKENS - 1];
        identity.parent = input_key(&parent);
    }
    return identity;
}

/* Tokens up to the end of each record that was put, by group; and of those that the store said it
 * wrote. What failed may be there all the same. */
enum { TRIED, WRITTEN, KNOWLEDGE };

static struct {
    uint64_t words[STORED_MAX];
    uint32_t n;
} stored[KNOWLEDGE][GROUPS + 1];

static int is_stored(int how, const int32_t *tokens, uint32_t group, uint32_t end)
{
    const uint64_t word = word_of(tokens, end, group);
    for (uint32_t i = 0; i < stored[how][group].n; i++)
        if (stored[how][group].words[i] == word)
            return 1;
    return 0;
}

static void note_stored(int how, const int32_t *tokens, uint32_t group, uint32_t end)
{
    if (is_stored(how, tokens, group, end))
        return;
    assert_true(stored[how][group].n < STORED_MAX);
    stored[how][group].words[stored[how][group].n++] = word_of(tokens, end, group);
}

static void put(kvp_store *store, const struct chain *chain, uint32_t group, uint32_t end,
                void *const *pieces, struct engine *pressed)
{
    const kvp_identity identity = identity_of(chain, group, end);
    ok(kvp_store_put(store, &identity, pieces, 0));
    if (pressed)
        press(pressed);
    const uint32_t result = input_result(store);
    note_stored(TRIED, chain->tokens, group, end);
    if (result == KVP_STORE_OK || result == KVP_STORE_KNOWN)
        note_stored(WRITTEN, chain->tokens, group, end);
}

/* A fork holds the checkpoint until the store has read it. 0: there is none. */
static int put_state(struct engine *e, kvp_store *store, const struct chain *chain, kvp_seq seq,
                     uint32_t end, int pressed)
{
    kvp_seq fork;
    const kvp_status status = kvp_seq_fork(e->cache, seq, end, 0, &fork);
    if (status == KVP_E_DROPPED)
        return 0;
    ok(status);
    void *slot = e->states[KVP_DEVICE][read_slot(e, fork)];
    put(store, chain, GROUPS, end, &slot, pressed ? e : NULL);
    ok(kvp_seq_close(e->cache, fork, NULL));
    return 1;
}

/* Write what a sequence has; gives the number of states. */
static uint32_t offer(struct engine *e, kvp_store *store, kvp_seq seq, const int32_t *tokens,
                      uint32_t n, int pressed)
{
    struct chain chain;
    uint32_t n_states = 0;
    make_chain(&chain, tokens, n);
    for (uint32_t end = RECORD; end <= n; end += RECORD)
        for (uint32_t g = 0; g < GROUPS; g++) {
            void *pieces[BLOCKS];
            for (uint32_t i = 0; i < BLOCKS; i++)
                pieces[i] = kv_at(e, seq, g, end - RECORD + i * TOKENS);
            put(store, &chain, g, end, pieces, NULL);
        }
    for (uint32_t end = RECORD; end < n; end += TOKENS)
        n_states += put_state(e, store, &chain, seq, end, pressed) ? 1 : 0;
    return n_states;
}

/* Load what ends with the state after `end` tokens, or the KV of a group. 1: all of it. */
static int load(struct engine *e, kvp_store *store, const struct chain *chain, uint32_t group,
                uint32_t end)
{
    int32_t blocks[LONGEST / TOKENS];
    const int is_state = group == GROUPS;
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = chain->tokens, .n_tokens = end};
    kvp_load load = {.struct_size = sizeof load,
                     .group = group,
                     .entries = {is_state ? end / TOKENS - 1 : 0, end / TOKENS},
                     .blocks = blocks};
    uint8_t whole[LONGEST / TOKENS];
    uint32_t n_whole = 0;
    kvp_loaded loaded;
    ok(kvp_load_begin(e->cache, e->ns, &prompt, &load));
    if (load.number == 0)
        return 1;
    run_plan(e);
    for (uint32_t at = is_state ? end : RECORD; at <= end; at += RECORD) {
        uint8_t scratch[BLOCKS][BLOCK_BYTES];
        void *pieces[BLOCKS];
        uint32_t n_new = 0;
        for (uint32_t i = 0; i < (is_state ? 1 : BLOCKS); i++) {
            const int32_t block = blocks[is_state ? 0 : (at - RECORD) / TOKENS + i];
            pieces[i] = block == 0 ? scratch[i]
                        : is_state ? e->states[KVP_HOST][block]
                                   : e->kv[KVP_HOST][block];
            n_new += block != 0;
        }
        const kvp_identity identity = identity_of(chain, group, at);
        int is_whole = 0;
        if (n_new > 0) {
            ok(kvp_store_get(store, &identity, pieces, 0));
            is_whole = input_result(store) == KVP_STORE_OK;
        }
        for (uint32_t i = 0; i < n_new; i++)
            whole[n_whole++] = (uint8_t)is_whole;
    }
    assert_int_equal(n_whole, load.n_blocks);
    ok(kvp_load_done(e->cache, load.number, whole, n_whole, &loaded));
    run_plan(e);
    return loaded.failed == 0;
}

/* Ask the store for the longest prefix that ends with a state, below n tokens. */
static uint32_t look(kvp_store *store, const struct chain *chain, uint32_t n)
{
    kvp_digest keys[(GROUPS + 1) * LONGEST / RECORD];
    uint64_t bits = 0;
    uint32_t n_keys = 0, longest = 0;
    for (uint32_t end = RECORD; end < n; end += RECORD)
        for (uint32_t g = 0; g <= GROUPS; g++) {
            const kvp_identity identity = identity_of(chain, g, end);
            keys[n_keys++] = input_key(&identity);
        }
    if (n_keys == 0)
        return 0;
    ok(kvp_store_have(store, keys, n_keys, &bits, 0));
    if (input_result(store) != KVP_STORE_OK)
        return 0;
    for (uint32_t end = RECORD; end < n && (bits & 3) == 3; end += RECORD, bits >>= GROUPS + 1)
        longest = bits >> GROUPS & 1 ? end : longest;
    return longest;
}

/* Bring what the store has of a prompt, before it is opened. Gives the tokens that can be hit. */
static uint32_t recall(struct engine *e, kvp_store *store, const int32_t *tokens, uint32_t n)
{
    struct chain chain;
    make_chain(&chain, tokens, n);
    const uint32_t end = look(store, &chain, n);
    int is_whole = end > 0;
    for (uint32_t g = 0; g <= GROUPS && is_whole; g++)
        is_whole = load(e, store, &chain, g, end);
    return is_whole ? end : 0;
}

/* What recall brings if all of this is there. */
static uint32_t expected_of(int how, const int32_t *tokens, uint32_t n)
{
    uint32_t longest = 0;
    for (uint32_t end = RECORD; end < n; end += RECORD) {
        for (uint32_t g = 0; g < GROUPS; g++)
            if (!is_stored(how, tokens, g, end))
                return longest;
        longest = is_stored(how, tokens, GROUPS, end) ? end : longest;
    }
    return longest;
}

/* ----------------------------------------------------------------------------------- the stores */

static struct sim_disk *sim;
static struct kvpi_disk disk;
static uint64_t now = 1000;

static uint64_t test_clock(void *context)
{
    (void)context;
    now += 50000000;
    return now;
}

static kvp_status open_on_sim(const struct kvpi_backend_config *config, void **out_self,
                              char *out_why, size_t why_bytes)
{
    const struct kvpi_engine_config engine = {0};
    return kvpi_file_open(config, &disk, &engine, out_self, out_why, why_bytes);
}

static kvp_store *open_store(const struct kvpi_backend *backend, const char *url,
                             uint32_t state_bytes)
{
    kvp_store_config config;
    kvp_store *store = NULL;
    char why[300];
    kvp_store_config_init(&config);
    config.url = url;
    config.fingerprint = input_digest(1);
    config.block_tokens = TOKENS;
    config.n_groups = GROUPS + 1;
    for (uint32_t g = 0; g < GROUPS; g++)
        config.block_bytes[g] = BLOCK_BYTES;
    config.block_bytes[GROUPS] = state_bytes;
    config.record_blocks = BLOCKS;
    config.max_ops = OPS;
    config.threads = 0;
    config.now = test_clock;
    if (kvpi_store_open(&config, backend, &store, why, sizeof why) != KVP_OK)
        fail_msg("%s", why);
    return store;
}

static kvp_store *open_file(uint32_t state_bytes)
{
    static struct kvpi_backend backend;
    backend = kvpi_file_backend;
    backend.open = open_on_sim;
    return open_store(&backend, "file:/kv?size=64MiB", state_bytes);
}

#endif
