/* redis: the back end that keeps records on a Redis or Valkey server. libkvpager_redis has it, and
 * libkvpager_store loads that library when a URL says redis:. */
#ifndef KVPI_STORE_REDIS_REDIS_H
#define KVPI_STORE_REDIS_REDIS_H

#include "store/backend.h"
#include "store/redis/link/net.h"

extern KVP_API const struct kvpi_backend kvpi_redis_backend;

/* As kvpi_backend.open, over these sockets. */
kvp_status kvpi_redis_open(const struct kvpi_backend_config *config, const struct kvpi_net *net,
                           void **out_self, char *out_why, size_t why_bytes);

/* As kvpi_backend.walk, over these sockets: all records of all servers, for operators. SCAN, then
 * what the callbacks ask for, over connections of its own. It blocks. */
kvp_status kvpi_redis_walk(const struct kvpi_net *net, struct kvpi_url *url,
                           const struct kvpi_walk *walk, char *out_why, size_t why_bytes);

#endif
