/* calls_steps.c: calls that make arrays, and are made for each step: see calls.c.
 *
 * What the library gives is copied while no other thread is inside. Python's objects are made of
 * the copy afterwards: making one may run the cycle collector, and that may free what uses the
 * cache. None stands for: something is not as wanted, as in calls_arrays.c. */
#include "calls.h"

/* ------------------------------------------------------------------------- arrays and tuples */

typedef enum array_kind { I32, U32, U64, EVENT, STEP_SEQ, ENDED, ARRAY_KINDS } array_kind;

static const size_t item_sizes[ARRAY_KINDS] = {
    [I32] = sizeof(int32_t),     [U32] = sizeof(uint32_t),          [U64] = sizeof(uint64_t),
    [EVENT] = sizeof(kvp_event), [STEP_SEQ] = sizeof(kvp_step_seq), [ENDED] = sizeof(kvp_ended)};

static PyObject *empty; /* numpy.empty */
static PyObject *dtypes[ARRAY_KINDS];
static PyObject *nothing[ARRAY_KINDS]; /* an array without elements, which needs no copy */

enum { DELTA, LEVEL, CASCADE, STEP, SWAPPED, TUPLES };
static PyTypeObject *tuples[TUPLES];

/* A fresh array of n items; NULL also after an exception, with which nothing of Python's may run:
 * of a record's items all are made, whatever became of those before. */
static PyObject *array_of(array_kind kind, const void *items, size_t n)
{
    Py_buffer view;
    if (PyErr_Occurred() != NULL)
        return NULL;
    if (n == 0)
        return Py_NewRef(nothing[kind]);
    PyObject *count = PyLong_FromSize_t(n);
    PyObject *given[] = {count, dtypes[kind]};
    PyObject *made = count == NULL ? NULL : PyObject_Vectorcall(empty, given, 2, NULL);
    Py_XDECREF(count);
    if (made != NULL && PyObject_GetBuffer(made, &view, PyBUF_WRITABLE) != 0)
        Py_CLEAR(made);
    if (made != NULL) {
        memcpy(view.buf, items, n * item_sizes[kind]);
        PyBuffer_Release(&view);
    }
    return made;
}

/* A NamedTuple of these items, which become its own; NULL when one of them could not be made. */
static PyObject *tuple_of(PyTypeObject *type, PyObject *const *items, Py_ssize_t n)
{
    PyObject *made = type->tp_alloc(type, n);
    int is_whole = made != NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        is_whole &= items[i] != NULL;
        if (made != NULL)
            PyTuple_SET_ITEM(made, i, items[i]);
        else
            Py_XDECREF(items[i]);
    }
    if (!is_whole)
        Py_CLEAR(made);
    return made;
}

/* setup_steps(numpy.empty, a tuple of dtypes as in array_kind, a tuple of the NamedTuples). */
static PyObject *setup_steps(PyObject *module, PyObject *args)
{
    PyObject *kinds, *types;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO!O!", &empty, &PyTuple_Type, &kinds, &PyTuple_Type, &types))
        return NULL;
    Py_INCREF(empty);
    for (int i = 0; i < ARRAY_KINDS; i++) {
        dtypes[i] = PyTuple_GetItem(kinds, i);
        if (dtypes[i] == NULL)
            return NULL;
        Py_INCREF(dtypes[i]);
        nothing[i] = PyObject_CallFunction(empty, "iO", 0, dtypes[i]);
        PyObject *size = PyObject_GetAttrString(dtypes[i], "itemsize");
        if (nothing[i] == NULL || size == NULL)
            return NULL;
        const int is_ours = PyLong_AsSize_t(size) == item_sizes[i];
        Py_DECREF(size);
        if (!is_ours)
            return PyErr_Format(PyExc_SystemError, "kvpager._calls: a dtype is not its struct");
    }
    for (int i = 0; i < TUPLES; i++) {
        tuples[i] = (PyTypeObject *)PyTuple_GetItem(types, i);
        if (tuples[i] == NULL)
            return NULL;
        Py_INCREF(tuples[i]);
    }
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------------------------- swaps */

static PyObject *swapped_of(const kvp_swapped *swapped)
{
    PyObject *items[] = {PyLong_FromUnsignedLong(swapped->copied_blocks),
                         PyLong_FromUnsignedLong(swapped->found_blocks),
                         kvpy_record_new(KVPY_RELEASED, &swapped->released)};
    return tuple_of(tuples[SWAPPED], items, 3);
}

enum swap { SWAP_OUT, SWAP_IN, CAN_SWAP_OUT, CAN_SWAP_IN };

static int call_swap(kvp_cache *cache, enum swap which, const kvp_seq *seqs, uint32_t n,
                     uint32_t reserve, kvp_swapped *swapped, kvp_admission *admission)
{
    switch (which) {
    case SWAP_OUT: return kvp_seq_swap_out(cache, seqs, n, swapped);
    case SWAP_IN: return kvp_seq_swap_in(cache, seqs, n, reserve, swapped);
    case CAN_SWAP_OUT: return kvp_cache_can_swap_out(cache, seqs, n, admission);
    default: return kvp_cache_can_swap_in(cache, seqs, n, reserve, admission);
    }
}

/* swap_out(cache, seqs), swap_in(cache, seqs, reserve); with can_ before it an Admission. */
static PyObject *swap(PyObject *const *args, Py_ssize_t n_args, enum swap which)
{
    const int is_in = which == SWAP_IN || which == CAN_SWAP_IN;
    handle *self = kvpy_handle_in(args, n_args, is_in ? 3 : 2);
    uint32_t n = 0, reserve = 0;
    kvp_swapped swapped;
    kvp_admission admission;
    PyThreadState *state;
    kvpy_arrays all;
    if (self == NULL || (is_in && kvpy_u32_in(args[2], &reserve) != 0))
        return NULL;
    const kvp_seq *seqs = kvpy_take_seqs(&all, args[1], &n);
    int status = all.fits ? kvpy_go_in(self, n >= LONG_SEQS, &state) : NOT_AS_WANTED;
    if (status == KVP_OK) {
        status = call_swap(kvpy_cache_of(self), which, seqs, n, reserve, &swapped, &admission);
        kvpy_come_out(self, state);
    }
    kvpy_give_back(&all);
    if (status != KVP_OK)
        return kvpy_result(status);
    return which < CAN_SWAP_OUT ? swapped_of(&swapped)
                                : kvpy_record_new(KVPY_ADMISSION, &admission);
}

static PyObject *swap_out(ARGUMENTS)
{
    (void)module;
    return swap(args, n_args, SWAP_OUT);
}

static PyObject *swap_in(ARGUMENTS)
{
    (void)module;
    return swap(args, n_args, SWAP_IN);
}

static PyObject *can_swap_out(ARGUMENTS)
{
    (void)module;
    return swap(args, n_args, CAN_SWAP_OUT);
}

static PyObject *can_swap_in(ARGUMENTS)
{
    (void)module;
    return swap(args, n_args, CAN_SWAP_IN);
}

/* ------------------------------------------------------------------------------------ events */

enum { MOST_EVENTS = 4096 }; /* that are read at once here */

static int read_events(handle *self, uint64_t start, kvp_event *room, uint32_t capacity,
                       int32_t *tokens, uint32_t *out_n)
{
    int status = kvpy_enter_reader(self->object); /* it may run beside a change */
    if (status == KVP_OK) {
        status = kvp_events_read(kvpy_cache_of(self), start, room, capacity, tokens, out_n);
        kvpy_leave_reader(self->object);
    }
    return status;
}

/* events(cache, start, capacity, tokens or None, how many of them): an array. */
static PyObject *events(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 5);
    uint64_t start, n_values;
    uint32_t capacity, n = 0;
    Py_buffer values = {0};
    (void)module;
    if (self == NULL || kvpy_u64_in(args[1], &start) != 0 || kvpy_u32_in(args[2], &capacity) != 0 ||
        kvpy_u64_in(args[4], &n_values) != 0)
        return NULL;
    const int has_values = args[3] != Py_None;
    if (capacity > MOST_EVENTS || (has_values && !kvpy_array_in(args[3], KVPY_I32_OUT, &values)))
        return kvpy_result(NOT_AS_WANTED);
    kvp_event *room = NULL;
    int status = NOT_AS_WANTED;
    if (!has_values || (uint64_t)values.shape[0] >= n_values)
        room = PyMem_RawMalloc((capacity + 1u) * sizeof *room);
    if (room != NULL)
        status = read_events(self, start, room, capacity, values.buf, &n);
    PyBuffer_Release(&values);
    PyObject *made = status == KVP_OK ? array_of(EVENT, room, n) : kvpy_result(status);
    PyMem_RawFree(room);
    return made;
}

/* ---------------------------------------------------------------------------------- metadata */

/* Room for a delta but its entries, in one piece of memory. */
static int delta_room(kvp_meta_delta *delta, uint32_t n)
{
    const size_t bytes = n * (2 * sizeof(uint64_t) + 4 * sizeof(uint32_t)) + sizeof(int32_t);
    delta->version = PyMem_RawCalloc(1, bytes);
    if (delta->version == NULL)
        return 0;
    const uint64_t *no_version = delta->version + n; /* zeros: of items that had nothing */
    delta->blocks = (uint32_t *)(void *)(delta->version + 2 * (size_t)n);
    const uint32_t *no_blocks = delta->blocks + n;
    delta->start = (int32_t *)(void *)(delta->blocks + 2 * (size_t)n);
    delta->indptr = delta->start + n;
    if (delta->had_version == NULL)
        delta->had_version = no_version;
    if (delta->had_blocks == NULL)
        delta->had_blocks = no_blocks;
    return 1;
}

/* Fills in a delta with as much room for entries as it needs; gives the status. */
static int fill_delta(handle *self, const kvp_meta_batch *batch, kvp_meta_delta *delta)
{
    PyThreadState *state;
    int status = KVP_E_TOO_SMALL;
    delta->max_entries = batch->n_seqs + 64;
    while (status == KVP_E_TOO_SMALL) {
        int32_t *entries = PyMem_RawRealloc(delta->entries, delta->max_entries * sizeof *entries);
        if (entries == NULL)
            return KVP_E_NO_MEMORY;
        delta->entries = entries;
        status = kvpy_go_in(self, batch->n_seqs >= LONG_SEQS, &state);
        if (status == KVP_OK) {
            status = kvp_meta_fill_delta(kvpy_cache_of(self), batch, delta);
            kvpy_come_out(self, state);
        }
        if (status == KVP_E_TOO_SMALL)
            delta->max_entries = delta->n_entries;
    }
    return status;
}

static PyObject *delta_of(const kvp_meta_delta *delta, uint32_t n)
{
    PyObject *items[] = {array_of(U64, delta->version, n), array_of(U32, delta->blocks, n),
                         array_of(I32, delta->indptr, n + 1u), array_of(I32, delta->start, n),
                         array_of(I32, delta->entries, (size_t)delta->indptr[n])};
    return tuple_of(tuples[DELTA], items, 5);
}

/* delta(cache, seqs, had_version or None, had_blocks or None, group): a Delta. */
static PyObject *make_delta(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 5);
    kvp_meta_batch batch = {.struct_size = sizeof batch};
    kvp_meta_delta delta = {.struct_size = sizeof delta};
    kvpy_arrays all;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[4], &batch.group) != 0)
        return NULL;
    batch.seqs = kvpy_take_seqs(&all, args[1], &batch.n_seqs);
    delta.had_version = kvpy_take(&all, args[2], KVPY_U64, batch.n_seqs);
    delta.had_blocks = kvpy_take(&all, args[3], KVPY_U32, batch.n_seqs);
    int status = NOT_AS_WANTED;
    if (all.fits)
        status =
            delta_room(&delta, batch.n_seqs) ? fill_delta(self, &batch, &delta) : KVP_E_NO_MEMORY;
    kvpy_give_back(&all);
    PyObject *made = status == KVP_OK ? delta_of(&delta, batch.n_seqs) : kvpy_result(status);
    PyMem_RawFree(delta.version);
    PyMem_RawFree(delta.entries);
    return made;
}

/* A cascade's arrays in one piece of memory, which `order` begins. 0: there is none. */
static int cascade_room(kvp_meta_cascade *cascade, kvp_meta_level *levels, uint32_t n)
{
    const size_t of_level = 3 * (size_t)n + 2 + cascade->max_entries;
    cascade->order = PyMem_RawMalloc((n + cascade->max_levels * of_level) * sizeof(int32_t));
    if (cascade->order == NULL)
        return 0;
    int32_t *at = cascade->order + n;
    for (uint32_t i = 0; i < cascade->max_levels; i++, at += of_level)
        levels[i] = (kvp_meta_level){.qo_indptr = at,
                                     .kv_indptr = at + n + 1,
                                     .last_block_len = at + 2 * ((size_t)n + 1),
                                     .kv_indices = at + 3 * (size_t)n + 2};
    cascade->levels = levels;
    return 1;
}

/* Measures, and fills in, with no other thread between the two; gives the status. */
static int fill_cascade(handle *self, const kvp_meta_batch *batch, kvp_meta_cascade *cascade,
                        kvp_meta_level *levels)
{
    kvp_meta_sizes sizes;
    PyThreadState *state;
    int status = kvpy_go_in(self, batch->n_seqs >= LONG_SEQS, &state);
    if (status != KVP_OK)
        return status;
    status = kvp_meta_measure(kvpy_cache_of(self), batch, &sizes);
    if (status == KVP_OK) {
        cascade->max_entries = sizes.n_entries > 0 ? (uint32_t)sizes.n_entries : 1;
        status = cascade_room(cascade, levels, batch->n_seqs)
                     ? kvp_meta_fill_cascade(kvpy_cache_of(self), batch, cascade)
                     : KVP_E_NO_MEMORY;
    }
    kvpy_come_out(self, state);
    return status;
}

static PyObject *cascade_of(const kvp_meta_cascade *cascade, uint32_t n)
{
    PyObject *list = PyList_New(cascade->n_levels);
    for (uint32_t i = 0; list != NULL && i < cascade->n_levels; i++) {
        const kvp_meta_level *level = &cascade->levels[i];
        const size_t g = level->n_groups;
        PyObject *items[] = {array_of(I32, level->qo_indptr, g + 1),
                             array_of(I32, level->kv_indptr, g + 1),
                             array_of(I32, level->kv_indices, level->n_entries),
                             array_of(I32, level->last_block_len, g)};
        PyObject *made = tuple_of(tuples[LEVEL], items, 4);
        if (made == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, made);
    }
    PyObject *items[] = {array_of(I32, cascade->order, n), list};
    return tuple_of(tuples[CASCADE], items, 2);
}

/* cascade(cache, seqs, begin or None, n_tokens or None, max_levels, group): a Cascade. */
static PyObject *make_cascade(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 6);
    kvp_meta_batch batch = {0};
    kvp_meta_cascade cascade = {.struct_size = sizeof cascade};
    kvp_meta_level levels[KVP_META_LEVELS_MAX];
    kvpy_arrays all;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[4], &cascade.max_levels) != 0 ||
        kvpy_u32_in(args[5], &batch.group) != 0)
        return NULL;
    kvpy_take_batch(&all, args, &batch);
    int status = NOT_AS_WANTED;
    if (all.fits && cascade.max_levels >= 1 && cascade.max_levels <= KVP_META_LEVELS_MAX)
        status = fill_cascade(self, &batch, &cascade, levels);
    kvpy_give_back(&all);
    PyObject *made = status == KVP_OK ? cascade_of(&cascade, batch.n_seqs) : kvpy_result(status);
    PyMem_RawFree(cascade.order);
    return made;
}

/* --------------------------------------------------------------------------------- scheduler */

static PyObject *counts_of(const uint32_t *counts)
{
    PyObject *made = PyTuple_New(KVP_WAIT_REASONS);
    for (int i = 0; made != NULL && i < KVP_WAIT_REASONS; i++) {
        PyObject *count = PyLong_FromUnsignedLong(counts[i]);
        if (count == NULL)
            Py_CLEAR(made);
        else
            PyTuple_SET_ITEM(made, i, count);
    }
    return made;
}

static PyObject *step_of(const kvp_step *step)
{
    PyObject *items[] = {PyLong_FromUnsignedLongLong(step->number),
                         PyLong_FromUnsignedLong(step->n_sampled),
                         PyLong_FromUnsignedLong(step->n_decoding),
                         array_of(STEP_SEQ, step->seqs, step->n_seqs),
                         array_of(I32, step->tokens, step->n_tokens),
                         array_of(U64, step->admitted, step->n_admitted),
                         array_of(U64, step->preempted, step->n_preempted),
                         array_of(U64, step->swapped_out, step->n_swapped_out),
                         array_of(U64, step->swapped_in, step->n_swapped_in),
                         array_of(ENDED, step->ended, step->n_ended),
                         PyLong_FromUnsignedLong(step->n_left_out),
                         counts_of(step->waited),
                         counts_of(step->waited_swapped),
                         PyLong_FromUnsignedLong(step->n_loading),
                         array_of(U32, step->drafts, step->n_decoding)};
    return tuple_of(tuples[STEP], items, sizeof items / sizeof *items);
}

/* As if the step had failed: the caller does not know of it, so its requests wait again. */
static void forget_step(kvpy_object *object)
{
    if (kvpy_enter(object) != KVP_OK)
        return;
    (void)kvp_sched_fail(atomic_load_explicit(&object->pointer, memory_order_relaxed));
    kvpy_leave(object);
}

/* sched_step(scheduler): a Step. */
static PyObject *sched_step(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 1);
    kvpy_step *copy = NULL;
    int status;
    (void)module;
    if (self == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = kvpy_sched_step(self->object, &copy);
    Py_END_ALLOW_THREADS if (status != KVP_OK) return PyLong_FromLong(status);
    PyObject *made = step_of(&copy->step);
    if (made == NULL && copy->step.n_seqs > 0)
        forget_step(self->object);
    kvpy_step_free(&copy);
    return made;
}

/* Finishes, and copies what ended, alone inside; gives the status. */
static int finish(kvpy_object *object, const int32_t *tokens, const uint8_t *flags, uint32_t n,
                  kvp_ended **out_ended, uint32_t *out_n)
{
    kvp_step_end end = {0};
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    void *sched = atomic_load_explicit(&object->pointer, memory_order_relaxed);
    status = n == object->n_sampled ? kvp_sched_finish(sched, tokens, flags, &end) : KVPY_E_LENGTH;
    if (status == KVP_OK && end.n_ended > 0) {
        *out_ended = PyMem_RawMalloc(end.n_ended * sizeof **out_ended);
        if (*out_ended == NULL)
            status = KVP_E_NO_MEMORY;
        else
            memcpy(*out_ended, end.ended, end.n_ended * sizeof **out_ended);
        *out_n = end.n_ended;
    }
    kvpy_leave(object);
    return status;
}

/* sched_finish(scheduler, tokens, ended or None): an array of what ended. */
static PyObject *sched_finish(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 3);
    kvp_ended *ended = NULL;
    uint32_t n_ended = 0;
    kvpy_arrays all = {.fits = 1};
    (void)module;
    if (self == NULL)
        return NULL;
    all.fits = kvpy_array_in(args[1], KVPY_I32, &all.views[0]);
    all.n = all.fits;
    const size_t n = all.fits ? (size_t)all.views[0].shape[0] : 0;
    const uint8_t *flags = kvpy_take(&all, args[2], KVPY_U8, n);
    int status = NOT_AS_WANTED;
    if (all.fits) {
        Py_BEGIN_ALLOW_THREADS status =
            finish(self->object, all.views[0].buf, flags, (uint32_t)n, &ended, &n_ended);
        Py_END_ALLOW_THREADS
    }
    kvpy_give_back(&all);
    PyObject *made = status == KVP_OK ? array_of(ENDED, ended, n_ended) : kvpy_result(status);
    PyMem_RawFree(ended);
    return made;
}

PyMethodDef kvpy_step_calls[] = {{"setup_steps", setup_steps, METH_VARARGS, NULL},
                                 KVPY_FAST("swap_out", swap_out),
                                 KVPY_FAST("swap_in", swap_in),
                                 KVPY_FAST("can_swap_out", can_swap_out),
                                 KVPY_FAST("can_swap_in", can_swap_in),
                                 KVPY_FAST("events", events),
                                 KVPY_FAST("delta", make_delta),
                                 KVPY_FAST("cascade", make_cascade),
                                 KVPY_FAST("sched_step", sched_step),
                                 KVPY_FAST("sched_finish", sched_finish),
                                 {NULL, NULL, 0, NULL}};
