/* kernels_neon: Advanced SIMD. An aarch64 that has none cannot run what compilers make for it, so
 * the processor is not asked. Bytes in memory must lie as in registers. */
#include "attention/fast/kernels.h"

#if defined(__AARCH64EL__) && defined(__ARM_NEON)

#include "attention/kernels/arm/vec_neon.h"

#include "attention/fast/kernels_body.h"
#include "attention/fast/narrow.h"

const struct kvpi_kernels *kvpi_kernels_neon(void)
{
    static const struct kvpi_kernels kernels = {.impl = KVP_ATTENTION_NEON,
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

const struct kvpi_kernels *kvpi_kernels_neon(void)
{
    return NULL;
}

#endif
