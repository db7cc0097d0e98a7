/* The report of a curve. Owns the list of its figures; their keys are an interface and stay. Owns
 * also the layout for people:
 *
 *   what was read
 *   counts       label, value, what it means
 *   sizes        one row each: LRU beside what else is shown; bounds (bounds.c)
 *   verdict      for each size what holds hits back
 *   what memory buys
 *   what it saves, how long content is to be kept (report_worth.c), other tiers
 *
 * Nothing is wider than 80 columns, except a long file name.
 */
#include "tool/mrc/mrc_report.h"

#include <inttypes.h>
#include <math.h>

#include "tool/text.h"
#include "tool/input/escape.h"
#include "tool/mrc/report/bounds.h"
#include "tool/mrc/report/report_tiers.h"
#include "tool/mrc/report/report_worth.h"
#include "tool/log/reading.h"

#define CURVE_POINTS 400

const int kvpi_mrc_shares[KVPI_MRC_SHARES] = {50, 75, 90, 95, 99, 100};

/* --------------------------------------------------------------------------------- the figures */

static void add_memory(kvpi_figures *to, const kvpi_mrc_report *report, uint64_t blocks)
{
    kvpi_figures_integer_if(to, report->token_bytes > 0, "memory_bytes",
                            (uint64_t)kvpi_mrc_bytes(report, blocks));
}

static void add_settings(kvpi_figures *to, const kvpi_mrc_report *report)
{
    const kvpi_device *device = report->device;
    kvpi_figures_text(to, "curve_of", "sequential");
    kvpi_figures_text(to, "trace", report->options->trace.path);
    kvpi_figures_text(to, "format", report->format);
    kvpi_reading_add(to, report->about);
    kvpi_figures_integer(to, "block_tokens", report->refs->block_tokens);
    kvpi_figures_flag(to, "output_appended", report->options->trace.output);
    kvpi_figures_integer(to, "seed", report->options->trace.key.seed);
    kvpi_figures_integer_if(to, report->token_bytes > 0, "token_bytes", report->token_bytes);
    kvpi_figures_text(to, "model", report->model != NULL ? report->model->name : NULL);
    kvpi_figures_text(to, "device", device != NULL ? device->name : NULL);
    kvpi_figures_integer_if(to, report->device_blocks > 0, "device_blocks", report->device_blocks);
    kvpi_figures_json(to, "device_is_shown",
                      device == NULL ? json_null() : json_boolean(report->is_device_shown));
    kvpi_figures_integer_if(to, report->model != NULL, "tensor_parallel", report->tensor_parallel);
    kvpi_figures_json(to, "price_per_gpu_hour",
                      report->price_milli > 0 ? json_real((double)report->price_milli / 1000)
                                              : json_null());
    kvpi_figures_open_array(to, "sizes_too_small");
    for (size_t i = 0; i < report->n_small; i++)
        kvpi_figures_integer(to, NULL, report->small_blocks[i]);
    kvpi_figures_close(to);
}

static void add_counts(kvpi_figures *to, const kvpi_mrc_report *report)
{
    const kvpi_mrc_refs *refs = report->refs;
    kvpi_figures_integer(to, "requests", refs->n_requests);
    kvpi_figures_integer(to, "mended", report->mended);
    kvpi_figures_integer(to, "input_tokens", refs->input_tokens);
    kvpi_figures_integer(to, "output_tokens", refs->output_tokens);
    kvpi_figures_integer(to, "blocks_looked_up", refs->looked_up_blocks);
    kvpi_figures_real(to, "sample_rate", refs->rate);
    kvpi_figures_integer(to, "distinct_blocks", refs->n_contents);
    kvpi_figures_integer(to, "min_blocks", report->curve->min_blocks);
    kvpi_figures_integer(to, "enough_blocks", report->curve->enough_blocks);
}

static void add_ratio(kvpi_figures *to, const kvpi_mrc_report *report, const char *key,
                      double tokens)
{
    kvpi_figures_json(
        to, key, tokens == KVPI_MRC_NONE ? json_null() : json_real(kvpi_mrc_ratio(report, tokens)));
}

static void add_rounded(kvpi_figures *to, const char *key, double number)
{
    kvpi_figures_integer_if(to, number != KVPI_MRC_NONE, key, (uint64_t)llround(number));
}

/* What is less than this share of the input is not worth a change. */
#define WORTH 0.02

/* What holds hits back at a size, and the share of the input that it costs. */
typedef struct verdict {
    const char *word;
    double ratio;
    const char *meaning;                /* of it, for people */
    const kvpi_mrc_policy_name *policy; /* NULL: none is worth a change */
} verdict;

/* Of those shown that need not know the future; KVPI_MRC_POLICIES: none. Of the others one that
 * is worth a change beside the cache's own. */
static kvpi_mrc_policy best_policy(const kvpi_mrc_report *report, const kvpi_mrc_point *point)
{
    kvpi_mrc_policy best = KVPI_MRC_POLICIES;
    for (kvpi_mrc_policy i = KVPI_MRC_POLICIES; i-- > 0;) {
        const double worth = best == KVPI_MRC_LEARNED ? WORTH : 0;
        if (i != KVPI_MRC_OPTIMUM && point->tokens[i] != KVPI_MRC_NONE &&
            (best == KVPI_MRC_POLICIES ||
             kvpi_mrc_ratio(report, point->tokens[i] - point->tokens[best]) > worth))
            best = i;
    }
    return best;
}

/* If a policy's hits need the future, it is more memory that helps. */
static verdict judge(const kvpi_mrc_report *report, const kvpi_mrc_point *point)
{
    double most =
        kvpi_mrc_ratio(report, kvpi_mrc_lru_at(report->curve, report->curve->enough_blocks).tokens);
    double lru = kvpi_mrc_ratio(report, point->lru.tokens);
    kvpi_mrc_policy best = best_policy(report, point);
    double gained =
        best == KVPI_MRC_POLICIES ? 0 : kvpi_mrc_ratio(report, point->tokens[best]) - lru;
    if (most < WORTH)
        return (verdict){"sharing", most, "are hit even with unlimited memory", NULL};
    if (most - lru < WORTH)
        return (verdict){"enough", most - lru, "more are hit with unlimited memory", NULL};
    if (gained >= WORTH)
        return (verdict){"policy", gained, "more are hit by", &kvpi_mrc_policy_names[best]};
    return (verdict){"capacity", most - lru, "more are hit with unlimited memory", NULL};
}

static void add_verdict(kvpi_figures *to, const kvpi_mrc_report *report, const kvpi_mrc_point *at)
{
    verdict found = judge(report, at);
    kvpi_figures_text(to, "verdict", found.word);
    kvpi_figures_real(to, "verdict_ratio", found.ratio);
    kvpi_figures_text(to, "verdict_policy", found.policy != NULL ? found.policy->name : NULL);
}

static void add_point(kvpi_figures *to, const kvpi_mrc_report *report, const kvpi_mrc_point *at)
{
    kvpi_figures_open(to, NULL);
    kvpi_figures_integer(to, "blocks", at->blocks);
    add_memory(to, report, at->blocks);
    add_rounded(to, "hit_tokens", at->lru.tokens);
    add_ratio(to, report, "hit_ratio", at->lru.tokens);
    kvpi_figures_real(to, "hit_ratio_error", kvpi_mrc_ratio(report, at->lru.error_tokens));
    add_rounded(to, "block_hits", at->lru.blocks);
    for (size_t i = 0; i < KVPI_MRC_POLICIES; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s_hit_tokens", kvpi_mrc_policy_names[i].name);
        add_rounded(to, key, at->tokens[i]);
        snprintf(key, sizeof key, "%s_hit_ratio", kvpi_mrc_policy_names[i].name);
        add_ratio(to, report, key, at->tokens[i]);
    }
    kvpi_mrc_bounds_add(to, report, at);
    add_verdict(to, report, at);
    kvpi_mrc_report_saved_add(to, report, at->blocks);
    kvpi_figures_close(to);
}

static void add_share(kvpi_figures *to, const kvpi_mrc_report *report, size_t i)
{
    kvpi_figures_open(to, NULL);
    kvpi_figures_real(to, "of_unlimited", kvpi_mrc_shares[i] / 100.0);
    kvpi_figures_integer(to, "blocks", report->share_blocks[i]);
    add_memory(to, report, report->share_blocks[i]);
    kvpi_figures_close(to);
}

/* [blocks, hit ratio], evenly spaced by the logarithm of the size. */
static void add_curve(kvpi_figures *to, const kvpi_mrc_report *report)
{
    const kvpi_mrc_curve *curve = report->curve;
    double first = (double)curve->min_blocks, last = (double)curve->enough_blocks;
    uint64_t shown = 0;
    for (int i = 0; i <= CURVE_POINTS; i++) {
        uint64_t blocks = (uint64_t)llround(first * pow(last / first, (double)i / CURVE_POINTS));
        if (blocks == shown)
            continue;
        shown = blocks;
        kvpi_figures_open_array(to, NULL);
        kvpi_figures_integer(to, NULL, blocks);
        add_ratio(to, report, NULL, kvpi_mrc_lru_at(curve, blocks).tokens);
        kvpi_figures_close(to);
    }
}

json_t *kvpi_mrc_report_figures(const kvpi_mrc_report *report)
{
    kvpi_figures figures = kvpi_figures_begin();
    add_settings(&figures, report);
    add_counts(&figures, report);
    kvpi_figures_open_array(&figures, "sizes");
    for (size_t i = 0; i < report->n_points; i++)
        add_point(&figures, report, &report->points[i]);
    kvpi_figures_close(&figures);
    kvpi_figures_open_array(&figures, "shares");
    for (size_t i = 0; i < KVPI_MRC_SHARES; i++)
        add_share(&figures, report, i);
    kvpi_figures_close(&figures);
    kvpi_figures_open_array(&figures, "curve");
    add_curve(&figures, report);
    kvpi_figures_close(&figures);
    kvpi_mrc_report_worth_add(&figures, report);
    kvpi_mrc_report_tiers_add(&figures, report);
    return kvpi_figures_end(&figures);
}

/* --------------------------------------------------------------------------------- for people */

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
            report->format, kvpi_text_clock((uint64_t)report->span_us).of);
    kvpi_reading_print(report->about, file);
    fprintf(file, "blocks of %s tokens", kvpi_text_count(refs->block_tokens).of);
    if (report->token_bytes > 0)
        fprintf(file, " = %s each",
                kvpi_text_bytes((double)refs->block_tokens * (double)report->token_bytes).of);
    if (report->model != NULL)
        fprintf(file, ", %s", report->model->name);
    if (report->model != NULL && report->tensor_parallel > 1)
        fprintf(file, "; of one of %" PRIu32 " accelerators", report->tensor_parallel);
    fputc('\n', file);
    if (report->device != NULL)
        fprintf(file, "%" PRIu32 " x %s: %s for KV\n", report->tensor_parallel,
                report->device->title, memory(report, report->device_blocks).of);
    fputc('\n', file);
}

static void print_counts(const kvpi_mrc_report *report, const json_t *figures, FILE *file)
{
    bool sampled = report->refs->rate < 1;
    const char *appended = report->options->trace.output ? "appended one at a time"
                                                         : "not appended: --output-tokens off";
    kvpi_text rate;
    snprintf(rate.of, sizeof rate.of, "%.4g %%", 100 * report->refs->rate);
    const kvpi_figures_row rows[] = {
        {true, "requests", "{requests}", "one after the other"},
        {true, "input tokens", "{input_tokens}", "in the prompts"},
        {true, "output tokens", "{output_tokens}", appended},
        {true, "looked up", "{blocks_looked_up}", "full blocks of the prompts"},
        {!sampled, "distinct", "{distinct_blocks}", "full blocks, generated ones included"},
        {true, "at least", "{min_blocks}", "blocks, or a request does not fit"},
        {sampled, "sampled", rate.of, "of the blocks: {distinct_blocks} distinct ones"},
    };
    kvpi_figures_print_rows(figures, rows, sizeof rows / sizeof *rows, file);
}

/* What LRU lacks and the optimum has: the share of it that the learned policy gains. */
static kvpi_text recovery(const kvpi_mrc_point *point)
{
    kvpi_text out = {"-"};
    const double lacks = point->tokens[KVPI_MRC_OPTIMUM] - point->lru.tokens;
    if (lacks > 0)
        snprintf(out.of, sizeof out.of, "%.2f",
                 (point->tokens[KVPI_MRC_LEARNED] - point->lru.tokens) / lacks);
    return out;
}

static bool shows_gain(const kvpi_mrc_report *report)
{
    return report->shown.of[KVPI_MRC_LEARNED] && report->shown.of[KVPI_MRC_OPTIMUM];
}

/* With more than three policies beside LRU a row has no room for tokens and percent signs. */
static bool is_crowded(const kvpi_mrc_report *report)
{
    int n = 0;
    for (size_t i = 0; i < KVPI_MRC_POLICIES; i++)
        n += report->shown.of[i];
    return n > 3;
}

static void print_point_head(const kvpi_mrc_report *report, FILE *file)
{
    const bool crowded = is_crowded(report);
    const int less = shows_gain(report) ? 2 : 0; /* or the row would be too wide */
    fprintf(file, "\nHit tokens per input token%s, by the size of the cache\n%*s",
            crowded ? " in %" : "", 13 - less, "blocks");
    if (!crowded)
        fprintf(file, " %*s", 15 - less, "tokens");
    fprintf(file, " %10s%s %7s%s", report->token_bytes > 0 ? "memory" : "", crowded ? "" : "  ",
            "LRU", report->refs->rate < 1 ? " +-" : "");
    for (size_t i = 0; i < KVPI_MRC_POLICIES; i++)
        if (report->shown.of[i])
            fprintf(file, " %*s", crowded ? 7 : 8, kvpi_mrc_policy_names[i].title);
    fputs(shows_gain(report) ? " gained\n" : "\n", file);
}

static void print_hits(const kvpi_mrc_report *report, double tokens, FILE *file)
{
    if (is_crowded(report))
        fprintf(file, " %7.2f", 100 * kvpi_mrc_ratio(report, tokens));
    else
        fprintf(file, " %8s", percent(report, tokens).of);
}

static void print_point(const kvpi_mrc_report *report, const kvpi_mrc_point *point, FILE *file)
{
    const int less = shows_gain(report) ? 2 : 0;
    fprintf(file, "%*s", 13 - less, kvpi_text_count(point->blocks).of);
    if (!is_crowded(report))
        fprintf(file, " %*s", 15 - less,
                kvpi_text_count(point->blocks * report->refs->block_tokens).of);
    fprintf(file, " %10s%s", memory(report, point->blocks).of, is_crowded(report) ? "" : " ");
    print_hits(report, point->lru.tokens, file);
    if (report->refs->rate < 1)
        fprintf(file, " %.2f", 100 * kvpi_mrc_ratio(report, point->lru.error_tokens));
    for (size_t i = 0; i < KVPI_MRC_POLICIES; i++)
        if (report->shown.of[i])
            print_hits(report, point->tokens[i], file);
    if (shows_gain(report))
        fprintf(file, " %6s", recovery(point).of);
    fputs(point->is_device ? "  *\n" : "\n", file);
}

static void print_points(const kvpi_mrc_report *report, FILE *file)
{
    bool sampled = report->refs->rate < 1, has_device = false;
    print_point_head(report, file);
    for (size_t i = 0; i < report->n_points; i++) {
        print_point(report, &report->points[i], file);
        has_device = has_device || report->points[i].is_device;
    }
    if (shows_gain(report))
        fputs("  gained: the share of what the optimum hits more than LRU\n", file);
    if (has_device)
        fputs("  * what the model leaves of the accelerator\n", file);
    else if (report->device != NULL)
        fprintf(file, "  --device has %s blocks, too few for the largest request: not shown\n",
                kvpi_text_count(report->device_blocks).of);
    for (size_t i = 0; i < report->n_small; i++)
        fprintf(file, "  --sizes has %s blocks, too few for the largest request: not shown\n",
                kvpi_text_count(report->small_blocks[i]).of);
    if (sampled)
        fputs("  +- one standard error, of the sample\n", file);
}

static void print_verdicts(const kvpi_mrc_report *report, FILE *file)
{
    fprintf(file,
            "\nVerdict: what holds hits back; less than %g %% of the input counts as nothing\n",
            100 * WORTH);
    for (size_t i = 0; i < report->n_points; i++) {
        verdict found = judge(report, &report->points[i]);
        fprintf(file, "%13s  %-8s  %5.2f %% %s", kvpi_text_count(report->points[i].blocks).of,
                found.word, 100 * found.ratio, found.meaning);
        if (found.policy == &kvpi_mrc_policy_names[KVPI_MRC_LEARNED])
            fputs(" --policy learned", file);
        else if (found.policy != NULL)
            fprintf(file, " %s, which the cache does not have", found.policy->title);
        fputc('\n', file);
    }
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

void kvpi_mrc_report_print(const kvpi_mrc_report *report, const json_t *figures, FILE *file)
{
    print_head(report, file);
    print_counts(report, figures, file);
    print_points(report, file);
    kvpi_mrc_bounds_print(report, file);
    print_verdicts(report, file);
    print_shares(report, file);
    kvpi_mrc_report_worth_print(report, file);
    kvpi_mrc_report_tiers_print(report, file);
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
