/* Sixteen caches in one process, beside one cache with as many blocks: the same decode steps of 64
 * sequences, and the same new prompts, in turn. Caches share nothing, so two threads with eight of
 * them each must not slow each other down but through the processor's own caches. */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "batch.h"

enum { CACHES = 16, SEQS = 64, THREADS = 2, PROMPT = 1024, PROMPT_UNITS = PROMPT / BLOCK_TOKENS };

/* worlds[i] is the cache of batch i: all different, or all the same one. */
typedef struct side {
    world *worlds[CACHES];
    batch *batches[CACHES];
} side;

typedef struct caches_state {
    side sixteen;
    side one;
} caches_state;

static void set_up_side(side *s, const bench_options *options, uint32_t n_caches)
{
    for (uint32_t i = 0; i < CACHES; i++) {
        if (i < n_caches) {
            kvp_config config = world_config(options, SEQS * CACHES / n_caches + 1, 4096);
            config.n_blocks = (config.n_blocks - 1) / n_caches + 1;
            s->worlds[i] = world_create_as(&config, NULL);
            world_shuffle(s->worlds[i]);
        } else {
            s->worlds[i] = s->worlds[0];
        }
        s->batches[i] = batch_create(s->worlds[i], SEQS, CACHES / n_caches);
    }
}

static void *set_up(const bench_options *options)
{
    caches_state *s = allocate(sizeof *s);
    set_up_side(&s->sixteen, options, CACHES);
    set_up_side(&s->one, options, 1);
    return s;
}

static void tear_down(void *state)
{
    caches_state *s = state;
    for (uint32_t i = 0; i < CACHES; i++) {
        batch_free(s->sixteen.batches[i]);
        batch_free(s->one.batches[i]);
        world_destroy(s->sixteen.worlds[i]);
    }
    world_destroy(s->one.worlds[0]);
    free(s);
}

/* -------------------------------------------------------------------------------------- decode */

static uint64_t decode_steps(batch *const *batches, uint32_t n)
{
    const uint64_t start = now_ns();
    for (uint32_t step = 0; step < BATCH_STEPS; step++) {
        for (uint32_t i = 0; i < n; i++)
            batch_step(batches[i], step);
    }
    return now_ns() - start;
}

static void prepare(const side *s)
{
    for (uint32_t i = 0; i < CACHES; i++)
        batch_prepare(s->batches[i], BATCH_STEPS);
}

static double decode(const side *s)
{
    prepare(s);
    return (double)decode_steps(s->batches, CACHES) / (BATCH_STEPS * CACHES * SEQS);
}

static double decode_sixteen(void *state)
{
    caches_state *s = state;
    return decode(&s->sixteen);
}

static double decode_one(void *state)
{
    caches_state *s = state;
    return decode(&s->one);
}

typedef struct worker {
    batch *const *batches;
    atomic_uint *n_ready;
    uint64_t ns;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    atomic_fetch_add(w->n_ready, 1);
    while (atomic_load(w->n_ready) < THREADS)
        sched_yield();
    w->ns = decode_steps(w->batches, CACHES / THREADS);
    return NULL;
}

/* What the slower thread takes for each of its sequences. */
static double decode_threads(void *state)
{
    caches_state *s = state;
    atomic_uint n_ready = 0;
    pthread_t thread;
    worker workers[THREADS];
    prepare(&s->sixteen);
    for (uint32_t i = 0; i < THREADS; i++)
        workers[i] = (worker){s->sixteen.batches + i * CACHES / THREADS, &n_ready, 0};
    REQUIRE(pthread_create(&thread, NULL, work, &workers[1]) == 0);
    work(&workers[0]);
    REQUIRE(pthread_join(thread, NULL) == 0);
    const uint64_t ns = workers[0].ns > workers[1].ns ? workers[0].ns : workers[1].ns;
    return (double)ns / (BATCH_STEPS * CACHES / THREADS * SEQS);
}

/* ---------------------------------------------------------------------------------------- open */

/* A new prompt in each cache, committed and closed; ns a block. */
static double open_new(const side *s)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < CACHES; i++) {
        world *w = s->worlds[i];
        kvp_open_info info;
        world_fill_tokens(w->next_number++, w->tokens, PROMPT);
        const uint64_t start = now_ns();
        const kvp_seq seq = world_open(w, w->tokens, PROMPT, &info);
        REQUIRE_OK(kvp_seq_commit(w->cache, seq, PROMPT));
        world_close(w, seq);
        total += now_ns() - start;
        REQUIRE(info.evicted_blocks == PROMPT_UNITS);
    }
    return (double)total / (CACHES * PROMPT_UNITS);
}

static double open_sixteen(void *state)
{
    caches_state *s = state;
    return open_new(&s->sixteen);
}

static double open_one(void *state)
{
    caches_state *s = state;
    return open_new(&s->one);
}

static const measurement measurements[] = {
    {"caches_16_extend_commit", "ns", -1.5, 51, decode_sixteen, decode_one,
     "16 caches in turn, 64 sequences each, evicted; yardstick: one cache of all blocks"},
    {"caches_16_extend_commit_2t", "ns", -1.25, 51, decode_threads, decode_sixteen,
     "the same by two threads; yardstick: by one"},
    {"caches_16_open", "ns", -1.3, 51, open_sixteen, open_one,
     "per block: new prompts of 1,024 tokens, committed and closed; yardstick: one cache"},
};

const group caches_group = {measurements, sizeof measurements / sizeof *measurements, set_up,
                            tear_down};
