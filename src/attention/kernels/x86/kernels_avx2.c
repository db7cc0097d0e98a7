/* kernels_avx2: AVX2, FMA and F16C. Compiled with them where CMakeLists.txt finds an x86-64. */
#include "attention/fast/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "attention/kernels/x86/vec_avx2.h"

#include "attention/fast/kernels_body.h"
#include "attention/fast/narrow.h"

const struct kvpi_kernels *kvpi_kernels_avx2(void)
{
    static const struct kvpi_kernels kernels = {.impl = KVP_ATTENTION_AVX2,
                                                .f32 = &kvpi_f32_path,
                                                .f16 = &kvpi_f16_narrow_path,
                                                .bf16 = &kvpi_bf16_narrow_path,
                                                .int8 = &kvpi_int8_narrow_path,
                                                .q8_0 = &kvpi_q8_0_narrow_path,
                                                .read = kvpi_read_elements,
                                                .softmax = kvpi_softmax_f32,
                                                .combine = kvpi_combine_rows,
                                                .write = kvpi_write_elements,
                                                .largest = kvpi_largest_value,
                                                .write_int8 = kvpi_write_int8};
    return &kernels;
}

#else

const struct kvpi_kernels *kvpi_kernels_avx2(void)
{
    return NULL;
}

#endif
