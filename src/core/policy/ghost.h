/* ghost: what was used within the last 16 C references, evicted or not; and what a cache that
 * evicts the least recently used would have of it (LRU).
 *
 * One entry stands for a group: the blocks of 512 tokens, or one block that is larger. Entries lie
 * in a ring, in the order of their use. What is used again is struck out and enters again, so a
 * group has one live entry at most. Cursors walk from the oldest entry towards the newest, each
 * behind a bin of ages:
 *
 *   tail                                                                         head
 *    |  oldest                          |                   |          |   newest |
 *    [ ..... bin 16 ..... ][ bin 15 ][ ... ][ bin 1 ][ ......... bin 0 ......... ]
 *    cursor 16              cursor 15        cursor 1  cursor 0
 *
 * A cursor that passes a live entry counts that it outlived the bin (hits.h); the last one takes it
 * out. One more cursor is LRU's: entries from there to the head are its content, and the live ones
 * among them add up to the blocks that it has.
 *
 *   between the tail and the head, the stamps ascend                                        (G1)
 *   every live entry is found by its name, and nothing else is found                        (G2)
 *   tail <= cursor 15 <= ... <= cursor 0 <= head; LRU's anywhere between tail and head      (G3)
 *   lru_blocks == sum of the blocks of live entries from LRU's cursor on, which are marked  (G4)
 *
 * Names are 32 bits of a hash of the group and all before it. Two groups that are taken for one
 * make a wrong count and nothing else.
 *
 * The ring is as long as groups fit into 16 C references, and a request more. If it is full all the
 * same, the oldest entry goes before its time.
 */
#ifndef KVPI_POLICY_GHOST_H
#define KVPI_POLICY_GHOST_H

#include "core/policy/bins.h"
#include "core/policy/hits.h"

#define KVPI_GHOST_NONE UINT32_MAX

struct kvpi_ghost_entry {
    uint32_t name;
    uint32_t stamp;  /* of its last use, in units; near: an age is below 2^17 of them */
    uint32_t next;   /* with the same place in the index; NONE: the last one */
    uint16_t blocks; /* that a cache needs for it, and for the tail of its request */
    uint8_t count;   /* uses */
    uint8_t class_;  /* and marks */
};

enum { KVPI_GHOST_CLASS = 63, KVPI_GHOST_IN_LRU = 64, KVPI_GHOST_DEAD = 128 };

struct kvpi_ghost {
    uint32_t n_blocks;         /* C */
    uint32_t n_places;         /* of the ring; one is never filled */
    uint32_t n_lists;          /* of the index, a power of two */
    uint32_t edges[KVPI_BINS]; /* in units, the first age behind each bin */
    uint32_t head;             /* place of the entry to come */
    uint32_t cursors[KVPI_BINS];
    uint32_t lru; /* place */
    uint64_t lru_blocks;
    size_t entries_at; /* struct kvpi_ghost_entry [n_places] */
    size_t lists_at;   /* u32 [n_lists] place of the first entry */
};

static inline struct kvpi_ghost_entry *kvpi_ghost_entry(const struct kvpi_ghost *ghost,
                                                        uint32_t place)
{
    return (struct kvpi_ghost_entry *)kvpi_at(ghost, ghost->entries_at) + place;
}

/* Plan the arrays for a cache of n_blocks blocks, which is set, in groups of group_blocks; `self`
 * is the ghost's own offset. */
void kvpi_ghost_layout(struct kvpi_ghost *ghost, uint32_t group_blocks, struct kvpi_layout *layout,
                       size_t self);
void kvpi_ghost_reset(struct kvpi_ghost *ghost);

/* Count what outlived a bin until now; forget what is too old. Cost: O(1) for each entry and bin,
 * once in its life. */
void kvpi_ghost_age(struct kvpi_ghost *ghost, struct kvpi_hits *hits, uint64_t now);

/* The bin of an entry's age. */
uint32_t kvpi_ghost_bin(const struct kvpi_ghost *ghost, const struct kvpi_ghost_entry *entry,
                        uint64_t now);

/* Find a group's live entry: its place, or NONE. */
uint32_t kvpi_ghost_find(const struct kvpi_ghost *ghost, uint32_t name);

/* Strike out a group's entry, which is there: it is used again. */
void kvpi_ghost_strike(struct kvpi_ghost *ghost, uint32_t name);

/* Let LRU evict until it has at most so many blocks. */
void kvpi_ghost_trim(struct kvpi_ghost *ghost, uint64_t n_blocks);

/* Enter a group that has no live entry, used now; it is in LRU's cache. The entry's stamp, next and
 * marks are set here. */
void kvpi_ghost_enter(struct kvpi_ghost *ghost, const struct kvpi_ghost_entry *entry, uint64_t now);

/* Append an entry as it was saved, of a ghost that had no room for less: marks, stamp and all. The
 * cursors are the caller's, and so is the audit. */
void kvpi_ghost_restore(struct kvpi_ghost *ghost, const struct kvpi_ghost_entry *entry);

/* Audit G1: is an entry from the future, or older than the next one? */
int kvpi_ghost_ages_are_wrong(const struct kvpi_ghost *ghost, uint64_t now);

/* Audit G1 to G4: NULL, or what is wrong. Cost: O(entries). */
const char *kvpi_ghost_check(const struct kvpi_ghost *ghost);

#endif
