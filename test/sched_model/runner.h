/* A run of kvp_sched_model: the scheduler, its cache and memory, and the oracle. */
#ifndef SCHED_MODEL_RUNNER_H
#define SCHED_MODEL_RUNNER_H

#include "oracle.h"

#include "sched_memory.h"
#include "sched_states.h"

#include <inttypes.h>
#include <kvpager/lend.h>

enum { MAX_COPIES = 512, N_OWN = 2, N_LOADS = 2 };

/* A load of a store; number 0: none. */
struct loading {
    kvp_load load;
    uint32_t n_tokens; /* of its prefix */
    int32_t text[MAX_TEXT];
    int32_t blocks[MAX_TEXT];
};

struct run {
    uint64_t seed;
    uint64_t config_index;
    uint64_t n_calls; /* of this configuration */
    uint64_t random;
    uint64_t drafts_random;
    uint64_t reclaim_random; /* its own: what other calls do stays the same */
    kvp_config cache_config;
    kvp_sched_config config;
    size_t arena_bytes;
    void *arena;
    void *copy;
    kvp_cache *cache;
    kvp_sched *sched;
    kvp_ns ns;
    oracle o;
    sched_memory memory;
    sched_states states;
    int is_out;
    kvp_step step;
    kvp_copy copies[MAX_COPIES];
    uint32_t n_copies;
    uint64_t number; /* of the overlapped step */
    kvp_seq own[N_OWN];
    uint64_t own_step;
    uint64_t n_submitted;
    uint64_t n_refused;
    int is_beam[MAX_REQUESTS];
    uint64_t now; /* the caller's clock */
    struct loading loads[N_LOADS];
};

uint32_t draw(struct run *run, uint32_t below);
void fail(const struct run *run, const char *file, int line, const char *what);

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail(run, __FILE__, __LINE__, #condition);                                             \
    } while (0)

/* runner.c: handles that the scheduler has opened in between; all: and changed. */
void learn_handles(struct run *run, int all);

/* report.c: situations that were met. Gives 1 when one should have been, and was not. */
int report(const uint64_t *met, uint64_t n_calls, int is_verbose);

/* What a step is said to have sampled. */
struct results {
    int32_t tokens[MAX_SEQS * (1 + KVP_SCHED_DRAFTS_MAX)];
    uint32_t counts[MAX_SEQS]; /* of those that decode, when there are drafts */
    uint8_t ended[MAX_SEQS];
};

/* drafts.c: drafts, and what steps sample. */
void drafts_draw(struct run *run);
void drafts_draw_results(struct run *run, struct results *results);
kvp_status drafts_finish(struct run *run, const struct results *results, kvp_step_end *out_end);
kvp_range drafts_range(const struct run *run, uint32_t k, int is_writing);
void drafts_compare(struct run *run);
void drafts_compare_stats(struct run *run, const kvp_sched_stats *stats);

/* states.c: recurrent state. */
void states_draw(struct run *run);
void states_compare(struct run *run, int all);
void states_check_step(struct run *run);
void states_spoil(struct run *run);
void states_are_reordered(struct run *run, request *r);

/* loading.c: calls on requests that may be held, and loads of a store. */
void loading_call(struct run *run);
void loading_plan_has_run(struct run *run);
void loading_cancel_all(struct run *run);
void loading_release_all(struct run *run);

#endif
