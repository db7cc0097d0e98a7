/* sized: a struct that a caller fills has its size in its first field. It is the library's, or the
 * struct is refused: a forgotten init, or a program that was built with other headers. */
#ifndef KVPI_SIZED_H
#define KVPI_SIZED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The struct, if it has the size that the library knows; else NULL, as for NULL. */
static inline void *kvpi_sized(const void *theirs, size_t size)
{
    size_t given = 0;
    if (theirs != NULL) {
        memcpy(&given, theirs, sizeof(given));
    }
    return given == size ? (void *)(uintptr_t)theirs : NULL;
}

#endif
