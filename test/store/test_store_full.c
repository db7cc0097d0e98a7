/* A disk that fills up, is freed and fills again: the store takes what room there is, serves what
 * it has, asks for more seldom, says so, and goes on when there is room. On a disk in memory, and
 * on real ones, where the system lets us. */
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

enum { RECORDS = 32, SLOT = 8192, SHARE = SLOT + 256 };

#define MILLISECOND UINT64_C(1000000)
#define SECOND      (1000 * MILLISECOND)

static void begin(uint64_t room)
{
    now = SECOND;
    make_sim(1);
    sim_disk_limit(sim, room);
}

static struct record records[RECORDS];

static void make_records(void)
{
    for (unsigned r = 0; r < RECORDS; r++)
        record_make(records, r, 0, 0);
}

/* path NULL: in memory. */
static kvp_status try_open(const char *path, uint64_t slots, kvp_store **out_store)
{
    char url[200];
    snprintf(url, sizeof url, "file:%s?size=%llu", path ? path : "/kv",
             (unsigned long long)(slots * SHARE));
    kvp_store_config config = record_config(url);
    config.threads = path ? 1 : 0;
    config.now = path ? NULL : test_clock;
    return kvpi_store_open(&config, path ? NULL : on_sim(), out_store, NULL, 0);
}

static kvp_store *open_store(const char *path, uint64_t slots)
{
    kvp_store *store = NULL;
    assert_int_equal(try_open(path, slots, &store), KVP_OK);
    return store;
}

static uint32_t put(kvp_store *store, unsigned r)
{
    now += MILLISECOND;
    return record_put(store, &records[r]);
}

static uint32_t get(kvp_store *store, unsigned r)
{
    return record_get(store, &records[r]);
}

static void expect_said(const kvp_store *store, const char *part)
{
    char text[300];
    assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
    const char *found = strstr(text, "; the disk ");
    if (part == NULL ? found != NULL : found == NULL || strcmp(found + 2, part) != 0)
        fail_msg("%s", text);
}

/* Longer than the store waits at most before it tries again. */
static void pass_time(void)
{
    now += 100 * SECOND;
}

static unsigned count_there(kvp_store *store)
{
    unsigned n = 0;
    for (unsigned r = 0; r < RECORDS; r++)
        n += get(store, r) == KVP_STORE_OK;
    return n;
}

static void put_all_once(kvp_store *store, uint32_t expected)
{
    for (unsigned r = 0; r < RECORDS; r++) {
        const uint32_t result = put(store, r);
        if (result != expected && result != KVP_STORE_KNOWN)
            fail_msg("put of record %u: %u", r, result);
    }
}

/* ------------------------------------------------------------------------------- how much of it */

/* Room for less than a slab, which has eight slots here: the store has what there is room for. */
TEST(test_a_disk_smaller_than_a_slab_stores)
{
    for (uint64_t slots = 0; slots < 30; slots++) {
        for (int tells = 0; tells < 2; tells++) {
            begin(slots * SHARE + 1500);
            if (!tells)
                sim_disk_tell_no_room(sim);
            scoped_sim_store *store = open_store(NULL, 64);
            uint32_t expected = KVP_STORE_NO_ROOM;
            for (unsigned i = 0; i < 8; i++) {
                (void)put(store, 0);
                expected = stats_of(store).records > 0 ? KVP_STORE_OK : KVP_STORE_NO_ROOM;
                put_all_once(store, expected);
                pass_time();
            }
            /* Who has to try sets too much aside for the log at first. */
            const uint64_t n = stats_of(store).records;
            assert_true(n == slots || (!tells && n + 1 == slots));
            assert_int_equal(count_there(store), n);
            sim_disk_stop_after(sim, 0); /* killed */
            kvp_store_close(store);
            sim_disk_kill(sim);
            store = open_store(NULL, 64);
            assert_int_equal(count_there(store), n);
            put_all_once(store, expected);
            assert_int_equal(stats_of(store).records, n);
        }
    }
}

/* The last slab is short; another writer reads all that is in it, also what is added later. */
TEST(test_a_short_slab_is_read_by_others)
{
    begin(11 * SHARE + 1500);
    scoped_sim_store *store = open_store(NULL, 64);
    for (unsigned r = 0; r < 11; r++)
        assert_int_equal(put(store, r), KVP_STORE_OK);
    sim_disk_limit(sim, UINT64_MAX);
    scoped_store *other = open_store(NULL, 64);
    assert_int_equal(count_there(other), 11);
    pass_time();
    for (unsigned r = 11; r < 14; r++)
        assert_int_equal(put(store, r), KVP_STORE_OK);
    pass_time();
    assert_int_equal(count_there(other), 14);
    assert_int_equal(stats_of(other).failed, 0);
}

/* ------------------------------------------------------------------------------------ how often */

static struct {
    uint64_t allots;
    uint64_t rooms;
    uint64_t lists;
} asked;

static struct kvpi_disk below;

static int count_allot(void *context, int file, uint64_t bytes)
{
    asked.allots++;
    return below.allot(context, file, bytes);
}

static uint64_t count_room(void *context, const char *path)
{
    asked.rooms++;
    return below.room(context, path);
}

static int count_list(void *context, const char *path, kvpi_disk_entry_fn entry,
                      void *entry_context)
{
    asked.lists++;
    return below.list(context, path, entry, entry_context);
}

enum { PUTS = 4000, SLOTS = 16 };

/* Operations of the disk for PUTS puts, each with a get, in a store that can have no more slots. */
static uint64_t count_operations(uint64_t size_slots, uint64_t room, int tells)
{
    begin(room);
    below = disk;
    disk.allot = count_allot;
    disk.room = count_room;
    if (!tells)
        sim_disk_tell_no_room(sim);
    kvp_store *store = open_store(NULL, size_slots);
    for (unsigned r = 0; r < RECORDS; r++)
        assert_int_equal(put(store, r), KVP_STORE_OK);
    assert_int_equal(stats_of(store).records, SLOTS);
    memset(&asked, 0, sizeof asked);
    const uint64_t before = sim_disk_count(sim);
    for (unsigned i = 0; i < PUTS; i++) {
        assert_int_equal(put(store, i % RECORDS), KVP_STORE_OK);
        assert_int_equal(get(store, i % RECORDS), KVP_STORE_OK);
    }
    const uint64_t n = sim_disk_count(sim) - before;
    end_sim(store);
    return n;
}

/* Four seconds of puts, a millisecond each: the disk is asked once a second, and tried after one
 * second, and after two more. Else a put costs what it costs at the store's own limit. */
TEST(test_a_full_disk_is_asked_seldom)
{
    const uint64_t at_limit = count_operations(SLOTS, UINT64_MAX, 1);
    assert_int_equal(asked.rooms + asked.allots, 0);
    const uint64_t room = SLOTS * SHARE + 1500;
    uint64_t n = count_operations(64, room, 1);
    assert_int_equal(asked.allots, 0);
    assert_true(asked.rooms >= 3 && asked.rooms <= 5);
    assert_true(n <= at_limit + at_limit / 50);
    n = count_operations(64, room, 0);
    assert_true(asked.allots > 0 && asked.allots <= 3 * 4);
    assert_true(asked.rooms >= 2 && asked.rooms <= 3);
    assert_true(n <= at_limit + at_limit / 50);
}

/* No room below `size`, because another writer has it: all directories are looked at, as seldom. */
TEST(test_a_limit_that_others_fill_is_asked_seldom)
{
    begin(UINT64_MAX);
    kvp_store *other = open_store(NULL, 16);
    put_all_once(other, KVP_STORE_OK);
    below = disk;
    disk.list = count_list;
    scoped_sim_store *store = open_store(NULL, 24);
    put_all_once(store, KVP_STORE_OK);
    assert_int_equal(stats_of(store).records, 6); /* in slabs of three slots */
    memset(&asked, 0, sizeof asked);
    for (unsigned i = 0; i < PUTS; i++)
        assert_int_equal(put(store, i % RECORDS), KVP_STORE_OK);
    assert_true(asked.lists > 0 && asked.lists <= 2 * 10); /* two times */
    expect_said(store, NULL);
    kvp_store_close(other);
    pass_time(); /* its directory goes */
    put_all_once(store, KVP_STORE_OK);
    assert_int_equal(stats_of(store).records, 24);
}

/* The log finds no room: what would make some is not tried with each put. */
TEST(test_a_log_without_room_is_patient)
{
    begin(UINT64_MAX);
    scoped_sim_store *store = open_store(NULL, 16);
    put_all_once(store, KVP_STORE_OK);
    sim_disk_limit(sim, 0);
    uint64_t n_refused = 0, before = 0;
    for (unsigned i = 0; i < 4000; i++) {
        const uint32_t result = put(store, i % RECORDS);
        assert_true(result == KVP_STORE_OK || result == KVP_STORE_NO_ROOM ||
                    result == KVP_STORE_KNOWN);
        n_refused += result == KVP_STORE_NO_ROOM;
        if (n_refused == 1 && before == 0)
            before = sim_disk_count(sim);
    }
    assert_true(n_refused > 1000);
    unsigned n_known = 0; /* what is there needs no room */
    for (unsigned r = 0; r < RECORDS; r++)
        if (get(store, r) == KVP_STORE_OK && ++n_known)
            assert_int_equal(put(store, r), KVP_STORE_KNOWN);
    assert_true(n_known > 0);
    assert_true(sim_disk_count(sim) - before < 100);
    sim_disk_limit(sim, UINT64_MAX);
    pass_time();
    put_all_once(store, KVP_STORE_OK);
    assert_int_equal(stats_of(store).failed, 0);
}

/* ---------------------------------------------------------------------- full, freed, full again */

/* Each time it becomes full, and each time it goes on, one line says so. */
TEST(test_what_happened_is_said_in_a_line)
{
    begin(4 * SHARE + 1500);
    scoped_sim_store *store = open_store(NULL, 64);
    for (unsigned r = 0; r < 4; r++)
        assert_int_equal(put(store, r), KVP_STORE_OK);
    expect_said(store, NULL);
    assert_int_equal(put(store, 4), KVP_STORE_OK);
    expect_said(store, "the disk is full, since 0 s: puts evict until it has room again");
    now += 61 * SECOND;
    assert_int_equal(put(store, 5), KVP_STORE_OK);
    expect_said(store, "the disk is full, since 61 s: puts evict until it has room again");
    sim_disk_limit(sim, 7 * SHARE + 1500);
    now += SECOND; /* no longer: it is asked each second */
    assert_int_equal(put(store, 6), KVP_STORE_OK);
    expect_said(store, "the disk was full for 62 s, and has room again");
    assert_int_equal(stats_of(store).records, 5);
    assert_int_equal(put(store, 7), KVP_STORE_OK);
    assert_int_equal(put(store, 8), KVP_STORE_OK);
    now += 5 * SECOND;
    assert_int_equal(put(store, 9), KVP_STORE_OK);
    expect_said(store, "the disk is full, since 0 s: puts evict until it has room again");
    sim_disk_limit(sim, UINT64_MAX);
    now += 9 * SECOND;
    put_all_once(store, KVP_STORE_OK);
    expect_said(store, "the disk was full for 9 s, and has room again");
    assert_fields(stats_of(store), records, RECORDS, failed, 0);
}

/* What is wrong with the disk is not that it is full. */
static int fail_allot(void *context, int file, uint64_t bytes)
{
    (void)context;
    (void)file;
    (void)bytes;
    return EIO;
}

TEST(test_a_disk_that_fails_is_not_called_full)
{
    begin(UINT64_MAX);
    scoped_sim_store *store = open_store(NULL, 64);
    assert_int_equal(put(store, 0), KVP_STORE_OK);
    disk.allot = fail_allot;
    put_all_once(store, KVP_STORE_OK);
    expect_said(store, NULL);
    assert_int_equal(stats_of(store).records, 8);
}

#define SLAB_PATH "/kv/01080f161d242b32/w0/slab-000001"

/* Slab 1 of 4 loses a slot: with room it gets it back, without it is the last one that is used.
 * What is behind the cut is gone, and nothing fails. */
TEST(test_a_slab_that_was_cut)
{
    for (int has_room = 0; has_room < 2; has_room++) {
        begin(UINT64_MAX);
        scoped_sim_store *store = open_store(NULL, 16); /* two slots a slab */
        for (unsigned r = 0; r < 8; r++)
            assert_int_equal(put(store, r), KVP_STORE_OK);
        kvp_store_close(store);
        sim_disk_cut(sim, SLAB_PATH, SLOT);
        sim_disk_limit(sim, has_room ? UINT64_MAX : 0);
        store = open_store(NULL, 16);
        const unsigned n = has_room ? 8 : 3;
        for (unsigned r = 0; r < 8; r++)
            assert_int_equal(get(store, r), r == 3 && has_room ? KVP_STORE_BAD
                                            : r < n            ? KVP_STORE_OK
                                                               : KVP_STORE_ABSENT);
        assert_int_equal(stats_of(store).failed, 0);
        sim_disk_limit(sim, UINT64_MAX);
        pass_time();
        put_all_once(store, KVP_STORE_OK);
        put_all_once(store, KVP_STORE_OK);
        assert_int_equal(stats_of(store).records, 16);
        assert_int_equal(count_there(store), 16);
    }
}

/* The last slab, by a part of a slot: what is whole is there, and the rest is used again. */
TEST(test_a_last_slab_that_was_cut)
{
    for (uint64_t bytes = 0; bytes <= 2 * SLOT; bytes += SLOT / 2) {
        begin(UINT64_MAX);
        scoped_sim_store *store = open_store(NULL, 16);
        for (unsigned r = 0; r < 4; r++)
            assert_int_equal(put(store, r), KVP_STORE_OK);
        kvp_store_close(store);
        sim_disk_cut(sim, SLAB_PATH, bytes);
        store = open_store(NULL, 16);
        assert_int_equal(stats_of(store).records, 2 + bytes / SLOT);
        assert_int_equal(count_there(store), 2 + bytes / SLOT);
        put_all_once(store, KVP_STORE_OK);
        assert_fields(stats_of(store), records, 16, failed, 0);
    }
}

/* The room changes at random, the process is killed or the power lost: what was synced, and was not
 * evicted since, is served. */
TEST(test_nothing_synced_is_lost)
{
    uint64_t n_kept = 0;
    for (unsigned round = 0; round < 200; round++) {
        begin(UINT64_MAX);
        sim_disk_destroy(sim);
        make_sim(round + 1);
        if (round % 3 == 0)
            sim_disk_tell_no_room(sim);
        scoped_sim_store *store = open_store(NULL, 64);
        uint64_t random = round * UINT64_C(0x9E3779B97F4A7C15) + 1;
        uint32_t there = 0;
        for (unsigned i = 0; i < 40; i++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            if (i % 8 == 0)
                sim_disk_limit(sim, (random >> 40) % (40 * SHARE));
            now += (random >> 50) % 4 * SECOND;
            (void)put(store, (unsigned)(random >> 33) % RECORDS);
        }
        assert_int_equal(kvp_store_sync(store, 0), KVP_OK);
        assert_int_equal(input_result(store), KVP_STORE_OK);
        for (unsigned r = 0; r < RECORDS; r++)
            there |= (uint32_t)(get(store, r) == KVP_STORE_OK) << r;
        sim_disk_stop_after(sim, 0);
        kvp_store_close(store);
        if (round % 2)
            sim_disk_power_off(sim);
        else
            sim_disk_kill(sim);
        store = open_store(NULL, 64);
        for (unsigned r = 0; r < RECORDS; r++)
            if (there >> r & 1)
                assert_int_equal(get(store, r), KVP_STORE_OK);
        n_kept += count_there(store);
        sim_disk_limit(sim, UINT64_MAX);
        pass_time();
        put_all_once(store, KVP_STORE_OK);
        assert_int_equal(count_there(store), RECORDS);
    }
    assert_true(n_kept > 1000);
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
    assert_fields(stats_of(store), failed, 0, away_ns, 0);
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

/* The log shares the disk with the slabs: however much room there is, and wherever it ends. */
TEST(test_a_disk_of_any_size_can_be_full)
{
    unsigned n_sizes = 0;
    unsigned n_full = 0;
    for (uint64_t room = 0; room < 17 * SHARE; room += room % 3 ? 401 : 1207) {
        begin(room);
        kvp_store *store = NULL;
        if (try_open(NULL, 16, &store) != KVP_OK) {
            assert_true(room < 300); /* not even a log */
            sim_disk_destroy(sim);
            continue;
        }
        const unsigned n_stored = fill_up(store);
        const uint64_t n_records = stats_of(store).records;
        assert_true(sim_disk_bytes(sim) <= room);
        /* What is there serves puts for ever, by evicting. */
        assert_true(n_records <= 16 && n_stored >= (ROUNDS - 1) * RECORDS * (n_records > 0));
        assert_true(n_records >= 16 || room < (n_records + 1) * SHARE + 1000);
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
        pass_time();
        for (unsigned r = 0; r < 4 * RECORDS; r++)
            put(store, r % RECORDS);
        assert_int_equal(stats_of(store).records, 16);
        kvp_store_close(store);
        sim_disk_limit(sim, room); /* and closing leaves all that was there */
        store = open_store(NULL, 16);
        assert_int_equal(count_there(store), 16);
        end_sim(store);
    }
    assert_true(n_sizes > 100 && n_full > 80 && n_full < n_sizes);
}

/* Something else fills the disk while the store is used: what it has set aside is enough. */
TEST(test_a_disk_that_others_fill)
{
    begin(UINT64_MAX);
    scoped_sim_store *store = open_store(NULL, 16);
    for (unsigned r = 0; r < 7; r++)
        assert_int_equal(put(store, r), KVP_STORE_OK);
    sim_disk_limit(sim, sim_disk_bytes(sim));
    assert_true(fill_up(store) >= (ROUNDS - 1) * RECORDS);
    assert_int_equal(stats_of(store).records, 8);
    for (unsigned i = 0; i < 100; i++) {
        put_all(store);
        /* An entry more, so that the log also ends with one place, which is a put's. */
        assert_int_equal(kvp_store_drop(store, &records[i * 5 % RECORDS].key, 1, 0), KVP_OK);
        assert_int_equal(input_result(store), KVP_STORE_OK);
        pass_time();
    }
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
    pass_time();
    assert_true(fill_up(store) > 0);
    assert_int_equal(stats_of(store).records, 16);
}

/* Where no room can be set aside, a log that finds none fails puts; reads go on. */
TEST(test_a_disk_that_sets_no_room_aside)
{
    begin(UINT64_MAX);
    sim_disk_refuse_reserve(sim);
    scoped_sim_store *store = open_store(NULL, 16);
    for (unsigned r = 0; r < 7; r++)
        assert_int_equal(put(store, r), KVP_STORE_OK);
    sim_disk_limit(sim, sim_disk_bytes(sim));
    assert_int_equal(put(store, 7), KVP_STORE_FAILED);
    assert_int_equal(count_there(store), 7);
    sim_disk_limit(sim, UINT64_MAX);
    assert_int_equal(put(store, 7), KVP_STORE_OK);
}

/* ----------------------------------------------------------------------------------- real disks */

enum { OVERHEAD = 11 * 4096 }; /* directories, locks and logs */

static void fill_mounted(uint64_t bytes)
{
    kvp_store *store = open_store(mounted, 64); /* slabs of 64 KiB */
    const unsigned n_stored = fill_up(store);
    const uint64_t n_records = stats_of(store).records;
    assert_true(n_records * SLOT <= bytes && (n_records + 1) * SHARE + OVERHEAD > bytes);
    assert_true(n_stored >= (n_records < RECORDS ? (ROUNDS - 1) * RECORDS : RECORDS));
    kvp_store_close(store);
    store = open_store(mounted, 64);
    assert_int_equal(count_there(store), n_records < RECORDS ? n_records : RECORDS);
    kvp_store_close(store);
}

TEST(test_a_real_disk_that_is_full)
{
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
TEST(test_a_real_disk_with_extents_that_is_full)
{
    char command[400];
    make_mounted();
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

int main(void)
{
    make_records();
    own_mounts();
    return run_all_tests(NULL, NULL);
}
