/* memory: a layout with addresses, and the back end that reaches them.
 *
 *   I1  the layout is one that kvpi_layout_wrong passes
 *   I2  tensors[i] is NULL exactly if no part lies in it
 *   I3  tensors do not overlap; each is aligned for what lies in it
 */
#ifndef KVPI_MEMORY_H
#define KVPI_MEMORY_H

#include <kvpager/memory.h>

/* Who runs copies on a memory. A copier is made by the back end of its device tier. */
struct kvpi_backend {
    kvp_status (*copier_create)(const kvp_copier_config *config, kvp_copier **out_copier);
};

/* Memory that the CPU reads and writes by its addresses. */
extern const struct kvpi_backend kvpi_cpu_backend;

struct kvp_memory {
    const struct kvpi_backend *backend;
    kvp_layout layout;
    kvp_memory_info info;
    void *mapping; /* NULL: the tensors are the caller's */
    unsigned char *tensors[];
};

/* Where block 0, token 0, head 0 of a layer of part i lies; NULL if there is no such part. */
unsigned char *kvpi_memory_base(const kvp_memory *memory, int part, uint32_t layer);

/* The bytes of each tensor, [n_tensors]; 0 where no part lies in it. */
void kvpi_memory_tensor_bytes(const kvp_layout *layout, size_t *out_bytes);

#endif
