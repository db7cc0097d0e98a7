/* checksum: short messages by what every processor of this kind has, long ones by what is best. */
#include "base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* XXH3 has other ways, without vectors, for up to 240 bytes. */
enum { LONG = 1024 };

uint64_t kvpi_checksum(const uint8_t *bytes, size_t n_bytes)
{
    const kvpi_checksum_fn wide = n_bytes < LONG ? NULL : kvpi_checksum_wide();
    return wide ? wide(bytes, n_bytes) : XXH3_64bits(bytes, n_bytes);
}
