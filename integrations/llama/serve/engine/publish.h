/* publish: --publish, what is cached for routers (kvpager/publish.h). A thread reads the cache's
 * events beside the engine's, sends them, and answers routers. The engine does nothing but a
 * resync when more happened in a step than the cache remembers. Only the namespace of requests
 * without cache_salt is published. Without the option, nothing here does anything; a build without
 * libkvpager_zmq refuses it.
 */
#ifndef KVPI_SERVE_PUBLISH_H
#define KVPI_SERVE_PUBLISH_H

#include "../options.h"

#include <kvpager/all.h>

#include <pthread.h>
#include <stdatomic.h>

struct kvp_publisher;

typedef struct kvpi_publish {
    struct kvp_publisher *publisher; /* NULL: none */
    kvp_cache *cache;
    pthread_t thread;
    pthread_mutex_t mutex; /* of the publisher */
    atomic_int is_stopped;
    atomic_int is_behind;         /* until the engine's thread has resynced */
    pthread_mutex_t *wakes_mutex; /* the engine's thread waits for jobs on these */
    pthread_cond_t *wakes;
} kvpi_publish;

enum { KVPI_PUBLISH_EVENTS = 65536 }; /* that the cache remembers */

/* Binds the sockets and starts the thread; what is cached already goes out. -1: `out_why` says why.
 * By the engine's thread, or before there is one. */
int kvpi_publish_start(kvpi_publish *publish, kvp_cache *cache, const kvpi_options *options,
                       kvp_why *out_why);

/* Between steps, by the engine's thread. */
void kvpi_publish_step(kvpi_publish *publish);

/* Does the engine's thread have something to do? */
int kvpi_publish_waits(const kvpi_publish *publish);

/* While there is a cache, and its thread has ended. */
void kvpi_publish_stop(kvpi_publish *publish);

#endif
