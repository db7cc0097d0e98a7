/* A store on servers that answer as the input says (redis_server.h). The first byte tells whether
 * it is a cluster, and has a secret, a password or a limit of age. Then come operations, one byte
 * each; behind each one stands what the servers draw for the answers that it needs.
 *
 * Nothing may crash or read outside. Every operation ends; a get that succeeds gives the KV of its
 * own identity, and nothing beside the blocks is written. When answers are right again, records are
 * put and come back. What is said to operators is text. Memory is asked for in proportion to what
 * was sent, not to what an answer announces. */
#include <stdlib.h>
#include <string.h>

#include "store/load/remote.h"
#include "store/redis/redis.h"

#include "meter.h"
#include "redis_server.h"
#include "require.h"
#include "store_chain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RECORDS = 4, MARK = 0xEE, OPS_MAX = 48, AT_ONCE = 3, TRIES_MAX = 8 };

#define TIMEOUT_NS UINT64_C(1000000000)

/* What a store and its connections take whatever they are told: twice what was seen. */
#define MEMORY (UINT64_C(8) << 20)

static struct record records[RECORDS];

/* An operation that is under way; its tag is its number. */
static struct pending {
    int is_get;
    int is_there;
    const struct record *record;
    uint8_t kv[3][BLOCK_BYTES]; /* the block, between two that stay */
    uint32_t result;
    uint64_t bits;
    kvp_digest keys[RECORDS];
} pending[AT_ONCE];

static uint64_t now;
static struct redis_input input;

static uint64_t clock_of(void *context)
{
    (void)context;
    return now;
}

/* ------------------------------------------------------------------------------------ the store */

static void require_text(const char *text)
{
    for (const char *c = text; *c; c++)
        require(*c >= ' ' && *c < 127);
}

static kvp_status open_on_servers(const struct kvpi_backend_config *config, void **out_self,
                                  char *out_why, size_t why_bytes)
{
    return kvpi_redis_open(config, &redis_server_net, out_self, out_why, why_bytes);
}

static kvp_status walk_servers(struct kvpi_url *url, const struct kvpi_walk *walk, char *out_why,
                               size_t why_bytes)
{
    return kvpi_redis_walk(&redis_server_net, url, walk, out_why, why_bytes);
}

/* NULL: it was refused. */
static kvp_store *open_store(const struct kvpi_backend *backend, const char *url, int has_secret)
{
    kvp_store_config config;
    kvp_store *store = NULL;
    char why[300];
    kvp_store_config_init(&config);
    config.url = url;
    config.fingerprint.bytes[0] = 1;
    config.block_tokens = TOKENS;
    config.block_bytes[0] = BLOCK_BYTES;
    config.record_blocks = 1;
    config.key_bytes = 0;
    config.max_ops = 8;
    config.threads = 0;
    config.now = clock_of;
    config.secret = "0123456789abcdef";
    config.secret_bytes = has_secret ? 16 : 0;
    const kvp_status status = kvpi_store_open(&config, backend, &store, why, sizeof why);
    require(status == KVP_OK || status == KVP_E_IO);
    require_text(why);
    return store;
}

static void end_one(const kvp_store_done *done)
{
    struct pending *op = &pending[done->tag];
    require(op->is_there && op->bits >> RECORDS == 0);
    op->is_there = 0;
    op->result = done->result;
    if (!op->is_get)
        return;
    for (int i = 0; i < BLOCK_BYTES; i++)
        require(op->kv[0][i] == MARK && op->kv[2][i] == MARK);
    require(done->result != KVP_STORE_OK || memcmp(op->kv[1], op->record->kv, BLOCK_BYTES) == 0);
}

/* All that is under way ends, at the latest when its time is over. */
static void end_all(kvp_store *store)
{
    int is_idle = 0;
    for (int i = 0; !is_idle; i++) {
        kvp_store_done done[AT_ONCE];
        uint32_t n = 0;
        require(i < 100);
        require(kvp_store_work(store, &is_idle) == KVP_OK);
        require(kvp_store_poll(store, done, AT_ONCE, &n) == KVP_OK);
        for (uint32_t k = 0; k < n; k++)
            end_one(&done[k]);
        if (i % 4 == 3)
            now += TIMEOUT_NS / 4;
    }
    for (int i = 0; i < AT_ONCE; i++)
        require(!pending[i].is_there);
}

/* ----------------------------------------------------------------------------------- operators */

static void note_server(void *context, const kvp_store_directory *directory)
{
    (void)context;
    require_text(directory->path);
}

static void note_record(void *context, const kvp_store_record *record)
{
    (void)context;
    require(record->found < KVP_FOUND_KINDS && record->found != KVP_FOUND_UNREAD);
}

/* Its connections are its own; it waits in real time. */
static void look(const struct kvpi_backend *backend, const char *text, int cleans)
{
    const kvp_store_match match = {.written_before = now / 1000000000};
    kvp_store_scan_options options;
    kvp_store_cleaned cleaned;
    struct kvpi_url url;
    char why[300] = "";
    kvp_store_scan_options_init(&options);
    options.depth = KVP_SCAN_PAYLOADS;
    options.directory = note_server;
    options.record = note_record;
    require(kvpi_url_read(text, &url, why, sizeof why) == KVP_OK);
    redis_server_is_patient(0);
    const kvp_status status =
        cleans ? kvpi_remote_clean(backend, &url, &match, &cleaned, why, sizeof why)
               : kvpi_remote_scan(backend, &url, &options, why, sizeof why);
    redis_server_is_patient(1);
    require(status == KVP_OK || status == KVP_E_IO);
    require_text(why);
}

/* ---------------------------------------------------------------------------------- operations */

enum { PUT, GET, HAVE, DROP, WAIT, LATER, LOOK, KINDS };

static void begin(kvp_store *store, unsigned kind, const struct record *record)
{
    uint64_t number = 0;
    while (number < AT_ONCE && pending[number].is_there)
        number++;
    if (number == AT_ONCE) {
        end_all(store);
        number = 0;
    }
    struct pending *op = &pending[number];
    void *block = kind == GET ? op->kv[1] : (void *)(uintptr_t)record->kv;
    *op = (struct pending){.is_get = kind == GET, .is_there = 1, .record = record};
    memset(op->kv, MARK, sizeof op->kv);
    for (int i = 0; i < RECORDS; i++)
        op->keys[i] = records[i].key;
    const kvp_status status =
        kind == PUT    ? kvp_store_put(store, &record->identity, &block, number)
        : kind == GET  ? kvp_store_get(store, &record->identity, &block, number)
        : kind == HAVE ? kvp_store_have(store, op->keys, RECORDS, &op->bits, number)
                       : kvp_store_drop(store, op->keys + (record - records), 1, number);
    require(status == KVP_OK);
}

/* Whatever came before: when answers are right again, records come back. */
static void recover(kvp_store *store)
{
    uint32_t n_good = 0;
    redis_server_recover();
    for (int i = 0; i < TRIES_MAX && n_good < RECORDS; i++) {
        now += TIMEOUT_NS * 70; /* longer than any pause */
        for (int r = 0; r < RECORDS; r++) {
            begin(store, PUT, &records[r]);
            end_all(store);
        }
        n_good = 0;
        for (int r = 0; r < RECORDS; r++) {
            begin(store, GET, &records[r]);
            end_all(store);
            n_good += pending[0].result == KVP_STORE_OK;
        }
        begin(store, HAVE, &records[0]);
        end_all(store);
        if (pending[0].result != KVP_STORE_OK || pending[0].bits != (1 << RECORDS) - 1)
            n_good = 0;
    }
    require(n_good == RECORDS);
}

static void use(kvp_store *store, const struct kvpi_backend *backend, const char *url)
{
    char text[400];
    for (int i = 0; i < OPS_MAX && input.at < input.size; i++) {
        const unsigned what = redis_draw(&input);
        if (what % KINDS == WAIT)
            end_all(store);
        else if (what % KINDS == LATER)
            now += TIMEOUT_NS * 20 * (what / KINDS);
        else if (what % KINDS == LOOK)
            look(backend, url, what / KINDS % 2);
        else
            begin(store, what % KINDS, &records[what / KINDS % RECORDS]);
    }
    end_all(store);
    recover(store);
    kvp_store_stats stats;
    require(kvp_store_stats_get(store, &stats) == KVP_OK && stats.queued == 0);
    require(kvp_store_describe(store, text, sizeof text) == KVP_OK);
    require_text(text);
}

/* ----------------------------------------------------------------------------------- one input */

enum { CLUSTER = 1, SECRET = 2, LOGIN = 4, AGED = 8, ONE_CONN = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!records[0].identity.tokens)
        make_chain(records, RECORDS);
    input = (struct redis_input){data, size, 0};
    const unsigned how = redis_draw(&input);
    struct kvpi_backend backend = kvpi_redis_backend;
    char url[120];
    backend.open = open_on_servers;
    backend.walk = walk_servers;
    now = UINT64_C(1700000000000000000);
    snprintf(url, sizeof url, "redis://%s127.0.0.1:1%s?timeout=1s&connections=%d%s",
             how & LOGIN ? "user:word@" : "", how & LOGIN ? "/2" : "", how & ONE_CONN ? 1 : 2,
             how & AGED ? "&max_age=1h" : "");
    redis_server_begin(&input, how & CLUSTER);
    meter_begin();
    kvp_store *store = open_store(&backend, url, how & SECRET);
    if (store) {
        redis_server_is_patient(1);
        use(store, &backend, url);
    }
    kvp_store_close(store);
    const meter used = meter_end();
    require(redis_server_open() == 0);
    require(used.peak <= MEMORY + 16 * redis_server_sent());
    return 0;
}
