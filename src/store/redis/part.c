/* part: the parts of an operation, listed. */
#include "store/redis/part.h"

void kvpi_part_list_add(struct kvpi_part_list *list, struct kvpi_part *part)
{
    part->link = NULL;
    if (list->last)
        list->last->link = part;
    else
        list->first = part;
    list->last = part;
}

struct kvpi_part *kvpi_part_list_take(struct kvpi_part_list *list)
{
    struct kvpi_part *part = list->first;
    if (!part)
        return NULL;
    list->first = part->link;
    if (!list->first)
        list->last = NULL;
    return part;
}

void kvpi_op_list_add(struct kvpi_op_list *list, struct kvpi_store_op *op)
{
    op->link = NULL;
    if (list->last)
        list->last->link = op;
    else
        list->first = op;
    list->last = op;
}

struct kvpi_store_op *kvpi_op_list_take(struct kvpi_op_list *list)
{
    struct kvpi_store_op *op = list->first;
    if (!op)
        return NULL;
    list->first = op->link;
    if (!list->first)
        list->last = NULL;
    return op;
}
