/* disk_names: what KV on the disk is known by. */
#include "disk.h"

#include "../snapshot.h"

#include <string.h>

enum { SUM_TOKENS = 64, SUM_BYTES = SUM_TOKENS * 4 };

/* ---------------------------------------------------------------------------------- fingerprint */

/* A digest of bytes, of how many they are, and of what `sum` stood for. SHA-256 is public for
 * blocks of tokens: the last one is filled up with zeros. */
static kvp_status add(kvp_digester *digester, const void *bytes, size_t n, kvp_digest *sum)
{
    int32_t tokens[SUM_TOKENS] = {0};
    const uint64_t n_bytes = n;
    const kvp_hash_input input = {
        .unit_tokens = SUM_TOKENS, .n_tokens = SUM_TOKENS, .tokens = tokens};
    kvp_digest next;
    memcpy(tokens, &n_bytes, sizeof n_bytes);
    kvp_status status = kvp_digest_blocks(digester, &input, sum, &next);
    for (size_t at = 0; at < n && status == KVP_OK; at += SUM_BYTES) {
        const size_t n_part = n - at < SUM_BYTES ? n - at : SUM_BYTES;
        *sum = next;
        memset(tokens, 0, sizeof tokens);
        memcpy(tokens, (const uint8_t *)bytes + at, n_part);
        status = kvp_digest_blocks(digester, &input, sum, &next);
    }
    *sum = next;
    return status;
}

static kvp_status add_text(kvp_digester *digester, const char *text, kvp_digest *sum)
{
    return add(digester, text, strlen(text), sum);
}

kvp_status kvpi_disk_names_fingerprint(kvpi_disk *disk, const kvp_llama *engine, const char *model)
{
    static const char mark[] = "kvpager llama.cpp disk 1";
    const kvp_hash metadata = kvpi_snapshot_fingerprint(engine, NULL);
    const uint64_t numbers[] = {LLAMA_SESSION_VERSION, LLAMA_STATE_SEQ_VERSION, disk->record_tokens,
                                disk->state_bytes};
    const char *texts[] = {mark, model, ggml_version(), ggml_commit(), llama_print_system_info()};
    kvp_digest sum;
    memset(&sum, 0, sizeof sum);
    kvp_status status = add(disk->digester, numbers, sizeof numbers, &sum);
    if (status == KVP_OK)
        status = add(disk->digester, metadata.bytes, sizeof metadata.bytes, &sum);
    for (size_t i = 0; i < sizeof texts / sizeof *texts && status == KVP_OK; i++)
        status = add_text(disk->digester, texts[i], &sum);
    disk->fingerprint = sum;
    return status;
}

/* ----------------------------------------------------------------------------------- namespaces */

const kvpi_space *kvpi_disk_names_find(const kvpi_disk *disk, kvp_ns ns)
{
    for (uint32_t i = 0; i < disk->n_spaces && ns.bits != 0; i++)
        if (disk->spaces[i].ns.bits == ns.bits)
            return &disk->spaces[i];
    return NULL;
}

static kvpi_space *find_place(kvpi_disk *disk, kvp_ns ns)
{
    for (uint32_t i = 0; i < disk->n_spaces; i++)
        if (disk->spaces[i].ns.bits == ns.bits)
            return &disk->spaces[i];
    return NULL;
}

kvp_status kvp_llama_disk_space(kvp_llama *engine, kvp_ns ns, const void *name, size_t name_bytes,
                                uint64_t epoch)
{
    const kvp_ns none = {0};
    kvpi_space space = {.ns = ns};
    if (engine == NULL || ns.bits == 0)
        return KVP_E_ARG;
    kvpi_disk *disk = engine->disk;
    if (disk == NULL)
        return KVP_E_STATE;
    kvp_status status =
        kvp_digest_root(disk->digester, &disk->fingerprint, name, name_bytes, epoch, &space.root);
    if (status == KVP_OK)
        status = kvp_namespace_number(disk->digester, name, name_bytes, &space.number);
    if (status != KVP_OK)
        return status;
    kvpi_space *place = find_place(disk, ns);
    if (place == NULL)
        place = find_place(disk, none);
    if (place == NULL)
        return KVP_E_NO_NAMESPACES;
    *place = space;
    return KVP_OK;
}

void kvp_llama_disk_space_close(kvp_llama *engine, kvp_ns ns)
{
    kvpi_space *place = NULL;
    if (engine != NULL && engine->disk != NULL && ns.bits != 0)
        place = find_place(engine->disk, ns);
    if (place != NULL)
        memset(place, 0, sizeof *place);
}

/* -------------------------------------------------------------------------------------- records */

kvp_identity kvpi_disk_names_identity(const kvpi_disk *disk, const kvpi_space *space,
                                      uint32_t number, const int32_t *tokens)
{
    kvp_identity identity;
    memset(&identity, 0, sizeof identity);
    identity.kind = KVP_IDENTITY_TOKENS;
    identity.slice = (kvp_slice){.n_layers = 1, .n_heads = 1};
    identity.fingerprint = disk->fingerprint;
    identity.space = space->number;
    identity.position = number * disk->record_tokens;
    identity.block_tokens = disk->record_tokens;
    identity.n_blocks = 1;
    identity.tokens = tokens;
    return identity;
}

kvp_status kvpi_disk_names_key(kvpi_disk *disk, const kvp_digest *digest, kvp_digest *out_key)
{
    const kvp_slice slice = {.n_layers = 1, .n_heads = 1};
    return kvp_record_key(disk->digester, digest, 0, &slice, out_key);
}

/* ---------------------------------------------------------------------- what the store has */

static uint64_t part_of(const kvp_digest *key)
{
    uint64_t part;
    memcpy(&part, key->bytes, sizeof part);
    return part;
}

static uint64_t count_gone(const kvp_store_stats *stats)
{
    return stats->evicted + stats->dropped + stats->expired;
}

int kvpi_disk_names_is_known(const kvpi_disk *disk, const kvp_digest *key)
{
    kvp_store_stats stats;
    const uint64_t part = part_of(key), place = part % KVPI_KNOWN;
    return disk->known[place] == part && kvp_store_stats_get(disk->store, &stats) == KVP_OK &&
           count_gone(&stats) - disk->known_at[place] <= stats.records / 2;
}

void kvpi_disk_names_note(kvpi_disk *disk, const kvp_digest *key)
{
    kvp_store_stats stats;
    const uint64_t part = part_of(key), place = part % KVPI_KNOWN;
    if (kvp_store_stats_get(disk->store, &stats) != KVP_OK)
        return;
    disk->known[place] = part;
    disk->known_at[place] = count_gone(&stats);
}

void kvpi_disk_names_forget(kvpi_disk *disk, const kvp_digest *key)
{
    const uint64_t part = part_of(key);
    if (disk->known[part % KVPI_KNOWN] == part)
        disk->known[part % KVPI_KNOWN] = 0;
}
