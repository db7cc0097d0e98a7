/* spill_load: from a request to KV in the host tier, or to the answer that it has to be
 * computed. */
#ifndef KVPI_SPILL_LOAD_LOAD_H
#define KVPI_SPILL_LOAD_LOAD_H

#include "spill/spill_state.h"

/* answers.c */

/* The request of an ask is answered, and nothing more is begun for it. The cache is matched. */
void kvpi_answers_give(kvp_spill *spill, struct kvpi_spill_ask *ask, uint32_t outcome);
/* Its loads have ended, and nothing of it is on its way. */
void kvpi_answers_loaded(kvp_spill *spill, struct kvpi_spill_ask *ask);
/* Does another ask wait for what it loads? */
int kvpi_answers_is_shared(const kvp_spill *spill, const struct kvpi_spill_ask *ask);
/* Frees the asks that are over, keeping the order of the others. */
void kvpi_answers_sweep(kvp_spill *spill);
uint32_t kvpi_answers_take(kvp_spill *spill, kvp_spill_answer *out_answers, uint32_t capacity);
/* What the ask has asked for may not be loaded. */
void kvpi_answers_void(kvp_spill *spill, struct kvpi_spill_ask *ask, uint32_t outcome);

/* choose.c */

/* The tokens of the prefix to load, whole records, and the blocks it needs at most; 0: none.
 * *out_outcome becomes KVP_SPILL_COMPUTE if the store has a prefix longer than the hit; else it is
 * unchanged. */
uint32_t kvpi_choose_prefix(kvp_spill *spill, struct kvpi_spill_ask *ask, uint32_t hit_tokens,
                            uint32_t *out_outcome);

/* reads.c */

/* Take host blocks. KVP_E_AGAIN: not now. */
kvp_status kvpi_reads_begin(kvp_spill *spill, struct kvpi_spill_ask *ask, uint32_t n_tokens);
/* Submit gets; end loads. */
void kvpi_reads_work(kvp_spill *spill);
void kvpi_reads_got(kvp_spill *spill, uint32_t number, uint32_t result);

/* look.c */

/* Submit questions to the store; choose prefixes. */
void kvpi_look_work(kvp_spill *spill);
void kvpi_look_ended(kvp_spill *spill, uint32_t number, uint32_t result);

#endif
