/* See call.h. */
#define _GNU_SOURCE /* memmem */

#include "tool/record/call.h"

#include <stdlib.h>
#include <string.h>

/* A line of a stream, or an object, that is longer is not looked at. */
#define MAX_TEXT ((size_t)16 << 20)
/* Of a prompt and its answer. */
#define MAX_IDS ((size_t)8 << 20)

static const char no_memory[] = "out of memory";

/* ------------------------------------------------------------------------------------- a call */

/* What of a call decides about its prompt, in both of vLLM's interfaces. */
static const char *const passed[] = {"model",
                                     "messages",
                                     "prompt",
                                     "add_generation_prompt",
                                     "continue_final_message",
                                     "add_special_tokens",
                                     "chat_template",
                                     "chat_template_kwargs",
                                     "tools"};

static bool is_text(json_t *messages)
{
    size_t i, j;
    json_t *message, *part;
    json_array_foreach(messages, i, message)
    {
        json_array_foreach(json_object_get(message, "content"), j, part)
        {
            const char *type = json_string_value(json_object_get(part, "type"));
            if (type != NULL && strcmp(type, "text") != 0)
                return false;
        }
    }
    return true;
}

static const char *read_tokens(kvpi_call *call, json_t *array)
{
    size_t i;
    json_t *token;
    free(call->tokens);
    call->n_tokens = json_array_size(array);
    call->tokens = malloc(call->n_tokens * sizeof *call->tokens + 1);
    if (call->tokens == NULL)
        return no_memory;
    json_array_foreach(array, i, token)
    {
        const json_int_t value = json_is_integer(token) ? json_integer_value(token) : -1;
        if (value < 0 || value > INT32_MAX)
            return "a token that is none";
        call->tokens[i] = (int32_t)value;
    }
    return NULL;
}

static const char *read_scope(kvpi_call *call, json_t *body)
{
    json_t *model = json_object_get(body, "model"), *salt = json_object_get(body, "cache_salt");
    const size_t n_model = json_is_string(model) ? json_string_length(model) : 0;
    const size_t n_salt = json_is_string(salt) ? json_string_length(salt) : 0;
    call->scope_bytes = n_model + 1 + n_salt;
    call->scope = calloc(1, call->scope_bytes);
    if (call->scope == NULL)
        return no_memory;
    if (n_model > 0)
        memcpy(call->scope, json_string_value(model), n_model);
    if (n_salt > 0)
        memcpy(call->scope + n_model + 1, json_string_value(salt), n_salt);
    return NULL;
}

static const char *read_question(kvpi_call *call, json_t *body)
{
    call->tokenize = json_object();
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        json_t *value = json_object_get(body, passed[i]);
        if (value != NULL && json_object_set(call->tokenize, passed[i], value) != 0)
            return no_memory;
    }
    return NULL;
}

/* A prompt is a text, its tokens, or a list of one of these. */
static const char *read_prompt(kvpi_call *call, json_t *body, json_t *prompt)
{
    if (json_array_size(prompt) == 1 && !json_is_integer(json_array_get(prompt, 0))) {
        prompt = json_array_get(prompt, 0);
        (void)json_object_set(body, "prompt", prompt);
    }
    if (json_is_string(prompt))
        return read_question(call, body);
    if (json_is_array(prompt) && json_is_integer(json_array_get(prompt, 0)))
        return read_tokens(call, prompt);
    return "more than one prompt, or none";
}

const char *kvpi_call_read(kvpi_call *call, const char *body, size_t n_bytes, bool is_chat)
{
    json_t *root = json_loadb(body, n_bytes, JSON_ALLOW_NUL, NULL);
    json_t *messages = json_object_get(root, "messages");
    const char *why = "a body that is no JSON object";
    if (json_is_object(root))
        why = read_scope(call, root);
    if (why == NULL && is_chat)
        why = !json_is_array(messages) ? "no messages"
              : !is_text(messages)     ? "messages of more than text"
                                       : read_question(call, root);
    else if (why == NULL)
        why = read_prompt(call, root, json_object_get(root, "prompt"));
    json_decref(root);
    return why;
}

const char *kvpi_call_tokenized(kvpi_call *call, const char *body, size_t n_bytes)
{
    json_t *root = json_loadb(body, n_bytes, JSON_ALLOW_NUL, NULL);
    json_t *tokens = json_object_get(root, "tokens");
    const char *why = json_is_array(tokens) ? read_tokens(call, tokens) : "no tokens in the answer";
    json_decref(root);
    return why;
}

void kvpi_call_free(kvpi_call *call)
{
    json_decref(call->tokenize);
    free(call->tokens);
    free(call->scope);
    *call = (kvpi_call){0};
}

/* ----------------------------------------------------------------------------------- an answer */

static int64_t count_of(json_t *of, const char *name)
{
    json_t *value = json_object_get(of, name);
    return json_is_integer(value) && json_integer_value(value) >= 0 ? json_integer_value(value)
                                                                    : -1;
}

static void add_ids(kvpi_reply *answer, json_t *array)
{
    const size_t n = json_array_size(array);
    if (answer->n_ids + n > MAX_IDS)
        return;
    if (answer->n_ids + n > answer->ids_capacity) {
        const size_t wanted = 2 * (answer->n_ids + n);
        int32_t *grown = realloc(answer->ids, wanted * sizeof *grown);
        if (grown == NULL)
            return;
        answer->ids = grown;
        answer->ids_capacity = wanted;
    }
    for (size_t i = 0; i < n; i++)
        answer->ids[answer->n_ids++] = (int32_t)json_integer_value(json_array_get(array, i));
}

/* The prompt's come first: in the object, or in the choice. */
static void read_ids(kvpi_reply *answer, json_t *root)
{
    json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    json_t *prompt = json_object_get(root, "prompt_token_ids");
    if (!json_is_array(prompt))
        prompt = json_object_get(choice, "prompt_token_ids");
    if (answer->n_prompt == 0 && json_array_size(prompt) > 0) {
        add_ids(answer, prompt);
        answer->n_prompt = answer->n_ids;
    }
    if (answer->n_prompt > 0 && json_integer_value(json_object_get(choice, "index")) == 0)
        add_ids(answer, json_object_get(choice, "token_ids"));
}

static void read_object(kvpi_reply *answer, const char *text, size_t n)
{
    const bool has_ids = memmem(text, n, "token_ids\"", 10) != NULL;
    if (memmem(text, n, "\"usage\"", 7) == NULL && !has_ids)
        return;
    json_t *root = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    if (has_ids)
        read_ids(answer, root);
    json_t *usage = json_object_get(root, "usage");
    if (json_is_object(usage)) {
        answer->input_tokens = count_of(usage, "prompt_tokens");
        answer->output_tokens = count_of(usage, "completion_tokens");
        answer->cached_tokens =
            count_of(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
    }
    json_decref(root);
}

/* A line of a stream is complete. */
static void end_line(kvpi_reply *answer)
{
    const char *text = answer->text;
    size_t n = answer->n;
    while (n > 0 && (text[n - 1] == '\r' || text[n - 1] == '\n'))
        n--;
    if (!answer->is_over && n > 5 && memcmp(text, "data:", 5) == 0 &&
        memmem(text, n, "[DONE]", 6) != text + n - 6) {
        answer->n_chunks += memmem(text, n, "\"choices\":[]", 12) == NULL;
        read_object(answer, text + 5, n - 5);
    }
    answer->n = 0;
    answer->is_over = false;
}

static void keep(kvpi_reply *answer, const char *bytes, size_t n)
{
    if (answer->is_over || answer->n + n > MAX_TEXT) {
        answer->is_over = true;
        return;
    }
    if (answer->n + n > answer->capacity) {
        const size_t wanted = (answer->n + n) * 2;
        char *grown = realloc(answer->text, wanted);
        answer->is_over = grown == NULL;
        if (grown == NULL)
            return;
        answer->text = grown;
        answer->capacity = wanted;
    }
    memcpy(answer->text + answer->n, bytes, n);
    answer->n += n;
}

void kvpi_reply_begin(kvpi_reply *answer, bool is_stream)
{
    answer->is_stream = is_stream;
    answer->input_tokens = answer->output_tokens = answer->cached_tokens = -1;
}

void kvpi_reply_take(kvpi_reply *answer, const char *bytes, size_t n)
{
    while (answer->is_stream && n > 0) {
        const char *newline = memchr(bytes, '\n', n);
        const size_t piece = newline == NULL ? n : (size_t)(newline - bytes) + 1;
        keep(answer, bytes, piece);
        if (newline != NULL)
            end_line(answer);
        bytes += piece;
        n -= piece;
    }
    if (n > 0)
        keep(answer, bytes, n);
}

void kvpi_reply_end(kvpi_reply *answer)
{
    if (answer->is_stream)
        end_line(answer);
    else if (!answer->is_over && answer->n > 0)
        read_object(answer, answer->text, answer->n);
}

void kvpi_reply_free(kvpi_reply *answer)
{
    free(answer->text);
    free(answer->ids);
    answer->text = NULL;
    answer->ids = NULL;
}

bool kvpi_call_take_ids(kvpi_call *call, kvpi_reply *answer, size_t *n_prompt)
{
    if (answer->n_prompt == 0)
        return false;
    json_decref(call->tokenize);
    free(call->tokens);
    call->tokenize = NULL;
    call->tokens = answer->ids;
    call->n_tokens = answer->n_ids;
    *n_prompt = answer->n_prompt;
    answer->ids = NULL;
    answer->n_ids = answer->ids_capacity = answer->n_prompt = 0;
    return true;
}
