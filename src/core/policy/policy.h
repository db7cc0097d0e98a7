/* policy: which cached block of a tier goes next, learned from what came back before.
 *
 * The cache says which blocks may go: cached ones that no cached block continues. The policy knows
 * blocks by their numbers, and content that has lost its block by names (ghost.h). Whether what it
 * learns is worth anything is measured all the time, against LRU. As long as it is not, the oldest
 * block goes.
 *
 *   a request is over --> kvpi_policy_use --> class and stamp of its blocks --> order
 *                              |                                                  |
 *                            ghost --> hits --> index: what a class is worth      |
 *                              |                       |   at an age              |
 *                        LRU's hits --> trust --> kvpi_policy_choose <------ ends of each class
 *
 * The class of a block is (s * 4 + o) * 4 + w:
 *
 *   s   its uses, each within 16 C references of the one before:        1 | 2 | 3, 4 | more
 *   o   output tokens of the request that used it last:                 < 32 | < 256 | < 512 | more
 *   w   tokens of its prompt behind the leading blocks that were known:
 *                                                                <= 512 | <= 4096 | <= 32768 | more
 *
 * A second tier may have its blocks here, too: the others, which have what left the first one, and
 * the class that it had there. Their lanes are those from KVPI_POLICY_OTHERS on.
 *
 * Integers only, and no clock: time is the number of block references, so that the same calls give
 * the same victims.
 *
 *   V1         a block's class is below 64 and has the s of its count; no stamp is ahead of time,
 *              and no number of a rest
 *   V2         credit <= its limit; it is below its floor only while the policy is distrusted
 *   V3         in cache/audit.c: the hits of open requests add up
 *   V4         a block that was chosen is queued as it was then, at an end of its class or apart
 *   P, G, O    in hits.h, ghost.h and order.h
 *
 * Memory: 32 bytes a block, and 20 to 24 bytes for every 512 tokens of KV that 17 caches hold. With
 * blocks of 16 tokens these are 43 to 45 bytes a block.
 */
#ifndef KVPI_POLICY_POLICY_H
#define KVPI_POLICY_POLICY_H

#include "core/policy/ghost.h"
#include "core/policy/hits.h"
#include "core/policy/order.h"

#define KVPI_POLICY_NONE KVPI_ORDER_NONE

enum { KVPI_POLICY_GROUP_TOKENS = 512, KVPI_POLICY_OTHERS = 8, KVPI_POLICY_LANES = 16 };

/* Blocks of a group: 512 tokens, but at most a 128th of a small cache. */
static inline uint32_t kvpi_policy_group_blocks(uint32_t n_blocks, uint32_t block_tokens)
{
    const uint32_t most = kvpi_max_u32(1, n_blocks / 128);
    return kvpi_min_u32(most, kvpi_max_u32(1, KVPI_POLICY_GROUP_TOKENS / block_tokens));
}

/* What a block at the end of a class is worth, as long as neither time nor index changes. */
struct kvpi_policy_worth {
    uint64_t change; /* of the policy, when it was valued; 0: never */
    uint64_t stamp;  /* of the block, as is: */
    uint64_t number;
    uint32_t block;
    uint32_t now;
    uint32_t best;
};

/* The last choice, while what is queued stays as it was; then the block that took its place.
 *
 *   NONE --choose--> MADE --it leaves--> GONE --the one that follows it is queued--> MADE
 *
 * Whatever else is queued or leaves: NONE. One follows it if it has its lane, class and stamp, and
 * the next number: no block is between the two, and both are worth the same. So it is what goes
 * next, without comparing the others: most content goes from its end to its beginning. Until it
 * does, or something else is chosen, it has no place in the order. */
enum kvpi_policy_chosen { KVPI_CHOICE_NONE, KVPI_CHOICE_MADE, KVPI_CHOICE_GONE };

struct kvpi_policy_choice {
    uint64_t change; /* of the policy, when it was chosen */
    uint64_t stamp;  /* of the block, as is: */
    uint64_t number;
    uint32_t block;
    uint32_t class_;
    uint32_t lane;
    uint32_t state; /* enum kvpi_policy_chosen */
};

struct kvpi_policy {
    uint32_t n_blocks;      /* C; their numbers are 0 .. C */
    uint32_t n_others;      /* of the other tier, its null block too, numbered from C + 1 on */
    uint32_t block_tokens;  /* set before the layout, as is: */
    uint32_t ungated;       /* 1: learn also where little comes back that LRU lost */
    uint32_t group_blocks;  /* of an entry of the ghost; 0 before the layout: 512 tokens */
    uint64_t references;    /* time; never wraps */
    uint64_t changes;       /* of stamps, time and indexes; never wraps */
    uint64_t rests;         /* numbers given to blocks that were left; never wraps */
    uint64_t hit_blocks;    /* in whole groups of prompts; never wraps, as does not: */
    uint64_t lru_blocks;    /* what LRU would have hit of them */
    int64_t credit;         /* what is gained over LRU, in blocks / KVPI_POLICY_CREDIT_ONE */
    uint32_t distrusted;    /* 1: LRU until the credit is paid back */
    uint32_t gated;         /* 1: LRU as long as nothing else comes back */
    uint32_t n_uses;        /* since the gate was looked at */
    uint32_t n_sampled;     /* groups since the counts were halved */
    uint32_t others_gated;  /* 1: LRU among the others */
    uint32_t loose_blocks;  /* of requests without a whole group: LRU has them, too */
    uint64_t returned;      /* groups that were used again: the gate's, and of them: */
    uint64_t returned_late; /* those that LRU had lost */
    struct kvpi_policy_choice choice;
    struct kvpi_policy_choice other_choice; /* among the others, as are the second of these: */
    struct kvpi_policy_worth oldest[2][KVPI_CLASSES];
    struct kvpi_policy_worth youngest[2][KVPI_CLASSES];
    struct kvpi_hits hits;
    struct kvpi_ghost ghost;
    struct kvpi_order order[KVPI_POLICY_LANES]; /* the one of a lower lane goes first */
};

enum { KVPI_POLICY_CREDIT_ONE = 200 };

struct kvpi_policy_group {
    uint32_t name; /* of the group and all before it */
    uint32_t uses; /* scratch: those before this one */
};

/* A request that is over, as its blocks are released. */
struct kvpi_policy_request {
    const uint32_t *blocks; /* [n_blocks] of its row that have content, first the prompt's first */
    struct kvpi_policy_group *groups; /* [n_blocks / group_blocks] each whole one of them */
    uint32_t n_blocks;
    uint32_t n_held;   /* blocks that are held as it ends, its own among them: at least n_blocks */
    uint32_t n_prompt; /* of n_blocks, those of the prompt */
    uint32_t n_hits;   /* of these, the leading ones that were cached when it began */
    uint64_t prompt_tokens;
    uint64_t output_tokens;
};

/* Plan the arrays; n_blocks (at least 1), n_others and the three behind it are set. `self`:
 * the policy's own offset in the arena. */
void kvpi_policy_layout(struct kvpi_policy *policy, struct kvpi_layout *layout, size_t self);

/* Forget everything. */
void kvpi_policy_reset(struct kvpi_policy *policy);

/* A request used its blocks: they have a class and a stamp now, with which they are queued when
 * their last holder leaves. Cost: O(blocks). */
void kvpi_policy_use(struct kvpi_policy *policy, const struct kvpi_policy_request *use);

/* The last holder left a block that is not queued: it is as if used now, and younger than all
 * before it. That is no use: it keeps its class. */
void kvpi_policy_rest(struct kvpi_policy *policy, uint32_t block);

/* The same of n blocks, whose numbers are those behind the one that is given: the caller sets them,
 * and stamps that are the time. */
static inline uint64_t kvpi_policy_rest_many(struct kvpi_policy *policy, uint32_t n)
{
    const uint64_t before = policy->rests;
    policy->rests += n;
    policy->changes++;
    return before;
}

/* A block that is not queued has what another one has, with its class, uses and stamp; and no
 * sequence holds it any more: it rests, and keeps that stamp. */
void kvpi_policy_follow(struct kvpi_policy *policy, uint32_t block, uint32_t other);
void kvpi_policy_arrive(struct kvpi_policy *policy, uint32_t block);

/* A block that is not queued lost its content. */
void kvpi_policy_forget(struct kvpi_policy *policy, uint32_t block);

static inline int kvpi_policy_is_queued(const struct kvpi_policy *policy, uint32_t block)
{
    return kvpi_order_block(policy->order, block)->queued != 0;
}

/* The last choice among the blocks of a lane's tier. */
static inline struct kvpi_policy_choice *kvpi_policy_last(struct kvpi_policy *policy, uint32_t lane)
{
    return lane < KVPI_POLICY_OTHERS ? &policy->choice : &policy->other_choice;
}

/* A block may go: it is cached, and nothing that is continues it. Or it may not any more.
 * Cost: O(log blocks) expected. */
static inline void kvpi_policy_queue(struct kvpi_policy *policy, uint32_t lane, uint32_t block)
{
    const struct kvpi_order_block *b = kvpi_order_block(policy->order, block);
    struct kvpi_policy_choice *choice = kvpi_policy_last(policy, lane);
    const int follows = choice->state == KVPI_CHOICE_GONE && choice->lane == lane &&
                        choice->class_ == b->class_ && choice->stamp == b->stamp &&
                        choice->number + 1 == b->number;
    choice->state = follows ? KVPI_CHOICE_MADE : KVPI_CHOICE_NONE;
    choice->block = block;
    choice->number = b->number;
    if (follows) {
        kvpi_order_put_apart(&policy->order[lane], block);
    } else {
        kvpi_order_insert(&policy->order[lane], block);
    }
}

static inline void kvpi_policy_unqueue(struct kvpi_policy *policy, uint32_t block)
{
    const uint32_t lane = kvpi_order_block(policy->order, block)->queued - 1u;
    KVPI_ASSERT(lane < KVPI_POLICY_LANES);
    struct kvpi_policy_choice *choice = kvpi_policy_last(policy, lane);
    const int goes = choice->state == KVPI_CHOICE_MADE && choice->block == block;
    choice->state = goes ? KVPI_CHOICE_GONE : KVPI_CHOICE_NONE;
    kvpi_order_remove(&policy->order[lane], block);
}

/* Why the oldest block goes, whatever was learned: the first reason that holds. */
enum kvpi_policy_fallback {
    KVPI_FALLBACK_NONE,
    KVPI_FALLBACK_COLD,
    KVPI_FALLBACK_GUARD,
    KVPI_FALLBACK_GATE,
    KVPI_FALLBACKS
};

static inline enum kvpi_policy_fallback kvpi_policy_fallback(const struct kvpi_policy *policy)
{
    return policy->references < 2 * (uint64_t)policy->n_blocks ? KVPI_FALLBACK_COLD
           : policy->distrusted                                ? KVPI_FALLBACK_GUARD
           : policy->gated                                     ? KVPI_FALLBACK_GATE
                                                               : KVPI_FALLBACK_NONE;
}

static inline int kvpi_policy_is_lru(const struct kvpi_policy *policy)
{
    return kvpi_policy_fallback(policy) != KVPI_FALLBACK_NONE;
}

/* What the credit must not fall below, and never exceeds. */
int64_t kvpi_policy_credit_floor(const struct kvpi_policy *policy);
int64_t kvpi_policy_credit_limit(const struct kvpi_policy *policy);

/* The counts and indexes of `hits` were put there: set what follows from them. */
void kvpi_policy_restored(struct kvpi_policy *policy);

/* Choose the block of a lane that goes. Gives NONE if none of it may go. Cost: O(classes with a
 * block). */
uint32_t kvpi_policy_choose_anew(struct kvpi_policy *policy, uint32_t lane);

/* The same. What follows the block that went last is known. */
static inline uint32_t kvpi_policy_choose(struct kvpi_policy *policy, uint32_t lane)
{
    const struct kvpi_policy_choice *choice = kvpi_policy_last(policy, lane);
    return choice->state == KVPI_CHOICE_MADE && choice->change == policy->changes &&
                   choice->lane == lane
               ? choice->block
               : kvpi_policy_choose_anew(policy, lane);
}

/* Is staying now worth less to a block of the first tier than to one of the others, which would
 * have to go for it? Not while LRU decides among the others. */
int kvpi_policy_is_worth_less(struct kvpi_policy *policy, uint32_t block, uint32_t other);

/* Audit every invariant: NULL, or text that begins with the one that is broken. Cost: O(blocks). */
const char *kvpi_policy_check(const struct kvpi_policy *policy);

#endif
