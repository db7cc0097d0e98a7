/* render: JSON by jansson, which refuses what is no UTF-8; what it gets here is. */
#define _POSIX_C_SOURCE 200809L

#include "render.h"
#include "../engine/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const kvpi_stops no_stops;

int kvpi_render_init(kvpi_render *render, const kvpi_api *api, kvpi_job *job, kvpi_form form)
{
    memset(render, 0, sizeof *render);
    *render = (kvpi_render){.api = api, .job = job, .form = form, .created = (int64_t)time(NULL)};
    render->choices = calloc(job->n_samples, sizeof *render->choices);
    return render->choices != NULL ? 0 : -1;
}

void kvpi_render_free(kvpi_render *render)
{
    for (uint32_t i = 0; render->choices != NULL && i < render->job->n_samples; i++) {
        kvpi_text_free(&render->choices[i].text);
        json_decref(render->choices[i].logprobs);
    }
    free(render->choices);
    render->choices = NULL;
}

const char *kvpi_render_error(const kvpi_render *render)
{
    (void)pthread_mutex_lock(&render->job->mutex);
    const char *error = render->job->error;
    (void)pthread_mutex_unlock(&render->job->mutex);
    return error;
}

/* ------------------------------------------------------------------------------------- logprobs */

/* A token's text. Bytes that are no whole character are U+FFFD. */
static json_t *token_text(const kvpi_render *render, int32_t token, char *bytes, int32_t *out_n)
{
    kvpi_text text = {0};
    const int32_t n =
        token < 0 ? 0 : llama_token_to_piece(render->api->vocab, token, bytes, 256, 0, true);
    *out_n = n > 0 ? n : 0;
    (void)kvpi_text_put(&text, bytes, (size_t)*out_n, &no_stops);
    (void)kvpi_text_end(&text);
    json_t *made = json_stringn(text.bytes != NULL ? text.bytes : "", text.n);
    kvpi_text_free(&text);
    return made;
}

static json_t *number(float logprob)
{
    return json_real(isinf(logprob) ? -9999.0 : (double)logprob);
}

static json_t *chat_entry(const kvpi_render *render, const kvpi_logprob *of)
{
    char bytes[256] = "";
    int32_t n;
    json_t *text = token_text(render, of->token, bytes, &n), *list = json_array();
    for (int32_t i = 0; i < n; i++)
        (void)json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    return json_pack("{s:o, s:o, s:o}", "token", text, "logprob", number(of->logprob), "bytes",
                     list);
}

static void add_chat(const kvpi_render *render, json_t *logprobs, const kvpi_logprob *of)
{
    json_t *entry = chat_entry(render, of), *top = json_array();
    for (int32_t i = 0; i < render->job->sampling.n_logprobs; i++)
        (void)json_array_append_new(top, chat_entry(render, &of[1 + i]));
    (void)json_object_set_new(entry, "top_logprobs", top);
    (void)json_array_append_new(json_object_get(logprobs, "content"), entry);
}

static uint32_t count_characters(const char *text)
{
    uint32_t n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

static void add_plain(const kvpi_render *render, json_t *logprobs, kvpi_choice *choice,
                      const kvpi_logprob *of)
{
    char bytes[256] = "";
    int32_t n;
    json_t *text = token_text(render, of->token, bytes, &n), *top = json_object();
    for (int32_t i = 0; i < render->job->sampling.n_logprobs; i++) {
        json_t *name = token_text(render, of[1 + i].token, bytes, &n);
        (void)json_object_set_new(top, json_string_value(name), number(of[1 + i].logprob));
        json_decref(name);
    }
    (void)json_array_append_new(json_object_get(logprobs, "text_offset"),
                                json_integer((json_int_t)choice->offset));
    choice->offset += count_characters(json_string_value(text));
    (void)json_array_append_new(json_object_get(logprobs, "tokens"), text);
    (void)json_array_append_new(json_object_get(logprobs, "token_logprobs"), number(of->logprob));
    (void)json_array_append_new(json_object_get(logprobs, "top_logprobs"), top);
}

static json_t *empty_logprobs(const kvpi_render *render)
{
    if (render->job->sampling.n_logprobs < 0)
        return json_null();
    return render->form.is_chat ? json_pack("{s:[]}", "content")
                                : json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs",
                                            "top_logprobs", "text_offset");
}

static void add_logprobs(const kvpi_render *render, json_t *logprobs, const kvpi_piece *piece)
{
    kvpi_choice *choice = &render->choices[piece->sample];
    if (piece->logprobs == NULL || !json_is_object(logprobs))
        return;
    if (render->form.is_chat)
        add_chat(render, logprobs, piece->logprobs);
    else
        add_plain(render, logprobs, choice, piece->logprobs);
}

/* -------------------------------------------------------------------------------------- answers */

static json_t *finish_json(kvpi_finish finish)
{
    return finish == KVPI_FINISH_STOP     ? json_string("stop")
           : finish == KVPI_FINISH_LENGTH ? json_string("length")
                                          : json_null();
}

static json_t *usage_json(const kvpi_render *render)
{
    kvpi_job *job = render->job;
    (void)pthread_mutex_lock(&job->mutex);
    json_t *usage =
        json_pack("{s:i, s:i, s:i, s:{s:i, s:s}}", "prompt_tokens", (int)job->n_tokens,
                  "completion_tokens", (int)job->new_tokens, "total_tokens",
                  (int)(job->n_tokens + job->new_tokens), "prompt_tokens_details", "cached_tokens",
                  (int)job->cached_tokens, "hit_ended", kvpi_state_stop_name(job->stop));
    (void)pthread_mutex_unlock(&job->mutex);
    return usage;
}

static json_t *envelope(const kvpi_render *render, const char *object, json_t *choices)
{
    char id[48];
    (void)snprintf(id, sizeof id, "%s-%llu", render->form.is_chat ? "chatcmpl" : "cmpl",
                   (unsigned long long)render->job->id);
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", id, "object", object, "created",
                     (json_int_t)render->created, "model", render->api->model_name, "choices",
                     choices);
}

/* "data: ", the JSON, and an empty line. */
static char *event_of(json_t *made)
{
    char *text = made != NULL ? json_dumps(made, JSON_COMPACT) : NULL;
    json_decref(made);
    if (text == NULL)
        return NULL;
    const size_t n = strlen(text) + 16;
    char *event = malloc(n);
    if (event != NULL)
        (void)snprintf(event, n, "data: %s\n\n", text);
    free(text);
    return event;
}

static const char *chunk_name(const kvpi_render *render)
{
    return render->form.is_chat ? "chat.completion.chunk" : "text_completion";
}

static json_t *error_json(const char *text)
{
    return json_pack("{s:{s:s, s:s, s:n, s:i}}", "error", "message", text, "type", "server_error",
                     "param", "code", 503);
}

char *kvpi_render_event(kvpi_render *render, const kvpi_piece *piece)
{
    kvpi_choice *choice = &render->choices[piece->sample];
    render->n_over += piece->finish != KVPI_FINISH_NONE;
    if (piece->finish == KVPI_FINISH_FAILED) {
        const char *error = kvpi_render_error(render);
        return event_of(error_json(error != NULL ? error : "failed"));
    }
    if (piece->n_bytes == 0 && piece->finish == KVPI_FINISH_NONE && piece->logprobs == NULL)
        return strdup("");
    json_t *logprobs = empty_logprobs(render), *text = json_stringn(piece->text, piece->n_bytes);
    add_logprobs(render, logprobs, piece);
    json_t *made;
    if (render->form.is_chat) {
        json_t *delta = json_pack("{s:o}", "content", text);
        if (!choice->has_begun)
            (void)json_object_set_new(delta, "role", json_string("assistant"));
        made = json_pack("{s:i, s:o, s:o, s:o}", "index", (int)piece->sample, "delta", delta,
                         "logprobs", logprobs, "finish_reason", finish_json(piece->finish));
    } else {
        made = json_pack("{s:i, s:o, s:o, s:o}", "index", (int)piece->sample, "text", text,
                         "logprobs", logprobs, "finish_reason", finish_json(piece->finish));
    }
    choice->has_begun = 1;
    return event_of(envelope(render, chunk_name(render), json_pack("[o]", made)));
}

char *kvpi_render_last(kvpi_render *render)
{
    static const char done[] = "data: [DONE]\n\n";
    if (!render->form.wants_usage)
        return strdup(done);
    json_t *made = envelope(render, chunk_name(render), json_array());
    (void)json_object_set_new(made, "usage", usage_json(render));
    char *usage = event_of(made);
    if (usage == NULL)
        return NULL;
    char *both = realloc(usage, strlen(usage) + sizeof done);
    if (both == NULL)
        free(usage);
    return both != NULL ? strcat(both, done) : NULL;
}

int kvpi_render_keep(kvpi_render *render, const kvpi_piece *piece)
{
    kvpi_choice *choice = &render->choices[piece->sample];
    if (choice->logprobs == NULL)
        choice->logprobs = empty_logprobs(render);
    add_logprobs(render, choice->logprobs, piece);
    if (piece->finish != KVPI_FINISH_NONE) {
        choice->finish = piece->finish;
        render->n_over++;
    }
    return kvpi_text_put(&choice->text, piece->text, piece->n_bytes, &no_stops);
}

char *kvpi_render_whole(kvpi_render *render)
{
    json_t *choices = json_array();
    for (uint32_t i = 0; i < render->job->n_samples; i++) {
        kvpi_choice *choice = &render->choices[i];
        json_t *text =
            json_stringn(choice->text.bytes != NULL ? choice->text.bytes : "", choice->text.n);
        json_t *logprobs = choice->logprobs != NULL ? json_incref(choice->logprobs) : json_null();
        json_t *finish = finish_json(choice->finish);
        (void)json_array_append_new(
            choices, render->form.is_chat
                         ? json_pack("{s:i, s:{s:s, s:o}, s:o, s:o}", "index", (int)i, "message",
                                     "role", "assistant", "content", text, "logprobs", logprobs,
                                     "finish_reason", finish)
                         : json_pack("{s:i, s:o, s:o, s:o}", "index", (int)i, "text", text,
                                     "logprobs", logprobs, "finish_reason", finish));
    }
    json_t *made =
        envelope(render, render->form.is_chat ? "chat.completion" : "text_completion", choices);
    (void)json_object_set_new(made, "usage", usage_json(render));
    char *text = made != NULL ? json_dumps(made, JSON_COMPACT) : NULL;
    json_decref(made);
    return text;
}
