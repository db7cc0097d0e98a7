/* tenants: a short array, searched from its beginning. */
#include "tenants.h"
#include "cache_disk.h"

#include <stdlib.h>
#include <string.h>

int kvpi_tenants_init(kvpi_tenants *tenants, kvp_cache *cache, uint32_t max_tenants)
{
    memset(tenants, 0, sizeof *tenants);
    tenants->cache = cache;
    tenants->n = max_tenants;
    tenants->places = calloc((size_t)max_tenants + 1, sizeof *tenants->places);
    if (tenants->places == NULL)
        return -1;
    tenants->places[0].used = 1;
    tenants->now = 1;
    return 0;
}

void kvpi_tenants_note(void *context, const void *salt, size_t salt_bytes)
{
    kvpi_tenants *tenants = context;
    uint32_t i = 1;
    while (i <= tenants->n && tenants->places[i].used > 0)
        i++;
    if (i > tenants->n || salt_bytes == 0 || salt_bytes > KVPI_SALT_BYTES_MOST)
        return;
    memcpy(tenants->places[i].salt, salt, salt_bytes);
    tenants->places[i].salt_bytes = salt_bytes;
    tenants->places[i].used = ++tenants->now;
}

static int open_namespace(kvpi_tenants *tenants, const char *salt, size_t salt_bytes, kvp_ns *ns)
{
    if (kvp_ns_open(tenants->cache, salt, salt_bytes, ns) != KVP_OK)
        return -1;
    if (tenants->engine != NULL)
        kvpi_cache_disk_enter(tenants->engine, *ns, salt, salt_bytes);
    return 0;
}

static void close_namespace(kvpi_tenants *tenants, kvp_ns ns)
{
    if (tenants->engine != NULL)
        kvpi_cache_disk_leave(tenants->engine, ns);
    (void)kvp_ns_close(tenants->cache, ns);
}

/* The cache has room for n namespaces. If the record of the empty salt's was damaged, others can
 * have all of it: then the newest is forgotten. */
int kvpi_tenants_open(kvpi_tenants *tenants)
{
    kvpi_tenant *places = tenants->places, *last = &places[tenants->n];
    for (uint32_t i = 1; i <= tenants->n; i++)
        if (places[i].used > 0 &&
            open_namespace(tenants, places[i].salt, places[i].salt_bytes, &places[i].ns) != 0)
            places[i].used = 0;
    if (last->used > 0)
        close_namespace(tenants, last->ns);
    return open_namespace(tenants, "", 0, &places[0].ns);
}

void kvpi_tenants_end(kvpi_tenants *tenants)
{
    free(tenants->places);
    memset(tenants, 0, sizeof *tenants);
}

static int has_salt(const kvpi_tenant *place, const char *salt, size_t salt_bytes)
{
    return place->used > 0 && place->salt_bytes == salt_bytes &&
           (salt_bytes == 0 || memcmp(place->salt, salt, salt_bytes) == 0);
}

/* A free place, else the one that has been idle for longest; place 0 stays. */
static kvpi_tenant *find_place(kvpi_tenants *tenants)
{
    kvpi_tenant *found = NULL;
    for (uint32_t i = 1; i < tenants->n; i++) {
        kvpi_tenant *place = &tenants->places[i];
        if (place->n_jobs == 0 && (found == NULL || place->used < found->used))
            found = place;
    }
    return found;
}

int32_t kvpi_tenants_enter(kvpi_tenants *tenants, const char *salt, size_t salt_bytes)
{
    kvpi_tenant *place = NULL;
    for (uint32_t i = 0; i < tenants->n && place == NULL; i++)
        if (has_salt(&tenants->places[i], salt, salt_bytes))
            place = &tenants->places[i];
    if (place == NULL) {
        place = find_place(tenants);
        if (place == NULL)
            return -1;
        if (place->used > 0)
            close_namespace(tenants, place->ns);
        place->used = 0;
        if (open_namespace(tenants, salt, salt_bytes, &place->ns) != 0)
            return -1;
        memcpy(place->salt, salt, salt_bytes);
        place->salt_bytes = salt_bytes;
    }
    place->n_jobs++;
    place->used = ++tenants->now;
    return (int32_t)(place - tenants->places);
}

void kvpi_tenants_leave(kvpi_tenants *tenants, uint32_t place)
{
    tenants->places[place].n_jobs--;
    tenants->places[place].used = ++tenants->now;
}
