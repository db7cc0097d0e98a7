/* Each allocation, each read and each write of a store fails once, for every n, by either engine.
 * Every operation ends, what comes back is right, and what was stored is there after a start. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mocka.h"
#include "sim_disk.h"
#include "sim_queue.h"
#include "store/file/store_file.h"
#include "store_records.h"

enum { RECORDS = 8, SLOT = 8192, SLOTS = 40 };

static const char *const engines[] = {"threads", "io_uring"};

/* ---------------------------------------------------------------------------------- allocations */

static uint32_t n_allocations;
static uint32_t fails_at; /* 0: none */

static int allocation_fails(void)
{
    return fails_at > 0 && ++n_allocations == fails_at;
}

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t n);
void *__wrap_realloc(void *old, size_t n);
void *__real_aligned_alloc(size_t alignment, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);

void *__wrap_malloc(size_t n)
{
    return allocation_fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return allocation_fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t n)
{
    return allocation_fails() ? NULL : __real_realloc(old, n);
}

void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    return allocation_fails() ? NULL : __real_aligned_alloc(alignment, n);
}

/* -------------------------------------------------------------------------------- the transfers */

static struct sim_disk *sim;
static struct kvpi_disk below;
static struct kvpi_disk disk;
static struct sim_queue queue;
static struct kvpi_queue_system queue_system;
static struct kvpi_backend on_sim;
static uint64_t n_transfers;
static uint64_t transfer_fails_at; /* 0: none */

static int transfer_fails(void)
{
    return ++n_transfers == transfer_fails_at;
}

static int layer_read(void *context, int file, const struct kvpi_span *spans, uint32_t n_spans,
                      uint64_t offset)
{
    return transfer_fails() ? EIO : below.read(context, file, spans, n_spans, offset);
}

static int layer_write(void *context, int file, const struct kvpi_span *spans, uint32_t n_spans,
                       uint64_t offset)
{
    return transfer_fails() ? EIO : below.write(context, file, spans, n_spans, offset);
}

static int layer_sync(void *context, int file)
{
    return transfer_fails() ? EIO : below.sync(context, file);
}

static kvp_status open_on_sim(const struct kvpi_backend_config *config, void **out_self,
                              char *out_why, size_t why_bytes)
{
    const struct kvpi_engine_config engine = {.queue = &queue_system};
    return kvpi_file_open(config, &disk, &engine, out_self, out_why, why_bytes);
}

static void begin_sim(void)
{
    sim = sim_disk_create(1);
    below = disk = sim_disk_interface(sim);
    disk.read = layer_read;
    disk.write = layer_write;
    disk.sync = layer_sync;
    queue = (struct sim_queue){.disk = &disk, .random = 1};
    queue_system = sim_queue_interface(&queue);
    on_sim = kvpi_file_backend;
    on_sim.open = open_on_sim;
}

/* ------------------------------------------------------------------------------------ the scene */

static char directory[64];
static struct record records[RECORDS];
static int is_stored[RECORDS];
static uint64_t now;

/* Looks at other writers are due at each call. */
static uint64_t test_clock(void *context)
{
    (void)context;
    now += UINT64_C(1100000000);
    return now;
}

static kvp_status try_open(const char *engine, int is_real, kvp_store **out_store)
{
    char url[160], why[300];
    snprintf(url, sizeof url, "file:%s?size=%d&engine=%s", is_real ? directory : "/kv",
             SLOTS * (SLOT + 256), engine);
    kvp_store_config config = record_config(url);
    config.now = test_clock;
    *out_store = NULL;
    const kvp_status status =
        kvpi_store_open(&config, is_real ? NULL : &on_sim, out_store, why, sizeof why);
    assert_int_equal(!*why, status == KVP_OK);
    assert_null(strchr(why, '%'));
    return status;
}

/* A chain by one writer, and what is behind it by another. */
static void use(kvp_store *store, unsigned first, unsigned end)
{
    for (unsigned r = first; r < end; r++) {
        const uint32_t result = record_put(store, &records[r]);
        assert_true(result != KVP_STORE_BAD && result != KVP_STORE_RACED);
        is_stored[r] |= result == KVP_STORE_OK;
    }
    assert_int_equal(kvp_store_sync(store, 0), KVP_OK);
    (void)input_result(store);
    for (unsigned r = 0; r < end; r++) { /* record_get compares what comes back */
        const uint32_t result = record_get(store, &records[r]);
        assert_true(result != KVP_STORE_BAD);
        if (result == KVP_STORE_FAILED)
            is_stored[r] = 0; /* it goes, and what is behind it */
        for (unsigned k = r; result == KVP_STORE_FAILED && k < end; k++)
            is_stored[k] = 0;
    }
}

static void scene(const char *engine, int is_real)
{
    scoped_store *one;
    scoped_store *two;
    if (try_open(engine, is_real, &one) == KVP_OK)
        use(one, 0, RECORDS / 2);
    if (try_open(engine, is_real, &two) == KVP_OK)
        use(two, RECORDS / 2, RECORDS);
}

/* Nothing fails any more. */
static void check_scene(const char *engine, int is_real)
{
    scoped_store *one;
    scoped_store *two;
    assert_int_equal(try_open(engine, is_real, &one), KVP_OK);
    assert_int_equal(try_open(engine, is_real, &two), KVP_OK);
    for (unsigned r = 0; r < RECORDS; r++) {
        const uint32_t result = record_get(one, &records[r]);
        assert_true(result == KVP_STORE_OK || (result == KVP_STORE_ABSENT && !is_stored[r]));
        assert_true(record_get(two, &records[r]) == result);
    }
    for (unsigned r = 0; r < RECORDS; r++) {
        const uint32_t result = record_put(one, &records[r]);
        assert_true(result == KVP_STORE_OK || result == KVP_STORE_KNOWN);
        assert_int_equal(record_get(two, &records[r]), KVP_STORE_OK);
    }
}

static void remove_directory(void)
{
    char command[120];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    assert_int_equal(system(command), 0);
}

static int has_engine(const char *engine)
{
    kvp_store *store;
    const int has = try_open(engine, 1, &store) == KVP_OK;
    kvp_store_close(store);
    remove_directory();
    return has;
}

TEST(test_each_allocation_fails)
{
    for (unsigned e = 0; e < 2; e++) {
        int is_reached = has_engine(engines[e]);
        uint32_t n = 0;
        while (is_reached) {
            memset(is_stored, 0, sizeof is_stored);
            n_allocations = 0;
            fails_at = ++n;
            scene(engines[e], 1);
            is_reached = n_allocations >= n;
            fails_at = 0;
            check_scene(engines[e], 1);
            remove_directory();
        }
        print_message("%s: %u allocations\n", engines[e], n);
        assert_true(e > 0 || n > 40);
    }
}

TEST(test_each_allocation_of_a_store_in_memory_fails)
{
    const kvp_store_config config = record_config("memory:?size=1MiB");
    kvp_status status = KVP_E_NO_MEMORY;
    uint32_t n = 0;
    while (status != KVP_OK) {
        kvp_store *store = NULL;
        char why[300];
        n_allocations = 0;
        fails_at = ++n;
        status = kvp_store_open(&config, &store, why, sizeof why);
        fails_at = 0;
        assert_true(status == KVP_OK || status == KVP_E_NO_MEMORY);
        assert_int_equal(!*why, status == KVP_OK);
        kvp_store_close(store);
    }
    assert_true(n > 10);
}

/* A stack that cannot be made leaves its stores alone; once it is there, it takes no memory. */
TEST(test_each_allocation_of_a_stack_fails)
{
    const kvp_store_config config = record_config("memory:?size=1MiB");
    kvp_store *stores[2];
    scoped_store *stack = NULL;
    kvp_store_stack_config stacked;
    kvp_store_stack_config_init(&stacked);
    stacked.stores = stores;
    stacked.n_stores = 2;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(kvp_store_open(&config, &stores[i], NULL, 0), KVP_OK);
    uint32_t n = 0;
    kvp_status status = KVP_E_NO_MEMORY;
    while (status != KVP_OK) {
        n_allocations = 0;
        fails_at = ++n;
        char why[300];
        status = kvp_store_stack_open(&stacked, &stack, why, sizeof why);
        fails_at = 0;
        assert_true(status == KVP_OK || status == KVP_E_NO_MEMORY);
        assert_int_equal(!*why, status == KVP_OK);
    }
    assert_true(n > 10);
    fails_at = UINT32_MAX; /* counts, from here on */
    n_allocations = 0;
    for (unsigned r = 0; r < 3; r++) {
        assert_int_equal(record_put(stack, &records[r]), KVP_STORE_OK);
        assert_int_equal(record_get(stack, &records[r]), KVP_STORE_OK);
    }
    uint64_t bits = 0;
    assert_int_equal(kvp_store_have(stack, &records[RECORDS - 1].key, 1, &bits, 0), KVP_OK);
    assert_int_equal(input_result(stack), KVP_STORE_OK);
    assert_int_equal(n_allocations, 0);
    fails_at = 0;
}

TEST(test_each_transfer_fails)
{
    for (unsigned e = 0; e < 2; e++) {
        int is_reached = 1;
        uint64_t n = 0;
        while (is_reached) {
            begin_sim();
            memset(is_stored, 0, sizeof is_stored);
            n_transfers = 0;
            transfer_fails_at = ++n;
            scene(engines[e], 0);
            is_reached = n_transfers >= n;
            transfer_fails_at = 0;
            check_scene(engines[e], 0);
            sim_disk_destroy(sim);
        }
        print_message("%s: %u transfers\n", engines[e], (unsigned)n);
        assert_true(n > 40);
    }
}

int main(void)
{
    /* In memory, where there is such a place: no disk is waited for. */
    snprintf(directory, sizeof directory, "%sstore_every_%ld",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : "", (long)getpid());
    for (unsigned r = 0; r < RECORDS; r++)
        record_make(records, r, r, 0);
    return run_all_tests(NULL, NULL);
}
