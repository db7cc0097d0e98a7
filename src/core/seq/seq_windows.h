/* seq_windows: what windows keep and drop; see windows.h of the public headers. */
#ifndef KVPI_SEQ_WINDOWS_H
#define KVPI_SEQ_WINDOWS_H

#include "core/cache/state.h"

/* The sequence has the configured windows, and has dropped what they do not keep: of what is
 * computed or, if `receives`, of all tokens but the last. */
void kvpi_windows_open(const kvp_cache *cache, struct kvpi_seq *seq, int receives);

/* Take blocks until the rows have room for `end` tokens, except entries that are dropped. */
void kvpi_windows_take(kvp_cache *cache, struct kvpi_seq *seq, uint32_t end);

/* The sequence closes. */
void kvpi_windows_close(const kvp_cache *cache, struct kvpi_seq *seq);

/* Drop what is not kept with the next query at the computed tokens. */
void kvpi_windows_drop(kvp_cache *cache, struct kvpi_seq *seq, kvp_released *released);

/* The child, whose rows are the parent's, keeps what it needs at its end. */
void kvpi_windows_fork(const kvp_cache *cache, const struct kvpi_seq *parent,
                       const struct kvpi_seq *child);

/* It was taken back to fewer computed tokens: what it computes again with a window of its own is
 * not what others compute. */
void kvpi_windows_back(const kvp_cache *cache, struct kvpi_seq *seq);

#endif
