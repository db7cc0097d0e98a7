/* cpu_x86: cpuid, and on Linux the permission to use tiles. Elsewhere: nothing. */
#define _GNU_SOURCE /* syscall */

#include "attention/kernels/cpu.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>
#include <stdatomic.h>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel saves 8 KiB of tiles for each thread of a process that has asked for it. */
static int may_use_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#else
static int may_use_tiles(void)
{
    return 0;
}
#endif

static unsigned bit(unsigned word, unsigned at)
{
    return word >> at & 1u;
}

static unsigned ask_processor(void)
{
    unsigned a, b, c, d, a1 = 0, b1, c1, d1, found = 0;
    __builtin_cpu_init();
    if (__builtin_cpu_is("amd"))
        found |= KVPI_CPU_AMD;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 29)) /* F16C */
        return found;
    found |= KVPI_CPU_AVX2;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return found;
    found |= KVPI_CPU_AVX512;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
        (a >= 1 && !__get_cpuid_count(7, 1, &a1, &b1, &c1, &d1)) || !bit(a1, 5) ||
        !bit(c, 11)) /* VNNI */
        return found;
    found |= KVPI_CPU_AVX512_BF16;
    if (!bit(d, 23))
        return found;
    found |= KVPI_CPU_AVX512_FP16;
    if (bit(d, 22) && bit(d, 24) && may_use_tiles())
        found |= KVPI_CPU_AMX;
    return found;
}

/* What cpuid says never changes, and in a virtual machine it costs a visit to the host. Relaxed:
 * threads that ask at the same time find the same. */
unsigned kvpi_cpu(void)
{
    static atomic_uint known;
    unsigned found = atomic_load_explicit(&known, memory_order_relaxed);
    if (found == 0) {
        found = ask_processor() | 1u << 30; /* not 0 */
        atomic_store_explicit(&known, found, memory_order_relaxed);
    }
    return found;
}

#else

unsigned kvpi_cpu(void)
{
    return 0;
}

#endif
