/* Shrinking: a run that fails, with fewer calls and kinds of them. See sim.h.
 *
 * Calls behind the failure go first, by halves: a defect that only an audit sees is seen by the one
 * at the end. Then the kinds without which it fails all the same; then runs of calls, each half as
 * long as those before, until none can be missed. What is left must fail in the same way: by the
 * same words, whatever the numbers. */
#include "sim.h"

#include <stdio.h>
#include <string.h>

static bool is_same(const char *a, const char *b)
{
    while (*a != 0 && *b != 0) {
        a += strspn(a, "0123456789");
        b += strspn(b, "0123456789");
        if (*a != *b) {
            return false;
        }
        a += *a != 0;
        b += *b != 0;
    }
    return *a == *b;
}

/* Take it, if it fails as the first one did. */
static bool take(sim_run *run, const sim_run *fewer, const char *why)
{
    static sim_result *result;
    result = result == NULL ? sim_share_result() : result;
    if (sim_try(fewer, result, true) || !is_same(result->verdict.why, why)) {
        return false;
    }
    *run = *fewer;
    run->calls = result->n_calls;
    return true;
}

static void cut_end(sim_run *run, const char *why)
{
    for (uint64_t fails = run->calls, well = 0; fails - well > 1;) {
        sim_run fewer = *run;
        fewer.calls = well + (fails - well) / 2;
        if (take(run, &fewer, why)) {
            fails = run->calls;
        } else {
            well = fewer.calls;
        }
    }
}

static void cut_kinds(sim_run *run, const char *why)
{
    for (uint32_t kind = 0; kind < SIM_KINDS_N; kind++) {
        sim_run fewer = *run;
        fewer.without |= 1u << kind;
        (void)take(run, &fewer, why);
    }
}

static void cut_calls(sim_run *run, const char *why)
{
    for (uint64_t n = (run->calls + 1) / 2; n > 0; n /= 2) {
        for (uint64_t end = run->calls; end > 0; end = end > n ? end - n : 0) {
            const uint64_t begin = end > n ? end - n : 0;
            sim_run fewer = *run;
            memset(fewer.skips + begin + 1, true, end - begin);
            if (memcmp(fewer.skips, run->skips, sizeof run->skips) != 0) {
                (void)take(run, &fewer, why);
            }
        }
    }
}

void sim_shrink(sim_run *run, const sim_result *failed)
{
    cut_end(run, failed->verdict.why);
    cut_kinds(run, failed->verdict.why);
    cut_calls(run, failed->verdict.why);
}

/* --------------------------------------------------------------------------------- its own test */

static uint64_t count_made(const sim_run *run)
{
    uint64_t n = 0;
    for (uint64_t i = 1; i <= run->calls; i++) {
        n += !run->skips[i];
    }
    return n;
}

/* Copies from the host are not run. That needs requests and steps, and few of them. */
int sim_test_shrink(void)
{
    enum { CONFIGS = 20, MOST = 60 };
    const uint32_t needed = 1u << SIM_OF_submissions | 1u << SIM_OF_steps;
    const uint32_t useless = 1u << SIM_OF_lies | 1u << SIM_OF_audits | 1u << SIM_OF_comparisons;
    static sim_run run = {.seed = 5, .calls = SIM_CALLS, .is_planted = true};
    sim_result *result = sim_share_result();
    while (run.config < CONFIGS && sim_try(&run, result, true)) {
        run.config++;
    }
    sim_shrink(&run, result);
    sim_tell_run(&run);
    sim_run without = run;
    without.is_planted = false;
    if (run.config == CONFIGS || count_made(&run) > MOST || (run.without & needed) != 0 ||
        (run.without & useless) != useless || sim_try(&run, result, true) ||
        !sim_try(&without, result, true)) {
        printf("a planted defect is not found, or its run does not become short\n");
        return 1;
    }
    return 0;
}
