/* quotas: how many blocks each namespace has and may have, on each tier of an arena, and how
 * many slots of state. */
#include <inttypes.h>
#include <kvpager/states.h>

#include "tool/inspect/inspect.h"

typedef struct account {
    uint32_t quota, blocks, cached;
} account;

enum { N_POOLS = 3 };

static const char *const pools[N_POOLS] = {"device", "host", "slots"};

static account account_of(const kvp_ns_info *info, uint32_t pool)
{
    return pool == KVP_DEVICE ? (account){info->quota, info->blocks, info->cached_blocks}
           : pool == KVP_HOST
               ? (account){info->host_quota, info->host_blocks, info->host_cached_blocks}
               : (account){info->state_quota, info->state_slots, info->cached_state_slots};
}

static int is_there(const kvpi_contents *contents, uint32_t n_tiers, uint32_t pool)
{
    return pool == KVP_STATE_SLOTS ? contents->has_states : pool < n_tiers;
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
        for (uint32_t t = 0; t < N_POOLS; t++) {
            const account a = account_of(&contents->spaces[i].quota, t);
            if (!is_there(contents, n_tiers, t))
                continue;
            char quota[16] = "none";
            if (a.quota != KVP_NO_QUOTA)
                snprintf(quota, sizeof quota, "%" PRIu32, a.quota);
            printf("%-8s %12s %12" PRIu32 " %12" PRIu32 "  '%s'\n", pools[t], quota, a.blocks,
                   a.cached, kvpi_contents_name(contents, (uint32_t)i));
        }
}

void kvpi_contents_add_quotas(kvpi_figures *to, const kvpi_contents *contents, uint32_t n_tiers)
{
    kvpi_figures_open_array(to, "quotas");
    for (uint64_t i = 0; i < contents->n_spaces; i++)
        for (uint32_t t = 0; t < N_POOLS; t++) {
            const account a = account_of(&contents->spaces[i].quota, t);
            if (!is_there(contents, n_tiers, t))
                continue;
            kvpi_figures_open(to, NULL);
            kvpi_figures_text(to, "namespace", kvpi_contents_name(contents, (uint32_t)i));
            kvpi_figures_text(to, "tier", pools[t]);
            kvpi_figures_integer_if(to, a.quota != KVP_NO_QUOTA, "quota", a.quota);
            kvpi_figures_integer(to, "blocks", a.blocks);
            kvpi_figures_integer(to, "cached", a.cached);
            kvpi_figures_close(to);
        }
    kvpi_figures_close(to);
}
