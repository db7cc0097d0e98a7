/* object.h: what the library created, with its guard, for both extension modules. See shim.h. */
#ifndef KVPY_OBJECT_H
#define KVPY_OBJECT_H

#include <kvpager/all.h>

#ifdef KVPY_CDEF /* read by cffi, which makes room for an object and knows no more of it */
typedef struct kvpy_object {
    ...;
} kvpy_object;
#else
#include <stdatomic.h>
#include <sys/types.h>
#endif

enum {
    KVPY_E_CLOSED = -1001, /* the object is closed */
    KVPY_E_LENGTH = -1002  /* arrays that do not fit each other */
};

#ifndef KVPY_CDEF
typedef struct kvpy_object {
    void *_Atomic pointer;     /* NULL: nothing was created yet, or it is closed */
    struct kvpy_object *owner; /* whose lock counts; NULL: its own */
    struct kvpy_object *store; /* a spill's: its lock counts, too */
    atomic_int lock;
    atomic_int readers;
    atomic_int working; /* a store's: 1 while a thread does its work */
    int kind;           /* KVPY_CACHE ... */
    pid_t pid;          /* of the process that made it */
    void *held; /* a Python object that must outlive this one: an owner, an arena, memories. Not by
                   a reference in Python: the cycle collector frees what refers to each other in any
                   order */
    void *sink; /* a cache's recording: FILE */
    uint32_t
        n_sampled; /* a scheduler's: tokens that the finish of the step that is out must give */
    uint32_t n_decoding; /* of that step */
} kvpy_object;

static inline atomic_int *kvpy_lock_of(kvpy_object *object)
{
    return object->owner != NULL ? &object->owner->lock : &object->lock;
}

/* KVP_OK, and the caller is alone inside until kvpy_leave; or why not. */
static inline int kvpy_enter(kvpy_object *object)
{
    atomic_int *lock = kvpy_lock_of(object);
    if (atomic_exchange_explicit(lock, 1, memory_order_acquire) != 0)
        return KVP_E_BUSY;
    if (atomic_load_explicit(&object->pointer, memory_order_relaxed) != NULL)
        return KVP_OK;
    atomic_store_explicit(lock, 0, memory_order_release);
    return KVPY_E_CLOSED;
}

static inline void kvpy_leave(kvpy_object *object)
{
    atomic_store_explicit(kvpy_lock_of(object), 0, memory_order_release);
}

/* For calls that may run beside others: only the close waits for them. */
static inline int kvpy_enter_reader(kvpy_object *object)
{
    atomic_fetch_add(&object->readers, 1);
    if (atomic_load(&object->pointer) != NULL)
        return KVP_OK;
    atomic_fetch_sub(&object->readers, 1);
    return KVPY_E_CLOSED;
}

static inline void kvpy_leave_reader(kvpy_object *object)
{
    atomic_fetch_sub(&object->readers, 1);
}

/* What the library has just created, and counts it. */
void kvpy_own(kvpy_object *object, void *pointer);
#endif

/* ------------------------------------------------------------------------------- objects */

#ifndef KVPY_CDEF
/* The module's own: destroys what an object's pointer points to. */
void kvpy_destroy(void *pointer, int kind);

/* Py_IncRef or Py_DecRef of a Python object, if there is one and an interpreter still. */
struct _object;
void kvpy_change_references(void *held, void (*change)(struct _object *));
#endif
/* An object lies in memory of Python's, zeroed, and has its destructor, kvpy_object_free, before
 * anything is created: an exception that a signal's handler raises may come between any two steps
 * of Python. The twins of create functions fill it. */
void kvpy_object_init(kvpy_object *object, int kind, kvpy_object *owner, uintptr_t held);
int kvpy_object_close(kvpy_object *object); /* KVP_E_BUSY while a call runs; else KVP_OK */
void kvpy_object_free(kvpy_object *object); /* waits for a call that runs on it; then closes */
uint64_t kvpy_objects_created(void);        /* tests: by this module */
uint64_t kvpy_objects_destroyed(void);
int kvpy_object_is_open(kvpy_object *object);
int kvpy_object_lock(kvpy_object *object); /* tests: as if another thread were inside */
void kvpy_object_unlock(kvpy_object *object);
/* As kvpy_object_lock, for a caller with a place that has a destructor, so that no exception can
 * come between the lock and its end. The destructor does nothing the second time. */
int kvpy_place_lock(kvpy_object *object, kvpy_object **place);
void kvpy_place_unlock(kvpy_object **place);
void *kvpy_object_pointer(kvpy_object *object); /* for a caller that has locked it */
/* Of this module. One that has objects of the other one as owners must have the same. */
size_t kvpy_object_bytes(void);

#endif
