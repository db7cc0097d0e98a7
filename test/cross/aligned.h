/* aligned: what tests take for granted and Windows has not. Included before each of their files. */
#ifndef TEST_ALIGNED_H
#define TEST_ALIGNED_H

#include <stdlib.h>

/* Memory on a boundary that free takes back. */
void *cross_aligned_alloc(size_t alignment, size_t bytes);
void cross_free(void *memory);

#define aligned_alloc cross_aligned_alloc
#define free          cross_free

#endif
