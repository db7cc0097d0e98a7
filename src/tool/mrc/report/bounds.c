/* See bounds.h. */
#include "tool/mrc/report/bounds.h"

#include <math.h>

#include "tool/text.h"

/* Tokens that were computed again, and that so many blocks more would have kept. */
static double again(const kvpi_mrc_report *report, uint64_t blocks, bool is_sure)
{
    uint64_t n = 0;
    for (size_t i = 0; i < report->n_agains; i++) {
        const kvpi_requests_again *of = &report->agains[i];
        const uint64_t kept = blocks > of->depth ? blocks - of->depth : 0;
        if (of->is_sure == is_sure)
            n += kept < of->n ? kept : of->n;
    }
    return (double)n * (double)report->about->trace_block;
}

kvpi_mrc_bounds kvpi_mrc_bounds_at(const kvpi_mrc_report *report, const kvpi_mrc_point *point)
{
    const kvpi_requests_about *about = report->about;
    const double own = (double)about->cached_tokens, whole = (double)report->refs->input_tokens;
    const uint64_t blocks =
        point->blocks * report->refs->block_tokens / (uint64_t)about->trace_block;
    kvpi_mrc_bounds out = {point->lru.tokens, own};
    if (blocks >= about->engine_blocks) {
        out.least = own + again(report, blocks - about->engine_blocks, true);
        out.most = own + again(report, blocks - about->engine_blocks, false);
    }
    out.most = out.most < whole ? out.most : whole;
    out.least = out.least < out.most ? out.least : out.most;
    return out;
}

/* Bounds are of one engine, and of all that it was asked. */
static bool has_bounds(const kvpi_mrc_report *report)
{
    return report->about->is_bounded && report->about->engine_blocks > 0 && !report->is_cut;
}

void kvpi_mrc_bounds_add(kvpi_figures *to, const kvpi_mrc_report *report,
                         const kvpi_mrc_point *point)
{
    if (!has_bounds(report))
        return;
    const kvpi_mrc_bounds bounds = kvpi_mrc_bounds_at(report, point);
    kvpi_figures_integer(to, "hit_tokens_at_least", (uint64_t)llround(bounds.least));
    kvpi_figures_integer(to, "hit_tokens_at_most", (uint64_t)llround(bounds.most));
    kvpi_figures_real(to, "hit_ratio_at_least", kvpi_mrc_ratio(report, bounds.least));
    kvpi_figures_real(to, "hit_ratio_at_most", kvpi_mrc_ratio(report, bounds.most));
}

void kvpi_mrc_bounds_print(const kvpi_mrc_report *report, FILE *file)
{
    const kvpi_requests_about *about = report->about;
    if (!has_bounds(report))
        return;
    const double engine_blocks = (double)about->engine_blocks * (double)about->trace_block /
                                 (double)report->refs->block_tokens;
    fprintf(file, "\n%s of the hits; the engine hit %.2f %% in %s such blocks",
            about->is_estimate ? "Estimates" : "Bounds",
            100 * kvpi_mrc_ratio(report, (double)about->cached_tokens),
            kvpi_text_count((uint64_t)ceil(engine_blocks)).of);
    fprintf(file, "\n%13s  %9s %9s %9s\n", "blocks", "at least", "at most", "width");
    for (size_t i = 0; i < report->n_points; i++) {
        const kvpi_mrc_bounds bounds = kvpi_mrc_bounds_at(report, &report->points[i]);
        const double least = 100 * kvpi_mrc_ratio(report, bounds.least);
        const double most = 100 * kvpi_mrc_ratio(report, bounds.most);
        fprintf(file, "%13s  %7.2f %% %7.2f %% %7.2f %%\n",
                kvpi_text_count(report->points[i].blocks).of, least, most, most - least);
    }
}
