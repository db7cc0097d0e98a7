/* epochs: namespaces by name and epoch, as the store knows them. A serial stands for one of
 * them; what was begun under it is void when it has gone. */
#include "spill/load/spill_load.h"

#include <string.h>

const struct kvpi_spill_space *kvpi_epochs_find(const kvp_spill *spill, kvp_ns ns)
{
    for (uint32_t i = 0; i < spill->cache.max_namespaces; i++) {
        if (spill->spaces[i].ns.bits == ns.bits && ns.bits != 0) {
            return &spill->spaces[i];
        }
    }
    return NULL;
}

const struct kvpi_spill_space *kvpi_epochs_serial(const kvp_spill *spill, uint64_t serial)
{
    for (uint32_t i = 0; i < spill->cache.max_namespaces; i++) {
        if (spill->spaces[i].serial == serial && spill->spaces[i].ns.bits != 0) {
            return &spill->spaces[i];
        }
    }
    return NULL;
}

/* What was begun for the namespace until now is void. */
static void end_serial(kvp_spill *spill, uint64_t serial)
{
    for (uint32_t i = 0; i < spill->n_queue; i++) {
        struct kvpi_spill_ask *ask = &spill->asks[spill->queue[i]];
        if (ask->space == serial) {
            kvpi_answers_void(spill, ask, KVP_SPILL_NOTHING);
        }
    }
    kvpi_writes_forget(spill, serial, 0);
}

static struct kvpi_spill_space *place_for(kvp_spill *spill, kvp_ns ns)
{
    struct kvpi_spill_space *place = NULL;
    for (uint32_t i = spill->cache.max_namespaces; i > 0; i--) {
        struct kvpi_spill_space *space = &spill->spaces[i - 1];
        if (space->ns.bits == ns.bits) {
            return space;
        }
        if (space->ns.bits == 0) {
            place = space;
        }
    }
    return place;
}

kvp_status kvp_spill_space(kvp_spill *spill, kvp_ns ns, const void *name, size_t name_bytes,
                           uint64_t epoch)
{
    struct kvpi_spill_space made = {.ns = ns};
    if (spill == NULL || ns.bits == 0 || (name == NULL && name_bytes > 0) ||
        name_bytes > KVP_NAME_MAX_BYTES) {
        return KVP_E_ARG;
    }
    struct kvpi_spill_space *space = place_for(spill, ns);
    if (space == NULL) {
        return KVP_E_NO_NAMESPACES;
    }
    kvp_status status = kvp_digest_root(spill->digester, &spill->config.fingerprint, name,
                                        name_bytes, epoch, &made.root);
    if (status == KVP_OK) {
        status = kvp_namespace_number(spill->digester, name, name_bytes, &made.number);
    }
    if (status != KVP_OK) {
        return status;
    }
    if (space->ns.bits == ns.bits) {
        if (memcmp(&space->root, &made.root, sizeof(made.root)) == 0) {
            return KVP_OK;
        }
        end_serial(spill, space->serial);
    }
    made.serial = ++spill->serial;
    *space = made;
    return KVP_OK;
}

kvp_status kvp_spill_space_close(kvp_spill *spill, kvp_ns ns)
{
    if (spill == NULL) {
        return KVP_E_ARG;
    }
    struct kvpi_spill_space *space =
        kvpi_epochs_find(spill, ns) == NULL ? NULL : place_for(spill, ns);
    if (space == NULL) {
        return KVP_E_STATE;
    }
    end_serial(spill, space->serial);
    memset(space, 0, sizeof(*space));
    return KVP_OK;
}
