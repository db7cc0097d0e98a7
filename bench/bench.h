/* What the files of the benchmark share: how a measurement is described, taken and checked.
 *
 * A group sets up what its measurements need; each measurement gives one sample per call, for us
 * and, where there is one, for the yardstick. Samples of the two alternate, so that whatever
 * disturbs the machine disturbs both.
 */
#ifndef KVP_BENCH_H
#define KVP_BENCH_H

#include <kvpager/all.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    BLOCK_TOKENS = 16,
    PROMPT_TOKENS = 131072,
    PROMPT_BLOCKS = PROMPT_TOKENS / BLOCK_TOKENS,
    POOL_BLOCKS = 1048576,
    QUICK_POOL_BLOCKS = 65536,
    YARDSTICK_BLOCKS = 20000, /* where a million would take minutes */
    MAX_SAMPLES = 1001
};

typedef struct bench_options {
    bool quick;         /* small pool, few samples: are the results right? */
    bool count;         /* one sample of each under callgrind; quick as well */
    uint32_t n_samples; /* 0: each measurement's own number */
    const char *only;   /* NULL: all; else these names, with commas between them */
    const char *json;   /* NULL: none */
    bool list;          /* the names only */
    bool growth;        /* instead: how cost grows with size (growth.h) */
    uint64_t steady;    /* instead: so many calls, each timed (steady.h); 0: no */
    uint64_t seed;      /* of those calls */
    uint32_t size;      /* of the group that is set up */
} bench_options;

typedef struct measurement {
    const char *name;
    const char *unit;
    double aim; /* 0: none; of a rate (anything per second): at least so many, or where there
                           is a yardstick, so many times its; else at most; -a: at most a times the
                           yardstick */
    uint32_t n_samples; /* 1: a number that is known, not measured */
    double (*ours)(void *state);
    double (*yardstick)(void *state); /* NULL: none */
    const char *note;
} measurement;

typedef struct group {
    const measurement *measurements;
    size_t n_measurements;
    /* NULL: no state. Gives NULL: what it needs is not here, and the group is left out. */
    void *(*set_up)(const bench_options *options);
    void (*tear_down)(void *state);
} group;

extern const group long_prompts_group;
extern const group evictions_group;
extern const group decode_free_group;
extern const group decode_evicted_group;
extern const group fork_close_group;
extern const group learned_group;
extern const group sched_free_group;
extern const group sched_grouped_group;
extern const group sched_evicted_group;
extern const group sched_reclaimed_group;
extern const group sched_grouped_evicted_group;
extern const group sched_host_group;
extern const group sched_states_group;
extern const group caches_group;
extern const group follow_group;
extern const group record_group;
extern const group wire_group;
extern const group memory_group;
extern const group meta_group;
extern const group swap_group;
extern const group copy_64k_group;
extern const group copy_1m_group;
extern const group transfer_group;
extern const group transfer_tcp_group;
extern const group store_64k_group;
extern const group store_512k_group;
extern const group store_2m_group;
extern const group store_redis_512k_group;
extern const group store_redis_2m_group;
extern const group store_open_1m_group;
extern const group store_open_50k_group;
extern const group store_keys_group;
extern const group store_miss_group;
extern const group store_full_group;
extern const group store_step_group;
extern const group spill_long_group;
extern const group attn_f32_1t_group;
extern const group attn_f32_2t_group;
extern const group attn_f16_1t_group;
extern const group attn_f16_2t_group;
extern const group attn_bf16_1t_group;
extern const group attn_bf16_2t_group;
extern const group attn_int8_1t_group;
extern const group attn_int8_2t_group;
extern const group attn_small_group;
extern const group attn_latent_group;
extern const group attn_cascade_group;
extern const group attn_prefill_group;

typedef struct result {
    const char *name;
    const char *unit;
    const char *note;
    double aim;
    double median;
    double min;
    double max;
    double spread;           /* (third quartile - first quartile) / median */
    double yardstick_median; /* < 0: none */
} result;

/* measure.c: takes the samples. The yardstick's state may be the same one. */
result measure(const measurement *what, void *state, void *yardstick_state,
               const bench_options *options);

/* Ascending; then the value at a fraction of them, between two in proportion. */
void sort_samples(double *samples, uint32_t n);
double quantile(const double *sorted, uint32_t n, double fraction);

/* count.c: takes one sample and lets callgrind count its instructions. */
void count_sample(const measurement *what, void *state);

/* A monotonic clock, ns. Reading it costs 20 to 40 ns: put many short calls between two. */
uint64_t now_ns(void);

/* machine.c: what it ran on, for people and for the results' file. */
void print_machine(FILE *file);

/* Memory that the system could give; SIZE_MAX: it does not say. */
size_t available_bytes(void);

/* How much memory the system gave as huge pages: noted when a cache is made, printed at the end. */
void note_huge_pages(void);
void print_huge_pages(FILE *file);

/* flush.c: takes [at, at + n_bytes) out of every CPU cache, all levels. */
void flush_caches(const void *at, size_t n_bytes);
const char *flush_method(void);

/* End the program with a message that names the result that is wrong: a number is worth nothing if
 * what was timed did not do what it should. */
#define REQUIRE(condition) require_true((condition), #condition, __FILE__, __LINE__)
#define REQUIRE_OK(call)   require_ok((call), #call, __FILE__, __LINE__)
void require_true(bool condition, const char *text, const char *file, int line);
void require_ok(kvp_status status, const char *text, const char *file, int line);
void *allocate(size_t n_bytes);

#endif
