/* backends: one device inside, or none until it is loaded, and one of another library: a file of
 * the word "fake-backend" and its name. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ggml_backend_device {
    char name[32];
};

static struct ggml_backend_device devices[2];
static size_t n_devices;

void fake_set_backends(int are_inside)
{
    n_devices = are_inside != 0;
    memcpy(devices[0].name, "CPU", sizeof "CPU");
}

size_t ggml_backend_dev_count(void)
{
    return n_devices;
}

ggml_backend_dev_t ggml_backend_dev_by_name(const char *name)
{
    for (size_t i = 0; i < n_devices; i++)
        if (strcmp(devices[i].name, name) == 0)
            return &devices[i];
    return NULL;
}

ggml_backend_reg_t ggml_backend_load(const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return NULL;
    const int is_read = n_devices == 1 && fscanf(file, "fake-backend %31s", devices[1].name) == 1;
    (void)fclose(file);
    if (!is_read)
        return NULL;
    n_devices = 2;
    return (ggml_backend_reg_t)(void *)&devices[1];
}

void ggml_backend_load_all(void)
{
    const char *path = getenv("GGML_BACKEND_PATH");
    fake_set_backends(1);
    if (path != NULL)
        (void)ggml_backend_load(path);
}
