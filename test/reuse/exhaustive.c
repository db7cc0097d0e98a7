/* Owns the search through everything that a cache could keep: for the bound's own test. While a
 * request is served, one slot is its own. */
#include "bound.h"

enum { MOST_HELD = 16, MOST_PLACES = 8 };

/* A state: left behind by request `from`, after so many tokens. */
typedef struct kept {
    uint32_t from, tokens;
} kept;

typedef struct search {
    const sharing *of;
    uint32_t slots, places;
} search;

static uint64_t best_from(const search *s, uint32_t j, const kept *held, uint32_t n_held);

static uint32_t shared_by(const search *s, uint32_t i, uint32_t j)
{
    return s->of->shared[i * s->of->n + j];
}

/* A state is worth keeping only where a later request parts from this one. */
static uint32_t list_places(const search *s, uint32_t i, kept *out)
{
    uint32_t n = 0;
    for (uint32_t j = i + 1; j < s->of->n && n < MOST_PLACES; j++) {
        int is_new = shared_by(s, i, j) > 0;
        for (uint32_t k = 0; k < n; k++)
            is_new = is_new && out[k].tokens != shared_by(s, i, j);
        if (is_new)
            out[n++] = (kept){i, shared_by(s, i, j)};
    }
    return n;
}

/* Go on with the chosen ones: of `all`, n[0] were held before j, and n[1] can be left by it. */
static uint64_t try_choice(const search *s, uint32_t j, const kept *all, const uint32_t n[2],
                           uint32_t chosen)
{
    kept held[MOST_HELD];
    uint32_t n_old = 0, n_new = 0;
    for (uint32_t k = 0; k < n[0] + n[1]; k++) {
        if ((chosen >> k & 1) == 0)
            continue;
        held[n_old + n_new] = all[k];
        n_old += k < n[0];
        n_new += k >= n[0];
        if (n_old + 1 > s->slots || n_old + n_new > s->slots || n_new > s->places)
            return 0;
    }
    return best_from(s, j + 1, held, n_old + n_new);
}

static uint64_t best_from(const search *s, uint32_t j, const kept *held, uint32_t n_held)
{
    kept all[MOST_HELD + MOST_PLACES];
    uint64_t best = 0;
    uint32_t reused = 0;
    if (j == s->of->n)
        return 0;
    for (uint32_t k = 0; k < n_held; k++) {
        const int is_prefix = shared_by(s, held[k].from, j) >= held[k].tokens;
        reused = is_prefix && held[k].tokens > reused ? held[k].tokens : reused;
        all[k] = held[k];
    }
    const uint32_t n[2] = {n_held, list_places(s, j, all + n_held)};
    for (uint32_t chosen = 0; chosen < 1u << (n[0] + n[1]); chosen++) {
        const uint64_t found = try_choice(s, j, all, n, chosen);
        best = found > best ? found : best;
    }
    return reused + best;
}

uint64_t bound_exhaustive(const sharing *of, uint32_t slots, uint32_t places)
{
    const search s = {of, slots, places};
    return best_from(&s, 0, (const kept *)0, 0);
}
