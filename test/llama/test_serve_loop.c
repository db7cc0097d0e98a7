/* The engine's thread of kvpager-serve over the fake llama.cpp, without HTTP. A client of the test
 * sends its next request within kvpi_job_add: no client can be faster. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mocka.h"
#include "../../integrations/llama/serve/engine/loop.h"
#include "../../integrations/llama/serve/engine/restart.h"
#include "fake/fake.h"

enum { CHAIN = 12, PROMPT = 20, NEW_TOKENS = 5 };

static struct llama_model text_model = {.architecture = "llama", .has_text = true};
static char weights[64], snapshot_path[64];
static kvpi_loop loop;
static kvpi_options options;
static kvpi_job *jobs[CHAIN];
static uint32_t n_samples[CHAIN];
static _Atomic uint32_t n_sent;
static uint32_t n_ends, uncounted; /* of the engine's thread, while it runs */
static atomic_uint refused;

int __real_kvpi_job_add(kvpi_job *job, const kvpi_piece *piece, const char *text);
int __wrap_kvpi_job_add(kvpi_job *job, const kvpi_piece *piece, const char *text);
kvp_status __real_kvp_llama_finish(kvp_llama *engine, const int32_t *sampled, const uint8_t *ended,
                                   kvp_step_end *out_end);
kvp_status __wrap_kvp_llama_finish(kvp_llama *engine, const int32_t *sampled, const uint8_t *ended,
                                   kvp_step_end *out_end);

static void start(uint32_t max_tenants, const char *snapshot)
{
    char why_option[200];
    kvp_why why;
    static char program[] = "x", name[] = "-m", cells[] = "-c", n[] = "512";
    static char queue[] = "--max-queue", one[] = "1";
    char *arguments[] = {program, name, weights, cells, n, queue, one, NULL};
    assert_int_equal(kvpi_options_read(&options, 7, arguments, why_option), KVPI_OPTIONS_OK);
    options.max_tenants = max_tenants;
    options.snapshot = snapshot;
    assert_int_equal(kvpi_loop_start(&loop, &options, &text_model, &why), 0);
}

static void stop(void)
{
    kvpi_loop_stop(&loop);
    kvpi_loop_free(&loop);
}

static kvpi_job *make_job_of(uint32_t n, int32_t first, uint32_t n_tokens)
{
    kvpi_job *job = kvpi_job_new(n);
    assert_non_null(job);
    job->tokens = calloc(n_tokens, sizeof *job->tokens);
    assert_non_null(job->tokens);
    for (uint32_t i = 0; i < n_tokens; i++)
        job->tokens[i] = first + (int32_t)(i % PROMPT);
    job->n_tokens = n_tokens;
    job->max_new_tokens = NEW_TOKENS;
    job->sampling.ignore_eos = 1;
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(kvpi_sampler_init(&job->samples[i].sampler, &job->sampling, loop.vocab, i,
                                           job->tokens, n_tokens),
                         0);
    return job;
}

static kvpi_job *make_job(uint32_t n)
{
    return make_job_of(n, 'a', PROMPT);
}

/* The client has the end of its answer: it sends the next request. */
int __wrap_kvpi_job_add(kvpi_job *job, const kvpi_piece *piece, const char *text)
{
    kvpi_figures figures;
    const int result = __real_kvpi_job_add(job, piece, text);
    n_ends += piece->finish != KVPI_FINISH_NONE;
    if (n_ends < job->n_samples)
        return result;
    kvpi_loop_figures(&loop, &figures);
    n_ends = 0;
    uncounted += figures.over != n_sent || figures.sched.running_requests != 0;
    if (n_sent < CHAIN)
        refused += kvpi_loop_submit(&loop, jobs[n_sent++]) != 0;
    return result;
}

static uint32_t take_ends(kvpi_job *job)
{
    uint32_t n = 0;
    while (n < job->n_samples) {
        kvpi_piece *piece = kvpi_job_take(job, -1);
        if (piece == NULL)
            return n;
        while (piece != NULL) {
            kvpi_piece *next = piece->next;
            n += piece->finish == KVPI_FINISH_LENGTH;
            kvpi_piece_free(piece);
            piece = next;
        }
    }
    return n;
}

/* A queue of one place, and one client after the other. */
TEST(the_place_is_free_before_the_last_bytes_are_there)
{
    start(1, NULL);
    for (uint32_t i = 0; i < CHAIN; i++) {
        n_samples[i] = 1 + i % 3;
        jobs[i] = make_job(n_samples[i]);
    }
    n_sent = 1;
    assert_int_equal(kvpi_loop_submit(&loop, jobs[0]), 0);
    for (uint32_t i = 0; i < CHAIN && refused == 0; i++)
        assert_int_equal(take_ends(jobs[i]), n_samples[i]);
    stop();
    for (uint32_t i = 0; i < CHAIN; i++)
        kvpi_job_drop(jobs[i]);
    assert_int_equal(refused, 0);
    assert_int_equal(uncounted, 0);
    assert_int_equal(n_sent, CHAIN);
}

/* An answer that lacks a piece (no memory for it) has no end, and nobody waits for one. */
TEST(nobody_waits_for_a_closed_job)
{
    kvpi_job *job = kvpi_job_new(1);
    assert_non_null(job);
    const kvpi_piece token = {.token = 'a', .n_bytes = 1};
    n_sent = CHAIN;
    assert_int_equal(__real_kvpi_job_add(job, &token, "a"), 0);
    kvpi_job_close(job);
    kvpi_piece *piece = kvpi_job_take(job, -1);
    assert_non_null(piece);
    assert_null(piece->next);
    kvpi_piece_free(piece);
    assert_null(kvpi_job_take(job, -1));
    kvpi_job_drop(job);
}

/* The client of the first job goes away behind the second step. */
static kvpi_job *leaving;
static uint32_t n_steps;

kvp_status __wrap_kvp_llama_finish(kvp_llama *engine, const int32_t *sampled, const uint8_t *ended,
                                   kvp_step_end *out_end)
{
    const kvp_status status = __real_kvp_llama_finish(engine, sampled, ended, out_end);
    if (leaving != NULL && ++n_steps == 2)
        atomic_store(&leaving->is_cancelled, 1);
    return status;
}

/* What it had computed is not new when it comes again, with another one in between that takes its
 * cells. */
TEST(chunks_of_an_aborted_prompt_are_known)
{
    enum { LENGTH = 64, CHUNK = 16 };
    char why_option[200];
    kvp_why why;
    kvpi_figures figures;
    static char program[] = "x", name[] = "-m", cells[] = "-c", n[] = "512", batch[] = "-b",
                chunk[] = "16", parallel[] = "-np", one[] = "1";
    char *arguments[] = {program, name, weights, cells, n, batch, chunk, parallel, one, NULL};
    assert_int_equal(kvpi_options_read(&options, 9, arguments, why_option), KVPI_OPTIONS_OK);
    assert_int_equal(kvpi_loop_start(&loop, &options, &text_model, &why), 0);
    kvpi_job *all[] = {make_job_of(1, 'a', LENGTH), make_job_of(1, 'A', 490),
                       make_job_of(1, 'a', LENGTH)};
    n_sent = CHAIN;
    leaving = all[0];
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(kvpi_loop_submit(&loop, all[i]), 0);
    for (uint32_t i = 1; i < 3; i++)
        assert_int_equal(take_ends(all[i]), 1);
    kvpi_loop_figures(&loop, &figures);
    stop();
    leaving = NULL;
    const uint64_t *tokens = figures.reasons.tokens;
    assert_int_equal(figures.aborted, 1);
    assert_int_equal(tokens[KVP_REASON_HIT] + tokens[KVP_REASON_EVICTED], 2 * CHUNK);
    assert_true(tokens[KVP_REASON_EVICTED] >= CHUNK);
    assert_int_equal(tokens[KVP_REASON_LAST], 3);
    assert_int_equal(tokens[KVP_REASON_NEW], 2 * LENGTH + 490 - 3 - 2 * CHUNK);
    for (uint32_t i = 0; i < 3; i++)
        kvpi_job_drop(all[i]);
}

/* -------------------------------------------------------------------------------- snapshots */

static void run_job(const char *salt)
{
    kvpi_job *job = make_job(1);
    strcpy(job->salt, salt);
    job->salt_bytes = strlen(salt);
    n_sent = CHAIN;
    assert_int_equal(kvpi_loop_submit(&loop, job), 0);
    assert_int_equal(take_ends(job), 1);
    kvpi_job_drop(job);
}

static void write_file(const char *path, const uint8_t *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static size_t save_some(uint8_t *out_bytes, size_t capacity)
{
    kvp_why why;
    start(3, snapshot_path);
    run_job("");
    run_job("a");
    run_job("b");
    kvpi_loop_stop(&loop);
    assert_int_equal(kvpi_restart_save(&loop, &why), 0);
    kvpi_loop_free(&loop);
    FILE *file = fopen(snapshot_path, "rb");
    assert_non_null(file);
    const size_t n = fread(out_bytes, 1, capacity, file);
    assert_int_equal(fclose(file), 0);
    return n;
}

/* Each seventh byte is wrong once: the server starts, with two places for tenants, and new ones get
 * in. So it does if the namespace of the empty salt is lost, and two others have its place. */
TEST(the_server_starts_with_any_damage)
{
    static uint8_t bytes[1 << 14];
    uint32_t n_refused = 0, n_without = 0;
    (void)state;
    write_file(weights, (const uint8_t *)"weights", 7);
    const size_t n = save_some(bytes, sizeof bytes);
    assert_in_range(n, 1000, sizeof bytes - 1);
    start(3, snapshot_path);
    assert_int_equal(loop.restored.dropped_blocks, 0);
    assert_string_equal(loop.tenants.places[1].salt, "a");
    assert_string_equal(loop.tenants.places[2].salt, "b");
    stop();
    for (size_t i = 0; i < n; i += 7) {
        bytes[i] ^= (uint8_t)(1 << i % 8);
        write_file(snapshot_path, bytes, n);
        bytes[i] ^= (uint8_t)(1 << i % 8);
        start(2, snapshot_path);
        n_refused += loop.not_restored.text[0] != '\0';
        n_without += loop.tenants.places[2].used > 0;
        run_job("c");
        run_job("");
        stop();
    }
    assert_true(n_refused > 10 && n_refused < n / 14);
    assert_true(n_without > 0);
    (void)remove(weights);
    (void)remove(snapshot_path);
}

static void read_identity(const char *path, char *out_identity)
{
    kvp_why why;
    kvpi_loop other = {.options = &options};
    options.model = path;
    options.snapshot = "test_serve_loop.none";
    assert_int_equal(kvpi_restart_identify(&other, &why), 0);
    memcpy(out_identity, other.identity, sizeof other.identity);
}

/* The first and the last byte count, also of a large file, and every file of the weights. */
TEST(the_weights_are_compared)
{
    enum { N = 5000001 };
    static uint8_t bytes[N];
    char first[64], second[64], before[KVPI_IDENTITY_BYTES], after[KVPI_IDENTITY_BYTES];
    const size_t places[] = {0, N - 1};
    kvp_why why;
    (void)state;
    (void)snprintf(first, sizeof first, "test_serve_loop.%d-00001-of-00002.gguf", (int)getpid());
    (void)snprintf(second, sizeof second, "test_serve_loop.%d-00002-of-00002.gguf", (int)getpid());
    write_file(weights, bytes, N);
    read_identity(weights, before);
    for (size_t i = 0; i < 2; i++) {
        bytes[places[i]] ^= 1;
        write_file(weights, bytes, N);
        bytes[places[i]] ^= 1;
        read_identity(weights, after);
        assert_string_not_equal(before, after);
    }
    write_file(weights, bytes, N);
    read_identity(weights, after);
    assert_string_equal(before, after);
    write_file(first, bytes, 10);
    kvpi_loop other = {.options = &options};
    options.model = first;
    assert_int_equal(kvpi_restart_identify(&other, &why), -1);
    assert_non_null(strstr(why.text, second));
    write_file(second, bytes, 20);
    read_identity(first, before);
    bytes[19] = 1;
    write_file(second, bytes, 20);
    read_identity(first, after);
    assert_string_not_equal(before, after);
    (void)remove(weights);
    (void)remove(first);
    (void)remove(second);
}

TEST(limits_of_windows_name_the_option)
{
    char why_option[200];
    kvp_why why;
    static char program[] = "x", name[] = "-m", parallel[] = "-np", n[] = "64";
    char *arguments[] = {program, name, weights, parallel, n, NULL};
    struct llama_model windowed = text_model;
    windowed.n_swa = 128;
    assert_int_equal(kvpi_options_read(&options, 5, arguments, why_option), KVPI_OPTIONS_OK);
    options.ctx_size = 512;
    assert_int_equal(kvpi_loop_start(&loop, &options, &windowed, &why), -1);
    assert_string_equal(why.field, "-np");
    assert_non_null(strstr(why.text, "is 64, expected 1 to 63"));
}

int main(void)
{
    (void)snprintf(weights, sizeof weights, "test_serve_loop.%d.gguf", (int)getpid());
    (void)snprintf(snapshot_path, sizeof snapshot_path, "test_serve_loop.%d", (int)getpid());
    return run_all_tests(NULL, NULL);
}
