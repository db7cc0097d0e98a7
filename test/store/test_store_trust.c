/* Places that are cut, read-only, failing, or of another version: each is a miss or a refusal
 * with a sentence, and the rest goes on. By a layer between the store and a disk in memory, which
 * always runs; and on the real disk, where the system lets us. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mocka.h"
#include "on_sim.h"
#include "store_records.h"
#include "tmpfs.h"

enum { RECORDS = 32, SLOT = 8192 };

#define SECOND UINT64_C(1000000000)

/* ---------------------------------------------------------------------------- the layer between */

static struct {
    uint64_t slot; /* of slab 0: reading and writing it gives EIO; UINT64_MAX: none */
    int is_gone;   /* all slots do */
    int is_read_only;
    int has_no_slabs; /* they cannot be opened */
} fault;

static int touches(uint64_t offset, int file)
{
    uint64_t bytes = 0;
    return (fault.is_gone || fault.slot != UINT64_MAX) &&
           below.size(below.context, file, &bytes) == 0 && bytes % SLOT == 0 && bytes > 0 &&
           (fault.is_gone || offset / SLOT == fault.slot);
}

static int layer_read(void *context, int file, const struct kvpi_span *spans, uint32_t n_spans,
                      uint64_t offset)
{
    return touches(offset, file) ? EIO : below.read(context, file, spans, n_spans, offset);
}

static int layer_write(void *context, int file, const struct kvpi_span *spans, uint32_t n_spans,
                       uint64_t offset)
{
    return touches(offset, file) ? EIO : below.write(context, file, spans, n_spans, offset);
}

static int layer_open(void *context, const char *path, unsigned flags, int *out_file)
{
    if (fault.is_read_only && flags & (KVPI_DISK_WRITE | KVPI_DISK_CREATE | KVPI_DISK_EMPTY))
        return EROFS;
    if (fault.has_no_slabs && strstr(path, "/slab-"))
        return EMFILE;
    return below.open(context, path, flags, out_file);
}

static int layer_make_directory(void *context, const char *path)
{
    const int error = below.make_directory(context, path);
    return fault.is_read_only && !error ? 0 : error;
}

static void begin(void)
{
    memset(&fault, 0, sizeof fault);
    fault.slot = UINT64_MAX;
    now = 1000 * SECOND;
    make_sim(1);
    disk.read = layer_read;
    disk.write = layer_write;
    disk.open = layer_open;
    disk.make_directory = layer_make_directory;
}

/* ---------------------------------------------------------------------------------- the records */

static struct record records[RECORDS];

static void make_records(void)
{
    for (unsigned r = 0; r < RECORDS; r++)
        record_make(records, r, 0, 0);
}

/* path NULL: on the layer. */
static kvp_status try_open(const char *path, uint64_t slots, kvp_store **out_store, char why[300])
{
    char url[200];
    snprintf(url, sizeof url, "file:%s?size=%llu", path ? path : "/kv",
             (unsigned long long)(slots * (SLOT + 256)));
    kvp_store_config config = record_config(url);
    config.threads = path ? 1 : 0;
    config.now = path ? NULL : test_clock;
    return kvpi_store_open(&config, path ? NULL : on_sim(), out_store, why, 300);
}

static kvp_store *open_store(const char *path, uint64_t slots)
{
    kvp_store *store = NULL;
    char why[300];
    if (try_open(path, slots, &store, why) != KVP_OK)
        fail_msg("%s", why);
    return store;
}

static uint32_t put(kvp_store *store, unsigned r)
{
    return record_put(store, &records[r]);
}

static uint32_t get(kvp_store *store, unsigned r)
{
    return record_get(store, &records[r]);
}

/* --------------------------------------------------------------------------------- a bad place */

/* 16 slots, two a slab: slot 0 of a slab fails. */
TEST(test_a_slot_that_cannot_be_written_is_retired)
{
    begin();
    scoped_sim_store *store = open_store(NULL, 16);
    fault.slot = 0;
    assert_int_equal(put(store, 0), KVP_STORE_FAILED);
    assert_int_equal(stats_of(store).retired, 1);
    assert_int_equal(put(store, 0), KVP_STORE_OK); /* the next slot */
    assert_int_equal(get(store, 0), KVP_STORE_OK);
    fault.slot = UINT64_MAX;
    for (unsigned r = 1; r < RECORDS; r++)
        assert_int_equal(put(store, r), KVP_STORE_OK);
    const kvp_store_stats stats = stats_of(store);
    assert_fields(stats, records, 15, retired, 1);
    kvp_store_close(store);
    store = open_store(NULL, 16); /* tried again */
    assert_int_equal(stats_of(store).retired, 0);
    for (unsigned r = 0; r < RECORDS; r++)
        put(store, r);
    assert_int_equal(stats_of(store).records, 16);
}

TEST(test_a_slot_that_cannot_be_read_is_retired)
{
    begin();
    scoped_sim_store *store = open_store(NULL, 16);
    for (unsigned r = 0; r < 2; r++)
        assert_int_equal(put(store, r), KVP_STORE_OK);
    fault.slot = 0;
    assert_int_equal(get(store, 0), KVP_STORE_FAILED);
    assert_int_equal(get(store, 0), KVP_STORE_ABSENT);
    assert_int_equal(get(store, 1), KVP_STORE_OK);
    const kvp_store_stats stats = stats_of(store);
    assert_fields(stats, retired, 1, failed, 1, dropped, 1, away_ns, 0);
    assert_int_equal(put(store, 0), KVP_STORE_FAILED); /* the first slot of the next slab */
    assert_int_equal(put(store, 0), KVP_STORE_OK);
    assert_int_equal(get(store, 0), KVP_STORE_OK);
}

/* A disk that is gone for a while: an eighth of the slots at most is not used afterwards. */
TEST(test_not_every_slot_is_retired)
{
    begin();
    scoped_sim_store *store = open_store(NULL, 16);
    fault.slot = 0;
    for (unsigned round = 0; round < 3; round++)
        for (unsigned r = 0; r < RECORDS; r++)
            put(store, r);
    assert_int_equal(stats_of(store).retired, 2);
}

static uint32_t have(kvp_store *store, unsigned r, uint64_t *out_bits)
{
    *out_bits = ~UINT64_C(0);
    assert_int_equal(kvp_store_have(store, &records[r].key, 1, out_bits, 0), KVP_OK);
    return input_result(store);
}

/* With the fourth failure in a row the store is left alone: for 0.1 s, then twice as long after
 * each failure, up to 60 s; one success, and all is as before. */
TEST(test_a_disk_that_is_gone_is_left_alone)
{
    uint64_t pause = SECOND / 10;
    uint64_t bits;
    begin();
    scoped_sim_store *store = open_store(NULL, 16);
    assert_int_equal(put(store, 0), KVP_STORE_OK);
    fault.is_gone = 1;
    for (unsigned n = 1; n < 4; n++) {
        assert_int_equal(put(store, n), KVP_STORE_FAILED);
        assert_int_equal(stats_of(store).away_ns, 0);
    }
    for (unsigned i = 0; i < 12; i++) {
        assert_int_equal(put(store, 1), KVP_STORE_FAILED);
        assert_int_equal(stats_of(store).away_ns, pause);
        assert_int_equal(put(store, 1), KVP_STORE_AWAY);
        assert_int_equal(have(store, 0, &bits), KVP_STORE_AWAY);
        assert_int_equal(bits, 0);
        now += pause - 1;
        assert_int_equal(get(store, 0), KVP_STORE_AWAY);
        assert_int_equal(stats_of(store).away_ns, 1);
        now += 1;
        pause = pause * 2 < 60 * SECOND ? pause * 2 : 60 * SECOND;
    }
    assert_true(pause == 60 * SECOND);
    assert_fields(stats_of(store), failed, 3 + 12, away, 3 * 12, away_ns, 0);
    fault.is_gone = 0;
    assert_int_equal(get(store, 0), KVP_STORE_OK);
    assert_int_equal(have(store, 0, &bits), KVP_STORE_OK);
    assert_int_equal(bits, 1);
    fault.is_gone = 1;
    for (unsigned n = 0; n < 4; n++)
        assert_int_equal(put(store, 1), KVP_STORE_FAILED);
    assert_int_equal(stats_of(store).away_ns, SECOND / 10);
    fault.is_gone = 0;
}

/* A start that cannot open what is there says so, and changes nothing. */
TEST(test_slabs_that_cannot_be_opened_now)
{
    begin();
    kvp_store *store = open_store(NULL, 16);
    char why[300], expected[300];
    assert_int_equal(put(store, 0), KVP_STORE_OK);
    kvp_store_close(store);
    fault.has_no_slabs = 1;
    assert_int_equal(try_open(NULL, 16, &store, why), KVP_E_IO);
    snprintf(expected, sizeof expected, "the slabs in \"/kv/01080f161d242b32/w0\": %s",
             strerror(EMFILE));
    assert_string_equal(why, expected);
    fault.has_no_slabs = 0;
    store = open_store(NULL, 16);
    assert_int_equal(get(store, 0), KVP_STORE_OK);
    end_sim(store);
}

/* ------------------------------------------------------------------------------- read-only, cut */

TEST(test_a_place_that_is_read_only_is_refused)
{
    begin();
    scoped_sim_store *store = open_store(NULL, 16);
    assert_int_equal(put(store, 0), KVP_STORE_OK);
    kvp_store_close(store);
    fault.is_read_only = 1;
    store = NULL;
    char why[300] = "";
    assert_int_equal(try_open(NULL, 16, &store, why), KVP_E_IO);
    assert_null(store);
    assert_non_null(strstr(why, "/kv"));
    assert_non_null(strstr(why, strerror(EROFS)));
    fault.is_read_only = 0;
    store = open_store(NULL, 16);
    assert_int_equal(get(store, 0), KVP_STORE_OK);
}

static void count_record(void *context, const kvp_store_record *record)
{
    *(unsigned *)context += record->found == KVP_FOUND_GOOD;
}

/* No store opens there, and operators can look all the same. */
TEST(test_a_real_place_that_is_read_only)
{
    const char *path = mount_tmpfs("size=4m,mode=0700");
    if (!path)
        skip();
    kvp_store *store = open_store(path, 64);
    for (unsigned r = 0; r < 5; r++)
        assert_int_equal(put(store, r), KVP_STORE_OK);
    kvp_store_close(store);
    assert_int_equal(mount("none", path, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    char why[300] = "";
    store = NULL;
    assert_int_equal(try_open(path, 64, &store, why), KVP_E_IO);
    assert_non_null(strstr(why, strerror(EROFS)));
    unsigned n_good = 0;
    kvp_store_scan_options options;
    kvp_store_scan_options_init(&options);
    options.depth = KVP_SCAN_PAYLOADS;
    options.record = count_record;
    options.context = &n_good;
    char url[100];
    snprintf(url, sizeof url, "file:%s", path);
    assert_int_equal(kvp_store_scan(url, &options, why, sizeof why), KVP_OK);
    assert_int_equal(n_good, 5);
    unmount();
}

/* The second half of a slab is gone, as after a copy that was cut short. */
TEST(test_a_slab_that_is_cut)
{
    char directory[64], slab[160], command[200];
    snprintf(directory, sizeof directory, "store_trust_XXXXXX");
    assert_non_null(mkdtemp(directory));
    kvp_store *store = open_store(directory, 16);
    for (unsigned r = 0; r < 4; r++)
        assert_int_equal(put(store, r), KVP_STORE_OK);
    kvp_store_close(store);
    snprintf(slab, sizeof slab, "%s/01080f161d242b32/w0/slab-000000", directory);
    assert_int_equal(truncate(slab, SLOT), 0);
    store = open_store(directory, 16);
    assert_int_equal(get(store, 0), KVP_STORE_OK);
    assert_int_equal(get(store, 1), KVP_STORE_BAD);
    assert_int_equal(get(store, 2), KVP_STORE_OK);
    assert_int_equal(stats_of(store).bad[KVP_BAD_DAMAGED], 1);
    assert_int_equal(put(store, 1), KVP_STORE_OK);
    assert_int_equal(get(store, 1), KVP_STORE_OK);
    kvp_store_close(store);
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    assert_int_equal(system(command), 0);
}

/* ---------------------------------------------------------------------- other versions, writers */

/* A directory of another version is left as it is, and the next one is taken. */
TEST(test_another_version_is_left_alone)
{
    begin();
    kvp_store *store = open_store(NULL, 64);
    assert_int_equal(put(store, 0), KVP_STORE_OK);
    kvp_store_close(store);
    static const char log[] = "/kv/01080f161d242b32/w0/log";
    const uint8_t version = 2;
    assert_true(sim_disk_poke(sim, log, 8, &version, 1));
    uint8_t before[200];
    assert_true(sim_disk_peek(sim, log, 0, before, 64 + 52));
    store = open_store(NULL, 64);
    assert_int_equal(get(store, 0), KVP_STORE_ABSENT);
    assert_int_equal(put(store, 1), KVP_STORE_OK);
    kvp_store_close(store);
    uint8_t after[200];
    assert_true(sim_disk_peek(sim, log, 0, after, 64 + 52));
    assert_memory_equal(before, after, 64 + 52);
    assert_true(sim_disk_peek(sim, "/kv/01080f161d242b32/w1/log", 0, after, 64));
    sim_disk_destroy(sim);
}

int main(void)
{
    make_records();
    own_mounts();
    return run_all_tests(NULL, NULL);
}
