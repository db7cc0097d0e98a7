/* lend: records of what stores need (lend.h): plans that are over, mirrors, lent blocks, loads. */
#include "core/record/record.h"

#include <kvpager/oplog.h>

#include "core/record/put.h"

static void number_call(struct kvpi_recorder *recorder, uint8_t op, uint64_t number,
                        kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, op);
    kvpi_put_varint(&writer, number);
    kvpi_put_status(&writer, status);
    kvpi_put_finish(&writer);
}

void kvpi_record_plan_done(struct kvpi_recorder *recorder, uint64_t n_plans, kvp_status status)
{
    number_call(recorder, KVP_CALL_PLAN_DONE, n_plans, status);
}

void kvpi_record_load_cancel(struct kvpi_recorder *recorder, uint64_t load, kvp_status status)
{
    number_call(recorder, KVP_CALL_LOAD_CANCEL, load, status);
}

static void put_block_ids(struct kvpi_writer *writer, struct kvpi_recorder *recorder, uint8_t op,
                          const int32_t *blocks, uint32_t n_blocks)
{
    kvpi_put_begin(writer, recorder, op);
    kvpi_put_varint(writer, n_blocks);
    kvpi_put_array(writer, blocks, n_blocks, KVPI_ELEMENT_32);
    kvpi_put_room(writer, KVPI_GROUP_BYTES);
}

void kvpi_record_mirror(struct kvpi_recorder *recorder, const int32_t *blocks, uint32_t n_blocks,
                        uint32_t spare_blocks, kvp_status status, const int32_t *out_host,
                        const kvp_mirrored *mirrored)
{
    struct kvpi_writer writer;
    put_block_ids(&writer, recorder, KVP_CALL_MIRROR, blocks, n_blocks);
    kvpi_put_varint(&writer, spare_blocks);
    kvpi_put_status(&writer, status);
    if (status == KVP_OK) {
        kvpi_put_fields(
            &writer, (const uint32_t[]){mirrored->copied, mirrored->found, mirrored->left_out}, 3);
        kvpi_put_digest(&writer, out_host, n_blocks, KVPI_ELEMENT_32);
    }
    kvpi_put_finish(&writer);
}

static void blocks_call(struct kvpi_recorder *recorder, uint8_t op, const int32_t *blocks,
                        uint32_t n_blocks, kvp_status status)
{
    struct kvpi_writer writer;
    put_block_ids(&writer, recorder, op, blocks, n_blocks);
    kvpi_put_status(&writer, status);
    kvpi_put_finish(&writer);
}

void kvpi_record_blocks_lend(struct kvpi_recorder *recorder, const int32_t *blocks,
                             uint32_t n_blocks, kvp_status status)
{
    blocks_call(recorder, KVP_CALL_BLOCKS_LEND, blocks, n_blocks, status);
}

void kvpi_record_blocks_return(struct kvpi_recorder *recorder, const int32_t *blocks,
                               uint32_t n_blocks, kvp_status status)
{
    blocks_call(recorder, KVP_CALL_BLOCKS_RETURN, blocks, n_blocks, status);
}

void kvpi_record_load_done(struct kvpi_recorder *recorder, uint64_t load, const uint8_t *whole,
                           uint32_t n_blocks, kvp_status status, const kvp_loaded *loaded)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_LOAD_DONE);
    kvpi_put_varint(&writer, load);
    kvpi_put_varint(&writer, n_blocks);
    kvpi_put_bytes(&writer, whole, n_blocks);
    kvpi_put_room(&writer, KVPI_GROUP_BYTES);
    kvpi_put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_fields(&writer,
                        (const uint32_t[]){loaded->cached, loaded->dropped, loaded->failed}, 3);
    kvpi_put_finish(&writer);
}
