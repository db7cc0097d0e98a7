/* kvpager/sized/wire.h: calls of wire.h that give or fill structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; wire.h says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_WIRE_H
#define KVPAGER_SIZED_WIRE_H

KVP_API void kvp_wire_config_init_sized(kvp_wire_config *config, size_t config_size);
KVP_SIZED void kvp_wire_config_init(kvp_wire_config *config)
{
    kvp_wire_config_init_sized(config, sizeof *config);
}

KVP_API kvp_status kvp_wire_config_of_sized(const kvp_cache *cache, kvp_wire_config *out_config,
                                            size_t config_size);
KVP_SIZED kvp_status kvp_wire_config_of(const kvp_cache *cache, kvp_wire_config *out_config)
{
    return kvp_wire_config_of_sized(cache, out_config, sizeof *out_config);
}

KVP_API kvp_status kvp_wire_mirror_apply_sized(kvp_wire_mirror *mirror, const void *bytes,
                                               size_t n_bytes, kvp_wire_news *out_news,
                                               size_t news_size);
KVP_SIZED kvp_status kvp_wire_mirror_apply(kvp_wire_mirror *mirror, const void *bytes,
                                           size_t n_bytes, kvp_wire_news *out_news)
{
    return kvp_wire_mirror_apply_sized(mirror, bytes, n_bytes, out_news, sizeof *out_news);
}

KVP_API kvp_status kvp_wire_mirror_info_sized(const kvp_wire_mirror *mirror,
                                              kvp_wire_mirror_state *out_state, size_t state_size);
KVP_SIZED kvp_status kvp_wire_mirror_info(const kvp_wire_mirror *mirror,
                                          kvp_wire_mirror_state *out_state)
{
    return kvp_wire_mirror_info_sized(mirror, out_state, sizeof *out_state);
}

KVP_API kvp_status kvp_wire_mirror_seq_sized(const kvp_wire_mirror *mirror, uint32_t worker_id,
                                             kvp_wire_seq *out_seq, size_t seq_size);
KVP_SIZED kvp_status kvp_wire_mirror_seq(const kvp_wire_mirror *mirror, uint32_t worker_id,
                                         kvp_wire_seq *out_seq)
{
    return kvp_wire_mirror_seq_sized(mirror, worker_id, out_seq, sizeof *out_seq);
}

#endif
