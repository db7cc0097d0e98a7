/* policy: see policy.h. */
#include "core/policy/policy.h"

#include <string.h>

/* The oldest block of all goes unless another is worth less by a sixth; and that one unless the
 * youngest is worth less by nearly a quarter. */
#define IS_LESS(value, than)      (6 * (uint64_t)(value) <= 5 * (uint64_t)(than))
#define IS_MUCH_LESS(value, than) (13 * (uint64_t)(value) < 10 * (uint64_t)(than))

enum {
    USES_OF_GATE = 64,
    GATE_PERCENT = 6, /* of what comes back: LRU had lost it */
    HALVED_TOKENS = 1 << 25,
    ALLOWED_TOKENS = 1 << 20 /* that may be lost beside a share of the cache */
};

static struct kvpi_order_block *block_of(const struct kvpi_policy *policy, uint32_t block)
{
    return kvpi_order_block(policy->order, block);
}

/* -------------------------------------------------------------------------------------- life */

void kvpi_policy_layout(struct kvpi_policy *policy, struct kvpi_layout *layout, size_t self)
{
    const uint32_t n = policy->n_blocks;
    if (policy->group_blocks == 0) {
        policy->group_blocks = kvpi_max_u32(1, KVPI_POLICY_GROUP_TOKENS / policy->block_tokens);
    }
    policy->ghost.n_blocks = n;
    kvpi_ghost_layout(&policy->ghost, policy->group_blocks, layout,
                      self + offsetof(struct kvpi_policy, ghost));
    struct kvpi_order *first = &policy->order[0];
    first->n_blocks = n + 1 + policy->n_others;
    first->lane = 0;
    kvpi_order_layout(first, layout, self + offsetof(struct kvpi_policy, order));
    for (uint32_t lane = 1; lane < KVPI_POLICY_LANES; lane++) {
        policy->order[lane].n_blocks = first->n_blocks;
        policy->order[lane].lane = lane;
        policy->order[lane].blocks_at = first->blocks_at - lane * sizeof(*first);
    }
}

void kvpi_policy_reset(struct kvpi_policy *policy)
{
    const size_t begin = offsetof(struct kvpi_policy, references);
    const size_t end = offsetof(struct kvpi_policy, hits);
    memset((char *)policy + begin, 0, end - begin);
    policy->changes = 1;
    kvpi_hits_reset(&policy->hits);
    kvpi_ghost_reset(&policy->ghost);
    for (uint32_t lane = 0; lane < KVPI_POLICY_LANES; lane++) {
        kvpi_order_reset(&policy->order[lane]);
    }
}

/* --------------------------------------------------------------------------- gate and guard */

static int64_t allowed(const struct kvpi_policy *policy, uint32_t share)
{
    const int64_t blocks = policy->n_blocks / share + ALLOWED_TOKENS / policy->block_tokens;
    return blocks * KVPI_POLICY_CREDIT_ONE;
}

int64_t kvpi_policy_credit_floor(const struct kvpi_policy *policy)
{
    return -allowed(policy, 8);
}

int64_t kvpi_policy_credit_limit(const struct kvpi_policy *policy)
{
    return allowed(policy, 4);
}

/* Both are of whole groups at the beginning of a prompt. */
static void keep_account(struct kvpi_policy *policy, uint32_t hit_groups, uint32_t lru_groups)
{
    const int64_t blocks = policy->group_blocks;
    const int64_t gained = ((int64_t)hit_groups - lru_groups) * blocks;
    policy->credit += gained * KVPI_POLICY_CREDIT_ONE + lru_groups * blocks;
    if (policy->credit > allowed(policy, 4)) {
        policy->credit = allowed(policy, 4);
    }
    if (policy->credit < -allowed(policy, 8)) {
        policy->distrusted = 1;
    } else if (policy->credit >= 0) {
        policy->distrusted = 0;
    }
    policy->hit_blocks += (uint64_t)hit_groups * policy->group_blocks;
    policy->lru_blocks += (uint64_t)lru_groups * policy->group_blocks;
}

static void look_at_gate(struct kvpi_policy *policy)
{
    if (++policy->n_uses < USES_OF_GATE) {
        return;
    }
    policy->n_uses = 0;
    policy->gated =
        !policy->ungated && policy->returned_late * 100 < policy->returned * GATE_PERCENT;
}

/* Among the others the index decides if so much comes back that LRU would have lost with the room
 * of both tiers: what is older than that many references. */
static void look_at_others(struct kvpi_policy *policy)
{
    const uint64_t room = (uint64_t)policy->n_blocks + policy->n_others;
    uint64_t hits = 0, late = 0;
    for (uint32_t bin = 0; bin < KVPI_BINS; bin++) {
        const uint32_t in_bin = policy->hits.hits[KVPI_CLASSES][bin];
        hits += in_bin;
        late += kvpi_bins_edge(policy->n_blocks, bin) >= room ? in_bin : 0;
    }
    policy->others_gated = late * 100 < hits * GATE_PERCENT;
}

void kvpi_policy_restored(struct kvpi_policy *policy)
{
    kvpi_hits_restored(&policy->hits);
    policy->changes++;
    look_at_others(policy);
}

static void halve(struct kvpi_policy *policy, uint32_t n_groups)
{
    const uint32_t group_tokens = policy->group_blocks * policy->block_tokens;
    policy->n_sampled += n_groups;
    if (policy->n_sampled >= kvpi_max_u32(1, HALVED_TOKENS / group_tokens)) {
        kvpi_hits_halve(&policy->hits);
        policy->returned /= 2;
        policy->returned_late /= 2;
        policy->n_sampled = 0;
    }
}

/* --------------------------------------------------------------------------------------- use */

/* Of a request: what leads it. */
struct lead {
    uint32_t known;  /* groups that were seen before */
    uint32_t in_lru; /* and that LRU has */
};

/* A group is used again: its entry is struck out. Gives how often it was used before. */
static uint32_t return_group(struct kvpi_policy *policy, uint32_t name, uint32_t place)
{
    const struct kvpi_ghost_entry *entry = kvpi_ghost_entry(&policy->ghost, place);
    const uint32_t bin = kvpi_ghost_bin(&policy->ghost, entry, policy->references);
    KVPI_ASSERT(bin < KVPI_BINS);
    kvpi_hits_used(&policy->hits, entry->class_ & KVPI_GHOST_CLASS, bin);
    policy->returned++;
    policy->returned_late += (entry->class_ & KVPI_GHOST_IN_LRU) == 0;
    kvpi_ghost_strike(&policy->ghost, name);
    return entry->count;
}

/* Groups that were seen before, and how often. */
static struct lead find_groups(struct kvpi_policy *policy, const struct kvpi_policy_request *use)
{
    const uint32_t size = policy->group_blocks, n_groups = use->n_blocks / size;
    struct lead lead = {0, 0};
    for (uint32_t i = 0; i < n_groups; i++) {
        struct kvpi_policy_group *group = &use->groups[i];
        const uint32_t place = kvpi_ghost_find(&policy->ghost, group->name);
        group->uses = 0;
        if (place != KVPI_GHOST_NONE) {
            const uint8_t marks = kvpi_ghost_entry(&policy->ghost, place)->class_;
            const int of_prompt = (i + 1) * size <= use->n_prompt;
            lead.in_lru += lead.in_lru == i && of_prompt && marks & KVPI_GHOST_IN_LRU;
            lead.known += lead.known == i;
            group->uses = return_group(policy, group->name, place);
        }
    }
    return lead;
}

static uint32_t kind_of_output(uint64_t tokens)
{
    return (uint32_t)(tokens >= 32) + (tokens >= 256) + (tokens >= 512);
}

static uint32_t kind_of_new(uint64_t tokens)
{
    return (uint32_t)(tokens > 512) + (tokens > 4096) + (tokens > 32768);
}

/* s of a count: 1 | 2 | 3, 4 | more; 0 is as 1. */
static const uint8_t kinds_of_count[] = {0, 0, 1, 2, 2, 3};

static uint32_t kind_of_count(uint32_t uses)
{
    return kinds_of_count[kvpi_min_u32(uses, 5)];
}

/* What the blocks of a request have in common: o and w. */
static uint32_t kind_of_request(const struct kvpi_policy *policy,
                                const struct kvpi_policy_request *use, struct lead lead)
{
    const uint64_t groups = (uint64_t)lead.known * policy->group_blocks;
    const uint64_t known = groups > use->n_hits ? groups : use->n_hits;
    const uint64_t known_tokens = kvpi_min_u64(known * policy->block_tokens, use->prompt_tokens);
    return kind_of_output(use->output_tokens) * 4 + kind_of_new(use->prompt_tokens - known_tokens);
}

/* One more use of n blocks, of content that was seen in other blocks `before` times. */
static void use_blocks(struct kvpi_policy *policy, const uint32_t *blocks, uint32_t n,
                       uint32_t before, uint32_t kind)
{
    struct kvpi_order_block *all = block_of(policy, 0);
    const uint64_t now = policy->references, span = (uint64_t)KVPI_SPAN * policy->n_blocks;
    for (uint32_t i = 0; i < n; i++) {
        struct kvpi_order_block *b = &all[blocks[i]];
        const uint32_t uses = now - b->stamp < span ? b->count : 0;
        const uint32_t count = kvpi_min_u32((uses == 0 ? before : uses) + 1, UINT8_MAX);
        KVPI_ASSERT(!b->queued);
        b->count = (uint8_t)count;
        b->class_ = (uint8_t)(kind_of_count(count) * 16 + kind);
        b->stamp = now;
    }
}

static void use_groups(struct kvpi_policy *policy, const struct kvpi_policy_request *use,
                       uint32_t kind)
{
    const uint32_t size = policy->group_blocks, n_groups = use->n_blocks / size;
    const uint32_t *blocks = use->blocks;
    for (uint32_t i = 0; i < n_groups; i++, blocks += size) {
        use_blocks(policy, blocks, size, use->groups[i].uses, kind);
    }
    use_blocks(policy, blocks, use->n_blocks % size, 0, kind);
}

static void enter_groups(struct kvpi_policy *policy, const struct kvpi_policy_request *use)
{
    const uint32_t size = policy->group_blocks;
    const uint32_t n = use->n_blocks / size;
    uint32_t loose = kvpi_min_u32(policy->loose_blocks + use->n_blocks % size, UINT16_MAX / 2);
    for (uint32_t group = n; group-- > 0;) {
        const struct kvpi_order_block *last = block_of(policy, use->blocks[(group + 1) * size - 1]);
        const struct kvpi_ghost_entry entry = {.name = use->groups[group].name,
                                               .blocks = (uint16_t)(size + loose),
                                               .count = last->count,
                                               .class_ = last->class_};
        loose = 0;
        if (kvpi_ghost_find(&policy->ghost, entry.name) == KVPI_GHOST_NONE) {
            kvpi_ghost_enter(&policy->ghost, &entry, policy->references);
        }
    }
    policy->loose_blocks = loose;
}

void kvpi_policy_use(struct kvpi_policy *policy, const struct kvpi_policy_request *use)
{
    if (use->n_blocks == 0) {
        return;
    }
    policy->references += use->n_blocks;
    policy->changes++;
    kvpi_ghost_age(&policy->ghost, &policy->hits, policy->references);
    const struct lead lead = find_groups(policy, use);
    use_groups(policy, use, kind_of_request(policy, use, lead));
    kvpi_ghost_trim(&policy->ghost, policy->n_blocks - kvpi_min_u32(use->n_held, policy->n_blocks));
    enter_groups(policy, use);
    keep_account(policy, kvpi_min_u32(use->n_hits, use->n_prompt) / policy->group_blocks,
                 lead.in_lru);
    look_at_gate(policy);
    halve(policy, use->n_blocks / policy->group_blocks);
    kvpi_hits_learn(&policy->hits);
    if (policy->n_others > 0) {
        look_at_others(policy);
    }
}

void kvpi_policy_rest(struct kvpi_policy *policy, uint32_t block)
{
    struct kvpi_order_block *b = block_of(policy, block);
    KVPI_ASSERT(!b->queued);
    b->stamp = policy->references;
    b->number = ++policy->rests;
    policy->changes++;
}

void kvpi_policy_follow(struct kvpi_policy *policy, uint32_t block, uint32_t other)
{
    struct kvpi_order_block *b = block_of(policy, block);
    const struct kvpi_order_block *from = block_of(policy, other);
    KVPI_ASSERT(!b->queued);
    b->stamp = from->stamp;
    b->class_ = from->class_;
    b->count = from->count;
}

void kvpi_policy_arrive(struct kvpi_policy *policy, uint32_t block)
{
    struct kvpi_order_block *b = block_of(policy, block);
    KVPI_ASSERT(!b->queued);
    b->number = ++policy->rests;
    policy->changes++;
}

void kvpi_policy_forget(struct kvpi_policy *policy, uint32_t block)
{
    struct kvpi_order_block *b = block_of(policy, block);
    KVPI_ASSERT(!b->queued);
    b->count = 0;
    b->class_ = 0;
}

/* ------------------------------------------------------------------------------------ choose */

/* The index at an age. From the edge of its bin it rises to the next one, or falls three quarters
 * of the way: what comes back at the end of its bin, always, is not worthless just before. */
static uint32_t at_age(const struct kvpi_policy *policy, const uint32_t index[KVPI_BINS + 1],
                       uint64_t age)
{
    const uint32_t bin = kvpi_bins_of(policy->n_blocks, age);
    if (bin == KVPI_BINS) {
        return 0;
    }
    const uint64_t begin = kvpi_bins_edge(policy->n_blocks, bin);
    const int64_t length = (int64_t)(kvpi_bins_edge(policy->n_blocks, bin + 1) - begin);
    const int64_t rise = (int64_t)index[bin + 1] - index[bin];
    const int64_t change = rise > 0 ? rise : rise * 3 / 4;
    return (uint32_t)(index[bin] + change * (int64_t)(age - begin) / length);
}

/* What the end of a class is worth; one of its class and stamp was worth as much. */
static const struct kvpi_policy_worth *value(struct kvpi_policy *policy,
                                             struct kvpi_policy_worth *worth, uint32_t block)
{
    if (worth->change != policy->changes || worth->block != block) {
        const struct kvpi_order_block *b = block_of(policy, block);
        const uint64_t age = policy->references - b->stamp;
        if (worth->change != policy->changes || worth->stamp != b->stamp) {
            kvpi_hits_settle(&policy->hits, b->class_);
            worth->now = at_age(policy, policy->hits.now[b->class_], age);
            worth->best = at_age(policy, policy->hits.best[b->class_], age);
        }
        worth->change = policy->changes;
        worth->block = block;
        worth->stamp = b->stamp;
        worth->number = b->number;
    }
    return worth;
}

static int is_older(const struct kvpi_policy_worth *a, const struct kvpi_policy_worth *b)
{
    return a->stamp < b->stamp || (a->stamp == b->stamp && a->number < b->number);
}

/* Is a worth less than b, or as much and older? */
static int goes_before(const struct kvpi_policy_worth *a, const struct kvpi_policy_worth *b)
{
    return a->best < b->best || (a->best == b->best && is_older(a, b));
}

/* Of all blocks of a lane. */
static uint32_t choose_oldest(const struct kvpi_order *order)
{
    uint32_t oldest = KVPI_POLICY_NONE;
    for (uint64_t left = order->filled; left != 0; left &= left - 1) {
        const uint32_t end = order->oldest[__builtin_ctzll(left)];
        if (oldest == KVPI_POLICY_NONE || kvpi_order_is_older(order, end, oldest)) {
            oldest = end;
        }
    }
    return oldest;
}

/* Of all ends of a lane's classes. */
static uint32_t choose(struct kvpi_policy *policy, uint32_t lane)
{
    const struct kvpi_order *order = &policy->order[lane];
    const uint32_t tier = lane >= KVPI_POLICY_OTHERS;
    const struct kvpi_policy_worth *oldest = NULL, *old = NULL, *young = NULL;
    if (order->filled == 0 || kvpi_policy_is_lru(policy) || (tier == 1 && policy->others_gated)) {
        return choose_oldest(order);
    }
    for (uint64_t left = order->filled; left != 0; left &= left - 1) {
        const uint32_t c = (uint32_t)__builtin_ctzll(left);
        const struct kvpi_policy_worth *end;
        end = value(policy, &policy->oldest[tier][c], order->oldest[c]);
        oldest = oldest == NULL || is_older(end, oldest) ? end : oldest;
        old = old == NULL || goes_before(end, old) ? end : old;
        end = value(policy, &policy->youngest[tier][c], order->youngest[c]);
        young = young == NULL || end->now < young->now ? end : young;
    }
    old = IS_LESS(old->best, oldest->best) ? old : oldest;
    return IS_MUCH_LESS(young->now, old->now) ? young->block : old->block;
}

uint32_t kvpi_policy_choose_anew(struct kvpi_policy *policy, uint32_t lane)
{
    kvpi_order_settle(&policy->order[lane]);
    const uint32_t block = choose(policy, lane);
    if (block == KVPI_POLICY_NONE) {
        kvpi_policy_last(policy, lane)->state = KVPI_CHOICE_NONE;
        return block;
    }
    const struct kvpi_order_block *b = block_of(policy, block);
    *kvpi_policy_last(policy, lane) = (struct kvpi_policy_choice){.change = policy->changes,
                                                                  .stamp = b->stamp,
                                                                  .number = b->number,
                                                                  .block = block,
                                                                  .class_ = b->class_,
                                                                  .lane = lane,
                                                                  .state = KVPI_CHOICE_MADE};
    return block;
}

static uint32_t now_of(struct kvpi_policy *policy, uint32_t block)
{
    const struct kvpi_order_block *b = block_of(policy, block);
    kvpi_hits_settle(&policy->hits, b->class_);
    return at_age(policy, policy->hits.now[b->class_], policy->references - b->stamp);
}

int kvpi_policy_is_worth_less(struct kvpi_policy *policy, uint32_t block, uint32_t other)
{
    return !kvpi_policy_is_lru(policy) && !policy->others_gated &&
           now_of(policy, block) < now_of(policy, other);
}

/* ------------------------------------------------------------------------------------- audit */

static const char *check_known(const struct kvpi_policy *policy)
{
    for (uint32_t i = 0; i < policy->order[0].n_blocks; i++) {
        const struct kvpi_order_block *b = block_of(policy, i);
        if (b->class_ >= KVPI_CLASSES || b->stamp > policy->references) {
            return "V1 a block's class is none, or it was used in the future";
        }
        if (b->class_ / 16 != kind_of_count(b->count)) {
            return "V1 a block's class and its uses do not fit";
        }
        if (b->queued > KVPI_POLICY_LANES || b->number > policy->rests) {
            return "V1 a block is in no lane, or rested in the future";
        }
    }
    return NULL;
}

static const char *check_choice(const struct kvpi_policy *policy,
                                const struct kvpi_policy_choice *choice)
{
    if (choice->state == KVPI_CHOICE_NONE) {
        return NULL;
    }
    if (choice->state > KVPI_CHOICE_GONE || choice->lane >= KVPI_POLICY_LANES ||
        choice->class_ >= KVPI_CLASSES || choice->block >= policy->order[0].n_blocks) {
        return "V4 there is no such choice";
    }
    const struct kvpi_order *order = &policy->order[choice->lane];
    const struct kvpi_order_block *b = block_of(policy, choice->block);
    if (choice->state == KVPI_CHOICE_MADE &&
        (b->stamp != choice->stamp || b->number != choice->number ||
         (order->apart != choice->block && order->oldest[choice->class_] != choice->block &&
          order->youngest[choice->class_] != choice->block))) {
        return "V4 what was chosen is not at an end of its class";
    }
    return NULL;
}

const char *kvpi_policy_check(const struct kvpi_policy *policy)
{
    const char *detail = check_known(policy);
    if (detail == NULL && (policy->credit > allowed(policy, 4) ||
                           (policy->credit < -allowed(policy, 8) && !policy->distrusted))) {
        detail = "V2 the credit is out of its limits";
    }
    if (detail == NULL && policy->returned_late > policy->returned) {
        detail = "V2 more came back late than came back";
    }
    detail = detail != NULL ? detail : check_choice(policy, &policy->choice);
    detail = detail != NULL ? detail : check_choice(policy, &policy->other_choice);
    detail = detail != NULL ? detail : kvpi_hits_check(&policy->hits);
    detail = detail != NULL ? detail : kvpi_ghost_check(&policy->ghost);
    if (detail == NULL && kvpi_ghost_ages_are_wrong(&policy->ghost, policy->references)) {
        detail = "G1 an entry is of the future";
    }
    for (uint32_t lane = 0; lane < KVPI_POLICY_LANES && detail == NULL; lane++) {
        detail = kvpi_order_check(&policy->order[lane]);
    }
    return detail;
}
