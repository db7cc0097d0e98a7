/* pool_quotas: see pool_quotas.h for what counts, the rings and the invariants.
 *
 * A block leaves its ring by its neighbours alone, so rings need no head to be left: that is what
 * lets a namespace close in O(1), whatever it has cached.
 *
 * Refuses nothing: quotas decide who goes first, never whether there is a block.
 */

#include "core/stages/pool_quotas.h"

#include <kvpager/quotas.h>

#include <string.h>

#define WORD_BITS 64u

static uint64_t *over_bits(const struct kvpi_quotas *quotas)
{
    return kvpi_at(quotas, quotas->over_at);
}

static uint32_t sentinel_of(const struct kvpi_quotas *quotas, uint32_t place, uint32_t class_)
{
    return quotas->n_blocks + place * KVP_RETENTION_CLASSES + class_;
}

static uint32_t place_of_owner(const struct kvpi_quotas *quotas, uint64_t owner)
{
    return (uint32_t)owner & quotas->place_mask;
}

struct kvpi_account *kvpi_quotas_find(const struct kvpi_quotas *quotas, uint64_t owner)
{
    if (owner == 0 || quotas->n_accounts == 0) {
        return NULL;
    }
    struct kvpi_account *account = kvpi_account(quotas, place_of_owner(quotas, owner));
    return account->owner == owner ? account : NULL;
}

void kvpi_quotas_layout(struct kvpi_quotas *quotas, struct kvpi_layout *layout, size_t self)
{
    const size_t n = quotas->n_accounts;
    quotas->owned_at =
        kvpi_layout_take(layout, kvpi_quotas_n_owned(quotas), sizeof(struct kvpi_owned)) - self;
    quotas->accounts_at = kvpi_layout_take(layout, n, sizeof(struct kvpi_account)) - self;
    quotas->over_at =
        kvpi_layout_take(layout, kvpi_quotas_n_words(quotas), sizeof(uint64_t)) - self;
}

static void empty_rings(struct kvpi_quotas *quotas, uint32_t place)
{
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++) {
        const uint32_t sentinel = sentinel_of(quotas, place, c);
        *kvpi_owned(quotas, sentinel) = (struct kvpi_owned){0, sentinel, sentinel};
    }
}

void kvpi_quotas_reset(struct kvpi_quotas *quotas, int fresh)
{
    if (quotas->n_accounts == 0) {
        return;
    }
    memset(kvpi_owned(quotas, 0), 0, quotas->n_blocks * sizeof(struct kvpi_owned));
    memset(over_bits(quotas), 0, kvpi_quotas_n_words(quotas) * sizeof(uint64_t));
    for (uint32_t place = 0; place < quotas->n_accounts; place++) {
        struct kvpi_account *account = kvpi_account(quotas, place);
        const struct kvpi_account old = *account;
        *account = (struct kvpi_account){.owner = fresh ? 0 : old.owner,
                                         .quota = fresh ? KVP_NO_QUOTA : old.quota};
        empty_rings(quotas, place);
    }
    quotas->n_over = 0;
    quotas->turn = 0;
}

/* Bring the account's bit up to date. */
static void settle(struct kvpi_quotas *quotas, const struct kvpi_account *account)
{
    const uint32_t place = (uint32_t)(account - kvpi_account(quotas, 0));
    const uint64_t bit = (uint64_t)1 << (place % WORD_BITS);
    uint64_t *word = &over_bits(quotas)[place / WORD_BITS];
    const int was = (*word & bit) != 0;
    const int is = account->n_blocks > account->quota && account->n_cached > 0;
    if (was != is) {
        *word ^= bit;
        quotas->n_over += is ? 1u : UINT32_MAX;
    }
}

void kvpi_quotas_open(struct kvpi_quotas *quotas, uint64_t owner)
{
    if (quotas->n_accounts > 0) {
        struct kvpi_account *account = kvpi_account(quotas, place_of_owner(quotas, owner));
        KVPI_ASSERT(account->owner == 0);
        *account = (struct kvpi_account){.owner = owner, .quota = KVP_NO_QUOTA};
    }
}

void kvpi_quotas_close(struct kvpi_quotas *quotas, uint64_t owner)
{
    struct kvpi_account *account = kvpi_quotas_find(quotas, owner);
    if (account == NULL) {
        return;
    }
    const uint32_t place = place_of_owner(quotas, owner);
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++) {
        const struct kvpi_owned *head = kvpi_owned(quotas, sentinel_of(quotas, place, c));
        kvpi_owned(quotas, head->prev)->next = head->next;
        kvpi_owned(quotas, head->next)->prev = head->prev;
    }
    empty_rings(quotas, place);
    *account = (struct kvpi_account){.quota = KVP_NO_QUOTA};
    settle(quotas, account);
}

void kvpi_quotas_set(struct kvpi_quotas *quotas, uint64_t owner, uint32_t quota)
{
    struct kvpi_account *account = kvpi_quotas_find(quotas, owner);
    KVPI_ASSERT(account != NULL);
    account->quota = quota;
    settle(quotas, account);
}

void kvpi_quotas_own(struct kvpi_quotas *quotas, uint32_t block, uint64_t owner)
{
    struct kvpi_account *account = kvpi_quotas_find(quotas, owner);
    KVPI_ASSERT(kvpi_owned(quotas, block)->owner == 0);
    kvpi_owned(quotas, block)->owner = owner;
    if (account != NULL) {
        account->n_blocks++;
        settle(quotas, account);
    }
}

void kvpi_quotas_disown(struct kvpi_quotas *quotas, uint32_t block)
{
    struct kvpi_account *account = kvpi_quotas_find(quotas, kvpi_owned(quotas, block)->owner);
    kvpi_owned(quotas, block)->owner = 0;
    if (account != NULL) {
        account->n_blocks--;
        settle(quotas, account);
    }
}

static void count_cached(struct kvpi_quotas *quotas, struct kvpi_account *account, uint32_t class_)
{
    account->n_cached++;
    account->classes |= 1u << class_;
    settle(quotas, account);
}

void kvpi_quotas_link(struct kvpi_quotas *quotas, uint32_t block, uint32_t class_, int at_head)
{
    struct kvpi_owned *owned = kvpi_owned(quotas, block);
    struct kvpi_account *account = kvpi_quotas_find(quotas, owned->owner);
    if (account == NULL) {
        owned->prev = owned->next = block;
        return;
    }
    const uint32_t sentinel = sentinel_of(quotas, place_of_owner(quotas, owned->owner), class_);
    owned->prev = at_head ? sentinel : kvpi_owned(quotas, sentinel)->prev;
    owned->next = at_head ? kvpi_owned(quotas, sentinel)->next : sentinel;
    kvpi_owned(quotas, owned->prev)->next = block;
    kvpi_owned(quotas, owned->next)->prev = block;
    count_cached(quotas, account, class_);
}

void kvpi_quotas_unlink(struct kvpi_quotas *quotas, uint32_t block, uint32_t class_)
{
    const struct kvpi_owned *owned = kvpi_owned(quotas, block);
    struct kvpi_account *account = kvpi_quotas_find(quotas, owned->owner);
    kvpi_owned(quotas, owned->prev)->next = owned->next;
    kvpi_owned(quotas, owned->next)->prev = owned->prev;
    if (account != NULL) {
        account->n_cached--;
        account->classes &= ~((uint32_t)(owned->prev == owned->next) << class_); /* the sentinel */
        settle(quotas, account);
    }
}

void kvpi_quotas_relink(struct kvpi_quotas *quotas, uint32_t block, uint32_t class_)
{
    const struct kvpi_owned *owned = kvpi_owned(quotas, block);
    struct kvpi_account *account = kvpi_quotas_find(quotas, owned->owner);
    kvpi_owned(quotas, owned->prev)->next = block;
    kvpi_owned(quotas, owned->next)->prev = block;
    if (account != NULL) { /* what was hit is of an open namespace, what was lent need not be */
        count_cached(quotas, account, class_);
    }
}

void kvpi_quotas_expose(struct kvpi_quotas *quotas, uint32_t block, uint32_t class_, uint32_t after)
{
    struct kvpi_owned *owned = kvpi_owned(quotas, block);
    struct kvpi_account *account = kvpi_quotas_find(quotas, owned->owner);
    kvpi_quotas_unlink(quotas, block, class_);
    if (after == 0 || account == NULL) {
        kvpi_quotas_link(quotas, block, class_, 1);
        return;
    }
    KVPI_ASSERT(kvpi_owned(quotas, after)->owner == owned->owner); /* one path, one namespace */
    owned->prev = after;
    owned->next = kvpi_owned(quotas, after)->next;
    kvpi_owned(quotas, after)->next = block;
    kvpi_owned(quotas, owned->next)->prev = block;
    count_cached(quotas, account, class_);
}

int kvpi_quotas_is_full(const struct kvpi_quotas *quotas, uint64_t owner)
{
    const struct kvpi_account *account = kvpi_quotas_find(quotas, owner);
    return account != NULL && account->n_blocks >= account->quota;
}

/* The first account that is over, from `turn` on and then from the first. */
static uint32_t next_over(const struct kvpi_quotas *quotas)
{
    const uint64_t *bits = over_bits(quotas);
    const uint32_t first = quotas->turn / WORD_BITS;
    uint64_t word = bits[first] & (UINT64_MAX << (quotas->turn % WORD_BITS));
    uint32_t w = first;
    while (word == 0) { /* there is one: the first word is looked at again, whole, at last */
        w = w + 1 == kvpi_quotas_n_words(quotas) ? 0 : w + 1;
        word = bits[w];
    }
    return w * WORD_BITS + (uint32_t)__builtin_ctzll(word);
}

uint32_t kvpi_quotas_first(const struct kvpi_quotas *quotas, uint64_t owner, uint32_t *out_turn)
{
    uint32_t place = place_of_owner(quotas, owner);
    *out_turn = quotas->turn;
    if (!kvpi_quotas_is_full(quotas, owner) || kvpi_account(quotas, place)->n_cached == 0) {
        if (quotas->n_over == 0) {
            return 0;
        }
        place = next_over(quotas);
        *out_turn = place + 1 == quotas->n_accounts ? 0 : place + 1;
    }
    const uint32_t class_ = (uint32_t)__builtin_ctz(kvpi_account(quotas, place)->classes);
    return kvpi_owned(quotas, sentinel_of(quotas, place, class_))->next;
}

/* ---------------------------------------------------------------------------------- the audit */

/* Q1, Q2: count each account's blocks. */
static const char *check_owned(const struct kvpi_pool *pool, uint64_t *out_object)
{
    const struct kvpi_quotas *quotas = &pool->quotas;
    for (uint32_t b = 0; b < pool->n_blocks; b++) {
        const struct kvpi_block *block = kvpi_block(pool, b);
        const uint64_t owner = kvpi_owned(quotas, b)->owner;
        *out_object = b;
        if (place_of_owner(quotas, owner) >= quotas->n_accounts) {
            return "Q1 a block counts for what is no namespace";
        }
        if ((owner != 0) != (kvpi_block_refs(block) > 0 || block->content != 0)) {
            return "Q2 a block that is nobody's counts, or one that is in use does not";
        }
        struct kvpi_account *account = kvpi_quotas_find(quotas, owner);
        if (account != NULL) {
            account->n_counted++;
        }
    }
    for (uint32_t place = 0; place < quotas->n_accounts; place++) {
        struct kvpi_account *account = kvpi_account(quotas, place);
        *out_object = place;
        if (account->n_counted != account->n_blocks) {
            return "Q1 a namespace's blocks are miscounted";
        }
        account->n_counted = 0; /* of cached ones, from here on */
    }
    return NULL;
}

/* Q3: follow one queue; each account's ring has its blocks in the same order. */
static const char *check_owner_rings(const struct kvpi_pool *pool, uint32_t class_,
                                     uint64_t *out_object)
{
    const struct kvpi_quotas *quotas = &pool->quotas;
    const struct kvpi_block *blocks = kvpi_blocks(pool);
    const uint32_t sentinel = pool->n_blocks + class_;
    for (uint32_t place = 0; place < quotas->n_accounts; place++) {
        kvpi_account(quotas, place)->cursor = sentinel_of(quotas, place, class_);
    }
    for (uint32_t b = blocks[sentinel].next; b != sentinel; b = blocks[b].next) {
        struct kvpi_account *account = kvpi_quotas_find(quotas, kvpi_owned(quotas, b)->owner);
        *out_object = b;
        if (account != NULL && (kvpi_owned(quotas, b)->prev != account->cursor ||
                                kvpi_owned(quotas, account->cursor)->next != b)) {
            return "Q3 a namespace's cached blocks are not in the queue's order";
        }
        if (account != NULL) {
            account->cursor = b;
            account->n_counted++;
        }
    }
    for (uint32_t place = 0; place < quotas->n_accounts; place++) {
        const struct kvpi_account *account = kvpi_account(quotas, place);
        const uint32_t head = sentinel_of(quotas, place, class_);
        *out_object = place;
        if (kvpi_owned(quotas, head)->prev != account->cursor ||
            kvpi_owned(quotas, account->cursor)->next != head ||
            ((account->classes >> class_) & 1u) != (account->cursor != head)) {
            return "Q3 a namespace's ring has other blocks than the queue";
        }
    }
    return NULL;
}

/* Q3, Q4: how many are cached, and the bits that say who is over. */
static const char *check_accounts(const struct kvpi_pool *pool, uint64_t *out_object)
{
    const struct kvpi_quotas *quotas = &pool->quotas;
    uint32_t n_over = 0;
    for (uint32_t place = 0; place < quotas->n_accounts; place++) {
        const struct kvpi_account *account = kvpi_account(quotas, place);
        const uint64_t word = over_bits(quotas)[place / WORD_BITS];
        const uint32_t is_over = (uint32_t)(word >> (place % WORD_BITS)) & 1u;
        *out_object = place;
        if (account->n_counted != account->n_cached) {
            return "Q3 a namespace's cached blocks are miscounted";
        }
        if (is_over != (account->n_blocks > account->quota && account->n_cached > 0)) {
            return "Q4 a namespace is over its quota and not known to be, or the reverse";
        }
        n_over += is_over;
    }
    return n_over == quotas->n_over && quotas->turn < quotas->n_accounts
               ? NULL
               : "Q4 the count of namespaces over their quotas is off";
}

const char *kvpi_quotas_check(const struct kvpi_pool *pool, uint64_t *out_object)
{
    const struct kvpi_quotas *quotas = &pool->quotas;
    for (uint32_t place = 0; place < quotas->n_accounts; place++) {
        kvpi_account(quotas, place)->n_counted = 0;
    }
    const char *failed = quotas->n_accounts == 0 ? NULL : check_owned(pool, out_object);
    for (uint32_t c = 0; failed == NULL && quotas->n_accounts > 0 && c < KVP_RETENTION_CLASSES;
         c++) {
        failed = check_owner_rings(pool, c, out_object);
    }
    if (failed == NULL && quotas->n_accounts > 0) {
        failed = check_accounts(pool, out_object);
    }
    for (uint32_t place = 0; place < quotas->n_accounts; place++) {
        kvpi_account(quotas, place)->cursor = kvpi_account(quotas, place)->n_counted = 0;
    }
    return failed;
}
