/* random_disk: see random_disk.h. The linker puts these functions before the store's. */
#include "random_disk.h"

#include "fake/fake.h"

#include <kvpager/llama_disk.h>

#include <stdlib.h>
#include <string.h>

kvp_status __real_kvp_store_open(const kvp_store_config *, kvp_store **, char *, size_t);
kvp_status __wrap_kvp_store_open(const kvp_store_config *, kvp_store **, char *, size_t);
void __real_kvp_store_close(kvp_store *);
void __wrap_kvp_store_close(kvp_store *);
kvp_status __real_kvp_store_put(kvp_store *, const kvp_identity *, void *const *, uint64_t);
kvp_status __wrap_kvp_store_put(kvp_store *, const kvp_identity *, void *const *, uint64_t);
kvp_status __real_kvp_store_get(kvp_store *, const kvp_identity *, void *const *, uint64_t);
kvp_status __wrap_kvp_store_get(kvp_store *, const kvp_identity *, void *const *, uint64_t);
kvp_status __real_kvp_store_have(kvp_store *, const kvp_digest *, uint32_t, uint64_t *, uint64_t);
kvp_status __wrap_kvp_store_have(kvp_store *, const kvp_digest *, uint32_t, uint64_t *, uint64_t);
kvp_status __real_kvp_store_poll(kvp_store *, kvp_store_done *, uint32_t, uint32_t *);
kvp_status __wrap_kvp_store_poll(kvp_store *, kvp_store_done *, uint32_t, uint32_t *);
kvp_status __real_kvp_store_work(kvp_store *, int *);
kvp_status __wrap_kvp_store_work(kvp_store *, int *);

enum { OPERATIONS = 256, ALL = 1000 };

/* What an operation that is out writes to. */
typedef struct operation {
    uint64_t tag;
    uint8_t *bytes; /* of a get, or the bits of a have; NULL: free */
    size_t n;
} operation;

static kvp_store *kept;
static uint64_t random_state;
static uint32_t fault_rate, is_closing;
static size_t record_bytes;
static operation operations[OPERATIONS];

static uint32_t draw(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

static int fails(void)
{
    return !is_closing && draw(ALL) < fault_rate;
}

static void note(uint64_t tag, void *bytes, size_t n)
{
    uint32_t i = 0;
    while (i < OPERATIONS && operations[i].bytes != NULL)
        i++;
    if (i == OPERATIONS)
        fake_broken("too many operations of a store", OPERATIONS, 0);
    operations[i] = (operation){tag, bytes, n};
}

static operation take(uint64_t tag)
{
    const operation none = {0};
    for (uint32_t i = 0; i < OPERATIONS; i++)
        if (operations[i].bytes != NULL && operations[i].tag == tag) {
            const operation found = operations[i];
            operations[i] = none;
            return found;
        }
    return none;
}

kvp_status __wrap_kvp_store_open(const kvp_store_config *config, kvp_store **out_store,
                                 char *out_why, size_t why_bytes)
{
    record_bytes = (size_t)config->block_bytes[0];
    if (kept == NULL)
        return __real_kvp_store_open(config, out_store, out_why, why_bytes);
    *out_store = kept;
    kept = NULL;
    return KVP_OK;
}

/* What is on its way ends, as when a store is really closed. */
void __wrap_kvp_store_close(kvp_store *store)
{
    kvp_store_done done[16];
    uint32_t n = 1;
    int is_idle = 0;
    if (store == NULL)
        return;
    is_closing = 1;
    while (!is_idle || n > 0) {
        (void)__real_kvp_store_work(store, &is_idle);
        (void)__real_kvp_store_poll(store, done, 16, &n);
    }
    is_closing = 0;
    memset(operations, 0, sizeof operations);
    kept = store;
}

kvp_status __wrap_kvp_store_put(kvp_store *store, const kvp_identity *identity, void *const *blocks,
                                uint64_t tag)
{
    return fails() ? KVP_E_AGAIN : __real_kvp_store_put(store, identity, blocks, tag);
}

kvp_status __wrap_kvp_store_get(kvp_store *store, const kvp_identity *identity, void *const *blocks,
                                uint64_t tag)
{
    if (fails())
        return draw(2) ? KVP_E_AGAIN : KVP_E_ARG;
    const kvp_status status = __real_kvp_store_get(store, identity, blocks, tag);
    if (status == KVP_OK)
        note(tag, blocks[0], record_bytes);
    return status;
}

kvp_status __wrap_kvp_store_have(kvp_store *store, const kvp_digest *keys, uint32_t n_keys,
                                 uint64_t *bits, uint64_t tag)
{
    if (fails())
        return KVP_E_AGAIN;
    const kvp_status status = __real_kvp_store_have(store, keys, n_keys, bits, tag);
    if (status == KVP_OK)
        note(tag, bits, (n_keys + 63) / 64 * sizeof *bits);
    return status;
}

/* Late now and then. */
kvp_status __wrap_kvp_store_work(kvp_store *store, int *out_idle)
{
    if (!fails())
        return __real_kvp_store_work(store, out_idle);
    *out_idle = 1;
    return KVP_OK;
}

/* What failed leaves anything; what is there is said to be missing, and the other way round. */
static void damage(kvp_store_done *done, const operation *of)
{
    static const uint32_t results[] = {KVP_STORE_BAD, KVP_STORE_RACED, KVP_STORE_FAILED,
                                       KVP_STORE_AWAY};
    for (size_t i = 0; of->bytes != NULL && i < of->n; i++)
        of->bytes[i] = (uint8_t)draw(256);
    if (done->op != KVP_STORE_HAVE || draw(2))
        done->result = results[draw(4)];
}

kvp_status __wrap_kvp_store_poll(kvp_store *store, kvp_store_done *out_done, uint32_t capacity,
                                 uint32_t *out_n_done)
{
    const uint32_t n = fails() ? draw(2) : capacity;
    const kvp_status status = __real_kvp_store_poll(store, out_done, n, out_n_done);
    for (uint32_t i = 0; status == KVP_OK && i < *out_n_done; i++) {
        const operation of = take(out_done[i].tag);
        if (fails())
            damage(&out_done[i], &of);
    }
    return status;
}

/* ------------------------------------------------------------------------------ for the engines */

void random_disk_begin(uint64_t seed, uint32_t rate)
{
    __real_kvp_store_close(kept);
    kept = NULL;
    random_state = seed;
    fault_rate = rate;
}

void random_disk_open(kvp_llama *engine, uint64_t max_wait_ns)
{
    kvp_llama_disk_config config;
    kvp_why why;
    kvp_llama_disk_config_init(&config);
    config.url = draw(2) ? "memory:?size=200KiB" : "memory:?size=4MiB";
    config.model = "random";
    config.threads = 0;
    config.max_wait_ns = max_wait_ns;
    const kvp_status status = kvp_llama_disk_open(engine, &config, &why);
    if (status != KVP_OK)
        fake_broken(why.text, status, 0);
}

void random_disk_name(kvp_llama *engine, kvp_ns ns, const char *name)
{
    const kvp_status status = kvp_llama_disk_space(engine, ns, name, strlen(name), 0);
    if (status != KVP_OK && status != KVP_E_STATE) /* E_STATE: this one has no disk */
        fake_broken("a name on the disk", status, 0);
}

void random_disk_add(const kvp_llama *engine, random_disk_totals *totals)
{
    kvp_llama_disk_stats stats;
    kvp_llama_disk_stats_get(engine, &stats);
    const uint64_t n = stats.loaded + stats.nothing + stats.slow + stats.no_room + stats.failed +
                       stats.late + stats.aborted + stats.asking;
    if (n != stats.asked)
        fake_broken("requests that the disk was asked for", (int64_t)stats.asked, (int64_t)n);
    totals->engines += stats.record_tokens > 0;
    totals->written += stats.store.stored;
    totals->loaded += stats.loaded;
    totals->loaded_tokens += stats.loaded_tokens;
    totals->nothing += stats.nothing;
    totals->slow += stats.slow;
    totals->no_room += stats.no_room;
    totals->failed += stats.failed;
    totals->late += stats.late;
    totals->aborted += stats.aborted;
    totals->off += stats.is_off;
}
