/* The workload generator: same seed, same bytes; the prefix structure that it promises; and that
 * our own reader takes what it writes.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mocka.h"
#include "tool/requests/requests.h"
#include "tool/requests/workload.h"
#include "tool/requests/workload_draw.h"

enum { N_PROFILES = 6, N_REQUESTS = 2000 };

static kvpi_workload *create(kvpi_workload_profile profile, uint64_t seed)
{
    kvpi_workload *workload = NULL;
    kvpi_workload_options options;
    kvpi_workload_options_init(&options);
    options.profile = profile;
    options.seed = seed;
    assert_int_equal(kvpi_workload_create(&options, &workload), 0);
    return workload;
}

static kvpi_workload_request next(kvpi_workload *workload)
{
    kvpi_workload_request request;
    assert_int_equal(kvpi_workload_next(workload, &request), 0);
    return request;
}

/* FNV-1a, 64 bits. */
static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_workload(kvpi_workload_profile profile, uint64_t seed)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    kvpi_workload *workload = create(profile, seed);
    assert_non_null(file);
    for (size_t i = 0; i < 300; i++) {
        kvpi_workload_request request = next(workload);
        assert_int_equal(kvpi_workload_write(file, &request), 0);
    }
    kvpi_workload_destroy(workload);
    assert_int_equal(fclose(file), 0);
    uint64_t hash = hash_bytes(UINT64_C(0xcbf29ce484222325), text, n_bytes);
    free(text);
    return hash;
}

/* A change of these numbers changes every workload that somebody made before: it needs a reason,
 * and data/mixed-small.jsonl made anew. */
TEST(test_golden)
{
    static const uint64_t golden[N_PROFILES] = {
        UINT64_C(0x6608a173af25fe05), UINT64_C(0x88c1128c2142cfa8), UINT64_C(0x0c00a5a5cae689d1),
        UINT64_C(0xe71809e7f07a1b49), UINT64_C(0x829508ed6973c137), UINT64_C(0x7352f50fe7315c8f)};
    for (int i = 0; i < N_PROFILES; i++) {
        uint64_t hash = hash_workload((kvpi_workload_profile)i, 7);
        if (hash != golden[i])
            fail_msg("profile %d: %016llx", i, (unsigned long long)hash);
        assert_true(hash_workload((kvpi_workload_profile)i, 8) != hash);
    }
}

/* Who was seen first before each id: requests that share an id must share all before it. */
typedef struct histories {
    int64_t *before; /* [capacity] -2: id not seen; -1: nothing before it */
    size_t capacity;
} histories;

static void note_id(histories *seen, int64_t id, int64_t before)
{
    assert_true(id >= 0 && (size_t)id < seen->capacity);
    if (seen->before[id] == -2)
        seen->before[id] = before;
    assert_int_equal(seen->before[id], before);
}

static histories create_histories(size_t capacity)
{
    histories made = {malloc(capacity * sizeof *made.before), capacity};
    assert_non_null(made.before);
    for (size_t i = 0; i < capacity; i++)
        made.before[i] = -2;
    return made;
}

TEST(test_prefix_property)
{
    for (int profile = 0; profile < N_PROFILES; profile++) {
        kvpi_workload *workload = create((kvpi_workload_profile)profile, 3);
        histories seen = create_histories(2000000);
        int64_t last_ms = 0;
        size_t n_shared = 0;
        for (size_t i = 0; i < N_REQUESTS; i++) {
            kvpi_workload_request request = next(workload);
            assert_true(request.timestamp_ms >= last_ms);
            assert_true(request.input_length >= 1 && request.output_length >= 1);
            assert_int_equal(request.n_ids, (request.input_length + 511) / 512);
            for (size_t j = 0; j < request.n_ids; j++) {
                n_shared += seen.before[request.ids[j]] != -2;
                note_id(&seen, request.ids[j], j == 0 ? -1 : request.ids[j - 1]);
            }
            last_ms = request.timestamp_ms;
        }
        assert_true(n_shared > N_REQUESTS);
        free(seen.before);
        kvpi_workload_destroy(workload);
    }
}

/* The block that was partly filled gets a new id when the conversation goes on: so a partly filled
 * last block's id is never seen twice. */
TEST(test_partial_blocks)
{
    kvpi_workload *workload = create(KVPI_WORKLOAD_MIXED, 4);
    bool *partial = calloc(1000000, sizeof *partial), *seen = calloc(1000000, sizeof *seen);
    assert_non_null(partial);
    assert_non_null(seen);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        kvpi_workload_request request = next(workload);
        for (size_t j = 0; j < request.n_ids; j++) {
            bool is_partial = j + 1 == request.n_ids && request.input_length % 512 != 0;
            assert_false(partial[request.ids[j]] || (is_partial && seen[request.ids[j]]));
            seen[request.ids[j]] = true;
            partial[request.ids[j]] = is_partial;
        }
    }
    free(partial);
    free(seen);
    kvpi_workload_destroy(workload);
}

/* On the long run; the beginning, when nobody has a second turn yet, is slower. */
TEST(test_rate)
{
    kvpi_workload_options options;
    kvpi_workload *workload;
    kvpi_workload_options_init(&options);
    options.profile = KVPI_WORKLOAD_RAG;
    options.rate_milli = 2500;
    assert_int_equal(kvpi_workload_create(&options, &workload), 0);
    int64_t middle_ms = 0, end_ms = 0;
    for (size_t i = 0; i < 40000; i++) {
        end_ms = next(workload).timestamp_ms;
        if (i == 20000)
            middle_ms = end_ms;
    }
    double rate = 20000.0 * 1000 / (double)(end_ms - middle_ms);
    assert_true(rate > 2.4 && rate < 2.6);
    kvpi_workload_destroy(workload);
}

TEST(test_reader_takes_it)
{
    char path[] = "/tmp/kvpager-workload-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "wb");
    kvpi_workload *workload = create(KVPI_WORKLOAD_MIXED, 5);
    kvpi_requests_options options;
    kvpi_requests_error error;
    kvpi_requests *set = NULL;
    assert_non_null(file);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        kvpi_workload_request request = next(workload);
        assert_int_equal(kvpi_workload_write(file, &request), 0);
    }
    fclose(file);
    kvpi_workload_destroy(workload);
    kvpi_requests_options_init(&options);
    int result = kvpi_requests_read(path, &options, &error, &set);
    unlink(path);
    if (result != 0)
        fail_msg("%s", error.text);
    assert_int_equal(kvpi_requests_count(set), N_REQUESTS);
    kvpi_requests_free(set);
}

/* Half of the draws below the median, the ends inside the table. */
TEST(test_quantiles)
{
    static const kvpi_draw_point points[] = {{0, 10}, {5000, 20}, {9900, 1000}, {10000, 5000}};
    kvpi_draw draw = kvpi_draw_seed(1, 2);
    int n_below = 0, n_tail = 0;
    for (int i = 0; i < 100000; i++) {
        uint32_t value = kvpi_draw_from(&draw, points);
        assert_true(value >= 10 && value < 5000);
        n_below += value < 20;
        n_tail += value >= 1000;
    }
    assert_true(n_below > 49300 && n_below < 50700);
    assert_true(n_tail > 850 && n_tail < 1150);
}

/* Rank 0 is drawn twice as often as rank 1, and ten times as often as rank 9. */
TEST(test_ranks)
{
    kvpi_draw draw = kvpi_draw_seed(1, 2);
    int counts[10] = {0};
    for (int i = 0; i < 100000; i++)
        counts[kvpi_draw_rank(&draw, 10)]++;
    for (int i = 0; i < 10; i++) {
        int expected = (int)(100000 / 2.928968 / (i + 1));
        assert_true(counts[i] > expected - 700 && counts[i] < expected + 700);
    }
}

TEST_MAIN(NULL, NULL)
