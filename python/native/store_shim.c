/* store_shim.c: see store_shim.h. */
#define _POSIX_C_SOURCE 200809L

#include "store_shim.h"

#include <unistd.h>

void kvpy_destroy(void *pointer, int kind)
{
    if (kind == KVPY_STORE)
        kvp_store_close(pointer);
    else
        kvp_digester_destroy(pointer);
}

void kvpy_store_free(kvpy_object *object)
{
    if (object->pid == getpid())
        kvpy_object_free(object);
}

int kvpy_store_work(kvpy_object *object, int *out_idle)
{
    int status = kvpy_enter_reader(object);
    if (status != KVP_OK)
        return status;
    status = KVP_E_BUSY;
    if (atomic_exchange(&object->working, 1) == 0) {
        status = kvp_store_work(atomic_load(&object->pointer), out_idle);
        atomic_store(&object->working, 0);
    }
    kvpy_leave_reader(object);
    return status;
}
