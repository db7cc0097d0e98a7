/* out: one batch as it is made. Events are encoded one after the other; consecutive units of a
 * chain are one event, and so are consecutive removals in a tier. msgpack begins an array with its
 * length, so an event is encoded when it ends, and the batch's head when the batch does.
 *
 *   bytes   | head | event | event | ... | rank |
 *           0      KVPI_OUT_HEAD
 */
#ifndef KVPI_PUBLISH_OUT_H
#define KVPI_PUBLISH_OUT_H

#include "publish/units.h"

#define KVPI_OUT_HEAD 16u /* the longest head: an array of 3, a double, an array of events */

/* What all batches of a publisher have in common. */
struct kvpi_out_form {
    uint32_t form; /* KVP_PUBLISH_MAPS, KVP_PUBLISH_ARRAYS */
    int32_t rank;
    uint32_t unit_tokens;
    uint32_t run_units; /* of one event at most */
    size_t event_bytes; /* of one event at most */
    char media[KVPI_PUBLISH_TIERS][KVP_NAME_MAX_BYTES + 1];
};

struct kvpi_out {
    const struct kvpi_out_form *form;
    uint8_t *bytes;
    size_t capacity;
    size_t n;
    uint32_t n_events;
    /* The event that is open; none: n_run is 0. */
    uint32_t kind; /* KVP_EVENT_STORED, KVP_EVENT_REMOVED */
    uint32_t tier;
    uint32_t n_run;
    uint32_t last;       /* STORED: slot of the last unit */
    int has_parent;      /* STORED: else it begins at position 0 */
    uint64_t parent;     /* STORED: on the wire */
    const char *lora;    /* STORED: NULL: none */
    uint64_t *run;       /* [run_units] hashes */
    int32_t *run_tokens; /* [run_units][U] */
};

/* run_units and event_bytes for the form's unit_tokens; bytes of a batch at most. */
size_t kvpi_out_measure(struct kvpi_out_form *form);

kvp_status kvpi_out_open(struct kvpi_out *out, const struct kvpi_out_form *form, size_t capacity);
void kvpi_out_close(struct kvpi_out *out);

/* Add an event. There is room for it if kvpi_out_is_full said 0. */
void kvpi_out_stored(struct kvpi_out *out, const struct kvpi_units *set, uint32_t slot,
                     uint32_t tier, const char *lora);
void kvpi_out_removed(struct kvpi_out *out, uint64_t wire, uint32_t tier);
void kvpi_out_cleared(struct kvpi_out *out);

int kvpi_out_is_full(const struct kvpi_out *out);
int kvpi_out_is_empty(const struct kvpi_out *out);

/* End the batch: its bytes, which stay until kvpi_out_begin. */
const uint8_t *kvpi_out_end(struct kvpi_out *out, uint64_t now_ns, size_t *out_bytes);
void kvpi_out_begin(struct kvpi_out *out);

#endif
