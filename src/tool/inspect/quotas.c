/* inspect_quotas: how many blocks each namespace has and may have, on each tier of an arena. */
#include <inttypes.h>

#include "tool/inspect/inspect.h"

typedef struct account {
    uint32_t quota, blocks, cached;
} account;

static account account_of(const kvp_ns_info *info, uint32_t tier)
{
    return tier == KVP_DEVICE
               ? (account){info->quota, info->blocks, info->cached_blocks}
               : (account){info->host_quota, info->host_blocks, info->host_cached_blocks};
}

void kvpi_contents_note_quota(kvpi_contents *contents, uint32_t ns, const kvp_ns_info *info)
{
    if (ns < contents->n_spaces)
        contents->spaces[ns].quota = *info;
}

void kvpi_contents_print_quotas(const kvpi_contents *contents, uint32_t n_tiers)
{
    printf("\n%-8s %12s %12s %12s  %s\n", "tier", "quota", "blocks", "cached",
           "quotas of namespaces");
    for (uint64_t i = 0; i < contents->n_spaces; i++)
        for (uint32_t t = 0; t < n_tiers; t++) {
            const account a = account_of(&contents->spaces[i].quota, t);
            char quota[16] = "none";
            if (a.quota != KVP_NO_QUOTA)
                snprintf(quota, sizeof quota, "%" PRIu32, a.quota);
            printf("%-8s %12s %12" PRIu32 " %12" PRIu32 "  '%s'\n", kvpi_inspect_tiers[t], quota,
                   a.blocks, a.cached, kvpi_contents_name(contents, (uint32_t)i));
        }
}

int kvpi_contents_add_quotas(const kvpi_contents *contents, uint32_t n_tiers, json_t *object)
{
    json_t *rows = json_array();
    int wrong = 0;
    for (uint64_t i = 0; i < contents->n_spaces; i++)
        for (uint32_t t = 0; t < n_tiers; t++) {
            const account a = account_of(&contents->spaces[i].quota, t);
            json_t *quota =
                a.quota == KVP_NO_QUOTA ? json_null() : json_integer((json_int_t)a.quota);
            wrong += json_array_append_new(
                rows, json_pack("{s:s, s:s, s:o, s:I, s:I}", "namespace",
                                kvpi_contents_name(contents, (uint32_t)i), "tier",
                                kvpi_inspect_tiers[t], "quota", quota, "blocks",
                                (json_int_t)a.blocks, "cached", (json_int_t)a.cached));
        }
    return wrong + json_object_set_new(object, "quotas", rows);
}
