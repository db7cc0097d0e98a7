/* What a close leaves, and a sync: the log is written anew, and whatever of that fails, the next
 * start has the same records; a directory that could not be synced is synced with the next sync. On
 * a disk in memory. */
#include <errno.h>

#include "mocka.h"
#include "on_sim.h"
#include "store/file/survey.h"
#include "store_records.h"

/* Nothing is open any more. */
static void end(void)
{
    assert_int_equal(sim_disk_handles(sim), 0);
    sim_disk_destroy(sim);
}

enum { RECORDS = 8 };

#define HOME "/kv/01080f161d242b32/w0/"

static struct record records[RECORDS];

static kvp_store *open_store(void)
{
    kvp_store_config config = record_config("file:/kv?size=135168"); /* 16 slots */
    now = UINT64_C(1000000000);
    config.now = test_clock;
    return open_or_fail(&config, on_sim());
}

enum { OPEN, WRITE, SYNC, RENAME, REMOVE, SYNC_DIRECTORY, CALLS };

static unsigned fails_call;
static unsigned fails_n; /* the n-th of these calls; 0: none */

static int fails(unsigned call)
{
    return call == fails_call && fails_n > 0 && --fails_n == 0;
}

static int may_open(void *context, const char *path, unsigned flags, int *out_file)
{
    return fails(OPEN) ? EMFILE : below.open(context, path, flags, out_file);
}

static int may_write(void *context, int file, const struct kvpi_span *spans, uint32_t n_spans,
                     uint64_t offset)
{
    return fails(WRITE) ? EIO : below.write(context, file, spans, n_spans, offset);
}

static int may_sync(void *context, int file)
{
    return fails(SYNC) ? EIO : below.sync(context, file);
}

static int may_rename(void *context, const char *from, const char *to)
{
    return fails(RENAME) ? EIO : below.rename(context, from, to);
}

static int may_remove(void *context, const char *path, int is_directory)
{
    return fails(REMOVE) ? EIO : below.remove(context, path, is_directory);
}

static int may_sync_directory(void *context, const char *path)
{
    return fails(SYNC_DIRECTORY) ? EIO : below.sync_directory(context, path);
}

static uint32_t n_generation; /* of slot 0's record, as a scan tells it */

static void see_record(void *context, const kvp_store_record *record)
{
    (void)context;
    n_generation = record->slot == 0 ? record->generation : n_generation;
}

static uint32_t generation_of_slot_0(void)
{
    kvp_store_scan_options options;
    kvp_store_scan_options_init(&options);
    options.depth = KVP_SCAN_HEADERS;
    options.record = see_record;
    n_generation = 0;
    assert_int_equal(kvpi_survey_scan(&disk, "/kv", &options, NULL, 0), KVP_OK);
    return n_generation;
}

static void close_once(uint64_t seed, int *has_failed)
{
    make_sim(seed);
    disk.open = may_open;
    disk.write = may_write;
    disk.sync = may_sync;
    disk.rename = may_rename;
    disk.remove = may_remove;
    disk.sync_directory = may_sync_directory;
    const unsigned n = fails_n;
    fails_n = 0;
    kvp_store *store = open_store();
    for (unsigned r = 0; r < RECORDS; r++)
        assert_int_equal(record_put(store, &records[r]), KVP_STORE_OK);
    assert_int_equal(kvp_store_sync(store, 0), KVP_OK);
    assert_int_equal(input_result(store), KVP_STORE_OK);
    fails_n = n;
    kvp_store_close(store);
    *has_failed = fails_n == 0;
    fails_n = 0;
    assert_int_equal(sim_disk_handles(sim), 0);
    assert_false(sim_disk_has(sim, HOME "log.new"));
    if (seed > 0)
        sim_disk_power_off(sim);
    store = open_store();
    for (unsigned r = 0; r < RECORDS; r++)
        assert_int_equal(record_get(store, &records[r]), KVP_STORE_OK);
    kvp_store_close(store);
    end();
}

/* Each call of a close fails once, and then the power may be lost: nothing is left open, no spare
 * log is left, and the next start has the same records. */
TEST(test_a_close_that_fails)
{
    for (unsigned r = 0; r < RECORDS; r++)
        record_make(records, r, r, 0);
    for (fails_call = 0; fails_call < CALLS; fails_call++) {
        for (uint64_t seed = 0; seed < 8; seed++) {
            int has_failed = 1;
            for (unsigned n = 1; has_failed; n++) {
                fails_n = n;
                close_once(seed, &has_failed);
            }
        }
    }
}

/* A home, a slab or a log whose name could not be synced: a sync fails until it is, and what was
 * put before one that succeeds is there after a loss of power. */
TEST(test_names_that_cannot_be_synced)
{
    int has_failed = 1;
    for (unsigned r = 0; r < RECORDS; r++)
        record_make(records, r, r, 0);
    for (unsigned n = 1; has_failed; n++) {
        for (uint64_t seed = 1; seed <= 8; seed++) {
            make_sim(seed);
            disk.sync_directory = may_sync_directory;
            fails_call = SYNC_DIRECTORY;
            fails_n = n;
            kvp_store *store = open_store();
            for (unsigned r = 0; r < RECORDS && fails_n > 0; r++) {
                assert_int_equal(record_put(store, &records[r]), KVP_STORE_OK);
                for (unsigned i = 0; i < 12 && fails_n > 0; i++) { /* until the log moves */
                    assert_int_equal(kvp_store_drop(store, &records[r].key, 1, 0), KVP_OK);
                    assert_int_equal(input_result(store), KVP_STORE_OK);
                    assert_int_equal(record_put(store, &records[r]), KVP_STORE_OK);
                }
            }
            has_failed = fails_n == 0;
            uint32_t there = 0;
            for (unsigned r = 0; r < RECORDS; r++)
                there |= (uint32_t)(record_get(store, &records[r]) == KVP_STORE_OK) << r;
            fails_n = 1; /* also the first one that is tried for it */
            assert_int_equal(kvp_store_sync(store, 0), KVP_OK);
            assert_int_equal(input_result(store), has_failed ? KVP_STORE_FAILED : KVP_STORE_OK);
            fails_n = 0;
            assert_int_equal(kvp_store_sync(store, 0), KVP_OK);
            assert_int_equal(input_result(store), KVP_STORE_OK);
            sim_disk_stop_after(sim, 0);
            kvp_store_close(store);
            sim_disk_power_off(sim);
            store = open_store();
            for (unsigned r = 0; r < RECORDS; r++)
                if (there >> r & 1)
                    assert_int_equal(record_get(store, &records[r]), KVP_STORE_OK);
            kvp_store_close(store);
            end();
        }
    }
}

static char synced[1000]; /* paths, one behind the other */

static int note_sync_directory(void *context, const char *path)
{
    strcat(strcat(synced, path), ";");
    return below.sync_directory(context, path);
}

/* A new directory is nothing without its name in the one above. */
TEST(test_names_that_are_synced)
{
    record_make(records, 0, 0, 0);
    make_sim(1);
    disk.sync_directory = note_sync_directory;
    kvp_store *store = open_store();
    assert_string_equal(synced, "/kv/01080f161d242b32/w0;/kv/01080f161d242b32;");
    *synced = 0;
    assert_int_equal(record_put(store, &records[0]), KVP_STORE_OK);
    assert_string_equal(synced, "/kv/01080f161d242b32/w0;"); /* a slab */
    *synced = 0;
    kvp_store_close(store);
    assert_string_equal(synced, "/kv/01080f161d242b32/w0;"); /* the log */
    end();
}

/* Also of a slot that has none now: what may still lie there is of an older generation. */
TEST(test_generations_rise_over_starts)
{
    record_make(records, 0, 0, 0);
    make_sim(1);
    for (uint32_t generation = 1; generation <= 4; generation++) {
        kvp_store *store = open_store();
        assert_int_equal(record_put(store, &records[0]), KVP_STORE_OK);
        assert_int_equal(generation_of_slot_0(), generation);
        assert_int_equal(kvp_store_drop(store, &records[0].key, 1, 0), KVP_OK);
        assert_int_equal(input_result(store), KVP_STORE_OK);
        kvp_store_close(store); /* the log is written anew */
    }
    end();
}

static uint64_t n_damaged;

static void see_directory(void *context, const kvp_store_directory *directory)
{
    (void)context;
    n_damaged = directory->damaged_entries;
}

static uint64_t count_damaged(void)
{
    kvp_store_scan_options options;
    kvp_store_scan_options_init(&options);
    options.directory = see_directory;
    assert_int_equal(kvpi_survey_scan(&disk, "/kv", &options, NULL, 0), KVP_OK);
    return n_damaged;
}

/* A start that finds entries damaged writes the log anew: they are not read, and told, for ever. */
TEST(test_a_damaged_entry_goes_with_the_start)
{
    for (unsigned r = 0; r < RECORDS; r++)
        record_make(records, r, r, 0);
    make_sim(1);
    kvp_store *store = open_store();
    for (unsigned r = 0; r < RECORDS; r++)
        assert_int_equal(record_put(store, &records[r]), KVP_STORE_OK);
    sim_disk_stop_after(sim, 0);
    kvp_store_close(store);
    sim_disk_kill(sim);
    assert_true(sim_disk_poke(sim, HOME "log", 64 + 52 * (RECORDS - 1) + 20, "?", 1));
    assert_int_equal(count_damaged(), 1);
    store = open_store();
    assert_int_equal(count_damaged(), 0);
    for (unsigned r = 0; r < RECORDS; r++)
        assert_int_equal(record_get(store, &records[r]),
                         r < RECORDS - 1 ? KVP_STORE_OK : KVP_STORE_ABSENT);
    kvp_store_close(store);
    end();
}

/* What is dropped while it is written is not there after a start, however the two ended. */
TEST(test_what_is_dropped_while_it_is_written)
{
    record_make(records, 0, 0, 0);
    make_sim(1);
    kvp_store *store = open_store();
    assert_int_equal(kvp_store_put(store, &records[0].identity, &records[0].block, 1), KVP_OK);
    assert_int_equal(kvp_store_drop(store, &records[0].key, 1, 2), KVP_OK);
    for (uint32_t n_ended = 0, n; n_ended < 2; n_ended += n) {
        kvp_store_done done[2];
        assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
        assert_int_equal(kvp_store_poll(store, done, 2, &n), KVP_OK);
    }
    assert_int_equal(record_get(store, &records[0]), KVP_STORE_ABSENT);
    sim_disk_stop_after(sim, 0);
    kvp_store_close(store);
    sim_disk_kill(sim);
    store = open_store();
    assert_int_equal(record_get(store, &records[0]), KVP_STORE_ABSENT);
    kvp_store_close(store);
    end();
}

TEST_MAIN(NULL, NULL)
