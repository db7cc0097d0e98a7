/* See rig.h: shorthands for calls. */
#include "rig.h"

#include <string.h>

kvp_stats rig_stats(rig *r)
{
    kvp_stats stats;
    memset(&stats, 0, sizeof(stats));
    EXPECT_OK(r, kvp_cache_stats_get(r->cache, &stats));
    return stats;
}

kvp_seq_info rig_info(rig *r, const rig_seq *s)
{
    kvp_seq_info info;
    memset(&info, 0, sizeof(info));
    EXPECT_OK(r, kvp_seq_info_get(r->cache, s->handle, &info));
    return info;
}

int32_t rig_row(rig *r, const rig_seq *s, uint32_t group, uint32_t entry)
{
    const int32_t *row = NULL;
    uint32_t n = 0;
    EXPECT_OK(r, kvp_seq_row(r->cache, s->handle, group, &row, &n));
    return entry < n ? row[entry] : -1;
}

kvp_shortage rig_shortage(rig *r)
{
    kvp_shortage shortage;
    memset(&shortage, 0, sizeof(shortage));
    EXPECT_OK(r, kvp_cache_shortage_get(r->cache, &shortage));
    return shortage;
}

kvp_prompt rig_prompt(const int32_t *tokens, uint32_t n_tokens)
{
    kvp_prompt prompt = {.struct_size = sizeof(prompt), .tokens = tokens, .n_tokens = n_tokens};
    return prompt;
}

kvp_open_info rig_match(rig *r, const int32_t *tokens, uint32_t n_tokens)
{
    kvp_open_info info;
    const kvp_prompt prompt = rig_prompt(tokens, n_tokens);
    memset(&info, 0, sizeof(info));
    EXPECT_OK(r, kvp_cache_match(r->cache, r->ns, &prompt, &info));
    return info;
}

static rig_seq *new_seq(rig *r, kvp_seq handle, const char *space)
{
    uint32_t i = 0;
    while (i + 1 < RIG_SEQS && r->seqs[i].is_open)
        i++;
    r->seqs[i] = (rig_seq){.is_open = true, .handle = handle, .serial = ++r->n_serials};
    truth_line_begin(&r->truth, &r->seqs[i].line, space, r->config.max_seq_tokens);
    return &r->seqs[i];
}

rig_seq *rig_open_with(rig *r, kvp_ns ns, const char *space, const kvp_prompt *prompt)
{
    kvp_seq handle = {0};
    memset(&r->info, 0, sizeof(r->info));
    const kvp_status status = kvp_seq_open(r->cache, ns, prompt, &handle, &r->info);
    EXPECT_STATUS(r, KVP_OK, status);
    if (status != KVP_OK)
        return &r->seqs[RIG_SEQS - 1]; /* never used: it stays closed */
    rig_seq *s = new_seq(r, handle, space);
    for (uint32_t i = 0; i < prompt->n_keys && i < TRUTH_KEYS; i++) {
        const kvp_key *key = &prompt->keys[i];
        truth_key *own = &s->line.keys[s->line.n_keys++];
        *own = (truth_key){
            .type = key->type, .begin = key->begin, .end = key->end, .n_bytes = key->n_bytes};
        memcpy(own->bytes, key->bytes, key->n_bytes < TRUTH_KEY_BYTES ? key->n_bytes : 3);
    }
    for (uint32_t i = 0; i < prompt->n_tokens; i++)
        truth_line_add(&r->truth, &s->line, prompt->tokens[i]);
    rig_called(r);
    return s;
}

rig_seq *rig_open(rig *r, const int32_t *tokens, uint32_t n_tokens)
{
    const kvp_prompt prompt = rig_prompt(tokens, n_tokens);
    return rig_open_with(r, r->ns, "model", &prompt);
}

void rig_commit(rig *r, rig_seq *s, uint32_t n_tokens)
{
    EXPECT_OK(r, kvp_seq_commit(r->cache, s->handle, n_tokens));
    rig_called(r);
}

void rig_compute(rig *r, rig_seq *s)
{
    const uint32_t computed = rig_info(r, s).computed_tokens;
    const uint32_t n = s->line.n;
    if (n > 0) {
        rig_forward(r, s, computed < n ? computed : n - 1, n);
        rig_commit(r, s, n);
    }
}

rig_seq *rig_open_done(rig *r, const int32_t *tokens, uint32_t n_tokens)
{
    rig_seq *s = rig_open(r, tokens, n_tokens);
    rig_compute(r, s);
    return s;
}

void rig_leave_cached(rig *r, const int32_t *tokens, uint32_t n_tokens)
{
    rig_close(r, rig_open_done(r, tokens, n_tokens));
}

void rig_extend(rig *r, rig_seq *s, const int32_t *tokens, uint32_t n_tokens)
{
    const kvp_status status = kvp_seq_extend(r->cache, s->handle, tokens, n_tokens, 0);
    EXPECT_STATUS(r, KVP_OK, status);
    for (uint32_t i = 0; i < n_tokens && status == KVP_OK; i++)
        truth_line_add(&r->truth, &s->line, tokens[i]);
    rig_called(r);
}

void rig_decode(rig *r, rig_seq *s, int32_t first, uint32_t n_tokens)
{
    for (uint32_t i = 0; i < n_tokens && !r->verdict.is_bad; i++) {
        rig_extend(r, s, rig_tokens(first + (int32_t)i), 1);
        rig_compute(r, s);
    }
}

rig_seq *rig_fork(rig *r, const rig_seq *parent, uint32_t at)
{
    kvp_seq handle = {0};
    const kvp_status status = kvp_seq_fork(r->cache, parent->handle, at, 0, &handle);
    EXPECT_STATUS(r, KVP_OK, status);
    if (status != KVP_OK)
        return &r->seqs[RIG_SEQS - 1];
    rig_seq *s = new_seq(r, handle, "model");
    truth_line_copy(&r->truth, &s->line, &parent->line, at == KVP_END ? parent->line.n : at);
    rig_called(r);
    return s;
}

void rig_truncate(rig *r, rig_seq *s, uint32_t n_tokens)
{
    EXPECT_OK(r, kvp_seq_truncate(r->cache, s->handle, n_tokens, NULL));
    truth_line_cut(&r->truth, &s->line, n_tokens);
    rig_called(r);
}

kvp_released rig_close(rig *r, rig_seq *s)
{
    kvp_released released = {0, 0};
    EXPECT_OK(r, kvp_seq_close(r->cache, s->handle, &released));
    if (s->is_open) {
        truth_line_end(&s->line);
        s->is_open = false;
    }
    rig_called(r);
    return released;
}

void rig_swap(rig *r, rig_seq *const *seqs, uint32_t n_seqs, bool out)
{
    kvp_seq handles[RIG_SEQS];
    for (uint32_t i = 0; i < n_seqs; i++) {
        handles[i] = seqs[i]->handle;
        seqs[i]->is_swapped = out;
    }
    EXPECT_OK(r, out ? kvp_seq_swap_out(r->cache, handles, n_seqs, NULL)
                     : kvp_seq_swap_in(r->cache, handles, n_seqs, 0, NULL));
    rig_called(r);
}
