/* kvpager-serve: a model, an engine's thread, and HTTP threads around it. */
#define _POSIX_C_SOURCE 200809L

#include "engine/backends.h"
#include "engine/loop.h"
#include "engine/restart.h"
#include "http/http.h"

#include "models.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static void log_warnings(enum ggml_log_level level, const char *text, void *context)
{
    (void)context;
    if (level == GGML_LOG_LEVEL_ERROR)
        (void)fputs(text, stderr);
}

static int refuse(const char *what, const char *why)
{
    fprintf(stderr, "kvpager-serve: %s: %s\n", what, why);
    return 1;
}

/* A connection has a socket and an eventfd. */
static void allow_files(uint32_t max_connections)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    const rlim_t wanted = (rlim_t)2 * max_connections + 64;
    if (limit.rlim_cur < wanted) {
        limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* A template that llama_chat_apply_template does not know is refused now, and by name later. */
static void choose_template(kvpi_api *api, const struct llama_model *model)
{
    static char why[200];
    const llama_chat_message hello = {"user", "hello"};
    const char *name = api->options->chat_template;
    const char *found = name != NULL ? name : llama_model_chat_template(model, NULL);
    if (found != NULL && llama_chat_apply_template(found, &hello, 1, true, NULL, 0) >= 0) {
        api->chat_template = found;
        return;
    }
    (void)snprintf(
        why, sizeof why, "%.60s has %s; name one with --chat-template, or use /v1/completions",
        api->model_name, found == NULL ? "no chat template" : "a chat template that is not known");
    api->no_chat = why;
}

/* Until a signal, or until the engine breaks. */
static int wait_for_end(kvpi_loop *loop, const sigset_t *signals)
{
    const struct timespec pause = {.tv_nsec = 500000000};
    while (!atomic_load(&loop->is_broken)) {
        const int number = sigtimedwait(signals, NULL, &pause);
        if (number == SIGTERM || number == SIGINT)
            return 0;
    }
    return refuse("engine", "llama.cpp does not hold what it should; ending");
}

/* What became of the snapshot of the run before. */
static void report_restart(const kvpi_loop *loop)
{
    const char *path = loop->options->snapshot;
    if (loop->not_restored.text[0] != '\0')
        (void)fprintf(stderr,
                      "kvpager-serve: %s: %s; nothing is cached, and the file is "
                      "replaced when the server ends\n",
                      path, loop->not_restored.text);
    else if (loop->restored.blocks + loop->restored.dropped_blocks > 0)
        printf("kvpager-serve: %llu blocks of %s are cached, %llu were left out\n",
               (unsigned long long)loop->restored.blocks, path,
               (unsigned long long)loop->restored.dropped_blocks);
}

static int save(kvpi_loop *loop)
{
    kvp_why why = {0};
    if (loop->options->snapshot == NULL || kvpi_restart_save(loop, &why) == 0)
        return 0;
    return refuse(loop->options->snapshot, why.text);
}

static int serve(const kvpi_options *options, struct llama_model *model, const sigset_t *signals)
{
    static kvpi_loop loop;
    static kvpi_http http;
    kvp_why why = {0};
    kvpi_api api = {.options = options,
                    .loop = &loop,
                    .created = (int64_t)time(NULL),
                    .vocab = llama_model_get_vocab(model),
                    .model_name =
                        options->alias != NULL ? options->alias : base_name(options->model)};
    choose_template(&api, model);
    if (options->chat_template != NULL && api.chat_template == NULL)
        return refuse("--chat-template", "llama.cpp has none of this name");
    if (kvpi_loop_start(&loop, options, model, &why) != 0)
        return refuse(why.field[0] != '\0' ? why.field : "engine",
                      why.text[0] != '\0' ? why.text : "no memory");
    int status;
    if (kvpi_http_start(&http, &api) != 0) {
        kvpi_loop_stop(&loop);
        status = refuse(options->host, "cannot listen there");
    } else {
        const int is_v6 = strchr(options->host, ':') != NULL;
        printf("kvpager-serve: %s at http://%s%s%s:%u/\n", api.model_name, is_v6 ? "[" : "",
               options->host, is_v6 ? "]" : "", http.port);
        if (!kvpi_options_is_loopback(options->host) && options->api_key == NULL)
            printf("kvpager-serve: without --api-key everybody who reaches it may use it\n");
        report_restart(&loop);
        (void)fflush(stdout);
        status = wait_for_end(&loop, signals);
        kvpi_loop_stop(&loop);
        kvpi_http_stop(&http);
        if (status == 0 && !atomic_load(&loop.is_broken))
            status = save(&loop);
    }
    kvpi_loop_free(&loop);
    return status;
}

int main(int argc, char **argv)
{
    kvpi_options options;
    char why_option[200];
    kvp_why why = {0};
    sigset_t signals;
    const int read = kvpi_options_read(&options, argc, argv, why_option);
    if (read == KVPI_OPTIONS_HELP) {
        kvpi_options_help(stdout);
        return 0;
    }
    if (read != KVPI_OPTIONS_OK) {
        (void)fprintf(stderr, "kvpager-serve: %s\n", why_option);
        return 2;
    }
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL); /* threads inherit it */
    (void)signal(SIGPIPE, SIG_IGN);
    allow_files(options.max_connections);
    if (!kvpi_models_fits(llama_context_default_params, &why) ||
        !kvpi_models_fits_programs((kvpi_models_function)llama_model_default_params, &why))
        return refuse(why.field, why.text);
    if (options.snapshot != NULL && kvpi_restart_check(options.snapshot, &why) != 0)
        return refuse(options.snapshot, why.text);
    if (!options.is_verbose)
        llama_log_set(log_warnings, NULL);
    llama_backend_init();
    if (kvpi_backends_load(&options, getenv("GGML_BACKEND_PATH")) != 0)
        return refuse("GGML_BACKEND_PATH", "ggml cannot load this back end (-v: why)");
    struct llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = options.gpu_layers;
    struct llama_model *model = llama_model_load_from_file(options.model, params);
    if (model == NULL)
        return refuse(options.model, "llama.cpp cannot load it (-v: why)");
    const int status = serve(&options, model, &signals);
    llama_model_free(model);
    llama_backend_free();
    return status;
}
