/* scan: requests in turn, of which more exist than fit: LRU always loses what comes next. For the
 * tests of the learned policy. */
#ifndef TEST_SCAN_H
#define TEST_SCAN_H

#include "world.h"

/* Prompts of a round, of one to three blocks of 4 tokens; and their blocks. With 47 of them the
 * class whose index is next is any when a scan ends. */
enum { SCAN_PROMPTS = 47, SCAN_BLOCKS = 93 };

/* One request, whose plan is taken before it is computed. Gives a digest of its row and victims;
 * n_hits counts blocks of 4 tokens. */
uint64_t scan_one(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt, uint64_t *n_hits);

/* Gives a digest of all that, of some rounds. */
uint64_t scan(kvp_cache *cache, int rounds, uint64_t *n_hits);

#endif
