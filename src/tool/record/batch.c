/* See batch.h. Reading needs no stack that grows: what is passed over is counted. */
#include "tool/record/batch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum type { NIL, BOOL, INTEGER, REAL, TEXT, BYTES, ARRAY, MAP, EXTENSION, WRONG } type;

static const char *const type_names[] = {"nil",          "a boolean", "an integer", "a number",
                                         "text",         "bytes",     "an array",   "a map",
                                         "an extension", "cut off"};

/* A value's head; of TEXT and BYTES also what follows. */
typedef struct value {
    type type;
    uint64_t n;           /* INTEGER: its 64 bits; BOOL; how many elements or pairs; bytes */
    double real;          /* REAL, and INTEGER */
    const uint8_t *bytes; /* [n] */
} value;

/* ------------------------------------------------------------------------------------- msgpack */

/* Big-endian. Sets `at` to NULL when there are fewer bytes. */
static uint64_t get(kvpi_batch *batch, size_t n)
{
    uint64_t found = 0;
    if (batch->at == NULL || (size_t)(batch->end - batch->at) < n) {
        batch->at = NULL;
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        found = found << 8 | *batch->at++;
    return found;
}

static value integer(kvpi_batch *batch, size_t n, bool is_signed)
{
    uint64_t bits = get(batch, n);
    if (is_signed && n < 8 && bits >> (8 * n - 1) != 0)
        bits |= UINT64_MAX << (8 * n);
    return (value){INTEGER, bits, is_signed ? (double)(int64_t)bits : (double)bits, NULL};
}

static value real(kvpi_batch *batch, size_t n)
{
    const uint64_t bits = get(batch, n);
    const uint32_t low = (uint32_t)bits;
    value out = {REAL, 0, 0, NULL};
    float small;
    if (n == 4) {
        memcpy(&small, &low, sizeof small);
        out.real = (double)small;
    } else {
        memcpy(&out.real, &bits, sizeof out.real);
    }
    return out;
}

/* So many bytes behind the head. */
static value run(kvpi_batch *batch, type of, uint64_t n)
{
    value out = {of, n, 0, batch->at};
    if (batch->at == NULL || (uint64_t)(batch->end - batch->at) < n)
        batch->at = NULL;
    else
        batch->at += n;
    return out;
}

/* From 0xc0 to 0xdf. */
static value long_head(kvpi_batch *batch, unsigned head)
{
    switch (head) {
    case 0xc0: return (value){NIL, 0, 0, NULL};
    case 0xc2:
    case 0xc3: return (value){BOOL, head & 1, 0, NULL};
    case 0xc4:
    case 0xc5:
    case 0xc6: return run(batch, BYTES, get(batch, (size_t)1 << (head - 0xc4)));
    case 0xc7:
    case 0xc8:
    case 0xc9: return run(batch, EXTENSION, get(batch, (size_t)1 << (head - 0xc7)) + 1);
    case 0xca:
    case 0xcb: return real(batch, head == 0xca ? 4 : 8);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf: return integer(batch, (size_t)1 << (head - 0xcc), false);
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3: return integer(batch, (size_t)1 << (head - 0xd0), true);
    case 0xd9:
    case 0xda:
    case 0xdb: return run(batch, TEXT, get(batch, (size_t)1 << (head - 0xd9)));
    case 0xdc:
    case 0xdd: return (value){ARRAY, get(batch, head == 0xdc ? 2 : 4), 0, NULL};
    case 0xde:
    case 0xdf: return (value){MAP, get(batch, head == 0xde ? 2 : 4), 0, NULL};
    default: /* 0xc1 is never used; 0xd4 to 0xd8 */
        return head == 0xc1 ? (value){WRONG, 0, 0, NULL}
                            : run(batch, EXTENSION, ((uint64_t)1 << (head - 0xd4)) + 1);
    }
}

static value next(kvpi_batch *batch)
{
    const unsigned head = (unsigned)get(batch, 1);
    value out;
    if (head < 0x80 || head >= 0xe0)
        out = (value){INTEGER, head < 0x80 ? head : UINT64_MAX - 0xff + head,
                      head < 0x80 ? head : (double)head - 256, NULL};
    else if (head < 0x90)
        out = (value){MAP, head & 0x0f, 0, NULL};
    else if (head < 0xa0)
        out = (value){ARRAY, head & 0x0f, 0, NULL};
    else if (head < 0xc0)
        out = run(batch, TEXT, head & 0x1f);
    else
        out = long_head(batch, head);
    if (batch->at != NULL && out.type != WRONG)
        return out;
    batch->at = batch->end; /* nothing more is read */
    return (value){WRONG, 0, 0, NULL};
}

/* Pass over what is in a value whose head was read. Each element has a byte at least. */
static int pass_inside(kvpi_batch *batch, value of)
{
    uint64_t n_left = of.type == ARRAY ? of.n : of.type == MAP ? 2 * of.n : 0;
    for (; n_left > 0; n_left--) {
        const value inner = next(batch);
        if (inner.type == WRONG)
            return kvpi_recording_fail(&batch->error, "the batch is cut off, or no msgpack");
        n_left += inner.type == ARRAY ? inner.n : inner.type == MAP ? 2 * inner.n : 0;
        if (n_left > (uint64_t)(batch->end - batch->at) + 1)
            return kvpi_recording_fail(
                &batch->error, "the batch is cut off: %" PRIu64 " values are missing", n_left - 1);
    }
    return 0;
}

/* -------------------------------------------------------------------------------------- events */

static int wrong(kvpi_batch *batch, const char *field, value got, const char *expected)
{
    return kvpi_recording_fail(&batch->error, "%s is %s, expected %s", field, type_names[got.type],
                               expected);
}

static bool is_text(value of, const char *text)
{
    return of.type == TEXT && of.n == strlen(text) && memcmp(of.bytes, text, (size_t)of.n) == 0;
}

static int hash_of(kvpi_batch *batch, const char *field, value got, uint64_t *out)
{
    if (got.type == INTEGER) {
        *out = got.n;
        return 0;
    }
    if (got.type != BYTES || got.n < 8)
        return wrong(batch, field, got, "a number, or 8 bytes or more");
    *out = 0;
    for (uint64_t i = got.n - 8; i < got.n; i++)
        *out = *out << 8 | got.bytes[i];
    return 0;
}

static int hashes_of(kvpi_batch *batch, value got, kvpi_event *out)
{
    if (got.type != ARRAY || got.n > (uint64_t)(batch->end - batch->at))
        return wrong(batch, "block_hashes", got, "an array that is whole");
    if (got.n > batch->capacity) {
        uint64_t *grown = realloc(batch->hashes, (size_t)got.n * sizeof *grown);
        if (grown == NULL)
            return kvpi_recording_fail(&batch->error, "out of memory");
        batch->hashes = grown;
        batch->capacity = (size_t)got.n;
    }
    for (uint64_t i = 0; i < got.n; i++)
        if (hash_of(batch, "a hash of block_hashes", next(batch), &batch->hashes[i]) != 0)
            return -1;
    out->hashes = batch->hashes;
    out->n_hashes = (size_t)got.n;
    return 0;
}

typedef enum field { HASHES, PARENT, BLOCK_SIZE, MEDIUM, GROUP, TYPE, UNKNOWN } field;

static const char *const field_names[] = {"block_hashes", "parent_block_hash", "block_size",
                                          "medium",       "group_idx",         "type"};

static field name_of(value key)
{
    field found = HASHES;
    while (found < UNKNOWN && !is_text(key, field_names[found]))
        found++;
    return found;
}

/* A value of an event, whose head was read. */
static int take(kvpi_batch *batch, field name, value got, kvpi_event *out)
{
    switch (name) {
    case HASHES: return hashes_of(batch, got, out);
    case PARENT:
        out->has_parent = got.type != NIL;
        return got.type == NIL ? 0 : hash_of(batch, "parent_block_hash", got, &out->parent);
    case BLOCK_SIZE:
        out->block_tokens = got.n;
        return got.type == INTEGER ? 0 : wrong(batch, "block_size", got, "an integer");
    case MEDIUM:
        out->is_device = out->is_device && (got.type == NIL || is_text(got, "GPU"));
        return got.type == NIL || got.type == TEXT ? 0 : wrong(batch, "medium", got, "text");
    case GROUP:
        out->is_device = out->is_device && (got.type == NIL || got.n == 0);
        return got.type == NIL || got.type == INTEGER
                   ? 0
                   : wrong(batch, "group_idx", got, "an integer");
    case TYPE:
        if (got.type != TEXT)
            return wrong(batch, "type", got, "text");
        out->kind = is_text(got, "BlockStored")        ? KVPI_EVENT_STORED
                    : is_text(got, "BlockRemoved")     ? KVPI_EVENT_REMOVED
                    : is_text(got, "AllBlocksCleared") ? KVPI_EVENT_CLEARED
                                                       : KVPI_EVENT_OTHER;
        return 0;
    default: return pass_inside(batch, got);
    }
}

static int read_map(kvpi_batch *batch, uint64_t n, kvpi_event *out)
{
    bool has_type = false;
    for (uint64_t i = 0; i < n; i++) {
        const value key = next(batch);
        if (key.type != TEXT)
            return wrong(batch, "a field's name", key, "text");
        const field name = name_of(key);
        has_type = has_type || name == TYPE;
        const value got = next(batch);
        if (got.type == WRONG)
            return kvpi_recording_fail(&batch->error, "the batch is cut off, or no msgpack");
        if (take(batch, name, got, out) != 0)
            return -1;
    }
    return has_type ? 0 : kvpi_recording_fail(&batch->error, "an event without a type");
}

/* Behind the type, in vLLM's order; later versions add at the end. */
static const field stored_order[] = {HASHES, PARENT, UNKNOWN, BLOCK_SIZE, UNKNOWN, MEDIUM, UNKNOWN};
static const field removed_order[] = {HASHES, MEDIUM};

static int read_array(kvpi_batch *batch, uint64_t n, kvpi_event *out)
{
    const value tag = n > 0 ? next(batch) : (value){NIL, 0, 0, NULL};
    if (take(batch, TYPE, tag, out) != 0)
        return -1;
    for (uint64_t i = 0; i + 1 < n; i++) {
        field name = UNKNOWN;
        if (out->kind == KVPI_EVENT_STORED && i < sizeof stored_order / sizeof *stored_order)
            name = stored_order[i];
        if (out->kind == KVPI_EVENT_REMOVED && i < sizeof removed_order / sizeof *removed_order)
            name = removed_order[i];
        const value got = next(batch);
        if (got.type == WRONG)
            return kvpi_recording_fail(&batch->error, "the batch is cut off, or no msgpack");
        if (take(batch, name, got, out) != 0)
            return -1;
    }
    return 0;
}

int kvpi_batch_begin(kvpi_batch *batch, const uint8_t *bytes, size_t n)
{
    batch->at = bytes;
    batch->end = bytes + n;
    batch->n_left = 0;
    const value whole = next(batch);
    if (whole.type != ARRAY || whole.n < 2)
        return wrong(batch, "the batch", whole, "an array of time, events and rank");
    const value time = next(batch);
    if (time.type != REAL && time.type != INTEGER)
        return wrong(batch, "the batch's time", time, "a number");
    if (!isfinite(time.real))
        return kvpi_recording_fail(&batch->error, "the batch's time is not finite");
    const value events = next(batch);
    if (events.type != ARRAY)
        return wrong(batch, "the batch's events", events, "an array");
    batch->time = time.real;
    batch->n_left = events.n;
    return 0;
}

int kvpi_batch_next(kvpi_batch *batch, kvpi_event *out)
{
    if (batch->n_left == 0)
        return 0;
    batch->n_left--;
    *out = (kvpi_event){.is_device = true};
    const value event = next(batch);
    if (event.type != MAP && event.type != ARRAY)
        return wrong(batch, "an event", event, "a map, or an array");
    const int result =
        event.type == MAP ? read_map(batch, event.n, out) : read_array(batch, event.n, out);
    if (result != 0)
        return -1;
    if (out->kind == KVPI_EVENT_STORED &&
        (out->n_hashes == 0 || out->block_tokens == 0 || out->block_tokens > INT32_MAX))
        return kvpi_recording_fail(&batch->error, "BlockStored of %zu blocks of %" PRIu64 " tokens",
                                   out->n_hashes, out->block_tokens);
    if (out->kind == KVPI_EVENT_STORED && out->n_hashes > KVPI_RECORDING_MAX_BLOCKS)
        return kvpi_recording_fail(&batch->error, "BlockStored of %zu blocks, expected %u at most",
                                   out->n_hashes, (unsigned)KVPI_RECORDING_MAX_BLOCKS);
    return 1;
}

void kvpi_batch_free(kvpi_batch *batch)
{
    free(batch->hashes);
    *batch = (kvpi_batch){0};
}
