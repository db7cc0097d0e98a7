/* index: which records a back end has, where, and which goes next.
 *
 * Entry e is slot e of the back end: an index of n entries has n slots, and an entry that is not
 * free owns its slot. 44 bytes an entry, and 4 of the hash table.
 *
 *   hash table -> chain of entries with equal bits of the key
 *   tree       -> parent, number of children: a child's prefix is its parent's
 *   order      -> one list from the coldest entry to the hottest, of all that are not free
 *
 * Invariants (kvpi_index_check):
 *
 *   I1  every entry is free (in the free list), retired, or used: in the order, and in the chain of
 *       its key unless it is GONE
 *   I2  children of e = used entries whose parent is e; a parent is used
 *   I3  a parent is hotter than each of its children: so the coldest entry has none, and what is
 *       evicted from the cold end never takes away what another record needs
 *   I4  an entry's generation rises whenever its slot is taken
 *
 * An entry is touched together with its ancestors, once in an epoch of EPOCH touches. So touches
 * move each entry at most once in an epoch, and recency is exact to an epoch. */
#ifndef KVPI_STORE_INDEX_H
#define KVPI_STORE_INDEX_H

#include <kvpager/store/identity.h>

#define KVPI_INDEX_NONE UINT32_MAX

struct kvpi_entry {
    uint8_t key[16]; /* the first half */
    uint32_t parent; /* entry, or NONE */
    uint32_t children;
    uint32_t colder; /* the order; free: the next free entry */
    uint32_t hotter;
    uint32_t chain;      /* the next with the same bits */
    uint32_t generation; /* of the slot; a slot whose generation is at its end is retired */
    uint16_t pins;       /* operations that use the slot: at most KVP_STORE_QUEUE_MAX */
    uint8_t epoch; /* of the last touch, modulo 2^8; an entry that was not touched for exactly 2^8
                       epochs misses one touch */
    uint8_t state; /* KVPI_ENTRY_... */
};

/* GONE: dropped while pinned; not found any more, in the order until the last pin goes. RETIRED:
 * its generation is at its end, and nothing is written there again. */
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
    uint32_t free; /* the first free entry */
    uint32_t cold; /* the ends of the order */
    uint32_t hot;
    uint32_t touches; /* of this epoch */
    uint8_t epoch;
};

/* n: 1..2^31-1 slots, none of them free yet. KVP_OK; KVP_E_NO_MEMORY. The only call that allocates.
 */
kvp_status kvpi_index_open(struct kvpi_index *index, uint32_t n);
void kvpi_index_close(struct kvpi_index *index);

/* The first n_slots slots exist: those that are not used can be taken from now on. Rises only. */
void kvpi_index_free(struct kvpi_index *index, uint32_t n_slots);

/* Put a record back in its slot, READY, as if it were added now: before any slot is free. The
 * parent, if there is one, is there. */
void kvpi_index_restore(struct kvpi_index *index, uint32_t slot, const uint8_t key[16],
                        uint32_t parent, uint32_t generation);

/* The entry of a key, whatever its state, or NONE. */
uint32_t kvpi_index_find(const struct kvpi_index *index, const kvp_digest *key);

/* Take a free slot for a key that is not there, WRITING, under a parent (or NONE), hottest but for
 * its ancestors, pinned once. NONE: no slot is free. */
uint32_t kvpi_index_add(struct kvpi_index *index, const kvp_digest *key, uint32_t parent);

/* An entry was used. */
void kvpi_index_touch(struct kvpi_index *index, uint32_t entry);

/* Free an entry without children and pins. */
void kvpi_index_remove(struct kvpi_index *index, uint32_t entry);

/* The coldest entry that nothing needs: READY, no children, no pins; NONE: there is none within
 * the first `limit` from the cold end. It stays; the caller removes it. */
uint32_t kvpi_index_victim(const struct kvpi_index *index, uint32_t limit);

/* Hide an entry and all its descendants from look-ups, and free those that have no pins; the others
 * are freed by their last unpin. Gives the number. O(entries). */
uint32_t kvpi_index_drop(struct kvpi_index *index, uint32_t entry);

static inline void kvpi_index_pin(struct kvpi_index *index, uint32_t entry)
{
    index->entries[entry].pins++;
}

/* Frees an entry that was dropped meanwhile. */
void kvpi_index_unpin(struct kvpi_index *index, uint32_t entry);

/* Audit the invariants. "": all hold; else which does not. */
const char *kvpi_index_check(const struct kvpi_index *index);

#endif
