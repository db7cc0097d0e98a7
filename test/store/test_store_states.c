/* States in stores, from end to end: an engine computes and keeps checkpoints, a connector writes
 * them and the KV to a store, and prompts find both again: when the cache lost them, after a start,
 * after a kill, and over a store that lies.
 *
 *   test_store_states [SEED [ROUNDS]] */
#define _XOPEN_SOURCE 700
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mocka.h"
#include "state_world.h"

static uint64_t seed = 1;
static unsigned n_rounds = 120;

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

TEST_WITH(test_a_state_comes_back_after_a_start, begin_test, end_test)
{
    store_and_start(2 * RECORD + 3, 0);
}

TEST_WITH(test_a_state_is_held_until_the_store_has_read_it, begin_test, end_test)
{
    store_and_start(RECORD + 3, 1);
}

TEST_WITH(test_kv_without_a_state_is_no_hit, begin_test, end_test)
{
    kvp_open_info info;
    struct chain chain;
    scoped_store *store = open_file(STATE_BYTES);
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
    assert_fields(info, hit_tokens, 0, stop_group, GROUPS);
    ok(kvp_seq_close(engine.cache, seq, NULL));
    stop_engine(&engine);
}

static uint32_t get(kvp_store *store, const kvp_identity *identity)
{
    uint8_t kv[BLOCKS][STATE_BYTES];
    void *pieces[BLOCKS] = {kv[0], kv[1]};
    ok(kvp_store_get(store, identity, pieces, 0));
    return input_result(store);
}

/* A record under the right key that is not the one: of KV, of other tokens, of another place. */
TEST_WITH(test_what_is_not_the_state_is_not_served, begin_test, end_test)
{
    for (int which = 0; which < 3; which++) {
        scoped_store *store = open_store(&kvpi_memory_backend, "memory:?size=1MiB", STATE_BYTES);
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
    }
}

/* A slot of another size is another form of store: its records are not looked at. */
TEST_WITH(test_a_state_of_another_size_is_not_served, begin_test, end_test)
{
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
TEST_WITH(test_a_damaged_state_is_not_served, begin_test, end_test)
{
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
TEST_WITH(test_a_stack_has_states, begin_test, end_test)
{
    kvp_store *stores[2];
    scoped_store *stack;
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
}

TEST_WITH(test_arguments_of_states_are_checked, begin_test, end_test)
{
    scoped_store *store = open_store(&kvpi_memory_backend, "memory:?size=1MiB", STATE_BYTES);
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
TEST_WITH(test_random_requests_and_kills, begin_test, end_test)
{
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
TEST_WITH(test_random_requests_over_a_liar, begin_test, end_test)
{
    memset(n_faults, 0, sizeof n_faults);
    for (unsigned pass = 0; pass < 3; pass++) {
        static const char *const urls[] = {"liar:?size=1MiB", "liar:?size=1MiB",
                                           "liar:?size=60000"};
        n_recalled = n_served = 0;
        fault_rate = pass == 0 ? 20 : pass == 1 ? 100 : 0;
        scoped_store *store = open_store(&liar_backend, urls[pass], STATE_BYTES);
        for (unsigned round = 0; round < n_rounds; round++) {
            start_engine(&engine);
            for (uint32_t i = draw(6); i > 0; i--)
                serve_one(store, 0);
            stop_engine(&engine);
        }
        assert_true(n_recalled > 0);
        for (unsigned i = 0; i < FAULTS && pass == 1; i++)
            assert_true(n_faults[i] > 0);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        n_rounds = (unsigned)strtoul(argv[2], NULL, 10);
    return run_all_tests(NULL, NULL);
}
