/* states: see states.h. */
#include "states.h"

#include <math.h>
#include <stdlib.h>

int states_create(const struct model *model, uint32_t n_slots, struct states *states)
{
    const model_config *c = model_config_of(model);
    states->size = model_state_size(c);
    states->layer = calloc(c->n_layers, sizeof *states->layer);
    if (states->layer == NULL)
        return 1;
    for (uint32_t i = 0; i < c->n_layers; i++)
        if (model_is_recurrent(c, i))
            states->layer[i] = states->n_layers++;
    states->values =
        calloc((size_t)n_slots * states->n_layers * states->size, sizeof *states->values);
    return states->values == NULL;
}

void states_destroy(struct states *states)
{
    free(states->layer);
    free(states->values);
}

float *states_at(const struct states *states, int32_t slot, uint32_t layer)
{
    const size_t number = (size_t)slot * states->n_layers + states->layer[layer];
    return states->values + number * states->size;
}

void states_spoil(const struct states *states, int32_t slot)
{
    const size_t n = states->size * states->n_layers;
    for (size_t i = 0; i < n; i++)
        states->values[(size_t)slot * n + i] = NAN;
}
