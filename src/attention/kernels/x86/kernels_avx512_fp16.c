/* kernels_avx512_fp16: products of f16 as well, and those of bf16 as f32. Compiled as
 * kernels_avx2.c is; f16_rows.h and bf16_many.h have the kernels, which others use, too. */
#include "attention/fast/kernels.h"

#if defined(__AVX512BF16__) && defined(__AVX512FP16__)

#include "attention/kernels/x86/vec_avx512.h"

#include "attention/kernels/x86/f16_rows.h"
#include "attention/kernels/x86/int8_rows.h"
#include "attention/fast/kernels_body.h"
#include "attention/fast/many_rows.h"
#include "attention/fast/narrow_many.h"

const struct kvpi_kernels *kvpi_kernels_avx512_fp16(void)
{
    static const struct kvpi_kernels kernels = {.impl = KVP_ATTENTION_AVX512_FP16,
                                                .f32 = &kvpi_f32_many_path,
                                                .f16 = &kvpi_f16_rows_path,
                                                .bf16 = &kvpi_bf16_many_path,
                                                .int8 = &kvpi_int8_rows_path,
                                                .q8_0 = &kvpi_q8_0_many_path,
                                                .read = kvpi_read_elements,
                                                .softmax = kvpi_softmax_f32,
                                                .combine = kvpi_combine_rows,
                                                .write = kvpi_write_elements,
                                                .largest = kvpi_largest_value,
                                                .write_int8 = kvpi_write_int8};
    return &kernels;
}

#else

const struct kvpi_kernels *kvpi_kernels_avx512_fp16(void)
{
    return NULL;
}

#endif
