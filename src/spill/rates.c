/* rates: how much may be written, how fast records come, how fast the engine computes. */
#include "spill/spill_state.h"

#define SECOND_NS UINT64_C(1000000000)
#define DAY_NS    (UINT64_C(86400) * SECOND_NS)
#define ENOUGH    (UINT64_C(4) << 20) /* bytes for a measurement */
#define RATE_MAX  (UINT64_C(1) << 50)
#define REFUSALS  512

/* ------------------------------------------------------------------------------------- budgets */

static uint64_t scaled(uint64_t amount, uint64_t by, uint64_t per)
{
    const double product = (double)amount * (double)by / (double)per;
    return product < (double)RATE_MAX ? (uint64_t)product : RATE_MAX;
}

/* At most a second is saved up, or the largest record so far if that is more. */
static void accrue(kvp_spill *spill, uint64_t n_bytes)
{
    const uint64_t now_ns = spill->now_ns;
    struct kvpi_spill_budget *budget = &spill->budget;
    const uint64_t rate = spill->config.put_bytes_s;
    budget->largest = n_bytes > budget->largest ? n_bytes : budget->largest;
    const uint64_t most = rate > budget->largest ? rate : budget->largest;
    const uint64_t more = scaled(rate, now_ns - budget->since_ns, SECOND_NS);
    if (more > 0) {
        budget->since_ns = now_ns;
        budget->allowance = budget->allowance + more > most ? most : budget->allowance + more;
    }
    if (now_ns / DAY_NS > budget->day) {
        budget->day = now_ns / DAY_NS;
        budget->day_bytes = 0;
    }
}

int kvpi_rates_may_put(kvp_spill *spill, uint64_t n_bytes)
{
    const struct kvpi_spill_budget *budget = &spill->budget;
    const kvp_spill_config *config = &spill->config;
    accrue(spill, n_bytes);
    if (spill->put_bytes + n_bytes > config->put_bytes ||
        (config->put_bytes_s > 0 && budget->allowance < n_bytes) ||
        (config->put_bytes_day > 0 && budget->day_bytes + n_bytes > config->put_bytes_day)) {
        return 0;
    }
    return 1;
}

void kvpi_rates_put(kvp_spill *spill, uint64_t n_bytes)
{
    if (spill->config.put_bytes_s > 0) {
        spill->budget.allowance -= n_bytes;
    }
    spill->budget.day_bytes += n_bytes;
}

/* ---------------------------------------------------------------------------------------- rates */

/* Three quarters of what was known, if anything was, a quarter of what was measured. Never 0,
 * because it is a divisor. */
static uint64_t learn(uint64_t rate, uint64_t amount, uint64_t took_ns)
{
    const uint64_t measured = scaled(amount, SECOND_NS, took_ns);
    const uint64_t known = rate == UINT64_MAX ? measured : rate - rate / 4 + measured / 4;
    return known > 0 ? known : 1;
}

void kvpi_rates_tick(kvp_spill *spill, uint64_t now_ns)
{
    struct kvpi_spill_meter *meter = &spill->meter;
    spill->now_ns = now_ns > spill->now_ns ? now_ns : spill->now_ns;
    if (spill->n_gets > 0) {
        meter->busy_ns += spill->now_ns - meter->since_ns;
    }
    meter->since_ns = spill->now_ns;
    const uint64_t enough = spill->load_bytes_s == UINT64_MAX ? 1 : ENOUGH;
    if (meter->bytes >= enough && meter->busy_ns > 0) {
        spill->load_bytes_s = learn(spill->load_bytes_s, meter->bytes, meter->busy_ns);
        meter->bytes = meter->busy_ns = 0;
    }
}

/* What is not loaded is not measured: it may be faster by now. */
void kvpi_rates_refused(kvp_spill *spill)
{
    if (++spill->meter.refusals == REFUSALS) {
        spill->load_bytes_s = spill->config.load_bytes_s;
        spill->meter.refusals = 0;
        spill->meter.bytes = spill->meter.busy_ns = 0;
    }
}

kvp_status kvp_spill_computed(kvp_spill *spill, uint64_t n_tokens, uint64_t took_ns)
{
    if (spill == NULL) {
        return KVP_E_ARG;
    }
    if (n_tokens > 0 && took_ns > 0) {
        spill->compute_tokens_s = learn(spill->compute_tokens_s, n_tokens, took_ns);
    }
    return KVP_OK;
}
