/* See counters.h. */
#include "tool/record/counters.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_SECONDS = 2 };
#define MAX_BYTES ((ev_ssize_t)16 << 20)

/* ------------------------------------------------------------------------------------- reading */

/* One series of a metric, with labels or without: where its name ends. NULL: it is another one. */
static const char *is_series(const char *line, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(line, name, n) == 0 && (line[n] == '{' || line[n] == ' ') ? line + n : NULL;
}

/* The first series of a metric. */
static const char *find(const char *text, const char *name)
{
    for (const char *at = text; at != NULL; at = strchr(at, '\n')) {
        at += *at == '\n';
        const char *labels = is_series(at, name);
        if (labels != NULL)
            return labels;
    }
    return NULL;
}

/* Of hits that are counted by where they were: those of the accelerator, else all of them. Several
 * series without such a label: *is_several. */
static const char *find_hits(const char *text, const char *name, bool *is_several)
{
    static const char *const sources[] = {"cache_source=\"device\"", "cache_source=\"total\""};
    const char *first = find(text, name), *at, *label;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        for (at = first; at != NULL; at = find(at, name))
            if ((label = strstr(at, sources[i])) != NULL && label < at + strcspn(at, "\n"))
                return at;
    *is_several = first != NULL && find(first, name) != NULL;
    return first;
}

/* The value behind the labels, whose texts may have braces and quotes. */
static bool value_of(const char *labels, double *out)
{
    const char *at = labels;
    bool is_quoted = false;
    for (; *at != '\0' && *at != '\n' && (is_quoted || *at != ' '); at++) {
        if (is_quoted && *at == '\\' && at[1] != '\0')
            at++;
        else if (*at == '"')
            is_quoted = !is_quoted;
    }
    char *stop = NULL;
    *out = strtod(at, &stop);
    return stop > at && *out >= 0 && *out < 9e18;
}

typedef struct names {
    const char *queries, *hits;
} names;

static const names known[] = {
    {"vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"},
    {"sglang:prompt_tokens_total", "sglang:cached_tokens_total"},
};

static uint64_t blocks_of(const char *text, uint64_t block_tokens)
{
    static const char label[] = "num_gpu_blocks=\"";
    double tokens = 0;
    const char *info = find(text, "vllm:cache_config_info");
    const char *number = info == NULL ? NULL : strstr(info, label);
    if (number != NULL && number < info + strcspn(info, "\n"))
        return strtoull(number + sizeof label - 1, NULL, 10);
    info = find(text, "sglang:max_total_num_tokens");
    return info != NULL && value_of(info, &tokens) ? (uint64_t)tokens / block_tokens : 0;
}

const char *kvpi_counters_read(const char *text, uint64_t block_tokens, kvpi_counters *out,
                               uint64_t *engine_blocks)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        bool is_several = false;
        const char *queries = find(text, known[i].queries);
        const char *hits = find_hits(text, known[i].hits, &is_several);
        double n_queries = 0, n_hits = 0;
        if (queries == NULL)
            continue;
        if (find(queries, known[i].queries) != NULL)
            return "it counts for several engines, of which one sends events: start one recording "
                   "for each engine, without data parallelism";
        if (is_several)
            return "it counts hits several times, none of them of cache_source device or total";
        if (!value_of(queries, &n_queries) || (hits != NULL && !value_of(hits, &n_hits)))
            return "its counters are no numbers";
        *out = (kvpi_counters){(uint64_t)n_queries, (uint64_t)n_hits};
        *engine_blocks = blocks_of(text, block_tokens);
        return *engine_blocks > 0 ? NULL
                                  : "it has no num_gpu_blocks in vllm:cache_config_info, and no "
                                    "sglang:max_total_num_tokens";
    }
    return "it has no vllm:prefix_cache_queries_total or sglang:prompt_tokens_total";
}

/* -------------------------------------------------------------------------------------- asking */

typedef struct answer {
    char *text;
    const char *why;
} answer;

static void on_answer(struct evhttp_request *request, void *context)
{
    answer *out = context;
    out->why = "it is away";
    if (request == NULL || evhttp_request_get_response_code(request) == 0)
        return;
    out->why = "its answer is no 200";
    if (evhttp_request_get_response_code(request) != 200)
        return;
    struct evbuffer *body = evhttp_request_get_input_buffer(request);
    const size_t n = evbuffer_get_length(body);
    out->why = "out of memory";
    out->text = malloc(n + 1);
    if (out->text == NULL)
        return;
    (void)evbuffer_copyout(body, out->text, n);
    out->text[n] = '\0';
    out->why = NULL;
}

static void ask(struct event_base *base, const kvpi_counters_at *at, answer *out)
{
    struct evhttp_connection *to = evhttp_connection_base_new(base, NULL, at->host, at->port);
    if (to == NULL)
        return;
    evhttp_connection_set_timeout(to, TIMEOUT_SECONDS);
    evhttp_connection_set_max_body_size(to, MAX_BYTES);
    struct evhttp_request *request = evhttp_request_new(on_answer, out);
    if (request != NULL) {
        struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
        (void)evhttp_add_header(headers, "Host", at->host);
        (void)evhttp_add_header(headers, "Connection", "close");
        if (evhttp_make_request(to, request, EVHTTP_REQ_GET, at->path) == 0)
            (void)event_base_dispatch(base);
    }
    evhttp_connection_free(to);
}

const char *kvpi_counters_ask(const kvpi_counters_at *at, uint64_t block_tokens, kvpi_counters *out,
                              uint64_t *engine_blocks)
{
    answer got = {NULL, "out of memory"};
    struct event_base *base = event_base_new();
    if (base != NULL) {
        ask(base, at, &got);
        event_base_free(base);
    }
    const char *why = got.why;
    if (why == NULL)
        why = kvpi_counters_read(got.text, block_tokens, out, engine_blocks);
    free(got.text);
    return why;
}
