/* Takes memory out of the CPU caches, so that "cold" means cold. The only file that asks which
 * machine this is: x86 has an instruction for it; elsewhere a buffer that is larger than the last
 * level is walked, which drives everything else out. */
#include "bench.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

/* clflush waits for nobody but is ordered; clflushopt is faster and not on every machine. A few
 * hundred MiB take some 30 ms, outside the timed part. */
__attribute__((target("clflushopt"))) static void flush_fast(const char *at, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i += 64)
        _mm_clflushopt((void *)(uintptr_t)(at + i));
}

static void flush_slow(const char *at, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i += 64)
        _mm_clflush(at + i);
}

static bool has_clflushopt(void)
{
    unsigned eax = 7;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    __asm__ volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
    return (ebx >> 23) & 1u;
}

void flush_caches(const void *at, size_t n_bytes)
{
    static int fast = -1;
    if (fast < 0)
        fast = has_clflushopt();
    (fast ? flush_fast : flush_slow)(at, n_bytes);
    _mm_mfence();
}

const char *flush_method(void)
{
    return "clflush over all bookkeeping";
}

#else

#include <stdlib.h>
#include <unistd.h>

void flush_caches(const void *at, size_t n_bytes)
{
    enum { BUFFER_BYTES = 1 << 30 };
    static volatile unsigned char *buffer;
    (void)at;
    (void)n_bytes;
    if (!buffer)
        buffer = allocate(BUFFER_BYTES);
    for (size_t i = 0; i < BUFFER_BYTES; i += 64)
        buffer[i]++;
}

const char *flush_method(void)
{
    return "a walk over 1 GiB";
}

#endif
