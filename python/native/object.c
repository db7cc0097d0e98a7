/* object.c: objects with their guards. See object.h. */
#define _POSIX_C_SOURCE 200809L
#define Py_LIMITED_API  0x030a0000
#include <Python.h>

#include "object.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

void kvpy_change_references(void *held, void (*change)(PyObject *))
{
    if (held != NULL && Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        change(held);
        PyGILState_Release(state);
    }
}

kvpy_object *kvpy_object_new(void *pointer, int kind, kvpy_object *owner, uintptr_t held)
{
    kvpy_object *object = calloc(1, sizeof *object);
    if (object == NULL)
        return NULL;
    atomic_init(&object->pointer, pointer);
    atomic_init(&object->lock, 0);
    atomic_init(&object->readers, 0);
    object->kind = kind;
    object->pid = getpid();
    object->owner = owner;
    object->held = (void *)held;
    kvpy_change_references(object->held, Py_IncRef);
    return object;
}

int kvpy_object_close(kvpy_object *object)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status == KVPY_E_CLOSED ? KVP_OK : status;
    void *pointer = atomic_exchange(&object->pointer, NULL);
    while (atomic_load(&object->readers) != 0)
        sched_yield();
    kvpy_destroy(pointer, object->kind);
    if (object->sink != NULL)
        fclose(object->sink);
    object->sink = NULL;
    kvpy_leave(object);
    return KVP_OK;
}

/* Runs in a thread that is inside no call; whoever is inside one comes out without the
 * interpreter's lock, which may be held here. A lock that nobody gives back (a thread that was
 * killed inside) leaves the memory where it is, rather than hang the interpreter's end. */
void kvpy_object_free(kvpy_object *object)
{
    const struct timespec millisecond = {.tv_nsec = 1000000};
    int turns = 20000;
    while (kvpy_object_close(object) != KVP_OK) {
        if (--turns == 0)
            return;
        nanosleep(&millisecond, NULL);
    }
    kvpy_change_references(object->held, Py_DecRef);
    free(object);
}

int kvpy_object_is_open(kvpy_object *object)
{
    return atomic_load(&object->pointer) != NULL;
}

int kvpy_object_lock(kvpy_object *object)
{
    return kvpy_enter(object);
}

void kvpy_object_unlock(kvpy_object *object)
{
    kvpy_leave(object);
}

void *kvpy_object_pointer(kvpy_object *object)
{
    return atomic_load(&object->pointer);
}
