/* The report of replays with several policies: what each hit, and what it is worth beside LRU. Owns
 * the list of its figures, whose keys are an interface and stay, and the table.
 */
#include "tool/report/policies_report.h"
#include "tool/input/escape.h"
#include "tool/report/figures.h"
#include "tool/text.h"

/* NULL: LRU is not among them. */
static const kvpi_policies_row *find_lru(const kvpi_policies_report *report)
{
    for (size_t i = 0; i < report->n; i++)
        if (report->rows[i].policy == KVP_POLICY_LRU)
            return &report->rows[i];
    return NULL;
}

static void add_row(kvpi_figures *to, const kvpi_policies_row *row, const kvpi_policies_row *lru)
{
    const double gained =
        lru == NULL ? 0 : (double)row->hit_tokens - (double)lru->hit_tokens; /* of both signs */
    kvpi_figures_open(to, NULL);
    kvpi_figures_text(to, "policy", kvpi_policy_list_name(row->policy));
    kvpi_figures_integer(to, "input_tokens", row->input_tokens);
    kvpi_figures_integer(to, "hit_tokens", row->hit_tokens);
    kvpi_figures_real(to, "hit_ratio",
                      row->input_tokens == 0 ? 0
                                             : (double)row->hit_tokens / (double)row->input_tokens);
    kvpi_figures_json(to, "gained_tokens", lru == NULL ? json_null() : json_real(gained));
    kvpi_figures_json(to, "report", json_incref(row->figures));
    kvpi_figures_close(to);
}

json_t *kvpi_policies_figures(const kvpi_policies_report *report)
{
    kvpi_figures figures = kvpi_figures_begin();
    kvpi_figures_open_array(&figures, "policies");
    for (size_t i = 0; i < report->n; i++)
        add_row(&figures, &report->rows[i], find_lru(report));
    kvpi_figures_close(&figures);
    return kvpi_figures_end(&figures);
}

/* "+12.3 %" of what LRU hits. */
static kvpi_text worth(const kvpi_policies_row *row, const kvpi_policies_row *lru)
{
    kvpi_text out = {"-"};
    if (lru != NULL && lru != row && lru->hit_tokens > 0)
        snprintf(out.of, sizeof out.of, "%+.1f %%",
                 100 * ((double)row->hit_tokens / (double)lru->hit_tokens - 1));
    return out;
}

static kvpi_text fallback(const kvpi_policies_row *row)
{
    kvpi_text out = {"-"};
    return row->cache.references == 0
               ? out
               : kvpi_text_percent(row->cache.fallback_references, row->cache.references);
}

void kvpi_policies_print(const kvpi_policies_report *report, FILE *file)
{
    const kvpi_policies_row *lru = find_lru(report);
    fprintf(file, "%s, %s\n", kvpi_escape(report->path).of,
            report->sequential ? "one request after the other" : "under load");
    fprintf(file, "%s blocks of %s tokens\n\n", kvpi_text_count(report->blocks).of,
            kvpi_text_count(report->block_tokens).of);
    fputs("Hit tokens, by policy\n", file);
    fprintf(file, "%9s %16s %13s %11s %13s %9s\n", "policy", "hit tokens", "of the input",
            "beside LRU", "evictions", "as LRU");
    for (size_t i = 0; i < report->n; i++) {
        const kvpi_policies_row *row = &report->rows[i];
        fprintf(file, "%9s %16s %13s %11s %13s %9s\n", kvpi_policy_list_name(row->policy),
                kvpi_text_count(row->hit_tokens).of,
                kvpi_text_percent(row->hit_tokens, row->input_tokens).of, worth(row, lru).of,
                kvpi_text_count(row->cache.evicted_blocks).of, fallback(row).of);
    }
    fputs("  as LRU: share of the block references while the policy did not trust what it\n"
          "  had learned, or was not warm yet\n",
          file);
}
