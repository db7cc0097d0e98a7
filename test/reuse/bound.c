/* Owns the offline bound.
 *
 * What request j reuses of a unit was kept since the last request that passed through that unit. So
 * a unit that is kept for j takes a block from then until j, and nobody else's: what j reuses is a
 * staircase, the deeper the longer it was kept.
 *
 *   depth  |      ______________ j     units up to shared(i2, j): kept since i2
 *          |  ___|                     units up to shared(i1, j) > shared(i2, j): kept since i1
 *          +--i1--i2------------> time
 *
 * and a state takes a slot since i1. While request t is served, its own blocks and a slot besides
 * what is kept for later ones must fit. Any cache obeys that, however many states a request leaves
 * behind. With a price for each block and each slot at each time t,
 *
 *   sum over j of the best (tokens - prices of its staircase, or 0)
 *   + sum over t of price x capacity
 *
 * is not less than what any cache reuses, whatever the prices are (Lagrange). The prices are found
 * by going where the bound falls: up where more is kept than fits, down where less.
 */
#include "bound.h"

#include <math.h>
#include <stdlib.h>

typedef struct prices {
    double *block, *slot;         /* [n] */
    double *sum_block, *sum_slot; /* [n + 1] of those before */
    double *kept, *states;        /* [n] that the best choices keep at that time */
} prices;

static double *vector(uint32_t n)
{
    double *out = calloc(n, sizeof *out);
    if (out == NULL)
        abort();
    return out;
}

static void add_up(uint32_t n, const double *price, double *sum)
{
    for (uint32_t t = 0; t < n; t++)
        sum[t + 1] = sum[t] + price[t];
}

/* Prices between i and j, both left out. */
static double between(const double *sum, uint32_t i, uint32_t j)
{
    return sum[j] - sum[i + 1];
}

/* The first request of the best staircase of j, and its worth; j: it is best to keep nothing. */
static double choose(const sharing *of, const prices *p, uint32_t j, uint32_t *first)
{
    double best = 0.0, cost = 0.0;
    uint32_t depth = 0;
    *first = j;
    for (uint32_t i = j; i-- > 0;) {
        const uint32_t shared = of->shared[(size_t)i * of->n + j];
        if (shared <= depth)
            continue;
        cost += (shared - depth) / of->unit_tokens * between(p->sum_block, i, j);
        depth = shared;
        const double worth = depth - cost - between(p->sum_slot, i, j);
        if (worth > best) {
            best = worth;
            *first = i;
        }
    }
    return best;
}

/* Count what the staircase keeps at each time. */
static void keep(const sharing *of, prices *p, uint32_t j, uint32_t first)
{
    uint32_t depth = 0;
    for (uint32_t i = j; i-- > first;) {
        const uint32_t shared = of->shared[(size_t)i * of->n + j];
        for (uint32_t t = i + 1; shared > depth && t < j; t++)
            p->kept[t] += (shared - depth) / of->unit_tokens;
        depth = shared > depth ? shared : depth;
    }
    for (uint32_t t = first + 1; t < j; t++)
        p->states[t] += 1.0;
}

/* The bound at these prices, and what is kept at each time. */
static double at_prices(const sharing *of, prices *p, const double *room, double slots)
{
    double bound = 0.0;
    add_up(of->n, p->block, p->sum_block);
    add_up(of->n, p->slot, p->sum_slot);
    for (uint32_t t = 0; t < of->n; t++) {
        p->kept[t] = p->states[t] = 0.0;
        bound += p->block[t] * room[t] + p->slot[t] * slots;
    }
    for (uint32_t j = 0; j < of->n; j++) {
        uint32_t first;
        bound += choose(of, p, j, &first);
        keep(of, p, j, first);
    }
    return bound;
}

static void move(double *price, double excess, double step)
{
    *price = fmax(0.0, *price + step * excess);
}

uint64_t bound_reuse(const sharing *of, uint32_t blocks, uint32_t slots, uint32_t rounds)
{
    const uint32_t n = of->n;
    prices p = {vector(n), vector(n), vector(n + 1), vector(n + 1), vector(n), vector(n)};
    double *room = vector(n), best = INFINITY;
    for (uint32_t t = 0; t < n; t++)
        room[t] = blocks > of->blocks[t] ? blocks - of->blocks[t] : 0.0;
    for (uint32_t round = 0; round < rounds; round++) {
        const double bound = at_prices(of, &p, room, slots - 1.0);
        const double step = 2.0 / (10.0 + round);
        best = fmin(best, bound);
        for (uint32_t t = 0; t < n; t++) {
            move(&p.block[t], (p.kept[t] - room[t]) / (room[t] + 1.0), step);
            move(&p.slot[t], (p.states[t] - slots + 1.0) / slots, 400.0 * step);
        }
    }
    free(p.block);
    free(p.slot);
    free(p.sum_block);
    free(p.sum_slot);
    free(p.kept);
    free(p.states);
    free(room);
    return (uint64_t)best;
}
