/* counters: what an engine says at /metrics of the prompts that it looked up. */
#ifndef KVPI_RECORD_COUNTERS_H
#define KVPI_RECORD_COUNTERS_H

#include "tool/record/lookups.h"

typedef struct kvpi_counters_at {
    const char *host;
    uint16_t port;
    const char *path; /* "/metrics" */
} kvpi_counters_at;

/* Read them from a text in Prometheus' form: vLLM's or SGLang's.
 *
 * Takes:   text          with a NUL at its end
 *          block_tokens  of the engine
 * Gives:   out           on success only
 *          engine_blocks of the engine's cache; 0: not said
 * Returns: NULL; else why they are not known: static text
 */
const char *kvpi_counters_read(const char *text, uint64_t block_tokens, kvpi_counters *out,
                               uint64_t *engine_blocks);

/* Ask the engine, for 2 seconds at most. Gives and returns: as above */
const char *kvpi_counters_ask(const kvpi_counters_at *at, uint64_t block_tokens, kvpi_counters *out,
                              uint64_t *engine_blocks);

#endif
