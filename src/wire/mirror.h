/* mirror: what a worker has. mirror.c takes its messages, mirror_life.c has the rest. */
#ifndef KVPI_WIRE_MIRROR_H
#define KVPI_WIRE_MIRROR_H

#include "wire/wire_table.h"

struct kvp_wire_mirror {
    kvp_wire_config config;
    uint64_t epoch;  /* the sender's, from 1, not counted here; 0: empty */
    uint64_t number; /* of the last message taken; never wraps */
    struct kvpi_wire_table table;
    kvp_wire_news_item *items; /* [max_seqs] */
    uint32_t *closed;          /* [max_seqs] */
    kvp_copy *copies;          /* [max_copies] */
    int32_t *values;           /* [max_step_tokens] */
    kvp_slot_move *moves; /* [n_groups, max_moves]; of a message's n in each group: [n_groups, n] */
    uint32_t owned;
};

#endif
