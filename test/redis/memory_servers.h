/* A store on servers in memory (fuzz/redis_server.h), which answer as they should until they are
 * told otherwise. Without a thread it lives in simulated time. */
#ifndef KVP_TEST_REDIS_MEMORY_SERVERS_H
#define KVP_TEST_REDIS_MEMORY_SERVERS_H

#include "redis_records.h"

#include "../../fuzz/redis_server.h"
#include "store/redis/ages.h"
#include "store/redis/redis_map.h"

#define SECOND UINT64_C(1000000000)

enum { TAGS = 512 };

static uint64_t simulated_ns;
static const struct kvpi_net *memory_net;

static inline uint64_t simulated_clock(void *context)
{
    (void)context;
    return simulated_ns;
}

static inline kvp_status open_on_net(const struct kvpi_backend_config *config, void **out_self,
                                     char *out_why, size_t why_bytes)
{
    return kvpi_redis_open(config, memory_net, out_self, out_why, why_bytes);
}

/* In a cluster the second server has the upper half of all slots, and this name. */
static inline kvp_store *open_in_memory(const char *url, const struct kvpi_net *net,
                                        uint32_t threads, const char *second_host)
{
    static struct redis_input nothing;
    static struct kvpi_backend backend;
    kvp_store_config config = config_of(url);
    kvp_store *store = NULL;
    char why[300];
    backend = kvpi_redis_backend;
    backend.open = open_on_net;
    memory_net = net;
    simulated_ns = 1000 * SECOND;
    config.threads = threads;
    if (threads == 0)
        config.now = simulated_clock;
    redis_server_begin(&nothing, second_host != NULL);
    redis_server_is_patient(1);
    if (second_host)
        redis_server_host(second_host);
    if (kvpi_store_open(&config, &backend, &store, why, sizeof why) != KVP_OK)
        fail_msg("%s", why);
    return store;
}

/* A record of the first (0) or second (1) server of a cluster. */
static inline void record_of(struct record *out_record, int server)
{
    const struct kvpi_ages ages = {.tags = TAGS, .is_large = BLOCKS_ARE_LARGE};
    unsigned chain = 1;
    do
        make_record(out_record, chain++, 0, NULL);
    while ((kvpi_map_slot(kvpi_ages_tag(&ages, &out_record->key)) >= KVPI_MAP_SLOTS / 2) != server);
}

static inline void expect_text(const kvp_store *store, const char *words)
{
    char text[400];
    assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
    if (!strstr(text, words))
        fail_msg("%s", text);
}

#endif
