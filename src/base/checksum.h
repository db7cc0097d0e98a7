/* checksum: XXH3-64, seed 0, as wide as the processor is. Every form gives the same number. */
#ifndef KVPI_CHECKSUM_H
#define KVPI_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t kvpi_checksum(const uint8_t *bytes, size_t n_bytes);

/* The same of bytes that come piece by piece: begin, add, ..., end. */
struct kvpi_checksum_state {
    _Alignas(64) unsigned char bytes[576]; /* xxHash's own */
};

void kvpi_checksum_begin(struct kvpi_checksum_state *state);
void kvpi_checksum_add(struct kvpi_checksum_state *state, const uint8_t *bytes, size_t n_bytes);
uint64_t kvpi_checksum_end(const struct kvpi_checksum_state *state);

struct kvpi_checksum_form {
    uint64_t (*whole)(const uint8_t *bytes, size_t n_bytes);
    void (*add)(struct kvpi_checksum_state *state, const uint8_t *bytes, size_t n_bytes);
};

/* The best form for many bytes on this processor; NULL: there is none but the compiler's. */
const struct kvpi_checksum_form *kvpi_checksum_wide(void);

/* The forms; NULL: not compiled. They run where the processor has such instructions. */
const struct kvpi_checksum_form *kvpi_checksum_avx2(void);
const struct kvpi_checksum_form *kvpi_checksum_avx512(void);

#endif
