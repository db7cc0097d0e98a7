/* plain: see pages_system.h. Where there is one kind of pages, or only one is used. */
#include "base/pages/pages_system.h"
#include "base/platform/which.h"

#if !KVPI_LINUX

#include <string.h>

void *kvpi_pages_map_reserved(size_t bytes)
{
    (void)bytes;
    return NULL;
}

int kvpi_pages_ask_for_huge(void *mapping, size_t bytes)
{
    (void)mapping;
    (void)bytes;
    return -1;
}

int kvpi_pages_bind(void *mapping, size_t bytes, int32_t node)
{
    (void)mapping;
    (void)bytes;
    return node == 0 ? 0 : -1;
}

int kvpi_pages_populate(void *mapping, size_t bytes)
{
    memset(mapping, 0, bytes);
    return 0;
}

#endif
