/* moves: one call for neighbouring blocks. Order is kept: what waits is done before a call that
 * does not continue it. */
#include "moves.h"

#include <llama.h>

void kvpi_moves_flush(kvpi_moves *moves)
{
    llama_memory_t memory = llama_get_memory(moves->context);
    if (moves->end == 0)
        return;
    const llama_pos begin = (llama_pos)moves->begin, end = (llama_pos)moves->end;
    for (uint32_t to = moves->to, n = 0; to != KVPI_NO_ID && n < 2; n++, to = moves->seconds[to])
        if (moves->is_copy) {
            llama_memory_seq_cp(memory, (llama_seq_id)moves->from, (llama_seq_id)to, begin, end);
            moves->copies++;
        } else { /* always true: kvp_llama_check_model refuses caches that cannot forget a part */
            (void)llama_memory_seq_rm(memory, (llama_seq_id)to, begin, end);
            moves->removals++;
        }
    moves->end = 0;
}

static void add_move(kvpi_moves *moves, const kvpi_moves *move)
{
    const int same = moves->end != 0 && moves->is_copy == move->is_copy &&
                     moves->from == move->from && moves->to == move->to;
    if (same && move->begin == moves->end) {
        moves->end = move->end;
    } else if (same && move->end == moves->begin) {
        moves->begin = move->begin; /* rows are released from their end */
    } else {
        kvpi_moves_flush(moves);
        moves->is_copy = move->is_copy;
        moves->from = move->from;
        moves->to = move->to;
        moves->begin = move->begin;
        moves->end = move->end;
    }
}

void kvpi_moves_copy(kvpi_moves *moves, uint32_t from, uint32_t to, uint32_t begin, uint32_t end)
{
    const kvpi_moves move = {.is_copy = 1, .from = from, .to = to, .begin = begin, .end = end};
    if (begin < end)
        add_move(moves, &move);
}

void kvpi_moves_remove(kvpi_moves *moves, uint32_t id, uint32_t begin, uint32_t end)
{
    const kvpi_moves move = {.from = id, .to = id, .begin = begin, .end = end};
    add_move(moves, &move);
}

void kvpi_moves_cut(kvpi_moves *moves, uint32_t id, uint32_t begin)
{
    kvpi_moves_flush(moves);
    for (uint32_t n = 0; id != KVPI_NO_ID && n < 2; n++, id = moves->seconds[id]) {
        (void)llama_memory_seq_rm(llama_get_memory(moves->context), (llama_seq_id)id,
                                  (llama_pos)begin, -1);
        moves->removals++;
    }
}
