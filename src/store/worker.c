/* worker: what happens to an operation between its acceptance and its end.
 *
 *   PUT   prepare, write the header, begin ... reap, end
 *   GET   prepare, begin ... reap, check; bad: begin once more ... reap, check; end
 *
 * A record that is bad is read a second time before it is dropped: a bus or a cache may have lied,
 * or the record may have been read while it was being replaced. */
#include <string.h>

#include "store/front.h"

enum { FAILURES_MAX = 4, REAP = 64 };

#define AWAY_FIRST_NS UINT64_C(100000000)
#define AWAY_MAX_NS   UINT64_C(60000000000)

/* ------------------------------------------------------------------------------------- counters */

static void count(kvp_store *store, unsigned counter, uint64_t n)
{
    _Atomic uint64_t *at = &store->counters[counter];
    atomic_store_explicit(at, atomic_load_explicit(at, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static void set(kvp_store *store, unsigned counter, uint64_t value)
{
    atomic_store_explicit(&store->counters[counter], value, memory_order_relaxed);
}

static uint64_t now_ns(const kvp_store *store)
{
    return store->config.now(store->config.now_context);
}

/* Bucket b has what took less than 2^(b+10) ns. */
static uint32_t bucket_of(uint64_t ns)
{
    uint32_t bucket = 0;
    while (bucket + 1 < KVP_STORE_LATENCIES && ns >> (bucket + 10) != 0)
        bucket++;
    return bucket;
}

static uint64_t payload_bytes(const struct kvpi_store_op *op)
{
    return (uint64_t)(op->n_spans - 1) * op->spans[1].n_bytes;
}

static void count_put(kvp_store *store, const struct kvpi_store_op *op)
{
    count(store, KVPI_COUNT_PUTS, 1);
    if (op->result == KVP_STORE_OK) {
        count(store, KVPI_COUNT_STORED, 1);
        count(store, KVPI_COUNT_WRITTEN_BYTES, payload_bytes(op));
    } else if (op->result == KVP_STORE_KNOWN) {
        count(store, KVPI_COUNT_KNOWN, 1);
    } else if (op->result == KVP_STORE_NO_PARENT || op->result == KVP_STORE_NO_ROOM) {
        count(store, KVPI_COUNT_REFUSED, 1);
    }
}

static void count_get(kvp_store *store, const struct kvpi_store_op *op)
{
    count(store, KVPI_COUNT_GETS, 1);
    if (op->result == KVP_STORE_OK) {
        count(store, KVPI_COUNT_HITS, 1);
        count(store, KVPI_COUNT_READ_BYTES, payload_bytes(op));
        count(store, KVPI_COUNT_REREAD, op->fault != KVPI_RECORD_GOOD);
    } else if (op->result == KVP_STORE_BAD && op->fault != KVPI_RECORD_GOOD) {
        /* Else a store of the back end has counted why. */
        count(store, KVPI_COUNT_BAD + (unsigned)op->fault - KVPI_RECORD_DAMAGED, 1);
    } else if (op->result == KVP_STORE_ABSENT) {
        count(store, KVPI_COUNT_ABSENT, 1);
    } else if (op->result == KVP_STORE_RACED) {
        count(store, KVPI_COUNT_RACED, 1);
    }
}

/* --------------------------------------------------------------------------------- the far side */

/* A back end that fails FAILURES_MAX times in a row is left alone: at first for AWAY_FIRST_NS, then
 * for twice as long after each failure of the one operation that tries it again. */
static void note_failure(kvp_store *store)
{
    if (++store->n_failures < FAILURES_MAX)
        return;
    store->away_step = store->away_step == 0 ? AWAY_FIRST_NS : store->away_step * 2;
    if (store->away_step > AWAY_MAX_NS)
        store->away_step = AWAY_MAX_NS;
    store->away_until = now_ns(store) + store->away_step;
    set(store, KVPI_COUNT_AWAY_UNTIL, store->away_until);
}

static void note_success(kvp_store *store)
{
    store->n_failures = 0;
    store->away_step = 0;
    store->away_until = 0;
    set(store, KVPI_COUNT_AWAY_UNTIL, 0);
}

static int is_away(const kvp_store *store)
{
    return store->away_until != 0 && now_ns(store) < store->away_until;
}

/* ----------------------------------------------------------------------------------- operations */

static void hand_over(kvp_store *store, struct kvpi_store_op *op, uint32_t result)
{
    op->result = result;
    const uint64_t now = now_ns(store);
    const uint64_t took = now > op->accepted_ns ? now - op->accepted_ns : 0;
    if (op->kind == KVP_STORE_PUT) {
        count_put(store, op);
        count(store, KVPI_COUNT_PUT_NS + bucket_of(took), 1);
        count(store, KVPI_COUNT_PUT_SUM_NS, took);
    } else if (op->kind == KVP_STORE_GET) {
        count_get(store, op);
        count(store, KVPI_COUNT_GET_NS + bucket_of(took), 1);
        count(store, KVPI_COUNT_GET_SUM_NS, took);
    }
    count(store, KVPI_COUNT_FAILED, result == KVP_STORE_FAILED);
    count(store, KVPI_COUNT_AWAY, result == KVP_STORE_AWAY);
    count(store, KVPI_COUNT_ENDED, 1);
    kvpi_ring_put(&store->ended, (uint32_t)(op - store->ops));
}

static void clear_bits(const struct kvpi_store_op *op)
{
    if (op->kind == KVP_STORE_HAVE)
        memset(op->bits, 0, (op->n_keys + 63) / 64 * sizeof *op->bits);
}

/* The key, the place, and for a put the header. KVP_STORE_OK: it can begin. */
static uint32_t prepare(kvp_store *store, struct kvpi_store_op *op)
{
    if (op->kind == KVP_STORE_SYNC)
        return store->backend->prepare(store->self, op);
    if (kvp_record_key(&store->digester, &op->identity->digest, op->identity->group,
                       &op->identity->slice, &op->key) != KVP_OK)
        return KVP_STORE_FAILED;
    op->place.written = op->accepted_ns / UINT64_C(1000000000);
    const uint32_t result = store->backend->prepare(store->self, op);
    if (result != KVP_STORE_OK || op->kind == KVP_STORE_GET || store->backend->has_stores)
        return result;
    if (kvpi_record_write(op->identity, &op->place, op->spans + 1, op->n_spans - 1,
                          store->has_mac ? &store->mac : NULL, store->header_bytes,
                          op->spans[0].bytes) == KVP_OK)
        return KVP_STORE_OK;
    return store->backend->end(store->self, op, KVP_STORE_FAILED);
}

static void begin(kvp_store *store, struct kvpi_store_op *op)
{
    store->n_begun++;
    op->begun = 1;
    store->backend->begin(store->self, op);
}

/* HAVE, DROP and EVICT: at once where the back end can. 0: it is no such operation. */
static int run_keys(kvp_store *store, struct kvpi_store_op *op)
{
    const struct kvpi_backend *backend = store->backend;
    if (op->kind != KVP_STORE_HAVE && op->kind != KVP_STORE_DROP && op->kind != KVP_STORE_EVICT)
        return 0;
    clear_bits(op);
    if (!backend->have) {
        begin(store, op);
        return 1;
    }
    if (op->kind == KVP_STORE_HAVE)
        backend->have(store->self, op->keys, op->n_keys, op->bits);
    else if (op->kind == KVP_STORE_DROP)
        backend->drop(store->self, op->keys, op->n_keys);
    else
        backend->evict(store->self, &op->match);
    hand_over(store, op, KVP_STORE_OK);
    return 1;
}

static void run(kvp_store *store, struct kvpi_store_op *op)
{
    uint32_t result = KVP_STORE_OK;
    if (atomic_load_explicit(&store->closing, memory_order_relaxed))
        result = KVP_STORE_CLOSED;
    else if (is_away(store))
        result = KVP_STORE_AWAY;
    if (result != KVP_STORE_OK) {
        clear_bits(op);
        hand_over(store, op, result);
    } else if (run_keys(store, op)) {
        return;
    } else if ((result = prepare(store, op)) != KVP_STORE_OK) {
        hand_over(store, op, result);
    } else {
        begin(store, op);
    }
}

static enum kvpi_record_fault check(kvp_store *store, const struct kvpi_store_op *op)
{
    const enum kvpi_record_fault fault = kvpi_record_check_header(
        op->identity, &op->place, payload_bytes(op), op->spans[0].bytes, store->header_bytes);
    if (fault != KVPI_RECORD_GOOD)
        return fault;
    return kvpi_record_check_payload(op->spans[0].bytes, op->spans + 1, op->n_spans - 1,
                                     store->has_mac ? &store->mac : NULL);
}

/* Its reading or writing has ended. */
static void finish(kvp_store *store, struct kvpi_store_op *op)
{
    if (!op->begun)
        return;
    uint32_t result = op->io_failed ? KVP_STORE_FAILED : op->outcome;
    if (result == KVP_STORE_ABSENT && op->fault != KVPI_RECORD_GOOD)
        result = KVP_STORE_RACED; /* the first read found something bad */
    if (op->kind == KVP_STORE_GET && result == KVP_STORE_OK && !store->backend->has_stores) {
        const enum kvpi_record_fault fault = check(store, op);
        if (fault != KVPI_RECORD_GOOD && op->fault == KVPI_RECORD_GOOD) {
            op->fault = fault;
            store->backend->begin(store->self, op);
            return;
        }
        if (fault != KVPI_RECORD_GOOD) {
            op->fault = fault;
            result = KVP_STORE_BAD;
        }
    }
    store->n_begun--;
    op->begun = 0;
    if (op->io_failed) {
        note_failure(store);
    } else if (op->outcome != KVP_STORE_AWAY) {
        note_success(store);
    }
    hand_over(store, op, store->backend->end(store->self, op, result));
}

void kvpi_worker_note(kvp_store *store)
{
    struct kvpi_backend_usage usage;
    store->backend->usage(store->self, &usage);
    set(store, KVPI_COUNT_RECORDS, usage.records);
    set(store, KVPI_COUNT_BYTES, usage.bytes);
    set(store, KVPI_COUNT_SIZE, usage.size);
    set(store, KVPI_COUNT_EVICTED, usage.evicted);
    set(store, KVPI_COUNT_DROPPED, usage.dropped);
    set(store, KVPI_COUNT_STAGED, usage.staged);
    set(store, KVPI_COUNT_EXPIRED, usage.expired);
    set(store, KVPI_COUNT_RETIRED, usage.retired);
    set(store, KVPI_COUNT_AWAY_UNTIL,
        usage.away_ns > 0 ? now_ns(store) + usage.away_ns : store->away_until);
}

/* Begin what was accepted. 1: something was. */
static int begin_accepted(kvp_store *store)
{
    int happened = 0;
    uint32_t number;
    while (kvpi_ring_take(&store->accepted, &number)) {
        run(store, &store->ops[number]);
        happened = 1;
    }
    return happened;
}

/* Whatever has ended and was not told is told now. */
static void tell(kvp_store *store)
{
    const uint32_t ended = atomic_load_explicit(&store->ended.tail, memory_order_relaxed);
    if (ended == store->told)
        return;
    kvpi_worker_note(store);
    kvpi_wake_raise(&store->signal);
    store->told = ended;
}

/* Checking a record takes as long as the disk takes for a part of one. So each is told as soon as
 * it has ended, and what the caller submits meanwhile begins before the next is checked: else the
 * disk would have nothing to do while a batch is worked off. */
int kvpi_worker_round(kvp_store *store)
{
    int happened = begin_accepted(store);
    tell(store);
    struct kvpi_store_op *ops[REAP];
    uint32_t n;
    while ((n = store->backend->reap(store->self, ops, REAP)) > 0) {
        for (uint32_t i = 0; i < n; i++) {
            finish(store, ops[i]);
            tell(store);
            begin_accepted(store);
        }
        tell(store);
        happened = 1;
    }
    return happened;
}

void *kvpi_worker_run(void *context)
{
    kvp_store *store = context;
    while (1) {
        if (kvpi_worker_round(store))
            continue;
        if (atomic_load(&store->closing) && store->n_begun == 0 &&
            kvpi_ring_empty(&store->accepted))
            return NULL;
        /* Pairs with accept() in store.c: either it sees that the worker is asleep and wakes it, or
         * the worker sees what was accepted. */
        atomic_store(&store->asleep, 1);
        atomic_thread_fence(memory_order_seq_cst);
        if (kvpi_ring_empty(&store->accepted))
            store->backend->wait(store->self, store->wake.read_fd,
                                 atomic_load(&store->closing) ? 1 : -1);
        atomic_store(&store->asleep, 0);
        kvpi_wake_clear(&store->wake);
    }
}
