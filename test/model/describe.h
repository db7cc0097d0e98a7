/* Calls and outcomes: compare two outcomes field by field, and tell both in words. */
#ifndef KVP_TEST_MODEL_DESCRIBE_H
#define KVP_TEST_MODEL_DESCRIBE_H

#include <stdio.h>

#include "kvpager/oplog.h"

/* Compare what a cache of n_groups layer groups gave with what was foretold. Gives NULL when they
 * are equal, else the name of the first field that differs (static text). */
const char *outcome_difference(const kvp_call *call, uint32_t n_groups, const kvp_outcome *cache,
                               const kvp_outcome *oracle);

void call_print(FILE *file, const kvp_call *call);
void outcome_print(FILE *file, const kvp_call *call, uint32_t n_groups, const kvp_outcome *outcome);

#endif
