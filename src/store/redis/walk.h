/* walk: all records of all servers, for operators: SCAN, then what the callbacks ask for. It has
 * connections of its own, and blocks. */
#ifndef KVPI_STORE_REDIS_WALK_H
#define KVPI_STORE_REDIS_WALK_H

#include "store/backend.h"

/* As kvpi_backend.walk. */
kvp_status kvpi_walk_redis(struct kvpi_url *url, const struct kvpi_walk *walk, char *out_why,
                           size_t why_bytes);

#endif
