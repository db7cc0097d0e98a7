/* The learned policy (docs/POLICY.md) as slow and plain code: the oracle of src/core/policy, which
 * it shares nothing with. Entries and blocks lie in arrays that are searched from end to end, and
 * every sum is made anew. Only the order of roundings is the same, or victims could not be. */
#ifndef KVP_TEST_MODEL_ORACLE_POLICY_H
#define KVP_TEST_MODEL_ORACLE_POLICY_H

#include <stdbool.h>
#include <stdint.h>

enum { PLAIN_BINS = 17, PLAIN_CLASSES = 64 };

#define PLAIN_NONE UINT32_MAX

typedef struct plain_block {
    uint64_t used;   /* when it was used, or left by its last holder */
    uint64_t number; /* of that leaving, among all */
    uint32_t uses;
    uint32_t class_;
    bool follows; /* one of the other tier: it is as old as that was */
} plain_block;

/* Content that was used within the last 16 C references. */
typedef struct plain_entry {
    uint32_t name;
    uint64_t used;
    uint32_t blocks;
    uint32_t uses;
    uint32_t class_;
    uint32_t outlived; /* bins */
    bool in_lru;
} plain_entry;

typedef struct plain_policy {
    uint64_t c, block_tokens, group;
    uint64_t others; /* blocks of the host, its null block too, behind those of the device */
    uint64_t now, n_left;
    plain_block *blocks;  /* [c + 1 + others] */
    plain_entry *entries; /* [n_entries] the oldest first */
    uint32_t n_entries, capacity;
    uint64_t hits[PLAIN_CLASSES][PLAIN_BINS], at_risk[PLAIN_CLASSES][PLAIN_BINS];
    uint64_t near[PLAIN_CLASSES][PLAIN_BINS + 1], far[PLAIN_CLASSES][PLAIN_BINS + 1];
    uint32_t turn;
    uint64_t loose, since_halved, since_gate, returned, late;
    bool gated, distrusted, others_gated;
    int64_t credit; /* in 200ths of a block */
    uint64_t hit_blocks, lru_blocks;
    /* how often victims were chosen, and why */
    uint64_t chose_cold, chose_gated, chose_distrusted, chose_oldest, chose_old, chose_young;
    uint64_t halvings;
} plain_policy;

typedef struct plain_request {
    const int32_t *blocks; /* [n_blocks] */
    const uint32_t *names; /* [n_blocks / group] */
    uint32_t n_blocks, n_held, n_prompt, n_hits;
    uint64_t prompt_tokens, output_tokens;
} plain_request;

plain_policy *plain_create(uint64_t c, uint64_t others, uint64_t block_tokens, uint64_t group);
void plain_destroy(plain_policy *p);
void plain_reset(plain_policy *p);
void plain_use(plain_policy *p, const plain_request *request);
void plain_rest(plain_policy *p, uint32_t block);
void plain_follow(plain_policy *p, uint32_t block, uint32_t other);
void plain_forget(plain_policy *p, uint32_t block);
bool plain_is_lru(const plain_policy *p);

/* Is staying now worth less to a device block than to a host block? Not while LRU decides there. */
bool plain_is_worth_less(const plain_policy *p, uint32_t block, uint32_t other);

/* The block that goes, of those that may, which are all of one tier; NONE: none may. */
uint32_t plain_choose(plain_policy *p, const bool *may_go);

#endif
