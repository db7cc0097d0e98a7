/* Recordings: what was added is read, a file cut anywhere is good up to there, no byte of it can be
 * changed unnoticed, and a field out of its range is named.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "mocka.h"
#include "xorshift.h"
#include "tool/recording/recent.h"
#include "tool/recording/packed.h"
#include "tool/recording/recording.h"
#include "tool/recording/siphash.h"
#include "tool/requests/requests.h"

enum { N_REQUESTS = 600, MAX_BLOCKS = 40, BLOCK = 16 };

static const kvpi_recording_about about = {.source = KVPI_RECORDING_ENGINE,
                                           .block_tokens = BLOCK,
                                           .began_us = 1700000000000000,
                                           .max_contents = 1u << 20,
                                           .engine = "test 1.0",
                                           .model = "none"};

typedef struct made {
    char path[64];
    kvpi_recorded requests[N_REQUESTS];
    uint64_t contents[N_REQUESTS][MAX_BLOCKS]; /* what was asked for */
} made;

static void name_path(char path[64])
{
    strcpy(path, "/tmp/kvpager-XXXXXX");
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    unlink(path);
}

static kvpi_recorder *open_recorder(const char *path, const kvpi_recording_about *of)
{
    kvpi_recorder_options options = {.path = path, .about = *of, .key = {1, 2, 3}};
    kvpi_recorder *recorder = NULL;
    kvpi_recording_error error = {""};
    if (kvpi_recorder_open(&options, &recorder, &error) != 0)
        fail_msg("%s", error.text);
    return recorder;
}

static kvpi_recorded draw_request(uint64_t *random, int64_t time_us, uint64_t n_blocks)
{
    const int64_t tokens = (int64_t)(n_blocks * BLOCK + draw(random) % BLOCK);
    const uint64_t has = draw(random);
    kvpi_recorded request = {.time_us = time_us, .output_tokens = (int64_t)(draw(random) % 30)};
    request.output_tokens = request.output_tokens < tokens ? request.output_tokens : tokens;
    request.input_tokens = tokens - request.output_tokens;
    request.cached_tokens = has & 1 ? request.input_tokens / 2 : KVPI_RECORDED_UNKNOWN;
    request.first_us = has & 2 ? (int64_t)(draw(random) % 1000000) : KVPI_RECORDED_UNKNOWN;
    request.last_us = has & 4 ? (int64_t)(draw(random) % 1000000) : KVPI_RECORDED_UNKNOWN;
    request.session = has & 8 ? 1 + draw(random) % 9 : 0;
    request.scope = has & 16 ? 1 + draw(random) % 3 : 0;
    return request;
}

/* Prefixes of other requests, with new ends, in frames of some requests. */
static void record(made *out)
{
    uint64_t random = 7, next = 1;
    kvpi_recording_error error = {""};
    kvpi_recorder *recorder = open_recorder(out->path, &about);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        const size_t of = i == 0 ? 0 : draw(&random) % i, n = draw(&random) % MAX_BLOCKS;
        size_t shared = i == 0 ? 0 : draw(&random) % (n + 1);
        shared = shared < out->requests[of].n_blocks ? shared : (size_t)out->requests[of].n_blocks;
        for (size_t j = 0; j < n; j++)
            out->contents[i][j] = j < shared ? out->contents[of][j] : next++;
        const int64_t time = about.began_us + (int64_t)i * 1000 - (int64_t)(draw(&random) % 5000);
        out->requests[i] = draw_request(&random, time, n);
        out->requests[i].n_blocks = n;
        if (kvpi_recorder_add_hashes(recorder, &out->requests[i], out->contents[i], n,
                                     sizeof out->contents[i][0], &error) != 0)
            fail_msg("%s", error.text);
        if (i % 50 == 49)
            assert_int_equal(kvpi_recorder_flush(recorder, &error), 0);
    }
    assert_int_equal(kvpi_recorder_close(recorder, &error), 0);
}

static made *make(void)
{
    made *out = calloc(1, sizeof *out);
    assert_non_null(out);
    name_path(out->path);
    record(out);
    return out;
}

static void end(made *of)
{
    unlink(of->path);
    free(of);
}

static uint8_t *load(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *n = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*n + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, file), *n);
    fclose(file);
    return bytes;
}

/* Numbers of a request's blocks must be those of the names, one to one. */
static void compare(const made *of, size_t i, const kvpi_recorded *got, uint64_t *number_of)
{
    const kvpi_recorded *wanted = &of->requests[i];
    size_t j = 0;
    assert_fields(*got, time_us, wanted->time_us, input_tokens, wanted->input_tokens, output_tokens,
                  wanted->output_tokens, cached_tokens, wanted->cached_tokens, first_us,
                  wanted->first_us);
    assert_fields(*got, last_us, wanted->last_us, session, wanted->session, scope, wanted->scope,
                  n_blocks, wanted->n_blocks);
    for (size_t r = 0; r < got->n_runs; r++)
        for (uint64_t k = 0; k < got->runs[r].n; k++, j++) {
            uint64_t *number = &number_of[of->contents[i][j]];
            if (*number == 0)
                *number = got->runs[r].first + k + 1;
            assert_int_equal(*number, got->runs[r].first + k + 1);
        }
    assert_int_equal(j, wanted->n_blocks);
}

/* Gives how many requests were read; all must be those that were written. */
static size_t read_file(const made *of, const char *path, int *result, bool *is_whole)
{
    kvpi_recording_reader *reader = NULL;
    kvpi_recording_error error = {""};
    uint64_t *number_of = calloc(N_REQUESTS * MAX_BLOCKS + 1, sizeof *number_of);
    kvpi_recorded got;
    size_t n = 0;
    FILE *file = fopen(path, "rb");
    assert_true(file != NULL && number_of != NULL);
    *is_whole = false;
    *result = kvpi_recording_open(file, &reader, &error);
    if (*result == 0) {
        assert_string_equal(kvpi_recording_describe(reader)->engine, about.engine);
        assert_int_equal(kvpi_recording_describe(reader)->block_tokens, BLOCK);
        while ((*result = kvpi_recording_next(reader, &got, &error)) == KVPI_RECORDING_REQUEST)
            compare(of, n++, &got, number_of);
        *is_whole = kvpi_recording_is_whole(reader);
        assert_int_equal(kvpi_recording_counted(reader).requests, n);
    }
    assert_true(*result == 0 || error.text[0] != '\0');
    kvpi_recording_free(reader);
    fclose(file);
    free(number_of);
    return n;
}

static void store(const char *path, const uint8_t *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

TEST(test_is_read_as_written)
{
    made *of = make();
    int result;
    bool is_whole;
    (void)state;
    assert_int_equal(read_file(of, of->path, &result, &is_whole), N_REQUESTS);
    assert_int_equal(result, KVPI_RECORDING_END);
    assert_true(is_whole);
    end(of);
}

TEST(test_cut_anywhere_is_read_up_to_there)
{
    made *of = make();
    size_t n_bytes, before = 0;
    uint8_t *bytes = load(of->path, &n_bytes);
    char path[64];
    (void)state;
    name_path(path);
    for (size_t n = 0; n < n_bytes; n += 1 + n / 97) {
        int result;
        bool is_whole;
        store(path, bytes, n);
        const size_t read = read_file(of, path, &result, &is_whole);
        assert_true(read >= before);
        assert_false(is_whole);
        assert_true(result == KVPI_RECORDING_END || n < 200); /* its header is cut */
        before = read;
    }
    assert_true(before >= N_REQUESTS - 50);
    unlink(path);
    free(bytes);
    end(of);
}

TEST(test_each_byte_is_checked)
{
    made *of = make();
    size_t n_bytes;
    uint8_t *bytes = load(of->path, &n_bytes);
    char path[64];
    (void)state;
    name_path(path);
    for (size_t at = 0; at < n_bytes; at += 1 + at / 61) {
        int result;
        bool is_whole;
        bytes[at] = (uint8_t)(bytes[at] ^ 1u << at % 8);
        store(path, bytes, n_bytes);
        /* What is read is right: few bits of zstd's own mean nothing. */
        const size_t read = read_file(of, path, &result, &is_whole);
        assert_true(result == KVPI_RECORDING_WRONG || !is_whole || read == N_REQUESTS);
        bytes[at] = (uint8_t)(bytes[at] ^ 1u << at % 8);
    }
    bytes[n_bytes] = 0;
    store(path, bytes, n_bytes + 1);
    int result;
    bool is_whole;
    (void)read_file(of, path, &result, &is_whole);
    assert_int_equal(result, KVPI_RECORDING_WRONG);
    unlink(path);
    free(bytes);
    end(of);
}

/* A disk that is full, and has room again later. */
TEST(test_nothing_is_written_behind_a_torn_frame)
{
    static made of;
    const struct rlimit full = {200, RLIM_INFINITY}, free_again = {RLIM_INFINITY, RLIM_INFINITY};
    kvpi_recording_error error = {""};
    uint64_t random = 5;
    int result;
    bool is_whole;
    (void)state;
    name_path(of.path);
    kvpi_recorder *recorder = open_recorder(of.path, &about);
    for (int i = 0; i < 40; i++) {
        const kvpi_recorded request = draw_request(&random, about.began_us + i, 0);
        assert_int_equal(kvpi_recorder_add_hashes(recorder, &request, NULL, 0, 8, &error), 0);
    }
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    assert_int_equal(kvpi_recorder_flush(recorder, &error), -1);
    assert_non_null(strstr(error.text, "cannot write"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &free_again), 0);
    const kvpi_recorded request = draw_request(&random, about.began_us, 0);
    assert_int_equal(kvpi_recorder_add_hashes(recorder, &request, NULL, 0, 8, &error), 0);
    assert_int_equal(kvpi_recorder_flush(recorder, &error), -1);
    assert_non_null(strstr(error.text, "behind a frame that could not be"));
    assert_int_equal(kvpi_recorder_close(recorder, &error), -1);
    (void)read_file(&of, of.path, &result, &is_whole);
    assert_int_equal(result, KVPI_RECORDING_END);
    assert_false(is_whole);
    unlink(of.path);
}

/* Sums of what sent no events are read in pieces, but a small file does not become many gigabytes
 * of requests. */
TEST(test_sums_become_few_requests)
{
    enum { N_SUMS = 300, MANY = 1 << 20, PIECES = 4096, FEW_PIECES = 16 };
    kvpi_recording_about of = about;
    kvpi_recorded sum = {.time_us = about.began_us,
                         .is_unseen = true,
                         .input_tokens = KVPI_RECORDING_MAX_TOKENS,
                         .first_us = KVPI_RECORDED_UNKNOWN,
                         .last_us = KVPI_RECORDED_UNKNOWN};
    kvpi_recording_error error = {""};
    kvpi_requests_options options;
    kvpi_requests_error why = {""};
    kvpi_requests *set = NULL;
    char path[64];
    (void)state;
    of.source = KVPI_RECORDING_EVENTS;
    name_path(path);
    kvpi_recorder *recorder = open_recorder(path, &of);
    for (int i = 0; i < N_SUMS; i++)
        assert_int_equal(kvpi_recorder_add_hashes(recorder, &sum, NULL, 0, 8, &error), 0);
    assert_int_equal(kvpi_recorder_close(recorder, &error), 0);
    kvpi_requests_options_init(&options);
    if (kvpi_requests_read(path, &options, &why, &set) != 0)
        fail_msg("%s", why.text);
    assert_int_equal(kvpi_requests_count(set), MANY + (N_SUMS - MANY / PIECES) * FEW_PIECES);
    kvpi_requests_free(set);
    unlink(path);
}

TEST(test_file_that_is_there_is_kept)
{
    made *of = make();
    kvpi_recorder_options options = {.path = of->path, .about = about};
    kvpi_recorder *recorder = NULL;
    kvpi_recording_error error = {""};
    int result;
    bool is_whole;
    (void)state;
    assert_int_equal(kvpi_recorder_open(&options, &recorder, &error), -1);
    assert_non_null(strstr(error.text, "is there already"));
    assert_int_equal(read_file(of, of->path, &result, &is_whole), N_REQUESTS);
    end(of);
}

TEST(test_wrong_request_is_refused_and_counted)
{
    char path[64];
    kvpi_recording_error error = {""};
    (void)state;
    name_path(path);
    kvpi_recorder *recorder = open_recorder(path, &about);
    kvpi_recorded request = {.time_us = 1, .input_tokens = 10, .cached_tokens = 11};
    assert_int_equal(kvpi_recorder_add_hashes(recorder, &request, "", 0, 1, &error), -1);
    assert_non_null(strstr(error.text, "cached_tokens"));
    assert_int_equal(kvpi_recorder_counts(recorder).lost, 1);
    kvpi_recorder_lost(recorder, 2);
    assert_int_equal(kvpi_recorder_counts(recorder).lost, 3);
    assert_int_equal(kvpi_recorder_close(recorder, &error), 0);
    unlink(path);
}

/* Blocks of tokens: a block is its tokens and those before it, in its scope; what fills no block
 * has no number. */
TEST(test_tokens_are_chained_by_scope)
{
    char path[64];
    int32_t tokens[3 * BLOCK];
    kvpi_recording_error error = {""};
    kvpi_recorded request = {.time_us = 1, .input_tokens = 3 * BLOCK - 1, .cached_tokens = -1};
    (void)state;
    name_path(path);
    memset(tokens, 0, sizeof tokens);
    kvpi_recorder *recorder = open_recorder(path, &about);
    for (int i = 0; i < 4; i++) {
        static const uint64_t contents[4] = {2, 2, 4, 5};
        tokens[BLOCK] = i == 3;
        const char *scope = i == 2 ? "other" : "one";
        assert_int_equal(kvpi_recorder_add_tokens(recorder, &request, scope, strlen(scope), tokens,
                                                  3 * BLOCK - 1, &error),
                         0);
        assert_int_equal(kvpi_recorder_counts(recorder).contents, contents[i]);
    }
    assert_int_equal(kvpi_recorder_session(recorder, "a", 1), 1);
    assert_int_equal(kvpi_recorder_session(recorder, "b", 1), 2);
    assert_int_equal(kvpi_recorder_scope(recorder, "b", 1), 1);
    assert_int_equal(kvpi_recorder_session(recorder, "a", 1), 1);
    assert_int_equal(kvpi_recorder_close(recorder, &error), 0);
    unlink(path);
}

/* ------------------------------------------------------------------------------- hostile bytes */

static void refuse(const uint8_t *payload, size_t n, const char *expected)
{
    static const uint8_t header[] = {1, 0, 1, BLOCK, 0, 1, 0, 0};
    char path[64];
    kvpi_frame_writer frames = {0};
    kvpi_recording_error error = {""};
    kvpi_recording_reader *reader = NULL;
    kvpi_recorded got;
    name_path(path);
    FILE *file = fopen(path, "w+b");
    assert_non_null(file);
    fputs(KVPI_RECORDING_MAGIC, file);
    const bool is_header = payload[0] == 1;
    if (!is_header)
        assert_int_equal(kvpi_frame_write(&frames, file, header, sizeof header, &error), 0);
    assert_int_equal(kvpi_frame_write(&frames, file, payload, n, &error), 0);
    kvpi_frame_writer_free(&frames);
    rewind(file);
    int result = kvpi_recording_open(file, &reader, &error);
    assert_int_equal(result, is_header ? -1 : 0);
    while (result == 0 && (result = kvpi_recording_next(reader, &got, &error)) == 1)
        result = 0;
    if (result != KVPI_RECORDING_WRONG || strstr(error.text, expected) == NULL ||
        strstr(error.text, "at byte ") == NULL)
        fail_msg("%d, %s; expected %s", result, error.text, expected);
    kvpi_recording_free(reader);
    fclose(file);
    unlink(path);
}

#define REFUSE(expected, ...)                                                                      \
    do {                                                                                           \
        const uint8_t payload[] = {__VA_ARGS__};                                                   \
        refuse(payload, sizeof payload, expected);                                                 \
    } while (0)

#define FRAME 2, 1, 0, 0, 0, 0, 0

TEST(test_hostile_fields_are_named)
{
    (void)state;
    REFUSE("source is 5", 1, 0, 5, BLOCK, 0, 1, 0, 0);
    REFUSE("engine_blocks is cut off", 1, 0, 4, BLOCK, 0, 1, 0, 0);
    REFUSE("is 0", 1, 0, 0, BLOCK, 0, 1, 0, 0);
    REFUSE("is 0", 1, 0, 1, 0, 0, 1, 0, 0);
    REFUSE("began_us", 1, 0, 1, BLOCK, 1, 1, 0, 0);
    REFUSE("engine is cut off", 1, 0, 1, BLOCK, 0, 1, 5, 0);
    REFUSE("engine has a NUL", 1, 0, 1, BLOCK, 0, 1, 1, 0, 0);
    REFUSE("more behind the header", 1, 0, 1, BLOCK, 0, 1, 0, 0, 0);
    REFUSE("its number is 1, expected 0", 1, 1, 1, BLOCK, 0, 1, 0, 0);
    REFUSE("its kind is 4", 4, 1);
    REFUSE("its number is 2, expected 1", 2, 2);
    REFUSE("requests before it are 1, expected 0", 2, 1, 1, 0, 0, 0, 0);
    REFUSE("unnumbered is cut off", 2, 1, 0, 0, 0, 0);
    REFUSE("more behind the end", 3, 1, 0, 0, 0, 0, 0, 0);
    REFUSE("shortest form", FRAME, 0x80, 0);
    REFUSE("flags is 128", FRAME, 0x80, 1);
    REFUSE("runs is 1, expected at most 0", FRAME, 32, 0, BLOCK, 0, 1, 0, 1);
    REFUSE("again is 1, expected at most 0", FRAME, 64, 0, BLOCK, 0, 0, 1);
    REFUSE("n is 2097154, expected at most 2097153", FRAME, 64, 0, BLOCK, 0, 1, 0, 1, 1, 0, 0x82,
           0x80, 0x80, 1);
    REFUSE("time is -1", FRAME, 0, 1);
    REFUSE("input_tokens is cut off", FRAME, 0, 0);
    REFUSE("output_tokens is", FRAME, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xf);
    REFUSE("cached_tokens is 2, expected at most 1", FRAME, 1, 0, 1, 1, 2);
    REFUSE("runs is 2, expected at most 1", FRAME, 0, 0, BLOCK, 0, 2, 0, 1, 0, 1);
    REFUSE("runs is 1, expected at most 0", FRAME, 0, 0, BLOCK, 0, 1);
    REFUSE("first is 1 from 0", FRAME, 0, 0, BLOCK, 0, 1, 2, 1);
    REFUSE("first is -1 from 0", FRAME, 0, 0, BLOCK, 0, 1, 1, 1);
    REFUSE("n is 2, expected at most 1", FRAME, 0, 0, BLOCK, 0, 1, 0, 2);
    REFUSE("a run of no blocks", FRAME, 0, 0, BLOCK, 0, 1, 0, 0);
    REFUSE("session", FRAME, 8, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1);
}

/* ------------------------------------------------------------------------------------ contents */

/* The last max names are known, whatever comes; what is forgotten gets a new number. */
TEST(test_contents_against_a_list)
{
    enum { MAX = 64, N = 40000, NAMES = 400 };
    kvpi_recent contents = {.max = MAX, .is_wide = true};
    static uint64_t number_of[NAMES], used[NAMES];
    uint64_t random = 3, next = 0;
    (void)state;
    for (uint64_t i = 1; i <= N; i++) {
        const uint64_t which = draw(&random) % (i % 1000 < 500 ? 90 : NAMES);
        uint8_t name[16] = {0};
        uint64_t number = 0;
        kvpi_siphash(name, &which, sizeof which, name);
        assert_true(kvpi_recent_number(&contents, name, &number));
        size_t between = 0; /* names since it was used */
        for (size_t j = 0; j < NAMES; j++)
            between += used[j] > used[which];
        if (used[which] != 0 && between < MAX)
            assert_int_equal(number, number_of[which]);
        if (used[which] == 0 || number != number_of[which])
            assert_int_equal(number, next);
        next += number == next;
        number_of[which] = number;
        used[which] = i;
    }
    assert_int_equal(contents.next, next);
    assert_true(contents.forgotten > 0 && contents.newer.n <= MAX && contents.older.n <= MAX);
    assert_true(contents.newer.n_places <= 1024);
    kvpi_recent_free(&contents);
}

/* openssl mac -macopt hexkey:000102030405060708090a0b0c0d0e0f -macopt size:16 -in FILE SIPHASH */
TEST(test_siphash_is_openssls)
{
    static const struct {
        size_t n;
        const char *hash;
    } vectors[] = {
        {0, "a3817f04ba25a8e66df67214c7550293"}, {1, "da87c1d86b99af44347659119b22fc45"},
        {7, "a1f1ebbed8dbc153c0b84aa61ff08239"}, {8, "3b62a9ba6258f5610f83e264f31497b4"},
        {9, "264499060ad9baabc47f8b02bb6d71ed"}, {16, "6ee2a4ca67b054bbfd3315bf85230577"},
        {80, "d2c76ae17a4370f858fba4795a0df822"}};
    uint8_t key[16], text[80], out[16];
    (void)state;
    for (unsigned i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)i;
    memcpy(key, text, sizeof key);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        char shown[33];
        kvpi_siphash(key, text, vectors[i].n, out);
        for (size_t j = 0; j < 16; j++)
            snprintf(shown + 2 * j, 3, "%02x", out[j]);
        assert_string_equal(shown, vectors[i].hash);
    }
}

TEST_MAIN(NULL, NULL)
