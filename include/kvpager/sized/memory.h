/* kvpager/sized/memory.h: calls of memory.h that give or fill structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; memory.h says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_MEMORY_H
#define KVPAGER_SIZED_MEMORY_H

KVP_API void kvp_layout_init_sized(kvp_layout *layout, size_t layout_size);
KVP_SIZED void kvp_layout_init(kvp_layout *layout)
{
    kvp_layout_init_sized(layout, sizeof *layout);
}

KVP_API kvp_status kvp_layout_slice_sized(const kvp_layout *layout, const kvp_slice *slice,
                                          kvp_layout *out_slice, size_t slice_size);
KVP_SIZED kvp_status kvp_layout_slice(const kvp_layout *layout, const kvp_slice *slice,
                                      kvp_layout *out_slice)
{
    return kvp_layout_slice_sized(layout, slice, out_slice, sizeof *out_slice);
}

KVP_API void kvp_memory_options_init_sized(kvp_memory_options *options, size_t options_size);
KVP_SIZED void kvp_memory_options_init(kvp_memory_options *options)
{
    kvp_memory_options_init_sized(options, sizeof *options);
}

KVP_API kvp_status kvp_memory_describe_sized(const kvp_memory *memory, kvp_layout *out_layout,
                                             size_t layout_size, kvp_memory_info *out_info,
                                             size_t info_size);
KVP_SIZED kvp_status kvp_memory_describe(const kvp_memory *memory, kvp_layout *out_layout,
                                         kvp_memory_info *out_info)
{
    return kvp_memory_describe_sized(memory, out_layout, sizeof *out_layout, out_info,
                                     sizeof *out_info);
}

KVP_API void kvp_copier_config_init_sized(kvp_copier_config *config, size_t config_size);
KVP_SIZED void kvp_copier_config_init(kvp_copier_config *config)
{
    kvp_copier_config_init_sized(config, sizeof *config);
}

#endif
