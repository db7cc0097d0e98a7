/* backends: what of ggml computes the model. */
#ifndef KVPI_SERVE_BACKENDS_H
#define KVPI_SERVE_BACKENDS_H

#include "../options.h"

/* Loads the back end that GGML_BACKEND_PATH names (NULL: none). A libllama that has its back ends
 * in libraries of their own gets all that it finds. With kvpager's attention, -fa auto becomes on.
 * -1: the named one cannot be loaded; ggml's log has the reason. Once, before a model is loaded. */
int kvpi_backends_load(kvpi_options *options, const char *path);

#endif
