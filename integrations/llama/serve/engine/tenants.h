/* tenants: namespaces of the cache by cache_salt. Tenants share no cells, so that none can infer
 * from the time of an answer what another one has asked. The empty salt is shared by all.
 *
 * There are max_tenants at once. If all are taken, the one that has been idle for longest is closed
 * and forgets what it has cached. */
#ifndef KVPI_SERVE_TENANTS_H
#define KVPI_SERVE_TENANTS_H

#include "job.h"

typedef struct kvpi_tenant {
    kvp_ns ns;
    char salt[KVPI_SALT_BYTES_MOST + 1];
    size_t salt_bytes;
    uint32_t n_jobs;
    uint64_t used; /* when a job last came or went, in numbers that rise; 0: a free place */
} kvpi_tenant;

typedef struct kvpi_tenants {
    kvp_cache *cache;
    kvp_llama *engine;   /* of the cache, for its disk; NULL: none */
    kvpi_tenant *places; /* [n + 1]; number 0 is the empty salt's, the last one only `note`'s */
    uint32_t n;
    uint64_t now;
} kvpi_tenants;

/* -1: no memory. */
int kvpi_tenants_init(kvpi_tenants *tenants, kvp_cache *cache, uint32_t max_tenants);
void kvpi_tenants_end(kvpi_tenants *tenants);

/* Notes a namespace of a snapshot, for kvp_llama_load. Oldest first. */
void kvpi_tenants_note(void *tenants, const void *salt, size_t salt_bytes);

/* Opens the empty salt's namespace, and those that were noted. -1: the cache gave none. */
int kvpi_tenants_open(kvpi_tenants *tenants);

/* Gives the place of a salt, which then has one job more; -1: all places have jobs. */
int32_t kvpi_tenants_enter(kvpi_tenants *tenants, const char *salt, size_t salt_bytes);
void kvpi_tenants_leave(kvpi_tenants *tenants, uint32_t place);

#endif
