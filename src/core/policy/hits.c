/* hits: see hits.h. Probabilities are fixed point with 24 bits. No sum or product below needs more
 * than 64 bits, because of KVPI_HITS_MOST. */
#include "core/policy/hits.h"

#include <string.h>

enum { BITS = 24, EXTRA = 12, PRIOR_OF_ALL = 480, PRIOR_OF_CLASS = 1600 };

#define ONE          ((uint64_t)1 << BITS)
#define MOST         (ONE * 9 / 10)
#define PRIOR_CHANCE (ONE / 50)

void kvpi_hits_reset(struct kvpi_hits *hits)
{
    memset(hits, 0, sizeof(*hits));
    hits->waiting = UINT64_MAX;
}

static void count(struct kvpi_hits *hits, uint32_t class_, uint32_t bin, uint32_t used)
{
    if (hits->at_risk[KVPI_CLASSES][bin] < KVPI_HITS_MOST) {
        hits->at_risk[class_][bin] += KVPI_HITS_ONE;
        hits->at_risk[KVPI_CLASSES][bin] += KVPI_HITS_ONE;
        hits->hits[class_][bin] += used;
        hits->hits[KVPI_CLASSES][bin] += used;
    }
}

void kvpi_hits_outlived(struct kvpi_hits *hits, uint32_t class_, uint32_t bin)
{
    count(hits, class_, bin, 0);
}

void kvpi_hits_used(struct kvpi_hits *hits, uint32_t class_, uint32_t bin)
{
    count(hits, class_, bin, KVPI_HITS_ONE);
}

void kvpi_hits_halve(struct kvpi_hits *hits)
{
    uint32_t *all = hits->hits[KVPI_CLASSES];
    uint32_t *all_at_risk = hits->at_risk[KVPI_CLASSES];
    memset(all, 0, sizeof(hits->hits[0]));
    memset(all_at_risk, 0, sizeof(hits->at_risk[0]));
    for (uint32_t c = 0; c < KVPI_CLASSES; c++) {
        for (uint32_t b = 0; b < KVPI_BINS; b++) {
            all[b] += hits->hits[c][b] /= 2;
            all_at_risk[b] += hits->at_risk[c][b] /= 2;
        }
    }
}

/* ---------------------------------------------------------------------------------- the index */

/* g, for the classes of a turn. */
static void chances_of_all(const struct kvpi_hits *hits, uint32_t turn, uint64_t g[KVPI_BINS])
{
    for (uint32_t b = 0; b < KVPI_BINS; b++) {
        g[b] = (hits->all_hits_then[turn][b] * ONE + PRIOR_OF_ALL * PRIOR_CHANCE) /
               (hits->all_at_risk_then[turn][b] + (uint64_t)PRIOR_OF_ALL);
    }
}

/* m, how often a class is used for each time that any would be. */
static uint64_t factor(const struct kvpi_hits *hits, uint32_t class_, const uint64_t g[KVPI_BINS])
{
    uint64_t used = PRIOR_OF_CLASS;
    uint64_t expected = PRIOR_OF_CLASS * ONE;
    for (uint32_t b = 0; b < KVPI_BINS; b++) {
        used += hits->hits_then[class_][b];
        expected += hits->at_risk_then[class_][b] * g[b];
    }
    return (used * ONE << EXTRA) / (expected / (ONE >> EXTRA));
}

static void chances(const struct kvpi_hits *hits, uint32_t class_, uint64_t h[KVPI_BINS])
{
    uint64_t g[KVPI_BINS];
    chances_of_all(hits, class_ / KVPI_HITS_TURN, g);
    const uint64_t m = factor(hits, class_, g);
    for (uint32_t b = 0; b < KVPI_BINS; b++) {
        const uint64_t believed = kvpi_min_u64(MOST, g[b] * m / ONE);
        h[b] = (hits->hits_then[class_][b] * ONE + PRIOR_OF_CLASS * believed) /
               (hits->at_risk_then[class_][b] + (uint64_t)PRIOR_OF_CLASS);
    }
}

/* Bins that are lived through together: from one to the one before `end`. */
struct stay {
    uint64_t gain;  /* uses in them, of content that reached the first */
    uint64_t price; /* place and time until then, in C/32 */
    uint64_t left;  /* the share that is not used in them */
    uint32_t end;
};

static struct stay stay_in_bin(uint64_t h, uint32_t b)
{
    const uint32_t length = kvpi_bins_32nds(b + 1) - kvpi_bins_32nds(b);
    return (struct stay){
        .gain = h, .price = length * ((2 * ONE - h) / 2), .left = ONE - h, .end = b + 1};
}

static int pays_more(const struct stay *a, const struct stay *b)
{
    return a->gain * b->price > b->gain * a->price;
}

static void join(struct stay *stay, const struct stay *next)
{
    stay->gain += stay->left * next->gain / ONE;
    stay->price += stay->left * next->price / ONE;
    stay->left = stay->left * next->left / ONE;
    stay->end = next->end;
}

/* From the last bin to the first: a stay goes on into the next one as long as that pays more. So
 * it ends where it pays best. */
static void make_index(const struct kvpi_hits *hits, uint32_t class_, uint32_t *now, uint32_t *best)
{
    uint64_t h[KVPI_BINS];
    struct stay stays[KVPI_BINS];
    uint32_t most = 0;
    chances(hits, class_, h);
    for (uint32_t a = KVPI_BINS; a-- > 0;) {
        struct stay stay = stay_in_bin(h[a], a);
        while (stay.end < KVPI_BINS && pays_more(&stays[stay.end], &stay)) {
            join(&stay, &stays[stay.end]);
        }
        stays[a] = stay;
        now[a] = (uint32_t)((stay.gain << KVPI_VALUE_BITS) / stay.price);
        most = kvpi_max_u32(most, now[a]);
        best[a] = most;
    }
}

void kvpi_hits_index(const struct kvpi_hits *hits, uint32_t class_, uint32_t *now, uint32_t *best)
{
    if (hits->waiting >> class_ & 1) {
        make_index(hits, class_, now, best);
    } else {
        memcpy(now, hits->now[class_], KVPI_BINS * sizeof(*now));
        memcpy(best, hits->best[class_], KVPI_BINS * sizeof(*best));
    }
}

void kvpi_hits_make(struct kvpi_hits *hits, uint32_t class_)
{
    make_index(hits, class_, hits->now[class_], hits->best[class_]);
    hits->waiting &= ~((uint64_t)1 << class_);
}

void kvpi_hits_learn(struct kvpi_hits *hits)
{
    const uint32_t turn = hits->turn / KVPI_HITS_TURN, first = turn * KVPI_HITS_TURN;
    const size_t bytes = sizeof(hits->hits[0]);
    hits->waiting &=
        ~((uint64_t)((1 << KVPI_HITS_TURN) - 1) << first); /* should the process end here */
    memcpy(hits->hits_then[first], hits->hits[first], KVPI_HITS_TURN * bytes);
    memcpy(hits->at_risk_then[first], hits->at_risk[first], KVPI_HITS_TURN * bytes);
    memcpy(hits->all_hits_then[turn], hits->hits[KVPI_CLASSES], bytes);
    memcpy(hits->all_at_risk_then[turn], hits->at_risk[KVPI_CLASSES], bytes);
    hits->waiting |= (uint64_t)((1 << KVPI_HITS_TURN) - 1) << first;
    hits->turn = (first + KVPI_HITS_TURN) % KVPI_CLASSES;
}

void kvpi_hits_restored(struct kvpi_hits *hits)
{
    hits->waiting = 0;
    for (uint32_t b = KVPI_BINS; b-- > 0;) {
        uint32_t used = 0, at_risk = 0;
        for (uint32_t c = 0; c < KVPI_CLASSES; c++) {
            used += hits->hits[c][b];
            at_risk += hits->at_risk[c][b];
            hits->best[c][b] = kvpi_max_u32(hits->now[c][b], hits->best[c][b + 1]);
        }
        hits->hits[KVPI_CLASSES][b] = used;
        hits->at_risk[KVPI_CLASSES][b] = at_risk;
    }
}

/* ---------------------------------------------------------------------------------- the audit */

static const char *check_bin(const struct kvpi_hits *hits, uint32_t b)
{
    uint64_t used = 0, at_risk = 0;
    for (uint32_t c = 0; c < KVPI_CLASSES; c++) {
        used += hits->hits[c][b];
        at_risk += hits->at_risk[c][b];
        if (hits->hits[c][b] > hits->at_risk[c][b]) {
            return "P1 more of a class was used in a bin than was there";
        }
        if (hits->best[c][b] != kvpi_max_u32(hits->now[c][b], hits->best[c][b + 1])) {
            return "P3 a class's index is not the best of what follows";
        }
    }
    return used == hits->hits[KVPI_CLASSES][b] && at_risk == hits->at_risk[KVPI_CLASSES][b]
               ? NULL
               : "P2 the classes do not add up to their sum";
}

/* What the index of a class that waits is made from. */
static const char *check_waiting(const struct kvpi_hits *hits, uint32_t class_)
{
    const uint32_t turn = class_ / KVPI_HITS_TURN;
    for (uint32_t b = 0; b < KVPI_BINS; b++) {
        if (hits->hits_then[class_][b] > hits->at_risk_then[class_][b] ||
            hits->all_hits_then[turn][b] > hits->all_at_risk_then[turn][b]) {
            return "P5 more was used in a bin than was there, when a class had its turn";
        }
    }
    return NULL;
}

const char *kvpi_hits_check(const struct kvpi_hits *hits)
{
    if (hits->turn >= KVPI_CLASSES || hits->turn % KVPI_HITS_TURN != 0) {
        return "P4 no classes begin there to learn of next";
    }
    const char *detail = NULL;
    for (uint32_t b = 0; b < KVPI_BINS && detail == NULL; b++) {
        detail = check_bin(hits, b);
    }
    for (uint64_t left = hits->waiting; left != 0 && detail == NULL; left &= left - 1) {
        detail = check_waiting(hits, (uint32_t)__builtin_ctzll(left));
    }
    return detail;
}
