/* backends: ggml looks for libraries of back ends in its own folders, the program's and the current
 * one. So it is asked to only if it has none inside. */
#include "backends.h"

#include <llama.h>

int kvpi_backends_load(kvpi_options *options, const char *path)
{
    if (ggml_backend_dev_count() == 0)
        ggml_backend_load_all(); /* it reads GGML_BACKEND_PATH, too */
    else if (path != NULL && ggml_backend_load(path) == NULL)
        return -1;
    /* llama.cpp's auto turns flash attention off if a device of its own would compute it. */
    if (options->flash_attn == LLAMA_FLASH_ATTN_TYPE_AUTO &&
        ggml_backend_dev_by_name("kvpager") != NULL)
        options->flash_attn = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    return 0;
}
