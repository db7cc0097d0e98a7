/* sim: one process in which everything runs together, from one seed.
 *
 *   requests --> scheduler --> step, plan --> message --> mirrors --> steps that are out --> passes
 *                    |                                                                        |
 *                  cache --> events --> a reader's set                           memory of sums
 *                    |                                                                        |
 *             prefills, receivers --> transfers --> links that lie <-- transfers <-- another engine
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
#include <kvpager/transfer.h>
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
    SIM_GROUPS = 3,
    SIM_DRAFTS = 4,
    SIM_KEY = 3, /* tokens of an extra key, of one of two contents */
    SIM_MOVES = 3,
    SIM_STEPS = 4, /* that are out */
    SIM_ROW = SIM_TEXT / 2,
    SIM_MIRRORS = 2,
    SIM_CALLS = 3000,   /* of a configuration */
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
    X(late_copies)                                                                                 \
    X(passes_before_others)                                                                        \
    X(several_out)                                                                                 \
    X(drafts_accepted)                                                                             \
    X(drafts_rejected)                                                                             \
    X(drafts_of_samples)                                                                           \
    X(rings)                                                                                       \
    X(retained)                                                                                    \
    X(keys_hit)                                                                                    \
    X(quotas_hit)                                                                                  \
    X(sizes_hit)                                                                                   \
    X(entries_hit)                                                                                 \
    X(moved_here)                                                                                  \
    X(moved_there)                                                                                 \
    X(moved_requests)                                                                              \
    X(moved_states)                                                                                \
    X(moves_refused)                                                                               \
    X(moves_failed)                                                                                \
    X(moves_cut)                                                                                   \
    X(moves_abandoned)                                                                             \
    X(moves_given_up)                                                                              \
    X(chunks_failed)                                                                               \
    X(chunks_out)                                                                                  \
    X(slow_links)                                                                                  \
    X(lies)                                                                                        \
    X(peer_deaths)                                                                                 \
    X(stops) X(kills) X(power_losses) X(disk_errors) X(flushes) X(new_weights) X(aborted) X(ended)

/* What a run can be made without: kinds of calls, then what a configuration has, or a link does. */
#define SIM_KINDS(X)                                                                               \
    X(submissions)                                                                                 \
    X(steps)                                                                                       \
    X(device)                                                                                      \
    X(store)                                                                                       \
    X(disk_errors)                                                                                 \
    X(reads)                                                                                       \
    X(moves)                                                                                       \
    X(peer_deaths)                                                                                 \
    X(ticks)                                                                                       \
    X(comparisons)                                                                                 \
    X(aborts)                                                                                      \
    X(failures)                                                                                    \
    X(flushes)                                                                                     \
    X(weights)                                                                                     \
    X(other_quotas)                                                                                \
    X(snapshots)                                                                                   \
    X(audits)                                                                                      \
    X(pauses)                                                                                      \
    X(stops)                                                                                       \
    X(kills)                                                                                       \
    X(power)                                                                                       \
    X(lies) X(slow_links) X(slow_disk) X(samples) X(drafts) X(groups) X(states) X(keys) X(quotas)

enum {
#define KIND(name) SIM_OF_##name,
    SIM_KINDS(KIND)
#undef KIND
        SIM_KINDS_N
};

enum {
#define SITUATION(name) SIM_##name,
    SIM_SITUATIONS(SITUATION)
#undef SITUATION
        SIM_SITUATIONS_N
};

/* What is run: calls of one configuration. */
typedef struct sim_run {
    uint64_t seed, config, calls, start;
    uint32_t without;          /* bits of kinds */
    bool is_planted;           /* a copy from the host is not run: shrink.c tests itself */
    bool skips[SIM_CALLS + 1]; /* calls that are not made; the first is 1 */
} sim_run;

typedef struct sim_result {
    verdict verdict;
    uint64_t n_calls; /* that were begun */
    uint64_t seen[SIM_SITUATIONS_N];
} sim_result;

/* A sequence's part of a pass, with all that it reads and writes as it was when the step was made:
 * what becomes of the sequence meanwhile, the pass does not know. */
typedef struct sim_item {
    kvp_seq seq;
    uint64_t tag;
    kvp_request request; /* or none: a prefill */
    uint32_t sample, n_accepted, n_drafts;
    bool is_void; /* it builds on what failed: it writes, and what it reads is not looked at */
    kvp_range range;
    uint64_t salt; /* of namespace and weights */
    int32_t text[SIM_TEXT];
    int32_t rows[SIM_GROUPS][SIM_ROW];
    uint32_t n_rows[SIM_GROUPS];
    int32_t read, writes[KVP_STATE_RING_MAX]; /* slots of state */
    uint32_t n_writes;
} sim_item;

/* A step that is out. */
typedef struct sim_work {
    uint64_t number; /* of the step, or of ordered steps' plan */
    kvp_copy copies[SIM_COPIES];
    uint32_t n_copies;
    kvp_copy store_copies[SIM_STATES]; /* of states that are written, behind the plan's */
    uint32_t n_store_copies;
    sim_item items[SIM_RUNNING];
    uint32_t n_items;
    bool has_copied, has_passed;
    bool is_sched; /* the scheduler's, and it has sequences */
} sim_work;

typedef struct sim_request {
    bool is_here;
    bool waits; /* for the spill's answer, which has this tag: */
    bool is_held;
    uint64_t tag;
    kvp_request handle;
    uint32_t space, prompt, n_samples, max_new;
    kvp_key key; /* type 0: none */
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

/* One engine's part in transfers. */
typedef struct sim_side {
    kvp_cache *cache;
    const sched_memory *memory;
    const sched_states *states;
    const kvp_ns *spaces;
    const uint64_t *weights;
    kvp_memory *parts[SIM_GROUPS + 1]; /* of each group, and of states */
    kvp_sender *sender;
    kvp_receiver *receiver;
} sim_side;

typedef struct sim_end {
    struct sim *sim;
    kvp_link inner;
    uint32_t slow_rate, lie_rate; /* of 100 */
    bool *has_lied;
    uint8_t *lent;
} sim_end;

typedef struct sim_link {
    kvp_loopback *loopback;
    sim_end ends[2]; /* of the sender, of the receiver */
    uint32_t at_sender, at_receiver;
    bool has_lied;
} sim_link;

typedef struct sim_move {
    uint64_t tag; /* 0: there is none */
    bool is_up;   /* from here to the peer */
    bool is_lent; /* the sender's sequence is a request's */
    bool is_excused;
    bool tells_ready;             /* else what is computed is sent */
    uint32_t space, n, n_ordered; /* tokens; those that were ordered to be computed */
    kvp_key key;                  /* type 0: none */
    uint64_t salt, begun;
    kvp_seq seqs[2]; /* of the sender, of the receiver; 0: closed */
    uint64_t ids[2]; /* of their transfers; 0: closed */
    int32_t text[SIM_TEXT];
} sim_move;

typedef struct sim_peer {
    kvp_cache *cache; /* NULL: it has not begun */
    sched_memory memory;
    sched_states states;
    kvp_ns spaces[SIM_SPACES];
    uint64_t weights[SIM_SPACES]; /* that it knows of */
} sim_peer;

typedef struct sim {
    const sim_run *run;
    uint64_t seed, random, now, n_calls, n_tags, epoch;
    uint64_t *seen; /* [SIM_SITUATIONS_N] */
    verdict verdict;
    int32_t documents[SIM_DOCUMENTS][SIM_PROMPT];
    kvp_config config;
    kvp_sched_config sched_config;
    uint32_t entry; /* tokens of an entry of the first group */
    uint32_t record_blocks;
    uint64_t store_bytes;
    uint32_t
        slow_rate; /* of 100 looks at the disk, those that find nothing done; 0: it is at once */
    struct sim_disk *disk;
    snap saved;                   /* n 0: none */
    uint64_t weights[SIM_SPACES]; /* of each namespace: its epoch in the store */
    sim_peer peer;
    sim_side sides[2]; /* here, there */
    sim_link links[2]; /* from here, from there */
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
    sim_work *work; /* of the scheduler's step that is out, or NULL */
    sim_work works[SIM_STEPS];
    sim_work *out[SIM_STEPS]; /* [n_out] those that are out, as they began */
    uint32_t n_out;
    uint64_t n_plans;
    sim_move moves[SIM_MOVES];
} sim;

static inline bool sim_percent(sim *s, uint32_t p)
{
    return random_percent(&s->random, p);
}

static inline uint32_t sim_below(sim *s, uint64_t n)
{
    return random_below(&s->random, n);
}

static inline bool sim_has(const sim *s, uint32_t kind)
{
    return (s->run->without >> kind & 1) == 0;
}

/* sim.c: one configuration, in this process. */
void sim_run_config(const sim_run *run, sim_result *result);

/* runs.c: a process of its own, which a defect may end; quiet, or it says why. */
bool sim_try(const sim_run *run, sim_result *result, bool is_quiet);
sim_result *sim_share_result(void);
void sim_tell_run(const sim_run *run); /* the command that does it again */

/* shrink.c */
void sim_shrink(sim_run *run, const sim_result *failed);
int sim_test_shrink(void);

/* Whether the call went well; else that is the verdict. */
bool sim_ok(sim *s, const char *call, kvp_status status);

/* requests.c: what is asked, and steps. */
kvp_prompt sim_prompt(const int32_t *tokens, uint32_t n, const kvp_key *key, uint64_t tag);
void sim_draw_key(sim *s, uint32_t n_tokens, kvp_key *out_key);
void sim_mix_key(const kvp_key *key, int32_t *text);
void sim_submit(sim *s);
void sim_abort(sim *s);
void sim_abort_all(sim *s, uint32_t space);
void sim_advance(sim *s); /* make a step, or finish the one that is out */
void sim_fail(sim *s);
void sim_tick(sim *s);
sim_request *sim_find(sim *s, kvp_request handle);
void sim_answered(sim *s, const kvp_spill_answer *answer);

/* device.c: steps that are out, late. */
sim_work *sim_work_begin(sim *s); /* with the plan; NULL: a verdict */
void sim_work_done(sim *s, sim_work *work);
void sim_work_failed(sim *s, sim_work *work);
bool sim_move_on(sim *s); /* one plan, or one pass; false: all have run */
void sim_settle(sim *s);  /* all are done but the scheduler's */
void sim_device(sim *s);  /* a move, or one is done */
uint64_t sim_salt(uint64_t space, uint64_t weights);
uint64_t sim_state_after(const sim_item *item, uint32_t n);
void sim_pass(sim *s, const sched_memory *memory, const sched_states *states, const sim_item *items,
              uint32_t n);
void sim_compare_kv(sim *s, const sched_memory *memory, const sim_item *item, uint32_t group);

/* drafts.c: of a step of the scheduler. */
void sim_drafts(sim *s, sim_work *work);

/* workers.c: messages. */
void sim_workers_begin(sim *s);
void sim_workers_end(sim *s);
void sim_tell(sim *s, sim_work *work); /* its message; then its items */

/* draw.c: configurations. */
void sim_draw(sim *s);
void sim_other_quota(sim *s, uint32_t space);

/* moves.c: KV that goes to the other engine, or comes from there. */
void sim_moves(sim *s);
void sim_moves_drop(sim *s, uint32_t space); /* SIM_SPACES: all */
void sim_moves_lose(sim *s, uint32_t gone);  /* that side has died */
void sim_moves_cut(sim *s, const kvp_seq *cut, uint32_t n);
void sim_moves_again(sim *s, const sim_item *item);

/* peer.c: both engines' parts, the other engine. */
void sim_sides_begin(sim *s);
void sim_sides_end(sim *s, bool is_last); /* this engine's; the peer's, too */
void sim_peer_dies(sim *s);
void sim_peer_learns(sim *s, uint32_t space);

/* link.c: between the two. */
bool sim_link_begin(sim *s, sim_link *link, kvp_link *out_ends);
void sim_link_end(sim_link *link);

/* reader.c: events. */
void sim_reader_begin(sim *s);
void sim_reader_end(sim *s);
void sim_read(sim *s);
void sim_compare(sim *s); /* the reader's set and the cache's */

/* disk.c: store, spill, snapshots. */
void sim_store_begin(sim *s);
void sim_store_work(sim *s);
void sim_disk_error(sim *s);    /* a write will fail */
void sim_spill_reports(sim *s); /* before a step is finished, and after: what is sealed */
void sim_flush_store(sim *s);   /* write what can be, and stop */
void sim_new_weights(sim *s, uint32_t space); /* of which no request is here */
void sim_save(sim *s);
void sim_load(sim *s); /* into a cache in which nothing was opened */

#endif
