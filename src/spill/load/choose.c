/* choose: which prefix of a prompt to load.
 *
 * A prefix can be had when every group has all entries that it keeps there (windows.h), in the
 * cache or in the store. What the cache has is known of the prefix that a match hits: all entries
 * that each group keeps there. Other blocks may be there, too; they are not counted on, but not
 * read again when they turn out to be there.
 *
 *     records   0     1     2     3     4     5
 *     full      hit   hit   store store store -         prefixes of up to 5 records
 *     window    -     hit   -     -     store -         keeps 1 record: 5 can be had, 3 and 4 not
 *
 * With recurrent state a prefix can be had only if the store has the state after it, too.
 */
#include "spill/load/spill_load.h"

#include <string.h>

struct choice {
    const struct kvpi_spill_ask *ask;
    uint32_t hit_tokens;
    uint32_t n_groups;                    /* of KV */
    uint32_t offset[KVP_GROUPS_MAX];      /* of a group's bits */
    struct kvpi_kept hit[KVP_GROUPS_MAX]; /* what each group has in the cache */
};

static void begin_choice(const kvp_spill *spill, const struct kvpi_spill_ask *ask,
                         uint32_t hit_tokens, struct choice *c)
{
    *c = (struct choice){.ask = ask, .hit_tokens = hit_tokens, .n_groups = spill->cache.n_groups};
    for (uint32_t g = 0; g < c->n_groups; g++) {
        c->hit[g] = kvpi_records_kept(spill, g, hit_tokens, ask->n_tokens);
        (void)kvpi_records_lookups(spill, ask, g, &c->offset[g]);
    }
    if (kvpi_spill_has_states(spill)) {
        (void)kvpi_records_lookups(spill, ask, c->n_groups, &c->offset[c->n_groups]);
    }
}

static int is_in_store(const struct choice *c, uint32_t g, uint32_t record)
{
    if (record < c->ask->first[g]) {
        return 0;
    }
    const uint32_t bit = c->offset[g] + record - c->ask->first[g];
    return (int)(c->ask->bits[bit / 64] >> bit % 64 & 1);
}

/* Does the cache have all entries of the record that a prefix longer than the hit keeps? */
static int is_in_cache(const kvp_spill *spill, const struct choice *c, uint32_t g, uint32_t record)
{
    const struct kvpi_kept *hit = &c->hit[g];
    const uint32_t end = (record + 1) * kvpi_spill_entries(spill, g);
    return end <= hit->n && (end > hit->recent || end <= hit->sinks);
}

/* Records of a group that a prefix of n records keeps. */
static struct kvpi_kept kept_records(const kvp_spill *spill, const struct choice *c, uint32_t g,
                                     uint32_t n)
{
    struct kvpi_kept kept = kvpi_records_kept(spill, g, n * spill->record_tokens, c->ask->n_tokens);
    const uint32_t B = kvpi_spill_entries(spill, g);
    kept.n = n;
    kept.recent /= B;
    kept.sinks = kvpi_spill_min((kept.sinks + B - 1) / B, kept.recent);
    return kept;
}

/* Mark the prefixes, in records, for which a group has what it keeps. */
static void mark_feasible(kvp_spill *spill, const struct choice *c, uint32_t g)
{
    uint32_t run = 0;     /* records before the prefix's end that are there */
    uint32_t n_sinks = 0; /* records from the start that are there */
    for (uint32_t r = 0; r < c->ask->n_records; r++) {
        const int there = is_in_store(c, g, r) || is_in_cache(spill, c, g, r);
        run = there ? run + 1 : 0;
        n_sinks += there && n_sinks == r;
        const struct kvpi_kept kept = kept_records(spill, c, g, r + 1);
        if (run < r + 1 - kept.recent || n_sinks < kept.sinks) {
            spill->feasible[r] = 0;
        }
    }
}

/* The same for the state after it. */
static void mark_states(kvp_spill *spill, const struct choice *c)
{
    for (uint32_t r = 0; r < c->ask->n_records; r++) {
        spill->feasible[r] &= (uint8_t)is_in_store(c, c->n_groups, r);
    }
}

/* The longest prefix of at most n records that can be had; 0: none is longer than the hit. */
static uint32_t longest_feasible(const kvp_spill *spill, const struct choice *c, uint32_t n)
{
    while (n * spill->record_tokens > c->hit_tokens && !spill->feasible[n - 1]) {
        n--;
    }
    return n * spill->record_tokens > c->hit_tokens ? n : 0;
}

/* Records of [begin, end) that the cache does not have. */
static uint32_t count_missing(const kvp_spill *spill, const struct choice *c, uint32_t g,
                              uint32_t begin, uint32_t end)
{
    uint32_t n = 0;
    if (kvpi_records_is_full(spill, g)) {
        const uint32_t there = c->hit[g].n / kvpi_spill_entries(spill, g);
        begin = there > begin ? there : begin;
        return end > begin ? end - begin : 0;
    }
    for (uint32_t r = begin; r < end; r++) {
        n += !is_in_cache(spill, c, g, r);
    }
    return n;
}

/* What a prefix of n records needs: bytes of records, and host blocks. */
static uint64_t measure(const kvp_spill *spill, const struct choice *c, uint32_t n,
                        uint64_t *out_blocks)
{
    uint64_t bytes = kvpi_spill_has_states(spill) ? spill->record_bytes[c->n_groups] : 0;
    *out_blocks = 0;
    for (uint32_t g = 0; g < c->n_groups; g++) {
        const struct kvpi_kept kept = kept_records(spill, c, g, n);
        const uint32_t missing =
            count_missing(spill, c, g, 0, kept.sinks) + count_missing(spill, c, g, kept.recent, n);
        bytes += missing * spill->record_bytes[g];
        *out_blocks += (uint64_t)missing * spill->pieces[g];
    }
    return bytes;
}

/* How many of the tokens of a prefix of n records are worth loading? */
static uint32_t decide_tokens(const kvp_spill *spill, const struct choice *c, uint32_t n,
                              uint64_t bytes)
{
    const kvp_spill_question question = {
        .struct_size = sizeof(question),
        .bytes = bytes,
        .queued_bytes = spill->queued_bytes,
        .load_bytes_s = spill->load_bytes_s,
        .compute_tokens_s = spill->compute_tokens_s,
        .left_ns = c->ask->deadline_ns - spill->now_ns, /* above 0: end_waits */
        .n_tokens = n * spill->record_tokens - c->hit_tokens,
        .step_tokens = spill->record_tokens,
        .min_tokens = spill->config.min_tokens,
    };
    uint32_t n_tokens = 0;
    (void)kvp_spill_decide(&question, &n_tokens);
    return n_tokens;
}

/* Shorter until all of what is left is worth it, and fits. */
static uint32_t shorten(const kvp_spill *spill, const struct choice *c, uint32_t n,
                        uint64_t *out_blocks)
{
    while (n > 0) {
        const uint64_t bytes = measure(spill, c, n, out_blocks);
        if (*out_blocks > spill->most_blocks) {
            n = longest_feasible(spill, c, n - 1);
            continue;
        }
        const uint32_t n_tokens = decide_tokens(spill, c, n, bytes);
        if (n_tokens == n * spill->record_tokens - c->hit_tokens) {
            return n;
        }
        n = n_tokens == 0
                ? 0
                : longest_feasible(spill, c, (c->hit_tokens + n_tokens) / spill->record_tokens);
    }
    return 0;
}

uint32_t kvpi_choose_prefix(kvp_spill *spill, struct kvpi_spill_ask *ask, uint32_t hit_tokens,
                            uint32_t *out_outcome)
{
    struct choice c;
    begin_choice(spill, ask, hit_tokens, &c);
    memset(spill->feasible, 1, ask->n_records);
    for (uint32_t g = 0; g < c.n_groups; g++) {
        mark_feasible(spill, &c, g);
    }
    if (kvpi_spill_has_states(spill)) {
        mark_states(spill, &c);
    }
    const uint32_t longest = longest_feasible(spill, &c, ask->n_records);
    if (longest == 0) {
        return 0;
    }
    const uint32_t n = shorten(spill, &c, longest, &ask->need_blocks);
    ask->is_part = n < longest;
    *out_outcome = KVP_SPILL_COMPUTE;
    return n * spill->record_tokens;
}
