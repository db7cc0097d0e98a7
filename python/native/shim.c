/* shim.c: the calls that are written by hand. See shim.h. */
#define _POSIX_C_SOURCE 200809L
#define Py_LIMITED_API  0x030a0000
#include <Python.h>

#include "shim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------- objects */

void kvpy_destroy(void *pointer, int kind)
{
    switch (kind) {
    case KVPY_CACHE: kvp_cache_destroy(pointer); break;
    case KVPY_SCHED: kvp_sched_destroy(pointer); break;
    case KVPY_SENDER: kvp_wire_sender_destroy(pointer); break;
    case KVPY_MIRROR: kvp_wire_mirror_destroy(pointer); break;
    case KVPY_COPIER: kvp_copier_destroy(pointer); break;
    case KVPY_OPLOG: kvp_oplog_close(pointer); break;
    case KVPY_MEMORY: kvp_memory_destroy(pointer); break;
    case KVPY_KV_SENDER: kvp_sender_destroy(pointer); break;
    case KVPY_KV_RECEIVER: kvp_receiver_destroy(pointer); break;
    case KVPY_TEAM: kvp_attention_team_destroy(pointer); break;
    case KVPY_LOOPBACK: kvp_loopback_destroy(pointer); break;
    case KVPY_SHM: kvp_shm_close(pointer); break;
    case KVPY_TCP: kvp_tcp_close(pointer); break;
    default: break;
    }
}

/* ------------------------------------------------------------------------------- the cache */

static void *cache_of(kvpy_object *object)
{
    return atomic_load_explicit(&object->pointer, memory_order_relaxed);
}

/* Whether there are as many values as the counts say. */
static int values_fit(const uint32_t *n_tokens, uint32_t n_seqs, uint64_t n_values)
{
    uint64_t sum = n_seqs;
    if (n_tokens != NULL) {
        sum = 0;
        for (uint32_t i = 0; i < n_seqs; i++)
            sum += n_tokens[i];
    }
    return sum == n_values;
}

int kvpy_extend_many(kvpy_object *object, const kvp_seq *seqs, uint32_t n_seqs,
                     const int32_t *tokens, uint64_t n_values, const uint32_t *n_tokens,
                     uint32_t reserve_tokens, int32_t *statuses, int rings)
{
    _Static_assert(sizeof(kvp_status) == sizeof(int32_t), "statuses are an array of i32");
    _Static_assert(sizeof(kvp_seq) == sizeof(uint64_t), "handles are an array of u64");
    if (tokens != NULL && !values_fit(n_tokens, n_seqs, n_values))
        return KVPY_E_LENGTH;
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = n_seqs,
                             .flags = (statuses != NULL ? KVP_BATCH_EACH : 0) |
                                      (rings ? KVP_BATCH_RING : 0),
                             .seqs = seqs,
                             .n_tokens = n_tokens,
                             .tokens = tokens,
                             .reserve_tokens = reserve_tokens,
                             .statuses = (kvp_status *)(void *)statuses};
    status = kvp_seq_extend_many(cache_of(object), &batch);
    kvpy_leave(object);
    return status;
}

int kvpy_can_extend(kvpy_object *object, const kvp_seq *seqs, uint32_t n_seqs,
                    const uint32_t *n_tokens, uint32_t reserve_tokens, int rings,
                    kvp_admission *out)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = n_seqs,
                             .flags = rings ? KVP_BATCH_RING : 0,
                             .seqs = seqs,
                             .n_tokens = n_tokens,
                             .reserve_tokens = reserve_tokens};
    status = kvp_cache_can_extend(cache_of(object), &batch, out);
    kvpy_leave(object);
    return status;
}

int kvpy_fill_many(kvpy_object *object, const kvp_seq *seqs, uint32_t n_seqs, const int32_t *tokens,
                   uint64_t n_values, const uint32_t *n_tokens, int32_t *statuses)
{
    if (!values_fit(n_tokens, n_seqs, n_values))
        return KVPY_E_LENGTH;
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = n_seqs,
                             .flags = statuses != NULL ? KVP_BATCH_EACH : 0,
                             .seqs = seqs,
                             .n_tokens = n_tokens,
                             .tokens = tokens,
                             .statuses = (kvp_status *)(void *)statuses};
    status = kvp_seq_fill_many(cache_of(object), &batch);
    kvpy_leave(object);
    return status;
}

int kvpy_evicted(kvpy_object *object, kvp_evicted *out, uint32_t capacity, uint32_t *out_n)
{
    const kvp_evicted *evicted = NULL;
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_cache_evicted(cache_of(object), &evicted, out_n);
    for (uint32_t i = 0; status == KVP_OK && i < *out_n && i < capacity; i++)
        out[i] = evicted[i];
    kvpy_leave(object);
    return status != KVP_OK || *out_n <= capacity ? status : KVP_E_TOO_SMALL;
}

int kvpy_window(kvpy_object *object, uint64_t seq, uint32_t group, uint32_t sink_tokens,
                uint32_t recent_tokens, kvp_released *out)
{
    const kvp_window window = {sink_tokens, recent_tokens};
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_seq_window(cache_of(object), (kvp_seq){.bits = seq}, group, window, out);
    kvpy_leave(object);
    return status;
}

static int write_file(void *context, const void *bytes, size_t n_bytes)
{
    return fwrite(bytes, 1, n_bytes, context) == n_bytes ? 0 : 1;
}

static int write_nowhere(void *context, const void *bytes, size_t n_bytes)
{
    (void)context, (void)bytes, (void)n_bytes;
    return 0;
}

/* A recording that is refused leaves a file of that name as it is: it is begun without one first.
 * */
static int record_to(kvpy_object *object, const char *path)
{
    const kvp_sink nowhere = {.write = write_nowhere};
    int status = kvp_cache_record_start(cache_of(object), &nowhere);
    if (status != KVP_OK)
        return status;
    (void)kvp_cache_record_stop(cache_of(object));
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return KVP_E_IO;
    const kvp_sink sink = {.context = file, .write = write_file};
    status = kvp_cache_record_start(cache_of(object), &sink);
    if (status != KVP_OK)
        fclose(file);
    else
        object->sink = file;
    return status;
}

int kvpy_record_start(kvpy_object *object, const char *path)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = record_to(object, path);
    kvpy_leave(object);
    return status;
}

int kvpy_record_stop(kvpy_object *object)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_cache_record_stop(cache_of(object));
    if (object->sink != NULL) {
        if (fclose(object->sink) != 0 && status == KVP_OK)
            status = KVP_E_IO;
        object->sink = NULL;
    }
    kvpy_leave(object);
    return status;
}

/* ------------------------------------------------------------------------------- metadata */

static kvp_meta_batch batch_of(const kvp_seq *seqs, uint32_t n_seqs, uint32_t group,
                               const uint32_t *begin, const uint32_t *n_tokens)
{
    return (kvp_meta_batch){.struct_size = sizeof(kvp_meta_batch),
                            .n_seqs = n_seqs,
                            .group = group,
                            .seqs = seqs,
                            .begin = begin,
                            .n_tokens = n_tokens};
}

int kvpy_measure(kvpy_object *object, const kvp_seq *seqs, uint32_t n_seqs, uint32_t group,
                 const uint32_t *begin, const uint32_t *n_tokens, kvp_meta_sizes *out)
{
    const kvp_meta_batch batch = batch_of(seqs, n_seqs, group, begin, n_tokens);
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_meta_measure(cache_of(object), &batch, out);
    kvpy_leave(object);
    return status;
}

/* ------------------------------------------------------------------------------- scheduler */

void kvpy_step_free(kvpy_step **place)
{
    free(*place);
    *place = NULL;
}

/* Appends n_bytes at *at, which moves on to a multiple of 8. */
static const void *append_copy(unsigned char **at, const void *bytes, size_t n_bytes)
{
    unsigned char *copy = *at;
    if (n_bytes > 0)
        memcpy(copy, bytes, n_bytes);
    *at = copy + (n_bytes + 7) / 8 * 8;
    return copy;
}

static kvpy_step *copy_step(const kvp_step *step)
{
    const size_t n_lists =
        (size_t)step->n_admitted + step->n_preempted + step->n_swapped_out + step->n_swapped_in;
    kvpy_step *copy =
        malloc(sizeof *copy + step->n_seqs * sizeof *step->seqs +
               step->n_tokens * sizeof *step->tokens + 8 + step->n_decoding * sizeof *step->drafts +
               8 + n_lists * sizeof *step->admitted + step->n_ended * sizeof *step->ended);
    if (copy == NULL)
        return NULL;
    unsigned char *at = (unsigned char *)(copy + 1);
    copy->step = *step;
    copy->step.seqs = append_copy(&at, step->seqs, step->n_seqs * sizeof *step->seqs);
    copy->step.tokens = append_copy(&at, step->tokens, step->n_tokens * sizeof *step->tokens);
    copy->step.drafts = append_copy(&at, step->drafts, step->n_decoding * sizeof *step->drafts);
    copy->step.admitted =
        append_copy(&at, step->admitted, step->n_admitted * sizeof *step->admitted);
    copy->step.preempted =
        append_copy(&at, step->preempted, step->n_preempted * sizeof *step->preempted);
    copy->step.swapped_out =
        append_copy(&at, step->swapped_out, step->n_swapped_out * sizeof *step->swapped_out);
    copy->step.swapped_in =
        append_copy(&at, step->swapped_in, step->n_swapped_in * sizeof *step->swapped_in);
    copy->step.ended = append_copy(&at, step->ended, step->n_ended * sizeof *step->ended);
    return copy;
}

int kvpy_sched_step(kvpy_object *object, kvpy_step **place)
{
    kvp_step step;
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_sched_step(cache_of(object), &step);
    if (status == KVP_OK) {
        object->n_sampled = step.n_sampled;
        object->n_decoding = step.n_decoding;
        *place = copy_step(&step);
        if (*place == NULL) {
            status = KVP_E_NO_MEMORY;
            if (step.n_seqs > 0) /* the caller does not know of the step: its requests wait again */
                (void)kvp_sched_fail(cache_of(object));
        }
    }
    kvpy_leave(object);
    return status;
}

static void take_ended(int status, const kvp_step_end *end, kvp_ended *out_ended, uint32_t capacity,
                       uint32_t *out_n_ended)
{
    if (status == KVP_OK) {
        *out_n_ended = end->n_ended < capacity ? end->n_ended : capacity;
        if (end->n_ended > 0)
            memcpy(out_ended, end->ended, *out_n_ended * sizeof *out_ended);
    }
}

int kvpy_sched_finish(kvpy_object *object, const int32_t *tokens, const uint8_t *ended,
                      uint32_t n_sampled, kvp_ended *out_ended, uint32_t capacity,
                      uint32_t *out_n_ended)
{
    kvp_step_end end = {0};
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    if (n_sampled != object->n_sampled)
        status = KVPY_E_LENGTH;
    else
        status = kvp_sched_finish(cache_of(object), tokens, ended, &end);
    take_ended(status, &end, out_ended, capacity, out_n_ended);
    kvpy_leave(object);
    return status;
}

static int fit_the_step(const kvpy_object *object, const kvpy_results *results)
{
    uint64_t n = object->n_sampled - object->n_decoding;
    if (results->n_counts != object->n_decoding)
        return 0;
    for (uint32_t k = 0; k < results->n_counts; k++)
        n += results->counts[k];
    return n == results->n_tokens &&
           (results->ended == NULL || results->n_ended == object->n_sampled);
}

int kvpy_sched_finish_drafts(kvpy_object *object, const kvpy_results *results, kvp_ended *out_ended,
                             uint32_t capacity, uint32_t *out_n_ended)
{
    kvp_step_end end = {0};
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    if (!fit_the_step(object, results))
        status = KVPY_E_LENGTH;
    else
        status = kvp_sched_finish_drafts(cache_of(object), results->tokens, results->counts,
                                         results->ended, &end);
    take_ended(status, &end, out_ended, capacity, out_n_ended);
    kvpy_leave(object);
    return status;
}

int kvpy_sched_reorder(kvpy_object *object, uint64_t request, const uint32_t *parents,
                       const int32_t *tokens, uint32_t n_samples)
{
    const kvp_request handle = {.bits = request};
    kvp_request_info info;
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_request_info_get(cache_of(object), handle, &info);
    if (status == KVP_OK && info.n_samples != n_samples)
        status = KVPY_E_LENGTH;
    if (status == KVP_OK)
        status = kvp_sched_reorder(cache_of(object), handle, parents, tokens);
    kvpy_leave(object);
    return status;
}

int kvpy_sched_tick(kvpy_object *object, uint64_t now, uint64_t *out_requests,
                    kvp_sched_expired *out_expired)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_sched_tick(cache_of(object), now, out_expired);
    for (uint32_t i = 0; status == KVP_OK && i < out_expired->n_requests; i++)
        out_requests[i] = out_expired->requests[i].bits;
    kvpy_leave(object);
    return status;
}

/* ------------------------------------------------------------------------------- snapshots */

static int read_file(void *context, void *out_bytes, size_t capacity, size_t *out_n)
{
    *out_n = fread(out_bytes, 1, capacity, context);
    return ferror(context) != 0;
}

int kvpy_snapshot_save(kvpy_object *object, const kvp_snapshot_options *options, const char *path,
                       int *out_error)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_snapshot_save_file(cache_of(object), options, path, out_error);
    kvpy_leave(object);
    return status;
}

/* A regular file, or NULL: nothing waits for a FIFO. */
static FILE *open_regular(const char *path)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    FILE *file = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) ? fdopen(fd, "rb") : NULL;
    if (file == NULL)
        close(fd);
    return file;
}

int kvpy_snapshot_load(kvpy_object *object, const kvp_snapshot_options *options, const char *path,
                       kvp_snapshot_report *out)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    FILE *file = open_regular(path);
    status = KVP_E_IO;
    if (file != NULL) {
        const kvp_source source = {.context = file, .read = read_file};
        status = kvp_snapshot_load(cache_of(object), options, &source, out);
        fclose(file);
    }
    kvpy_leave(object);
    return status;
}

int kvpy_snapshot_peek(const char *path, kvp_snapshot_info *out)
{
    FILE *file = open_regular(path);
    if (file == NULL)
        return KVP_E_IO;
    const kvp_source source = {.context = file, .read = read_file};
    int status = kvp_snapshot_peek(&source, out);
    fclose(file);
    return status;
}

/* ------------------------------------------------------------------------------- arenas */

static int read_memory(void *context, uint64_t offset, void *out_bytes, size_t n_bytes)
{
    memcpy(out_bytes, (const unsigned char *)context + offset, n_bytes);
    return 0;
}

int kvpy_arena_inspect(const void *bytes, size_t n_bytes, const kvp_arena_options *options,
                       kvp_arena_report *out)
{
    const kvp_arena_source source = {(void *)(uintptr_t)bytes, n_bytes, read_memory};
    return kvp_arena_inspect(&source, options, out);
}

static int read_at(void *context, uint64_t offset, void *out_bytes, size_t n_bytes)
{
    const int *file = context;
    unsigned char *at = out_bytes;
    while (n_bytes > 0) {
        const ssize_t got = pread(*file, at, n_bytes, (off_t)offset);
        if (got <= 0)
            return 1;
        at += got;
        offset += (uint64_t)got;
        n_bytes -= (size_t)got;
    }
    return 0;
}

/* Holes are no bytes that were read: a file costs by what it has. */
static uint64_t default_max(const struct stat *stat)
{
    const uint64_t data = (uint64_t)stat->st_blocks * 512, all = (uint64_t)stat->st_size;
    return ((uint64_t)64 << 20) + 16 * (data < all ? data : all);
}

int kvpy_arena_inspect_file(const char *path, kvp_arena_options *options, kvp_arena_report *out)
{
    struct stat stat;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return KVP_E_IO;
    int status = KVP_E_IO;
    if (fstat(file, &stat) == 0 && S_ISREG(stat.st_mode)) {
        const kvp_arena_source source = {&file, (uint64_t)stat.st_size, read_at};
        if (options != NULL && options->max_bytes == 0)
            options->max_bytes = default_max(&stat);
        status = kvp_arena_inspect(&source, options, out);
    }
    close(file);
    return status;
}

/* ------------------------------------------------------------------------------- transfers */

int kvpy_sender_create(kvpy_object *object, kvp_transfer_config *config, kvpy_object *out_sender)
{
    kvp_sender *sender;
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    config->cache = cache_of(object);
    status = kvp_sender_create(config, &sender);
    if (status == KVP_OK)
        kvpy_own(out_sender, sender);
    kvpy_leave(object);
    return status;
}

int kvpy_receiver_create(kvpy_object *object, kvp_transfer_config *config,
                         kvpy_object *out_receiver)
{
    kvp_receiver *receiver;
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    config->cache = cache_of(object);
    status = kvp_receiver_create(config, &receiver);
    if (status == KVP_OK)
        kvpy_own(out_receiver, receiver);
    kvpy_leave(object);
    return status;
}

int kvpy_link_post(const kvp_link *link, const void *bytes, size_t n_bytes)
{
    void *buffer;
    if (n_bytes == 0 || n_bytes > link->max_message)
        return KVP_E_TOO_LONG;
    kvp_status status = link->lend(link->context, n_bytes, &buffer);
    if (status != KVP_OK)
        return status;
    memcpy(buffer, bytes, n_bytes);
    return link->post(link->context, n_bytes);
}

int kvpy_link_take(const kvp_link *link, void *out_bytes, size_t capacity, size_t *out_n_bytes)
{
    const void *bytes;
    kvp_status status = link->take(link->context, &bytes, out_n_bytes);
    if (status != KVP_OK)
        return status;
    if (*out_n_bytes > capacity)
        return KVP_E_TOO_LONG;
    memcpy(out_bytes, bytes, *out_n_bytes);
    link->give_back(link->context);
    return KVP_OK;
}

/* ------------------------------------------------------------------------------- DLPack */

typedef struct held_tensor {
    kvpy_dl_managed managed;
    int64_t shape[8];
    int64_t strides[8];
} held_tensor;

void kvpy_dl_delete(kvpy_dl_managed *managed)
{
    void *owner = managed->manager;
    free(managed);
    kvpy_change_references(owner, Py_DecRef);
}

/* Runs in PyCapsule's destructor: with the interpreter's lock. */
void kvpy_dl_capsule_free(void *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        kvpy_dl_delete(PyCapsule_GetPointer(capsule, "dltensor"));
}

/* DLPack's type codes: 0 int, 1 unsigned, 2 float, 4 bfloat, 10 float8_e4m3fn. */
static void set_type(kvpy_dl_tensor *tensor, uint32_t type)
{
    static const uint8_t codes[] = {[KVP_F32] = 2,  [KVP_F16] = 2,   [KVP_BF16] = 4,
                                    [KVP_INT8] = 0, [KVP_E4M3] = 10, [KVP_BYTES] = 1};
    tensor->code = type < sizeof codes ? codes[type] : 0;
    tensor->bits = (uint8_t)(8 * kvp_type_bytes(type));
    tensor->lanes = 1;
}

kvpy_dl_managed *kvpy_dl_new(uintptr_t owner, void *data, uint32_t type, int ndim,
                             const int64_t *shape, const int64_t *strides)
{
    held_tensor *held = ndim >= 0 && ndim <= 8 ? calloc(1, sizeof *held) : NULL;
    if (held == NULL)
        return NULL;
    for (int i = 0; i < ndim; i++) {
        held->shape[i] = shape[i];
        held->strides[i] = strides[i];
    }
    held->managed.tensor.data = data;
    held->managed.tensor.device_type = 1; /* the CPU */
    held->managed.tensor.ndim = ndim;
    held->managed.tensor.shape = held->shape;
    held->managed.tensor.strides = held->strides;
    set_type(&held->managed.tensor, type);
    held->managed.manager = (void *)owner;
    kvpy_change_references(held->managed.manager, Py_IncRef);
    held->managed.deleter = kvpy_dl_delete;
    return &held->managed;
}
