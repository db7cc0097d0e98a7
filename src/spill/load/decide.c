/* decide: load, compute, or load a part and compute the rest. Pure. */
#include <kvpager/spill.h>

#include "base/sized.h"

/* Numbers of bytes and nanoseconds below 2^53 are exact; above, the last bits do not matter. The
 * same numbers give the same result on every machine with IEEE doubles. */
static double seconds(double amount, uint64_t rate)
{
    return amount / (double)rate;
}

static double seconds_to_load(const kvp_spill_question *q, uint32_t n_tokens)
{
    const double part = (double)q->bytes * ((double)n_tokens / (double)q->n_tokens);
    return seconds((double)q->queued_bytes + part, q->load_bytes_s);
}

/* The most tokens that come in time. */
static uint32_t count_in_time(const kvp_spill_question *q)
{
    const double left = (double)q->left_ns / 1e9;
    if (seconds_to_load(q, q->n_tokens) <= left) {
        return q->n_tokens;
    }
    uint32_t low = 0; /* steps that come in time; `high` steps do not */
    uint32_t high = q->n_tokens / q->step_tokens + 1;
    while (low + 1 < high) {
        const uint32_t steps = low + (high - low) / 2;
        if (seconds_to_load(q, steps * q->step_tokens) <= left) {
            low = steps;
        } else {
            high = steps;
        }
    }
    return low * q->step_tokens;
}

kvp_status kvp_spill_decide(const kvp_spill_question *question, uint32_t *out_tokens)
{
    const kvp_spill_question *q = kvpi_sized(question, sizeof(*question));
    if (q == NULL || out_tokens == NULL || q->load_bytes_s == 0 || q->compute_tokens_s == 0 ||
        q->step_tokens == 0 || q->reserved != 0) {
        return KVP_E_ARG;
    }
    const uint32_t n = q->n_tokens == 0 ? 0 : count_in_time(q);
    const int is_worth_it = n > 0 && n >= q->min_tokens &&
                            seconds_to_load(q, n) <= seconds((double)n, q->compute_tokens_s);
    *out_tokens = is_worth_it ? n : 0;
    return KVP_OK;
}
