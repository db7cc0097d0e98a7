/* The memory of spills. Each allocation of kvp_spill_create ends at a guard page, and with the last
 * spill all of it must be freed; else the process ends. Any allocation can fail. */
#ifndef KVP_TEST_SPILL_HEAP_H
#define KVP_TEST_SPILL_HEAP_H

#include <stdint.h>

typedef struct heap_control {
    uint32_t n_allocations; /* of spills, until now */
    uint32_t fails_at;      /* that one, counted from 1; 0: none */
} heap_control;

extern heap_control heap;

#endif
