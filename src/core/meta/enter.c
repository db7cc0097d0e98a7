/* enter: how a call on a batch begins. The whole batch is checked and counted before anything
 * is written. */
#include "core/meta/enter.h"

#include "core/cache/frame.h"
#include "core/meta/kept.h"
#include "core/meta/meta.h"

/* What a batch is asked for: rows may lack what a step would need. */
enum { OF_A_STEP, OF_ROWS };

static int bad_batch(const kvp_cache *cache, const kvp_meta_batch *batch)
{
    return cache == NULL || batch == NULL || batch->seqs == NULL || batch->n_seqs == 0 ||
           batch->group >= cache->config.n_groups;
}

static inline kvp_status check_span(const struct kvpi_span *span)
{
    const struct kvpi_seq *seq = span->seq;
    const uint32_t all = seq->tokens + seq->n_tree;
    if (span->begin > all || span->n_tokens > all - span->begin) {
        return KVP_E_ARG;
    }
    return seq->tier != KVP_DEVICE ||
                   (span->n_tokens > 0 && span->end > kvpi_max_u32(seq->writable, seq->computed))
               ? KVP_E_STATE
               : KVP_OK;
}

/* What windows and trees add to the check and the sums of a sequence. */
struct special {
    kvp_status status;
    uint32_t left_out;
    uint32_t n_nodes;
};

/* The span is a copy, so that the caller's may stay in registers. */
static struct special measure_special(const kvp_cache *cache, const kvp_meta_batch *batch,
                                      struct kvpi_span span, int purpose)
{
    const int lacks = purpose == OF_A_STEP && kvpi_span_lacks(cache, batch, &span);
    return (struct special){lacks ? KVP_E_DROPPED : KVP_OK,
                            kvpi_span_kept(cache, batch, &span).left_out, kvpi_span_nodes(&span)};
}

/* The first thing wrong with the batch; asking is not failing: the shortage stays as it is. */
static kvp_status measure(kvp_cache *cache, const kvp_meta_batch *batch, int purpose,
                          kvp_meta_sizes *sizes)
{
    const kvp_shortage shortage = cache->shortage;
    struct kvpi_faults faults = kvpi_faults_begin(cache);
    uint64_t n_tokens = 0; /* of a batch that is refused, the sums may be anything */
    uint64_t n_entries = 0;
    uint64_t left_out = 0;
    uint64_t n_nodes = 0;
    uint32_t max_blocks = 0;
    for (uint32_t b = 0; b < batch->n_seqs; b++) {
        const struct kvpi_seq *seq = kvpi_faults_find(cache, &faults, batch->seqs[b], b);
        if (seq == NULL) {
            break;
        }
        const struct kvpi_span span = kvpi_span_of(cache, batch, b, seq);
        kvpi_faults_other(&faults, check_span(&span), b);
        n_tokens += span.n_tokens;
        n_entries += span.n_blocks;
        max_blocks = kvpi_max_u32(max_blocks, span.n_blocks);
        if ((seq->windowed | seq->n_tree) != 0) {
            const struct special special = measure_special(cache, batch, span, purpose);
            kvpi_faults_other(&faults, special.status, b);
            left_out += special.left_out;
            n_nodes += special.n_nodes;
        }
    }
    kvp_status status = KVP_OK;
    if (kvpi_faults_any(&faults)) {
        status = kvpi_faults_fail(cache, &faults);
        cache->shortage = shortage;
    } else if (n_tokens > INT32_MAX || n_entries > INT32_MAX || n_nodes > INT32_MAX) {
        status = KVP_E_TOO_LONG;
    }
    *sizes = (kvp_meta_sizes){batch->n_seqs,
                              (uint32_t)n_tokens,
                              (uint32_t)n_entries,
                              max_blocks,
                              (uint32_t)(n_entries - left_out),
                              (uint32_t)n_nodes,
                              0};
    return status;
}

static kvp_status enter(kvp_cache *cache, const kvp_meta_batch *batch, int purpose,
                        kvp_meta_sizes *sizes)
{
    kvp_status status = bad_batch(cache, batch) ? KVP_E_ARG : kvpi_enter(cache);
    if (status == KVP_OK) {
        status = measure(cache, batch, purpose, sizes);
        if (status != KVP_OK) {
            (void)kvpi_leave(cache, KVP_OK); /* nothing was refused for want of blocks */
        }
    }
    return status;
}

kvp_status kvpi_meta_enter(kvp_cache *cache, const kvp_meta_batch *batch, kvp_meta_sizes *sizes)
{
    return enter(cache, batch, OF_A_STEP, sizes);
}

kvp_status kvpi_meta_enter_rows(kvp_cache *cache, const kvp_meta_batch *batch,
                                kvp_meta_sizes *sizes)
{
    return enter(cache, batch, OF_ROWS, sizes);
}
