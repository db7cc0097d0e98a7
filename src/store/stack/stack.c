/* stack: a back end made of stores. It opens over them, moves what they end on, and adds up what
 * they count. */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "store/front.h"
#include "store/stack/stack.h"

enum { POLL = 64, TEXT_BYTES = 304 };

/* ------------------------------------------------------------------------------------- back end */

static void free_stack(struct kvpi_stack *stack)
{
    free(stack->ops);
    free(stack->free_ops);
    free(stack->ended);
    free(stack->barred);
    free(stack->looks);
    free(stack);
}

static void stack_close(void *self)
{
    struct kvpi_stack *stack = self;
    for (uint32_t i = 0; i < stack->n_stores; i++)
        kvp_store_close(stack->stores[i]);
    free_stack(stack);
}

static uint32_t stack_prepare(void *self, struct kvpi_store_op *op)
{
    (void)self;
    (void)op;
    return KVP_STORE_OK;
}

static void stack_begin(void *self, struct kvpi_store_op *op)
{
    kvpi_stack_begin(self, op);
}

static void take_ended(struct kvpi_stack *stack, uint32_t from)
{
    kvp_store_done done[POLL];
    uint32_t n = POLL;
    if (stack->works)
        (void)kvp_store_work(stack->stores[from], NULL);
    while (n == POLL && kvp_store_poll(stack->stores[from], done, POLL, &n) == KVP_OK)
        for (uint32_t i = 0; i < n; i++)
            kvpi_stack_step(stack, (uint32_t)done[i].tag, from, done[i].result);
}

static uint32_t stack_reap(void *self, struct kvpi_store_op **out_ops, uint32_t capacity)
{
    struct kvpi_stack *stack = self;
    for (uint32_t i = 0; i < stack->n_stores; i++)
        take_ended(stack, i);
    kvpi_stack_resume(stack);
    const uint32_t n = stack->n_ended < capacity ? stack->n_ended : capacity;
    stack->n_ended -= n;
    memcpy(out_ops, stack->ended, n * sizeof(struct kvpi_store_op *));
    memmove(stack->ended, stack->ended + n, stack->n_ended * sizeof *stack->ended);
    return n;
}

static uint32_t stack_end(void *self, struct kvpi_store_op *op, uint32_t result)
{
    (void)self;
    (void)op;
    return result;
}

static void stack_wait(void *self, int wake, int timeout_ms)
{
    const struct kvpi_stack *stack = self;
    struct pollfd fds[1 + KVP_STORE_STACK_MAX] = {{.fd = wake, .events = POLLIN}};
    for (uint32_t i = 0; i < stack->n_stores; i++)
        fds[1 + i] = (struct pollfd){.fd = kvp_store_fd(stack->stores[i]), .events = POLLIN};
    (void)poll(fds, 1 + stack->n_stores, timeout_ms);
}

/* The stores' own: stack_add_stats. */
static void stack_usage(const void *self, struct kvpi_backend_usage *out_usage)
{
    (void)self;
    *out_usage = (struct kvpi_backend_usage){0};
}

static void stack_add_stats(const void *self, kvp_store_stats *stats)
{
    const struct kvpi_stack *stack = self;
    stats->failed = stats->away = 0;
    for (uint32_t i = 0; i < stack->n_stores; i++) {
        kvp_store_stats own = {0};
        (void)kvp_store_stats_get(stack->stores[i], &own);
        stats->records += own.records;
        stats->bytes += own.bytes;
        stats->size += own.size;
        stats->retired += own.retired;
        stats->evicted += own.evicted;
        stats->dropped += own.dropped;
        stats->expired += own.expired;
        stats->staged += own.staged;
        stats->reread += own.reread;
        stats->failed += own.failed;
        stats->away += own.away;
        for (uint32_t k = 0; k < KVP_BAD_REASONS; k++)
            stats->bad[k] += own.bad[k];
        if (i == 0 || own.away_ns < stats->away_ns)
            stats->away_ns = own.away_ns;
    }
}

/* "nearest: ...; then: ..." */
static void stack_describe(const void *self, char *out_text, size_t text_bytes)
{
    const struct kvpi_stack *stack = self;
    size_t used = 0;
    for (uint32_t i = 0; i < stack->n_stores && used < text_bytes; i++) {
        char own[TEXT_BYTES];
        (void)kvp_store_describe(stack->stores[i], own, sizeof own);
        kvpi_why(KVP_OK, out_text + used, text_bytes - used, "%s%s",
                 i == 0 ? "nearest: " : "; then: ", own);
        used += strlen(out_text + used);
    }
}

static const struct kvpi_backend stack_backend = {
    .version = KVPI_BACKEND_VERSION,
    .scheme = "stack",
    .close = stack_close,
    .prepare = stack_prepare,
    .begin = stack_begin,
    .reap = stack_reap,
    .end = stack_end,
    .wait = stack_wait,
    .usage = stack_usage,
    .describe = stack_describe,
    .has_stores = 1,
    .add_stats = stack_add_stats,
};

/* ----------------------------------------------------------------------------------------- open */

void kvp_store_stack_config_init(kvp_store_stack_config *config)
{
    if (config)
        *config = (kvp_store_stack_config){.struct_size = sizeof *config};
}

/* Have their records as many blocks? */
static int is_same_sizes(const kvp_store *a, const kvp_store *b)
{
    for (uint32_t g = 0; g < a->config.n_groups; g++)
        if (kvp_store_group_blocks(a, g) != kvp_store_group_blocks(b, g))
            return 0;
    return a->record_blocks == b->record_blocks;
}

static int is_same_shape(const kvp_store *a, const kvp_store *b)
{
    const kvp_store_config *x = &a->config;
    const kvp_store_config *y = &b->config;
    return memcmp(&x->fingerprint, &y->fingerprint, sizeof x->fingerprint) == 0 &&
           x->block_tokens == y->block_tokens && x->n_groups == y->n_groups &&
           memcmp(x->block_bytes, y->block_bytes, x->n_groups * sizeof *x->block_bytes) == 0 &&
           is_same_sizes(a, b) && x->threads == y->threads;
}

/* What is wrong with stores[i]; NULL: nothing. */
static const char *find_wrong(const kvp_store_stack_config *config, uint32_t i)
{
    const kvp_store *store = config->stores[i];
    if (!store)
        return "is NULL";
    if (store->backend->has_stores)
        return "is a stack";
    if (store->n_free != store->config.max_ops)
        return "has operations that were not polled";
    for (uint32_t k = 0; k < i; k++)
        if (config->stores[k] == store)
            return "is there twice";
    return is_same_shape(config->stores[0], store)
               ? NULL
               : "has another fingerprint, block_tokens, groups, block_bytes, group_tokens, "
                 "group_blocks, record_blocks or threads than stores[0]";
}

static kvp_status check(const kvp_store_stack_config *config, char *out_why, size_t why_bytes)
{
    if (config->n_stores == 0 || config->n_stores > KVP_STORE_STACK_MAX || config->reserved != 0)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                        "n_stores is not 1..KVP_STORE_STACK_MAX, or reserved is not 0");
    for (uint32_t i = 0; i < config->n_stores; i++) {
        const char *wrong = find_wrong(config, i);
        if (wrong)
            return kvpi_why(KVP_E_ARG, out_why, why_bytes, "stores[%u] %s", i, wrong);
    }
    return KVP_OK;
}

/* That of the nearest store, with what all of them have room for. */
static kvp_store_config config_of(const kvp_store_stack_config *config)
{
    kvp_store_config made = config->stores[0]->config;
    made.record_blocks = config->stores[0]->record_blocks;
    made.secret_bytes = 0;
    for (uint32_t i = 1; i < config->n_stores; i++) {
        const kvp_store_config *other = &config->stores[i]->config;
        made.max_ops = other->max_ops < made.max_ops ? other->max_ops : made.max_ops;
        made.key_bytes = other->key_bytes < made.key_bytes ? other->key_bytes : made.key_bytes;
    }
    return made;
}

static struct kvpi_stack *make_stack(const kvp_store_stack_config *config,
                                     const kvp_store_config *front)
{
    const uint32_t n = front->max_ops;
    struct kvpi_stack *stack = calloc(1, sizeof *stack);
    if (!stack)
        return NULL;
    stack->ops = calloc(n, sizeof *stack->ops);
    stack->free_ops = calloc(n, sizeof *stack->free_ops);
    stack->ended = calloc(n, sizeof *stack->ended);
    stack->barred = calloc(n, sizeof *stack->barred);
    stack->looks = calloc(KVPI_STACK_LOOKS, sizeof *stack->looks);
    if (!stack->ops || !stack->free_ops || !stack->ended || !stack->barred || !stack->looks) {
        free_stack(stack);
        return NULL;
    }
    stack->n_stores = config->n_stores;
    memcpy(stack->stores, config->stores, config->n_stores * sizeof(kvp_store *));
    stack->works = front->threads == 0;
    stack->bytes_s = config->nearer_bytes_s;
    stack->bytes_day = config->nearer_bytes_day;
    stack->now = front->now;
    stack->now_context = front->now_context;
    stack->since_ns = stack->now(stack->now_context);
    stack->n_ops = n;
    for (stack->n_free = 0; stack->n_free < n; stack->n_free++)
        stack->free_ops[stack->n_free] = n - 1 - stack->n_free;
    return stack;
}

kvp_status kvp_store_stack_open(const kvp_store_stack_config *config, kvp_store **out_store,
                                char *out_why, size_t why_bytes)
{
    kvpi_why(KVP_OK, out_why, why_bytes, "%s", "");
    config = kvpi_sized(config, sizeof(*config));
    if (!config || !config->stores || !out_store)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                        "a pointer is NULL, or struct_size is wrong: use "
                        "kvp_store_stack_config_init");
    kvp_status status = check(config, out_why, why_bytes);
    if (status != KVP_OK)
        return status;
    const kvp_store_config front = config_of(config);
    struct kvpi_stack *stack = make_stack(config, &front);
    if (!stack)
        return kvpi_why(KVP_E_NO_MEMORY, out_why, why_bytes, "the system gave no memory");
    status = kvpi_store_over(&front, &stack_backend, stack, out_store, out_why, why_bytes);
    if (status != KVP_OK)
        free_stack(stack);
    return status;
}

const kvp_store *kvp_store_stack_part(const kvp_store *stack, uint32_t number)
{
    if (!stack || !stack->backend->has_stores)
        return NULL;
    const struct kvpi_stack *self = stack->self;
    return number < self->n_stores ? self->stores[number] : NULL;
}
