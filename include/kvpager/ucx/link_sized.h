/* kvpager/ucx/link_sized.h: calls of link.h that give or fill structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; link.h says what each call does, and includes this. */
#ifndef KVPAGER_UCX_LINK_SIZED_H
#define KVPAGER_UCX_LINK_SIZED_H

KVP_API void kvp_ucx_config_init_sized(kvp_ucx_config *config, size_t config_size);
KVP_SIZED void kvp_ucx_config_init(kvp_ucx_config *config)
{
    kvp_ucx_config_init_sized(config, sizeof *config);
}

KVP_API kvp_status kvp_ucx_connect_sized(kvp_ucx_link *link, const void *card, size_t n_bytes,
                                         kvp_link *out_end, size_t end_size);
KVP_SIZED kvp_status kvp_ucx_connect(kvp_ucx_link *link, const void *card, size_t n_bytes,
                                     kvp_link *out_end)
{
    return kvp_ucx_connect_sized(link, card, n_bytes, out_end, sizeof *out_end);
}

#endif
