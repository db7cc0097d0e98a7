/* object.c: objects with their guards. See object.h. */
#define _POSIX_C_SOURCE 200809L
#define Py_LIMITED_API  0x030a0000
#include <Python.h>

#include "object.h"

#include <sched.h>
#include <stdio.h>
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

static atomic_uint_least64_t created, destroyed;

void kvpy_object_init(kvpy_object *object, int kind, kvpy_object *owner, uintptr_t held)
{
    object->kind = kind;
    object->pid = getpid();
    object->owner = owner;
    object->held = (void *)held;
    kvpy_change_references(object->held, Py_IncRef);
}

void kvpy_own(kvpy_object *object, void *pointer)
{
    atomic_fetch_add(&created, 1);
    atomic_store(&object->pointer, pointer);
}

uint64_t kvpy_objects_created(void)
{
    return atomic_load(&created);
}

uint64_t kvpy_objects_destroyed(void)
{
    return atomic_load(&destroyed);
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
    atomic_fetch_add(&destroyed, 1);
    if (object->sink != NULL)
        fclose(object->sink);
    object->sink = NULL;
    kvpy_leave(object);
    return KVP_OK;
}

/* Runs in a thread that is inside no call; a thread that is inside one comes out without the
 * interpreter's lock, which may be held here. Where nothing was created, nothing is waited for. A
 * lock that is never given back (a thread that was killed inside) leaves what was created where it
 * is, rather than hang the interpreter's end. */
void kvpy_object_free(kvpy_object *object)
{
    const struct timespec millisecond = {.tv_nsec = 1000000};
    int turns = 20000;
    while (kvpy_object_is_open(object) && kvpy_object_close(object) != KVP_OK) {
        if (--turns == 0)
            return;
        nanosleep(&millisecond, NULL);
    }
    kvpy_change_references(object->held, Py_DecRef);
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

int kvpy_place_lock(kvpy_object *object, kvpy_object **place)
{
    int status = kvpy_enter(object);
    if (status == KVP_OK)
        *place = object;
    return status;
}

void kvpy_place_unlock(kvpy_object **place)
{
    if (*place != NULL)
        kvpy_leave(*place);
    *place = NULL;
}

size_t kvpy_object_bytes(void)
{
    return sizeof(kvpy_object);
}

void *kvpy_object_pointer(kvpy_object *object)
{
    return atomic_load(&object->pointer);
}
