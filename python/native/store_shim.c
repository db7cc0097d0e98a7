/* store_shim.c: see store_shim.h. */
#define _POSIX_C_SOURCE 200809L

#include "store_shim.h"

#include <time.h>
#include <unistd.h>

void kvpy_destroy(void *pointer, int kind)
{
    if (kind == KVPY_STORE)
        kvp_store_close(pointer);
    else if (kind == KVPY_SPILL)
        kvp_spill_destroy(pointer);
    else
        kvp_digester_destroy(pointer);
}

void kvpy_store_free(kvpy_object *object)
{
    if (object->pid == getpid())
        kvpy_object_free(object);
}

int kvpy_store_open(kvp_store_config *config, kvp_store_stack_config *stack,
                    const char *const *urls, kvpy_object *object, char *out_why, size_t why_bytes)
{
    kvp_store *stores[KVP_STORE_STACK_MAX];
    kvp_store *made = NULL;
    uint32_t n = 0;
    kvp_status status = stack->n_stores <= KVP_STORE_STACK_MAX ? KVP_OK : KVP_E_ARG;
    while (status == KVP_OK && n < stack->n_stores) {
        config->url = urls[n];
        status = kvp_store_open(config, &stores[n], out_why, why_bytes);
        n += status == KVP_OK;
    }
    stack->stores = stores;
    if (status == KVP_OK && n == 1)
        made = stores[0];
    else if (status == KVP_OK)
        status = kvp_store_stack_open(stack, &made, out_why, why_bytes);
    stack->stores = NULL;
    if (status == KVP_OK)
        kvpy_own(object, made);
    else
        for (uint32_t i = 0; i < n; i++)
            kvp_store_close(stores[i]);
    return status;
}

int kvpy_store_part_stats(kvpy_object *object, uint32_t number, kvp_store_stats *out_stats)
{
    int status = kvpy_enter_reader(object);
    if (status != KVP_OK)
        return status;
    const kvp_store *part = kvp_store_stack_part(atomic_load(&object->pointer), number);
    status = part != NULL ? kvp_store_stats_get(part, out_stats) : KVP_E_ARG;
    kvpy_leave_reader(object);
    return status;
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

/* ------------------------------------------------------------------------------------- spills */

/* How long a close waits for the store: so many waits of 10 ms. */
enum { MOST_WAITS = 2000, WAIT_NS = 10000000, ANSWERS = 64 };

int kvpy_enter_spill(kvpy_object *object)
{
    int status = kvpy_enter(object);
    if (status != KVP_OK)
        return status;
    status = kvpy_enter(object->store);
    if (status != KVP_OK)
        kvpy_leave(object);
    return status;
}

void kvpy_leave_spill(kvpy_object *object)
{
    kvpy_leave(object->store);
    kvpy_leave(object);
}

static int create_spill(kvpy_object *object, kvp_spill_config *config, char *out_why,
                        size_t why_bytes)
{
    kvp_spill *made = NULL;
    config->cache = kvpy_object_pointer(object->owner);
    config->store = kvpy_object_pointer(object->store);
    int status = kvp_spill_create(config, &made, out_why, why_bytes);
    if (status == KVP_OK)
        kvpy_own(object, made);
    return status;
}

int kvpy_spill_create(kvpy_object *object, kvpy_object *store, kvp_spill_config *config,
                      char *out_why, size_t why_bytes)
{
    object->store = store;
    int status = kvpy_enter(object->owner);
    if (status != KVP_OK)
        return status;
    status = kvpy_enter(store);
    if (status == KVP_OK) {
        status = create_spill(object, config, out_why, why_bytes);
        kvpy_leave(store);
    }
    kvpy_leave(object->owner);
    return status;
}

/* With both locks. The clock stands still: no deadline passes meanwhile. */
static int stop(kvp_spill *spill, kvp_store *store)
{
    kvp_spill_answer answers[ANSWERS];
    uint32_t n;
    for (int i = 0; i < MOST_WAITS; i++) {
        int idle;
        if (kvp_spill_stop(spill, 0) == KVP_OK)
            return KVP_OK;
        (void)kvp_spill_work(spill, 0, answers, ANSWERS, &n);
        if (kvp_store_work(store, &idle) != KVP_OK) /* it has a thread */
            (void)kvp_store_wait(store, WAIT_NS);
    }
    return KVP_E_AGAIN;
}

int kvpy_spill_close(kvpy_object *object)
{
    int status = kvpy_enter_spill(object);
    if (status == KVP_OK) {
        status = stop(kvpy_object_pointer(object), kvpy_object_pointer(object->store));
        kvpy_leave_spill(object);
    } else if (status == KVPY_E_CLOSED) {
        status = KVP_OK; /* the spill; or its store, which has ended everything then */
    }
    return status == KVP_OK ? kvpy_object_close(object) : status;
}

/* Where operations of it are still on their way in the store, it stays where it is, and so does all
 * that it holds. */
void kvpy_spill_free(kvpy_object *object)
{
    const struct timespec millisecond = {.tv_nsec = 1000000};
    if (object->pid != getpid())
        return;
    for (int turns = 0; kvpy_object_is_open(object) && kvpy_spill_close(object) != KVP_OK;
         turns++) {
        if (turns == MOST_WAITS)
            return;
        nanosleep(&millisecond, NULL);
    }
    kvpy_object_free(object);
}
