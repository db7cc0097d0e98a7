/* spill_known: which records the store is thought to have, so that they are not written again.
 *
 * A table with one place for each hash of a key. What is there is replaced. A wrong answer costs a
 * record that is not written, or a put that ends with KVP_STORE_KNOWN; never wrong KV.
 */
#include "spill/state.h"

#include <string.h>

/* A key is a SHA-256: its bytes are as good as a hash. Zero is an empty place. */
static uint64_t mark_of(const kvp_digest *key)
{
    uint64_t mark;
    memcpy(&mark, key->bytes, sizeof(mark));
    return mark | 1;
}

static uint64_t *place_of(const kvp_spill *spill, const kvp_digest *key)
{
    uint32_t place;
    memcpy(&place, key->bytes + 8, sizeof(place));
    return &spill->known[place & spill->known_mask];
}

void kvpi_known_add(kvp_spill *spill, const kvp_digest *key)
{
    *place_of(spill, key) = mark_of(key);
}

void kvpi_known_remove(kvp_spill *spill, const kvp_digest *key)
{
    if (kvpi_known_has(spill, key)) {
        *place_of(spill, key) = 0;
    }
}

int kvpi_known_has(const kvp_spill *spill, const kvp_digest *key)
{
    return *place_of(spill, key) == mark_of(key);
}
