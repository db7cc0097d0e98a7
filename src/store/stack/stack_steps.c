/* stack_steps: what happens to an operation of a stack.
 *
 *   put, drop, evict, sync   every store at once; ended when all have
 *   have   store 0, then the next for what is still lacking, ...
 *   get    store 0, then the next, ... until one has it. If that is not the first:
 *
 *     READING -- hit --> HELD -- the parent is being written, or needs not be --> CARRYING --> end
 *
 * What is carried is what a get has read and verified. It lies in the caller's blocks, so the get
 * ends when it was written. Records go from the root down: a hit waits until a get of its parent
 * that began before was written or has missed; stores begin in the order of submission.
 *
 * A dropped record must not come back: a get that began before a drop is not carried, a drop waits
 * until what is being carried was written, and what the caller submits behind a drop waits until it
 * has ended. */
#include <string.h>

#include "store/stack/stack.h"

static struct kvpi_stacked *take(struct kvpi_stack *stack, struct kvpi_store_op *op)
{
    const uint32_t number = stack->free_ops[--stack->n_free];
    struct kvpi_stacked *it = &stack->ops[number];
    *it = (struct kvpi_stacked){
        .op = op,
        .serial = stack->n_begun++,
        .look = KVPI_STACK_NONE,
        .n_drops = stack->n_drops,
        .followers = KVPI_STACK_NONE,
        .next = KVPI_STACK_NONE,
    };
    return it;
}

static uint32_t number_of(const struct kvpi_stack *stack, const struct kvpi_stacked *it)
{
    return (uint32_t)(it - stack->ops);
}

static void finish(struct kvpi_stack *stack, struct kvpi_stacked *it, uint32_t result)
{
    it->op->outcome = result;
    stack->ended[stack->n_ended++] = it->op;
    it->phase = KVPI_STACK_FREE;
    stack->free_ops[stack->n_free++] = number_of(stack, it);
}

static uint64_t payload_bytes(const struct kvpi_store_op *op)
{
    return (uint64_t)(op->n_spans - 1) * op->spans[1].n_bytes;
}

/* One store's part of an operation. 0: it ended already, and did not do it. */
static int submit(struct kvpi_stack *stack, struct kvpi_stacked *it, uint32_t to, uint32_t kind)
{
    void *blocks[KVP_RECORD_BLOCKS_MAX];
    const struct kvpi_store_op *op = it->op;
    kvp_store *store = stack->stores[to];
    const uint64_t tag = number_of(stack, it);
    kvp_status status = KVP_E_ARG;
    for (uint32_t i = 1; i < op->n_spans; i++)
        blocks[i - 1] = op->spans[i].bytes;
    switch (kind) {
    case KVP_STORE_PUT: status = kvp_store_put(store, op->identity, blocks, tag); break;
    case KVP_STORE_GET: status = kvp_store_get(store, op->identity, blocks, tag); break;
    case KVP_STORE_DROP: status = kvp_store_drop(store, op->keys, op->n_keys, tag); break;
    case KVP_STORE_EVICT: status = kvp_store_evict(store, &op->match, tag); break;
    case KVP_STORE_SYNC: status = kvp_store_sync(store, tag); break;
    default: break;
    }
    it->n_out += status == KVP_OK;
    it->results[to] = KVP_STORE_FAILED;
    return status == KVP_OK;
}

/* ---------------------------------------------------------------------- put, drop, evict, sync */

static int any(const struct kvpi_stack *stack, const struct kvpi_stacked *it, uint32_t result)
{
    for (uint32_t i = 0; i < stack->n_stores; i++)
        if (it->results[i] == result)
            return 1;
    return 0;
}

/* The nearest store's that is not `usual`; if there is none, `usual`. */
static uint32_t first_other(const struct kvpi_stack *stack, const struct kvpi_stacked *it,
                            uint32_t usual)
{
    for (uint32_t i = 0; i < stack->n_stores; i++)
        if (it->results[i] != usual)
            return it->results[i];
    return usual;
}

static uint32_t result_of_spread(const struct kvpi_stack *stack, const struct kvpi_stacked *it)
{
    if (it->op->kind != KVP_STORE_PUT)
        return first_other(stack, it, KVP_STORE_OK);
    if (any(stack, it, KVP_STORE_OK))
        return KVP_STORE_OK;
    return any(stack, it, KVP_STORE_KNOWN) ? KVP_STORE_KNOWN : it->results[0];
}

static int is_drop(const struct kvpi_store_op *op)
{
    return op->kind == KVP_STORE_DROP || op->kind == KVP_STORE_EVICT;
}

static void finish_spread(struct kvpi_stack *stack, struct kvpi_stacked *it)
{
    stack->n_dropping -= (uint32_t)is_drop(it->op);
    finish(stack, it, result_of_spread(stack, it));
}

static void spread(struct kvpi_stack *stack, struct kvpi_stacked *it)
{
    it->phase = KVPI_STACK_SPREAD;
    stack->n_dropping += (uint32_t)is_drop(it->op);
    for (uint32_t i = 0; i < stack->n_stores; i++)
        submit(stack, it, i, it->op->kind);
    if (it->n_out == 0)
        finish_spread(stack, it);
}

/* ----------------------------------------------------------------------------------------- have */

static int has_bit(const uint64_t *bits, uint32_t i)
{
    return (int)(bits[i / 64] >> i % 64 & 1);
}

static void fill_look(const struct kvpi_store_op *op, struct kvpi_stack_look *look)
{
    look->n_keys = 0;
    for (uint32_t i = 0; i < op->n_keys; i++) {
        if (has_bit(op->bits, i))
            continue;
        look->keys[look->n_keys] = op->keys[i];
        look->places[look->n_keys++] = (uint16_t)i;
    }
}

static int lacks_some(const struct kvpi_store_op *op)
{
    for (uint32_t i = 0; i < op->n_keys; i++)
        if (!has_bit(op->bits, i))
            return 1;
    return 0;
}

/* 0: all are in use. */
static int take_look(struct kvpi_stack *stack, struct kvpi_stacked *it)
{
    for (uint32_t i = 0; i < KVPI_STACK_LOOKS && it->look == KVPI_STACK_NONE; i++)
        if (!stack->looks[i].used) {
            stack->looks[i].used = 1;
            it->look = i;
        }
    return it->look != KVPI_STACK_NONE;
}

/* Ask store `at`. 0: it ended already. */
static int ask(struct kvpi_stack *stack, struct kvpi_stacked *it)
{
    const struct kvpi_store_op *op = it->op;
    const uint64_t tag = number_of(stack, it);
    kvp_status status;
    it->phase = KVPI_STACK_ASKING;
    it->results[it->at] = KVP_STORE_FAILED;
    if (it->at == 0) {
        status = kvp_store_have(stack->stores[0], op->keys, op->n_keys, op->bits, tag);
    } else {
        struct kvpi_stack_look *look = &stack->looks[it->look];
        fill_look(op, look);
        status = kvp_store_have(stack->stores[it->at], look->keys, look->n_keys, look->bits, tag);
    }
    return status == KVP_OK;
}

static void finish_have(struct kvpi_stack *stack, struct kvpi_stacked *it)
{
    if (it->look != KVPI_STACK_NONE)
        stack->looks[it->look].used = 0;
    finish(stack, it, any(stack, it, KVP_STORE_OK) ? KVP_STORE_OK : it->results[0]);
}

/* From store `at` on. */
static void ask_on(struct kvpi_stack *stack, struct kvpi_stacked *it)
{
    for (; it->at < stack->n_stores; it->at++) {
        if (it->at > 0 && !lacks_some(it->op))
            break;
        if (it->at > 0 && !take_look(stack, it)) {
            it->phase = KVPI_STACK_QUEUED;
            stack->n_queued++;
            return;
        }
        if (ask(stack, it))
            return;
    }
    finish_have(stack, it);
}

static void ask_queued(struct kvpi_stack *stack)
{
    for (uint32_t i = 0; i < stack->n_ops && stack->n_queued > 0; i++) {
        struct kvpi_stacked *it = &stack->ops[i];
        if (it->phase != KVPI_STACK_QUEUED)
            continue;
        if (!take_look(stack, it))
            return;
        stack->n_queued--;
        ask_on(stack, it);
    }
}

static void answered(struct kvpi_stack *stack, struct kvpi_stacked *it)
{
    const struct kvpi_store_op *op = it->op;
    if (it->at == 0 && it->results[0] != KVP_STORE_OK)
        memset(op->bits, 0, (op->n_keys + 63) / 64 * sizeof *op->bits);
    if (it->at > 0 && it->results[it->at] == KVP_STORE_OK) {
        const struct kvpi_stack_look *look = &stack->looks[it->look];
        for (uint32_t i = 0; i < look->n_keys; i++)
            op->bits[look->places[i] / 64] |= (uint64_t)has_bit(look->bits, i)
                                              << look->places[i] % 64;
    }
    it->at++;
    ask_on(stack, it);
    ask_queued(stack);
}

/* ------------------------------------------------------------------------------------------ get */

/* The get of its parent that began before it and is on its way; NULL: there is none. Nothing waits
 * for what began later, so no two wait for each other, whatever identities say. */
static struct kvpi_stacked *find_parent(struct kvpi_stack *stack, const struct kvpi_stacked *it)
{
    const kvp_digest *parent = &it->op->identity->parent;
    for (uint32_t i = 0; i < stack->n_ops; i++) {
        struct kvpi_stacked *other = &stack->ops[i];
        if ((other->phase == KVPI_STACK_READING || other->phase == KVPI_STACK_HELD) &&
            other->serial < it->serial && memcmp(&other->op->key, parent, sizeof *parent) == 0)
            return other;
    }
    return NULL;
}

/* Write a hit to the nearer stores that lacked it. */
static void carry(struct kvpi_stack *stack, struct kvpi_stacked *it)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < it->at; i++)
        n += it->lacking >> i & 1;
    if (it->n_drops == stack->n_drops && kvpi_stack_may_carry(stack, n * payload_bytes(it->op)))
        for (uint32_t i = 0; i < it->at; i++)
            if (it->lacking >> i & 1)
                submit(stack, it, i, KVP_STORE_PUT);
    it->phase = KVPI_STACK_CARRYING;
    if (it->n_out > 0)
        stack->n_carrying++;
    else
        finish(stack, it, KVP_STORE_OK);
}

/* What waited for it is carried, and what waited for that. */
static void release_followers(struct kvpi_stack *stack, struct kvpi_stacked *it)
{
    uint32_t first = it->followers;
    it->followers = KVPI_STACK_NONE;
    while (first != KVPI_STACK_NONE) {
        struct kvpi_stacked *follower = &stack->ops[first];
        first = follower->next;
        uint32_t own = follower->followers;
        while (own != KVPI_STACK_NONE) {
            const uint32_t next = stack->ops[own].next;
            stack->ops[own].next = first;
            first = own;
            own = next;
        }
        carry(stack, follower);
    }
}

static void hit(struct kvpi_stack *stack, struct kvpi_stacked *it)
{
    struct kvpi_stacked *parent = it->lacking != 0 ? find_parent(stack, it) : NULL;
    if (parent) {
        it->phase = KVPI_STACK_HELD;
        it->next = parent->followers;
        parent->followers = number_of(stack, it);
        return;
    }
    carry(stack, it);
    release_followers(stack, it);
}

/* From store `at` on. */
static void read_on(struct kvpi_stack *stack, struct kvpi_stacked *it)
{
    it->phase = KVPI_STACK_READING;
    for (; it->at < stack->n_stores; it->at++)
        if (submit(stack, it, it->at, KVP_STORE_GET))
            return;
    finish(stack, it, first_other(stack, it, KVP_STORE_ABSENT));
    release_followers(stack, it);
}

static void got(struct kvpi_stack *stack, struct kvpi_stacked *it)
{
    const uint32_t result = it->results[it->at];
    if (result == KVP_STORE_OK) {
        hit(stack, it);
        return;
    }
    if (result == KVP_STORE_ABSENT || result == KVP_STORE_RACED || result == KVP_STORE_BAD)
        it->lacking |= 1u << it->at;
    it->at++;
    read_on(stack, it);
}

/* ------------------------------------------------------------------------------------ the calls */

static void begin(struct kvpi_stack *stack, struct kvpi_store_op *op)
{
    stack->n_drops += (uint64_t)is_drop(op); /* what began while it waited is not carried, too */
    struct kvpi_stacked *it = take(stack, op);
    if (op->kind == KVP_STORE_GET)
        read_on(stack, it);
    else if (op->kind == KVP_STORE_HAVE)
        ask_on(stack, it);
    else
        spread(stack, it);
}

/* A store may do what it was given later before what it was given earlier, as a server does that
 * has several connections. */
static int must_wait(const struct kvpi_stack *stack, const struct kvpi_store_op *op)
{
    return stack->n_dropping > 0 || (is_drop(op) && stack->n_carrying > 0);
}

void kvpi_stack_begin(struct kvpi_stack *stack, struct kvpi_store_op *op)
{
    stack->n_drops += (uint64_t)is_drop(op);
    if (stack->n_barred > 0 || must_wait(stack, op))
        stack->barred[stack->n_barred++] = op;
    else
        begin(stack, op);
}

void kvpi_stack_resume(struct kvpi_stack *stack)
{
    uint32_t n = 0;
    while (n < stack->n_barred && !must_wait(stack, stack->barred[n]))
        begin(stack, stack->barred[n++]);
    stack->n_barred -= n;
    memmove(stack->barred, stack->barred + n, stack->n_barred * sizeof *stack->barred);
}

void kvpi_stack_step(struct kvpi_stack *stack, uint32_t number, uint32_t from, uint32_t result)
{
    struct kvpi_stacked *it = &stack->ops[number];
    switch (it->phase) {
    case KVPI_STACK_READING:
        it->n_out--;
        it->results[from] = result;
        got(stack, it);
        break;
    case KVPI_STACK_ASKING:
        it->results[from] = result;
        answered(stack, it);
        break;
    case KVPI_STACK_CARRYING:
        if (--it->n_out == 0) {
            stack->n_carrying--;
            finish(stack, it, KVP_STORE_OK);
        }
        break;
    default: /* SPREAD */
        it->results[from] = result;
        if (--it->n_out == 0)
            finish_spread(stack, it);
        break;
    }
}
