/* meter: what a reader asks of the system for memory while it runs: bytes at once, and how often.
 * The linker hands every request of the program to meter.c (CMakeLists.txt, --wrap). */
#ifndef FUZZ_METER_H
#define FUZZ_METER_H

#include <stdint.h>

/* What a reader may use for so many bytes. */
#define METER_LIMIT(n_bytes) ((UINT64_C(64) << 20) + 16 * (uint64_t)(n_bytes))

typedef struct meter {
    uint64_t now, peak; /* bytes that were allocated and mapped since meter_begin */
    uint64_t n_asked;   /* requests */
} meter;

void meter_begin(void);
meter meter_end(void);

#endif
