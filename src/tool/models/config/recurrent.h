/* Layers with recurrent state, as a config.json describes them. */
#ifndef KVPI_RECURRENT_H
#define KVPI_RECURRENT_H

#include "tool/models/config/entries.h"

typedef struct kvpi_recurrent kvpi_recurrent;

/* Find the kind of recurrent layers that a file has. Returns: NULL: none that is known */
const kvpi_recurrent *kvpi_recurrent_find(const kvpi_entries *reader);

/* Say whether a key is one of those that describe this kind. kind may be NULL. */
bool kvpi_recurrent_knows(const kvpi_recurrent *kind, const char *key);

/* What a recurrent layer is. */
typedef struct kvpi_recurrence {
    kvpi_models_state state;
    uint64_t parameters; /* of its matrices */
    bool of_kv; /* the state is of the layer's keys and values: state.heads and conv_of_head
                            are those of the layer */
} kvpi_recurrence;

/* Read the state of a layer.
 *
 * Takes:   model    mlp.hidden, 0 if it is not known
 * Gives:   model    state_kind, state_dtype
 * Returns: 0; -1, a message
 */
int kvpi_recurrent_read(const kvpi_recurrent *kind, const kvpi_entries *reader, kvpi_model *model,
                        kvpi_recurrence *out);

#endif
