/* part: what of an operation goes to one server. A put or get has one part; a have or drop one for
 * each server that has some of its keys. op->entry is the number of parts that have not ended. */
#ifndef KVPI_STORE_REDIS_PART_H
#define KVPI_STORE_REDIS_PART_H

#include "store/backend.h"

enum kvpi_part_end {
    KVPI_PART_ANSWERED = 0,
    KVPI_PART_MISSED, /* the server does not serve these keys now */
    KVPI_PART_AWAY,   /* the server is left alone */
    KVPI_PART_LATE,   /* the operation's time was over before the server was asked */
    KVPI_PART_FAILED
};

struct kvpi_part {
    struct kvpi_part *link;
    struct kvpi_store_op *op;
    enum kvpi_part_end end;
    uint32_t n_tries; /* servers that were asked before */
    uint32_t n_moved; /* keys that another server has now: they come first in `keys` */
    uint32_t n_keys;  /* 1 of a put or get */
    uint16_t keys[];  /* [n_keys] places in op->keys */
};

/* Parts, in order, by their links. */
struct kvpi_part_list {
    struct kvpi_part *first;
    struct kvpi_part *last;
};

void kvpi_part_list_add(struct kvpi_part_list *list, struct kvpi_part *part);
struct kvpi_part *kvpi_part_list_take(struct kvpi_part_list *list);

/* Operations that have ended, in order, by their links. */
struct kvpi_op_list {
    struct kvpi_store_op *first;
    struct kvpi_store_op *last;
};

void kvpi_op_list_add(struct kvpi_op_list *list, struct kvpi_store_op *op);
struct kvpi_store_op *kvpi_op_list_take(struct kvpi_op_list *list);

#endif
