/* copier: what every back end's copier begins with, and what is checked before it is asked.
 *
 * A back end gives kvpi_copier_ops, and a create call that begins with kvpi_copier_open: that
 * checks the configuration and makes the part that all share. The public calls check their
 * arguments against that part, then hand them over; so a back end sees only plans and moves that
 * are right.
 */
#ifndef KVPI_COPIER_H
#define KVPI_COPIER_H

#include <kvpager/memory.h>

struct kvpi_copier_ops {
    /* Order a checked plan, or checked moves, behind what was ordered before. Moves are sorted by
     * destination. */
    void (*run)(kvp_copier *copier, const kvp_copy *copies, uint32_t n_copies);
    void (*move)(kvp_copier *copier, uint32_t group, const kvp_slot_move *moves, uint32_t n_moves);
    void (*wait)(kvp_copier *copier, uint64_t fence);
    void (*destroy)(kvp_copier *copier); /* all but the shared part */
};

/* Marks of one pool's blocks, to see that a phase writes and reads what it may. */
struct kvpi_marks {
    uint32_t n_blocks;
    uint64_t *written_in; /* [n_blocks] number of the last phase that writes it; never wraps */
};

struct kvp_copier {
    const struct kvpi_copier_ops *ops;
    kvp_copier_config config; /* device and host point to `memories` */
    kvp_memory **memories;    /* [2 * n_groups] device, then host; NULL without host tier */
    struct kvpi_marks *marks; /* [2 * n_groups] */
    uint64_t n_phases;        /* checked so far; never wraps */
    uint64_t n_fences;        /* given so far; never wraps */
    kvp_slot_move *moves;     /* [max_moves] those of a call, sorted by destination */
};

enum { KVPI_TIERS = 2, KVPI_GROUPS_MAX = 64, KVPI_THREADS_MAX = 256, KVPI_MOVES_MAX = 1 << 20 };

/* The memory of a group and tier; NULL if there is none. */
static inline kvp_memory *kvpi_copier_memory(const kvp_copier *copier, uint32_t group,
                                             uint32_t tier)
{
    return copier->memories[tier * copier->config.n_groups + group];
}

/* Check the configuration and set up the shared part. */
kvp_status kvpi_copier_open(const kvp_copier_config *config, kvp_copier *copier);

/* Free what kvpi_copier_open allocated. */
void kvpi_copier_close(kvp_copier *copier);

/* copier_check.c: is this right? Moves: copier->moves, sorted. */
int kvpi_copier_is_config(const kvp_copier_config *config);
int kvpi_copier_is_plan(kvp_copier *copier, const kvp_copy *copies, uint32_t n_copies);
void kvpi_copier_sort_moves(kvp_slot_move *moves, uint32_t n_moves);
int kvpi_copier_is_moves(kvp_copier *copier, uint32_t group, uint32_t n_moves);

#endif
