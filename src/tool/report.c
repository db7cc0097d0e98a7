/* The report for people. Owns its layout: a head line, a column of figures each with the words that
 * define it, and the hit ratio over time as bars.
 *
 *   label (16) value (16)  what it means
 *
 * Nothing here decides anything, and nothing is wider than 80 columns, except a long file name.
 */
#define _POSIX_C_SOURCE 200809L

#include "report.h"
#include "text.h"

#include <inttypes.h>
#include <langinfo.h>
#include <string.h>

#define BAR_CELLS 40

double kvpi_report_ratio(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0.0 : (double)part / (double)whole;
}

static kvpi_text percent(uint64_t part, uint64_t whole)
{
    kvpi_text out;
    snprintf(out.of, sizeof out.of, "%.1f %%", 100.0 * kvpi_report_ratio(part, whole));
    return out;
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

static kvpi_text duration(double ns)
{
    static const char *const units[] = {"ns", "us", "ms", "s", NULL};
    return scaled(ns, 1000.0, units);
}

static kvpi_text bytes(double n_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", NULL};
    return scaled(n_bytes, 1024.0, units);
}

/* "1:02:03" */
static kvpi_text clock_time(int64_t us)
{
    kvpi_text out;
    int64_t seconds = us / 1000000;
    snprintf(out.of, sizeof out.of, "%" PRId64 ":%02d:%02d", seconds / 3600,
             (int)(seconds / 60 % 60), (int)(seconds % 60));
    return out;
}

static void print_row(FILE *file, const char *label, kvpi_text value, const char *meaning)
{
    fprintf(file, "  %-14s %15s  %s\n", label, value.of, meaning);
}

static void print_head(const kvpi_report *report, FILE *file)
{
    fprintf(file, "%s: %s, %s of traffic\n", report->path, report->format,
            clock_time(report->span_us).of);
    fprintf(file, "%s blocks of %s tokens = %s tokens", kvpi_text_count(report->blocks).of,
            kvpi_text_count(report->block_tokens).of,
            kvpi_text_count(report->blocks * report->block_tokens).of);
    if (report->memory_bytes > 0)
        fprintf(file, " = %s", bytes((double)report->memory_bytes).of);
    fprintf(file, "%s\n\n", report->prefix_cache ? "" : ", prefix cache off");
}

static void print_tokens(const kvpi_report *report, FILE *file)
{
    char meaning[96];
    snprintf(meaning, sizeof meaning, "%s rejected: would not fit an empty cache",
             kvpi_text_count(report->rejected).of);
    print_row(file, "requests", kvpi_text_count(report->requests), meaning);
    print_row(file, "input tokens", kvpi_text_count(report->input_tokens), "in the prompts");
    print_row(file, "output tokens", kvpi_text_count(report->output_tokens),
              report->output ? "appended one at a time" : "not appended: --output-tokens off");
    snprintf(meaning, sizeof meaning, "%s of the input: found in the cache",
             percent(report->hit_tokens, report->input_tokens).of);
    print_row(file, "hit tokens", kvpi_text_count(report->hit_tokens), meaning);
}

static void print_blocks(const kvpi_report *report, FILE *file)
{
    char meaning[96];
    print_row(file, "looked up", kvpi_text_count(report->blocks_looked_up),
              "full blocks of the prompts");
    snprintf(meaning, sizeof meaning, "%s of these: shared instead of computed",
             percent(report->block_hits, report->blocks_looked_up).of);
    print_row(file, "block hits", kvpi_text_count(report->block_hits), meaning);
    print_row(file, "evictions", kvpi_text_count(report->evictions),
              "cached blocks dropped to make room");
    snprintf(meaning, sizeof meaning, "blocks in use at once, %s of all",
             percent(report->peak_held_blocks, report->blocks).of);
    print_row(file, "peak held", kvpi_text_count(report->peak_held_blocks), meaning);
}

static kvpi_text mean(uint64_t ns, uint64_t n)
{
    kvpi_text none = {"-"};
    return n == 0 ? none : duration((double)ns / (double)n);
}

static void print_speed(const kvpi_report *report, FILE *file)
{
    char meaning[96];
    uint64_t opened = report->requests - report->rejected;
    snprintf(meaning, sizeof meaning, "%s tokens per second",
             kvpi_text_count(report->wall_ns == 0 ? 0
                                                  : (uint64_t)((double)(report->input_tokens +
                                                                        report->output_tokens) *
                                                               1e9 / (double)report->wall_ns))
                 .of);
    fputc('\n', file);
    print_row(file, "replay", duration((double)report->wall_ns), meaning);
    print_row(file, "open", mean(report->open_ns, opened), "a request: match, hold, take blocks");
    print_row(file, "extend", mean(report->extend_ns, report->output_tokens),
              "a generated token, commit included");
    print_row(file, "close", mean(report->close_ns, opened), "a request");
}

static bool is_utf8(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

/* Eighths of a cell in Unicode, whole cells in ASCII. */
static void print_bar(FILE *file, double ratio, bool utf8)
{
    static const char *const parts[] = {"",       "\u258f", "\u258e", "\u258d",
                                        "\u258c", "\u258b", "\u258a", "\u2589"};
    int eighths = (int)(ratio * BAR_CELLS * 8 + 0.5);
    if (!utf8)
        eighths = (eighths + 4) / 8 * 8;
    for (int i = 0; i < eighths / 8; i++)
        fputs(utf8 ? "\u2588" : "#", file);
    fputs(parts[eighths % 8], file);
}

static kvpi_text interval_label(const kvpi_report_timeline *timeline, size_t i)
{
    uint64_t start = timeline->step * i;
    return timeline->by_time ? clock_time((int64_t)start) : kvpi_text_count(start + 1);
}

static void print_timeline(const kvpi_report *report, FILE *file)
{
    const kvpi_report_timeline *timeline = &report->timeline;
    bool utf8 = is_utf8();
    fputs("\nHit tokens per input token over time\n", file);
    fprintf(file, "  %11s  %8s  %7s\n", timeline->by_time ? "from" : "from request", "requests",
            "hit");
    for (size_t i = 0; i < timeline->n; i++) {
        const kvpi_report_interval *part = &timeline->intervals[i];
        kvpi_text hit = {"-"};
        if (part->input_tokens > 0)
            hit = percent(part->hit_tokens, part->input_tokens);
        fprintf(file, "  %11s  %8s  %7s", interval_label(timeline, i).of,
                kvpi_text_count(part->requests).of, hit.of);
        if (part->hit_tokens > 0) {
            fputs("  ", file);
            print_bar(file, kvpi_report_ratio(part->hit_tokens, part->input_tokens), utf8);
        }
        fputc('\n', file);
    }
}

void kvpi_report_print(const kvpi_report *report, FILE *file)
{
    print_head(report, file);
    print_tokens(report, file);
    print_blocks(report, file);
    print_speed(report, file);
    print_timeline(report, file);
}
