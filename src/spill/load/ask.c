/* ask: a request asks what the store has of its prompt. Its tokens and keys are copied, and
 * digests made of them once. */
#include "spill/load/spill_load.h"

#include "base/sized.h"

#include <string.h>

/* What is known of a prompt before an ask is made of it. */
struct asked {
    const kvp_prompt *prompt;
    const struct kvpi_spill_space *space;
    kvp_open_info hit;
    uint32_t n_tokens; /* that are looked at: not beyond max_tokens */
    uint32_t n_public;
    uint32_t n_keys; /* in these */
};

static int is_uncached_token(const kvp_spill *spill, int32_t token)
{
    uint32_t low = 0;
    uint32_t high = spill->cache.n_uncached_tokens;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (spill->uncached[middle] < (uint32_t)token) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < spill->cache.n_uncached_tokens && spill->uncached[low] == (uint32_t)token;
}

/* Leading tokens that may be cached. */
static uint32_t count_public(const kvp_spill *spill, const struct asked *asked)
{
    const kvp_prompt *prompt = asked->prompt;
    uint32_t n = asked->n_tokens;
    for (uint32_t i = 0; i < prompt->n_uncached; i++) {
        n = kvpi_spill_min(n, prompt->uncached[i].begin);
    }
    for (uint32_t i = 0; i < n && spill->cache.n_uncached_tokens > 0; i++) {
        if (is_uncached_token(spill, prompt->tokens[i])) {
            return i;
        }
    }
    return n;
}

static uint32_t count_keys(const struct asked *asked)
{
    uint32_t n = 0;
    while (n < asked->prompt->n_keys && asked->prompt->keys[n].begin < asked->n_tokens) {
        n++;
    }
    return n;
}

/* Whole records of the prompt that a match may hit. With recurrent state the last token is always
 * computed, of the part that is looked at, too: it is what is matched. */
static uint32_t count_records(const kvp_spill *spill, const struct asked *asked)
{
    uint32_t n_tokens = spill->cache.full_hit == KVP_FULL_HIT_RECOMPUTE
                            ? kvpi_spill_min(asked->n_public, asked->prompt->n_tokens - 1)
                            : asked->n_public;
    if (kvpi_spill_has_states(spill)) {
        n_tokens = kvpi_spill_min(n_tokens, asked->n_tokens - 1);
    }
    const uint32_t flags = KVP_OPEN_NO_MATCH | KVP_OPEN_DEVICE_ONLY;
    if (asked->prompt->n_tokens == 0 || (asked->prompt->flags & flags) != 0 ||
        !spill->cache.prefix_cache) {
        return 0;
    }
    return kvpi_spill_min(n_tokens / spill->record_tokens, KVP_STORE_KEYS_MAX / spill->n_kinds);
}

/* --------------------------------------------------------------------------------- the new ask */

static struct kvpi_spill_ask *take_ask(kvp_spill *spill)
{
    for (uint32_t i = 0; i < spill->config.max_asks; i++) {
        if (spill->asks[i].state == KVPI_ASK_FREE) {
            return &spill->asks[i];
        }
    }
    return NULL;
}

static void copy_prompt(const struct asked *asked, struct kvpi_spill_ask *ask)
{
    const kvp_prompt *from = asked->prompt;
    memcpy(ask->tokens, from->tokens, asked->n_tokens * sizeof(*ask->tokens));
    for (uint32_t i = 0; i < asked->n_keys; i++) {
        ask->keys[i] = from->keys[i];
        ask->keys[i].end = kvpi_spill_min(from->keys[i].end, asked->n_tokens);
    }
    kvpi_records_keep_keys(ask->keys, asked->n_keys, ask->key_bytes);
    ask->uncached = (kvp_range){asked->n_public, asked->n_tokens};
    ask->prompt = (kvp_prompt){.struct_size = sizeof(ask->prompt),
                               .tokens = ask->tokens,
                               .n_tokens = asked->n_tokens,
                               .keys = asked->n_keys > 0 ? ask->keys : NULL,
                               .n_keys = asked->n_keys,
                               .uncached = &ask->uncached,
                               .n_uncached = asked->n_public < asked->n_tokens,
                               .retention = from->retention};
}

/* The first record of a group that the store is asked for. In a group without a window, it is asked
 * for all: what it has lost of a chain that the cache has must be known for writing. In another,
 * from the first one that a longer prefix may need. For states, from the first that is behind the
 * hit. */
static uint32_t first_lookup(const kvp_spill *spill, const struct asked *asked, uint32_t group)
{
    if (kvpi_spill_is_state(spill, group)) {
        return asked->hit.hit_tokens / spill->record_tokens;
    }
    if (kvpi_records_is_full(spill, group) || kvpi_records_sinks(spill, group) > 0) {
        return 0;
    }
    return kvpi_records_kept(spill, group, asked->hit.hit_tokens, asked->prompt->n_tokens).recent /
           kvpi_spill_entries(spill, group);
}

/* Digests of the records, and the keys that the store is asked for. */
static kvp_status make_lookups(kvp_spill *spill, const struct asked *asked,
                               struct kvpi_spill_ask *ask)
{
    const kvp_hash_input input = {.unit_tokens = spill->part_tokens,
                                  .n_tokens = ask->n_records * spill->record_tokens,
                                  .tokens = ask->tokens,
                                  .keys = ask->prompt.keys,
                                  .n_keys = ask->prompt.n_keys};
    kvp_status status = kvpi_records_digests(spill, &asked->space->root, &input);
    for (uint32_t r = 0; r < ask->n_records && status == KVP_OK; r++) {
        ask->digests[r] = *kvpi_spill_digest(spill, r);
    }
    ask->n_lookups = 0;
    for (uint32_t g = 0; g < spill->n_kinds; g++) {
        ask->first[g] = first_lookup(spill, asked, g);
        for (uint32_t r = ask->first[g]; r < ask->n_records && status == KVP_OK; r++) {
            status = kvpi_records_key(spill, &ask->digests[r], g, &ask->lookups[ask->n_lookups++]);
        }
    }
    return status;
}

/* When the request is answered at the latest. If it names no deadline: when its tokens would be
 * computed, because from then on waiting costs more than a computation. */
static uint64_t deadline_of(const kvp_spill *spill, const struct asked *asked,
                            const kvp_spill_request *request)
{
    const uint64_t latest = spill->now_ns + spill->config.max_wait_ns;
    const uint64_t n_tokens = asked->prompt->n_tokens - asked->hit.hit_tokens;
    const uint64_t computed =
        spill->now_ns + n_tokens * UINT64_C(1000000000) / spill->compute_tokens_s + 1;
    const uint64_t deadline = request->deadline_ns != 0 ? request->deadline_ns : computed;
    return deadline < latest ? deadline : latest;
}

static kvp_status begin_ask(kvp_spill *spill, const struct asked *asked,
                            const kvp_spill_request *request)
{
    struct kvpi_spill_ask *ask = take_ask(spill);
    if (ask == NULL) {
        return KVP_E_AGAIN;
    }
    copy_prompt(asked, ask);
    ask->n_records = count_records(spill, asked);
    const kvp_status status = make_lookups(spill, asked, ask);
    if (status != KVP_OK) {
        return status;
    }
    ask->deadline_ns = deadline_of(spill, asked, request);
    ask->state = KVPI_ASK_LOOKING;
    ask->waits = 1;
    ask->has_answer = ask->is_void = 0;
    ask->space = asked->space->serial;
    ask->ns = asked->space->ns;
    ask->asked_ns = spill->now_ns;
    ask->answer = (kvp_spill_answer){.tag = request->tag};
    ask->n_tokens = asked->prompt->n_tokens;
    ask->hit_tokens = asked->hit.hit_tokens;
    ask->n_shared = 0; /* a free ask has no loads, gets or bytes left */
    memset(ask->on, 0, (spill->config.max_asks + 63) / 64 * sizeof(*ask->on));
    spill->queue[spill->n_queue++] = (uint32_t)(ask - spill->asks);
    spill->n_waiting++;
    return KVP_OK;
}

/* The outcome that needs no store. */
static uint32_t find_outcome(const kvp_spill *spill, const struct asked *asked,
                             const kvp_spill_request *request)
{
    const uint32_t n_tokens = count_records(spill, asked) * spill->record_tokens;
    if (spill->is_stopping) {
        return KVP_SPILL_STOPPED;
    }
    if (n_tokens <= asked->hit.hit_tokens) {
        return KVP_SPILL_NOTHING;
    }
    if (n_tokens - asked->hit.hit_tokens < spill->config.min_tokens) {
        return KVP_SPILL_COMPUTE;
    }
    return request->deadline_ns != 0 && request->deadline_ns <= spill->now_ns ? KVP_SPILL_DEADLINE
                                                                              : KVP_SPILL_WAITS;
}

static void count_asked(kvp_spill *spill, const struct asked *asked, uint32_t outcome)
{
    const kvp_open_info *hit = &asked->hit;
    spill->stats.asked++;
    spill->stats.outcomes[outcome]++;
    spill->stats.asked_tokens += asked->prompt->n_tokens;
    spill->stats.host_tokens += hit->host_tokens;
    spill->stats.device_tokens += hit->hit_tokens - hit->host_tokens;
}

static kvp_status look_at(kvp_spill *spill, kvp_ns ns, struct asked *asked)
{
    const kvp_prompt *prompt = asked->prompt;
    const kvp_status status = kvp_cache_match(spill->config.cache, ns, prompt, &asked->hit);
    if (status != KVP_OK) {
        return status;
    }
    asked->space = kvpi_epochs_find(spill, ns);
    if (asked->space == NULL) {
        return KVP_E_STATE;
    }
    asked->n_tokens = kvpi_spill_min(prompt->n_tokens, spill->config.max_tokens);
    asked->n_public = count_public(spill, asked);
    asked->n_keys = count_keys(asked);
    return asked->n_keys > spill->config.max_keys ? KVP_E_TOO_LONG : KVP_OK;
}

kvp_status kvp_spill_ask(kvp_spill *spill, kvp_ns ns, const kvp_prompt *prompt,
                         const kvp_spill_request *request, uint64_t now_ns,
                         kvp_spill_answer *out_answer)
{
    struct asked asked = {0};
    asked.prompt = kvpi_sized(prompt, sizeof(*prompt));
    request = kvpi_sized(request, sizeof(*request));
    if (spill == NULL || asked.prompt == NULL || request == NULL || out_answer == NULL) {
        return KVP_E_ARG;
    }
    kvpi_rates_tick(spill, now_ns);
    kvp_status status = look_at(spill, ns, &asked);
    if (status != KVP_OK) {
        return status;
    }
    const uint32_t outcome = find_outcome(spill, &asked, request);
    if (outcome == KVP_SPILL_WAITS) {
        status = begin_ask(spill, &asked, request);
    }
    if (status == KVP_OK) {
        count_asked(spill, &asked, outcome);
        *out_answer = (kvp_spill_answer){
            .tag = request->tag, .outcome = outcome, .hit_tokens = asked.hit.hit_tokens};
    }
    return status;
}

kvp_status kvp_spill_abort(kvp_spill *spill, uint64_t tag)
{
    if (spill == NULL) {
        return KVP_E_ARG;
    }
    for (uint32_t i = 0; i < spill->n_queue; i++) {
        struct kvpi_spill_ask *ask = &spill->asks[spill->queue[i]];
        if ((ask->waits || ask->has_answer) && ask->answer.tag == tag) {
            spill->n_waiting -= ask->waits;
            ask->waits = ask->has_answer = 0;
            spill->stats.aborted++;
            if (ask->state == KVPI_ASK_LOOKING || ask->state == KVPI_ASK_FOUND) {
                ask->state = KVPI_ASK_LOADED;
            }
            kvpi_answers_sweep(spill);
            return KVP_OK;
        }
    }
    return KVP_E_ARG;
}
