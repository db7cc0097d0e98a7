/* The file back end on a disk that stops at every operation, one after the other.
 *
 * A fixed run of puts, gets, drops and syncs is repeated; each time the disk stops one operation
 * later. Then the process is killed or the power is lost, the store is opened again, and:
 *
 *   killed   every put that had ended with KVP_STORE_OK is served, unless it was dropped or evicted
 *            since; what was dropped is not served
 *   power    the same for what had ended before the last sync that ended, unless it was dropped or
 *            evicted, or might have been, since
 *   both     nobody reads KV of another record, and the limit holds at every instant
 *
 *   test_store_crash [SEED [STEPS]]    every STEPS-th operation; 1: all */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "draw.h"
#include "on_sim.h"
#include "sim_queue.h"
#include "store_inputs.h"

enum {
    BLOCK_BYTES = 1000,
    BLOCKS = 2,
    TOKENS = 4,
    CHAINS = 4,
    DEPTH = 6,
    RECORDS = CHAINS * DEPTH,
    CALLS = 150,
    SLOT = 8192,
    SLOTS = 12,
    SIZE = SLOTS * (SLOT + 256)
};

static uint64_t seed = 1;
static uint64_t stride = 1;

/* ------------------------------------------------------------------------------------ the store */

static int with_queue; /* of transfers, as io_uring's; else each is done when it begins */
static struct sim_queue queue;
static struct kvpi_queue_system queue_system;
static uint64_t room = UINT64_MAX; /* of the disk */

static kvp_status open_on_engine(const struct kvpi_backend_config *config, void **out_self,
                                 char *out_why, size_t why_bytes)
{
    const struct kvpi_engine_config engine = {.n_threads = 0,
                                              .queue = with_queue ? &queue_system : NULL};
    return kvpi_file_open(config, &disk, &engine, out_self, out_why, why_bytes);
}

static kvp_status try_open(kvp_store **out_store, char *out_why, size_t why_bytes)
{
    struct kvpi_backend backend = kvpi_file_backend;
    backend.open = open_on_engine;
    static struct kvpi_backend kept;
    kept = backend;
    kvp_store_config config;
    kvp_store_config_init(&config);
    char url[64];
    snprintf(url, sizeof url, "file:/kv?size=%d", SIZE);
    config.url = url;
    config.fingerprint = input_digest(1);
    config.block_tokens = TOKENS;
    config.block_bytes[0] = BLOCK_BYTES;
    config.record_blocks = BLOCKS;
    config.threads = 0;
    config.now = test_clock;
    return kvpi_store_open(&config, &kept, out_store, out_why, why_bytes);
}

static kvp_store *open_store(void)
{
    kvp_store *store = NULL;
    char why[300];
    const kvp_status status = try_open(&store, why, sizeof why);
    if (status != KVP_OK)
        fail_msg("%s", why);
    return store;
}

/* ---------------------------------------------------------------------------------- the records */

struct record {
    int32_t tokens[BLOCKS * TOKENS];
    kvp_identity identity;
    uint8_t kv[BLOCKS][BLOCK_BYTES];
    void *blocks[BLOCKS];
    kvp_digest key;
    int stored;  /* a put has ended well, and nothing took it away since */
    int synced;  /* and a sync that began later has ended */
    int dropped; /* by the caller, and not put since */
};

static struct record records[RECORDS];

static void make_records(void)
{
    for (unsigned r = 0; r < RECORDS; r++) {
        struct record *record = &records[r];
        record->identity = input_identity(record->tokens, BLOCKS, TOKENS, r % DEPTH, r * 100);
        record->identity.digest = input_digest(r);
        if (r % DEPTH > 0)
            record->identity.parent = records[r - 1].key;
        for (int i = 0; i < BLOCKS; i++) {
            input_pattern(record->kv[i], BLOCK_BYTES, r * 3 + (unsigned)i);
            record->blocks[i] = record->kv[i];
        }
        record->key = input_key(&record->identity);
    }
}

static uint32_t get(kvp_store *store, unsigned r)
{
    static uint8_t kv[BLOCKS][BLOCK_BYTES];
    void *blocks[BLOCKS] = {kv[0], kv[1]};
    assert_int_equal(kvp_store_get(store, &records[r].identity, blocks, 0), KVP_OK);
    const uint32_t result = input_result(store);
    if (result == KVP_STORE_OK)
        assert_memory_equal(kv, records[r].kv, sizeof kv);
    return result;
}

/* Who is there now, by the store's own word: what is not was evicted, or went with its parent. */
static void note_evictions(kvp_store *store)
{
    for (unsigned r = 0; r < RECORDS; r++) {
        uint64_t bits = 0;
        assert_int_equal(kvp_store_have(store, &records[r].key, 1, &bits, 0), KVP_OK);
        if (input_result(store) == KVP_STORE_OK && bits == 0)
            records[r].stored = records[r].synced = 0;
    }
}

/* The same calls in every run, until the disk stops. */
static void do_calls(kvp_store *store, uint64_t stop_at)
{
    random_state = seed * UINT64_C(0x2545F4914F6CDD1D);
    for (int call = 0; call < CALLS && sim_disk_count(sim) < stop_at; call++) {
        const unsigned r = draw(RECORDS);
        const uint32_t what = draw(100);
        if (what < 60) {
            assert_int_equal(kvp_store_put(store, &records[r].identity, records[r].blocks, 0),
                             KVP_OK);
            const uint32_t result = input_result(store);
            if (result == KVP_STORE_OK)
                records[r].stored = 1;
            records[r].dropped = 0; /* a put that failed may be there all the same */
        } else if (what < 85) {
            get(store, r);
        } else if (what < 93) {
            assert_int_equal(kvp_store_sync(store, 0), KVP_OK);
            const int ok = input_result(store) == KVP_STORE_OK;
            for (unsigned i = 0; i < RECORDS && ok; i++)
                records[i].synced = records[i].stored;
        } else {
            assert_int_equal(kvp_store_drop(store, &records[r].key, 1, 0), KVP_OK);
            /* Without a word in the log a drop is forgotten: only what was written down counts. */
            if (input_result(store) == KVP_STORE_OK && sim_disk_count(sim) < stop_at)
                records[r].dropped = 1;
        }
        assert_true(sim_disk_bytes(sim) <= SIZE);
        if (sim_disk_count(sim) < stop_at)
            note_evictions(store);
        else if (what < 60 || what >= 93) /* what went before it failed is not known */
            for (unsigned i = 0; i < RECORDS; i++)
                records[i].synced = records[i].stored = 0;
    }
}

static uint64_t n_served;

/* After the start: what must be there is, and what is there is right. */
static void check_again(int power_lost)
{
    kvp_store *store = open_store();
    assert_true(sim_disk_bytes(sim) <= SIZE);
    for (unsigned r = 0; r < RECORDS; r++) {
        const uint32_t result = get(store, r);
        n_served += result == KVP_STORE_OK;
        if (power_lost ? records[r].synced : records[r].stored)
            assert_int_equal(result, KVP_STORE_OK);
        if (!power_lost && records[r].dropped)
            assert_int_not_equal(result, KVP_STORE_OK);
    }
    /* And it goes on: puts, evictions, a clean end, another start. */
    for (unsigned r = 0; r < RECORDS; r++) {
        kvp_store_put(store, &records[r].identity, records[r].blocks, 0);
        input_result(store);
        assert_true(sim_disk_bytes(sim) <= SIZE);
    }
    for (unsigned r = 0; r < RECORDS; r++)
        get(store, r);
    kvp_store_stats before, after;
    kvp_store_stats_get(store, &before);
    kvp_store_close(store);
    store = open_store();
    get(store, 0);
    kvp_store_stats_get(store, &after);
    assert_int_equal(before.records, after.records);
    kvp_store_close(store);
}

/* One run: the disk stops at its stop-th operation after the store was opened. 0: it did not. */
static int run(uint64_t stop, int power_lost)
{
    make_sim(seed + stop * 2 + (uint64_t)power_lost);
    queue = (struct sim_queue){
        .disk = &disk, .random = seed + stop, .short_rate = 30, .again_rate = 10, .late_rate = 10};
    queue_system = sim_queue_interface(&queue);
    sim_disk_limit(sim, room);
    sim_disk_grain(sim, stop % 2 ? 4096 : 512);
    for (unsigned r = 0; r < RECORDS; r++)
        records[r].stored = records[r].synced = records[r].dropped = 0;
    kvp_store *store = open_store();
    const uint64_t stop_at = sim_disk_count(sim) + stop;
    sim_disk_stop_after(sim, stop);
    do_calls(store, stop_at);
    const int stopped = sim_disk_count(sim) >= stop_at;
    sim_disk_stop_after(sim, 0); /* nothing that a killed process would not do */
    kvp_store_close(store);
    if (power_lost)
        sim_disk_power_off(sim);
    else
        sim_disk_kill(sim);
    check_again(power_lost);
    sim_disk_destroy(sim);
    return stopped;
}

TEST(test_killed_at_every_operation)
{
    for (with_queue = 0; with_queue < 2; with_queue++) {
        n_served = 0;
        uint64_t stop = 0;
        while (run(stop, 0))
            stop += stride;
        assert_true(stop > 100 && n_served > 100);
        assert_true(!with_queue || queue.n_results > 0);
    }
    with_queue = 0;
}

TEST(test_power_lost_at_every_operation)
{
    for (with_queue = 0; with_queue < 2; with_queue++) {
        n_served = 0;
        uint64_t stop = 0;
        while (run(stop, 1))
            stop += stride;
        assert_true(stop > 100 && n_served > 100);
        assert_true(!with_queue || queue.n_results > 0);
    }
    with_queue = 0;
}

/* A record, a sync, and so many records behind it; then the power is lost, and exactly those grains
 * are kept that `kept` has bits for; which files keep their lengths is drawn. Gives how many
 * grains there were. */
static uint32_t lose_but(uint32_t grain, unsigned n_puts, uint64_t kept, uint64_t lengths)
{
    make_sim(seed + kept + (lengths << 32));
    sim_disk_grain(sim, grain);
    for (unsigned r = 0; r < RECORDS; r++)
        records[r].stored = records[r].synced = records[r].dropped = 0;
    kvp_store *store = open_store();
    for (unsigned r = 0; r <= n_puts; r++) {
        assert_int_equal(kvp_store_put(store, &records[r].identity, records[r].blocks, 0), KVP_OK);
        assert_int_equal(input_result(store), KVP_STORE_OK);
        if (r > 0)
            continue;
        assert_int_equal(kvp_store_sync(store, 0), KVP_OK);
        assert_int_equal(input_result(store), KVP_STORE_OK);
        records[0].synced = 1;
    }
    const uint32_t n = sim_disk_unsynced(sim);
    sim_disk_stop_after(sim, 0);
    kvp_store_close(store);
    sim_disk_power_off_but(sim, kept);
    check_again(1);
    sim_disk_destroy(sim);
    return n;
}

/* Whatever the disk has kept of what was not synced: every subset. */
TEST(test_every_subset_of_what_was_not_synced)
{
    for (int coarse = 0; coarse < 2; coarse++) {
        const uint32_t grain = coarse ? 4096 : 512;
        const unsigned n_puts = coarse ? 3 : 1;
        const uint32_t n = lose_but(grain, n_puts, UINT64_MAX, 0);
        assert_true(n >= 6 && n < 14);
        n_served = 0;
        const uint64_t n_runs = (coarse ? UINT64_C(1) : 16) << n;
        for (uint64_t i = 0; i < n_runs; i++)
            lose_but(grain, n_puts, i & ((UINT64_C(1) << n) - 1), i >> n);
        assert_true(n_served > n_runs); /* more than the one that was synced */
    }
}

/* The same on a disk that is full all the time: what the log needs has room, or does not begin,
 * and a drop is never forgotten. */
TEST(test_stopped_at_every_operation_on_a_full_disk)
{
    for (int power_lost = 0; power_lost < 2; power_lost++) {
        room = 5 * (SLOT + 256) + 3000;
        n_served = 0;
        uint64_t stop = 0;
        while (run(stop, power_lost)) {
            stop += stride;
            room += 37; /* not always the same that is missing */
        }
        assert_true(stop > 100 && n_served > 100);
    }
    room = UINT64_MAX;
}

/* Opening a store that has records, stopped at every operation, takes none of them away. */
TEST(test_an_opening_that_is_cut_short_loses_nothing)
{
    for (int power_lost = 0; power_lost < 2; power_lost++) {
        int done = 0;
        for (uint64_t stop = 0; !done; stop++) {
            make_sim(seed + stop);
            kvp_store *store = open_store();
            for (unsigned r = 0; r < DEPTH; r++) {
                kvp_store_put(store, &records[r].identity, records[r].blocks, 0);
                assert_int_equal(input_result(store), KVP_STORE_OK);
            }
            kvp_store_sync(store, 0);
            assert_int_equal(input_result(store), KVP_STORE_OK);
            sim_disk_stop_after(sim, 0);
            kvp_store_close(store);
            sim_disk_kill(sim);
            sim_disk_stop_after(sim, stop);
            store = NULL;
            done = try_open(&store, NULL, 0) == KVP_OK;
            sim_disk_stop_after(sim, 0);
            kvp_store_close(store);
            if (power_lost)
                sim_disk_power_off(sim);
            else
                sim_disk_kill(sim);
            store = open_store();
            for (unsigned r = 0; r < DEPTH; r++)
                assert_int_equal(get(store, r), KVP_STORE_OK);
            kvp_store_close(store);
            sim_disk_destroy(sim);
        }
    }
}

/* --------------------------------------------------------------------------------- what is lost */

static const char slab_path[] = "/kv/01080f161d242b32/w0/slab-000000";
static const char log_path[] = "/kv/01080f161d242b32/w0/log";

static kvp_store *open_with(unsigned n)
{
    make_sim(seed);
    kvp_store *store = open_store();
    for (unsigned r = 0; r < n; r++) {
        kvp_store_put(store, &records[r].identity, records[r].blocks, 0);
        assert_int_equal(input_result(store), KVP_STORE_OK);
    }
    return store;
}

/* The fault that no checksum finds: whole records in each other's slots. */
TEST(test_two_slots_that_are_swapped_are_misses)
{
    kvp_store *store = open_with(1);
    uint8_t first[SLOT];
    assert_true(sim_disk_peek(sim, slab_path, 0, first, SLOT));
    kvp_store_put(store, &records[DEPTH].identity, records[DEPTH].blocks, 0);
    assert_int_equal(input_result(store), KVP_STORE_OK);
    char second_path[64];
    snprintf(second_path, sizeof second_path, "/kv/01080f161d242b32/w0/slab-000001");
    uint8_t second[SLOT];
    assert_true(sim_disk_peek(sim, second_path, 0, second, SLOT));
    assert_true(sim_disk_poke(sim, slab_path, 0, second, SLOT));
    assert_true(sim_disk_poke(sim, second_path, 0, first, SLOT));
    assert_int_equal(get(store, 0), KVP_STORE_BAD);
    assert_int_equal(get(store, DEPTH), KVP_STORE_BAD);
    assert_fields(stats_of(store), bad[KVP_BAD_PLACE], 2, records, 0);
    kvp_store_close(store);
    sim_disk_destroy(sim);
}

TEST(test_an_older_record_of_the_slot_is_a_miss)
{
    kvp_store *store = open_with(1);
    uint8_t older[SLOT];
    assert_true(sim_disk_peek(sim, slab_path, 0, older, SLOT));
    for (int round = 0; round < 2; round++) {
        kvp_store_drop(store, &records[0].key, 1, 0);
        input_result(store);
        kvp_store_put(store, &records[0].identity, records[0].blocks, 0);
        assert_int_equal(input_result(store), KVP_STORE_OK);
    }
    assert_true(sim_disk_poke(sim, slab_path, 0, older, SLOT));
    assert_int_equal(get(store, 0), KVP_STORE_BAD);
    assert_int_equal(stats_of(store).bad[KVP_BAD_PLACE], 1);
    kvp_store_close(store);
    sim_disk_destroy(sim);
}

TEST(test_a_damaged_log_loses_no_more_than_it_must)
{
    for (unsigned damaged = 0; damaged < DEPTH; damaged++) {
        kvp_store *store = open_with(DEPTH);
        sim_disk_stop_after(sim, 0);
        kvp_store_close(store);
        sim_disk_kill(sim);
        uint8_t byte;
        assert_true(sim_disk_peek(sim, log_path, 64 + damaged * 52 + 20, &byte, 1));
        byte ^= 4;
        assert_true(sim_disk_poke(sim, log_path, 64 + damaged * 52 + 20, &byte, 1));
        store = open_store();
        /* One chain: what is behind the lost record cannot be reached. */
        for (unsigned r = 0; r < DEPTH; r++)
            assert_int_equal(get(store, r), r < damaged ? KVP_STORE_OK : KVP_STORE_ABSENT);
        kvp_store_close(store);
        sim_disk_destroy(sim);
    }
}

/* Drops that the log lost: a slot has another record by now, and what needed the one before it in
 * this slot is gone. */
TEST(test_a_child_of_a_replaced_parent_is_gone)
{
    kvp_store *store = open_with(2);
    for (unsigned r = 2 * DEPTH; r < RECORDS; r += DEPTH) {
        kvp_store_put(store, &records[r].identity, records[r].blocks, 0);
        assert_int_equal(input_result(store), KVP_STORE_OK);
    }
    kvp_store_drop(store, &records[0].key, 1, 0);
    assert_int_equal(input_result(store), KVP_STORE_OK);
    kvp_store_put(store, &records[DEPTH].identity, records[DEPTH].blocks, 0);
    assert_int_equal(input_result(store), KVP_STORE_OK);
    sim_disk_stop_after(sim, 0);
    kvp_store_close(store);
    sim_disk_kill(sim);
    for (unsigned entry = 4; entry < 6; entry++) { /* behind four puts, before the last one */
        uint8_t bytes[8];
        assert_true(sim_disk_peek(sim, log_path, 64 + entry * 52, bytes, 8));
        assert_int_equal(bytes[0], 2); /* a drop */
        assert_true(sim_disk_poke(sim, log_path, 64 + entry * 52 + 20, "lost", 4));
    }
    uint8_t slots[2];
    assert_true(sim_disk_peek(sim, log_path, 64 + 4, &slots[0], 1));
    assert_true(sim_disk_peek(sim, log_path, 64 + 6 * 52 + 4, &slots[1], 1));
    assert_int_equal(slots[0], slots[1]);
    store = open_store();
    assert_int_equal(stats_of(store).records, 3);
    assert_int_equal(get(store, DEPTH), KVP_STORE_OK);
    for (unsigned r = 0; r < 2; r++)
        assert_int_equal(get(store, r), KVP_STORE_ABSENT);
    kvp_store_close(store);
    sim_disk_destroy(sim);
}

static uint64_t sync_fails_at;

static int sync_but_one(void *context, int file)
{
    (void)context;
    return sync_fails_at > 0 && --sync_fails_at == 0 ? EIO : below.sync(below.context, file);
}

/* Each sync of a file fails once: the next one makes sure of all, by either engine. */
TEST(test_what_was_not_synced_is_synced_again)
{
    for (unsigned run = 0; run < 2 * (DEPTH + 1); run++) {
        with_queue = run > DEPTH;
        make_sim(seed + run);
        disk.sync = sync_but_one;
        queue = (struct sim_queue){.disk = &disk, .random = seed};
        queue_system = sim_queue_interface(&queue);
        kvp_store *store = open_store();
        for (unsigned r = 0; r < DEPTH; r++) { /* a slab each */
            kvp_store_put(store, &records[r].identity, records[r].blocks, 0);
            assert_int_equal(input_result(store), KVP_STORE_OK);
        }
        sync_fails_at = 1 + run % (DEPTH + 1); /* the last one is the log's */
        kvp_store_sync(store, 0);
        assert_int_equal(input_result(store), KVP_STORE_FAILED);
        assert_int_equal(sync_fails_at, 0);
        kvp_store_sync(store, 0);
        assert_int_equal(input_result(store), KVP_STORE_OK);
        sim_disk_stop_after(sim, 0);
        kvp_store_close(store);
        sim_disk_power_off(sim);
        store = open_store();
        for (unsigned r = 0; r < DEPTH; r++)
            assert_int_equal(get(store, r), KVP_STORE_OK);
        kvp_store_close(store);
        sim_disk_destroy(sim);
    }
    with_queue = 0;
}

TEST(test_a_damaged_header_of_the_log_begins_anew)
{
    kvp_store *store = open_with(DEPTH);
    kvp_store_close(store);
    assert_true(sim_disk_poke(sim, log_path, 30, "\xFF", 1));
    store = open_store();
    for (unsigned r = 0; r < DEPTH; r++)
        assert_int_equal(get(store, r), KVP_STORE_ABSENT);
    kvp_store_put(store, &records[0].identity, records[0].blocks, 0);
    assert_int_equal(input_result(store), KVP_STORE_OK);
    kvp_store_close(store);
    sim_disk_destroy(sim);
}

TEST(test_any_log_can_be_read)
{
    random_state = seed + 99;
    for (int round = 0; round < 300; round++) {
        kvp_store *store = open_with(DEPTH);
        sim_disk_stop_after(sim, 0);
        kvp_store_close(store);
        sim_disk_kill(sim);
        for (unsigned i = 0; i < 1 + draw(20); i++) {
            const uint8_t byte = (uint8_t)draw(256);
            sim_disk_poke(sim, log_path, draw(64 + DEPTH * 52), &byte, 1);
        }
        store = NULL;
        if (try_open(&store, NULL, 0) == KVP_OK)
            for (unsigned r = 0; r < RECORDS; r++)
                get(store, r);
        kvp_store_close(store);
        sim_disk_destroy(sim);
    }
}

TEST(test_every_write_that_fails_is_a_failed_put)
{
    for (uint64_t n = 1; n <= 2 * DEPTH; n++) {
        make_sim(seed);
        kvp_store *store = open_store();
        sim_disk_fail_write(sim, n, n % 2 ? EIO : ENOSPC);
        unsigned n_failed = 0;
        for (unsigned r = 0; r < DEPTH; r++) {
            kvp_store_put(store, &records[r].identity, records[r].blocks, 0);
            const uint32_t result = input_result(store);
            n_failed += result == KVP_STORE_FAILED;
            assert_true(result == KVP_STORE_OK || result == KVP_STORE_FAILED ||
                        (n_failed > 0 && result == KVP_STORE_NO_PARENT));
        }
        assert_int_equal(n_failed, 1);
        for (unsigned r = 0; r < DEPTH; r++)
            get(store, r);
        kvp_store_close(store);
        store = open_store();
        for (unsigned r = 0; r < DEPTH; r++)
            get(store, r);
        kvp_store_close(store);
        sim_disk_destroy(sim);
    }
}

int main(int argc, char **argv)
{
    now = 1000;
    tick = 1;
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        stride = strtoull(argv[2], NULL, 10);
    make_records();
    return run_all_tests(NULL, NULL);
}
