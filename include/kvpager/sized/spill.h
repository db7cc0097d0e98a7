/* kvpager/sized/spill.h: calls of spill.h that give or fill structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; spill.h says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_SPILL_H
#define KVPAGER_SIZED_SPILL_H

KVP_API void kvp_spill_config_init_sized(kvp_spill_config *config, size_t config_size);
KVP_SIZED void kvp_spill_config_init(kvp_spill_config *config)
{
    kvp_spill_config_init_sized(config, sizeof *config);
}

KVP_API kvp_status kvp_spill_stats_get_sized(const kvp_spill *spill, kvp_spill_stats *out_stats,
                                             size_t stats_size);
KVP_SIZED kvp_status kvp_spill_stats_get(const kvp_spill *spill, kvp_spill_stats *out_stats)
{
    return kvp_spill_stats_get_sized(spill, out_stats, sizeof *out_stats);
}

#endif
