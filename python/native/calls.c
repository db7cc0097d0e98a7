/* calls.c: the calls that are made for each request, without cffi between: kvpager._calls.
 *
 * Through cffi a call costs about 100 ns, each array 100 more, a record 250, a Python object 100:
 * together more than open or fork takes. Here a sequence or namespace is an object of this module
 * that has what C wants of it, so a call takes it as it is, reads an array by the buffer protocol
 * and makes its result.
 *
 * A call gives its result; or an int, the status (of commit and append also KVP_OK); or None: the
 * array is not one of int32 in one dimension as it lies, and has to be made one. Arguments that are
 * no numbers raise as cffi does, without a name: who calls knows it. This module is in the same
 * file as kvpager._native, since there must be only one copy of the library. */
#include <Python.h>
#include <structmember.h>

#include "shim.h"

/* Tokens from which on the interpreter's lock is let go: about a microsecond of work. */
enum { LONG_TOKENS = 1024 };

typedef struct handle {
    PyObject_HEAD PyObject *owner; /* the cdata that keeps `object` alive */
    kvpy_object *object;
    uint64_t bits;      /* of a kvp_seq or kvp_ns */
    kvp_open_info info; /* what open found; all zero when it was not opened here */
    PyObject *weak;
} handle;

static PyTypeObject *sequence_type, *open_info_type, *released_type;

static handle *handle_new(PyTypeObject *type, PyObject *owner, kvpy_object *object, uint64_t bits)
{
    handle *made = (handle *)type->tp_alloc(type, 0); /* all zero */
    if (made != NULL) {
        made->owner = Py_NewRef(owner);
        made->object = object;
        made->bits = bits;
    }
    return made;
}

/* Handle(owner, address, handle): the cdata of a kvpy_object, where that lies, and the bits. */
static PyObject *handle_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *owner;
    unsigned long long address, bits;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "OKK", &owner, &address, &bits))
        return NULL;
    return (PyObject *)handle_new(type, owner, (kvpy_object *)(uintptr_t)address, bits);
}

static void handle_free(PyObject *self)
{
    handle *freed = (handle *)self;
    if (freed->weak != NULL)
        PyObject_ClearWeakRefs(self);
    Py_XDECREF(freed->owner);
    Py_TYPE(self)->tp_free(self);
}

static PyMemberDef handle_members[] = {
    {"_o", T_OBJECT_EX, offsetof(handle, owner), READONLY, NULL},
    {"handle", T_ULONGLONG, offsetof(handle, bits), READONLY, "What arrays of handles hold: u64."},
    {NULL, 0, 0, 0, NULL}};

static PyTypeObject handle_type = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kvpager._calls.Handle",
                                   .tp_doc = "What namespaces and sequences have in common.",
                                   .tp_basicsize = sizeof(handle),
                                   .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                   .tp_new = handle_make,
                                   .tp_dealloc = handle_free,
                                   .tp_members = handle_members,
                                   .tp_weaklistoffset = offsetof(handle, weak)};

/* ------------------------------------------------------------------------- arguments, results */

/* The first argument as a handle, when there are `wanted`; NULL with an exception. */
static handle *handle_in(PyObject *const *args, Py_ssize_t n_args, Py_ssize_t wanted)
{
    if (n_args == wanted && PyObject_TypeCheck(args[0], &handle_type))
        return (handle *)args[0];
    PyErr_SetString(PyExc_SystemError, "kvpager._calls: called wrongly");
    return NULL;
}

static int u64_in(PyObject *value, uint64_t *out)
{
    PyObject *index = PyNumber_Index(value);
    if (index == NULL)
        return -1;
    *out = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    return PyErr_Occurred() != NULL ? -1 : 0;
}

static int u32_in(PyObject *value, uint32_t *out)
{
    uint64_t wide;
    if (u64_in(value, &wide) != 0)
        return -1;
    if (wide > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "does not fit 32 bits");
        return -1;
    }
    *out = (uint32_t)wide;
    return 0;
}

/* 1: `view` has the tokens, to be released; 0: it is no array as wanted. */
static int tokens_in(PyObject *array, Py_buffer *view)
{
    if (PyObject_GetBuffer(array, view, PyBUF_ND | PyBUF_FORMAT) != 0) {
        PyErr_Clear();
        return 0;
    }
    if (view->ndim == 1 && view->itemsize == 4 && view->format != NULL &&
        strcmp(view->format, "i") == 0 && view->shape[0] <= UINT32_MAX)
        return 1;
    PyBuffer_Release(view);
    return 0;
}

/* A NamedTuple whose fields are the struct's, each of 32 bits. */
static PyObject *record(PyTypeObject *type, const void *fields, size_t n_bytes)
{
    Py_ssize_t n = (Py_ssize_t)(n_bytes / sizeof(uint32_t));
    PyObject *made = type->tp_alloc(type, n);
    for (Py_ssize_t i = 0; made != NULL && i < n; i++) {
        PyObject *value = PyLong_FromUnsignedLong(((const uint32_t *)fields)[i]);
        if (value == NULL)
            Py_CLEAR(made);
        else
            PyTuple_SET_ITEM(made, i, value);
    }
    return made;
}

static kvp_cache *cache_of(handle *self)
{
    return atomic_load_explicit(&self->object->pointer, memory_order_relaxed);
}

/* ---------------------------------------------------------------------------------- sequences */

static PyObject *seq_commit(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = handle_in(args, n_args, 2);
    uint32_t n_tokens;
    (void)module;
    if (self == NULL || u32_in(args[1], &n_tokens) != 0)
        return NULL;
    int status = kvpy_enter(self->object);
    if (status == KVP_OK) {
        status = kvp_seq_commit(cache_of(self), (kvp_seq){.bits = self->bits}, n_tokens);
        kvpy_leave(self->object);
    }
    return PyLong_FromLong(status);
}

static PyObject *seq_append(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = handle_in(args, n_args, 2);
    uint32_t token;
    (void)module;
    if (self == NULL || u32_in(args[1], &token) != 0)
        return NULL;
    const int32_t value = token <= INT32_MAX ? (int32_t)token : -1; /* which C refuses */
    int status = kvpy_enter(self->object);
    if (status == KVP_OK) {
        status = kvp_seq_extend(cache_of(self), (kvp_seq){.bits = self->bits}, &value, 1, 0);
        kvpy_leave(self->object);
    }
    return PyLong_FromLong(status);
}

static PyObject *seq_fork(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = handle_in(args, n_args, 3);
    uint32_t at;
    uint64_t tag;
    (void)module;
    if (self == NULL || u32_in(args[1], &at) != 0 || u64_in(args[2], &tag) != 0)
        return NULL;
    kvp_seq child;
    int status = kvpy_enter(self->object);
    if (status == KVP_OK) {
        status = kvp_seq_fork(cache_of(self), (kvp_seq){.bits = self->bits}, at, tag, &child);
        kvpy_leave(self->object);
    }
    if (status != KVP_OK)
        return PyLong_FromLong(status);
    return (PyObject *)handle_new(sequence_type, self->owner, self->object, child.bits);
}

static PyObject *seq_truncate(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = handle_in(args, n_args, 2);
    uint32_t n_tokens;
    (void)module;
    if (self == NULL || u32_in(args[1], &n_tokens) != 0)
        return NULL;
    kvp_released released;
    int status = kvpy_enter(self->object);
    if (status == KVP_OK) {
        status =
            kvp_seq_truncate(cache_of(self), (kvp_seq){.bits = self->bits}, n_tokens, &released);
        kvpy_leave(self->object);
    }
    if (status != KVP_OK)
        return PyLong_FromLong(status);
    return record(released_type, &released, sizeof released);
}

static PyObject *seq_close(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = handle_in(args, n_args, 1);
    (void)module;
    if (self == NULL)
        return NULL;
    kvp_released released;
    int status = kvpy_enter(self->object);
    if (status == KVP_OK) {
        status = kvp_seq_close(cache_of(self), (kvp_seq){.bits = self->bits}, &released);
        kvpy_leave(self->object);
    }
    if (status != KVP_OK)
        return PyLong_FromLong(status);
    return record(released_type, &released, sizeof released);
}

static PyObject *seq_opened(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = handle_in(args, n_args, 1);
    (void)module;
    return self == NULL ? NULL : record(open_info_type, &self->info, sizeof self->info);
}

/* ------------------------------------------------------------------------------------ prompts */

static int open_or_match(handle *self, const kvp_prompt *prompt, kvp_seq *seq, kvp_open_info *info)
{
    int status = kvpy_enter(self->object);
    if (status != KVP_OK)
        return status;
    const kvp_ns ns = {.bits = self->bits};
    if (seq != NULL)
        status = kvp_seq_open(cache_of(self), ns, prompt, seq, info);
    else
        status = kvp_match(cache_of(self), ns, prompt, info);
    kvpy_leave(self->object);
    return status;
}

static int run(handle *self, const kvp_prompt *prompt, kvp_seq *seq, kvp_open_info *info)
{
    if (prompt->n_tokens < LONG_TOKENS)
        return open_or_match(self, prompt, seq, info);
    int status;
    Py_BEGIN_ALLOW_THREADS status = open_or_match(self, prompt, seq, info);
    Py_END_ALLOW_THREADS return status;
}

static PyObject *open_it(handle *self, const kvp_prompt *prompt)
{
    kvp_seq seq;
    kvp_open_info info;
    int status = run(self, prompt, &seq, &info);
    if (status != KVP_OK)
        return PyLong_FromLong(status);
    handle *made = handle_new(sequence_type, self->owner, self->object, seq.bits);
    if (made != NULL)
        made->info = info;
    return (PyObject *)made;
}

static PyObject *match_it(handle *self, const kvp_prompt *prompt)
{
    kvp_open_info info;
    int status = run(self, prompt, NULL, &info);
    return status == KVP_OK ? record(open_info_type, &info, sizeof info) : PyLong_FromLong(status);
}

static PyObject *ns_open(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = handle_in(args, n_args, 4);
    kvp_prompt prompt = {.struct_size = sizeof prompt};
    Py_buffer view;
    (void)module;
    if (self == NULL || u32_in(args[2], &prompt.reserve_tokens) != 0 ||
        u64_in(args[3], &prompt.tag) != 0)
        return NULL;
    if (!tokens_in(args[1], &view))
        Py_RETURN_NONE;
    prompt.tokens = view.buf;
    prompt.n_tokens = (uint32_t)view.shape[0];
    PyObject *made = open_it(self, &prompt);
    PyBuffer_Release(&view);
    return made;
}

static PyObject *ns_match(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = handle_in(args, n_args, 2);
    Py_buffer view;
    (void)module;
    if (self == NULL)
        return NULL;
    if (!tokens_in(args[1], &view))
        Py_RETURN_NONE;
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = view.buf, .n_tokens = (uint32_t)view.shape[0]};
    PyObject *made = match_it(self, &prompt);
    PyBuffer_Release(&view);
    return made;
}

/* The prompt as the address of a kvp_prompt: what a Prompt has. */
static PyObject *with_prompt(PyObject *const *args, Py_ssize_t n_args,
                             PyObject *(*call)(handle *, const kvp_prompt *))
{
    handle *self = handle_in(args, n_args, 2);
    uint64_t address;
    if (self == NULL || u64_in(args[1], &address) != 0)
        return NULL;
    return call(self, (const kvp_prompt *)(uintptr_t)address);
}

static PyObject *ns_open_prompt(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    return with_prompt(args, n_args, open_it);
}

static PyObject *ns_match_prompt(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    return with_prompt(args, n_args, match_it);
}

/* ------------------------------------------------------------------------------------- module */

/* What is made: the class of sequences, and the records of kvp_open_info and kvp_released. */
static PyObject *setup(PyObject *module, PyObject *args)
{
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyType_Type, &sequence_type, &PyType_Type,
                          &open_info_type, &PyType_Type, &released_type))
        return NULL;
    Py_INCREF(sequence_type);
    Py_INCREF(open_info_type);
    Py_INCREF(released_type);
    Py_RETURN_NONE;
}

#define FAST(name, call)                                                                           \
    {                                                                                              \
        name, (PyCFunction)(void (*)(void))(call), METH_FASTCALL, NULL                             \
    }

static PyMethodDef methods[] = {{"setup", setup, METH_VARARGS, NULL},
                                FAST("commit", seq_commit),
                                FAST("append", seq_append),
                                FAST("fork", seq_fork),
                                FAST("truncate", seq_truncate),
                                FAST("close", seq_close),
                                FAST("opened", seq_opened),
                                FAST("open", ns_open),
                                FAST("match", ns_match),
                                FAST("open_prompt", ns_open_prompt),
                                FAST("match_prompt", ns_match_prompt),
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "kvpager._calls",
                                        .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__calls(void)
{
    PyObject *module = PyType_Ready(&handle_type) == 0 ? PyModule_Create(&definition) : NULL;
    if (module != NULL && PyModule_AddObjectRef(module, "Handle", (PyObject *)&handle_type) != 0)
        Py_CLEAR(module);
    return module;
}
