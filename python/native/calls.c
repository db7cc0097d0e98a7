/* calls.c: the calls that are made for each request and step, without cffi between: kvpager._calls.
 *
 * Through cffi a call costs about 100 ns, each array 100 more, a record 250, a Python object 100:
 * together more than open or fork takes. Here a sequence, a namespace or a cache is an object of
 * this module that has what C wants of it, so a call takes it as it is, reads an array by the
 * buffer protocol and makes its result. Those with arrays are in calls_arrays.c and
 * calls_steps.c, those with Python's lists in calls_requests.c.
 *
 * A call gives its result; or an int, the status (of commit and append also KVP_OK); or None: the
 * array is not one of int32 in one dimension as it lies, and has to be made one. Arguments that are
 * no numbers raise as cffi does, without a name: who calls knows it. This module is in the same
 * file as kvpager._native, since there must be only one copy of the library. */
#include "calls.h"

#include <structmember.h>

/* The NamedTuple of a struct: a letter of `codes` for each field, Q u64, I u32, i i32. */
typedef struct record {
    PyTypeObject *type;
    PyObject *text;
    const char *codes;
} record;

static record records[KVPY_RECORDS];
static PyTypeObject *sequence_type;
static PyObject *refuse; /* refuse(sequence, status) raises */

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
    {"_hit_tokens", T_UINT, offsetof(handle, info) + offsetof(kvp_open_info, hit_tokens), READONLY,
     NULL},
    {NULL, 0, 0, 0, NULL}};

/* Sequence.info: a method, for which Python has no code of its own to run. What it returned in
 * place of KVP_OK goes to `refuse`, which raises. */
static PyObject *seq_info(PyObject *object, PyObject *unused)
{
    handle *self = (handle *)object;
    kvp_seq_info info;
    (void)unused;
    int status = kvpy_enter_reader(self->object); /* it may run beside a change */
    if (status == KVP_OK) {
        status = kvp_seq_info_get(kvpy_cache_of(self), kvpy_seq_of(self), &info);
        kvpy_leave_reader(self->object);
    }
    if (status == KVP_OK)
        return kvpy_record_new(KVPY_SEQ_INFO, &info);
    return PyObject_CallFunction(refuse, "Oi", object, status);
}

static PyMethodDef handle_methods[] = {
    {"_seq_info", seq_info, METH_NOARGS, "All that is known of the sequence: SeqInfo."},
    {NULL, NULL, 0, NULL}};

static PyTypeObject handle_type = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kvpager._calls.Handle",
                                   .tp_doc = "What namespaces and sequences have in common.",
                                   .tp_basicsize = sizeof(handle),
                                   .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                   .tp_dealloc = handle_free,
                                   .tp_members = handle_members,
                                   .tp_methods = handle_methods,
                                   .tp_weaklistoffset = offsetof(handle, weak)};

/* ------------------------------------------------------------------------- arguments, results */

handle *kvpy_handle_in(PyObject *const *args, Py_ssize_t n_args, Py_ssize_t wanted)
{
    if (n_args == wanted && PyObject_TypeCheck(args[0], &handle_type))
        return (handle *)args[0];
    PyErr_SetString(PyExc_SystemError, "kvpager._calls: called wrongly");
    return NULL;
}

int kvpy_u64_in(PyObject *value, uint64_t *out)
{
    PyObject *index = PyNumber_Index(value);
    if (index == NULL)
        return -1;
    *out = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    return PyErr_Occurred() != NULL ? -1 : 0;
}

int kvpy_u32_in(PyObject *value, uint32_t *out)
{
    uint64_t wide;
    if (kvpy_u64_in(value, &wide) != 0)
        return -1;
    if (wide > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "does not fit 32 bits");
        return -1;
    }
    *out = (uint32_t)wide;
    return 0;
}

int kvpy_array_in(PyObject *value, kvpy_kind kind, Py_buffer *view)
{
    static const struct {
        const char *formats;
        Py_ssize_t size;
        int flags;
    } kinds[] = {[KVPY_I32] = {"i", 4, PyBUF_ND | PyBUF_FORMAT},
                 [KVPY_U32] = {"I", 4, PyBUF_ND | PyBUF_FORMAT},
                 [KVPY_U64] = {"LQ", 8, PyBUF_ND | PyBUF_FORMAT},
                 [KVPY_I64_OUT] = {"lq", 8, PyBUF_ND | PyBUF_FORMAT | PyBUF_WRITABLE},
                 [KVPY_I32_OUT] = {"i", 4, PyBUF_ND | PyBUF_FORMAT | PyBUF_WRITABLE},
                 [KVPY_U8] = {"B?", 1, PyBUF_ND | PyBUF_FORMAT},
                 [KVPY_COPIES_OUT] = {NULL, sizeof(kvp_copy), PyBUF_ND | PyBUF_WRITABLE}};
    const char *formats = kinds[kind].formats;
    if (PyObject_GetBuffer(value, view, kinds[kind].flags) != 0) {
        PyErr_Clear();
        return 0;
    }
    if (view->ndim == 1 && view->itemsize == kinds[kind].size && view->shape[0] <= UINT32_MAX &&
        (formats == NULL || (view->format != NULL && view->format[0] != '\0' &&
                             view->format[1] == '\0' && strchr(formats, view->format[0]) != NULL)))
        return 1;
    PyBuffer_Release(view);
    return 0;
}

int kvpy_go_in(handle *self, int is_long, PyThreadState **out_state)
{
    *out_state = is_long ? PyEval_SaveThread() : NULL;
    int status = kvpy_enter(self->object);
    if (status != KVP_OK && *out_state != NULL)
        PyEval_RestoreThread(*out_state);
    return status;
}

void kvpy_come_out(handle *self, PyThreadState *state)
{
    kvpy_leave(self->object);
    if (state != NULL)
        PyEval_RestoreThread(state);
}

static PyObject *field(const unsigned char *at, char code)
{
    if (code == 'Q')
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)(const void *)at);
    if (code == 'I')
        return PyLong_FromUnsignedLong(*(const uint32_t *)(const void *)at);
    return PyLong_FromLong(*(const int32_t *)(const void *)at);
}

PyObject *kvpy_record_new(kvpy_record which, const void *fields)
{
    const char *codes = records[which].codes;
    const unsigned char *at = fields;
    PyObject *made = records[which].type->tp_alloc(records[which].type,
                                                   PyUnicode_GET_LENGTH(records[which].text));
    for (Py_ssize_t i = 0; made != NULL && codes[i] != '\0'; i++) {
        PyObject *value = field(at, codes[i]);
        if (value == NULL)
            Py_CLEAR(made);
        else
            PyTuple_SET_ITEM(made, i, value);
        at += codes[i] == 'Q' ? 8 : 4;
    }
    return made;
}

/* ---------------------------------------------------------------------------------- sequences */

/* The object of a sequence that was just made; without memory for it, the sequence is closed. */
static handle *sequence_of(handle *self, kvp_seq seq)
{
    handle *made = handle_new(sequence_type, self->owner, self->object, seq.bits);
    if (made == NULL && kvpy_enter(self->object) == KVP_OK) {
        (void)kvp_seq_close(kvpy_cache_of(self), seq, NULL);
        kvpy_leave(self->object);
    }
    return made;
}

static PyObject *seq_commit(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = kvpy_handle_in(args, n_args, 2);
    uint32_t n_tokens;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[1], &n_tokens) != 0)
        return NULL;
    int status = kvpy_enter(self->object);
    if (status == KVP_OK) {
        status = kvp_seq_commit(kvpy_cache_of(self), kvpy_seq_of(self), n_tokens);
        kvpy_leave(self->object);
    }
    return PyLong_FromLong(status);
}

static PyObject *seq_append(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = kvpy_handle_in(args, n_args, 2);
    uint32_t token;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[1], &token) != 0)
        return NULL;
    const int32_t value = token <= INT32_MAX ? (int32_t)token : -1; /* which C refuses */
    int status = kvpy_enter(self->object);
    if (status == KVP_OK) {
        status = kvp_seq_extend(kvpy_cache_of(self), kvpy_seq_of(self), &value, 1, 0);
        kvpy_leave(self->object);
    }
    return PyLong_FromLong(status);
}

static PyObject *seq_fork(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = kvpy_handle_in(args, n_args, 3);
    uint32_t at;
    uint64_t tag;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[1], &at) != 0 || kvpy_u64_in(args[2], &tag) != 0)
        return NULL;
    kvp_seq child;
    int status = kvpy_enter(self->object);
    if (status == KVP_OK) {
        status = kvp_seq_fork(kvpy_cache_of(self), kvpy_seq_of(self), at, tag, &child);
        kvpy_leave(self->object);
    }
    return status == KVP_OK ? (PyObject *)sequence_of(self, child) : PyLong_FromLong(status);
}

static PyObject *seq_truncate(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = kvpy_handle_in(args, n_args, 2);
    uint32_t n_tokens;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[1], &n_tokens) != 0)
        return NULL;
    kvp_released released;
    int status = kvpy_enter(self->object);
    if (status == KVP_OK) {
        status = kvp_seq_truncate(kvpy_cache_of(self), kvpy_seq_of(self), n_tokens, &released);
        kvpy_leave(self->object);
    }
    if (status != KVP_OK)
        return PyLong_FromLong(status);
    return kvpy_record_new(KVPY_RELEASED, &released);
}

static PyObject *seq_close(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = kvpy_handle_in(args, n_args, 1);
    (void)module;
    if (self == NULL)
        return NULL;
    kvp_released released;
    int status = kvpy_enter(self->object);
    if (status == KVP_OK) {
        status = kvp_seq_close(kvpy_cache_of(self), kvpy_seq_of(self), &released);
        kvpy_leave(self->object);
    }
    if (status != KVP_OK)
        return PyLong_FromLong(status);
    return kvpy_record_new(KVPY_RELEASED, &released);
}

static PyObject *seq_opened(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = kvpy_handle_in(args, n_args, 1);
    (void)module;
    return self == NULL ? NULL : kvpy_record_new(KVPY_OPEN_INFO, &self->info);
}

/* stats(cache): also beside another call. */
static PyObject *cache_stats(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = kvpy_handle_in(args, n_args, 1);
    (void)module;
    if (self == NULL)
        return NULL;
    kvp_stats stats;
    int status = kvpy_enter_reader(self->object);
    if (status == KVP_OK) {
        status = kvp_cache_stats_get(kvpy_cache_of(self), &stats);
        kvpy_leave_reader(self->object);
    }
    return status == KVP_OK ? kvpy_record_new(KVPY_STATS, &stats) : PyLong_FromLong(status);
}

static PyObject *cache_shortage(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = kvpy_handle_in(args, n_args, 1);
    (void)module;
    if (self == NULL)
        return NULL;
    kvp_shortage shortage;
    int status = kvpy_enter(self->object);
    if (status == KVP_OK) {
        status = kvp_cache_shortage_get(kvpy_cache_of(self), &shortage);
        kvpy_leave(self->object);
    }
    return status == KVP_OK ? kvpy_record_new(KVPY_SHORTAGE, &shortage) : PyLong_FromLong(status);
}

/* extend_unknown(seq, n_tokens, reserve): also with none, which makes slots writable. */
static PyObject *seq_extend_unknown(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = kvpy_handle_in(args, n_args, 3);
    uint32_t n_tokens, reserve;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[1], &n_tokens) != 0 || kvpy_u32_in(args[2], &reserve) != 0)
        return NULL;
    int status = kvpy_enter(self->object);
    if (status == KVP_OK) {
        status = kvp_seq_extend(kvpy_cache_of(self), kvpy_seq_of(self), NULL, n_tokens, reserve);
        kvpy_leave(self->object);
    }
    return PyLong_FromLong(status);
}

/* retain(seq, begin, end, retention), uncache(seq, begin, end). */
static PyObject *seq_range(PyObject *const *args, Py_ssize_t n_args, int is_retain)
{
    handle *self = kvpy_handle_in(args, n_args, is_retain ? 4 : 3);
    kvp_range range;
    uint32_t retention = 0;
    if (self == NULL || kvpy_u32_in(args[1], &range.begin) != 0 ||
        kvpy_u32_in(args[2], &range.end) != 0 ||
        (is_retain && kvpy_u32_in(args[3], &retention) != 0))
        return NULL;
    int status = kvpy_enter(self->object);
    if (status == KVP_OK) {
        kvp_cache *cache = kvpy_cache_of(self);
        status = is_retain ? kvp_seq_retain(cache, kvpy_seq_of(self), range, retention)
                           : kvp_seq_uncache(cache, kvpy_seq_of(self), range);
        kvpy_leave(self->object);
    }
    return PyLong_FromLong(status);
}

static PyObject *seq_retain(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    return seq_range(args, n_args, 1);
}

static PyObject *seq_uncache(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module;
    return seq_range(args, n_args, 0);
}

/* ------------------------------------------------------------------------------------ prompts */

static int open_or_match(handle *self, const kvp_prompt *prompt, kvp_seq *seq, kvp_open_info *info)
{
    int status = kvpy_enter(self->object);
    if (status != KVP_OK)
        return status;
    const kvp_ns ns = {.bits = self->bits};
    if (seq != NULL)
        status = kvp_seq_open(kvpy_cache_of(self), ns, prompt, seq, info);
    else
        status = kvp_cache_match(kvpy_cache_of(self), ns, prompt, info);
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
    handle *made = sequence_of(self, seq);
    if (made != NULL)
        made->info = info;
    return (PyObject *)made;
}

static PyObject *match_it(handle *self, const kvp_prompt *prompt)
{
    kvp_open_info info;
    int status = run(self, prompt, NULL, &info);
    return status == KVP_OK ? kvpy_record_new(KVPY_OPEN_INFO, &info) : PyLong_FromLong(status);
}

static PyObject *ns_open(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = kvpy_handle_in(args, n_args, 4);
    kvp_prompt prompt = {.struct_size = sizeof prompt};
    Py_buffer view;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[2], &prompt.reserve_tokens) != 0 ||
        kvpy_u64_in(args[3], &prompt.tag) != 0)
        return NULL;
    if (!kvpy_array_in(args[1], KVPY_I32, &view))
        Py_RETURN_NONE;
    prompt.tokens = view.buf;
    prompt.n_tokens = (uint32_t)view.shape[0];
    PyObject *made = open_it(self, &prompt);
    PyBuffer_Release(&view);
    return made;
}

static PyObject *ns_match(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    handle *self = kvpy_handle_in(args, n_args, 2);
    Py_buffer view;
    (void)module;
    if (self == NULL)
        return NULL;
    if (!kvpy_array_in(args[1], KVPY_I32, &view))
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
    handle *self = kvpy_handle_in(args, n_args, 2);
    uint64_t address;
    if (self == NULL || kvpy_u64_in(args[1], &address) != 0)
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

/* handle(type, owner, address, bits): the cdata of a kvpy_object, where that lies, and the bits.
 * Not a class's own constructor: who calls that cannot know an address. */
static PyObject *make_handle(PyObject *module, PyObject *args)
{
    PyTypeObject *type;
    PyObject *owner;
    unsigned long long address, bits;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!OKK", &PyType_Type, &type, &owner, &address, &bits))
        return NULL;
    if (!PyType_IsSubtype(type, &handle_type)) {
        PyErr_SetString(PyExc_SystemError, "kvpager._calls: called wrongly");
        return NULL;
    }
    return (PyObject *)handle_new(type, owner, (kvpy_object *)(uintptr_t)address, bits);
}

/* A record of the struct it is to be: 0, or -1 with an exception. */
static int set_record(record *made, PyObject *pair, size_t size)
{
    size_t n_bytes = 0;
    if (!PyArg_ParseTuple(pair, "O!U", &PyType_Type, &made->type, &made->text))
        return -1;
    Py_INCREF(made->type);
    Py_INCREF(made->text);
    made->codes = PyUnicode_AsUTF8(made->text);
    if (made->codes == NULL)
        return -1;
    for (const char *code = made->codes; *code != '\0'; code++)
        n_bytes += *code == 'Q' ? 8 : 4;
    if (n_bytes == size && strspn(made->codes, "QIi") == strlen(made->codes))
        return 0;
    PyErr_SetString(PyExc_SystemError, "kvpager._calls: a record is not its struct");
    return -1;
}

/* setup(class of sequences, refuse, a tuple of (NamedTuple, codes) in the order of kvpy_record). */
static PyObject *setup(PyObject *module, PyObject *args)
{
    static const size_t sizes[KVPY_RECORDS] = {
        [KVPY_OPEN_INFO] = sizeof(kvp_open_info),  [KVPY_RELEASED] = sizeof(kvp_released),
        [KVPY_ADMISSION] = sizeof(kvp_admission),  [KVPY_SEQ_INFO] = sizeof(kvp_seq_info),
        [KVPY_STATS] = sizeof(kvp_stats),          [KVPY_SHORTAGE] = sizeof(kvp_shortage),
        [KVPY_META_SIZES] = sizeof(kvp_meta_sizes)};
    PyObject *pairs;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!OO!", &PyType_Type, &sequence_type, &refuse, &PyTuple_Type,
                          &pairs))
        return NULL;
    Py_INCREF(sequence_type);
    Py_INCREF(refuse);
    for (int i = 0; i < KVPY_RECORDS; i++) {
        PyObject *pair = PyTuple_GetItem(pairs, i);
        if (pair == NULL || set_record(&records[i], pair, sizes[i]) != 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

/* A tuple of ints: how many, at most 8; or -1 with an exception. */
static int sizes_in(PyObject *tuple, int64_t out[8])
{
    const Py_ssize_t n = PyTuple_GET_SIZE(tuple);
    for (Py_ssize_t i = 0; i < n && i < 8; i++) {
        out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
        if (out[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return (int)n;
}

static void free_capsule(PyObject *capsule)
{
    kvpy_dl_capsule_free(capsule);
}

/* dlpack(owner, address, type, shape, strides): a capsule "dltensor", which holds `owner`. In one
 * call, so that no exception of a signal's handler comes between the two. */
static PyObject *dlpack(PyObject *module, PyObject *args)
{
    PyObject *owner, *shape, *strides;
    unsigned long long address;
    unsigned type;
    int64_t of_shape[8], of_strides[8];
    (void)module;
    if (!PyArg_ParseTuple(args, "OKIO!O!", &owner, &address, &type, &PyTuple_Type, &shape,
                          &PyTuple_Type, &strides))
        return NULL;
    const int n = sizes_in(shape, of_shape);
    if (n < 0 || sizes_in(strides, of_strides) != n)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_SystemError, "kvpager._calls: strides");
    kvpy_dl_managed *managed =
        kvpy_dl_new((uintptr_t)owner, (void *)(uintptr_t)address, type, n, of_shape, of_strides);
    if (managed == NULL)
        return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(managed, "dltensor", free_capsule);
    if (capsule == NULL)
        kvpy_dl_delete(managed);
    return capsule;
}

static PyMethodDef methods[] = {{"setup", setup, METH_VARARGS, NULL},
                                {"dlpack", dlpack, METH_VARARGS, NULL},
                                {"handle", make_handle, METH_VARARGS, NULL},
                                KVPY_FAST("commit", seq_commit),
                                KVPY_FAST("append", seq_append),
                                KVPY_FAST("fork", seq_fork),
                                KVPY_FAST("truncate", seq_truncate),
                                KVPY_FAST("close", seq_close),
                                KVPY_FAST("opened", seq_opened),
                                KVPY_FAST("stats", cache_stats),
                                KVPY_FAST("shortage", cache_shortage),
                                KVPY_FAST("extend_unknown", seq_extend_unknown),
                                KVPY_FAST("retain", seq_retain),
                                KVPY_FAST("uncache", seq_uncache),
                                KVPY_FAST("open", ns_open),
                                KVPY_FAST("match", ns_match),
                                KVPY_FAST("open_prompt", ns_open_prompt),
                                KVPY_FAST("match_prompt", ns_match_prompt),
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "kvpager._calls",
                                        .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__calls(void)
{
    PyObject *module = PyType_Ready(&handle_type) == 0 ? PyModule_Create(&definition) : NULL;
    if (module != NULL && (PyModule_AddObjectRef(module, "Handle", (PyObject *)&handle_type) != 0 ||
                           PyModule_AddFunctions(module, kvpy_array_calls) != 0 ||
                           PyModule_AddFunctions(module, kvpy_step_calls) != 0 ||
                           PyModule_AddFunctions(module, kvpy_request_calls) != 0))
        Py_CLEAR(module);
    return module;
}
