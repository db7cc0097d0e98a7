/* states: the recurrent state of all slots, in one array. Used by recurrent.c, without the
 * scheduler, and by chains.c, with it. Slot 0 is all zeros: the state before any token. */
#ifndef TINY_LLAMA_STATES_H
#define TINY_LLAMA_STATES_H

#include "model.h"

struct states {
    size_t size;       /* floats of one layer's state in a slot */
    uint32_t n_layers; /* recurrent ones */
    uint32_t *layer;   /* [L] number of a recurrent layer among them */
    float *values;     /* [slot][recurrent layer][H, D, D] */
};

/* Returns 0; 1 when there is no memory. states_destroy frees what there is, also of all zeros. */
int states_create(const struct model *model, uint32_t n_slots, struct states *states);
void states_destroy(struct states *states);

/* layer: of the model. */
float *states_at(const struct states *states, int32_t slot, uint32_t layer);

/* As a pass that failed may leave it. */
void states_spoil(const struct states *states, int32_t slot);

#endif
