/* copy_cpu: the back end for memory that the CPU reaches. */
#ifndef KVPI_CPU_H
#define KVPI_CPU_H

#include "memory/copy/copier.h"
#include "memory/strips.h"
#include "base/team.h"

/* What a thread has for itself. */
struct kvpi_worker {
    struct kvpi_chunks chunks;
    unsigned char *rows; /* [max_moves] rows of one part and head, on their way */
    float *scales;       /* [max_moves] theirs */
};

/* Between the memories of one group: [2 * source tier + destination tier]. */
struct kvpi_ways {
    struct kvpi_strips strips[KVPI_TIERS * KVPI_TIERS];
};

struct kvpi_cpu_copier {
    struct kvp_copier shared; /* first: a kvp_copier is one of these */
    kvpi_stream_fn stream;
    struct kvpi_team *team;      /* NULL with one thread */
    struct kvpi_worker *workers; /* [n_threads] */
    struct kvpi_ways *ways;      /* [n_groups] */
};

/* cpu_moves.c: layers [begin, end) of the group's device memory. */
void kvpi_cpu_move(struct kvpi_cpu_copier *cpu, uint32_t group, const kvp_slot_move *moves,
                   uint32_t n_moves, struct kvpi_worker *worker, uint32_t begin, uint32_t end);

/* The bytes of the longest row that a move of any group stages. */
size_t kvpi_cpu_row_bytes(const struct kvp_copier *copier);

#endif
