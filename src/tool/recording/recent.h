/* recent: what is known of names that came lately, in bounded memory: numbers in order of first
 * appearance, or the block that stands before a block.
 *
 * There are two tables: one for what was named since the other was dropped, and the other. When
 * the newer has max names it becomes the older, whose names are forgotten: they count as new when
 * they come again. So the last `max` different names are always known, and what is found in the
 * older table is known for as long again. A cache of at most `max` blocks has the same hits on the
 * numbers as on the names.
 */
#ifndef KVPI_RECENT_H
#define KVPI_RECENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The last word is 0 in a free place. */
typedef struct kvpi_known {
    uint64_t hash;
    union {
        uint64_t rest; /* of a wide name */
        uint64_t parent;
    };
    union {
        uint64_t number; /* from 1 */
        struct {
            uint32_t n_blocks; /* of a chain up to this one, from the first that is known */
            uint32_t evicted;  /* its number of evicted.h; 0: it is in the cache */
        };
    };
} kvpi_known;

typedef struct kvpi_recent_table {
    kvpi_known *of; /* [n_places] a power of two; open, linear, at most half full */
    size_t n_places, n;
} kvpi_recent_table;

/* Zero it, and set max. */
typedef struct kvpi_recent {
    uint64_t max;       /* names in each table, at least 1 */
    bool is_wide;       /* names are hash and rest; else hash only */
    uint64_t next;      /* number to be given, from 0 */
    uint64_t forgotten; /* names that were in a dropped table only */
    uint64_t moved;     /* names of the older table that are in the newer, too */
    kvpi_recent_table newer, older;
} kvpi_recent;

/* Find a name; good until the next call. NULL: it is not known, or there is no memory.
 *
 * Cost:    O(1) on average; 96 bytes a name at most
 */
kvpi_known *kvpi_recent_find(kvpi_recent *recent, uint64_t hash);

/* Find a name, or add what `fresh` says of it; good until the next call.
 *
 * Returns: NULL: no memory, nothing has changed
 */
kvpi_known *kvpi_recent_get(kvpi_recent *recent, const kvpi_known *fresh);

/* Find the number of a name, or give it the next one: the tables are wide. False: no memory. */
bool kvpi_recent_number(kvpi_recent *recent, const uint8_t name[16], uint64_t *out);

/* Go through all names, each once: with *at 0 at first; NULL: that was the last one. */
kvpi_known *kvpi_recent_next(kvpi_recent *recent, size_t *at);
void kvpi_recent_free(kvpi_recent *recent);

#endif
