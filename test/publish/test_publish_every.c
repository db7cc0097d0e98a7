/* Each allocation of ours fails once: opening refuses with nothing left, a resync changes nothing.
 * libzmq and libcrypto are left alone. */
#include <string.h>

#include "guarded.h"
#include "wire.h"
#include "world.h"

enum { RUNS_MAX = 100 };

/* The allocation that fails, counted down; 0: none. */
static unsigned to_fail;
static unsigned n_failed;
static long n_held; /* blocks that were taken and not given back */

static int fails(void)
{
    if (to_fail == 0 || --to_fail > 0)
        return 0;
    n_failed++;
    return 1;
}

void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes);
void __wrap_free(void *block);

void *__wrap_malloc(size_t n_bytes)
{
    void *block = fails() ? NULL : guarded_take(n_bytes);
    n_held += block != NULL;
    return block;
}

void *__wrap_calloc(size_t n, size_t n_bytes)
{
    void *block = fails() ? NULL : guarded_take(n * n_bytes);
    n_held += block != NULL;
    return block ? memset(block, 0, n * n_bytes) : NULL;
}

void __wrap_free(void *block)
{
    n_held -= block != NULL;
    guarded_free(block);
}

/* A chain of more than an event's units, whose tokens need the most bytes; nothing is written
 * behind what was taken. */
enum { CHAIN_U = 64, CHAIN_UNITS = 70 };

static void put_chain(kvp_publisher *publisher)
{
    static int32_t tokens[CHAIN_UNITS * CHAIN_U];
    static kvp_event events[CHAIN_UNITS];
    kvp_hash hashes[CHAIN_UNITS + 1];
    const kvp_hash_input input = {
        .unit_tokens = CHAIN_U, .n_tokens = CHAIN_UNITS * CHAIN_U, .tokens = tokens};
    kvp_publisher_stats stats;
    for (int i = 0; i < CHAIN_UNITS * CHAIN_U; i++)
        tokens[i] = INT32_MAX - i;
    assert_int_equal(kvp_hash_root(CHAIN_U, 0, "m", 1, &hashes[0]), KVP_OK);
    assert_int_equal(kvp_hash_units(&input, &hashes[0], hashes + 1), KVP_OK);
    for (uint32_t i = 0; i < CHAIN_UNITS; i++) {
        events[i] = (kvp_event){.kind = KVP_EVENT_STORED,
                                .hash = hashes[i + 1],
                                .parent = hashes[i],
                                .root = hashes[0],
                                .position = i * CHAIN_U,
                                .n_tokens = CHAIN_U};
    }
    assert_int_equal(kvp_publisher_put(publisher, events, CHAIN_UNITS, tokens, 0), KVP_OK);
    assert_int_equal(kvp_publisher_stats_get(publisher, &stats), KVP_OK);
    assert_fields(stats, stored, CHAIN_UNITS, batches, 1, units, CHAIN_UNITS + 1);
}

static void open_refused(uint32_t hashes)
{
    kvp_publisher_config config = wire_config();
    config.hashes = hashes;
    config.unit_tokens = CHAIN_U;
    config.max_units = CHAIN_UNITS + 1;
    unsigned run = 0;
    kvp_status status = KVP_E_NO_MEMORY;
    while (status != KVP_OK) {
        kvp_publisher *publisher = NULL;
        char why[256] = "";
        const long held = n_held;
        const size_t held_bytes = guarded_held();
        to_fail = ++run;
        status = kvp_publisher_open(&config, &publisher, why, sizeof(why));
        to_fail = 0;
        assert_true(run < RUNS_MAX);
        if (status == KVP_OK) {
            kvp_publisher_stats stats;
            assert_int_equal(kvp_publisher_stats_get(publisher, &stats), KVP_OK);
            assert_int_equal(stats.memory_bytes, guarded_held() - held_bytes);
            put_chain(publisher);
            kvp_publisher_close(publisher);
        } else {
            assert_int_equal(status, KVP_E_NO_MEMORY);
            assert_null(publisher);
            assert_string_not_equal(why, "");
        }
        assert_int_equal(n_held, held);
    }
    assert_true(n_failed > 10);
}

TEST(test_open)
{
    open_refused(KVP_PUBLISH_OWN);
    open_refused(KVP_PUBLISH_VLLM);
}

TEST(test_resync)
{
    const kvp_publisher_config config = wire_config();
    kvp_config made = config_of(WIRE_U, WIRE_U, 8);
    kvp_publisher_stats before, after;
    kvp_publisher *publisher;
    made.max_events = 16;
    scoped_world w = make_world(&made);
    const int32_t tokens[2 * WIRE_U] = {1, 2, 3, 4, 5, 6, 7, 8};
    leave_cached(&w, tokens, 2 * WIRE_U);
    assert_int_equal(kvp_publisher_open(&config, &publisher, NULL, 0), KVP_OK);
    kvp_publisher_stats_get(publisher, &before);
    for (unsigned run = 1; run <= 2; run++) {
        to_fail = run;
        assert_int_equal(kvp_publisher_resync(publisher, w.cache, 0), KVP_E_NO_MEMORY);
        assert_int_equal(kvp_publisher_stats_get(publisher, &after), KVP_OK);
        assert_memory_equal(&after, &before, sizeof(after));
    }
    to_fail = 0;
    assert_int_equal(kvp_publisher_resync(publisher, w.cache, 0), KVP_OK);
    assert_int_equal(kvp_publisher_stats_get(publisher, &after), KVP_OK);
    assert_int_equal(after.stored, 2);
    kvp_publisher_close(publisher);
}

TEST_MAIN(NULL, NULL)
