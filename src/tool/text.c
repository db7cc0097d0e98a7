/* Owns how figures look: separators, units, clock times, rows, bars. */
#include "tool/text.h"

#include <inttypes.h>
#include <string.h>

#include "tool/machine/machine.h"

kvpi_text kvpi_text_count(uint64_t number)
{
    kvpi_text digits, out;
    snprintf(digits.of, sizeof digits.of, "%" PRIu64, number);
    size_t n = strlen(digits.of), used = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            out.of[used++] = ',';
        out.of[used++] = digits.of[i];
    }
    out.of[used] = '\0';
    return out;
}

kvpi_text kvpi_text_share(double part, double whole)
{
    kvpi_text out;
    double ratio = whole == 0 ? 0.0 : part / whole;
    snprintf(out.of, sizeof out.of, "%.1f %%", 100.0 * ratio);
    return out;
}

kvpi_text kvpi_text_percent(uint64_t part, uint64_t whole)
{
    return kvpi_text_share((double)part, (double)whole);
}

/* Scales by steps of `base` until the number is small enough to read. */
static kvpi_text scaled(double number, double base, const char *const *units)
{
    kvpi_text out;
    while (number >= base && units[1] != NULL) {
        number /= base;
        units++;
    }
    snprintf(out.of, sizeof out.of, number < 10 ? "%.2f %s" : "%.1f %s", number, *units);
    return out;
}

kvpi_text kvpi_text_duration(double ns)
{
    static const char *const units[] = {"ns", "us", "ms", "s", NULL};
    return scaled(ns, 1000.0, units);
}

kvpi_text kvpi_text_bytes(double n_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", NULL};
    return scaled(n_bytes, 1024.0, units);
}

kvpi_text kvpi_text_clock(uint64_t us)
{
    kvpi_text out;
    uint64_t seconds = us / 1000000;
    snprintf(out.of, sizeof out.of, "%" PRIu64 ":%02d:%02d", seconds / 3600,
             (int)(seconds / 60 % 60), (int)(seconds % 60));
    return out;
}

kvpi_text kvpi_text_span(double ns)
{
    return ns < 1e12 ? kvpi_text_duration(ns) : kvpi_text_clock((uint64_t)(ns / 1e3));
}

void kvpi_text_row(FILE *file, const char *label, kvpi_text value, const char *meaning)
{
    fprintf(file, "  %-14s %15s  %s\n", label, value.of, meaning);
}

void kvpi_text_bar(FILE *file, double ratio, int cells)
{
    static const char *const parts[] = {"",       "\u258f", "\u258e", "\u258d",
                                        "\u258c", "\u258b", "\u258a", "\u2589"};
    int eighths = (int)(ratio * cells * 8 + 0.5), utf8 = kvpi_machine_shows_utf8();
    if (!utf8)
        eighths = (eighths + 4) / 8 * 8;
    if (eighths > 0)
        fputs("  ", file);
    for (int i = 0; i < eighths / 8; i++)
        fputs(utf8 ? "\u2588" : "#", file);
    fputs(parts[eighths % 8], file);
}
