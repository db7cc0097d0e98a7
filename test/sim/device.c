/* The device: the steps that are out, and when their copies and passes run. See sim.h.
 *
 * Ordered steps run one after the other. Of overlapped ones the plans do, and a pass runs when its
 * step's plan has, and earlier passes of its sequences; so passes are late, and out of order. What
 * a pass reads is compared with what its tokens make, at each place that attention would see. */
#include "sim.h"

#include <inttypes.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- the pass */

static uint64_t kv_of(uint64_t sum, uint32_t group)
{
    return sum ^ (group + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

uint64_t sim_salt(uint64_t space, uint64_t weights)
{
    return space + 100 * weights;
}

/* One group's part: write the tokens of the range and the drafts, or read what their queries see.
 * An entry of several tokens is written with its last one, and seen from then on. */
static bool pass_group(sim *s, const sched_memory *memory, const sim_item *item, uint32_t group,
                       bool is_reading)
{
    const kvp_group *window = &memory->groups[group];
    const uint32_t S = window->block_tokens, entry = memory->entry[group];
    const uint32_t end = item->range.end + item->n_drafts;
    uint64_t sum = UINT64_C(14695981039346656037) + item->salt;
    for (uint32_t at = 0; at < end; at++) {
        sum = sched_memory_sum(sum, item->text[at]);
        if ((at + 1) % entry > 0)
            continue;
        uint64_t *block = sched_memory_block(memory, KVP_DEVICE, item->rows[group][at / S]);
        uint64_t *slot = block == NULL ? NULL : &block[at % S / entry];
        if (!is_reading && at >= item->range.begin && slot != NULL)
            *slot = kv_of(sum, group);
        if (is_reading && !item->is_void && sched_memory_sees(window, item->range.begin, at) &&
            (slot == NULL || *slot != kv_of(sum, group))) {
            verdict_bad(&s->verdict,
                        "position %" PRIu32 " of request %" PRIu64 ", group %" PRIu32
                        ", block %" PRId32 ": another's KV, or none",
                        at, item->tag, group, item->rows[group][at / S]);
            return false;
        }
    }
    return true;
}

/* Of the tokens of the range, those that have a block. */
void sim_compare_kv(sim *s, const sched_memory *memory, const sim_item *item, uint32_t group)
{
    const uint32_t S = memory->groups[group].block_tokens, entry = memory->entry[group];
    uint64_t sum = UINT64_C(14695981039346656037) + item->salt;
    for (uint32_t at = 0; at < item->range.end; at++) {
        sum = sched_memory_sum(sum, item->text[at]);
        const uint64_t *block = sched_memory_block(memory, KVP_DEVICE, item->rows[group][at / S]);
        if (at >= item->range.begin && (at + 1) % entry == 0 && block != NULL &&
            block[at % S / entry] != kv_of(sum, group)) {
            verdict_bad(&s->verdict,
                        "move %" PRIu64 ", position %" PRIu32 ", group %" PRIu32
                        ": another's KV arrived",
                        item->tag, at, group);
            return;
        }
    }
}

uint64_t sim_state_after(const sim_item *item, uint32_t n)
{
    return sched_states_after(item->text, n) ^ kv_of(item->salt, KVP_GROUPS_MAX);
}

/* Of a ring, the state after each token that may be the last accepted one; else the one after the
 * accepted ones, which an engine without rings copies there. */
static bool write_states(const sched_states *states, const sim_item *item)
{
    for (uint32_t i = 0; i < item->n_writes; i++) {
        uint64_t *write = sched_states_slot(states, KVP_DEVICE, item->writes[i]);
        if (write == NULL)
            return false;
        *write = sim_state_after(item, item->n_writes == 1 ? item->range.end + item->n_accepted
                                                           : item->range.begin + i + 1);
    }
    return item->n_writes == 1 || item->n_writes == 1 + item->n_drafts;
}

/* The state that it goes on from is its own, in the first of two passes; in the second it writes
 * those after its tokens. */
static bool pass_state(sim *s, const sched_states *states, const sim_item *item, bool is_reading)
{
    const uint64_t *read = sched_states_slot(states, KVP_DEVICE, item->read);
    if (states->n == 0)
        return true;
    const bool is_good = is_reading      ? write_states(states, item)
                         : item->is_void ? true
                         : item->read == 0
                             ? item->range.begin == 0
                             : read != NULL && *read == sim_state_after(item, item->range.begin);
    if (!is_good) {
        verdict_bad(&s->verdict, "request %" PRIu64 " goes on at %" PRIu32 " from another's state",
                    item->tag, item->range.begin);
    }
    return is_good;
}

void sim_pass(sim *s, const sched_memory *memory, const sched_states *states, const sim_item *items,
              uint32_t n)
{
    for (int is_reading = 0; is_reading < 2; is_reading++) {
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t g = 0; g < memory->n_groups; g++)
                if (!pass_group(s, memory, &items[i], g, is_reading != 0))
                    return;
            if (!pass_state(s, states, &items[i], is_reading != 0))
                return;
        }
    }
}

/* ---------------------------------------------------------------------------- what is out, runs */

static void run_copies(sim *s, sim_work *work)
{
    for (uint32_t i = 0; i < work->n_copies && s->run->is_planted; i++) {
        work->copies[i].n_tokens =
            work->copies[i].src_tier == KVP_HOST ? 0 : work->copies[i].n_tokens;
    }
    if (!sched_memory_copy(&s->memory, work->copies, work->n_copies) ||
        !sched_states_copy(&s->states, work->copies, work->n_copies) ||
        !sched_states_copy(&s->states, work->store_copies, work->n_store_copies))
        verdict_bad(&s->verdict, "a copy of a plan is none");
    work->has_copied = true;
    s->seen[SIM_late_copies] += work->n_copies > 0 && s->out[s->n_out - 1] != work;
}

static void run_pass(sim *s, sim_work *work)
{
    sim_pass(s, &s->memory, &s->states, work->items, work->n_items);
    work->has_passed = true;
    s->seen[SIM_passes_before_others] +=
        work->n_items > 0 && work != s->out[0] && s->out[0]->n_items > 0 && !s->out[0]->has_passed;
}

/* Whether passes of the same sequences are to run before it. */
static bool has_earlier(const sim *s, uint32_t index)
{
    const sim_work *work = s->out[index];
    for (uint32_t k = 0; k < index; k++) {
        for (uint32_t i = 0; i < s->out[k]->n_items && !s->out[k]->has_passed; i++) {
            for (uint32_t j = 0; j < work->n_items; j++)
                if (s->out[k]->items[i].seq.bits == work->items[j].seq.bits)
                    return true;
        }
    }
    return false;
}

static bool move_ordered(sim *s)
{
    uint32_t i = 0;
    while (i < s->n_out && s->out[i]->has_passed)
        i++;
    if (i == s->n_out)
        return false;
    if (!s->out[i]->has_copied)
        run_copies(s, s->out[i]);
    else
        run_pass(s, s->out[i]);
    return true;
}

/* The next plan, or any pass that may run. */
bool sim_move_on(sim *s)
{
    uint32_t may[SIM_STEPS], n = 0;
    if (s->config.steps == KVP_STEPS_ORDERED)
        return move_ordered(s);
    for (uint32_t i = 0; i < s->n_out; i++) {
        if (!s->out[i]->has_copied) {
            may[n++] = i;
            break;
        }
        if (!s->out[i]->has_passed && !has_earlier(s, i))
            may[n++] = i;
    }
    if (n == 0)
        return false;
    sim_work *work = s->out[may[sim_below(s, n)]];
    if (!work->has_copied)
        run_copies(s, work);
    else
        run_pass(s, work);
    return true;
}

/* -------------------------------------------------------------------------------- begin and end */

sim_work *sim_work_begin(sim *s)
{
    kvp_stats stats;
    uint32_t i = 0;
    if (!sim_ok(s, "kvp_cache_stats_get", kvp_cache_stats_get(s->cache, &stats)))
        return NULL;
    if (s->n_out == SIM_STEPS || stats.steps_out == SIM_STEPS) /* those that are noted count */
        sim_settle(s);
    while (i < SIM_STEPS && s->works[i].number != 0)
        i++;
    sim_work *work = &s->works[i];
    work->n_items = 0;
    work->has_copied = work->has_passed = work->is_sched = false;
    if (s->config.steps == KVP_STEPS_OVERLAPPED) {
        (void)sim_ok(
            s, "kvp_step_begin",
            kvp_step_begin(s->cache, work->copies, SIM_COPIES, &work->n_copies, &work->number));
    } else {
        work->number = ++s->n_plans;
        (void)sim_ok(s, "kvp_plan_take",
                     kvp_plan_take(s->cache, work->copies, SIM_COPIES, &work->n_copies));
    }
    (void)sim_ok(s, "kvp_spill_copies",
                 kvp_spill_copies(s->spill, work->store_copies, SIM_STATES, &work->n_store_copies));
    s->out[s->n_out++] = work;
    s->seen[SIM_several_out] += s->n_out > 2;
    return work;
}

static void forget(sim *s, sim_work *work)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_out; i++)
        if (s->out[i] != work)
            s->out[n++] = s->out[i];
    s->n_out = n;
    work->number = 0;
    s->work = work == s->work ? NULL : s->work;
}

void sim_work_done(sim *s, sim_work *work)
{
    while (!work->has_passed && !s->verdict.is_bad && sim_move_on(s)) {}
    if (s->config.steps == KVP_STEPS_OVERLAPPED) {
        (void)sim_ok(s, "kvp_step_done", kvp_step_done(s->cache, work->number, NULL));
    } else {
        (void)sim_ok(s, "kvp_plan_done", kvp_plan_done(s->cache, work->number));
        for (uint32_t i = 0; i < work->n_items && !work->is_sched; i++) {
            const kvp_status status =
                kvp_seq_commit(s->cache, work->items[i].seq, work->items[i].range.end);
            (void)(status == KVP_E_HANDLE || sim_ok(s, "kvp_seq_commit", status));
        }
    }
    forget(s, work);
}

/* What else builds on it: these sequences are void from then on. */
static void spread(sim *s, const kvp_seq *cut, uint32_t n)
{
    for (uint32_t k = 0; k < s->n_out; k++) {
        for (uint32_t i = 0; i < s->out[k]->n_items; i++)
            for (uint32_t j = 0; j < n; j++)
                s->out[k]->items[i].is_void |= s->out[k]->items[i].seq.bits == cut[j].bits;
    }
}

/* Nor is a sequence told that was closed: what its passes make is wanted no more. */
static void spread_to_closed(sim *s)
{
    for (uint32_t k = 0; k < s->n_out; k++) {
        for (uint32_t i = 0; i < s->out[k]->n_items; i++) {
            sim_item *item = &s->out[k]->items[i];
            kvp_seq_info info;
            item->is_void |= kvp_seq_info_get(s->cache, item->seq, &info) != KVP_OK;
        }
    }
}

/* Of a step that fails, ordered ones have run their plan. A pass that did not run to its end may
 * have left anything. */
void sim_work_failed(sim *s, sim_work *work)
{
    kvp_seq cut[2 * SIM_RUNNING + SIM_IDS], own[SIM_RUNNING];
    uint32_t n = 0;
    for (uint32_t i = 0; i < work->n_items; i++) {
        own[i] = work->items[i].seq;
        work->items[i].is_void = true;
    }
    spread(s, own, work->n_items);
    if (s->config.steps == KVP_STEPS_OVERLAPPED) {
        for (uint32_t k = 0; s->out[k] != work; k++) { /* nothing of it runs before these plans */
            while (!s->out[k]->has_copied && sim_move_on(s)) {}
        }
        (void)sched_memory_spoil(&s->memory, work->copies, work->n_copies);
        (void)sim_ok(s, "kvp_step_failed",
                     kvp_step_failed(s->cache, work->number, cut, sizeof cut / sizeof *cut, &n));
        spread(s, cut, n);
        spread_to_closed(s);
        sim_moves_cut(s, cut, n);
    } else {
        while (!work->has_copied && sim_move_on(s)) {}
        for (uint32_t i = 0; i < work->n_items && !work->has_passed; i++)
            for (uint32_t k = 0; k < work->items[i].n_writes; k++)
                s->states.slots[work->items[i].writes[k]] = 0;
        (void)sim_ok(s, "kvp_plan_done", kvp_plan_done(s->cache, work->number));
    }
    forget(s, work);
}

void sim_settle(sim *s)
{
    for (uint32_t i = s->n_out; i-- > 0 && !s->verdict.is_bad;)
        if (!s->out[i]->is_sched)
            sim_work_done(s, s->out[i]);
}

void sim_device(sim *s)
{
    if (s->n_out == 0)
        return;
    sim_work *work = s->out[sim_below(s, s->n_out)];
    if (!work->is_sched && work->n_items > 0 && work->n_copies + work->n_store_copies == 0 &&
        sim_percent(s, 4)) {
        const sim_item item = work->items[0];
        sim_work_failed(s, work);
        sim_moves_again(s, &item);
    } else if (!work->is_sched && sim_percent(s, 40)) {
        sim_work_done(s, work);
    } else {
        (void)sim_move_on(s);
    }
}
