/* base: what every folder uses. Checked sizes, the arena's layout, prefetch, asserts, counters.
 *
 * Structures in the arena find their arrays by offsets from their own address (kvpi_at), so that a
 * byte copy of the arena is a working snapshot.
 *
 * A counter that counts up without an end is of one of three kinds, here and in every other folder.
 * Its declaration says which:
 *
 *   never wraps   64 bits, in steps of one: 500 years at one a nanosecond
 *   near          fewer bits; compared only with numbers so near that the difference decides. A
 *                 comment says why they are near
 *   retired       a generation: its place is never used again once it would wrap
 *
 * No value of them means "none". (If a number begins at 1, then 0 is the number of what came before
 * the first, and compares as that.) Every other count is a size, and bounded by what it is the size
 * of.
 */
#ifndef KVPI_BASE_H
#define KVPI_BASE_H

#include <stddef.h>
#include <stdint.h>

#include "base/platform/map.h"

#ifndef KVP_CHECK
#define KVP_CHECK 0
#endif

#if KVP_CHECK >= 1
#include <assert.h>
#define KVPI_ASSERT(condition) assert(condition)
#else
#define KVPI_ASSERT(condition) ((void)0)
#endif

/* What went the fast way, and what did not, on this thread: a fast way that is lost changes no
 * result, so that only a test of these counts can fail. A library without checks counts nothing. */
#if KVP_CHECK >= 1
struct kvpi_fast {
    uint64_t by_jump, by_index;  /* units of prompts whose node a jump, or the index, named */
    uint64_t in_a_row;           /* of the former, those of the loop for 16 tokens a block */
    uint64_t rows_looked_at;     /* by extends; see `exclusive` in table.h */
    uint64_t surprising_victims; /* whose memory was not asked for before */
};
extern _Thread_local struct kvpi_fast kvpi_fast;
#define KVPI_NOTE(what, is_so) ((void)(kvpi_fast.what += (is_so) != 0))
#else
#define KVPI_NOTE(what, is_so) ((void)0)
#endif

#define KVPI_CACHE_LINE 64u

static inline int kvpi_unlikely(int condition)
{
    return __builtin_expect(condition, 0) != 0;
}

static inline void kvpi_prefetch(const void *address)
{
    __builtin_prefetch(address);
}

static inline uint64_t kvpi_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint32_t kvpi_min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline uint32_t kvpi_max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* ceil(n / per); n + per must not overflow: callers keep n below 2^32 - 65536. */
static inline uint32_t kvpi_ceil_div(uint32_t n, uint32_t per)
{
    return n / per + (n % per != 0);
}

/* An array `offset` bytes after the structure that owns it. */
static inline void *kvpi_at(const void *owner, size_t offset)
{
    return (char *)(uintptr_t)owner + offset;
}

/* Plans the arena: arrays one after the other, each on a cache line. A sum or product that does
 * not fit sets `overflow`, and stays set. */
struct kvpi_layout {
    size_t bytes;
    int overflow;
};

/* Reserve n x size bytes; give their offset from the arena's start. n is a product that 64 bits
 * hold, and size_t may not. */
size_t kvpi_layout_take(struct kvpi_layout *layout, uint64_t n, size_t size);

/* A number of 16 bits, not 0, for a new cache. It comes again with every 65,535th cache: two caches
 * that are there at once have different ones if fewer were made between. */
uint16_t kvpi_cache_number(void);

/* Counters may be read from any thread while the one writer counts (pairs with kvpi_read). */
static inline void kvpi_count(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static inline void kvpi_uncount(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, *counter - n, __ATOMIC_RELAXED);
}

static inline void kvpi_set(uint64_t *counter, uint64_t value)
{
    __atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

static inline void kvpi_set32(uint32_t *field, uint32_t value)
{
    __atomic_store_n(field, value, __ATOMIC_RELAXED);
}

static inline void kvpi_set16(uint16_t *field, uint16_t value)
{
    __atomic_store_n(field, value, __ATOMIC_RELAXED);
}

/* Whatever a structure's fields are, its bytes are such words. */
typedef uint64_t __attribute__((may_alias)) kvpi_long_word;

/* Store a structure of long words that other threads read meanwhile. With n_bytes known to the
 * compiler it takes two instructions a word. */
static inline void kvpi_store_long_words(void *to, const void *from, size_t n_bytes)
{
    kvpi_long_word *t = to;
    const kvpi_long_word *f = from;
    for (size_t i = 0; i < n_bytes / sizeof(*t); i++) {
        __atomic_store_n(&t[i], f[i], __ATOMIC_RELAXED);
    }
}

/* Store or load structures that other threads read meanwhile, word by word; what is read in parts
 * that do not fit is found out otherwise. n_bytes is a multiple of 4. */
void kvpi_store_words(void *to, const void *from, size_t n_bytes);
void kvpi_load_words(void *to, const void *from, size_t n_bytes);

/* What comes before is seen by other processes before what comes after: stores by one that loads in
 * the other order, each with this between. On x86 an order to the compiler only. ThreadSanitizer
 * has no fences, and sees no other process. */
static inline void kvpi_fence(void)
{
#ifdef __SANITIZE_THREAD__
    __atomic_signal_fence(__ATOMIC_ACQ_REL);
#else
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
#endif
}

/* Who reads beside a change, and sees that it was one, tries so often. */
enum { KVPI_READ_TRIES = 8 };

static inline uint64_t kvpi_read(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static inline uint32_t kvpi_read32(const uint32_t *field)
{
    return __atomic_load_n(field, __ATOMIC_RELAXED);
}

static inline uint16_t kvpi_read16(const uint16_t *field)
{
    return __atomic_load_n(field, __ATOMIC_RELAXED);
}

#endif
