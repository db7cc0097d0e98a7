/* shim.c: objects with their guards, and the calls that are written by hand. See shim.h. */
#define Py_LIMITED_API 0x030a0000
#include <Python.h>

#include "shim.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------------------- objects */

kvpy_object *kvpy_object_new(void *pointer, int kind, kvpy_object *owner)
{
    kvpy_object *object = calloc(1, sizeof *object);
    if (object == NULL)
        return NULL;
    atomic_init(&object->pointer, pointer);
    atomic_init(&object->lock, 0);
    atomic_init(&object->readers, 0);
    object->kind = kind;
    object->owner = owner;
    return object;
}

static void destroy(void *pointer, int kind)
{
    switch (kind) {
    case KVPY_CACHE: kvp_cache_destroy(pointer); break;
    case KVPY_SCHED: kvp_sched_destroy(pointer); break;
    case KVPY_SENDER: kvp_wire_sender_destroy(pointer); break;
    case KVPY_MIRROR: kvp_wire_mirror_destroy(pointer); break;
    case KVPY_COPIER: kvp_copier_destroy(pointer); break;
    case KVPY_OPLOG: kvp_oplog_close(pointer); break;
    case KVPY_MEMORY: kvp_memory_destroy(pointer); break;
    default: break;
    }
}

int kvpy_object_close(kvpy_object *object)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status == KVPY_E_CLOSED ? KVP_OK : status;
    void *pointer = atomic_exchange(&object->pointer, NULL);
    while (atomic_load(&object->readers) != 0)
        sched_yield();
    destroy(pointer, object->kind);
    if (object->sink != NULL)
        fclose(object->sink);
    object->sink = NULL;
    kvpy_leave(object);
    return KVP_OK;
}

/* Runs with the interpreter's lock held, in a thread that is inside no call; whoever is inside one
 * needs no lock of the interpreter to come out. */
void kvpy_object_free(kvpy_object *object)
{
    while (kvpy_object_close(object) != KVP_OK)
        sched_yield();
    free(object);
}

int kvpy_object_is_open(kvpy_object *object)
{
    return atomic_load(&object->pointer) != NULL;
}

int kvpy_object_lock(kvpy_object *object)
{
    return kvpy_enter(object);
}

void kvpy_object_unlock(kvpy_object *object)
{
    kvpy_leave(object);
}

/* ------------------------------------------------------------------------------- the cache */

static kvp_seq seq_of(uint64_t bits)
{
    return (kvp_seq){.bits = bits};
}

/* Arrays of handles are arrays of u64: kvp_seq has no other field. */
static const kvp_seq *seqs_of(const uint64_t *bits)
{
    _Static_assert(sizeof(kvp_seq) == sizeof(uint64_t), "a handle is its bits");
    return (const kvp_seq *)(const void *)bits;
}

static void *cache_of(kvpy_object *object)
{
    return atomic_load_explicit(&object->pointer, memory_order_relaxed);
}

int kvpy_open_prompt(kvpy_object *object, uint64_t ns, const kvp_prompt *prompt, kvpy_opened *out)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    kvp_seq seq = {0};
    status = kvp_seq_open(cache_of(object), (kvp_ns){.bits = ns}, prompt, &seq, &out->info);
    out->seq = seq.bits;
    kvpy_leave(object);
    return status;
}

int kvpy_open(kvpy_object *object, uint64_t ns, const int32_t *tokens, uint32_t n_tokens,
              uint32_t reserve_tokens, uint64_t tag, kvpy_opened *out)
{
    const kvp_prompt prompt = {.struct_size = sizeof prompt,
                               .tokens = tokens,
                               .n_tokens = n_tokens,
                               .reserve_tokens = reserve_tokens,
                               .tag = tag};
    return kvpy_open_prompt(object, ns, &prompt, out);
}

int kvpy_append(kvpy_object *object, uint64_t seq, int32_t token)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_seq_extend(cache_of(object), seq_of(seq), &token, 1, 0);
    kvpy_leave(object);
    return status;
}

uint64_t kvpy_fork(kvpy_object *object, uint64_t parent, uint32_t at, uint64_t tag, int *out_status)
{
    kvp_seq child = {0};
    *out_status = kvpy_enter(object);
    if (*out_status != KVP_OK)
        return 0;
    *out_status = kvp_seq_fork(cache_of(object), seq_of(parent), at, tag, &child);
    kvpy_leave(object);
    return child.bits;
}

/* Two counts below 2^31 in one number; a status is negative. */
static int64_t pack(int status, kvp_released released)
{
    if (status != KVP_OK)
        return status;
    return (int64_t)released.freed_blocks << 31 | (int64_t)released.cached_blocks;
}

int64_t kvpy_close(kvpy_object *object, uint64_t seq)
{
    kvp_released released = {0};
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_seq_close(cache_of(object), seq_of(seq), &released);
    kvpy_leave(object);
    return pack(status, released);
}

int64_t kvpy_truncate(kvpy_object *object, uint64_t seq, uint32_t n_tokens)
{
    kvp_released released = {0};
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_seq_truncate(cache_of(object), seq_of(seq), n_tokens, &released);
    kvpy_leave(object);
    return pack(status, released);
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

int kvpy_extend_many(kvpy_object *object, const uint64_t *seqs, uint32_t n_seqs,
                     const int32_t *tokens, uint64_t n_values, const uint32_t *n_tokens,
                     uint32_t reserve_tokens, int32_t *statuses)
{
    _Static_assert(sizeof(kvp_status) == sizeof(int32_t), "statuses are an array of i32");
    if (tokens != NULL && !values_fit(n_tokens, n_seqs, n_values))
        return KVPY_E_LENGTH;
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = n_seqs,
                             .flags = statuses != NULL ? KVP_BATCH_EACH : 0,
                             .seqs = seqs_of(seqs),
                             .n_tokens = n_tokens,
                             .tokens = tokens,
                             .reserve_tokens = reserve_tokens,
                             .statuses = (kvp_status *)(void *)statuses};
    status = kvp_seq_extend_many(cache_of(object), &batch);
    kvpy_leave(object);
    return status;
}

int kvpy_can_extend(kvpy_object *object, const uint64_t *seqs, uint32_t n_seqs,
                    const uint32_t *n_tokens, uint32_t reserve_tokens, kvp_admission *out)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = n_seqs,
                             .seqs = seqs_of(seqs),
                             .n_tokens = n_tokens,
                             .reserve_tokens = reserve_tokens};
    status = kvp_can_extend(cache_of(object), &batch, out);
    kvpy_leave(object);
    return status;
}

int kvpy_fill_many(kvpy_object *object, const uint64_t *seqs, uint32_t n_seqs,
                   const int32_t *tokens, uint64_t n_values, const uint32_t *n_tokens,
                   int32_t *statuses)
{
    if (!values_fit(n_tokens, n_seqs, n_values))
        return KVPY_E_LENGTH;
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    const kvp_batch batch = {.struct_size = sizeof batch,
                             .n_seqs = n_seqs,
                             .flags = statuses != NULL ? KVP_BATCH_EACH : 0,
                             .seqs = seqs_of(seqs),
                             .n_tokens = n_tokens,
                             .tokens = tokens,
                             .statuses = (kvp_status *)(void *)statuses};
    status = kvp_seq_fill_many(cache_of(object), &batch);
    kvpy_leave(object);
    return status;
}

int kvpy_row(kvpy_object *object, uint64_t seq, uint32_t group, int32_t *out, uint32_t capacity,
             uint32_t *out_n)
{
    const int32_t *row = NULL;
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_seq_row(cache_of(object), seq_of(seq), group, &row, out_n);
    for (uint32_t i = 0; status == KVP_OK && i < *out_n && i < capacity; i++)
        out[i] = row[i];
    kvpy_leave(object);
    return status != KVP_OK || *out_n <= capacity ? status : KVP_E_TOO_SMALL;
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

static int write_file(void *context, const void *bytes, size_t n_bytes)
{
    return fwrite(bytes, 1, n_bytes, context) == n_bytes ? 0 : 1;
}

int kvpy_record_start(kvpy_object *object, const char *path)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    FILE *file = object->sink == NULL ? fopen(path, "wb") : NULL;
    status = object->sink != NULL ? KVP_E_STATE : KVP_E_IO;
    if (file != NULL) {
        const kvp_sink sink = {.context = file, .write = write_file};
        status = kvp_record_start(cache_of(object), &sink);
        if (status != KVP_OK)
            fclose(file);
        else
            object->sink = file;
    }
    kvpy_leave(object);
    return status;
}

int kvpy_record_stop(kvpy_object *object)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_record_stop(cache_of(object));
    if (object->sink != NULL) {
        if (fclose(object->sink) != 0 && status == KVP_OK)
            status = KVP_E_IO;
        object->sink = NULL;
    }
    kvpy_leave(object);
    return status;
}

/* ------------------------------------------------------------------------------- metadata */

static kvp_meta_batch batch_of(const uint64_t *seqs, uint32_t n_seqs, const uint32_t *begin,
                               const uint32_t *n_tokens)
{
    return (kvp_meta_batch){.struct_size = sizeof(kvp_meta_batch),
                            .n_seqs = n_seqs,
                            .seqs = seqs_of(seqs),
                            .begin = begin,
                            .n_tokens = n_tokens};
}

int kvpy_measure(kvpy_object *object, const uint64_t *seqs, uint32_t n_seqs, const uint32_t *begin,
                 const uint32_t *n_tokens, kvp_meta_sizes *out)
{
    const kvp_meta_batch batch = batch_of(seqs, n_seqs, begin, n_tokens);
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_meta_measure(cache_of(object), &batch, out);
    kvpy_leave(object);
    return status;
}

int kvpy_fill_dense(kvpy_object *object, const uint64_t *seqs, uint32_t n_seqs,
                    const uint32_t *begin, const uint32_t *n_tokens, const kvp_meta_dense *dense)
{
    const kvp_meta_batch batch = batch_of(seqs, n_seqs, begin, n_tokens);
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_meta_fill_dense(cache_of(object), &batch, dense);
    kvpy_leave(object);
    return status;
}

int kvpy_fill_csr(kvpy_object *object, const uint64_t *seqs, uint32_t n_seqs,
                  const uint32_t *begin, const uint32_t *n_tokens, const kvp_meta_csr *csr)
{
    const kvp_meta_batch batch = batch_of(seqs, n_seqs, begin, n_tokens);
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvp_meta_fill_csr(cache_of(object), &batch, csr);
    kvpy_leave(object);
    return status;
}

/* ------------------------------------------------------------------------------- DLPack */

typedef struct held_tensor {
    kvpy_dl_managed managed;
    int64_t shape[8];
    int64_t strides[8];
} held_tensor;

void kvpy_dl_delete(kvpy_dl_managed *managed)
{
    PyObject *owner = managed->manager;
    free(managed);
    if (owner != NULL && Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_DecRef(owner);
        PyGILState_Release(state);
    }
}

/* DLPack's type codes: 0 int, 2 float, 4 bfloat, 10 float8_e4m3fn. */
static void set_type(kvpy_dl_tensor *tensor, uint32_t type)
{
    static const uint8_t codes[] = {[KVP_F32] = 2, [KVP_F16] = 2, [KVP_BF16] = 4, [KVP_INT8] = 0,
                                    [KVP_E4M3] = 10};
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
    held->managed.deleter = kvpy_dl_delete;
    return &held->managed;
}
