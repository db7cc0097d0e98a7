/* Accelerators that people rent and buy: how much memory, how fast. */
#ifndef KVPI_DEVICES_H
#define KVPI_DEVICES_H

#include <stddef.h>
#include <stdint.h>

typedef struct kvpi_device {
    const char *name;  /* as on the command line: "h100-80gb" */
    const char *title; /* "NVIDIA H100 SXM 80 GB" */
    uint64_t memory_bytes;
    double bytes_per_second; /* of its memory, peak */
    double flops;            /* dense matrix bf16 with 32-bit sums, per second, peak */
    double fp8_flops;        /* the same of 8 and 4 bits; 0: it has none */
    double fp4_flops;
} kvpi_device;

/* Find a device by its name, in upper or lower case, with or without blanks and hyphens; a name
 * without its memory size stands for the first one that begins so: "a100" is "a100-80gb", "RTX PRO
 * 6000" is "rtxpro6000-96gb".
 *
 * Returns: NULL for an unknown name
 */
const kvpi_device *kvpi_devices_find(const char *name);

/* Give the whole table.
 *
 * Gives:   n        number of rows
 * Returns: [n], static
 */
const kvpi_device *kvpi_devices_all(size_t *n);

#endif
