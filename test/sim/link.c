/* Links between the two engines: slow ones say KVP_E_AGAIN, and those that lie lose messages, send
 * them twice, or change them. A link is cut when either engine dies. See sim.h. */
#include "sim.h"

#include <string.h>

enum { MESSAGE_BYTES = KVP_LINK_MESSAGE_MIN };

static kvp_status lend(void *context, size_t n_bytes, void **out_buffer)
{
    sim_end *end = context;
    if (sim_percent(end->sim, end->slow_rate)) {
        end->sim->seen[SIM_slow_links]++;
        return KVP_E_AGAIN;
    }
    const kvp_status status = end->inner.lend(end->inner.context, n_bytes, out_buffer);
    end->lent = status == KVP_OK ? *out_buffer : NULL;
    return status;
}

static kvp_status post_twice(sim_end *end, size_t n_bytes)
{
    uint8_t copy[MESSAGE_BYTES];
    void *again;
    memcpy(copy, end->lent, n_bytes);
    const kvp_status status = end->inner.post(end->inner.context, n_bytes);
    if (status == KVP_OK && end->inner.lend(end->inner.context, n_bytes, &again) == KVP_OK) {
        memcpy(again, copy, n_bytes);
        return end->inner.post(end->inner.context, n_bytes);
    }
    return status;
}

static kvp_status post(void *context, size_t n_bytes)
{
    sim_end *end = context;
    sim *s = end->sim;
    if (!sim_percent(s, end->lie_rate))
        return end->inner.post(end->inner.context, n_bytes);
    s->seen[SIM_lies]++;
    *end->has_lied = true;
    switch (sim_below(s, 4)) {
    case 0: return KVP_OK; /* it is lost */
    case 1: return post_twice(end, n_bytes);
    case 2: return end->inner.post(end->inner.context, 1 + sim_below(s, n_bytes));
    default:
        end->lent[sim_below(s, n_bytes)] ^= (uint8_t)(1u << sim_below(s, 8));
        return end->inner.post(end->inner.context, n_bytes);
    }
}

static kvp_status take(void *context, const void **out_bytes, size_t *out_n_bytes)
{
    sim_end *end = context;
    return sim_percent(end->sim, end->slow_rate)
               ? KVP_E_AGAIN
               : end->inner.take(end->inner.context, out_bytes, out_n_bytes);
}

static void give_back(void *context)
{
    sim_end *end = context;
    end->inner.give_back(end->inner.context);
}

static void progress(void *context)
{
    sim_end *end = context;
    end->inner.progress(end->inner.context);
}

bool sim_link_begin(sim *s, sim_link *link, kvp_link *out_ends)
{
    kvp_link inner[2];
    const uint32_t slow_rate = sim_percent(s, 50) ? 0 : 10 + sim_below(s, 50);
    const uint32_t lie_rate = sim_percent(s, 70) ? 0 : 1 + sim_below(s, 10);
    if (!sim_ok(s, "kvp_loopback_create",
                kvp_loopback_create(MESSAGE_BYTES, 1 + sim_below(s, 4), &link->loopback, inner)))
        return false;
    link->has_lied = false;
    for (int i = 0; i < 2; i++) {
        sim_end *end = &link->ends[i];
        *end = (sim_end){.sim = s,
                         .inner = inner[i],
                         .slow_rate = sim_has(s, SIM_OF_slow_links) ? slow_rate : 0,
                         .lie_rate = sim_has(s, SIM_OF_lies) ? lie_rate : 0,
                         .has_lied = &link->has_lied};
        out_ends[i] = (kvp_link){.struct_size = sizeof *out_ends,
                                 .max_message = MESSAGE_BYTES,
                                 .context = end,
                                 .lend = lend,
                                 .post = post,
                                 .take = take,
                                 .give_back = give_back,
                                 .progress = progress};
    }
    return true;
}

void sim_link_end(sim_link *link)
{
    kvp_loopback_destroy(link->loopback);
    link->loopback = NULL;
}
