/* Owns the table of accelerators.
 *
 * Memory is what the driver reports as total (memory.total of nvidia-smi; VRAM total of rocm-smi;
 * hl-smi), because that is what an engine multiplies its fraction with. It is not the number in the
 * name of the product: 46,068 MiB of an L40S "48 GB" are left with error correction on. Drivers
 * differ by a few hundred MiB. Of a TPU it is the vendor's number; of a Mac the working set that
 * Metal recommends, three quarters of all.
 *
 * Bandwidth and FLOP/s are the vendor's peaks from the data sheets: dense (a sheet that says "with
 * sparsity" is halved), fp32 sums. What a kernel reaches is less. Steps are modelled with bf16's.
 *
 *   H100, H200   NVIDIA H100 and H200 data sheets, SXM: 989.4 TFLOP/s; 3.35 and 4.8 TB/s
 *   H20          NVIDIA data sheet: 148 TFLOP/s, 4 TB/s
 *   A100         NVIDIA A100 data sheet, SXM: 312 TFLOP/s; 2,039 and 1,555 GB/s
 *   B200, B300   NVIDIA DGX B200 and B300 data sheets, an eighth of it: 2.25 PFLOP/s, 8 TB/s
 *   GB200, GB300 NVIDIA NVL72 data sheets, a 72nd of it: 2.5 PFLOP/s, 8 TB/s
 *   L40S, L4, L20  NVIDIA data sheets: 362, 121 and 119.5 TFLOP/s; 864, 300 and 864 GB/s
 *   RTX          NVIDIA Ada and Blackwell architecture papers
 *   MI300X, MI325X, MI355X  AMD data sheets: 1,307.4, 1,307.4, 2,516.6 TFLOP/s; 5.3, 6, 8 TB/s
 *   Gaudi 3      Intel product brief, HL-325L: 1,678 TFLOP/s, 3.7 TB/s
 *   TPU v7x      Google Cloud documentation: 2,307 TFLOP/s, 7.38 TB/s
 *   M4 Ultra     twice an M4 Max: 546 GB/s, 18.4 TFLOP/s
 *
 * Estimates: the memory of the MI325X (from its neighbours), and all of the M4 Ultra.
 */
#include "tool/models/devices.h"

#include <ctype.h>
#include <stdbool.h>

#define MIB (UINT64_C(1) << 20)

static const kvpi_device table[] = {
    {"h100-80gb", "NVIDIA H100 SXM 80 GB", 81559 * MIB, 3.35e12, 989.4e12, 1978.9e12, 0},
    {"h200-141gb", "NVIDIA H200 SXM 141 GB", 143771 * MIB, 4.8e12, 989.4e12, 1978.9e12, 0},
    {"h20-96gb", "NVIDIA H20 96 GB", 97871 * MIB, 4e12, 148e12, 296e12, 0},
    {"a100-80gb", "NVIDIA A100 SXM 80 GB", 81920 * MIB, 2.039e12, 312e12, 0, 0},
    {"a100-40gb", "NVIDIA A100 SXM 40 GB", 40960 * MIB, 1.555e12, 312e12, 0, 0},
    {"b200-180gb", "NVIDIA B200 SXM 180 GB", 183359 * MIB, 8e12, 2250e12, 4500e12, 9000e12},
    {"b300-288gb", "NVIDIA B300 SXM 288 GB", 275040 * MIB, 8e12, 2250e12, 4500e12, 13500e12},
    {"gb200-186gb", "NVIDIA GB200 186 GB", 189471 * MIB, 8e12, 2500e12, 5000e12, 10000e12},
    {"gb300-288gb", "NVIDIA GB300 288 GB", 284208 * MIB, 8e12, 2500e12, 5000e12, 15000e12},
    {"l40s-48gb", "NVIDIA L40S 48 GB", 46068 * MIB, 0.864e12, 362e12, 733e12, 0},
    {"l20-48gb", "NVIDIA L20 48 GB", 46068 * MIB, 0.864e12, 119.5e12, 239e12, 0},
    {"l4-24gb", "NVIDIA L4 24 GB", 23034 * MIB, 0.3e12, 121e12, 242.5e12, 0},
    {"rtxpro6000-96gb", "NVIDIA RTX PRO 6000 96 GB", 97887 * MIB, 1.792e12, 503.8e12, 1007.6e12,
     2015.2e12},
    {"rtx5090-32gb", "NVIDIA GeForce RTX 5090 32 GB", 32607 * MIB, 1.792e12, 209.5e12, 419e12,
     1676e12},
    {"rtx4090-24gb", "NVIDIA GeForce RTX 4090 24 GB", 24564 * MIB, 1.008e12, 165.2e12, 330.3e12, 0},
    {"mi300x-192gb", "AMD Instinct MI300X 192 GB", 196592 * MIB, 5.3e12, 1307.4e12, 2614.9e12, 0},
    {"mi325x-256gb", "AMD Instinct MI325X 256 GB", 262128 * MIB, 6e12, 1307.4e12, 2614.9e12, 0},
    {"mi355x-288gb", "AMD Instinct MI355X 288 GB", 294896 * MIB, 8e12, 2516.6e12, 5033.2e12,
     10066.3e12},
    {"gaudi3-128gb", "Intel Gaudi 3 128 GB", 131072 * MIB, 3.7e12, 1678e12, 1678e12, 0},
    {"tpu-v7x-192gb", "Google TPU v7x 192 GB", 196608 * MIB, 7.38e12, 2307e12, 4614e12, 0},
    {"m4ultra-512gb", "Apple M4 Ultra 512 GB", 393216 * MIB, 1.092e12, 36.8e12, 0, 0},
};

#define N_DEVICES (sizeof table / sizeof *table)

static bool is_separator(char c)
{
    return c == '-' || c == ' ' || c == '_';
}

/* Whether a name is this one, or begins it up to a hyphen. */
static bool is_named(const char *full, const char *name)
{
    bool some = false;
    for (;; name++) {
        while (is_separator(*name))
            name++;
        if (*name == '\0')
            return some && (*full == '\0' || *full == '-');
        full += *full == '-';
        if (tolower((unsigned char)*name) != *full++)
            return false;
        some = true;
    }
}

const kvpi_device *kvpi_devices_find(const char *name)
{
    for (size_t i = 0; i < N_DEVICES; i++)
        if (is_named(table[i].name, name))
            return &table[i];
    return NULL;
}

const kvpi_device *kvpi_devices_all(size_t *n)
{
    *n = N_DEVICES;
    return table;
}
