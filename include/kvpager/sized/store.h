/* kvpager/sized/store.h: calls of store.h that give or take structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; store.h says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_STORE_H
#define KVPAGER_SIZED_STORE_H

KVP_API void kvp_store_stack_config_init_sized(kvp_store_stack_config *config, size_t config_size);
KVP_SIZED void kvp_store_stack_config_init(kvp_store_stack_config *config)
{
    kvp_store_stack_config_init_sized(config, sizeof *config);
}

KVP_API kvp_status kvp_store_stats_get_sized(const kvp_store *store, kvp_store_stats *out_stats,
                                             size_t stats_size);
KVP_SIZED kvp_status kvp_store_stats_get(const kvp_store *store, kvp_store_stats *out_stats)
{
    return kvp_store_stats_get_sized(store, out_stats, sizeof *out_stats);
}

KVP_API kvp_status kvp_store_stats_text_sized(const kvp_store_stats *stats, size_t stats_size,
                                              const char *labels, char *out_text, size_t capacity,
                                              size_t *out_bytes);
KVP_SIZED kvp_status kvp_store_stats_text(const kvp_store_stats *stats, const char *labels,
                                          char *out_text, size_t capacity, size_t *out_bytes)
{
    return kvp_store_stats_text_sized(stats, sizeof *stats, labels, out_text, capacity, out_bytes);
}

#endif
