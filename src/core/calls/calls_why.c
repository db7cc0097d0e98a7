/* calls_why: what is wrong with a prompt, for people. Whether anything is, kvpi_match_prepare says,
 * as it does for kvp_seq_open; here the field is found, in the order in which that one looks. */
#include "core/cache/frame.h"
#include "core/seq/match.h"
#include "core/cache/state.h"
#include "core/cache/tokens.h"

static int pointers_wrong(const kvp_prompt *p, kvp_why *why)
{
    return kvpi_why_if(why, p->tokens == NULL && p->n_tokens > 0, "tokens", NULL,
                       "is NULL, and n_tokens is not 0") ||
           kvpi_why_if(why, p->keys == NULL && p->n_keys > 0, "keys", NULL,
                       "is NULL, and n_keys is not 0") ||
           kvpi_why_if(why, p->uncached == NULL && p->n_uncached > 0, "uncached", NULL,
                       "is NULL, and n_uncached is not 0");
}

static int keys_wrong(const kvp_cache *cache, const kvp_prompt *p, kvp_why *why)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < p->n_keys; i++) {
        const kvp_key *key = &p->keys[i];
        if (kvpi_why_element(why, "keys", i, ".begin", key->begin, last, UINT32_MAX) ||
            kvpi_why_element(why, "keys", i, ".end", key->end, (uint64_t)key->begin + 1,
                             p->n_tokens) ||
            kvpi_why_element(why, "keys", i, ".n_bytes", key->n_bytes, 0,
                             key->bytes == NULL ? 0 : KVP_KEY_MAX_BYTES)) {
            return 1;
        }
        last = key->begin;
    }
    const uint64_t n_keys = p->n_keys;
    return kvpi_why_if(why, !kvpi_keys_fit(cache, p->keys, p->n_keys, 0, p->n_tokens, 0), "n_keys",
                       &n_keys, "more than max_unit_keys of them in one unit");
}

static int values_wrong(const kvp_cache *cache, const kvp_prompt *p, kvp_why *why)
{
    for (uint32_t i = 0; i < p->n_uncached; i++) {
        if (kvpi_why_element(why, "uncached", i, ".end", p->uncached[i].end,
                             (uint64_t)p->uncached[i].begin + 1, UINT32_MAX)) {
            return 1;
        }
    }
    if (kvpi_why_range(why, "retention", p->retention, 0, KVP_RETENTION_CLASSES - 1) ||
        kvpi_why_range(why, "flags", p->flags, 0, KVPI_OPEN_FLAGS) || keys_wrong(cache, p, why)) {
        return 1;
    }
    for (uint32_t i = 0; i < p->n_tokens; i++) {
        if (p->tokens[i] < 0) {
            return kvpi_why_negative(why, "tokens", i, p->tokens[i]);
        }
    }
    return 0;
}

static void explain(const kvp_cache *cache, const kvp_prompt *p, kvp_status status, kvp_why *why)
{
    const uint32_t most = cache->table.max_tokens;
    if (status == KVP_E_TOO_LONG) {
        (void)(kvpi_why_range(why, "n_tokens", p->n_tokens, 0, most) ||
               kvpi_why_range(why, "reserve_tokens", p->reserve_tokens, 0, most - p->n_tokens));
    } else if (status == KVP_E_ARG && !values_wrong(cache, p, why)) {
        (void)kvpi_why_if(why, 1, "hashes", NULL, "the first or the last is not that of its unit");
    }
}

kvp_status kvp_prompt_check(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt, kvp_why *out_why)
{
    struct kvpi_match match;
    const kvp_prompt *known = kvpi_sized(prompt, sizeof(*prompt));
    kvpi_why_clear(out_why);
    kvp_status status = cache == NULL || kvpi_why_missing(out_why, prompt, known, "prompt") ||
                                pointers_wrong(known, out_why)
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = kvpi_match_prepare(cache, ns, known, &match);
    explain(cache, known, status, out_why);
    return kvpi_leave(cache, status);
}
