/* sized: structs whose end differs between a program and the library.
 *
 * A struct of the public headers that may grow does so at its end only. A call that gives one takes
 * the size of the program's struct as an argument (kvpager/sized/). A struct that a program gives
 * has its size in its first field. Fields that both know are the same on both sides:
 *
 *     the program's   | fields that both know | fields that only the program knows: 0, or refused
 *     the library's   | fields that both know | fields that only the library knows: defaults
 *
 *   Z1  Nothing is written at or behind the size that the caller gave, and nothing is read there.
 *   Z2  A size that no such struct can have is refused: below the size of its first field, above
 *       KVPI_SIZED_MAX, or not a multiple of 4.
 *   Z3  A struct of the size that the library knows is used in place. Every other struct is copied.
 */
#ifndef KVPI_SIZED_H
#define KVPI_SIZED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* No struct comes near it: a larger number is none that anybody has meant as a size. */
#define KVPI_SIZED_MAX 4096u

/* May a caller's struct be so large? */
static inline int kvpi_sized_fits(size_t size)
{
    return size >= sizeof(size_t) && size <= KVPI_SIZED_MAX && size % 4 == 0;
}

/* A struct is asked for, and cannot be so large. */
static inline int kvpi_sized_bad(const void *theirs, size_t given)
{
    return theirs != NULL && !kvpi_sized_fits(given);
}

/* Read a struct with struct_size. `own` [size] has the defaults, for what a shorter one lacks.
 * Gives `theirs`, or `own` filled; NULL when theirs is NULL or must be refused. */
static inline void *kvpi_sized_take(const void *theirs, void *own, size_t size)
{
    size_t given = 0;
    if (theirs != NULL) {
        memcpy(&given, theirs, sizeof(given));
    }
    if (given == size) {
        return (void *)(uintptr_t)theirs;
    }
    if (!kvpi_sized_fits(given)) {
        return NULL;
    }
    for (size_t i = size; i < given; i++) {
        if (((const unsigned char *)theirs)[i] != 0) {
            return NULL;
        }
    }
    memcpy(own, theirs, given < size ? given : size);
    memcpy(own, &size, sizeof(size));
    return own;
}

/* Write a struct to a caller whose struct has `given` bytes: what only it knows becomes 0. NULL is
 * not asked for. */
static inline void kvpi_sized_give(void *theirs, size_t given, const void *ours, size_t size)
{
    if (theirs == NULL) {
        return;
    }
    if (given == size) {
        memcpy(theirs, ours, size); /* of a size that compilers know */
        return;
    }
    memcpy(theirs, ours, given < size ? given : size);
    if (given > size) {
        memset((unsigned char *)theirs + size, 0, given - size);
    }
}

/* The same for a struct with struct_size, which becomes the caller's. */
static inline void kvpi_sized_init(void *theirs, size_t given, const void *ours, size_t size)
{
    if (theirs != NULL && kvpi_sized_fits(given)) {
        kvpi_sized_give(theirs, given, ours, size);
        memcpy(theirs, &given, sizeof(given));
    }
}

/* Write back what a call has written into `own`, a copy that kvpi_sized_take made. */
static inline void kvpi_sized_return(void *theirs, const void *own, size_t size)
{
    size_t given;
    if (theirs != own) {
        memcpy(&given, theirs, sizeof(given));
        memcpy((unsigned char *)theirs + sizeof(given), (const unsigned char *)own + sizeof(given),
               (given < size ? given : size) - sizeof(given));
    }
}

#endif
