/* take: numbers and arrays out of a log's bytes, for decode.c alone. See there for D1 to D3. */
#ifndef KVPI_OPLOG_TAKE_H
#define KVPI_OPLOG_TAKE_H

#include "oplog/decode.h"

#include <stdlib.h>

/* --------------------------------------------------------------------------------- small things */

static inline size_t kvpi_take_left(const struct kvpi_oplog_decoder *d)
{
    return (size_t)(d->end - d->at);
}

/* D3. Gives 0, for the caller to return. */
static inline int kvpi_take_wrong(struct kvpi_oplog_decoder *d, const uint8_t *at,
                                  kvp_status status)
{
    if (d->status == KVP_OK) {
        d->status = status;
        d->at = at;
    }
    return 0;
}

static inline int kvpi_take_damaged(struct kvpi_oplog_decoder *d, const uint8_t *at)
{
    return kvpi_take_wrong(d, at, KVP_E_FORMAT);
}

static inline int kvpi_take_byte(struct kvpi_oplog_decoder *d, uint8_t *out)
{
    if (d->status != KVP_OK || kvpi_take_left(d) < 1)
        return kvpi_take_damaged(d, d->at);
    *out = *d->at++;
    return 1;
}

static inline int kvpi_take_bytes(struct kvpi_oplog_decoder *d, size_t n_bytes, const uint8_t **out)
{
    if (d->status != KVP_OK || kvpi_take_left(d) < n_bytes)
        return kvpi_take_damaged(d, d->at);
    *out = d->at;
    d->at += n_bytes;
    return 1;
}

static inline uint64_t kvpi_take_load(const uint8_t *at, unsigned n_bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n_bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static inline int kvpi_take_fixed(struct kvpi_oplog_decoder *d, unsigned n_bytes, uint64_t *out)
{
    const uint8_t *at;
    if (!kvpi_take_bytes(d, n_bytes, &at))
        return 0;
    *out = kvpi_take_load(at, n_bytes);
    return 1;
}

static inline int kvpi_take_u64(struct kvpi_oplog_decoder *d, uint64_t *out)
{
    const uint8_t *start = d->at;
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte;
        if (!kvpi_take_byte(d, &byte))
            return 0;
        /* The tenth byte holds one bit; a last byte of zero says nothing (D2). */
        if ((shift == 63 && byte > 1) || (shift > 0 && byte == 0))
            return kvpi_take_damaged(d, start);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return 1;
        }
    }
    return kvpi_take_damaged(d, start);
}

static inline int kvpi_take_u32(struct kvpi_oplog_decoder *d, uint32_t *out)
{
    const uint8_t *start = d->at;
    uint64_t value;
    if (!kvpi_take_u64(d, &value))
        return 0;
    if (value > UINT32_MAX)
        return kvpi_take_damaged(d, start);
    *out = (uint32_t)value;
    return 1;
}

static inline int kvpi_take_signed(struct kvpi_oplog_decoder *d, int32_t *out)
{
    uint32_t value;
    if (!kvpi_take_u32(d, &value))
        return 0;
    uint32_t half = value >> 1;
    *out = (value & 1) != 0 ? -(int32_t)half - 1 : (int32_t)half;
    return 1;
}

/* Numbers one after the other; NULL ends the list. */
static inline int kvpi_take_fields(struct kvpi_oplog_decoder *d, uint32_t *const *fields)
{
    for (; *fields != NULL; fields++)
        if (!kvpi_take_u32(d, *fields))
            return 0;
    return 1;
}

#define TAKE_FIELDS(d, ...) kvpi_take_fields(d, (uint32_t *const[]){__VA_ARGS__, NULL})

/* A number of entries that have at least `least` bytes each (D1). */
static inline int kvpi_take_count(struct kvpi_oplog_decoder *d, size_t least, uint32_t *out)
{
    const uint8_t *start = d->at;
    if (!kvpi_take_u32(d, out))
        return 0;
    return *out <= kvpi_take_left(d) / least || kvpi_take_damaged(d, start);
}

/* Makes the buffer hold n entries; never NULL after success, even for none of them. */
static inline void *kvpi_take_make(struct kvpi_oplog_decoder *d, struct kvpi_oplog_buffer *buffer,
                                   size_t n, size_t entry_bytes)
{
    size_t n_bytes = n * entry_bytes; /* cannot overflow: n is at most what is left of a log (D1) */
    if (n_bytes < 64)
        n_bytes = 64;
    if (buffer->n_bytes < n_bytes) {
        void *data = realloc(buffer->data, n_bytes);
        if (data == NULL) {
            kvpi_take_wrong(d, d->at, KVP_E_NO_MEMORY);
            return NULL;
        }
        buffer->data = data;
        buffer->n_bytes = n_bytes;
    }
    return buffer->data;
}

/* --------------------------------------------------------------------------------------- arrays */

static inline int kvpi_take_i32s(struct kvpi_oplog_decoder *d, struct kvpi_oplog_buffer *buffer,
                                 uint64_t n, const int32_t **out)
{
    if (d->status != KVP_OK || n > kvpi_take_left(d) / 4)
        return kvpi_take_damaged(d, d->at);
    int32_t *values = kvpi_take_make(d, buffer, (size_t)n, sizeof *values);
    if (values == NULL)
        return 0;
    for (size_t i = 0; i < n; i++)
        values[i] = (int32_t)(uint32_t)kvpi_take_load(d->at + 4 * i, 4);
    d->at += 4 * n;
    *out = values;
    return 1;
}

static inline int kvpi_take_tokens(struct kvpi_oplog_decoder *d, uint64_t n, const int32_t **out)
{
    return kvpi_take_i32s(d, &d->tokens, n, out);
}

static inline int kvpi_take_handles(struct kvpi_oplog_decoder *d, struct kvpi_oplog_buffer *buffer,
                                    uint32_t n, const uint64_t **out)
{
    if (d->status != KVP_OK || n > kvpi_take_left(d))
        return kvpi_take_damaged(d, d->at);
    uint64_t *handles = kvpi_take_make(d, buffer, n, sizeof *handles);
    if (handles == NULL)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (!kvpi_take_u64(d, &handles[i]))
            return 0;
    *out = handles;
    return 1;
}

static inline int kvpi_take_counts(struct kvpi_oplog_decoder *d, uint32_t n, const uint32_t **out)
{
    if (d->status != KVP_OK || n > kvpi_take_left(d))
        return kvpi_take_damaged(d, d->at);
    uint32_t *counts = kvpi_take_make(d, &d->counts, n, sizeof *counts);
    if (counts == NULL)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (!kvpi_take_u32(d, &counts[i]))
            return 0;
    *out = counts;
    return 1;
}

#endif
