/* A view: a reader of the cache's events, as a router would be.
 *
 * After every call it reads what is new and applies it to its set of (hash, tier, group), which
 * must then be the oracle's set. When it has fallen behind it takes a snapshot, as it is told to.
 * It leaves what it has read in the oracle's history, so that other reads can be foretold.
 */
#ifndef KVP_TEST_MODEL_VIEW_H
#define KVP_TEST_MODEL_VIEW_H

#include "oracle.h"

typedef struct view_element {
    kvp_hash hash;
    kvp_hash root;
    uint32_t tier, group;
    bool used, gone; /* gone: a later one may lie behind it in the table */
    uint64_t round;  /* of the comparison that saw it last */
} view_element;

typedef struct view {
    oracle *o;
    view_element *table;      /* [size] open addressing */
    uint32_t size, n_used, n; /* n_used: gone ones too */
    uint64_t next;            /* number of the event to be read */
    uint64_t told;            /* o->told when the sets were compared last */
    uint64_t round;
    kvp_outcome outcome;
    uint64_t stored, removed, cleared, behind; /* met so far */
    uint64_t n_made;                           /* calls on the cache */
} view;

view *view_create(oracle *o);
void view_destroy(view *v);

/* Read what is new, and compare. NULL when all is well, else what is not (static text). */
const char *view_follow(view *v, kvp_cache *cache);

#endif
