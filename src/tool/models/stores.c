/* Owns how sizes, rates and latencies of modelled stores are written. */
#include "tool/models/stores.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_DISK_RATE      UINT64_C(2000000000)
#define DEFAULT_REMOTE_RATE    UINT64_C(1000000000)
#define DEFAULT_REMOTE_LATENCY 1000000
#define MAX_LATENCY_NS         UINT64_C(3600000000000)

/* A number and its unit; at most an hour. */
static int read_latency(const kvpi_args *args, const char *text, uint64_t *out_ns)
{
    static const struct {
        const char *unit;
        uint64_t ns;
    } units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
    uint64_t number = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && number < MAX_LATENCY_NS; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    for (size_t i = 0; at > text && i < sizeof units / sizeof *units; i++)
        if (strcmp(at, units[i].unit) == 0 && number <= MAX_LATENCY_NS / units[i].ns) {
            *out_ns = number * units[i].ns;
            return 0;
        }
    return kvpi_args_wrong(args,
                           "--remote has a latency of '%s', expected a number with ns, us, ms or "
                           "s, at most an hour",
                           text);
}

int kvpi_models_store(const kvpi_args *args, const kvpi_args_option *option, const char *value,
                      void *at)
{
    kvpi_attach_options *out = at;
    kvpi_modelled_options *model = &out->model;
    char text[96];
    if (kvpi_args_given(args, option->name))
        return kvpi_args_wrong(args, "%s is given twice", option->name);
    snprintf(text, sizeof text, "%s", value);
    model->is_remote = strcmp(option->name, "--remote") == 0;
    char *rate = strchr(text, '@');
    char *latency = model->is_remote && rate != NULL ? strchr(rate, ',') : NULL;
    out->url = value;
    model->bytes_s = model->is_remote ? DEFAULT_REMOTE_RATE : DEFAULT_DISK_RATE;
    model->latency_ns = model->is_remote ? DEFAULT_REMOTE_LATENCY : 0;
    if (rate != NULL)
        *rate++ = '\0';
    if (latency != NULL)
        *latency++ = '\0';
    if (kvpi_args_size(args, option, text, &model->size) != 0 ||
        (rate != NULL && kvpi_args_size(args, option, rate, &model->bytes_s) != 0))
        return KVPI_ARGS_WRONG;
    return latency != NULL ? read_latency(args, latency, &model->latency_ns) : 0;
}
