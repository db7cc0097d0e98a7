/* record_trees: records of the calls about windows and trees. */
#include "core/record/record.h"

#include <kvpager/oplog.h>

#include "core/record/put.h"

/* ------------------------------------------------------------------------------------- windows */

void kvpi_record_seq_window(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t group,
                            kvp_window window, kvp_status status, const kvp_released *released)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_WINDOW);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_varint(&writer, group);
    kvpi_put_window(&writer, window);
    kvpi_put_released(&writer, status, released);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_window_get(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t group,
                                kvp_status status, const kvp_window_info *info)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_WINDOW_GET);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_varint(&writer, group);
    kvpi_put_status(&writer, status);
    if (status == KVP_OK) {
        kvpi_put_window(&writer, info->window);
        kvpi_put_varint(&writer, info->dropped_begin);
        kvpi_put_varint(&writer, info->dropped_end);
    }
    kvpi_put_finish(&writer);
}

/* --------------------------------------------------------------------------------------- trees */

void kvpi_record_seq_extend_tree(struct kvpi_recorder *recorder, const kvp_batch *batch,
                                 const int32_t *parents, kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_EXTEND_TREE);
    kvpi_put_batch(&writer, batch, parents);
    kvpi_put_status(&writer, status);
    kvpi_put_finish(&writer);
}

/* More room than there can be moves is written as that: whoever makes the call again from a log
 * needs the room, because it is the distance of the groups' moves, too. */
static uint32_t useful_moves(const struct kvpi_recorder *recorder, const kvp_accept *accept)
{
    uint32_t n_seqs = accept->n_seqs < recorder->max_seqs ? accept->n_seqs : recorder->max_seqs;
    uint64_t most = (uint64_t)n_seqs * recorder->max_tree_tokens;
    return most < accept->max_moves ? (uint32_t)most : accept->max_moves;
}

/* One group after the other, without what is left free between them. */
static void put_path(struct kvpi_writer *writer, const kvp_accept *accept, uint32_t n_groups)
{
    kvpi_put_varint(writer, accept->n_moves);
    if (accept->n_moves == 0)
        return;
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (size_t group = 0; group < n_groups; group++)
        kvpi_put_update(&state, accept->moves + group * accept->max_moves, accept->n_moves,
                        KVPI_ELEMENT_MOVE);
    kvpi_put_fixed(writer, XXH3_64bits_digest(&state), 8);
}

void kvpi_record_seq_accept(struct kvpi_recorder *recorder, const kvp_accept *accept,
                            uint32_t n_groups, kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_ACCEPT);
    kvpi_put_varint(&writer, accept->n_seqs);
    kvpi_put_handles(&writer, accept->seqs, accept->n_seqs);
    for (uint32_t i = 0; i < accept->n_seqs; i++) {
        kvpi_put_room(&writer, KVPI_VARINT_BYTES);
        kvpi_put_signed(&writer, accept->leaves[i]);
    }
    kvpi_put_room(&writer, KVPI_VARINT_BYTES);
    kvpi_put_varint(&writer, useful_moves(recorder, accept));
    kvpi_put_status(&writer, status);
    if (status == KVP_OK)
        put_path(&writer, accept, n_groups);
    else if (status == KVP_E_TOO_SMALL)
        kvpi_put_varint(&writer, accept->n_moves);
    kvpi_put_finish(&writer);
}

/* The nodes' tokens, then their parents, as far as they were asked for. */
static void put_nodes(struct kvpi_writer *writer, const int32_t *tokens, const int32_t *parents,
                      uint32_t n_nodes)
{
    kvpi_put_varint(writer, n_nodes);
    if (n_nodes == 0)
        return;
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    if (tokens != NULL)
        kvpi_put_update(&state, tokens, n_nodes, KVPI_ELEMENT_32);
    if (parents != NULL)
        kvpi_put_update(&state, parents, n_nodes, KVPI_ELEMENT_32);
    kvpi_put_fixed(writer, XXH3_64bits_digest(&state), 8);
}

void kvpi_record_seq_tree(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t capacity,
                          kvp_status status, const int32_t *tokens, const int32_t *parents,
                          const uint32_t *n_nodes)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_TREE);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_varint(&writer, capacity);
    kvpi_put_byte(&writer, (uint8_t)(kvpi_put_has(tokens, KVPI_HAS_TOKENS) |
                                     kvpi_put_has(parents, KVPI_HAS_PARENTS)));
    kvpi_put_status(&writer, status);
    if (status == KVP_OK && capacity > 0)
        put_nodes(&writer, tokens, parents, *n_nodes);
    else if (status == KVP_OK || status == KVP_E_TOO_SMALL)
        kvpi_put_varint(&writer, *n_nodes);
    kvpi_put_finish(&writer);
}
