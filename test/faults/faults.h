/* faults: random runs in which everything that can fail fails, once, at every place.
 *
 * A *seam* is a kind of thing that the outside does for the library and that can fail: an
 * allocation, a mapping, a thread, a write, a read, a message. A *scene* is a random run, decided
 * by a seed, that makes each of its calls by CALL and ends in a digest of what came of it. The
 * sweep runs a scene once with nothing failing, which counts how often each seam was asked; then,
 * for each seam and every n, once more in a process of its own with the n-th request refused. Each
 * of these must
 *
 *   - have been refused exactly once,
 *   - get the documented status from the call in which it happened,
 *   - find everything observable as it was (observe.c), and no memory or thread that is kept,
 *   - go on, the same call being made again, to the same digest,
 *   - pass the whole audit, and return all that it took.
 */
#ifndef KVP_TEST_FAULTS_H
#define KVP_TEST_FAULTS_H

#include "world.h"

#include <stdbool.h>

/* X(name) */
#define SEAM_TABLE(X)                                                                              \
    X(allocation)                                                                                  \
    X(mapping)                                                                                     \
    X(thread)                                                                                      \
    X(write)                                                                                       \
    X(read)                                                                                        \
    X(get)                                                                                         \
    X(put)                                                                                         \
    X(step)                                                                                        \
    X(message_lost)                                                                                \
    X(message_twice)                                                                               \
    X(message_damaged)                                                                             \
    X(message_swapped)                                                                             \
    X(message_cut)                                                                                 \
    X(link_broken)                                                                                 \
    X(link_busy)                                                                                   \
    X(lend)                                                                                        \
    X(post)                                                                                        \
    X(take)

#define SEAM_ENUM(name) SEAM_##name,
typedef enum seam { SEAM_TABLE(SEAM_ENUM) SEAMS } seam;
#undef SEAM_ENUM

typedef struct scene {
    const char *name;
    void (*run)(uint64_t seed);
    uint32_t seams; /* 1 << seam: those that must have been asked */
} scene;

extern const scene scenes[];
extern const uint32_t n_scenes;

void scene_calls(uint64_t seed);
void scene_log(uint64_t seed);
void scene_snapshot(uint64_t seed);
void scene_sched(uint64_t seed);
void scene_wire(uint64_t seed);
void scene_transfer(uint64_t seed);
void scene_memory(uint64_t seed);
void scene_attention(uint64_t seed);

/* A seam is asked; true: this time it fails. */
bool fault_comes(seam which);

/* Whether the fault of this run is of this seam; and whether it has happened. */
bool fault_is(seam which);
bool fault_happened(void);

/* For seams that others count: the n-th that is to fail, from 1; 0: none. Then tell how often it
 * was asked, and whether it failed. */
uint32_t fault_wanted(seam which);
void fault_tell(seam which, uint32_t n_asked, bool has_failed);

/* While this is set nothing is counted and nothing fails: what a scene needs beforehand. */
extern bool fault_quiet;

/* Add to the digest. */
void fault_mix(const void *bytes, size_t n);
void fault_mix_number(uint64_t number);

/* Between fault_begin and fault_end allocations, mappings and threads are counted, and may fail.
 * fault_end says whether the call has to be made again: it was refused, with this status and no
 * effect; KVP_OK: the fault does not concern it. w may be NULL: there is no cache yet. */
typedef struct fault_call {
    const world *w;
    observed before;
    bool is_watched, had_happened;
    size_t held, mapped, threads;
} fault_call;

fault_call fault_begin(const world *w);
bool fault_end(fault_call *call, kvp_status status, kvp_status refused);

/* Make a call that succeeds, or is refused by the fault and then made again. */
#define CALL(w, refused, call)                                                                     \
    do {                                                                                           \
        fault_call call_ = fault_begin(w);                                                         \
        kvp_status status_ = call;                                                                 \
        if (fault_end(&call_, status_, refused)) {                                                 \
            call_ = fault_begin(w);                                                                \
            status_ = call;                                                                        \
            (void)fault_end(&call_, status_, KVP_OK);                                              \
        }                                                                                          \
        assert_int_equal(status_, KVP_OK);                                                         \
    } while (0)

/* wrap.c: what the library holds of the system. */
typedef struct wrap_held {
    size_t allocations, mapped_bytes, threads;
} wrap_held;

extern bool wrap_armed; /* the library is called: its requests are counted */
wrap_held wrap_now(void);
void wrap_leak(void); /* a defect on purpose: an allocation that nobody frees */

/* Defects on purpose, each of which the sweep must find. */
typedef enum plant {
    PLANT_NOTHING = 0,
    PLANT_GRANTED,       /* what was to be refused is granted */
    PLANT_LEAK,          /* a refused call keeps memory */
    PLANT_CHANGED,       /* a refused call has changed something */
    PLANT_CHANGED_LATER, /* it shows only at the end of the run */
    PLANTS
} plant;

#endif
