/* kvpager record: records what a running engine is asked, through a proxy before it, or from the KV
 * events that it publishes (which needs libzmq: cmake/zmq.cmake).
 */
#include <event2/http.h>
#include <inttypes.h>
#include <kvpager/seed.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "tool/args.h"
#include "tool/record/proxy.h"
#include "tool/record/subscribe.h"
#include "tool/text.h"
#include "tool/tool.h"

#define COMMAND          "record"
#define DEFAULT_CONTENTS (UINT64_C(4) << 20)

typedef struct options {
    const char *engine, *listen, *out, *session_header, *stray;
    const char *events, *replay, *metrics;
    uint64_t block_tokens, max_contents, period_ms;
    bool lookups;
    char host[256], listen_host[256], metrics_path[256];
    uint16_t port, listen_port;
} options;

#define AT(member) .at = offsetof(options, member)

/* http://HOST[:PORT], and a path if it is asked for. */
static int read_url(const kvpi_args *args, const char *option, const char *url, options *of,
                    bool has_path)
{
    struct evhttp_uri *uri = evhttp_uri_parse(url);
    const char *scheme = uri == NULL ? NULL : evhttp_uri_get_scheme(uri);
    const char *host = uri == NULL ? NULL : evhttp_uri_get_host(uri);
    const char *path = uri == NULL ? NULL : evhttp_uri_get_path(uri);
    const int port = uri == NULL ? 0 : evhttp_uri_get_port(uri);
    const bool is_root = path == NULL || path[0] == '\0' || strcmp(path, "/") == 0;
    const bool fine = scheme != NULL && strcmp(scheme, "http") == 0 && host != NULL &&
                      host[0] != '\0' && strlen(host) < sizeof of->host && port != 0 &&
                      (is_root || (has_path && strlen(path) < sizeof of->metrics_path));
    if (fine) {
        snprintf(of->host, sizeof of->host, "%s", host);
        snprintf(of->metrics_path, sizeof of->metrics_path, "%s", is_root ? "/metrics" : path);
        of->port = (uint16_t)(port < 0 ? 80 : port);
    }
    if (uri != NULL)
        evhttp_uri_free(uri);
    return fine ? 0 : kvpi_args_wrong(args, "%s is '%s', expected http://HOST:PORT", option, url);
}

static int read_listen(const kvpi_args *args, options *of)
{
    const char *colon = strrchr(of->listen, ':');
    char *end = NULL;
    const unsigned long port = colon == NULL ? 65536 : strtoul(colon + 1, &end, 10);
    const size_t n = colon == NULL ? 0 : (size_t)(colon - of->listen);
    if (n == 0 || n >= sizeof of->listen_host || colon[1] < '0' || colon[1] > '9' || *end != '\0' ||
        port > 65535)
        return kvpi_args_wrong(args, "--listen is '%s', expected HOST:PORT", of->listen);
    memcpy(of->listen_host, of->listen, n);
    of->listen_host[n] = '\0';
    of->listen_port = (uint16_t)port;
    return 0;
}

/* One that no header can have would name no session, without a word. */
static int check_header(const kvpi_args *args, const options *of)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "abcdefghijklmnopqrstuvwxyz";
    const char *name = of->session_header;
    if (name[0] == '\0' || name[strspn(name, token)] != '\0')
        return kvpi_args_wrong(args, "--session-header is '%s', expected the name of a header",
                               name);
    return 0;
}

static const char *const of_proxy[] = {"--proxy", "--listen", "--session-header", NULL};
static const char *const of_events[] = {"--replay", "--metrics", "--lookups", "--period", NULL};

static int check_events(const kvpi_args *args, options *of)
{
    const char *const urls[] = {"--events", of->events, "--replay", of->replay};
    if (kvpi_args_any(args, of_proxy) != NULL)
        return kvpi_args_exclude(args, "--events", kvpi_args_any(args, of_proxy));
#if !defined(KVPI_HAS_ZMQ)
    return kvpi_args_wrong(args, "--events: this kvpager was built without libzmq");
#endif
    for (size_t i = 0; i < 4; i += 2)
        if (urls[i + 1] != NULL && strncmp(urls[i + 1], "tcp://", 6) != 0)
            return kvpi_args_wrong(args, "%s is '%s', expected tcp://HOST:PORT", urls[i],
                                   urls[i + 1]);
    if (of->lookups)
        return of->metrics != NULL ? kvpi_args_exclude(args, "--lookups", "--metrics") : 0;
    if (of->metrics == NULL)
        return kvpi_args_wrong(args, "--events needs --metrics URL, whose counters have what is "
                                     "hit as a whole, or --lookups");
    return read_url(args, "--metrics", of->metrics, of, true);
}

static int check_options(const kvpi_args *args, void *given)
{
    options *of = given;
    if (of->stray != NULL)
        return kvpi_args_wrong(args, "'%s' is no option", of->stray);
    if (of->engine == NULL && of->events == NULL)
        return kvpi_args_wrong(args, "--proxy or --events: which engine?");
    if (of->out == NULL)
        return kvpi_args_wrong(args, "--out: which file?");
    if (of->events != NULL)
        return check_events(args, of);
    if (kvpi_args_any(args, of_events) != NULL)
        return kvpi_args_needs(args, kvpi_args_any(args, of_events), "--events");
    if (read_url(args, "--proxy", of->engine, of, false) != 0 || check_header(args, of) != 0)
        return KVPI_ARGS_WRONG;
    return read_listen(args, of);
}

static const kvpi_args_option options_table[] = {
    {"--out", "FILE", "the recording, a new file (NAME.kvprec)", kvpi_args_text, AT(out), 0, 0,
     NULL, "Options", 'o'},
    {"--block-tokens", "N", "tokens of the engine's blocks (default 16)", kvpi_args_number,
     AT(block_tokens), 1, KVPI_RECORDING_MAX_BLOCK_TOKENS},
    {"--max-contents", "N",
     "so many different blocks are told apart, 96 bytes each,\nwith --events 250 (default "
     "4194304); older ones count as new",
     kvpi_args_number, AT(max_contents), 1, UINT32_MAX},
    {"--proxy", "URL", "the engine: http://HOST:PORT", kvpi_args_text, AT(engine),
     .title = "A proxy before it"},
    {"--listen", "HOST:PORT", "where clients connect to (default 127.0.0.1:8001)", kvpi_args_text,
     AT(listen)},
    {"--session-header", "NAME", "the header that names a session (default X-Session-Id)",
     kvpi_args_text, AT(session_header)},
    {"--events", "URL", "where it publishes: tcp://HOST:PORT", kvpi_args_text, AT(events),
     .title = "Its KV events"},
    {"--replay", "URL", "where it repeats what was missed: tcp://HOST:PORT", kvpi_args_text,
     AT(replay)},
    {"--metrics", "URL", "its counters: http://HOST:PORT", kvpi_args_text, AT(metrics)},
    {"--period", "S", "seconds between two looks at them (default 5)", kvpi_args_milli,
     AT(period_ms), 10, 3600000},
    {"--lookups", NULL,
     "it reports look-ups: requests have kv_cache_report_mode=full\nin their vllm_xargs",
     kvpi_args_yes, AT(lookups)},
    KVPI_ARGS_HELP,
    {NULL, NULL, "file", kvpi_args_file, AT(stray)},
};

static const kvpi_args_command command = {
    .name = COMMAND,
    .about =
        "Record what a running engine is asked.\n"
        "\n"
        "Usage: kvpager record --proxy http://ENGINE --listen HOST:PORT --out FILE\n"
        "       kvpager record --events tcp://ENGINE --metrics http://ENGINE --out FILE\n"
        "\n"
        "The proxy forwards calls and answers as they are. Chats and completions are recorded\n"
        "when their answers have ended; vLLM's /tokenize says the tokens of their prompts.\n"
        "With --enable-prompt-tokens-details of vLLM, the recording has the engine's own\n"
        "hits, too. From events alone hits are known between bounds. SIGINT ends the\n"
        "recording.\n",
    .options = options_table,
    .n_options = sizeof options_table / sizeof *options_table,
    .more = "\nThe file names neither tokens nor hashes: replay, mrc and events read it.\n",
    .check = check_options};

static int fill(kvpi_recorder_options *to, const options *of)
{
    struct timeval now;
    uint64_t random[2];
    if (kvp_random_seed(&random[0]) != KVP_OK || kvp_random_seed(&random[1]) != KVP_OK)
        return kvpi_tool_fail(COMMAND, "the system gives no random numbers");
    (void)gettimeofday(&now, NULL);
    memcpy(to->key, random, sizeof to->key);
    to->path = of->out;
    to->about = (kvpi_recording_about){.source = of->events == NULL ? KVPI_RECORDING_PROXY
                                                 : of->lookups      ? KVPI_RECORDING_LOOKUPS
                                                                    : KVPI_RECORDING_EVENTS,
                                       .block_tokens = (int32_t)of->block_tokens,
                                       .began_us = (int64_t)now.tv_sec * 1000000 + now.tv_usec,
                                       .max_contents = of->max_contents};
    snprintf(to->about.engine, sizeof to->about.engine, "%.250s",
             of->events == NULL ? of->engine : of->events);
    return TOOL_OK;
}

static int run_proxy(const options *of, const kvpi_recorder_options *to)
{
    kvpi_recorder *recorder = NULL;
    kvpi_recording_error error;
    const kvpi_proxy_options proxy = {.command = COMMAND,
                                      .engine = of->engine,
                                      .host = of->host,
                                      .listen_host = of->listen_host,
                                      .session_header = of->session_header,
                                      .port = of->port,
                                      .listen_port = of->listen_port,
                                      .began_us = to->about.began_us};
    if (kvpi_recorder_open(to, &recorder, &error) != 0)
        return kvpi_tool_fail(COMMAND, "%s: %s", of->out, error.text);
    const int status = kvpi_proxy_run(&proxy, recorder);
    const kvpi_recording_counts counts = kvpi_recorder_counts(recorder);
    if (kvpi_recorder_close(recorder, &error) != 0)
        return kvpi_tool_fail(COMMAND, "%s: %s", of->out, error.text);
    fprintf(stderr, "kvpager " COMMAND ": %s requests recorded, %s not\n",
            kvpi_text_count(counts.requests).of, kvpi_text_count(counts.lost).of);
    return status;
}

static int run_events(const options *of, const kvpi_recorder_options *to)
{
#if defined(KVPI_HAS_ZMQ)
    const kvpi_counters_at metrics = {of->host, of->port, of->metrics_path};
    const kvpi_subscribe_options subscribe = {.command = COMMAND,
                                              .path = of->out,
                                              .events = of->events,
                                              .replay = of->replay,
                                              .metrics = of->lookups ? NULL : &metrics,
                                              .period_ms = of->period_ms,
                                              .recorder = *to};
    return kvpi_subscribe_run(&subscribe);
#else
    (void)of, (void)to;
    return TOOL_FAILED; /* check_events has refused it */
#endif
}

static int run(const options *of)
{
    kvpi_recorder_options to = {0};
    const int status = fill(&to, of);
    if (status != TOOL_OK)
        return status;
    return of->events == NULL ? run_proxy(of, &to) : run_events(of, &to);
}

int cmd_record(int argc, char **argv)
{
    kvpi_args args;
    options of = {.listen = "127.0.0.1:8001",
                  .session_header = "X-Session-Id",
                  .block_tokens = 16,
                  .period_ms = 5000,
                  .max_contents = DEFAULT_CONTENTS};
    const int status = kvpi_args_parse(&args, &command, argc, argv, &of);
    return status == KVPI_ARGS_GO ? run(&of) : status;
}
