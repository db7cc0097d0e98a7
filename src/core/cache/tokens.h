/* tokens: tokens and the units they make. */
#ifndef KVPI_CACHE_TOKENS_H
#define KVPI_CACHE_TOKENS_H

#include "core/cache/state.h"

int kvpi_is_uncached(const kvp_cache *cache, const int32_t *tokens, uint32_t n,
                     uint32_t *out_first);
int kvpi_any_negative(const int32_t *tokens, uint32_t n);

/* Append known values; full units become nodes. Keys as in kvp_batch. */
void kvpi_append_tokens(kvp_cache *cache, struct kvpi_seq *seq, const int32_t *tokens, uint32_t n,
                        const kvp_key *keys, uint32_t n_keys);

/* Do the keys fit max_unit_keys in every unit of tokens [from, to), where `pending` are there? */
int kvpi_keys_fit(const kvp_cache *cache, const kvp_key *keys, uint32_t n_keys, uint32_t from,
                  uint32_t to, uint32_t pending);

/* Put unit u's node into the row and move the sequence's use to it. */
void kvpi_push_node(kvp_cache *cache, struct kvpi_seq *seq, uint32_t node, int is_public);

/* The next unit's node was not known, and is made; NO_NODE: none is free. */
static inline void kvpi_note_made(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t node)
{
    if (kvpi_unlikely(cache->table.retains) && node != KVPI_NO_NODE) {
        uint32_t *parted = kvpi_parted(&cache->table, seq);
        *parted = kvpi_min_u32(*parted, seq->n_units * cache->config.unit_tokens);
    }
}

/* Leave `from`'s first n tokens in `seq`, which is `from` or has its counts: counts, partial unit,
 * keys, and the use of the last node. */
void kvpi_cut_tokens(kvp_cache *cache, const struct kvpi_seq *from, struct kvpi_seq *seq,
                     uint32_t n);

/* The last kept node, or the root. */
uint32_t kvpi_last_node(const kvp_cache *cache, const struct kvpi_seq *seq);

/* Read values [from, from + n); 0 when some are not known. */
int kvpi_read_tokens(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t from, uint32_t n,
                     int32_t *out);

/* The value of its last known token; KVPI_NO_TOKEN: there is none, or it is not kept. Found again,
 * and noted in `last`. */
uint32_t kvpi_last_token(const kvp_cache *cache, const struct kvpi_seq *seq);
void kvpi_note_last(const kvp_cache *cache, struct kvpi_seq *seq);

#endif
