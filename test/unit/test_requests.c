/* The reader of request traces: every format, everything that can be wrong with a line, and the
 * tokens that stand for ids. Files are written to the directory of temporary files, read back and
 * removed.
 */
#define _POSIX_C_SOURCE 200809L

#include "mocka.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool/requests/requests.h"

typedef struct source {
    char path[256];
} source;

static source write_source(const void *bytes, size_t n_bytes)
{
    source made;
    const char *directory = getenv("TMPDIR");
    snprintf(made.path, sizeof made.path, "%s/kvpager-XXXXXX",
             directory != NULL ? directory : "/tmp");
    int descriptor = mkstemp(made.path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, bytes, n_bytes), (ssize_t)n_bytes);
    assert_int_equal(close(descriptor), 0);
    return made;
}

static kvpi_requests_options default_options(void)
{
    kvpi_requests_options options;
    kvpi_requests_options_init(&options);
    return options;
}

static kvpi_requests *read_with(const char *text, const kvpi_requests_options *options)
{
    kvpi_requests *set = NULL;
    kvpi_requests_error error = {""};
    source from = write_source(text, strlen(text));
    int result = kvpi_requests_read(from.path, options, &error, &set);
    unlink(from.path);
    if (result != 0)
        fail_msg("%s", error.text);
    return set;
}

static kvpi_requests *read_text(const char *text)
{
    kvpi_requests_options options = default_options();
    return read_with(text, &options);
}

/* ---------------------------------------------------------------------- what is wrong in a file */

#define MOONCAKE_1 "{\"timestamp\": 1, \"input_length\": 600, \"output_length\": 2, "
#define MOONCAKE   MOONCAKE_1 "\"hash_ids\": [1, 2]}\n"
#define TOKENS                                                                                     \
    "{\"arrival_time_ns\": 5, \"input_toks\": 2, \"output_toks\": 1, \"input_tok_ids\": [7, 8]}\n"
#define AZURE    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
#define BURSTGPT "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"

/* `says` begins at the line number: ":LINE: message". */
typedef struct bad_source {
    const char *text;
    const char *says;
} bad_source;

static const bad_source bad_sources[] = {
    {"", ":1: the file is empty"},
    {"\n \n\r\n", ":3: the file has no requests"},
    {"\xef\xbb\xbf", ":1: the file has no requests"},
    {AZURE, ":1: the file has no requests"},
    {"hello\n", ":1: 'hello' begins no known format"},
    {"[" MOONCAKE "]", ":1: a JSON array, expected one JSON object a line"},
    {"{}\n", ":1: no request in this object"},
    {MOONCAKE "{\"timestamp\": 1,\n", ":2: not valid JSON"},
    {MOONCAKE "[1]\n", ":2: the line is an array, expected a JSON object"},
    {MOONCAKE "null\n", ":2: the line is no object, expected a JSON object"},
    {MOONCAKE MOONCAKE_1 "\"hash_ids\": [1, 2]} x\n", ":2: not valid JSON"},
    {MOONCAKE MOONCAKE_1 "\"timestamp\": 2, \"hash_ids\": [1, 2]}\n",
     ":2: not valid JSON: a name that was there before in column"},
    {MOONCAKE "\n" MOONCAKE_1 "\"hash_ids\": [1, 2], \"s\": \"\x01\"}\n", ":3: not valid JSON"},
    {MOONCAKE TOKENS, ":2: no \"timestamp\", expected in every request (Mooncake JSONL)"},
    {TOKENS MOONCAKE, ":2: no \"arrival_time_ns\", expected in every request (token JSONL"},
    {"{\"timestamp\": \"1\", \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1]}",
     ":1: timestamp is \"1\", expected milliseconds from 0 to 9007199254741"},
    {"{\"timestamp\": -1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1]}",
     ":1: timestamp is -1, expected milliseconds from 0"},
    {"{\"timestamp\": 1e300, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1]}",
     ":1: timestamp is 1e300, expected milliseconds from 0 to 9007199254741: are these "
     "microseconds (--time-unit us)?"},
    {"{\"timestamp\": 1, \"input_length\": -600, \"output_length\": 1, \"hash_ids\": []}",
     ":1: input_length is -600, expected a whole number from 0 to 1073741823"},
    {"{\"timestamp\": 1, \"input_length\": 1.5, \"output_length\": 1, \"hash_ids\": [1]}",
     ":1: input_length is 1.5, expected a whole number"},
    {"{\"timestamp\": 1, \"input_length\": null, \"output_length\": 1, \"hash_ids\": [1]}",
     ":1: input_length is null"},
    {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": -1, \"hash_ids\": [1]}",
     ":1: output_length is -1"},
    {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1073741824, \"hash_ids\": [1]}",
     ":1: output_length is 1073741824, expected"},
    {"{\"timestamp\": 1, \"input_length\": 99999999999999999999, \"hash_ids\": [1]}",
     ":1: input_length is 99999999999999999999, expected"},
    {MOONCAKE_1 "\"hash_ids\": 7}\n", ":1: hash_ids is 7, expected an array"},
    {MOONCAKE_1 "\"hash_ids\": [1, \"2\"]}\n", ":1: hash_ids[1] is \"2\", expected"},
    {MOONCAKE_1 "\"hash_ids\": [1, -2]}\n", ":1: hash_ids[1] is -2"},
    {MOONCAKE_1 "\"hash_ids\": [1]}\n", ":1: hash_ids has 1 ids, expected exactly 2"},
    {MOONCAKE MOONCAKE_1 "\"hash_ids\": [1, 2, 3]}\n",
     ":2: hash_ids has 3 ids, expected exactly 2"},
    {"{\"arrival_time_ns\": 5, \"input_toks\": 2, \"output_toks\": 1, \"input_tok_ids\": [7]}",
     ":1: input_tok_ids has 1 ids, expected exactly 2"},
    {"{\"arrival_time_ns\": 5, \"input_toks\": 1, \"output_toks\": 1, \"input_tok_ids\": [-7]}",
     ":1: input_tok_ids[0] is -7"},
    {"{\"arrival_time_ns\": 5, \"input_toks\": 1, \"output_toks\": 1, \"input_tok_ids\":"
     " [2147483648]}",
     ":1: input_tok_ids[0] is 2147483648"},
    {"{\"arrival_time_ns\": 5, \"input_toks\": 1, \"output_toks\": 2, \"input_tok_ids\": [7],"
     " \"output_tok_ids\": [1]}",
     ":1: output_tok_ids has 1 ids, expected exactly 2"},
    {"{\"arrival_time_ns\": -1, \"input_toks\": 1, \"output_toks\": 1, \"input_tok_ids\": [7]}",
     ":1: arrival_time_ns is -1, expected nanoseconds from 0 to"},
    {AZURE "2023-11-16 18:15:46.6805900,374\n", ":2: 2 fields, expected 3 as in the header"},
    {AZURE "2023-11-16 18:15:46.6805900,374,44,1\n", ":2: 4 fields, expected 3"},
    {AZURE "2023-11-16 18:15:46.6805900,,44\n", ":2: ContextTokens is '', expected a whole number"},
    {AZURE "2023-11-16 18:15:46.6805900,-3,44\n", ":2: ContextTokens is '-3', expected"},
    {AZURE "2023-11-16 18:15:46.6805900,3x,44\n", ":2: ContextTokens is '3x', expected"},
    {AZURE "2023-11-16 18:15:46.6805900,3,1073741824\n", ":2: GeneratedTokens is '1073741824'"},
    {AZURE "2023-11-16 18:15:46.6805900,3,\x1b[2J\n", ":2: GeneratedTokens is '?[2J'"},
    {AZURE "2023-13-16 18:15:46,3,4\n", ":2: TIMESTAMP is '2023-13-16 18:15:46', expected a time"},
    {AZURE "2023-02-29 18:15:46,3,4\n", ":2: TIMESTAMP is '2023-02-29 18:15:46'"},
    {AZURE "2023-02-28 24:15:46,3,4\n", ":2: TIMESTAMP is '2023-02-28 24:15:46'"},
    {AZURE "2100-02-29 00:00:00,3,4\n", ":2: TIMESTAMP is '2100-02-29 00:00:00'"},
    {AZURE "2023-02-28 18:15:46.,3,4\n", ":2: TIMESTAMP is '2023-02-28 18:15:46.'"},
    {AZURE "2023-02-28 18:15:46+1,3,4\n", ":2: TIMESTAMP is '2023-02-28 18:15:46+1'"},
    {AZURE "12,3,4\n", ":2: TIMESTAMP is '12'"},
    {BURSTGPT "5,ChatGPT,472,18,490,Conversation log\nx,GPT-4,1,1,2,API log\n",
     ":3: Timestamp is 'x', expected seconds"},
    {BURSTGPT "5.,ChatGPT,472,18,490,Conversation log\n", ":2: Timestamp is '5.'"},
    {BURSTGPT "-5,ChatGPT,472,18,490,Conversation log\n", ":2: Timestamp is '-5'"},
    {BURSTGPT "99999999999999,ChatGPT,472,18,490,Log\n", ":2: Timestamp is '99999999999999'"},
    {BURSTGPT "5,ChatGPT,472,1.5,490,Conversation log\n", ":2: Response tokens is '1.5'"},
    {"Timestamp,Model,Request tokens\n1,2,3\n", ":1: 'Timestamp' begins no known format"},
};

/* Reads bytes that must be refused, and compares path, line and message. */
static void expect_refused(const void *bytes, size_t n_bytes, const char *says)
{
    kvpi_requests_options options = default_options();
    kvpi_requests *set = NULL;
    kvpi_requests_error error = {""};
    source from = write_source(bytes, n_bytes);
    int result = kvpi_requests_read(from.path, &options, &error, &set);
    unlink(from.path);
    size_t n = strlen(from.path);
    if (result != -1 || set != NULL || strncmp(error.text, from.path, n) != 0 ||
        strncmp(error.text + n, says, strlen(says)) != 0)
        fail_msg("result %d, message '%s', expected '...%s'", result, error.text, says);
}

TEST(test_bad_sources)
{
    for (size_t i = 0; i < sizeof bad_sources / sizeof *bad_sources; i++)
        expect_refused(bad_sources[i].text, strlen(bad_sources[i].text), bad_sources[i].says);
}

TEST(test_nul_byte)
{
    static const char json[] = MOONCAKE "{\"timestamp\": 1\0}\n";
    static const char csv[] = AZURE "2023-11-16 18:15:46,3\0,4\n";
    expect_refused(json, sizeof json - 1, ":2: a NUL byte in column 16");
    expect_refused(csv, sizeof csv - 1, ":2: a NUL byte in column 22");
}

TEST(test_unreadable)
{
    kvpi_requests_options options = default_options();
    kvpi_requests *set = NULL;
    kvpi_requests_error error = {""};
    char folder[] = "/tmp/kvpager-XXXXXX";
    assert_non_null(mkdtemp(folder));
    assert_int_equal(kvpi_requests_read(folder, &options, &error, &set), -1);
    assert_int_equal(rmdir(folder), 0);
    assert_string_equal(strchr(error.text, ':'),
                        ": no traces in this folder, expected files whose names end in .json, "
                        ".jsonl or .csv, perhaps with .gz or .zst, or in .kvprec");
    assert_int_equal(kvpi_requests_read("/no/such", &options, &error, &set), -1);
    assert_string_equal(error.text, "/no/such: cannot open: No such file or directory");
    assert_null(set);
}

/* ------------------------------------------------------------------------------ what is right */

TEST(test_mooncake)
{
    kvpi_requests *set = read_text(MOONCAKE "{\"output_length\": 0, \"more\": {}, \"input_length\":"
                                            " 0, \"timestamp\": 1.0005, \"hash_ids\": []}");
    assert_int_equal(kvpi_requests_count(set), 2);
    assert_int_equal(kvpi_requests_get_format(set), KVPI_REQUESTS_MOONCAKE);
    const kvpi_request *request = kvpi_requests_get(set, 0);
    assert_fields(*request, timestamp_us, 1000, line, 1, input_length, 600, output_length, 2);
    assert_fields(*request, n_ids, 2, ids[0], 1, ids[1], 2);
    request = kvpi_requests_get(set, 1);
    assert_fields(*request, timestamp_us, 1001, input_length, 0, n_ids, 0);
    kvpi_requests_free(set);
}

TEST(test_token_jsonl)
{
    kvpi_requests *set = read_text(TOKENS "{\"arrival_time_ns\": 9999, \"input_toks\": 1, "
                                          "\"output_toks\": 2, \"input_tok_ids\": [3], "
                                          "\"output_tok_ids\": [4, 5]}\n");
    int32_t tokens[2];
    kvpi_requests_key key = {0, 0};
    assert_int_equal(kvpi_requests_get_format(set), KVPI_REQUESTS_TOKENS);
    kvpi_requests_input(kvpi_requests_get(set, 0), &key, 0, tokens);
    assert_int_equal(tokens[0], 7);
    assert_int_equal(tokens[1], 8);
    assert_int_equal(kvpi_requests_get(set, 1)->timestamp_us, 9);
    kvpi_requests_input(kvpi_requests_get(set, 1), &key, 0, tokens);
    assert_int_equal(tokens[0], 3);
    kvpi_requests_output(kvpi_requests_get(set, 1), &key, tokens);
    assert_int_equal(tokens[0], 4);
    assert_int_equal(tokens[1], 5);
    kvpi_requests_output(kvpi_requests_get(set, 0), &key, tokens);
    assert_true(tokens[0] >= 1 << 30);
    kvpi_requests_free(set);
}

/* CRLF, byte order mark, no newline at the end, blank lines, spaces, an offset from UTC: the
 * differences between the times are known. */
TEST(test_azure)
{
    kvpi_requests *set = read_text("\xef\xbb\xbfTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                                   "2023-12-31 23:59:59.9999999,374,44\r\n"
                                   "\r\n"
                                   " 2024-01-01 00:00:00 , 0 , 1\r\n"
                                   "2024-02-29 00:00:00Z,2,3\r\n"
                                   "2024-03-01 01:00:00.5+01:00,4,5");
    assert_int_equal(kvpi_requests_get_format(set), KVPI_REQUESTS_AZURE);
    assert_int_equal(kvpi_requests_count(set), 4);
    assert_fields(*kvpi_requests_get(set, 0), input_length, 374, output_length, 44);
    assert_int_equal(kvpi_requests_get(set, 1)->line, 4);
    assert_int_equal(kvpi_requests_get(set, 3)->output_length, 5);
    int64_t midnight = kvpi_requests_get(set, 1)->timestamp_us;
    assert_int_equal(midnight, INT64_C(1704067200000000));
    assert_int_equal(midnight - kvpi_requests_get(set, 0)->timestamp_us, 1);
    assert_int_equal(kvpi_requests_get(set, 2)->timestamp_us - midnight,
                     INT64_C(59) * 86400 * 1000000);
    assert_int_equal(kvpi_requests_get(set, 3)->timestamp_us - midnight,
                     INT64_C(60) * 86400 * 1000000 + 500000);
    kvpi_requests_free(set);
}

TEST(test_burstgpt)
{
    kvpi_requests *set = read_text(BURSTGPT "45.25,GPT-4,472,18,490,Conversation log\n"
                                            "5,ChatGPT,1,0,1,API log\n");
    assert_int_equal(kvpi_requests_get_format(set), KVPI_REQUESTS_BURSTGPT);
    assert_int_equal(kvpi_requests_get(set, 0)->timestamp_us, 5000000);
    assert_fields(*kvpi_requests_get(set, 1), timestamp_us, 45250000, input_length, 472,
                  output_length, 18);
    kvpi_requests_free(set);
    set = read_text("Session,Response tokens,Request tokens,Timestamp\nx,3,2,1\n");
    assert_fields(*kvpi_requests_get(set, 0), input_length, 2, output_length, 3);
    kvpi_requests_free(set);
}

/* By time, ties in file order; the arrays follow their requests. */
TEST(test_order)
{
    char text[4096] = "";
    static const int times[] = {5, 1, 5, 0, 1, 5};
    static const int order[] = {3, 1, 4, 0, 2, 5};
    for (int i = 0; i < 6; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"timestamp\": %d, \"input_length\": 5, \"output_length\": 1, \"hash_ids\": "
                 "[%d]}\n",
                 times[i], 100 + i);
    kvpi_requests *set = read_text(text);
    for (size_t i = 0; i < 6; i++) {
        const kvpi_request *request = kvpi_requests_get(set, i);
        assert_fields(*request, number, order[i], line, order[i] + 1, ids[0], 100 + order[i]);
    }
    kvpi_requests_free(set);
}

TEST(test_trace_block)
{
    kvpi_requests_options options = default_options();
    options.trace_block = 16;
    kvpi_requests *set = read_with("{\"timestamp\": 0, \"input_length\": 33, \"output_length\": 1, "
                                   "\"hash_ids\": [1, 2, 3]}\n",
                                   &options);
    assert_int_equal(kvpi_requests_get(set, 0)->n_ids, 3);
    kvpi_requests_free(set);
}

TEST(test_lenient)
{
    kvpi_requests_options options = default_options();
    options.lenient = true;
    kvpi_requests *set = read_with(MOONCAKE MOONCAKE_1 "\"hash_ids\": [1]}\n" MOONCAKE_1
                                                       "\"hash_ids\": [1, 2, 3]}\n",
                                   &options);
    assert_int_equal(kvpi_requests_mended(set), 2);
    assert_int_equal(kvpi_requests_get(set, 1)->n_ids, 1);
    assert_int_equal(kvpi_requests_get(set, 2)->n_ids, 2);
    int32_t tokens[3][600];
    kvpi_requests_key key = {512, 0};
    for (size_t i = 0; i < 3; i++)
        kvpi_requests_input(kvpi_requests_get(set, i), &key, 0, tokens[i]);
    assert_memory_equal(tokens[0], tokens[2], sizeof tokens[0]);
    assert_memory_equal(tokens[0], tokens[1], 512 * sizeof(int32_t));
    for (size_t j = 512; j < 600; j++)
        assert_true(tokens[1][j] >= 1 << 30 && tokens[0][j] < 1 << 30);
    kvpi_requests_free(set);
}

/* 100,000 ids on a line of 700 kB. */
TEST(test_long_line)
{
    const size_t n = 100000;
    char *text = malloc(n * 8 + 200), *at = text;
    assert_non_null(text);
    at += sprintf(at,
                  "{\"timestamp\": 0, \"output_length\": 1, \"input_length\": %zu, "
                  "\"hash_ids\": [1",
                  n * 512);
    for (size_t i = 1; i < n; i++)
        at += sprintf(at, ",%zu", i + 1);
    strcpy(at, "]}");
    kvpi_requests *set = read_text(text);
    assert_int_equal(kvpi_requests_get(set, 0)->n_ids, n);
    assert_int_equal(kvpi_requests_get(set, 0)->ids[n - 1], n);
    kvpi_requests_free(set);
    free(text);
}

static void note_progress(void *context, uint64_t bytes_read)
{
    uint64_t *last = context;
    assert_true(bytes_read > *last);
    *last = bytes_read;
}

TEST(test_progress)
{
    kvpi_requests_options options = default_options();
    uint64_t last = 0;
    char *text = malloc(2000 * strlen(MOONCAKE) + 1);
    assert_non_null(text);
    for (size_t i = 0; i < 2000; i++)
        strcpy(text + i * strlen(MOONCAKE), MOONCAKE);
    options.on_progress = note_progress;
    options.progress_context = &last;
    kvpi_requests_free(read_with(text, &options));
    assert_true(last > 65536);
    free(text);
}

/* --------------------------------------------------------------------------------- the tokens */

/* Printed by test/tools/lib_request_tokens.py, which has the formula but none of the code. */
static const struct {
    uint64_t id;
    uint64_t seed;
    int32_t first[4];
} token_vectors[] = {
    {0, 0, {809319078, 399186195, 1062795136, 652662253}},
    {1, 0, {128000003, 791608944, 381476061, 1045085002}},
    {1, 7, {782238247, 372105364, 1035714305, 625581422}},
    {INT64_C(1073741823), 0, {535923094, 125790211, 789399152, 379266269}},
    {INT64_C(1073741824), 0, {15012777, 956507447, 268488835, 136241681}},
    {INT64_MAX, UINT64_MAX, {83950221, 174489010, 337426279, 427965068}},
};

TEST(test_token_vectors)
{
    for (size_t i = 0; i < sizeof token_vectors / sizeof *token_vectors; i++) {
        kvpi_request request = {.input_length = 4, .n_ids = 1, .ids = &token_vectors[i].id};
        kvpi_requests_key key = {512, token_vectors[i].seed};
        int32_t tokens[4];
        kvpi_requests_input(&request, &key, 0, tokens);
        assert_memory_equal(tokens, token_vectors[i].first, sizeof tokens);
    }
    kvpi_request request = {.number = 7, .input_length = 100, .output_length = 1};
    kvpi_requests_key key = {512, 0};
    int32_t own;
    kvpi_requests_output(&request, &key, &own);
    assert_int_equal(own, 1541556789);
}

static int compare_tokens(const void *left, const void *right)
{
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return a < b ? -1 : a > b;
}

/* At one offset, 100,000 ids below 2^30 have 100,000 tokens. */
TEST(test_ids_never_collide)
{
    enum { N = 100000, OFFSETS = 5 };
    int32_t *tokens = malloc(N * sizeof *tokens);
    assert_non_null(tokens);
    for (size_t offset = 0; offset < OFFSETS; offset++) {
        for (size_t i = 0; i < N; i++) {
            int32_t block[OFFSETS];
            uint64_t id = i % 2 == 0 ? i : (UINT64_C(1) << 30) - i;
            kvpi_request request = {.input_length = OFFSETS, .n_ids = 1, .ids = &id};
            kvpi_requests_key key = {512, 42};
            kvpi_requests_input(&request, &key, 0, block);
            tokens[i] = block[offset];
        }
        qsort(tokens, N, sizeof *tokens, compare_tokens);
        for (size_t i = 1; i < N; i++)
            assert_true(tokens[i - 1] < tokens[i]);
        assert_true(tokens[0] >= 0 && tokens[N - 1] < 1 << 30);
    }
    free(tokens);
}

/* The last block of a request is the beginning of its block; input and output of a request without
 * ids are one stream of its own, whatever the length of the input. */
TEST(test_token_streams)
{
    enum { LONG = 1500, SHORT = 1027 };
    static const uint64_t ids[] = {5, 6, 7};
    static int32_t whole[LONG], cut[SHORT], own[LONG], output[100];
    kvpi_requests_key key = {512, 0};
    kvpi_request request = {.input_length = LONG, .n_ids = 3, .ids = ids};
    kvpi_requests_input(&request, &key, 0, whole);
    request.input_length = SHORT;
    kvpi_requests_input(&request, &key, 0, cut);
    assert_memory_equal(whole, cut, sizeof cut);

    request = (kvpi_request){.number = 3, .input_length = LONG};
    kvpi_requests_input(&request, &key, 0, own);
    request.input_length = LONG - 99;
    request.output_length = 99;
    kvpi_requests_output(&request, &key, output);
    assert_memory_equal(own + LONG - 99, output, 99 * sizeof *output);
    request.number = 4;
    kvpi_requests_output(&request, &key, whole);
    for (size_t i = 0; i < 99; i++)
        assert_true(whole[i] != output[i] && whole[i] >= 1 << 30);
}

/* ------------------------------------------------------------------------------------- turns */

enum { TURNS = 400, SESSIONS = 4, IDS_MOST = 24, TURN_BLOCK = 4, TURN_MOST = 4 * IDS_MOST + 40 };

typedef struct turn {
    uint64_t ids[IDS_MOST];
    uint32_t n, input, output;
    int before; /* number of the one in its session; -1: none */
} turn;

static uint32_t draw(uint32_t *random, uint32_t below)
{
    *random = *random * 1664525u + 1013904223u;
    return (*random >> 8) % below;
}

/* It goes on from another one, is a part of it, changes an id of it, or begins anew. */
static turn next_turn(uint32_t *random, const turn *before, uint64_t *id)
{
    turn made = {.n = before->n, .output = draw(random, 12)};
    const uint32_t kind = draw(random, 8);
    memcpy(made.ids, before->ids, sizeof made.ids);
    if (kind == 0 || before->n + 6 > IDS_MOST)
        made.n = draw(random, before->n + 1);
    if (kind == 1 && made.n > 0)
        made.ids[draw(random, made.n)] = ++*id;
    if (kind == 2)
        made.n = 0;
    for (uint32_t more = draw(random, 6); kind > 1 && more > 0 && made.n < IDS_MOST; more--)
        made.ids[made.n++] = ++*id;
    made.input = made.n * TURN_BLOCK - (made.n == 0 ? 0 : draw(random, TURN_BLOCK));
    return made;
}

static size_t write_turn(char *at, size_t room, size_t number, size_t session, const turn *of)
{
    size_t used = (size_t)snprintf(at, room,
                                   "{\"timestamp\": %zu, \"session_id\": %zu, "
                                   "\"input_length\": %u, \"output_length\": %u, \"hash_ids\": [",
                                   number, session, of->input, of->output);
    for (uint32_t i = 0; i < of->n; i++)
        used += (size_t)snprintf(at + used, room - used, "%s%llu", i == 0 ? "" : ", ",
                                 (unsigned long long)of->ids[i]);
    return used + (size_t)snprintf(at + used, room - used, "]}\n");
}

/* Tokens of a prompt and its answer. Gives how many. */
static uint32_t make_whole(const kvpi_request *request, const kvpi_requests_key *key,
                           int32_t *tokens)
{
    kvpi_requests_input(request, key, 0, tokens);
    kvpi_requests_output(request, key, tokens + request->input_length);
    return (uint32_t)(request->input_length + request->output_length);
}

/* Made anew, or behind what it has in common with the turn before: the same. Gives how much. */
static uint32_t check_common(const kvpi_request *request, const kvpi_requests_key *key)
{
    int32_t tokens[TURN_MOST], whole[TURN_MOST];
    const uint32_t n = kvpi_requests_common(request, key);
    if (request->before == NULL) {
        assert_int_equal(n, 0);
        return 0;
    }
    assert_true(n <= make_whole(request->before, key, tokens));
    assert_true(n <= (uint32_t)request->input_length);
    (void)make_whole(request, key, whole);
    kvpi_requests_input(request, key, n, tokens);
    assert_memory_equal(tokens, whole, (size_t)request->input_length * sizeof *tokens);
    return n;
}

/* Ids lie in one place where prompts begin with one another: each request has its own all the same.
 * Tokens that are in common with the turn before are told without making them. */
TEST(test_turns)
{
    static turn turns[TURNS];
    static char text[TURNS * 400];
    int newest[SESSIONS] = {-1, -1, -1, -1};
    uint32_t random = 7, n_shared = 0, n_by_ids = 0;
    uint64_t id = 0;
    size_t used = 0;
    for (size_t i = 0; i < TURNS; i++) {
        static const turn nothing;
        const size_t session = draw(&random, 3) == 0 ? draw(&random, SESSIONS) : i / 100;
        const int before = newest[session];
        turns[i] = next_turn(&random, before < 0 ? &nothing : &turns[before], &id);
        turns[i].before = before;
        newest[session] = (int)i;
        used += write_turn(text + used, sizeof text - used, i, session, &turns[i]);
    }
    kvpi_requests_options options = default_options();
    options.trace_block = TURN_BLOCK;
    kvpi_requests *set = read_with(text, &options);
    const kvpi_requests_key key = {TURN_BLOCK, 3};
    for (size_t i = 0; i < TURNS; i++) {
        const kvpi_request *request = kvpi_requests_get(set, i);
        assert_int_equal(request->n_ids, turns[i].n);
        assert_memory_equal(request->ids, turns[i].ids, turns[i].n * sizeof *turns[i].ids);
        assert_int_equal(request->before == NULL ? -1 : (int)request->before->number,
                         turns[i].before);
        const uint32_t n = check_common(request, &key);
        n_shared += n > 0 && request->before->next == request;
        n_by_ids += n > 0 && request->before->next != request;
    }
    assert_true(n_shared > 20 && n_by_ids > 20);
    kvpi_requests_free(set);
}

/* Another seed: other tokens, the same sharing. */
TEST(test_seed)
{
    static const uint64_t ids[] = {5};
    int32_t a[16], b[16];
    kvpi_request request = {.input_length = 16, .n_ids = 1, .ids = ids};
    kvpi_requests_input(&request, &(kvpi_requests_key){16, 0}, 0, a);
    kvpi_requests_input(&request, &(kvpi_requests_key){16, 1}, 0, b);
    for (size_t i = 0; i < 16; i++)
        assert_int_not_equal(a[i], b[i]);
}

TEST_MAIN(NULL, NULL)
