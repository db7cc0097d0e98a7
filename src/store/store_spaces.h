/* store_spaces: the namespaces that an index has records of: a number of 64 bits, and an
 * identifier of 16 that entries keep. */
#ifndef KVPI_STORE_SPACES_H
#define KVPI_STORE_SPACES_H

#include <kvpager/types.h>

enum { KVPI_SPACES_MAX = 65535 };

struct kvpi_spaces_item {
    uint64_t number; /* kvp_namespace_number */
    uint32_t used;   /* entries; 0: the identifier is free */
    uint32_t cold;   /* the coldest of them, where the index keeps track of it */
    uint32_t chain;  /* the next with the same bits, + 1; free: the next free one, + 1 */
};

struct kvpi_spaces {
    struct kvpi_spaces_item *items; /* [n] */
    uint32_t *table;                /* [n_buckets] the first of each chain, + 1 */
    uint32_t n;
    uint32_t n_buckets; /* a power of two >= n */
    uint32_t n_fresh;   /* items from here on were never used */
    uint32_t free;      /* + 1 */
};

/* n: entries of the index. Memory is taken for min(n, KVPI_SPACES_MAX), and touched as it is used.
 * KVP_OK; KVP_E_NO_MEMORY: call kvpi_spaces_close, which frees what was allocated. */
kvp_status kvpi_spaces_open(struct kvpi_spaces *spaces, uint32_t n);
void kvpi_spaces_close(struct kvpi_spaces *spaces);

/* The identifier of a namespace, or -1. */
int32_t kvpi_spaces_find(const struct kvpi_spaces *spaces, uint64_t number);

/* 1: a further namespace has no identifier. */
static inline int kvpi_spaces_full(const struct kvpi_spaces *spaces)
{
    return spaces->free == 0 && spaces->n_fresh == spaces->n;
}

/* Count one more entry of a namespace. Gives the identifier; -1: there are too many namespaces. */
int32_t kvpi_spaces_enter(struct kvpi_spaces *spaces, uint64_t number);

/* One entry less; the last one gives the identifier back. */
void kvpi_spaces_leave(struct kvpi_spaces *spaces, uint32_t id);

#endif
