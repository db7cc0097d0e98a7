#include "attention/kernels.h"

#include <stddef.h>

const struct kvpi_kernels *kvpi_kernels_amx(void)
{
    return NULL;
}
