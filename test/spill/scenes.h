/* Steps of the scenes of a spill, that assert what they do. */
#ifndef KVP_TEST_SPILL_SCENES_H
#define KVP_TEST_SPILL_SCENES_H

#include "mocka.h"

#include <string.h>

#include "world.h"

static inline void assert_good(const world *w)
{
    if (w->verdict.is_bad)
        fail_msg("%s", w->verdict.why);
}

static inline void open_world(world *w, const world_options *options)
{
    world_open(w, options);
    assert_good(w);
}

static inline void close_world(world *w)
{
    world_stop(w);
    world_close(w);
    assert_good(w);
}

#define scoped_world ENDED_BY(close_world) world

/* n tokens: `same` of them are those of every line, the others begin with `first`. */
static inline world_line line_of(const world *w, uint32_t n, uint32_t same, int32_t first)
{
    world_line line = {.n_tokens = n};
    for (uint32_t p = 0; p < n; p++)
        line.tokens[p] = p < same ? (int32_t)p : first + (int32_t)p;
    world_truth(w, &line);
    return line;
}

static inline kvp_open_info compute(world *w, const world_line *line)
{
    kvp_open_info info = {0};
    kvp_seq seq;
    assert_int_equal(world_compute(w, line, &seq, &info), KVP_OK);
    assert_int_equal(kvp_seq_close(w->cache, seq, NULL), KVP_OK);
    assert_good(w);
    return info;
}

/* As after a restart: the cache has nothing, the store what it had. */
static inline void forget_cache(world *w)
{
    world_stop(w);
    assert_int_equal(kvp_cache_reset(w->cache), KVP_OK);
    assert_good(w);
}

/* A world whose store has the 64 tokens of the line, and whose cache has nothing. */
static inline world_line open_stored(world *w, world_options *options)
{
    options->policy = KVP_SPILL_THROUGH;
    open_world(w, options);
    const world_line line = line_of(w, 64, 64, 0);
    compute(w, &line);
    world_settle(w);
    forget_cache(w);
    return line;
}

/* One call of a flush, and what an engine does in between. */
static inline kvp_status flush_once(world *w, uint64_t deadline_ns, int store_works)
{
    kvp_spill_answer answers[8];
    const kvp_status status = kvp_spill_flush(w->spill, w->now, deadline_ns);
    world_work_once(w, answers);
    world_take(w);
    world_run(w);
    if (store_works)
        world_store(w);
    assert_good(w);
    return status;
}

/* It has the time that it needs. */
static inline void flush_all(world *w)
{
    kvp_status status = KVP_E_AGAIN;
    for (int i = 0; i < 1000 && status == KVP_E_AGAIN; i++)
        status = flush_once(w, w->now + 1000000, 1);
    assert_int_equal(status, KVP_OK);
}

#endif
