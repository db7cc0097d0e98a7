/* second: second ids, for models with sliding windows.
 *
 * llama.cpp takes a cell for another token, with swa_full and free cells, too, if
 *
 *   - one id only has it, and
 *   - the next token of that id would not see it: its position is n_swa or more before that token's
 *
 * and then removes what that id has before the cell. So an id with so many positions gets a second
 * id, which has the same cells, and is never decoded by itself. A batch's tokens name both. Shorter
 * ids need none. A state of an id lacks such cells, too: pieces have at most n_swa tokens. */
#ifndef KVPI_LLAMA_SECOND_H
#define KVPI_LLAMA_SECOND_H

#include "ids.h"

/* Does an id need a second one, if it has positions before `end`? */
static inline int kvpi_second_needed(const kvpi_ids *ids, uint32_t end)
{
    return ids->window != 0 && end >= ids->window;
}

static inline uint32_t kvpi_second_of(const kvpi_ids *ids, uint32_t id)
{
    return ids->moves.seconds[id];
}

/* The id will have positions before `end`: it gets a second id, if it needs one and has none. 0:
 * no id is free. */
int kvpi_second_take(kvpi_ids *ids, uint32_t id, uint32_t end);

/* Its second id becomes free, if it has one. */
void kvpi_second_release(kvpi_ids *ids, uint32_t id);

#endif
