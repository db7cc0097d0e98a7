/* store_shim.c: see store_shim.h. */
#define _POSIX_C_SOURCE 200809L

#include "store_shim.h"

#include <unistd.h>

void kvpy_destroy(void *pointer, int kind)
{
    (void)kind;
    kvp_store_close(pointer);
}

void kvpy_store_free(kvpy_object *object)
{
    if (object->pid == getpid())
        kvpy_object_free(object);
}
