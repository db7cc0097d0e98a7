/* Worker messages, and a pass over what the mirrors have. See sim.h. */
#include "sim.h"

#include "wire/wire_send.h"
#include "start.h"

#include <inttypes.h>
#include <string.h>

void sim_workers_begin(sim *s)
{
    sim_workers *w = &s->workers;
    memset(w, 0, sizeof *w);
    (void)sim_ok(s, "kvp_wire_config_of", kvp_wire_config_of(s->cache, &w->config));
    w->config.max_seqs = SIM_IDS;
    w->config.max_step_tokens = SIM_IDS * SIM_TEXT;
    w->config.epoch = ++s->epoch;
    (void)sim_ok(s, "kvp_wire_sender_create",
                 kvp_wire_sender_create(&w->config, s->cache, NULL, 0, &w->sender));
#if KVP_CHECK >= 1
    kvpi_wire_start_at(w->sender, start_number());
    w->wants_full = start_number() != 0;
#endif
    for (int i = 0; i < SIM_MIRRORS; i++) {
        (void)sim_ok(s, "kvp_wire_mirror_create",
                     kvp_wire_mirror_create(&w->config, NULL, 0, &w->mirrors[i]));
    }
}

void sim_workers_end(sim *s)
{
    for (int i = 0; i < SIM_MIRRORS; i++) {
        kvp_wire_mirror_destroy(s->workers.mirrors[i]);
    }
    kvp_wire_sender_destroy(s->workers.sender);
}

/* The sequence of an id, if it is on the device. */
static bool open_on_device(sim *s, uint32_t id, kvp_seq *out_seq)
{
    const sim_request *r = &s->requests[id / SIM_SAMPLES];
    kvp_sample_info sample;
    kvp_seq_info info;
    if (!r->is_here || id % SIM_SAMPLES >= r->n_samples ||
        kvp_request_sample(s->sched, r->handle, id % SIM_SAMPLES, &sample) != KVP_OK ||
        sample.seq.bits == 0 || kvp_seq_info_get(s->cache, sample.seq, &info) != KVP_OK) {
        return false;
    }
    *out_seq = sample.seq;
    return info.tier == KVP_DEVICE;
}

static uint32_t step_tokens_of(const sim *s, kvp_seq seq)
{
    for (uint32_t i = 0; i < s->step.n_seqs; i++) {
        if (s->step.seqs[i].seq.bits == seq.bits) {
            return s->step.seqs[i].n_tokens;
        }
    }
    return 0;
}

/* All that are open on the device, and those whose sequence has gone. */
static kvp_wire_step collect(sim *s, kvp_wire_item *items, uint32_t *closed, bool is_full)
{
    sim_workers *w = &s->workers;
    kvp_wire_step step = {.struct_size = sizeof step,
                          .flags = is_full ? KVP_WIRE_FULL : 0,
                          .items = items,
                          .closed = closed,
                          .copies = s->copies,
                          .n_copies = s->n_copies};
    for (uint32_t id = 0; id < SIM_IDS; id++) {
        kvp_seq seq;
        kvp_seq_info info;
        const bool is_open = open_on_device(s, id, &seq);
        const kvp_seq told = {w->told[id]};
        if (told.bits != 0 && !is_full && (!is_open || seq.bits != told.bits) &&
            kvp_seq_info_get(s->cache, told, &info) != KVP_OK) {
            closed[step.n_closed++] = id;
            w->told[id] = 0;
        }
        w->told[id] = is_open ? seq.bits : is_full ? 0 : w->told[id];
        if (is_open) {
            items[step.n_items++] =
                (kvp_wire_item){.seq = seq,
                                .worker_id = id,
                                .status = 1 + sim_below(s, 2),
                                .step_tokens = step_tokens_of(s, seq),
                                .tokens = s->requests[id / SIM_SAMPLES].text[id % SIM_SAMPLES]};
        }
    }
    return step;
}

/* The row of an id in the mirror is the cache's. */
static void compare_row(sim *s, const kvp_wire_item *item)
{
    kvp_wire_seq seq;
    (void)sim_ok(s, "kvp_wire_mirror_seq",
                 kvp_wire_mirror_seq(s->workers.mirrors[0], item->worker_id, &seq));
    for (uint32_t g = 0; g < s->config.n_groups && !s->verdict.is_bad; g++) {
        const int32_t *row, *mirrored = seq.row + (size_t)g * s->workers.config.max_row_blocks;
        uint32_t n;
        if (!sim_ok(s, "kvp_seq_row", kvp_seq_row(s->cache, item->seq, g, &row, &n)) ||
            n != kvp_blocks_for_tokens(s->config.groups[g].block_tokens, seq.row_tokens) ||
            memcmp(row, mirrored, n * sizeof *row) != 0) {
            verdict_bad(&s->verdict, "worker id %" PRIu32 " has another row than the cache",
                        item->worker_id);
        }
    }
}

static void give(sim *s, size_t n_bytes, bool is_full)
{
    sim_workers *w = &s->workers;
    for (int i = 0; i < SIM_MIRRORS && !s->verdict.is_bad; i++) {
        kvp_wire_news news;
        if (i > 0 && sim_percent(s, 3)) {
            w->wants_full = true; /* it misses this one */
            s->seen[SIM_missed_messages]++;
            continue;
        }
        (void)sim_ok(s, "kvp_wire_mirror_apply",
                     kvp_wire_mirror_apply(w->mirrors[i], w->bytes, n_bytes, &news));
        if (kvp_wire_mirror_digest(w->mirrors[i]) != kvp_wire_sender_digest(w->sender) ||
            news.n_copies != s->n_copies ||
            memcmp(news.copies, s->copies, s->n_copies * sizeof *s->copies) != 0) {
            verdict_bad(&s->verdict, "mirror %d has not what it was sent", i);
        }
    }
    s->seen[SIM_full_messages] += is_full;
}

void sim_tell(sim *s)
{
    sim_workers *w = &s->workers;
    kvp_wire_item items[SIM_IDS];
    uint32_t closed[SIM_IDS];
    size_t n_bytes = 0;
    const bool is_full = w->wants_full || sim_percent(s, 2);
    const kvp_wire_step step = collect(s, items, closed, is_full);
    w->wants_full = false;
    if (!sim_ok(s, "kvp_wire_sender_encode",
                kvp_wire_sender_encode(w->sender, &step, w->bytes, SIM_BYTES, &n_bytes))) {
        return;
    }
    give(s, n_bytes, is_full);
    for (uint32_t i = 0; i < step.n_items && !s->verdict.is_bad; i++) {
        compare_row(s, &items[i]);
    }
}

/* ------------------------------------------------------------------------------------- the pass */

static uint64_t kv_of(uint64_t sum, uint32_t group)
{
    return sum ^ (group + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

/* One group's part: write the tokens of the range, or read what its queries see. */
static bool pass_group(sim *s, const sim_request *r, const int32_t *text, uint32_t group,
                       const int32_t *row, kvp_range range, bool is_reading)
{
    const kvp_group *window = &s->config.groups[group];
    const uint32_t S = window->block_tokens;
    uint64_t sum = UINT64_C(14695981039346656037) + r->space + 100 * s->weights[r->space];
    for (uint32_t at = 0; at < range.end; at++) {
        uint64_t *block = sched_memory_block(&s->memory, KVP_DEVICE, row[at / S]);
        sum = sched_memory_sum(sum, text[at]);
        if (!is_reading && at >= range.begin && block != NULL) {
            block[at % S] = kv_of(sum, group);
        }
        if (is_reading && sched_memory_sees(window, range.begin, at) &&
            (block == NULL || block[at % S] != kv_of(sum, group))) {
            verdict_bad(&s->verdict,
                        "position %" PRIu32 " of request %" PRIu64 ", group %" PRIu32
                        ", block %" PRId32 ": another's KV, or none",
                        at, r->tag, group, row[at / S]);
            return false;
        }
    }
    return true;
}

static uint64_t state_after(const sim *s, const sim_request *r, const int32_t *text, uint32_t n)
{
    return sched_states_after(text, n) ^
           kv_of(r->space + 100 * s->weights[r->space], KVP_GROUPS_MAX);
}

/* The state that it goes on from is its own, in the first of two passes; in the second it writes
 * the one after its tokens. */
static bool pass_state(sim *s, const sim_request *r, const int32_t *text, const kvp_wire_seq *seq,
                       kvp_range range, bool is_reading)
{
    const uint64_t *read = sched_states_slot(&s->states, KVP_DEVICE, (int32_t)seq->read_slot);
    uint64_t *write = sched_states_slot(&s->states, KVP_DEVICE, (int32_t)seq->write_slot);
    if (s->states.n == 0) {
        return true;
    }
    if (write == NULL ||
        (!is_reading &&
         (read == NULL ? range.begin > 0 : *read != state_after(s, r, text, range.begin)))) {
        verdict_bad(&s->verdict, "request %" PRIu64 " goes on at %" PRIu32 " from another's state",
                    r->tag, range.begin);
        return false;
    }
    if (is_reading) {
        *write = state_after(s, r, text, range.end);
    }
    return true;
}

void sim_spoil_states(sim *s)
{
    for (uint32_t i = 0; i < s->step.n_seqs; i++) {
        int32_t write = 0;
        if (s->states.n > 0 &&
            kvp_meta_states(s->cache, &s->step.seqs[i].seq, 1, NULL, &write) == KVP_OK) {
            s->states.slots[write] = 0;
        }
    }
}

bool sim_pass(sim *s, uint32_t item, bool is_reading)
{
    const kvp_step_seq *part = &s->step.seqs[item];
    const sim_request *r = sim_find(s, part->request);
    kvp_wire_seq seq;
    if (r == NULL || r->has_ended[part->sample]) {
        return true; /* aborted meanwhile */
    }
    const uint32_t id = (uint32_t)(r - s->requests) * SIM_SAMPLES + part->sample;
    const kvp_range range = {part->begin, part->begin + part->n_tokens};
    if (kvp_wire_mirror_seq(s->workers.mirrors[0], id, &seq) != KVP_OK ||
        seq.step_tokens != part->n_tokens || seq.n_tokens < range.end) {
        verdict_bad(&s->verdict, "a worker does not know what it has to compute");
        return false;
    }
    for (uint32_t g = 0; g < s->config.n_groups; g++) {
        const int32_t *row = seq.row + (size_t)g * s->workers.config.max_row_blocks;
        if (!pass_group(s, r, r->text[part->sample], g, row, range, is_reading)) {
            return false;
        }
    }
    return pass_state(s, r, r->text[part->sample], &seq, range, is_reading);
}
