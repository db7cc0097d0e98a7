/* See batch.h. */
#include "batch.h"

#include <stdlib.h>

enum { START_TOKENS = 256, MOST_TOKENS = 4096 };

/* Lengths are staggered, so that in every step a sixteenth of them begins a block. */
static void start_all(batch *b)
{
    for (uint32_t i = 0; i < b->n_seqs; i++) {
        b->ends[i] = START_TOKENS + i % BLOCK_TOKENS;
        b->seqs[i] = world_open_new(b->w, b->ends[i]);
    }
    b->grown = 0;
}

batch *batch_create(world *w, uint32_t n_seqs, uint32_t n_batches)
{
    const uint32_t room = w->n_blocks / 2 / n_batches / n_seqs * BLOCK_TOKENS;
    batch *b = allocate(sizeof *b);
    b->w = w;
    b->n_seqs = n_seqs;
    b->most_tokens = room < MOST_TOKENS ? room : MOST_TOKENS;
    b->seqs = allocate(n_seqs * sizeof *b->seqs);
    b->ends = allocate(n_seqs * sizeof *b->ends);
    b->tokens = allocate((size_t)BATCH_STEPS * n_seqs * sizeof *b->tokens);
    start_all(b);
    return b;
}

void batch_free(batch *b)
{
    if (b) {
        free(b->seqs);
        free(b->ends);
        free(b->tokens);
        free(b);
    }
}

void batch_prepare(batch *b, uint32_t n_steps)
{
    if (START_TOKENS + b->grown + n_steps + BLOCK_TOKENS > b->most_tokens) {
        for (uint32_t i = 0; i < b->n_seqs; i++)
            world_close(b->w, b->seqs[i]);
        start_all(b);
        REQUIRE(START_TOKENS + n_steps + BLOCK_TOKENS <= b->most_tokens);
    }
    for (uint32_t i = 0; i < BATCH_STEPS * b->n_seqs; i++)
        b->tokens[i] = (int32_t)(world_draw(&b->random) % 128256);
    b->grown += n_steps;
}

void batch_step(batch *b, uint32_t step)
{
    kvp_batch more = {.struct_size = sizeof more, .n_seqs = b->n_seqs, .seqs = b->seqs};
    more.tokens = b->tokens + (size_t)(step % BATCH_STEPS) * b->n_seqs;
    for (uint32_t i = 0; i < b->n_seqs; i++)
        b->ends[i]++;
    REQUIRE_OK(kvp_seq_extend_many(b->w->cache, &more));
    REQUIRE_OK(kvp_seq_commit_many(b->w->cache, b->seqs, b->ends, b->n_seqs));
}
