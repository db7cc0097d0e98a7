/* The report of a replay of one request after the other. Owns the list of its figures; their keys
 * are an interface and stay. Owns also the layout for people: a head line, a column of figures each
 * with the words that define it, and the hit ratio over time as bars.
 *
 *   label (16) value (16)  what it means
 *
 * Nothing here decides anything, and nothing is wider than 80 columns, except a long file name.
 */
#include "tool/report/report.h"
#include "tool/log/reading.h"
#include "tool/watch/reasons_report.h"
#include "tool/text.h"
#include "tool/input/escape.h"

#include <kvpager/swap.h>

#include <inttypes.h>
#include <string.h>

#define BAR_CELLS 40

/* --------------------------------------------------------------------------------- the figures */

void kvpi_report_add_policy(kvpi_figures *to, const kvp_stats *cache)
{
    if (cache->references == 0)
        return; /* LRU counts none */
    kvpi_figures_text(to, "policy", "learned");
    kvpi_figures_integer(to, "references", cache->references);
    kvpi_figures_integer(to, "fallback_references", cache->fallback_references);
    kvpi_figures_integer(to, "learned_hits", cache->learned_hits);
    kvpi_figures_integer(to, "lru_hits", cache->lru_hits);
}

void kvpi_report_add_groups(kvpi_figures *to, const kvpi_size *size)
{
    if (size == NULL) {
        kvpi_figures_text(to, "layer_groups", NULL);
        return;
    }
    kvpi_figures_open_array(to, "layer_groups");
    for (uint32_t i = 0; i < size->n_groups; i++) {
        const kvpi_size_group *group = &size->groups[i];
        kvpi_figures_open(to, NULL);
        kvpi_figures_integer(to, "groups", group->n_rows);
        kvpi_figures_integer(to, "layers", group->n_layers);
        kvpi_figures_integer(to, "layers_per_group", kvpi_size_row_layers(group));
        kvpi_figures_integer(to, "block_tokens", group->block_tokens);
        kvpi_figures_integer_if(to, group->window_tokens > 0, "window_tokens",
                                group->window_tokens);
        kvpi_figures_flag(to, "chunked", group->chunked);
        kvpi_figures_close(to);
    }
    kvpi_figures_close(to);
}

void kvpi_report_add_kept(kvpi_figures *to, uint32_t keep_evicted)
{
    kvpi_figures_flag(to, "keep_evicted", keep_evicted != KVP_EVICTED_DROP);
    kvpi_figures_flag(to, "keep_evicted_once", keep_evicted == KVP_EVICTED_KEEP_ONCE);
}

void kvpi_report_add_retained(kvpi_figures *to, uint32_t retain_tokens)
{
    if (retain_tokens == KVP_RETAIN_PROMPTS)
        kvpi_figures_text(to, "retain_tokens", "prompts");
    else
        kvpi_figures_integer_if(to, retain_tokens > 0, "retain_tokens", retain_tokens);
}

static void add_settings(kvpi_figures *to, const kvpi_report *report)
{
    const kvpi_size *size = report->size;
    uint64_t tokens = size != NULL ? size->tokens : report->blocks * report->block_tokens;
    kvpi_figures_text(to, "trace", report->path);
    kvpi_figures_text(to, "format", report->format);
    kvpi_reading_add(to, report->about);
    kvpi_figures_integer(to, "block_tokens", report->block_tokens);
    kvpi_figures_integer(to, "unit_tokens", report->unit_tokens);
    kvpi_figures_integer(to, "blocks", report->blocks);
    kvpi_figures_integer_if(to, report->memory_bytes > 0, "memory_bytes", report->memory_bytes);
    kvpi_figures_text(to, "model", report->model != NULL ? report->model->name : NULL);
    kvpi_figures_text(to, "device", report->device != NULL ? report->device->name : NULL);
    kvpi_report_add_groups(to, size);
    kvpi_report_add_retained(to, report->retain_tokens);
    kvpi_figures_integer(to, "tokens", tokens);
    kvpi_figures_integer(to, "host_blocks", report->host_blocks);
    kvpi_report_add_kept(to, report->keep_evicted);
    kvpi_figures_flag(to, "prefix_cache", report->prefix_cache);
    kvpi_figures_flag(to, "output_appended", report->output);
    kvpi_figures_integer(to, "seed", report->seed);
}

static void add_counts(kvpi_figures *to, const kvpi_report *report)
{
    kvpi_figures_integer(to, "skipped", report->skipped);
    kvpi_figures_integer(to, "saved_blocks", report->saved_blocks);
    kvpi_figures_integer(to, "restored_blocks", report->restored_blocks);
    kvpi_figures_integer(to, "requests", report->requests);
    kvpi_figures_integer(to, "rejected", report->rejected);
    kvpi_figures_integer(to, "mended", report->mended);
    kvpi_figures_integer(to, "input_tokens", report->input_tokens);
    kvpi_figures_integer(to, "output_tokens", report->output_tokens);
    kvpi_figures_integer(to, "hit_tokens", report->hit_tokens);
    kvpi_figures_integer(to, "host_hit_tokens", report->host_hit_tokens);
    kvpi_figures_real(to, "hit_ratio", kvpi_report_ratio(report->hit_tokens, report->input_tokens));
    kvpi_hits_add(to, &report->hits, report->size);
    kvpi_figures_integer(to, "blocks_looked_up", report->blocks_looked_up);
    kvpi_figures_integer(to, "block_hits", report->block_hits);
    kvpi_figures_integer(to, "evictions", report->evictions);
    kvpi_figures_integer(to, "host_evictions", report->host_evictions);
    kvpi_report_add_policy(to, &report->cache);
    kvpi_learned_add(to, &report->learned);
    kvpi_figures_integer(to, "peak_held_blocks", report->peak_held_blocks);
}

static void add_times(kvpi_figures *to, const kvpi_report *report)
{
    uint64_t opened = report->requests - report->rejected, appended = report->output_tokens;
    double seconds = (double)report->wall_ns / 1e9;
    double tokens = (double)(report->input_tokens + appended);
    kvpi_figures_real(to, "wall_seconds", seconds);
    kvpi_figures_real(to, "tokens_per_second", seconds > 0 ? tokens / seconds : 0.0);
    kvpi_figures_real(to, "ns_per_open", kvpi_report_ratio(report->open_ns, opened));
    kvpi_figures_real(to, "ns_per_commit", kvpi_report_ratio(report->commit_ns, opened));
    kvpi_figures_real(to, "ns_per_extend", kvpi_report_ratio(report->extend_ns, appended));
    kvpi_figures_real(to, "ns_per_close", kvpi_report_ratio(report->close_ns, opened));
}

static void add_timeline(kvpi_figures *to, const kvpi_report_timeline *timeline)
{
    kvpi_figures_open_array(to, "timeline");
    for (size_t i = 0; i < timeline->n; i++) {
        const kvpi_report_interval *part = &timeline->intervals[i];
        kvpi_figures_open(to, NULL);
        kvpi_figures_json(to, "start_seconds",
                          timeline->by_time ? json_real((double)(timeline->step * i) / 1e6)
                                            : json_null());
        kvpi_figures_integer(to, "requests", part->requests);
        kvpi_figures_integer(to, "input_tokens", part->input_tokens);
        kvpi_figures_integer(to, "hit_tokens", part->hit_tokens);
        kvpi_figures_close(to);
    }
    kvpi_figures_close(to);
}

json_t *kvpi_report_figures(const kvpi_report *report)
{
    kvpi_figures figures = kvpi_figures_begin();
    add_settings(&figures, report);
    add_counts(&figures, report);
    add_times(&figures, report);
    kvpi_store_report_add(&figures, &report->store);
    kvpi_reasons_figures(&figures, report->why);
    add_timeline(&figures, &report->timeline);
    return kvpi_figures_end(&figures);
}

/* ------------------------------------------------------------------------------------ the pool */

static void print_groups(const kvpi_report_pool *pool, FILE *file)
{
    const kvpi_size *size = pool->size;
    for (uint32_t i = 0; i < size->n_groups; i++) {
        const kvpi_size_group *group = &size->groups[i];
        fprintf(file,
                "\n  %" PRIu32 " group%s of %" PRIu64 " layers, %s tokens a block: ", group->n_rows,
                group->n_rows == 1 ? "" : "s", kvpi_size_row_layers(group),
                kvpi_text_count(group->block_tokens).of);
        if (group->window_tokens == 0)
            fputs("all tokens", file);
        else
            fprintf(file, "%s of %s", group->chunked ? "chunks" : "a window",
                    kvpi_text_count(group->window_tokens).of);
    }
    if (pool->context_tokens > 0)
        fprintf(file, "\n  %s tokens in sequences of %s", kvpi_text_count(size->tokens).of,
                kvpi_text_count(pool->context_tokens).of);
    if (pool->retain_tokens == KVP_RETAIN_PROMPTS)
        fputs("\n  windows retained where prompts end and part", file);
    else if (pool->retain_tokens > 0)
        fprintf(file, "\n  windows retained every %s tokens, and where prompts end and part",
                kvpi_text_count(pool->retain_tokens).of);
}

static bool has_windows(const kvpi_size *size)
{
    return size != NULL && (size->n_rows > 1 || size->groups[0].window_tokens > 0);
}

void kvpi_report_print_pool(const kvpi_report_pool *pool, FILE *file)
{
    bool windows = has_windows(pool->size);
    fprintf(file, "%s%s blocks", pool->name, kvpi_text_count(pool->blocks).of);
    if (!windows)
        fprintf(file, " of %s tokens = %s tokens", kvpi_text_count(pool->block_tokens).of,
                kvpi_text_count(pool->blocks * pool->block_tokens).of);
    if (pool->bytes > 0)
        fprintf(file, " = %s", kvpi_text_bytes((double)pool->bytes).of);
    if (windows && pool->context_tokens > 0)
        print_groups(pool, file);
}

static void print_head(const kvpi_report *report, FILE *file)
{
    kvpi_report_pool pool = {.name = "",
                             .blocks = report->blocks,
                             .block_tokens = report->block_tokens,
                             .bytes = report->memory_bytes,
                             .context_tokens = report->context_tokens,
                             .size = report->size,
                             .retain_tokens = report->retain_tokens};
    fprintf(file, "%s: %s, %s of traffic\n", kvpi_escape(report->path).of, report->format,
            kvpi_text_clock((uint64_t)report->span_us).of);
    kvpi_reading_print(report->about, file);
    if (report->model != NULL)
        fprintf(file, "%s%s%s\n", report->model->name, report->device != NULL ? " on " : "",
                report->device != NULL ? report->device->title : "");
    kvpi_report_print_pool(&pool, file);
    if (report->host_blocks > 0) {
        pool.name = "\nHost: ";
        pool.blocks = report->host_blocks;
        pool.bytes = report->host_memory_bytes;
        pool.context_tokens = pool.retain_tokens = 0;
        kvpi_report_print_pool(&pool, file);
    }
    fprintf(file, "%s\n\n", report->prefix_cache ? "" : ", prefix cache off");
}

static void print_counts(const kvpi_report *report, const json_t *figures, FILE *file)
{
    bool host = report->host_blocks > 0;
    const char *appended =
        report->output ? "appended one at a time" : "not appended: --output-tokens off";
    const bool learned = report->cache.references > 0;
    const kvpi_figures_row rows[] = {
        {true, "requests", "{requests}", "{rejected} rejected: would not fit an empty cache"},
        {report->skipped > 0, "skipped", "{skipped}", "requests before them"},
        {report->saved_blocks > 0, "restored", "{restored_blocks}",
         "blocks, of {saved_blocks} that the snapshot holds"},
        {true, "input tokens", "{input_tokens}", "in the prompts"},
        {true, "output tokens", "{output_tokens}", appended},
        {true, "hit tokens", "{hit_tokens}",
         "{hit_tokens/input_tokens} of the input: found in the cache"},
        {host, "  host", "{host_hit_tokens}", "of these, copied from the host"},
    };
    const kvpi_figures_row of_blocks[] = {
        {true, "looked up", "{blocks_looked_up}", "full blocks of the prompts"},
        {true, "block hits", "{block_hits}",
         "{block_hits/blocks_looked_up} of these: found in the cache"},
        {true, "evictions", "{evictions}", "cached blocks dropped to make room"},
        {host, "  host", "{host_evictions}", "blocks dropped on the host"},
        {learned, "learned hits", "{learned_hits}",
         "blocks, of leading groups; with LRU {lru_hits} of them"},
        {learned, "LRU for", "{fallback_references/references}", "of all block references"},
        {true, "peak held", "{peak_held_blocks}",
         "blocks in use at once, {peak_held_blocks/blocks} of all"},
    };
    kvpi_figures_print_rows(figures, rows, sizeof rows / sizeof *rows, file);
    kvpi_hits_print(&report->hits, figures, file);
    kvpi_figures_print_rows(figures, of_blocks, sizeof of_blocks / sizeof *of_blocks, file);
}

static void print_speed(const json_t *figures, FILE *file)
{
    static const kvpi_figures_row rows[] = {
        {true, "replay", "{wall_seconds}", "{tokens_per_second} tokens per second"},
        {true, "open", "{ns_per_open}", "a request: match, hold, take blocks"},
        {true, "extend", "{ns_per_extend}", "a generated token, commit included"},
        {true, "close", "{ns_per_close}", "a request"},
    };
    fputc('\n', file);
    kvpi_figures_print_rows(figures, rows, sizeof rows / sizeof *rows, file);
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

void kvpi_report_print(const kvpi_report *report, const json_t *figures, FILE *file)
{
    print_head(report, file);
    print_counts(report, figures, file);
    kvpi_store_report_print(&report->store, figures, file);
    kvpi_reasons_print(report->why, file);
    print_speed(figures, file);
    print_timeline(report, file);
}
