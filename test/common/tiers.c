/* tiers: see tiers.h. */
#include "tiers.h"

#include <string.h>

enum { COPIES_MAX = 256 };

kvp_config tiers_config(uint32_t S, uint32_t U, uint32_t usable, uint32_t host)
{
    kvp_config config = config_of(S, U, usable);
    config.host_blocks = host == 0 ? 0 : host + 1;
    return config;
}

kvp_config steps_config(uint32_t S, uint32_t U, uint32_t usable, uint32_t host)
{
    kvp_config config = tiers_config(S, U, usable, host);
    config.steps = KVP_STEPS_OVERLAPPED;
    return config;
}

world steps_world(uint32_t usable, uint32_t host)
{
    const kvp_config config = steps_config(4, 4, usable, host);
    return make_world(&config);
}

world tiers_world(uint32_t usable, uint32_t host)
{
    const kvp_config config = tiers_config(4, 4, usable, host);
    return make_world(&config);
}

kvp_swapped swap_out(world *w, const kvp_seq *seqs, uint32_t n_seqs)
{
    kvp_swapped swapped;
    assert_ok(kvp_seq_swap_out(w->cache, seqs, n_seqs, &swapped));
    return swapped;
}

kvp_swapped swap_in(world *w, const kvp_seq *seqs, uint32_t n_seqs, uint32_t reserve_tokens)
{
    kvp_swapped swapped;
    assert_ok(kvp_seq_swap_in(w->cache, seqs, n_seqs, reserve_tokens, &swapped));
    return swapped;
}

kvp_admission can_swap_out(world *w, const kvp_seq *seqs, uint32_t n_seqs)
{
    kvp_admission admission;
    assert_ok(kvp_cache_can_swap_out(w->cache, seqs, n_seqs, &admission));
    return admission;
}

kvp_admission can_swap_in(world *w, const kvp_seq *seqs, uint32_t n_seqs, uint32_t reserve_tokens)
{
    kvp_admission admission;
    assert_ok(kvp_cache_can_swap_in(w->cache, seqs, n_seqs, reserve_tokens, &admission));
    return admission;
}

kvp_block_info host_block(const world *w, int32_t block)
{
    return block_in(w, KVP_HOST, block);
}

void drop_plan(world *w)
{
    kvp_copy copies[COPIES_MAX];
    (void)take_plan(w, copies, COPIES_MAX);
}

void wipe_device(world *w)
{
    kvp_config config;
    kvp_seq seq;
    assert_ok(kvp_cache_config_get(w->cache, &config));
    kvp_prompt prompt = prompt_of(NULL, 0);
    prompt.reserve_tokens = (config.n_blocks - 1) / config.n_groups * config.block_tokens;
    assert_ok(kvp_seq_open(w->cache, w->ns, &prompt, &seq, NULL));
    assert_ok(kvp_seq_close(w->cache, seq, NULL));
    assert_int_equal(stats_of(w).free_blocks, config.n_blocks - 1);
}

kvp_seq evict_first(world *w)
{
    kvp_config config;
    kvp_prompt prompt = prompt_of(NULL, 0);
    assert_ok(kvp_cache_config_get(w->cache, &config));
    prompt.reserve_tokens = ((uint32_t)stats_of(w).free_blocks + 1) * config.block_tokens;
    return open_with(w, &prompt, NULL);
}

uint64_t begin_step(world *w)
{
    kvp_copy copies[COPIES_MAX];
    uint32_t n;
    uint64_t step;
    assert_ok(kvp_step_begin(w->cache, copies, COPIES_MAX, &n, &step));
    return step;
}

uint64_t done_step(world *w, uint64_t step)
{
    uint64_t effective;
    assert_ok(kvp_step_done(w->cache, step, &effective));
    return effective;
}

void pass_step(world *w)
{
    (void)done_step(w, begin_step(w));
}

void commit_at(world *w, uint64_t step, kvp_seq seq, uint32_t n_tokens)
{
    assert_ok(kvp_step_commit(w->cache, step, &seq, &n_tokens, 1));
}

static void print_copies(const char *name, const kvp_copy *copies, size_t n)
{
    static const char *const tiers[] = {"device", "host"};
    print_error("%s\n", name);
    for (size_t i = 0; i < n; i++) {
        const kvp_copy *c = &copies[i];
        print_error("  phase %u: %u slots of %s %d to %s %d\n", (unsigned)c->phase,
                    (unsigned)c->n_tokens, tiers[c->src_tier & 1], (int)c->src_block,
                    tiers[c->dst_tier & 1], (int)c->dst_block);
    }
}

static void compare_copies(const kvp_copy *got, size_t n_got, const kvp_copy *expected, size_t n,
                           const char *file, int line)
{
    if (n_got != n || (n > 0 && memcmp(got, expected, n * sizeof(*got)) != 0)) {
        print_copies("got", got, n_got);
        print_copies("expected", expected, n);
        _fail(file, line);
    }
}

void assert_plan_is(world *w, const kvp_copy *expected, size_t n, const char *file, int line)
{
    kvp_copy copies[COPIES_MAX];
    const uint32_t n_copies = take_plan(w, copies, COPIES_MAX);
    compare_copies(copies, n_copies, expected, n, file, line);
}

void assert_step_is(world *w, uint64_t number, const kvp_copy *expected, size_t n, const char *file,
                    int line)
{
    kvp_copy copies[COPIES_MAX];
    uint32_t n_copies;
    uint64_t step;
    assert_ok(kvp_step_begin(w->cache, copies, COPIES_MAX, &n_copies, &step));
    compare_copies(copies, n_copies, expected, n, file, line);
    assert_int_equal(step, number);
}
