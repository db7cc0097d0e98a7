/* guarded: heap blocks that end at a guard page. A read or write behind a block ends the test. For
 * tests that have malloc, calloc and free wrapped; realloc must not be given such a block. */
#ifndef TEST_GUARDED_H
#define TEST_GUARDED_H

#include <stddef.h>

/* A block of any content: 0xA5. Where there are no such pages, it is the system's. */
void *guarded_take(size_t bytes);

/* Give back what was taken, here or from the system. */
void guarded_free(void *memory);

/* Bytes that are held; 0 where there are no such pages. */
size_t guarded_held(void);

#endif
