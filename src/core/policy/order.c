/* order: see order.h. */
#include "core/policy/order.h"

#include <string.h>

#define NONE KVPI_ORDER_NONE

/* The finalizer of murmur3, a bijection: no two blocks have the same. */
static uint32_t priority(uint32_t block)
{
    block = (block ^ block >> 16) * UINT32_C(0x85ebca6b);
    block = (block ^ block >> 13) * UINT32_C(0xc2b2ae35);
    return block ^ block >> 16;
}

void kvpi_order_layout(struct kvpi_order *order, struct kvpi_layout *layout, size_t self)
{
    order->blocks_at =
        kvpi_layout_take(layout, order->n_blocks, sizeof(struct kvpi_order_block)) - self;
}

void kvpi_order_reset(struct kvpi_order *order)
{
    if (order->lane == 0) {
        memset(kvpi_order_block(order, 0), 0, order->n_blocks * sizeof(struct kvpi_order_block));
    }
    memset(order->roots, 0xff, sizeof(order->roots));
    memset(order->oldest, 0xff, sizeof(order->oldest));
    memset(order->youngest, 0xff, sizeof(order->youngest));
    order->filled = 0;
    order->n_queued = 0;
    order->apart = NONE;
}

/* ---------------------------------------------------------------------------------- the trees */

/* What leads to a block. */
static uint32_t *link_to(struct kvpi_order *order, uint32_t block)
{
    const struct kvpi_order_block *b = kvpi_order_block(order, block);
    if (b->up == NONE) {
        return &order->roots[b->class_];
    }
    struct kvpi_order_block *up = kvpi_order_block(order, b->up);
    return up->older == block ? &up->older : &up->younger;
}

/* A block and the one above it change places. */
static void lift(struct kvpi_order *order, uint32_t block)
{
    struct kvpi_order_block *b = kvpi_order_block(order, block);
    const uint32_t up = b->up;
    struct kvpi_order_block *u = kvpi_order_block(order, up);
    *link_to(order, up) = block;
    const int is_older = u->older == block;
    uint32_t *from = is_older ? &b->younger : &b->older; /* what lies between the two */
    *(is_older ? &u->older : &u->younger) = *from;
    if (*from != NONE) {
        kvpi_order_block(order, *from)->up = up;
    }
    *from = up;
    b->up = u->up;
    u->up = block;
}

/* The oldest block of a tree, or the youngest. */
static uint32_t far_end(const struct kvpi_order *order, uint32_t block, int youngest)
{
    for (;;) {
        const struct kvpi_order_block *b = kvpi_order_block(order, block);
        const uint32_t next = youngest ? b->younger : b->older;
        if (next == NONE) {
            return block;
        }
        block = next;
    }
}

/* Put a block beyond an end of its class: it takes all below it on the way up from there. */
static inline void insert_at_end(struct kvpi_order *order, uint32_t block, uint32_t end, int young)
{
    struct kvpi_order_block *b = kvpi_order_block(order, block);
    const uint32_t mine = priority(block);
    uint32_t below = NONE;
    while (end != NONE && priority(end) < mine) {
        below = end;
        end = kvpi_order_block(order, end)->up;
    }
    b->up = end;
    *(young ? &b->older : &b->younger) = below;
    if (below != NONE) {
        kvpi_order_block(order, below)->up = block;
    }
    struct kvpi_order_block *up = end == NONE ? NULL : kvpi_order_block(order, end);
    *(up == NULL ? &order->roots[b->class_] : young ? &up->younger : &up->older) = block;
    order->youngest[b->class_] = young ? block : order->youngest[b->class_];
    order->oldest[b->class_] = young ? order->oldest[b->class_] : block;
}

/* Put a block between the ends of its class. */
static void insert_between(struct kvpi_order *order, uint32_t block)
{
    struct kvpi_order_block *b = kvpi_order_block(order, block);
    uint32_t *link = &order->roots[b->class_];
    while (*link != NONE) {
        struct kvpi_order_block *up = kvpi_order_block(order, *link);
        b->up = *link;
        link = kvpi_order_is_older(order, block, *link) ? &up->older : &up->younger;
    }
    *link = block;
    while (b->up != NONE && priority(block) > priority(b->up)) {
        lift(order, block);
    }
}

void kvpi_order_insert(struct kvpi_order *order, uint32_t block)
{
    struct kvpi_order_block *b = kvpi_order_block(order, block);
    const uint32_t c = b->class_;
    KVPI_ASSERT(!b->queued);
    b->up = b->older = b->younger = NONE;
    b->queued = (uint8_t)(1 + order->lane);
    order->n_queued++;
    if (order->roots[c] == NONE) {
        order->roots[c] = order->oldest[c] = order->youngest[c] = block;
        order->filled |= (uint64_t)1 << c;
        return;
    }
    const uint32_t oldest = order->oldest[c], youngest = order->youngest[c];
    if (kvpi_order_is_older(order, block, oldest)) {
        insert_at_end(order, block, oldest, 0);
    } else if (!kvpi_order_is_older(order, block, youngest)) {
        insert_at_end(order, block, youngest, 1);
    } else {
        insert_between(order, block);
    }
}

/* Take a block out of its tree. */
static void unlink_block(struct kvpi_order *order, uint32_t block)
{
    struct kvpi_order_block *b = kvpi_order_block(order, block);
    const uint32_t c = b->class_;
    if (order->oldest[c] == block) { /* so nothing is on its older side */
        order->oldest[c] = b->younger == NONE ? b->up : far_end(order, b->younger, 0);
    }
    if (order->youngest[c] == block) {
        order->youngest[c] = b->older == NONE ? b->up : far_end(order, b->older, 1);
    }
    while (b->older != NONE && b->younger != NONE) {
        lift(order, priority(b->older) > priority(b->younger) ? b->older : b->younger);
    }
    const uint32_t heir = b->older != NONE ? b->older : b->younger;
    *link_to(order, block) = heir;
    if (heir != NONE) {
        kvpi_order_block(order, heir)->up = b->up;
    }
    if (order->roots[c] == NONE) {
        order->filled &= ~((uint64_t)1 << c);
    }
}

void kvpi_order_remove(struct kvpi_order *order, uint32_t block)
{
    struct kvpi_order_block *b = kvpi_order_block(order, block);
    KVPI_ASSERT(b->queued == 1 + order->lane);
    if (order->apart == block) {
        order->apart = NONE;
    } else {
        unlink_block(order, block);
    }
    b->queued = 0;
    order->n_queued--;
}

/* ---------------------------------------------------------------------------------- the audit */

/* What comes after a block in the order of its class; NONE: it is the youngest. */
static uint32_t successor(const struct kvpi_order *order, uint32_t block)
{
    const struct kvpi_order_block *b = kvpi_order_block(order, block);
    if (b->younger != NONE) {
        return far_end(order, b->younger, 0);
    }
    uint32_t up = b->up;
    for (; up != NONE && kvpi_order_block(order, up)->younger == block; up = b->up) {
        block = up;
        b = kvpi_order_block(order, block);
    }
    return up;
}

static int is_queued(const struct kvpi_order *order, uint32_t block)
{
    return kvpi_order_block(order, block)->queued == 1 + order->lane;
}

/* NONE, or a block of the class that has a place. */
static int is_of_class(const struct kvpi_order *order, uint32_t class_, uint32_t block)
{
    return block == NONE ||
           (block < order->n_blocks && is_queued(order, block) && block != order->apart &&
            kvpi_order_block(order, block)->class_ == class_);
}

/* If this holds for all blocks, the links are trees, and their roots are the classes': every walk
 * upwards ends, because priorities rise. */
static int links_fit(const struct kvpi_order *order, uint32_t block)
{
    const struct kvpi_order_block *b = kvpi_order_block(order, block);
    const uint32_t links[] = {b->up, b->older, b->younger};
    for (int i = 0; i < 3; i++) {
        if (!is_of_class(order, b->class_, links[i])) {
            return 0;
        }
    }
    for (int i = 1; i < 3; i++) {
        if (links[i] != NONE && (kvpi_order_block(order, links[i])->up != block ||
                                 priority(links[i]) > priority(block))) {
            return 0;
        }
    }
    if (b->up == NONE) {
        return order->roots[b->class_] == block;
    }
    const struct kvpi_order_block *up = kvpi_order_block(order, b->up);
    return up->older == block || up->younger == block;
}

static const char *check_links(const struct kvpi_order *order)
{
    uint64_t n_queued = 0;
    for (uint32_t b = 0; b < order->n_blocks; b++) {
        const int queued = is_queued(order, b);
        if (queued && b != order->apart &&
            (kvpi_order_block(order, b)->class_ >= KVPI_CLASSES || !links_fit(order, b))) {
            return "O1 a block does not stand between what is above and below it";
        }
        n_queued += (uint64_t)queued;
    }
    for (uint32_t c = 0; c < KVPI_CLASSES; c++) {
        if (!is_of_class(order, c, order->roots[c])) {
            return "O1 a class has no tree of its own";
        }
    }
    return n_queued == order->n_queued ? NULL : "O2 blocks that may go are not counted";
}

static const char *check_class(const struct kvpi_order *order, uint32_t c)
{
    const uint32_t root = order->roots[c];
    if ((root != NONE) != (order->filled >> c & 1)) {
        return "O4 a class is not marked as it is";
    }
    if (order->oldest[c] != (root == NONE ? NONE : far_end(order, root, 0)) ||
        order->youngest[c] != (root == NONE ? NONE : far_end(order, root, 1))) {
        return "O3 an end is not the end of its class";
    }
    for (uint32_t b = order->oldest[c]; b != NONE;) {
        const uint32_t next = successor(order, b);
        if (next != NONE && kvpi_order_is_older(order, next, b)) {
            return "O2 a younger block stands before an older one";
        }
        b = next;
    }
    return NULL;
}

const char *kvpi_order_check(const struct kvpi_order *order)
{
    if (order->apart != NONE &&
        (order->apart >= order->n_blocks || !is_queued(order, order->apart))) {
        return "O5 what is apart may not go";
    }
    const char *detail = check_links(order);
    for (uint32_t c = 0; c < KVPI_CLASSES && detail == NULL; c++) {
        detail = check_class(order, c);
    }
    return detail;
}
