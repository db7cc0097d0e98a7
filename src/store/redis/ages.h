/* ages: names of records on a server, and when they expire.
 *
 * A server evicts keys, not chains. With volatile-ttl it takes what expires soonest, so a record
 * expires a second before the one that it needs:
 *
 *     expiry = base - depth x 1 s - (now modulo PERIOD)
 *
 * The last term makes it the same for all records of a chain that are written or hit within a
 * period. Before a record is written, or when it was hit, its ancestors are renewed, from the root
 * down, as far as this process has seen them: wherever that ends, no record expires before one that
 * needs it. */
#ifndef KVPI_STORE_REDIS_AGES_H
#define KVPI_STORE_REDIS_AGES_H

#include "store/backend.h"

enum { KVPI_AGES_NAME = 120, KVPI_AGES_KNOWN = 16384, KVPI_AGES_CHAIN = 256 };

#define KVPI_AGES_PERIOD_MS UINT64_C(60000)

/* A record that this process has put or asked for. */
struct kvpi_age {
    kvp_digest key;
    kvp_digest parent;
    uint32_t depth;
    uint64_t renewed; /* the period of the last renewal; 0: never */
    uint64_t n_lost;  /* as it was then */
};

struct kvpi_ages {
    uint64_t base_ms;
    uint32_t tags;
    int is_large;           /* records are hashes (form.h), and have other names */
    uint64_t model;         /* of the fingerprint */
    uint64_t n_lost;        /* renewals that were lost on their way: those before count no more */
    struct kvpi_age *known; /* [KVPI_AGES_KNOWN] by the key's first bytes: a newer one wins */
};

kvp_status kvpi_ages_open(struct kvpi_ages *ages, const kvp_digest *fingerprint);
void kvpi_ages_close(struct kvpi_ages *ages);

/* What the names of large records begin with. */
#define KVPI_AGES_LARGE "kvp1:h:"

/* "kvp1:{TAG}:MODEL:KEY", of large records "kvp1:h:{TAG}:MODEL:KEY". TAG, of a fixed set, is what a
 * cluster chooses the slot by, and depends on the key alone, so that every slot has records of all
 * depths. */
void kvpi_ages_name(const struct kvpi_ages *ages, const kvp_digest *key,
                    char out_name[KVPI_AGES_NAME]);

/* What is between the braces. */
uint64_t kvpi_ages_tag(const struct kvpi_ages *ages, const kvp_digest *key);

/* The time to live of a record at this depth, in milliseconds, at least a minute. */
uint64_t kvpi_ages_ttl(const struct kvpi_ages *ages, uint32_t depth, uint64_t now_ms);

/* Records between this one and the root. */
uint32_t kvpi_ages_depth(const kvp_identity *identity);

/* Remember a record. */
void kvpi_ages_note(struct kvpi_ages *ages, const struct kvpi_store_op *op);

/* A record was written at this time: its expiry is new. */
void kvpi_ages_written(struct kvpi_ages *ages, const kvp_digest *key, uint64_t now_ms);

/* A record was hit, or what needs it is written: what is to be renewed, from the root down; the
 * record itself comes last. Only what was not renewed in this period.
 * Gives: out_ages [KVPI_AGES_CHAIN]; the number */
uint32_t kvpi_ages_renew(struct kvpi_ages *ages, const kvp_digest *key, uint64_t now_ms,
                         const struct kvpi_age **out_ages);

#endif
