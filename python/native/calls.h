/* calls.h: what the calls without cffi have in common. See calls.c. */
#ifndef KVPY_CALLS_H
#define KVPY_CALLS_H

#include <Python.h>

#include "shim.h"

/* From this much work on, about a microsecond, the interpreter's lock is let go. */
enum { LONG_TOKENS = 1024, LONG_SEQS = 32 };

typedef struct handle {
    PyObject_HEAD PyObject *owner; /* the cdata that keeps `object` alive */
    kvpy_object *object;
    uint64_t bits;      /* of a kvp_seq or kvp_ns; of a cache 0 */
    kvp_open_info info; /* what open found; all zero when it was not opened here */
    PyObject *weak;
} handle;

/* The first argument as a handle, when there are `wanted`; NULL with an exception. */
handle *kvpy_handle_in(PyObject *const *args, Py_ssize_t n_args, Py_ssize_t wanted);

/* -1 with an exception when it is no such number. */
int kvpy_u64_in(PyObject *value, uint64_t *out);
int kvpy_u32_in(PyObject *value, uint32_t *out);

/* An array of one dimension as it lies: 1: `view` has it, to be released; 0: it is another thing.
 * */
typedef enum kvpy_kind {
    KVPY_I32,
    KVPY_U32,
    KVPY_U64,
    KVPY_I64_OUT,
    KVPY_I32_OUT,
    KVPY_U8,        /* or bool */
    KVPY_COPIES_OUT /* of kvp_copy: the caller has checked the fields */
} kvpy_kind;
int kvpy_array_in(PyObject *value, kvpy_kind kind, Py_buffer *view);

/* The arrays of a call. `fits` becomes 0 when one of them is not as wanted; then and at the end
 * those that were taken are to be given back. */
typedef struct kvpy_arrays {
    Py_buffer views[4];
    int n;
    int fits;
} kvpy_arrays;

/* Handles, as many as there are: the first array of a call. */
const kvp_seq *kvpy_take_seqs(kvpy_arrays *all, PyObject *value, uint32_t *out_n);

/* An array of `wanted` elements; NULL for None. */
void *kvpy_take(kvpy_arrays *all, PyObject *value, kvpy_kind kind, size_t wanted);

/* (cache, seqs, begin or None, n_tokens or None, ...). */
void kvpy_take_batch(kvpy_arrays *all, PyObject *const *args, kvp_meta_batch *batch);

void kvpy_give_back(kvpy_arrays *all);

#define ARGUMENTS PyObject *module, PyObject *const *args, Py_ssize_t n_args

/* A status as a result; None for what is no status. */
enum { NOT_AS_WANTED = 1 };

static inline PyObject *kvpy_result(int status)
{
    if (status == NOT_AS_WANTED)
        Py_RETURN_NONE;
    return PyLong_FromLong(status);
}

/* KVP_OK, and the caller is alone inside until kvpy_come_out, for long work without the
 * interpreter's lock; or why not. */
int kvpy_go_in(handle *self, int is_long, PyThreadState **out_state);
void kvpy_come_out(handle *self, PyThreadState *state);

/* A NamedTuple of a struct's fields. */
typedef enum kvpy_record {
    KVPY_OPEN_INFO,
    KVPY_RELEASED,
    KVPY_ADMISSION,
    KVPY_SEQ_INFO,
    KVPY_STATS,
    KVPY_SHORTAGE,
    KVPY_META_SIZES,
    KVPY_RECORDS
} kvpy_record;
PyObject *kvpy_record_new(kvpy_record which, const void *fields);

static inline kvp_cache *kvpy_cache_of(handle *self)
{
    return atomic_load_explicit(&self->object->pointer, memory_order_relaxed);
}

static inline kvp_seq kvpy_seq_of(const handle *self)
{
    return (kvp_seq){.bits = self->bits};
}

#define KVPY_FAST(name, call)                                                                      \
    {                                                                                              \
        name, (PyCFunction)(void (*)(void))(call), METH_FASTCALL, NULL                             \
    }

/* calls_arrays.c, calls_steps.c and calls_requests.c; each ends with one that has no name. */
extern PyMethodDef kvpy_array_calls[];
extern PyMethodDef kvpy_step_calls[];
extern PyMethodDef kvpy_request_calls[];

#endif
