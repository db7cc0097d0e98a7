/* A back end that lies: it delays, reorders, fails, loses writes, tears them, writes the record of
 * another operation, reads damaged or foreign bytes. What it keeps lies in a store of memory.
 * After cmocka.h. */
#ifndef KVP_TEST_STORE_LIAR_H
#define KVP_TEST_STORE_LIAR_H

#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "store/backend.h"

enum { BLOCK_BYTES = 96, BLOCKS = 2, TOKENS = 4, OPS = 16 };

/* What happened, so that a run shows that everything did. */
enum fault {
    FAULT_LOST_WRITE,
    FAULT_TORN_WRITE,
    FAULT_OTHER_WRITE,
    FAULT_FAILED_WRITE,
    FAULT_FLIPPED_READ,
    FAULT_FOREIGN_READ,
    FAULT_SHORT_READ,
    FAULT_FAILED_READ,
    FAULTS
};

static uint64_t n_faults[FAULTS];
static unsigned fault_rate; /* of 1000; of what is opened from now on */

struct liar {
    void *memory;
    unsigned rate;                   /* of 1000 */
    struct kvpi_store_op *held[OPS]; /* ended in truth, not told yet */
    uint32_t n_held;
    uint8_t
        last[4096 + BLOCKS * BLOCK_BYTES]; /* what was written last: for reads of foreign bytes */
};

static kvp_status liar_open(const struct kvpi_backend_config *config, void **out_self,
                            char *out_why, size_t why_bytes)
{
    struct liar *liar = calloc(1, sizeof *liar);
    assert_non_null(liar);
    liar->rate = fault_rate;
    *out_self = liar;
    return kvpi_memory_backend.open(config, &liar->memory, out_why, why_bytes);
}

static void liar_close(void *self)
{
    struct liar *liar = self;
    kvpi_memory_backend.close(liar->memory);
    free(liar);
}

static uint32_t liar_prepare(void *self, struct kvpi_store_op *op)
{
    return kvpi_memory_backend.prepare(((struct liar *)self)->memory, op);
}

static int hit(const struct liar *liar, enum fault fault)
{
    if (draw(1000) >= liar->rate)
        return 0;
    n_faults[fault]++;
    return 1;
}

static void copy_out(const struct kvpi_store_op *op, uint8_t *out)
{
    for (uint32_t i = 0; i < op->n_spans; out += op->spans[i++].n_bytes)
        memcpy(out, op->spans[i].bytes, op->spans[i].n_bytes);
}

static void copy_in(const struct kvpi_store_op *op, const uint8_t *bytes, size_t n_bytes)
{
    for (uint32_t i = 0; i < op->n_spans && n_bytes > 0; i++) {
        const size_t n = op->spans[i].n_bytes < n_bytes ? op->spans[i].n_bytes : n_bytes;
        memcpy(op->spans[i].bytes, bytes, n);
        bytes += n;
        n_bytes -= n;
    }
}

/* Writes other bytes than those of the operation: its spans point there during the call. */
static void write_instead(struct liar *liar, struct kvpi_store_op *op, uint8_t *bytes)
{
    struct kvpi_span spans[1 + BLOCKS];
    memcpy(spans, op->spans, sizeof spans);
    for (uint32_t i = 0; i < op->n_spans; i++) {
        op->spans[i].bytes = bytes;
        bytes += op->spans[i].n_bytes;
    }
    kvpi_memory_backend.begin(liar->memory, op);
    memcpy(op->spans, spans, sizeof spans);
}

static void begin_write(struct liar *liar, struct kvpi_store_op *op)
{
    uint8_t bytes[sizeof liar->last];
    copy_out(op, bytes);
    op->io_failed = hit(liar, FAULT_FAILED_WRITE);
    if (op->io_failed) {
        kvpi_memory_backend.begin(liar->memory, op);
    } else if (hit(liar, FAULT_LOST_WRITE)) {
        /* What the slot held is written again. */
        op->kind = KVP_STORE_GET;
        uint8_t keep[sizeof bytes];
        copy_out(op, keep);
        kvpi_memory_backend.begin(liar->memory, op);
        op->kind = KVP_STORE_PUT;
        copy_in(op, keep, sizeof keep);
    } else if (hit(liar, FAULT_TORN_WRITE)) {
        memcpy(bytes + 512 * draw(9), liar->last, draw(128));
        write_instead(liar, op, bytes);
    } else if (hit(liar, FAULT_OTHER_WRITE)) {
        memcpy(bytes, liar->last, sizeof bytes);
        write_instead(liar, op, bytes);
    } else {
        kvpi_memory_backend.begin(liar->memory, op);
    }
    copy_out(op, liar->last);
}

static void begin_read(struct liar *liar, struct kvpi_store_op *op)
{
    kvpi_memory_backend.begin(liar->memory, op);
    op->io_failed = hit(liar, FAULT_FAILED_READ);
    if (op->io_failed) {
        memset(op->spans[1].bytes, 0xFF, BLOCK_BYTES);
    } else if (hit(liar, FAULT_FLIPPED_READ)) {
        const struct kvpi_span *span = &op->spans[draw(op->n_spans)];
        /* Of a header only the part that means something. */
        const size_t n =
            span->n_bytes > 1000 ? KVPI_RECORD_FIXED + TOKENS * BLOCKS * 4 : BLOCK_BYTES;
        ((uint8_t *)span->bytes)[draw((uint32_t)n)] ^= (uint8_t)(1u << draw(8));
    } else if (hit(liar, FAULT_FOREIGN_READ)) {
        copy_in(op, liar->last, sizeof liar->last);
    } else if (hit(liar, FAULT_SHORT_READ)) {
        memset(op->spans[op->n_spans - 1].bytes, 0, BLOCK_BYTES);
    }
}

static void liar_begin(void *self, struct kvpi_store_op *op)
{
    struct liar *liar = self;
    if (op->kind == KVP_STORE_PUT)
        begin_write(liar, op);
    else if (op->kind == KVP_STORE_GET)
        begin_read(liar, op);
    else
        kvpi_memory_backend.begin(liar->memory, op);
}

/* Gives what has ended late, and in any order. */
static uint32_t liar_reap(void *self, struct kvpi_store_op **out_ops, uint32_t capacity)
{
    struct liar *liar = self;
    liar->n_held +=
        kvpi_memory_backend.reap(liar->memory, liar->held + liar->n_held, OPS - liar->n_held);
    uint32_t n = 0;
    while (liar->n_held > 0 && n < capacity && draw(3) > 0) {
        const uint32_t at = draw(liar->n_held);
        out_ops[n++] = liar->held[at];
        liar->held[at] = liar->held[--liar->n_held];
    }
    return n;
}

static uint32_t liar_end(void *self, struct kvpi_store_op *op, uint32_t result)
{
    return kvpi_memory_backend.end(((struct liar *)self)->memory, op, result);
}

static void liar_have(void *self, const kvp_digest *keys, uint32_t n_keys, uint64_t *bits)
{
    kvpi_memory_backend.have(((struct liar *)self)->memory, keys, n_keys, bits);
}

static void liar_drop(void *self, const kvp_digest *keys, uint32_t n_keys)
{
    kvpi_memory_backend.drop(((struct liar *)self)->memory, keys, n_keys);
}

static void liar_evict(void *self, const kvp_store_match *match)
{
    kvpi_memory_backend.evict(((struct liar *)self)->memory, match);
}

static void liar_wait(void *self, int wake, int timeout_ms)
{
    (void)self;
    (void)wake;
    (void)timeout_ms;
}

static void liar_usage(const void *self, struct kvpi_backend_usage *out_usage)
{
    kvpi_memory_backend.usage(((const struct liar *)self)->memory, out_usage);
}

static void liar_describe(const void *self, char *out_text, size_t text_bytes)
{
    kvpi_memory_backend.describe(((const struct liar *)self)->memory, out_text, text_bytes);
}

static const struct kvpi_backend liar_backend = {
    .version = KVPI_BACKEND_VERSION,
    .scheme = "liar",
    .open = liar_open,
    .close = liar_close,
    .prepare = liar_prepare,
    .begin = liar_begin,
    .reap = liar_reap,
    .end = liar_end,
    .have = liar_have,
    .drop = liar_drop,
    .evict = liar_evict,
    .wait = liar_wait,
    .usage = liar_usage,
    .describe = liar_describe,
};

#endif
