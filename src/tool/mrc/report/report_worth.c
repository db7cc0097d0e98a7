/* Owns the keys of the retention curve, an interface that stays, and two tables: what prefill LRU's
 * hits save, and what is hit of content that is kept for a while. */
#include "tool/mrc/report/report_worth.h"

#include <inttypes.h>
#include <math.h>

#include "tool/text.h"

#define HOUR_SECONDS 3600.0
#define FEW_BLOCKS   9.95 /* what "%.1f" prints below 10 */

static double saved_seconds(const kvpi_mrc_report *report, uint64_t blocks)
{
    return kvpi_mrc_lru_ns_at(report->curve, blocks) / 1e9 * report->tensor_parallel;
}

static double saved_money(const kvpi_mrc_report *report, uint64_t blocks)
{
    return saved_seconds(report, blocks) / HOUR_SECONDS * ((double)report->price_milli / 1000);
}

void kvpi_mrc_report_saved_add(kvpi_figures *to, const kvpi_mrc_report *report, uint64_t blocks)
{
    const bool has_price = report->price_milli > 0;
    kvpi_figures_json(to, "saved_gpu_seconds",
                      has_price ? json_real(saved_seconds(report, blocks)) : json_null());
    kvpi_figures_json(to, "saved_money",
                      has_price ? json_real(saved_money(report, blocks)) : json_null());
}

/* Of the blocks that all content takes that is kept for good. */
static double share_of(const kvpi_mrc_report *report, const kvpi_mrc_kept *kept)
{
    const double all = report->retention.kept[report->retention.n - 1].mean_blocks;
    return all > 0 ? kept->mean_blocks / all : 0;
}

static double mean_bytes(const kvpi_mrc_report *report, const kvpi_mrc_kept *kept)
{
    return kvpi_mrc_bytes(report, 1) * kept->mean_blocks;
}

static void add_kept(kvpi_figures *to, const kvpi_mrc_report *report, const kvpi_mrc_kept *kept)
{
    const bool for_good = kept->us == INT64_MAX;
    kvpi_figures_open(to, NULL);
    kvpi_figures_integer_if(to, !for_good, "seconds", (uint64_t)(kept->us / 1000000));
    kvpi_figures_integer(to, "hit_tokens", (uint64_t)llround(kept->hit_tokens));
    kvpi_figures_real(to, "hit_ratio", kvpi_mrc_ratio(report, kept->hit_tokens));
    kvpi_figures_real(to, "mean_blocks", kept->mean_blocks);
    kvpi_figures_integer_if(to, report->token_bytes > 0, "mean_bytes",
                            (uint64_t)llround(mean_bytes(report, kept)));
    kvpi_figures_real(to, "share_of_blocks", share_of(report, kept));
    kvpi_figures_close(to);
}

void kvpi_mrc_report_worth_add(kvpi_figures *to, const kvpi_mrc_report *report)
{
    kvpi_figures_open_array(to, "retention");
    for (size_t i = 0; i < report->retention.n; i++)
        add_kept(to, report, &report->retention.kept[i]);
    kvpi_figures_close(to);
}

/* --------------------------------------------------------------------------------- for people */

static void print_saved(const kvpi_mrc_report *report, FILE *file)
{
    const double hours = (double)report->span_us / 1e6 / HOUR_SECONDS;
    fprintf(file,
            "\nWhat hits of LRU save: prefill, at %g an hour of an accelerator\n%13s %12s %12s",
            (double)report->price_milli / 1000, "blocks", "hours", "money");
    fputs(hours > 0 ? "  money an hour of traffic\n" : "\n", file);
    for (size_t i = 0; i < report->n_points; i++) {
        const uint64_t blocks = report->points[i].blocks;
        const double money = saved_money(report, blocks);
        fprintf(file, "%13s %12.4g %12.4g", kvpi_text_count(blocks).of,
                saved_seconds(report, blocks) / HOUR_SECONDS, money);
        if (hours > 0)
            fprintf(file, " %13.4g", money / hours);
        fputs(report->points[i].is_device ? "  *\n" : "\n", file);
    }
}

static void print_kept(const kvpi_mrc_report *report, const kvpi_mrc_kept *kept, FILE *file)
{
    kvpi_text blocks = kvpi_text_count((uint64_t)llround(kept->mean_blocks));
    const bool for_good = kept->us == INT64_MAX;
    if (kept->mean_blocks < FEW_BLOCKS)
        snprintf(blocks.of, sizeof blocks.of, "%.1f", kept->mean_blocks);
    fprintf(file, "%13s %15s %10s  %7.2f %% %7.1f %%\n",
            for_good ? "for good" : kvpi_text_clock((uint64_t)kept->us).of, blocks.of,
            report->token_bytes > 0 ? kvpi_text_bytes(mean_bytes(report, kept)).of : "",
            100 * kvpi_mrc_ratio(report, kept->hit_tokens), 100 * share_of(report, kept));
}

void kvpi_mrc_report_worth_print(const kvpi_mrc_report *report, FILE *file)
{
    if (report->price_milli > 0)
        print_saved(report, file);
    fprintf(file,
            "\nContent that is kept since its last use, by the times of the trace\n"
            "%13s %15s %10s  %9s %9s\n",
            "kept for", "mean blocks", report->token_bytes > 0 ? "memory" : "", "hits",
            "of blocks");
    for (size_t i = 0; i < report->retention.n; i++)
        print_kept(report, &report->retention.kept[i], file);
}
