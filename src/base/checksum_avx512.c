/* checksum_avx512: compiled with AVX-512 where CMakeLists.txt finds an x86-64. */
#include "base/checksum.h"

#if defined(__AVX512F__)

#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t whole(const uint8_t *bytes, size_t n_bytes)
{
    return XXH3_64bits(bytes, n_bytes);
}

static void add(struct kvpi_checksum_state *state, const uint8_t *bytes, size_t n_bytes)
{
    (void)XXH3_64bits_update((XXH3_state_t *)(void *)state, bytes, n_bytes);
}

const struct kvpi_checksum_form *kvpi_checksum_avx512(void)
{
    static const struct kvpi_checksum_form form = {whole, add};
    return &form;
}

#else

const struct kvpi_checksum_form *kvpi_checksum_avx512(void)
{
    return NULL;
}

#endif
