#include "liar.h"

#include <stdlib.h>
#include <string.h>

#include "../shadow/random.h"

enum { HELD = 64, KEPT = 3, GONE = 6, SEEN = 1, LAST = 1 << 16 };

liar_control liar;

struct lying {
    void *memory;
    struct kvpi_store_op *held[HELD]; /* ended in truth, not told yet */
    uint32_t n_held;
    struct kvpi_store_op *late[HELD]; /* flat: puts that are not written yet */
    uint32_t n_late;
    struct kvpi_store_op *kept[KEPT]; /* never told */
    uint32_t n_kept;
    struct kvpi_store_op *again; /* told before, and to be told once more */
    uint32_t n_gone;             /* operations that fail from now on */
    uint8_t last[LAST];          /* what was written last: for reads of foreign bytes */
    uint8_t bytes[LAST];
};

static bool hit(enum liar_fault fault)
{
    if (random_below(&liar.random, 1000) >= liar.rate)
        return false;
    liar.n_faults[fault]++;
    return true;
}

/* For one operation more. */
static int is_gone(struct lying *self)
{
    return self->n_gone > 0 && self->n_gone-- > 0;
}

static kvp_status lying_open(const struct kvpi_backend_config *config, void **out_self,
                             char *out_why, size_t why_bytes)
{
    struct lying *self = random_allocate(1, sizeof *self);
    *out_self = self;
    return kvpi_memory_backend.open(config, &self->memory, out_why, why_bytes);
}

static void lying_close(void *self)
{
    kvpi_memory_backend.close(((struct lying *)self)->memory);
    free(self);
}

static uint32_t lying_prepare(void *self, struct kvpi_store_op *op)
{
    if (op->kind == KVP_STORE_PUT && hit(LIAR_FULL))
        return KVP_STORE_NO_ROOM;
    if (op->kind == KVP_STORE_PUT && liar.is_flat)
        return KVP_STORE_OK;
    return kvpi_memory_backend.prepare(((struct lying *)self)->memory, op);
}

/* Only now a server learns of a put; it looks for no parent. */
static uint32_t prepare_late(struct lying *self, struct kvpi_store_op *op)
{
    const kvp_identity *identity = op->identity;
    kvp_identity orphan = *identity;
    memset(&orphan.parent, 0, sizeof orphan.parent);
    op->identity = &orphan;
    const uint32_t result = kvpi_memory_backend.prepare(self->memory, op);
    op->identity = identity;
    if (result == KVP_STORE_OK &&
        kvpi_record_write(identity, &op->place, op->spans + 1, op->n_spans - 1, NULL,
                          (uint32_t)op->spans[0].n_bytes, op->spans[0].bytes) != KVP_OK)
        return kvpi_memory_backend.end(self->memory, op, KVP_STORE_FAILED);
    return result;
}

static size_t copy_out(const struct kvpi_store_op *op, uint8_t *out)
{
    size_t n = 0;
    for (uint32_t i = 0; i < op->n_spans && n + op->spans[i].n_bytes <= LAST; i++) {
        memcpy(out + n, op->spans[i].bytes, op->spans[i].n_bytes);
        n += op->spans[i].n_bytes;
    }
    return n;
}

static void copy_in(const struct kvpi_store_op *op, const uint8_t *bytes)
{
    for (uint32_t i = 0; i < op->n_spans; bytes += op->spans[i++].n_bytes)
        memcpy(op->spans[i].bytes, bytes, op->spans[i].n_bytes);
}

/* Writes other bytes than those of the operation: its spans point there during the call. */
static void write_instead(struct lying *self, struct kvpi_store_op *op, uint8_t *bytes)
{
    struct kvpi_span spans[1 + KVP_RECORD_BLOCKS_MAX];
    memcpy(spans, op->spans, sizeof spans);
    for (uint32_t i = 0; i < op->n_spans; bytes += op->spans[i++].n_bytes)
        op->spans[i].bytes = bytes;
    kvpi_memory_backend.begin(self->memory, op);
    memcpy(op->spans, spans, sizeof spans);
}

static void write_record(struct lying *self, struct kvpi_store_op *op)
{
    const size_t n = copy_out(op, self->bytes);
    const uint32_t at = random_below(&liar.random, n);
    op->io_failed = is_gone(self) || hit(LIAR_FAILED_WRITE) || ++liar.n_transfers == liar.fail_at ||
                    liar.puts_fail;
    if (!op->io_failed && hit(LIAR_LOST_WRITE)) {
        memset(self->bytes, 0, n);
        write_instead(self, op, self->bytes);
    } else if (!op->io_failed && hit(LIAR_TORN_WRITE)) {
        memcpy(self->bytes + at, self->last + at, n - at);
        write_instead(self, op, self->bytes);
    } else if (!op->io_failed && hit(LIAR_OTHER_WRITE)) {
        write_instead(self, op, self->last);
    } else {
        kvpi_memory_backend.begin(self->memory, op);
    }
    copy_out(op, self->last);
}

static void read_record(struct lying *self, struct kvpi_store_op *op)
{
    kvpi_memory_backend.begin(self->memory, op);
    op->io_failed = is_gone(self) || hit(LIAR_FAILED_READ) || ++liar.n_transfers == liar.fail_at;
    if (op->io_failed) {
        memset(op->spans[1].bytes, 0xFF, op->spans[1].n_bytes);
    } else if (hit(LIAR_FLIPPED_READ)) {
        const struct kvpi_span *span = &op->spans[1 + random_below(&liar.random, op->n_spans - 1)];
        uint8_t *byte = (uint8_t *)span->bytes + random_below(&liar.random, span->n_bytes);
        *byte ^= (uint8_t)(1u << random_below(&liar.random, 8));
    } else if (hit(LIAR_FOREIGN_READ)) {
        copy_in(op, self->last);
    }
}

static void look_up(struct lying *self, struct kvpi_store_op *op)
{
    op->io_failed = is_gone(self) || hit(LIAR_FAILED_HAVE);
    kvpi_memory_backend.have(self->memory, op->keys, op->n_keys, op->bits);
    for (uint32_t i = 0; i < op->n_keys; i++)
        if (hit(LIAR_WRONG_HAVE))
            op->bits[i / 64] ^= UINT64_C(1) << i % 64;
}

/* Of one that failed, some may be gone. */
static void drop_records(struct lying *self, struct kvpi_store_op *op)
{
    op->io_failed =
        is_gone(self) || liar.drops_fail || hit(LIAR_FAILED_DROP) || hit(LIAR_FAILED_DROP);
    const uint32_t n = !op->io_failed    ? op->n_keys
                       : liar.drops_fail ? 0
                                         : random_below(&liar.random, op->n_keys + 1);
    if (n > 0)
        kvpi_memory_backend.drop(self->memory, op->keys, n);
}

/* Questions and drops are answered like everything else: late, and in any order. */
static void lying_begin(void *self, struct kvpi_store_op *op)
{
    struct lying *me = self;
    op->deadline_ns = 0;
    if (me->n_gone == 0 && random_percent(&liar.random, 10) && hit(LIAR_GONE))
        me->n_gone = GONE;
    switch (op->kind) {
    case KVP_STORE_PUT:
        if (liar.is_flat)
            me->late[me->n_late++] = op;
        else
            write_record(me, op);
        return;
    case KVP_STORE_GET: read_record(me, op); return;
    case KVP_STORE_HAVE: look_up(me, op); break;
    case KVP_STORE_DROP: drop_records(me, op); break;
    case KVP_STORE_EVICT: kvpi_memory_backend.evict(me->memory, &op->match); break;
    default:
        kvpi_memory_backend.begin(me->memory, op);
        op->io_failed = liar.syncs_fail;
        return;
    }
    me->held[me->n_held++] = op;
}

/* Two reads that have ended get each other's bytes. */
static void swap_reads(struct lying *self)
{
    struct kvpi_store_op *one = self->held[0];
    struct kvpi_store_op *two = self->held[self->n_held - 1];
    if (one->kind != KVP_STORE_GET || two->kind != KVP_STORE_GET || one->n_spans != two->n_spans)
        return;
    for (uint32_t i = 0; i < one->n_spans; i++) {
        if (one->spans[i].n_bytes != two->spans[i].n_bytes || one->spans[i].n_bytes > LAST)
            return;
        memcpy(self->bytes, one->spans[i].bytes, one->spans[i].n_bytes);
        memcpy(one->spans[i].bytes, two->spans[i].bytes, one->spans[i].n_bytes);
        memcpy(two->spans[i].bytes, self->bytes, one->spans[i].n_bytes);
    }
}

static void keep_back(struct lying *self)
{
    if (self->n_held > 0 && self->n_kept < KEPT && !liar.answers_all && hit(LIAR_NEVER))
        self->kept[self->n_kept++] = self->held[--self->n_held];
    while (liar.answers_all && self->n_kept > 0 && self->n_held < HELD)
        self->held[self->n_held++] = self->kept[--self->n_kept];
}

/* Some of the puts are written; then everybody sees them. */
static void write_late(struct lying *self)
{
    for (uint32_t i = self->n_late; i > 0 && !liar.puts_wait; i--) {
        struct kvpi_store_op *op = self->late[i - 1];
        if (op->deadline_ns == SEEN || random_percent(&liar.random, liar.delay))
            continue;
        op->deadline_ns = SEEN;
        op->outcome = prepare_late(self, op);
        if (op->outcome != KVP_STORE_OK)
            continue;
        write_record(self, op);
        (void)kvpi_memory_backend.reap(self->memory, &op, 1);
        kvpi_memory_backend.end(self->memory, op, op->io_failed ? KVP_STORE_FAILED : KVP_STORE_OK);
    }
}

/* And some of those end. */
static void end_late(struct lying *self)
{
    for (uint32_t i = self->n_late; i > 0 && !liar.puts_untold; i--) {
        if (self->late[i - 1]->deadline_ns != SEEN || random_percent(&liar.random, liar.delay))
            continue;
        self->held[self->n_held++] = self->late[i - 1];
        self->late[i - 1] = self->late[--self->n_late];
    }
}

/* Gives what has ended late, in any order, twice, or never. */
static uint32_t lying_reap(void *self, struct kvpi_store_op **out_ops, uint32_t capacity)
{
    struct lying *me = self;
    uint32_t n = 0;
    me->n_held += kvpi_memory_backend.reap(me->memory, me->held + me->n_held, HELD - me->n_held);
    end_late(me);
    write_late(me);
    if (me->n_held > 1 && hit(LIAR_SWAPPED))
        swap_reads(me);
    keep_back(me);
    /* Not while it is read a second time: that read would end before its bytes are there. */
    if (me->again != NULL && !me->again->begun)
        out_ops[n++] = me->again;
    me->again = NULL;
    while (me->n_held > 0 && n < capacity && !random_percent(&liar.random, liar.delay)) {
        const uint32_t at = random_below(&liar.random, me->n_held);
        out_ops[n++] = me->held[at];
        if (hit(LIAR_TWICE))
            me->again = me->held[at];
        me->held[at] = me->held[--me->n_held];
    }
    return n;
}

static uint32_t lying_end(void *self, struct kvpi_store_op *op, uint32_t result)
{
    if ((op->kind != KVP_STORE_PUT && op->kind != KVP_STORE_GET) || op->deadline_ns == SEEN)
        return result;
    return kvpi_memory_backend.end(((struct lying *)self)->memory, op, result);
}

static void lying_wait(void *self, int wake, int timeout_ms)
{
    (void)self;
    (void)wake;
    (void)timeout_ms;
}

static void lying_usage(const void *self, struct kvpi_backend_usage *out_usage)
{
    kvpi_memory_backend.usage(((const struct lying *)self)->memory, out_usage);
}

static void lying_describe(const void *self, char *out_text, size_t text_bytes)
{
    kvpi_memory_backend.describe(((const struct lying *)self)->memory, out_text, text_bytes);
}

const struct kvpi_backend liar_backend = {
    .version = KVPI_BACKEND_VERSION,
    .scheme = "liar",
    .open = lying_open,
    .close = lying_close,
    .prepare = lying_prepare,
    .begin = lying_begin,
    .reap = lying_reap,
    .end = lying_end,
    .wait = lying_wait,
    .usage = lying_usage,
    .describe = lying_describe,
};
