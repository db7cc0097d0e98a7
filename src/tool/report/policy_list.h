/* The policies of `kvpager replay --policy`, by name. */
#ifndef KVPI_POLICY_LIST_H
#define KVPI_POLICY_LIST_H

#include <stddef.h>
#include <stdint.h>

enum { KVPI_POLICY_LIST_MOST = 2 }; /* each of the cache's once */

typedef struct kvpi_policy_list {
    uint32_t of[KVPI_POLICY_LIST_MOST]; /* [n] KVP_POLICY_..., in the order of the list */
    size_t n;
} kvpi_policy_list;

const char *kvpi_policy_list_name(uint32_t policy);

/* Read names with commas between. Returns: 0; -1 when one is none, or is there twice */
int kvpi_policy_list_read(const char *text, kvpi_policy_list *out);

#endif
