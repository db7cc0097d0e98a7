/* What KV events tell of requests: an engine of ours serves random traffic and publishes as vLLM
 * does, what is recorded of it goes through `kvpager mrc`'s own code, and the hits of the same
 * engine with other sizes must be within the bounds. Scenes by hand say which events are one
 * request.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mocka.h"
#include "xorshift.h"
#include "tool/mrc/report/bounds.h"
#include "tool/record/evicted.h"
#include "tool/record/lookups.h"
#include "tool/tool.h"

enum { BLOCK = 16, MAX_BLOCKS = 40, N_REQUESTS = 1000, MAX_SIZE = 600, SIZES = 4, N_SEEDS = 8 };

int kvpi_tool_fail(const char *command, const char *format, ...)
{
    (void)command;
    fail_msg("%s", format);
    return TOOL_FAILED;
}

/* ------------------------------------------------------------------------------ an LRU engine */

/* Prompt, output behind it, and the hash of each full block of both. */
typedef struct served {
    uint64_t hashes[MAX_BLOCKS];
    int n_prompt, n_output; /* tokens */
} served;

typedef struct engine {
    int size, n;
    uint64_t hashes[MAX_SIZE], used[MAX_SIZE], clock;
    uint64_t queries, hits;
    kvpi_lookups *to; /* NULL: it publishes nothing */
    int64_t now_us;
    uint64_t batch, random;
    bool reports; /* look-ups */
} engine;

static int find(const engine *of, uint64_t hash)
{
    int i = of->n;
    while (--i >= 0 && of->hashes[i] != hash)
        ;
    return i;
}

static void take(engine *of, const kvpi_event *event)
{
    kvpi_recording_error error = {""};
    if (of->to != NULL &&
        kvpi_lookups_event(of->to, event, of->now_us, ++of->batch, false, &error) != 0)
        fail_msg("%s", error.text);
}

static void publish(engine *of, const served *request, int first, int n)
{
    const kvpi_event event = {.kind = KVPI_EVENT_STORED,
                              .is_device = true,
                              .has_parent = first > 0,
                              .parent = first > 0 ? request->hashes[first - 1] : 0,
                              .hashes = request->hashes + first,
                              .n_hashes = (size_t)n,
                              .block_tokens = BLOCK};
    if (n > 0)
        take(of, &event);
}

/* Blocks [0, n_kept) stay. */
static void make_room(engine *of, const served *request, int n_kept, int n_wanted)
{
    while (of->n + n_wanted > of->size) {
        int oldest = -1;
        for (int i = 0; i < of->n; i++) {
            bool kept = false;
            for (int k = 0; k < n_kept; k++)
                kept = kept || request->hashes[k] == of->hashes[i];
            if (!kept && (oldest < 0 || of->used[i] < of->used[oldest]))
                oldest = i;
        }
        assert_true(oldest >= 0);
        const kvpi_event event = {.kind = KVPI_EVENT_REMOVED,
                                  .is_device = true,
                                  .hashes = &of->hashes[oldest],
                                  .n_hashes = 1};
        take(of, &event);
        of->n--;
        of->hashes[oldest] = of->hashes[of->n];
        of->used[oldest] = of->used[of->n];
    }
}

static void serve(engine *of, const served *request)
{
    const int n_full = (request->n_prompt + request->n_output) / BLOCK;
    const int n_all = (request->n_prompt + request->n_output + BLOCK - 1) / BLOCK;
    const int n_prompt = request->n_prompt / BLOCK;
    int n_hit = 0;
    while (n_hit < (request->n_prompt - 1) / BLOCK && find(of, request->hashes[n_hit]) >= 0)
        n_hit++;
    of->queries += (uint64_t)request->n_prompt;
    of->hits += (uint64_t)(n_hit * BLOCK);
    if (of->reports)
        publish(of, request, 0, n_hit);
    make_room(of, request, n_hit, n_all - n_hit);
    for (int at = n_hit; at < n_prompt;) { /* in chunks */
        const int left = n_prompt - at, n = draw(&of->random) % 3 == 0 ? 1 + left / 2 : left;
        publish(of, request, at, n);
        at += n;
    }
    for (int at = n_prompt > n_hit ? n_prompt : n_hit; at < n_full; at++)
        publish(of, request, at, 1);
    for (int i = n_full; i-- > 0;) { /* the end of it goes first */
        int at = find(of, request->hashes[i]);
        if (at < 0)
            of->hashes[at = of->n++] = request->hashes[i];
        of->used[at] = ++of->clock;
    }
}

/* ------------------------------------------------------------------------------------- traffic */

static void name_blocks(served *request, int n_shared, uint64_t *random)
{
    for (int i = n_shared; i < (request->n_prompt + request->n_output) / BLOCK; i++)
        request->hashes[i] = draw(random);
}

/* Exact repeats, next turns, other ends of a beginning, and new ones. */
static served draw_request(const served *before, int n, uint64_t *random)
{
    const uint64_t kind = n == 0 ? 99 : draw(random) % 100;
    served made = n == 0 ? (served){.n_prompt = 0} : before[draw(random) % (uint64_t)n];
    const int whole = made.n_prompt + made.n_output;
    int shared = 0;
    if (kind < 30) {
        shared = made.n_prompt / BLOCK;
    } else if (kind < 60 && whole < MAX_BLOCKS * BLOCK / 2) {
        made.n_prompt = whole + 1 + (int)(draw(random) % 150);
        shared = whole / BLOCK;
    } else if (kind < 80 && made.n_prompt > 0) {
        shared = (int)(draw(random) % (uint64_t)(made.n_prompt / BLOCK + 1));
        made.n_prompt = shared * BLOCK + 1 + (int)(draw(random) % 150);
    } else {
        made.n_prompt = 1 + (int)(draw(random) % 300);
    }
    const int most = MAX_BLOCKS * BLOCK - 100;
    made.n_prompt = made.n_prompt < most ? made.n_prompt : most;
    shared = shared < made.n_prompt / BLOCK ? shared : made.n_prompt / BLOCK;
    made.n_output = (int)(draw(random) % 60);
    name_blocks(&made, shared, random);
    return made;
}

typedef struct world {
    char path[64];
    served requests[N_REQUESTS];
    engine sizes[SIZES]; /* half, the engine's, twice, four times */
} world;

static void count(engine *of, bool is_last)
{
    kvpi_recording_error error = {""};
    const kvpi_counters now = {of->queries + 1000, of->hits + 500}; /* it ran before */
    if (kvpi_lookups_count(of->to, &now, of->now_us, is_last, &error) != 0)
        fail_msg("%s", error.text);
}

static void record(world *of, uint64_t source, uint64_t seed)
{
    kvpi_recorder_options to = {.path = of->path,
                                .about = {.source = source,
                                          .block_tokens = BLOCK,
                                          .began_us = 1700000000000000,
                                          .max_contents = 1u << 20,
                                          .engine_blocks = (uint64_t)of->sizes[1].size}};
    kvpi_recorder *recorder = NULL;
    kvpi_recording_error error = {""};
    uint64_t random = seed;
    assert_int_equal(kvpi_recorder_open(&to, &recorder, &error), 0);
    engine *own = &of->sizes[1];
    own->to = kvpi_lookups_new(recorder, &to.about);
    assert_non_null(own->to);
    own->reports = source == KVPI_RECORDING_LOOKUPS;
    own->now_us = to.about.began_us;
    count(own, false);
    for (int i = 0; i < N_REQUESTS; i++) {
        of->requests[i] = draw_request(of->requests, i, &random);
        own->now_us += 1 + (int64_t)(draw(&random) % 90000000);
        own->random = random;
        own->batch++; /* something else */
        for (int k = 0; k < SIZES; k++)
            serve(&of->sizes[k], &of->requests[i]);
        if (source == KVPI_RECORDING_EVENTS) {
            count(own, false);
            count(own, false);
        }
    }
    assert_int_equal(kvpi_lookups_end(own->to, &error), 0);
    if (source == KVPI_RECORDING_EVENTS)
        count(own, true);
    kvpi_lookups_free(own->to);
    assert_int_equal(kvpi_recorder_close(recorder, &error), 0);
}

static world *make(uint64_t source, uint64_t seed)
{
    world *of = calloc(1, sizeof *of);
    assert_non_null(of);
    strcpy(of->path, "/tmp/kvpager-XXXXXX");
    const int descriptor = mkstemp(of->path);
    assert_true(descriptor >= 0);
    close(descriptor);
    unlink(of->path);
    const int half = MAX_BLOCKS + (int)(seed % 30);
    for (int k = 0; k < SIZES; k++)
        of->sizes[k] = (engine){.size = half << k};
    record(of, source, seed * 7919 + 1);
    return of;
}

/* ------------------------------------------------------------------------------ what is read */

typedef struct curve {
    kvpi_requests *requests;
    kvpi_mrc_refs refs;
    kvpi_mrc_curve curve;
    kvpi_mrc_report report;
    kvpi_mrc_options options;
} curve;

static curve *read_curve(const char *path)
{
    kvpi_requests_options options;
    kvpi_requests_error error;
    curve *of = calloc(1, sizeof *of);
    assert_non_null(of);
    kvpi_requests_options_init(&options);
    if (kvpi_requests_read(path, &options, &error, &of->requests) != 0)
        fail_msg("%s", error.text);
    of->options = (kvpi_mrc_options){
        .command = "test",
        .trace = {.limit = UINT64_MAX, .key = {.trace_block = BLOCK, .seed = 1}, .output = true},
        .block_tokens = BLOCK,
        .sample_millionths = 1000000};
    assert_int_equal(kvpi_mrc_refs_make(of->requests, &of->options, &of->refs), 0);
    assert_int_equal(kvpi_mrc_lru_make(&of->refs, NULL, "test", &of->curve), 0);
    of->report = (kvpi_mrc_report){.about = kvpi_requests_describe(of->requests),
                                   .refs = &of->refs,
                                   .curve = &of->curve,
                                   .options = &of->options};
    of->report.agains = kvpi_requests_agains(of->requests, &of->report.n_agains);
    return of;
}

static void free_curve(curve *of)
{
    kvpi_mrc_lru_free(&of->curve);
    kvpi_mrc_refs_free(&of->refs);
    kvpi_requests_free(of->requests);
    free(of);
}

static void free_world(world *of, curve *got)
{
    free_curve(got);
    unlink(of->path);
    free(of);
}

/* Requests that hit nothing and fill no block. */
static size_t count_silent(const world *of)
{
    size_t n = 0;
    for (int i = 0; i < N_REQUESTS; i++)
        n += of->requests[i].n_prompt + of->requests[i].n_output < BLOCK;
    return n;
}

static kvpi_mrc_bounds bounds_at(const curve *of, int size)
{
    const kvpi_mrc_point point = {.blocks = (uint64_t)size,
                                  .lru = kvpi_mrc_lru_at(&of->curve, (uint64_t)size)};
    return kvpi_mrc_bounds_at(&of->report, &point);
}

TEST(test_plain_events_bound_the_hits)
{
    double width[SIZES] = {0};
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        world *of = make(KVPI_RECORDING_EVENTS, seed);
        curve *got = read_curve(of->path);
        assert_true(got->report.about->is_bounded);
        assert_int_equal(got->refs.input_tokens, of->sizes[1].queries);
        assert_int_equal(got->report.about->cached_tokens, of->sizes[1].hits);
        for (int k = 0; k < SIZES; k++) {
            const kvpi_mrc_bounds bounds = bounds_at(got, of->sizes[k].size);
            const double hits = (double)of->sizes[k].hits;
            if (hits < bounds.least || hits > bounds.most)
                fail_msg("seed %llu, %d blocks: %.0f hits, expected %.0f to %.0f",
                         (unsigned long long)seed, of->sizes[k].size, hits, bounds.least,
                         bounds.most);
            width[k] += (bounds.most - bounds.least) / (double)got->refs.input_tokens / N_SEEDS;
        }
        free_world(of, got);
    }
    for (int k = 0; k < SIZES; k++)
        print_message("%d times half the blocks: bounds are %.2f %% wide\n", 1 << k,
                      100 * width[k]);
    assert_true(width[1] == 0);
    assert_true(width[2] > 0 && width[2] < 0.05);
}

TEST(test_reported_lookups_give_the_hits)
{
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        world *of = make(KVPI_RECORDING_LOOKUPS, seed);
        curve *got = read_curve(of->path);
        assert_false(got->report.about->is_bounded);
        assert_int_equal(got->report.about->cached_tokens, of->sizes[1].hits);
        assert_int_equal(got->refs.n_requests, N_REQUESTS - count_silent(of));
        for (int k = 0; k < SIZES; k++) {
            const uint64_t blocks = (uint64_t)of->sizes[k].size;
            const double hits = kvpi_mrc_lru_at(&got->curve, blocks).tokens;
            const double off = hits - (double)of->sizes[k].hits;
            if (off > BLOCK * N_REQUESTS / 2 || off < -BLOCK * N_REQUESTS / 2)
                fail_msg("seed %llu, %d blocks: %.0f hits, expected %llu", (unsigned long long)seed,
                         of->sizes[k].size, hits, (unsigned long long)of->sizes[k].hits);
        }
        free_world(of, got);
    }
}

/* ------------------------------------------------------------------------------------- evicted */

enum { N_STEPS = 40000, N_BLOCKS = 3000, KNOWN = 400 };

/* Evictions that are out, in their order, by hash. */
typedef struct out {
    uint64_t of[N_STEPS];
    size_t n;
} out;

/* The last one of a hash; n: none. */
static size_t find_out(const out *of, uint64_t hash)
{
    for (size_t i = of->n; i-- > 0;)
        if (of->of[i] == hash)
            return i;
    return of->n;
}

static void take_back(out *of, kvpi_evicted *evicted, kvpi_known *block)
{
    const size_t at = find_out(of, block->hash);
    kvpi_evicted_remove(evicted, block->evicted);
    block->evicted = 0;
    memmove(of->of + at, of->of + at + 1, (--of->n - at) * sizeof *of->of);
}

static void evict(out *of, kvpi_evicted *evicted, kvpi_recent *chains, uint64_t hash)
{
    kvpi_known *block = kvpi_recent_find(chains, hash);
    if (block != NULL && block->evicted != 0)
        take_back(of, evicted, block);
    const uint32_t number = kvpi_evicted_add(evicted, chains);
    assert_true(number != 0);
    of->of[of->n++] = hash;
    if (block != NULL)
        block->evicted = number;
}

/* Blocks that are known and those that were forgotten are evicted; some come back. */
TEST(test_evictions_are_counted_when_their_numbers_are_given_again)
{
    static out of;
    uint64_t random = 11;
    kvpi_evicted evicted = {0};
    kvpi_recent chains = {.max = KNOWN};
    size_t n_compared = 0, n_again = 0;
    of.n = 0;
    for (int i = 0; i < N_STEPS; i++) {
        const uint64_t hash = 1 + draw(&random) % (i % 3 == 0 ? N_BLOCKS : KNOWN);
        kvpi_known *block = kvpi_recent_find(&chains, hash);
        const bool is_full = kvpi_evicted_is_full(&evicted);
        if (block != NULL && block->evicted != 0 && draw(&random) % 4 == 0) {
            const size_t after = of.n - find_out(&of, hash) - 1;
            assert_int_equal(kvpi_evicted_after(&evicted, block->evicted, evicted.last), after);
            n_compared++;
            take_back(&of, &evicted, block);
        } else if (block == NULL && draw(&random) % 2 == 0) {
            const kvpi_known fresh = {.hash = hash, .n_blocks = 1};
            assert_non_null(kvpi_recent_get(&chains, &fresh));
        } else {
            evict(&of, &evicted, &chains, hash);
            n_again += is_full;
        }
    }
    assert_true(n_compared > 1000 && n_again > 2);
    kvpi_recent_free(&chains);
    kvpi_evicted_free(&evicted);
}

/* -------------------------------------------------------------------------------------- scenes */

typedef struct scene {
    char path[64];
    kvpi_recorder *recorder;
    kvpi_lookups *lookups;
    int64_t now_us;
    uint64_t batch;
    bool is_old;
} scene;

static scene begin_scene(uint64_t source, uint64_t max_contents)
{
    scene of = {.path = "/tmp/kvpager-XXXXXX", .now_us = 1700000000000000};
    const int descriptor = mkstemp(of.path);
    assert_true(descriptor >= 0);
    close(descriptor);
    unlink(of.path);
    kvpi_recorder_options to = {.path = of.path,
                                .about = {.source = source,
                                          .block_tokens = BLOCK,
                                          .began_us = of.now_us,
                                          .max_contents = max_contents,
                                          .engine_blocks = 100}};
    kvpi_recording_error error = {""};
    assert_int_equal(kvpi_recorder_open(&to, &of.recorder, &error), 0);
    of.lookups = kvpi_lookups_new(of.recorder, &to.about);
    assert_non_null(of.lookups);
    return of;
}

/* Blocks first, first + 1 ... behind `parent`; 0: none. */
static void store(scene *of, uint64_t parent, uint64_t first, size_t n)
{
    uint64_t hashes[64];
    kvpi_recording_error error = {""};
    for (size_t i = 0; i < n; i++)
        hashes[i] = first + i;
    const kvpi_event event = {.kind = KVPI_EVENT_STORED,
                              .is_device = true,
                              .has_parent = parent != 0,
                              .parent = parent,
                              .hashes = hashes,
                              .n_hashes = n,
                              .block_tokens = BLOCK};
    of->now_us += 1000;
    assert_int_equal(
        kvpi_lookups_event(of->lookups, &event, of->now_us, ++of->batch, of->is_old, &error), 0);
}

static void remove_block(scene *of, uint64_t hash)
{
    kvpi_recording_error error = {""};
    const kvpi_event event = {
        .kind = KVPI_EVENT_REMOVED, .is_device = true, .hashes = &hash, .n_hashes = 1};
    assert_int_equal(
        kvpi_lookups_event(of->lookups, &event, of->now_us, ++of->batch, of->is_old, &error), 0);
}

static void tell_counters(scene *of, uint64_t queries, uint64_t hits, bool is_last)
{
    kvpi_recording_error error = {""};
    const kvpi_counters counters = {queries, hits};
    assert_int_equal(kvpi_lookups_count(of->lookups, &counters, of->now_us, is_last, &error), 0);
}

/* Requests as "input/output/cached blocks...", one after the other, in the order of the file. */
static void end_scene(scene *of, const char *expected)
{
    char got[2000] = "";
    kvpi_recording_error error = {""};
    kvpi_recorded request;
    kvpi_recording_reader *reader = NULL;
    assert_int_equal(kvpi_lookups_end(of->lookups, &error), 0);
    kvpi_lookups_free(of->lookups);
    assert_int_equal(kvpi_recorder_close(of->recorder, &error), 0);
    FILE *file = fopen(of->path, "rb");
    assert_non_null(file);
    assert_int_equal(kvpi_recording_open(file, &reader, &error), 0);
    while (kvpi_recording_next(reader, &request, &error) == KVPI_RECORDING_REQUEST) {
        char *at = got + strlen(got);
        at += sprintf(at, "%s%d/%d/%d", request.is_unseen ? "?" : "", (int)request.input_tokens,
                      (int)request.output_tokens, (int)request.cached_tokens);
        for (size_t i = 0; i < request.n_runs; i++)
            at += sprintf(at, " %d+%d", (int)request.runs[i].first, (int)request.runs[i].n);
        for (size_t i = 0; i < request.n_again; i++)
            at += sprintf(at, " %s%d+%d", request.again[i].is_sure ? "sure" : "may",
                          (int)request.again[i].depth, (int)request.again[i].n);
        strcpy(at, "; ");
    }
    assert_true(kvpi_recording_is_whole(reader));
    kvpi_recording_free(reader);
    fclose(file);
    unlink(of->path);
    assert_string_equal(got, expected);
}

TEST(test_blocks_behind_the_last_one_go_on)
{
    scene of = begin_scene(KVPI_RECORDING_EVENTS, 1000);
    store(&of, 0, 10, 4); /* a prompt */
    store(&of, 13, 14, 1);
    store(&of, 11, 20, 2); /* another one, that hits two blocks */
    store(&of, 14, 15, 1); /* the first one goes on */
    store(&of, 11, 30, 1); /* the end of a prompt, or output */
    of.now_us += (KVPI_LOOKUPS_QUIET_SECONDS + 1) * INT64_C(1000000);
    store(&of, 15, 16, 2); /* the first one has ended: a next turn */
    end_scene(&of, "64/0/32 0+4; 64/32/0 0+2 4+4; 33/15/32 0+2 8+1; 128/0/96 0+2 4+4 9+2; ");
}

TEST(test_what_is_evicted_and_comes_back)
{
    scene of = begin_scene(KVPI_RECORDING_EVENTS, 1000);
    store(&of, 0, 10, 4);
    for (uint64_t hash = 13; hash >= 10; hash--)
        remove_block(&of, hash);
    store(&of, 0, 20, 2);  /* these made room for it */
    remove_block(&of, 99); /* of before the recording */
    remove_block(&of, 21);
    store(&of, 0, 30, 2);
    store(&of, 0, 10, 4);  /* 10 was the last one that went: 99 and 21 after it; 13 is not sure */
    store(&of, 20, 21, 1); /* may be output: one block was evicted after it, that came back */
    end_scene(&of, "64/0/0 0+4; 32/0/0 4+2; 32/0/0 6+2; 64/0/0 0+4 sure2+3 may2+4; "
                   "17/15/16 4+2 may0+1; ");
}

/* Evictions of blocks that are not known, which new numbers take together, are told as fewer. */
TEST(test_requests_stay_when_evictions_get_new_numbers)
{
    scene of = begin_scene(KVPI_RECORDING_EVENTS, 1000);
    store(&of, 0, 10, 3);
    store(&of, 11, 20, 2);
    remove_block(&of, 21);
    remove_block(&of, 20);
    remove_block(&of, 12);
    for (uint64_t i = 0; i < 4000; i++)
        remove_block(&of, 1000 + i);
    store(&of, 0, 30, 1);
    store(&of, 11, 20, 1);
    for (uint64_t i = 0; i < 200; i++)
        remove_block(&of, 9000 + i);
    store(&of, 11, 12, 1); /* as the store before it found it: after 12, none is known */
    store(&of, 20, 21, 1); /* goes on, and 12 is back */
    end_scene(&of, "48/0/0 0+3; 64/0/32 0+2 3+2; 1/15/0 5+1; 33/15/32 0+3 may0+1; "
                   "33/31/32 0+2 3+2 may4001+1 may0+1; ");
}

TEST(test_counters_tell_of_what_sends_nothing)
{
    scene of = begin_scene(KVPI_RECORDING_EVENTS, 1000);
    tell_counters(&of, 500, 100, false);
    store(&of, 0, 10, 4);
    tell_counters(&of, 500 + 70, 100, false); /* not yet: its events may come later */
    tell_counters(&of, 500 + 70 + 200, 100 + 192, false);
    tell_counters(&of, 30, 16, false); /* the engine has restarted: 30 more */
    tell_counters(&of, 40, 16, true);
    end_scene(&of, "?6/0/0; ?200/0/192; ?40/0/16; 64/0/0 0+4; ");
}

TEST(test_what_is_not_known_is_no_request)
{
    scene of = begin_scene(KVPI_RECORDING_EVENTS, 1000);
    of.is_old = true;
    store(&of, 0, 10, 3); /* what was there before */
    of.is_old = false;
    store(&of, 12, 13, 1); /* output of a request from before */
    store(&of, 77, 78, 2); /* of a batch that was lost */
    store(&of, 79, 80, 1);
    store(&of, 11, 20, 2); /* hits two of the old ones */
    kvpi_lookups_restarted(of.lookups);
    store(&of, 0, 10, 2); /* other blocks, now */
    end_scene(&of, "64/0/32 0+4; 32/0/0 4+2; ");
}

TEST(test_counters_that_fell_are_a_restart)
{
    scene of = begin_scene(KVPI_RECORDING_EVENTS, 1000);
    tell_counters(&of, 500, 100, false);
    store(&of, 0, 10, 4);              /* 64 tokens, which no look at the counters saw */
    tell_counters(&of, 30, 16, false); /* none of them are these */
    store(&of, 0, 10, 2);              /* other blocks, now */
    tell_counters(&of, 62, 16, false);
    kvpi_lookups_restarted(of.lookups); /* batches say so, and */
    store(&of, 0, 10, 2);
    tell_counters(&of, 40, 0, false); /* then counters, of the same one: */
    store(&of, 0, 10, 2);             /* these are known */
    tell_counters(&of, 72, 0, true);
    end_scene(&of, "?38/0/16; 64/0/0 0+4; 32/0/0 4+2; 32/0/0 6+2; 32/0/0 6+2; ");
}

TEST(test_what_is_forgotten_is_lost)
{
    scene of = begin_scene(KVPI_RECORDING_EVENTS, 4);
    tell_counters(&of, 0, 0, false);
    store(&of, 0, 10, 3);
    for (uint64_t i = 0; i < 8; i++)
        store(&of, 0, 100 + 10 * i, 1);
    store(&of, 12, 13, 1); /* nobody knows what stands before 12 */
    assert_int_equal(kvpi_recorder_counts(of.recorder).lost, 1);
    kvpi_recording_error error;
    assert_int_equal(kvpi_lookups_end(of.lookups, &error), 0);
    assert_int_equal(kvpi_recorder_counts(of.recorder).lost, 5);
    tell_counters(&of, 48 + 8, 0, true); /* the tokens of those that are lost were asked for */
    end_scene(&of, "1/15/0 0+1; 1/15/0 1+1; 1/15/0 2+1; 1/15/0 3+1; ?52/0/0; ");
}

TEST(test_a_report_is_a_request_and_a_retry_is_none)
{
    scene of = begin_scene(KVPI_RECORDING_LOOKUPS, 1000);
    store(&of, 0, 10, 4);
    store(&of, 0, 10, 2); /* hits two */
    store(&of, 0, 10, 2); /* tries again */
    store(&of, 0, 10, 2);
    of.batch++;
    store(&of, 0, 10, 2);  /* another one, beside it */
    store(&of, 11, 20, 3); /* the first one's prompt */
    store(&of, 11, 30, 1); /* the second one's output */
    remove_block(&of, 13);
    store(&of, 0, 10, 4); /* one of them is not there: computed, no report */
    end_scene(&of, "64/0/0 0+4; 80/0/32 0+2 4+3; 33/15/32 0+2 7+1; 64/0/0 0+4; ");
}

TEST_MAIN(NULL, NULL)
