/* Owns the keys of the figures of a host and a store, an interface that stays, and their table: one
 * row for each combination of sizes, a blank where there is no store.
 */
#include "tool/mrc/report/report_tiers.h"

#include <inttypes.h>
#include <math.h>

#include "tool/text.h"

static bool has_store(const kvpi_mrc_tiers_row *row)
{
    return row->size.store > 0;
}

/* --------------------------------------------------------------------------------- the figures */

static void add_size(kvpi_figures *to, const kvpi_mrc_report *report, const char *const keys[2],
                     uint64_t blocks)
{
    kvpi_figures_integer(to, keys[0], blocks);
    kvpi_figures_integer_if(to, report->token_bytes > 0, keys[1],
                            (uint64_t)kvpi_mrc_bytes(report, blocks));
}

static void add_row(kvpi_figures *to, const kvpi_mrc_report *report, const kvpi_mrc_tiers_row *row)
{
    static const char *const device[] = {"blocks", "memory_bytes"};
    static const char *const host[] = {"host_blocks", "host_bytes"};
    static const char *const store[] = {"store_blocks", "store_bytes"};
    kvpi_figures_open(to, NULL);
    add_size(to, report, device, row->size.device);
    add_size(to, report, host, row->size.host);
    add_size(to, report, store, row->size.store);
    kvpi_figures_integer_if(to, has_store(row), "record_blocks", row->size.record_blocks);
    kvpi_figures_integer(to, "hit_tokens", row->hits.tokens);
    kvpi_figures_real(to, "hit_ratio", kvpi_mrc_ratio(report, (double)row->hits.tokens));
    kvpi_figures_integer(to, "host_hit_tokens", row->hits.host_tokens);
    kvpi_figures_integer(to, "store_hit_tokens", row->hits.store_tokens);
    kvpi_figures_integer(to, "store_written_blocks", row->hits.written_blocks);
    kvpi_figures_integer(to, "one_block_hit_tokens", row->one_block_tokens);
    kvpi_figures_real(to, "one_block_hit_ratio",
                      kvpi_mrc_ratio(report, (double)row->one_block_tokens));
    kvpi_figures_close(to);
}

static const char *writes_of(const kvpi_mrc_report *report)
{
    for (size_t i = 0; i < report->n_tiers; i++)
        if (has_store(&report->tiers[i]))
            return report->tiers[i].size.writes == KVPI_MRC_THROUGH ? "through" : "second";
    return NULL;
}

void kvpi_mrc_report_tiers_add(kvpi_figures *to, const kvpi_mrc_report *report)
{
    kvpi_figures_text(to, "store_writes", writes_of(report));
    kvpi_figures_open_array(to, "tiers");
    for (size_t i = 0; i < report->n_tiers; i++)
        add_row(to, report, &report->tiers[i]);
    kvpi_figures_close(to);
}

/* --------------------------------------------------------------------------------- for people */

static kvpi_text size_text(const kvpi_mrc_report *report, uint64_t blocks)
{
    return report->token_bytes > 0 ? kvpi_text_bytes(kvpi_mrc_bytes(report, blocks))
                                   : kvpi_text_count(blocks);
}

static kvpi_text ratio_text(const kvpi_mrc_report *report, double tokens)
{
    kvpi_text out;
    snprintf(out.of, sizeof out.of, "%.2f %%", 100 * kvpi_mrc_ratio(report, tokens));
    return out;
}

static void print_row(const kvpi_mrc_report *report, const kvpi_mrc_tiers_row *row, bool stores,
                      FILE *file)
{
    const kvpi_mrc_tiers_hits *hits = &row->hits;
    double written = (double)(hits->written_blocks * report->refs->block_tokens);
    double grain = (double)row->one_block_tokens - (double)hits->tokens;
    grain = fabs(kvpi_mrc_ratio(report, grain)) < 0.00005 ? 0 : grain; /* no "-0.00 %" */
    fprintf(file, "%10s %10s", size_text(report, row->size.device).of,
            size_text(report, row->size.host).of);
    if (has_store(row))
        fprintf(file, " %10s %2" PRIu32, size_text(report, row->size.store).of,
                row->size.record_blocks);
    else if (stores)
        fprintf(file, " %10s %2s", "", "");
    fprintf(file, " %8s %8s", ratio_text(report, (double)hits->tokens).of,
            ratio_text(report, (double)hits->host_tokens).of);
    if (has_store(row))
        fprintf(file, " %8s %8s %7s", ratio_text(report, (double)hits->store_tokens).of,
                ratio_text(report, written).of, ratio_text(report, grain).of);
    fputc('\n', file);
}

void kvpi_mrc_report_tiers_print(const kvpi_mrc_report *report, FILE *file)
{
    const char *writes = writes_of(report);
    if (report->n_tiers == 0)
        return;
    fprintf(file, "\nHit tokens per input token, by the sizes of the tiers%s\n",
            report->token_bytes > 0 ? "" : ", in blocks");
    fprintf(file, "%10s %10s%s %8s %8s%s\n", "device", "host",
            writes != NULL ? "      store  R" : "", "hits", "host",
            writes != NULL ? "    store  written   grain" : "");
    for (size_t i = 0; i < report->n_tiers; i++)
        print_row(report, &report->tiers[i], writes != NULL, file);
    if (writes == NULL)
        fputs("  host: of the hits, what only the host had\n", file);
    else
        fprintf(file,
                "  host, store: of the hits, what only that tier had\n"
                "  R: blocks of a record. grain: hits lost because only whole records are hit\n"
                "  written to the store, of the input: %s\n",
                writes[0] == 't' ? "every record of a request" : "records that are hit");
}
