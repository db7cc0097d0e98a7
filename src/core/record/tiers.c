/* record_tiers: records of the calls about copies between blocks and tiers: plans, swaps, steps. */
#include "core/record/record.h"

#include <kvpager/oplog.h>

#include "core/record/put.h"

/* The plan, or how long it is when it did not fit, or was only asked for. */
static void put_plan(struct kvpi_writer *writer, uint32_t capacity, kvp_status status,
                     const kvp_copy *copies, const uint32_t *n_copies)
{
    if (status == KVP_OK && capacity > 0)
        kvpi_put_digest(writer, copies, *n_copies, KVPI_ELEMENT_COPY);
    else if (status == KVP_OK || status == KVP_E_TOO_SMALL)
        kvpi_put_varint(writer, *n_copies);
}

void kvpi_record_plan_take(struct kvpi_recorder *recorder, uint32_t capacity, kvp_status status,
                           const kvp_copy *copies, const uint32_t *n_copies)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_PLAN_TAKE);
    kvpi_put_varint(&writer, capacity);
    kvpi_put_status(&writer, status);
    put_plan(&writer, capacity, status, copies, n_copies);
    kvpi_put_finish(&writer);
}

/* ---------------------------------------------------------------------------------------- swaps */

static void begin_seqs(struct kvpi_writer *writer, struct kvpi_recorder *recorder, uint8_t op,
                       const kvp_seq *seqs, uint32_t n_seqs)
{
    kvpi_put_begin(writer, recorder, op);
    kvpi_put_varint(writer, n_seqs);
    kvpi_put_handles(writer, seqs, n_seqs);
    kvpi_put_room(writer, KVPI_VARINT_BYTES);
}

static void finish_swap(struct kvpi_writer *writer, kvp_status status, const kvp_swapped *swapped)
{
    kvpi_put_status(writer, status);
    if (status == KVP_OK)
        kvpi_put_fields(writer,
                        (const uint32_t[]){swapped->copied_blocks, swapped->found_blocks,
                                           swapped->released.freed_blocks,
                                           swapped->released.cached_blocks},
                        4);
    kvpi_put_finish(writer);
}

static void finish_admission(struct kvpi_writer *writer, kvp_status status,
                             const kvp_admission *admission)
{
    kvpi_put_status(writer, status);
    if (status == KVP_OK)
        kvpi_put_admission(writer, admission);
    kvpi_put_finish(writer);
}

void kvpi_record_seq_swap_out(struct kvpi_recorder *recorder, const kvp_seq *seqs, uint32_t n_seqs,
                              kvp_status status, const kvp_swapped *swapped)
{
    struct kvpi_writer writer;
    begin_seqs(&writer, recorder, KVP_CALL_SWAP_OUT, seqs, n_seqs);
    finish_swap(&writer, status, swapped);
}

void kvpi_record_seq_swap_in(struct kvpi_recorder *recorder, const kvp_seq *seqs, uint32_t n_seqs,
                             uint32_t reserve_tokens, kvp_status status, const kvp_swapped *swapped)
{
    struct kvpi_writer writer;
    begin_seqs(&writer, recorder, KVP_CALL_SWAP_IN, seqs, n_seqs);
    kvpi_put_varint(&writer, reserve_tokens);
    finish_swap(&writer, status, swapped);
}

void kvpi_record_can_swap_out(struct kvpi_recorder *recorder, const kvp_seq *seqs, uint32_t n_seqs,
                              kvp_status status, const kvp_admission *admission)
{
    struct kvpi_writer writer;
    begin_seqs(&writer, recorder, KVP_CALL_CAN_SWAP_OUT, seqs, n_seqs);
    finish_admission(&writer, status, admission);
}

void kvpi_record_can_swap_in(struct kvpi_recorder *recorder, const kvp_seq *seqs, uint32_t n_seqs,
                             uint32_t reserve_tokens, kvp_status status,
                             const kvp_admission *admission)
{
    struct kvpi_writer writer;
    begin_seqs(&writer, recorder, KVP_CALL_CAN_SWAP_IN, seqs, n_seqs);
    kvpi_put_varint(&writer, reserve_tokens);
    finish_admission(&writer, status, admission);
}

/* ---------------------------------------------------------------------------------------- steps */

void kvpi_record_step_begin(struct kvpi_recorder *recorder, uint32_t capacity, kvp_status status,
                            const kvp_copy *copies, uint32_t n_copies, uint64_t step)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_STEP_BEGIN);
    kvpi_put_varint(&writer, capacity);
    kvpi_put_status(&writer, status);
    put_plan(&writer, capacity, status, copies, &n_copies);
    if (status == KVP_OK && capacity > 0)
        kvpi_put_varint(&writer, step);
    kvpi_put_finish(&writer);
}

void kvpi_record_step_commit(struct kvpi_recorder *recorder, uint64_t step, const kvp_seq *seqs,
                             const uint32_t *n_tokens, uint32_t n_seqs, kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_STEP_COMMIT);
    kvpi_put_varint(&writer, step);
    kvpi_put_varint(&writer, n_seqs);
    kvpi_put_handles(&writer, seqs, n_seqs);
    kvpi_put_varints(&writer, n_tokens, n_seqs);
    kvpi_put_status(&writer, status);
    kvpi_put_finish(&writer);
}

void kvpi_record_step_done(struct kvpi_recorder *recorder, uint64_t step, kvp_status status,
                           uint64_t effective)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_STEP_DONE);
    kvpi_put_varint(&writer, step);
    kvpi_put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_varint(&writer, effective);
    kvpi_put_finish(&writer);
}

void kvpi_record_step_failed(struct kvpi_recorder *recorder, uint64_t step, uint32_t capacity,
                             kvp_status status, const kvp_seq *out_seqs, const uint32_t *out_n_seqs)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_STEP_FAILED);
    kvpi_put_varint(&writer, step);
    kvpi_put_fields(&writer, (const uint32_t[]){capacity, out_n_seqs == NULL}, 2);
    kvpi_put_status(&writer, status);
    kvpi_put_report(&writer, capacity, status, out_seqs, out_n_seqs);
    kvpi_put_finish(&writer);
}
