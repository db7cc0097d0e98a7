/* Owns the names of the cache's policies. */
#include "tool/report/policy_list.h"

#include <kvpager/all.h>
#include <string.h>

static const char *const names[KVPI_POLICY_LIST_MOST] = {"lru", "learned"};
static const uint32_t numbers[KVPI_POLICY_LIST_MOST] = {KVP_POLICY_LRU, KVP_POLICY_LEARNED};

const char *kvpi_policy_list_name(uint32_t policy)
{
    return names[policy == numbers[1]];
}

static int add(const char *name, size_t n, kvpi_policy_list *out)
{
    size_t i = 0;
    while (i < KVPI_POLICY_LIST_MOST && (strlen(names[i]) != n || memcmp(names[i], name, n) != 0))
        i++;
    if (i == KVPI_POLICY_LIST_MOST)
        return -1;
    for (size_t k = 0; k < out->n; k++)
        if (out->of[k] == numbers[i])
            return -1;
    out->of[out->n++] = numbers[i];
    return 0;
}

int kvpi_policy_list_read(const char *text, kvpi_policy_list *out)
{
    out->n = 0;
    for (;; text++) {
        const size_t n = strcspn(text, ",");
        if (add(text, n, out) != 0)
            return -1;
        text += n;
        if (*text == '\0')
            return 0;
    }
}
