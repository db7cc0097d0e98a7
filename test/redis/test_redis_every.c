/* Each allocation of the back end and of the client's library fails once: the store is not opened,
 * or what needs the memory fails. Whatever ends well has the right bytes, nothing hangs, nothing is
 * lost for the next store. Skipped where there is no redis-server. */
#define _GNU_SOURCE
#include "redis_records.h"

#include "real_server.h"

enum { RECORDS = 3, RUNS_MAX = 3000 };

static struct real_server server;
static struct record records[RECORDS];

/* The allocation that fails, counted down while armed; 0: none. */
static unsigned to_fail;
static unsigned n_failed;

static int fails(void)
{
    if (to_fail == 0 || --to_fail > 0)
        return 0;
    n_failed++;
    return 1;
}

void *__real_malloc(size_t n_bytes);
void *__real_calloc(size_t n, size_t n_bytes);
void *__real_realloc(void *old, size_t n_bytes);
void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes);
void *__wrap_realloc(void *old, size_t n_bytes);

void *__wrap_malloc(size_t n_bytes)
{
    return fails() ? NULL : __real_malloc(n_bytes);
}

void *__wrap_calloc(size_t n, size_t n_bytes)
{
    return fails() ? NULL : __real_calloc(n, n_bytes);
}

void *__wrap_realloc(void *old, size_t n_bytes)
{
    return fails() ? NULL : __real_realloc(old, n_bytes);
}

static int is_there(uint32_t result)
{
    return result == KVP_STORE_OK || result == KVP_STORE_KNOWN;
}

static int has_failed(uint32_t result)
{
    return result == KVP_STORE_FAILED || result == KVP_STORE_AWAY;
}

static void use(kvp_store *store)
{
    uint32_t put_results[RECORDS];
    for (unsigned i = 0; i < RECORDS; i++) {
        put_results[i] = put(store, &records[i]);
        assert_true(is_there(put_results[i]) || has_failed(put_results[i]));
    }
    for (unsigned i = 0; i < RECORDS; i++) {
        const uint32_t result = get(store, &records[i]);
        assert_true(result == KVP_STORE_OK || has_failed(result) ||
                    (result == KVP_STORE_ABSENT && !is_there(put_results[i])));
    }
    uint64_t bits = 0;
    assert_int_equal(kvp_store_have(store, &records[0].key, 1, &bits, 1), KVP_OK);
    const uint32_t asked = input_result(store);
    assert_true(asked == KVP_STORE_OK || has_failed(asked));
    kvp_digest keys[RECORDS];
    for (unsigned i = 0; i < RECORDS; i++)
        keys[i] = records[i].key;
    assert_int_equal(kvp_store_drop(store, keys, RECORDS, 1), KVP_OK);
    const uint32_t dropped = input_result(store);
    assert_true(dropped == KVP_STORE_OK || has_failed(dropped));
}

/* 0: it was not opened. */
static int run(const kvp_store_config *config)
{
    kvp_store *store = NULL;
    char why[300];
    const kvp_status status = kvpi_store_open(config, &kvpi_redis_backend, &store, why, sizeof why);
    if (status != KVP_OK) {
        if ((status != KVP_E_NO_MEMORY && status != KVP_E_IO) || !why[0] || store)
            fail_msg("the opening ended with %d, \"%s\"", (int)status, why);
        return 0;
    }
    use(store);
    to_fail = 0;
    kvp_store_close(store);
    return 1;
}

TEST(every_allocation_fails_once)
{
    unsigned n_runs = 0;
    unsigned n_opened = 0;
    char url[140];
    snprintf(url, sizeof url, "%s?timeout=1s&connections=2", server.url);
    kvp_store_config config = config_of(url);
    do {
        assert_true(++n_runs < RUNS_MAX);
        n_failed = 0;
        to_fail = n_runs;
        n_opened += (unsigned)run(&config);
        to_fail = 0;
    } while (n_failed > 0);
    printf("%u allocations, %u of them after the opening\n", n_runs - 1, n_opened - 1);
    assert_true(n_runs - n_opened > 5 && n_opened > 20);
    scoped_store *store = open_store(&config);
    assert_int_equal(kvp_store_drop(store, &records[0].key, 1, 1), KVP_OK);
    assert_int_equal(input_result(store), KVP_STORE_OK);
    assert_int_equal(put(store, &records[0]), KVP_STORE_OK);
    assert_int_equal(get(store, &records[0]), KVP_STORE_OK);
}

int main(void)
{
    if (!redis_program()) {
        puts("skipped: there is no redis-server (Debian: redis-tools)");
        return 77;
    }
    for (unsigned i = 0; i < RECORDS; i++)
        make_record(&records[i], 1, i, i > 0 ? &records[i - 1] : NULL);
    start_server(&server, NULL);
    const int failed = run_all_tests(NULL, NULL);
    stop_server(&server);
    return failed;
}
