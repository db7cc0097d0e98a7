/* start: things that are made go on as if they had run for long, so that their counters come to
 * 2^31, 2^32 or 2^63 in a test. A program's --start-at says where; only a library with checks has
 * the hooks (kvpi_start_at and its like): a cache, a scheduler, a sender of worker messages or of
 * transfers continues as if its counters had come to that number.
 *
 * `make test` runs kvp_model, kvp_shadow, kvp_sched_model, kvp_sim and kvp_gauntlet near 2^31, 2^32
 * and 2^63, and at 0x80000005. test_cache_start.c plays scenes of steps, trees, events and handles
 * at each number near these. test_counters.c does so for requests, worker messages and transfers,
 * and uses up the generations of a place.
 */
#ifndef TEST_START_H
#define TEST_START_H

#include <kvpager/all.h>

/* From now on counters start near this number; 0: as they do. 0 when the library has no hooks. */
int start_at(uint64_t start);
uint64_t start_number(void);

/* Just after creation; start_sched.h is for a scheduler. */
void start_cache(kvp_cache *cache);

#endif
