/* kvpager/sized/inspect.h: calls of inspect.h that give or fill structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; inspect.h says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_INSPECT_H
#define KVPAGER_SIZED_INSPECT_H

KVP_API void kvp_arena_options_init_sized(kvp_arena_options *options, size_t options_size);
KVP_SIZED void kvp_arena_options_init(kvp_arena_options *options)
{
    kvp_arena_options_init_sized(options, sizeof *options);
}

KVP_API kvp_status kvp_arena_inspect_sized(const kvp_arena_source *source,
                                           const kvp_arena_options *options,
                                           kvp_arena_report *out_report, size_t report_size);
KVP_SIZED kvp_status kvp_arena_inspect(const kvp_arena_source *source,
                                       const kvp_arena_options *options,
                                       kvp_arena_report *out_report)
{
    return kvp_arena_inspect_sized(source, options, out_report, sizeof *out_report);
}

#endif
