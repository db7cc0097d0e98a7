/* prompt_reasons: why tokens of prompts are computed, by a record of units that prompts had.
 *
 * A unit's hash chooses a set of eight entries. There it is, or it takes the place of an empty
 * entry, or of the one that was not used for longest. Hashes spread evenly, so a set has what a
 * queue of all units would have, give or take.
 *
 *   |counts, sizes|entry 0 .. entry 7|entry 0 .. entry 7| ... n_sets, a power of two
 *
 * R1  an entry with state 0 is empty; n_units others are not
 * R2  tokens by reason add up to the tokens of all prompts
 */
#include <kvpager/kvpager.h>
#include <kvpager/reasons.h>

#include "base/base.h"

#include <string.h>

enum { WAYS = 8, UNITS_MOST = 1 << 28 };

enum { KNOWN = 1u, OPEN = 2u }; /* computed once; being computed */

struct entry {
    uint64_t name; /* half of the hash; the other half chooses the set */
    uint32_t used; /* near: number of the prompt that used it last; a unit that is 2^31 prompts old
                      may be taken for a young one, and outstay others */
    uint32_t state;
};

struct kvp_reasons {
    kvp_reasons_stats stats;
    uint32_t n_sets;
    uint32_t now; /* number of the newest prompt */
};

const char *kvp_reason_name(uint32_t reason)
{
    static const char *const names[KVP_REASONS] = {"hit",  "resident", "evicted",  "in_flight",
                                                   "grid", "new",      "uncached", "last"};
    return reason < KVP_REASONS ? names[reason] : "?";
}

/* ----------------------------------------------------------------------------------- the record */

static uint32_t sets_of(uint32_t max_units)
{
    uint32_t n = 1;
    while ((uint64_t)n * WAYS < max_units) {
        n *= 2;
    }
    return n;
}

static struct entry *set_of(const kvp_reasons *reasons, const kvp_hash *hash)
{
    uint64_t half;
    memcpy(&half, hash->bytes + 8, sizeof(half));
    struct entry *all = kvpi_at(reasons, sizeof(*reasons));
    return &all[(half & (reasons->n_sets - 1)) * WAYS];
}

static uint64_t name_of(const kvp_hash *hash)
{
    uint64_t name;
    memcpy(&name, hash->bytes, sizeof(name));
    return name;
}

static struct entry *find(const kvp_reasons *reasons, const kvp_hash *hash)
{
    struct entry *set = set_of(reasons, hash);
    const uint64_t name = name_of(hash);
    for (uint32_t i = 0; i < WAYS; i++) {
        if (set[i].state != 0 && set[i].name == name) {
            return &set[i];
        }
    }
    return NULL;
}

/* An empty entry of the set, or the one that was not used for longest. */
static struct entry *place_in(const kvp_reasons *reasons, struct entry *set)
{
    struct entry *oldest = &set[0];
    for (uint32_t i = 0; i < WAYS; i++) {
        if (set[i].state == 0) {
            return &set[i];
        }
        if (reasons->now - set[i].used > reasons->now - oldest->used) {
            oldest = &set[i];
        }
    }
    return oldest;
}

static struct entry *put_unit(kvp_reasons *reasons, const kvp_hash *hash)
{
    struct entry *entry = find(reasons, hash);
    if (entry == NULL) {
        entry = place_in(reasons, set_of(reasons, hash));
        reasons->stats.units += entry->state == 0;
        reasons->stats.forgotten_units += (entry->state & KNOWN) != 0;
        *entry = (struct entry){.name = name_of(hash)};
    }
    entry->used = reasons->now;
    return entry;
}

size_t kvp_reasons_bytes(uint32_t max_units)
{
    if (max_units == 0 || max_units > UNITS_MOST) {
        return 0;
    }
    return sizeof(kvp_reasons) + (size_t)sets_of(max_units) * WAYS * sizeof(struct entry);
}

kvp_status kvp_reasons_init(kvp_reasons *reasons, uint32_t max_units)
{
    const size_t bytes = kvp_reasons_bytes(max_units);
    if (reasons == NULL || bytes == 0) {
        return KVP_E_ARG;
    }
    memset(reasons, 0, bytes);
    reasons->n_sets = sets_of(max_units);
    reasons->stats.max_units = (uint64_t)reasons->n_sets * WAYS;
    return KVP_OK;
}

/* -------------------------------------------------------------------------------------- prompts */

static int is_bypassed(const kvp_reasons_prompt *prompt)
{
    return prompt->stop == KVP_STOP_UNCACHED || prompt->stop == KVP_STOP_OFF;
}

/* Does the group that ended the match keep all tokens? */
static int stop_group_keeps_all(const kvp_reasons_prompt *prompt)
{
    return (prompt->full_groups >> prompt->stop_group & 1) != 0;
}

/* Is what is behind the hit there, and kept back? */
static int is_kept_back(const kvp_reasons_prompt *prompt)
{
    return prompt->stop == KVP_STOP_NO_ROOM || prompt->stop == KVP_STOP_FULL_HIT ||
           (prompt->stop == KVP_STOP_NO_KV && !stop_group_keeps_all(prompt));
}

/* Why a unit behind the hit is computed, by itself. */
static uint32_t why_computed(const kvp_reasons *reasons, const kvp_reasons_prompt *prompt,
                             uint32_t i)
{
    if (is_bypassed(prompt)) {
        return KVP_REASON_UNCACHED;
    }
    const struct entry *entry = find(reasons, &prompt->hashes[i]);
    if (entry == NULL) {
        return KVP_REASON_NEW;
    }
    if (is_kept_back(prompt) && (entry->state & KNOWN) != 0) {
        return KVP_REASON_RESIDENT;
    }
    return (entry->state & OPEN) != 0 ? KVP_REASON_IN_FLIGHT : KVP_REASON_EVICTED;
}

/* A unit was looked at: it is computed already, or this prompt computes it. */
static void keep_unit(kvp_reasons *reasons, const kvp_reasons_prompt *prompt, uint32_t i)
{
    const int is_hit = (i + 1) * prompt->unit_tokens <= prompt->cached_tokens;
    if (is_hit || !is_bypassed(prompt)) {
        put_unit(reasons, &prompt->hashes[i])->state |= is_hit ? KNOWN : OPEN;
    }
}

/* The parts of a prompt with tokens; the last one has no other reason. */
static void cut_prompt(kvp_reasons *reasons, const kvp_reasons_prompt *prompt, uint32_t *out)
{
    const uint32_t U = prompt->unit_tokens, n = prompt->n_tokens - 1;
    uint32_t at = prompt->cached_tokens, reason = KVP_REASON_HIT;
    out[KVP_REASON_HIT] = at;
    for (uint32_t i = 0; i < prompt->n_tokens / U; i++) {
        const uint32_t end = kvpi_min_u32((i + 1) * U, n);
        KVPI_ASSERT(prompt->hashes != NULL); /* is_wrong */
        if (end > at) {
            reason = kvpi_max_u32(reason, why_computed(reasons, prompt, i));
            out[reason] += end - at;
            at = end;
        }
        keep_unit(reasons, prompt, i);
    }
    if (is_bypassed(prompt)) {
        reason = KVP_REASON_UNCACHED;
    }
    out[reason < KVP_REASON_NEW ? KVP_REASON_GRID : reason] += n - at;
    out[KVP_REASON_LAST] = 1;
}

static int is_wrong(const kvp_reasons_prompt *prompt)
{
    const uint32_t U = prompt->unit_tokens, n = prompt->n_tokens;
    return U == 0 || U > KVP_BLOCK_TOKENS_MAX || (prompt->hashes == NULL && n >= U) ||
           prompt->cached_tokens > (n > 0 ? n - 1 : 0) || prompt->stop > KVP_STOP_NO_ROOM ||
           prompt->stop_group > KVP_GROUPS_MAX || prompt->full_groups >= 1u << KVP_GROUPS_MAX;
}

kvp_status kvp_reasons_admit(kvp_reasons *reasons, const kvp_reasons_prompt *prompt,
                             uint32_t *out_tokens)
{
    uint32_t parts[KVP_REASONS] = {0};
    if (reasons == NULL || prompt == NULL || is_wrong(prompt)) {
        return KVP_E_ARG;
    }
    reasons->now++;
    reasons->stats.prompts++;
    if (prompt->n_tokens > 0) {
        cut_prompt(reasons, prompt, parts);
    }
    for (uint32_t i = 0; i < KVP_REASONS; i++) {
        reasons->stats.tokens[i] += parts[i];
    }
    if (out_tokens != NULL) {
        memcpy(out_tokens, parts, sizeof(parts));
    }
    return KVP_OK;
}

kvp_status kvp_reasons_computed(kvp_reasons *reasons, const kvp_hash *hashes, uint32_t n_units,
                                uint32_t n_computed)
{
    if (reasons == NULL || (hashes == NULL && n_units > 0) || n_computed > n_units) {
        return KVP_E_ARG;
    }
    for (uint32_t i = 0; i < n_computed; i++) {
        put_unit(reasons, &hashes[i])->state = KNOWN;
    }
    for (uint32_t i = n_computed; i < n_units; i++) {
        struct entry *entry = find(reasons, &hashes[i]);
        if (entry != NULL) {
            entry->state &= KNOWN;
            reasons->stats.units -= entry->state == 0;
        }
    }
    return KVP_OK;
}

kvp_status kvp_reasons_stats_get(const kvp_reasons *reasons, kvp_reasons_stats *out_stats)
{
    if (reasons == NULL || out_stats == NULL) {
        return KVP_E_ARG;
    }
    *out_stats = reasons->stats;
    return KVP_OK;
}
