/* publish_shim.h: what stands between cffi and libkvpager_zmq: the module kvpager._publish_native. It
 * is one of its own, because it needs libzmq. See shim.h. */
#ifndef KVPY_PUBLISH_SHIM_H
#define KVPY_PUBLISH_SHIM_H

#include "object.h"

#include <kvpager/publish.h>

enum { KVPY_PUBLISHER = 0 };

/* kvpy_object_free; nothing in a forked child, which has no thread of libzmq's. */
void kvpy_publisher_free(kvpy_object *object);

/* kvp_publisher_read and kvp_publisher_resync of a cache, which is an object of kvpager._native: the
 * first beside its calls, the second alone inside. */
int kvpy_publisher_read(kvpy_object *object, kvpy_object *cache, uint64_t now_ns);
int kvpy_publisher_resync(kvpy_object *object, kvpy_object *cache, uint64_t now_ns);

#endif
