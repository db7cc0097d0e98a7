/* kernels_avx512: AVX-512 F, BW, DQ and VL. Compiled with them as kernels_avx2.c is. */
#include "attention/fast/kernels.h"

#if defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include "attention/kernels/x86/vec_avx512.h"

#include "attention/fast/kernels_body.h"
#include "attention/fast/many_rows.h"
#include "attention/fast/narrow_many.h"

const struct kvpi_kernels *kvpi_kernels_avx512(void)
{
    static const struct kvpi_kernels kernels = {.impl = KVP_ATTENTION_AVX512,
                                                .f32 = &kvpi_f32_many_path,
                                                .f16 = &kvpi_f16_many_path,
                                                .bf16 = &kvpi_bf16_many_path,
                                                .int8 = &kvpi_int8_many_path,
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

const struct kvpi_kernels *kvpi_kernels_avx512(void)
{
    return NULL;
}

#endif
