/* The store of a replay: it connects a cache, a spill and a store, and has the host tier's memory.
 *
 * States of hybrid models are made like KV, from the hash of the content that they come after.
 *
 * The KV of a block is made from the hash of its content. Copies to the host write it, the store
 * keeps it, and copies from the host compare every byte.
 *
 * One request after the other, kvpi_attach_fetch waits for each load. Under load, the caller asks
 * for requests by tag, takes the answers, and hands over the copies of its steps' plans; time is
 * the caller's. */
#ifndef KVPI_STORE_ATTACH_H
#define KVPI_STORE_ATTACH_H

#include <kvpager/all.h>

#include "tool/store/modelled.h"
#include "tool/store/replay_report.h"
#include "tool/watch/watch.h"

typedef struct kvpi_attach_options {
    const char *url;                              /* as it was given. NULL: there is no store */
    const char *farther[KVP_STORE_STACK_MAX - 1]; /* [n_farther] URLs behind it, nearest first */
    uint32_t n_farther;
    kvpi_modelled_options model; /* size 0: a real one, by its URL */
    uint64_t block_bytes;        /* of KV */
    uint64_t state_bytes;        /* of a recurrent state; 0: there is none */
    uint64_t record_blocks;      /* 0: the store chooses */
    uint64_t compute_tokens_s;   /* of prompts, under load. 0: one request after the other: what the
                                  store has is always loaded */
    bool through;                /* write what is sealed, not only what is hit */
    bool watched;                /* note what the store has, for kvpi_attach_see */
} kvpi_attach_options;

/* Begun loads, at most: kvp_config.max_loads of a cache with a store. */
#define KVPI_ATTACH_LOADS 64u

/* Recurrent states that are being written, at most. */
#define KVPI_ATTACH_STATES 32u

/* Requests that wait for an answer, at most. */
#define KVPI_ATTACH_ASKS 64u

typedef struct kvpi_attach kvpi_attach;

/* What a cache with a host tier needs for this store; nothing without one. A state that is written
 * has a sequence until it is copied. */
static inline void kvpi_attach_configure(const kvpi_attach_options *options, kvp_config *config)
{
    if (options->url == NULL)
        return;
    config->max_loads = KVPI_ATTACH_LOADS;
    config->max_seqs += options->state_bytes > 0 ? KVPI_ATTACH_STATES : 0;
}

/* Open a store for a cache with a host tier, configured for it.
 *
 * Takes:   report   filled until the store is closed
 * Gives:   out      on success only
 * Returns: TOOL_OK; TOOL_FAILED, a message was printed
 */
int kvpi_attach_open(const kvpi_attach_options *options, kvp_cache *cache, kvp_ns ns,
                     kvpi_store_report *report, kvpi_attach **out);

/* Tokens of a record: of a window, one is written if the sequence is reported when so many times n
 * tokens are computed. */
uint32_t kvpi_attach_record_tokens(const kvpi_attach *attach);

/* Load what the store has of a prompt, and wait for it. Waits before for the puts of earlier
 * requests, until only a few have not ended: a replay is faster than any engine.
 *
 * Gives:   out_outcome   KVP_SPILL_... of the answer
 */
kvp_status kvpi_attach_fetch(kvpi_attach *attach, const kvp_prompt *prompt, uint32_t *out_outcome);

/* What leaves a model from now on leaves it at this time, in the caller's unit. */
void kvpi_attach_clock(kvpi_attach *attach, uint64_t now);

/* Tell what the store has of a prompt now, without asking it. Of one that was opened with
 * kvpi_attach_options.watched.
 *
 * Takes:   outcome   of its answer; KVP_SPILL_WAITS: it did not come in time
 * Gives:   out       until the next call
 */
kvp_status kvpi_attach_see(kvpi_attach *attach, const int32_t *tokens, uint32_t n_tokens,
                           uint32_t outcome, kvpi_watch_store *out);

/* A sequence was opened with a hit, or is about to be closed, or its state was kept: write what is
 * worth it. */
kvp_status kvpi_attach_hit(kvpi_attach *attach, kvp_seq seq, uint32_t hit_tokens);
kvp_status kvpi_attach_sealed(kvpi_attach *attach, kvp_seq seq);

/* Take the plan and carry it out, as far as it is about the host. */
kvp_status kvpi_attach_run_plan(kvpi_attach *attach);

/* Carry out a plan that the caller has taken, and what the spill copies behind it.
 *
 * Gives:   out_states   states that the spill copied to the host
 */
kvp_status kvpi_attach_copies(kvpi_attach *attach, const kvp_copy *copies, uint32_t n,
                              uint64_t *out_states);

/* It is so late, under load; what leaves a model from now on leaves it then, in milliseconds. */
void kvpi_attach_at(kvpi_attach *attach, uint64_t now_ns);

/* Ask what the store has of a prompt, under load.
 *
 * Gives:   out_outcome   KVP_SPILL_WAITS: an answer with this tag will be among the answers; else
 *                        none will, go on
 * Returns: KVP_OK; KVP_E_AGAIN: KVPI_ATTACH_ASKS wait
 */
kvp_status kvpi_attach_ask(kvpi_attach *attach, const kvp_prompt *prompt, uint64_t tag,
                           uint32_t *out_outcome);

/* Work, until nothing more happens now. Waits before until a real store has few operations left: a
 * replay is faster than any engine.
 *
 * Gives:   out_answers    [KVPI_ATTACH_ASKS], [out_n] to the requests that were answered
 *          out_happened   whether anything happened
 */
kvp_status kvpi_attach_work(kvpi_attach *attach, kvp_spill_answer *out_answers, uint32_t *out_n,
                            bool *out_happened);

/* Wait until an operation of a real store has ended, or timeout_ns have passed. */
void kvpi_attach_wait(const kvpi_attach *attach, uint64_t timeout_ns);

/* When the next operation of a model ends; KVPI_MODELLED_NEVER: none is on its way. */
uint64_t kvpi_attach_due(const kvpi_attach *attach);

/* Wait for the puts, for ten seconds; give up the others; close the store. The cache must still be
 * there. NULL is ignored. */
void kvpi_attach_close(kvpi_attach *attach);

#endif
