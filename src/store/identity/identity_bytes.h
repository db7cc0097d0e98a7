/* identity_bytes: numbers as they are stored, little-endian. */
#ifndef KVPI_STORE_BYTES_H
#define KVPI_STORE_BYTES_H

#include <stdint.h>

static inline void kvpi_put32(uint8_t *at, uint32_t value)
{
    for (unsigned i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static inline void kvpi_put64(uint8_t *at, uint64_t value)
{
    kvpi_put32(at, (uint32_t)value);
    kvpi_put32(at + 4, (uint32_t)(value >> 32));
}

static inline uint32_t kvpi_get32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t kvpi_get64(const uint8_t *at)
{
    return kvpi_get32(at) | (uint64_t)kvpi_get32(at + 4) << 32;
}

#endif
