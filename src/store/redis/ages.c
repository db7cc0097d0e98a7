/* ages: a table of fixed size, in which the newer of two records wins. What was forgotten is not
 * renewed, and then expires before what needs it: a cost, no fault. */
#include "store/redis/ages.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_MS = 1000, LEAST_MS = 60000 };

static uint64_t first_bytes(const kvp_digest *digest)
{
    uint64_t number = 0;
    for (int i = 0; i < 8; i++)
        number = number << 8 | digest->bytes[i];
    return number;
}

kvp_status kvpi_ages_open(struct kvpi_ages *ages, const kvp_digest *fingerprint)
{
    ages->model = first_bytes(fingerprint);
    ages->known = calloc(KVPI_AGES_KNOWN, sizeof *ages->known);
    return ages->known ? KVP_OK : KVP_E_NO_MEMORY;
}

void kvpi_ages_close(struct kvpi_ages *ages)
{
    free(ages->known);
}

uint64_t kvpi_ages_tag(const struct kvpi_ages *ages, const kvp_digest *key)
{
    return first_bytes(key) % ages->tags;
}

void kvpi_ages_name(const struct kvpi_ages *ages, const kvp_digest *key,
                    char out_name[KVPI_AGES_NAME])
{
    const uint64_t tag = kvpi_ages_tag(ages, key);
    int n = snprintf(out_name, KVPI_AGES_NAME, "%s{%" PRIu64 "}:%016" PRIx64 ":",
                     ages->is_large ? KVPI_AGES_LARGE : "kvp1:", tag, ages->model);
    for (size_t i = 0; i < sizeof key->bytes; i++, n += 2)
        snprintf(out_name + n, (size_t)(KVPI_AGES_NAME - n), "%02x", key->bytes[i]);
}

uint64_t kvpi_ages_ttl(const struct kvpi_ages *ages, uint32_t depth, uint64_t now_ms)
{
    const uint64_t less = (uint64_t)depth * STEP_MS + now_ms % KVPI_AGES_PERIOD_MS;
    return ages->base_ms > less + LEAST_MS ? ages->base_ms - less : LEAST_MS;
}

uint32_t kvpi_ages_depth(const kvp_identity *identity)
{
    return identity->position / (identity->n_blocks * identity->block_tokens);
}

static struct kvpi_age *place_of(struct kvpi_ages *ages, const kvp_digest *key)
{
    return &ages->known[first_bytes(key) / ages->tags % KVPI_AGES_KNOWN];
}

static struct kvpi_age *find(struct kvpi_ages *ages, const kvp_digest *key)
{
    struct kvpi_age *age = place_of(ages, key);
    return memcmp(age->key.bytes, key->bytes, sizeof key->bytes) == 0 ? age : NULL;
}

void kvpi_ages_note(struct kvpi_ages *ages, const struct kvpi_store_op *op)
{
    const kvp_identity *identity = op->identity;
    struct kvpi_age *age = find(ages, &op->key);
    if (age)
        return;
    *place_of(ages, &op->key) = (struct kvpi_age){
        .key = op->key,
        .parent = identity->parent,
        .depth = kvpi_ages_depth(identity),
    };
}

static void mark(const struct kvpi_ages *ages, struct kvpi_age *age, uint64_t now_ms)
{
    age->renewed = now_ms / KVPI_AGES_PERIOD_MS;
    age->n_lost = ages->n_lost;
}

void kvpi_ages_written(struct kvpi_ages *ages, const kvp_digest *key, uint64_t now_ms)
{
    struct kvpi_age *age = find(ages, key);
    if (age)
        mark(ages, age, now_ms);
}

uint32_t kvpi_ages_renew(struct kvpi_ages *ages, const kvp_digest *key, uint64_t now_ms,
                         const struct kvpi_age **out_ages)
{
    static const kvp_digest none;
    const uint64_t period = now_ms / KVPI_AGES_PERIOD_MS;
    struct kvpi_age *chain[KVPI_AGES_CHAIN];
    uint32_t n = 0;
    while (n < KVPI_AGES_CHAIN && memcmp(key->bytes, none.bytes, sizeof none.bytes) != 0) {
        struct kvpi_age *age = find(ages, key);
        if (!age || (age->renewed == period && age->n_lost == ages->n_lost))
            break;
        mark(ages, age, now_ms);
        chain[n++] = age;
        key = &age->parent;
    }
    for (uint32_t i = 0; i < n; i++)
        out_ages[i] = chain[n - 1 - i];
    return n;
}
