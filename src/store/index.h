/* index: which records a back end has, where, and which goes next.
 *
 * Entry e is slot e of the back end: an index of n entries has n slots, and an entry that is not
 * free owns its slot. 44 bytes an entry, and 4 of the hash table.
 *
 *   hash table -> chain of entries with equal bits of the key
 *   tree       -> parent, number of children: a child's prefix is its parent's
 *   order      -> one list from the coldest entry to the hottest, of all that are not free
 *   spaces     -> for each namespace the number of its entries, and the coldest of them
 *
 * Invariants (kvpi_index_check):
 *
 *   I1  every entry is free (in the free list), retired, or used: in the order, and in the chain of
 *       its key unless it is GONE
 *   I2  children of e = used entries whose parent is e; a parent is used
 *   I3  a parent is hotter than each of its children: so the coldest entry has none, and what is
 *       evicted from the cold end never takes away what another record needs
 *   I4  an entry's generation rises whenever its slot is taken
 *   I5  an entry is of its parent's namespace; a namespace counts its used entries, and knows the
 *       coldest of them if has_quota
 *   I6  n_outside = used entries whose parent is outside
 *
 * The record before may be in the directory of another writer. Such an entry stands in the order as
 * if it had no parent; it keeps a part of its parent's key, so that it goes when that key is
 * dropped.
 *
 * An entry is touched together with its ancestors, once in an epoch of EPOCH touches. So touches
 * move each entry at most once in an epoch, and recency is exact to an epoch. */
#ifndef KVPI_STORE_INDEX_H
#define KVPI_STORE_INDEX_H

#include <kvpager/identity.h>

#include "store/store_spaces.h"

#define KVPI_INDEX_NONE UINT32_MAX

/* Of a key's 32 bytes, the first ones. A second record with the same ones would be found in the
 * place of the first, and be a miss. */
enum { KVPI_INDEX_KEY = 12 };

/* As a parent: it is outside, in another writer's directory; with 31 bits of its key. */
#define KVPI_INDEX_OUTSIDE UINT32_C(0x80000000)

/* As the time of writing: the entry's slot cannot be read or written, and is retired once the entry
 * goes. */
enum { KVPI_INDEX_SPOILED = (1 << 26) - 1 };

struct kvpi_entry {
    uint8_t key[KVPI_INDEX_KEY];
    uint32_t parent; /* entry, NONE, or OUTSIDE and bits of its key */
    uint32_t children;
    uint32_t colder; /* the order; free: the next free entry */
    uint32_t hotter;
    uint32_t chain;        /* the next with the same bits */
    uint32_t generation;   /* of the slot; a slot whose generation is at its end is retired */
    uint32_t written : 26; /* minutes since 1970: until 2097 */
    uint32_t epoch : 6;    /* of the last touch; an entry that was not touched for exactly 2^6
                              epochs misses one touch */
    uint32_t space : 16;   /* of index.spaces */
    uint32_t pins : 13;    /* operations that use the slot: at most KVP_STORE_QUEUE_MAX */
    uint32_t state : 3;    /* KVPI_ENTRY_... */
};

/* GONE: dropped while pinned; not found any more, in the order until the last pin goes. RETIRED:
 * its generation is at its end, or it was spoiled, and nothing is written there again. */
enum {
    KVPI_ENTRY_FREE = 0,
    KVPI_ENTRY_WRITING = 1,
    KVPI_ENTRY_READY = 2,
    KVPI_ENTRY_GONE = 3,
    KVPI_ENTRY_RETIRED = 4
};

struct kvpi_index {
    struct kvpi_entry *entries; /* [n] */
    uint32_t *table;            /* [n_buckets] the first entry of each chain */
    uint32_t n;
    uint32_t n_buckets; /* a power of two >= n */
    uint32_t n_slots;   /* that exist */
    uint32_t n_used;
    uint32_t n_retired;
    uint32_t n_outside; /* entries whose parent is outside */
    uint32_t free;      /* the first free entry */
    uint32_t cold;      /* the ends of the order */
    uint32_t hot;
    uint32_t touches; /* of this epoch */
    uint8_t epoch;
    int has_quota; /* set before the first entry: namespaces know their coldest entries */
    struct kvpi_spaces spaces;
};

/* What an entry is made of. */
struct kvpi_index_record {
    uint8_t key[KVPI_INDEX_KEY];
    uint32_t parent;     /* entry, NONE, or kvpi_index_outside */
    uint32_t generation; /* restore only */
    uint32_t written;    /* minutes since 1970 */
    uint64_t space;      /* kvp_namespace_number; under a parent, the parent's counts */
};

/* The parent of an entry whose parent has this key, and is outside. */
static inline uint32_t kvpi_index_outside(const uint8_t *key)
{
    const uint32_t bits = (uint32_t)key[0] << 24 | (uint32_t)key[1] << 16 | (uint32_t)key[2] << 8 |
                          (uint32_t)key[3] | KVPI_INDEX_OUTSIDE;
    return bits == KVPI_INDEX_NONE ? bits - 1 : bits;
}

static inline int kvpi_index_is_outside(uint32_t parent)
{
    return parent != KVPI_INDEX_NONE && (parent & KVPI_INDEX_OUTSIDE) != 0;
}

/* A time in minutes, as an entry can keep it. */
static inline uint32_t kvpi_index_minute(uint64_t seconds)
{
    const uint64_t minute = seconds / 60;
    return minute < KVPI_INDEX_SPOILED - 1 ? (uint32_t)minute : KVPI_INDEX_SPOILED - 1;
}

/* n: 1..2^31-1 slots, none of them free yet. KVP_OK; KVP_E_NO_MEMORY. The only call that allocates.
 */
kvp_status kvpi_index_open(struct kvpi_index *index, uint32_t n);
void kvpi_index_close(struct kvpi_index *index);

/* The first n_slots slots exist: those that are not used can be taken from now on. Rises only. */
void kvpi_index_free(struct kvpi_index *index, uint32_t n_slots);

/* Put a record back in its slot, READY, as if it were added now: before any slot is free. The
 * parent, if there is one, is there. 0: there are too many namespaces. */
int kvpi_index_restore(struct kvpi_index *index, uint32_t slot,
                       const struct kvpi_index_record *record);

/* The entry of a key, whatever its state, or NONE. */
uint32_t kvpi_index_find(const struct kvpi_index *index, const kvp_digest *key);

/* Begin to bring what a look-up of this key reads into the CPU's caches: first its bucket; once
 * that is there, the first entry of its chain; then the second. */
void kvpi_index_prefetch_bucket(const struct kvpi_index *index, const uint8_t *key);
void kvpi_index_prefetch_entry(const struct kvpi_index *index, const uint8_t *key);
void kvpi_index_prefetch_next(const struct kvpi_index *index, const uint8_t *key);

/* Take a free slot for a key that is not there, WRITING, hottest after its ancestors, pinned
 * once. NONE: no slot is free, or there are too many namespaces. */
uint32_t kvpi_index_add(struct kvpi_index *index, const struct kvpi_index_record *record);

/* The entry that is an entry's parent, or NONE: it has none here. */
static inline uint32_t kvpi_index_parent(const struct kvpi_index *index, uint32_t entry)
{
    const uint32_t parent = index->entries[entry].parent;
    return kvpi_index_is_outside(parent) ? KVPI_INDEX_NONE : parent;
}

/* The number of an entry's namespace. */
static inline uint64_t kvpi_index_space(const struct kvpi_index *index, uint32_t entry)
{
    return index->spaces.items[index->entries[entry].space].number;
}

/* An entry was used. */
void kvpi_index_touch(struct kvpi_index *index, uint32_t entry);

/* Free an entry without children and pins. */
void kvpi_index_remove(struct kvpi_index *index, uint32_t entry);

/* The coldest entry that nothing needs: READY, no children, no pins; NONE: there is none within
 * the first `limit` from the cold end. It stays; the caller removes it. */
uint32_t kvpi_index_victim(const struct kvpi_index *index, uint32_t limit);

/* The same of one namespace, with has_quota: within the first `limit` of its own. */
uint32_t kvpi_index_victim_of(const struct kvpi_index *index, uint32_t space, uint32_t limit);

/* Drop an entry that is READY or WRITING: hide it from look-ups. Entries that need it, and entries
 * in use, are dealt with by kvpi_index_sweep; until then they stay in the order. */
void kvpi_index_mark(struct kvpi_index *index, uint32_t entry);

/* Hide all descendants of entries that were marked, and free those that have no pins; the others
 * are freed by their last unpin. Each descendant is told before, unless `leave` is NULL. Gives the
 * number of descendants. O(entries). */
uint32_t kvpi_index_sweep(struct kvpi_index *index, void (*leave)(void *context, uint32_t entry),
                          void *context);

/* Mark an entry, and sweep: O(1) for one without children. Gives the number of all that went. */
uint32_t kvpi_index_drop(struct kvpi_index *index, uint32_t entry);

static inline void kvpi_index_pin(struct kvpi_index *index, uint32_t entry)
{
    index->entries[entry].pins++;
}

/* An entry that is pinned: its slot is not to be used again, for as long as this index lives. */
void kvpi_index_spoil(struct kvpi_index *index, uint32_t entry);

/* Frees an entry that was dropped meanwhile. */
void kvpi_index_unpin(struct kvpi_index *index, uint32_t entry);

/* Audit the invariants. "": all hold; else which does not. */
const char *kvpi_index_check(const struct kvpi_index *index);

#endif
