/* stream: copies bytes past the CPU's caches. One form for each kind of processor; stream_x86.c is
 * the only file that asks which one this is. */
#ifndef KVPI_STREAM_H
#define KVPI_STREAM_H

#include <stddef.h>

/* Copy n bytes, and ask for the n bytes at `ahead`, which will be copied soon (any readable or
 * unreadable address will do). Other threads see what was written after kvpi_stream_end. */
typedef void (*kvpi_stream_fn)(unsigned char *dst, const unsigned char *src, size_t n,
                               const unsigned char *ahead);

/* The best form for this processor; NULL: there is none, memcpy is as good. */
kvpi_stream_fn kvpi_stream_best(void);

/* The form by its name ("avx512", "avx2"); NULL: this processor has no such. For tests. */
kvpi_stream_fn kvpi_stream_named(const char *name);

/* Order what was streamed before what follows. Once for many copies. */
void kvpi_stream_end(void);

#endif
