/* kvpager/sized/policy.h: calls of policy.h that fill structs which may grow. The functions that
 * programs call pass the size that they know to the exported ones. docs/ABI.md says why; policy.h
 * says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_POLICY_H
#define KVPAGER_SIZED_POLICY_H

KVP_API kvp_status kvp_policy_info_get_sized(const kvp_cache *cache, kvp_policy_info *out_info,
                                             size_t info_size);
KVP_SIZED kvp_status kvp_policy_info_get(const kvp_cache *cache, kvp_policy_info *out_info)
{
    return kvp_policy_info_get_sized(cache, out_info, sizeof *out_info);
}

KVP_API kvp_status kvp_policy_class_get_sized(const kvp_cache *cache, uint32_t class_,
                                              kvp_policy_class *out_class, size_t class_size);
KVP_SIZED kvp_status kvp_policy_class_get(const kvp_cache *cache, uint32_t class_,
                                          kvp_policy_class *out_class)
{
    return kvp_policy_class_get_sized(cache, class_, out_class, sizeof *out_class);
}

#endif
