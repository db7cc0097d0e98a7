/* What each layer of a model does, as a config.json says it in one of many ways. */
#ifndef KVPI_LAYERS_H
#define KVPI_LAYERS_H

#include "tool/models/config/entries.h"
#include "tool/models/config/recurrent.h"

enum {
    KVPI_LAYER_FULL = 1,   /* attends to all tokens */
    KVPI_LAYER_WINDOW = 2, /* to the last ones */
    KVPI_LAYER_CHUNK = 4,  /* to those of its chunk */
    KVPI_LAYER_STATE = 8,  /* has a recurrent state */
    KVPI_LAYER_INDEX = 16, /* keeps keys of an indexer */
    KVPI_LAYER_READS = 32, /* reads what another layer keeps, and keeps no KV */
    KVPI_LAYER_ATTENDS = KVPI_LAYER_FULL | KVPI_LAYER_WINDOW | KVPI_LAYER_CHUNK
};

typedef struct kvpi_layers {
    uint32_t n;
    uint8_t does[KVPI_MODELS_MAX_LAYERS];
    uint16_t times[KVPI_MODELS_MAX_LAYERS]; /* that it runs for a token */
    uint16_t
        entries[KVPI_MODELS_MAX_LAYERS]; /* tokens of an entry beside a window; 0: it has none */
    bool compressed;                     /* the model has such entries */
    bool recomputed;                     /* and its windows are not cached */
} kvpi_layers;

/* Read what the layers do.
 *
 * Takes:   recurrent  NULL: the file describes no recurrent state
 * Returns: 0; -1, a message
 */
int kvpi_layers_read(const kvpi_entries *reader, const kvpi_recurrent *recurrent, kvpi_layers *out);

/* Say whether a list names what each layer does. */
bool kvpi_layers_are_listed(const kvpi_entries *reader);

/* Count the layers that do some of `what`, as often as they run. */
uint32_t kvpi_layers_count(const kvpi_layers *layers, uint8_t what);

#endif
