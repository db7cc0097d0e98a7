/* prefix_lost: see prefix_lost.h. */
#include "core/stages/prefix_lost.h"

static struct kvpi_kin *kin_of(const struct kvpi_prefix *prefix, uint32_t node)
{
    return (struct kvpi_kin *)kvpi_at(prefix, prefix->kin_at) + node;
}

void kvpi_lost_layout(struct kvpi_prefix *prefix, struct kvpi_layout *layout, size_t self)
{
    const uint64_t n = prefix->has_kin ? (uint64_t)prefix->n_nodes + 1 : 0;
    prefix->kin_at = kvpi_layout_take(layout, n, sizeof(struct kvpi_kin)) - self;
}

void kvpi_lost_join(struct kvpi_prefix *prefix, uint32_t node)
{
    struct kvpi_node *n = kvpi_node(prefix, node);
    struct kvpi_kin *kin = kin_of(prefix, node);
    *kin = (struct kvpi_kin){0, 0, 0};
    if (n->flags & KVPI_NODE_ROOT) {
        return;
    }
    struct kvpi_kin *above = kin_of(prefix, n->parent);
    kin->next = above->child;
    if (kin->next != KVPI_NO_NODE) {
        kin_of(prefix, kin->next)->before = node;
    }
    above->child = node;
    n->flags |= KVPI_NODE_LOST;
}

void kvpi_lost_leave(struct kvpi_prefix *prefix, uint32_t node)
{
    const struct kvpi_node *n = kvpi_node(prefix, node);
    const struct kvpi_kin *kin = kin_of(prefix, node);
    KVPI_ASSERT(kin->child == KVPI_NO_NODE && !(n->flags & KVPI_NODE_COUNTED));
    if (n->flags & KVPI_NODE_ROOT) {
        return;
    }
    if (kin->next != KVPI_NO_NODE) {
        kin_of(prefix, kin->next)->before = kin->before;
    }
    if (kin->before != KVPI_NO_NODE) {
        kin_of(prefix, kin->before)->next = kin->next;
    } else {
        kin_of(prefix, n->parent)->child = kin->next;
    }
}

static int has_block(const struct kvpi_node *n)
{
    return (n->at[KVP_DEVICE].block | n->at[KVP_HOST].block) != 0;
}

/* What K1 and K2 say of a node that is no root. */
static uint32_t marks_of(const struct kvpi_prefix *prefix, const struct kvpi_node *n)
{
    if (has_block(n) && !(kvpi_node(prefix, n->parent)->flags & KVPI_NODE_LOST)) {
        return 0;
    }
    return KVPI_NODE_LOST | (n->at[KVP_HOST].block != 0 ? KVPI_NODE_COUNTED : 0u);
}

/* Mark one node anew. Is it lost, or found again, by that? */
static int mark(struct kvpi_prefix *prefix, struct kvpi_node *n)
{
    const uint32_t before = n->flags & (KVPI_NODE_LOST | KVPI_NODE_COUNTED);
    const uint32_t now = marks_of(prefix, n);
    n->flags = (n->flags & ~(uint32_t)(KVPI_NODE_LOST | KVPI_NODE_COUNTED)) | now;
    kvpi_count(&prefix->n_lost, (now & KVPI_NODE_COUNTED) != 0);
    kvpi_uncount(&prefix->n_lost, (before & KVPI_NODE_COUNTED) != 0);
    return ((before ^ now) & KVPI_NODE_LOST) != 0;
}

/* The tree below is walked by its links: it may be deeper than a stack. */
void kvpi_lost_settle(struct kvpi_prefix *prefix, uint32_t node)
{
    const uint32_t top = node;
    const struct kvpi_node *n = kvpi_node(prefix, top);
    if (!(n->flags & KVPI_NODE_LOST) && has_block(n)) {
        return;
    }
    for (;;) {
        if (mark(prefix, kvpi_node(prefix, node)) && kin_of(prefix, node)->child != KVPI_NO_NODE) {
            node = kin_of(prefix, node)->child;
            continue;
        }
        while (node != top && kin_of(prefix, node)->next == KVPI_NO_NODE) {
            node = kvpi_node(prefix, node)->parent;
        }
        if (node == top) {
            return;
        }
        node = kin_of(prefix, node)->next;
    }
}

/* K3, one node's links: what is beside it knows it, and has its parent. */
static int is_linked(const struct kvpi_prefix *prefix, uint32_t node)
{
    const struct kvpi_kin *kin = kin_of(prefix, node);
    const uint32_t parent = kvpi_node(prefix, node)->parent;
    if (kin->next > prefix->n_touched || kin->before > prefix->n_touched) {
        return 0;
    }
    const int first = kin->before == KVPI_NO_NODE;
    const uint32_t knows =
        first ? kin_of(prefix, parent)->child : kin_of(prefix, kin->before)->next;
    return knows == node && (first || kvpi_node(prefix, kin->before)->parent == parent) &&
           (kin->next == KVPI_NO_NODE || kin_of(prefix, kin->next)->before == node);
}

const char *kvpi_lost_check(const struct kvpi_prefix *prefix, uint64_t *out_node)
{
    uint64_t n_lost = 0;
    if (!prefix->has_kin) {
        return NULL;
    }
    for (uint32_t i = 1; i <= prefix->n_touched; i++) {
        const struct kvpi_node *n = kvpi_node(prefix, i);
        const uint32_t marks = n->flags & (KVPI_NODE_LOST | KVPI_NODE_COUNTED);
        *out_node = i;
        if ((n->users | n->children) == 0 && !kvpi_node_has_block(prefix, i)) {
            continue;
        }
        if ((n->flags & KVPI_NODE_ROOT) == 0 && !is_linked(prefix, i)) {
            return "K3 a node is not among its parent's children";
        }
        if (marks != (n->flags & KVPI_NODE_ROOT ? 0 : marks_of(prefix, n))) {
            return "K1 a unit is lost, and not marked so, or the reverse";
        }
        n_lost += (marks & KVPI_NODE_COUNTED) != 0;
    }
    *out_node = 0;
    return n_lost == prefix->n_lost ? NULL : "K2 lost units on the host are miscounted";
}
