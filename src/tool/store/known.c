/* Owns a table of records by the first bytes of their keys, which are as good as a hash. */
#include "tool/store/known.h"

#include <stdlib.h>
#include <string.h>

#define MIN_SLOTS 1024u

typedef struct slot {
    uint64_t name; /* 0: empty */
    kvpi_watch_record record;
} slot;

struct kvpi_known {
    kvp_digester *digester;
    kvp_digest root;
    uint32_t block_tokens;
    uint32_t record_blocks;
    uint64_t now;
    slot *slots; /* [n_slots], a power of two; at most half are used */
    size_t n_slots;
    size_t n_used;
    bool is_short;              /* of memory: something was not noted */
    kvp_digest *digests;        /* [capacity] of blocks of one prompt */
    kvpi_watch_record *records; /* [capacity] likewise */
    uint32_t capacity;
};

/* ----------------------------------------------------------------------------------- the table */

static uint64_t name_of(const uint8_t *key)
{
    uint64_t name;
    memcpy(&name, key, sizeof name);
    return name | 1;
}

static slot *find(const kvpi_known *known, uint64_t name)
{
    size_t at = (size_t)(name >> 1) & (known->n_slots - 1);
    while (known->slots[at].name != 0 && known->slots[at].name != name)
        at = (at + 1) & (known->n_slots - 1);
    return &known->slots[at];
}

static bool grow(kvpi_known *known)
{
    const size_t n_before = known->n_slots;
    slot *before = known->slots;
    known->n_slots = n_before == 0 ? MIN_SLOTS : 2 * n_before;
    known->slots = calloc(known->n_slots, sizeof *known->slots);
    if (known->slots == NULL) {
        known->slots = before;
        known->n_slots = n_before;
        return false;
    }
    for (size_t i = 0; i < n_before; i++)
        if (before[i].name != 0)
            *find(known, before[i].name) = before[i];
    free(before);
    return true;
}

static void comes(kvpi_known *known, uint64_t name)
{
    if (2 * known->n_used >= known->n_slots && !grow(known)) {
        known->is_short = true;
        return;
    }
    slot *at = find(known, name);
    known->n_used += at->name == 0;
    at->name = name;
    at->record = (kvpi_watch_record){.is_there = true, .was_there = true};
}

static void goes(kvpi_known *known, uint64_t name, bool is_dated)
{
    slot *at = find(known, name);
    if (at->name == 0 || !at->record.is_there)
        return;
    at->record = (kvpi_watch_record){
        .was_there = true, .is_dated = is_dated, .gone_at = is_dated ? known->now : 0};
}

void kvpi_known_note(void *known, const kvp_digest *key, int is_there)
{
    if (is_there)
        comes(known, name_of(key->bytes));
    else
        goes(known, name_of(key->bytes), false);
}

void kvpi_known_leaves(void *known, const uint8_t *key)
{
    goes(known, name_of(key), true);
}

void kvpi_known_at(kvpi_known *known, uint64_t now)
{
    known->now = now;
}

/* ----------------------------------------------------------------------------------- a prompt */

static bool make_room(kvpi_known *known, uint32_t n)
{
    if (n <= known->capacity)
        return true;
    free(known->digests);
    free(known->records);
    known->digests = malloc(n * sizeof *known->digests);
    known->records = malloc(n * sizeof *known->records);
    known->capacity = known->digests != NULL && known->records != NULL ? n : 0;
    return known->capacity == n;
}

kvp_status kvpi_known_tell(kvpi_known *known, const int32_t *tokens, uint32_t n_tokens,
                           kvpi_watch_store *out)
{
    const uint32_t n = n_tokens / known->block_tokens / known->record_blocks;
    const kvp_hash_input input = {.unit_tokens = known->block_tokens,
                                  .n_tokens = n * known->record_blocks * known->block_tokens,
                                  .tokens = tokens};
    *out = (kvpi_watch_store){.record_tokens = known->record_blocks * known->block_tokens};
    if (known->is_short || !make_room(known, n * known->record_blocks))
        return KVP_E_NO_MEMORY;
    kvp_status status =
        n == 0 ? KVP_OK : kvp_digest_blocks(known->digester, &input, &known->root, known->digests);
    for (uint32_t r = 0; r < n && status == KVP_OK; r++) {
        kvp_digest key;
        status =
            kvp_record_key(known->digester, &known->digests[(r + 1) * known->record_blocks - 1], 0,
                           &kvpi_known_slice, &key);
        if (status == KVP_OK)
            known->records[r] = find(known, name_of(key.bytes))->record;
    }
    out->records = known->records;
    out->n_records = n;
    return status;
}

/* ------------------------------------------------------------------------------- open, close */

kvp_status kvpi_known_open(const kvp_digest *fingerprint, uint32_t block_tokens,
                           uint32_t record_blocks, kvpi_known **out)
{
    kvpi_known *known = calloc(1, sizeof *known);
    if (known == NULL)
        return KVP_E_NO_MEMORY;
    known->block_tokens = block_tokens;
    known->record_blocks = record_blocks;
    kvp_status status = grow(known) ? kvp_digester_create(&known->digester) : KVP_E_NO_MEMORY;
    if (status == KVP_OK)
        status = kvp_digest_root(known->digester, fingerprint, KVPI_KNOWN_SPACE,
                                 sizeof KVPI_KNOWN_SPACE - 1, 0, &known->root);
    if (status == KVP_OK)
        *out = known;
    else
        kvpi_known_close(known);
    return status;
}

void kvpi_known_close(kvpi_known *known)
{
    if (known == NULL)
        return;
    kvp_digester_destroy(known->digester);
    free(known->slots);
    free(known->digests);
    free(known->records);
    free(known);
}
