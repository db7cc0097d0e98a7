/* Decoding: 1,024 running sequences, one token more for each per step, with the calls for many.
 * Lengths are staggered, so that in every step a sixteenth of them begins a block and a sixteenth
 * seals one. */
#include "world.h"

#include <stdlib.h>

enum {
    SEQS = 1024,
    STEPS = 16, /* of one sample: every sequence crosses one block boundary */
    START_TOKENS = 512,
    MAX_TOKENS = 4096
};

typedef struct decode_state {
    world *w;
    bool evicting;
    uint32_t grown; /* tokens since the start, of every sequence */
    kvp_seq seqs[SEQS];
    uint32_t ends[STEPS][SEQS]; /* tokens after each step of the sample */
    int32_t tokens[STEPS][SEQS];
    uint64_t random;
    seed_manager *seed;
    seed_sequence *seed_seqs[SEQS];
    uint32_t seed_grown;
    uint64_t seed_number;
} decode_state;

static uint32_t start_tokens(uint32_t i)
{
    return START_TOKENS + i % BLOCK_TOKENS;
}

static void open_all(decode_state *s)
{
    for (uint32_t i = 0; i < SEQS; i++)
        s->seqs[i] = world_open_new(s->w, start_tokens(i));
    s->grown = 0;
}

static void seed_open_all(decode_state *s)
{
    for (uint32_t i = 0; i < SEQS; i++)
        s->seed_seqs[i] = seed_open_new(s->seed, s->seed_number++, start_tokens(i));
    s->seed_grown = 0;
}

static void seed_close_all(decode_state *s)
{
    for (uint32_t i = 0; i < SEQS; i++) {
        seed_deallocate(s->seed, s->seed_seqs[i]);
        seed_sequence_destroy(s->seed_seqs[i]);
    }
}

static decode_state *create(const bench_options *options, bool evicting)
{
    decode_state *s = allocate(sizeof *s);
    s->w = world_create(options, SEQS, MAX_TOKENS, NULL);
    s->evicting = evicting;
    s->seed_number = UINT64_C(1) << 44;
    if (evicting)
        world_shuffle(s->w);
    s->seed = evicting ? seed_manager_create_full(s->w->n_blocks)
                       : seed_manager_create(s->w->n_blocks, BLOCK_TOKENS, NULL);
    open_all(s);
    seed_open_all(s);
    return s;
}

static void *set_up_free(const bench_options *options)
{
    return create(options, false);
}

static void *set_up_evicted(const bench_options *options)
{
    return create(options, true);
}

static void tear_down(void *state)
{
    decode_state *s = state;
    seed_close_all(s);
    seed_manager_destroy(s->seed);
    world_destroy(s->w);
    free(s);
}

/* Begins anew when sequences are as long as they may be, or free blocks run low. */
static void prepare(decode_state *s)
{
    bool too_long = START_TOKENS + s->grown + STEPS + BLOCK_TOKENS > MAX_TOKENS;
    if (!s->evicting && (too_long || world_stats(s->w).free_blocks < SEQS)) {
        REQUIRE_OK(kvp_cache_reset(s->w->cache));
        open_all(s);
    } else if (too_long) {
        for (uint32_t i = 0; i < SEQS; i++)
            world_close(s->w, s->seqs[i]);
        open_all(s);
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t i = 0; i < SEQS; i++) {
            s->tokens[step][i] = (int32_t)(world_draw(&s->random) % 128256);
            s->ends[step][i] = start_tokens(i) + s->grown + step + 1;
        }
    }
}

static void verify(decode_state *s, const kvp_stats *before)
{
    kvp_stats after = world_stats(s->w);
    REQUIRE(after.taken_blocks - before->taken_blocks == SEQS * STEPS / BLOCK_TOKENS);
    REQUIRE(after.sealed_units - before->sealed_units == SEQS * STEPS / BLOCK_TOKENS);
    REQUIRE(after.evicted_blocks - before->evicted_blocks ==
            (s->evicting ? SEQS * STEPS / BLOCK_TOKENS : 0));
    kvp_seq_info info;
    REQUIRE_OK(kvp_seq_info_get(s->w->cache, s->seqs[SEQS - 1], &info));
    REQUIRE(info.computed_tokens == s->ends[STEPS - 1][SEQS - 1]);
    REQUIRE(info.last_token == s->tokens[STEPS - 1][SEQS - 1]);
    s->grown += STEPS;
}

static double decode_many(decode_state *s, bool cold)
{
    prepare(s);
    kvp_stats before = world_stats(s->w);
    kvp_batch batch = {.struct_size = sizeof batch, .n_seqs = SEQS, .seqs = s->seqs};
    uint64_t total = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        batch.tokens = s->tokens[step];
        if (cold)
            world_flush(s->w);
        uint64_t start = now_ns();
        kvp_status extended = kvp_seq_extend_many(s->w->cache, &batch);
        kvp_status committed = kvp_seq_commit_many(s->w->cache, s->seqs, s->ends[step], SEQS);
        total += now_ns() - start;
        REQUIRE_OK(extended);
        REQUIRE_OK(committed);
    }
    verify(s, &before);
    return (double)total / (STEPS * SEQS);
}

static double decode_warm(void *state)
{
    return decode_many(state, false);
}

static double decode_cold(void *state)
{
    return decode_many(state, true);
}

/* The same with two calls for each sequence. */
static double decode_single(void *state)
{
    decode_state *s = state;
    prepare(s);
    kvp_stats before = world_stats(s->w);
    kvp_status status = KVP_OK;
    uint64_t total = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        uint64_t start = now_ns();
        for (uint32_t i = 0; i < SEQS && status == KVP_OK; i++) {
            status = kvp_seq_extend(s->w->cache, s->seqs[i], &s->tokens[step][i], 1, 0);
            if (status == KVP_OK)
                status = kvp_seq_commit(s->w->cache, s->seqs[i], s->ends[step][i]);
        }
        total += now_ns() - start;
        REQUIRE_OK(status);
    }
    verify(s, &before);
    return (double)total / (STEPS * SEQS);
}

static double seed_decode(void *state)
{
    decode_state *s = state;
    if (START_TOKENS + s->seed_grown + STEPS + BLOCK_TOKENS > MAX_TOKENS) {
        seed_close_all(s);
        seed_open_all(s);
    }
    uint64_t total = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        bool room = true;
        uint64_t start = now_ns();
        for (uint32_t i = 0; i < SEQS; i++) {
            seed_sequence_append(s->seed_seqs[i], s->tokens[step][i]);
            room = room && seed_can_append(s->seed, s->seed_seqs[i]);
            seed_may_append(s->seed, s->seed_seqs[i]);
        }
        total += now_ns() - start;
        REQUIRE(room);
    }
    s->seed_grown += STEPS;
    REQUIRE(s->seed_seqs[0]->n_tokens == START_TOKENS + s->seed_grown);
    REQUIRE(s->seed_seqs[0]->n_blocks == (START_TOKENS + s->seed_grown) / BLOCK_TOKENS);
    return (double)total / (STEPS * SEQS);
}

static const char note_single[] = "two calls for each sequence, evicting";
static const char note_cold[] = "evicting, flushed before every step";

static const measurement free_measurements[] = {
    {"extend_commit_1024_free", "ns", 25, 101, decode_warm, seed_decode, "blocks free"},
};

static const measurement evicted_measurements[] = {
    {"extend_commit_1024_evicted", "ns", 25, 101, decode_warm, seed_decode, "blocks evicted"},
    {"extend_commit_single", "ns", 0, 51, decode_single, NULL, note_single},
    {"extend_commit_1024_cold", "ns", 0, 5, decode_cold, NULL, note_cold},
};

const group decode_free_group = {free_measurements,
                                 sizeof free_measurements / sizeof *free_measurements, set_up_free,
                                 tear_down};
const group decode_evicted_group = {evicted_measurements,
                                    sizeof evicted_measurements / sizeof *evicted_measurements,
                                    set_up_evicted, tear_down};
