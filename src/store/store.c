/* store: the public calls. What they accept goes to the worker; what has ended comes back. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/quiet.h"
#include "base/sized.h"
#include "store/front.h"
#include "store/identity/secret.h"
#include "store/load/store_load.h"

enum { RECORD_BYTES = 512 * 1024, KEY_BYTES_MAX = 1 << 20 };

/* -------------------------------------------------------------------------------- configuration */

static uint64_t system_clock(void *context)
{
    (void)context;
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

void kvp_store_config_init(kvp_store_config *config)
{
    if (!config)
        return;
    *config = (kvp_store_config){
        .struct_size = sizeof *config,
        .block_tokens = 16,
        .n_groups = 1,
        .key_bytes = 1024,
        .max_ops = 64,
        .threads = 1,
    };
}

static int is_zero(const kvp_digest *digest)
{
    static const kvp_digest zero;
    return memcmp(digest->bytes, zero.bytes, sizeof zero.bytes) == 0;
}

static int is_record_blocks(uint32_t n)
{
    return n <= KVP_RECORD_BLOCKS_MAX && (n & (n - 1)) == 0;
}

/* Blocks of a group in a record of so many tokens; 0: no whole number, or too many. */
static uint32_t group_blocks(const kvp_store_config *config, uint32_t group, uint64_t n_tokens)
{
    const uint32_t S = config->group_tokens[group];
    const uint32_t most = config->group_blocks[group];
    uint64_t n = n_tokens / (S > 0 ? S : config->block_tokens);
    n = most > 0 && most < n ? most : n;
    return (S == 0 || n_tokens % S == 0) && S <= KVP_BLOCK_TOKENS_MAX && n <= KVP_RECORD_BLOCKS_MAX
               ? (uint32_t)n
               : 0;
}

static int fits_groups(const kvp_store_config *config, uint32_t record_blocks)
{
    for (uint32_t g = 0; g < config->n_groups; g++)
        if (group_blocks(config, g, (uint64_t)record_blocks * config->block_tokens) == 0)
            return 0;
    return 1;
}

/* As configured, or the least number with RECORD_BYTES of group 0, else the most; 0: none fits. */
static uint32_t choose_record_blocks(const kvp_store_config *config)
{
    uint32_t fits = 0;
    if (config->record_blocks > 0)
        return fits_groups(config, config->record_blocks) ? config->record_blocks : 0;
    for (uint32_t n = 1; n <= KVP_RECORD_BLOCKS_MAX; n *= 2) {
        if (!fits_groups(config, n))
            continue;
        fits = n;
        const uint64_t blocks = group_blocks(config, 0, (uint64_t)n * config->block_tokens);
        if (blocks * config->block_bytes[0] >= RECORD_BYTES)
            break;
    }
    return fits;
}

static const char *find_wrong(const kvp_store_config *config)
{
    if (config->struct_size != sizeof *config)
        return "struct_size is not that of this version: use kvp_store_config_init";
    if (is_zero(&config->fingerprint))
        return "fingerprint is zero: make it with kvp_fingerprint_make";
    if (config->block_tokens == 0 || config->block_tokens > KVP_BLOCK_TOKENS_MAX)
        return "block_tokens is not 1..KVP_BLOCK_TOKENS_MAX";
    if (config->n_groups == 0 || config->n_groups > KVP_GROUPS_MAX)
        return "n_groups is not 1..KVP_GROUPS_MAX";
    for (uint32_t i = 0; i < config->n_groups; i++)
        if (config->block_bytes[i] == 0 || config->block_bytes[i] > INT32_MAX)
            return "block_bytes of a group is not 1..2^31-1";
    if (!is_record_blocks(config->record_blocks))
        return "record_blocks is not 0, 1, 2, 4 ... KVP_RECORD_BLOCKS_MAX";
    if (choose_record_blocks(config) == 0)
        return "group_tokens: a record has no whole number of blocks, 1..KVP_RECORD_BLOCKS_MAX, of "
               "each group";
    if (config->key_bytes > KEY_BYTES_MAX)
        return "key_bytes is not 0..1048576";
    if (config->max_ops == 0 || config->max_ops > KVP_STORE_QUEUE_MAX)
        return "max_ops is not 1..KVP_STORE_QUEUE_MAX";
    if (config->threads > 1)
        return "threads is not 0 or 1";
    if (config->secret_bytes > 0 && (!config->secret || config->secret_bytes < KVPI_SECRET_MIN ||
                                     config->secret_bytes > KVPI_SECRET_MAX))
        return "secret is NULL, or secret_bytes is not 0 or 16..1024";
    return NULL;
}

/* ---------------------------------------------------------------------------------- open, close */

static uint32_t *make_ring(struct kvpi_ring *ring, uint32_t n)
{
    uint32_t capacity = 1;
    while (capacity < n)
        capacity *= 2;
    ring->mask = capacity - 1;
    ring->items = calloc(capacity, sizeof *ring->items);
    return ring->items;
}

static void free_store(kvp_store *store)
{
    if (store->self)
        store->backend->close(store->self);
    kvpi_sha_close(&store->digester.sha);
    if (store->has_mac)
        kvpi_mac_close(&store->mac);
    if (store->wake.write_fd > 0)
        kvpi_wake_close(&store->wake);
    if (store->signal.write_fd > 0)
        kvpi_wake_close(&store->signal);
    free(store->ops);
    free(store->headers);
    free(store->free_ops);
    free(store->accepted.items);
    free(store->ended.items);
    free(store);
}

static size_t round_to_page(size_t n_bytes)
{
    return (n_bytes + KVPI_RECORD_PAGE - 1) / KVPI_RECORD_PAGE * KVPI_RECORD_PAGE;
}

static kvp_status make_memory(kvp_store *store)
{
    const uint32_t n = store->config.max_ops;
    store->ops = calloc(n, sizeof *store->ops);
    const size_t headers_bytes = store->header_bytes > 0 ? (size_t)n * store->header_bytes : 1;
    store->headers = aligned_alloc(KVPI_RECORD_PAGE, round_to_page(headers_bytes));
    store->free_ops = calloc(n, sizeof *store->free_ops);
    if (!store->ops || !store->headers || !store->free_ops || !make_ring(&store->accepted, n) ||
        !make_ring(&store->ended, n))
        return KVP_E_NO_MEMORY;
    memset(store->headers, 0, headers_bytes);
    for (store->n_free = 0; store->n_free < n; store->n_free++)
        store->free_ops[store->n_free] = n - 1 - store->n_free;
    return KVP_OK;
}

static kvp_status make_crypto(kvp_store *store, const kvp_store_config *config)
{
    kvp_status status = kvpi_sha_open(&store->digester.sha);
    if (status == KVP_OK && config->secret_bytes > 0) {
        status = kvpi_mac_open(&store->mac, config->secret, config->secret_bytes);
        store->has_mac = status == KVP_OK;
    }
    return status;
}

static kvp_status open_backend(kvp_store *store, struct kvpi_url *url, char *out_why,
                               size_t why_bytes)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < store->config.n_groups; i++) {
        const uint64_t bytes = store->config.block_bytes[i] * kvp_store_group_blocks(store, i);
        largest = bytes > largest ? bytes : largest;
    }
    const struct kvpi_backend_config config = {
        .store = &store->config,
        .url = url,
        .header_bytes = store->header_bytes,
        .payload_bytes = largest,
        .record_blocks = store->record_blocks,
        .clock = store->config.now == system_clock ? NULL : store->config.now,
    };
    kvp_status status = store->backend->open(&config, &store->self, out_why, why_bytes);
    if (status == KVP_OK)
        status = kvpi_url_all_used(url, out_why, why_bytes);
    return status;
}

/* All but the back end and the thread. */
static kvp_status make_front(kvp_store *store, const kvp_store_config *config, char *out_why,
                             size_t why_bytes)
{
    store->config = *config;
    store->config.url = NULL;
    store->config.secret = NULL;
    if (!config->now)
        store->config.now = system_clock;
    store->record_blocks = choose_record_blocks(config);
    if (!store->backend->has_stores)
        store->header_bytes = kvpi_record_header_bytes(
            (uint64_t)store->record_blocks * config->block_tokens, config->key_bytes);
    kvp_status status = make_memory(store);
    if (status == KVP_OK)
        status = make_crypto(store, config);
    if (status == KVP_OK &&
        (kvpi_wake_open(&store->wake) != 0 || kvpi_wake_open(&store->signal) != 0))
        status = KVP_E_IO;
    if (status != KVP_OK)
        return kvpi_why(status, out_why, why_bytes, "%s", kvp_status_text(status));
    return KVP_OK;
}

static kvp_status start(kvp_store *store, char *out_why, size_t why_bytes)
{
    kvpi_worker_note(store);
    if (store->config.threads > 0 && kvpi_quiet_start(&store->thread, kvpi_worker_run, store) != 0)
        return kvpi_why(KVP_E_NO_MEMORY, out_why, why_bytes, "the system gave no thread");
    return KVP_OK;
}

static kvp_status make_store(kvp_store *store, const kvp_store_config *config, struct kvpi_url *url,
                             char *out_why, size_t why_bytes)
{
    kvp_status status = make_front(store, config, out_why, why_bytes);
    if (status == KVP_OK)
        status = open_backend(store, url, out_why, why_bytes);
    return status == KVP_OK ? start(store, out_why, why_bytes) : status;
}

static const struct kvpi_backend *find_backend(const char *scheme)
{
    static const struct kvpi_backend *const backends[] = {&kvpi_file_backend, &kvpi_memory_backend};
    for (unsigned i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strcmp(backends[i]->scheme, scheme) == 0)
            return backends[i];
    return NULL;
}

/* The URL's secret, in `room`, is the configuration's. */
static kvp_status take_secret(struct kvpi_url *url, kvp_store_config *config,
                              struct kvpi_secret *room, char *out_why, size_t why_bytes)
{
    const kvp_status status = kvpi_secret_read(url, room, out_why, why_bytes);
    if (status != KVP_OK || room->n_bytes == 0)
        return status;
    if (config->secret_bytes > 0)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                        "the url and the configuration both have a secret");
    config->secret = room->bytes;
    config->secret_bytes = room->n_bytes;
    return KVP_OK;
}

kvp_status kvpi_store_open(const kvp_store_config *config, const struct kvpi_backend *backend,
                           kvp_store **out_store, char *out_why, size_t why_bytes)
{
    kvpi_why(KVP_OK, out_why, why_bytes, "%s", "");
    const char *wrong = config && out_store ? find_wrong(config) : "a pointer is NULL";
    if (wrong)
        return kvpi_why(KVP_E_ARG, out_why, why_bytes, "%s", wrong);
    struct kvpi_url url;
    kvp_status status = kvpi_url_read(config->url, &url, out_why, why_bytes);
    if (status != KVP_OK)
        return status;
    if (!backend)
        backend = find_backend(url.scheme);
    if (!backend)
        backend = kvpi_load_backend(url.scheme, out_why, why_bytes);
    if (!backend)
        return KVP_E_ARG;
    struct kvpi_secret secret;
    kvp_store_config own = *config;
    status = take_secret(&url, &own, &secret, out_why, why_bytes);
    if (status != KVP_OK)
        return status;
    kvp_store *store = calloc(1, sizeof *store);
    if (!store)
        return kvpi_why(KVP_E_NO_MEMORY, out_why, why_bytes, "the system gave no memory");
    store->backend = backend;
    status = make_store(store, &own, &url, out_why, why_bytes);
    kvpi_secret_forget(&secret);
    if (status != KVP_OK) {
        free_store(store);
        return status;
    }
    *out_store = store;
    return KVP_OK;
}

kvp_status kvpi_store_over(const kvp_store_config *config, const struct kvpi_backend *backend,
                           void *self, kvp_store **out_store, char *out_why, size_t why_bytes)
{
    kvp_store *store = calloc(1, sizeof *store);
    if (!store)
        return kvpi_why(KVP_E_NO_MEMORY, out_why, why_bytes, "the system gave no memory");
    store->backend = backend;
    kvp_status status = make_front(store, config, out_why, why_bytes);
    if (status == KVP_OK) {
        store->self = self;
        status = start(store, out_why, why_bytes);
    }
    if (status != KVP_OK) {
        store->self = NULL; /* the caller closes it */
        free_store(store);
        return status;
    }
    *out_store = store;
    return KVP_OK;
}

kvp_status kvp_store_open(const kvp_store_config *config, kvp_store **out_store, char *out_why,
                          size_t why_bytes)
{
    return kvpi_store_open(config, NULL, out_store, out_why, why_bytes);
}

void kvp_store_close(kvp_store *store)
{
    if (!store)
        return;
    atomic_store(&store->closing, 1);
    if (store->config.threads > 0) {
        kvpi_wake_raise(&store->wake);
        pthread_join(store->thread, NULL);
    } else {
        while (kvpi_worker_round(store) || store->n_begun > 0)
            if (store->n_begun > 0)
                store->backend->wait(store->self, store->wake.read_fd, 1);
    }
    free_store(store);
}

uint32_t kvp_store_record_blocks(const kvp_store *store)
{
    return store ? store->record_blocks : 0;
}

uint32_t kvp_store_group_blocks(const kvp_store *store, uint32_t group)
{
    return store && group < store->config.n_groups
               ? group_blocks(&store->config, group,
                              (uint64_t)store->record_blocks * store->config.block_tokens)
               : 0;
}

kvp_status kvp_store_describe(const kvp_store *store, char *out_text, size_t text_bytes)
{
    if (!store || !out_text || text_bytes == 0)
        return KVP_E_ARG;
    store->backend->describe(store->self, out_text, text_bytes);
    return KVP_OK;
}

/* ----------------------------------------------------------------------------------- operations */

/* The next free operation, or NULL. */
static struct kvpi_store_op *take_op(kvp_store *store, uint32_t kind, uint64_t tag)
{
    if (store->n_free == 0)
        return NULL;
    const uint32_t number = store->free_ops[--store->n_free];
    struct kvpi_store_op *op = &store->ops[number];
    op->kind = kind;
    op->tag = tag;
    op->accepted_ns = store->config.now(store->config.now_context);
    op->fault = KVPI_RECORD_GOOD;
    op->io_failed = 0;
    op->outcome = KVP_STORE_OK;
    op->spans[0] = (struct kvpi_span){store->headers + (size_t)number * store->header_bytes,
                                      store->header_bytes};
    return op;
}

static void accept(kvp_store *store, const struct kvpi_store_op *op)
{
    atomic_fetch_add_explicit(&store->n_accepted, 1, memory_order_relaxed);
    kvpi_ring_put(&store->accepted, (uint32_t)(op - store->ops));
    /* Pairs with kvpi_worker_run. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load(&store->asleep))
        kvpi_wake_raise(&store->wake);
}

/* Addresses of the payload: a state is one piece, whatever number of blocks it stands behind. */
static uint32_t n_pieces_of(const kvp_store *store, const kvp_identity *identity)
{
    return identity->kind == KVP_IDENTITY_STATE ? 1
                                                : kvp_store_group_blocks(store, identity->group);
}

static kvp_status check_record(const kvp_store *store, const kvp_identity *identity,
                               void *const *blocks)
{
    if (!store || !identity || !blocks || !kvpi_identity_valid(identity) ||
        identity->group >= store->config.n_groups ||
        identity->block_tokens != store->config.block_tokens ||
        identity->n_blocks != store->record_blocks ||
        memcmp(identity->fingerprint.bytes, store->config.fingerprint.bytes,
               sizeof identity->fingerprint.bytes) != 0)
        return KVP_E_ARG;
    const uint32_t n_pieces = n_pieces_of(store, identity);
    for (uint32_t i = 0; i < n_pieces; i++)
        if (!blocks[i])
            return KVP_E_ARG;
    return kvpi_identity_key_bytes(identity) > store->config.key_bytes ? KVP_E_TOO_LONG : KVP_OK;
}

static kvp_status accept_record(kvp_store *store, uint32_t kind, const kvp_identity *identity,
                                void *const *blocks, uint64_t tag)
{
    kvp_status status = check_record(store, identity, blocks);
    if (status != KVP_OK)
        return status;
    struct kvpi_store_op *op = take_op(store, kind, tag);
    if (!op)
        return KVP_E_AGAIN;
    op->identity = identity;
    op->n_spans = 1 + n_pieces_of(store, identity);
    for (uint32_t i = 0; i + 1 < op->n_spans; i++)
        op->spans[1 + i] =
            (struct kvpi_span){blocks[i], (size_t)store->config.block_bytes[identity->group]};
    accept(store, op);
    return KVP_OK;
}

kvp_status kvp_store_put(kvp_store *store, const kvp_identity *identity, void *const *blocks,
                         uint64_t tag)
{
    return accept_record(store, KVP_STORE_PUT, identity, blocks, tag);
}

kvp_status kvp_store_get(kvp_store *store, const kvp_identity *identity, void *const *blocks,
                         uint64_t tag)
{
    return accept_record(store, KVP_STORE_GET, identity, blocks, tag);
}

static kvp_status accept_keys(kvp_store *store, uint32_t kind, const kvp_digest *keys,
                              uint32_t n_keys, uint64_t *bits, uint64_t tag)
{
    if (!store || !keys || n_keys == 0 || n_keys > KVP_STORE_KEYS_MAX)
        return KVP_E_ARG;
    struct kvpi_store_op *op = take_op(store, kind, tag);
    if (!op)
        return KVP_E_AGAIN;
    op->keys = keys;
    op->n_keys = n_keys;
    op->bits = bits;
    accept(store, op);
    return KVP_OK;
}

kvp_status kvp_store_have(kvp_store *store, const kvp_digest *keys, uint32_t n_keys, uint64_t *bits,
                          uint64_t tag)
{
    return bits ? accept_keys(store, KVP_STORE_HAVE, keys, n_keys, bits, tag) : KVP_E_ARG;
}

kvp_status kvp_store_drop(kvp_store *store, const kvp_digest *keys, uint32_t n_keys, uint64_t tag)
{
    return accept_keys(store, KVP_STORE_DROP, keys, n_keys, NULL, tag);
}

kvp_status kvp_store_evict(kvp_store *store, const kvp_store_match *match, uint64_t tag)
{
    if (!store || !match)
        return KVP_E_ARG;
    struct kvpi_store_op *op = take_op(store, KVP_STORE_EVICT, tag);
    if (!op)
        return KVP_E_AGAIN;
    op->match = *match;
    accept(store, op);
    return KVP_OK;
}

kvp_status kvp_store_sync(kvp_store *store, uint64_t tag)
{
    if (!store)
        return KVP_E_ARG;
    struct kvpi_store_op *op = take_op(store, KVP_STORE_SYNC, tag);
    if (!op)
        return KVP_E_AGAIN;
    accept(store, op);
    return KVP_OK;
}

kvp_status kvp_store_poll(kvp_store *store, kvp_store_done *out_done, uint32_t capacity,
                          uint32_t *out_n_done)
{
    if (!store || !out_n_done || (!out_done && capacity > 0))
        return KVP_E_ARG;
    uint32_t n = 0;
    uint32_t number;
    while (n < capacity && kvpi_ring_take(&store->ended, &number)) {
        const struct kvpi_store_op *op = &store->ops[number];
        out_done[n++] = (kvp_store_done){.tag = op->tag, .op = op->kind, .result = op->result};
        store->free_ops[store->n_free++] = number;
    }
    if (kvpi_ring_empty(&store->ended)) {
        kvpi_wake_clear(&store->signal);
        /* What ended between the look and the clearing raised it in vain. */
        if (!kvpi_ring_empty(&store->ended))
            kvpi_wake_raise(&store->signal);
    }
    *out_n_done = n;
    return KVP_OK;
}

int kvp_store_fd(const kvp_store *store)
{
    return store ? store->signal.read_fd : -1;
}

kvp_status kvp_store_wait(kvp_store *store, uint64_t timeout_ns)
{
    if (!store)
        return KVP_E_ARG;
    uint64_t ms = timeout_ns / 1000000 + (timeout_ns % 1000000 != 0);
    if (ms > INT32_MAX)
        ms = INT32_MAX;
    if (kvpi_ring_empty(&store->ended))
        kvpi_wake_wait(store->signal.read_fd, (int)ms);
    return kvpi_ring_empty(&store->ended) ? KVP_E_AGAIN : KVP_OK;
}

kvp_status kvp_store_work(kvp_store *store, int *out_idle)
{
    if (!store)
        return KVP_E_ARG;
    if (store->config.threads > 0)
        return KVP_E_STATE;
    kvpi_worker_round(store);
    if (out_idle)
        *out_idle = store->n_begun == 0 && kvpi_ring_empty(&store->accepted);
    return KVP_OK;
}

/* ----------------------------------------------------------------------------------- statistics */

const char *kvp_bad_name(uint32_t reason)
{
    return reason < KVP_BAD_REASONS
               ? kvpi_record_fault_name((enum kvpi_record_fault)(reason + KVPI_RECORD_DAMAGED))
               : "?";
}

static uint64_t get(const kvp_store *store, unsigned counter)
{
    return atomic_load_explicit(&store->counters[counter], memory_order_relaxed);
}

kvp_status kvp_store_stats_get(const kvp_store *store, kvp_store_stats *out_stats)
{
    if (!store || !out_stats)
        return KVP_E_ARG;
    const uint64_t ended = get(store, KVPI_COUNT_ENDED);
    const uint64_t until = get(store, KVPI_COUNT_AWAY_UNTIL);
    const uint64_t now = store->config.now(store->config.now_context);
    kvp_store_stats stats = {
        .records = get(store, KVPI_COUNT_RECORDS),
        .bytes = get(store, KVPI_COUNT_BYTES),
        .size = get(store, KVPI_COUNT_SIZE),
        .queued = atomic_load_explicit(&store->n_accepted, memory_order_relaxed) - ended,
        .away_ns = until > now ? until - now : 0,
        .puts = get(store, KVPI_COUNT_PUTS),
        .stored = get(store, KVPI_COUNT_STORED),
        .known = get(store, KVPI_COUNT_KNOWN),
        .refused = get(store, KVPI_COUNT_REFUSED),
        .gets = get(store, KVPI_COUNT_GETS),
        .hits = get(store, KVPI_COUNT_HITS),
        .absent = get(store, KVPI_COUNT_ABSENT),
        .raced = get(store, KVPI_COUNT_RACED),
        .reread = get(store, KVPI_COUNT_REREAD),
        .failed = get(store, KVPI_COUNT_FAILED),
        .away = get(store, KVPI_COUNT_AWAY),
        .evicted = get(store, KVPI_COUNT_EVICTED),
        .dropped = get(store, KVPI_COUNT_DROPPED),
        .staged = get(store, KVPI_COUNT_STAGED),
        .expired = get(store, KVPI_COUNT_EXPIRED),
        .retired = get(store, KVPI_COUNT_RETIRED),
        .read_bytes = get(store, KVPI_COUNT_READ_BYTES),
        .written_bytes = get(store, KVPI_COUNT_WRITTEN_BYTES),
        .get_sum_ns = get(store, KVPI_COUNT_GET_SUM_NS),
        .put_sum_ns = get(store, KVPI_COUNT_PUT_SUM_NS),
    };
    for (unsigned i = 0; i < KVP_BAD_REASONS; i++)
        stats.bad[i] = get(store, KVPI_COUNT_BAD + i);
    for (unsigned i = 0; i < KVP_STORE_LATENCIES; i++) {
        stats.get_ns[i] = get(store, KVPI_COUNT_GET_NS + i);
        stats.put_ns[i] = get(store, KVPI_COUNT_PUT_NS + i);
    }
    if (store->backend->add_stats)
        store->backend->add_stats(store->self, &stats);
    *out_stats = stats;
    return KVP_OK;
}
