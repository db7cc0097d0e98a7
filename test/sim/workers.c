/* Worker messages; what the mirrors have is what a pass gets. See sim.h. */
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
    for (int i = 0; i < SIM_MIRRORS; i++)
        kvp_wire_mirror_destroy(s->workers.mirrors[i]);
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
        sample.seq.bits == 0 || kvp_seq_info_get(s->cache, sample.seq, &info) != KVP_OK)
        return false;
    *out_seq = sample.seq;
    return info.tier == KVP_DEVICE;
}

static uint32_t step_tokens_of(const sim *s, const sim_work *work, kvp_seq seq)
{
    for (uint32_t i = 0; i < s->step.n_seqs && work->is_sched; i++)
        if (s->step.seqs[i].seq.bits == seq.bits)
            return s->step.seqs[i].n_tokens;
    return 0;
}

/* All that are open on the device, and those whose sequence has gone. */
static kvp_wire_step collect(sim *s, const sim_work *work, kvp_wire_item *items, uint32_t *closed,
                             bool is_full)
{
    sim_workers *w = &s->workers;
    kvp_wire_step step = {.struct_size = sizeof step,
                          .flags = is_full ? KVP_WIRE_FULL : 0,
                          .items = items,
                          .closed = closed,
                          .copies = work->copies,
                          .n_copies = work->n_copies};
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
                                .step_tokens = step_tokens_of(s, work, seq),
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

static void give(sim *s, const sim_work *work, size_t n_bytes, bool is_full)
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
            news.n_copies != work->n_copies ||
            memcmp(news.copies, work->copies, work->n_copies * sizeof *work->copies) != 0)
            verdict_bad(&s->verdict, "mirror %d has not what it was sent", i);
    }
    s->seen[SIM_full_messages] += is_full;
}

static void tell(sim *s, const sim_work *work)
{
    sim_workers *w = &s->workers;
    kvp_wire_item items[SIM_IDS];
    uint32_t closed[SIM_IDS];
    size_t n_bytes = 0;
    const bool is_full = w->wants_full || sim_percent(s, 2);
    const kvp_wire_step step = collect(s, work, items, closed, is_full);
    w->wants_full = false;
    if (!sim_ok(s, "kvp_wire_sender_encode",
                kvp_wire_sender_encode(w->sender, &step, w->bytes, SIM_BYTES, &n_bytes)))
        return;
    give(s, work, n_bytes, is_full);
    for (uint32_t i = 0; i < step.n_items && !s->verdict.is_bad; i++)
        compare_row(s, &items[i]);
}

/* ------------------------------------------------------------------------ what a worker will do */

static void take_rows(sim *s, const kvp_wire_seq *seq, sim_item *item)
{
    const uint32_t stride = s->workers.config.max_row_blocks;
    for (uint32_t g = 0; g < s->config.n_groups; g++) {
        const uint32_t S = s->config.groups[g].block_tokens;
        const uint32_t n = (uint32_t)kvp_blocks_for_tokens(S, item->range.end + item->n_drafts);
        if (kvp_blocks_for_tokens(S, seq->row_tokens) < n) {
            verdict_bad(&s->verdict, "a worker's row is too short for what it has to compute");
            return;
        }
        memcpy(item->rows[g], seq->row + (size_t)g * stride, n * sizeof *seq->row);
    }
}

static void take_states(sim *s, const kvp_wire_seq *seq, sim_item *item)
{
    item->read = (int32_t)seq->read_slot;
    item->n_writes = s->states.n > 0 ? seq->n_write_slots : 0;
    memcpy(item->writes, seq->write_slots, item->n_writes * sizeof *item->writes);
}

/* A sequence of the step, as the first worker knows it. */
static void take_item(sim *s, const kvp_step_seq *part, uint32_t n_drafts, sim_item *item)
{
    const sim_request *r = sim_find(s, part->request);
    kvp_wire_seq seq;
    if (r == NULL) {
        verdict_bad(&s->verdict, "a step has a request that is not here");
        return;
    }
    const uint32_t id = (uint32_t)(r - s->requests) * SIM_SAMPLES + part->sample;
    item->seq = part->seq;
    item->tag = r->tag;
    item->request = part->request;
    item->sample = part->sample;
    item->n_accepted = 0;
    item->n_drafts = n_drafts;
    item->is_void = false;
    item->range = (kvp_range){part->begin, part->begin + part->n_tokens};
    item->salt = sim_salt(r->space, s->weights[r->space]);
    memcpy(item->text, r->text[part->sample], sizeof item->text);
    sim_mix_key(&r->key, item->text);
    if (kvp_wire_mirror_seq(s->workers.mirrors[0], id, &seq) != KVP_OK ||
        seq.step_tokens != part->n_tokens || seq.n_tokens < item->range.end) {
        verdict_bad(&s->verdict, "a worker does not know what it has to compute");
        return;
    }
    take_rows(s, &seq, item);
    take_states(s, &seq, item);
}

void sim_tell(sim *s, sim_work *work)
{
    tell(s, work);
    for (uint32_t i = 0; i < s->step.n_seqs && work->is_sched && !s->verdict.is_bad; i++) {
        take_item(s, &s->step.seqs[i], i < s->step.n_decoding ? s->step.drafts[i] : 0,
                  &work->items[work->n_items++]);
    }
}
