/* prefix_lost: which units no prompt can hit, because one before them is on no tier.
 *
 *   root -- a -- b -- c -- d          a, b, d are on a tier, c is not: c and d are lost.
 *                                     d is on the host: it is counted
 *
 *   lost(node)    ==  it is no root, and its parent is lost or it is on no tier            (K1)
 *   counted(node) ==  it is lost, and has a host block;  n_lost == nodes that are counted  (K2)
 *
 * A node that gets its first block or loses its last one may change what is behind it. So nodes know
 * their children, in a list each, youngest first (K3). Memory: 12 bytes a node. Nothing is kept
 * without a host tier, or with layer groups or a window of the configuration: there a hit needs
 * other units.
 */
#ifndef KVPI_PREFIX_LOST_H
#define KVPI_PREFIX_LOST_H

#include "core/stages/prefix.h"

/* Plan the array; has_kin is set. */
void kvpi_lost_layout(struct kvpi_prefix *prefix, struct kvpi_layout *layout, size_t self);

/* A node was made, after its parent; or a root. It has no block yet. */
void kvpi_lost_join(struct kvpi_prefix *prefix, uint32_t node);

/* A node without block and children is freed. */
void kvpi_lost_leave(struct kvpi_prefix *prefix, uint32_t node);

/* A node may have got its first block, or lost its last one.
 * Cost: O(1), and O(nodes that are lost by it, or are not any more, and their children). */
void kvpi_lost_settle(struct kvpi_prefix *prefix, uint32_t node);

/* The node's block on a tier is another one. */
static inline void kvpi_lost_moved(struct kvpi_prefix *prefix, uint32_t node)
{
    if (kvpi_unlikely(prefix->has_kin != 0)) {
        kvpi_lost_settle(prefix, node);
    }
}

/* Audit K1 to K3 of nodes whose parents are right: NULL when they hold; else the node, and text
 * that begins with the invariant. */
const char *kvpi_lost_check(const struct kvpi_prefix *prefix, uint64_t *out_node);

#endif
