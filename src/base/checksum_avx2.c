/* checksum_avx2: compiled with AVX2 where CMakeLists.txt finds an x86-64. */
#include "base/checksum.h"

#if defined(__AVX2__)

#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t checksum(const uint8_t *bytes, size_t n_bytes)
{
    return XXH3_64bits(bytes, n_bytes);
}

kvpi_checksum_fn kvpi_checksum_avx2(void)
{
    return checksum;
}

#else

kvpi_checksum_fn kvpi_checksum_avx2(void)
{
    return NULL;
}

#endif
