/* aligned: see aligned.h. A table of all that was given on a boundary and not taken back. */
#undef free

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>

enum { MAX_HELD = 4096 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *held[MAX_HELD];
static size_t n_held;

void *cross_aligned_alloc(size_t alignment, size_t bytes)
{
    void *memory = _aligned_malloc(bytes, alignment);
    (void)pthread_mutex_lock(&mutex);
    if (n_held == MAX_HELD) {
        (void)fprintf(stderr, "more than %d pieces of aligned memory\n", MAX_HELD);
        abort();
    }
    held[n_held] = memory;
    n_held += memory != NULL;
    (void)pthread_mutex_unlock(&mutex);
    return memory;
}

/* 1: it was there. */
static int take_out(const void *memory)
{
    int found = 0;
    (void)pthread_mutex_lock(&mutex);
    for (size_t i = n_held; i > 0 && !found; i--) {
        found = held[i - 1] == memory;
        held[i - 1] = found ? held[--n_held] : held[i - 1];
    }
    (void)pthread_mutex_unlock(&mutex);
    return found;
}

void cross_free(void *memory)
{
    if (memory != NULL && take_out(memory))
        _aligned_free(memory);
    else
        free(memory);
}
