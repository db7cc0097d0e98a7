/* answers: how requests are answered, and when their asks are free again. */
#include "spill/load/spill_load.h"

#include <string.h>

const char *kvp_spill_outcome_name(uint32_t outcome)
{
    static const char *const names[KVP_SPILL_OUTCOMES] = {
        "waits", "loaded", "nothing", "compute", "failed", "deadline", "stopped"};
    return outcome < KVP_SPILL_OUTCOMES ? names[outcome] : "?";
}

/* Nothing when the prompt cannot be matched any more: its namespace was closed. */
static uint32_t count_hit(kvp_spill *spill, const struct kvpi_spill_ask *ask)
{
    kvp_open_info info = {0};
    const kvp_status status = kvp_cache_match(spill->config.cache, ask->ns, &ask->prompt, &info);
    return status == KVP_OK ? info.hit_tokens : 0;
}

void kvpi_answers_give(kvp_spill *spill, struct kvpi_spill_ask *ask, uint32_t outcome)
{
    if (!ask->waits) {
        return;
    }
    if (ask->state == KVPI_ASK_LOOKING || ask->state == KVPI_ASK_FOUND) { /* nothing is begun */
        ask->state = KVPI_ASK_LOADED;
    }
    const uint32_t hit = count_hit(spill, ask);
    const uint32_t more = hit > ask->hit_tokens ? hit - ask->hit_tokens : 0;
    if (outcome == KVP_SPILL_LOADED && more == 0) {
        outcome = KVP_SPILL_FAILED;
    }
    ask->answer.waited_ns = spill->now_ns - ask->asked_ns;
    ask->answer.outcome = outcome;
    ask->answer.hit_tokens = hit;
    ask->answer.more_tokens = more;
    ask->waits = 0;
    ask->has_answer = 1;
    spill->n_waiting--;
    spill->stats.outcomes[outcome]++;
    spill->stats.store_tokens += outcome == KVP_SPILL_LOADED ? more : 0;
}

void kvpi_answers_void(kvp_spill *spill, struct kvpi_spill_ask *ask, uint32_t outcome)
{
    ask->is_void = 1;
    ask->cursor = ask->end;
    kvpi_answers_give(spill, ask, outcome);
}

/* Is nothing of it on its way, and no caller waiting for an answer? */
static int is_over(const struct kvpi_spill_ask *ask)
{
    return (ask->state == KVPI_ASK_LOADED || ask->state == KVPI_ASK_FREE) && !ask->waits &&
           !ask->has_answer;
}

/* No ask shares its loads any more: they have ended. */
static void forget_sharers(kvp_spill *spill, uint32_t number)
{
    for (uint32_t i = 0; i < spill->n_queue; i++) {
        struct kvpi_spill_ask *ask = &spill->asks[spill->queue[i]];
        const uint64_t bit = UINT64_C(1) << number % 64;
        if (ask->n_shared > 0 && (ask->on[number / 64] & bit)) {
            ask->on[number / 64] &= ~bit;
            ask->n_shared--;
        }
    }
}

int kvpi_answers_is_shared(const kvp_spill *spill, const struct kvpi_spill_ask *ask)
{
    const uint32_t number = (uint32_t)(ask - spill->asks);
    for (uint32_t i = 0; i < spill->n_queue; i++) {
        const struct kvpi_spill_ask *other = &spill->asks[spill->queue[i]];
        if (other->n_shared > 0 && other->waits && (other->on[number / 64] >> number % 64 & 1)) {
            return 1;
        }
    }
    return 0;
}

void kvpi_answers_loaded(kvp_spill *spill, struct kvpi_spill_ask *ask)
{
    ask->state = KVPI_ASK_LOADED;
    forget_sharers(spill, (uint32_t)(ask - spill->asks));
}

void kvpi_answers_sweep(kvp_spill *spill)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < spill->n_queue; i++) {
        struct kvpi_spill_ask *ask = &spill->asks[spill->queue[i]];
        if (is_over(ask)) {
            ask->state = KVPI_ASK_FREE;
        } else {
            spill->queue[kept++] = spill->queue[i];
        }
    }
    spill->n_queue = kept;
}

uint32_t kvpi_answers_take(kvp_spill *spill, kvp_spill_answer *out_answers, uint32_t capacity)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < spill->n_queue && n < capacity; i++) {
        struct kvpi_spill_ask *ask = &spill->asks[spill->queue[i]];
        if (ask->has_answer) {
            out_answers[n++] = ask->answer;
            ask->has_answer = 0;
        }
    }
    return n;
}
