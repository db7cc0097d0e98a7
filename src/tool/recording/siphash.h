/* siphash: SipHash-2-4 with 128 bits (Aumasson, Bernstein 2012), a keyed hash of short texts. */
#ifndef KVPI_SIPHASH_H
#define KVPI_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

/* Hash bytes under a key. Thread: pure. Cost: O(n) */
void kvpi_siphash(const uint8_t key[16], const void *bytes, size_t n, uint8_t out[16]);

#endif
