/* shim.h: what stands between cffi and the library.
 *
 * A cache needs exclusive access, and Python code comes from many threads: cffi lets go of the
 * interpreter's lock during a call, and nothing then keeps another thread from a second one. So
 * everything that the library creates is held in a kvpy_object, and each call goes through a guard
 * that refuses the second caller (KVP_E_BUSY) and calls after the close (KVPY_E_CLOSED).
 * What lives on a cache (a scheduler, a sender) uses the cache's lock.
 *
 *   lock     0, or 1 while a call runs     readers   calls now inside that need no lock (counters)
 *   pointer  NULL: closed. Set to NULL under the lock, and then waits until no reader is inside
 *
 * generate.py writes a guarded twin kvpg_X of every public function kvp_X that takes such an
 * object, or that creates what an object holds. The kvpy_ functions are written by hand: they take
 * apart a struct that would cost more to fill in from Python than the call, and check lengths,
 * which only Python knows. The calls of calls.c do without cffi. */
#ifndef KVPY_SHIM_H
#define KVPY_SHIM_H

#include "object.h"

#include <kvpager/attention.h>
#include <kvpager/all.h>
#include <kvpager/memory.h>
#include <kvpager/meta.h>
#include <kvpager/oplog.h>
#include <kvpager/sched.h>
#include <kvpager/seed.h>
#include <kvpager/snapshot.h>
#include <kvpager/transfer.h>
#include <kvpager/wire.h>

enum {
    KVPY_CACHE = 0,
    KVPY_SCHED = 1,
    KVPY_SENDER = 2,
    KVPY_MIRROR = 3,
    KVPY_COPIER = 4,
    KVPY_OPLOG = 5,
    KVPY_MEMORY = 6,
    KVPY_KV_SENDER = 7,
    KVPY_KV_RECEIVER = 8,
    KVPY_TEAM = 9,
    KVPY_LOOPBACK = 10,
    KVPY_SHM = 11,
    KVPY_TCP = 12
};

/* ------------------------------------------------------------------------------- the cache */

int kvpy_extend_many(kvpy_object *object, const kvp_seq *seqs, uint32_t n_seqs,
                     const int32_t *tokens, uint64_t n_values, const uint32_t *n_tokens,
                     uint32_t reserve_tokens, int32_t *statuses, int rings);
int kvpy_can_extend(kvpy_object *object, const kvp_seq *seqs, uint32_t n_seqs,
                    const uint32_t *n_tokens, uint32_t reserve_tokens, int rings,
                    kvp_admission *out);
int kvpy_fill_many(kvpy_object *object, const kvp_seq *seqs, uint32_t n_seqs, const int32_t *tokens,
                   uint64_t n_values, const uint32_t *n_tokens, int32_t *statuses);
int kvpy_window(kvpy_object *object, uint64_t seq, uint32_t group, uint32_t sink_tokens,
                uint32_t recent_tokens, kvp_released *out);
int kvpy_evicted(kvpy_object *object, kvp_evicted *out, uint32_t capacity, uint32_t *out_n);
int kvpy_record_start(kvpy_object *object, const char *path);
int kvpy_record_stop(kvpy_object *object);

/* ------------------------------------------------------------------------------- metadata */

int kvpy_measure(kvpy_object *object, const kvp_seq *seqs, uint32_t n_seqs, uint32_t group,
                 const uint32_t *begin, const uint32_t *n_tokens, kvp_meta_sizes *out);

/* ------------------------------------------------------------------------------- scheduler */

/* A step, or what a finish ended, with copies of its arrays behind it: those of the scheduler may
 * be gone as soon as another thread is let in. */
typedef struct kvpy_step {
    kvp_step step;
} kvpy_step;

/* A step's place, which has its destructor before there is a step; once for each place. */
int kvpy_sched_step(kvpy_object *object, kvpy_step **place);
void kvpy_step_free(kvpy_step **place);
int kvpy_sched_finish(kvpy_object *object, const int32_t *tokens, const uint8_t *ended,
                      uint32_t n_sampled, kvp_ended *out_ended, uint32_t capacity,
                      uint32_t *out_n_ended);

/* Of a step with drafts: lengths of arrays are told, and must be the step's. */
typedef struct kvpy_results {
    const int32_t *tokens;
    const uint32_t *counts;
    const uint8_t *ended; /* NULL: n_ended does not matter */
    uint32_t n_tokens;
    uint32_t n_counts;
    uint32_t n_ended;
} kvpy_results;

int kvpy_sched_finish_drafts(kvpy_object *object, const kvpy_results *results, kvp_ended *out_ended,
                             uint32_t capacity, uint32_t *out_n_ended);
int kvpy_sched_reorder(kvpy_object *object, uint64_t request, const uint32_t *parents,
                       const int32_t *tokens, uint32_t n_samples);
/* out_requests has room for max_loading; what out_expired points to is the scheduler's. */
int kvpy_sched_tick(kvpy_object *object, uint64_t now, uint64_t *out_requests,
                    kvp_sched_expired *out_expired);

/* ------------------------------------------------------------------------------- snapshots */

int kvpy_snapshot_save(kvpy_object *object, const kvp_snapshot_options *options, const char *path,
                       int *out_error);
int kvpy_snapshot_load(kvpy_object *object, const kvp_snapshot_options *options, const char *path,
                       kvp_snapshot_report *out);
int kvpy_snapshot_peek(const char *path, kvp_snapshot_info *out);

/* Of an arena that lies in memory, and of one in a file, which is read and not mapped. */
int kvpy_arena_inspect(const void *bytes, size_t n_bytes, const kvp_arena_options *options,
                       kvp_arena_report *out);
int kvpy_arena_inspect_file(const char *path, kvp_arena_options *options, kvp_arena_report *out);

/* ------------------------------------------------------------------------------- transfers */

/* The cache is `object`'s, whatever config says. */
int kvpy_sender_create(kvpy_object *object, kvp_transfer_config *config, kvpy_object *out_sender);
int kvpy_receiver_create(kvpy_object *object, kvp_transfer_config *config,
                         kvpy_object *out_receiver);

/* One message, copied. KVP_E_TOO_LONG: more than the link takes, or than capacity. */
int kvpy_link_post(const kvp_link *link, const void *bytes, size_t n_bytes);
int kvpy_link_take(const kvp_link *link, void *out_bytes, size_t capacity, size_t *out_n_bytes);

/* ------------------------------------------------------------------------------- DLPack */

/* The structs of DLPack's C interface, version 0.x, which every library reads. */
typedef struct kvpy_dl_tensor {
    void *data;
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} kvpy_dl_tensor;

typedef struct kvpy_dl_managed {
    kvpy_dl_tensor tensor;
    void *manager;
    void (*deleter)(struct kvpy_dl_managed *self);
} kvpy_dl_managed;

/* A managed tensor of up to 8 dimensions; `owner` is the address of a Python object to which
 * it takes a reference, and gives back when it is deleted. NULL without memory. */
kvpy_dl_managed *kvpy_dl_new(uintptr_t owner, void *data, uint32_t type, int ndim,
                             const int64_t *shape, const int64_t *strides);
void kvpy_dl_delete(kvpy_dl_managed *managed);
void kvpy_dl_capsule_free(void *capsule); /* of a PyCapsule "dltensor" that was not taken */

#endif
