/* store_shim.h: what stands between cffi and libkvpager_store: the module kvpager._store_native. It
 * is one of its own, because it needs libcrypto. See shim.h. */
#ifndef KVPY_STORE_SHIM_H
#define KVPY_STORE_SHIM_H

#include "object.h"

#include <kvpager/store.h>

enum { KVPY_STORE = 0, KVPY_DIGESTER = 1 };

/* kvpy_object_free; nothing in a forked child, which has no thread that could end the store's
 * operations. */
void kvpy_store_free(kvpy_object *object);

/* kvp_store_work, which other calls may run beside: KVP_E_BUSY if another thread does it. */
int kvpy_store_work(kvpy_object *object, int *out_idle);

#endif
