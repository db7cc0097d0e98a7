/* kvpager/sized/swap.h: calls of swap.h that give or fill structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; swap.h says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_SWAP_H
#define KVPAGER_SIZED_SWAP_H

KVP_API kvp_status kvp_can_swap_out_sized(kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                                          kvp_admission *out_admission, size_t admission_size);
KVP_SIZED kvp_status kvp_can_swap_out(kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                                      kvp_admission *out_admission)
{
    return kvp_can_swap_out_sized(cache, seqs, n_seqs, out_admission, sizeof *out_admission);
}

KVP_API kvp_status kvp_can_swap_in_sized(kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                                         uint32_t reserve_tokens, kvp_admission *out_admission,
                                         size_t admission_size);
KVP_SIZED kvp_status kvp_can_swap_in(kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                                     uint32_t reserve_tokens, kvp_admission *out_admission)
{
    return kvp_can_swap_in_sized(cache, seqs, n_seqs, reserve_tokens, out_admission,
                                 sizeof *out_admission);
}

#endif
