/* calls_arrays.c: calls that read or fill arrays, and are made for each step: see calls.c.
 *
 * None stands for: something is not as wanted (no array of that type in one dimension as it lies,
 * too short, not as long as another). Then the caller takes the longer way, on which lists become
 * arrays and what is wrong is found and named. */
#include "calls.h"

/* ---------------------------------------------------------------------------- of one sequence */

/* extend(seq, tokens, reserve). */
static PyObject *seq_extend(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 3);
    uint32_t reserve;
    Py_buffer tokens;
    PyThreadState *state;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[2], &reserve) != 0)
        return NULL;
    if (!kvpy_array_in(args[1], KVPY_I32, &tokens))
        return kvpy_result(NOT_AS_WANTED);
    const uint32_t n = (uint32_t)tokens.shape[0];
    int status = kvpy_go_in(self, n >= LONG_TOKENS, &state);
    if (status == KVP_OK) {
        status = kvp_seq_extend(kvpy_cache_of(self), kvpy_seq_of(self), tokens.buf, n, reserve);
        kvpy_come_out(self, state);
    }
    PyBuffer_Release(&tokens);
    return kvpy_result(status);
}

/* fill(seq, tokens). */
static PyObject *seq_fill(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 2);
    Py_buffer tokens;
    PyThreadState *state;
    (void)module;
    if (self == NULL)
        return NULL;
    if (!kvpy_array_in(args[1], KVPY_I32, &tokens))
        return kvpy_result(NOT_AS_WANTED);
    const uint32_t n = (uint32_t)tokens.shape[0];
    int status = kvpy_go_in(self, n >= LONG_TOKENS, &state);
    if (status == KVP_OK) {
        status = kvp_seq_fill(kvpy_cache_of(self), kvpy_seq_of(self), tokens.buf, n);
        kvpy_come_out(self, state);
    }
    PyBuffer_Release(&tokens);
    return kvpy_result(status);
}

/* slots(seq, group, begin, n_tokens, out). */
static PyObject *seq_slots(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 5);
    uint32_t group, begin, n_tokens;
    Py_buffer out;
    PyThreadState *state;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[1], &group) != 0 || kvpy_u32_in(args[2], &begin) != 0 ||
        kvpy_u32_in(args[3], &n_tokens) != 0)
        return NULL;
    if (!kvpy_array_in(args[4], KVPY_I64_OUT, &out))
        return kvpy_result(NOT_AS_WANTED);
    int status = NOT_AS_WANTED;
    if (n_tokens <= (size_t)out.shape[0])
        status = kvpy_go_in(self, n_tokens >= LONG_TOKENS, &state);
    if (status == KVP_OK) {
        status =
            kvp_seq_slots(kvpy_cache_of(self), kvpy_seq_of(self), group, begin, n_tokens, out.buf);
        kvpy_come_out(self, state);
    }
    PyBuffer_Release(&out);
    return kvpy_result(status);
}

/* row(seq, group, out): the blocks of the row, of which `out` has as many as fit. */
static PyObject *seq_row(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 3);
    uint32_t group, n = 0;
    const int32_t *row;
    Py_buffer out;
    PyThreadState *state;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[1], &group) != 0)
        return NULL;
    if (!kvpy_array_in(args[2], KVPY_I32_OUT, &out))
        return kvpy_result(NOT_AS_WANTED);
    int status = kvpy_go_in(self, 0, &state);
    if (status == KVP_OK) {
        status = kvp_seq_row(kvpy_cache_of(self), kvpy_seq_of(self), group, &row, &n);
        const size_t fit = n < (size_t)out.shape[0] ? n : (size_t)out.shape[0];
        if (status == KVP_OK && fit > 0)
            memcpy(out.buf, row, fit * sizeof *row);
        kvpy_come_out(self, state);
    }
    PyBuffer_Release(&out);
    return status == KVP_OK ? PyLong_FromUnsignedLong(n) : PyLong_FromLong(status);
}

/* tokens(seq, begin, n_tokens, out). */
static PyObject *seq_tokens(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 4);
    uint32_t begin, n_tokens;
    Py_buffer out;
    PyThreadState *state;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[1], &begin) != 0 || kvpy_u32_in(args[2], &n_tokens) != 0)
        return NULL;
    if (!kvpy_array_in(args[3], KVPY_I32_OUT, &out))
        return kvpy_result(NOT_AS_WANTED);
    int status = NOT_AS_WANTED;
    if (n_tokens <= (size_t)out.shape[0])
        status = kvpy_go_in(self, n_tokens >= LONG_TOKENS, &state);
    if (status == KVP_OK) {
        status = kvp_seq_tokens(kvpy_cache_of(self), kvpy_seq_of(self), begin, n_tokens, out.buf);
        kvpy_come_out(self, state);
    }
    PyBuffer_Release(&out);
    return kvpy_result(status);
}

/* can_open(ns, tokens): an Admission. */
static PyObject *ns_can_open(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 2);
    kvp_admission admission;
    Py_buffer tokens;
    PyThreadState *state;
    (void)module;
    if (self == NULL)
        return NULL;
    if (!kvpy_array_in(args[1], KVPY_I32, &tokens))
        return kvpy_result(NOT_AS_WANTED);
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = tokens.buf, .n_tokens = (uint32_t)tokens.shape[0]};
    int status = kvpy_go_in(self, prompt.n_tokens >= LONG_TOKENS, &state);
    if (status == KVP_OK) {
        status = kvp_cache_can_open(kvpy_cache_of(self), (kvp_ns){.bits = self->bits}, &prompt,
                                    &admission);
        kvpy_come_out(self, state);
    }
    PyBuffer_Release(&tokens);
    return status == KVP_OK ? kvpy_record_new(KVPY_ADMISSION, &admission) : kvpy_result(status);
}

/* ---------------------------------------------------------------------------- of many sequences */

void *kvpy_take(kvpy_arrays *all, PyObject *value, kvpy_kind kind, size_t wanted)
{
    Py_buffer *view = &all->views[all->n];
    if (value == Py_None || !all->fits)
        return NULL;
    all->fits = kvpy_array_in(value, kind, view);
    if (!all->fits)
        return NULL;
    all->n++;
    const size_t has = (size_t)view->shape[0];
    all->fits = kind == KVPY_I32_OUT ? has >= wanted : has == wanted;
    return view->buf;
}

const kvp_seq *kvpy_take_seqs(kvpy_arrays *all, PyObject *value, uint32_t *out_n)
{
    all->n = 0;
    all->fits = kvpy_array_in(value, KVPY_U64, &all->views[0]);
    if (!all->fits)
        return NULL;
    all->n = 1;
    *out_n = (uint32_t)all->views[0].shape[0];
    return all->views[0].buf;
}

void kvpy_take_batch(kvpy_arrays *all, PyObject *const *args, kvp_meta_batch *batch)
{
    batch->struct_size = sizeof *batch;
    batch->seqs = kvpy_take_seqs(all, args[1], &batch->n_seqs);
    batch->begin = kvpy_take(all, args[2], KVPY_U32, batch->n_seqs);
    batch->n_tokens = kvpy_take(all, args[3], KVPY_U32, batch->n_seqs);
}

void kvpy_give_back(kvpy_arrays *all)
{
    for (int i = 0; i < all->n; i++)
        PyBuffer_Release(&all->views[i]);
}

static size_t sum_of(const uint32_t *counts, uint32_t n)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

/* A call with a batch: (cache, seqs, tokens, n_tokens, reserve, statuses), None for what is not
 * given: tokens, n_tokens and statuses. */
static PyObject *for_batch(PyObject *const *args, Py_ssize_t n_args,
                           kvp_status (*call)(kvp_cache *, const kvp_batch *))
{
    handle *self = kvpy_handle_in(args, n_args, 6);
    kvp_batch batch = {.struct_size = sizeof batch};
    PyThreadState *state;
    kvpy_arrays all;
    if (self == NULL || kvpy_u32_in(args[4], &batch.reserve_tokens) != 0)
        return NULL;
    batch.seqs = kvpy_take_seqs(&all, args[1], &batch.n_seqs);
    batch.n_tokens = kvpy_take(&all, args[3], KVPY_U32, batch.n_seqs);
    const size_t n_values =
        batch.n_tokens != NULL && all.fits ? sum_of(batch.n_tokens, batch.n_seqs) : batch.n_seqs;
    batch.tokens = kvpy_take(&all, args[2], KVPY_I32, n_values);
    batch.statuses = kvpy_take(&all, args[5], KVPY_I32_OUT, batch.n_seqs);
    batch.flags = batch.statuses != NULL ? KVP_BATCH_EACH : 0;
    int status = NOT_AS_WANTED;
    if (all.fits)
        status = kvpy_go_in(self, batch.n_seqs >= LONG_SEQS || n_values >= LONG_TOKENS, &state);
    if (status == KVP_OK) {
        status = call(kvpy_cache_of(self), &batch);
        kvpy_come_out(self, state);
    }
    kvpy_give_back(&all);
    return kvpy_result(status);
}

static PyObject *extend_many(ARGUMENTS)
{
    (void)module;
    return for_batch(args, n_args, kvp_seq_extend_many);
}

static PyObject *fill_many(ARGUMENTS)
{
    (void)module;
    return for_batch(args, n_args, kvp_seq_fill_many);
}

/* commit_many(cache, seqs, n_tokens). */
static PyObject *commit_many(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 3);
    uint32_t n = 0;
    PyThreadState *state;
    kvpy_arrays all;
    (void)module;
    if (self == NULL)
        return NULL;
    const kvp_seq *seqs = kvpy_take_seqs(&all, args[1], &n);
    const uint32_t *counts = kvpy_take(&all, args[2], KVPY_U32, n);
    int status = NOT_AS_WANTED;
    if (all.fits && counts != NULL)
        status = kvpy_go_in(self, n >= LONG_SEQS, &state);
    if (status == KVP_OK) {
        status = kvp_seq_commit_many(kvpy_cache_of(self), seqs, counts, n);
        kvpy_come_out(self, state);
    }
    kvpy_give_back(&all);
    return kvpy_result(status);
}

/* can_extend(cache, seqs, n_tokens, reserve): an Admission. */
static PyObject *can_extend(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 4);
    kvp_batch batch = {.struct_size = sizeof batch};
    kvp_admission admission;
    PyThreadState *state;
    kvpy_arrays all;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[3], &batch.reserve_tokens) != 0)
        return NULL;
    batch.seqs = kvpy_take_seqs(&all, args[1], &batch.n_seqs);
    batch.n_tokens = kvpy_take(&all, args[2], KVPY_U32, batch.n_seqs);
    int status = NOT_AS_WANTED;
    if (all.fits)
        status = kvpy_go_in(self, batch.n_seqs >= LONG_SEQS, &state);
    if (status == KVP_OK) {
        status = kvp_cache_can_extend(kvpy_cache_of(self), &batch, &admission);
        kvpy_come_out(self, state);
    }
    kvpy_give_back(&all);
    return status == KVP_OK ? kvpy_record_new(KVPY_ADMISSION, &admission) : kvpy_result(status);
}

/* plan_take(cache, out): how many copies there are; taken when `out` has room for them. */
static PyObject *plan_take(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 2);
    uint32_t n = 0;
    Py_buffer out;
    PyThreadState *state;
    (void)module;
    if (self == NULL)
        return NULL;
    if (!kvpy_array_in(args[1], KVPY_COPIES_OUT, &out))
        return kvpy_result(NOT_AS_WANTED);
    int status = kvpy_go_in(self, 0, &state);
    if (status == KVP_OK) {
        status = kvp_plan_take(kvpy_cache_of(self), out.buf, (uint32_t)out.shape[0], &n);
        kvpy_come_out(self, state);
    }
    PyBuffer_Release(&out);
    if (status == KVP_OK || status == KVP_E_TOO_SMALL)
        return PyLong_FromUnsignedLong(n);
    return kvpy_result(status);
}

/* ---------------------------------------------------------------------------- metadata */

enum { CSR, DENSE, WINDOWED, TREE };

static kvp_status fill_format(kvp_cache *cache, const kvp_meta_batch *batch, uint32_t format,
                              const void *meta)
{
    switch (format) {
    case CSR: return kvp_meta_fill_csr(cache, batch, meta);
    case DENSE: return kvp_meta_fill_dense(cache, batch, meta);
    case WINDOWED: return kvp_meta_fill_windowed(cache, batch, meta);
    default: return kvp_meta_fill_tree(cache, batch, meta);
    }
}

/* fill_meta(..., format, max_seqs, address of its struct). */
static PyObject *fill_meta(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 8);
    kvp_meta_batch batch = {0};
    uint32_t format, max_seqs;
    uint64_t address;
    PyThreadState *state;
    kvpy_arrays all;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[4], &batch.group) != 0 ||
        kvpy_u32_in(args[5], &format) != 0 || kvpy_u32_in(args[6], &max_seqs) != 0 ||
        kvpy_u64_in(args[7], &address) != 0)
        return NULL;
    kvpy_take_batch(&all, args, &batch);
    int status = NOT_AS_WANTED;
    if (all.fits && batch.n_seqs <= max_seqs)
        status = kvpy_go_in(self, batch.n_seqs >= LONG_SEQS, &state);
    if (status == KVP_OK) {
        status = fill_format(kvpy_cache_of(self), &batch, format, (void *)(uintptr_t)address);
        kvpy_come_out(self, state);
    }
    kvpy_give_back(&all);
    return kvpy_result(status);
}

/* measure(...): MetaSizes. */
static PyObject *measure(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 5);
    kvp_meta_batch batch = {0};
    kvp_meta_sizes sizes;
    PyThreadState *state;
    kvpy_arrays all;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[4], &batch.group) != 0)
        return NULL;
    kvpy_take_batch(&all, args, &batch);
    int status = NOT_AS_WANTED;
    if (all.fits)
        status = kvpy_go_in(self, batch.n_seqs >= LONG_SEQS, &state);
    if (status == KVP_OK) {
        status = kvp_meta_measure(kvpy_cache_of(self), &batch, &sizes);
        kvpy_come_out(self, state);
    }
    kvpy_give_back(&all);
    return status == KVP_OK ? kvpy_record_new(KVPY_META_SIZES, &sizes) : kvpy_result(status);
}

PyMethodDef kvpy_array_calls[] = {
    KVPY_FAST("extend", seq_extend),       KVPY_FAST("fill", seq_fill),
    KVPY_FAST("slots", seq_slots),         KVPY_FAST("row", seq_row),
    KVPY_FAST("tokens", seq_tokens),       KVPY_FAST("can_open", ns_can_open),
    KVPY_FAST("extend_many", extend_many), KVPY_FAST("fill_many", fill_many),
    KVPY_FAST("commit_many", commit_many), KVPY_FAST("can_extend", can_extend),
    KVPY_FAST("plan_take", plan_take),     KVPY_FAST("fill_meta", fill_meta),
    KVPY_FAST("measure", measure),         {NULL, NULL, 0, NULL}};
