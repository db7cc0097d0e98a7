/* States in stores, from end to end: an engine computes and keeps checkpoints, a connector writes
 * them and the KV to a store, and prompts find both again: when the cache lost them, after a start,
 * after a kill, and over a store that lies. Each token's KV and each slot depend on every token
 * before, and what a hit brings is compared with that. A step checks the slot that it reads.
 *
 *   test_store_states [SEED [ROUNDS]] */
#define _XOPEN_SOURCE 700
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <kvpager/lend.h>
#include <kvpager/states.h>

#include "liar.h"
#include "sim_disk.h"
#include "store/file/file.h"
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
    STORED_MAX = 4096
};

#define ok(call) assert_int_equal(call, KVP_OK)

static uint64_t seed = 1;
static unsigned n_rounds = 120;

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
    ok(kvp_check(e->cache, 3, &violation));
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
    ok(kvp_cache_stats(e->cache, &stats));
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
    uint32_t n_keys = 0;
    uint32_t longest = 0;
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

static int begin_test(void **state)
{
    (void)state;
    sim = sim_disk_create(seed);
    disk = sim_disk_interface(sim);
    memset(stored, 0, sizeof stored);
    random_state = seed * UINT64_C(0x9E3779B97F4A7C15);
    return kvp_digester_create(&digester) == KVP_OK ? 0 : -1;
}

static int end_test(void **state)
{
    (void)state;
    sim_disk_destroy(sim);
    kvp_digester_destroy(digester);
    return 0;
}

/* ----------------------------------------------------------------------------------- the scenes */

static struct engine engine;

/* A prompt of n tokens is stored, with a state after each record. Others take all that is not held
 * while the store has a state to read (pressed). */
static const int32_t *leave_stored(kvp_store *store, uint32_t n, int pressed)
{
    static int32_t tokens[LONGEST];
    kvp_open_info info;
    for (int32_t i = 0; i < LONGEST; i++)
        tokens[i] = 7 * i + 1;
    const kvp_seq seq = serve(&engine, tokens, n, RECORD, &info);
    assert_int_equal(offer(&engine, store, seq, tokens, n, pressed), (n - 1) / RECORD);
    ok(kvp_seq_close(engine.cache, seq, NULL));
    return tokens;
}

/* Stored by one process and found by the next. */
static void store_and_start(uint32_t n, int pressed)
{
    kvp_open_info info;
    const uint32_t end = (n - 1) / RECORD * RECORD;
    kvp_store *store = open_file(STATE_BYTES);
    start_engine(&engine);
    const int32_t *tokens = leave_stored(store, n, pressed);
    stop_engine(&engine);
    kvp_store_close(store);

    store = open_file(STATE_BYTES);
    start_engine(&engine);
    assert_int_equal(recall(&engine, store, tokens, n), end);
    const kvp_seq seq = serve(&engine, tokens, n, RECORD, &info);
    assert_int_equal(info.hit_tokens, end);
    ok(kvp_seq_close(engine.cache, seq, NULL));
    stop_engine(&engine);
    kvp_store_close(store);
}

static void test_a_state_comes_back_after_a_start(void **state)
{
    (void)state;
    store_and_start(2 * RECORD + 3, 0);
}

static void test_a_state_is_held_until_the_store_has_read_it(void **state)
{
    (void)state;
    store_and_start(RECORD + 3, 1);
}

static void test_kv_without_a_state_is_no_hit(void **state)
{
    (void)state;
    kvp_open_info info;
    struct chain chain;
    kvp_store *store = open_file(STATE_BYTES);
    start_engine(&engine);
    const int32_t *tokens = leave_stored(store, 2 * RECORD + 3, 0);
    make_chain(&chain, tokens, 2 * RECORD);
    for (uint32_t end = RECORD; end <= 2 * RECORD; end += RECORD) {
        const kvp_identity identity = identity_of(&chain, GROUPS, end);
        const kvp_digest key = input_key(&identity);
        ok(kvp_store_drop(store, &key, 1, 0));
        assert_int_equal(input_result(store), KVP_STORE_OK);
    }
    stop_engine(&engine);
    start_engine(&engine);
    assert_int_equal(recall(&engine, store, tokens, 2 * RECORD + 3), 0);
    assert_true(load(&engine, store, &chain, 0, 2 * RECORD)); /* the KV is there */
    assert_true(load(&engine, store, &chain, 1, 2 * RECORD));
    const kvp_seq seq = serve(&engine, tokens, 2 * RECORD + 3, RECORD, &info);
    assert_int_equal(info.hit_tokens, 0);
    assert_int_equal(info.stop_group, GROUPS);
    ok(kvp_seq_close(engine.cache, seq, NULL));
    stop_engine(&engine);
    kvp_store_close(store);
}

static uint32_t get(kvp_store *store, const kvp_identity *identity)
{
    uint8_t kv[BLOCKS][STATE_BYTES];
    void *pieces[BLOCKS] = {kv[0], kv[1]};
    ok(kvp_store_get(store, identity, pieces, 0));
    return input_result(store);
}

/* A record under the right key that is not the one: of KV, of other tokens, of another place. */
static void test_what_is_not_the_state_is_not_served(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        kvp_store *store = open_store(&kvpi_memory_backend, "memory:?size=1MiB", STATE_BYTES);
        struct chain chain;
        uint8_t kv[BLOCKS][STATE_BYTES] = {{1}, {2}};
        void *pieces[BLOCKS] = {kv[0], kv[1]};
        int32_t tokens[RECORD] = {1, 2, 3};
        int32_t others[RECORD] = {1, 2, 4};
        make_chain(&chain, tokens, RECORD);
        const kvp_identity right = identity_of(&chain, GROUPS, RECORD);
        kvp_identity wrong = right;
        if (which == 0)
            wrong.kind = KVP_IDENTITY_TOKENS;
        else if (which == 1)
            wrong.tokens = others;
        else
            wrong.position = 2 * TOKENS;
        ok(kvp_store_put(store, &wrong, pieces, 0));
        assert_int_equal(input_result(store), KVP_STORE_OK);
        assert_int_equal(get(store, &right), KVP_STORE_BAD);
        assert_int_equal(get(store, &right), KVP_STORE_ABSENT); /* it was dropped */
        ok(kvp_store_put(store, &right, pieces, 0));
        assert_int_equal(input_result(store), KVP_STORE_OK);
        assert_int_equal(get(store, &right), KVP_STORE_OK);
        kvp_store_close(store);
    }
}

/* A slot of another size is another form of store: its records are not looked at. */
static void test_a_state_of_another_size_is_not_served(void **state)
{
    (void)state;
    kvp_store *store = open_file(STATE_BYTES);
    start_engine(&engine);
    const int32_t *tokens = leave_stored(store, RECORD + 3, 0);
    stop_engine(&engine);
    kvp_store_close(store);
    struct chain chain;
    make_chain(&chain, tokens, RECORD);
    const kvp_identity identity = identity_of(&chain, GROUPS, RECORD);
    store = open_file(STATE_BYTES - 1); /* as large a place on the disk */
    assert_int_equal(get(store, &identity), KVP_STORE_BAD);
    kvp_store_close(store);
}

/* Look at all records of the directory: payloads, too. */
static uint32_t n_found[KVP_FOUND_KINDS];
static uint32_t n_state_records;

static void count_record(void *context, const kvp_store_record *record)
{
    (void)context;
    n_found[record->found]++;
    n_state_records += record->has_header && record->kind == KVP_IDENTITY_STATE &&
                       record->group == GROUPS && record->payload_bytes == STATE_BYTES;
}

static void scan(const char *url)
{
    kvp_store_scan_options options;
    kvp_store_scan_options_init(&options);
    options.depth = KVP_SCAN_PAYLOADS;
    options.record = count_record;
    memset(n_found, 0, sizeof n_found);
    n_state_records = 0;
    ok(kvp_store_scan(url, &options, NULL, 0));
}

static char folder[64];
static uint64_t slab_bytes;
static const uint8_t *wanted; /* a state */

/* Change a byte of the state wherever a slab has it, or cut the slab there; nftw's call. */
static int is_cut;
static uint32_t n_damaged;

static int damage(const char *path, const struct stat *stat, int kind, struct FTW *walk)
{
    (void)walk;
    if (kind != FTW_F || stat->st_size < STATE_BYTES)
        return 0;
    uint8_t *bytes = malloc((size_t)stat->st_size);
    FILE *file = fopen(path, "r+b");
    assert_true(bytes && file);
    slab_bytes = fread(bytes, 1, (size_t)stat->st_size, file);
    for (size_t at = 0; at + STATE_BYTES <= slab_bytes; at++) {
        if (memcmp(bytes + at, wanted, STATE_BYTES) != 0)
            continue;
        n_damaged++;
        bytes[at + STATE_BYTES - 1] ^= 1;
        assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
        assert_int_equal(fwrite(bytes + at, 1, STATE_BYTES, file), STATE_BYTES);
        if (is_cut)
            assert_int_equal(truncate(path, (off_t)at + STATE_BYTES / 2), 0);
        break;
    }
    fclose(file);
    free(bytes);
    return 0;
}

static int remove_file(const char *path, const struct stat *stat, int kind, struct FTW *walk)
{
    (void)stat;
    (void)kind;
    (void)walk;
    return remove(path);
}

/* On the real disk: operators see states, and one that is damaged or cut off is not served. */
static void test_a_damaged_state_is_not_served(void **state)
{
    (void)state;
    for (is_cut = 0; is_cut < 2; is_cut++) {
        char url[100];
        uint8_t right[STATE_BYTES];
        strcpy(folder, "/tmp/kvp_states_XXXXXX");
        assert_non_null(mkdtemp(folder));
        snprintf(url, sizeof url, "file:%s?size=64MiB", folder);
        kvp_store *store = open_store(NULL, url, STATE_BYTES);
        start_engine(&engine);
        const int32_t *tokens = leave_stored(store, 2 * RECORD + 3, 0);
        stop_engine(&engine);
        kvp_store_close(store);
        scan(url);
        assert_int_equal(n_found[KVP_FOUND_GOOD], 2 * (GROUPS + 1));
        assert_int_equal(n_state_records, 2);

        right_state(tokens, 2 * RECORD, right);
        wanted = right;
        n_damaged = 0;
        assert_int_equal(nftw(folder, damage, 8, FTW_PHYS), 0);
        assert_int_equal(n_damaged, 1);
        scan(url);
        assert_true(is_cut || n_state_records == 2);
        assert_true(n_found[KVP_FOUND_GOOD] < 2 * (GROUPS + 1));
        assert_true(is_cut || n_found[KVP_BAD_PAYLOAD] == 1);

        kvp_open_info info;
        store = open_store(NULL, url, STATE_BYTES);
        start_engine(&engine);
        (void)recall(&engine, store, tokens, 2 * RECORD + 3); /* what is bad is dropped */
        const uint32_t recalled = recall(&engine, store, tokens, 2 * RECORD + 3);
        assert_true(is_cut ? recalled < 2 * RECORD : recalled == RECORD);
        const kvp_seq seq = serve(&engine, tokens, 2 * RECORD + 3, RECORD, &info);
        assert_int_equal(info.hit_tokens, recalled);
        ok(kvp_seq_close(engine.cache, seq, NULL));
        stop_engine(&engine);
        kvp_store_close(store);
        assert_int_equal(nftw(folder, remove_file, 8, FTW_DEPTH | FTW_PHYS), 0);
    }
}

/* A state that a farther store has comes, and is written to the nearer one. */
static void test_a_stack_has_states(void **state)
{
    (void)state;
    kvp_store *stores[2];
    kvp_store *stack;
    kvp_store_stack_config config;
    struct chain chain;
    int32_t tokens[RECORD] = {1, 2, 3};
    uint8_t slot[STATE_BYTES];
    uint8_t got[STATE_BYTES] = {0};
    void *pieces[] = {slot};
    make_chain(&chain, tokens, RECORD);
    right_state(tokens, RECORD, slot);
    const kvp_identity identity = identity_of(&chain, GROUPS, RECORD);
    for (int i = 0; i < 2; i++)
        stores[i] = open_store(&kvpi_memory_backend, "memory:?size=1MiB", STATE_BYTES);
    ok(kvp_store_put(stores[1], &identity, pieces, 0));
    assert_int_equal(input_result(stores[1]), KVP_STORE_OK);
    kvp_store_stack_config_init(&config);
    config.stores = stores;
    config.n_stores = 2;
    ok(kvp_store_stack_open(&config, &stack, NULL, 0));
    pieces[0] = got;
    ok(kvp_store_get(stack, &identity, pieces, 0));
    assert_int_equal(input_result(stack), KVP_STORE_OK);
    assert_memory_equal(got, slot, sizeof slot);
    kvp_store_stats stats;
    ok(kvp_store_stats_get(kvp_store_stack_part(stack, 0), &stats));
    assert_int_equal(stats.records, 1);
    kvp_store_close(stack);
}

static void test_arguments_of_states_are_checked(void **state)
{
    (void)state;
    kvp_store *store = open_store(&kvpi_memory_backend, "memory:?size=1MiB", STATE_BYTES);
    struct chain chain;
    int32_t tokens[RECORD] = {1};
    uint8_t slot[STATE_BYTES] = {0};
    void *pieces[] = {slot};
    make_chain(&chain, tokens, RECORD);
    kvp_identity identity = identity_of(&chain, GROUPS, RECORD);
    pieces[0] = NULL;
    assert_int_equal(kvp_store_put(store, &identity, pieces, 0), KVP_E_ARG);
    pieces[0] = slot;
    identity.n_blocks = 1; /* the store's records are of two */
    assert_int_equal(kvp_store_put(store, &identity, pieces, 0), KVP_E_ARG);
    identity.n_blocks = BLOCKS;
    identity.group = GROUPS + 1;
    assert_int_equal(kvp_store_get(store, &identity, pieces, 0), KVP_E_ARG);
    identity.group = GROUPS;
    identity.tokens = NULL;
    assert_int_equal(kvp_store_get(store, &identity, pieces, 0), KVP_E_ARG);
    kvp_store_close(store);
}

/* ------------------------------------------------------------------------------ random requests */

static int32_t drawn[LONGEST];

/* Prompts that share beginnings: one of two tokens for each half record. */
static uint32_t draw_prompt(void)
{
    for (uint32_t i = 0, token = 0; i < LONGEST; i++) {
        if (i % TOKENS == 0)
            token = 10 * i + (draw(4) == 0 ? 1 : 0);
        drawn[i] = (int32_t)(token + i % TOKENS * 100000);
    }
    return 1 + draw(LONGEST);
}

static uint64_t n_recalled; /* tokens */
static uint64_t n_served;

/* is_true: all that was written is there, and is served. */
static void serve_one(kvp_store *store, int is_true)
{
    kvp_open_info info;
    const uint32_t n = draw_prompt();
    const uint32_t recalled = recall(&engine, store, drawn, n);
    assert_true(recalled <= expected_of(TRIED, drawn, n));
    if (is_true)
        assert_true(recalled >= expected_of(WRITTEN, drawn, n));
    const kvp_seq seq = serve(&engine, drawn, n, draw(2) ? RECORD : TOKENS, &info);
    assert_true(info.hit_tokens >= recalled);
    n_recalled += recalled;
    if (draw(2))
        offer(&engine, store, seq, drawn, n, draw(4) == 0);
    ok(kvp_seq_close(engine.cache, seq, NULL));
    n_served++;
}

/* The process is killed at any write, or ends; cache and store are made anew. */
static void test_random_requests_and_kills(void **state)
{
    (void)state;
    n_recalled = n_served = 0;
    for (unsigned round = 0; round < n_rounds; round++) {
        kvp_store *store = open_file(STATE_BYTES);
        start_engine(&engine);
        for (uint32_t i = draw(6); i > 0; i--)
            serve_one(store, 1);
        if (draw(2)) {
            sim_disk_stop_after(sim, draw(40));
            for (uint32_t i = draw(4); i > 0; i--)
                serve_one(store, 0);
        }
        stop_engine(&engine);
        kvp_store_close(store);
        sim_disk_kill(sim);
    }
    print_message("%lu requests, %lu tokens from the store\n", (unsigned long)n_served,
                  (unsigned long)n_recalled);
    assert_true(n_recalled > n_served);
}

/* The store lies, or has no room. Requests are served, with right KV and states. */
static void test_random_requests_over_a_liar(void **state)
{
    (void)state;
    memset(n_faults, 0, sizeof n_faults);
    for (unsigned pass = 0; pass < 3; pass++) {
        static const char *const urls[] = {"liar:?size=1MiB", "liar:?size=1MiB",
                                           "liar:?size=60000"};
        n_recalled = n_served = 0;
        fault_rate = pass == 0 ? 20 : pass == 1 ? 100 : 0;
        kvp_store *store = open_store(&liar_backend, urls[pass], STATE_BYTES);
        for (unsigned round = 0; round < n_rounds; round++) {
            start_engine(&engine);
            for (uint32_t i = draw(6); i > 0; i--)
                serve_one(store, 0);
            stop_engine(&engine);
        }
        assert_true(n_recalled > 0);
        for (unsigned i = 0; i < FAULTS && pass == 1; i++)
            assert_true(n_faults[i] > 0);
        kvp_store_close(store);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        n_rounds = (unsigned)strtoul(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_state_comes_back_after_a_start, begin_test,
                                        end_test),
        cmocka_unit_test_setup_teardown(test_a_state_is_held_until_the_store_has_read_it,
                                        begin_test, end_test),
        cmocka_unit_test_setup_teardown(test_kv_without_a_state_is_no_hit, begin_test, end_test),
        cmocka_unit_test_setup_teardown(test_what_is_not_the_state_is_not_served, begin_test,
                                        end_test),
        cmocka_unit_test_setup_teardown(test_a_state_of_another_size_is_not_served, begin_test,
                                        end_test),
        cmocka_unit_test_setup_teardown(test_a_damaged_state_is_not_served, begin_test, end_test),
        cmocka_unit_test_setup_teardown(test_a_stack_has_states, begin_test, end_test),
        cmocka_unit_test_setup_teardown(test_arguments_of_states_are_checked, begin_test, end_test),
        cmocka_unit_test_setup_teardown(test_random_requests_and_kills, begin_test, end_test),
        cmocka_unit_test_setup_teardown(test_random_requests_over_a_liar, begin_test, end_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
