/* kvpager/sized/attention.h: calls of attention.h that give or fill structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; attention.h says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_ATTENTION_H
#define KVPAGER_SIZED_ATTENTION_H

KVP_API void kvp_append_init_sized(kvp_append *append, size_t append_size);
KVP_SIZED void kvp_append_init(kvp_append *append)
{
    kvp_append_init_sized(append, sizeof *append);
}

KVP_API void kvp_attention_init_sized(kvp_attention *attention, size_t attention_size);
KVP_SIZED void kvp_attention_init(kvp_attention *attention)
{
    kvp_attention_init_sized(attention, sizeof *attention);
}

KVP_API void kvp_merge_init_sized(kvp_merge *merge, size_t merge_size);
KVP_SIZED void kvp_merge_init(kvp_merge *merge)
{
    kvp_merge_init_sized(merge, sizeof *merge);
}

#endif
