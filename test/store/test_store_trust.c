/* Places that are full, cut, read-only, failing, or of another version: each is a miss or a refusal
 * with a sentence, and the rest goes on. By a layer between the store and a disk in memory, which
 * always runs; and on the real disk, where the system lets us. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "sim_disk.h"
#include "store/file/file.h"
#include "store_records.h"

enum { RECORDS = 32, SLOT = 8192 };

/* ---------------------------------------------------------------------------- the layer between */

static struct sim_disk *sim;
static struct kvpi_disk below;
static struct kvpi_disk disk;
static struct kvpi_backend on_sim;

static struct {
    uint64_t slot; /* of slab 0: reading and writing it gives EIO; UINT64_MAX: none */
    uint64_t room; /* bytes that allot gives before ENOSPC */
    int is_read_only;
} fault;

static int touches(uint64_t offset, int file)
{
    uint64_t bytes = 0;
    return fault.slot != UINT64_MAX && below.size(below.context, file, &bytes) == 0 &&
           bytes % SLOT == 0 && bytes > 0 && offset / SLOT == fault.slot;
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

static int layer_allot(void *context, int file, uint64_t bytes)
{
    if (bytes > fault.room)
        return ENOSPC;
    fault.room -= bytes;
    return below.allot(context, file, bytes);
}

static int layer_open(void *context, const char *path, unsigned flags, int *out_file)
{
    if (fault.is_read_only && flags & (KVPI_DISK_WRITE | KVPI_DISK_CREATE | KVPI_DISK_EMPTY))
        return EROFS;
    return below.open(context, path, flags, out_file);
}

static int layer_make_directory(void *context, const char *path)
{
    const int error = below.make_directory(context, path);
    return fault.is_read_only && !error ? 0 : error;
}

static kvp_status open_on_layer(const struct kvpi_backend_config *config, void **out_self,
                                char *out_why, size_t why_bytes)
{
    const struct kvpi_engine_config engine = {.choice = KVPI_ENGINE_THREADS};
    return kvpi_file_open(config, &disk, &engine, out_self, out_why, why_bytes);
}

static void begin(void)
{
    memset(&fault, 0, sizeof fault);
    fault.slot = fault.room = UINT64_MAX;
    sim = sim_disk_create(1);
    below = disk = sim_disk_interface(sim);
    disk.read = layer_read;
    disk.write = layer_write;
    disk.allot = layer_allot;
    disk.open = layer_open;
    disk.make_directory = layer_make_directory;
    on_sim = kvpi_file_backend;
    on_sim.open = open_on_layer;
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
    return kvpi_store_open(&config, path ? NULL : &on_sim, out_store, why, 300);
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

static kvp_store_stats stats_of(const kvp_store *store)
{
    kvp_store_stats stats;
    assert_int_equal(kvp_store_stats_get(store, &stats), KVP_OK);
    return stats;
}

static void end(kvp_store *store)
{
    kvp_store_close(store);
    sim_disk_destroy(sim);
}

/* --------------------------------------------------------------------------------- a bad place */

/* 16 slots, two a slab: slot 0 of a slab fails. */
static void test_a_slot_that_cannot_be_written_is_retired(void **state)
{
    (void)state;
    begin();
    kvp_store *store = open_store(NULL, 16);
    fault.slot = 0;
    assert_int_equal(put(store, 0), KVP_STORE_FAILED);
    assert_int_equal(stats_of(store).retired, 1);
    assert_int_equal(put(store, 0), KVP_STORE_OK); /* the next slot */
    assert_int_equal(get(store, 0), KVP_STORE_OK);
    fault.slot = UINT64_MAX;
    for (unsigned r = 1; r < RECORDS; r++)
        assert_int_equal(put(store, r), KVP_STORE_OK);
    const kvp_store_stats stats = stats_of(store);
    assert_int_equal(stats.records, 15);
    assert_int_equal(stats.retired, 1);
    kvp_store_close(store);
    store = open_store(NULL, 16); /* tried again */
    assert_int_equal(stats_of(store).retired, 0);
    for (unsigned r = 0; r < RECORDS; r++)
        put(store, r);
    assert_int_equal(stats_of(store).records, 16);
    end(store);
}

static void test_a_slot_that_cannot_be_read_is_retired(void **state)
{
    (void)state;
    begin();
    kvp_store *store = open_store(NULL, 16);
    for (unsigned r = 0; r < 2; r++)
        assert_int_equal(put(store, r), KVP_STORE_OK);
    fault.slot = 0;
    assert_int_equal(get(store, 0), KVP_STORE_FAILED);
    assert_int_equal(get(store, 0), KVP_STORE_ABSENT);
    assert_int_equal(get(store, 1), KVP_STORE_OK);
    const kvp_store_stats stats = stats_of(store);
    assert_int_equal(stats.retired, 1);
    assert_int_equal(stats.failed, 1);
    assert_int_equal(stats.dropped, 1);
    assert_int_equal(stats.away_ns, 0);
    assert_int_equal(put(store, 0), KVP_STORE_FAILED); /* the first slot of the next slab */
    assert_int_equal(put(store, 0), KVP_STORE_OK);
    assert_int_equal(get(store, 0), KVP_STORE_OK);
    end(store);
}

/* A disk that is gone for a while: an eighth of the slots at most is not used afterwards. */
static void test_not_every_slot_is_retired(void **state)
{
    (void)state;
    begin();
    kvp_store *store = open_store(NULL, 16);
    fault.slot = 0;
    for (unsigned round = 0; round < 3; round++)
        for (unsigned r = 0; r < RECORDS; r++)
            put(store, r);
    assert_int_equal(stats_of(store).retired, 2);
    end(store);
}

/* ---------------------------------------------------------------------------------- a full disk */

/* Room for two slabs of two slots: the store keeps to it, and evicts for what comes. */
static void test_a_full_disk_evicts(void **state)
{
    (void)state;
    begin();
    kvp_store *store = open_store(NULL, 16);
    fault.room = 4 * SLOT;
    for (unsigned r = 0; r < RECORDS; r++)
        assert_int_equal(put(store, r), KVP_STORE_OK);
    assert_int_equal(stats_of(store).records, 4);
    assert_int_equal(stats_of(store).evicted, RECORDS - 4);
    for (unsigned r = 0; r < RECORDS; r++)
        assert_int_equal(get(store, r), r < RECORDS - 4 ? KVP_STORE_ABSENT : KVP_STORE_OK);
    fault.room = UINT64_MAX; /* somebody made room */
    for (unsigned r = 0; r < RECORDS; r++)
        put(store, r);
    assert_int_equal(stats_of(store).records, 16);
    end(store);
}

static void test_a_disk_that_is_full_from_the_start(void **state)
{
    (void)state;
    begin();
    fault.room = 0;
    kvp_store *store = open_store(NULL, 16);
    assert_int_equal(put(store, 0), KVP_STORE_NO_ROOM);
    assert_int_equal(get(store, 0), KVP_STORE_ABSENT);
    assert_int_equal(stats_of(store).away_ns, 0);
    end(store);
}

/* A place to mount something: NULL, and a sentence, where it is not allowed. */
static char mounted[64];

static const char *mount_tmpfs(const char *options)
{
    snprintf(mounted, sizeof mounted, "store_trust_XXXXXX");
    assert_non_null(mkdtemp(mounted));
    if (mount("none", mounted, "tmpfs", 0, options) == 0)
        return mounted;
    print_message("skipped: tmpfs cannot be mounted here: %s\n", strerror(errno));
    rmdir(mounted);
    return NULL;
}

static void unmount(void)
{
    assert_int_equal(umount(mounted), 0);
    rmdir(mounted);
}

enum { ROUNDS = 4 };

/* Puts of all records, many times over: each is stored, or finds no room; none fails, and what was
 * stored is served. Gives how many were. */
static unsigned fill_up(kvp_store *store)
{
    unsigned n_stored = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned r = 0; r < RECORDS; r++) {
            const uint32_t result = put(store, r);
            n_stored += result == KVP_STORE_OK;
            assert_true(result == KVP_STORE_OK || result == KVP_STORE_KNOWN ||
                        result == KVP_STORE_NO_ROOM);
            assert_int_equal(get(store, r),
                             result == KVP_STORE_NO_ROOM ? KVP_STORE_ABSENT : KVP_STORE_OK);
        }
    }
    assert_int_equal(stats_of(store).failed, 0);
    assert_int_equal(stats_of(store).away_ns, 0);
    return n_stored;
}

/* All at a time, while a sync keeps the log where it is. */
static void put_all(kvp_store *store)
{
    kvp_store_done done[RECORDS];
    assert_int_equal(kvp_store_sync(store, RECORDS), KVP_OK);
    for (unsigned r = 0; r < RECORDS; r++)
        assert_int_equal(kvp_store_put(store, &records[r].identity, &records[r].block, r), KVP_OK);
    for (uint32_t n_ended = 0, n; n_ended <= RECORDS; n_ended += n) {
        assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
        assert_int_equal(kvp_store_poll(store, done, RECORDS, &n), KVP_OK);
        for (uint32_t i = 0; i < n; i++)
            assert_int_not_equal(done[i].result, KVP_STORE_FAILED);
    }
}

static unsigned count_there(kvp_store *store)
{
    unsigned n = 0;
    for (unsigned r = 0; r < RECORDS; r++)
        n += get(store, r) == KVP_STORE_OK;
    return n;
}

/* The log shares the disk with the slabs: however much room there is, and wherever it ends. */
static void test_a_disk_of_any_size_can_be_full(void **state)
{
    (void)state;
    unsigned n_sizes = 0;
    unsigned n_full = 0;
    for (uint64_t room = 0; room < 17 * (SLOT + 256); room += room % 3 ? 401 : 1207) {
        begin();
        sim_disk_limit(sim, room);
        kvp_store *store = NULL;
        char why[300];
        if (try_open(NULL, 16, &store, why) != KVP_OK) {
            assert_true(room < 300); /* not even a log */
            sim_disk_destroy(sim);
            continue;
        }
        const unsigned n_stored = fill_up(store);
        const uint64_t n_records = stats_of(store).records;
        assert_true(sim_disk_bytes(sim) <= room);
        /* Two slots a slab: what is there serves puts for ever, by evicting. */
        assert_true(n_records % 2 == 0 && n_records <= 16 &&
                    n_stored >= (ROUNDS - 1) * RECORDS * (n_records > 0));
        assert_true(n_records >= 16 || room < (n_records + 3) * (SLOT + 256) + 1000);
        n_sizes++;
        n_full += n_records < 16;
        sim_disk_stop_after(sim, 0);
        kvp_store_close(store);
        sim_disk_kill(sim);
        store = open_store(NULL, 16);
        assert_int_equal(count_there(store), n_records);
        fill_up(store);
        assert_int_equal(stats_of(store).records, n_records);
        sim_disk_limit(sim, UINT64_MAX); /* somebody made room */
        for (unsigned r = 0; r < 4 * RECORDS; r++)
            put(store, r % RECORDS);
        assert_int_equal(stats_of(store).records, 16);
        kvp_store_close(store);
        sim_disk_limit(sim, room); /* and closing leaves all that was there */
        store = open_store(NULL, 16);
        assert_int_equal(count_there(store), 16);
        end(store);
    }
    assert_true(n_sizes > 100 && n_full > 80 && n_full < n_sizes);
}

/* Something else fills the disk while the store is used: what it has set aside is enough. */
static void test_a_disk_that_others_fill(void **state)
{
    (void)state;
    begin();
    kvp_store *store = open_store(NULL, 16);
    for (unsigned r = 0; r < 7; r++)
        assert_int_equal(put(store, r), KVP_STORE_OK);
    sim_disk_limit(sim, sim_disk_bytes(sim));
    assert_true(fill_up(store) >= (ROUNDS - 1) * RECORDS);
    assert_int_equal(stats_of(store).records, 8);
    for (unsigned i = 0; i < 100; i++)
        put_all(store);
    assert_int_equal(stats_of(store).records, 8);
    sim_disk_limit(sim, 0); /* nothing that is not there already */
    for (unsigned r = 0; r < 4 * RECORDS; r++) {
        const uint32_t result = put(store, r % RECORDS);
        assert_true(result != KVP_STORE_FAILED);
        get(store, r % RECORDS);
    }
    assert_int_equal(stats_of(store).failed, 0);
    assert_int_equal(put(store, 0) == KVP_STORE_NO_ROOM || get(store, 0) == KVP_STORE_OK, 1);
    sim_disk_limit(sim, UINT64_MAX);
    assert_true(fill_up(store) > 0);
    assert_int_equal(stats_of(store).records, 16);
    end(store);
}

/* Where no room can be set aside, a log that finds none fails puts; reads go on. */
static void test_a_disk_that_sets_no_room_aside(void **state)
{
    (void)state;
    begin();
    sim_disk_refuse_reserve(sim);
    kvp_store *store = open_store(NULL, 16);
    for (unsigned r = 0; r < 7; r++)
        assert_int_equal(put(store, r), KVP_STORE_OK);
    sim_disk_limit(sim, sim_disk_bytes(sim));
    assert_int_equal(put(store, 7), KVP_STORE_FAILED);
    assert_int_equal(count_there(store), 7);
    sim_disk_limit(sim, UINT64_MAX);
    assert_int_equal(put(store, 7), KVP_STORE_OK);
    end(store);
}

static void fill_mounted(uint64_t bytes)
{
    kvp_store *store = open_store(mounted, 64); /* slabs of 64 KiB */
    const unsigned n_stored = fill_up(store);
    const uint64_t n_records = stats_of(store).records;
    assert_true(n_records % 8 == 0 && n_records >= 8 && n_records * SLOT <= bytes);
    assert_true(n_stored >= (n_records < RECORDS ? (ROUNDS - 1) * RECORDS : RECORDS));
    kvp_store_close(store);
    store = open_store(mounted, 64);
    assert_int_equal(count_there(store), n_records < RECORDS ? n_records : RECORDS);
    kvp_store_close(store);
}

static void test_a_real_disk_that_is_full(void **state)
{
    (void)state;
    for (unsigned kib = 96; kib < 300; kib += 20) {
        char options[40];
        snprintf(options, sizeof options, "size=%uk,mode=0700", kib);
        if (!mount_tmpfs(options))
            skip();
        fill_mounted(kib * UINT64_C(1024));
        unmount();
    }
}

/* ext4 on a file: an extent for each write that is not reserved would take room, too. */
static void test_a_real_disk_with_extents_that_is_full(void **state)
{
    (void)state;
    char command[400];
    snprintf(mounted, sizeof mounted, "store_trust_XXXXXX");
    assert_non_null(mkdtemp(mounted));
    snprintf(command, sizeof command,
             "{ truncate -s 2M %s.image && mkfs.ext4 -q -O ^has_journal -m 0 %s.image && "
             "mount -o loop %s.image %s; } >/dev/null 2>&1",
             mounted, mounted, mounted, mounted);
    const int is_mounted = system(command) == 0;
    char other[100];
    snprintf(other, sizeof other, "%s/other", mounted);
    for (unsigned kib = 0; is_mounted && kib < 200; kib += 50) {
        snprintf(command, sizeof command,
                 "rm -rf %s/0*; f=$(df -k --output=avail %s | tail -1); "
                 "fallocate -l $((f - 100 - %u))k %s",
                 mounted, mounted, kib, other);
        assert_int_equal(system(command), 0);
        fill_mounted((100 + kib) * UINT64_C(1024));
        assert_int_equal(unlink(other), 0);
    }
    if (is_mounted)
        assert_int_equal(umount(mounted), 0);
    snprintf(command, sizeof command, "rm -rf %s %s.image", mounted, mounted);
    assert_int_equal(system(command), 0);
    if (!is_mounted) {
        print_message("skipped: no loop device with ext4 can be mounted here\n");
        skip();
    }
}

/* ------------------------------------------------------------------------------- read-only, cut */

static void test_a_place_that_is_read_only_is_refused(void **state)
{
    (void)state;
    begin();
    kvp_store *store = open_store(NULL, 16);
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
    end(store);
}

static void count_record(void *context, const kvp_store_record *record)
{
    *(unsigned *)context += record->found == KVP_FOUND_GOOD;
}

/* No store opens there, and operators can look all the same. */
static void test_a_real_place_that_is_read_only(void **state)
{
    (void)state;
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
static void test_a_slab_that_is_cut(void **state)
{
    (void)state;
    char directory[64];
    char slab[160];
    char command[200];
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
static void test_another_version_is_left_alone(void **state)
{
    (void)state;
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
    /* What is mounted goes with this process, whatever becomes of it. */
    if (unshare(CLONE_NEWNS) == 0)
        (void)mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slot_that_cannot_be_written_is_retired),
        cmocka_unit_test(test_a_slot_that_cannot_be_read_is_retired),
        cmocka_unit_test(test_not_every_slot_is_retired),
        cmocka_unit_test(test_a_full_disk_evicts),
        cmocka_unit_test(test_a_disk_that_is_full_from_the_start),
        cmocka_unit_test(test_a_disk_of_any_size_can_be_full),
        cmocka_unit_test(test_a_disk_that_others_fill),
        cmocka_unit_test(test_a_disk_that_sets_no_room_aside),
        cmocka_unit_test(test_a_real_disk_that_is_full),
        cmocka_unit_test(test_a_real_disk_with_extents_that_is_full),
        cmocka_unit_test(test_a_place_that_is_read_only_is_refused),
        cmocka_unit_test(test_a_real_place_that_is_read_only),
        cmocka_unit_test(test_a_slab_that_is_cut),
        cmocka_unit_test(test_another_version_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
