/* See gguf_header.h. Owns the bytes: lengths, types, counts. What the keys mean is gguf.c's.
 *
 * A file is read from front to end through stdio's buffer, and nothing of it is kept but the values
 * of keys in the table and sums over tensors. So a count that lies ends where the file ends. Counts
 * and lengths that a file of this size cannot have are refused before anything is read for them.
 */
#define _POSIX_C_SOURCE 200809L

#include "tool/models/gguf_header.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tool/input/input.h"

/* Vocabularies have a few megabytes, and a thousand experts' tensors one. */
#define MAX_BYTES (UINT64_C(128) << 20)

enum {
    MAX_NAME = 65535, /* bytes of a key's name: the format's limit */
    KEPT_NAME = 96,   /* of them those that are compared and shown */
    KEY_BYTES = 13,   /* at least, of a key with its value: length, a letter, type; of a tensor: */
    TENSOR_BYTES = 32 /* length, number of dimensions, one of them, type, place */
};

/* Types of values, by their numbers in the file. */
enum { U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64, N_TYPES };

static const struct {
    const char *name;
    uint32_t bytes; /* 0: as many as it says */
} types[N_TYPES] = {{"an 8-bit number", 1}, {"an 8-bit number", 1}, {"a 16-bit number", 2},
                    {"a 16-bit number", 2}, {"a 32-bit number", 4}, {"a 32-bit number", 4},
                    {"a real number", 4},   {"true or false", 1},   {"a text", 0},
                    {"an array", 0},        {"a 64-bit number", 8}, {"a 64-bit number", 8},
                    {"a real number", 8}};

/* Types of tensors, by their numbers in the file: values that are stored together, and their
 * bytes. 0: there is no such type. */
static const struct {
    uint16_t values, bytes;
} tensor_types[] = {{1, 4},     {1, 2},     {32, 18},   {32, 20},   {0, 0},    {0, 0},
                    {32, 22},   {32, 24},   {32, 34},   {32, 40},   {256, 84}, {256, 110},
                    {256, 144}, {256, 176}, {256, 210}, {256, 292}, {256, 66}, {256, 74},
                    {256, 98},  {256, 50},  {32, 18},   {256, 110}, {256, 82}, {256, 136},
                    {1, 1},     {1, 2},     {1, 4},     {1, 8},     {1, 8},    {256, 56},
                    {1, 2},     {0, 0},     {0, 0},     {0, 0},     {256, 54}, {256, 66},
                    {0, 0},     {0, 0},     {0, 0},     {32, 17},   {64, 36},  {128, 18}};

static const struct {
    const char *text;
    uint32_t most;
} known_keys[KVPI_GGUF_N_KEYS] = {
#define KEY(name, text, most) {text, most},
    KVPI_GGUF_KEYS(KEY)
#undef KEY
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct reader {
    kvpi_gguf_header *header;
    FILE *file;
    bool is_regular;
    uint64_t at;
    uint64_t end;              /* of the file, or of what is read of it */
    char where[KEPT_NAME + 1]; /* what is being read */
} reader;

int kvpi_gguf_wrong(const kvpi_gguf_header *header, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    kvpi_models_vwrong(header->error, header->name, format, arguments);
    va_end(arguments);
    return -1;
}

/* ------------------------------------------------------------------------------------ the bytes */

static int ends(const reader *in, uint64_t n)
{
    if (in->end == MAX_BYTES && n <= MAX_BYTES)
        return kvpi_gguf_wrong(in->header, "%s lies behind %" PRIu64 " MiB, which no header has",
                               in->where, MAX_BYTES >> 20);
    return kvpi_gguf_wrong(in->header,
                           "ends at byte %" PRIu64 " in %s, expected %" PRIu64
                           " bytes more from byte %" PRIu64 " on",
                           in->end, in->where, n, in->at);
}

static int take(reader *in, void *out, size_t n)
{
    if (n > in->end - in->at)
        return ends(in, n);
    if (fread(out, 1, n, in->file) != n) {
        in->end = in->at;
        return ends(in, n);
    }
    in->at += n;
    return 0;
}

static int skip(reader *in, uint64_t n)
{
    char bytes[4096];
    if (n > in->end - in->at)
        return ends(in, n);
    if (in->is_regular && n > sizeof bytes) {
        in->at += n;
        return fseeko(in->file, (off_t)n, SEEK_CUR) == 0 ? 0 : ends(in, n);
    }
    for (size_t part; n > 0; n -= part) {
        part = n < sizeof bytes ? (size_t)n : sizeof bytes;
        if (take(in, bytes, part) != 0)
            return -1;
    }
    return 0;
}

static int take_number(reader *in, uint32_t n_bytes, uint64_t *out)
{
    unsigned char bytes[8] = {0};
    if (take(in, bytes, n_bytes) != 0)
        return -1;
    *out = 0;
    for (uint32_t i = n_bytes; i > 0; i--)
        *out = *out << 8 | bytes[i - 1];
    return 0;
}

static int take32(reader *in, uint32_t *out)
{
    uint64_t number = 0;
    int result = take_number(in, 4, &number);
    *out = (uint32_t)number;
    return result;
}

/* Reads a text, and keeps what fits into `out` of it. */
static int take_text(reader *in, uint64_t most, char *out, size_t capacity)
{
    uint64_t n = 0;
    if (take_number(in, 8, &n) != 0)
        return -1;
    if (n > most)
        return kvpi_gguf_wrong(in->header, "%s has %" PRIu64 " bytes, expected at most %" PRIu64,
                               in->where, n, most);
    size_t kept = n < capacity ? (size_t)n : capacity - 1;
    if (take(in, out, kept) != 0)
        return -1;
    out[kept] = '\0';
    return skip(in, n - kept);
}

/* ------------------------------------------------------------------------------------- the keys */

/* Reads a number that must be whole, at least 0, and below 2^32. */
static int take_whole(reader *in, uint32_t type, uint32_t *out)
{
    static const bool is_signed[N_TYPES] = {[I8] = true, [I16] = true, [I32] = true, [I64] = true};
    uint64_t number = 0;
    if (type >= N_TYPES || type == F32 || type == F64 || types[type].bytes == 0)
        return kvpi_gguf_wrong(in->header, "%s is %s, expected a whole number", in->where,
                               type < N_TYPES ? types[type].name : "of no known type");
    if (take_number(in, types[type].bytes, &number) != 0)
        return -1;
    if (is_signed[type] && number >> (8 * types[type].bytes - 1) != 0)
        return kvpi_gguf_wrong(in->header, "%s is negative, expected at least 0", in->where);
    if (number > UINT32_MAX)
        return kvpi_gguf_wrong(in->header, "%s is %" PRIu64 ", expected below 2^32", in->where,
                               number);
    *out = (uint32_t)number;
    return 0;
}

static int take_array_head(reader *in, uint32_t *type, uint64_t *n)
{
    if (take32(in, type) != 0 || take_number(in, 8, n) != 0)
        return -1;
    if (*type >= N_TYPES || *type == ARRAY)
        return kvpi_gguf_wrong(in->header,
                               "%s is an array of type %" PRIu32 ", expected numbers or texts",
                               in->where, *type);
    uint64_t each = *type == TEXT ? 8 : types[*type].bytes;
    if (*n > (in->end - in->at) / each)
        return kvpi_gguf_wrong(in->header,
                               "%s is an array of %" PRIu64 " values, and %" PRIu64 " bytes follow",
                               in->where, *n, in->end - in->at);
    return 0;
}

static int skip_value(reader *in, uint32_t type)
{
    uint64_t n = 1;
    if (type == ARRAY && take_array_head(in, &type, &n) != 0)
        return -1;
    if (type >= N_TYPES)
        return kvpi_gguf_wrong(in->header, "%s is of type %" PRIu32 ", expected 0 to %d", in->where,
                               type, N_TYPES - 1);
    if (type != TEXT)
        return skip(in, n * types[type].bytes);
    for (; n > 0; n--) {
        uint64_t bytes = 0;
        if (take_number(in, 8, &bytes) != 0 || skip(in, bytes) != 0)
            return -1;
    }
    return 0;
}

static int take_values(reader *in, uint32_t type, uint32_t most, kvpi_gguf_values *out)
{
    uint64_t n = 1;
    if (out->n > 0)
        return kvpi_gguf_wrong(in->header, "%s is there twice, expected once", in->where);
    out->is_array = type == ARRAY;
    if (type == ARRAY && take_array_head(in, &type, &n) != 0)
        return -1;
    if (n < 1 || n > most)
        return kvpi_gguf_wrong(in->header, "%s has %" PRIu64 " values, expected 1 to %" PRIu32,
                               in->where, n, most);
    for (uint32_t i = 0; i < n; i++)
        if (take_whole(in, type, &out->of[i]) != 0)
            return -1;
    out->n = (uint32_t)n;
    return 0;
}

/* The part of a key behind the architecture; NULL: it is of something else. */
static const char *behind_architecture(const reader *in)
{
    const char *architecture = in->header->architecture;
    size_t n = strlen(architecture);
    return n > 0 && strncmp(in->where, architecture, n) == 0 && in->where[n] == '.'
               ? in->where + n + 1
               : NULL;
}

static int take_architecture(reader *in, uint32_t type)
{
    kvpi_gguf_header *header = in->header;
    if (type != TEXT)
        return kvpi_gguf_wrong(header, "%s is of type %" PRIu32 ", expected a text (8)", in->where,
                               type);
    if (take_text(in, sizeof header->architecture - 1, header->architecture,
                  sizeof header->architecture) != 0)
        return -1;
    return header->architecture[0] != '\0'
               ? 0
               : kvpi_gguf_wrong(header, "%s is empty, expected a name such as llama", in->where);
}

static int take_value(reader *in, uint32_t type)
{
    kvpi_gguf_header *header = in->header;
    if (strcmp(in->where, "general.architecture") == 0)
        return header->architecture[0] == '\0'
                   ? take_architecture(in, type)
                   : kvpi_gguf_wrong(header, "%s is there twice, expected once", in->where);
    if (strcmp(in->where, "split.count") == 0)
        return take_whole(in, type, &header->n_parts);
    const char *key = behind_architecture(in);
    for (size_t i = 0; key != NULL && i < COUNT(known_keys); i++)
        if (strcmp(key, known_keys[i].text) == 0)
            return take_values(in, type, known_keys[i].most, &header->keys[i]);
    return skip_value(in, type);
}

static int take_key(reader *in, uint64_t number)
{
    char name[KEPT_NAME] = "";
    uint32_t type = 0;
    snprintf(in->where, sizeof in->where, "the name of key %" PRIu64, number);
    if (take_text(in, MAX_NAME, name, sizeof name) != 0)
        return -1;
    if (name[0] == '\0')
        return kvpi_gguf_wrong(in->header, "%s is empty, expected 1 to %d bytes", in->where,
                               MAX_NAME);
    snprintf(in->where, sizeof in->where, "%s", name);
    return take32(in, &type) != 0 || take_value(in, type) != 0 ? -1 : 0;
}

/* Reads all keys. The architecture comes first in the files that there are; where it does not, what
 * stands before it is read again. */
static int take_keys(reader *in)
{
    kvpi_gguf_header *header = in->header;
    const uint64_t begin = in->at;
    uint64_t again = 0;
    for (uint64_t i = 0; i < header->n_keys; i++) {
        if (header->architecture[0] == '\0')
            again = i;
        if (take_key(in, i) != 0)
            return -1;
    }
    if (header->architecture[0] == '\0')
        return kvpi_gguf_wrong(header,
                               "has no general.architecture in its %" PRIu64
                               " keys, expected a name such as llama",
                               header->n_keys);
    if (again == 0)
        return 0;
    const uint64_t end = in->at;
    if (!in->is_regular || fseeko(in->file, (off_t)begin, SEEK_SET) != 0)
        return kvpi_gguf_wrong(header,
                               "general.architecture is key %" PRIu64
                               ", expected 0 where a file is read through a pipe",
                               again);
    in->at = begin;
    for (uint64_t i = 0; i < again; i++)
        if (take_key(in, i) != 0)
            return -1;
    in->at = end;
    return fseeko(in->file, (off_t)end, SEEK_SET) == 0 ? 0 : ends(in, 0);
}

/* ---------------------------------------------------------------------------------- the tensors */

static int add_tensor(reader *in, uint32_t type, const uint64_t *sizes, uint32_t n)
{
    const uint64_t most = UINT64_C(1) << 48;
    kvpi_gguf_header *header = in->header;
    uint64_t values = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (sizes[i] > most / values)
            return kvpi_gguf_wrong(header,
                                   "%s has %" PRIu64 " x %" PRIu64 " values, expected at most 2^48",
                                   in->where, values, sizes[i]);
        values *= sizes[i] > 0 ? sizes[i] : 1;
    }
    if (header->parameters > most - values)
        return kvpi_gguf_wrong(header,
                               "%s has %" PRIu64 " values, expected at most 2^48 in all tensors",
                               in->where, values);
    header->parameters += values;
    if (type >= COUNT(tensor_types) || tensor_types[type].bytes == 0) {
        snprintf(header->unknown, sizeof header->unknown, "a tensor is of type %" PRIu32, type);
        return 0;
    }
    if (sizes[0] % tensor_types[type].values != 0)
        return kvpi_gguf_wrong(
            header, "%s has rows of %" PRIu64 " values, expected a multiple of %u for its type",
            in->where, sizes[0], tensor_types[type].values);
    header->weights_bytes += values / tensor_types[type].values * tensor_types[type].bytes;
    return 0;
}

static int take_tensor(reader *in, uint64_t number)
{
    char name[KEPT_NAME];
    uint64_t sizes[4] = {1}, place;
    uint32_t n = 0, type = 0;
    snprintf(in->where, sizeof in->where, "the name of tensor %" PRIu64, number);
    if (take_text(in, MAX_NAME, name, sizeof name) != 0)
        return -1;
    snprintf(in->where, sizeof in->where, "tensor %.80s", name);
    if (take32(in, &n) != 0)
        return -1;
    if (n > COUNT(sizes))
        return kvpi_gguf_wrong(in->header, "%s has %" PRIu32 " dimensions, expected at most 4",
                               in->where, n);
    for (uint32_t i = 0; i < n; i++)
        if (take_number(in, 8, &sizes[i]) != 0)
            return -1;
    if (take32(in, &type) != 0 || take_number(in, 8, &place) != 0)
        return -1;
    return add_tensor(in, type, sizes, n);
}

/* ------------------------------------------------------------------------------------- the file */

static int take_count(reader *in, const char *what, uint32_t each, uint64_t *out)
{
    snprintf(in->where, sizeof in->where, "the number of %s", what);
    if (take_number(in, 8, out) != 0)
        return -1;
    return *out <= (in->end - in->at) / each
               ? 0
               : kvpi_gguf_wrong(in->header,
                                 "%s is %" PRIu64 ", and %" PRIu64 " bytes follow, expected at "
                                 "least %" PRIu32 " for each",
                                 in->where, *out, in->end - in->at, each);
}

static int take_all(reader *in)
{
    kvpi_gguf_header *header = in->header;
    char magic[4] = "";
    snprintf(in->where, sizeof in->where, "its beginning");
    if (take(in, magic, sizeof magic) != 0)
        return -1;
    if (memcmp(magic, "GGUF", sizeof magic) != 0)
        return kvpi_gguf_wrong(header, "begins with \"%.4s\", expected \"GGUF\"", magic);
    if (take32(in, &header->version) != 0)
        return -1;
    if (header->version != 2 && header->version != 3)
        return kvpi_gguf_wrong(header, "is of version %" PRIu32 ", expected 2 or 3%s",
                               header->version,
                               header->version << 16 != 0 ? "" : ", with its lowest byte first");
    if (take_count(in, "tensors", TENSOR_BYTES, &header->n_tensors) != 0 ||
        take_count(in, "keys", KEY_BYTES, &header->n_keys) != 0 || take_keys(in) != 0)
        return -1;
    for (uint64_t i = 0; i < header->n_tensors; i++)
        if (take_tensor(in, i) != 0)
            return -1;
    return 0;
}

int kvpi_gguf_header_read(const char *path, kvpi_gguf_header *out, kvpi_models_error *error)
{
    kvpi_input input;
    memset(out, 0, sizeof *out);
    out->name = strcmp(path, "-") == 0 ? "standard input" : path;
    out->error = error;
    if (!kvpi_input_open(&input, path, true))
        return kvpi_gguf_wrong(out, "%s", input.why);
    reader in = {.header = out, .file = input.file, .is_regular = input.is_regular};
    in.end = input.is_regular && input.n_bytes < MAX_BYTES ? input.n_bytes : MAX_BYTES;
    int result = take_all(&in);
    if (result == 0 && out->n_parts > 1)
        snprintf(out->unknown, sizeof out->unknown, "this is a part of %" PRIu32 " of the model",
                 out->n_parts);
    kvpi_input_close(&input);
    return result;
}
