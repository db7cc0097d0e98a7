/* match: the walk along a prompt, and what opening it would take. */
#ifndef KVPI_SEQ_MATCH_H
#define KVPI_SEQ_MATCH_H

#include "core/seq/match_state.h"

/* Flags of a prompt that are known. */
#define KVPI_OPEN_FLAGS (KVP_OPEN_NO_MATCH | KVP_OPEN_DEVICE_ONLY | KVP_OPEN_RECEIVE)

/* A pointer missing, the prompt itself among them. */
int kvpi_bad_prompt(const kvp_prompt *prompt);

/* Check a prompt and fill in `match` up to n_public; statuses as kvp_seq_open gives them. */
kvp_status kvpi_match_prepare(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                              struct kvpi_match *match);

/* The same, except for the values of tokens: of a long prompt, looking at them twice costs as much
 * as the walk. Either kvpi_match_refuse gives its status, or that of a later refusal, and E_ARG
 * where that comes first; or the walk has compared the tokens that it hit with those of nodes, and
 * kvpi_match_rest_is_valid says whether the others are valid. */
kvp_status kvpi_match_begin(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                            struct kvpi_match *match);
kvp_status kvpi_match_refuse(const kvp_prompt *prompt, kvp_status status);
int kvpi_match_rest_is_valid(const kvp_cache *cache, const struct kvpi_match *match);

/* Walk the tree: hits, their nodes and blocks into the row of `place`; what it would take. */
void kvpi_match_walk(kvp_cache *cache, uint32_t place, struct kvpi_match *match);

/* The open is refused: undo what the walk held. */
void kvpi_match_let_go(kvp_cache *cache, struct kvpi_match *match);

/* Hash the public units that were not hit. */
void kvpi_match_hash_rest(const kvp_cache *cache, struct kvpi_match *match);

/* Leading public units of the prompt whose nodes are there; hashes them all. */
uint32_t kvpi_match_known(const kvp_cache *cache, struct kvpi_match *match);

/* Slots of state that leave the queue when it is opened. */
uint32_t kvpi_match_slots_needed(const kvp_cache *cache, const struct kvpi_match *match);

/* Slots of state that an open lacks; 0: none. */
uint32_t kvpi_match_slots_missing(const kvp_cache *cache, const struct kvpi_match *match);

/* Copies that a hit inside a block takes: one for each group that keeps it. */
uint32_t kvpi_match_sources(const kvp_cache *cache, const struct kvpi_match *match);

/* Count the blocks; cut a hit inside a block when there is no room for its sources. */
void kvpi_match_admit(kvp_cache *cache, struct kvpi_match *match, kvp_admission *out);

void kvpi_match_info(const kvp_cache *cache, const struct kvpi_match *match, kvp_open_info *out);

#endif
