/* The library's requests to the system. The linker hands every one of this program to the functions
 * below (tests.cmake, --wrap); those made while the library is called are counted, and may fail. */
#include "faults.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

enum { HELD = 4096 };

bool wrap_armed;
static void *held[HELD]; /* [n_held] what was allocated while armed */
static size_t n_held, n_mapped_bytes, n_threads;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
int __real_munmap(void *at, size_t bytes);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*routine)(void *), void *argument);
int __real_pthread_join(pthread_t thread, void **result);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *memory);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
int __wrap_munmap(void *at, size_t bytes);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*routine)(void *), void *argument);
int __wrap_pthread_join(pthread_t thread, void **result);

wrap_held wrap_now(void)
{
    return (wrap_held){n_held, n_mapped_bytes, n_threads};
}

static void *keep(void *memory)
{
    if (wrap_armed && memory != NULL) {
        assert_true(n_held < HELD);
        held[n_held++] = memory;
    }
    return memory;
}

static void forget(const void *memory)
{
    for (size_t i = 0; i < n_held && memory != NULL; i++) {
        if (held[i] == memory) {
            held[i] = held[--n_held];
            return;
        }
    }
}

static bool is_refused(seam which)
{
    const bool refused = wrap_armed && fault_comes(which);
    errno = refused ? ENOMEM : errno;
    return refused;
}

void wrap_leak(void)
{
    held[n_held++] = __real_malloc(1);
}

void *__wrap_malloc(size_t bytes)
{
    return is_refused(SEAM_allocation) ? NULL : keep(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return is_refused(SEAM_allocation) ? NULL : keep(__real_calloc(n, bytes));
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    if (is_refused(SEAM_allocation))
        return NULL;
    forget(memory);
    return keep(__real_realloc(memory, bytes));
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return is_refused(SEAM_allocation) ? NULL : keep(__real_aligned_alloc(alignment, bytes));
}

void __wrap_free(void *memory)
{
    forget(memory);
    __real_free(memory);
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    if (is_refused(SEAM_mapping))
        return MAP_FAILED;
    void *memory = __real_mmap(at, bytes, protection, flags, file, offset);
    n_mapped_bytes += memory == MAP_FAILED ? 0 : bytes;
    return memory;
}

int __wrap_munmap(void *at, size_t bytes)
{
    n_mapped_bytes -= bytes;
    return __real_munmap(at, bytes);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*routine)(void *), void *argument)
{
    if (is_refused(SEAM_thread))
        return EAGAIN;
    n_threads++;
    return __real_pthread_create(thread, attributes, routine, argument);
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    n_threads--;
    return __real_pthread_join(thread, result);
}
