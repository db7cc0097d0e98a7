/* Owns the list "learned" of a replay's figures (docs/COMMAND.md): what gate and guard look at, and
 * the classes of which content was seen. Counts are entries, densities uses for C references.
 */
#include "tool/report/report_learned.h"

#include <string.h>

kvp_status kvpi_learned_counters(const kvp_cache *cache, kvp_policy_info *out)
{
    memset(out, 0, sizeof *out);
    kvp_status status = kvp_policy_info_get(cache, out);
    return status == KVP_E_STATE ? KVP_OK : status;
}

kvp_status kvpi_learned_read(const kvp_cache *cache, kvpi_learned *out)
{
    kvp_status status = kvpi_learned_counters(cache, &out->info);
    if (status != KVP_OK || out->info.entry_blocks == 0)
        return status;
    for (uint32_t c = 0; c < KVP_POLICY_CLASSES && status == KVP_OK; c++)
        status = kvp_policy_class_get(cache, c, &out->classes[c]);
    return status;
}

static void add_row(kvpi_figures *to, const char *key, const uint32_t row[KVP_POLICY_AGES],
                    double unit)
{
    kvpi_figures_open_array(to, key);
    for (uint32_t a = 0; a < KVP_POLICY_AGES; a++)
        kvpi_figures_real(to, NULL, (double)row[a] / unit);
    kvpi_figures_close(to);
}

static bool was_seen(const kvp_policy_class *class_)
{
    for (uint32_t a = 0; a < KVP_POLICY_AGES; a++)
        if (class_->seen[a] > 0)
            return true;
    return false;
}

static void add_class(kvpi_figures *to, const kvp_policy_class *class_)
{
    kvpi_figures_open(to, NULL);
    kvpi_figures_integer(to, "least_uses", class_->least_uses);
    kvpi_figures_integer(to, "least_output_tokens", class_->least_output);
    kvpi_figures_integer(to, "least_new_tokens", class_->least_new);
    add_row(to, "seen", class_->seen, KVP_POLICY_ENTRY);
    add_row(to, "used", class_->used, KVP_POLICY_ENTRY);
    add_row(to, "density", class_->density, KVP_POLICY_DENSITY);
    kvpi_figures_close(to);
}

static void add_blocks(kvpi_figures *to, const char *key, int64_t credit)
{
    kvpi_figures_real(to, key, (double)credit / KVP_POLICY_CREDIT);
}

const char *kvpi_learned_fallback(const kvp_policy_info *info)
{
    static const char *const names[] = {"none", "cold", "guard", "gate"};
    return names[info->fallback];
}

static void add_info(kvpi_figures *to, const kvp_policy_info *info)
{
    kvpi_figures_integer(to, "cold_references", info->cold_references);
    kvpi_figures_integer(to, "guard_references", info->guard_references);
    kvpi_figures_integer(to, "gate_references", info->gate_references);
    kvpi_figures_text(to, "fallback", kvpi_learned_fallback(info));
    add_blocks(to, "credit_blocks", info->credit);
    add_blocks(to, "credit_floor_blocks", info->credit_floor);
    add_blocks(to, "credit_limit_blocks", info->credit_limit);
    kvpi_figures_integer(to, "returned", info->returned);
    kvpi_figures_integer(to, "returned_late", info->returned_late);
    kvpi_figures_integer(to, "entry_blocks", info->entry_blocks);
}

void kvpi_learned_add(kvpi_figures *to, const kvpi_learned *learned)
{
    if (learned->info.entry_blocks == 0)
        return;
    kvpi_figures_open(to, "learned");
    add_info(to, &learned->info);
    add_row(to, "ages", learned->classes[0].ages, 32);
    kvpi_figures_open_array(to, "classes");
    for (uint32_t c = 0; c < KVP_POLICY_CLASSES; c++)
        if (was_seen(&learned->classes[c]))
            add_class(to, &learned->classes[c]);
    kvpi_figures_close(to);
    kvpi_figures_close(to);
}
