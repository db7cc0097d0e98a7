/* hits: what became of content of each class, by age; and the index that follows from it.
 *
 *   at_risk[c][b]   content of class c that lived through bin b of its age, or was used again in it
 *   hits[c][b]      of these, the ones that were used again
 *
 * each KVPI_HITS_ONE at once, and halved from time to time. So hits <= at_risk (P1). The last row
 * of both is the sum of the others (P2).
 *
 * The probability of a use in bin b, of content that lived to see it, is
 *
 *   g[b]    = (sum_c hits + 480/50) / (sum_c at_risk + 480)                           of any class
 *   m       = (sum_b hits[c] + 1600) / (sum_b at_risk[c] g + 1600)            how c differs from it
 *   h[b]    = (hits[c][b] + 1600 min(0.9, g m)) / (at_risk[c][b] + 1600)
 *
 * 480 and 1600 are the weights of what is believed of content that was rarely seen: 30 and 100
 * times.
 *
 * What content of class c that has reached bin a gives in return for its place, if it is kept as
 * long as pays best, is Gittins' index:
 *
 *   now[c][a]  = max over e >= a of  sum_{a..e} S h  /  sum_{a..e} length S (1 - h/2)
 *   best[c][a] = max over b >= a of  now[c][b]                                               (P3)
 *
 * in uses for C/32 references, as fixed point with KVPI_VALUE_BITS bits. S is the share that is not
 * used before: 1 at a, and multiplied by 1 - h from bin to bin. `now` is what staying now gives;
 * `best` what it will give at its best.
 *
 * Classes have turns: the index of a class is that of the counts as they were at its last turn. It
 * is made when it is asked for: most are not before the next turn.
 *
 *   turn is a multiple of KVPI_HITS_TURN, below KVPI_CLASSES                                  (P4)
 *   of a class that waits, and of all at its turn: hits <= at_risk                            (P5)
 *
 * The best e is found from the last bin to the first. Bins a .. e are a stay. It goes on into the
 * one behind it as long as that pays more: as with the upper hull of points, each is joined once.
 */
#ifndef KVPI_POLICY_HITS_H
#define KVPI_POLICY_HITS_H

#include "core/policy/bins.h"

enum { KVPI_CLASSES = 64, KVPI_HITS_ONE = 16, KVPI_VALUE_BITS = 28 };

/* Classes that have a turn together; and turns until a class has the next one. */
enum { KVPI_HITS_TURN = 4, KVPI_HITS_TURNS = KVPI_CLASSES / KVPI_HITS_TURN };

/* So much is counted in a bin, and no more until it is halved. */
enum { KVPI_HITS_MOST = KVPI_HITS_ONE << 18 };

struct kvpi_hits {
    uint32_t hits[KVPI_CLASSES + 1][KVPI_BINS];
    uint32_t at_risk[KVPI_CLASSES + 1][KVPI_BINS];
    uint32_t now[KVPI_CLASSES][KVPI_BINS + 1]; /* the last column is 0 */
    uint32_t best[KVPI_CLASSES][KVPI_BINS + 1];
    uint32_t turn;    /* the first class of the next turn */
    uint64_t waiting; /* bit c: the index of class c is not made yet. Counts at its last turn: */
    uint32_t hits_then[KVPI_CLASSES][KVPI_BINS];
    uint32_t at_risk_then[KVPI_CLASSES][KVPI_BINS];
    uint32_t all_hits_then[KVPI_HITS_TURNS][KVPI_BINS];
    uint32_t all_at_risk_then[KVPI_HITS_TURNS][KVPI_BINS];
};

/* Forget everything. */
void kvpi_hits_reset(struct kvpi_hits *hits);

/* Content of a class lived through a bin, or was used again in it. */
void kvpi_hits_outlived(struct kvpi_hits *hits, uint32_t class_, uint32_t bin);
void kvpi_hits_used(struct kvpi_hits *hits, uint32_t class_, uint32_t bin);

/* Let what was counted so far weigh half. */
void kvpi_hits_halve(struct kvpi_hits *hits);

/* The next classes have their turn. */
void kvpi_hits_learn(struct kvpi_hits *hits);

/* A class's index [KVPI_BINS], as if it were made. Cost: if it waits, 52 divisions and 150 to 250
 * multiplications. */
void kvpi_hits_index(const struct kvpi_hits *hits, uint32_t class_, uint32_t *now, uint32_t *best);

/* Make the index of a class that waits. */
void kvpi_hits_make(struct kvpi_hits *hits, uint32_t class_);

/* Make a class's index if it waits. */
static inline void kvpi_hits_settle(struct kvpi_hits *hits, uint32_t class_)
{
    if (hits->waiting >> class_ & 1) {
        kvpi_hits_make(hits, class_);
    }
}

/* Make sums and `best` of the classes' counts and `now`, which were put there. */
void kvpi_hits_restored(struct kvpi_hits *hits);

/* Audit P1 to P5: NULL, or what is wrong. */
const char *kvpi_hits_check(const struct kvpi_hits *hits);

#endif
