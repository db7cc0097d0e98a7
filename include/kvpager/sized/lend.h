/* kvpager/sized/lend.h: calls of lend.h that give or fill structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; lend.h says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_LEND_H
#define KVPAGER_SIZED_LEND_H

KVP_API kvp_status kvp_block_origin_get_sized(const kvp_cache *cache, uint32_t tier, int32_t block,
                                              kvp_block_origin *out_origin, size_t origin_size);
KVP_SIZED kvp_status kvp_block_origin_get(const kvp_cache *cache, uint32_t tier, int32_t block,
                                          kvp_block_origin *out_origin)
{
    return kvp_block_origin_get_sized(cache, tier, block, out_origin, sizeof *out_origin);
}

KVP_API kvp_status kvp_mirror_sized(kvp_cache *cache, const int32_t *blocks, uint32_t n_blocks,
                                    uint32_t spare_blocks, int32_t *out_host,
                                    kvp_mirrored *out_mirrored, size_t mirrored_size);
KVP_SIZED kvp_status kvp_mirror(kvp_cache *cache, const int32_t *blocks, uint32_t n_blocks,
                                uint32_t spare_blocks, int32_t *out_host,
                                kvp_mirrored *out_mirrored)
{
    return kvp_mirror_sized(cache, blocks, n_blocks, spare_blocks, out_host, out_mirrored,
                            sizeof *out_mirrored);
}

KVP_API kvp_status kvp_load_done_sized(kvp_cache *cache, uint64_t load, const uint8_t *whole,
                                       uint32_t n_blocks, kvp_loaded *out_loaded,
                                       size_t loaded_size);
KVP_SIZED kvp_status kvp_load_done(kvp_cache *cache, uint64_t load, const uint8_t *whole,
                                   uint32_t n_blocks, kvp_loaded *out_loaded)
{
    return kvp_load_done_sized(cache, load, whole, n_blocks, out_loaded, sizeof *out_loaded);
}

#endif
