/* redis_values: what the servers in memory keep (redis_server.c alone). A value is a string, or a
 * hash of three fields, which lie one after the other. */
#ifndef FUZZ_REDIS_VALUES_H
#define FUZZ_REDIS_VALUES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "require.h"

enum {
    VALUES = 10,
    NAME = 128,
    VALUE = 80 * 1024, /* all fields of one */
    FIELDS = 3         /* of a large record; a string has one */
};

struct text {
    const char *at;
    size_t n;
};

struct conn;

struct value {
    char name[NAME];
    uint8_t bytes[VALUE];
    size_t n_name;
    size_t n_bytes;            /* 0: none */
    size_t n_field[FIELDS];    /* of a hash; a string has the first one */
    const struct conn *writer; /* it is in a MULTI of this connection; NULL: it is there */
    uint64_t expires_ns;       /* UINT64_MAX: never */
};

static struct value values[VALUES];

static struct value *find(struct text name)
{
    for (int i = 0; i < VALUES; i++) {
        struct value *value = &values[i];
        if (value->n_bytes > 0 && !value->writer && value->n_name == name.n &&
            memcmp(value->name, name.at, name.n) == 0)
            return value;
    }
    return NULL;
}

/* Of a MULTI that ends, or whose connection does. */
static struct value *queued_by(const struct conn *conn)
{
    for (int i = 0; i < VALUES; i++)
        if (values[i].n_bytes > 0 && values[i].writer == conn)
            return &values[i];
    return NULL;
}

/* The pieces, in a place that is free. NULL: there is none. */
static struct value *keep(struct text name, const struct text *pieces, int n)
{
    struct value *value = NULL;
    for (int i = 0; i < VALUES && !value; i++)
        if (values[i].n_bytes == 0)
            value = &values[i];
    if (!value)
        return NULL;
    require(name.n < NAME);
    memcpy(value->name, name.at, name.n);
    value->n_name = name.n;
    value->n_bytes = 0;
    value->writer = NULL;
    value->expires_ns = UINT64_MAX;
    for (int i = 0; i < FIELDS; i++) {
        value->n_field[i] = i < n ? pieces[i].n : 0;
        require(value->n_bytes + value->n_field[i] <= VALUE);
        if (i < n)
            memcpy(value->bytes + value->n_bytes, pieces[i].at, pieces[i].n);
        value->n_bytes += value->n_field[i];
    }
    return value;
}

#endif
