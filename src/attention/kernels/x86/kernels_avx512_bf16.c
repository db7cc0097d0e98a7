/* kernels_avx512_bf16: products of bf16 and of int8. Compiled as kernels_avx2.c is; bf16_rows.h and
 * int8_rows.h have the kernels, which others use for few rows.
 *
 * On processors of AMD, VDPBF16PS takes as long as a product of f32, and many rows are products of
 * matrices. Elsewhere it takes as long as four. */
#include "attention/fast/kernels.h"

#include "attention/kernels/cpu.h"

#if defined(__AVX512BF16__) && defined(__AVX512VNNI__)

#include "attention/kernels/x86/vec_avx512.h"

#include "attention/kernels/x86/bf16_many.h"
#include "attention/kernels/x86/bf16_rows.h"
#include "attention/kernels/x86/int8_rows.h"
#include "attention/fast/kernels_body.h"
#include "attention/fast/many_rows.h"
#include "attention/fast/narrow_many.h"

#define BF16_KERNELS(bf16_)                                                                        \
    {                                                                                              \
        .impl = KVP_ATTENTION_AVX512_BF16, .f32 = &kvpi_f32_many_path, .f16 = &kvpi_f16_many_path, \
        .bf16 = (bf16_), .int8 = &kvpi_int8_rows_path, .q8_0 = &kvpi_q8_0_many_path,               \
        .read = kvpi_read_elements, .softmax = kvpi_softmax_f32, .combine = kvpi_combine_rows,     \
        .write = kvpi_write_elements, .largest = kvpi_largest_value, .write_int8 = kvpi_write_int8 \
    }

const struct kvpi_kernels *kvpi_kernels_avx512_bf16(void)
{
    static const struct kvpi_kernels with_rows = BF16_KERNELS(&kvpi_bf16_rows_path);
    static const struct kvpi_kernels with_pairs = BF16_KERNELS(&kvpi_bf16_pairs_path);
    return (kvpi_cpu() & KVPI_CPU_AMD) != 0 ? &with_pairs : &with_rows;
}

#else

const struct kvpi_kernels *kvpi_kernels_avx512_bf16(void)
{
    return NULL;
}

#endif
