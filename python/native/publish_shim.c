/* publish_shim.c: see publish_shim.h. */
#define _POSIX_C_SOURCE 200809L

#include "publish_shim.h"

#include <unistd.h>

void kvpy_destroy(void *pointer, int kind)
{
    (void)kind;
    kvp_publisher_close(pointer);
}

void kvpy_publisher_free(kvpy_object *object)
{
    if (object->pid == getpid())
        kvpy_object_free(object);
}

int kvpy_publisher_read(kvpy_object *object, kvpy_object *cache, uint64_t now_ns)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvpy_enter_reader(cache);
    if (status == KVP_OK) {
        status = (int)kvp_publisher_read(kvpy_object_pointer(object), kvpy_object_pointer(cache),
                                         now_ns);
        kvpy_leave_reader(cache);
    }
    kvpy_leave(object);
    return status;
}

int kvpy_publisher_resync(kvpy_object *object, kvpy_object *cache, uint64_t now_ns)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvpy_enter(cache);
    if (status == KVP_OK) {
        status = (int)kvp_publisher_resync(kvpy_object_pointer(object), kvpy_object_pointer(cache),
                                           now_ns);
        kvpy_leave(cache);
    }
    kvpy_leave(object);
    return status;
}
