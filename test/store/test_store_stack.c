/* Stacks: several stores behind the calls of one, nearest first. The stores lie as those of
 * test_store_random do; what a stack ends with is compared with a model of which store has what.
 *
 *   test_store_stack [SEED [OPERATIONS]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "liar.h"
#include "store/front.h"
#include "store_inputs.h"

enum { CHAINS = 5, DEPTH = 8, RECORDS = CHAINS * DEPTH, FEW = 18, ALL = 64, STORES = 3 };

#define SECOND     UINT64_C(1000000000)
#define KV_BYTES   (BLOCKS * BLOCK_BYTES)
#define SLOT_BYTES (4096 + KV_BYTES)

static uint64_t seed = 1;
static uint64_t n_operations = 20000;
static uint64_t now = 1000 * SECOND;

static uint64_t test_clock(void *context)
{
    (void)context;
    return now;
}

/* ---------------------------------------------------------------------------------- the records */

struct record {
    int32_t tokens[BLOCKS * TOKENS];
    kvp_identity identity;
    uint8_t kv[BLOCKS][BLOCK_BYTES];
    void *blocks[BLOCKS];
    kvp_digest key;
};

static struct record records[RECORDS];

static void make_records(void)
{
    for (unsigned r = 0; r < RECORDS; r++) {
        struct record *record = &records[r];
        record->identity = input_identity(record->tokens, BLOCKS, TOKENS, r % DEPTH, r * 100);
        record->identity.digest = input_digest(r);
        record->identity.space = r / DEPTH;
        if (r % DEPTH > 0)
            record->identity.parent = records[r - 1].key;
        for (unsigned i = 0; i < BLOCKS; i++) {
            input_pattern(record->kv[i], BLOCK_BYTES, r * 3 + i);
            record->kv[i][0] = (uint8_t)r;
            record->blocks[i] = record->kv[i];
        }
        record->key = input_key(&record->identity);
    }
}

/* ------------------------------------------------------- a back end that works in its own order */

/* As a server with several connections: what was submitted later may be done earlier, and no parent
 * is looked for. */
struct server {
    uint8_t there[RECORDS];
    uint8_t bytes[RECORDS][SLOT_BYTES];
    struct kvpi_store_op *held[OPS];
    uint32_t n_held;
};

static unsigned n_servers; /* open */
static int is_lying;       /* a server that is asked for what it has */

static uint8_t *find(struct server *server, const kvp_digest *key, uint8_t **out_bytes)
{
    unsigned r = 0;
    while (memcmp(&records[r].key, key, sizeof *key) != 0)
        r++;
    *out_bytes = server->bytes[r];
    return &server->there[r];
}

static kvp_status server_open(const struct kvpi_backend_config *config, void **out_self,
                              char *out_why, size_t why_bytes)
{
    (void)config;
    (void)out_why;
    (void)why_bytes;
    *out_self = calloc(1, sizeof(struct server));
    n_servers++;
    return KVP_OK;
}

static void server_close(void *self)
{
    free(self);
    n_servers--;
}

static uint32_t server_prepare(void *self, struct kvpi_store_op *op)
{
    (void)self;
    (void)op;
    return KVP_STORE_OK;
}

static void server_begin(void *self, struct kvpi_store_op *op)
{
    struct server *server = self;
    server->held[server->n_held++] = op;
}

static void serve(struct server *server, struct kvpi_store_op *op)
{
    uint8_t *bytes = NULL;
    if ((op->kind == KVP_STORE_HAVE || op->kind == KVP_STORE_GET) && is_lying) {
        if (op->kind == KVP_STORE_HAVE)
            op->bits[0] = UINT64_MAX;
        op->outcome = KVP_STORE_FAILED;
        return;
    }
    for (uint32_t i = 0; i < op->n_keys && op->kind == KVP_STORE_HAVE; i++)
        op->bits[i / 64] |= (uint64_t)*find(server, &op->keys[i], &bytes) << i % 64;
    for (uint32_t i = 0; i < op->n_keys && op->kind == KVP_STORE_DROP; i++)
        *find(server, &op->keys[i], &bytes) = 0;
    if (op->kind == KVP_STORE_EVICT)
        op->outcome = KVP_STORE_FAILED;
    if (op->kind != KVP_STORE_PUT && op->kind != KVP_STORE_GET)
        return;
    uint8_t *there = find(server, &op->key, &bytes);
    if (op->kind == KVP_STORE_GET) {
        op->outcome = *there ? KVP_STORE_OK : KVP_STORE_ABSENT;
        copy_in(op, bytes, *there ? SLOT_BYTES : 0);
    } else if (*there) {
        op->outcome = KVP_STORE_KNOWN;
    } else {
        copy_out(op, bytes);
        *there = 1;
    }
}

static uint32_t server_reap(void *self, struct kvpi_store_op **out_ops, uint32_t capacity)
{
    struct server *server = self;
    uint32_t n = 0;
    while (server->n_held > 0 && n < capacity && draw(3) > 0) {
        const uint32_t at = draw(server->n_held);
        serve(server, server->held[at]);
        out_ops[n++] = server->held[at];
        server->held[at] = server->held[--server->n_held];
    }
    return n;
}

static uint32_t server_end(void *self, struct kvpi_store_op *op, uint32_t result)
{
    (void)self;
    (void)op;
    return result;
}

static void server_usage(const void *self, struct kvpi_backend_usage *out_usage)
{
    (void)self;
    *out_usage = (struct kvpi_backend_usage){.staged = 3, .expired = 5};
}

static const struct kvpi_backend server_backend = {
    .version = KVPI_BACKEND_VERSION,
    .scheme = "server",
    .open = server_open,
    .close = server_close,
    .prepare = server_prepare,
    .begin = server_begin,
    .reap = server_reap,
    .end = server_end,
    .wait = liar_wait,
    .usage = server_usage,
};

/* ----------------------------------------------------------------------------------- the stores */

static uint32_t most_ops = OPS; /* of the next store */
static uint32_t group_tokens;   /* the same */

static kvp_store *open_over(const struct kvpi_backend *backend, const char *url, uint32_t threads)
{
    kvp_store_config config;
    kvp_store *store = NULL;
    kvp_store_config_init(&config);
    config.url = url;
    config.fingerprint = input_digest(1);
    config.block_tokens = TOKENS;
    config.block_bytes[0] = BLOCK_BYTES;
    config.group_tokens[0] = group_tokens;
    config.record_blocks = BLOCKS;
    config.max_ops = most_ops;
    config.threads = threads;
    config.now = test_clock;
    assert_int_equal(kvpi_store_open(&config, backend, &store, NULL, 0), KVP_OK);
    return store;
}

static kvp_store *open_liar(unsigned rate, unsigned n_slots, uint32_t threads)
{
    char url[64];
    snprintf(url, sizeof url, "liar:?size=%u", n_slots * (unsigned)SLOT_BYTES);
    fault_rate = rate;
    return open_over(threads ? &kvpi_memory_backend : &liar_backend, url, threads);
}

static kvp_store *open_stack(kvp_store *const *stores, uint32_t n)
{
    char why[200];
    kvp_store *stack = NULL;
    kvp_store_stack_config config;
    kvp_store_stack_config_init(&config);
    config.stores = stores;
    config.n_stores = n;
    assert_int_equal(kvp_store_stack_open(&config, &stack, why, sizeof why), KVP_OK);
    assert_string_equal(why, "");
    return stack;
}

static uint32_t put(kvp_store *store, unsigned r)
{
    assert_int_equal(kvp_store_put(store, &records[r].identity, records[r].blocks, r), KVP_OK);
    return input_result(store);
}

/* The KV must be its own. */
static uint32_t get(kvp_store *store, unsigned r)
{
    uint8_t kv[BLOCKS][BLOCK_BYTES];
    void *blocks[BLOCKS] = {kv[0], kv[1]};
    assert_int_equal(kvp_store_get(store, &records[r].identity, blocks, r), KVP_OK);
    const uint32_t result = input_result(store);
    if (result == KVP_STORE_OK)
        assert_memory_equal(kv, records[r].kv, sizeof kv);
    return result;
}

/* Whether one store, alone, has a record. It must have no thread. */
static int has(const kvp_store *store, unsigned r)
{
    uint64_t bits = 0;
    uint8_t *bytes;
    if (store->backend == &server_backend)
        return *find(store->self, &records[r].key, &bytes);
    store->backend->have(store->self, &records[r].key, 1, &bits);
    return (int)(bits & 1);
}

static kvp_store_stats stats_of(const kvp_store *store)
{
    kvp_store_stats stats;
    assert_int_equal(kvp_store_stats_get(store, &stats), KVP_OK);
    return stats;
}

/* --------------------------------------------------------------------------------------- scenes */

TEST(test_a_put_goes_to_each_store)
{
    kvp_store *stores[] = {open_liar(0, ALL, 0), open_liar(0, ALL, 0)};
    assert_int_equal(put(stores[1], 0), KVP_STORE_OK);
    scoped_store *stack = open_stack(stores, 2);
    assert_int_equal(kvp_store_record_blocks(stack), BLOCKS);
    assert_ptr_equal(kvp_store_stack_part(stack, 1), stores[1]);
    assert_null(kvp_store_stack_part(stack, 2));
    assert_null(kvp_store_stack_part(stores[0], 0));
    /* The near one lacks the parent, the far one does not. */
    assert_int_equal(put(stack, 1), KVP_STORE_OK);
    assert_true(!has(stores[0], 1) && has(stores[1], 1));
    assert_int_equal(put(stack, 1), KVP_STORE_KNOWN);
    assert_int_equal(put(stack, 0), KVP_STORE_OK);
    assert_int_equal(put(stack, 0), KVP_STORE_KNOWN);
    assert_int_equal(put(stack, DEPTH + 1), KVP_STORE_NO_PARENT);
    const kvp_store_stats all = stats_of(stack);
    assert_true(all.puts == 5 && all.stored == 2 && all.known == 2 && all.refused == 1);
    assert_fields(all, records, 3, size, stats_of(stores[0]).size + stats_of(stores[1]).size);
    char text[400];
    assert_int_equal(kvp_store_describe(stack, text, sizeof text), KVP_OK);
    assert_string_equal(text, "nearest: in memory; then: in memory");
}

TEST(test_a_farther_hit_comes_nearer)
{
    kvp_store *stores[] = {open_liar(0, ALL, 0), open_liar(0, ALL, 0), open_liar(0, ALL, 0)};
    for (unsigned r = 0; r < 3; r++)
        assert_int_equal(put(stores[2], r), KVP_STORE_OK);
    scoped_store *stack = open_stack(stores, 3);
    assert_int_equal(get(stack, 1), KVP_STORE_OK); /* its parent is not nearer: it cannot be */
    assert_true(!has(stores[0], 1) && !has(stores[1], 1));
    for (unsigned r = 0; r < 3; r++) {
        assert_int_equal(get(stack, r), KVP_STORE_OK);
        assert_true(has(stores[0], r) && has(stores[1], r));
    }
    const uint64_t far_gets = stats_of(stores[2]).gets;
    assert_int_equal(get(stack, 2), KVP_STORE_OK);
    assert_int_equal(stats_of(stores[2]).gets, far_gets);
    assert_int_equal(get(stack, DEPTH), KVP_STORE_ABSENT);
    const kvp_store_stats all = stats_of(stack);
    assert_true(all.gets == 6 && all.hits == 5 && all.absent == 1 && all.puts == 0);
    assert_int_equal(stats_of(stores[0]).stored, 3);
}

TEST(test_a_failing_store_costs_nothing)
{
    for (unsigned failing = 0; failing < 2; failing++) {
        kvp_store *stores[] = {open_liar(failing == 0 ? 1000 : 0, ALL, 0),
                               open_liar(failing == 1 ? 1000 : 0, ALL, 0)};
        const kvp_store *good = stores[1 - failing];
        scoped_store *stack = open_stack(stores, 2);
        for (unsigned c = 0; c < CHAINS; c++) {
            assert_int_equal(put(stack, c * DEPTH), KVP_STORE_OK);
            assert_int_equal(get(stack, c * DEPTH), KVP_STORE_OK);
        }
        uint64_t bits = 0;
        assert_int_equal(kvp_store_have(stack, &records[DEPTH].key, 1, &bits, 0), KVP_OK);
        assert_int_equal(input_result(stack), KVP_STORE_OK);
        assert_int_equal(bits, 1);
        assert_int_equal(get(stack, 1), KVP_STORE_AWAY); /* nobody knows */
        assert_int_equal(kvp_store_sync(stack, 0), KVP_OK);
        assert_int_equal(input_result(stack), KVP_STORE_AWAY);
        const kvp_store_stats all = stats_of(stack);
        assert_true(all.hits == CHAINS && all.stored == CHAINS && all.failed > 0 && all.away > 0);
        assert_fields(all, failed, stats_of(stores[failing]).failed, away_ns, 0);
        assert_int_equal(stats_of(good).hits, CHAINS);
    }
}

/* The farthest store has all roots, one before it all but the first. */
static kvp_store *open_with_budget(kvp_store **stores, uint32_t n, uint64_t a_second,
                                   uint64_t a_day)
{
    kvp_store *stack = NULL;
    kvp_store_stack_config config;
    kvp_store_stack_config_init(&config);
    for (unsigned i = 0; i < n; i++)
        stores[i] = open_liar(0, ALL, 0);
    for (unsigned i = 1; i < n; i++)
        for (unsigned c = i + 1 == n ? 0 : 1; c < CHAINS; c++)
            assert_int_equal(put(stores[i], c * DEPTH), KVP_STORE_OK);
    config.stores = stores;
    config.n_stores = n;
    config.nearer_bytes_s = a_second;
    config.nearer_bytes_day = a_day;
    now = 86400 * SECOND;
    assert_int_equal(kvp_store_stack_open(&config, &stack, NULL, 0), KVP_OK);
    return stack;
}

TEST(test_what_is_written_nearer_has_a_budget)
{
    /* Seconds after midnight, whose root is asked for, and whether it is near then. */
    static const struct {
        unsigned n_stores, a_second, a_day; /* bytes */
        struct {
            unsigned time, chain, near;
        } gets[8];
    } budgets[] = {
        {2, 0, 0, {{1, 0, 1}, {1, 1, 1}, {1, 2, 1}, {1, 3, 1}}},
        {2,
         KV_BYTES,
         3 * KV_BYTES,
         {{0, 0, 0}, {1, 0, 1}, {1, 1, 0}, {2, 1, 1}, {10, 2, 1}, {20, 3, 0}, {86400, 3, 1}}},
        /* A second is saved up, and no time goes back. */
        {2, 2 * KV_BYTES, 0, {{10, 0, 1}, {10, 1, 1}, {10, 2, 0}, {9, 2, 0}, {11, 2, 1}}},
        {2, KV_BYTES / 2, 0, {{1, 0, 0}, {2, 0, 1}, {3, 1, 0}, {9, 1, 1}, {9, 2, 0}}},
        /* A near hit leaves what was saved up for a record of more than a second. */
        {2, KV_BYTES / 2, 0, {{2, 0, 1}, {3, 0, 1}, {4, 0, 1}, {4, 1, 1}}},
        /* Two stores lack the first root. */
        {3, 0, 2 * KV_BYTES, {{1, 0, 1}, {1, 1, 0}}},
        {3, 0, 2 * KV_BYTES + 100, {{1, 1, 1}, {1, 0, 0}, {1, 2, 1}, {1, 3, 0}, {86400, 0, 1}}},
        {3,
         KV_BYTES,
         2 * KV_BYTES,
         {{1, 1, 1}, {10, 0, 0}, {20, 2, 1}, {86400, 3, 1}, {86400, 4, 1}}},
    };
    for (unsigned i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        kvp_store *stores[STORES];
        scoped_store *stack =
            open_with_budget(stores, budgets[i].n_stores, budgets[i].a_second, budgets[i].a_day);
        for (unsigned k = 0; k == 0 || budgets[i].gets[k].time > 0; k++) {
            now = (86400 + budgets[i].gets[k].time) * SECOND;
            const unsigned r = budgets[i].gets[k].chain * DEPTH;
            assert_int_equal(get(stack, r), KVP_STORE_OK);
            assert_int_equal(has(stores[0], r), budgets[i].gets[k].near);
        }
    }
}

/* A farther store is asked for what is lacking, whoever asks at the same time. */
TEST(test_have_is_the_union)
{
    kvp_store *stores[] = {open_liar(0, ALL, 0), open_liar(0, ALL, 0), open_liar(0, ALL, 0)};
    for (unsigned r = 0; r < 4; r++)
        for (unsigned i = r == 3 ? 1 : 0; i < 2; i++)
            assert_int_equal(put(stores[i], r), KVP_STORE_OK);
    assert_int_equal(put(stores[2], DEPTH), KVP_STORE_OK);
    scoped_store *stack = open_stack(stores, 3);
    static kvp_digest keys[KVP_STORE_KEYS_MAX];
    static uint64_t bits[OPS][KVP_STORE_KEYS_MAX / 64];
    for (unsigned i = 0; i < KVP_STORE_KEYS_MAX; i++)
        keys[i] = records[i % RECORDS].key;
    memset(bits, 0xFF, sizeof bits);
    for (unsigned i = 0; i < OPS; i++)
        assert_int_equal(
            kvp_store_have(stack, keys, i % 2 ? RECORDS : KVP_STORE_KEYS_MAX, bits[i], i), KVP_OK);
    for (unsigned i = 0; i < OPS; i++)
        assert_int_equal(input_result(stack), KVP_STORE_OK);
    for (unsigned i = 0; i < OPS; i++)
        for (unsigned k = 0; k < (i % 2 ? RECORDS : KVP_STORE_KEYS_MAX); k++)
            assert_int_equal(bits[i][k / 64] >> k % 64 & 1,
                             k % RECORDS < 4 || k % RECORDS == DEPTH);
}

TEST(test_wrong_stacks_are_refused)
{
    kvp_store *stores[] = {open_liar(0, ALL, 0), open_liar(0, ALL, 0)};
    kvp_store *stack = NULL;
    scoped_store *inner = open_stack(stores, 1);
    scoped_store *threaded = open_liar(0, ALL, 1);
    group_tokens = BLOCKS * TOKENS;
    kvp_store *larger = open_liar(0, ALL, 0);
    group_tokens = 0;
    kvp_store_stack_config config;
    kvp_store *const wrong[][2] = {{stores[1], NULL},
                                   {stores[1], stores[1]},
                                   {stores[1], inner},
                                   {stores[1], threaded},
                                   {stores[1], larger}};
    static const char *const whys[] = {"stores[1] is NULL", "stores[1] is there twice",
                                       "stores[1] is a stack", "stores[1] has another",
                                       "stores[1] has another"};
    kvp_store_stack_config_init(&config);
    char why[200];
    for (unsigned i = 0; i < 5; i++) {
        config.stores = wrong[i];
        config.n_stores = 2;
        assert_int_equal(kvp_store_stack_open(&config, &stack, why, sizeof why), KVP_E_ARG);
        assert_int_equal(strncmp(why, whys[i], strlen(whys[i])), 0);
    }
    config.n_stores = 0;
    assert_int_equal(kvp_store_stack_open(&config, &stack, why, sizeof why), KVP_E_ARG);
    config.n_stores = KVP_STORE_STACK_MAX + 1;
    assert_int_equal(kvp_store_stack_open(&config, &stack, why, sizeof why), KVP_E_ARG);
    config.n_stores = 1;
    assert_int_equal(kvp_store_sync(stores[1], 0), KVP_OK);
    assert_int_equal(kvp_store_stack_open(&config, &stack, why, sizeof why), KVP_E_ARG);
    assert_int_equal(input_result(stores[1]), KVP_STORE_OK);
    assert_int_equal(kvp_store_stack_open(&config, NULL, why, sizeof why), KVP_E_ARG);
    assert_int_equal(kvp_store_stack_open(NULL, &stack, why, sizeof why), KVP_E_ARG);
    config.struct_size = 1;
    assert_int_equal(kvp_store_stack_open(&config, &stack, why, sizeof why), KVP_E_ARG);
    assert_null(stack);
    assert_int_equal(put(stores[1], 0), KVP_STORE_OK); /* still the caller's */
    kvp_store_close(stores[1]);
    kvp_store_close(larger);
}

/* Nor does it keep a look, and what another store has is not put there. */
TEST(test_a_store_that_fails_is_not_believed)
{
    for (unsigned at = 0; at < 2; at++) {
        kvp_store *stores[2];
        stores[at] = open_over(&server_backend, "server:", 0);
        stores[1 - at] = open_liar(0, ALL, 0);
        assert_int_equal(put(stores[1 - at], 0), KVP_STORE_OK);
        scoped_store *stack = open_stack(stores, 2);
        const kvp_digest keys[] = {records[0].key, records[1].key};
        is_lying = 1;
        for (unsigned i = 0; i < 2 * STORES; i++) {
            uint64_t bits = 0;
            assert_int_equal(kvp_store_have(stack, keys, 2, &bits, 0), KVP_OK);
            assert_int_equal(input_result(stack), KVP_STORE_OK);
            assert_int_equal(bits, 1);
        }
        assert_int_equal(get(stack, 0), KVP_STORE_OK);
        assert_false(has(stores[at], 0));
        is_lying = 0;
    }
}

/* A stack has as many places as the store that has fewest, and closes each store. */
TEST(test_no_store_of_a_stack_is_full)
{
    kvp_store *stores[2];
    for (unsigned i = 0; i < 2; i++) {
        most_ops = i == 0 ? OPS : 2;
        stores[i] = open_over(&server_backend, "server:", 0);
    }
    most_ops = OPS;
    kvp_store *stack = open_stack(stores, 2);
    for (unsigned r = 0; r < 3; r++)
        assert_int_equal(kvp_store_put(stack, &records[r].identity, records[r].blocks, r),
                         r < 2 ? KVP_OK : KVP_E_AGAIN);
    for (unsigned r = 0; r < 2; r++)
        assert_int_equal(input_result(stack), KVP_STORE_OK);
    assert_int_equal(n_servers, 2);
    kvp_store_close(stack);
    assert_int_equal(n_servers, 0);
}

TEST(test_threads_work_as_one)
{
    kvp_store *stores[] = {open_liar(0, ALL, 1), open_liar(0, ALL, 1)};
    for (unsigned r = 0; r < DEPTH; r++)
        assert_int_equal(put(stores[1], r), KVP_STORE_OK);
    scoped_store *stack = open_stack(stores, 2);
    assert_true(kvp_store_fd(stack) >= 0);
    assert_int_equal(kvp_store_work(stack, NULL), KVP_E_STATE);
    for (unsigned r = 0; r < DEPTH; r++)
        assert_int_equal(get(stack, r), KVP_STORE_OK);
    assert_int_equal(stats_of(stores[0]).records, DEPTH);
    for (unsigned r = 0; r < RECORDS; r++)
        assert_int_equal(put(stack, r), r < DEPTH ? KVP_STORE_KNOWN : KVP_STORE_OK);
    for (unsigned r = 0; r < RECORDS; r++)
        assert_int_equal(get(stack, r), KVP_STORE_OK);
    assert_int_equal(stats_of(stores[0]).hits, RECORDS);
    assert_int_equal(stats_of(stores[1]).hits, DEPTH);
    assert_int_equal(kvp_store_sync(stack, 0), KVP_OK);
    assert_int_equal(input_result(stack), KVP_STORE_OK);
    assert_int_equal(kvp_store_drop(stack, &records[0].key, 1, 0), KVP_OK);
}

/* --------------------------------------------------------------------------------- the requests */

struct request {
    int open;
    uint32_t kind;
    uint32_t record;
    uint32_t result;
    uint8_t kv[BLOCKS][BLOCK_BYTES];
    void *blocks[BLOCKS];
    uint64_t bits;
};

static struct request requests[OPS];
static uint64_t n_results[KVP_STORE_CLOSED + 1];
static uint64_t sums[11]; /* of check_sums, in all runs */
static unsigned n_open;

static void submit(kvp_store *stack, uint32_t kind, uint32_t r)
{
    uint32_t at = 0;
    while (requests[at].open)
        at++;
    struct request *request = &requests[at];
    kvp_status status = KVP_E_ARG;
    *request = (struct request){.open = 1, .kind = kind, .record = r};
    for (unsigned i = 0; i < BLOCKS; i++)
        request->blocks[i] = request->kv[i];
    const kvp_store_match match = {
        .written_before = UINT64_MAX, .space = r / DEPTH, .one_space = 1};
    switch (kind) {
    case KVP_STORE_PUT:
        status = kvp_store_put(stack, &records[r].identity, records[r].blocks, at);
        break;
    case KVP_STORE_GET:
        status = kvp_store_get(stack, &records[r].identity, request->blocks, at);
        break;
    case KVP_STORE_HAVE:
        status = kvp_store_have(stack, &records[r].key, 1, &request->bits, at);
        break;
    case KVP_STORE_DROP: status = kvp_store_drop(stack, &records[r].key, 1, at); break;
    case KVP_STORE_EVICT: status = kvp_store_evict(stack, &match, at); break;
    default: status = kvp_store_sync(stack, at); break;
    }
    assert_int_equal(status, KVP_OK);
    n_open++;
}

static void take_ended(kvp_store *stack)
{
    kvp_store_done done[OPS];
    uint32_t n;
    assert_int_equal(kvp_store_poll(stack, done, 1 + draw(OPS), &n), KVP_OK);
    for (uint32_t i = 0; i < n; i++) {
        struct request *request = &requests[done[i].tag];
        assert_true(request->open);
        assert_int_equal(done[i].op, request->kind);
        assert_true(done[i].result < KVP_STORE_CLOSED);
        request->open = 0;
        request->result = done[i].result;
        n_open--;
        n_results[done[i].result]++;
        if (request->kind == KVP_STORE_GET && done[i].result == KVP_STORE_OK)
            assert_memory_equal(request->kv, records[request->record].kv, KV_BYTES);
    }
}

static void end_all(kvp_store *stack)
{
    while (n_open > 0) {
        assert_int_equal(kvp_store_work(stack, NULL), KVP_OK);
        take_ended(stack);
    }
    int idle = 0;
    assert_int_equal(kvp_store_work(stack, &idle), KVP_OK);
    assert_int_equal(idle, 1);
}

/* What a get must do to the stores when none of them fails or evicts. */
static void model_get(int there[STORES][RECORDS], unsigned r)
{
    unsigned at = 0;
    while (at < STORES && !there[at][r])
        at++;
    for (unsigned i = 0; i < at && at < STORES; i++)
        there[i][r] = r % DEPTH == 0 || there[i][r - 1];
}

static void fill(kvp_store *const *stores, int there[STORES][RECORDS])
{
    memset(there, 0, sizeof(int[STORES][RECORDS]));
    for (unsigned i = 0; i < STORES; i++)
        for (unsigned c = 0; c < CHAINS; c++) {
            const unsigned n = draw(DEPTH + 1);
            for (unsigned r = c * DEPTH; r < c * DEPTH + n; r++) {
                assert_int_equal(put(stores[i], r), KVP_STORE_OK);
                there[i][r] = 1;
            }
        }
}

static void get_some(kvp_store *stack, int there[STORES][RECORDS])
{
    int found[RECORDS];
    for (unsigned r = 0; r < RECORDS; r++)
        found[r] = there[0][r] || there[1][r] || there[2][r];
    /* From the root down, as a prompt's records are read. */
    for (unsigned r = draw(RECORDS); r < RECORDS && n_open < OPS - 1; r++)
        if (draw(4) > 0) {
            submit(stack, KVP_STORE_GET, r);
            model_get(there, r);
        }
    submit(stack, KVP_STORE_HAVE, draw(RECORDS));
    memset(requests + n_open, 0, (OPS - n_open) * sizeof *requests);
    const unsigned n = n_open;
    end_all(stack);
    for (unsigned i = 0; i < n; i++) {
        const struct request *request = &requests[i];
        const int right =
            request->kind == KVP_STORE_HAVE ? (int)request->bits : request->result == KVP_STORE_OK;
        assert_int_equal(right, found[request->record]);
    }
}

TEST(test_a_model_knows_who_has_what)
{
    static int there[STORES][RECORDS];
    for (unsigned round = 0; round < n_operations / 300; round++) {
        kvp_store *stores[STORES];
        for (unsigned i = 0; i < STORES; i++)
            stores[i] = open_liar(0, ALL, 0);
        fill(stores, there);
        scoped_store *stack = open_stack(stores, STORES);
        for (unsigned i = 0; i < 10; i++) {
            get_some(stack, there);
            for (unsigned k = 0; k < STORES; k++)
                for (unsigned r = 0; r < RECORDS; r++)
                    assert_int_equal(has(stores[k], r), there[k][r]);
        }
    }
}

/* A chain that only the farthest store has: gets bring it nearer. */
static void lose_nearer(kvp_store *stack, const kvp_store *const *stores, uint32_t chain)
{
    for (unsigned r = chain; r < chain + DEPTH; r++) {
        submit(stack, KVP_STORE_PUT, r);
        end_all(stack);
    }
    stores[0]->backend->drop(stores[0]->self, &records[chain].key, 1);
    memset(((struct server *)stores[1]->self)->there + chain, 0, DEPTH);
}

/* What was dropped stays dropped, whatever was on its way: nothing is put meanwhile. */
static void drop_some(kvp_store *stack, const kvp_store *const *stores)
{
    const uint32_t r = draw(RECORDS);
    const uint32_t kind = draw(2) ? KVP_STORE_DROP : KVP_STORE_EVICT;
    const uint32_t chain = r / DEPTH * DEPTH;
    end_all(stack);
    if (stores[1]->backend == &server_backend)
        lose_nearer(stack, stores, chain);
    const unsigned at = 1 + draw(OPS - 3);
    for (unsigned i = 0; i < OPS - 1; i++) {
        submit(stack, i == at ? kind : KVP_STORE_GET,
               i == at || draw(4) == 0 ? r : chain + draw(DEPTH));
        for (unsigned n = draw(3); n > 0; n--)
            assert_int_equal(kvp_store_work(stack, NULL), KVP_OK);
    }
    end_all(stack);
    if (requests[at].result != KVP_STORE_OK)
        return;
    for (unsigned i = 0; i < STORES; i++)
        assert_false(has(stores[i], r));
}

/* What a stack adds up. */
static void check_sums(const kvp_store_stats *all, kvp_store *const *stores)
{
    static const size_t fields[] = {
        offsetof(kvp_store_stats, records), offsetof(kvp_store_stats, bytes),
        offsetof(kvp_store_stats, size),    offsetof(kvp_store_stats, retired),
        offsetof(kvp_store_stats, evicted), offsetof(kvp_store_stats, dropped),
        offsetof(kvp_store_stats, expired), offsetof(kvp_store_stats, staged),
        offsetof(kvp_store_stats, reread),  offsetof(kvp_store_stats, failed),
        offsetof(kvp_store_stats, away)};
    for (unsigned f = 0; f < sizeof fields / sizeof *fields; f++) {
        uint64_t sum = 0, is;
        for (unsigned i = 0; i < STORES; i++) {
            const kvp_store_stats own = stats_of(stores[i]);
            memcpy(&is, (const char *)&own + fields[f], sizeof is);
            sum += is;
        }
        memcpy(&is, (const char *)all + fields[f], sizeof is);
        assert_int_equal(is, sum);
        sums[f] += sum;
    }
    for (unsigned k = 0; k < KVP_BAD_REASONS; k++)
        assert_int_equal(all->bad[k], stats_of(stores[0]).bad[k] + stats_of(stores[1]).bad[k] +
                                          stats_of(stores[2]).bad[k]);
}

static void run(unsigned rate, int with_server)
{
    kvp_store *stores[STORES];
    memset(requests, 0, sizeof requests);
    memset(n_results, 0, sizeof n_results);
    for (unsigned i = 0; i < STORES; i++)
        stores[i] = open_liar(rate, i == STORES - 1 ? ALL : FEW, 0);
    if (with_server) {
        kvp_store_close(stores[1]);
        stores[1] = open_over(&server_backend, "server:", 0);
    }
    scoped_store *stack = open_stack(stores, STORES);
    static const uint32_t rare[] = {KVP_STORE_HAVE, KVP_STORE_DROP, KVP_STORE_SYNC,
                                    KVP_STORE_EVICT};
    for (uint64_t i = 0; i < n_operations; i++) {
        now += draw(500000000);
        const uint32_t what = draw(100);
        if (what < 50 && n_open < OPS)
            submit(stack,
                   what < 22   ? KVP_STORE_PUT
                   : what < 48 ? KVP_STORE_GET
                               : rare[draw(4)],
                   draw(RECORDS));
        else if (what < 80)
            assert_int_equal(kvp_store_work(stack, NULL), KVP_OK);
        else
            take_ended(stack);
        if (i % 128 == 0)
            drop_some(stack, (const kvp_store *const *)stores);
    }
    end_all(stack);
    const kvp_store_stats all = stats_of(stack);
    assert_int_equal(all.queued, 0);
    assert_true(all.bytes <= all.size);
    check_sums(&all, stores);
    uint64_t n_carried = 0;
    for (unsigned i = 0; i < STORES; i++)
        n_carried += stats_of(stores[i]).puts - all.puts;
    assert_true(n_carried > 0);
    assert_int_equal(all.away_ns > 0, stats_of(stores[0]).away_ns > 0 &&
                                          stats_of(stores[1]).away_ns > 0 &&
                                          stats_of(stores[2]).away_ns > 0);
}

TEST(test_nobody_reads_foreign_kv)
{
    static const unsigned rates[] = {0, 10, 100, 400};
    for (unsigned round = 0; round < 8; round++) {
        const int with_server = round > 3;
        run(rates[round % 4], with_server);
        static const uint32_t expected[] = {KVP_STORE_OK, KVP_STORE_KNOWN, KVP_STORE_ABSENT,
                                            KVP_STORE_NO_PARENT};
        for (unsigned i = 0; i < (with_server ? 3 : 4); i++)
            assert_true(n_results[expected[i]] > 0);
        assert_true(n_results[KVP_STORE_BAD] == 0 || rates[round % 4] > 0);
    }
    for (unsigned f = 0; f < sizeof sums / sizeof *sums; f++)
        assert_true(sums[f] > 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        n_operations = strtoull(argv[2], NULL, 10);
    random_state = seed * UINT64_C(0x9E3779B97F4A7C15);
    make_records();
    return run_all_tests(NULL, NULL);
}
