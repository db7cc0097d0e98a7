/* random_disk: a disk for the random engines. The store is one in memory that outlives engines, and
 * between it and the engine sits a disk that fails: it is late, refuses, fails, loses, tells that
 * it has what it has not, and hands out damaged bytes for records that it calls bad. */
#ifndef KVP_TEST_RANDOM_DISK_H
#define KVP_TEST_RANDOM_DISK_H

#include <kvpager/llama.h>

typedef struct random_disk_totals {
    uint64_t engines;
    uint64_t written; /* records */
    uint64_t loaded;  /* requests */
    uint64_t loaded_tokens;
    uint64_t nothing;
    uint64_t slow;
    uint64_t no_room;
    uint64_t failed;
    uint64_t late;
    uint64_t aborted;
    uint64_t off;
    uint64_t restarts; /* without a snapshot */
} random_disk_totals;

#ifdef KVP_RANDOM_DISK

/* From now on: faults at this rate of 1000. The store of the engine before is gone. */
void random_disk_begin(uint64_t seed, uint32_t rate);

/* For an engine that has just been made, with the content that the last one since `begin` left. */
void random_disk_open(kvp_llama *engine, uint64_t max_wait_ns);
void random_disk_name(kvp_llama *engine, kvp_ns ns, const char *name);
void random_disk_add(const kvp_llama *engine, random_disk_totals *totals);

#else

static inline void random_disk_begin(uint64_t seed, uint32_t rate)
{
    (void)seed, (void)rate;
}

static inline void random_disk_open(kvp_llama *engine, uint64_t max_wait_ns)
{
    (void)engine, (void)max_wait_ns;
}

static inline void random_disk_name(kvp_llama *engine, kvp_ns ns, const char *name)
{
    (void)engine, (void)ns, (void)name;
}

static inline void random_disk_add(const kvp_llama *engine, random_disk_totals *totals)
{
    (void)engine, (void)totals;
}

#endif
#endif
