/* calls_requests.c: calls with Python's own lists of numbers, and those that adapters make for each
 * request: see calls.c.
 *
 * None stands for: something is not as wanted, as in calls_arrays.c. Between the first and the last
 * number of a list no code of Python's runs, so the list stays what it is. */
#include "calls.h"

#include "small_int.h"

#include <limits.h>

/* Lists of fewer tokens are looked up as they are. */
enum { SHORT_TOKENS = 256 };

/* ------------------------------------------------------------------------------ lists of ints */

/* One that has two digits, or is negative. */
static int wide_int(PyObject *item, int32_t *out)
{
    int overflow = 0;
    if (!PyLong_CheckExact(item))
        return 0;
    const long value = PyLong_AsLongAndOverflow(item, &overflow);
    if (overflow != 0 || value < INT32_MIN || value > INT32_MAX)
        return 0;
    *out = (int32_t)value;
    return 1;
}

/* Whether all of these are ints of 32 bits; they are copied until one is not. */
static int copy_ints(PyObject *const *items, Py_ssize_t n, int32_t *out)
{
    int fits = 1;
    for (Py_ssize_t i = 0; fits && i < n; i++)
        fits = kvpy_small_int(items[i], &out[i]) || wide_int(items[i], &out[i]);
    return fits;
}

/* A list or tuple as it is, or the list in vLLM's ConstantList; NULL: another thing. */
static PyObject *items_of(PyObject *values)
{
    static PyObject *name;
    if (PyList_CheckExact(values) || PyTuple_CheckExact(values))
        return Py_NewRef(values);
    if (name == NULL)
        name = PyUnicode_InternFromString("_x");
    PyObject *inner = name == NULL ? NULL : PyObject_GetAttr(values, name);
    if (inner == NULL && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    else if (inner != NULL && !PyList_CheckExact(inner))
        Py_CLEAR(inner);
    return inner;
}

/* ints(values, out, begin, end): copies those ints to the same places of an array: True. None: it is
 * another thing, has what is no int of 32 bits, or has or takes fewer. */
static PyObject *ints(ARGUMENTS)
{
    Py_buffer out;
    uint64_t begin, end;
    (void)module;
    if (n_args != 4)
        return PyErr_Format(PyExc_SystemError, "kvpager._calls: called wrongly");
    if (kvpy_u64_in(args[2], &begin) != 0 || kvpy_u64_in(args[3], &end) != 0)
        return NULL;
    PyObject *from = items_of(args[0]);
    if (from == NULL)
        return PyErr_Occurred() != NULL ? NULL : Py_NewRef(Py_None);
    int fits = kvpy_array_in(args[1], KVPY_I32_OUT, &out);
    if (fits) {
        fits = begin <= end && end <= (uint64_t)out.shape[0] &&
               end <= (uint64_t)PySequence_Fast_GET_SIZE(from) &&
               copy_ints(PySequence_Fast_ITEMS(from) + begin, (Py_ssize_t)(end - begin),
                         (int32_t *)out.buf + begin);
        PyBuffer_Release(&out);
    }
    Py_DECREF(from);
    return Py_NewRef(fits ? Py_True : Py_None);
}

/* ------------------------------------------------------------------------------------- matches */

static PyObject *hit_of(handle *self, const int32_t *tokens, size_t n)
{
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = tokens, .n_tokens = (uint32_t)n};
    kvp_open_info info;
    PyThreadState *state;
    int status = kvpy_go_in(self, n >= LONG_TOKENS, &state);
    if (status == KVP_OK) {
        status = kvp_cache_match(kvpy_cache_of(self), (kvp_ns){.bits = self->bits}, &prompt, &info);
        kvpy_come_out(self, state);
    }
    return status == KVP_OK ? PyLong_FromUnsignedLong(info.hit_tokens) : PyLong_FromLong(status);
}

/* match_hit(namespace, tokens): how many tokens a match hits, or a status, which is negative. */
static PyObject *match_hit(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 2);
    Py_buffer tokens;
    (void)module;
    if (self == NULL)
        return NULL;
    if (!kvpy_array_in(args[1], KVPY_I32, &tokens))
        return kvpy_result(NOT_AS_WANTED);
    PyObject *made = hit_of(self, tokens.buf, (size_t)tokens.shape[0]);
    PyBuffer_Release(&tokens);
    return made;
}

/* What a request of vLLM's has, in the order in which it is asked for. */
enum { TOKEN_IDS, SALT, LORA, ITEMS, SKIPS, NAMES };
static PyObject *names[NAMES];

static int intern_names(void)
{
    static const char *const texts[NAMES] = {"all_token_ids", "cache_salt", "lora_request",
                                             "mm_features", "skip_reading_prefix_cache"};
    for (int i = 0; i < NAMES; i++) {
        if (names[i] == NULL)
            names[i] = PyUnicode_InternFromString(texts[i]);
        if (names[i] == NULL)
            return -1;
    }
    return 0;
}

/* Whether a request has one of what separates it from others, or is not to be looked up; -1 with an
 * exception. */
static int is_special(PyObject *request)
{
    int is = 0;
    for (int i = SALT; is == 0 && i < NAMES; i++) {
        PyObject *value = PyObject_GetAttr(request, names[i]);
        if (value != NULL)
            is = value != Py_None && value != Py_False ? PyObject_IsTrue(value) : 0;
        else if (PyErr_ExceptionMatches(PyExc_AttributeError))
            PyErr_Clear();
        else
            is = -1;
        Py_XDECREF(value);
    }
    return is;
}

/* short_hit(namespace, request): as match_hit, for a plain request with fewer than SHORT_TOKENS. */
static PyObject *short_hit(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 2);
    int32_t tokens[SHORT_TOKENS];
    (void)module;
    if (self == NULL || intern_names() != 0)
        return NULL;
    const int is = is_special(args[1]);
    PyObject *values = is == 0 ? PyObject_GetAttr(args[1], names[TOKEN_IDS]) : NULL;
    if (values == NULL)
        return is > 0 ? kvpy_result(NOT_AS_WANTED) : NULL;
    PyObject *from = items_of(values);
    Py_DECREF(values);
    if (from == NULL && PyErr_Occurred() != NULL)
        return NULL;
    const Py_ssize_t n = from == NULL ? SHORT_TOKENS : PySequence_Fast_GET_SIZE(from);
    const int fits = n < SHORT_TOKENS && copy_ints(PySequence_Fast_ITEMS(from), n, tokens);
    Py_XDECREF(from);
    return fits ? hit_of(self, tokens, (size_t)n) : kvpy_result(NOT_AS_WANTED);
}

/* -------------------------------------------------------------------------------------- blocks */

/* A list of the numbers, which are a copy. */
static PyObject *list_of(const int32_t *values, uint32_t n)
{
    PyObject *list = PyList_New(n);
    for (uint32_t i = 0; list != NULL && i < n; i++) {
        PyObject *number = PyLong_FromLong(values[i]);
        if (number == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, number);
    }
    return list;
}

/* blocks(seq, begin): a list of the row's blocks from there on; or a status. */
static PyObject *seq_blocks(ARGUMENTS)
{
    handle *self = kvpy_handle_in(args, n_args, 2);
    int32_t few[64], *copy = few;
    const int32_t *row;
    uint32_t begin, n = 0;
    PyThreadState *state;
    (void)module;
    if (self == NULL || kvpy_u32_in(args[1], &begin) != 0)
        return NULL;
    int status = kvpy_go_in(self, 0, &state);
    if (status != KVP_OK)
        return PyLong_FromLong(status);
    status = kvp_seq_row(kvpy_cache_of(self), kvpy_seq_of(self), 0, &row, &n);
    n = status == KVP_OK && n > begin ? n - begin : 0;
    if (n > sizeof few / sizeof *few)
        copy = PyMem_RawMalloc(n * sizeof *copy);
    if (copy != NULL && n > 0)
        memcpy(copy, row + begin, n * sizeof *copy);
    kvpy_come_out(self, state);
    if (copy == NULL)
        return PyErr_NoMemory();
    PyObject *made = status == KVP_OK ? list_of(copy, n) : PyLong_FromLong(status);
    if (copy != few)
        PyMem_RawFree(copy);
    return made;
}

PyMethodDef kvpy_request_calls[] = {KVPY_FAST("ints", ints),
                                    KVPY_FAST("match_hit", match_hit),
                                    KVPY_FAST("short_hit", short_hit),
                                    KVPY_FAST("blocks", seq_blocks),
                                    {NULL, NULL, 0, NULL}};
