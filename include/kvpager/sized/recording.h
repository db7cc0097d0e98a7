/* kvpager/sized/recording.h: calls of recording.h that give or fill structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; recording.h says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_RECORDING_H
#define KVPAGER_SIZED_RECORDING_H

KVP_API kvp_status kvp_config_peek_sized(const kvp_cache *cache, kvp_config *out_config,
                                         size_t config_size);
KVP_SIZED kvp_status kvp_config_peek(const kvp_cache *cache, kvp_config *out_config)
{
    return kvp_config_peek_sized(cache, out_config, sizeof *out_config);
}

#endif
