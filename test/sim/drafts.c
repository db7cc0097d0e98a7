/* Drafts: what the engine proposes behind the newest token of those that decode, and how much of it
 * its model accepts: none, all, or some, equally much for all samples of a request. What is not
 * accepted is written all the same, with a text that will not be. See sim.h. */
#include "sim.h"

/* Of the sample before, if it is of the same request. */
static uint32_t draw_accepted(sim *s, const sim_work *work, uint32_t i)
{
    const sim_item *item = &work->items[i];
    for (uint32_t k = 0; k < i; k++)
        if (work->items[k].request.bits == item->request.bits)
            return work->items[k].n_accepted;
    return sim_percent(s, 30) ? item->n_drafts : sim_below(s, item->n_drafts + 1);
}

void sim_drafts(sim *s, sim_work *work)
{
    for (uint32_t i = 0; i < work->n_items && i < s->step.n_decoding; i++) {
        sim_item *item = &work->items[i];
        for (uint32_t k = 0; k < item->n_drafts; k++)
            item->text[item->range.end + k] = (int32_t)sim_below(s, 3);
        item->n_accepted = draw_accepted(s, work, i);
        s->seen[SIM_drafts_accepted] += item->n_accepted;
        s->seen[SIM_drafts_rejected] += item->n_drafts - item->n_accepted;
        s->seen[SIM_rings] += item->n_drafts > 0 && item->n_writes > 1;
        s->seen[SIM_drafts_of_samples] += item->n_drafts > 0 && item->sample > 0;
    }
}
