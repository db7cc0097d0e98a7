/* What operators see of file stores: counts, records, every reason for which a record is bad, and
 * what cleaning leaves. On a disk in memory; the URLs on the real one.
 *
 *   test_store_operate --write PATH [SECRET]   write a store of eight records for the command's
 *                                              tests, and keep it open until standard input ends */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "on_sim.h"
#include "store/file/survey.h"
#include "store_records.h"

enum { DEPTH = 4, RECORDS = 2 * DEPTH, SLOT = 8192 };

#define MINUTE    UINT64_C(60000000000)
#define START     (1000000 * MINUTE)
#define HOME_PATH "/kv/01080f161d242b32/w0/"

static struct record records[RECORDS];

/* Two chains, each of another namespace. */
static void make_records(void)
{
    for (unsigned r = 0; r < RECORDS; r++)
        record_make(records, r, r % DEPTH, 500 + r / DEPTH);
}

static const char secret[] = "0123456789abcdef";

static kvp_store_config config_of(int has_secret)
{
    kvp_store_config config = record_config("file:/kv?size=135168"); /* 16 slots, two a slab */
    config.now = test_clock;
    config.secret = has_secret ? secret : NULL;
    config.secret_bytes = has_secret ? 16 : 0;
    return config;
}

static kvp_store *open_store(int has_secret)
{
    const kvp_store_config config = config_of(has_secret);
    return open_or_fail(&config, on_sim());
}

static void put(kvp_store *store, unsigned r)
{
    assert_int_equal(record_put(store, &records[r]), KVP_STORE_OK);
}

static uint64_t there(kvp_store *store)
{
    uint64_t bits = 0;
    for (unsigned r = 0; r < RECORDS; r++)
        bits |= (uint64_t)(record_get(store, &records[r]) == KVP_STORE_OK) << r;
    return bits;
}

static kvp_store *begin(unsigned n, int has_secret)
{
    now = START;
    make_sim(1);
    kvp_store *store = open_store(has_secret);
    for (unsigned r = 0; r < n; r++, now += MINUTE)
        put(store, r);
    return store;
}

/* -------------------------------------------------------------------------------------- a scan */

static struct seen {
    kvp_store_directory directory;
    uint32_t n_directories;
    uint32_t n_records;
    uint32_t n_found[KVP_FOUND_KINDS];
    kvp_store_record records[RECORDS];
    kvp_store *changed; /* by the first directory's end: it drops and puts */
} seen;

static void see_directory(void *context, const kvp_store_directory *directory)
{
    (void)context;
    seen.directory = *directory;
    seen.directory.path = NULL;
    seen.n_directories++;
    if (!seen.changed)
        return;
    assert_int_equal(kvp_store_drop(seen.changed, &records[0].key, 1, 0), KVP_OK);
    assert_int_equal(input_result(seen.changed), KVP_STORE_OK);
    put(seen.changed, DEPTH);
    put(seen.changed, DEPTH + 1);
}

static void see_record(void *context, const kvp_store_record *record)
{
    (void)context;
    assert_true(seen.n_records < RECORDS);
    seen.records[seen.n_records++] = *record;
    seen.n_found[record->found]++;
}

static kvp_store_scan_options options_of(uint32_t depth)
{
    kvp_store_scan_options options;
    kvp_store_scan_options_init(&options);
    options.depth = depth;
    options.directory = see_directory;
    options.record = see_record;
    return options;
}

static void scan_with(const kvp_store_scan_options *options)
{
    kvp_store *changed = seen.changed;
    memset(&seen, 0, sizeof seen);
    seen.changed = changed;
    char why[200];
    assert_int_equal(kvpi_survey_scan(&disk, "/kv", options, why, sizeof why), KVP_OK);
    assert_string_equal(why, "");
}

static void scan(uint32_t depth)
{
    const kvp_store_scan_options options = options_of(depth);
    scan_with(&options);
}

TEST(test_a_scan_tells_what_is_there)
{
    for (int in_use = 1; in_use >= 0; in_use--) {
        kvp_store *store = begin(6, 0);
        if (!in_use)
            kvp_store_close(store);
        scan(KVP_SCAN_DIRECTORIES);
        assert_fields(seen, n_directories, 1, n_records, 0);
        assert_fields(seen.directory, status, KVP_OK, in_use, in_use);
        assert_true(seen.directory.opened_ns == START);
        assert_fields(seen.directory, records, 6, slot_bytes, SLOT, header_bytes, 4096,
                      record_blocks, 1);
        assert_fields(seen.directory, block_tokens, TOKENS, n_slots, 16, bytes, 6 * (SLOT + 256),
                      log_entries, 6);
        for (uint32_t depth = KVP_SCAN_RECORDS; depth <= KVP_SCAN_PAYLOADS; depth++) {
            scan(depth);
            assert_int_equal(seen.n_records, 6);
            assert_int_equal(
                seen.n_found[depth > KVP_SCAN_RECORDS ? KVP_FOUND_GOOD : KVP_FOUND_UNREAD], 6);
            for (unsigned r = 0; r < 6; r++) {
                const kvp_store_record *record = &seen.records[r];
                assert_fields(*record, slot, r, generation, 1, parent,
                              r % DEPTH > 0 ? r - 1 : UINT32_MAX);
                assert_true(record->space == 500 + r / DEPTH);
                assert_true(record->written == (START + r * MINUTE) / 1000000000);
                assert_int_equal(record->has_header, depth > KVP_SCAN_RECORDS);
                if (depth == KVP_SCAN_RECORDS)
                    continue;
                assert_fields(*record, kind, KVP_IDENTITY_TOKENS, position, r % DEPTH * TOKENS,
                              n_blocks, 1);
                assert_int_equal(record->slice.n_layers, 1);
                assert_int_equal(record->payload_bytes, BLOCK_BYTES);
                assert_memory_equal(&record->digest, &records[r].identity.digest, 32);
            }
        }
        kvp_store_scan_options options = options_of(KVP_SCAN_RECORDS);
        options.one_space = 1;
        options.space = 501;
        scan_with(&options);
        assert_int_equal(seen.n_records, 2);
        if (in_use)
            kvp_store_close(store);
        sim_disk_destroy(sim);
    }
}

/* What is not named as a store names it is none of its directories. */
TEST(test_other_directories_are_left_alone)
{
    static const char *const names[][2] = {
        {"01080f161d242b3g", "w0"},  {"01080F161D242B32", "w0"}, {"01080f161d242b3", "w0"},
        {"01080f161d242b320", "w0"}, {"/1080f161d242b32", "w0"}, {":1080f161d242b32", "w0"},
        {"`1080f161d242b32", "w0"},  {"01080f161d242b32", "x1"}, {"01080f161d242b32", "w"},
        {"01080f161d242b32", "w/"},  {"01080f161d242b32", "w:"},
    };
    const kvp_store_match all = {.written_before = UINT64_MAX};
    kvp_store_cleaned cleaned;
    kvp_store_close(begin(3, 0));
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        char path[100];
        snprintf(path, sizeof path, "/kv/%s", names[i][0]);
        assert_int_equal(disk.make_directory(disk.context, path), 0);
        snprintf(path, sizeof path, "/kv/%s/%s", names[i][0], names[i][1]);
        assert_int_equal(disk.make_directory(disk.context, path), 0);
    }
    scan(KVP_SCAN_RECORDS);
    assert_fields(seen, n_directories, 1, n_records, 3);
    static const uint8_t fingerprint[8] = {0x01, 0x08, 0x0f, 0x16, 0x1d, 0x24, 0x2b, 0x32};
    assert_memory_equal(seen.directory.fingerprint, fingerprint, 8);
    assert_int_equal(disk.make_directory(disk.context, "/kv/abcdef9012345678"), 0);
    assert_int_equal(disk.make_directory(disk.context, "/kv/abcdef9012345678/w9"), 0);
    assert_int_equal(kvpi_survey_clean(&disk, "/kv", &all, &cleaned, NULL, 0), KVP_OK);
    assert_fields(cleaned, directories, 2, records, 3, unknown, 1, in_use, 0);
    sim_disk_destroy(sim);
}

/* --------------------------------------------------------------------------------- bad records */

static void flip(const char *file, uint64_t offset)
{
    char path[100];
    uint8_t byte;
    snprintf(path, sizeof path, HOME_PATH "%s", file);
    assert_true(sim_disk_peek(sim, path, offset, &byte, 1));
    byte ^= 16;
    assert_true(sim_disk_poke(sim, path, offset, &byte, 1));
}

/* Slot 0 is damaged: a verification says how, a look at headers sees what is in them, a list of the
 * log nothing. */
static void expect_bad(uint32_t reason, int in_header)
{
    scan(KVP_SCAN_PAYLOADS);
    assert_fields(seen, n_records, 3, n_found[reason], 1, n_found[KVP_FOUND_GOOD], 2);
    for (unsigned r = 0; r < 3; r++)
        assert_int_equal(seen.records[r].found == reason, seen.records[r].slot == 0);
    scan(KVP_SCAN_HEADERS);
    assert_int_equal(seen.n_found[reason], in_header);
    scan(KVP_SCAN_RECORDS);
    assert_int_equal(seen.n_found[KVP_FOUND_UNREAD], 3);
}

TEST(test_a_verification_names_every_fault)
{
    for (int in_use = 0; in_use < 2; in_use++) {
        static const struct {
            uint64_t offset;
            uint32_t reason;
            int in_header;
        } cases[] = {
            {0, KVP_BAD_DAMAGED, 1},   {8, KVP_BAD_VERSION, 1},    {12, KVP_BAD_DAMAGED, 1},
            {257, KVP_BAD_DAMAGED, 1}, {4096, KVP_BAD_PAYLOAD, 0}, {SLOT - 1, KVP_BAD_PAYLOAD, 0},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            kvp_store *store = begin(3, 0);
            if (!in_use)
                kvp_store_close(store);
            flip("slab-000000", cases[i].offset);
            expect_bad(cases[i].reason, cases[i].in_header);
            if (in_use)
                kvp_store_close(store);
            sim_disk_destroy(sim);
        }
    }
}

/* A whole record of the right slot, generation, minute and namespace, of other tokens. */
TEST(test_another_identity_in_the_slot_is_found)
{
    uint8_t other[SLOT];
    kvp_store *store = begin(0, 0);
    const uint64_t space = records[DEPTH].identity.space;
    records[DEPTH].identity.space = records[0].identity.space;
    put(store, DEPTH);
    records[DEPTH].identity.space = space;
    kvp_store_close(store);
    assert_true(sim_disk_peek(sim, HOME_PATH "slab-000000", 0, other, SLOT));
    sim_disk_destroy(sim);
    store = begin(3, 0);
    kvp_store_close(store);
    assert_true(sim_disk_poke(sim, HOME_PATH "slab-000000", 0, other, SLOT));
    expect_bad(KVP_BAD_IDENTITY, 1);
    assert_true(sim_disk_peek(sim, HOME_PATH "slab-000000", SLOT, other, SLOT));
    assert_true(sim_disk_poke(sim, HOME_PATH "slab-000000", 0, other, SLOT));
    expect_bad(KVP_BAD_PLACE, 1);
    sim_disk_destroy(sim);
}

TEST(test_codes_are_verified_with_the_secret)
{
    for (int has_secret = 0; has_secret < 2; has_secret++) {
        kvp_store_close(begin(3, has_secret));
        kvp_store_scan_options options = options_of(KVP_SCAN_PAYLOADS);
        options.secret = secret;
        options.secret_bytes = 16;
        scan_with(&options);
        assert_int_equal(seen.n_found[has_secret ? KVP_FOUND_GOOD : KVP_BAD_CODE], 3);
        options.secret = "fedcba9876543210";
        scan_with(&options);
        assert_int_equal(seen.n_found[KVP_BAD_CODE], 3);
        sim_disk_destroy(sim);
    }
}

/* What a writer replaces between the reading of the log and that of the slots is not bad. */
TEST(test_a_record_that_is_replaced_meanwhile_is_not_bad)
{
    kvp_store *store = begin(3, 0);
    seen.changed = store;
    scan(KVP_SCAN_PAYLOADS);
    seen.changed = NULL;
    assert_int_equal(seen.n_records, 3);
    assert_true(seen.n_found[KVP_FOUND_RACED] >= 2);
    assert_int_equal(seen.n_found[KVP_FOUND_RACED] + seen.n_found[KVP_FOUND_GOOD], 3);
    scan(KVP_SCAN_PAYLOADS);
    assert_fields(seen, n_records, 2, n_found[KVP_FOUND_GOOD], 2);
    kvp_store_close(store);
    sim_disk_destroy(sim);
}

TEST(test_a_foreign_log_is_told)
{
    static const struct {
        uint64_t offset;
        kvp_status status;
    } cases[] = {{0, KVP_E_FORMAT}, {8, KVP_E_VERSION}, {24, KVP_E_FORMAT}};
    for (size_t i = 0; i < 3; i++) {
        kvp_store_close(begin(3, 0));
        flip("log", cases[i].offset);
        scan(KVP_SCAN_PAYLOADS);
        assert_int_equal(seen.n_directories, 1);
        assert_int_equal(seen.directory.status, cases[i].status);
        assert_int_equal(seen.n_records, 0);
        assert_true(seen.directory.opened_ns == START);
        kvp_store_cleaned cleaned;
        const kvp_store_match all = {.written_before = UINT64_MAX};
        char why[200] = "", expected[200];
        snprintf(expected, sizeof expected, "\"/kv/01080f161d242b32/w0\": %s",
                 kvp_status_text(cases[i].status));
        assert_int_equal(kvpi_survey_clean(&disk, "/kv", &all, &cleaned, why, sizeof why), KVP_OK);
        assert_int_equal(cleaned.unknown, 1);
        assert_string_equal(why, expected);
        sim_disk_destroy(sim);
    }
}

static struct {
    uint32_t n; /* calls for the log until one fails */
    int error;  /* with this errno */
    int file;   /* of the log */
    struct kvpi_disk real;
} trouble;

/* Of a call for the log: is it the one that fails? */
static int is_hit(int is_log)
{
    return is_log && trouble.n-- == 0 ? trouble.error : 0;
}

static int open_in_trouble(void *context, const char *path, unsigned flags, int *out_file)
{
    const int is_log = strcmp(path, HOME_PATH "log") == 0;
    const int error = is_hit(is_log);
    const int status = error ? error : trouble.real.open(context, path, flags, out_file);
    if (status == 0 && (is_log || *out_file == trouble.file)) /* numbers are used again */
        trouble.file = is_log ? *out_file : -1;
    return status;
}

static int size_in_trouble(void *context, int file, uint64_t *out_bytes)
{
    const int error = is_hit(file == trouble.file);
    return error ? error : trouble.real.size(context, file, out_bytes);
}

static int read_in_trouble(void *context, int file, const struct kvpi_span *spans, uint32_t n_spans,
                           uint64_t offset)
{
    const int error = is_hit(file == trouble.file);
    return error ? error : trouble.real.read(context, file, spans, n_spans, offset);
}

/* Each call for the log fails once: it is opened, measured, its header read, measured, its entries
 * read. Three calls before that count bytes. */
TEST(test_why_a_log_cannot_be_read_is_told)
{
    static const int errors[] = {EACCES, ESTALE, EIO, ENXIO, EISDIR};
    kvp_store_close(begin(3, 0));
    trouble.real = disk;
    disk.open = open_in_trouble;
    disk.size = size_in_trouble;
    disk.read = read_in_trouble;
    for (uint32_t i = 0; i <= 5; i++) {
        trouble.n = 3 + i;
        trouble.error = i < 5 ? errors[i] : 0;
        trouble.file = -1;
        scan(KVP_SCAN_RECORDS);
        assert_int_equal(seen.directory.status, i < 5 ? KVP_E_IO : KVP_OK);
        assert_string_equal(seen.directory.why, i < 5 ? strerror(errors[i]) : "");
        assert_int_equal(seen.n_records, i < 5 ? 0 : 3);
    }
    sim_disk_destroy(sim);
}

/* An entry of the log that is damaged is counted; its record, and what needs it, are not there. */
TEST(test_damaged_entries_are_counted)
{
    kvp_store_close(begin(3, 0));
    flip("log", 64 + 52 + 20);
    scan(KVP_SCAN_RECORDS);
    assert_fields(seen.directory, damaged_entries, 1, records, 1);
    assert_int_equal(seen.n_records, 1);
    sim_disk_destroy(sim);
}

/* ------------------------------------------------------------------------------------- cleaning */

static kvp_store_cleaned clean(kvp_store_match match)
{
    kvp_store_cleaned cleaned;
    assert_int_equal(kvpi_survey_clean(&disk, "/kv", &match, &cleaned, NULL, 0), KVP_OK);
    assert_int_equal(cleaned.directories, 1);
    return cleaned;
}

TEST(test_cleaning_drops_what_matches)
{
    for (int killed = 0; killed < 2; killed++) {
        kvp_store *store = begin(RECORDS, 0);
        const kvp_store_match all = {.written_before = UINT64_MAX};
        kvp_store_cleaned cleaned = clean(all);
        assert_fields(cleaned, in_use, 1, records, 0);
        assert_true(there(store) == 0xFF);
        if (killed)
            sim_disk_stop_after(sim, 0);
        kvp_store_close(store);
        if (killed)
            sim_disk_kill(sim);
        assert_int_equal(clean((kvp_store_match){.written_before = 0}).records, 0);
        cleaned = clean((kvp_store_match){
            .written_before = START / 1000000000 + 360, .space = 501, .one_space = 1});
        assert_int_equal(cleaned.in_use, 0);
        assert_int_equal(cleaned.records, 4); /* two are old enough, two need them */
        assert_int_equal(cleaned.bytes, 4 * SLOT);
        cleaned = clean((kvp_store_match){.written_before = START / 1000000000 + 60});
        assert_int_equal(cleaned.records, 4);
        store = open_store(0);
        assert_true(there(store) == 0);
        put(store, 0);
        kvp_store_close(store);
        scan(KVP_SCAN_PAYLOADS);
        assert_int_equal(seen.n_found[KVP_FOUND_GOOD], 1);
        assert_int_equal(clean(all).records, 1);
        sim_disk_destroy(sim);
    }
}

/* The disk stops at any operation of a cleaning: the next start has what is whole, and no more. */
TEST(test_a_cleaning_that_is_cut_short_harms_nothing)
{
    int done = 0;
    for (uint64_t stop = 0; !done; stop++) {
        kvp_store *store = begin(RECORDS, 0);
        assert_int_equal(kvp_store_sync(store, 0), KVP_OK);
        assert_int_equal(input_result(store), KVP_STORE_OK);
        kvp_store_close(store);
        sim_disk_stop_after(sim, stop);
        kvp_store_cleaned cleaned;
        const kvp_store_match match = {.written_before = UINT64_MAX, .space = 500, .one_space = 1};
        done = kvpi_survey_clean(&disk, "/kv", &match, &cleaned, NULL, 0) == KVP_OK &&
               cleaned.records > 0;
        sim_disk_stop_after(sim, UINT64_MAX);
        sim_disk_power_off(sim);
        store = open_store(0);
        const uint64_t bits = there(store);
        assert_int_equal(bits >> DEPTH, 0xF);
        if (done)
            assert_int_equal(bits & 0xF, 0);
        kvp_store_close(store);
        sim_disk_destroy(sim);
    }
}

/* ---------------------------------------------------------------------------------------- URLs */

TEST(test_urls_and_options_are_checked)
{
    static const struct {
        const char *url;
        const char *part;
    } cases[] = {{NULL, "url"},
                 {"memory:", "file:PATH"},
                 {"file:", "file:PATH"},
                 {"file:/kv?speed=3", "speed"},
                 {"file:/nowhere/at/all?size=3GiB&quota=1GiB&max_age=7d&engine=io_uring",
                  "/nowhere/at/all"}};
    const kvp_store_match match = {.written_before = 0};
    kvp_store_cleaned cleaned;
    kvp_store_scan_options options = options_of(KVP_SCAN_RECORDS);
    char why[300];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const kvp_status expected = i == 4 ? KVP_E_IO : KVP_E_ARG;
        assert_int_equal(kvp_store_scan(cases[i].url, &options, why, sizeof why), expected);
        assert_non_null(strstr(why, cases[i].part));
        assert_int_equal(kvp_store_clean(cases[i].url, &match, &cleaned, why, sizeof why),
                         expected);
        assert_non_null(strstr(why, cases[i].part));
    }
    assert_int_equal(kvp_store_clean("file:.", NULL, &cleaned, NULL, 0), KVP_E_ARG);
    assert_int_equal(kvp_store_clean("file:.", &match, NULL, NULL, 0), KVP_E_ARG);
    assert_int_equal(kvp_store_scan("file:.", NULL, NULL, 0), KVP_E_ARG);
    options.depth = 9;
    assert_int_equal(kvp_store_scan("file:.", &options, NULL, 0), KVP_E_ARG);
    options = options_of(0);
    options.secret_bytes = 16;
    assert_int_equal(kvp_store_scan("file:.", &options, NULL, 0), KVP_E_ARG);
    static const char bytes[1025];
    options.secret = bytes;
    for (unsigned i = 0; i < 4; i++) {
        static const size_t lengths[] = {15, 16, 1024, 1025};
        options.secret_bytes = lengths[i];
        assert_int_equal(kvp_store_scan("file:/nowhere", &options, NULL, 0),
                         i == 1 || i == 2 ? KVP_E_IO : KVP_E_ARG);
    }
    options.struct_size = 1;
    assert_int_equal(kvp_store_scan("file:.", &options, NULL, 0), KVP_E_ARG);
    assert_string_equal(kvp_found_name(KVP_BAD_PAYLOAD), "payload");
    assert_string_equal(kvp_found_name(KVP_FOUND_GOOD), "good");
    assert_string_equal(kvp_found_name(KVP_FOUND_UNREAD), "unread");
    assert_string_equal(kvp_found_name(KVP_FOUND_KINDS), "?");
}

/* ---------------------------------------------------------------------------------- Prometheus */

TEST(test_statistics_as_prometheus_reads_them)
{
    kvp_store *store = begin(3, 0);
    assert_true(there(store) == 7);
    kvp_store_stats stats;
    assert_int_equal(kvp_store_stats_get(store, &stats), KVP_OK);
    kvp_store_close(store);
    sim_disk_destroy(sim);
    stats.bad[KVP_BAD_PLACE] = 9;
    stats.away_ns = 1500000000;
    stats.get_ns[0] = 2;
    stats.get_ns[31] = 1;
    stats.get_sum_ns = UINT64_C(12000000345);
    stats.put_sum_ns = 7;
    static char text[32768];
    size_t n = 0;
    assert_int_equal(kvp_store_stats_text(&stats, NULL, text, sizeof text, &n), KVP_OK);
    assert_int_equal(n, strlen(text));
    static const char *const parts[] = {
        "# TYPE kvp_store_records gauge\nkvp_store_records 3\n",
        "# TYPE kvp_store_hits_total counter\nkvp_store_hits_total 3\n",
        "kvp_store_absent_total 5\n",
        "kvp_store_raced_total 0\n",
        "kvp_store_queued 0\n",
        "# TYPE kvp_store_away_seconds gauge\nkvp_store_away_seconds 1.500000000\n",
        "kvp_store_read_bytes_total 12288\n",
        "kvp_store_bad_total{reason=\"damaged\"} 0\n",
        "kvp_store_bad_total{reason=\"place\"} 9\n",
        "# TYPE kvp_store_get_seconds histogram\n",
        "kvp_store_get_seconds_bucket{le=\"1.024e-06\"} 2\n",
        "kvp_store_get_seconds_sum 12.000000345\nkvp_store_get_seconds_count 3\n",
        "kvp_store_put_seconds_bucket{le=\"+Inf\"} 3\n",
        "kvp_store_put_seconds_sum 0.000000007\nkvp_store_put_seconds_count 3\n",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text, parts[i]))
            fail_msg("no \"%s\" in:\n%s", parts[i], text);
    static char short_text[100];
    assert_int_equal(kvp_store_stats_text(&stats, NULL, short_text, sizeof short_text, &n),
                     KVP_E_TOO_SMALL);
    assert_int_equal(n, strlen(text));
    assert_int_equal(strlen(short_text), sizeof short_text - 1);
    assert_memory_equal(text, short_text, sizeof short_text - 1);
    assert_int_equal(kvp_store_stats_text(&stats, "model=\"m\"", text, sizeof text, NULL), KVP_OK);
    assert_non_null(strstr(text, "kvp_store_records{model=\"m\"} 3\n"));
    assert_non_null(strstr(text, "kvp_store_bad_total{model=\"m\",reason=\"place\"} 9\n"));
    assert_non_null(strstr(text, "kvp_store_put_seconds_sum{model=\"m\"} 0.000000007\n"));
    assert_int_equal(kvp_store_stats_text(NULL, NULL, text, sizeof text, NULL), KVP_E_ARG);
    assert_int_equal(kvp_store_stats_text(&stats, NULL, text, 0, NULL), KVP_E_ARG);
}

static int write_store(const char *path, int has_secret)
{
    char url[300];
    snprintf(url, sizeof url, "file:%s?size=135168", path);
    kvp_store_config config = config_of(has_secret);
    config.url = url;
    now = START;
    kvp_store *store;
    char why[300];
    if (kvp_store_open(&config, &store, why, sizeof why) != KVP_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    for (unsigned r = 0; r < RECORDS; r++, now += MINUTE)
        put(store, r);
    puts("written");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    kvp_store_close(store);
    return 0;
}

int main(int argc, char **argv)
{
    make_records();
    if (argc > 2 && strcmp(argv[1], "--write") == 0)
        return write_store(argv[2], argc > 3);
    return run_all_tests(NULL, NULL);
}
