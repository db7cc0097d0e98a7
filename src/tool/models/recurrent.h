/* Layers with recurrent state, as a config.json describes them. */
#ifndef KVPI_RECURRENT_H
#define KVPI_RECURRENT_H

#include "tool/models/entries.h"

typedef struct kvpi_recurrent kvpi_recurrent;

/* Find the kind of recurrent layers that a file has. Returns: NULL: none that is known */
const kvpi_recurrent *kvpi_recurrent_find(const kvpi_entries *reader);

/* Say whether a key is one of those that describe this kind. kind may be NULL. */
bool kvpi_recurrent_knows(const kvpi_recurrent *kind, const char *key);

/* Read the state of a layer, and which layers have one.
 *
 * Takes:   model    attention.n_layers: all layers of the model; mlp.hidden
 * Gives:   model    states; attention.n_layers: those with attention; n_other_layers
 * Returns: 0; -1, a message
 */
int kvpi_recurrent_read(const kvpi_recurrent *kind, const kvpi_entries *reader, kvpi_model *model);

#endif
