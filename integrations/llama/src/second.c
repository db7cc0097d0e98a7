/* second: see second.h. moves.c keeps both ids alike. */
#include "second.h"

int kvpi_second_take(kvpi_ids *ids, uint32_t id, uint32_t end)
{
    if (!kvpi_second_needed(ids, end) || kvpi_second_of(ids, id) != KVPI_NO_ID)
        return 1;
    const uint32_t second = kvpi_ids_unused(ids);
    if (second == KVPI_NO_ID)
        return 0;
    kvpi_moves_flush(&ids->moves);
    if (ids->ids[id].n_blocks > 0) {
        kvpi_moves_copy(&ids->moves, id, second, 0, ids->ids[id].n_tokens);
        kvpi_moves_flush(&ids->moves);
    }
    ids->ids[second].state = KVPI_ID_SECOND;
    ids->moves.seconds[id] = second;
    return 1;
}

void kvpi_second_release(kvpi_ids *ids, uint32_t id)
{
    const uint32_t second = kvpi_second_of(ids, id);
    if (second == KVPI_NO_ID)
        return;
    kvpi_moves_flush(&ids->moves);
    ids->moves.seconds[id] = KVPI_NO_ID;
    kvpi_moves_cut(&ids->moves, second, 0);
    ids->ids[second].state = KVPI_ID_FREE;
}
