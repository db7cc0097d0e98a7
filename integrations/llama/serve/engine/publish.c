/* publish: see publish.h. */
#define _POSIX_C_SOURCE 200809L

#include "publish.h"

#include "../../src/models.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#ifdef KVP_SERVE_PUBLISH

#include <kvpager/publish.h>

enum { PAUSE_NS = 5000000 };

static uint64_t now_ns(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

/* The engine's thread may wait for jobs: it has to look. */
static void ask_for_resync(kvpi_publish *publish)
{
    atomic_store(&publish->is_behind, 1);
    (void)pthread_mutex_lock(publish->wakes_mutex);
    (void)pthread_cond_signal(publish->wakes);
    (void)pthread_mutex_unlock(publish->wakes_mutex);
}

static void *run_publisher(void *argument)
{
    kvpi_publish *publish = argument;
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    int is_busy = 0;
    while (!atomic_load(&publish->is_stopped)) {
        kvp_status status = KVP_OK;
        (void)pthread_mutex_lock(&publish->mutex);
        if (!atomic_load(&publish->is_behind))
            status = kvp_publisher_read(publish->publisher, publish->cache, now_ns());
        (void)kvp_publisher_work(publish->publisher, now_ns(), &is_busy);
        (void)pthread_mutex_unlock(&publish->mutex);
        if (status == KVP_E_BEHIND)
            ask_for_resync(publish);
        if (!is_busy)
            (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

static int refuse(kvp_why *why, const char *text)
{
    (void)kvpi_models_say(why, "--publish", text);
    return -1;
}

static kvp_status open_publisher(kvpi_publish *publish, const kvpi_options *options,
                                 const kvp_config *cache, char *why, size_t why_bytes)
{
    kvp_publisher_config config;
    kvp_publisher_config_init(&config);
    config.endpoint = options->publish;
    config.replay_endpoint = options->publish_replay;
    config.topic = options->publish_topic != NULL ? options->publish_topic : "";
    config.form = options->publish_as & KVPI_AS_ARRAYS ? KVP_PUBLISH_ARRAYS : KVP_PUBLISH_MAPS;
    config.hashes = options->publish_as & KVPI_AS_VLLM_HASHES ? KVP_PUBLISH_VLLM : KVP_PUBLISH_OWN;
    config.media = options->publish_as & KVPI_AS_SGLANG_MEDIA ? KVP_PUBLISH_MEDIA_SGLANG
                                                              : KVP_PUBLISH_MEDIA_VLLM;
    config.replay_form = options->publish_as & KVPI_AS_PLAIN_REPLAY ? KVP_PUBLISH_REPLAY_PLAIN
                                                                    : KVP_PUBLISH_REPLAY_TOPIC;
    config.unit_tokens = cache->unit_tokens;
    config.max_units = 2 * (cache->n_blocks + cache->host_blocks) + 2;
    config.first_number = now_ns() / 1000;
    return kvp_publisher_open(&config, &publish->publisher, why, why_bytes);
}

/* The namespace of requests without a salt has the empty name. */
static kvp_status name_space(const kvpi_publish *publish, const kvp_config *cache)
{
    kvp_hash root;
    const kvp_status status = kvp_hash_root(cache->unit_tokens, cache->hash_seed, NULL, 0, &root);
    return status != KVP_OK ? status : kvp_publisher_space(publish->publisher, &root, NULL);
}

int kvpi_publish_start(kvpi_publish *publish, kvp_cache *cache, const kvpi_options *options,
                       kvp_why *out_why)
{
    kvp_config config;
    char why[sizeof out_why->text];
    if (options->publish == NULL)
        return 0;
    if (kvp_cache_config_get(cache, &config) != KVP_OK ||
        open_publisher(publish, options, &config, why, sizeof why) != KVP_OK)
        return refuse(out_why, why);
    publish->cache = cache;
    (void)pthread_mutex_init(&publish->mutex, NULL);
    if (name_space(publish, &config) == KVP_OK &&
        kvp_publisher_resync(publish->publisher, cache, now_ns()) == KVP_OK &&
        pthread_create(&publish->thread, NULL, run_publisher, publish) == 0)
        return 0;
    (void)pthread_mutex_destroy(&publish->mutex);
    kvp_publisher_close(publish->publisher);
    publish->publisher = NULL;
    return refuse(out_why, "no memory, or no thread");
}

void kvpi_publish_step(kvpi_publish *publish)
{
    if (publish->publisher == NULL || !atomic_load(&publish->is_behind))
        return;
    (void)pthread_mutex_lock(&publish->mutex);
    if (kvp_publisher_resync(publish->publisher, publish->cache, now_ns()) == KVP_OK)
        atomic_store(&publish->is_behind, 0);
    (void)pthread_mutex_unlock(&publish->mutex);
}

void kvpi_publish_stop(kvpi_publish *publish)
{
    if (publish->publisher == NULL)
        return;
    atomic_store(&publish->is_stopped, 1);
    (void)pthread_join(publish->thread, NULL);
    (void)pthread_mutex_destroy(&publish->mutex);
    kvp_publisher_close(publish->publisher);
    publish->publisher = NULL;
}

#else

int kvpi_publish_start(kvpi_publish *publish, kvp_cache *cache, const kvpi_options *options,
                       kvp_why *out_why)
{
    (void)publish, (void)cache;
    if (options->publish == NULL)
        return 0;
    (void)kvpi_models_say(out_why, "--publish",
                          "this build has no publisher: libkvpager_zmq was "
                          "left out");
    return -1;
}

void kvpi_publish_step(kvpi_publish *publish)
{
    (void)publish;
}

void kvpi_publish_stop(kvpi_publish *publish)
{
    (void)publish;
}

#endif

int kvpi_publish_waits(const kvpi_publish *publish)
{
    return publish->publisher != NULL && atomic_load(&publish->is_behind) != 0;
}
