/* store_shim.h: what stands between cffi and libkvpager_store: the module kvpager._store_native. It
 * is one of its own, because it needs libcrypto. See shim.h. */
#ifndef KVPY_STORE_SHIM_H
#define KVPY_STORE_SHIM_H

#include "object.h"

#include <kvpager/store.h>

enum { KVPY_STORE = 0 };

/* kvpy_object_free; nothing in a forked child, which has no thread that could end the store's
 * operations. */
void kvpy_store_free(kvpy_object *object);

#endif
