/* draft: whether one of some siblings is right, and which, depends only on position and sample. */
#include "draft.h"

#include <stddef.h>

const int32_t draft_parents[DRAFT_NODES] = {-1, -1, -1, 0, 0, 1, 3, 5};
const uint32_t draft_depths[DRAFT_NODES] = {0, 0, 0, 1, 1, 1, 2, 2};

/* Which child of its parent a node is, and how many there are. */
static uint32_t rank_of(uint32_t node, uint32_t *n_siblings)
{
    uint32_t rank = 0;
    *n_siblings = 0;
    for (uint32_t i = 0; i < DRAFT_NODES; i++) {
        if (draft_parents[i] != draft_parents[node])
            continue;
        rank += i < node;
        *n_siblings += 1;
    }
    return rank;
}

/* Behind a wrong node the right token stands often: it must not be accepted there. */
void draft_propose(const struct generation *known, uint32_t sample, uint32_t position,
                   uint32_t vocabulary, int32_t *tokens)
{
    const int32_t *answers = known->out + (size_t)sample * known->n_new;
    for (uint32_t node = 0; node < DRAFT_NODES; node++) {
        const uint32_t its_position = position + draft_depths[node];
        const uint32_t at = its_position - known->n_prompt;
        const int32_t answer = at < known->n_new ? answers[at] : 0;
        uint32_t n_siblings;
        const uint32_t rank = rank_of(node, &n_siblings);
        const int is_right =
            rank == (its_position * 5 + its_position / 4 + sample) % (n_siblings + 1);
        tokens[node] = is_right ? answer : (int32_t)(((uint32_t)answer + 1 + node) % vocabulary);
    }
}

/* Seven of eight are right, also behind a wrong one. */
void draft_propose_chain(const struct generation *known, uint32_t sample, uint32_t position,
                         uint32_t n, uint32_t vocabulary, int32_t *tokens)
{
    const int32_t *answers = known->out + (size_t)sample * known->n_new;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = position + i;
        const int32_t answer = answers[at - known->n_prompt];
        const int is_right = (at * 5 + at / 4 + sample) % 8 > 0;
        tokens[i] = is_right ? answer : (int32_t)(((uint32_t)answer + 1) % vocabulary);
    }
}
