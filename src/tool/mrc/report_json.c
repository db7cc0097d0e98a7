/* The curve for programs: one object, the names of which are an interface and stay. */
#include <jansson.h>
#include <math.h>

#include "tool/mrc/report.h"
#include "tool/report/report.h"

#define CURVE_POINTS 400

static int set(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value);
}

static int set_integer(json_t *object, const char *name, uint64_t value)
{
    return set(object, name, json_integer((json_int_t)value));
}

static json_t *bytes_of(const kvpi_mrc_report *report, uint64_t blocks)
{
    return report->token_bytes == 0 ? json_null()
                                    : json_integer((json_int_t)kvpi_mrc_bytes(report, blocks));
}

static int add_settings(json_t *object, const kvpi_mrc_report *report)
{
    const char *model = report->model != NULL ? report->model->name : NULL;
    const char *device = report->device != NULL ? report->device->name : NULL;
    int wrong = set(object, "curve_of", json_string("sequential"));
    wrong += set(object, "trace", kvpi_report_text(report->options->trace.path));
    wrong += set(object, "format", json_string(report->format));
    wrong += set_integer(object, "block_tokens", report->refs->block_tokens);
    wrong += set(object, "output_appended", json_boolean(report->options->trace.output));
    wrong += set_integer(object, "seed", report->options->trace.key.seed);
    wrong +=
        set(object, "token_bytes",
            report->token_bytes == 0 ? json_null() : json_integer((json_int_t)report->token_bytes));
    wrong += set(object, "model", model != NULL ? kvpi_report_text(model) : json_null());
    wrong += set(object, "device", device != NULL ? json_string(device) : json_null());
    wrong += set(object, "device_blocks",
                 report->device_blocks == 0 ? json_null()
                                            : json_integer((json_int_t)report->device_blocks));
    wrong += set(object, "device_is_shown",
                 report->device == NULL ? json_null() : json_boolean(report->is_device_shown));
    return wrong;
}

static int add_counts(json_t *object, const kvpi_mrc_report *report)
{
    const kvpi_mrc_refs *refs = report->refs;
    int wrong = set_integer(object, "requests", refs->n_requests);
    wrong += set_integer(object, "mended", report->mended);
    wrong += set_integer(object, "input_tokens", refs->input_tokens);
    wrong += set_integer(object, "output_tokens", refs->output_tokens);
    wrong += set_integer(object, "blocks_looked_up", refs->looked_up_blocks);
    wrong += set(object, "sample_rate", json_real(refs->rate));
    wrong += set_integer(object, "distinct_blocks", refs->n_contents);
    wrong += set_integer(object, "min_blocks", report->curve->min_blocks);
    wrong += set_integer(object, "enough_blocks", report->curve->enough_blocks);
    return wrong;
}

static json_t *ratio_or_null(const kvpi_mrc_report *report, double tokens)
{
    return tokens == KVPI_MRC_NONE ? json_null() : json_real(kvpi_mrc_ratio(report, tokens));
}

static json_t *tokens_or_null(double tokens)
{
    return tokens == KVPI_MRC_NONE ? json_null() : json_integer((json_int_t)llround(tokens));
}

static json_t *point(const kvpi_mrc_report *report, const kvpi_mrc_point *at)
{
    json_t *object = json_object();
    int wrong = set_integer(object, "blocks", at->blocks);
    wrong += set(object, "memory_bytes", bytes_of(report, at->blocks));
    wrong += set(object, "hit_tokens", tokens_or_null(at->lru.tokens));
    wrong += set(object, "hit_ratio", ratio_or_null(report, at->lru.tokens));
    wrong +=
        set(object, "hit_ratio_error", json_real(kvpi_mrc_ratio(report, at->lru.error_tokens)));
    wrong += set(object, "block_hits", tokens_or_null(at->lru.blocks));
    wrong += set(object, "fifo_hit_tokens", tokens_or_null(at->fifo_tokens));
    wrong += set(object, "fifo_hit_ratio", ratio_or_null(report, at->fifo_tokens));
    wrong += set(object, "optimum_hit_tokens", tokens_or_null(at->optimum_tokens));
    wrong += set(object, "optimum_hit_ratio", ratio_or_null(report, at->optimum_tokens));
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

static int add_points(json_t *object, const kvpi_mrc_report *report)
{
    json_t *array = json_array();
    int wrong = set(object, "sizes", array);
    for (size_t i = 0; wrong == 0 && i < report->n_points; i++)
        wrong = json_array_append_new(array, point(report, &report->points[i]));
    return wrong;
}

static int add_shares(json_t *object, const kvpi_mrc_report *report)
{
    json_t *array = json_array();
    int wrong = set(object, "shares", array);
    for (size_t i = 0; wrong == 0 && i < KVPI_MRC_SHARES; i++) {
        json_t *row = json_object();
        wrong += set(row, "of_unlimited", json_real(kvpi_mrc_shares[i] / 100.0));
        wrong += set_integer(row, "blocks", report->share_blocks[i]);
        wrong += set(row, "memory_bytes", bytes_of(report, report->share_blocks[i]));
        wrong += json_array_append_new(array, row);
    }
    return wrong;
}

/* [blocks, hit ratio], evenly spaced by the logarithm of the size. */
static int add_curve(json_t *object, const kvpi_mrc_report *report)
{
    const kvpi_mrc_curve *curve = report->curve;
    double first = (double)curve->min_blocks, last = (double)curve->enough_blocks;
    json_t *array = json_array();
    uint64_t shown = 0;
    int wrong = set(object, "curve", array);
    for (int i = 0; wrong == 0 && i <= CURVE_POINTS; i++) {
        uint64_t blocks = (uint64_t)llround(first * pow(last / first, (double)i / CURVE_POINTS));
        if (blocks == shown)
            continue;
        shown = blocks;
        json_t *pair = json_array();
        wrong += json_array_append_new(pair, json_integer((json_int_t)blocks));
        wrong += json_array_append_new(
            pair, ratio_or_null(report, kvpi_mrc_lru_at(curve, blocks).tokens));
        wrong += json_array_append_new(array, pair);
    }
    return wrong;
}

json_t *kvpi_mrc_report_json(const kvpi_mrc_report *report)
{
    json_t *object = json_object();
    int wrong = add_settings(object, report) + add_counts(object, report) +
                add_points(object, report) + add_shares(object, report) + add_curve(object, report);
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

int kvpi_mrc_report_print_json(const kvpi_mrc_report *report, FILE *file)
{
    json_t *object = kvpi_mrc_report_json(report);
    int wrong = object == NULL;
    if (wrong == 0)
        wrong = json_dumpf(object, file, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    json_decref(object);
    return wrong != 0 || fputc('\n', file) == EOF ? -1 : 0;
}
