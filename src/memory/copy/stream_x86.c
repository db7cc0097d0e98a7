/* stream: non-temporal copies with AVX-512 or AVX2, chosen when the program runs.
 *
 * An ordinary store reads the line that it is about to overwrite, so copying cold blocks costs
 * three transfers for two; glibc's memcpy goes around that only for sizes above a part of the last
 * cache, which virtual machines report far too large. A non-temporal store writes whole lines
 * unread. What is left is to have enough reads under way: the processor looks ahead within a 4 KiB
 * page, so the page after the one that is copied is asked for by hand, into the second cache.
 */
#include "memory/copy/stream.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>
#include <stdint.h>

enum { LINE = 64, STEP = 4 * LINE };

/* Bytes before dst is at the begin of a line, at most n. */
static size_t head_bytes(const unsigned char *dst, size_t n)
{
    const size_t head = (LINE - (uintptr_t)dst % LINE) % LINE;
    return head < n ? head : n;
}

static inline void ask_for_step(const unsigned char *ahead)
{
    for (int i = 0; i < STEP; i += LINE) {
        _mm_prefetch((const char *)ahead + i, _MM_HINT_T1);
    }
}

__attribute__((target("avx512f"))) static void copy_avx512(unsigned char *dst,
                                                           const unsigned char *src, size_t n,
                                                           const unsigned char *ahead)
{
    size_t i = head_bytes(dst, n);
    memcpy(dst, src, i);
    for (; n - i >= STEP; i += STEP) {
        ask_for_step(ahead + i);
        const __m512i a = _mm512_loadu_si512(src + i);
        const __m512i b = _mm512_loadu_si512(src + i + LINE);
        const __m512i c = _mm512_loadu_si512(src + i + 2 * LINE);
        const __m512i d = _mm512_loadu_si512(src + i + 3 * LINE);
        _mm512_stream_si512((void *)(dst + i), a);
        _mm512_stream_si512((void *)(dst + i + LINE), b);
        _mm512_stream_si512((void *)(dst + i + 2 * LINE), c);
        _mm512_stream_si512((void *)(dst + i + 3 * LINE), d);
    }
    memcpy(dst + i, src + i, n - i);
}

__attribute__((target("avx2"))) static void copy_avx2(unsigned char *dst, const unsigned char *src,
                                                      size_t n, const unsigned char *ahead)
{
    enum { HALF = LINE / 2 };
    size_t i = head_bytes(dst, n);
    memcpy(dst, src, i);
    for (; n - i >= STEP; i += STEP) {
        ask_for_step(ahead + i);
        for (size_t at = i; at < i + STEP; at += 2 * LINE) {
            const __m256i a = _mm256_loadu_si256((const void *)(src + at));
            const __m256i b = _mm256_loadu_si256((const void *)(src + at + HALF));
            const __m256i c = _mm256_loadu_si256((const void *)(src + at + 2 * HALF));
            const __m256i d = _mm256_loadu_si256((const void *)(src + at + 3 * HALF));
            _mm256_stream_si256((void *)(dst + at), a);
            _mm256_stream_si256((void *)(dst + at + HALF), b);
            _mm256_stream_si256((void *)(dst + at + 2 * HALF), c);
            _mm256_stream_si256((void *)(dst + at + 3 * HALF), d);
        }
    }
    memcpy(dst + i, src + i, n - i);
}

kvpi_stream_fn kvpi_stream_named(const char *name)
{
    if (strcmp(name, "avx512") == 0 && __builtin_cpu_supports("avx512f")) {
        return copy_avx512;
    }
    if (strcmp(name, "avx2") == 0 && __builtin_cpu_supports("avx2")) {
        return copy_avx2;
    }
    return NULL;
}

kvpi_stream_fn kvpi_stream_best(void)
{
    kvpi_stream_fn best = kvpi_stream_named("avx512");
    return best ? best : kvpi_stream_named("avx2");
}

void kvpi_stream_end(void)
{
    _mm_sfence();
}

#else

kvpi_stream_fn kvpi_stream_named(const char *name)
{
    (void)name;
    return NULL;
}

kvpi_stream_fn kvpi_stream_best(void)
{
    return NULL;
}

void kvpi_stream_end(void)
{
}

#endif
