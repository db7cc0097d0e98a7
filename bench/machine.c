/* What the numbers were measured on. Reads /proc and /sys where they exist; says "unknown" where
 * they do not. */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#ifndef KVP_COMPILER
#define KVP_COMPILER "unknown compiler"
#endif
#ifndef KVP_COMPILER_FLAGS
#define KVP_COMPILER_FLAGS ""
#endif

/* The rest of the first line that begins with `key`, after a colon; "unknown" if there is none. */
static void read_field(const char *path, const char *key, char *out, size_t n_bytes)
{
    char line[512];
    snprintf(out, n_bytes, "unknown");
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        const char *value = *key ? strchr(line, ':') : line;
        if (!value)
            continue;
        value += *key ? 1 : 0;
        value += strspn(value, " \t");
        snprintf(out, n_bytes, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (file)
        fclose(file);
}

void print_machine(FILE *file)
{
    char cpu[128];
    char cache[64];
    char huge[128];
    char load[64];
    read_field("/proc/cpuinfo", "model name", cpu, sizeof cpu);
    read_field("/proc/cpuinfo", "cache size", cache, sizeof cache);
    read_field("/sys/kernel/mm/transparent_hugepage/enabled", "", huge, sizeof huge);
    read_field("/proc/loadavg", "", load, sizeof load);
    fprintf(file, "cpu          %s, %ld cores, cache %s\n", cpu, sysconf(_SC_NPROCESSORS_ONLN),
            cache);
    fprintf(file, "compiler     %s %s\n", KVP_COMPILER, KVP_COMPILER_FLAGS);
    fprintf(file, "huge pages   %s\n", huge);
    fprintf(file, "load         %s\n", load);
    fprintf(file, "cold         %s\n", flush_method());
    fprintf(file, "library      kvpager %s\n", kvp_version());
}

size_t available_bytes(void)
{
    char kib[64];
    read_field("/proc/meminfo", "MemAvailable", kib, sizeof kib);
    const unsigned long long n = strtoull(kib, NULL, 10);
    return n == 0 ? SIZE_MAX : (size_t)n * 1024;
}

/* In KiB, the most that was seen. */
static long most_huge;

void note_huge_pages(void)
{
    char used[64];
    read_field("/proc/self/smaps_rollup", "AnonHugePages", used, sizeof used);
    long kib = strtol(used, NULL, 10);
    most_huge = kib > most_huge ? kib : most_huge;
}

void print_huge_pages(FILE *file)
{
    fprintf(file, "\nmemory in huge pages, at most: %ld MiB\n", most_huge / 1024);
}
