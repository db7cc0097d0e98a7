/* kvpager/sized/cache.h: calls of cache.h that give or fill structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; cache.h says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_CACHE_H
#define KVPAGER_SIZED_CACHE_H

KVP_API void kvp_config_init_sized(kvp_config *config, size_t config_size);
KVP_SIZED void kvp_config_init(kvp_config *config)
{
    kvp_config_init_sized(config, sizeof *config);
}

KVP_API kvp_status kvp_cache_config_sized(const kvp_cache *cache, kvp_config *out_config,
                                          size_t config_size);
KVP_SIZED kvp_status kvp_cache_config(const kvp_cache *cache, kvp_config *out_config)
{
    return kvp_cache_config_sized(cache, out_config, sizeof *out_config);
}

KVP_API kvp_status kvp_cache_stats_sized(const kvp_cache *cache, kvp_stats *out_stats,
                                         size_t stats_size);
KVP_SIZED kvp_status kvp_cache_stats(const kvp_cache *cache, kvp_stats *out_stats)
{
    return kvp_cache_stats_sized(cache, out_stats, sizeof *out_stats);
}

KVP_API kvp_status kvp_cache_shortage_sized(const kvp_cache *cache, kvp_shortage *out_shortage,
                                            size_t shortage_size);
KVP_SIZED kvp_status kvp_cache_shortage(const kvp_cache *cache, kvp_shortage *out_shortage)
{
    return kvp_cache_shortage_sized(cache, out_shortage, sizeof *out_shortage);
}

KVP_API kvp_status kvp_match_sized(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                                   kvp_open_info *out_info, size_t info_size);
KVP_SIZED kvp_status kvp_match(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                               kvp_open_info *out_info)
{
    return kvp_match_sized(cache, ns, prompt, out_info, sizeof *out_info);
}

KVP_API kvp_status kvp_seq_open_sized(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                                      kvp_seq *out_seq, kvp_open_info *out_info, size_t info_size);
KVP_SIZED kvp_status kvp_seq_open(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                                  kvp_seq *out_seq, kvp_open_info *out_info)
{
    return kvp_seq_open_sized(cache, ns, prompt, out_seq, out_info, sizeof *out_info);
}

KVP_API kvp_status kvp_seq_info_get_sized(const kvp_cache *cache, kvp_seq seq,
                                          kvp_seq_info *out_info, size_t info_size);
KVP_SIZED kvp_status kvp_seq_info_get(const kvp_cache *cache, kvp_seq seq, kvp_seq_info *out_info)
{
    return kvp_seq_info_get_sized(cache, seq, out_info, sizeof *out_info);
}

KVP_API kvp_status kvp_can_open_sized(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                                      kvp_admission *out_admission, size_t admission_size);
KVP_SIZED kvp_status kvp_can_open(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                                  kvp_admission *out_admission)
{
    return kvp_can_open_sized(cache, ns, prompt, out_admission, sizeof *out_admission);
}

KVP_API kvp_status kvp_can_extend_sized(kvp_cache *cache, const kvp_batch *batch,
                                        kvp_admission *out_admission, size_t admission_size);
KVP_SIZED kvp_status kvp_can_extend(kvp_cache *cache, const kvp_batch *batch,
                                    kvp_admission *out_admission)
{
    return kvp_can_extend_sized(cache, batch, out_admission, sizeof *out_admission);
}

KVP_API kvp_status kvp_block_info_get_sized(const kvp_cache *cache, uint32_t group, uint32_t tier,
                                            int32_t block, kvp_block_info *out_info,
                                            size_t info_size);
KVP_SIZED kvp_status kvp_block_info_get(const kvp_cache *cache, uint32_t group, uint32_t tier,
                                        int32_t block, kvp_block_info *out_info)
{
    return kvp_block_info_get_sized(cache, group, tier, block, out_info, sizeof *out_info);
}

#endif
