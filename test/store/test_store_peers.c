/* Two writers on one directory: each reads the other's records and goes on behind them.
 *
 * The model knows what each has in its own directory, and behind whose record each was put. With
 * room for all it says how every operation ends; with little room a look before each put does.
 *
 *   test_store_peers [SEED [OPERATIONS]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "draw.h"
#include "on_sim.h"
#include "store/file/peers.h"
#include "store/file/survey.h"
#include "store_records.h"

enum {
    RECORDS = 24,
    WRITERS = 2,
    SLOT = 8192,
    LOGS = 552, /* of an empty directory, which the limit does not count */
    ROOMY = 400,
    NONE = RECORDS
};

static uint64_t seed = 1;
static uint64_t n_operations = 30000;
/* ----------------------------------------------------------------------------------- the stores */

static uint64_t size_slots;
static kvp_store *stores[WRITERS];

static uint64_t still_clock(void *context)
{
    (void)context;
    return UINT64_C(1100000000);
}

static unsigned with_still_clock = WRITERS; /* the writer whose clock stands still */

static void open_store(unsigned w)
{
    char url[64];
    snprintf(url, sizeof url, "file:/kv?size=%llu",
             (unsigned long long)(size_slots * (SLOT + 256)));
    kvp_store_config config = record_config(url);
    config.now = w == with_still_clock ? still_clock : test_clock;
    stores[w] = open_or_fail(&config, on_sim());
}

static void begin(uint64_t slots)
{
    make_sim(seed);
    tick = UINT64_C(1100000000); /* what the others have written is seen by each call */
    size_slots = slots;
    for (unsigned w = 0; w < WRITERS; w++)
        open_store(w);
}

static void end(void)
{
    for (unsigned w = 0; w < WRITERS; w++) {
        kvp_store_close(stores[w]);
        stores[w] = NULL;
    }
    sim_disk_destroy(sim);
}

/* ---------------------------------------------------------------------------------- the records */

static struct record records[RECORDS];
static unsigned parents[RECORDS]; /* NONE: a root */

static int is_own[WRITERS][RECORDS];
static int is_behind_own[WRITERS][RECORDS]; /* its parent was the writer's own when it was put */

/* Trees: each record is behind the one before, or the one before that; every eighth is a root. */
static void make_records(void)
{
    for (unsigned r = 0; r < RECORDS; r++) {
        record_make(records, r, 0, 0);
        parents[r] = r % 8 == 0 ? NONE : r % 8 == 1 || r % 3 ? r - 1 : r - 2;
        if (parents[r] != NONE)
            records[r].identity.parent = records[parents[r]].key;
    }
}

static uint32_t drop(unsigned w, unsigned r)
{
    assert_int_equal(kvp_store_drop(stores[w], &records[r].key, 1, 0), KVP_OK);
    return input_result(stores[w]);
}

static int have(unsigned w, unsigned r)
{
    uint64_t bits = 0;
    assert_int_equal(kvp_store_have(stores[w], &records[r].key, 1, &bits, 0), KVP_OK);
    assert_int_equal(input_result(stores[w]), KVP_STORE_OK);
    return (int)bits;
}

static uint32_t put(unsigned w, unsigned r)
{
    return record_put(stores[w], &records[r]);
}

static uint32_t get(unsigned w, unsigned r)
{
    return record_get(stores[w], &records[r]);
}

/* ---------------------------------------------------------------------------------- one by one */

TEST(test_a_record_of_another_writer_is_a_parent)
{
    begin(ROOMY);
    assert_int_equal(put(1, 1), KVP_STORE_NO_PARENT);
    assert_int_equal(put(0, 0), KVP_STORE_OK);
    assert_int_equal(put(1, 1), KVP_STORE_OK);
    assert_int_equal(put(1, 2), KVP_STORE_OK);
    assert_int_equal(put(0, 3), KVP_STORE_OK); /* and on in the first one's directory */
    for (unsigned r = 0; r < 4; r++) {
        assert_int_equal(get(0, r), KVP_STORE_OK);
        assert_int_equal(get(1, r), KVP_STORE_OK);
    }
    kvp_store_stats stats;
    kvp_store_stats_get(stores[1], &stats);
    assert_int_equal(stats.records, 2);
    /* After a start it is all the same. */
    kvp_store_close(stores[1]);
    open_store(1);
    kvp_store_stats_get(stores[1], &stats);
    assert_int_equal(stats.records, 2);
    assert_int_equal(put(1, 1), KVP_STORE_KNOWN);
    assert_int_equal(get(1, 2), KVP_STORE_OK);
    end();
}

/* The clock of a writer stands still, also over starts: each log that it writes is another one to
 * those who follow it. */
TEST(test_a_clock_that_stands_still)
{
    with_still_clock = 0;
    begin(12);
    for (unsigned i = 0; i < 400; i++) {
        const unsigned r = i % 3 * 8; /* roots */
        if (i % 50 == 49) {
            kvp_store_close(stores[0]);
            open_store(0);
        }
        if (i % 2)
            assert_int_equal(drop(0, r), KVP_STORE_OK);
        else
            (void)put(0, r);
        for (unsigned root = 0; root < RECORDS; root += 8)
            assert_int_equal(have(1, root), have(0, root));
    }
    end();
    with_still_clock = WRITERS;
}

/* Its digests would be others: it is no parent. */
TEST(test_a_parent_of_another_namespace_is_none)
{
    begin(ROOMY);
    assert_int_equal(put(0, 0), KVP_STORE_OK);
    assert_int_equal(have(1, 0), 1);
    struct record child = records[1];
    child.block = child.kv;
    child.identity.tokens = child.tokens;
    child.identity.space = 7;
    assert_int_equal(record_put(stores[1], &child), KVP_STORE_NO_PARENT);
    end();
}

/* A record whose parent went with another writer is never served for another, takes no part in what
 * comes after, and is reached again once its parent is written again. */
TEST(test_the_parent_vanishes)
{
    begin(ROOMY);
    assert_int_equal(put(0, 0), KVP_STORE_OK);
    assert_int_equal(put(0, 1), KVP_STORE_OK);
    assert_int_equal(put(1, 2), KVP_STORE_OK);
    assert_int_equal(drop(0, 1), KVP_STORE_OK);
    assert_int_equal(have(1, 1), 0);
    assert_int_equal(get(1, 2), KVP_STORE_OK);
    assert_int_equal(put(1, 3), KVP_STORE_NO_PARENT); /* behind 1 */
    assert_int_equal(put(1, 4), KVP_STORE_NO_PARENT); /* behind 3 */
    assert_int_equal(put(1, 1), KVP_STORE_OK);
    assert_int_equal(put(1, 3), KVP_STORE_OK);
    kvp_store_close(stores[1]);
    open_store(1);
    for (unsigned r = 0; r < 4; r++)
        assert_int_equal(get(1, r), KVP_STORE_OK);
    end();
}

/* What is behind a key goes with it, whoever has the key; also after a start. */
TEST(test_a_drop_takes_what_is_behind_another_writers_record)
{
    for (int again = 0; again < 2; again++) {
        begin(ROOMY);
        assert_int_equal(put(0, 0), KVP_STORE_OK);
        assert_int_equal(put(1, 1), KVP_STORE_OK);
        assert_int_equal(put(1, 2), KVP_STORE_OK);
        assert_int_equal(put(1, 8), KVP_STORE_OK);
        if (again) {
            kvp_store_close(stores[1]);
            open_store(1);
        }
        assert_int_equal(drop(1, 3), KVP_STORE_OK); /* nobody has it */
        assert_int_equal(have(1, 1) + have(1, 2), 2);
        assert_int_equal(drop(1, 0), KVP_STORE_OK);
        assert_int_equal(have(1, 1) + have(1, 2), 0);
        assert_int_equal(have(1, 8), 1);
        assert_int_equal(have(1, 0), 1); /* the other one's stays */
        kvp_store_stats stats;
        kvp_store_stats_get(stores[1], &stats);
        assert_int_equal(stats.dropped, 2);
        kvp_store_close(stores[1]);
        open_store(1);
        assert_int_equal(have(1, 1) + have(1, 2), 0);
        end();
    }
}

/* The operators' scan takes such a record for good, and says that its parent is not here. */
static uint32_t n_good;
static uint32_t n_bad;
static uint32_t n_first;

static void take_record(void *context, const kvp_store_record *record)
{
    (void)context;
    n_good += record->found == KVP_FOUND_GOOD;
    n_bad += record->found != KVP_FOUND_GOOD;
    n_first += record->parent == UINT32_MAX;
}

TEST(test_a_scan_finds_it_good)
{
    begin(ROOMY);
    assert_int_equal(put(0, 0), KVP_STORE_OK);
    assert_int_equal(put(1, 1), KVP_STORE_OK);
    assert_int_equal(put(1, 2), KVP_STORE_OK);
    kvp_store_scan_options options;
    kvp_store_scan_options_init(&options);
    options.depth = KVP_SCAN_PAYLOADS;
    options.record = take_record;
    n_good = n_bad = n_first = 0;
    assert_int_equal(kvpi_survey_scan(&disk, "/kv", &options, NULL, 0), KVP_OK);
    assert_int_equal(n_bad, 0);
    assert_int_equal(n_good, 3);
    assert_int_equal(n_first, 2);
    end();
}

/* ------------------------------------------------------------------------------------ long logs */

#define HOME   "/kv/0100000000000000"
#define WRITER HOME "/w1"

static void begin_empty(void)
{
    make_sim(seed);
    assert_int_equal(disk.make_directory(disk.context, "/kv"), 0);
    assert_int_equal(disk.make_directory(disk.context, HOME), 0);
}

static kvp_digest key_of(uint32_t number)
{
    kvp_digest key = {{1}};
    memcpy(key.bytes + 4, &number, sizeof number);
    return key;
}

/* A log of records in slots 0, 1, 2 ..., by a writer that may have `n_slots`. */
static void write_log_at(const char *home, uint32_t n_slots, uint32_t n_records)
{
    char path[64];
    static uint8_t buffer[KVPI_LOG_BUFFER];
    const struct kvpi_log_form form = {.slot_bytes = SLOT,
                                       .header_bytes = 4096,
                                       .record_blocks = 1,
                                       .block_tokens = 4,
                                       .slab_slots = 64,
                                       .n_slots = n_slots};
    struct kvpi_log log;
    snprintf(path, sizeof path, "%s/log", home);
    assert_int_equal(disk.make_directory(disk.context, home), 0);
    assert_int_equal(kvpi_log_create(&log, &disk, path, &form, 5), 0);
    log.buffer = buffer;
    for (uint32_t r = 0; r < n_records; r++) {
        const kvp_digest key = key_of(r);
        struct kvpi_log_entry entry = {
            .kind = KVPI_LOG_PUT, .slot = r, .generation = 1, .parent = KVPI_INDEX_NONE};
        memcpy(entry.key, key.bytes, sizeof entry.key);
        assert_int_equal(kvpi_log_append(&log, &entry), 0);
    }
    assert_int_equal(kvpi_log_flush(&log), 0);
    kvpi_log_close(&log);
}

static void write_log(uint32_t n_slots, uint32_t n_records)
{
    write_log_at(WRITER, n_slots, n_records);
}

static void open_peers(struct kvpi_peers *peers)
{
    const struct kvpi_log_form form = {
        .slot_bytes = SLOT, .header_bytes = 4096, .record_blocks = 1, .block_tokens = 4};
    kvpi_peers_open(peers, &disk, HOME, HOME "/w0", &form);
}

static int knows(const struct kvpi_peers *peers, uint32_t number)
{
    const kvp_digest key = key_of(number);
    struct kvpi_peers_seen seen;
    return kvpi_peers_have(peers, &key, &seen);
}

/* Logs are looked at after 20 ms, the directory after a second. */
TEST(test_looks_have_intervals)
{
    enum { MS = 1000000 };
    static struct kvpi_peers peers;
    uint64_t at = UINT64_C(10000) * MS;
    begin_empty();
    write_log(100, 1);
    open_peers(&peers);
    kvpi_peers_follow(&peers, at);
    assert_true(knows(&peers, 0) && !knows(&peers, 1));
    write_log(100, 2);
    kvpi_peers_follow(&peers, at + 20 * MS - 1);
    assert_false(knows(&peers, 1));
    kvpi_peers_follow(&peers, at + 20 * MS);
    assert_true(knows(&peers, 1));
    write_log_at(HOME "/w2", 100, 3);
    kvpi_peers_follow(&peers, at + 1000 * MS - 1);
    assert_false(knows(&peers, 2));
    at += 1000 * MS + 20 * MS;
    kvpi_peers_follow(&peers, at);
    assert_true(knows(&peers, 2));
    kvpi_peers_close(&peers);
    sim_disk_destroy(sim);
}

/* Nobody waits for all of it: it is read in pieces, one after the other, without a pause. */
TEST(test_a_long_log_is_read_in_pieces)
{
    enum { LONG = 5 * KVPI_PEERS_PIECE + 7 };
    static struct kvpi_peers peers;
    begin_empty();
    write_log(LONG + 100, LONG);
    open_peers(&peers);
    for (uint32_t piece = 1; piece <= 6; piece++) {
        kvpi_peers_follow(&peers, UINT64_C(10000000000)); /* it is never later */
        assert_int_equal(knows(&peers, piece * KVPI_PEERS_PIECE - 1), piece < 6);
        assert_int_equal(knows(&peers, piece * KVPI_PEERS_PIECE), 0);
        assert_int_equal(peers.is_behind, piece < 6);
    }
    assert_true(knows(&peers, 0) && knows(&peers, LONG - 1));
    assert_int_equal(disk.make_directory(disk.context, HOME "/w0"), 0); /* its own */
    assert_int_equal(disk.make_directory(disk.context, HOME "/x2"), 0); /* no writer's */
    assert_int_equal(disk.make_directory(disk.context, HOME "/w2"), 0);
    kvpi_peers_follow(&peers, UINT64_C(20000000000));
    assert_int_equal(peers.n, 2);
    kvpi_peers_close(&peers);
    sim_disk_destroy(sim);
}

/* No log makes a reader ask for more memory than its length explains. */
TEST(test_a_log_that_claims_many_slots)
{
    static struct kvpi_peers peers;
    kvp_store_scan_options options;
    kvp_store_cleaned cleaned;
    struct kvpi_log log;
    begin_empty();
    write_log(INT32_MAX, 10);
    assert_int_equal(kvpi_log_open(&log, &disk, WRITER "/log", 0), KVP_OK);
    assert_int_equal(log.form.n_slots, INT32_MAX);
    assert_true(kvpi_log_slots(&log) < 100000);
    kvpi_log_close(&log);
    open_peers(&peers);
    kvpi_peers_follow(&peers, UINT64_C(10000000000));
    assert_true(knows(&peers, 9));
    assert_true(peers.peers[0]->index.n < 100000 && peers.peers[0]->slabs.n_max < 100000);
    kvpi_peers_close(&peers);
    kvp_store_scan_options_init(&options);
    options.depth = KVP_SCAN_RECORDS;
    options.record = take_record;
    n_good = n_bad = n_first = 0;
    assert_int_equal(kvpi_survey_scan(&disk, "/kv", &options, NULL, 0), KVP_OK);
    assert_int_equal(n_first, 10);
    const kvp_store_match all = {.written_before = UINT64_MAX};
    assert_int_equal(kvpi_survey_clean(&disk, "/kv", &all, &cleaned, NULL, 0), KVP_OK);
    assert_int_equal(cleaned.records, 10);
    sim_disk_destroy(sim);
}

/* A writer that has more records by now than its reader made room for. */
TEST(test_a_log_that_grows_is_read_anew)
{
    enum { LATER = 300000 };
    static struct kvpi_peers peers;
    begin_empty();
    write_log(INT32_MAX, 10);
    open_peers(&peers);
    kvpi_peers_follow(&peers, UINT64_C(10000000000));
    write_log(INT32_MAX, LATER);
    uint64_t then = UINT64_C(11000000000);
    for (int i = 0; i < 100; i++)
        kvpi_peers_follow(&peers, then++);
    assert_true(knows(&peers, 9) && knows(&peers, LATER - 1));
    assert_true(peers.peers[0]->index.n > LATER && peers.peers[0]->index.n < 2 * LATER);
    kvpi_peers_close(&peers);
    sim_disk_destroy(sim);
}

/* --------------------------------------------------------------------------------------- random */

static void take(unsigned w, unsigned r)
{
    is_own[w][r] = 0;
    for (unsigned c = r + 1; c < RECORDS; c++)
        if (parents[c] == r && is_own[w][c] && is_behind_own[w][c])
            take(w, c);
}

static void model_drop(unsigned w, unsigned r)
{
    if (is_own[w][r])
        take(w, r);
    for (unsigned c = r + 1; c < RECORDS; c++)
        if (parents[c] == r && is_own[w][c] && !is_behind_own[w][c])
            take(w, c);
}

static uint32_t model_put(unsigned w, unsigned r)
{
    const unsigned p = parents[r];
    if (is_own[w][r])
        return KVP_STORE_KNOWN;
    if (p != NONE && !is_own[w][p] && !is_own[1 - w][p])
        return KVP_STORE_NO_PARENT;
    is_own[w][r] = 1;
    is_behind_own[w][r] = p == NONE || is_own[w][p];
    return KVP_STORE_OK;
}

/* Closed cleanly, or killed: both at the same time. The first has its first directory again. */
static void start_again(int killed)
{
    if (killed)
        sim_disk_stop_after(sim, 0);
    for (unsigned w = 0; w < WRITERS; w++)
        kvp_store_close(stores[w]);
    if (killed)
        sim_disk_kill(sim);
    for (unsigned w = 0; w < WRITERS; w++)
        open_store(w);
}

TEST(test_random_with_room_for_all)
{
    random_state = seed * UINT64_C(0x9E3779B97F4A7C15);
    memset(is_own, 0, sizeof is_own);
    begin(ROOMY);
    uint64_t n_behind_other = 0;
    for (uint64_t i = 0; i < n_operations; i++) {
        const unsigned w = draw(WRITERS);
        const unsigned r = draw(RECORDS);
        const uint32_t what = draw(100);
        const int there = is_own[0][r] || is_own[1][r];
        if (what < 55) {
            const uint32_t expected = model_put(w, r);
            n_behind_other += expected == KVP_STORE_OK && !is_behind_own[w][r];
            assert_int_equal(put(w, r), expected);
        } else if (what < 75) {
            assert_int_equal(get(w, r), there ? KVP_STORE_OK : KVP_STORE_ABSENT);
        } else if (what < 87) {
            assert_int_equal(have(w, r), there);
        } else if (what < 98) {
            model_drop(w, r);
            assert_int_equal(drop(w, r), KVP_STORE_OK);
        } else {
            start_again((int)draw(2));
        }
        uint64_t n_own = 0;
        for (unsigned k = 0; k < RECORDS; k++)
            n_own += (uint64_t)is_own[w][k];
        kvp_store_stats stats;
        kvp_store_stats_get(stores[w], &stats);
        assert_int_equal(stats.records, n_own);
    }
    assert_true(n_behind_other > n_operations / 100);
    end();
}

/* Evictions, quotas of room, and directories that go for another: what a put says fits to what a
 * look said just before, and nobody reads foreign KV. */
TEST(test_random_with_little_room)
{
    random_state = seed * UINT64_C(0xD1342543DE82EF95);
    begin(20);
    uint64_t n_results[KVP_STORE_CLOSED + 1] = {0};
    for (uint64_t i = 0; i < n_operations; i++) {
        const unsigned w = draw(WRITERS);
        const unsigned r = draw(RECORDS);
        const uint32_t what = draw(100);
        if (what < 60) {
            const int parent = parents[r] == NONE || have(w, parents[r]);
            const uint32_t result = put(w, r);
            n_results[result]++;
            if (result == KVP_STORE_NO_PARENT)
                assert_false(parent);
            else if (result != KVP_STORE_KNOWN)
                assert_true(parent);
            if (result == KVP_STORE_OK)
                assert_int_equal(get(w, r), KVP_STORE_OK);
        } else if (what < 85) {
            n_results[get(w, r)]++;
        } else if (what < 97) {
            assert_int_equal(drop(w, r), KVP_STORE_OK);
        } else {
            start_again((int)draw(2));
        }
        kvp_store_stats stats;
        kvp_store_stats_get(stores[w], &stats);
        assert_true(stats.bytes <= stats.size);
        assert_true(sim_disk_bytes(sim) <= size_slots * (SLOT + 256) + WRITERS * LOGS);
    }
    assert_true(n_results[KVP_STORE_OK] > 0 && n_results[KVP_STORE_NO_PARENT] > 0);
    assert_true(n_results[KVP_STORE_KNOWN] > 0 && n_results[KVP_STORE_ABSENT] > 0);
    end();
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        n_operations = strtoull(argv[2], NULL, 10);
    make_records();
    return run_all_tests(NULL, NULL);
}
