/* checksum: short messages by what every processor of this kind has, long ones by what is best. */
#include "base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* XXH3 has other ways, without vectors, for up to 240 bytes. */
enum { LONG = 1024 };

_Static_assert(sizeof(struct kvpi_checksum_state) >= sizeof(XXH3_state_t), "it holds xxHash's");

uint64_t kvpi_checksum(const uint8_t *bytes, size_t n_bytes)
{
    const struct kvpi_checksum_form *wide = n_bytes < LONG ? NULL : kvpi_checksum_wide();
    return wide ? wide->whole(bytes, n_bytes) : XXH3_64bits(bytes, n_bytes);
}

void kvpi_checksum_begin(struct kvpi_checksum_state *state)
{
    (void)XXH3_64bits_reset((XXH3_state_t *)(void *)state);
}

void kvpi_checksum_add(struct kvpi_checksum_state *state, const uint8_t *bytes, size_t n_bytes)
{
    const struct kvpi_checksum_form *wide = n_bytes < LONG ? NULL : kvpi_checksum_wide();
    if (wide)
        wide->add(state, bytes, n_bytes);
    else
        (void)XXH3_64bits_update((XXH3_state_t *)(void *)state, bytes, n_bytes);
}

uint64_t kvpi_checksum_end(const struct kvpi_checksum_state *state)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)state);
}
