/* convert: elements and f32. What the public kvp_type_... calls check, these trust. */
#ifndef KVPI_CONVERT_H
#define KVPI_CONVERT_H

#include <kvpager/memory.h>

/* [n] elements, side by side, x scale. Also of KVP_Q8_0, which the others here do not know. */
void kvpi_convert_read(uint32_t type, float scale, const void *elements, size_t n, float *values);

/* [n] values / scale, rounded; scale > 0. */
void kvpi_convert_write(uint32_t type, float scale, const float *values, size_t n, void *elements);

/* Round [n] elements of KVP_INT8 or KVP_E4M3 once more: they had scale `from`, and get `to`. */
void kvpi_convert_rescale(uint32_t type, float from, float to, size_t n, void *elements);

/* The largest finite |value|. */
float kvpi_convert_max_abs(const float *values, size_t n);

#endif
