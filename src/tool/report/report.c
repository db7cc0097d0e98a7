/* The report for people. Owns its layout: a head line, a column of figures each with the words that
 * define it, and the hit ratio over time as bars.
 *
 *   label (16) value (16)  what it means
 *
 * Nothing here decides anything, and nothing is wider than 80 columns, except a long file name.
 */
#include "tool/report/report.h"
#include "tool/text.h"
#include "tool/input/escape.h"

#include <inttypes.h>
#include <string.h>

#define BAR_CELLS 40

/* ------------------------------------------------------------------------------------ the pool */

static void print_groups(const kvpi_report_pool *pool, FILE *file)
{
    const kvpi_size *size = pool->size;
    fprintf(file, "  a block is %" PRIu32 " layers:", size->row_layers);
    for (uint32_t i = 0; i < size->n_groups; i++) {
        const kvpi_size_group *group = &size->groups[i];
        fprintf(file, "%s %" PRIu32 " group%s with ", i == 0 ? "" : ",", group->n_rows,
                group->n_rows == 1 ? "" : "s");
        if (group->window_tokens == 0)
            fputs("all tokens", file);
        else
            fprintf(file, "a window of %s", kvpi_text_count(group->window_tokens).of);
    }
    if (pool->context_tokens > 0)
        fprintf(file, "\n  %s tokens in sequences of %s", kvpi_text_count(size->tokens).of,
                kvpi_text_count(pool->context_tokens).of);
}

static bool has_windows(const kvpi_size *size)
{
    return size != NULL && (size->n_rows > 1 || size->groups[0].window_tokens > 0);
}

void kvpi_report_print_pool(const kvpi_report_pool *pool, FILE *file)
{
    bool windows = has_windows(pool->size);
    fprintf(file, "%s%s blocks of %s tokens", pool->name, kvpi_text_count(pool->blocks).of,
            kvpi_text_count(pool->block_tokens).of);
    if (!windows)
        fprintf(file, " = %s tokens", kvpi_text_count(pool->blocks * pool->block_tokens).of);
    if (pool->bytes > 0)
        fprintf(file, " = %s", kvpi_text_bytes((double)pool->bytes).of);
    if (windows && pool->context_tokens > 0) {
        fputc('\n', file);
        print_groups(pool, file);
    }
}

static void print_head(const kvpi_report *report, FILE *file)
{
    kvpi_report_pool pool = {.name = "",
                             .blocks = report->blocks,
                             .block_tokens = report->block_tokens,
                             .bytes = report->memory_bytes,
                             .context_tokens = report->context_tokens,
                             .size = report->size};
    fprintf(file, "%s: %s, %s of traffic\n", kvpi_escape(report->path).of, report->format,
            kvpi_text_clock((uint64_t)report->span_us).of);
    if (report->model != NULL)
        fprintf(file, "%s%s%s\n", report->model->name, report->device != NULL ? " on " : "",
                report->device != NULL ? report->device->title : "");
    kvpi_report_print_pool(&pool, file);
    if (report->host_blocks > 0) {
        pool.name = "\nHost: ";
        pool.blocks = report->host_blocks;
        pool.bytes = report->host_memory_bytes;
        pool.context_tokens = 0;
        kvpi_report_print_pool(&pool, file);
    }
    fprintf(file, "%s\n\n", report->prefix_cache ? "" : ", prefix cache off");
}

static void print_tokens(const kvpi_report *report, FILE *file)
{
    char meaning[96];
    snprintf(meaning, sizeof meaning, "%s rejected: would not fit an empty cache",
             kvpi_text_count(report->rejected).of);
    kvpi_text_row(file, "requests", kvpi_text_count(report->requests), meaning);
    if (report->skipped > 0)
        kvpi_text_row(file, "skipped", kvpi_text_count(report->skipped), "requests before them");
    if (report->saved_blocks > 0) {
        snprintf(meaning, sizeof meaning, "blocks, of %s that the snapshot holds",
                 kvpi_text_count(report->saved_blocks).of);
        kvpi_text_row(file, "restored", kvpi_text_count(report->restored_blocks), meaning);
    }
    kvpi_text_row(file, "input tokens", kvpi_text_count(report->input_tokens), "in the prompts");
    kvpi_text_row(file, "output tokens", kvpi_text_count(report->output_tokens),
                  report->output ? "appended one at a time" : "not appended: --output-tokens off");
    snprintf(meaning, sizeof meaning, "%s of the input: found in the cache",
             kvpi_text_percent(report->hit_tokens, report->input_tokens).of);
    kvpi_text_row(file, "hit tokens", kvpi_text_count(report->hit_tokens), meaning);
    if (report->host_blocks > 0)
        kvpi_text_row(file, "  host", kvpi_text_count(report->host_hit_tokens),
                      "of these, copied from the host");
}

static void print_blocks(const kvpi_report *report, FILE *file)
{
    char meaning[96];
    kvpi_text_row(file, "looked up", kvpi_text_count(report->blocks_looked_up),
                  "full blocks of the prompts");
    snprintf(meaning, sizeof meaning, "%s of these: found in the cache",
             kvpi_text_percent(report->block_hits, report->blocks_looked_up).of);
    kvpi_text_row(file, "block hits", kvpi_text_count(report->block_hits), meaning);
    kvpi_text_row(file, "evictions", kvpi_text_count(report->evictions),
                  "cached blocks dropped to make room");
    if (report->host_blocks > 0)
        kvpi_text_row(file, "  host", kvpi_text_count(report->host_evictions),
                      "blocks dropped on the host");
    snprintf(meaning, sizeof meaning, "blocks in use at once, %s of all",
             kvpi_text_percent(report->peak_held_blocks, report->blocks).of);
    kvpi_text_row(file, "peak held", kvpi_text_count(report->peak_held_blocks), meaning);
}

static kvpi_text mean(uint64_t ns, uint64_t n)
{
    kvpi_text none = {"-"};
    return n == 0 ? none : kvpi_text_duration((double)ns / (double)n);
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
    kvpi_text_row(file, "replay", kvpi_text_duration((double)report->wall_ns), meaning);
    kvpi_text_row(file, "open", mean(report->open_ns, opened),
                  "a request: match, hold, take blocks");
    kvpi_text_row(file, "extend", mean(report->extend_ns, report->output_tokens),
                  "a generated token, commit included");
    kvpi_text_row(file, "close", mean(report->close_ns, opened), "a request");
}

static kvpi_text interval_label(const kvpi_report_timeline *timeline, size_t i)
{
    uint64_t start = timeline->step * i;
    return timeline->by_time ? kvpi_text_clock(start) : kvpi_text_count(start + 1);
}

static void print_timeline(const kvpi_report *report, FILE *file)
{
    const kvpi_report_timeline *timeline = &report->timeline;
    fputs("\nHit tokens per input token over time\n", file);
    fprintf(file, "  %11s  %8s  %7s\n", timeline->by_time ? "from" : "from request", "requests",
            "hit");
    for (size_t i = 0; i < timeline->n; i++) {
        const kvpi_report_interval *part = &timeline->intervals[i];
        kvpi_text hit = {"-"};
        if (part->input_tokens > 0)
            hit = kvpi_text_percent(part->hit_tokens, part->input_tokens);
        fprintf(file, "  %11s  %8s  %7s", interval_label(timeline, i).of,
                kvpi_text_count(part->requests).of, hit.of);
        kvpi_text_bar(file, kvpi_report_ratio(part->hit_tokens, part->input_tokens), BAR_CELLS);
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
