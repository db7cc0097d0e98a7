/* The n-th allocation, mapping or thread fails, for every n: the call says so, writes nothing, and
 * keeps nothing. The linker hands the library's calls to the __wrap functions (options.cmake). */
#include <stdlib.h>

#include "mocka.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <kvpager/memory.h>

static size_t fail_at = SIZE_MAX; /* which request, from 0 */
static size_t n_requests;
static size_t n_held; /* allocated, mapped or started, and not given back */

static int is_granted(void)
{
    const int granted = n_requests != fail_at;
    n_requests++;
    n_held += (size_t)granted;
    return granted;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void __real_free(void *memory);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*routine)(void *), void *argument);
int __real_pthread_join(pthread_t thread, void **result);

void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return is_granted() ? __real_malloc(bytes) : NULL;
}

void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
    return is_granted() ? __real_calloc(n, bytes) : NULL;
}

void __wrap_free(void *memory);
void __wrap_free(void *memory)
{
    n_held -= memory != NULL;
    __real_free(memory);
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    if (n_requests++ == fail_at)
        return MAP_FAILED;
    return __real_mmap(at, bytes, protection, flags, file, offset);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*routine)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*routine)(void *), void *argument)
{
    return is_granted() ? __real_pthread_create(thread, attributes, routine, argument) : 1;
}

int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result)
{
    n_held--;
    return __real_pthread_join(thread, result);
}

static kvp_layout make_layout(void)
{
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = KVP_INT8;
    layout.n_blocks = 4;
    layout.block_tokens = 4;
    layout.n_layers = 2;
    layout.n_heads = 2;
    layout.k.size = layout.v.size = 8;
    assert_int_equal(kvp_layout_arrange(&layout, KVP_ORDER_TENSORRT_LLM, NULL), KVP_OK);
    assert_int_equal(kvp_layout_add_scales(&layout, "NL2H"), KVP_OK);
    return layout;
}

TEST(test_create)
{
    const kvp_layout layout = make_layout();
    kvp_memory_options options;
    kvp_memory *memory = NULL;
    kvp_status status = KVP_E_NO_MEMORY;
    size_t n_failures = 0;
    kvp_memory_options_init(&options);
    options.pages = KVP_PAGES_SMALL; /* one mapping, or none */
    for (fail_at = 0; status != KVP_OK; fail_at++) {
        n_requests = n_held = 0;
        status = kvp_memory_create(&layout, &options, &memory);
        if (status != KVP_OK) {
            assert_int_equal(status, KVP_E_NO_MEMORY);
            assert_null(memory);
            assert_int_equal(n_held, 0);
            n_failures++;
        }
    }
    assert_int_equal(n_failures, 3);
    kvp_memory_destroy(memory);
    assert_int_equal(n_held, 0);
    fail_at = SIZE_MAX;
}

TEST(test_wrap)
{
    static _Alignas(64) unsigned char space[2][2048];
    const kvp_layout layout = make_layout();
    void *const tensors[] = {space[0], space[1]};
    kvp_memory *memory = NULL;
    kvp_status status = KVP_E_NO_MEMORY;
    for (fail_at = 0; status != KVP_OK; fail_at++) {
        n_requests = n_held = 0;
        status = kvp_memory_wrap(&layout, tensors, &memory);
        assert_int_equal(status, fail_at < 2 ? KVP_E_NO_MEMORY : KVP_OK);
        assert_true(status == KVP_OK || (!memory && n_held == 0));
    }
    kvp_memory_destroy(memory);
    assert_int_equal(n_held, 0);
    fail_at = SIZE_MAX;
}

TEST(test_copier)
{
    const kvp_layout layout = make_layout();
    kvp_memory *tiers[2];
    kvp_copier_config config;
    kvp_copier *copier = NULL;
    kvp_status status = KVP_E_NO_MEMORY;
    size_t n_failures = 0;
    assert_int_equal(kvp_memory_create(&layout, NULL, &tiers[0]), KVP_OK);
    assert_int_equal(kvp_memory_create(&layout, NULL, &tiers[1]), KVP_OK);
    kvp_copier_config_init(&config);
    config.device = &tiers[0];
    config.host = &tiers[1];
    config.n_threads = 4;
    for (fail_at = 0; status != KVP_OK; fail_at++) {
        n_requests = n_held = 0;
        status = kvp_copier_create(&config, &copier);
        if (status != KVP_OK) {
            assert_int_equal(status, KVP_E_NO_MEMORY);
            assert_null(copier);
            assert_int_equal(n_held, 0);
            n_failures++;
        }
    }
    /* Copier, 3 arrays, 2 pools' marks; ways, 4 lists; workers, 2 arrays each; team, 3 threads. */
    assert_int_equal(n_failures, 1 + 3 + 2 + 1 + 4 + 1 + 4 * 2 + 1 + 3);
    fail_at = SIZE_MAX;
    const size_t n_before = n_requests;
    const kvp_copy copy = {.dst_tier = KVP_HOST, .src_block = 1, .dst_block = 2, .n_tokens = 4};
    const kvp_slot_move move = {4, 9};
    assert_int_equal(kvp_copier_run(copier, &copy, 1, NULL), KVP_OK);
    assert_int_equal(kvp_copier_move(copier, 0, &move, 1, NULL), KVP_OK);
    assert_int_equal(n_requests, n_before); /* nothing allocates once it is there */
    kvp_copier_destroy(copier);
    assert_int_equal(n_held, 0);
    kvp_memory_destroy(tiers[0]);
    kvp_memory_destroy(tiers[1]);
}

TEST_MAIN(NULL, NULL)
