/* checksum: XXH3-64, seed 0, as wide as the processor is. Every form gives the same number. */
#ifndef KVPI_CHECKSUM_H
#define KVPI_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t kvpi_checksum(const uint8_t *bytes, size_t n_bytes);

typedef uint64_t (*kvpi_checksum_fn)(const uint8_t *bytes, size_t n_bytes);

/* The best form for many bytes on this processor; NULL: there is none but the compiler's. */
kvpi_checksum_fn kvpi_checksum_wide(void);

/* The forms; NULL: not compiled. They run where the processor has such instructions. */
kvpi_checksum_fn kvpi_checksum_avx2(void);
kvpi_checksum_fn kvpi_checksum_avx512(void);

#endif
