/* pool_quotas: which namespace a block counts for, and whose cached blocks go first (quotas.h).
 *
 * An account is a namespace's place in one pool. A block counts for the account of the namespace
 * that it was taken for. It counts from the take until it is not held and has no content:
 *
 *   account.n_blocks == blocks whose owner is the account's                                   (Q1)
 *   no owner        <=> free, parked without content, or the null block                       (Q2)
 *
 * Rings (Q3): the cached blocks of an account, per retention class, in the order in which the
 * pool's queue of that class has them; headed by the sentinel n_blocks + place x classes + class.
 * Blocks of an owner that has closed are in rings without head, or alone.
 *
 * An account is *over* while n_blocks > quota and it has a cached block (Q4): a bit for each.
 *
 *   owned     [n_blocks] owner, ring | sentinels
 *   accounts  [n_accounts]
 *   over      [n_accounts / 64] bits
 *
 * An owner is a namespace's handle, which is never given twice. So blocks of a closed owner can
 * never count for another namespace in its place.
 */
#ifndef KVPI_POOL_QUOTAS_H
#define KVPI_POOL_QUOTAS_H

#include "core/stages/pool_state.h"

static inline struct kvpi_owned *kvpi_owned(const struct kvpi_quotas *quotas, uint32_t block)
{
    struct kvpi_owned *owned = kvpi_at(quotas, quotas->owned_at);
    return owned + block;
}

/* Entries of `owned`: blocks, and a sentinel for each ring. */
static inline uint64_t kvpi_quotas_n_owned(const struct kvpi_quotas *quotas)
{
    const uint64_t n_rings = (uint64_t)quotas->n_accounts * KVP_RETENTION_CLASSES;
    return quotas->n_accounts == 0 ? 0 : quotas->n_blocks + n_rings;
}

/* Words of `over`. */
static inline uint32_t kvpi_quotas_n_words(const struct kvpi_quotas *quotas)
{
    return kvpi_ceil_div(quotas->n_accounts, 64);
}

static inline struct kvpi_account *kvpi_account(const struct kvpi_quotas *quotas, uint32_t place)
{
    struct kvpi_account *accounts = kvpi_at(quotas, quotas->accounts_at);
    return accounts + place;
}

/* Plan the arrays; n_accounts, n_blocks and place_mask are set. `self`: its own offset. */
void kvpi_quotas_layout(struct kvpi_quotas *quotas, struct kvpi_layout *layout, size_t self);

/* Nothing is owned. `fresh`: and every account is closed; else they keep owner and quota. */
void kvpi_quotas_reset(struct kvpi_quotas *quotas, int fresh);

/* A namespace opens: without blocks, without quota. */
void kvpi_quotas_open(struct kvpi_quotas *quotas, uint64_t owner);

/* It closes: its blocks count for no namespace. Cost: O(1). */
void kvpi_quotas_close(struct kvpi_quotas *quotas, uint64_t owner);

void kvpi_quotas_set(struct kvpi_quotas *quotas, uint64_t owner, uint32_t quota);

/* The account of an open namespace; NULL: it has closed, or nothing is counted. */
struct kvpi_account *kvpi_quotas_find(const struct kvpi_quotas *quotas, uint64_t owner);

/* A block without owner gets one; loses it. */
void kvpi_quotas_own(struct kvpi_quotas *quotas, uint32_t block, uint64_t owner);
void kvpi_quotas_disown(struct kvpi_quotas *quotas, uint32_t block);

/* The block joins its owner's ring of the class: at the end, or at the head; leaves it; is back
 * where it was, with nothing else between. */
void kvpi_quotas_link(struct kvpi_quotas *quotas, uint32_t block, uint32_t class_, int at_head);
void kvpi_quotas_unlink(struct kvpi_quotas *quotas, uint32_t block, uint32_t class_);
void kvpi_quotas_relink(struct kvpi_quotas *quotas, uint32_t block, uint32_t class_);

/* The block goes to the head of its ring; or right behind `after`, which went there before. */
void kvpi_quotas_expose(struct kvpi_quotas *quotas, uint32_t block, uint32_t class_,
                        uint32_t after);

/* The cached block that goes first when a block is taken for `owner`, because quotas say so; 0:
 * they do not. Blocks of `owner` itself, if it has as many as its quota; else of accounts that are
 * over, which take turns: *out_turn is the turn after this one. Cost: O(n_accounts / 64). */
uint32_t kvpi_quotas_first(const struct kvpi_quotas *quotas, uint64_t owner, uint32_t *out_turn);

/* Would a block more for `owner` exceed its quota? */
int kvpi_quotas_is_full(const struct kvpi_quotas *quotas, uint64_t owner);

/* Audit Q1 to Q4 of a pool whose queues are right, and whose rings point inside: NULL when they
 * hold; else the block or place, and text that begins with the invariant. */
const char *kvpi_quotas_check(const struct kvpi_pool *pool, uint64_t *out_object);

#endif
