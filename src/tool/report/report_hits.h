/* Why hits ended, and what recurrent states were kept: of both kinds of replay. */
#ifndef KVPI_HITS_H
#define KVPI_HITS_H

#include <jansson.h>
#include <kvpager/states.h>
#include <stdint.h>
#include <stdio.h>

#include "tool/report/figures.h"
#include "tool/size/size.h"

typedef struct kvpi_hits {
    /* requests that were served, by what ended their hit */
    uint64_t end;                   /* all of the prompt was there */
    uint64_t miss;                  /* the next unit is not known */
    uint64_t no_kv[KVP_GROUPS_MAX]; /* it is, but not its KV in this layer group */
    uint64_t states;                /* no state was kept behind */
    uint64_t other;
    uint64_t missed_tokens;      /* known tokens behind hits that a missing state ended */
    kvp_state_stats state_slots; /* when all is done; all 0 without recurrent state */
} kvpi_hits;

/* What is known of a hit. */
typedef struct kvpi_hit {
    uint32_t stop;       /* KVP_STOP_... */
    uint32_t stop_group; /* n_groups: of the states */
    uint32_t n_groups;   /* of blocks */
} kvpi_hit;

/* Count a hit. */
void kvpi_hits_count(kvpi_hits *hits, const kvpi_hit *hit);

/* Count known tokens that are computed again, if a missing state ended the hit.
 *
 * Takes:   seq         of the prompt, right after it was opened
 *          hit_tokens  of it
 * Returns: that of kvp_seq_state_get
 */
kvp_status kvpi_hits_count_missed(kvpi_hits *hits, const kvp_cache *cache, kvp_seq seq,
                                  uint32_t hit_tokens);

/* Add the figures.
 *
 * Takes:   size  of the model; NULL: there is none
 */
void kvpi_hits_add(kvpi_figures *to, const kvpi_hits *hits, const kvpi_size *size);

/* Print what became of states for people; nothing without recurrent state. */
void kvpi_hits_print(const kvpi_hits *hits, const json_t *figures, FILE *file);

#endif
