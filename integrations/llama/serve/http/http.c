/* http: routes, bodies and answers.
 *
 * A call is a request on a connection, from its first line to the end of its answer. MHD calls
 * `handle` at its headers, for each part of its body, and once more; then `completed`. */
#define _DEFAULT_SOURCE /* strdup, getaddrinfo */

#include "http.h"
#include "fields.h"
#include "guard.h"
#include "render.h"

#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* At the end, answers that are being sent get LAST_WAITS x 5 ms. A stack has room for JSON that is
 * nested as deeply as jansson allows (2,048). */
enum {
    LAST_WAITS = 200,
    IDLE_SECONDS = 60,
    HEADER_BYTES = 64 * 1024,
    STACK_BYTES = 2048 * 1024,
    KIB = 1024
};

extern const char kvpi_serve_page_html[];

typedef struct call {
    kvpi_http *http;
    struct MHD_Connection *connection;
    char *body;
    size_t n_body, capacity;
    kvpi_job *job; /* NULL: none */
    kvpi_render render;
    char *out; /* of a stream: what was not sent yet */
    size_t n_out, sent;
    int is_last; /* of a stream: nothing follows `out` */
} call;

static int client_of(const call *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info != NULL ? info->connect_fd : -1;
}

/* -------------------------------------------------------------------------------------- answers */

static enum MHD_Result send_response(call *c, unsigned status, struct MHD_Response *response,
                                     const char *type)
{
    if (response == NULL)
        return MHD_NO;
    (void)MHD_add_response_header(response, "Content-Type", type);
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    const enum MHD_Result result = MHD_queue_response(c->connection, status, response);
    MHD_destroy_response(response);
    atomic_fetch_add(&c->http->counts.answers[status / 100 < 6 ? status / 100 : 5], 1);
    atomic_fetch_add(&c->http->counts.overloads, status == 429);
    return result;
}

/* Takes `text`, which may be NULL: no memory. */
static enum MHD_Result send_text(call *c, unsigned status, char *text, const char *type)
{
    if (text == NULL)
        return MHD_NO;
    return send_response(c, status,
                         MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE),
                         type);
}

static enum MHD_Result send_json(call *c, unsigned status, json_t *made)
{
    char *text = made != NULL ? json_dumps(made, JSON_COMPACT) : NULL;
    json_decref(made);
    return send_text(c, status, text, "application/json");
}

static enum MHD_Result send_refusal(call *c, const kvpi_refusal *refusal)
{
    char *text = kvpi_refusal_json(refusal), seconds[16];
    if (text == NULL)
        return MHD_NO;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (response != NULL && refusal->retry_after > 0) {
        (void)snprintf(seconds, sizeof seconds, "%u", refusal->retry_after);
        (void)MHD_add_response_header(response, "Retry-After", seconds);
    }
    if (response != NULL && refusal->status == 401)
        (void)MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    return send_response(c, refusal->status, response, "application/json");
}

static enum MHD_Result refuse(call *c, unsigned status, const char *field, const char *text)
{
    kvpi_refusal refusal = {0};
    (void)kvpi_refuse(&refusal, status, field, text);
    return send_refusal(c, &refusal);
}

/* -------------------------------------------------------------------------------------- streams */

/* Waits for the next events. -1: the client went away, or there is no memory. */
static int next_events(call *c)
{
    free(c->out);
    c->out = NULL;
    c->n_out = c->sent = 0;
    kvpi_piece *piece = kvpi_job_take(c->job, client_of(c));
    int result = piece != NULL ? 0 : -1;
    while (piece != NULL) {
        kvpi_piece *next = piece->next;
        char *event = result == 0 ? kvpi_render_event(&c->render, piece) : NULL;
        const size_t n = event != NULL ? strlen(event) : 0;
        char *larger = event != NULL ? realloc(c->out, c->n_out + n + 1) : NULL;
        if (larger != NULL) {
            c->out = larger;
            memcpy(&c->out[c->n_out], event, n);
            c->n_out += n;
        } else {
            result = -1;
        }
        free(event);
        kvpi_piece_free(piece);
        piece = next;
    }
    return result;
}

static ssize_t read_stream(void *context, uint64_t position, char *out, size_t capacity)
{
    call *c = context;
    (void)position;
    while (c->sent == c->n_out) {
        if (c->is_last)
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (c->render.n_over < c->job->n_samples) {
            if (next_events(c) != 0)
                return MHD_CONTENT_READER_END_WITH_ERROR;
            continue;
        }
        free(c->out);
        c->is_last = 1;
        c->sent = c->n_out = 0;
        c->out = kvpi_render_last(&c->render);
        if (c->out == NULL)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        c->n_out = strlen(c->out);
    }
    const size_t n = c->n_out - c->sent < capacity ? c->n_out - c->sent : capacity;
    memcpy(out, &c->out[c->sent], n);
    c->sent += n;
    return (ssize_t)n;
}

static enum MHD_Result send_stream(call *c)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 8 * KIB, read_stream, c, NULL);
    if (response == NULL)
        return MHD_NO;
    (void)MHD_add_response_header(response, "Cache-Control", "no-cache");
    return send_response(c, 200, response, "text/event-stream");
}

static enum MHD_Result send_whole(call *c)
{
    while (c->render.n_over < c->job->n_samples) {
        int result = 0;
        kvpi_piece *piece = kvpi_job_take(c->job, client_of(c));
        if (piece == NULL)
            return MHD_NO;
        while (piece != NULL) {
            kvpi_piece *next = piece->next;
            result |= kvpi_render_keep(&c->render, piece);
            kvpi_piece_free(piece);
            piece = next;
        }
        if (result != 0)
            return MHD_NO;
    }
    const char *error = kvpi_render_error(&c->render);
    if (error != NULL)
        return refuse(c, 503, "", error);
    return send_text(c, 200, kvpi_render_whole(&c->render), "application/json");
}

/* --------------------------------------------------------------------------------------- routes */

static enum MHD_Result generate(call *c, int is_chat)
{
    kvpi_refusal refusal = {0};
    kvpi_form form;
    kvpi_api *api = c->http->api;
    json_t *body = kvpi_api_parse(c->body, c->n_body, &refusal);
    if (body != NULL)
        c->job = kvpi_api_read(api, body, is_chat, &form, &refusal);
    json_decref(body);
    if (c->job == NULL)
        return send_refusal(c, &refusal);
    if (kvpi_render_init(&c->render, api, c->job, form) != 0)
        return MHD_NO;
    refusal.retry_after = kvpi_loop_submit(api->loop, c->job);
    if (refusal.retry_after > 0) {
        (void)kvpi_refuse(&refusal, 429, "", "the queue is full: try again later");
        return send_refusal(c, &refusal);
    }
    /* While it waits for the engine, the connection is not idle. */
    (void)MHD_set_connection_option(c->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    return form.is_stream ? send_stream(c) : send_whole(c);
}

static enum MHD_Result completions(call *c)
{
    return generate(c, 0);
}

static enum MHD_Result chat(call *c)
{
    return generate(c, 1);
}

static enum MHD_Result tokenize(call *c)
{
    kvpi_refusal refusal = {0};
    uint32_t n = 0;
    json_t *body = kvpi_api_parse(c->body, c->n_body, &refusal);
    int32_t *tokens = body != NULL ? kvpi_api_read_text(c->http->api, body, &n, &refusal) : NULL;
    json_decref(body);
    if (tokens == NULL)
        return send_refusal(c, &refusal);
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        (void)json_array_append_new(list, json_integer(tokens[i]));
    free(tokens);
    return send_json(c, 200, json_pack("{s:o}", "tokens", list));
}

static enum MHD_Result models(call *c)
{
    const kvpi_api *api = c->http->api;
    char description[128] = "";
    (void)llama_model_desc(api->loop->model, description, sizeof description);
    return send_json(
        c, 200,
        json_pack("{s:s, s:[{s:s, s:s, s:I, s:s, s:{s:i, s:i, s:I, s:I, s:s}}]}", "object", "list",
                  "data", "id", api->model_name, "object", "model", "created",
                  (json_int_t)api->created, "owned_by", "kvpager", "meta", "n_ctx",
                  (int)api->loop->limits.max_seq_tokens, "n_vocab", (int)api->loop->n_vocab,
                  "n_params", (json_int_t)llama_model_n_params(api->loop->model), "size",
                  (json_int_t)llama_model_size(api->loop->model), "description", description));
}

static enum MHD_Result health(call *c)
{
    if (atomic_load(&c->http->api->loop->is_broken))
        return refuse(c, 503, "", "the engine is broken");
    return send_json(c, 200, json_pack("{s:s}", "status", "ok"));
}

static enum MHD_Result metrics(call *c)
{
    return send_text(c, 200, kvpi_metrics_text(c->http->api->loop, &c->http->counts),
                     "text/plain; version=0.0.4");
}

static enum MHD_Result state(call *c)
{
    char *text = kvpi_loop_state(c->http->api->loop);
    return send_text(c, 200, text != NULL ? text : strdup("{}"), "application/json");
}

static enum MHD_Result page(call *c)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        strlen(kvpi_serve_page_html), (void *)(uintptr_t)kvpi_serve_page_html,
        MHD_RESPMEM_PERSISTENT);
    if (response != NULL) /* the page runs what is in it, and asks this server only */
        (void)MHD_add_response_header(response, "Content-Security-Policy",
                                      "default-src 'none'; style-src 'unsafe-inline'; script-src "
                                      "'unsafe-inline'; connect-src 'self'; img-src data:; "
                                      "frame-ancestors 'none'; base-uri 'none'");
    return send_response(c, 200, response, "text/html; charset=utf-8");
}

static const struct route {
    const char *path;
    const char *method;
    int is_public;
    enum MHD_Result (*answer)(call *c);
} routes[] = {{"/", "GET", 1, page},
              {"/health", "GET", 1, health},
              {"/v1/models", "GET", 0, models},
              {"/models", "GET", 0, models},
              {"/metrics", "GET", 0, metrics},
              {"/kvpager/state", "GET", 0, state},
              {"/tokenize", "POST", 0, tokenize},
              {"/v1/completions", "POST", 0, completions},
              {"/v1/chat/completions", "POST", 0, chat}};

static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (strcmp(routes[i].path, path) == 0)
            return &routes[i];
    return NULL;
}

/* ---------------------------------------------------------------------------------- MHD's calls */

/* What is known at the headers: 1 and an answer, or 0: the body is read. */
static int refuse_early(call *c, const struct route *route, const char *method,
                        enum MHD_Result *out_result)
{
    kvpi_refusal refusal = {0};
    const kvpi_options *options = c->http->api->options;
#define HEADER(name) MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, name)
    const kvpi_headers headers = {HEADER("Authorization"), HEADER("Host"), HEADER("Origin")};
    const char *length = HEADER("Content-Length");
#undef HEADER
    if (kvpi_guard(options, &headers, route != NULL && route->is_public, &refusal) != 0)
        *out_result = send_refusal(c, &refusal);
    else if (route == NULL)
        *out_result = refuse(c, 404, "", "there is nothing at this path");
    else if (strcmp(route->method, method) != 0 &&
             !(strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0))
        *out_result = refuse(c, 405, "", "the path has another method");
    else if (length != NULL &&
             strtoull(length, NULL, 10) > (unsigned long long)options->max_body_kib * KIB)
        *out_result = refuse(c, 413, "", "the body is too long (--max-body-kib)");
    else
        return 0;
    return 1;
}

/* Of a body whose length was not said in advance, too. */
static enum MHD_Result add_body(call *c, const char *bytes, size_t *n)
{
    const size_t most = (size_t)c->http->api->options->max_body_kib * KIB;
    if (*n > most - c->n_body)
        return MHD_NO;
    if (c->capacity - c->n_body < *n) {
        const size_t capacity = 2 * c->capacity + *n;
        char *larger = realloc(c->body, capacity);
        if (larger == NULL)
            return MHD_NO;
        c->body = larger;
        c->capacity = capacity;
    }
    memcpy(&c->body[c->n_body], bytes, *n);
    c->n_body += *n;
    *n = 0;
    return MHD_YES;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *bytes,
                              size_t *n_bytes, void **at)
{
    call *c = *at;
    enum MHD_Result result = MHD_NO;
    const struct route *route = find_route(path);
    (void)version;
    if (c == NULL) {
        c = calloc(1, sizeof *c);
        if (c == NULL)
            return MHD_NO;
        *at = c;
        c->http = context;
        atomic_fetch_add(&c->http->calls, 1);
        c->connection = connection;
        return refuse_early(c, route, method, &result) ? result : MHD_YES;
    }
    if (*n_bytes > 0)
        return add_body(c, bytes, n_bytes);
    return route != NULL ? route->answer(c) : MHD_NO;
}

static void completed(void *context, struct MHD_Connection *connection, void **at,
                      enum MHD_RequestTerminationCode code)
{
    call *c = *at;
    kvpi_http *http = context;
    (void)code;
    if (c == NULL)
        return;
    atomic_fetch_sub(&http->calls, 1);
    (void)MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT,
                                    (unsigned)IDLE_SECONDS);
    if (c->job != NULL) {
        /* Not all of it was sent: the rest has no reader. */
        if (c->render.choices == NULL || c->render.n_over < c->job->n_samples)
            atomic_store(&c->job->is_cancelled, 1);
        if (c->render.choices != NULL)
            kvpi_render_free(&c->render);
        kvpi_job_drop(c->job);
    }
    free(c->body);
    free(c->out);
    free(c);
    *at = NULL;
}

static void count_connection(void *context, struct MHD_Connection *connection, void **at,
                             enum MHD_ConnectionNotificationCode code)
{
    kvpi_http *http = context;
    (void)connection;
    (void)at;
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        atomic_fetch_add(&http->counts.connections, 1);
    else
        atomic_fetch_sub(&http->counts.connections, 1);
}

static void say_nothing(void *context, const char *format, va_list arguments)
{
    const kvpi_http *http = context;
    if (http->api->options->is_verbose)
        (void)vfprintf(stderr, format, arguments);
}

/* ------------------------------------------------------------------------------- start and stop */

int kvpi_http_start(kvpi_http *http, kvpi_api *api)
{
    char port[16];
    const kvpi_options *options = api->options;
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    memset(http, 0, sizeof *http);
    http->api = api;
    (void)snprintf(port, sizeof port, "%u", options->port);
    if (getaddrinfo(options->host, port, &hints, &found) != 0 || found == NULL)
        return -1;
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                     MHD_USE_POLL | MHD_USE_ERROR_LOG | MHD_USE_ITC;
    if (found->ai_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    http->daemon = MHD_start_daemon(
        flags, (uint16_t)options->port, NULL, NULL, handle, http, MHD_OPTION_EXTERNAL_LOGGER,
        say_nothing, http, MHD_OPTION_SOCK_ADDR, found->ai_addr, MHD_OPTION_LISTENING_ADDRESS_REUSE,
        1u, MHD_OPTION_NOTIFY_COMPLETED, completed, http, MHD_OPTION_NOTIFY_CONNECTION,
        count_connection, http, MHD_OPTION_CONNECTION_LIMIT, options->max_connections,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_SECONDS, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES, MHD_OPTION_END);
    freeaddrinfo(found);
    if (http->daemon == NULL)
        return -1;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT);
    http->port = info != NULL ? info->port : options->port;
    return 0;
}

void kvpi_http_stop(kvpi_http *http)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    const MHD_socket listening = MHD_quiesce_daemon(http->daemon);
    if (listening != MHD_INVALID_SOCKET)
        (void)close(listening);
    for (uint32_t i = 0; i < LAST_WAITS && atomic_load(&http->calls) > 0; i++)
        (void)nanosleep(&pause, NULL);
    MHD_stop_daemon(http->daemon);
}
