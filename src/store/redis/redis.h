/* redis: the back end that keeps records on a Redis or Valkey server. libkvpager_redis has it, and
 * libkvpager_store loads that library when a URL says redis:. */
#ifndef KVPI_STORE_REDIS_REDIS_H
#define KVPI_STORE_REDIS_REDIS_H

#include "store/backend.h"

extern KVP_API const struct kvpi_backend kvpi_redis_backend;

#endif
