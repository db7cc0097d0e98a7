/* Which records a store has, for --why: as far as the spill learns it (kvp_spill_note), and of a
 * model to the moment. */
#ifndef KVPI_STORE_KNOWN_H
#define KVPI_STORE_KNOWN_H

#include <kvpager/identity.h>

#include "tool/watch/watch.h"

/* The namespace of a replay's records, and what they are slices of. */
#define KVPI_KNOWN_SPACE "replay"
static const kvp_slice kvpi_known_slice = {.n_layers = 1, .n_heads = 1};

typedef struct kvpi_known kvpi_known;

/* Begin with nothing known.
 *
 * Takes:   fingerprint    as the store's
 *          record_blocks  of block_tokens each
 * Gives:   out            on success only
 * Returns: KVP_OK; KVP_E_NO_MEMORY; KVP_E_IO: libcrypto failed
 */
kvp_status kvpi_known_open(const kvp_digest *fingerprint, uint32_t block_tokens,
                           uint32_t record_blocks, kvpi_known **out);
/* NULL is ignored. */
void kvpi_known_close(kvpi_known *known);

/* What goes from now on goes at this time, in the caller's unit. */
void kvpi_known_at(kvpi_known *known, uint64_t now);

/* A kvp_spill_note. When the store has evicted what it has not any more is not known. */
void kvpi_known_note(void *known, const kvp_digest *key, int is_there);

/* A record goes now. Takes: key   [8] its first bytes */
void kvpi_known_leaves(void *known, const uint8_t *key);

/* Tell what is known of the records of a prompt. A record that could not be noted, for want of
 * memory, is an error here.
 *
 * Gives:   out    records and record_tokens; until the next call
 * Returns: KVP_OK; KVP_E_NO_MEMORY; KVP_E_IO
 */
kvp_status kvpi_known_tell(kvpi_known *known, const int32_t *tokens, uint32_t n_tokens,
                           kvpi_watch_store *out);

#endif
