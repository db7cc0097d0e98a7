/* Why tokens are computed: against an oracle that remembers everything, with a record that forgets,
 * and beside a cache that evicts. */
#include <kvpager/reasons.h>

#include "world.h"

#include <stdlib.h>
#include <string.h>

enum { U = 4, LENGTH = 40, UNITS = LENGTH / U };
enum { CONTENTS = 4096, PROMPTS = 4000 };

/* ----------------------------------------------------------------------------------- the oracle */

/* Units by their hashes, in the order in which they came; found by looking at all. */
typedef struct oracle {
    kvp_hash hashes[CONTENTS];
    int is_known[CONTENTS];
    int is_open[CONTENTS];
    uint32_t n;
} oracle;

static uint32_t unit_of(oracle *o, const kvp_hash *hash)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (memcmp(&o->hashes[i], hash, sizeof *hash) == 0)
            return i;
    assert_in_range(o->n, 0, CONTENTS - 1);
    o->hashes[o->n] = *hash;
    o->is_known[o->n] = o->is_open[o->n] = 0;
    return o->n++;
}

static int lies_behind(const kvp_reasons_prompt *p)
{
    return p->stop == KVP_STOP_NO_ROOM || p->stop == KVP_STOP_FULL_HIT ||
           (p->stop == KVP_STOP_NO_KV && (p->full_groups & 1u << p->stop_group) == 0);
}

/* The reason of each token by itself; then none counts for less than the one before. */
static void explain(oracle *o, const kvp_reasons_prompt *p, uint32_t *out)
{
    uint32_t least = KVP_REASON_HIT;
    const int is_off = p->stop == KVP_STOP_OFF || p->stop == KVP_STOP_UNCACHED;
    memset(out, 0, KVP_REASONS * sizeof *out);
    for (uint32_t t = 0; t < p->n_tokens; t++) {
        uint32_t reason = KVP_REASON_NEW;
        if (t == p->n_tokens - 1) {
            reason = KVP_REASON_LAST;
        } else if (t < p->cached_tokens) {
            reason = KVP_REASON_HIT;
        } else if (is_off) {
            reason = KVP_REASON_UNCACHED;
        } else if (t >= p->n_tokens / U * U) {
            reason = least == KVP_REASON_NEW ? KVP_REASON_NEW : KVP_REASON_GRID;
        } else {
            const uint32_t i = unit_of(o, &p->hashes[t / U]);
            reason = o->is_known[i] && lies_behind(p) ? KVP_REASON_RESIDENT
                     : o->is_open[i]                  ? KVP_REASON_IN_FLIGHT
                     : o->is_known[i]                 ? KVP_REASON_EVICTED
                                                      : KVP_REASON_NEW;
        }
        least = reason > least ? reason : least;
        out[least]++;
    }
    for (uint32_t u = 0; u < p->n_tokens / U; u++) {
        const uint32_t i = unit_of(o, &p->hashes[u]);
        if ((u + 1) * U <= p->cached_tokens)
            o->is_known[i] = 1;
        else if (!is_off)
            o->is_open[i] = 1;
    }
}

static void tell_oracle(oracle *o, const kvp_hash *hashes, uint32_t n, uint32_t n_computed)
{
    for (uint32_t u = 0; u < n; u++) {
        const uint32_t i = unit_of(o, &hashes[u]);
        o->is_open[i] = 0;
        o->is_known[i] |= u < n_computed;
    }
}

/* ------------------------------------------------------------------------------- random prompts */

typedef struct prompt {
    kvp_reasons_prompt given;
    kvp_hash hashes[UNITS];
} prompt;

static kvp_reasons *record_of(uint32_t max_units)
{
    kvp_reasons *reasons = malloc(kvp_reasons_bytes(max_units));
    assert_non_null(reasons);
    assert_ok(kvp_reasons_init(reasons, max_units));
    return reasons;
}

static void hash_tokens(const int32_t *tokens, uint32_t n, kvp_hash *out)
{
    kvp_hash root;
    assert_ok(kvp_hash_root(U, 0, NULL, 0, &root));
    assert_ok(kvp_hash_units(&(kvp_hash_input){.unit_tokens = U, .n_tokens = n, .tokens = tokens},
                             &root, out));
}

/* One of six documents, and one of three questions behind a part of it. */
static prompt draw_prompt(uint64_t *random)
{
    int32_t tokens[LENGTH];
    const uint32_t document = draw(random, 6), shared = draw(random, LENGTH);
    const uint32_t question = 100 + draw(random, 3);
    prompt p = {.given = {.unit_tokens = U, .n_tokens = draw(random, LENGTH + 1)}};
    for (uint32_t i = 0; i < LENGTH; i++)
        tokens[i] = (int32_t)(i < shared ? document : question);
    hash_tokens(tokens, p.given.n_tokens, p.hashes);
    if (p.given.n_tokens > 0) {
        const uint32_t hit = draw(random, p.given.n_tokens / U + 1) * U * (draw(random, 3) > 0);
        p.given.cached_tokens = hit < p.given.n_tokens ? hit : p.given.n_tokens - 1;
    }
    p.given.stop = draw(random, KVP_STOP_NO_ROOM + 1);
    p.given.stop_group = p.given.stop == KVP_STOP_NO_KV ? draw(random, KVP_GROUPS_MAX + 1) : 0;
    p.given.full_groups = draw(random, 1u << KVP_GROUPS_MAX);
    return p;
}

static uint64_t sum_of(const uint64_t *tokens)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < KVP_REASONS; i++)
        sum += tokens[i];
    return sum;
}

TEST(parts_are_the_oracles_and_add_up)
{
    static oracle o;
    static prompt prompts[PROMPTS];
    uint64_t random = 1, sums[KVP_REASONS] = {0}, all = 0;
    uint32_t n_open = 0, parts[KVP_REASONS], expected[KVP_REASONS];
    kvp_reasons *reasons = record_of(1 << 16);
    kvp_reasons_stats stats;
    for (uint32_t i = 0; i < PROMPTS; i++) {
        prompts[n_open] = draw_prompt(&random);
        prompt *p = &prompts[n_open++];
        p->given.hashes = p->hashes;
        explain(&o, &p->given, expected);
        assert_ok(kvp_reasons_admit(reasons, &p->given, draw(&random, 4) > 0 ? parts : NULL));
        assert_ok(kvp_reasons_stats_get(reasons, &stats));
        all += p->given.n_tokens;
        assert_int_equal(sum_of(stats.tokens), all);
        for (uint32_t k = 0; k < KVP_REASONS; k++) {
            sums[k] += expected[k];
            assert_int_equal(stats.tokens[k], sums[k]);
        }
        while (n_open > draw(&random, 5)) {
            const uint32_t which = draw(&random, n_open);
            const uint32_t n = prompts[which].given.n_tokens / U;
            const uint32_t n_computed = draw(&random, 5) == 0 ? draw(&random, n + 1) : n;
            tell_oracle(&o, prompts[which].hashes, n, n_computed);
            assert_ok(kvp_reasons_computed(reasons, prompts[which].hashes, n, n_computed));
            prompts[which] = prompts[--n_open];
        }
    }
    uint64_t n_units = 0;
    for (uint32_t i = 0; i < o.n; i++)
        n_units += o.is_known[i] || o.is_open[i];
    assert_fields(stats, prompts, PROMPTS, forgotten_units, 0);
    assert_ok(kvp_reasons_stats_get(reasons, &stats));
    assert_int_equal(stats.units, n_units);
    for (uint32_t k = 0; k < KVP_REASONS; k++)
        assert_true(sums[k] > 0);
    free(reasons);
}

/* What is being computed is kept back by nothing. */
TEST(what_is_open_is_not_resident)
{
    uint32_t parts[KVP_REASONS];
    prompt p = {.given = {.unit_tokens = U, .n_tokens = 2 * U + 1, .stop = KVP_STOP_NO_ROOM}};
    kvp_reasons *reasons = record_of(64);
    hash_tokens(ints(0), 2 * U, p.hashes);
    p.given.hashes = p.hashes;
    assert_ok(kvp_reasons_admit(reasons, &p.given, parts));
    assert_int_equal(parts[KVP_REASON_NEW], 2 * U);
    assert_ok(kvp_reasons_admit(reasons, &p.given, parts));
    assert_int_equal(parts[KVP_REASON_IN_FLIGHT], 2 * U);
    free(reasons);
}

/* A record that is too small calls new what was evicted, and nothing else. */
TEST(a_record_that_forgets_says_new)
{
    uint64_t random = 7;
    kvp_reasons *small = record_of(64), *large = record_of(1 << 16);
    kvp_reasons_stats s, l;
    for (uint32_t i = 0; i < PROMPTS; i++) {
        prompt p = draw_prompt(&random);
        uint32_t few[KVP_REASONS], many[KVP_REASONS];
        p.given.hashes = p.hashes;
        p.given.stop = p.given.stop == KVP_STOP_NO_KV ? KVP_STOP_MISS : p.given.stop;
        assert_ok(kvp_reasons_admit(small, &p.given, few));
        assert_ok(kvp_reasons_admit(large, &p.given, many));
        assert_true(few[KVP_REASON_EVICTED] <= many[KVP_REASON_EVICTED]);
        assert_true(few[KVP_REASON_RESIDENT] <= many[KVP_REASON_RESIDENT]);
        assert_true(few[KVP_REASON_NEW] >= many[KVP_REASON_NEW]);
        assert_int_equal(few[KVP_REASON_HIT], many[KVP_REASON_HIT]);
        assert_ok(
            kvp_reasons_computed(small, p.hashes, p.given.n_tokens / U, p.given.n_tokens / U));
        assert_ok(
            kvp_reasons_computed(large, p.hashes, p.given.n_tokens / U, p.given.n_tokens / U));
    }
    assert_ok(kvp_reasons_stats_get(small, &s));
    assert_ok(kvp_reasons_stats_get(large, &l));
    assert_int_equal(sum_of(s.tokens), sum_of(l.tokens));
    assert_fields(s, max_units, 64, units, 64);
    assert_true(s.forgotten_units > 0 && s.tokens[KVP_REASON_EVICTED] > 0);
    assert_int_equal(l.forgotten_units, 0);
    free(small);
    free(large);
}

/* Of one set, the unit that was not used for longest goes. */
TEST(what_was_used_stays)
{
    kvp_reasons *reasons = record_of(8);
    kvp_hash hashes[9] = {{{0}}};
    uint32_t parts[KVP_REASONS];
    kvp_reasons_stats stats;
    for (uint8_t i = 0; i < 9; i++)
        hashes[i].bytes[0] = i; /* the other half is equal */
    for (uint32_t i = 0; i < 8; i++) {
        const kvp_reasons_prompt one = {.unit_tokens = 1, .n_tokens = 1, .hashes = &hashes[i]};
        assert_ok(kvp_reasons_admit(reasons, &one, NULL));
        assert_ok(kvp_reasons_computed(reasons, &hashes[i], 1, 1));
    }
    const kvp_reasons_prompt first = {.unit_tokens = 1, .n_tokens = 1, .hashes = &hashes[0]};
    assert_ok(kvp_reasons_admit(reasons, &first, NULL));
    assert_ok(kvp_reasons_computed(reasons, &hashes[8], 1, 1)); /* takes the place of 1 */
    const kvp_reasons_prompt all = {.unit_tokens = 1, .n_tokens = 2, .hashes = &hashes[0]};
    assert_ok(kvp_reasons_admit(reasons, &all, parts));
    assert_int_equal(parts[KVP_REASON_IN_FLIGHT], 1); /* `first` was not computed again */
    kvp_reasons_prompt later = all;
    later.hashes = &hashes[7];
    assert_ok(kvp_reasons_admit(reasons, &later, parts));
    assert_int_equal(parts[KVP_REASON_EVICTED], 1);
    assert_ok(kvp_reasons_stats_get(reasons, &stats));
    assert_int_equal(stats.units, 8);
    assert_int_equal(stats.forgotten_units, 2); /* 1 went for 8, and 2 for 1, which came again */
    free(reasons);
}

/* ------------------------------------------------------------------------------- beside a cache */

/* What was computed once and is not hit is evicted; what was not is new. */
TEST(a_cache_that_evicts)
{
    scoped_world w = small_world(24);
    kvp_reasons *reasons = record_of(4096);
    kvp_reasons_stats stats;
    uint64_t random = 3, hits = 0, all = 0;
    for (uint32_t i = 0; i < 500; i++) {
        int32_t tokens[LENGTH];
        kvp_hash hashes[UNITS];
        const uint32_t n = 1 + draw(&random, LENGTH), document = draw(&random, 9);
        kvp_open_info info;
        for (uint32_t k = 0; k < n; k++)
            tokens[k] = (int32_t)(document * 1000 + k);
        hash_tokens(tokens, n, hashes);
        kvp_seq seq = open_seq(&w, tokens, n, &info);
        const kvp_reasons_prompt p = {.unit_tokens = U,
                                      .n_tokens = n,
                                      .hashes = hashes,
                                      .cached_tokens = info.cached_tokens,
                                      .stop = info.stop,
                                      .stop_group = info.stop_group,
                                      .full_groups = 1};
        assert_ok(kvp_reasons_admit(reasons, &p, NULL));
        assert_ok(kvp_seq_commit(w.cache, seq, n - info.hit_tokens));
        assert_ok(kvp_reasons_computed(reasons, hashes, n / U, n / U));
        close_seq(&w, seq);
        hits += info.cached_tokens;
        all += n;
    }
    const kvp_stats cache = stats_of(&w);
    assert_ok(kvp_reasons_stats_get(reasons, &stats));
    assert_int_equal(stats.tokens[KVP_REASON_HIT], hits);
    assert_int_equal(sum_of(stats.tokens), all);
    assert_true(cache.evicted_blocks > 0 && stats.tokens[KVP_REASON_EVICTED] > 0);
    assert_fields(stats, tokens[KVP_REASON_IN_FLIGHT], 0, tokens[KVP_REASON_RESIDENT], 0);
    assert_in_range(stats.tokens[KVP_REASON_NEW], 1, 9 * LENGTH + 500 * U);
    free(reasons);
}

/* -------------------------------------------------------------------------------------- refused */

TEST(what_is_refused)
{
    kvp_reasons *reasons = record_of(8);
    kvp_hash hash = {{0}};
    kvp_reasons_stats before, after;
    const kvp_reasons_prompt good = {.unit_tokens = 4, .n_tokens = 4, .hashes = &hash};
    kvp_reasons_prompt bad[8];
    for (uint32_t i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].unit_tokens = 0;
    bad[1].unit_tokens = KVP_BLOCK_TOKENS_MAX + 1;
    bad[2].hashes = NULL;
    bad[3].cached_tokens = 4;
    bad[4].stop = KVP_STOP_NO_ROOM + 1;
    bad[5].full_groups = 1u << KVP_GROUPS_MAX;
    bad[7].stop_group = KVP_GROUPS_MAX + 1;
    bad[6].n_tokens = 0;
    bad[6].cached_tokens = 1;
    assert_ok(kvp_reasons_admit(reasons, &good, NULL));
    const kvp_reasons_prompt without_units = {.unit_tokens = 4, .n_tokens = 3};
    assert_ok(kvp_reasons_admit(reasons, &without_units, NULL));
    assert_ok(kvp_reasons_stats_get(reasons, &before));
    for (uint32_t i = 0; i < 8; i++)
        assert_status(KVP_E_ARG, kvp_reasons_admit(reasons, &bad[i], NULL));
    assert_status(KVP_E_ARG, kvp_reasons_admit(NULL, &good, NULL));
    assert_status(KVP_E_ARG, kvp_reasons_admit(reasons, NULL, NULL));
    assert_status(KVP_E_ARG, kvp_reasons_computed(NULL, &hash, 1, 1));
    assert_status(KVP_E_ARG, kvp_reasons_computed(reasons, NULL, 1, 1));
    assert_status(KVP_E_ARG, kvp_reasons_computed(reasons, &hash, 0, 1));
    assert_ok(kvp_reasons_computed(reasons, NULL, 0, 0));
    assert_ok(kvp_reasons_stats_get(reasons, &after));
    assert_memory_equal(&before, &after, sizeof before);
    assert_status(KVP_E_ARG, kvp_reasons_stats_get(NULL, &after));
    assert_status(KVP_E_ARG, kvp_reasons_stats_get(reasons, NULL));
    assert_status(KVP_E_ARG, kvp_reasons_init(NULL, 8));
    assert_status(KVP_E_ARG, kvp_reasons_init(reasons, 0));
    assert_int_equal(kvp_reasons_bytes(0), 0);
    assert_int_equal(kvp_reasons_bytes((1u << 28) + 1), 0);
    assert_true(kvp_reasons_bytes(1u << 28) > (size_t)1 << 32);
    assert_string_equal(kvp_reason_name(KVP_REASON_IN_FLIGHT), "in_flight");
    assert_string_equal(kvp_reason_name(KVP_REASON_LAST), "last");
    assert_string_equal(kvp_reason_name(KVP_REASONS), "?");
    free(reasons);
}

TEST_MAIN(NULL, NULL)
