#include "attention/kernels.h"

#include <stddef.h>

const struct kvpi_kernels *kvpi_kernels_avx512_fp16(void)
{
    return NULL;
}
