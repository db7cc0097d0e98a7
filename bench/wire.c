/* Worker messages at steady state: 1,024 sequences decode, one token each in a step, lengths
 * staggered so that in every step a sixteenth of them begins a block; ids of a pool long in use.
 * Each message is given to a mirror, which must then know what the sender knows. */
#include "world.h"

#include <kvpager/wire.h>
#include <stdlib.h>

enum {
    SEQS = 1024,
    STEPS = 16, /* of one sample: every sequence crosses one block boundary */
    START_TOKENS = 512,
    MAX_TOKENS = 4096,
    MESSAGE_BYTES = 64 << 20
};

typedef struct wire_state {
    world *w;
    kvp_wire_sender *sender;
    kvp_wire_mirror *mirror;
    uint32_t grown;      /* tokens since the start, of every sequence */
    uint32_t max_tokens; /* of a sequence: all fit the pool */
    kvp_seq seqs[SEQS];
    kvp_wire_item items[SEQS];
    uint32_t ends[SEQS];
    int32_t tokens[SEQS];
    uint64_t random;
    uint8_t *message;
    double encode_ns; /* of the last sample, for each sequence and step */
    double apply_ns;
} wire_state;

static size_t send_step(wire_state *s, uint32_t flags)
{
    kvp_wire_step step = {
        .struct_size = sizeof step, .flags = flags, .n_items = SEQS, .items = s->items};
    size_t n_bytes;
    uint64_t start = now_ns();
    REQUIRE_OK(kvp_wire_sender_encode(s->sender, &step, s->message, MESSAGE_BYTES, &n_bytes));
    uint64_t middle = now_ns();
    REQUIRE_OK(kvp_wire_mirror_apply(s->mirror, s->message, n_bytes, NULL));
    s->apply_ns += (double)(now_ns() - middle);
    s->encode_ns += (double)(middle - start);
    return n_bytes;
}

/* One token more for each; what the step before ran is computed. */
static void advance(wire_state *s)
{
    kvp_batch batch = {
        .struct_size = sizeof batch, .n_seqs = SEQS, .seqs = s->seqs, .tokens = s->tokens};
    for (uint32_t i = 0; i < SEQS; i++) {
        s->ends[i] = START_TOKENS + i % BLOCK_TOKENS + s->grown;
        s->tokens[i] = (int32_t)(world_draw(&s->random) % 128256);
    }
    REQUIRE_OK(kvp_seq_commit_many(s->w->cache, s->seqs, s->ends, SEQS));
    REQUIRE_OK(kvp_seq_extend_many(s->w->cache, &batch));
    s->grown++;
}

/* The workers know the sequences, and one step has been made. */
static void open_all(wire_state *s)
{
    for (uint32_t i = 0; i < SEQS; i++) {
        s->seqs[i] = world_open_new(s->w, START_TOKENS + i % BLOCK_TOKENS);
        s->items[i] =
            (kvp_wire_item){.seq = s->seqs[i], .worker_id = i, .status = 1, .step_tokens = 1};
    }
    s->grown = 0;
    send_step(s, KVP_WIRE_FULL);
    advance(s);
    send_step(s, 0);
}

static void *set_up(const bench_options *options)
{
    wire_state *s = allocate(sizeof *s);
    kvp_wire_config config;
    s->w = world_create(options, SEQS, MAX_TOKENS, NULL);
    world_shuffle(s->w);
    s->max_tokens = s->w->n_blocks / SEQS * BLOCK_TOKENS;
    if (s->max_tokens > MAX_TOKENS)
        s->max_tokens = MAX_TOKENS;
    s->message = allocate(MESSAGE_BYTES);
    REQUIRE_OK(kvp_wire_config_of(s->w->cache, &config));
    config.max_step_tokens = SEQS * MAX_TOKENS;
    REQUIRE_OK(kvp_wire_sender_create(&config, s->w->cache, NULL, 0, &s->sender));
    REQUIRE_OK(kvp_wire_mirror_create(&config, NULL, 0, &s->mirror));
    open_all(s);
    return s;
}

static void tear_down(void *state)
{
    wire_state *s = state;
    kvp_wire_sender_destroy(s->sender);
    kvp_wire_mirror_destroy(s->mirror);
    world_destroy(s->w);
    free(s->message);
    free(s);
}

static double run_sample(wire_state *s)
{
    size_t n_bytes = 0;
    if (START_TOKENS + s->grown + STEPS + BLOCK_TOKENS > s->max_tokens) {
        for (uint32_t i = 0; i < SEQS; i++)
            world_close(s->w, s->seqs[i]);
        open_all(s);
    }
    s->encode_ns = 0;
    s->apply_ns = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        advance(s);
        n_bytes += send_step(s, 0);
    }
    REQUIRE(kvp_wire_sender_digest(s->sender) == kvp_wire_mirror_digest(s->mirror));
    return (double)n_bytes / (SEQS * STEPS);
}

static double bytes_per_decode(void *state)
{
    return run_sample(state);
}

static double encode_time(void *state)
{
    wire_state *s = state;
    run_sample(s);
    return s->encode_ns / (SEQS * STEPS);
}

static double apply_time(void *state)
{
    wire_state *s = state;
    run_sample(s);
    return s->apply_ns / (SEQS * STEPS);
}

static const char steady[] = "1,024 sequences, pool long in use; head included";

static const measurement measurements[] = {
    {"wire_bytes_per_decode", "B", 8, 11, bytes_per_decode, NULL, steady},
    {"wire_encode_1024", "ns", 0, 51, encode_time, NULL, "per sequence; makes the message"},
    {"wire_apply_1024", "ns", 0, 51, apply_time, NULL, "per sequence; checks and applies it"},
};

const group wire_group = {measurements, sizeof measurements / sizeof *measurements, set_up,
                          tear_down};
