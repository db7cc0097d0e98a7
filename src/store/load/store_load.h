/* store_load: back ends that are libraries of their own, because they need others. */
#ifndef KVPI_STORE_LOAD_H
#define KVPI_STORE_LOAD_H

#include "store/backend.h"

/* The back end of a scheme, from a library beside the one that has this code (in a Python package,
 * the extension module) or where the system looks; it stays loaded. NULL: there is none, and
 * out_why tells the reason. */
const struct kvpi_backend *kvpi_load_backend(const char *scheme, char *out_why, size_t why_bytes);

#endif
