/* The learned policy, slowly: see oracle_policy.h. */
#include "oracle_policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lower edges of the bins in 32nds of C, and the end of the last one. */
static const uint64_t edges[PLAIN_BINS + 1] = {0,  2,  3,  4,  6,   8,   12,  16,  24,
                                               32, 48, 64, 96, 128, 192, 256, 384, 512};

enum { WEIGHT = 16, ONE = 1 << 24 };

static void *plain_memory(void *old, size_t n, size_t size)
{
    void *memory = realloc(old, (n ? n : 1) * size);

    if (!memory) {
        fprintf(stderr, "oracle_policy: no memory\n");
        exit(2);
    }
    return memory;
}

/* The first age of a bin, in references: rounded up. */
static uint64_t first_age(const plain_policy *p, uint32_t bin)
{
    return (p->c * edges[bin] + 31) / 32;
}

/* The last bin that begins at this age or below it; PLAIN_BINS: it is too old. */
static uint32_t bin_of(const plain_policy *p, uint64_t age)
{
    uint32_t bin = PLAIN_BINS;

    while (first_age(p, bin) > age)
        bin--;
    return bin;
}

/* Entries keep their time in units of at most C/4096. */
static uint64_t entry_age(const plain_policy *p, const plain_entry *e)
{
    uint64_t unit = 1;

    while (unit * 2 <= p->c / 4096)
        unit *= 2;
    return (p->now / unit - e->used / unit) * unit;
}

static uint64_t lower(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ----------------------------------------------------------------------------------- the index */

/* The probability of a use in each bin, for content of a class. */
static void probabilities(const plain_policy *p, uint32_t class_, uint64_t h[PLAIN_BINS])
{
    uint64_t all[PLAIN_BINS], used = 1600, expected = 1600ull * ONE, m;

    for (uint32_t b = 0; b < PLAIN_BINS; b++) {
        uint64_t hits = 0, at_risk = 0;

        for (uint32_t c = 0; c < PLAIN_CLASSES; c++) {
            hits += p->hits[c][b];
            at_risk += p->at_risk[c][b];
        }
        all[b] = (hits * ONE + 480ull * (ONE / 50)) / (at_risk + 480);
        used += p->hits[class_][b];
        expected += p->at_risk[class_][b] * all[b];
    }
    m = (used << 36) / (expected >> 12); /* 24 bits behind the point */
    for (uint32_t b = 0; b < PLAIN_BINS; b++) {
        uint64_t believed = lower(ONE * 9ull / 10, all[b] * m / ONE);

        h[b] = (p->hits[class_][b] * ONE + 1600 * believed) / (p->at_risk[class_][b] + 1600);
    }
}

/* Uses for place and time, if content in each bin is kept as long as pays best. It is kept through
 * its bin; and through what pays best behind that, as long as this gives more than what it had so
 * far. `stays` is where it is let go. */
static void best_rates(const uint64_t h[PLAIN_BINS], uint64_t rates[PLAIN_BINS])
{
    uint64_t gains[PLAIN_BINS], prices[PLAIN_BINS], lefts[PLAIN_BINS];
    uint32_t stays[PLAIN_BINS];

    for (int a = PLAIN_BINS - 1; a >= 0; a--) {
        uint64_t gain = h[a], left = ONE - h[a];
        uint64_t price = (edges[a + 1] - edges[a]) * ((2ull * ONE - h[a]) / 2);
        uint32_t e = (uint32_t)a + 1;

        for (; e < PLAIN_BINS && gains[e] * price > gain * prices[e]; e = stays[e]) {
            gain += left * gains[e] / ONE;
            price += left * prices[e] / ONE;
            left = left * lefts[e] / ONE;
        }
        gains[a] = gain;
        prices[a] = price;
        lefts[a] = left;
        stays[a] = e;
        rates[a] = (gain << 28) / price;
    }
}

static void learn(plain_policy *p, uint32_t n_classes)
{
    for (; n_classes; n_classes--, p->turn = (p->turn + 1) % PLAIN_CLASSES) {
        uint64_t h[PLAIN_BINS];

        probabilities(p, p->turn, h);
        best_rates(h, p->near[p->turn]);
        for (uint32_t a = 0; a < PLAIN_BINS; a++) {
            p->far[p->turn][a] = 0;
            for (uint32_t b = a; b < PLAIN_BINS; b++)
                if (p->near[p->turn][b] > p->far[p->turn][a])
                    p->far[p->turn][a] = p->near[p->turn][b];
        }
    }
}

/* ---------------------------------------------------------------------------------------- life */

void plain_reset(plain_policy *p)
{
    plain_policy old = *p;

    memset(p, 0, sizeof *p);
    p->c = old.c;
    p->others = old.others;
    p->block_tokens = old.block_tokens;
    p->group = old.group;
    p->blocks = old.blocks;
    p->entries = old.entries;
    p->capacity = old.capacity;
    p->chose_cold = old.chose_cold;
    p->chose_gated = old.chose_gated;
    p->chose_distrusted = old.chose_distrusted;
    p->chose_oldest = old.chose_oldest;
    p->chose_old = old.chose_old;
    p->chose_young = old.chose_young;
    p->halvings = old.halvings;
    memset(p->blocks, 0, (size_t)(p->c + 1 + p->others) * sizeof *p->blocks);
    learn(p, PLAIN_CLASSES);
}

plain_policy *plain_create(uint64_t c, uint64_t others, uint64_t block_tokens, uint64_t group)
{
    plain_policy *p = plain_memory(NULL, 1, sizeof *p);

    memset(p, 0, sizeof *p);
    p->c = c;
    p->others = others;
    p->block_tokens = block_tokens;
    p->group = group;
    p->blocks = plain_memory(NULL, (size_t)(c + 1 + others), sizeof *p->blocks);
    plain_reset(p);
    return p;
}

void plain_destroy(plain_policy *p)
{
    if (!p)
        return;
    free(p->blocks);
    free(p->entries);
    free(p);
}

/* ------------------------------------------------------------------------------------- entries */

static void entry_remove(plain_policy *p, uint32_t at)
{
    p->n_entries--;
    memmove(&p->entries[at], &p->entries[at + 1], (p->n_entries - at) * sizeof *p->entries);
}

static uint32_t entry_find(const plain_policy *p, uint32_t name)
{
    for (uint32_t i = 0; i < p->n_entries; i++)
        if (p->entries[i].name == name)
            return i;
    return PLAIN_NONE;
}

/* What lived through a bin; what is forgotten. */
static void grow_old(plain_policy *p)
{
    for (uint32_t i = 0; i < p->n_entries;) {
        plain_entry *e = &p->entries[i];

        while (e->outlived < PLAIN_BINS && entry_age(p, e) >= first_age(p, e->outlived + 1))
            p->at_risk[e->class_][e->outlived++] += WEIGHT;
        if (e->outlived == PLAIN_BINS)
            entry_remove(p, i);
        else
            i++;
    }
}

/* LRU evicts until it has at most n blocks. */
static void evict_lru(plain_policy *p, uint64_t n)
{
    uint64_t has = 0;

    for (uint32_t i = 0; i < p->n_entries; i++)
        has += p->entries[i].in_lru ? p->entries[i].blocks : 0;
    for (uint32_t i = 0; i < p->n_entries && has > n; i++) {
        has -= p->entries[i].in_lru ? p->entries[i].blocks : 0;
        p->entries[i].in_lru = false;
    }
}

static void enter(plain_policy *p, const plain_request *r)
{
    uint64_t loose = lower(p->loose + r->n_blocks % p->group, UINT16_MAX / 2);

    for (uint64_t g = r->n_blocks / p->group; g-- > 0;) {
        const plain_block *last = &p->blocks[r->blocks[(g + 1) * p->group - 1]];
        plain_entry e = {.name = r->names[g], .used = p->now, .uses = last->uses};

        e.class_ = last->class_;
        e.blocks = (uint32_t)(p->group + loose);
        e.in_lru = true;
        loose = 0;
        if (entry_find(p, e.name) != PLAIN_NONE)
            continue;
        if (p->n_entries == p->capacity) {
            p->capacity = 2 * p->capacity + 8;
            p->entries = plain_memory(p->entries, p->capacity, sizeof *p->entries);
        }
        p->entries[p->n_entries++] = e;
    }
    p->loose = loose;
}

/* ---------------------------------------------------------------------------------------- uses */

static void count_use(plain_policy *p, int32_t block, uint32_t before)
{
    plain_block *b = &p->blocks[block];
    uint32_t uses = p->now - b->used < 16 * p->c ? b->uses : 0;

    uses = (uses ? uses : before) + 1;
    b->uses = uses > 255 ? 255 : uses;
}

/* Uses of the blocks of one group, whose content may be known. Tells whether it is, and whether LRU
 * has it. */
static bool use_group(plain_policy *p, const plain_request *r, uint64_t g, bool *out_in_lru)
{
    bool whole = (g + 1) * p->group <= r->n_blocks;
    uint32_t at = whole ? entry_find(p, r->names[g]) : PLAIN_NONE;
    uint32_t before = 0;

    *out_in_lru = false;
    if (at != PLAIN_NONE) {
        const plain_entry *e = &p->entries[at];
        uint32_t bin = bin_of(p, entry_age(p, e));

        p->hits[e->class_][bin] += WEIGHT;
        p->at_risk[e->class_][bin] += WEIGHT;
        p->returned++;
        p->late += !e->in_lru;
        before = e->uses;
        *out_in_lru = e->in_lru;
        entry_remove(p, at);
    }
    for (uint64_t i = g * p->group; i < lower((g + 1) * p->group, r->n_blocks); i++)
        count_use(p, r->blocks[i], before);
    return at != PLAIN_NONE;
}

static uint32_t step_of(uint64_t value, uint64_t a, uint64_t b, uint64_t c)
{
    return value < a ? 0 : value < b ? 1 : value < c ? 2 : 3;
}

static void keep_accounts(plain_policy *p, const plain_request *r, uint64_t lru_groups)
{
    uint64_t groups = lower(r->n_hits, r->n_prompt) / p->group;
    int64_t slack = (int64_t)((1u << 20) / p->block_tokens);
    int64_t most = ((int64_t)(p->c / 4) + slack) * 200;
    int64_t floor = -((int64_t)(p->c / 8) + slack) * 200;

    p->hit_blocks += groups * p->group;
    p->lru_blocks += lru_groups * p->group;
    p->credit += ((int64_t)groups - (int64_t)lru_groups) * (int64_t)p->group * 200;
    p->credit += (int64_t)(lru_groups * p->group); /* half a percent */
    p->credit = p->credit > most ? most : p->credit;
    if (p->credit < floor)
        p->distrusted = true;
    else if (p->credit >= 0)
        p->distrusted = false;
    if (++p->since_gate == 64) {
        p->since_gate = 0;
        p->gated = p->late * 100 < p->returned * 6;
    }
}

static void halve(plain_policy *p, uint64_t n_groups)
{
    uint64_t every = (1u << 25) / (p->group * p->block_tokens);

    p->since_halved += n_groups;
    if (p->since_halved < (every ? every : 1))
        return;
    p->since_halved = 0;
    p->halvings++;
    p->returned /= 2;
    p->late /= 2;
    for (uint32_t c = 0; c < PLAIN_CLASSES; c++) {
        for (uint32_t b = 0; b < PLAIN_BINS; b++) {
            p->hits[c][b] /= 2;
            p->at_risk[c][b] /= 2;
        }
    }
}

/* Is less than 6 % of what comes back as old as the blocks of both tiers are many? */
static void look_at_others(plain_policy *p)
{
    uint64_t all = 0, late = 0;

    for (uint32_t c = 0; c < PLAIN_CLASSES; c++) {
        for (uint32_t b = 0; b < PLAIN_BINS; b++) {
            all += p->hits[c][b];
            late += first_age(p, b) >= p->c + p->others ? p->hits[c][b] : 0;
        }
    }
    p->others_gated = late * 100 < all * 6;
}

void plain_use(plain_policy *p, const plain_request *r)
{
    uint64_t n_groups = (r->n_blocks + p->group - 1) / p->group, known = 0, lru = 0, of_lead;
    uint32_t o, w;

    if (!r->n_blocks)
        return;
    p->now += r->n_blocks;
    grow_old(p);
    for (uint64_t g = 0; g < n_groups; g++) {
        bool in_lru, was_known = use_group(p, r, g, &in_lru);

        known += was_known && known == g;
        lru += in_lru && lru == g && (g + 1) * p->group <= r->n_prompt;
    }
    of_lead = known * p->group > r->n_hits ? known * p->group : r->n_hits;
    o = step_of(r->output_tokens, 32, 256, 512);
    w = step_of(r->prompt_tokens - lower(of_lead * p->block_tokens, r->prompt_tokens), 513, 4097,
                32769);
    for (uint32_t i = 0; i < r->n_blocks; i++) {
        plain_block *b = &p->blocks[r->blocks[i]];

        b->class_ = step_of(b->uses, 2, 3, 5) * 16 + o * 4 + w;
        b->used = p->now;
    }
    evict_lru(p, p->c - lower(r->n_held, p->c));
    enter(p, r);
    keep_accounts(p, r, lru);
    halve(p, r->n_blocks / p->group);
    learn(p, 4);
    look_at_others(p);
}

void plain_rest(plain_policy *p, uint32_t block)
{
    if (!p->blocks[block].follows)
        p->blocks[block].used = p->now;
    p->blocks[block].number = ++p->n_left;
}

void plain_follow(plain_policy *p, uint32_t block, uint32_t other)
{
    uint64_t number = p->blocks[block].number;

    p->blocks[block] = p->blocks[other];
    p->blocks[block].number = number;
    p->blocks[block].follows = true;
}

void plain_forget(plain_policy *p, uint32_t block)
{
    p->blocks[block].follows = false;
    p->blocks[block].uses = p->blocks[block].class_ = 0;
}

/* ------------------------------------------------------------------------------------- victims */

bool plain_is_lru(const plain_policy *p)
{
    return p->now < 2 * p->c || p->distrusted || p->gated;
}

static bool is_older(const plain_policy *p, uint32_t a, uint32_t b)
{
    const plain_block *x = &p->blocks[a], *y = &p->blocks[b];

    return x->used != y->used ? x->used < y->used : x->number < y->number;
}

/* The value at an age: from edge to edge in a line, but down only three quarters of the way. */
static uint64_t at_age(const plain_policy *p, const uint64_t index[PLAIN_BINS + 1], uint64_t age)
{
    uint32_t bin = bin_of(p, age);
    int64_t change, length;

    if (bin == PLAIN_BINS)
        return 0;
    length = (int64_t)(first_age(p, bin + 1) - first_age(p, bin));
    change = (int64_t)index[bin + 1] - (int64_t)index[bin];
    if (change < 0)
        change = change * 3 / 4;
    return (uint64_t)((int64_t)index[bin] + change * (int64_t)(age - first_age(p, bin)) / length);
}

static uint64_t value(const plain_policy *p, uint32_t block, bool far)
{
    const plain_block *b = &p->blocks[block];

    return at_age(p, far ? p->far[b->class_] : p->near[b->class_], p->now - b->used);
}

bool plain_is_worth_less(const plain_policy *p, uint32_t block, uint32_t other)
{
    return !plain_is_lru(p) && !p->others_gated && value(p, block, false) < value(p, other, false);
}

/* Of each class, the oldest block that may go, and the youngest. */
static void find_ends(const plain_policy *p, const bool *may_go, uint32_t first[PLAIN_CLASSES],
                      uint32_t last[PLAIN_CLASSES])
{
    for (uint32_t c = 0; c < PLAIN_CLASSES; c++)
        first[c] = last[c] = PLAIN_NONE;
    for (uint32_t i = 0; i <= p->c + p->others; i++) {
        uint32_t c = p->blocks[i].class_;

        if (!may_go[i])
            continue;
        if (first[c] == PLAIN_NONE || is_older(p, i, first[c]))
            first[c] = i;
        if (last[c] == PLAIN_NONE || is_older(p, last[c], i))
            last[c] = i;
    }
}

/* Is block a worth less than b, or as little and older? */
static bool goes_before(const plain_policy *p, uint32_t a, uint32_t b)
{
    uint64_t x = value(p, a, true), y = value(p, b, true);

    return x < y || (x == y && is_older(p, a, b));
}

static uint32_t note(plain_policy *p, uint32_t chosen, uint32_t oldest, uint32_t old)
{
    p->chose_oldest += chosen == oldest;
    p->chose_old += chosen == old && chosen != oldest;
    p->chose_young += chosen != old && chosen != oldest;
    return chosen;
}

uint32_t plain_choose(plain_policy *p, const bool *may_go)
{
    uint32_t first[PLAIN_CLASSES], last[PLAIN_CLASSES];
    uint32_t oldest = PLAIN_NONE, old = PLAIN_NONE, young = PLAIN_NONE;

    find_ends(p, may_go, first, last);
    for (uint32_t c = 0; c < PLAIN_CLASSES; c++) {
        if (first[c] == PLAIN_NONE)
            continue;
        if (oldest == PLAIN_NONE || is_older(p, first[c], oldest))
            oldest = first[c];
        if (old == PLAIN_NONE || goes_before(p, first[c], old))
            old = first[c];
        if (young == PLAIN_NONE || value(p, last[c], false) < value(p, young, false))
            young = last[c];
    }
    if (oldest == PLAIN_NONE)
        return PLAIN_NONE;
    if (plain_is_lru(p) || (oldest > p->c && p->others_gated)) {
        p->chose_cold += p->now < 2 * p->c;
        p->chose_gated += p->gated;
        p->chose_distrusted += p->distrusted;
        return oldest;
    }
    if (6 * value(p, old, true) > 5 * value(p, oldest, true))
        old = oldest;
    return note(p, 13 * value(p, young, false) < 10 * value(p, old, false) ? young : old, oldest,
                old);
}
