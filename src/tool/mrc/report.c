/* The curve for people. Owns its layout:
 *
 *   what was read
 *   counts       label, value, what it means
 *   sizes        one row each: LRU beside FIFO and the optimum
 *   what memory buys
 *
 * Nothing is wider than 80 columns, except a long file name.
 */
#include "tool/mrc/report.h"

#include <inttypes.h>
#include <string.h>

#include "tool/text.h"
#include "tool/input/escape.h"

const int kvpi_mrc_shares[KVPI_MRC_SHARES] = {50, 75, 90, 95, 99, 100};

static kvpi_text percent(const kvpi_mrc_report *report, double tokens)
{
    kvpi_text out = {"-"};
    if (tokens != KVPI_MRC_NONE)
        snprintf(out.of, sizeof out.of, "%.2f %%", 100 * kvpi_mrc_ratio(report, tokens));
    return out;
}

static kvpi_text memory(const kvpi_mrc_report *report, uint64_t blocks)
{
    kvpi_text none = {""};
    return report->token_bytes == 0 ? none : kvpi_text_bytes(kvpi_mrc_bytes(report, blocks));
}

static void print_head(const kvpi_mrc_report *report, FILE *file)
{
    const kvpi_mrc_refs *refs = report->refs;
    fprintf(file, "%s: %s, %s of traffic\n", kvpi_escape(report->options->trace.path).of,
            report->format,
            kvpi_text_clock((uint64_t)report->span_us).of);
    fprintf(file, "blocks of %s tokens", kvpi_text_count(refs->block_tokens).of);
    if (report->token_bytes > 0)
        fprintf(file, " = %s each",
                kvpi_text_bytes((double)refs->block_tokens * (double)report->token_bytes).of);
    if (report->model != NULL)
        fprintf(file, ", %s", report->model->name);
    fputc('\n', file);
    if (report->device != NULL)
        fprintf(file, "%" PRIu32 " x %s: %s for KV\n", report->tensor_parallel,
                report->device->title, memory(report, report->device_blocks).of);
    fputc('\n', file);
}

static void print_counts(const kvpi_mrc_report *report, FILE *file)
{
    char meaning[96];
    const kvpi_mrc_refs *refs = report->refs;
    kvpi_text_row(file, "requests", kvpi_text_count(refs->n_requests), "one after the other");
    kvpi_text_row(file, "input tokens", kvpi_text_count(refs->input_tokens), "in the prompts");
    kvpi_text_row(file, "output tokens", kvpi_text_count(refs->output_tokens),
                  report->options->trace.output ? "appended one at a time"
                                                : "not appended: --output-tokens off");
    kvpi_text_row(file, "looked up", kvpi_text_count(refs->looked_up_blocks),
                  "full blocks of the prompts");
    if (refs->rate == 1)
        kvpi_text_row(file, "distinct", kvpi_text_count(refs->n_contents),
                      "full blocks, generated ones included");
    kvpi_text_row(file, "at least", kvpi_text_count(report->curve->min_blocks),
                  "blocks, or a request does not fit");
    if (refs->rate == 1)
        return;
    kvpi_text rate;
    snprintf(rate.of, sizeof rate.of, "%.4g %%", 100 * refs->rate);
    snprintf(meaning, sizeof meaning, "of the blocks: %s distinct ones",
             kvpi_text_count(refs->n_contents).of);
    kvpi_text_row(file, "sampled", rate, meaning);
}

static void print_points(const kvpi_mrc_report *report, FILE *file)
{
    bool sampled = report->refs->rate < 1, has_device = false;
    fprintf(file, "\nHit tokens per input token, by the size of the cache\n%13s %15s %10s",
            "blocks", "tokens", report->token_bytes > 0 ? "memory" : "");
    fprintf(file, "  %8s%s %8s %8s\n", "LRU", sampled ? " +-" : "", "FIFO", "optimum");
    for (size_t i = 0; i < report->n_points; i++) {
        const kvpi_mrc_point *point = &report->points[i];
        fprintf(file, "%13s %15s %10s  %8s", kvpi_text_count(point->blocks).of,
                kvpi_text_count(point->blocks * report->refs->block_tokens).of,
                memory(report, point->blocks).of, percent(report, point->lru.tokens).of);
        if (sampled)
            fprintf(file, " %.2f", 100 * kvpi_mrc_ratio(report, point->lru.error_tokens));
        fprintf(file, " %8s %8s%s\n", percent(report, point->fifo_tokens).of,
                percent(report, point->optimum_tokens).of, point->is_device ? "  *" : "");
        has_device = has_device || point->is_device;
    }
    if (has_device)
        fputs("  * what the model leaves of the accelerator\n", file);
    else if (report->device != NULL)
        fprintf(file, "  --device has %s blocks, too few for the largest request: not shown\n",
                kvpi_text_count(report->device_blocks).of);
    if (sampled)
        fputs("  +- one standard error, of the sample\n", file);
}

static void print_shares(const kvpi_mrc_report *report, FILE *file)
{
    double most = kvpi_mrc_lru_at(report->curve, report->curve->enough_blocks).tokens;
    double least = kvpi_mrc_lru_at(report->curve, report->curve->min_blocks).tokens;
    fprintf(file, "\nWhat memory buys: an unlimited cache hits %s of the input\n",
            percent(report, most).of);
    if (most == 0)
        return;
    fprintf(file, "%13s %15s %10s  %8s\n", "blocks", "tokens",
            report->token_bytes > 0 ? "memory" : "", "hits");
    for (size_t i = 0; i < KVPI_MRC_SHARES; i++) {
        uint64_t blocks = report->share_blocks[i];
        if (i + 1 < KVPI_MRC_SHARES && least * 100 >= most * kvpi_mrc_shares[i])
            continue; /* the smallest size has them already */
        fprintf(file, "%13s %15s %10s  %8s  %d %% of them\n", kvpi_text_count(blocks).of,
                kvpi_text_count(blocks * report->refs->block_tokens).of, memory(report, blocks).of,
                percent(report, kvpi_mrc_lru_at(report->curve, blocks).tokens).of,
                kvpi_mrc_shares[i]);
    }
}

void kvpi_mrc_report_print(const kvpi_mrc_report *report, FILE *file)
{
    print_head(report, file);
    print_counts(report, file);
    print_points(report, file);
    print_shares(report, file);
}

/* The size at which distance i, or sampled distance i, begins to be hit. */
static uint64_t size_at(const kvpi_mrc_curve *curve, size_t i)
{
    double blocks = ((double)i - 1) / curve->rate + 1;
    uint64_t rounded = (uint64_t)blocks + ((double)(uint64_t)blocks < blocks);
    return rounded > curve->min_blocks ? rounded : curve->min_blocks;
}

void kvpi_mrc_report_print_curve(const kvpi_mrc_report *report, FILE *file)
{
    const kvpi_mrc_curve *curve = report->curve;
    uint64_t shown = 0;
    fprintf(file, "blocks,hit_tokens\n%" PRIu64 ",%.0f\n", curve->min_blocks,
            kvpi_mrc_lru_at(curve, curve->min_blocks).tokens);
    for (size_t i = 1; i < curve->n; i++) {
        uint64_t blocks = size_at(curve, i);
        if (curve->tokens[i] == curve->tokens[i - 1] || blocks <= curve->min_blocks ||
            blocks == shown)
            continue;
        fprintf(file, "%" PRIu64 ",%.0f\n", blocks, kvpi_mrc_lru_at(curve, blocks).tokens);
        shown = blocks;
    }
}
