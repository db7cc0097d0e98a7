/* Large records on a real server: what they take of its memory, that a put of what is there evicts
 * nothing, and that what is read at once does not either. `--measure` prints the figures of
 * docs/STORES.md. Skipped where there is no redis-server. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "store/redis/ages.h"
#include "store/redis/form.h"
#include "store/redis/redis.h"

enum { BLOCK_BYTES = 1 << 20, BLOCKS = 2, TOKENS = 8, CLIENTS = 8, PAGE = 4096 };

#include "../store/chain_records.h"
#include "real_server.h"

static struct real_server server;
static int is_measuring;
static size_t block_bytes = BLOCK_BYTES; /* of the records now */

static kvp_store *open_at(const char *url, uint32_t threads)
{
    kvp_store_config config = config_of(url);
    kvp_store *store = NULL;
    char why[300];
    config.block_bytes[0] = block_bytes;
    config.threads = threads;
    if (kvpi_store_open(&config, &kvpi_redis_backend, &store, why, sizeof why) != KVP_OK)
        fail_msg("%s", why);
    return store;
}

/* Records by number, from the same memory: none is the parent of another. */
static struct record *record_of(unsigned number)
{
    static struct record record;
    if (!record.identity.tokens)
        make_record(&record, 1, 0, NULL);
    record.identity.digest = input_digest(number);
    record.identity.digest.bytes[0] = (uint8_t)(number * 37);
    record.key = input_key(&record.identity);
    memcpy(record.kv[0], &number, sizeof number);
    return &record;
}

static uint32_t put(kvp_store *store, unsigned number)
{
    struct record *record = record_of(number);
    assert_int_equal(kvp_store_put(store, &record->identity, record->blocks, 7), KVP_OK);
    return input_result(store);
}

static uint32_t get(kvp_store *store, unsigned number)
{
    static uint8_t kv[BLOCKS][BLOCK_BYTES];
    void *blocks[BLOCKS] = {kv[0], kv[1]};
    struct record *record = record_of(number);
    memset(kv, 0xEE, sizeof kv);
    assert_int_equal(kvp_store_get(store, &record->identity, blocks, 8), KVP_OK);
    const uint32_t result = input_result(store);
    for (int i = 0; i < BLOCKS && result == KVP_STORE_OK; i++)
        assert_memory_equal(kv[i], record->kv[i], block_bytes);
    return result;
}

static kvp_store_stats stats_of(const kvp_store *store)
{
    kvp_store_stats stats;
    assert_int_equal(kvp_store_stats_get(store, &stats), KVP_OK);
    return stats;
}

static void name_of(unsigned number, char out_name[KVPI_AGES_NAME])
{
    struct kvpi_ages ages = {.tags = 512, .is_large = 1};
    const kvp_digest fingerprint = input_digest(1);
    assert_int_equal(kvpi_ages_open(&ages, &fingerprint), KVP_OK);
    kvpi_ages_name(&ages, &record_of(number)->key, out_name);
    kvpi_ages_close(&ages);
}

/* A line of INFO, by another client. */
static uint64_t info_of(const struct real_server *of, const char *name)
{
    valkeyContext *context = valkeyConnect("127.0.0.1", of->port);
    valkeyReply *reply = valkeyCommand(context, "INFO");
    assert_non_null(reply);
    const char *at = strstr(reply->str, name);
    assert_non_null(at);
    const uint64_t number = strtoull(at + strlen(name) + 1, NULL, 10);
    freeReplyObject(reply);
    valkeyFree(context);
    return number;
}

static int set_up(void **state)
{
    (void)state;
    block_bytes = BLOCK_BYTES;
    ask(&server, "CONFIG SET maxmemory 0");
    ask(&server, "CONFIG SET maxmemory-policy volatile-ttl");
    return !ask(&server, "FLUSHALL");
}

TEST_WITH(what_was_put_comes_back, set_up, NULL)
{
    for (uint32_t threads = 0; threads < 2; threads++) {
        ask(&server, "FLUSHALL");
        char name[KVPI_AGES_NAME];
        scoped_store *store = open_at(server.url, threads);
        assert_int_equal(get(store, 1), KVP_STORE_ABSENT);
        assert_int_equal(put(store, 1), KVP_STORE_OK);
        assert_int_equal(put(store, 1), KVP_STORE_KNOWN);
        assert_int_equal(put(store, 2), KVP_STORE_OK);
        assert_int_equal(get(store, 1), KVP_STORE_OK);
        assert_int_equal(get(store, 2), KVP_STORE_OK);
        const kvp_digest key = record_of(1)->key;
        uint64_t bits = 0;
        assert_int_equal(kvp_store_have(store, &key, 1, &bits, 1), KVP_OK);
        assert_int_equal(input_result(store), KVP_STORE_OK);
        assert_true(bits == 1);
        name_of(1, name);
        const long long ttl = ask(&server, "PTTL %s", name);
        assert_true(ttl > 6 * 86400 * 1000LL && ttl <= 7 * 86400 * 1000LL);
        assert_int_equal(kvp_store_drop(store, &key, 1, 1), KVP_OK);
        assert_int_equal(input_result(store), KVP_STORE_OK);
        assert_int_equal(get(store, 1), KVP_STORE_ABSENT);
        assert_int_equal(stats_of(store).failed, 0);
    }
}

/* From 64 KiB to 2 MiB, on both sides of what an allocator has blocks for. */
TEST_WITH(a_record_fits_its_memory, set_up, NULL)
{
    static const size_t sizes[] = {32768,  32769,  40000,  65536,  98304,   100000, 131072,
                                   262144, 262143, 300000, 524288, 1048576, 819200};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char name[KVPI_AGES_NAME];
        ask(&server, "FLUSHALL");
        block_bytes = sizes[i];
        scoped_store *store = open_at(server.url, 0);
        assert_int_equal(put(store, 1), KVP_STORE_OK);
        assert_int_equal(get(store, 1), KVP_STORE_OK);
        name_of(1, name);
        const double payload = (double)sizes[i] * BLOCKS;
        const double takes = (double)ask(&server, "MEMORY USAGE %s SAMPLES 0", name);
        if (is_measuring)
            printf("payload %8.0f: %8.0f bytes of the server's memory, %.3f\n", payload, takes,
                   takes / payload);
        if (takes < payload || takes > payload * 1.03 + PAGE * 1.5)
            fail_msg("%.0f bytes take %.0f", payload, takes);
    }
}

/* Somebody changed a record: it is found, said by its reason, and dropped. */
TEST_WITH(what_is_damaged_is_dropped, set_up, NULL)
{
    static const struct {
        const char *change;
        uint32_t reason;
    } cases[] = {
        {"return redis.call('HDEL', KEYS[1], '0')", KVP_BAD_DAMAGED},
        {"return redis.call('HDEL', KEYS[1], '1')", KVP_BAD_LENGTH},
        {"return redis.call('HDEL', KEYS[1], '2')", KVP_BAD_LENGTH},
        {"return redis.call('HSET', KEYS[1], '0', 'kvpager') + 1", KVP_BAD_DAMAGED},
        {"return redis.call('HSET', KEYS[1], '1', '') + 1", KVP_BAD_LENGTH},
        {"return redis.call('HSET', KEYS[1], '2', redis.call('HGET', KEYS[1], '2') .. 'x') + 1",
         KVP_BAD_LENGTH},
        {"return redis.call('HSET', KEYS[1], '1', string.rep('y', 32)) + 1", KVP_BAD_PAYLOAD},
        {"return redis.call('HSET', KEYS[1], '2', string.rep('y', 2097120)) + 1", KVP_BAD_PAYLOAD},
    };
    scoped_store *store = open_at(server.url, 0);
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[KVPI_AGES_NAME];
        name_of(1, name);
        assert_int_equal(put(store, 1), KVP_STORE_OK);
        assert_int_equal(ask(&server, "EVAL %s 1 %s", cases[i].change, name), 1);
        const uint64_t before = stats_of(store).bad[cases[i].reason];
        const uint32_t result = get(store, 1);
        if (result != KVP_STORE_BAD || stats_of(store).bad[cases[i].reason] != before + 1)
            fail_msg("%s: %u", cases[i].change, result);
        assert_int_equal(ask(&server, "EXISTS %s", name), 0);
    }
    /* A key of another type cannot be read: an error, and the connection stays. */
    char name[KVPI_AGES_NAME];
    name_of(1, name);
    ask(&server, "SET %s %s", name, "text");
    assert_int_equal(get(store, 1), KVP_STORE_FAILED);
    assert_int_equal(put(store, 1), KVP_STORE_KNOWN);
}

/* Two engines ask at the same time and send the same record: it is there once, whole, and the
 * second one hears that it was known. */
TEST_WITH(two_that_send_at_once, set_up, NULL)
{
    kvp_store *stores[2] = {open_at(server.url, 0), open_at(server.url, 0)};
    const struct record *record = record_of(1);
    unsigned n_known = 0;
    for (int round = 0; round < 10; round++) {
        uint32_t n_left = 2;
        ask(&server, "FLUSHALL");
        for (int i = 0; i < 2; i++)
            assert_int_equal(
                kvp_store_put(stores[i], &record->identity, (void *const *)record->blocks, 1),
                KVP_OK);
        uint32_t n_stored = 0;
        while (n_left > 0)
            for (int i = 0; i < 2; i++) {
                kvp_store_done done;
                uint32_t n = 0;
                assert_int_equal(kvp_store_work(stores[i], NULL), KVP_OK);
                assert_int_equal(kvp_store_poll(stores[i], &done, 1, &n), KVP_OK);
                assert_true(n == 0 || done.result == KVP_STORE_OK ||
                            done.result == KVP_STORE_KNOWN);
                n_stored += n == 1 && done.result == KVP_STORE_OK;
                n_known += n == 1 && done.result == KVP_STORE_KNOWN;
                n_left -= n;
            }
        assert_int_equal(n_stored, 1);
        assert_int_equal(get(stores[0], 1), KVP_STORE_OK);
    }
    assert_int_equal(n_known, 10);
    for (int i = 0; i < 2; i++)
        kvp_store_close(stores[i]);
}

/* Fill a server until it evicts. Gives the number of records that are there. */
static unsigned fill(const struct real_server *of, kvp_store *store, unsigned *out_first)
{
    unsigned number = 0;
    while (info_of(of, "evicted_keys") == 0) {
        assert_int_equal(put(store, ++number), KVP_STORE_OK);
        assert_true(number < 200);
    }
    *out_first = number - 11;
    return 10; /* these are there: what expires first has gone */
}

/* At maxmemory, eight engines put what is there, and read it. Nothing is evicted for that. */
TEST_WITH(what_is_there_evicts_nothing, set_up, NULL)
{
    struct real_server own = {0};
    static const char *const options[] = {
        "--maxmemory", "80mb", "--maxmemory-policy", "volatile-ttl", "--maxmemory-samples",
        "10",          NULL};
    enum { READS = 6 };
    uint8_t *kv = malloc((size_t)CLIENTS * READS * BLOCKS * BLOCK_BYTES);
    static kvp_identity identities[READS];
    assert_non_null(kv);
    kvp_store *stores[CLIENTS];
    unsigned first;
    start_server(&own, options);
    kvp_store *store = open_at(own.url, 0);
    const unsigned n = fill(&own, store, &first);
    kvp_store_close(store);
    unsigned n_stored = 0;
    for (int i = 0; i < CLIENTS; i++) {
        const kvp_digest key = record_of(0)->key;
        uint64_t bits = 0;
        stores[i] = open_at(own.url, 1);
        assert_int_equal(kvp_store_have(stores[i], &key, 1, &bits, 1), KVP_OK);
        assert_int_equal(input_result(stores[i]), KVP_STORE_OK);
    }
    const uint64_t keys = (uint64_t)ask(&own, "DBSIZE");
    const uint64_t before = info_of(&own, "evicted_keys");
    const uint64_t heard = info_of(&own, "total_net_input_bytes");
    for (unsigned r = 0; r < n; r++)
        for (int i = 0; i < CLIENTS; i++) {
            const uint32_t result = put(stores[i], first + r);
            assert_true(result == KVP_STORE_KNOWN || result == KVP_STORE_OK);
            n_stored += result == KVP_STORE_OK; /* the connections took room, too */
        }
    const uint64_t by_puts = info_of(&own, "evicted_keys") - before;
    const uint64_t sent = info_of(&own, "total_net_input_bytes") - heard;
    for (unsigned r = 0; r < READS * CLIENTS; r++) {
        uint8_t *at = kv + (size_t)r * BLOCKS * BLOCK_BYTES;
        void *blocks[BLOCKS] = {at, at + BLOCK_BYTES};
        identities[r / CLIENTS] = record_of(first + r / CLIENTS + 2)->identity;
        assert_int_equal(kvp_store_get(stores[r % CLIENTS], &identities[r / CLIENTS], blocks, 1),
                         KVP_OK);
    }
    for (unsigned r = 0; r < READS * CLIENTS; r++)
        (void)input_result(stores[r % CLIENTS]);
    free(kv);
    const uint64_t by_gets = info_of(&own, "evicted_keys") - before - by_puts;
    if (is_measuring)
        printf("%d engines, %u of %llu records: %llu evicted by puts, %llu by gets\n", CLIENTS, n,
               (unsigned long long)keys, (unsigned long long)by_puts, (unsigned long long)by_gets);
    for (int i = 0; i < CLIENTS; i++)
        kvp_store_close(stores[i]);
    stop_server(&own);
    /* The connections' own room may cost a record, and which one a full server takes is luck. */
    assert_true(n_stored <= CLIENTS / 2 && by_puts <= CLIENTS);
    assert_true(sent < (n_stored + 1) * (uint64_t)BLOCKS * BLOCK_BYTES); /* nothing else */
    assert_true(by_gets <= 2 * CLIENTS); /* what each reads takes room */
}

/* The rights that docs/STORES.md names are enough, and what is missing is said. */
TEST_WITH(rights, set_up, NULL)
{
    static const char *const names[] = {"+hmget",   "+multi",  "+hset", "+exec",
                                        "+pexpire", "+exists", "+info", "+unlink"};
    enum { N = sizeof names / sizeof *names };
    for (unsigned without = 0; without <= N; without++) {
        scoped_server own = {0};
        const char *options[8 + N + 1] = {"--user", "default", "off", "--user",
                                          "kv",     "on",      ">pw", "~kvp1:*"};
        char url[100], text[300];
        for (unsigned i = 0, n = 8; i < N; i++)
            if (i != without)
                options[n++] = names[i];
        start_server(&own, options);
        snprintf(url, sizeof url, "redis://kv:pw@127.0.0.1:%d", own.port);
        scoped_store *store = open_at(url, 0);
        const uint32_t was_put = put(store, 1);
        const uint32_t got = get(store, 1);
        assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
        const int writes = without == 0 || without >= 5;
        if ((was_put == KVP_STORE_OK) != writes ||
            (writes && (got == KVP_STORE_OK) != (without > 0)) ||
            (without < 7 && !strstr(text, names[without])) ||
            (without > 6 && strstr(text, "lacks")))
            fail_msg("without %s: put %u, get %u, %s", without < N ? names[without] : "none",
                     was_put, got, text);
    }
}

int main(int argc, char **argv)
{
    if (!redis_program()) {
        puts("skipped: there is no redis-server (Debian: redis-tools)");
        return 77;
    }
    is_measuring = argc > 1 && strcmp(argv[1], "--measure") == 0;
    start_server(&server, NULL);
    const int failed = run_all_tests(NULL, NULL);
    stop_server(&server);
    return failed;
}
