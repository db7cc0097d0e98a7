/* Limits besides the size: max_age, quota, and what operators evict. On the memory back end, and on
 * the file back end over a disk in memory, where a start must find the same limits. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mocka.h"
#include "on_sim.h"
#include "store_records.h"

enum { CHAINS = 4, DEPTH = 4, RECORDS = CHAINS * DEPTH };
enum { SLOT = 8192, MINUTE = 60, START = 1000000 * MINUTE };

static uint64_t now_s;

static uint64_t seconds_clock(void *context)
{
    (void)context;
    return now_s * UINT64_C(1000000000);
}

static struct record records[RECORDS];

/* Chain c is of namespace c / 2. */
static void make_records(void)
{
    for (unsigned r = 0; r < RECORDS; r++)
        record_make(records, r, r % DEPTH, 500 + r / DEPTH / 2);
}

static kvp_store *open_store(int on_disk, const char *options)
{
    char url[100];
    snprintf(url, sizeof url, "file:%s?size=%d%s", on_disk ? "/kv" : "", 64 * (SLOT + 256),
             options);
    if (!on_disk)
        snprintf(url, sizeof url, "memory:?size=%d%s", 64 * SLOT, options);
    kvp_store_config config = record_config(url);
    config.now = seconds_clock;
    return open_or_fail(&config, on_disk ? on_sim() : NULL);
}

static uint32_t put(kvp_store *store, unsigned r)
{
    return record_put(store, &records[r]);
}

static uint32_t get(kvp_store *store, unsigned r)
{
    return record_get(store, &records[r]);
}

/* The records that are there, as bits, by `have` and by `get` alike. */
static uint64_t there(kvp_store *store)
{
    kvp_digest keys[RECORDS];
    uint64_t bits, got = 0;
    for (unsigned r = 0; r < RECORDS; r++)
        keys[r] = records[r].key;
    assert_int_equal(kvp_store_have(store, keys, RECORDS, &bits, 0), KVP_OK);
    assert_int_equal(input_result(store), KVP_STORE_OK);
    for (unsigned r = 0; r < RECORDS; r++)
        got |= (uint64_t)(get(store, r) == KVP_STORE_OK) << r;
    assert_true(got == bits);
    return bits;
}

static uint64_t count_bits(uint64_t bits)
{
    uint64_t n = 0;
    for (; bits; bits &= bits - 1)
        n++;
    return n;
}

static kvp_store *begin(int on_disk, const char *options)
{
    now_s = START;
    make_sim(1);
    return open_store(on_disk, options);
}

/* A start after a kill, or after a close; memory has none. */
static kvp_store *again(kvp_store *store, int on_disk, int killed, const char *options)
{
    if (!on_disk)
        return store;
    if (killed)
        sim_disk_stop_after(sim, 0);
    kvp_store_close(store);
    if (killed)
        sim_disk_kill(sim);
    return open_store(1, options);
}

/* ------------------------------------------------------------------------------------------ age */

/* Record n is written at minute n: at minute 10 + n it is gone, a second before it is there. */
TEST(test_nothing_is_served_past_its_age)
{
    for (int variant = 0; variant < 4; variant++) {
        const int on_disk = variant > 0;
        scoped_sim_store *store = begin(on_disk, "&max_age=10m");
        for (unsigned r = 0; r < DEPTH; r++, now_s += MINUTE)
            assert_int_equal(put(store, r), KVP_STORE_OK);
        if (variant > 1)
            store = again(store, 1, variant == 2, "&max_age=10m");
        now_s = START + 10 * MINUTE - 1;
        assert_true(there(store) == 15);
        now_s++;
        /* The root is too old: what is behind it can be used by nobody who asks from the root on,
         * and goes in time; it is right until then. */
        assert_int_equal(get(store, 0), KVP_STORE_ABSENT);
        get(store, RECORDS - 1);
        assert_true(there(store) == 0);
        assert_int_equal(stats_of(store).records, 0);
        assert_true(stats_of(store).expired > 0);
        assert_int_equal(put(store, 1), KVP_STORE_NO_PARENT);
        assert_int_equal(put(store, 0), KVP_STORE_OK);
        assert_int_equal(put(store, 1), KVP_STORE_OK);
        now_s += 10 * MINUTE; /* nobody has looked since: a put finds it too old, too */
        assert_int_equal(put(store, 0), KVP_STORE_OK);
        assert_true(there(store) == 1);
    }
}

static kvp_store *open_small(unsigned slots, const char *options)
{
    char url[100];
    snprintf(url, sizeof url, "memory:?size=%u%s", slots * SLOT, options);
    kvp_store_config config = record_config(url);
    config.now = seconds_clock;
    now_s = START;
    return open_or_fail(&config, NULL);
}

/* Whatever is asked for, the slots of what is too old are given back: all of them, and once. */
TEST(test_no_slot_keeps_what_is_too_old)
{
    for (unsigned slots = 1; slots <= 3; slots++) {
        scoped_store *store = open_small(slots, "&max_age=10m");
        for (unsigned chain = 0; chain < slots; chain++)
            assert_int_equal(put(store, chain * DEPTH), KVP_STORE_OK);
        now_s += 10 * MINUTE - 1;
        assert_int_equal(get(store, 3 * DEPTH), KVP_STORE_ABSENT);
        assert_fields(stats_of(store), records, slots, expired, 0);
        now_s += 1;
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(get(store, 3 * DEPTH), KVP_STORE_ABSENT);
            assert_fields(stats_of(store), records, 0, expired, slots, evicted, 0, dropped, 0);
        }
    }
}

/* A put of a record that is there makes it one that was used lately, as a hit does. */
TEST(test_what_is_put_again_is_kept)
{
    for (int with_put = 0; with_put < 2; with_put++) {
        scoped_store *store = open_small(3, "&quota=8192"); /* of each namespace one */
        static struct record roots[4];
        for (unsigned r = 0; r < 4; r++)
            record_make(roots, r, 0, 600 + r);
        for (unsigned r = 0; r < 3; r++)
            assert_int_equal(record_put(store, &roots[r]), KVP_STORE_OK);
        for (unsigned i = 0; i < 1024; i++) /* the order knows no shorter times */
            assert_int_equal(record_get(store, &roots[2]), KVP_STORE_OK);
        const uint32_t known = with_put ? record_put(store, &roots[0]) : KVP_STORE_KNOWN;
        assert_int_equal(known, KVP_STORE_KNOWN);
        assert_int_equal(record_put(store, &roots[3]), KVP_STORE_OK);
        for (unsigned r = 0; r < 2; r++)
            assert_int_equal(record_get(store, &roots[r]) == KVP_STORE_OK, r == (with_put ? 0 : 1));
    }
}

/* An age that is set later holds for what was written before. A clock that went back harms none. */
TEST(test_an_age_holds_from_the_start_on)
{
    for (int killed = 0; killed < 2; killed++) {
        scoped_sim_store *store = begin(1, "");
        for (unsigned r = 0; r < DEPTH; r++, now_s += MINUTE)
            assert_int_equal(put(store, r), KVP_STORE_OK);
        now_s = START + 4 * MINUTE;
        store = again(store, 1, killed, "&max_age=3m");
        assert_int_equal(stats_of(store).queued, 0);
        assert_true(there(store) == 0);
        assert_int_equal(put(store, 0), KVP_STORE_OK);
        now_s = START - 60 * MINUTE;
        assert_true(there(store) == 1);
    }
}

/* Another writer's record is too old as one's own is: for a get, for the question, as a parent. */
TEST(test_an_age_holds_for_another_writers_records)
{
    scoped_sim_store *other = begin(1, ""); /* ends last, and the disk with it */
    assert_int_equal(put(other, 0), KVP_STORE_OK);
    scoped_store *store = open_store(1, "&max_age=10m");
    now_s = START + 10 * MINUTE - 1;
    assert_true(there(store) == 1);
    assert_int_equal(get(store, 0), KVP_STORE_OK);
    assert_int_equal(put(store, 1), KVP_STORE_OK);
    now_s++;
    assert_true(there(store) == 2); /* the second is younger */
    assert_int_equal(get(store, 0), KVP_STORE_ABSENT);
    const kvp_digest key = records[1].key;
    assert_int_equal(kvp_store_drop(store, &key, 1, 0), KVP_OK);
    assert_int_equal(input_result(store), KVP_STORE_OK);
    assert_int_equal(put(store, 1), KVP_STORE_NO_PARENT);
    assert_true(there(other) == 1); /* which has no limit */
}

/* A start with a smaller size keeps to it, before it has anything: what another model left goes. */
TEST(test_a_start_keeps_to_its_size)
{
    static const char left[] = "/kv/01080f161d242b32/w0/log";
    for (unsigned slots = 8; slots <= 64; slots += 56) {
        scoped_sim_store *store = begin(1, "");
        for (unsigned r = 0; r < RECORDS; r++)
            assert_int_equal(put(store, r), KVP_STORE_OK);
        kvp_store_close(store);
        assert_true(sim_disk_has(sim, left));
        char url[64];
        snprintf(url, sizeof url, "file:/kv?size=%u", slots * (SLOT + 256));
        kvp_store_config config = record_config(url);
        config.fingerprint = input_digest(2);
        config.now = seconds_clock;
        assert_int_equal(kvpi_store_open(&config, on_sim(), &store, NULL, 0), KVP_OK);
        assert_int_equal(sim_disk_has(sim, left), slots == 64);
    }
}

TEST(test_a_size_has_room_for_a_record)
{
    static const struct {
        const char *size;
        const char *why; /* NULL: it is right */
    } cases[] = {
        {"8447B", "size is 8447, expected room for 1 to 2^31-1 records of 8192 bytes"},
        {"8448B", NULL},
        {"18141941858304B", "expected room for 1 to 2^31-1 records of 8192 bytes"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char url[64], why[300];
        kvp_store *store = NULL;
        make_sim(1);
        snprintf(url, sizeof url, "file:/kv?size=%s", cases[i].size);
        const kvp_store_config config = record_config(url);
        assert_int_equal(kvpi_store_open(&config, on_sim(), &store, why, sizeof why),
                         cases[i].why ? KVP_E_ARG : KVP_OK);
        if (cases[i].why)
            assert_non_null(strstr(why, cases[i].why));
        end_sim(store);
    }
}

/* ---------------------------------------------------------------------------------------- quota */

TEST(test_a_namespace_keeps_to_its_quota)
{
    for (int on_disk = 0; on_disk < 2; on_disk++) {
        scoped_sim_store *store = begin(on_disk, "&quota=40960"); /* five slots */
        for (unsigned r = 0; r < RECORDS; r++) {
            assert_int_equal(put(store, r), KVP_STORE_OK);
            const uint64_t bits = there(store);
            assert_true(count_bits(bits & 0xFF) <= 5 && count_bits(bits >> 8) <= 5);
        }
        /* The older chain of each gave way from its end; the other namespace is not touched. */
        assert_true(there(store) == 0xF1F1);
        assert_int_equal(stats_of(store).evicted, 6);
        store = again(store, on_disk, 1, "&quota=40960");
        assert_int_equal(stats_of(store).records, 10); /* before anything was asked of it */
        assert_true(stats_of(store).size > 0);
        assert_true(there(store) == 0xF1F1);
    }
}

/* One chain fills the quota: nothing of it can go for its next record. */
TEST(test_a_chain_longer_than_its_quota_ends)
{
    for (int on_disk = 0; on_disk < 2; on_disk++) {
        scoped_sim_store *store = begin(on_disk, "&quota=16384");
        assert_int_equal(put(store, 0), KVP_STORE_OK);
        assert_int_equal(put(store, 1), KVP_STORE_OK);
        assert_int_equal(put(store, 2), KVP_STORE_NO_ROOM);
        assert_true(there(store) == 3);
    }
}

TEST(test_a_lower_quota_holds_from_the_start_on)
{
    for (int killed = 0; killed < 2; killed++) {
        scoped_sim_store *store = begin(1, "");
        for (unsigned r = 0; r < RECORDS; r++)
            assert_int_equal(put(store, r), KVP_STORE_OK);
        store = again(store, 1, killed, "&quota=16384");
        const uint64_t bits = there(store);
        assert_true(count_bits(bits & 0xFF) == 2 && count_bits(bits >> 8) == 2);
        store = again(store, 1, killed, "");
        assert_true(there(store) == bits);
    }
}

TEST(test_a_parent_of_another_namespace_is_none)
{
    scoped_sim_store *store = begin(0, "");
    assert_int_equal(put(store, 0), KVP_STORE_OK);
    kvp_identity other = records[1].identity;
    other.space = 7;
    assert_int_equal(kvp_store_put(store, &other, &records[1].block, 0), KVP_OK);
    assert_int_equal(input_result(store), KVP_STORE_NO_PARENT);
}

/* ---------------------------------------------------------------------------------------- evict */

static uint64_t evict(kvp_store *store, kvp_store_match match)
{
    assert_int_equal(kvp_store_evict(store, &match, 0), KVP_OK);
    assert_int_equal(input_result(store), KVP_STORE_OK);
    return there(store);
}

TEST(test_operators_evict_by_namespace_and_age)
{
    for (int on_disk = 0; on_disk < 2; on_disk++) {
        for (int killed = 0; killed < 2; killed++) {
            scoped_sim_store *store = begin(on_disk, "");
            for (unsigned r = 0; r < RECORDS; r++, now_s += MINUTE)
                assert_int_equal(put(store, r), KVP_STORE_OK);
            assert_true(evict(store, (kvp_store_match){.written_before = 0}) == 0xFFFF);
            /* Of the namespace of chains 2 and 3 what is older than record 9: record 8, and what
             * needs it. */
            const uint64_t before = START + 9 * MINUTE;
            assert_true(evict(store, (kvp_store_match){.written_before = before,
                                                       .space = 501,
                                                       .one_space = 1}) == 0xF0FF);
            /* To the minute: a second earlier, record 0 might be younger. */
            assert_true(evict(store, (kvp_store_match){.written_before = START + MINUTE - 1}) ==
                        0xF0FF);
            assert_true(evict(store, (kvp_store_match){.written_before = START + MINUTE}) ==
                        0xF0F0);
            assert_int_equal(stats_of(store).dropped, 8);
            store = again(store, on_disk, killed, "");
            assert_true(there(store) == 0xF0F0);
            assert_true(evict(store, (kvp_store_match){.written_before = UINT64_MAX,
                                                       .space = 500,
                                                       .one_space = 1}) == 0xF000);
            assert_true(evict(store, (kvp_store_match){.written_before = UINT64_MAX}) == 0);
            store = again(store, on_disk, killed, "");
            assert_true(there(store) == 0);
        }
    }
}

/* ------------------------------------------------------------------------- other directories */

/* A store of another model below the same PATH, which has room for 64 records of all of them. */
static kvp_store *open_model(unsigned model)
{
    char url[64];
    snprintf(url, sizeof url, "file:/kv?size=%d", 64 * (SLOT + 256));
    kvp_store_config config = record_config(url);
    config.fingerprint = input_digest(model);
    config.now = seconds_clock;
    kvp_store *store = NULL;
    now_s += MINUTE;
    assert_int_equal(kvpi_store_open(&config, on_sim(), &store, NULL, 0), KVP_OK);
    return store;
}

static uint32_t put_one(kvp_store *store, unsigned model, unsigned r)
{
    static struct record record;
    record_make(&record, 0, 0, 500);
    record.identity.fingerprint = input_digest(model);
    record.identity.digest = input_digest(1000 * model + r);
    record.key = input_key(&record.identity);
    record.block = record.kv;
    return record_put(store, &record);
}

static void put_of(kvp_store *store, unsigned model, unsigned first, unsigned end)
{
    for (unsigned r = first; r < end; r++)
        assert_int_equal(put_one(store, model, r), KVP_STORE_OK);
}

static int has_home(unsigned model)
{
    const kvp_digest fingerprint = input_digest(model);
    char path[64] = "/kv/";
    uint8_t byte;
    for (unsigned i = 0; i < 8; i++)
        snprintf(path + 4 + 2 * i, 3, "%02x", (unsigned)fingerprint.bytes[i]);
    strcat(path, "/w0/log");
    return sim_disk_peek(sim, path, 0, &byte, 1);
}

/* Room is made of what nobody has open, opened longest ago first; then of the writer's own. */
TEST(test_directories_without_a_writer_go_first)
{
    enum { OLD = 1, OLDER = 2, LIVES = 3, GROWS = 4, MANY = 16 };
    make_sim(1);
    for (unsigned model = OLD; model <= OLDER; model++) {
        scoped_store *store = open_model(model);
        put_of(store, model, 0, MANY);
    }
    kvp_store *lives = open_model(LIVES);
    put_of(lives, LIVES, 0, MANY);
    kvp_store_close(open_model(OLD)); /* later than all of them */
    kvp_store *store = open_model(GROWS);
    put_of(store, GROWS, 0, MANY);
    assert_true(has_home(OLD) && has_home(OLDER) && has_home(LIVES));
    put_of(store, GROWS, MANY, MANY + 1);
    assert_true(has_home(OLD) && !has_home(OLDER) && has_home(LIVES));
    put_of(store, GROWS, MANY + 1, 2 * MANY + 1);
    assert_true(!has_home(OLD) && has_home(LIVES));
    put_of(store, GROWS, 2 * MANY + 1, 5 * MANY);
    assert_true(has_home(LIVES));
    kvp_store_stats stats;
    kvp_store_stats_get(store, &stats);
    assert_int_equal(stats.records, 3 * MANY);
    kvp_store_stats_get(lives, &stats);
    assert_int_equal(stats.records, MANY);
    kvp_store_close(store);
    kvp_store_close(lives);
    sim_disk_destroy(sim);
}

static char unseen[64]; /* what has this in its path cannot be opened, or listed; "": all can */
static int unseen_error = EMFILE;

static int is_unseen(const char *path)
{
    return *unseen && strstr(path, unseen) != NULL;
}

static int open_seen(void *context, const char *path, unsigned flags, int *out_file)
{
    return is_unseen(path) && strstr(path, "slab-") ? unseen_error
                                                    : below.open(context, path, flags, out_file);
}

static int list_seen(void *context, const char *path, kvpi_disk_entry_fn entry, void *to)
{
    return is_unseen(path) ? unseen_error : below.list(context, path, entry, to);
}

/* What of another model cannot be seen for a moment may be anything: nothing grows meanwhile,
 * whichever model it is, and whatever of it. */
TEST(test_what_cannot_be_seen_counts)
{
    enum { MODELS = 3, MANY = 16 };
    for (unsigned model = 1; model <= MODELS; model++) {
        for (int slabs = 0; slabs < 2; slabs++) {
            make_sim(1);
            for (unsigned m = 1; m <= MODELS; m++) {
                scoped_store *store = open_model(m);
                put_of(store, m, 0, MANY);
            }
            scoped_sim_store *store = open_model(MODELS + 1);
            kvp_store_stats stats;
            const kvp_digest fingerprint = input_digest(model);
            unsigned n = (unsigned)snprintf(unseen, sizeof unseen, "/");
            for (unsigned i = 0; i < 8; i++)
                n += (unsigned)snprintf(unseen + n, 3, "%02x", fingerprint.bytes[i]);
            if (slabs)
                disk.open = open_seen;
            else
                disk.list = list_seen;
            assert_int_equal(put_one(store, MODELS + 1, 0), KVP_STORE_NO_ROOM);
            *unseen = 0;
            now_s += 100;
            put_of(store, MODELS + 1, 0, MANY);
            kvp_store_stats_get(store, &stats);
            assert_int_equal(stats.records, MANY);
        }
    }
}

/* What is gone, or is none of ours to see, counts nothing. */
TEST(test_what_is_not_ours_does_not_count)
{
    static const struct {
        int error;
        uint32_t result;
    } cases[] = {{ENOENT, KVP_STORE_OK},     {ENOTDIR, KVP_STORE_OK}, {EACCES, KVP_STORE_OK},
                 {EPERM, KVP_STORE_OK},      {ELOOP, KVP_STORE_OK},   {EIO, KVP_STORE_NO_ROOM},
                 {ENFILE, KVP_STORE_NO_ROOM}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int slabs = 0; slabs < 2; slabs++) {
            make_sim(1);
            kvp_store_close(open_model(1));
            scoped_sim_store *other = open_model(1);
            put_of(other, 1, 0, 1);
            kvp_store *store = open_model(2);
            snprintf(unseen, sizeof unseen, "/01080f161d242b32");
            unseen_error = cases[i].error;
            if (slabs)
                disk.open = open_seen;
            else
                disk.list = list_seen;
            assert_int_equal(put_one(store, 2, 0), cases[i].result);
            *unseen = 0;
            unseen_error = EMFILE;
            kvp_store_close(store);
        }
}

/* A directory of another version, or that cannot be listed, stays as it is: the store takes the
 * next one. */
TEST(test_what_is_not_known_stays)
{
    for (int is_listed = 0; is_listed < 2; is_listed++) {
        scoped_sim_store *store = begin(1, "");
        assert_int_equal(put(store, 0), KVP_STORE_OK);
        kvp_store_close(store);
        below = disk;
        if (is_listed) {
            assert_true(sim_disk_poke(sim, "/kv/01080f161d242b32/w0/log", 8, "\2", 1));
        } else {
            snprintf(unseen, sizeof unseen, "/w0");
            disk.list = list_seen;
        }
        store = open_store(1, "");
        *unseen = 0;
        assert_true(sim_disk_has(sim, "/kv/01080f161d242b32/w0/log"));
        assert_true(sim_disk_has(sim, "/kv/01080f161d242b32/w0/slab-000000"));
        assert_true(sim_disk_has(sim, "/kv/01080f161d242b32/w1/log"));
    }
}

/* When it was opened is written down at the start: a disk that has no room for that keeps nobody
 * out, one that fails does. */
TEST(test_a_start_that_cannot_be_noted)
{
    static const int errors[] = {ENOSPC, EDQUOT, EIO};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        kvp_store *store = begin(1, "");
        kvp_store_config config = record_config("file:/kv?size=1MiB");
        config.now = seconds_clock;
        kvp_store_close(store);
        store = NULL;
        sim_disk_fail_write(sim, 1, errors[i]);
        assert_int_equal(kvpi_store_open(&config, on_sim(), &store, NULL, 0),
                         errors[i] == EIO ? KVP_E_IO : KVP_OK);
        kvp_store_close(store);
        assert_int_equal(sim_disk_handles(sim), 0);
        sim_disk_destroy(sim);
    }
}

/* Records of another form are another writer's, though their slots have the same length. */
TEST(test_another_form_is_another_directory)
{
    static const struct {
        uint64_t block_bytes;
        uint32_t record_blocks, block_tokens, key_bytes;
    } forms[] = {{8192, 1, 4, 0}, {4096, 2, 4, 0}, {8192, 1, 8, 0}, {4096, 1, 4, 4096}};
    for (size_t a = 0; a < sizeof forms / sizeof *forms; a++) {
        for (size_t b = 0; b < sizeof forms / sizeof *forms; b++) {
            make_sim(1);
            scoped_sim_store *store = NULL;
            for (int i = 0; i < 2; i++) {
                const size_t f = i ? b : a;
                kvp_store_close(store);
                kvp_store_config config = record_config("file:/kv?size=1MiB");
                config.now = seconds_clock;
                config.block_bytes[0] = forms[f].block_bytes;
                config.record_blocks = forms[f].record_blocks;
                config.block_tokens = forms[f].block_tokens;
                config.key_bytes = forms[f].key_bytes;
                assert_int_equal(kvpi_store_open(&config, on_sim(), &store, NULL, 0), KVP_OK);
            }
            uint64_t slot_bytes[2] = {0, 0};
            assert_int_equal(sim_disk_has(sim, "/kv/01080f161d242b32/w1/log"), a != b);
            sim_disk_peek(sim, "/kv/01080f161d242b32/w0/log", 24, &slot_bytes[0], 8);
            if (sim_disk_peek(sim, "/kv/01080f161d242b32/w1/log", 24, &slot_bytes[1], 8))
                assert_true(slot_bytes[0] == slot_bytes[1]);
        }
    }
}

int main(void)
{
    make_records();
    return run_all_tests(NULL, NULL);
}
