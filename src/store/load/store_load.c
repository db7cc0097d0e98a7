/* store_load: the library lies beside the program or library that has this code (in a Python
 * package: beside the extension module), or in the lib of a bin beside it, or the system knows
 * it. */
#define _GNU_SOURCE
#include "store/load/store_load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef KVP_REDIS_LIBRARY
#define KVP_REDIS_LIBRARY "libkvpager_redis.so"
#endif

static void *load(const char *name)
{
    static const char *const places[] = {"", "../lib/"};
    Dl_info info;
    const void *here = (const void *)&places;
    for (unsigned i = 0; i < 2 && dladdr(here, &info) && info.dli_fname; i++) {
        const char *slash = strrchr(info.dli_fname, '/');
        char path[4096];
        if (!slash || snprintf(path, sizeof path, "%.*s/%s%s", (int)(slash - info.dli_fname),
                               info.dli_fname, places[i], name) >= (int)sizeof path)
            break;
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library || access(path, F_OK) == 0) /* if it is there, its own error counts */
            return library;
    }
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

const struct kvpi_backend *kvpi_load_backend(const char *scheme, char *out_why, size_t why_bytes)
{
    if (strcmp(scheme, "redis") != 0 && strcmp(scheme, "rediss") != 0) {
        char shown[KVPI_URL_BYTES];
        kvpi_url_show(scheme, shown, sizeof shown);
        kvpi_why(
            KVP_OK, out_why, why_bytes,
            "there is no store \"%s:\", expected \"file:\", \"memory:\", \"redis:\" or \"rediss:\"",
            shown);
        return NULL;
    }
    void *library = load(KVP_REDIS_LIBRARY);
    const struct kvpi_backend *backend = library ? dlsym(library, "kvpi_redis_backend") : NULL;
    if (backend && backend->version == KVPI_BACKEND_VERSION)
        return backend;
    const char *error = dlerror();
    kvpi_why(KVP_OK, out_why, why_bytes,
             "\"%s:\" needs %s, which is built if libssl and libvalkey are found: %s", scheme,
             KVP_REDIS_LIBRARY, library && !error ? "it is of another version" : error);
    if (library)
        dlclose(library);
    return NULL;
}
