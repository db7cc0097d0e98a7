/* layout: what the other files ask of a layout that was checked. */
#ifndef KVPI_LAYOUT_H
#define KVPI_LAYOUT_H

#include <kvpager/memory.h>

enum { KVPI_PARTS = 4 }; /* K, V, K's scales, V's scales */

/* Part i of a layout, in the order above; its size is 0 if there is none. */
static inline const kvp_part *kvpi_layout_part(const kvp_layout *layout, int i)
{
    const kvp_part *const parts[KVPI_PARTS] = {&layout->k, &layout->v, &layout->k_scales,
                                               &layout->v_scales};
    return parts[i];
}

/* Bytes of an element of part i. */
static inline size_t kvpi_layout_element_bytes(const kvp_layout *layout, int i)
{
    return i < 2 ? kvp_type_bytes(layout->type) : sizeof(float);
}

static inline int kvpi_type_has_scales(uint32_t type)
{
    return type == KVP_INT8 || type == KVP_E4M3;
}

/* Is anything wrong with the numbers of blocks, layers, heads and elements, or the type? `why`
 * (base/why.h) says what. */
int kvpi_layout_shape_wrong(const kvp_layout *layout, kvp_why *why);

/* The same of the whole layout: kvp_layout_check. */
int kvpi_layout_wrong(const kvp_layout *layout, kvp_why *why);

#endif
