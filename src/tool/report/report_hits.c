/* Owns the figures of hits that both kinds of replay have. Their keys are an interface and stay. */
#include "tool/report/report_hits.h"

void kvpi_hits_count(kvpi_hits *hits, const kvpi_hit *hit)
{
    switch (hit->stop) {
    case KVP_STOP_END:
    case KVP_STOP_FULL_HIT: hits->end++; break;
    case KVP_STOP_MISS: hits->miss++; break;
    case KVP_STOP_NO_KV:
        if (hit->stop_group == hit->n_groups)
            hits->states++;
        else
            hits->no_kv[hit->stop_group]++;
        break;
    default: hits->other++; break;
    }
}

kvp_status kvpi_hits_count_missed(kvpi_hits *hits, const kvp_cache *cache, kvp_seq seq,
                                  uint32_t hit_tokens)
{
    kvp_state_info state;
    kvp_status status = kvp_seq_state_get(cache, seq, &state);
    if (status == KVP_OK)
        hits->missed_tokens +=
            (state.branch_end != 0 ? state.branch_end : state.prompt_end) - hit_tokens;
    return status;
}

/* ---------------------------------------------------------------------------------- figures */

static void add_ended(kvpi_figures *to, const kvpi_hits *hits, const kvpi_size *size)
{
    uint64_t no_kv = 0;
    for (uint32_t g = 0; g < KVP_GROUPS_MAX; g++)
        no_kv += hits->no_kv[g];
    kvpi_figures_open(to, "ended");
    kvpi_figures_integer(to, "end", hits->end);
    kvpi_figures_integer(to, "miss", hits->miss);
    kvpi_figures_integer(to, "no_kv", no_kv);
    kvpi_figures_integer(to, "states", hits->states);
    kvpi_figures_integer(to, "other", hits->other);
    kvpi_figures_close(to);
    kvpi_figures_open_array(to, "no_kv_in_group");
    for (uint32_t g = 0; g < KVP_GROUPS_MAX && size != NULL && g < size->n_rows; g++)
        kvpi_figures_json(to, NULL, json_integer((json_int_t)hits->no_kv[g]));
    kvpi_figures_close(to);
}

void kvpi_hits_add(kvpi_figures *to, const kvpi_hits *hits, const kvpi_size *size)
{
    const kvp_state_stats *slots = &hits->state_slots;
    add_ended(to, hits, size);
    kvpi_figures_integer(to, "state_slots", slots->usable_slots);
    kvpi_figures_integer_if(to, size != NULL && size->state_bytes > 0, "state_memory_bytes",
                            size != NULL ? slots->usable_slots * size->state_bytes : 0);
    kvpi_figures_integer(to, "host_state_slots", slots->host_usable_slots);
    kvpi_figures_integer_if(to, size != NULL && size->state_bytes > 0, "host_state_memory_bytes",
                            size != NULL ? slots->host_usable_slots * size->state_bytes : 0);
    kvpi_figures_integer(to, "state_hits", slots->hits);
    kvpi_figures_integer(to, "state_missed_tokens", hits->missed_tokens);
    kvpi_figures_integer(to, "checkpoints_made", slots->made);
    kvpi_figures_integer(to, "checkpoints_skipped", slots->skipped);
    kvpi_figures_integer(to, "checkpoints_evicted", slots->evicted);
}

void kvpi_hits_print(const kvpi_hits *hits, const json_t *figures, FILE *file)
{
    const bool states = hits->state_slots.usable_slots > 0;
    const kvpi_figures_row rows[] = {
        {states, "state hits", "{state_hits}",
         hits->state_slots.hits == 1 ? "request began at a kept state; {state_slots} slots"
                                     : "requests began at a kept state; {state_slots} slots"},
        {states, "  missed", "{state_missed_tokens}",
         "known tokens computed again for lack of one"},
        {states, "  kept", "{checkpoints_made}",
         "{checkpoints_evicted} of these evicted; {checkpoints_skipped} found no slot"},
    };
    kvpi_figures_print_rows(figures, rows, sizeof rows / sizeof *rows, file);
}
