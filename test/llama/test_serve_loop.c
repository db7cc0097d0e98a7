/* The engine's thread of kvpager-serve over the fake llama.cpp, without HTTP. A client of the test
 * sends its next request within kvpi_job_add: no client can be faster. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../integrations/llama/serve/engine/loop.h"
#include "fake/fake.h"

enum { CHAIN = 12, PROMPT = 20, NEW_TOKENS = 5 };

static struct llama_model text_model = {.architecture = "llama", .has_text = true};
static kvpi_loop loop;
static kvpi_options options;
static kvpi_job *jobs[CHAIN];
static uint32_t n_samples[CHAIN];
static uint32_t n_sent, n_ends, uncounted; /* of the engine's thread, while it runs */
static atomic_uint refused;

int __real_kvpi_job_add(kvpi_job *job, const kvpi_piece *piece, const char *text);
int __wrap_kvpi_job_add(kvpi_job *job, const kvpi_piece *piece, const char *text);

static void start(void)
{
    char why_option[200];
    kvp_why why;
    static char program[] = "x", name[] = "-m", file[] = "none", cells[] = "-c", n[] = "512";
    static char queue[] = "--max-queue", one[] = "1";
    char *arguments[] = {program, name, file, cells, n, queue, one, NULL};
    assert_int_equal(kvpi_options_read(&options, 7, arguments, why_option), KVPI_OPTIONS_OK);
    assert_int_equal(kvpi_loop_start(&loop, &options, &text_model, &why), 0);
}

static void stop(void)
{
    kvpi_loop_stop(&loop);
    kvpi_loop_free(&loop);
}

static kvpi_job *make_job(uint32_t n)
{
    kvpi_job *job = kvpi_job_new(n);
    assert_non_null(job);
    job->tokens = calloc(PROMPT, sizeof *job->tokens);
    assert_non_null(job->tokens);
    for (int32_t i = 0; i < PROMPT; i++)
        job->tokens[i] = 'a' + i;
    job->n_tokens = PROMPT;
    job->max_new_tokens = NEW_TOKENS;
    job->sampling.ignore_eos = 1;
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(kvpi_sampler_init(&job->samples[i].sampler, &job->sampling, loop.vocab, i,
                                           job->tokens, PROMPT),
                         0);
    return job;
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
static void the_place_is_free_before_the_last_bytes_are_there(void **state)
{
    (void)state;
    start();
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
static void nobody_waits_for_a_closed_job(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_place_is_free_before_the_last_bytes_are_there),
        cmocka_unit_test(nobody_waits_for_a_closed_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
