/* kernels: which ones an implementation means. */
#include "attention/fast/kernels.h"

#include <stddef.h>

#include "attention/kernels/cpu.h"

/* From the best on. */
static const struct {
    uint32_t impl;
    unsigned needs; /* bits of kvpi_cpu */
    const struct kvpi_kernels *(*kernels)(void);
} table[] = {
    {KVP_ATTENTION_AMX, KVPI_CPU_AMX, kvpi_kernels_amx},
    {KVP_ATTENTION_AVX512_FP16, KVPI_CPU_AVX512_FP16, kvpi_kernels_avx512_fp16},
    {KVP_ATTENTION_AVX512_BF16, KVPI_CPU_AVX512_BF16, kvpi_kernels_avx512_bf16},
    {KVP_ATTENTION_AVX512, KVPI_CPU_AVX512, kvpi_kernels_avx512},
    {KVP_ATTENTION_AVX2, KVPI_CPU_AVX2, kvpi_kernels_avx2},
    {KVP_ATTENTION_NEON, 0, kvpi_kernels_neon},
    {KVP_ATTENTION_PORTABLE, 0, kvpi_kernels_portable},
};

const struct kvpi_kernels *kvpi_kernels_find(uint32_t impl)
{
    const unsigned cpu = kvpi_cpu();
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if ((impl != KVP_ATTENTION_AUTO && impl != table[i].impl) ||
            (cpu & table[i].needs) != table[i].needs)
            continue;
        const struct kvpi_kernels *kernels = table[i].kernels();
        if (kernels != NULL)
            return kernels;
    }
    return NULL;
}
