/* bytes: numbers in the formats that leave the process. Little-endian on every machine.
 *
 * A number of fixed length, or a varint: 7 bits a byte, the lowest first, the eighth bit set in all
 * but the last byte. One value has one form: a varint longer than needed is damage.
 */
#ifndef KVPI_BYTES_H
#define KVPI_BYTES_H

#include <stdint.h>

#define KVPI_VARINT_BYTES 10u /* of 64 bits */

static inline void kvpi_bytes_store(uint8_t *at, uint64_t value, unsigned n_bytes)
{
    for (unsigned i = 0; i < n_bytes; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static inline uint64_t kvpi_bytes_load(const uint8_t *at, unsigned n_bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n_bytes; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

static inline uint32_t kvpi_bytes_load32(const uint8_t *at)
{
    return (uint32_t)kvpi_bytes_load(at, 4);
}

/* Write a varint; there is room for KVPI_VARINT_BYTES. Gives its length. */
static inline unsigned kvpi_varint_store(uint8_t *at, uint64_t value)
{
    unsigned n = 0;
    while (value >= 0x80) {
        at[n++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    at[n++] = (uint8_t)value;
    return n;
}

/* Read a varint of at most `max` at *at, which goes on behind it. Gives 0, and leaves *at, when the
 * bytes end within it, when it is larger, or when it is not in its one form. */
static inline int kvpi_varint_load(const uint8_t **at, const uint8_t *end, uint64_t max,
                                   uint64_t *out)
{
    const uint8_t *next = *at;
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && next < end; shift += 7) {
        const uint8_t byte = *next++;
        if ((shift == 63 && byte > 1) || (shift > 0 && byte == 0)) {
            return 0;
        }
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (value > max) {
                return 0;
            }
            *at = next;
            *out = value;
            return 1;
        }
    }
    return 0;
}

#endif
