/* Owns the table of accelerators.
 *
 * Memory is what the driver reports as total (memory.total of nvidia-smi; VRAM total of rocm-smi),
 * because that is what an engine multiplies its fraction with. It is not the number in the name of
 * the product: 46,068 MiB of an L40S "48 GB" are left with error correction on. Drivers differ by a
 * few hundred MiB.
 *
 * Bandwidth and FLOP/s are the vendor's peaks from the data sheets: dense (a sheet that says "with
 * sparsity" is halved), bf16 inputs, fp32 sums. What a kernel reaches is less.
 *
 *   H100, H200   NVIDIA H100 and H200 data sheets, SXM: 989.4 TFLOP/s; 3.35 and 4.8 TB/s
 *   A100         NVIDIA A100 data sheet, SXM: 312 TFLOP/s; 2,039 and 1,555 GB/s
 *   B200         NVIDIA DGX B200 data sheet, an eighth of it: 2.25 PFLOP/s, 8 TB/s
 *   L40S, L4     NVIDIA data sheets: 362 and 121 TFLOP/s; 864 and 300 GB/s
 *   RTX 4090     NVIDIA Ada architecture paper: 165.2 TFLOP/s; 1,008 GB/s
 *   MI300X       AMD data sheet: 1,307.4 TFLOP/s; 5.3 TB/s
 */
#define _POSIX_C_SOURCE 200809L

#include "tool/models/devices.h"

#include <string.h>
#include <strings.h>

#define MIB (UINT64_C(1) << 20)

static const kvpi_device table[] = {
    {"h100-80gb", "NVIDIA H100 SXM 80 GB", 81559 * MIB, 3.35e12, 989.4e12},
    {"h200-141gb", "NVIDIA H200 SXM 141 GB", 143771 * MIB, 4.8e12, 989.4e12},
    {"a100-80gb", "NVIDIA A100 SXM 80 GB", 81920 * MIB, 2.039e12, 312e12},
    {"a100-40gb", "NVIDIA A100 SXM 40 GB", 40960 * MIB, 1.555e12, 312e12},
    {"b200-180gb", "NVIDIA B200 SXM 180 GB", 183359 * MIB, 8e12, 2250e12},
    {"l40s-48gb", "NVIDIA L40S 48 GB", 46068 * MIB, 0.864e12, 362e12},
    {"l4-24gb", "NVIDIA L4 24 GB", 23034 * MIB, 0.3e12, 121e12},
    {"rtx4090-24gb", "NVIDIA GeForce RTX 4090 24 GB", 24564 * MIB, 1.008e12, 165.2e12},
    {"mi300x-192gb", "AMD Instinct MI300X 192 GB", 196592 * MIB, 5.3e12, 1307.4e12},
};

#define N_DEVICES (sizeof table / sizeof *table)

const kvpi_device *kvpi_devices_find(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < N_DEVICES; i++) {
        const char *full = table[i].name;
        if (strncasecmp(full, name, n) == 0 && (full[n] == '\0' || (n > 0 && full[n] == '-')))
            return &table[i];
    }
    return NULL;
}

const kvpi_device *kvpi_devices_all(size_t *n)
{
    *n = N_DEVICES;
    return table;
}
