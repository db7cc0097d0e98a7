/* other: the same library, built against another version of ggml's interface of back ends. ggml
 * must refuse it. */
#define _GNU_SOURCE /* dladdr */
#include <ggml-backend-impl.h>

#undef GGML_BACKEND_API_VERSION
#define GGML_BACKEND_API_VERSION 9999

#include "../backend.c"
