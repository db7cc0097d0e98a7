/* What recording costs: the same calls on two caches, one of which is recorded. The sink counts
 * bytes and throws them away (its own cost is one indirect call), or keeps them in memory. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

enum { SEQS = 64, STEPS = 16, CALLS = SEQS * STEPS * 2, MAX_TOKENS = 32768, KEPT_BYTES = 1 << 20 };

typedef struct record_state {
    world *plain;
    world *dropped; /* recorded, bytes thrown away */
    world *kept;    /* recorded, bytes kept */
    kvp_seq seqs[3][SEQS];
    uint32_t grown[3];
    uint64_t n_bytes;
    uint64_t random;
    uint8_t *log; /* [KEPT_BYTES] written round and round */
    size_t log_at;
} record_state;

static int drop_bytes(void *context, const void *bytes, size_t n_bytes)
{
    record_state *s = context;
    (void)bytes;
    s->n_bytes += n_bytes;
    return 0;
}

static int keep_bytes(void *context, const void *bytes, size_t n_bytes)
{
    record_state *s = context;
    if (s->log_at + n_bytes > KEPT_BYTES)
        s->log_at = 0;
    memcpy(s->log + s->log_at, bytes, n_bytes);
    s->log_at += n_bytes;
    return 0;
}

static void open_all(record_state *s, world *w, uint32_t which)
{
    for (uint32_t i = 0; i < SEQS; i++)
        s->seqs[which][i] = world_open_new(w, BLOCK_TOKENS + i % BLOCK_TOKENS);
    s->grown[which] = 0;
}

static void *set_up(const bench_options *options)
{
    record_state *s = allocate(sizeof *s);
    s->log = allocate(KEPT_BYTES);
    kvp_sink drop = {s, drop_bytes};
    kvp_sink keep = {s, keep_bytes};
    s->plain = world_create(options, SEQS, MAX_TOKENS, NULL);
    s->dropped = world_create(options, SEQS, MAX_TOKENS, &drop);
    s->kept = world_create(options, SEQS, MAX_TOKENS, &keep);
    open_all(s, s->plain, 0);
    open_all(s, s->dropped, 1);
    open_all(s, s->kept, 2);
    return s;
}

static void tear_down(void *state)
{
    record_state *s = state;
    world_destroy(s->plain);
    world_destroy(s->dropped);
    world_destroy(s->kept);
    free(s->log);
    free(s);
}

/* Decodes STEPS tokens of every sequence; ns per call. */
static double decode(record_state *s, world *w, uint32_t which)
{
    if (s->grown[which] + STEPS + 2 * BLOCK_TOKENS > MAX_TOKENS) {
        for (uint32_t i = 0; i < SEQS; i++)
            world_close(w, s->seqs[which][i]);
        open_all(s, w, which);
    }
    kvp_status status = KVP_OK;
    uint64_t start = now_ns();
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t i = 0; i < SEQS && status == KVP_OK; i++) {
            uint32_t end = BLOCK_TOKENS + i % BLOCK_TOKENS + s->grown[which] + step + 1;
            int32_t token = (int32_t)(s->random++ & 0xffff);
            status = kvp_seq_extend(w->cache, s->seqs[which][i], &token, 1, 0);
            if (status == KVP_OK)
                status = kvp_seq_commit(w->cache, s->seqs[which][i], end);
        }
    }
    uint64_t stop = now_ns();
    REQUIRE_OK(status);
    s->grown[which] += STEPS;
    return (double)(stop - start) / CALLS;
}

static double plain_call(void *state)
{
    record_state *s = state;
    return decode(s, s->plain, 0);
}

static double overhead_dropped(void *state)
{
    record_state *s = state;
    double plain = decode(s, s->plain, 0);
    uint64_t before = s->n_bytes;
    double recorded = decode(s, s->dropped, 1);
    REQUIRE(s->n_bytes >= before + 2 * CALLS);
    return recorded - plain;
}

static double overhead_kept(void *state)
{
    record_state *s = state;
    double plain = decode(s, s->plain, 0);
    return decode(s, s->kept, 2) - plain;
}

static const measurement measurements[] = {
    {"call_plain", "ns", 0, 101, plain_call, NULL, "extend or commit of one token, not recorded"},
    {"record_overhead", "ns", 30, 101, overhead_dropped, NULL, "more per recorded call, null sink"},
    {"record_overhead_memory", "ns", 0, 101, overhead_kept, NULL, "the same, bytes kept in memory"},
};

const group record_group = {measurements, sizeof measurements / sizeof *measurements, set_up,
                            tear_down};
