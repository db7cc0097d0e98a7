/* store_spaces: a hash table with chains, and a list of identifiers that are free. */
#include "store/store_spaces.h"

#include <stdlib.h>

kvp_status kvpi_spaces_open(struct kvpi_spaces *spaces, uint32_t n)
{
    *spaces = (struct kvpi_spaces){.n = n < KVPI_SPACES_MAX ? n : KVPI_SPACES_MAX, .n_buckets = 1};
    while (spaces->n_buckets < spaces->n)
        spaces->n_buckets *= 2;
    spaces->items = calloc(spaces->n, sizeof *spaces->items);
    spaces->table = calloc(spaces->n_buckets, sizeof *spaces->table);
    return spaces->items && spaces->table ? KVP_OK : KVP_E_NO_MEMORY;
}

void kvpi_spaces_close(struct kvpi_spaces *spaces)
{
    free(spaces->items);
    free(spaces->table);
    *spaces = (struct kvpi_spaces){0};
}

static uint32_t *head_of(const struct kvpi_spaces *spaces, uint64_t number)
{
    const uint64_t mixed = number * UINT64_C(0x9E3779B97F4A7C15);
    return &spaces->table[(mixed >> 32) & (spaces->n_buckets - 1)];
}

int32_t kvpi_spaces_find(const struct kvpi_spaces *spaces, uint64_t number)
{
    uint32_t at = *head_of(spaces, number);
    while (at != 0 && spaces->items[at - 1].number != number)
        at = spaces->items[at - 1].chain;
    return (int32_t)at - 1;
}

int32_t kvpi_spaces_enter(struct kvpi_spaces *spaces, uint64_t number)
{
    int32_t id = kvpi_spaces_find(spaces, number);
    if (id < 0) {
        if (spaces->free != 0) {
            id = (int32_t)spaces->free - 1;
            spaces->free = spaces->items[id].chain;
        } else if (spaces->n_fresh < spaces->n) {
            id = (int32_t)spaces->n_fresh++;
        } else {
            return -1;
        }
        uint32_t *head = head_of(spaces, number);
        spaces->items[id] =
            (struct kvpi_spaces_item){.number = number, .cold = UINT32_MAX, .chain = *head};
        *head = (uint32_t)id + 1;
    }
    spaces->items[id].used++;
    return id;
}

void kvpi_spaces_leave(struct kvpi_spaces *spaces, uint32_t id)
{
    struct kvpi_spaces_item *space = &spaces->items[id];
    if (--space->used > 0)
        return;
    uint32_t *at = head_of(spaces, space->number);
    while (*at != id + 1)
        at = &spaces->items[*at - 1].chain;
    *at = space->chain;
    space->chain = spaces->free;
    spaces->free = id + 1;
}
