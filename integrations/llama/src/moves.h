/* moves: calls on llama.cpp's memory, as few as possible. Each of them walks over all cells of the
 * context, so neighbouring blocks of the same ids go in one call.
 *
 * An id may have a second one (second.h). What is done to it is done to its second id, too.
 *
 * Copies and removals wait until another kind of call, or kvpi_moves_flush, needs them done. */
#ifndef KVPI_LLAMA_MOVES_H
#define KVPI_LLAMA_MOVES_H

#include <stdint.h>

#define KVPI_NO_ID UINT32_MAX

struct llama_context;

typedef struct kvpi_moves {
    struct llama_context *context;
    uint32_t *seconds; /* for each id its second one, or KVPI_NO_ID */
    uint32_t is_copy;  /* what waits: tokens [begin, end) of `from` to `to`, or of `to` removed */
    uint32_t from;
    uint32_t to;
    uint32_t begin;
    uint32_t end; /* 0: nothing waits */
    uint64_t copies;
    uint64_t removals;
} kvpi_moves;

void kvpi_moves_copy(kvpi_moves *moves, uint32_t from, uint32_t to, uint32_t begin, uint32_t end);
void kvpi_moves_remove(kvpi_moves *moves, uint32_t id, uint32_t begin, uint32_t end);

/* Everything of the id from `begin` on, at once. */
void kvpi_moves_cut(kvpi_moves *moves, uint32_t id, uint32_t begin);

void kvpi_moves_flush(kvpi_moves *moves);

#endif
