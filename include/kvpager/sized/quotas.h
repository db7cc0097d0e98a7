/* kvpager/sized/quotas.h: calls of quotas.h that give or fill structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; quotas.h says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_QUOTAS_H
#define KVPAGER_SIZED_QUOTAS_H

KVP_API kvp_status kvp_ns_info_get_sized(const kvp_cache *cache, kvp_ns ns, kvp_ns_info *out_info,
                                         size_t info_size);
KVP_SIZED kvp_status kvp_ns_info_get(const kvp_cache *cache, kvp_ns ns, kvp_ns_info *out_info)
{
    return kvp_ns_info_get_sized(cache, ns, out_info, sizeof *out_info);
}

#endif
