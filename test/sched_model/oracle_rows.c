/* What rows of a request refer to: blocks that it alone holds, and what its way back copies. See
 * oracle.h. */
#include "oracle.h"

static uint32_t ceil_div(uint32_t n, uint32_t per)
{
    return (n + per - 1) / per;
}

/* The row of a sample; none when it has no sequence. */
uint32_t oracle_row(const oracle *o, const sample *s, uint32_t group, const int32_t **out_row)
{
    uint32_t n = 0;
    if (s->seq.bits == 0 || kvp_seq_row(o->cache, s->seq, group, out_row, &n) != KVP_OK)
        return 0;
    return n;
}

/* Entries of the request's rows that are this block. */
static uint32_t count_own(const oracle *o, const request *r, uint32_t group, int32_t block)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_samples; i++) {
        const int32_t *row;
        const uint32_t n_row = oracle_row(o, &r->samples[i], group, &row);
        for (uint32_t j = 0; j < n_row; j++)
            n += row[j] == block;
    }
    return n;
}

int oracle_others_hold(const oracle *o, const request *r, uint32_t group, int32_t block)
{
    kvp_block_info info;
    (void)kvp_block_info_get(o->cache, group, KVP_DEVICE, block, &info);
    return info.ref_count > count_own(o, r, group, block);
}

int oracle_releases_block(const oracle *o, const request *r)
{
    for (uint32_t i = 0; i < r->n_samples; i++) {
        for (uint32_t g = 0; g < o->cache_config.n_groups; g++) {
            const int32_t *row;
            const uint32_t n_row = oracle_row(o, &r->samples[i], g, &row);
            for (uint32_t j = 0; j < n_row; j++)
                if (row[j] != KVP_NULL_BLOCK && !oracle_others_hold(o, r, g, row[j]))
                    return 1;
        }
    }
    return 0;
}

int oracle_way_back_fits(const oracle *o, const request *r)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < r->n_samples; i++) {
        for (uint32_t g = 0; g < o->cache_config.n_groups; g++) {
            const int32_t *row;
            const uint32_t n_row = oracle_row(o, &r->samples[i], g, &row);
            for (uint32_t j = 0; j < n_row; j++)
                n += row[j] != KVP_NULL_BLOCK;
        }
    }
    if (n > o->usable)
        n = o->usable;
    const uint32_t n_groups = o->cache_config.n_groups + (o->usable_slots > 0);
    return n + oracle_live(r) * n_groups <= o->cache_config.max_copies;
}

/* What a recompute loses, as kvp_sched_config counts it. */
uint64_t oracle_lost_tokens(const oracle *o, const request *r)
{
    const uint32_t S = oracle_size(o, 0);
    uint64_t lost = 0;
    int is_first = 1;
    for (uint32_t i = 0; i < r->n_samples; i++) {
        const sample *s = &r->samples[i];
        if (s->seq.bits == 0)
            continue;
        const int32_t *row;
        uint32_t kept = 0;
        (void)oracle_row(o, s, 0, &row);
        while (is_first && kept + S <= s->computed && row[kept / S] != KVP_NULL_BLOCK &&
               oracle_others_hold(o, r, 0, row[kept / S]))
            kept += S;
        if (is_first)
            lost += s->computed - kept;
        else if (s->computed > r->prompt)
            lost += s->computed - r->prompt;
        is_first = 0;
    }
    return lost;
}

/* The first live sample: the others are forked from it. */
sample *oracle_trunk(request *r)
{
    sample *s = r->samples;
    while (s->has_ended)
        s++;
    return s;
}

/* When the trunk is forked: of the others, and of itself if it stops there. */
uint32_t oracle_blocks_for_later(const oracle *o, request *r)
{
    const sample *trunk = oracle_trunk(r);
    uint32_t n = 0;
    for (uint32_t g = 0; g < o->cache_config.n_groups; g++) {
        const uint32_t S = oracle_size(o, g);
        if (oracle_goal(o, r, trunk) == r->prompt && trunk->n > r->prompt)
            n += ceil_div(trunk->n - 1, S) - ceil_div(r->prompt, S);
        for (uint32_t i = 0; i < r->n_samples; i++) {
            const sample *s = &r->samples[i];
            const uint32_t own = ceil_div(s->n, S) - r->prompt / S;
            if (!s->has_ended && s != trunk)
                n += own > 1 ? own : 1;
        }
    }
    return n;
}
