/* See proxy.h.
 *
 *   client -> exchange -> engine       forwarded at once, the answer chunk by chunk
 *             then, if it is recorded:
 *             task -> /tokenize        when the answer has ended; few at a time, in order
 *             -> recorder
 *
 * One thread. Connections to the engine are used again; evhttp opens a closed one when it is asked
 * to. An engine that is away is an error for the client, and is tried with the next request.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "tool/record/proxy.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tool/record/call.h"
#include "tool/record/clock.h"
#include "tool/tool.h"

enum {
    TIMEOUT_SECONDS = 86400, /* an answer may take long; a peer that closes is noticed at once */
    FLUSH_SECONDS = 2,
    MAX_TASKS = 4096,
    MAX_TOKENIZING = 4,
    MAX_HEADER_BYTES = 1 << 18
};
#define MAX_BODY_BYTES ((ev_ssize_t)256 << 20)
/* That wait for a client: then the engine is not read from until the client has taken them. */
#define MAX_WAITING_BYTES ((size_t)1 << 20)

typedef struct link {
    struct evhttp_connection *to;
    struct link *next_idle, *next;
} link;

typedef struct task {
    kvpi_call call;
    kvpi_recorded request;
    size_t n_prompt; /* of the call's tokens, if the answer's are behind them; 0: they are not */
    struct task *next;
} task;

/* What a question to /tokenize needs until it is answered. */
typedef struct question {
    struct proxy *of;
    task *task; /* NULL: nothing is asked */
    link *link;
} question;

typedef struct proxy {
    const kvpi_proxy_options *options;
    kvpi_recorder *recorder;
    struct event_base *base;
    struct evhttp *http;
    struct evhttp_bound_socket *socket; /* NULL: it ends */
    link *idle, *links;                 /* not in use, and all */
    question asked[MAX_TOKENIZING];
    bool is_ending;
    task *first, **last; /* wait to be tokenized */
    unsigned n_tasks, n_tokenizing, n_exchanges;
    unsigned n_recorded; /* exchanges that have a task */
    bool is_away, is_failed;
    const char *why_lost; /* the last reason that was printed */
    int64_t ahead_us;     /* of the monotonic clock: since 1970 */
} proxy;

typedef struct exchange {
    proxy *of;
    struct evhttp_request *client, *engine;
    link *link;
    kvpi_reply answer;
    task *task; /* NULL: it is not recorded */
    int64_t began_us;
    bool has_begun; /* the answer */
    bool is_cancelled;
} exchange;

static int64_t now_us(const proxy *of)
{
    return kvpi_monotonic_us() + of->ahead_us;
}

/* ------------------------------------------------------------------------------------ recording */

static void free_task(task *of)
{
    if (of != NULL)
        kvpi_call_free(&of->call);
    free(of);
}

static void end_if_done(proxy *of)
{
    if (of->socket == NULL && of->n_exchanges == 0 && of->n_tokenizing == 0 && of->first == NULL)
        (void)event_base_loopbreak(of->base);
}

static void lose(proxy *of, const char *why)
{
    kvpi_recorder_lost(of->recorder, 1);
    if (of->why_lost != why)
        kvpi_tool_fail(of->options->command, "a request is not recorded: %s", why);
    of->why_lost = why;
}

static void record(proxy *of, const task *done)
{
    kvpi_recording_error error;
    kvpi_recorded request = done->request;
    request.input_tokens = (int64_t)(done->n_prompt > 0 ? done->n_prompt : done->call.n_tokens);
    if (request.cached_tokens > request.input_tokens)
        request.cached_tokens = KVPI_RECORDED_UNKNOWN;
    request.scope = kvpi_recorder_scope(of->recorder, done->call.scope, done->call.scope_bytes);
    /* The KV of an answer's last token is never computed. */
    const size_t n = done->call.n_tokens - (done->call.n_tokens > (size_t)request.input_tokens);
    if (kvpi_recorder_add_tokens(of->recorder, &request, done->call.scope, done->call.scope_bytes,
                                 done->call.tokens, n, &error) == 0 ||
        of->is_failed)
        return;
    of->is_failed = true;
    kvpi_tool_fail(of->options->command, "%s; requests are forwarded all the same", error.text);
}

static link *take_link(proxy *of)
{
    link *found = of->idle;
    if (found != NULL) {
        of->idle = found->next_idle;
        return found;
    }
    found = calloc(1, sizeof *found);
    if (found == NULL)
        return NULL;
    found->to = evhttp_connection_base_new(of->base, NULL, of->options->host, of->options->port);
    if (found->to == NULL) {
        free(found);
        return NULL;
    }
    evhttp_connection_set_timeout(found->to, TIMEOUT_SECONDS);
    found->next = of->links;
    of->links = found;
    return found;
}

static void give_link(proxy *of, link *used)
{
    used->next_idle = of->idle;
    of->idle = used;
}

static void tokenize(proxy *of);

static void on_tokenized(struct evhttp_request *answer, void *context)
{
    question *asked = context;
    proxy *of = asked->of;
    const char *why = "the engine is away: its tokens are not known";
    if (answer != NULL && evhttp_request_get_response_code(answer) == 200) {
        struct evbuffer *body = evhttp_request_get_input_buffer(answer);
        const size_t n = evbuffer_get_length(body);
        const char *text = (const char *)evbuffer_pullup(body, -1);
        why = kvpi_call_tokenized(&asked->task->call, text, n);
    } else if (answer != NULL && evhttp_request_get_response_code(answer) != 0) {
        why = "the engine's /tokenize refused its prompt";
    }
    if (why == NULL)
        record(of, asked->task);
    else
        lose(of, why);
    give_link(of, asked->link);
    free_task(asked->task);
    *asked = (question){0};
    of->n_tokenizing--;
    tokenize(of);
    end_if_done(of);
}

/* Send it. False: no memory. */
static bool ask(question *asked)
{
    char *text = json_dumps(asked->task->call.tokenize, JSON_COMPACT);
    struct evhttp_request *request = evhttp_request_new(on_tokenized, asked);
    bool fine = text != NULL && request != NULL;
    if (fine) {
        struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
        fine = evhttp_add_header(headers, "Content-Type", "application/json") == 0 &&
               evhttp_add_header(headers, "Host", asked->of->options->host) == 0 &&
               evbuffer_add(evhttp_request_get_output_buffer(request), text, strlen(text)) == 0;
    }
    if (fine) /* on a failure the request is freed, and on_tokenized may have been called */
        (void)evhttp_make_request(asked->link->to, request, EVHTTP_REQ_POST, "/tokenize");
    else if (request != NULL)
        evhttp_request_free(request);
    free(text);
    return fine;
}

static question *free_question(proxy *of)
{
    question *at = of->asked;
    while (at->task != NULL)
        at++;
    return at;
}

/* Ask for what waits, a few at a time. */
static void tokenize(proxy *of)
{
    while (of->first != NULL && of->n_tokenizing < MAX_TOKENIZING && !of->is_ending) {
        question *asked = free_question(of);
        *asked = (question){of, of->first, take_link(of)};
        of->first = asked->task->next;
        of->last = of->first == NULL ? &of->first : of->last;
        of->n_tasks--;
        of->n_tokenizing++;
        if (asked->link != NULL && ask(asked))
            continue;
        of->n_tokenizing--;
        if (asked->link != NULL)
            give_link(of, asked->link);
        free_task(asked->task);
        *asked = (question){0};
        lose(of, "out of memory");
    }
}

/* An exchange has ended, or its client has gone. */
static void queue(exchange *done)
{
    proxy *of = done->of;
    task *made = done->task;
    kvpi_reply *answer = &done->answer;
    done->task = NULL;
    of->n_recorded--;
    made->request.last_us = now_us(of) - done->began_us;
    made->request.cached_tokens = answer->cached_tokens;
    made->request.output_tokens =
        answer->output_tokens >= 0 ? answer->output_tokens : (int64_t)answer->n_chunks;
    if (kvpi_call_take_ids(&made->call, answer, &made->n_prompt)) {
        const int64_t n = (int64_t)(made->call.n_tokens - made->n_prompt);
        made->request.output_tokens = n > answer->output_tokens ? n : answer->output_tokens;
    }
    if (made->call.tokenize == NULL) {
        record(of, made);
        free_task(made);
    } else if (of->n_tasks == MAX_TASKS) {
        lose(of, "its tokens are asked for too slowly");
        free_task(made);
    } else {
        *of->last = made;
        of->last = &made->next;
        of->n_tasks++;
        tokenize(of);
    }
}

/* ----------------------------------------------------------------------------------- forwarding */

static bool is_hop(const char *name)
{
    static const char *const names[] = {
        "Connection",        "Expect", "Host", "Keep-Alive", "Proxy-Connection", "TE", "Trailer",
        "Transfer-Encoding", "Upgrade"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (evutil_ascii_strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

static void copy_headers(const struct evkeyvalq *from, struct evkeyvalq *to)
{
    for (const struct evkeyval *at = from->tqh_first; at != NULL; at = at->next.tqe_next)
        if (!is_hop(at->key))
            (void)evhttp_add_header(to, at->key, at->value);
}

static void drop_task(exchange *of)
{
    of->of->n_recorded -= of->task != NULL;
    free_task(of->task);
    of->task = NULL;
}

static void free_exchange(exchange *done)
{
    proxy *of = done->of;
    drop_task(done);
    kvpi_reply_free(&done->answer);
    free(done);
    of->n_exchanges--;
    end_if_done(of);
}

/* An answer of ours, in the form that OpenAI's clients read. */
static void refuse(proxy *of, struct evhttp_request *client, int code, const char *what)
{
    struct evbuffer *body = evbuffer_new();
    json_t *error = json_pack("{s:{s:s+++,s:s,s:i}}", "error", "message", "kvpager record, before ",
                              of->options->engine, ": ", what, "type", "proxy_error", "code", code);
    char *text = error == NULL ? NULL : json_dumps(error, JSON_COMPACT);
    if (body != NULL && text != NULL)
        (void)evbuffer_add(body, text, strlen(text));
    (void)evhttp_add_header(evhttp_request_get_output_headers(client), "Content-Type",
                            "application/json");
    if (code == 503)
        (void)evhttp_add_header(evhttp_request_get_output_headers(client), "Retry-After", "1");
    evhttp_send_reply(client, code, NULL, body);
    if (body != NULL)
        evbuffer_free(body);
    free(text);
    json_decref(error);
}

/* A small chunk does not wait for the acknowledgement of the one before. */
static void send_at_once(struct evhttp_connection *connection)
{
    const int yes = 1;
    const evutil_socket_t socket = bufferevent_getfd(evhttp_connection_get_bufferevent(connection));
    (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static void note_away(proxy *of, bool is_away)
{
    if (is_away != of->is_away)
        kvpi_tool_fail(of->options->command, "the engine at %s %s", of->options->engine,
                       is_away ? "is away; it is tried again with each request" : "is back");
    of->is_away = is_away;
}

/* The client has closed: the engine need not go on. */
static void on_client_closed(struct evhttp_connection *connection, void *context)
{
    exchange *of = context;
    (void)connection;
    /* evhttp gives up what its connection no longer has; when it is freed, it frees that itself. */
    if (!of->of->is_ending)
        evhttp_request_free(of->client);
    of->client = NULL;
    of->is_cancelled = true;
    if (of->engine != NULL)
        evhttp_cancel_request(of->engine);
    give_link(of->of, of->link);
    if (of->task != NULL && of->has_begun && !of->of->is_ending)
        queue(of);
    free_exchange(of);
}

/* The client has taken what came. */
static void on_written(struct evhttp_connection *connection, void *context)
{
    const exchange *of = context;
    (void)connection;
    (void)bufferevent_enable(evhttp_connection_get_bufferevent(of->link->to), EV_READ);
}

static int on_headers(struct evhttp_request *answer, void *context)
{
    exchange *of = context;
    const struct evkeyvalq *headers = evhttp_request_get_input_headers(answer);
    const char *type = evhttp_find_header(headers, "Content-Type");
    const int code = evhttp_request_get_response_code(answer);
    if (code < 200) /* 100: the answer follows */
        return 0;
    note_away(of->of, false);
    send_at_once(of->link->to);
    send_at_once(evhttp_request_get_connection(of->client));
    kvpi_reply_begin(&of->answer, type != NULL && strncmp(type, "text/event-stream", 17) == 0);
    copy_headers(headers, evhttp_request_get_output_headers(of->client));
    evhttp_send_reply_start(of->client, code, evhttp_request_get_response_code_line(answer));
    of->has_begun = true;
    if (code != 200) /* it computed nothing */
        drop_task(of);
    return 0;
}

static void on_chunk(struct evhttp_request *answer, void *context)
{
    exchange *of = context;
    struct evbuffer *body = evhttp_request_get_input_buffer(answer);
    if (of->task != NULL) {
        if (of->task->request.first_us < 0)
            of->task->request.first_us = now_us(of->of) - of->began_us;
        const size_t n = evbuffer_get_length(body);
        kvpi_reply_take(&of->answer, (const char *)evbuffer_pullup(body, -1), n);
    }
    struct bufferevent *to =
        evhttp_connection_get_bufferevent(evhttp_request_get_connection(of->client));
    /* It takes the bytes. */
    if (evbuffer_get_length(bufferevent_get_output(to)) < MAX_WAITING_BYTES) {
        evhttp_send_reply_chunk(of->client, body);
        return;
    }
    (void)bufferevent_disable(evhttp_connection_get_bufferevent(of->link->to), EV_READ);
    evhttp_send_reply_chunk_with_cb(of->client, body, on_written, of);
}

/* The engine broke off: what came is written, and the client sees that it has no end. */
static void cut(struct evhttp_connection *connection)
{
    struct bufferevent *stream = evhttp_connection_get_bufferevent(connection);
    struct evbuffer *output = bufferevent_get_output(stream);
    if (evbuffer_unfreeze(output, 1) == 0)
        (void)evbuffer_write(output, bufferevent_getfd(stream));
    evhttp_connection_free(connection);
}

/* The engine has answered, or is away, or broke off. */
static void on_done(struct evhttp_request *answer, void *context)
{
    exchange *of = context;
    if (of->is_cancelled)
        return; /* on_client_closed goes on */
    struct evhttp_request *client = of->client;
    struct evhttp_connection *connection = evhttp_request_get_connection(client);
    const bool is_whole = answer != NULL && evhttp_request_get_response_code(answer) != 0;
    evhttp_connection_set_closecb(connection, NULL, NULL);
    give_link(of->of, of->link);
    if (of->task != NULL && of->has_begun) {
        kvpi_reply_end(&of->answer);
        queue(of);
    }
    if (is_whole && of->has_begun) {
        evhttp_send_reply_end(client);
    } else if (of->has_begun) {
        cut(connection);
    } else {
        note_away(of->of, true);
        refuse(of->of, client, 503, "the engine is away");
    }
    free_exchange(of);
}

/* Is it a call that is recorded? Then it has a task. */
static void begin_task(exchange *made, const char *path, struct evbuffer *body)
{
    proxy *of = made->of;
    const bool is_chat = strcmp(path, "/v1/chat/completions") == 0;
    if ((!is_chat && strcmp(path, "/v1/completions") != 0) ||
        evhttp_request_get_command(made->client) != EVHTTP_REQ_POST)
        return;
    made->task = calloc(1, sizeof *made->task);
    if (made->task == NULL) {
        lose(of, "out of memory");
        return;
    }
    of->n_recorded++;
    const size_t n = evbuffer_get_length(body);
    const char *session = evhttp_find_header(evhttp_request_get_input_headers(made->client),
                                             of->options->session_header);
    const char *why =
        kvpi_call_read(&made->task->call, (const char *)evbuffer_pullup(body, -1), n, is_chat);
    made->task->request = (kvpi_recorded){.time_us = made->began_us,
                                          .cached_tokens = KVPI_RECORDED_UNKNOWN,
                                          .first_us = KVPI_RECORDED_UNKNOWN,
                                          .last_us = KVPI_RECORDED_UNKNOWN};
    if (session != NULL)
        made->task->request.session = kvpi_recorder_session(of->recorder, session, strlen(session));
    if (why == NULL)
        return;
    lose(of, why);
    drop_task(made);
}

static bool begin_exchange(exchange *made, const char *uri)
{
    struct evhttp_request *client = made->client;
    made->link = take_link(made->of);
    made->engine = made->link == NULL ? NULL : evhttp_request_new(on_done, made);
    if (made->engine == NULL) {
        if (made->link != NULL)
            give_link(made->of, made->link);
        return false;
    }
    struct evkeyvalq *headers = evhttp_request_get_output_headers(made->engine);
    copy_headers(evhttp_request_get_input_headers(client), headers);
    char host[300];
    snprintf(host, sizeof host, "%.250s:%u", made->of->options->host, made->of->options->port);
    (void)evhttp_add_header(headers, "Host", host);
    (void)evbuffer_add_buffer(evhttp_request_get_output_buffer(made->engine),
                              evhttp_request_get_input_buffer(client));
    evhttp_request_set_header_cb(made->engine, on_headers);
    evhttp_request_set_chunked_cb(made->engine, on_chunk);
    evhttp_connection_set_closecb(evhttp_request_get_connection(client), on_client_closed, made);
    /* It may have failed, and called on_done, when this returns. */
    (void)evhttp_make_request(made->link->to, made->engine, evhttp_request_get_command(client),
                              uri);
    return true;
}

static void on_request(struct evhttp_request *client, void *context)
{
    proxy *of = context;
    const char *uri = evhttp_request_get_uri(client);
    const struct evhttp_uri *parts = evhttp_request_get_evhttp_uri(client);
    const char *path = parts == NULL ? NULL : evhttp_uri_get_path(parts);
    exchange *made = calloc(1, sizeof *made);
    if (made == NULL || path == NULL || uri[0] != '/') {
        free(made);
        refuse(of, client, path == NULL || uri[0] != '/' ? 400 : 500,
               "expected a path that begins with /, and memory");
        return;
    }
    *made = (exchange){.of = of, .client = client, .began_us = now_us(of)};
    of->n_exchanges++;
    begin_task(made, path, evhttp_request_get_input_buffer(client));
    if (begin_exchange(made, uri))
        return;
    refuse(of, client, 500, "out of memory");
    free_exchange(made);
}

/* -------------------------------------------------------------------------------------- running */

static void on_signal(evutil_socket_t number, short what, void *context)
{
    proxy *of = context;
    (void)number, (void)what;
    if (of->socket == NULL) { /* the second one */
        (void)event_base_loopbreak(of->base);
        return;
    }
    evhttp_del_accept_socket(of->http, of->socket);
    of->socket = NULL;
    end_if_done(of);
}

static void on_timer(evutil_socket_t number, short what, void *context)
{
    proxy *of = context;
    kvpi_recording_error error;
    (void)number, (void)what;
    if (kvpi_recorder_flush(of->recorder, &error) == 0 || of->is_failed)
        return;
    of->is_failed = true;
    kvpi_tool_fail(of->options->command, "%s; requests are forwarded all the same", error.text);
}

static int begin(proxy *of)
{
    struct sockaddr_storage at;
    ev_socklen_t n = sizeof at;
    const kvpi_proxy_options *options = of->options;
    of->base = event_base_new();
    of->http = of->base == NULL ? NULL : evhttp_new(of->base);
    if (of->http == NULL)
        return kvpi_tool_fail(options->command, "out of memory");
    evhttp_set_allowed_methods(of->http, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD |
                                             EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |
                                             EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PATCH);
    evhttp_set_timeout(of->http, TIMEOUT_SECONDS);
    evhttp_set_max_body_size(of->http, MAX_BODY_BYTES);
    evhttp_set_max_headers_size(of->http, MAX_HEADER_BYTES);
    evhttp_set_default_content_type(of->http, NULL);
    evhttp_set_gencb(of->http, on_request, of);
    of->socket =
        evhttp_bind_socket_with_handle(of->http, options->listen_host, options->listen_port);
    if (of->socket == NULL)
        return kvpi_tool_fail(options->command, "cannot listen on %s:%u: %s", options->listen_host,
                              options->listen_port,
                              evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
    if (getsockname(evhttp_bound_socket_get_fd(of->socket), (struct sockaddr *)&at, &n) == 0) {
        const uint16_t port = at.ss_family == AF_INET6
                                  ? ntohs(((struct sockaddr_in6 *)&at)->sin6_port)
                                  : ntohs(((struct sockaddr_in *)&at)->sin_port);
        fprintf(stderr, "kvpager %s: listening on http://%s:%u, for %s\n", options->command,
                options->listen_host, port, options->engine);
    }
    return TOOL_OK;
}

static int loop(proxy *of)
{
    const struct timeval period = {FLUSH_SECONDS, 0};
    struct event *events[] = {evsignal_new(of->base, SIGINT, on_signal, of),
                              evsignal_new(of->base, SIGTERM, on_signal, of),
                              event_new(of->base, -1, EV_PERSIST, on_timer, of)};
    bool fine = true;
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        fine = fine && events[i] != NULL && event_add(events[i], i == 2 ? &period : NULL) == 0;
    if (fine)
        (void)event_base_dispatch(of->base);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i] != NULL)
            event_free(events[i]);
    return fine ? TOOL_OK : kvpi_tool_fail(of->options->command, "out of memory");
}

/* After a second signal: what is under way is cut, and what waits is lost. */
static void end(proxy *of)
{
    of->is_ending = true;
    kvpi_recorder_lost(of->recorder, of->n_tasks + of->n_tokenizing + of->n_recorded);
    if (of->http != NULL)
        evhttp_free(of->http); /* closes the clients' connections: on_client_closed */
    while (of->links != NULL) {
        link *next = of->links->next;
        evhttp_connection_free(of->links->to);
        free(of->links);
        of->links = next;
    }
    for (size_t i = 0; i < MAX_TOKENIZING; i++)
        free_task(of->asked[i].task);
    while (of->first != NULL) {
        task *next = of->first->next;
        free_task(of->first);
        of->first = next;
    }
    if (of->base != NULL)
        event_base_free(of->base);
}

int kvpi_proxy_run(const kvpi_proxy_options *options, kvpi_recorder *recorder)
{
    proxy of = {.options = options,
                .recorder = recorder,
                .ahead_us = options->began_us - kvpi_monotonic_us()};
    of.last = &of.first;
    (void)signal(SIGPIPE, SIG_IGN);
    int status = begin(&of);
    if (status == TOOL_OK)
        status = loop(&of);
    end(&of);
    return of.is_failed && status == TOOL_OK ? TOOL_FAILED : status;
}
