/* What rows of a request refer to: blocks that it alone holds, and what its way back copies. See
 * oracle.h. */
#include "oracle.h"

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
            for (uint32_t j = 0; j < n_row; j++) {
                if (row[j] != KVP_NULL_BLOCK && !oracle_others_hold(o, r, g, row[j]))
                    return 1;
            }
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
