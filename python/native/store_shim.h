/* store_shim.h: what stands between cffi and libkvpager_store: the module kvpager._store_native. It
 * is one of its own, because it needs libcrypto. See shim.h. */
#ifndef KVPY_STORE_SHIM_H
#define KVPY_STORE_SHIM_H

#include "object.h"

#include <kvpager/spill.h>
#include <kvpager/store.h>

enum { KVPY_STORE = 0, KVPY_DIGESTER = 1, KVPY_SPILL = 2 };

/* kvpy_object_free; nothing in a forked child, which has no thread that could end the store's
 * operations. */
void kvpy_store_free(kvpy_object *object);

/* kvp_store_open for each of stack->n_stores urls, nearest first; of several, a stack of them.
 * config->url is that of the one at fault, where one is. */
int kvpy_store_open(kvp_store_config *config, kvp_store_stack_config *stack,
                    const char *const *urls, kvpy_object *object, char *out_why, size_t why_bytes);

/* kvp_store_stats_get of store `number` of a stack; KVP_E_ARG: there is none. */
int kvpy_store_part_stats(kvpy_object *object, uint32_t number, kvp_store_stats *out_stats);

/* kvp_store_work, which other calls may run beside: KVP_E_BUSY if another thread does it. */
int kvpy_store_work(kvpy_object *object, int *out_idle);

/* A spill uses a cache, which is an object of kvpager._native, and a store. Its owner is the cache:
 * calls have the cache's lock, then the store's. `held` keeps both, so that neither is freed while
 * the spill lives; each is closed by Python after the spill. */
#ifndef KVPY_CDEF
int kvpy_enter_spill(kvpy_object *object);
void kvpy_leave_spill(kvpy_object *object);
#endif

/* kvp_spill_create, for an object that was initialised with the cache as its owner. */
int kvpy_spill_create(kvpy_object *object, kvpy_object *store, kvp_spill_config *config,
                      char *out_why, size_t why_bytes);

/* kvp_spill_stop until nothing is on its way, then kvp_spill_destroy. KVP_E_AGAIN: the store did
 * not end its operations in 20 s, and nothing was destroyed. */
int kvpy_spill_close(kvpy_object *object);
void kvpy_spill_free(kvpy_object *object);

#endif
