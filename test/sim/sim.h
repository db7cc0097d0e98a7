/* sim: one process in which everything runs together, from one seed.
 *
 *   requests --> scheduler --> step, plan --> message --> mirrors --> a pass over their rows
 *                    |                                                  |
 *                  cache --> events --> a reader's set                memory of sums
 *                    |                                                  |
 *                  spill --> store --> a disk that outlives the process
 *                    |
 *                snapshots: bytes that do, too
 *
 * A life ends with a stop, a kill or a loss of power: all memory goes, the next life begins with
 * what is on the disk and in the last snapshot. A slot of the memory (sched_memory.h) has a sum of
 * all tokens up to its own, the namespace, its weights and the layer group; a pass compares each
 * that attention would read, and the recurrent state. So whatever brought a hit there, it must be
 * the KV of these tokens.
 */
#ifndef KVP_TEST_SIM_H
#define KVP_TEST_SIM_H

#include <kvpager/all.h>
#include <kvpager/sched.h>
#include <kvpager/spill.h>
#include <kvpager/wire.h>

#include "../shadow/random.h"
#include "sched_states.h"
#include "snaps.h"

enum {
    SIM_REQUESTS = 10,
    SIM_SAMPLES = 3,
    SIM_IDS = SIM_REQUESTS * SIM_SAMPLES, /* of workers: a request's place and the sample */
    SIM_PROMPT = 56,
    SIM_NEW = 24,
    SIM_TEXT = SIM_PROMPT + SIM_NEW,
    SIM_RUNNING = 8,
    SIM_COPIES = 512,
    SIM_STATES = 4, /* that are written to the store at once */
    SIM_DOCUMENTS = 5,
    SIM_SPACES = 2,
    SIM_MIRRORS = 2,
    SIM_BYTES = 1 << 16 /* of a message */
};

/* What must happen in long runs. */
#define SIM_SITUATIONS(X)                                                                          \
    X(hits)                                                                                        \
    X(records_loaded)                                                                              \
    X(records_written)                                                                             \
    X(held)                                                                                        \
    X(preempted)                                                                                   \
    X(swapped)                                                                                     \
    X(states_hit)                                                                                  \
    X(states_written)                                                                              \
    X(states_loaded)                                                                               \
    X(failed_steps)                                                                                \
    X(full_messages)                                                                               \
    X(missed_messages)                                                                             \
    X(behind)                                                                                      \
    X(sets_compared)                                                                               \
    X(snapshots)                                                                                   \
    X(blocks_restored)                                                                             \
    X(stops) X(kills) X(power_losses) X(disk_errors) X(flushes) X(new_weights) X(aborted) X(ended)

enum {
#define SITUATION(name) SIM_##name,
    SIM_SITUATIONS(SITUATION)
#undef SITUATION
        SIM_SITUATIONS_N
};

typedef struct sim_request {
    bool is_here;
    bool waits; /* for the spill's answer, which has this tag: */
    bool is_held;
    uint64_t tag;
    kvp_request handle;
    uint32_t space, prompt, n_samples, max_new;
    int32_t text[SIM_SAMPLES][SIM_TEXT];
    uint32_t n[SIM_SAMPLES];
    bool has_ended[SIM_SAMPLES];
} sim_request;

/* What a reader of events has. */
typedef struct sim_unit {
    kvp_hash hash, root;
    uint32_t tier, group;
} sim_unit;

typedef struct sim_reader {
    sim_unit *units; /* [n], room for n_max */
    uint32_t n, n_max;
    uint64_t next;     /* event */
    kvp_event *events; /* [n_max] */
} sim_reader;

typedef struct sim_workers {
    kvp_wire_config config;
    kvp_wire_sender *sender;
    kvp_wire_mirror *mirrors[SIM_MIRRORS];
    uint64_t told[SIM_IDS]; /* handles' bits; 0: none */
    bool wants_full;
    uint8_t bytes[SIM_BYTES];
} sim_workers;

typedef struct sim {
    uint64_t seed, random, now, n_calls, n_tags, epoch;
    uint64_t *seen; /* [SIM_SITUATIONS_N] */
    bool trace;
    verdict verdict;
    int32_t documents[SIM_DOCUMENTS][SIM_PROMPT];
    kvp_config config;
    kvp_sched_config sched_config;
    uint32_t record_blocks;
    uint64_t store_bytes;
    uint32_t
        slow_rate; /* of 100 looks at the disk, those that find nothing done; 0: it is at once */
    struct sim_disk *disk;
    snap saved;                   /* n 0: none */
    uint64_t weights[SIM_SPACES]; /* of each namespace: its epoch in the store */
    /* Of a life: */
    kvp_cache *cache;
    kvp_sched *sched;
    kvp_store *store;
    kvp_spill *spill;
    kvp_ns spaces[SIM_SPACES];
    sched_memory memory;
    sched_states states; /* n 0: there is no recurrent state */
    sim_request requests[SIM_REQUESTS];
    sim_workers workers;
    sim_reader reader;
    kvp_step step;
    bool is_out;
    kvp_copy copies[SIM_COPIES]; /* of the step */
    uint32_t n_copies;
    kvp_copy store_copies[SIM_STATES]; /* of states that are written, behind the plan's */
    uint32_t n_store_copies;
    uint64_t step_number, n_plans;
} sim;

static inline bool sim_percent(sim *s, uint32_t p)
{
    return random_percent(&s->random, p);
}

static inline uint32_t sim_below(sim *s, uint64_t n)
{
    return random_below(&s->random, n);
}

/* Whether the call went well; else that is the verdict. */
bool sim_ok(sim *s, const char *call, kvp_status status);

/* requests.c: what is asked, and steps. */
void sim_submit(sim *s);
void sim_abort(sim *s);
void sim_abort_all(sim *s, uint32_t space);
void sim_advance(sim *s); /* make a step, or finish the one that is out */
void sim_fail(sim *s);
void sim_tick(sim *s);
sim_request *sim_find(sim *s, kvp_request handle);
void sim_answered(sim *s, const kvp_spill_answer *answer);

/* workers.c: messages. */
void sim_workers_begin(sim *s);
void sim_workers_end(sim *s);
void sim_tell(sim *s);                                 /* the step's message */
bool sim_pass(sim *s, uint32_t item, bool is_reading); /* of an item of the step, by the mirror */
void sim_spoil_states(sim *s); /* the pass failed: what it leaves in its slots is no state */

/* reader.c: events. */
void sim_reader_begin(sim *s);
void sim_reader_end(sim *s);
void sim_read(sim *s);
void sim_compare(sim *s); /* the reader's set and the cache's */

/* disk.c: store, spill, snapshots. */
void sim_store_begin(sim *s);
void sim_store_work(sim *s);
void sim_spill_reports(sim *s); /* before a step is finished, and after: what is sealed */
void sim_flush_store(sim *s);   /* write what can be, and stop */
void sim_new_weights(sim *s, uint32_t space); /* of which no request is here */
void sim_save(sim *s);
void sim_load(sim *s); /* into a cache in which nothing was opened */

#endif
