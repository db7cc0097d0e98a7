/* match_groups: the same for several groups, and for windows (windows.h). */
#ifndef KVPI_SEQ_MATCH_GROUPS_H
#define KVPI_SEQ_MATCH_GROUPS_H

#include "core/seq/match_state.h"

/* The first n_hits units were found: cut them to the longest prefix of which each group has what it
 * keeps; write its blocks into the rows, count them, and hold them for an open. */
void kvpi_match_groups(kvp_cache *cache, struct kvpi_match *match);

/* There is no room for the sources of a hit inside a block: the longest prefix of whole blocks
 * before it, matched again. */
void kvpi_match_groups_whole(kvp_cache *cache, struct kvpi_match *match);

/* Put back in reverse order what kvpi_match_groups held. */
void kvpi_match_groups_let_go(kvp_cache *cache, const struct kvpi_match *match);

#endif
