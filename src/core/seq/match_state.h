/* match_state: what is known of a prompt while it is matched. */
#ifndef KVPI_SEQ_MATCH_STATE_H
#define KVPI_SEQ_MATCH_STATE_H

#include "core/cache/state.h"

/* The units of a prompt, matched. */
struct kvpi_match {
    const kvp_prompt *prompt;
    const kvp_hash *hashes; /* [n_public]: the prompt's own, or scratch, where they were made */
    kvp_hash *scratch;      /* NULL when the caller gave hashes */
    uint32_t root;
    uint32_t place;       /* whose row holds nodes and blocks of the match */
    uint32_t n_units;     /* full units of the prompt */
    uint32_t n_public;    /* leading ones that can be published */
    uint32_t n_hits;      /* leading ones that are hit */
    uint32_t stale_hints; /* 1: jumps of hit nodes do not lead along this path */
    uint32_t stop;
    uint32_t stop_group;
    uint32_t
        n_shared;    /* hit row entries of group 0 (kvpi_match_shared); blocks on the host stand in
                          a row as negative ids */
    uint32_t n_kept; /* hit blocks: entries of all groups that are not null */
    uint32_t n_unheld;    /* of them, those that are cached on the device */
    uint32_t n_idle;      /* of them, those on the device without a holder: cached or parked */
    uint32_t n_host;      /* of them, those on the host */
    uint32_t host_tokens; /* of the hit, those that any group copies from the host */
    uint32_t n_seen;      /* how many of them were looked at, and held if `hold`; row entries of all
                          groups */
    uint32_t hold;        /* 1: for an open. Blocks are held as they are matched, while their
                               memory is at hand; kvpi_match_let_go puts them back exactly */
    uint32_t n_absent;    /* entries of all groups, not hit, that get no block: KVP_OPEN_RECEIVE */
    int32_t sources[KVP_GROUPS_MAX]; /* blocks that a hit inside a block is copied from, negative on
                                        the host; 0: none */
    uint32_t state;                  /* the checkpoint that the hit ends at; 0: none */
    uint32_t hashed;                 /* 1: the units that were not hit are hashed */
    uint32_t first_host; /* host blocks that are copied from, held until the open is done */
};

/* Hit entries of a group's row. */
static inline uint32_t kvpi_match_shared(const struct kvp_cache *cache,
                                         const struct kvpi_match *match, uint32_t group)
{
    return match->n_hits / kvpi_units_per_block(cache, group);
}

/* Does the hit end inside an entry of the group? */
static inline int kvpi_match_inside(const struct kvp_cache *cache, const struct kvpi_match *match,
                                    uint32_t group)
{
    return match->n_hits % kvpi_units_per_block(cache, group) != 0;
}

#endif
