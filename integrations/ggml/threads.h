/* threads: attention on the threads that ggml's own operations have. Where ggml uses OpenMP, its
 * threads spin between two operations; threads of kvpager's beside them would wait for a processor.
 * So a parallel region of the same size is opened: OpenMP gives it the same threads. Knows nothing
 * of ggml's headers, so that it is tested without ggml. */
#ifndef KVPI_GGML_THREADS_H
#define KVPI_GGML_THREADS_H

#include <kvpager/attention.h>

/* GOMP_parallel, which GCC's and LLVM's OpenMP have: call fn(data) on n threads, the caller's
 * among them. They may be fewer. */
typedef void (*kvpi_parallel)(void (*fn)(void *data), void *data, unsigned n, unsigned flags);

/* One of a processor's abilities, as ggml lists them; the last has no name. The same as struct
 * ggml_backend_feature. */
struct kvpi_feature {
    const char *name;
    const char *value;
};

/* Is OpenMP in the list? NULL: no. */
int kvpi_threads_are_openmp(const struct kvpi_feature *features);

/* For kvp_attention_team_wrap; the pool is a kvpi_parallel's address. */
void kvpi_threads_run(void *pool, kvp_attention_work work, void *data, uint32_t n);

#endif
