/* kvpager/sized/snapshot.h: calls of snapshot.h that give or fill structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; snapshot.h says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_SNAPSHOT_H
#define KVPAGER_SIZED_SNAPSHOT_H

KVP_API void kvp_snapshot_options_init_sized(kvp_snapshot_options *options, size_t options_size);
KVP_SIZED void kvp_snapshot_options_init(kvp_snapshot_options *options)
{
    kvp_snapshot_options_init_sized(options, sizeof *options);
}

KVP_API kvp_status kvp_snapshot_load_sized(kvp_cache *cache, const kvp_snapshot_options *options,
                                           const kvp_source *source,
                                           kvp_snapshot_report *out_report, size_t report_size);
KVP_SIZED kvp_status kvp_snapshot_load(kvp_cache *cache, const kvp_snapshot_options *options,
                                       const kvp_source *source, kvp_snapshot_report *out_report)
{
    return kvp_snapshot_load_sized(cache, options, source, out_report, sizeof *out_report);
}

KVP_API kvp_status kvp_snapshot_peek_sized(const kvp_source *source, kvp_snapshot_info *out_info,
                                           size_t info_size);
KVP_SIZED kvp_status kvp_snapshot_peek(const kvp_source *source, kvp_snapshot_info *out_info)
{
    return kvp_snapshot_peek_sized(source, out_info, sizeof *out_info);
}

#endif
