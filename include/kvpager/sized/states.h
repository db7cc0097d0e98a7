/* kvpager/sized/states.h: calls of states.h that fill structs which may grow. The functions that
 * programs call pass the size that they know to the exported ones. docs/ABI.md says why; states.h
 * says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_STATES_H
#define KVPAGER_SIZED_STATES_H

KVP_API kvp_status kvp_seq_state_get_sized(const kvp_cache *cache, kvp_seq seq,
                                           kvp_state_info *out_info, size_t info_size);
KVP_SIZED kvp_status kvp_seq_state_get(const kvp_cache *cache, kvp_seq seq,
                                       kvp_state_info *out_info)
{
    return kvp_seq_state_get_sized(cache, seq, out_info, sizeof *out_info);
}

KVP_API kvp_status kvp_cache_state_stats_sized(const kvp_cache *cache, kvp_state_stats *out_stats,
                                               size_t stats_size);
KVP_SIZED kvp_status kvp_cache_state_stats(const kvp_cache *cache, kvp_state_stats *out_stats)
{
    return kvp_cache_state_stats_sized(cache, out_stats, sizeof *out_stats);
}

#endif
