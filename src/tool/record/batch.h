/* batch: a batch of KV events as engines send it (msgpack): [time, [event ...], rank]. An event is
 * a map with its "type" (vLLM from 0.24 on, SGLang), or an array that begins with it (before).
 * What is not known is passed over; what is wrong is said. Nothing is copied but hashes.
 */
#ifndef KVPI_RECORD_BATCH_H
#define KVPI_RECORD_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tool/recording/recording.h"

typedef enum kvpi_event_kind {
    KVPI_EVENT_STORED,
    KVPI_EVENT_REMOVED,
    KVPI_EVENT_CLEARED,
    KVPI_EVENT_OTHER /* of a type that is not known */
} kvpi_event_kind;

/* A hash is 64 bits: a number, whether signed or not, or the last 8 of more bytes. */
typedef struct kvpi_event {
    kvpi_event_kind kind;
    bool has_parent;
    bool is_device; /* of the GPU's tier, of the first layer group */
    uint64_t parent;
    const uint64_t *hashes; /* [n_hashes] good until the next event */
    size_t n_hashes;
    uint64_t block_tokens; /* STORED only */
} kvpi_event;

/* Zero it. */
typedef struct kvpi_batch {
    const uint8_t *at, *end;
    uint64_t n_left;  /* events */
    double time;      /* of the engine, seconds since 1970 */
    uint64_t *hashes; /* [capacity] */
    size_t capacity;
    kvpi_recording_error error; /* it is refused */
} kvpi_batch;

/* Begin to read a batch, whose bytes stay. Returns: 0; -1: batch->error */
int kvpi_batch_begin(kvpi_batch *batch, const uint8_t *bytes, size_t n);

/* Get the next event.
 *
 * Returns: 1; 0: there are no more; -1: batch->error, and nothing of the batch is to be believed
 */
int kvpi_batch_next(kvpi_batch *batch, kvpi_event *out);
void kvpi_batch_free(kvpi_batch *batch);

#endif
