/* meta_cases: slow and plain, written from meta.h, windows.h and trees.h. */
#include "meta_cases.h"

#include <string.h>

static uint64_t random_state;

void meta_seed(uint64_t seed)
{
    random_state = seed;
}

uint32_t meta_below(uint32_t n)
{
    return draw(&random_state, n);
}

/* ----------------------------------------------------------------------------- what is expected */

uint32_t meta_position(const meta_told *t, uint32_t slot)
{
    return slot < t->tokens ? slot : t->tokens + t->depth[slot - t->tokens];
}

/* The first position behind the sinks that a query at p sees; may be negative. */
static int64_t first_seen(const meta_told *t, int64_t p)
{
    return t->K == KVP_CHUNKED ? p / t->R * t->R : p + 1 - (int64_t)t->R;
}

static int in_sinks(const meta_told *t, int64_t p)
{
    return t->K != KVP_CHUNKED && p < t->K;
}

int meta_keeps_entry(const meta_told *t, uint32_t i)
{
    return t->R == 0 || in_sinks(t, i * t->S) || (int64_t)(i + 1) * t->S > first_seen(t, t->q);
}

int meta_keeps_key(const meta_told *t, uint32_t slot)
{
    return t->R == 0 || in_sinks(t, slot) || (int64_t)slot >= first_seen(t, t->q);
}

int meta_is_ancestor(const meta_told *t, int32_t above, int32_t node)
{
    while (node > above)
        node = t->parents[node];
    return node == above;
}

int meta_sees(const meta_told *t, uint32_t x, uint32_t s)
{
    const int64_t p = meta_position(t, s);
    const int masked = s < t->tokens
                           ? s > x
                           : x < t->tokens || !meta_is_ancestor(t, (int32_t)(s - t->tokens),
                                                                (int32_t)(x - t->tokens));
    return !masked && (t->R == 0 || in_sinks(t, p) || p >= first_seen(t, meta_position(t, x)));
}

static kvp_status judge(const meta_told *t, const kvp_seq_info *info)
{
    if (t->begin > info->n_tokens + info->tree_tokens ||
        t->n > info->n_tokens + info->tree_tokens - t->begin)
        return KVP_E_ARG;
    const uint32_t usable = info->writable_tokens > info->computed_tokens ? info->writable_tokens
                                                                          : info->computed_tokens;
    if (info->tier != KVP_DEVICE || (t->n > 0 && t->length > usable))
        return KVP_E_STATE;
    for (uint32_t i = 0; i * t->S < t->length; i++)
        if (t->row[i] == KVP_NULL_BLOCK && meta_keeps_entry(t, i))
            return KVP_E_DROPPED;
    return KVP_OK;
}

void meta_tell(const world *w, const kvp_meta_batch *batch, uint32_t b, meta_told *t)
{
    const kvp_seq_info info = info_of(w, batch->seqs[b]);
    const uint32_t all = info.n_tokens + info.tree_tokens;
    kvp_window_info window;
    kvp_config config;
    uint32_t n;
    memset(t, 0, sizeof(*t));
    assert_ok(kvp_cache_config_get(w->cache, &config));
    assert_ok(kvp_seq_window_get(w->cache, batch->seqs[b], batch->group, &window));
    assert_ok(kvp_seq_row(w->cache, batch->seqs[b], batch->group, &t->row, &n));
    assert_ok(kvp_seq_tree(w->cache, batch->seqs[b], NULL, t->parents, META_NODES, &n));
    for (uint32_t j = 0; j < n; j++)
        t->depth[j] = t->parents[j] < 0 ? 0 : t->depth[t->parents[j]] + 1;
    t->S = config.groups[batch->group].block_tokens;
    t->K = window.window.sink_tokens;
    t->R = window.window.recent_tokens;
    t->tokens = info.n_tokens;
    t->computed = info.computed_tokens;
    t->begin = info.computed_tokens;
    if (info.computed_tokens == info.n_tokens && info.n_tokens > 0 && info.tree_tokens == 0)
        t->begin--;
    t->begin = batch->begin != NULL ? batch->begin[b] : t->begin;
    t->n = batch->n_tokens != NULL ? batch->n_tokens[b] : t->begin < all ? all - t->begin : 0;
    t->length = t->begin + t->n;
    t->q = t->begin < t->tokens ? t->begin : t->tokens;
    t->status = judge(t, &info);
}

kvp_status meta_expected_status(const world *w, const kvp_meta_batch *batch)
{
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        meta_told t;
        meta_tell(w, batch, b, &t);
        if (t.status != KVP_OK)
            return t.status;
    }
    return KVP_OK;
}

static kvp_window random_window(void)
{
    const kvp_window window = {meta_below(20), 1 + meta_below(30)};
    const uint32_t kind = meta_below(4);
    return kind == 0   ? (kvp_window){0, 0}
           : kind == 1 ? (kvp_window){KVP_CHUNKED, window.recent_tokens}
                       : window;
}

world meta_random_world(void)
{
    static const uint32_t sizes[] = {1, 2, 4, 8, 16};
    const uint32_t s = meta_below(5);
    kvp_config config = config_of(sizes[s], sizes[meta_below(s + 1)], 900);
    config.max_seqs = META_SEQS;
    config.max_seq_tokens = META_TOKENS;
    config.max_tree_tokens = META_NODES;
    config.commit_policy = meta_below(2);
    config.host_blocks = meta_below(2) * 200;
    config.n_groups = 1 + meta_below(3);
    for (uint32_t g = 0; g < config.n_groups; g++) {
        const kvp_window window = random_window();
        config.groups[g] = (kvp_group){window.sink_tokens, window.recent_tokens,
                                       config.unit_tokens * meta_below(4)};
    }
    return make_world(&config);
}

static void grow_tree(world *w, kvp_seq seq, const int32_t *tokens)
{
    int32_t parents[META_NODES];
    const uint32_t had = info_of(w, seq).tree_tokens, n = meta_below(META_NODES / 2 + 1);
    const kvp_batch batch = {
        .struct_size = sizeof batch, .n_seqs = 1, .seqs = &seq, .n_tokens = &n, .tokens = tokens};
    for (uint32_t i = 0; i < n; i++)
        parents[i] = meta_below(4) == 0 ? -1 : (int32_t)meta_below(had + i + 1) - 1;
    (void)kvp_seq_extend_tree(w->cache, &batch, parents);
}

/* One thing that may happen to a sequence; most of what is refused is refused for good reasons. */
static void happen(world *w, kvp_seq seq, const int32_t *tokens, uint32_t n_groups)
{
    const kvp_seq_info info = info_of(w, seq);
    switch (meta_below(9)) {
    case 0:
    case 1: (void)kvp_seq_commit(w->cache, seq, meta_below(info.n_tokens + 1)); break;
    case 2: (void)kvp_seq_commit(w->cache, seq, info.n_tokens); break;
    case 3: (void)kvp_seq_extend(w->cache, seq, tokens, meta_below(9), meta_below(3)); break;
    case 4: (void)kvp_seq_window(w->cache, seq, meta_below(n_groups), random_window(), NULL); break;
    case 5:
        (void)kvp_seq_truncate(w->cache, seq, info.n_tokens - meta_below(info.n_tokens / 4 + 1),
                               NULL);
        break;
    case 6:
        (void)kvp_seq_invalidate(w->cache, seq,
                                 info.computed_tokens - meta_below(4) % (1 + info.n_tokens), NULL,
                                 0, NULL);
        (void)kvp_seq_extend(w->cache, seq, NULL, 0, 0);
        break;
    default: grow_tree(w, seq, tokens); break;
    }
}

uint32_t meta_random_seqs(world *w, kvp_seq *seqs)
{
    const uint32_t wanted = 3 + meta_below(META_SEQS - 3);
    int32_t tokens[META_TOKENS];
    kvp_config config;
    uint32_t n = 0;
    assert_ok(kvp_cache_config_get(w->cache, &config));
    while (n < wanted) {
        const uint32_t length = meta_below(64);
        for (uint32_t i = 0; i < length + 9; i++)
            tokens[i] = (int32_t)(i % 16 == 3 ? meta_below(2) : i);
        const kvp_prompt prompt = prompt_of(tokens, length);
        if (n > 0 && meta_below(4) == 0) {
            const kvp_seq parent = seqs[meta_below(n)];
            if (kvp_seq_fork(w->cache, parent, info_of(w, parent).computed_tokens, 0, &seqs[n]) !=
                KVP_OK)
                continue;
        } else if (kvp_seq_open(w->cache, w->ns, &prompt, &seqs[n], NULL) != KVP_OK) {
            break;
        }
        for (uint32_t i = meta_below(6); i > 0; i--)
            happen(w, seqs[n], tokens, config.n_groups);
        if (config.host_blocks > 0 && meta_below(40) == 0)
            (void)kvp_seq_swap_out(w->cache, &seqs[n], 1, NULL);
        n++;
    }
    return n;
}

uint32_t meta_random_batch(const world *w, const kvp_seq *seqs, uint32_t n, kvp_seq *out,
                           uint32_t *begin, uint32_t *n_tokens)
{
    uint32_t n_out = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (meta_below(4) > 0 || (i + 1 == n && n_out == 0)) {
            const uint32_t at = meta_below(n_out + 1);
            memmove(out + at + 1, out + at, (n_out - at) * sizeof *out);
            out[at] = seqs[i];
            n_out++;
        }
    }
    for (uint32_t b = 0; b < n_out; b++) {
        const kvp_seq_info info = info_of(w, out[b]);
        const uint32_t all = info.n_tokens + info.tree_tokens;
        begin[b] = info.computed_tokens + meta_below(all - info.computed_tokens + 1);
        begin[b] = meta_below(12) == 0 ? meta_below(all + 1) : begin[b];
        n_tokens[b] = meta_below(3) == 0 ? meta_below(all - begin[b] + 1) : all - begin[b];
        n_tokens[b] += meta_below(200) == 0;
    }
    return n_out;
}
