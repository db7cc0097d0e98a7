/* portable: for every processor. */
#include "attention/kernels/vec_plain.h"

#include "attention/fast/kernels_body.h"

const struct kvpi_kernels *kvpi_kernels_portable(void)
{
    static const struct kvpi_kernels kernels = {.impl = KVP_ATTENTION_PORTABLE,
                                                .f32 = &kvpi_f32_path,
                                                .read = kvpi_read_elements,
                                                .softmax = kvpi_softmax_f32,
                                                .combine = kvpi_combine_rows,
                                                .write = kvpi_write_elements,
                                                .largest = kvpi_largest_value,
                                                .write_int8 = kvpi_write_int8};
    return &kernels;
}
