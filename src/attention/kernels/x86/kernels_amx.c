/* kernels_amx: tiles of bf16. Compiled as kernels_avx2.c is. */
#include "attention/fast/kernels.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AVX512VNNI__)

#include "attention/kernels/x86/vec_avx512.h"

#include "attention/kernels/x86/amx_few.h"
#include "attention/kernels/x86/amx_many.h"
#include "attention/kernels/x86/f16_rows.h"
#include "attention/kernels/x86/int8_rows.h"
#include "attention/fast/kernels_body.h"
#include "attention/fast/many_rows.h"
#include "attention/fast/narrow_many.h"

const struct kvpi_kernels *kvpi_kernels_amx(void)
{
    static const struct kvpi_kernels kernels = {.impl = KVP_ATTENTION_AMX,
                                                .f32 = &kvpi_f32_many_path,
                                                .f16 = &kvpi_f16_rows_path,
                                                .bf16 = &kvpi_amx_many_path,
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

const struct kvpi_kernels *kvpi_kernels_amx(void)
{
    return NULL;
}

#endif
