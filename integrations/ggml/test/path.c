/* ggml_path: what a program of llama.cpp does at its start. GGML_BACKEND_PATH names the library:
 * its device must be there, and its first line must say what it needs. */
#include <stdio.h>

#include <ggml-backend.h>

int main(void)
{
    ggml_backend_load_all();
    const ggml_backend_dev_t device = ggml_backend_dev_by_name("kvpager");
    if (device == NULL || ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_ACCEL) {
        printf("no device kvpager\n");
        return 1;
    }
    printf("found: %s\n", ggml_backend_dev_name(device));
    return 0;
}
