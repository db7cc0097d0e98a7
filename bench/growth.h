/* How cost grows with size: scenes of kvp_bench --growth. */
#ifndef KVP_BENCH_GROWTH_H
#define KVP_BENCH_GROWTH_H

#include "bench.h"

enum { GROWTH_CURVES = 10 };

/* Gives [out_n] groups, each of a size, which its set_up must find in the options. */
const group *growth_groups(bool quick, size_t *out_n);

/* The size of a group, and the one of its yardstick: the same calls, whose samples alternate with
 * its own. 0: it is none of those. */
uint32_t growth_size(const group *of);
uint32_t growth_yardstick_size(const group *of);

/* Adds a result for each curve that was measured: its largest median by its smallest, both by their
 * yardsticks, with the factor that this must stay within. There is room for all. Gives how many
 * results there are. */
size_t growth_ratios(result *results, size_t n);

#endif
