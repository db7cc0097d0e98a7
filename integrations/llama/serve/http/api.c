/* api: a request's members, and what is not supported. */
#define _DEFAULT_SOURCE /* strdup, getrandom */

#include "api.h"
#include "fields.h"
#include "prompt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Texts can repeat what a client sent, and may be cut inside a character. */
static json_t *whole_string(const char *bytes)
{
    static const kvpi_stops none;
    kvpi_text text = {0};
    json_t *made = NULL;
    if (kvpi_text_put(&text, bytes, strlen(bytes), &none) == 0 && kvpi_text_end(&text) == 0)
        made = json_stringn(text.bytes != NULL ? text.bytes : "", text.n);
    kvpi_text_free(&text);
    return made;
}

char *kvpi_refusal_json(const kvpi_refusal *refusal)
{
    json_t *field = refusal->field[0] != '\0' ? json_string(refusal->field) : json_null();
    json_t *error =
        json_pack("{s:{s:o, s:s, s:o, s:i}}", "error", "message", whole_string(refusal->text),
                  "type", refusal->type, "param", field, "code", (int)refusal->status);
    char *text = error != NULL ? json_dumps(error, JSON_COMPACT) : NULL;
    json_decref(error);
    return text;
}

json_t *kvpi_api_parse(const char *bytes, size_t n_bytes, kvpi_refusal *out_refusal)
{
    json_error_t error;
    char text[256];
    json_t *body = json_loadb(n_bytes > 0 ? bytes : "", n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (body != NULL && json_is_object(body))
        return body;
    (void)snprintf(text, sizeof text, "the body is no JSON object%s%.160s",
                   body == NULL ? ": " : "", body == NULL ? error.text : "");
    json_decref(body);
    return kvpi_refuse(out_refusal, 400, "", text);
}

/* What OpenAI's protocol has and this server has not. A request that asks for it is refused: an
 * answer without it would be a wrong one. */
static void refuse_unsupported(const kvpi_fields *fields, int is_chat)
{
    static const char *const names[] = {"tools",       "functions", "function_call", "suffix",
                                        "prediction",  "audio",     "echo",          "images",
                                        "json_schema", "lora"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        kvpi_fields_refuse(fields, names[i], "");
    const json_t *choice = kvpi_fields_get(fields, "tool_choice");
    if (choice != NULL &&
        (!json_is_string(choice) || (strcmp(json_string_value(choice), "none") != 0 &&
                                     strcmp(json_string_value(choice), "auto") != 0)))
        (void)kvpi_refuse(fields->refusal, 400, "tool_choice", "tool_choice is not supported");
    const json_t *format = kvpi_fields_get(fields, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format != NULL && (type == NULL || strcmp(type, "text") != 0))
        (void)kvpi_refuse(fields->refusal, 400, "response_format",
                          "response_format is not supported, except text; grammar is");
    const json_t *modalities = kvpi_fields_get(fields, "modalities");
    for (size_t i = 0; i < json_array_size(modalities); i++) {
        const char *name = json_string_value(json_array_get(modalities, i));
        if (name == NULL || strcmp(name, "text") != 0)
            (void)kvpi_refuse(fields->refusal, 400, "modalities",
                              "modalities is not supported, except text");
    }
    if (!is_chat)
        (void)kvpi_fields_integer(fields, "best_of", 1, 1, 1);
}

/* ---------------------------------------------------------------------------------- its members */

static void read_stops(const kvpi_fields *fields, kvpi_stops *stops)
{
    json_t *stop = kvpi_fields_get(fields, "stop");
    const size_t n = json_is_string(stop) ? 1 : json_array_size(stop);
    if (stop == NULL)
        return;
    if (!(json_is_string(stop) || json_is_array(stop)) || n > KVPI_STOPS_MOST) {
        (void)kvpi_refuse(fields->refusal, 400, "stop",
                          "stop must be a string, or an array of at most 16 strings");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_string(stop) ? stop : json_array_get(stop, i);
        const size_t n_bytes = json_string_length(one);
        if (!json_is_string(one) || n_bytes == 0 || n_bytes > KVPI_STOP_BYTES_MOST) {
            (void)kvpi_refuse(fields->refusal, 400, "stop",
                              "stop must have strings of 1 to 256 bytes");
            return;
        }
        memcpy(stops->strings[i], json_string_value(one), n_bytes);
        stops->n_bytes[i] = n_bytes;
        stops->n = i + 1;
    }
}

/* Written as JSON writes it, so that no two keys are one number. */
static int is_number(const char *key)
{
    const size_t n = strspn(key, "0123456789");
    return n > 0 && key[n] == '\0' && (n == 1 || key[0] != '0');
}

static void read_biases(const kvpi_fields *fields, kvpi_sampling *sampling, int32_t n_vocab)
{
    const char *key;
    json_t *value, *biases = kvpi_fields_get(fields, "logit_bias");
    if (biases == NULL)
        return;
    if (!json_is_object(biases) || json_object_size(biases) > KVPI_BIASES_MOST) {
        (void)kvpi_refuse(fields->refusal, 400, "logit_bias",
                          "logit_bias must be an object of at most 300 token ids");
        return;
    }
    json_object_foreach(biases, key, value)
    {
        const long id = strtol(key, NULL, 10);
        const double bias = json_number_value(value);
        if (!is_number(key) || id >= n_vocab || !json_is_number(value) || bias < -100 ||
            bias > 100) {
            (void)kvpi_refuse(fields->refusal, 400, "logit_bias",
                              "logit_bias must have token ids with numbers from -100 to 100");
            return;
        }
        /* -100 bans a token, says the protocol. */
        sampling->biases[sampling->n_biases++] =
            (llama_logit_bias){(int32_t)id, bias <= -100 ? -INFINITY : (float)bias};
    }
}

static void read_logprobs(const kvpi_fields *fields, kvpi_sampling *sampling, int is_chat)
{
    if (!is_chat) {
        sampling->n_logprobs =
            (int32_t)kvpi_fields_integer(fields, "logprobs", 0, KVPI_LOGPROBS_MOST, -1);
        return;
    }
    const int64_t n_top = kvpi_fields_integer(fields, "top_logprobs", 0, KVPI_LOGPROBS_MOST, 0);
    if (kvpi_fields_flag(fields, "logprobs", 0))
        sampling->n_logprobs = (int32_t)n_top;
    else if (n_top > 0)
        (void)kvpi_refuse(fields->refusal, 400, "top_logprobs",
                          "top_logprobs needs logprobs: true");
}

static void read_sampling(const kvpi_api *api, const kvpi_fields *fields, kvpi_sampling *sampling,
                          int is_chat)
{
    size_t n_bytes;
#define REAL(name, low, high)                                                                      \
    sampling->name = (float)kvpi_fields_real(fields, #name, low, high, (double)sampling->name)
    REAL(temperature, 0, 100);
    REAL(top_p, 0, 1);
    REAL(min_p, 0, 1);
    REAL(repeat_penalty, 0.01, 100);
    REAL(frequency_penalty, -2, 2);
    REAL(presence_penalty, -2, 2);
#undef REAL
    sampling->top_k = (int32_t)kvpi_fields_integer(fields, "top_k", -1, INT32_MAX, sampling->top_k);
    sampling->repeat_last_n =
        (int32_t)kvpi_fields_integer(fields, "repeat_last_n", 0, 1 << 16, sampling->repeat_last_n);
    sampling->seed = (uint32_t)kvpi_fields_integer(fields, "seed", INT64_MIN, INT64_MAX,
                                                   (int64_t)(int32_t)sampling->seed);
    if (sampling->seed == UINT32_MAX &&
        getrandom(&sampling->seed, sizeof sampling->seed, 0) != (ssize_t)sizeof sampling->seed)
        sampling->seed = (uint32_t)kvpi_job_now_ns();
    sampling->ignore_eos = kvpi_fields_flag(fields, "ignore_eos", 0);
    read_biases(fields, sampling, llama_vocab_n_tokens(api->vocab));
    read_logprobs(fields, sampling, is_chat);
    const char *grammar = kvpi_fields_text(fields, "grammar", &n_bytes);
    if (grammar == NULL || n_bytes == 0)
        return;
    sampling->grammar = strdup(grammar);
    if (sampling->grammar == NULL)
        (void)kvpi_refuse(fields->refusal, 503, "", "no memory");
}

static void read_salt(const kvpi_fields *fields, kvpi_job *job)
{
    size_t n_bytes;
    const char *salt = kvpi_fields_text(fields, "cache_salt", &n_bytes);
    if (n_bytes > KVPI_SALT_BYTES_MOST) {
        (void)kvpi_refuse(fields->refusal, 400, "cache_salt",
                          "cache_salt must have at most 200 bytes");
        return;
    }
    if (salt != NULL)
        memcpy(job->salt, salt, n_bytes);
    job->salt_bytes = n_bytes;
}

static int reads_usage(const kvpi_fields *fields)
{
    const json_t *options = kvpi_fields_get(fields, "stream_options");
    const json_t *wants = json_object_get(options, "include_usage");
    if (options != NULL && (!json_is_object(options) ||
                            (wants != NULL && !json_is_null(wants) && !json_is_boolean(wants))))
        (void)kvpi_refuse(fields->refusal, 400, "stream_options",
                          "stream_options must be an object, and its include_usage true or false");
    return json_is_true(wants);
}

/* How many new tokens: what is asked for, as far as it fits. */
static void read_lengths(const kvpi_api *api, const kvpi_fields *fields, kvpi_job *job, int is_chat)
{
    char text[160];
    const kvpi_limits *limits = &api->loop->limits;
    const uint32_t most = kvpi_limits_new(limits, job->n_tokens, job->n_samples);
    const char *name = is_chat && kvpi_fields_get(fields, "max_completion_tokens") != NULL
                           ? "max_completion_tokens"
                           : "max_tokens";
    if (job->n_tokens == 0) {
        (void)kvpi_refuse(fields->refusal, 400, is_chat ? "messages" : "prompt",
                          "the prompt has no tokens");
        return;
    }
    if (most == 0) {
        (void)snprintf(text, sizeof text,
                       "the prompt has %u tokens; with n = %u at most %u fit into the context",
                       job->n_tokens, job->n_samples, kvpi_limits_prompt(limits, job->n_samples));
        (void)kvpi_refuse(fields->refusal, 400, is_chat ? "messages" : "prompt", text);
        return;
    }
    const int64_t otherwise = api->options->predict > 0 ? api->options->predict : most;
    const int64_t asked = kvpi_fields_integer(fields, name, -1, INT32_MAX, otherwise);
    job->max_new_tokens = asked < 1 || asked > most ? most : (uint32_t)asked;
    if (asked == 0)
        (void)kvpi_refuse(fields->refusal, 400, name, "at least one token must be generated");
}

static int make_samplers(const kvpi_api *api, kvpi_job *job, kvpi_refusal *refusal)
{
    for (uint32_t i = 0; i < job->n_samples; i++)
        if (kvpi_sampler_init(&job->samples[i].sampler, &job->sampling, api->vocab, i, job->tokens,
                              job->n_tokens) != 0) {
            (void)kvpi_refuse(refusal, 400, "grammar", "grammar cannot be parsed");
            return -1;
        }
    return 0;
}

kvpi_job *kvpi_api_read(const kvpi_api *api, json_t *body, int is_chat, kvpi_form *out_form,
                        kvpi_refusal *out_refusal)
{
    const kvpi_fields fields = {body, out_refusal};
    refuse_unsupported(&fields, is_chat);
    const uint32_t n =
        (uint32_t)kvpi_fields_integer(&fields, "n", 1, api->loop->limits.max_running, 1);
    if (out_refusal->status != 0)
        return NULL;
    kvpi_job *job = kvpi_job_new(n);
    if (job == NULL)
        return kvpi_refuse(out_refusal, 503, "", "no memory");
    job->sampling = api->options->sampling;
    *out_form =
        (kvpi_form){.is_chat = is_chat, .is_stream = kvpi_fields_flag(&fields, "stream", 0)};
    out_form->wants_usage = reads_usage(&fields);
    read_stops(&fields, &job->stops);
    read_sampling(api, &fields, &job->sampling, is_chat);
    read_salt(&fields, job);
    job->tokens = is_chat ? kvpi_prompt_chat(api, &fields, &job->n_tokens)
                          : kvpi_prompt_completion(api, &fields, &job->n_tokens);
    if (job->tokens == NULL)
        (void)kvpi_refuse(out_refusal, 503, "", "no memory");
    else
        read_lengths(api, &fields, job, is_chat);
    if (out_refusal->status == 0 && make_samplers(api, job, out_refusal) == 0)
        return job;
    kvpi_job_drop(job);
    return NULL;
}

int32_t *kvpi_api_read_text(const kvpi_api *api, json_t *body, uint32_t *out_n,
                            kvpi_refusal *out_refusal)
{
    size_t n_bytes;
    const kvpi_fields fields = {body, out_refusal};
    const char *text = kvpi_fields_text(&fields, "content", &n_bytes);
    const int add_special = kvpi_fields_flag(&fields, "add_special", 0);
    if (text == NULL)
        return kvpi_refuse(out_refusal, 400, "content", "content must be a string");
    if (out_refusal->status != 0)
        return NULL;
    int32_t *tokens = kvpi_api_tokenize(api, text, n_bytes, add_special, out_n);
    return tokens != NULL ? tokens : kvpi_refuse(out_refusal, 503, "", "no memory");
}
