/* draft: stands for the small model that proposes tokens. It knows the answers and makes mistakes
 * on purpose. So most trees have a right path, of any length, at any place.
 *
 *              last token
 *             /     |    \
 *            0      1     2
 *           / \     |
 *          3   4    5
 *          |        |
 *          6        7 */
#ifndef TINY_LLAMA_DRAFT_H
#define TINY_LLAMA_DRAFT_H

#include "model.h"

enum { DRAFT_NODES = 8 };

extern const int32_t draft_parents[DRAFT_NODES]; /* or -1 */
extern const uint32_t draft_depths[DRAFT_NODES];

/* Propose the tokens of the nodes.
 *
 * Takes:   known       the answers are in its `out`
 *          position    of the roots
 * Gives:   tokens      [DRAFT_NODES] siblings are different from each other */
void draft_propose(const struct generation *known, uint32_t sample, uint32_t position,
                   uint32_t vocabulary, int32_t *tokens);

/* Propose a chain: the tokens at `position` and the n - 1 behind it, all inside known's `out`.
 *
 * Gives:   tokens      [n] */
void draft_propose_chain(const struct generation *known, uint32_t sample, uint32_t position,
                         uint32_t n, uint32_t vocabulary, int32_t *tokens);

#endif
