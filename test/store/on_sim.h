/* The file store of a test program on a simulated disk, without a thread, on the test's clock.
 * After cmocka.h. */
#ifndef KVP_TEST_STORE_ON_SIM_H
#define KVP_TEST_STORE_ON_SIM_H

#include "sim_disk.h"
#include "store/file/store_file.h"

static struct sim_disk *sim;
static struct kvpi_disk below; /* sim's */
static struct kvpi_disk disk;  /* what the store sees: a test may put its own calls between */
static uint64_t now;           /* nanoseconds */
static uint64_t tick;          /* that pass with each look at the clock */

static inline uint64_t test_clock(void *context)
{
    (void)context;
    now += tick;
    return now;
}

static inline kvp_status open_on_sim(const struct kvpi_backend_config *config, void **out_self,
                                     char *out_why, size_t why_bytes)
{
    const struct kvpi_engine_config engine = {.choice = KVPI_ENGINE_THREADS};
    return kvpi_file_open(config, &disk, &engine, out_self, out_why, why_bytes);
}

static inline void make_sim(uint64_t seed)
{
    sim = sim_disk_create(seed);
    below = disk = sim_disk_interface(sim);
}

static inline const struct kvpi_backend *on_sim(void)
{
    static struct kvpi_backend backend;
    backend = kvpi_file_backend;
    backend.open = open_on_sim;
    return &backend;
}

/* backend NULL: the URL's own. */
static inline kvp_store *open_or_fail(const kvp_store_config *config,
                                      const struct kvpi_backend *backend)
{
    kvp_store *store = NULL;
    char why[300];
    if (kvpi_store_open(config, backend, &store, why, sizeof why) != KVP_OK)
        fail_msg("%s", why);
    return store;
}

static inline kvp_store_stats stats_of(const kvp_store *store)
{
    kvp_store_stats stats;
    assert_int_equal(kvp_store_stats_get(store, &stats), KVP_OK);
    return stats;
}

static inline void end_sim(kvp_store *store)
{
    kvp_store_close(store);
    sim_disk_destroy(sim);
}

static inline void end_sim_of(kvp_store **store)
{
    end_sim(*store);
}

#define scoped_sim_store ENDED_BY(end_sim_of) kvp_store

#endif
