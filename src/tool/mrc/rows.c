/* Owns the order of the rows: device sizes, in each the host sizes, in each none and the store
 * sizes, in each the numbers of blocks of a record.
 */
#include "tool/mrc/rows.h"

#include <inttypes.h>
#include <kvpager/identity.h>
#include <stdlib.h>

#include "tool/progress.h"
#include "tool/replay/replay_cache.h"
#include "tool/tool.h"

#define MAX_ROWS              1024
#define UNKNOWN_RECORD_BLOCKS 8u
#define RECORD_BYTES          (UINT64_C(512) << 10)

/* --------------------------------------------------------------------------------- the sizes */

static uint64_t block_bytes_of(const kvpi_mrc_report *report)
{
    return report->token_bytes * report->refs->block_tokens;
}

/* A size in blocks. */
static int find_blocks(const kvpi_args *args, const char *option, const kvpi_mrc_report *report,
                       const kvpi_mrc_size *size, uint64_t *out)
{
    uint64_t bytes = block_bytes_of(report);
    uint64_t blocks = !size->is_bytes ? size->number : bytes == 0 ? 0 : size->number / bytes;
    if (blocks < 1 || blocks > KVPI_REPLAY_MAX_BLOCKS || bytes > INT64_MAX / blocks)
        return kvpi_args_usage(args, "%s has %" PRIu64 " blocks, expected 1 to %" PRIu64, option,
                               blocks,
                               bytes < INT64_MAX / KVPI_REPLAY_MAX_BLOCKS ? KVPI_REPLAY_MAX_BLOCKS
                                                                          : INT64_MAX / bytes);
    *out = blocks;
    return TOOL_OK;
}

/* As kvp_store_config.record_blocks chooses it. */
static uint32_t usual_record_blocks(const kvpi_mrc_report *report)
{
    uint32_t n = 1;
    if (report->token_bytes == 0)
        return UNKNOWN_RECORD_BLOCKS;
    while (n < KVP_RECORD_BLOCKS_MAX && block_bytes_of(report) < (RECORD_BYTES + n - 1) / n)
        n *= 2;
    return n;
}

/* ---------------------------------------------------------------------------------- the rows */

static void add_row(kvpi_mrc_report *report, const kvpi_mrc_tiers_size *size)
{
    report->tiers[report->n_tiers++] = (kvpi_mrc_tiers_row){.size = *size};
}

static int add_stores(const kvpi_args *args, const kvpi_mrc_args *options, kvpi_mrc_report *report,
                      kvpi_mrc_tiers_size size)
{
    size_t n_records = options->records.n > 0 ? options->records.n : 1;
    for (size_t s = 0; s < options->stores.n; s++)
        for (size_t r = 0; r < n_records; r++) {
            size.record_blocks = options->records.n > 0 ? (uint32_t)options->records.of[r].number
                                                        : usual_record_blocks(report);
            int status =
                find_blocks(args, "--store-sizes", report, &options->stores.of[s], &size.store);
            if (status != TOOL_OK)
                return status;
            add_row(report, &size);
        }
    return TOOL_OK;
}

static int add_rows(const kvpi_args *args, const kvpi_mrc_args *options, kvpi_mrc_report *report)
{
    int status = TOOL_OK;
    for (size_t p = 0; p < report->n_points; p++)
        for (size_t h = 0; h < options->hosts.n && status == TOOL_OK; h++) {
            kvpi_mrc_tiers_size size = {
                .device = report->points[p].blocks, .record_blocks = 1, .writes = options->writes};
            status = find_blocks(args, "--host-sizes", report, &options->hosts.of[h], &size.host);
            if (status != TOOL_OK)
                return status;
            add_row(report, &size);
            status = add_stores(args, options, report, size);
        }
    return status;
}

/* With records of one block, unless the row before tells it already. */
static uint64_t run_one_block(kvpi_mrc_tiers *tiers, const kvpi_mrc_tiers_row *row, bool has_before)
{
    kvpi_mrc_tiers_size size = row->size;
    if (size.record_blocks == 1)
        return row->hits.tokens;
    if (has_before && row[-1].size.host == size.host && row[-1].size.store == size.store)
        return row[-1].one_block_tokens;
    size.record_blocks = 1;
    return kvpi_mrc_tiers_run(tiers, &size).tokens;
}

static int run_rows(kvpi_mrc_report *report)
{
    kvpi_mrc_tiers *tiers = NULL;
    kvpi_progress progress;
    if (kvpi_mrc_tiers_make(report->refs, "mrc", &tiers) != TOOL_OK)
        return TOOL_FAILED;
    kvpi_progress_start(&progress, "tiers at sizes", report->n_tiers);
    for (size_t i = 0; i < report->n_tiers; i++) {
        kvpi_mrc_tiers_row *row = &report->tiers[i];
        row->hits = kvpi_mrc_tiers_run(tiers, &row->size);
        row->one_block_tokens = run_one_block(tiers, row, i > 0);
        kvpi_progress_update(&progress, i + 1);
    }
    kvpi_progress_end(&progress);
    kvpi_mrc_tiers_free(tiers);
    return TOOL_OK;
}

int kvpi_mrc_rows_make(const kvpi_args *args, const kvpi_mrc_args *options, kvpi_mrc_report *report)
{
    size_t n_records = options->records.n > 0 ? options->records.n : 1;
    size_t n = report->n_points * options->hosts.n * (1 + options->stores.n * n_records);
    if (n == 0)
        return TOOL_OK;
    if (n > MAX_ROWS)
        return kvpi_args_usage(
            args, "these are %zu combinations of sizes, expected at most %d: --sizes", n, MAX_ROWS);
    report->tiers = malloc(n * sizeof *report->tiers);
    if (report->tiers == NULL)
        return kvpi_tool_fail("mrc", "out of memory for the tiers");
    int status = add_rows(args, options, report);
    return status == TOOL_OK ? run_rows(report) : status;
}
