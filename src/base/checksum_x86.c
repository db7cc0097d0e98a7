/* checksum_x86: asks which processor this is. Elsewhere: the compiler's form. */
#include "base/checksum.h"

#if defined(__x86_64__) && defined(__GNUC__)

const struct kvpi_checksum_form *kvpi_checksum_wide(void)
{
    const struct kvpi_checksum_form *wide = NULL;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        wide = kvpi_checksum_avx512();
    if (!wide && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        wide = kvpi_checksum_avx2();
    return wide;
}

#else

const struct kvpi_checksum_form *kvpi_checksum_wide(void)
{
    return NULL;
}

#endif
