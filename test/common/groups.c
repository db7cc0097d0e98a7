/* groups: see groups.h. */
#include "groups.h"

#include <string.h>

#include "core/cache/state.h"

enum { VALUES = 4096, NODES_MAX = 64 };

kvp_config groups_config(uint32_t S, uint32_t usable, const kvp_window *groups, uint32_t n_groups)
{
    kvp_config config = config_of(S, S, usable);
    config.n_groups = n_groups;
    for (uint32_t g = 0; g < n_groups; g++)
        config.groups[g] = (kvp_group){groups[g].sink_tokens, groups[g].recent_tokens, 0};
    return config;
}

world window_world(uint32_t usable, uint32_t K, uint32_t R)
{
    const kvp_config config = groups_config(4, usable, &(kvp_window){K, R}, 1);
    return make_world(&config);
}

kvp_window_info window_of(const world *w, uint32_t group, kvp_seq seq)
{
    kvp_window_info info;
    assert_ok(kvp_seq_window_get(w->cache, seq, group, &info));
    return info;
}

const int32_t *row_of(const world *w, uint32_t group, kvp_seq seq)
{
    const int32_t *row;
    uint32_t n;
    assert_ok(kvp_seq_row(w->cache, seq, group, &row, &n));
    return row;
}

kvp_released set_window(world *w, uint32_t group, kvp_seq seq, uint32_t K, uint32_t R)
{
    kvp_released released;
    assert_ok(kvp_seq_window(w->cache, seq, group, (kvp_window){K, R}, &released));
    return released;
}

int keeps(kvp_window window, uint32_t S, uint32_t i, uint32_t q)
{
    const int64_t begin = (int64_t)i * S;
    const int64_t end = begin + S;
    if (window.sink_tokens == KVP_CHUNKED)
        return end > q / window.recent_tokens * (int64_t)window.recent_tokens;
    return window.recent_tokens == 0 || begin < window.sink_tokens ||
           end > (int64_t)q + 1 - window.recent_tokens;
}

void extend_seq(world *w, kvp_seq seq, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const int32_t token = (int32_t)(info_of(w, seq).n_tokens % VALUES);
        assert_ok(kvp_seq_extend(w->cache, seq, &token, 1, 0));
    }
}

void decode(world *w, kvp_seq seq, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        extend_seq(w, seq, 1);
        assert_ok(kvp_seq_commit(w->cache, seq, info_of(w, seq).n_tokens));
    }
}

void retain_block(const world *w, int32_t block, uint32_t retention)
{
    kvpi_pool_retain(&w->cache->pool, (uint32_t)block, retention);
}

void evict_blocks(world *w, uint32_t n)
{
    kvp_config config;
    kvp_prompt prompt = prompt_of(NULL, 0);
    assert_ok(kvp_cache_config_get(w->cache, &config));
    prompt.reserve_tokens = n / config.n_groups * config.block_tokens;
    assert_int_equal(n % config.n_groups, 0);
    close_seq(w, open_with(w, &prompt, NULL));
}

kvp_status try_tree(world *w, kvp_seq seq, const int32_t *tokens, const int32_t *parents,
                    uint32_t n)
{
    kvp_batch batch = batch_of(&seq, &n, 1);
    batch.tokens = tokens;
    return kvp_seq_extend_tree(w->cache, &batch, parents);
}

void add_tree(world *w, kvp_seq seq, const int32_t *tokens, const int32_t *parents, uint32_t n)
{
    assert_ok(try_tree(w, seq, tokens, parents, n));
}

static kvp_accept accept_of(const kvp_seq *seq, const int32_t *leaf, kvp_slot_move *moves,
                            uint32_t capacity)
{
    return (kvp_accept){.struct_size = sizeof(kvp_accept),
                        .n_seqs = 1,
                        .max_moves = capacity,
                        .seqs = seq,
                        .leaves = leaf,
                        .moves = moves};
}

kvp_status try_accept(world *w, kvp_seq seq, int32_t leaf, kvp_slot_move *moves, uint32_t capacity)
{
    kvp_accept accept = accept_of(&seq, &leaf, moves, capacity);
    return kvp_seq_accept(w->cache, &accept);
}

uint32_t accept_path(world *w, kvp_seq seq, int32_t leaf, kvp_slot_move *moves, uint32_t capacity)
{
    kvp_accept accept = accept_of(&seq, &leaf, moves, capacity);
    assert_ok(kvp_seq_accept(w->cache, &accept));
    return accept.n_moves;
}

void assert_row_in_is(const world *w, uint32_t group, kvp_seq seq, const int32_t *expected,
                      size_t n, const char *file, int line)
{
    const int32_t *row;
    uint32_t n_row;
    assert_ok(kvp_seq_row(w->cache, seq, group, &row, &n_row));
    assert_ints_are(row, n_row, expected, n, file, line);
}

void assert_tree_is(const world *w, kvp_seq seq, const int32_t *tokens, const int32_t *parents,
                    uint32_t n, const char *file, int line)
{
    int32_t got_tokens[NODES_MAX], got_parents[NODES_MAX];
    uint32_t n_got;
    assert_ok(kvp_seq_tree(w->cache, seq, got_tokens, got_parents, NODES_MAX, &n_got));
    assert_int_equal(info_of(w, seq).tree_tokens, n_got);
    assert_ints_are(got_tokens, n_got, tokens, n, file, line);
    assert_ints_are(got_parents, n_got, parents, n, file, line);
}
